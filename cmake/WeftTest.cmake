# SPDX-License-Identifier: Apache-2.0
# What `tests/run` runs: one line "<light|heavy|waits|memory|still|alone|after> <seconds> <command>" for each program in
# <build>/tests.list.  A few run at a time, the longest limits first, and beside them one that takes much memory; then
# those that must wake in time, those that want the machine alone, and those that read all results.
set_property(GLOBAL PROPERTY WEFT_TEST_LINES "")
function(weft_test_line weight seconds command)
  set_property(GLOBAL APPEND PROPERTY WEFT_TEST_LINES "${weight} ${seconds} ${command}")
endfunction()

# Compiling the tests takes longer than running most of them, so their own files are hardly optimised: with a sanitizer
# not at all, otherwise as far as the compiler needs for its warnings.  The library is built as the preset says.  Beside
# AddressSanitizer the undefined behaviour of the library alone is looked for; that of the tests is by `make ubsan`.
set(WEFT_TEST_LEVEL -O1)
if(WEFT_SANITIZE)
  set(WEFT_TEST_LEVEL -O0)
endif()
set(WEFT_TEST_CHECKS)
if(WEFT_SANITIZE MATCHES "address.*undefined")
  set(WEFT_TEST_CHECKS -fno-sanitize=undefined)
endif()

# Hundreds of programs are linked with all of the library, which another linker does in a third of the time.  The libraries
# and the command are linked as users get them.  By one thread, strings as they come and no hash over the file: a quarter
# less of the processor's time, which on few cores is the time of the build.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=lld WEFT_HAS_LLD)
set(WEFT_TEST_LINKER)
if(WEFT_HAS_LLD)
  set(WEFT_TEST_LINKER -fuse-ld=lld -Wl,-O0,--threads=1,--build-id=none)
endif()

