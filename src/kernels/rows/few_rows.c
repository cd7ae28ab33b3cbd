/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the loops for this processor, and brings the operands into the form that they read: x in
 * the type of the sums and adjacent, which costs little, the matrix as it lies if its rows or
 * columns are adjacent.  The result is made a stretch of columns at a time, whose sums stay in a
 * first-level cache.
 */
#include "kernels/rows/few_rows.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "base/team/team.h"
#include "kernels/number/isa.h"
#include "kernels/rows/few_rows_table.h"

#include <stdatomic.h>

enum { STRETCH = 16384 }; /* bytes of sums; a second stream has room beside them */
enum { GRAIN = 64 };      /* columns that one thread makes */

/* ---- the table ---- */

/* The best first. */
static const struct {
    const weft_i_few_rows_table *table;
    bool (*usable)(void);
} variants[] = {
#if defined(__x86_64__)
    {&weft_i_few_rows_avx512, weft_i_isa_avx512},
    {&weft_i_few_rows_avx2, weft_i_isa_avx2},
#endif
    {&weft_i_few_rows_baseline, weft_i_isa_always},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* NULL until somebody asks.  Relaxed, without a partner: it leads to constants only, and threads
 * that choose at the same time choose the same. */
static _Atomic(const weft_i_few_rows_table *) chosen;

const weft_i_few_rows_table *weft_i_few_rows_variant(int i)
{
    return i >= 0 && i < VARIANTS ? variants[i].table : NULL;
}

bool weft_i_few_rows_use(const weft_i_few_rows_table *variant)
{
    for (int i = 0; i < VARIANTS; i++)
        if ((!variant || variant == variants[i].table) && variants[i].usable()) {
            atomic_store_explicit(&chosen, variants[i].table, memory_order_relaxed);
            return true;
        }
    return false;
}

static const weft_i_few_rows_loops *loops_of(weft_dtype dtype)
{
    if (!atomic_load_explicit(&chosen, memory_order_relaxed))
        weft_i_few_rows_use(NULL);
    return &atomic_load_explicit(&chosen, memory_order_relaxed)->of[dtype];
}

/* ---- operands ---- */

static weft_dtype sums_of(weft_dtype dtype)
{
    return dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
}

static bool fits(const weft_i_matrix *out, const weft_i_matrix *x, const weft_i_matrix *matrix)
{
    return out->rows <= WEFT_I_FEW_ROWS && loops_of(matrix->dtype)->dot &&
           weft_i_dtype_is_float(x->dtype) && weft_i_dtype_is_float(out->dtype) &&
           sums_of(x->dtype) == sums_of(matrix->dtype) &&
           sums_of(out->dtype) == sums_of(matrix->dtype);
}

/* The product with few rows that a b is, or its transpose, in that order: out, x, matrix. */
static bool arrange(weft_i_matrix in[3], const weft_i_matrix *out, const weft_i_matrix *a,
                    const weft_i_matrix *b)
{
    if (!out->rows || !out->columns || !a->columns)
        return false;
    in[0] = *out, in[1] = *a, in[2] = *b;
    if (fits(&in[0], &in[1], &in[2]))
        return true;
    in[0] = weft_i_matrix_transposed(out);
    in[1] = weft_i_matrix_transposed(b);
    in[2] = weft_i_matrix_transposed(a);
    return fits(&in[0], &in[1], &in[2]);
}

bool weft_i_few_rows_fits(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    weft_i_matrix in[3];
    return arrange(in, out, a, b);
}

/* ---- the product ---- */

/* The columns [from, to) of x. */
static weft_i_matrix columns_of(const weft_i_matrix *x, int64_t from, int64_t to)
{
    weft_i_matrix turned = weft_i_matrix_transposed(x),
                  part = weft_i_matrix_rows(&turned, from, to);
    return weft_i_matrix_transposed(&part);
}

/* Whether the matrix is adjacent in depth, and its skip.  A packed column is both, and a dot product
 * is faster. */
static bool is_by_columns(const weft_i_matrix *matrix, int64_t *skip)
{
    if (matrix->columns > 1 || matrix->row_stride != 1)
        return weft_i_matrix_transposition(matrix, skip) == WEFT_I_BLAS_TRANSPOSED;
    *skip = matrix->rows;
    return true;
}

struct few {
    const weft_i_matrix *out, *x, *matrix;
    int64_t width, parts; /* of a stretch, columns; of the team */
};

/* x is row-major and of the sums' type, the matrix has adjacent rows or columns.  Columns [from, to). */
static void multiply_columns(const struct few *few, int64_t from_column, int64_t to_column)
{
    _Alignas(64) char sums[STRETCH];
    const weft_i_matrix *out = few->out, *x = few->x, *matrix = few->matrix;
    const weft_i_few_rows_loops *loops = loops_of(matrix->dtype);
    weft_i_few_rows_product p = {.rows = out->rows, .depth = x->columns, .x = x->data};
    bool dot = is_by_columns(matrix, &p.matrix_skip),
         direct = out->dtype == x->dtype && weft_i_matrix_is_row_major(out, &p.out_skip);
    weft_i_matrix_is_row_major(x, &p.x_skip);
    for (int64_t column = from_column; column < to_column; column += few->width) {
        int64_t end = column + few->width < to_column ? column + few->width : to_column;
        weft_i_matrix from = columns_of(matrix, column, end), to = columns_of(out, column, end);
        weft_i_matrix staged = {x->dtype, sums, out->rows, end - column, end - column, 1};
        p.matrix = from.data;
        p.columns = end - column;
        p.out = direct ? to.data : sums;
        p.out_skip = direct ? p.out_skip : p.columns;
        (dot ? loops->dot : loops->axpy)(&p);
        if (!direct)
            weft_i_matrix_copy(&to, &staged);
    }
}

static void multiply_part(void *state, int64_t part)
{
    const struct few *few = state;
    int64_t n = few->out->columns;
    multiply_columns(few, weft_i_team_bound_at(n, GRAIN, few->parts, part),
                     weft_i_team_bound_at(n, GRAIN, few->parts, part + 1));
}

/* The matrix is read once, by the team. */
static void multiply(const weft_i_matrix *out, const weft_i_matrix *x, const weft_i_matrix *matrix)
{
    struct few few = {out, x, matrix, STRETCH / (int64_t)weft_dtype_size(x->dtype) / out->rows, 1};
    int64_t most = (out->columns + GRAIN - 1) / GRAIN;
    few.parts =
        weft_i_team_parts(matrix->rows * matrix->columns * (int64_t)weft_dtype_size(matrix->dtype));
    few.parts = few.parts < most ? few.parts : most;
    weft_i_team_run(few.parts, multiply_part, &few);
}

weft_status weft_i_few_rows(const weft_i_matrix *out, const weft_i_matrix *a,
                            const weft_i_matrix *b)
{
    weft_i_matrix in[3], x, matrix;
    void *memory_x = NULL, *memory = NULL;
    if (!arrange(in, out, a, b))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "matmul: not a product with few rows");
    bool ready = weft_i_matrix_prepare(&x, &memory_x, sums_of(in[1].dtype), &in[1], false) &&
                 weft_i_matrix_prepare(&matrix, &memory, in[2].dtype, &in[2], true);
    if (ready)
        multiply(&in[0], &x, &matrix);
    WEFT_OS->free(memory_x);
    WEFT_OS->free(memory);
    return ready ? WEFT_OK
                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "matmul: no memory for a copy of an operand");
}
