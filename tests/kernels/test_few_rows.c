/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/rows/few_rows.c, kernels/rows/few_rows_baseline.c,
 * kernels/rows/few_rows_avx2.c, kernels/rows/few_rows_avx512.c, kernels/product/matmul.c */
/*
 * Products with few rows against sums in the order that few_rows_table.h promises, bit by bit, for
 * every instruction set that this processor has.
 */
#include "fault.h"
#include "harness.h"
#include "values_seed.h"

#include "kernels/number/convert.h"
#include "kernels/product/matmul.h"
#include "kernels/rows/few_rows.h"
#include "kernels/rows/few_rows_table.h"

#include <weft/weft.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* ---- matrices ---- */

/* Row-major with gaps, column-major with gaps, gaps everywhere, row-major without. */
enum { BY_ROWS, BY_COLUMNS, SCATTERED, PACKED, LAYOUTS };
enum { GAP = 3, SENTINEL = 0x5b };

/* A matrix in memory of its own, beginning `offset` elements behind a border of cache lines; what
 * lies between its elements is SENTINEL. */
typedef struct framed {
    weft_i_matrix m;
    unsigned char *memory;
    size_t bytes;
} framed;

static framed make(weft_dtype dtype, int64_t rows, int64_t columns, int layout, int offset)
{
    framed f = {.m = {.dtype = dtype, .rows = rows, .columns = columns}};
    size_t size = weft_dtype_size(dtype);
    bool by_rows = layout == BY_ROWS || layout == PACKED;
    int64_t step = layout == SCATTERED ? 2 : 1, gap = layout == PACKED ? 0 : GAP,
            line = (by_rows || layout == SCATTERED ? columns : rows) * step + gap;
    f.m.row_stride = by_rows || layout == SCATTERED ? line : step;
    f.m.column_stride = layout == BY_COLUMNS ? line : step;
    f.bytes =
        ((size_t)(line * (layout == BY_COLUMNS ? columns : rows)) + (size_t)offset) * size + 128;
    f.memory = aligned_alloc(64, (f.bytes + 63) / 64 * 64);
    CHECK(f.memory);
    memset(f.memory, SENTINEL, f.bytes);
    f.m.data = (char *)f.memory + 64 + (size_t)offset * size;
    return f;
}

static char *element(const weft_i_matrix *m, int64_t i, int64_t j)
{
    return m->data +
           (i * m->row_stride + j * m->column_stride) * (int64_t)weft_dtype_size(m->dtype);
}

static double value(const weft_i_matrix *m, int64_t i, int64_t j)
{
    double x;
    weft_i_convert(WEFT_F64, &x, m->dtype, element(m, i, j), 1);
    return x;
}

static uint32_t state = 1;
static uint32_t draw(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* Numbers of both signs and many sizes, zeros of both signs, and some below the normal ones of f16. */
static void fill(const weft_i_matrix *m)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++) {
            uint32_t bits = draw();
            double x = (double)draw() / 0x1p23 - 1 + (double)draw() * 0x1p-47;
            x = ldexp(x, (int)(bits % 16) / 4 - 2);
            x = bits % 16 == 7 ? copysign(0, x) : bits % 16 == 8 ? x * 0x1p-17 : x;
            weft_i_convert(m->dtype, element(m, i, j), WEFT_F64, &x, 1);
        }
}

/* Only elements of the matrix may differ from what make() wrote: the rest is made equal to it first. */
static void check_frame(const framed *f)
{
    size_t size = weft_dtype_size(f->m.dtype);
    for (int64_t i = 0; i < f->m.rows; i++)
        for (int64_t j = 0; j < f->m.columns; j++)
            memset(element(&f->m, i, j), SENTINEL, size);
    for (size_t i = 0; i < f->bytes; i++)
        CHECK_INT(f->memory[i], SENTINEL);
}

/* ---- the order of sums ---- */

static float term_float(float x, float y, float sum, bool fused)
{
    return fused ? fmaf(x, y, sum) : x * y + sum;
}

static double term_double(double x, double y, double sum, bool fused)
{
    return fused ? fma(x, y, sum) : x * y + sum;
}