# The tests reach into the library.  With a copy of it in each program the three builds of `make test` take 5.5 GB, so the
# programs share one that offers its internals too.  These are protected then instead of hidden, which is the same to the
# library itself.  GNU's linker refuses some of clang's uses of protected names: without the other one each program has its
# copy.
set(WEFT_TEST_LIBRARY weft_static)
if(WEFT_HAS_LLD)
  set_target_properties(weft_objects PROPERTIES C_VISIBILITY_PRESET protected)
  add_library(weft_inside SHARED $<TARGET_OBJECTS:weft_objects>)
  target_include_directories(weft_inside INTERFACE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(weft_inside PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
  target_link_options(weft_inside PRIVATE ${WEFT_TEST_LINKER} -Wl,-Bsymbolic-functions)
  set(WEFT_TEST_LIBRARY weft_inside)
endif()

# weft_link_test(program [library]): links the harness, and that library instead of the one above.
function(weft_link_test program)
  set(library ${ARGN})
  if(NOT library)
    set(library ${WEFT_TEST_LIBRARY})
  endif()
  # Not -fPIE, which takes variables for the program's own.
  set_target_properties(${program} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${program} PRIVATE -fPIC)
  target_link_libraries(${program} PRIVATE weft_harness ${library} Threads::Threads m)
  target_link_options(${program} PRIVATE ${WEFT_TEST_LINKER})
endfunction()

# Names of OpenBLAS for processors.
set(WEFT_TEST_CORES)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(WEFT_TEST_CORES Prescott Haswell SkylakeX)
endif()

# weft_test(noun [LIGHT] [WAITS] [MEMORY] [STILL] [ALONE] [THREADS] [NO_ASAN] [COMPUTES] [MULTIPLIES] [STATIC] [HOSTS] [SECONDS n] [PROGRAM name] [SOURCE file])
# builds test_<noun>.c of this folder with the library and its internals.
#   LIGHT    needs one core
#   WAITS    needs a core for less than a third of its time
#   MEMORY   takes gigabytes: no other that does runs beside it
#   STILL    sleeps most of the time and must wake in time: nothing runs beside it but one of its kind
#   ALONE    measures, or leaves no room for others: nothing runs beside it
#   THREADS  has ranks, or other work, on threads of one process: also built and run with ThreadSanitizer
#   NO_ASAN  too slow for the builds with AddressSanitizer or UndefinedBehaviorSanitizer: left out of them
#   COMPUTES spends its time in its own loops, as one does that compares large results: optimised as the library is
#   MULTIPLIES  what it asks of matrix products must hold with the kernels for any processor: in the dev build it runs once more
#            with each of WEFT_TEST_CORES (tests/run-core)
#   STATIC   with a copy of the library of its own: it looks at where that lies in the program
#   HOSTS    its tests with several ranks also run with these on several hosts (tests/harness_ranks.h)
#   SECONDS  limit of its processor time and sleep (tests/within.c), default 60; ten times what it takes on two cores, and
#            more where that is little.  tests/run triples it with AddressSanitizer and takes it five times with
#            ThreadSanitizer
#   PROGRAM  its name, if not test_<noun>
#   SOURCE   its source, if that has another name
function(weft_test noun)
  cmake_parse_arguments(arg "LIGHT;WAITS;MEMORY;STILL;ALONE;THREADS;NO_ASAN;COMPUTES;MULTIPLIES;STATIC;HOSTS" "SECONDS;PROGRAM;SOURCE" "" ${ARGN})
  set(program test_${noun})
  if(arg_PROGRAM)
    set(program ${arg_PROGRAM})
  endif()
  if(NOT arg_SOURCE)
    set(arg_SOURCE ${program}.c)
  endif()
  if(WEFT_SANITIZE MATCHES "thread" AND NOT arg_THREADS)
    return()
  endif()
  if(WEFT_SANITIZE MATCHES "address|undefined" AND arg_NO_ASAN)
    return()
  endif()
  add_executable(${program} ${arg_SOURCE})
  add_dependencies(${program} within)
  set(options ${WEFT_TEST_CHECKS})
  if(NOT arg_COMPUTES)
    list(APPEND options ${WEFT_TEST_LEVEL})
  endif()
  set_source_files_properties(${arg_SOURCE} PROPERTIES COMPILE_OPTIONS "${options}")
  target_include_directories(${program} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests
    ${PROJECT_SOURCE_DIR}/src)
  if(arg_HOSTS)
    target_compile_definitions(${program} PRIVATE HARNESS_HOSTS="")
  endif()
  if(arg_STATIC)
    weft_link_test(${program} weft_static)
  else()
    weft_link_test(${program})
  endif()
  if(TARGET weft_command AND NOT WEFT_SANITIZE MATCHES "thread")
    target_compile_definitions(${program} PRIVATE WEFT_COMMAND="$<TARGET_FILE:weft_command>")
    add_dependencies(${program} weft_command)
  endif()
  set(weight heavy)
  if(arg_LIGHT)
    set(weight light)
  elseif(arg_WAITS)
    set(weight waits)
  elseif(arg_MEMORY)
    set(weight memory)
  elseif(arg_STILL)
    set(weight still)
  elseif(arg_ALONE)
    set(weight alone)
  endif()
  if(NOT arg_SECONDS)
    set(arg_SECONDS 60)
  endif()
  weft_test_line(${weight} ${arg_SECONDS} $<TARGET_FILE:${program}>)
  if(arg_MULTIPLIES AND TARGET weft_command AND NOT WEFT_SANITIZE)
    foreach(core IN LISTS WEFT_TEST_CORES)
      weft_test_line(${weight} ${arg_SECONDS}
        "${PROJECT_SOURCE_DIR}/tests/run-core ${core} $<TARGET_FILE:${program}> $<TARGET_FILE:weft_command>")
    endforeach()
  endif()
endfunction()

# A check or test that is a script of the tree; not repeated in sanitizer builds.
function(weft_check weight seconds command)
  if(NOT WEFT_SANITIZE)
    weft_test_line(${weight} ${seconds} "${PROJECT_SOURCE_DIR}/${command}")
  endif()
endfunction()

function(weft_write_test_list)
  get_property(lines GLOBAL PROPERTY WEFT_TEST_LINES)
  list(JOIN lines "\n" text)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/tests.list CONTENT "${text}\n")
endfunction()
