/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products.  The operands are brought into the compute type (f32, f64 or i64) with a unit
 * stride in one direction, copied only if they are not so already; then CBLAS or a blocked loop
 * multiplies.
 */
#include "kernels/matmul.h"

#include "base/os.h"
#include "base/status.h"
#include "kernels/blas.h"
#include "kernels/convert.h"
#include "kernels/copy.h"
#include "kernels/dnnl.h"

#include <limits.h>
#include <string.h>

/* The loop works on this many values of k and columns at a time, so that the part of b stays in
 * cache. */
enum { BLOCK_K = 128, BLOCK_N = 512 };
enum { PANEL = 256 };       /* rows of small floats that are widened at a time */
enum { TALL_PANEL = 1024 }; /* rows of bf16 that oneDNN does at a time: it copies b for each */

static weft_dtype compute_of(weft_dtype dtype)
{
    return dtype == WEFT_F64 ? WEFT_F64 : weft_i_dtype_is_float(dtype) ? WEFT_F32 : WEFT_I64;
}

/* Row-major, with distance `*ld` between rows.  The stride of a single row or column does not
 * matter. */
static bool is_row_major(const weft_i_matrix *x, int64_t *ld)
{
    *ld = x->rows > 1 ? x->row_stride : x->columns > 1 ? x->columns : 1;
    return (x->columns <= 1 || x->column_stride == 1) && *ld >= (x->columns > 1 ? x->columns : 1);
}

static weft_i_matrix transposed(const weft_i_matrix *x)
{
    return (weft_i_matrix){x->dtype, x->data, x->columns, x->rows, x->column_stride, x->row_stride};
}

static weft_i_loop loop_over(const weft_i_matrix *x)
{
    int64_t size = (int64_t)weft_dtype_size(x->dtype);
    weft_i_loop loop = {.ndim = 2, .operands = 1, .dim = {x->rows, x->columns}, .data = {x->data}};
    loop.stride[0][0] = x->row_stride * size;
    loop.stride[0][1] = x->column_stride * size;
    return loop;
}

static void copy(const weft_i_matrix *to, const weft_i_matrix *from)
{
    weft_i_loop loop = loop_over(to), source = loop_over(from);
    loop.operands = 2;
    loop.data[1] = from->data;
    memcpy(loop.stride[1], source.stride[0], sizeof source.stride[0]);
    weft_i_copy(&loop, to->dtype, from->dtype);
}

/* A row-major matrix of x's size; `memory` owns it. */
static bool allocate(weft_i_matrix *out, void **memory, weft_dtype dtype, const weft_i_matrix *x)
{
    size_t bytes = (size_t)x->rows * (size_t)x->columns * weft_dtype_size(dtype);
    *memory = WEFT_OS->alloc_aligned(64, bytes ? bytes : 1);
    *out = (weft_i_matrix){dtype, *memory, x->rows, x->columns, x->columns, 1};
    return *memory != NULL;
}

/* x itself if the multiplication can read it, else a copy that `memory` owns. */
static bool prepare(weft_i_matrix *out, void **memory, weft_dtype compute, const weft_i_matrix *x,
                    bool either_way)
{
    int64_t ld;
    weft_i_matrix other = transposed(x);
    *out = *x;
    *memory = NULL;
    if (x->dtype == compute && (is_row_major(x, &ld) || (either_way && is_row_major(&other, &ld))))
        return true;
    if (!allocate(out, memory, compute, x))
        return false;
    copy(out, x);
    return true;
}

static int transposition(const weft_i_matrix *x, int64_t *ld)
{
    weft_i_matrix other = transposed(x);
    if (is_row_major(x, ld))
        return WEFT_I_BLAS_PLAIN;
    is_row_major(&other, ld);
    return WEFT_I_BLAS_TRANSPOSED;
}

static void by_blas(const weft_i_blas *blas, const weft_i_matrix *out, const weft_i_matrix *a,
                    const weft_i_matrix *b)
{
    int64_t lda, ldb, ldc;
    int how_a = transposition(a, &lda), how_b = transposition(b, &ldb);
    int m = (int)out->rows, n = (int)out->columns, k = (int)a->columns;
    is_row_major(out, &ldc);
    if (out->dtype == WEFT_F32)
        blas->sgemm(WEFT_I_BLAS_ROW_MAJOR, how_a, how_b, m, n, k, 1, (float *)(void *)a->data,
                    (int)lda, (float *)(void *)b->data, (int)ldb, 0, (float *)(void *)out->data,
                    (int)ldc);
    else
        blas->dgemm(WEFT_I_BLAS_ROW_MAJOR, how_a, how_b, m, n, k, 1, (double *)(void *)a->data,
                    (int)lda, (double *)(void *)b->data, (int)ldb, 0, (double *)(void *)out->data,
                    (int)ldc);
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
    weft_i_loop all = loop_over(out);
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

static bool fits_blas(const weft_i_matrix *x)
{
    return x->rows <= INT_MAX && x->columns <= INT_MAX && x->row_stride <= INT_MAX &&
           x->column_stride <= INT_MAX;
}

static weft_status multiply(const weft_i_blas *blas, const weft_i_matrix *out,
                            const weft_i_matrix *a, const weft_i_matrix *b)
{
    weft_dtype compute = compute_of(out->dtype);
    weft_i_matrix x, y, z = *out;
    void *memory_x = NULL, *memory_y = NULL, *memory_z = NULL;
    int64_t ld;
    bool use_blas =
        blas && compute != WEFT_I64 && a->columns && fits_blas(a) && fits_blas(b) && fits_blas(out);
    if (!out->rows || !out->columns)
        return WEFT_OK;
    bool ready =
        prepare(&x, &memory_x, compute, a, true) && prepare(&y, &memory_y, compute, b, use_blas);
    if (ready && (out->dtype != compute || !is_row_major(out, &ld)))
        ready = allocate(&z, &memory_z, compute, out);
    if (ready) {
        z.row_stride = z.rows > 1 ? z.row_stride : z.columns;
        use_blas ? by_blas(blas, &z, &x, &y) : by_loops(&z, &x, &y);
        if (memory_z)
            copy(out, &z);
    }
    WEFT_OS->free(memory_x);
    WEFT_OS->free(memory_y);
    WEFT_OS->free(memory_z);
    return ready ? WEFT_OK
                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "matmul: no memory for a copy of an operand");
}

