/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/device/driver.h, backends/cuda/tensor/blas.h */
/*
 * What src/backends/cuda/device/driver.h declares, beside cuda.h, where there is one: sizes, offsets,
 * constants, and whether every function exists in the version that is asked for.  And blas.h,
 * beside cublasLt.h.
 */
#include "harness.h"

#include "backends/cuda/device/driver.h"
#include "backends/cuda/tensor/blas.h"

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#define HAS_CUDA_H
#endif
#endif

#ifdef HAS_CUDA_H
#include <cuda.h>
#include <cudaTypedefs.h>

#define SAME_SIZE(ours_, theirs_) \
    _Static_assert(sizeof(ours_) == sizeof(theirs_), #theirs_ " has another size")
#define SAME(ours_, theirs_, member_)                                                    \
    _Static_assert(offsetof(ours_, member_) == offsetof(theirs_, member_) &&             \
                       sizeof(((ours_ *)0)->member_) == sizeof(((theirs_ *)0)->member_), \
                   #theirs_ "." #member_ " lies elsewhere")

SAME_SIZE(weft_i_cu_result, CUresult);
SAME_SIZE(weft_i_cu_device, CUdevice);
SAME_SIZE(weft_i_cu_ptr, CUdeviceptr);
SAME_SIZE(weft_i_cu_handle, CUmemGenericAllocationHandle);
SAME_SIZE(weft_i_cu_uuid, CUuuid);
SAME_SIZE(weft_i_cu_location, CUmemLocation);
SAME(weft_i_cu_location, CUmemLocation, type);
SAME(weft_i_cu_location, CUmemLocation, id);
SAME_SIZE(weft_i_cu_memory, CUmemAllocationProp);
SAME(weft_i_cu_memory, CUmemAllocationProp, type);
SAME(weft_i_cu_memory, CUmemAllocationProp, requestedHandleTypes);
SAME(weft_i_cu_memory, CUmemAllocationProp, location);
SAME(weft_i_cu_memory, CUmemAllocationProp, win32HandleMetaData);
SAME(weft_i_cu_memory, CUmemAllocationProp, allocFlags);
SAME(weft_i_cu_memory, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME(weft_i_cu_memory, CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(weft_i_cu_access, CUmemAccessDesc);
SAME(weft_i_cu_access, CUmemAccessDesc, flags);
SAME_SIZE(weft_i_cu_multicast, CUmulticastObjectProp);
SAME(weft_i_cu_multicast, CUmulticastObjectProp, numDevices);
SAME(weft_i_cu_multicast, CUmulticastObjectProp, size);
SAME(weft_i_cu_multicast, CUmulticastObjectProp, handleTypes);
SAME(weft_i_cu_multicast, CUmulticastObjectProp, flags);
SAME_SIZE(weft_i_cu_attribute, CUlaunchAttribute);
SAME(weft_i_cu_attribute, CUlaunchAttribute, id);
SAME(weft_i_cu_attribute, CUlaunchAttribute, value);
SAME(weft_i_cu_attribute, CUlaunchAttribute, value.programmaticStreamSerializationAllowed);
SAME(weft_i_cu_attribute, CUlaunchAttribute, value.priority);
SAME_SIZE(weft_i_cu_launch, CUlaunchConfig);
SAME(weft_i_cu_launch, CUlaunchConfig, gridDimX);
SAME(weft_i_cu_launch, CUlaunchConfig, blockDimX);
SAME(weft_i_cu_launch, CUlaunchConfig, blockDimZ);
SAME(weft_i_cu_launch, CUlaunchConfig, sharedMemBytes);
SAME(weft_i_cu_launch, CUlaunchConfig, hStream);
SAME(weft_i_cu_launch, CUlaunchConfig, attrs);
SAME(weft_i_cu_launch, CUlaunchConfig, numAttrs);
SAME_SIZE(weft_i_cu_copy_2d, CUDA_MEMCPY2D);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, srcMemoryType);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, srcHost);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, srcDevice);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, srcPitch);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, dstXInBytes);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, dstMemoryType);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, dstDevice);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, dstPitch);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, WidthInBytes);
SAME(weft_i_cu_copy_2d, CUDA_MEMCPY2D, Height);
SAME_SIZE(weft_i_cu_mem_op, CUstreamBatchMemOpParams);
SAME(weft_i_cu_mem_op, CUstreamBatchMemOpParams, writeValue.address);
SAME(weft_i_cu_mem_op, CUstreamBatchMemOpParams, writeValue.value64);
SAME(weft_i_cu_mem_op, CUstreamBatchMemOpParams, writeValue.flags);
SAME(weft_i_cu_mem_op, CUstreamBatchMemOpParams, waitValue.address);
SAME(weft_i_cu_mem_op, CUstreamBatchMemOpParams, waitValue.value64);
SAME(weft_i_cu_mem_op, CUstreamBatchMemOpParams, waitValue.flags);
SAME(weft_i_cu_mem_op, CUstreamBatchMemOpParams, waitValue.alias);

