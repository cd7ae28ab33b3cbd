/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for oneDNN in test_matmul.c: the same function by three loops.  It refuses what the
 * library refuses, and products of 13 columns, as the library does on processors it has no code
 * for; and it wants to be called with one thread of OpenMP, of which it says there are seven.
 */
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, UNIMPLEMENTED = 3, REFUSED_COLUMNS = 13 };

int dnnl_gemm_bf16bf16f32(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                          float alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                          float beta, float *c, int64_t ldc);
int omp_get_max_threads(void);
void omp_set_num_threads(int count);
int model_dnnl_calls(void);

static int threads = 7, calls;

int omp_get_max_threads(void)
{
    return threads;
}

void omp_set_num_threads(int count)
{
    threads = count;
}

int model_dnnl_calls(void)
{
    return calls;
}

static float element(const void *x, char transpose, int64_t ld, int64_t row, int64_t column)
{
    uint16_t half;
    int64_t at = transpose == 'T' ? column * ld + row : row * ld + column;
    memcpy(&half, (const char *)x + 2 * at, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int dnnl_gemm_bf16bf16f32(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                          float alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                          float beta, float *c, int64_t ldc)
{
    if (threads != 1 || lda < (transpose_a == 'T' ? m : k) || ldb < (transpose_b == 'T' ? k : n) ||
        ldc < n || beta != 0)
        return INVALID;
    if (n == REFUSED_COLUMNS)
        return UNIMPLEMENTED;
    calls++;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += element(a, transpose_a, lda, i, l) * element(b, transpose_b, ldb, l, j);
            c[i * ldc + j] = alpha * sum;
        }
    return SUCCESS;
}
