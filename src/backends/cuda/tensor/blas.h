/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by cuBLASLt, which is loaded at the first one.  What is asked for is kept as a
 * plan (descriptors and the algorithm that the library chose), so that the next product of the kind
 * costs the host little more than a launch.
 *
 * cuBLASLt thinks in columns: a product here is the one it sees, d = op(a) op(b) with matrices by
 * columns.  Types are declared by us and compared with cublasLt.h in tests/cuda/test_cuda_abi.c.
 */
#ifndef WEFT_CUDA_BLAS_H
#define WEFT_CUDA_BLAS_H

#include "backends/cuda/device/stream.h"
#include "weft/dtype.h"
#include "weft/storage.h"

typedef struct weft_i_cublas_algo {
    uint64_t data[8];
} weft_i_cublas_algo;

typedef struct weft_i_cublas_heuristic {
    weft_i_cublas_algo algo;
    size_t workspaceSize;
    int state;
    float wavesCount;
    int reserved[4];
} weft_i_cublas_heuristic;

enum {
    WEFT_I_CUDA_R_32F = 0,
    WEFT_I_CUDA_R_64F = 1,
    WEFT_I_CUDA_R_16F = 2,
    WEFT_I_CUDA_R_16BF = 14,
    WEFT_I_CUDA_R_8F_E4M3 = 28,
    WEFT_I_CUDA_R_8F_E5M2 = 29,
    WEFT_I_CUBLAS_COMPUTE_32F = 68,
    WEFT_I_CUBLAS_COMPUTE_64F = 70,
    WEFT_I_CUBLAS_OP_N = 0,
    WEFT_I_CUBLAS_OP_T = 1,
    WEFT_I_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    WEFT_I_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
    WEFT_I_CUBLASLT_MATMUL_DESC_TRANSA = 3,
    WEFT_I_CUBLASLT_MATMUL_DESC_TRANSB = 4,
    WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
    WEFT_I_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
    WEFT_I_CUBLASLT_MATMUL_DESC_A_SCALE_MODE = 31,
    WEFT_I_CUBLASLT_MATMUL_DESC_B_SCALE_MODE = 32,
    WEFT_I_CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F = 0,
    WEFT_I_CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F = 3,
    WEFT_I_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    WEFT_I_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    WEFT_I_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    WEFT_I_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    WEFT_I_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
    WEFT_I_CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
    WEFT_I_CUBLASLT_MATMUL_TILE_64x64 = 15, /* from here to ... */
    WEFT_I_CUBLASLT_MATMUL_TILE_512x64 = 25 /* ... here: powers of two */
};

typedef struct weft_i_cublas {
#define FN(name_, parameters_) int(*name_) parameters_;
#include "blas.def"
#undef FN
} weft_i_cublas;

/* One matrix as cuBLASLt sees it, by columns. */
typedef struct weft_i_cuda_matrix {
    char *data;
    weft_dtype dtype;
    bool turned;        /* op is the transposition */
    int64_t ld, step;   /* elements from column to column, from batch to batch */
    const float *scale; /* on the device; NULL: none */
    bool scales;        /* one for each row of op(a), or column of op(b), not one for all */
} weft_i_cuda_matrix;

/* d, of m x n, = op(a) op(b) with inner dimension k, `batches` times; if `shared`, factor (op(a) op(b)
 * + c). */
typedef struct weft_i_cuda_product {
    weft_i_cuda_matrix a, b, d;
    int64_t m, n, k, batches;
    bool shared;   /* others multiply on the device meanwhile */
    const char *c; /* laid out as d; NULL: none */
    double factor;
} weft_i_cuda_product;

/*
 * Enqueues it; `device` is the tensors'.  WEFT_ERR_UNSUPPORTED, logged once and without an error
 * message, if there is no cuBLASLt or it has no algorithm for this one.
 */
weft_status weft_i_cuda_blas_run(weft_device device, weft_i_cuda_stream *stream,
                                 const weft_i_cuda_product *product);

#endif
