# SPDX-License-Identifier: Apache-2.0
# Tests of backend nccl: on the stand-in of this folder over the software driver, or with WEFT_TEST_CUDA=real on NCCL
# and a GPU (scripts/gpu-check).
add_library(weft_nccl_standin OBJECT EXCLUDE_FROM_ALL nccl/standin.c nccl/standin_run.c nccl/standin_window.c)
target_include_directories(weft_nccl_standin PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/include)
target_compile_options(weft_nccl_standin PRIVATE "SHELL:-iquote ${CMAKE_CURRENT_SOURCE_DIR}/cuda")

weft_nccl_twin(traceable) # ThreadSanitizer sees the carrier in test_nccl, and the bodies in test_cuda_traceable
weft_nccl_twin(functional_grad_backend THREADS)
weft_nccl_twin(tracing THREADS)
weft_nccl_twin(symm_coll SECONDS 120) # as test_nccl_symm: not with ThreadSanitizer
if(TARGET test_nccl_symm_coll)
  target_compile_definitions(test_nccl_symm_coll PRIVATE WEFT_TEST_NCCL_MEMORY)
endif()

weft_cuda_test(nccl WAITS THREADS)
weft_cuda_test(nccl_fast THREADS)
weft_cuda_test(nccl_symm SECONDS 120) # windows of 4 GiB a rank do not fit what ThreadSanitizer leaves of the addresses
foreach(program test_nccl test_nccl_fast test_nccl_symm)
  if(TARGET ${program})
    target_sources(${program} PRIVATE $<TARGET_OBJECTS:weft_nccl_standin>)
  endif()
endforeach()

weft_test(nccl_abi LIGHT)
find_path(WEFT_NCCL_INCLUDE nccl.h HINTS $ENV{NCCL_HOME}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include)
if(WEFT_NCCL_INCLUDE AND WEFT_CUDA_INCLUDE AND TARGET test_nccl_abi)
  target_include_directories(test_nccl_abi SYSTEM PRIVATE ${WEFT_NCCL_INCLUDE} ${WEFT_CUDA_INCLUDE})
endif()

add_executable(nccl_bench EXCLUDE_FROM_ALL nccl/bench.c $<TARGET_OBJECTS:weft_nccl_standin>
  $<TARGET_OBJECTS:weft_cuda_model>)
target_include_directories(nccl_bench PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(nccl_bench PRIVATE weft_static Threads::Threads m)
