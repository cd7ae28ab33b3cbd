/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products.  The operands are brought into the compute type (f32, f64 or i64) with a unit
 * stride in one direction, copied only if they are not so already; then CBLAS or a blocked loop
 * multiplies.  bf16 has ways of its own (matmul_bf16.c).
 */
#include "kernels/matmul.h"

#include "base/os.h"
#include "base/status.h"
#include "kernels/convert.h"
#include "kernels/copy.h"
#include "kernels/matmul_bf16.h"
#include "kernels/matrix.h"

/* The loop works on this many values of k and columns at a time, so that the part of b stays in
 * cache. */
enum { BLOCK_K = 128, BLOCK_N = 512 };
enum { PANEL = 256 }; /* rows of small floats that are widened at a time */

static weft_dtype compute_of(weft_dtype dtype)
{
    return dtype == WEFT_F64 ? WEFT_F64 : weft_i_dtype_is_float(dtype) ? WEFT_F32 : WEFT_I64;
}

/* Adds the part of the product with k in [k0, k1) and columns in [n0, n1); a is read in any stride,
 * b by rows. */
#define LOOPS(type_, sum_)                                                                 \
    static void block_##type_(const weft_i_matrix *out, const weft_i_matrix *a,            \
                              const weft_i_matrix *b, int64_t k0, int64_t k1, int64_t n0,  \
                              int64_t n1)                                                  \
    {                                                                                      \
        for (int64_t i = 0; i < out->rows; i++) {                                          \
            type_ *to = (type_ *)(void *)out->data + i * out->row_stride;                  \
            for (int64_t k = k0; k < k1; k++) {                                            \
                type_ x = ((const type_ *)(const void *)                                   \
                               a->data)[i * a->row_stride + k * a->column_stride];         \
                const type_ *y = (const type_ *)(const void *)b->data + k * b->row_stride; \
                WEFT_I_VECTOR_LOOP                                                         \
                for (int64_t j = n0; j < n1; j++)                                          \
                    to[j] = (type_)(sum_);                                                 \
            }                                                                              \
        }                                                                                  \
    }
LOOPS(float, to[j] + x * y[j])
LOOPS(double, to[j] + x * y[j])
LOOPS(int64_t, (uint64_t)to[j] + (uint64_t)x * (uint64_t)y[j])

static void by_loops(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    int64_t zero = 0; /* also 0.0 */
    weft_i_loop all = weft_i_matrix_loop(out);
    weft_i_fill(&all, out->dtype, &zero);
    for (int64_t n = 0; n < out->columns; n += BLOCK_N)
        for (int64_t k = 0; k < a->columns; k += BLOCK_K) {
            int64_t k1 = k + BLOCK_K < a->columns ? k + BLOCK_K : a->columns;
            int64_t n1 = n + BLOCK_N < out->columns ? n + BLOCK_N : out->columns;
            (out->dtype == WEFT_F32   ? block_float
             : out->dtype == WEFT_F64 ? block_double
                                      : block_int64_t)(out, a, b, k, k1, n, n1);
        }
}

static weft_status multiply(const weft_i_blas *blas, const weft_i_matrix *out,
                            const weft_i_matrix *a, const weft_i_matrix *b)
{
    weft_dtype compute = compute_of(out->dtype);
    weft_i_matrix x, y, z = *out;
    void *memory_x = NULL, *memory_y = NULL, *memory_z = NULL;
    int64_t ld;
    bool use_blas = blas && compute != WEFT_I64 && a->columns && weft_i_matrix_fits_blas(a) &&
                    weft_i_matrix_fits_blas(b) && weft_i_matrix_fits_blas(out);
    if (!out->rows || !out->columns)
        return WEFT_OK;
    bool ready = weft_i_matrix_prepare(&x, &memory_x, compute, a, true) &&
                 weft_i_matrix_prepare(&y, &memory_y, compute, b, use_blas);
    if (ready && (out->dtype != compute || !weft_i_matrix_is_row_major(out, &ld)))
        ready = weft_i_matrix_allocate(&z, &memory_z, compute, out);
    if (ready) {
        z.row_stride = z.rows > 1 ? z.row_stride : z.columns;
        use_blas ? weft_i_matrix_by_blas(blas, &z, &x, &y) : by_loops(&z, &x, &y);
        if (memory_z)
            weft_i_matrix_copy(out, &z);
    }
    WEFT_OS->free(memory_x);
    WEFT_OS->free(memory_y);
    WEFT_OS->free(memory_z);
    return ready ? WEFT_OK
                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "matmul: no memory for a copy of an operand");
}

/*
 * Floats of 16 and 8 bits by BLAS: b becomes f32 as a whole, a and the result a panel of rows at a
 * time, so that a panel is still in a cache when it is multiplied and rounded, and little memory is
 * needed.
 */
static weft_status multiply_panels(const weft_i_blas *blas, const weft_i_matrix *out,
                                   const weft_i_matrix *a, const weft_i_matrix *b)
{
    void *memory_b = NULL, *memory_a = NULL, *memory_z = NULL;
    weft_i_matrix y, x, z, first_a = weft_i_matrix_rows(a, 0, PANEL),
                           first_z = weft_i_matrix_rows(out, 0, PANEL);
    bool ready = weft_i_matrix_prepare(&y, &memory_b, WEFT_F32, b, true) &&
                 weft_i_matrix_allocate(&x, &memory_a, WEFT_F32, &first_a) &&
                 weft_i_matrix_allocate(&z, &memory_z, WEFT_F32, &first_z);
    for (int64_t i = 0; ready && i < out->rows; i += PANEL) {
        int64_t end = i + PANEL < out->rows ? i + PANEL : out->rows;
        weft_i_matrix from = weft_i_matrix_rows(a, i, end), to = weft_i_matrix_rows(out, i, end);
        x.rows = z.rows = end - i;
        weft_i_matrix_copy(&x, &from);
        weft_i_matrix_by_blas(blas, &z, &x, &y);
        weft_i_matrix_copy(&to, &z);
    }
    WEFT_OS->free(memory_a);
    WEFT_OS->free(memory_b);
    WEFT_OS->free(memory_z);
    return ready ? WEFT_OK
                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "matmul: no memory for a copy of an operand");
}

weft_status weft_i_matmul_by_f32(const weft_i_matrix *out, const weft_i_matrix *a,
                                 const weft_i_matrix *b)
{
    const weft_i_blas *blas = compute_of(out->dtype) == WEFT_I64 ? NULL : weft_i_blas_get();
    bool panels = blas && weft_i_dtype_is_small_float(out->dtype) && a->dtype == out->dtype &&
                  out->rows > PANEL && out->columns && a->columns && weft_i_matrix_fits_blas(a) &&
                  weft_i_matrix_fits_blas(b) && weft_i_matrix_fits_blas(out);
    if (panels)
        return multiply_panels(blas, out, a, b);
    return multiply(blas, out, a, b);
}

weft_status weft_i_matmul(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    bool bf16 = out->dtype == WEFT_BF16 && a->dtype == WEFT_BF16 && b->dtype == WEFT_BF16;
    if (bf16 && out->rows && out->columns && a->columns && weft_i_matmul_bf16(out, a, b))
        return WEFT_OK;
    return weft_i_matmul_by_f32(out, a, b);
}

weft_status weft_i_matmul_by_loops(const weft_i_matrix *out, const weft_i_matrix *a,
                                   const weft_i_matrix *b)
{
    return multiply(NULL, out, a, b);
}
