# SPDX-License-Identifier: Apache-2.0
# Tests of CUDA: on the software driver of this folder, or on a GPU with WEFT_TEST_CUDA=real (scripts/gpu-check).
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

# weft_cuda_twin(noun ...): test_cuda_<noun>, made of test_<noun>.c, with the GPU for its device.
function(weft_cuda_twin noun)
  weft_cuda_test(cuda_${noun} SOURCE test_${noun}.c ${ARGN})
  if(TARGET test_cuda_${noun})
    target_compile_definitions(test_cuda_${noun} PRIVATE WEFT_TEST_ON_CUDA)
  endif()
endfunction()
# weft_nccl_twin(noun ...): test_nccl_<noun>, where NCCL carries the collectives.
function(weft_nccl_twin noun)
  weft_cuda_test(nccl_${noun} SOURCE test_${noun}.c ${ARGN})
  if(TARGET test_nccl_${noun})
    target_compile_definitions(test_nccl_${noun} PRIVATE WEFT_TEST_ON_CUDA WEFT_TEST_ON_NCCL)
    target_sources(test_nccl_${noun} PRIVATE $<TARGET_OBJECTS:weft_nccl_standin>)
  endif()
endfunction()
# Not with ThreadSanitizer, whose memory for traces does not suffice for a thread per block of all these kernels.
weft_cuda_twin(symm_coll SECONDS 120)
weft_cuda_twin(traceable THREADS)
weft_cuda_twin(fused_mlp)
weft_cuda_twin(fuse SECONDS 60)
weft_cuda_twin(graph_property COMPUTES)
weft_cuda_twin(graph_lower SECONDS 120)
weft_cuda_twin(device_graph SECONDS 60)
weft_cuda_twin(graph_plain SECONDS 120)
weft_cuda_twin(graph_pattern SECONDS 60)

weft_cuda_test(cuda THREADS)
weft_cuda_test(cuda_coll THREADS SECONDS 120 COMPUTES)
weft_cuda_test(cuda_signal THREADS SECONDS 120 COMPUTES)
weft_cuda_test(cuda_stage THREADS SECONDS 60 COMPUTES)
weft_cuda_test(cuda_move THREADS SECONDS 60)
weft_cuda_test(cuda_place THREADS STATIC)
weft_cuda_test(cuda_ranks THREADS)
weft_cuda_test(cuda_send THREADS)
weft_cuda_test(cuda_symm THREADS SECONDS 120)
weft_cuda_test(cuda_multicast THREADS SECONDS 60)
weft_cuda_test(cuda_fused THREADS SECONDS 120 COMPUTES)
weft_cuda_test(carrier THREADS)
weft_cuda_test(p2p_device)
weft_cuda_test(cuda_op THREADS COMPUTES)
weft_cuda_test(cuda_optim THREADS SECONDS 60 COMPUTES)
weft_cuda_test(cuda_held THREADS SECONDS 60 COMPUTES)
weft_cuda_test(cuda_packed THREADS SECONDS 60 COMPUTES)
weft_cuda_test(cuda_tensor THREADS)
weft_cuda_test(cuda_graph THREADS SECONDS 120 COMPUTES)

# `weft bench` on the software driver: the command's own files, with the test for a main.
if(TARGET weft_command)
  weft_cuda_test(cuda_bench SECONDS 90 STATIC)
  if(TARGET test_cuda_bench)
    target_sources(test_cuda_bench PRIVATE
      "$<FILTER:$<TARGET_OBJECTS:weft_command>,EXCLUDE,/main\\.c\\.o>")
  endif()
endif()

weft_test(cuda_abi LIGHT)
weft_test(cuda_kernels SECONDS 300 NO_ASAN COMPUTES)
if(WEFT_NVCC_PROGRAM AND WEFT_NVCC AND TARGET test_cuda_kernels)
  target_compile_definitions(test_cuda_kernels PRIVATE WEFT_NVCC_FOUND)
endif()
find_library(WEFT_NVRTC_LIBRARY nvrtc HINTS $ENV{CUDA_HOME}/lib64 /usr/local/cuda/lib64 /usr/local/cuda/lib)
foreach(test test_cuda_kernels test_cuda_graph)
  if(WEFT_NVRTC_LIBRARY AND TARGET ${test})
    target_compile_definitions(${test} PRIVATE WEFT_NVRTC_LIBRARY="${WEFT_NVRTC_LIBRARY}")
  endif()
