/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products.  The operands are brought into the compute type (f32, f64 or i64) with a unit
 * stride in one direction, copied only if they are not so already; then CBLAS or a blocked loop
 * multiplies.  Products with few rows have loops of their own (few_rows.c), and bf16 has ways
 * of its own (matmul_bf16.c).
 */
#include "kernels/product/matmul.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "base/team/berths.h"
#include "base/team/team.h"
#include "kernels/blas/matrix.h"
#include "kernels/number/convert.h"
#include "kernels/product/cut.h"
#include "kernels/product/matmul_bf16.h"
#include "kernels/rows/few_rows.h"
#include "kernels/walk/copy.h"

/* The loop works on this many values of k and columns at a time, so that the part of b stays in
 * cache. */
enum { BLOCK_K = 128, BLOCK_N = 512 };
enum { LOOP_GRAIN = 16 };
enum { PANEL = 256 }; /* rows of small floats that are widened at a time */
/* With a smaller inner size a product with few rows spends its time around its sums, where OpenBLAS
 * is faster: on a Xeon (Sapphire Rapids) 4 rows with 4096 columns of 8 took 20 us by own loops and
 * 12 by OpenBLAS, of 16 18 and 22. */
enum { LEAST_DEPTH = 16 };

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

static bool by_loops(const void *state, const weft_i_matrix *out, const weft_i_matrix *a,
                     const weft_i_matrix *b)
{
    (void)state;
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
    return true;
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
        use_blas ? weft_i_cut_by_blas(blas, &z, &x, &y)
                 : (void)weft_i_cut(&z, &x, &y, LOOP_GRAIN, by_loops, NULL);
        if (memory_z)
            weft_i_matrix_copy(out, &z);
    }
    WEFT_OS->free(memory_x);
    WEFT_OS->free(memory_y);
    WEFT_OS->free(memory_z);
    return ready ? WEFT_OK
                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "matmul: no memory for a copy of an operand");
}

struct panels {
    const weft_i_blas *blas;
    const weft_i_matrix *out, *a, *b; /* b is f32 */
    size_t bytes_a;                   /* of a panel of a in f32; that of the result follows */
    weft_i_berths scratch;
};

static void multiply_panel(void *state, int64_t part)
{
    struct panels *p = state;
    int64_t first = part * PANEL, end = first + PANEL < p->out->rows ? first + PANEL : p->out->rows,
            rows = end - first;
    char *room = weft_i_berths_take(&p->scratch);
    weft_i_matrix from = weft_i_matrix_rows(p->a, first, end),
                  to = weft_i_matrix_rows(p->out, first, end);
    weft_i_matrix x = {WEFT_F32, room, rows, p->a->columns, p->a->columns, 1};
    weft_i_matrix z = {WEFT_F32, room + p->bytes_a, rows, to.columns, to.columns, 1};
    weft_i_matrix_copy(&x, &from);
    weft_i_matrix_by_blas(p->blas, &z, &x, p->b);
    weft_i_matrix_copy(&to, &z);
    weft_i_berths_give(&p->scratch, room);
}

/*
 * Floats of 16 and 8 bits by BLAS: b becomes f32 as a whole, a and the result a panel of rows at a
 * time, so that a panel is still in a cache when it is multiplied and rounded, and little memory is
 * needed.
 */
static weft_status multiply_panels(const weft_i_blas *blas, const weft_i_matrix *out,
                                   const weft_i_matrix *a, const weft_i_matrix *b)
{
    void *memory_b = NULL;
    weft_i_matrix y;
    struct panels p = {.blas = blas, .out = out, .a = a, .b = &y};
    p.bytes_a = ((size_t)PANEL * (size_t)a->columns * sizeof(float) + 63) / 64 * 64;
    size_t bytes_z = (size_t)PANEL * (size_t)out->columns * sizeof(float);
    bool ready = weft_i_matrix_prepare(&y, &memory_b, WEFT_F32, b, true) &&
                 weft_i_berths_open(&p.scratch, p.bytes_a + bytes_z, true);
    if (ready) {
        weft_i_team_run((out->rows + PANEL - 1) / PANEL, multiply_panel, &p);
        weft_i_berths_close(&p.scratch);
    }
    WEFT_OS->free(memory_b);
    return ready ? WEFT_OK
                 : weft_i_fail(WEFT_ERR_NO_MEMORY, "matmul: no memory for a copy of an operand");
}

static bool has_few_rows(const weft_i_matrix *out, const weft_i_matrix *a, const weft_i_matrix *b)
{
    return a->columns >= LEAST_DEPTH && weft_i_few_rows_fits(out, a, b);
}

weft_status weft_i_matmul_by_f32(const weft_i_matrix *out, const weft_i_matrix *a,
                                 const weft_i_matrix *b)
{
    if (has_few_rows(out, a, b))
        return weft_i_few_rows(out, a, b);
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
    if (bf16 && out->rows && out->columns && a->columns && !has_few_rows(out, a, b) &&
        weft_i_matmul_bf16(out, a, b))
        return WEFT_OK;
    return weft_i_matmul_by_f32(out, a, b);
}

weft_status weft_i_matmul_by_loops(const weft_i_matrix *out, const weft_i_matrix *a,
                                   const weft_i_matrix *b)
{
    return multiply(NULL, out, a, b);
}
