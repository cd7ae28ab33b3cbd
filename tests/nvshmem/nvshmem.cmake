# SPDX-License-Identifier: Apache-2.0
# What makes programs with the stand-in of NVSHMEM.
# weft_nvshmem_twin(floor noun ...): test_nvshmem_<noun>, made of tests/<floor>/test_<noun>.c, with symmetric memory of
# NVSHMEM.
function(weft_nvshmem_twin floor noun)
  weft_cuda_test(nvshmem_${noun} SOURCE ${PROJECT_SOURCE_DIR}/tests/${floor}/test_${noun}.c ${ARGN})
  if(TARGET test_nvshmem_${noun})
    target_compile_definitions(test_nvshmem_${noun} PRIVATE WEFT_TEST_ON_CUDA WEFT_TEST_ON_NVSHMEM)
  endif()
endfunction()
