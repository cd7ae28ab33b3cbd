# SPDX-License-Identifier: Apache-2.0
# The software driver of CUDA, which tests run on where there is no GPU, and what makes programs with it.
# The kernels' folder is given by -iquote: it has a signal.h, which is not the system's.
add_library(weft_cuda_model OBJECT EXCLUDE_FROM_ALL cuda/model.c cuda/model_stream.c cuda/model_kernels.c
  cuda/model_tensor.c cuda/model_multicast.c cuda/model_blas.c cuda/model_nvml.c cuda/model_nvrtc.c)
target_include_directories(weft_cuda_model PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(weft_cuda_model PRIVATE WEFT_TEST_SOURCE="${PROJECT_SOURCE_DIR}")
target_compile_options(weft_cuda_model PRIVATE -fno-strict-aliasing
  "SHELL:-iquote ${CMAKE_CURRENT_SOURCE_DIR}/cuda" "SHELL:-iquote ${PROJECT_SOURCE_DIR}/src/backends/cuda/kernels")

function(weft_cuda_test noun)
  weft_test(${noun} ${ARGN})
  if(TARGET test_${noun})
    target_sources(test_${noun} PRIVATE $<TARGET_OBJECTS:weft_cuda_model>)
  endif()
endfunction()

# weft_cuda_twin(floor noun ...): test_cuda_<noun>, made of tests/<floor>/test_<noun>.c, with the GPU for its device.
function(weft_cuda_twin floor noun)
  weft_cuda_test(cuda_${noun} SOURCE ${PROJECT_SOURCE_DIR}/tests/${floor}/test_${noun}.c ${ARGN})
  if(TARGET test_cuda_${noun})
    target_compile_definitions(test_cuda_${noun} PRIVATE WEFT_TEST_ON_CUDA)
  endif()
endfunction()