/* By number, because the names of some are macros. */
static const struct {
    const char *name;
    long long ours, theirs;
} constants[] = {
#define CONSTANT(name_, value_) {#name_, value_, (long long)name_},
    WEFT_I_CU_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* A function in a version that cuda.h does not know does not compile here. */
static const size_t functions[] = {
#define FN(name_, version_, parameters_)       sizeof(PFN_##name_##_v##version_),
#define OPTIONAL(name_, version_, parameters_) sizeof(PFN_##name_##_v##version_),
#include "backends/cuda/device/driver.def"
#undef FN
#undef OPTIONAL
};

TEST(test_cuda_abi)
{
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (constants[i].ours != constants[i].theirs)
            FAIL("%s is %lld in cuda.h, %lld here", constants[i].name, constants[i].theirs,
                 constants[i].ours);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        CHECK_INT(functions[i], sizeof(void *));
}
#else
TEST(test_cuda_abi)
{
    SKIP("there is no cuda.h on this machine");
}
#endif

#if defined(HAS_CUDA_H) && __has_include(<cublasLt.h>)
/* Its headers are not written for as many warnings as ours. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cublasLt.h>
#pragma GCC diagnostic pop

SAME_SIZE(weft_i_cublas_algo, cublasLtMatmulAlgo_t);
SAME_SIZE(weft_i_cublas_heuristic, cublasLtMatmulHeuristicResult_t);
SAME(weft_i_cublas_heuristic, cublasLtMatmulHeuristicResult_t, algo);
SAME(weft_i_cublas_heuristic, cublasLtMatmulHeuristicResult_t, workspaceSize);
SAME(weft_i_cublas_heuristic, cublasLtMatmulHeuristicResult_t, state);
SAME(weft_i_cublas_heuristic, cublasLtMatmulHeuristicResult_t, wavesCount);
SAME_SIZE(int, cublasStatus_t);
SAME_SIZE(int, cublasOperation_t);
SAME_SIZE(int, cublasLtMatmulMatrixScale_t);
SAME_SIZE(weft_i_cu_stream, cudaStream_t);

#define SAME_VALUE(name_) _Static_assert((int)WEFT_I_##name_ == (int)(name_), #name_ " differs")
SAME_VALUE(CUDA_R_32F);
SAME_VALUE(CUDA_R_64F);
SAME_VALUE(CUDA_R_16F);
SAME_VALUE(CUDA_R_16BF);
SAME_VALUE(CUDA_R_8F_E4M3);
SAME_VALUE(CUDA_R_8F_E5M2);
SAME_VALUE(CUBLAS_COMPUTE_32F);
SAME_VALUE(CUBLAS_COMPUTE_64F);
SAME_VALUE(CUBLAS_OP_N);
SAME_VALUE(CUBLAS_OP_T);
SAME_VALUE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME_VALUE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSA);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSB);
SAME_VALUE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
SAME_VALUE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
SAME_VALUE(CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
SAME_VALUE(CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
SAME_VALUE(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
SAME_VALUE(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_TILE_ID);
SAME_VALUE(CUBLASLT_MATMUL_TILE_64x64);
SAME_VALUE(CUBLASLT_MATMUL_TILE_512x64);

TEST(test_cuda_abi_blas)
{
    /* As many parameters, each of a size that ours has, or this does not compile. */
    cublasStatus_t (*matmul)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
                             cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t,
                             const void *, const void *, cublasLtMatrixLayout_t, void *,
                             cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,
                             cudaStream_t) = NULL;
    CHECK(_Generic(matmul, __typeof__(&cublasLtMatmul) : 1, default : 0));
}
#else
TEST(test_cuda_abi_blas)
{
    SKIP("there is no cublasLt.h on this machine");
}
#endif

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
