# SPDX-License-Identifier: Apache-2.0
# The stand-in of NCCL, and what makes programs with it.
add_library(weft_nccl_standin OBJECT EXCLUDE_FROM_ALL nccl/standin.c nccl/standin_run.c nccl/standin_window.c)
target_include_directories(weft_nccl_standin PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/include)
target_compile_options(weft_nccl_standin PRIVATE "SHELL:-iquote ${CMAKE_CURRENT_SOURCE_DIR}/cuda")

# weft_nccl_twin(floor noun ...): test_nccl_<noun>, the same where NCCL carries the collectives.
function(weft_nccl_twin floor noun)
  weft_cuda_test(nccl_${noun} SOURCE ${PROJECT_SOURCE_DIR}/tests/${floor}/test_${noun}.c ${ARGN})
  if(TARGET test_nccl_${noun})
    target_compile_definitions(test_nccl_${noun} PRIVATE WEFT_TEST_ON_CUDA WEFT_TEST_ON_NCCL)
    target_sources(test_nccl_${noun} PRIVATE $<TARGET_OBJECTS:weft_nccl_standin>)
  endif()
endfunction()
