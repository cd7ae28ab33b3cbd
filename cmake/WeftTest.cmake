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

# weft_test(noun [LIGHT] [WAITS] [MEMORY] [STILL] [ALONE] [THREADS] [NO_ASAN] [COMPUTES] [SECONDS n] [PROGRAM name] [SOURCE file])
# builds tests/test_<noun>.c with the static library, so that internals can be reached.
#   LIGHT    needs one core
#   WAITS    needs a core for less than a third of its time
#   MEMORY   takes gigabytes: no other that does runs beside it
#   STILL    sleeps most of the time and must wake in time: nothing runs beside it but one of its kind
#   ALONE    measures, or leaves no room for others: nothing runs beside it
#   THREADS  has ranks, or other work, on threads of one process: also built and run with ThreadSanitizer
#   NO_ASAN  too slow for the builds with AddressSanitizer or UndefinedBehaviorSanitizer: left out of them
#   COMPUTES spends its time in its own loops, as one does that compares large results: optimised as the library is
#   SECONDS  time limit, default 60; ten times what it takes on two cores, and more where that is little.  tests/run
#            triples it with AddressSanitizer and takes it five times with ThreadSanitizer
#   PROGRAM  its name, if not test_<noun>
#   SOURCE   its source, if that has another name
function(weft_test noun)
  cmake_parse_arguments(arg "LIGHT;WAITS;MEMORY;STILL;ALONE;THREADS;NO_ASAN;COMPUTES" "SECONDS;PROGRAM;SOURCE" "" ${ARGN})
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
  set(options ${WEFT_TEST_CHECKS})
  if(NOT arg_COMPUTES)
    list(APPEND options ${WEFT_TEST_LEVEL})
  endif()
  set_source_files_properties(${arg_SOURCE} PROPERTIES COMPILE_OPTIONS "${options}")
  target_include_directories(${program} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${program} PRIVATE weft_harness weft_static Threads::Threads m)
  target_link_options(${program} PRIVATE ${WEFT_TEST_LINKER})
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