/* Rows [from, to) of x. */
static weft_i_matrix rows_of(const weft_i_matrix *x, int64_t from, int64_t to)
{
    weft_i_matrix part = *x;
    part.rows = to - from;
    part.data += from * x->row_stride * (int64_t)weft_dtype_size(x->dtype);
    return part;
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
    weft_i_matrix y, x, z, first_a = rows_of(a, 0, PANEL), first_z = rows_of(out, 0, PANEL);
    bool ready = prepare(&y, &memory_b, WEFT_F32, b, true) &&
                 allocate(&x, &memory_a, WEFT_F32, &first_a) &&
                 allocate(&z, &memory_z, WEFT_F32, &first_z);
    for (int64_t i = 0; ready && i < out->rows; i += PANEL) {
        int64_t end = i + PANEL < out->rows ? i + PANEL : out->rows;
        weft_i_matrix from = rows_of(a, i, end), to = rows_of(out, i, end);
        x.rows = z.rows = end - i;
        copy(&x, &from);
        by_blas(blas, &z, &x, &y);
        copy(&to, &z);
    }
    WEFT_OS->free(memory_a);
    WEFT_OS->free(memory_b);
    WEFT_OS->free(memory_z);
    return ready ? WEFT_OK
                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "matmul: no memory for a copy of an operand");
}

static char letter(const weft_i_matrix *x, int64_t *ld)
{
    return transposition(x, ld) == WEFT_I_BLAS_PLAIN ? 'N' : 'T';
}

/* bf16 by oneDNN, a panel of rows at a time, each rounded when it is done.  False if it was not
 * possible. */
static bool multiply_bf16(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    weft_i_matrix x, y, z, first = rows_of(out, 0, out->rows < TALL_PANEL ? out->rows : TALL_PANEL);
    void *memory_a = NULL, *memory_b = NULL, *memory_z = NULL;
    bool done = prepare(&x, &memory_a, WEFT_BF16, a, true) &&
                prepare(&y, &memory_b, WEFT_BF16, b, true) &&
                allocate(&z, &memory_z, WEFT_F32, &first);
    weft_i_dnnl_product product = {.n = out->columns, .k = a->columns, .ldc = out->columns};
    for (int64_t i = 0; done && i < out->rows; i += TALL_PANEL) {
        int64_t end = i + TALL_PANEL < out->rows ? i + TALL_PANEL : out->rows;
        weft_i_matrix from = rows_of(&x, i, end), to = rows_of(out, i, end);
        z.rows = product.m = end - i;
        product.transpose_a = letter(&from, &product.lda);
        product.transpose_b = letter(&y, &product.ldb);
        product.a = from.data;
        product.b = y.data;
        product.c = (float *)(void *)z.data;
        done = weft_i_dnnl_multiply(&product);
        if (done)
            copy(&to, &z);
    }
    WEFT_OS->free(memory_a);
    WEFT_OS->free(memory_b);
    WEFT_OS->free(memory_z);
    return done;
}

static bool is_for_dnnl(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    return out->dtype == WEFT_BF16 && a->dtype == WEFT_BF16 && b->dtype == WEFT_BF16 && out->rows &&
           out->columns && a->columns && weft_i_dnnl_name();
}

weft_status weft_i_matmul(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    if (is_for_dnnl(out, a, b) && multiply_bf16(out, a, b))
        return WEFT_OK;
    const weft_i_blas *blas = compute_of(out->dtype) == WEFT_I64 ? NULL : weft_i_blas_get();
    bool panels = blas && weft_i_dtype_is_small_float(out->dtype) && a->dtype == out->dtype &&
                  out->rows > PANEL && out->columns && a->columns && fits_blas(a) && fits_blas(b) &&
                  fits_blas(out);
    if (panels)
        return multiply_panels(blas, out, a, b);
    return multiply(blas, out, a, b);
}

weft_status weft_i_matmul_by_loops(const weft_i_matrix *out, const weft_i_matrix *a,
                                   const weft_i_matrix *b)
{
    return multiply(NULL, out, a, b);
}