#define ORDER(type_)                                                                          \
    static double dot_##type_(const double *x, const double *y, int64_t depth, bool fused)    \
    {                                                                                         \
        enum { LANES = WEFT_I_FEW_ROWS_LANES / sizeof(type_) };                               \
        type_ lane[LANES] = {0};                                                              \
        for (int64_t k = 0; k < depth; k++)                                                   \
            lane[k % LANES] = term_##type_((type_)x[k], (type_)y[k], lane[k % LANES], fused); \
        for (int half = LANES / 2; half; half /= 2)                                           \
            for (int l = 0; l < half; l++)                                                    \
                lane[l] += lane[l + half];                                                    \
        return (double)lane[0];                                                               \
    }                                                                                         \
    static double axpy_##type_(const double *x, const double *y, int64_t depth, bool fused)   \
    {                                                                                         \
        type_ all = 0;                                                                        \
        for (int64_t k = 0; k < depth; k += WEFT_I_FEW_ROWS_DEPTH) {                          \
            type_ sum = 0;                                                                    \
            for (int64_t l = k; l < depth && l < k + WEFT_I_FEW_ROWS_DEPTH; l++)              \
                sum = term_##type_((type_)x[l], (type_)y[l], sum, fused);                     \
            all += sum;                                                                       \
        }                                                                                     \
        return (double)all;                                                                   \
    }
ORDER(float)
ORDER(double)

static bool is_adjacent_in_depth(const weft_i_matrix *matrix, int layout)
{
    return layout == BY_COLUMNS || (matrix->columns == 1 && matrix->row_stride == 1);
}

static void check_bits(const weft_i_matrix *out, int64_t i, int64_t j, double expected,
                       const char *what)
{
    char right[8];
    double got = value(out, i, j);
    weft_i_convert(out->dtype, right, WEFT_F64, &expected, 1);
    if (memcmp(right, element(out, i, j), weft_dtype_size(out->dtype)) &&
        !(isnan(got) && isnan(expected)))
        FAIL("%s: [%lld, %lld] is %.17g, not %.17g", what, (long long)i, (long long)j, got,
             expected);
}

/* out [rows, columns] is x [rows, depth] times the matrix, in the order for its layout. */
static void check_order(const weft_i_matrix *out, const weft_i_matrix *x,
                        const weft_i_matrix *matrix, int layout, bool fused, const char *what)
{
    bool dot = is_adjacent_in_depth(matrix, layout), wide = matrix->dtype == WEFT_F64;
    int64_t depth = matrix->rows;
    double *rows = malloc((size_t)(x->rows + 1) * (size_t)depth * sizeof *rows),
           *column = rows + x->rows * depth;
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t k = 0; k < depth; k++)
            rows[i * depth + k] = value(x, i, k);
    for (int64_t j = 0; j < out->columns; j++) {
        for (int64_t k = 0; k < depth; k++)
            column[k] = value(matrix, k, j);
        for (int64_t i = 0; i < out->rows; i++)
            check_bits(out, i, j,
                       (wide  ? dot ? dot_double : axpy_double
                        : dot ? dot_float
                              : axpy_float)(rows + i * depth, column, depth, fused),
                       what);
    }
    free(rows);
}

static weft_i_matrix turned(const weft_i_matrix *m)
{
    return (weft_i_matrix){m->dtype, m->data, m->columns, m->rows, m->column_stride, m->row_stride};
}

/* A product of the sizes with few rows, as it is and as its transpose, which has few columns. */
static void check_product(const weft_i_few_rows_table *table, weft_dtype dtype, int64_t rows,
                          int64_t depth, int64_t columns, int layout)
{
    static int count;
    char what[160];
    int offset = count++ % 16;
    snprintf(what, sizeof what, "%s, %s, [%lld, %lld] by [%lld, %lld], layout %d, offset %d",
             table->name, weft_dtype_name(dtype), (long long)rows, (long long)depth,
             (long long)depth, (long long)columns, layout, offset);
    framed x = make(dtype, rows, depth, count / 3 % LAYOUTS, offset / 2 * 3 % 16),
           matrix = make(dtype, depth, columns, layout, offset),
           out = make(dtype, rows, columns, count % LAYOUTS, offset * 5 % 16);
    fill(&x.m);
    fill(&matrix.m);
    weft_i_matrix a = x.m, b = matrix.m, z = out.m;
    bool turns = columns > WEFT_I_FEW_ROWS && count % 2;
    if (turns)
        a = turned(&matrix.m), b = turned(&x.m), z = turned(&out.m);
    CHECK(weft_i_few_rows_fits(&z, &a, &b));
    CHECK_OK(weft_i_few_rows(&z, &a, &b));
    check_order(&out.m, &x.m, &matrix.m, layout, table->fused, what);
    check_frame(&out);
    check_frame(&x);
    check_frame(&matrix);
    free(x.memory);
    free(matrix.memory);
    free(out.memory);
}

