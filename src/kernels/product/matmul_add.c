/* SPDX-License-Identifier: Apache-2.0 */
/* Products that are added to what is there: by CBLAS, or a loop over rows. */
#include "kernels/product/matmul_add.h"

#include "base/team/team.h"
#include "kernels/number/convert.h"

struct work {
    const weft_i_blas *blas; /* NULL: loops */
    weft_i_matrix out, a, b;
    int64_t parts;
};

static void by_blas(const weft_i_blas *blas, const weft_i_matrix *out, const weft_i_matrix *a,
                    const weft_i_matrix *b)
{
    int64_t lda, ldb, ldc;
    int how = weft_i_matrix_transposition(a, &lda);
    int m = (int)out->rows, n = (int)out->columns, k = (int)a->columns;
    weft_i_matrix_is_row_major(b, &ldb);
    weft_i_matrix_is_row_major(out, &ldc);
    if (out->dtype == WEFT_F32)
        blas->sgemm(WEFT_I_BLAS_ROW_MAJOR, how, WEFT_I_BLAS_PLAIN, m, n, k, 1,
                    (float *)(void *)a->data, (int)lda, (float *)(void *)b->data, (int)ldb, 1,
                    (float *)(void *)out->data, (int)ldc);
    else
        blas->dgemm(WEFT_I_BLAS_ROW_MAJOR, how, WEFT_I_BLAS_PLAIN, m, n, k, 1,
                    (double *)(void *)a->data, (int)lda, (double *)(void *)b->data, (int)ldb, 1,
                    (double *)(void *)out->data, (int)ldc);
}

#define ADD_ROWS(type_)                                                                       \
    static void add_rows_##type_(const weft_i_matrix *out, const weft_i_matrix *a,            \
                                 const weft_i_matrix *b)                                      \
    {                                                                                         \
        for (int64_t i = 0; i < out->rows; i++)                                               \
            for (int64_t k = 0; k < a->columns; k++) {                                        \
                type_ *to = (type_ *)(void *)out->data + i * out->row_stride;                 \
                const type_ *from = (const type_ *)(const void *)b->data + k * b->row_stride; \
                type_ x = ((const type_ *)(const void *)                                      \
                               a->data)[i * a->row_stride + k * a->column_stride];            \
                WEFT_I_VECTOR_LOOP                                                            \
                for (int64_t j = 0; j < out->columns; j++)                                    \
                    to[j] += x * from[j];                                                     \
            }                                                                                 \
    }
ADD_ROWS(float)
ADD_ROWS(double)

static void add_part(void *argument, int64_t part)
{
    const struct work *w = argument;
    int64_t from = weft_i_team_bound(w->out.rows, w->parts, part);
    int64_t to = weft_i_team_bound(w->out.rows, w->parts, part + 1);
    weft_i_matrix out = weft_i_matrix_rows(&w->out, from, to);
    weft_i_matrix a = weft_i_matrix_rows(&w->a, from, to);
    if (from == to)
        return;
    if (w->blas)
        by_blas(w->blas, &out, &a, &w->b);
    else
        (out.dtype == WEFT_F32 ? add_rows_float : add_rows_double)(&out, &a, &w->b);
}

void weft_i_matmul_add(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    enum { LEAST_ROWS = 256 };
    int64_t size = (int64_t)weft_i_dtype_size(out->dtype);
    const weft_i_blas *blas = weft_i_blas_get();
    bool fits =
        weft_i_matrix_fits_blas(out) && weft_i_matrix_fits_blas(a) && weft_i_matrix_fits_blas(b);
    struct work w = {blas && fits ? blas : NULL, *out, *a, *b, 1};
    if (!out->rows || !out->columns || !a->columns)
        return;
    w.parts = weft_i_team_parts(out->rows * out->columns * size);
    if (w.parts > out->rows / LEAST_ROWS)
        w.parts = out->rows / LEAST_ROWS;
    if (w.parts > 1) {
        weft_i_team_run(w.parts, add_part, &w);
        return;
    }
    w.parts = 1;
    add_part(&w, 0);
}
