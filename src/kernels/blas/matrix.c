/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of matrices, copies in another one, CBLAS. */
#include "kernels/blas/matrix.h"

#include "base/os/os.h"
#include "kernels/walk/copy.h"

#include <limits.h>
#include <string.h>

bool weft_i_matrix_is_row_major(const weft_i_matrix *x, int64_t *ld)
{
    *ld = x->rows > 1 ? x->row_stride : x->columns > 1 ? x->columns : 1;
    return (x->columns <= 1 || x->column_stride == 1) && *ld >= (x->columns > 1 ? x->columns : 1);
}

weft_i_matrix weft_i_matrix_transposed(const weft_i_matrix *x)
{
    return (weft_i_matrix){x->dtype, x->data, x->columns, x->rows, x->column_stride, x->row_stride};
}

weft_i_loop weft_i_matrix_loop(const weft_i_matrix *x)
{
    int64_t size = (int64_t)weft_dtype_size(x->dtype);
    weft_i_loop loop = {.ndim = 2, .operands = 1, .dim = {x->rows, x->columns}, .data = {x->data}};
    loop.stride[0][0] = x->row_stride * size;
    loop.stride[0][1] = x->column_stride * size;
    return loop;
}

void weft_i_matrix_copy(const weft_i_matrix *to, const weft_i_matrix *from)
{
    weft_i_loop loop = weft_i_matrix_loop(to), source = weft_i_matrix_loop(from);
    loop.operands = 2;
    loop.data[1] = from->data;
    memcpy(loop.stride[1], source.stride[0], sizeof source.stride[0]);
    weft_i_copy(&loop, to->dtype, from->dtype);
}

bool weft_i_matrix_allocate(weft_i_matrix *out, void **memory, weft_dtype dtype,
                            const weft_i_matrix *x)
{
    size_t bytes = (size_t)x->rows * (size_t)x->columns * weft_dtype_size(dtype);
    *memory = WEFT_OS->alloc_aligned(64, bytes ? bytes : 1);
    *out = (weft_i_matrix){dtype, *memory, x->rows, x->columns, x->columns, 1};
    return *memory != NULL;
}

bool weft_i_matrix_prepare(weft_i_matrix *out, void **memory, weft_dtype compute,
                           const weft_i_matrix *x, bool either_way)
{
    int64_t ld;
    weft_i_matrix other = weft_i_matrix_transposed(x);
    *out = *x;
    *memory = NULL;
    if (x->dtype == compute && (weft_i_matrix_is_row_major(x, &ld) ||
                                (either_way && weft_i_matrix_is_row_major(&other, &ld))))
        return true;
    if (!weft_i_matrix_allocate(out, memory, compute, x))
        return false;
    weft_i_matrix_copy(out, x);
    return true;
}

int weft_i_matrix_transposition(const weft_i_matrix *x, int64_t *ld)
{
    weft_i_matrix other = weft_i_matrix_transposed(x);
    if (weft_i_matrix_is_row_major(x, ld))
        return WEFT_I_BLAS_PLAIN;
    weft_i_matrix_is_row_major(&other, ld);
    return WEFT_I_BLAS_TRANSPOSED;
}

void weft_i_matrix_by_blas(const weft_i_blas *blas, const weft_i_matrix *out,
                           const weft_i_matrix *a, const weft_i_matrix *b)
{
    int64_t lda, ldb, ldc;
    int how_a = weft_i_matrix_transposition(a, &lda), how_b = weft_i_matrix_transposition(b, &ldb);
    int m = (int)out->rows, n = (int)out->columns, k = (int)a->columns;
    weft_i_matrix_is_row_major(out, &ldc);
    if (out->dtype == WEFT_F32)
        blas->sgemm(WEFT_I_BLAS_ROW_MAJOR, how_a, how_b, m, n, k, 1, (float *)(void *)a->data,
                    (int)lda, (float *)(void *)b->data, (int)ldb, 0, (float *)(void *)out->data,
                    (int)ldc);
    else
        blas->dgemm(WEFT_I_BLAS_ROW_MAJOR, how_a, how_b, m, n, k, 1, (double *)(void *)a->data,
                    (int)lda, (double *)(void *)b->data, (int)ldb, 0, (double *)(void *)out->data,
                    (int)ldc);
}

bool weft_i_matrix_fits_blas(const weft_i_matrix *x)
{
    return x->rows <= INT_MAX && x->columns <= INT_MAX && x->row_stride <= INT_MAX &&
           x->column_stride <= INT_MAX;
}

weft_i_matrix weft_i_matrix_rows(const weft_i_matrix *x, int64_t from, int64_t to)
{
    weft_i_matrix part = *x;
    part.rows = to - from;
    part.data += from * x->row_stride * (int64_t)weft_dtype_size(x->dtype);
    return part;
}