/* The i-th instruction set that is usable here, which products are made by from now on. */
static const weft_i_few_rows_table *use_next(int *i)
{
    const weft_i_few_rows_table *table;
    while ((table = weft_i_few_rows_variant((*i)++)))
        if (weft_i_few_rows_use(table))
            return table;
    CHECK(weft_i_few_rows_use(NULL));
    return NULL;
}

/* ---- tests ---- */

TEST(test_few_rows_small_sizes)
{
    const weft_i_few_rows_table *table;
    for (int t = 0; (table = use_next(&t));)
        for (int size = 1; size <= 70; size++)
            for (int d = 0; d < DTYPES; d++)
                for (int layout = 0; layout < LAYOUTS; layout++) {
                    int other = (size * 37 + 11 * d) % 70 + 1, rows = (size + layout) % 4 + 1;
                    check_product(table, dtypes[d], rows, size, other, layout);
                    check_product(table, dtypes[d], 5 - rows, other, size, layout);
                }
}

enum { ONE_OF = VALUES_SANITIZED ? 6 : 1 };

/* More columns than sums are kept of at a time, and more depth than lines of a page.  Beside a sanitizer a sample. */
TEST(test_few_rows_large_sizes)
{
    static const int64_t sizes[][3] = {{1, 768, 97},  {1, 19, 8205}, {2, 4099, 33},
                                       {3, 33, 2801}, {4, 768, 130}, {4, 21, 4110}};
    const weft_i_few_rows_table *table;
    for (int t = 0; (table = use_next(&t));)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int d = 0; d < DTYPES; d++)
                for (int layout = 0; layout < LAYOUTS; layout++)
                    if (values_takes(s << 16 | (uint64_t)(t << 8 | d << 4 | layout), ONE_OF))
                        check_product(table, dtypes[d], sizes[s][0], sizes[s][1], sizes[s][2],
                                      layout);
}

/* Any number of rows, columns and layout: every pair of the smallest sizes. */
TEST(test_few_rows_smallest_sizes)
{
    const weft_i_few_rows_table *table;
    for (int t = 0; (table = use_next(&t));)
        for (int i = 0; i < DTYPES * LAYOUTS * 4 * 5 * 9; i++)
            check_product(table, dtypes[i % 4], i / 16 % 4 + 1, i / 64 % 5 + 1, i / 320 + 1,
                          i / 4 % 4);
}

/* Where both can fuse, all instruction sets give the same bits: that is, the order's. */
TEST(test_few_rows_tables)
{
    const weft_i_few_rows_table *table;
    int count = 0;
    for (int t = 0; (table = use_next(&t)); count++)
        CHECK(*table->name);
    CHECK(count >= 1 && !weft_i_few_rows_variant(-1));
    CHECK(weft_i_few_rows_use(weft_i_few_rows_variant(count > 1 ? 1 : 0)));
    CHECK(weft_i_few_rows_use(NULL));
}

/* ---- what lies beside the operands ---- */

/* An operand whose last element is the last of its page; the next page cannot be read. */
typedef struct edge {
    char *pages;
    weft_i_matrix m;
} edge;

enum { PAGES = 1 << 16 };