endforeach()
find_path(WEFT_CUDA_INCLUDE cuda.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
if(WEFT_CUDA_INCLUDE AND TARGET test_cuda_abi)
  target_include_directories(test_cuda_abi SYSTEM PRIVATE ${WEFT_CUDA_INCLUDE})
endif()

add_executable(cuda_bench EXCLUDE_FROM_ALL cuda/bench.c $<TARGET_OBJECTS:weft_cuda_model>)
target_include_directories(cuda_bench PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(cuda_bench PRIVATE weft_harness weft_static Threads::Threads m)

# Other shapes of the loops, to be compared: only where nvcc is.
if(WEFT_NVCC_PROGRAM AND WEFT_NVCC AND NOT WEFT_SANITIZE)
  set(variants ${CMAKE_CURRENT_BINARY_DIR}/variants.fatbin)
  file(GLOB kernel_texts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backends/cuda/kernels/*.h)
  add_custom_command(OUTPUT ${variants}
    COMMAND ${WEFT_NVCC_PROGRAM} -std=c++17 -fmad=false -Werror all-warnings
      -gencode arch=compute_90,code=[sm_90,compute_90] -I${PROJECT_SOURCE_DIR}/src
      -I${PROJECT_SOURCE_DIR}/src/backends/cuda/kernels -fatbin -o ${variants}
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/variants.cu
    DEPENDS ${kernel_texts} cuda/variants.cu cuda/variants.def VERBATIM)
  add_custom_target(cuda_variants DEPENDS ${variants})
  add_dependencies(cuda_bench cuda_variants)
  target_compile_definitions(cuda_bench PRIVATE WEFT_CUDA_VARIANTS="${variants}")
endif()

# The host's part of a call: timed on a GPU, counted on the software driver (docs/gpu.md).
add_executable(cuda_call_bench EXCLUDE_FROM_ALL cuda/call_bench.c $<TARGET_OBJECTS:weft_cuda_model>)
target_include_directories(cuda_call_bench PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(cuda_call_bench PRIVATE weft_static Threads::Threads m)

add_executable(cuda_op_bench EXCLUDE_FROM_ALL cuda/op_bench.c)
target_include_directories(cuda_op_bench PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(cuda_op_bench PRIVATE weft_static Threads::Threads m)

add_executable(cuda_kill_bench EXCLUDE_FROM_ALL cuda/kill_bench.c $<TARGET_OBJECTS:weft_cuda_model>)
target_include_directories(cuda_kill_bench PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(cuda_kill_bench PRIVATE weft_harness weft_static Threads::Threads m)
add_executable(cuda_beside_bench EXCLUDE_FROM_ALL cuda/beside_bench.c)
target_link_libraries(cuda_beside_bench PRIVATE weft_static Threads::Threads m)

# Backend nvshmem, on a stand-in over the same driver.
weft_cuda_test(nvshmem SECONDS 60)
weft_cuda_test(nvshmem_symm SECONDS 60)
# weft_nvshmem_twin(noun ...): test_nvshmem_<noun>, made of test_<noun>.c, with symmetric memory of NVSHMEM.
function(weft_nvshmem_twin noun)
  weft_cuda_test(nvshmem_${noun} SOURCE test_${noun}.c ${ARGN})
  if(TARGET test_nvshmem_${noun})
    target_compile_definitions(test_nvshmem_${noun} PRIVATE WEFT_TEST_ON_CUDA WEFT_TEST_ON_NVSHMEM)
  endif()
endfunction()
weft_nvshmem_twin(symm_coll SECONDS 120)
foreach(program test_nvshmem test_nvshmem_symm test_nvshmem_symm_coll)
  if(TARGET ${program})
    target_sources(${program} PRIVATE nvshmem/model.c)
    target_compile_options(${program} PRIVATE "SHELL:-iquote ${CMAKE_CURRENT_SOURCE_DIR}/cuda")
  endif()
endforeach()
add_executable(nvshmem_bench EXCLUDE_FROM_ALL nvshmem/bench.c)
target_include_directories(nvshmem_bench PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(nvshmem_bench PRIVATE weft_static Threads::Threads m)