static edge at_the_edge(weft_dtype dtype, int64_t rows, int64_t columns, bool by_columns)
{
    edge e;
    e.pages = mmap(NULL, 2 * PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(e.pages != MAP_FAILED && !mprotect(e.pages + PAGES, PAGES, PROT_NONE));
    e.m = (weft_i_matrix){dtype,
                          e.pages + PAGES - rows * columns * (int64_t)weft_dtype_size(dtype),
                          rows,
                          columns,
                          by_columns ? 1 : columns,
                          by_columns ? rows : 1};
    return e;
}

TEST(test_few_rows_reads_nothing_beside)
{
    const weft_i_few_rows_table *table;
    for (int t = 0; (table = use_next(&t));)
        for (int i = 0; i < DTYPES * 2 * 40; i++) {
            weft_dtype dtype = dtypes[i % 4];
            int64_t rows = i / 8 % 4 + 1, depth = i / 8 + 1, columns = 53 - i / 8;
            edge x = at_the_edge(dtype, rows, depth, false),
                 matrix = at_the_edge(dtype, depth, columns, i / 4 % 2),
                 out = at_the_edge(dtype, rows, columns, false);
            fill(&x.m);
            fill(&matrix.m);
            CHECK_OK(weft_i_few_rows(&out.m, &x.m, &matrix.m));
            check_order(&out.m, &x.m, &matrix.m, i / 4 % 2 ? BY_COLUMNS : PACKED, table->fused,
                        table->name);
            munmap(x.pages, 2 * PAGES);
            munmap(matrix.pages, 2 * PAGES);
            munmap(out.pages, 2 * PAGES);
        }
}

/* Infinities and NaN stay in their row or column; what a vector is filled up with brings none. */
TEST(test_few_rows_infinities)
{
    const weft_i_few_rows_table *table;
    for (int t = 0; (table = use_next(&t));)
        for (int i = 0; i < DTYPES * 2; i++) {
            weft_dtype dtype = dtypes[i / 2];
            CHECK_OK(weft_scope_open());
            weft_tensor *a = weft_ones(dtype, WEFT_CPU, WEFT_SHAPE(3, 35)),
                        *b = weft_ones(dtype, WEFT_CPU,
                                       i % 2 ? WEFT_SHAPE(37, 35) : WEFT_SHAPE(35, 37));
            b = i % 2 ? weft_transpose(b, 0, 1) : b;
            CHECK_OK(weft_fill(weft_select(weft_select(a, 0, 1), 0, 34), -INFINITY));
            CHECK_OK(weft_fill(weft_select(weft_select(b, 0, 34), 0, 5), NAN));
            CHECK_OK(weft_fill(weft_select(weft_select(b, 0, 0), 0, 6), INFINITY));
            weft_tensor *out = weft_mm(a, b);
            for (int64_t row = 0; row < 3; row++)
                for (int64_t j = 0; j < 37; j++) {
                    double x = weft_item(out, row * 37 + j);
                    CHECK(j == 5               ? isnan(x)
                          : j == 6 && row == 1 ? isnan(x) /* inf - inf */
                          : j == 6 || row == 1 ? isinf(x) && (x > 0) == (row != 1)
                                               : x == 35);
                }
            CHECK_OK(weft_scope_close());
        }
}

/* Sums are f32, and only the result is rounded: beyond the largest f16 on the way, and back. */
TEST(test_few_rows_rounds_once)
{
    const weft_i_few_rows_table *table;
    for (int t = 0; (table = use_next(&t));)
        for (int i = 0; i < 2; i++) {
            weft_tensor *a = weft_ones(WEFT_F16, WEFT_CPU, WEFT_SHAPE(1, 17)),
                        *b = weft_full(WEFT_F16, WEFT_CPU,
                                       i ? WEFT_SHAPE(8, 17) : WEFT_SHAPE(17, 8), 60000);
            b = i ? weft_transpose(b, 0, 1) : b;
            CHECK_OK(weft_fill(weft_slice(b, 0, 9, 17, 1), -60000));
            weft_tensor *out = weft_mm(a, b);
            CHECK(weft_item(out, 0) == 60000 && weft_item(out, 7) == 60000);
            CHECK_OK(weft_fill(weft_slice(b, 0, 9, 17, 1), 1));
            CHECK(weft_item(weft_mm(a, b), 3) == INFINITY);
        }
}

/* ---- through the operations ---- */

static weft_i_matrix matrix_of(weft_tensor *x)
{
    return (weft_i_matrix){weft_tensor_dtype(x),     weft_tensor_data(x),
                           weft_tensor_size(x, 0),   weft_tensor_size(x, 1),
                           weft_tensor_stride(x, 0), weft_tensor_stride(x, 1)};
}

static weft_status layers(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    out[0] = weft_linear(in[0], in[1], in[2]);
    out[1] = weft_mm(in[0], in[3]);
    return out[0] && out[1] ? WEFT_OK : weft_last_status();
}

/* Eager, again, and compiled: the same bits, which are the order's, not a library's. */
TEST(test_few_rows_operations)
{
    int best = 0;
    bool fused = use_next(&best)->fused;
    weft_seed(7);
    for (int d = 0; d < DTYPES; d++)
        for (int64_t rows = 1; rows <= 4; rows++) {
            CHECK_OK(weft_scope_open());
            weft_tensor *in[4] = {weft_randn(dtypes[d], WEFT_CPU, WEFT_SHAPE(rows, 131)),
                                  weft_randn(dtypes[d], WEFT_CPU, WEFT_SHAPE(77, 131)), NULL,
                                  weft_randn(dtypes[d], WEFT_CPU, WEFT_SHAPE(131, 77))};
            in[2] = weft_zeros(dtypes[d], WEFT_CPU, WEFT_SHAPE(77));
            weft_tensor *first[2], *second[2], *third[2];
            CHECK_OK(layers(in, 4, first, 2, NULL));
            CHECK_OK(layers(in, 4, second, 2, NULL));
            weft_compiled *compiled = weft_compile(layers, NULL, NULL);
            CHECK_OK(weft_compiled_call(compiled, in, 4, third, 2));
            for (int i = 0; i < 2; i++)
                CHECK(weft_equal(first[i], second[i]) && weft_equal(first[i], third[i]));
            weft_tensor *turned_weight = weft_transpose(in[1], 0, 1);
            weft_i_matrix x = matrix_of(in[0]), w = matrix_of(turned_weight), b = matrix_of(in[3]),
                          y = matrix_of(first[0]), z = matrix_of(first[1]);
            check_order(&y, &x, &w, BY_COLUMNS, fused, "linear");
            check_order(&z, &x, &b, PACKED, fused, "mm");
            CHECK_OK(weft_scope_close());
        }
    CHECK(weft_i_few_rows_use(NULL));
}

/* Nothing to add, or nothing to add it to. */
TEST(test_few_rows_empty)
{
    for (int d = 0; d < DTYPES; d++) {
        weft_tensor *out = weft_ones(dtypes[d], WEFT_CPU, WEFT_SHAPE(2, 5));
        CHECK_OK(weft_mm_into(out, weft_zeros(dtypes[d], WEFT_CPU, WEFT_SHAPE(2, 0)),
                              weft_zeros(dtypes[d], WEFT_CPU, WEFT_SHAPE(0, 5))));
        for (int i = 0; i < 10; i++)
            CHECK(weft_item(out, i) == 0);
        weft_tensor *x = weft_ones(dtypes[d], WEFT_CPU, WEFT_SHAPE(2, 5));
        CHECK_INT(weft_tensor_numel(weft_mm(x, weft_ones(dtypes[d], WEFT_CPU, WEFT_SHAPE(5, 0)))),
                  0);
        CHECK_INT(weft_tensor_numel(
                      weft_linear(weft_ones(dtypes[d], WEFT_CPU, WEFT_SHAPE(0, 5)), x, NULL)),
                  0);
    }
}

/* What is not such a product is left to others. */
TEST(test_few_rows_others)
{
    framed few = make(WEFT_F32, 4, 9, PACKED, 0), many = make(WEFT_F32, 9, 9, PACKED, 0);
    weft_i_matrix more = many.m, whole = few.m;
    CHECK(weft_i_few_rows_fits(&few.m, &few.m, &many.m));
    more.rows = 5;
    CHECK(!weft_i_few_rows_fits(&more, &more, &many.m)); /* five rows */
    whole.dtype = more.dtype = WEFT_I32;
    more.rows = 9;
    CHECK(!weft_i_few_rows_fits(&whole, &whole, &more)); /* whole numbers */
    whole.dtype = more.dtype = WEFT_F8E4M3;
    CHECK(!weft_i_few_rows_fits(&whole, &whole, &more));
    CHECK_STATUS(weft_i_few_rows(&whole, &whole, &more), WEFT_ERR_INVALID_ARG);
    free(few.memory);
    free(many.memory);
}

/* A copy that is needed and cannot be had: an error, and the result is as it was. */
TEST(test_few_rows_shortage)
{
    framed x = make(WEFT_BF16, 2, 19, SCATTERED, 0), matrix = make(WEFT_BF16, 19, 6, SCATTERED, 0),
           out = make(WEFT_BF16, 2, 6, PACKED, 0);
    fill(&x.m);
    fill(&matrix.m);
    int failed = 0;
    bool fired = true;
    for (int n = 1; fired; n++) {
        fault_arm(n);
        weft_status status = weft_i_matmul(&out.m, &x.m, &matrix.m);
        fired = fault_disarm();
        CHECK_STATUS(status, fired ? WEFT_ERR_NO_MEMORY : WEFT_OK);
        if (fired)
            for (size_t i = 0; i < out.bytes; i++)
                CHECK_INT(out.memory[i], SENTINEL);
        failed += fired;
        weft_clear_error();
    }
    CHECK_INT(failed, 2); /* of x, and of the matrix */
    check_frame(&out);
    free(x.memory);
    free(matrix.memory);
    free(out.memory);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}
