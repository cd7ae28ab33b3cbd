/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/emit/emit.c, graph/emit/emit_expression.c, graph/emit/emit_group.c,
 * graph/emit/emit_node.c, graph/emit/emit_row.c, graph/emit/emit_text.c, graph/emit/emit_value.c,
 * graph/emit/plan.c */
/*
 * Backend `c`: groups of nodes become C functions that give the bits of eager.  Each function here
 * is run plainly and compiled, in several dtypes, and the text that explains it says what was fused
 * and why the rest was not.
 */
#include "graph_both.h"
#include "graph_notes.h"
#include "harness_cache.h"
#include "memory_count.h"

#include "base/report/log.h"
#include "base/team/team.h"
#include "graph/emit/emit.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs it both ways; `text` explains it afterwards.  Returns how many rows were fused ones. */
static int check_same(const char *what, weft_graph_function function, weft_tensor *const *in,
                      int ins, int outs, void *user)
{
    weft_tensor *plain[8], *fast[8];
    weft_compiled *compiled = compile(function, user);
    CHECK_OK(function(in, ins, plain, outs, user));
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weft_compiled_call(compiled, in, ins, fast, outs));
        for (int i = 0; i < outs; i++)
            check_bits(what, plain[i], fast[i]);
    }
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
    graph_notes_check(text);
    return count_of(" = fused_");
}

/* Any work is cut for threads, from here to `count_threads(0)`. */
static void count_threads(int threads)
{
    static int64_t least, part;
    if (!least) {
        least = atomic_load_explicit(&weft_i_team_least, memory_order_relaxed);
        part = atomic_load_explicit(&weft_i_team_part_bytes, memory_order_relaxed);
    }
    atomic_store_explicit(&weft_i_team_least, threads ? 256 : least, memory_order_relaxed);
    atomic_store_explicit(&weft_i_team_part_bytes, threads ? 1024 : part, memory_order_relaxed);
    weft_i_team_use(threads);
}

/* ---- element by element ---- */

static const weft_dtype floats[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};

TEST(test_emit_pointwise_chain)
{
    for (size_t i = 0; i < 4; i++) {
        weft_seed(i);
        weft_tensor *in[2] = {
            weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(37, 65)), floats[i]),
            weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(37, 65)), floats[i])};
        CHECK_INT(check_same(weft_dtype_name(floats[i]), chain, in, 2, 1, NULL), 1);
        CHECK_CONTAINS(text, i == 1 ? "gelu_f64(" : "gelu_f32(");
    }
}

FUNCTION(broadcast)
{
    weft_tensor *x = weft_add(in[0], in[1]); /* [8, 16] + [16] */
    x = weft_mul(x, in[2]);                  /* [8, 1] */
    out[0] = weft_sub(weft_transpose(in[3], 0, 1), x);
    out[1] = weft_neg(x);
    return WEFT_OK;
}

TEST(test_emit_broadcast_and_layouts)
{
    weft_seed(3);
    weft_tensor *in[4] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 16)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 1)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16, 8))};
    CHECK_INT(check_same("broadcast", broadcast, in, 4, 2, NULL), 1);
}

FUNCTION(angles)
{
    out[0] = weft_mul(weft_sin(in[0]), weft_cos(weft_mul_scalar(in[0], 3)));
    return WEFT_OK;
}

TEST(test_emit_angles_out_of_reach)
{
    weft_seed(5);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1000));
    CHECK_INT(check_same("near", angles, &x, 1, 1, NULL), 1);
    ((float *)weft_tensor_data(x))[500] = 1e30f;
    ((float *)weft_tensor_data(x))[501] = INFINITY;
    CHECK_INT(check_same("far", angles, &x, 1, 1, NULL), 1);
    weft_tensor *wide = weft_to_dtype(x, WEFT_F64);
    CHECK_INT(check_same("far f64", angles, &wide, 1, 1, NULL), 1);
}

FUNCTION(choices)
{
    weft_tensor *less = weft_lt(in[0], in[1]),
                *zero = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64), 0);
    out[0] = weft_where(weft_logical_not(less), weft_pow_scalar(in[0], 2), zero);
    out[1] = weft_to_dtype(less, WEFT_I32);
    out[2] = weft_add_scalar(weft_mul(out[1], out[1]), 7);
    out[3] = weft_maximum(weft_to_dtype(in[0], WEFT_F64), weft_to_dtype(in[1], WEFT_F64));
    return WEFT_OK;
}

TEST(test_emit_choices_and_conversions)
{
    weft_seed(7);
    weft_tensor *in[2] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64))};
    ((float *)weft_tensor_data(in[0]))[3] = NAN;
    ((float *)weft_tensor_data(in[1]))[4] = -0.0f;
    CHECK(check_same("choices", choices, in, 2, 4, NULL) >= 1);
}

/* ---- results that no cache holds ---- */

/* Rows that are made beside and stored when they are done: one that is worked on, one that is not. */
FUNCTION(vast_rows)
{
    weft_tensor *n = weft_layer_norm(weft_mul_scalar(in[0], 0.5), 1, NULL, NULL, 1e-5);
    out[0] = weft_softmax(weft_add(n, in[0]), -1);
    out[1] = weft_mul(out[0], in[1]);
    out[2] = weft_sum(out[1], (int[]){-1}, 1, false);
    return WEFT_OK;
}

TEST(test_emit_vast_rows)
{
    static const int64_t widths[] = {512, 1024, 514}; /* the last is no multiple of a line */
    for (int i = 0; i < 6; i++) {
        int64_t width = widths[i % 3], rows = (5 << 20) / 4 / width;
        weft_dtype dtype = i < 3 ? WEFT_F32 : WEFT_F64;
        weft_scope_open();
        weft_seed(i);
        weft_tensor *in[2] = {weft_randn(dtype, WEFT_CPU, WEFT_SHAPE(rows, width)),
                              weft_randn(dtype, WEFT_CPU, WEFT_SHAPE(width))};
        CHECK_INT(check_same("vast rows", vast_rows, in, 2, 3, NULL), 1);
#ifdef __x86_64__
        CHECK_INT(count_of("weft_i_far_store("), i % 3 < 2 ? 2 : 0);
        CHECK_INT(count_of("weft_i_far_end();"), i % 3 < 2);
#endif
        weft_scope_close();
    }
}

/* Results of two sizes, an operand that is repeated, and angles, of which some are too large. */
FUNCTION(vast)
{
    weft_tensor *x = weft_add(in[0], in[1]);
    out[0] = weft_maximum_scalar(weft_mul(weft_sin(x), x), 0.5);
    out[1] = weft_lt(x, in[0]);
    return WEFT_OK;
}

/* Four pages at a time and the rest; rows that begin anywhere; a row too small for that. */
TEST(test_emit_vast_results)
{
    static const int64_t shapes[][2] = {{1, (2 << 20) + 77}, {2900, 1027}, {1 << 15, 65}, {64, 77}};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < (i == 1 ? 3 : 1); k++) {
            weft_scope_open();
            weft_seed(i);
            weft_shape whole = WEFT_SHAPE(shapes[i][0], shapes[i][1]);
            weft_tensor *in[2] = {weft_randn(WEFT_F32, WEFT_CPU, whole),
                                  weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(shapes[i][1]))};
            float *x = weft_tensor_data(in[0]);
            x[0] = NAN, x[70] = -0.0f, x[4 * 1024] = 1e30f, x[64 * 77 - 1] = -INFINITY;
            for (int j = 0; j < 2; j++)
                in[j] = weft_to_dtype(in[j], floats[k]);
            CHECK_INT(check_same("vast", vast, in, 2, 2, NULL), 1);
#ifdef __x86_64__
            CHECK_INT(count_of("weft_i_far_end();"), i < 3);
            CHECK_INT(count_of("weft_i_far_store("), i == 3 ? 0 : i == 0 ? 4 : 2);
#else
            CHECK_INT(count_of("weft_i_far_"), 0);
#endif
            weft_scope_close();
        }
}

/* An element-wise function may write over its operand. */
FUNCTION(vast_in_place)
{
    weft_tensor *x = weft_matmul(in[0], in[1]);
    out[0] = weft_matmul(weft_relu(weft_add_scalar(x, 1)), in[2]);
    return WEFT_OK;
}

TEST(test_emit_vast_results_in_place)
{
    weft_seed(6);
    weft_tensor *in[3] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2048, 2)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 1031)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1031, 2))};
    CHECK_INT(check_same("in place", vast_in_place, in, 3, 1, NULL), 1);
    CHECK_CONTAINS(text, " 1 in place");
}

/* ---- rows ---- */

/* Gradients of rows: of what is computed here, of what comes from outside, and of two in a row. */
FUNCTION(slopes)
{
    weft_tensor *g = weft_mul(in[0], in[1]), *y = weft_softmax(in[0], -1);
    weft_tensor *slope = weft_softmax_grad(g, y, -1);
    out[0] = weft_mul_scalar(weft_softmax_grad(slope, in[1], 1), 3);
    out[1] = weft_add(weft_log_softmax_grad(in[1], weft_log_softmax(weft_neg(in[0]), 1), -1), g);
    return WEFT_OK;
}

/* Sums over the first dimensions, as of the gradients of a bias, beside what is summed. */
FUNCTION(columns)
{
    weft_tensor *g = weft_gelu_grad(in[0], in[1]);
    out[0] = weft_sum(g, (int[]){0}, 1, false);
    out[1] = weft_mul(weft_softmax(g, -1), weft_mean(weft_neg(in[0]), (int[]){0}, 1, true));
    return WEFT_OK;
}

FUNCTION(columns_of_three)
{
    weft_tensor *g = weft_mul(in[0], in[1]);
    out[0] = weft_sum(weft_exp(weft_neg(g)), (int[]){0, 1}, 2, false);
    out[1] = weft_sum(g, (int[]){0}, 1, false);
    return WEFT_OK;
}

TEST(test_emit_columns)
{
    static const int64_t rows[] = {1, 16, 513, 1536, 2600};
    enum { SIZES = sizeof rows / sizeof *rows };
    weft_i_emit_hold(true); /* one compilation for all */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < SIZES + 2; i++) {
            int64_t n = rows[i < SIZES ? i : 2];
            weft_dtype dtype = floats[i < SIZES ? 0 : 1 + i - SIZES];
            weft_tensor *in[2], *deep[2], *outs[2];
            weft_seed((uint64_t)i);
            for (int k = 0; k < 2; k++) {
                in[k] = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(n, 7));
                in[k] = weft_to_dtype(in[k], dtype);
                deep[k] = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(n, 3, 2));
                deep[k] = weft_to_dtype(deep[k], dtype);
            }
            if (pass == 0) { /* only makes the rows */
                weft_compiled *a = compile(columns, NULL), *b = compile(columns_of_three, NULL);
                CHECK_STATUS(weft_compiled_call(a, in, 2, outs, 2), WEFT_ERR_STATE);
                CHECK_STATUS(weft_compiled_call(b, deep, 2, outs, 2), WEFT_ERR_STATE);
                weft_clear_error();
                continue;
            }
            CHECK_INT(check_same("columns", columns, in, 2, 2, NULL), 2);
            CHECK_INT(count_of("columns_end"), 2);
            CHECK(check_same("three", columns_of_three, deep, 2, 2, NULL) >= 1);
            CHECK(count_of("columns_end") >= 1);
        }
        weft_i_emit_hold(false);
        CHECK(weft_i_emit_build());
    }
}

FUNCTION(all_kinds)
{
    weft_tensor *y = weft_layer_norm(weft_add(in[0], in[1]), 1, NULL, NULL, 1e-5);
    out[0] = weft_softmax(y, -1);
    out[1] = weft_sum(weft_mul(y, in[0]), (int[]){0}, 1, false);
    out[2] = weft_tanh(weft_mul(in[2], in[3]));
    out[3] = weft_add(in[2], weft_transpose(in[4], 0, 1));
    out[4] = weft_sum(weft_exp(in[0]), (int[]){0, 1}, 2, false);
    return WEFT_OK;
}

/* Functions are cut by their shapes: rows, pieces of rows, blocks of rows and lanes of blocks. */
TEST(test_emit_bits_are_those_of_any_number_of_threads)
{
    static const int threads[] = {1, 2, 3, 16};
    static const int64_t rows[] = {3, 100, 1300};
    weft_i_emit_hold(true);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 3; i++) {
            weft_seed(11);
            weft_tensor *in[5] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows[i], 45)),
                                  weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(45)),
                                  weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2 + i, 9000)),
                                  weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(9000)),
                                  weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(9000, 2 + i))};
            weft_tensor *outs[5];
            if (pass == 0) { /* only makes the rows */
                CHECK_STATUS(weft_compiled_call(compile(all_kinds, NULL), in, 5, outs, 5),
                             WEFT_ERR_STATE);
                weft_clear_error();
                continue;
            }
            for (int k = 0; k < 4; k++) {
                count_threads(threads[k]);
                CHECK(check_same("all kinds", all_kinds, in, 5, 5, NULL) >= 3);
                count_threads(0);
            }
            CHECK(count_of("_END(") > 0);
            CHECK(count_of("int64_t unit = first") > 0);
        }
        weft_i_emit_hold(false);
        CHECK(weft_i_emit_build());
    }
}

static const int64_t widths[] = {1, 5, 513, 1500};

TEST(test_emit_rows)
{
    weft_i_emit_hold(true); /* one compilation for all */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (size_t k = 0; k < (i % 2 ? 3 : 1); k++) {
                weft_seed(i);
                int64_t n = widths[i];
                weft_tensor *in[4] = {
                    weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, n)), floats[k]),
                    weft_to_dtype(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, n)), floats[k]),
                    weft_randn(k == 1 ? WEFT_F64 : WEFT_F32, WEFT_CPU, WEFT_SHAPE(n)),
                    weft_randn(k == 1 ? WEFT_F64 : WEFT_F32, WEFT_CPU, WEFT_SHAPE(n))};
                if (pass == 0) { /* only makes the rows */
                    weft_tensor *outs[2];
                    weft_compiled *a = compile(by_hand, NULL), *b = compile(block, NULL);
                    weft_compiled *c = compile(slopes, NULL);
                    CHECK_STATUS(weft_compiled_call(a, in, 4, outs, 2), WEFT_ERR_STATE);
                    CHECK_STATUS(weft_compiled_call(b, in, 4, outs, 2), WEFT_ERR_STATE);
                    if (n > 1 && n < 1500)
                        CHECK_STATUS(weft_compiled_call(c, in, 4, outs, 2), WEFT_ERR_STATE);
                    weft_clear_error();
                    continue;
                }
                CHECK_INT(check_same("by hand", by_hand, in, 4, 2, NULL), 1);
                CHECK_INT(check_same("block", block, in, 4, 2, NULL), 1);
                if (n > 1 && n < 1500)
                    CHECK_INT(check_same("slopes", slopes, in, 4, 2, NULL), 1);
            }
        weft_i_emit_hold(false);
        CHECK(weft_i_emit_build());
    }
}

FUNCTION(total)
{
    out[0] = weft_sum(weft_mul(in[0], in[0]), NULL, 0, false);
    out[1] = weft_sqrt(weft_mean(weft_exp(in[0]), NULL, 0, false));
    return WEFT_OK;
}

TEST(test_emit_long_rows_are_summed_in_blocks)
{
    weft_seed(9);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 70001));
    CHECK_INT(check_same("total", total, &x, 1, 2, NULL), 1);
    CHECK_INT(count_of("scratch +"), 0); /* no array of 210003 elements beside */
}

/* ---- what lies between ---- */

FUNCTION(with_product)
{
    weft_tensor *a = weft_relu(weft_add_scalar(in[0], 1));
    weft_tensor *b = weft_matmul(a, in[1]);
    out[0] = weft_mul(weft_neg(weft_add(a, b)), weft_abs(a));
    out[1] = weft_max(weft_mul(b, b), (int[]){0}, 1, false);
    return WEFT_OK;
}

TEST(test_emit_nothing_crosses_a_product)
{
    weft_seed(11);
    weft_tensor *in[2] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(32, 32)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(32, 32))};
    CHECK_INT(check_same("product", with_product, in, 2, 2, NULL), 2);
    CHECK_CONTAINS(text, "mm: a product, which the matrix library computes");
    CHECK_CONTAINS(text, "max: it reduces dimensions that are not the last");
}

FUNCTION(writes_input)
{
    weft_tensor *x = weft_add(in[0], in[1]);
    CHECK_OK(weft_copy(in[0], weft_mul(x, x)));
    out[0] = weft_neg(weft_add(in[0], x));
    return WEFT_OK;
}

TEST(test_emit_writes_of_inputs_come_last)
{
    weft_tensor *a = weft_arange(WEFT_F32, WEFT_CPU, 0, 16, 1), *b = weft_clone(a), *out, *plain;
    weft_tensor *in[2] = {a, a}, *same[2] = {b, b};
    weft_compiled *compiled = compile(writes_input, NULL);
    CHECK_OK(writes_input(in, 2, &plain, 1, NULL));
    CHECK_OK(weft_compiled_call(compiled, same, 2, &out, 1));
    check_bits("input", a, b);
    check_bits("result", plain, out);
}

/* ---- memory ---- */

FUNCTION(layers)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < 4; i++) {
        x = weft_matmul(weft_gelu(weft_add_scalar(x, 1)), in[1]);
        x = weft_softmax(weft_mul_scalar(x, 0.5), -1);
    }
    out[0] = weft_sum(x, (int[]){1}, 1, false);
    return WEFT_OK;
}

static size_t peak_of(weft_compiled *compiled, weft_tensor *const *in, weft_tensor **out)
{
    count_begin();
    CHECK_OK(weft_compiled_call(compiled, in, 2, out, 1));
    count_end();
    return most - ((size_t)1 << 40);
}

TEST(test_plan_peak_is_not_above_eager)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 30); /* blocks of their own would be rounded up to pages */
    weft_tensor *in[2] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(128, 128)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(128, 128))};
    weft_tensor *out;
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "aot_eager";
    weft_compiled *compiled = compile(layers, NULL), *rows = weft_compile(layers, NULL, &opts);
    CHECK_OK(weft_compiled_call(compiled, in, 2, &out, 1));
    CHECK_OK(weft_compiled_call(rows, in, 2, &out, 1));
    size_t interpreted = peak_of(rows, in, &out), planned = peak_of(compiled, in, &out);
    if (planned > interpreted + 4096) /* the one row that softmax works on lies beside */
        FAIL("%zu bytes with the plan, %zu row by row", planned, interpreted);
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
    graph_notes_check(text);
    CHECK_CONTAINS(text, "values in an arena of ");
    CHECK(!strstr(text, "arena of 0 bytes"));
    /* The result is the caller's: further runs do not touch it. */
    weft_tensor *first, *second, *copy;
    CHECK_OK(weft_compiled_call(compiled, in, 2, &first, 1));
    copy = weft_clone(first);
    weft_tensor *others[2] = {in[1], in[0]};
    CHECK_OK(weft_compiled_call(compiled, others, 2, &second, 1));
    check_bits("output", first, copy);
    CHECK(weft_tensor_storage(first) != weft_tensor_storage(second));
}

/* ---- gradients ---- */

FUNCTION(loss)
{
    weft_tensor *h = weft_gelu(weft_add(weft_matmul(in[0], in[1]), in[2]));
    out[0] = weft_mean(weft_mul(weft_softmax(h, -1), h), NULL, 0, false);
    return WEFT_OK;
}

TEST(test_emit_gradients_equal_eager)
{
    weft_tensor *grads[2][3];
    weft_compiled *compiled = compile(loss, NULL);
    for (int way = 0; way < 2; way++) {
        weft_seed(21);
        weft_tensor *in[3] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16, 24)),
                              weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(24, 20)),
                              weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20))},
                    *out;
        for (int i = 0; i < 3; i++)
            CHECK_OK(weft_require_grad(in[i], true));
        CHECK_OK(way ? weft_compiled_call(compiled, in, 3, &out, 1) : loss(in, 3, &out, 1, NULL));
        CHECK_OK(weft_backward(out));
        for (int i = 0; i < 3; i++)
            grads[way][i] = weft_grad(in[i]);
    }
    for (int i = 0; i < 3; i++)
        check_bits("gradient", grads[0][i], grads[1][i]);
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
    graph_notes_check(text);
    CHECK(count_of(" = fused_") >= 2); /* forward and backward */
}

/* ---- what the log says ---- */

FUNCTION(layer)
{
    out[0] = weft_gelu(weft_add(weft_matmul(in[0], in[1]), in[2]));
    return WEFT_OK;
}

/* With the level that the environment has now. */
static int log_to(FILE *file)
{
    dup2(fileno(file), STDERR_FILENO);
    setenv("WEFT_DEBUG", "TRACE", 1);
    atomic_store_explicit(&weft_i_log_level, 0, memory_order_relaxed);
    weft_tensor *in[3] = {weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4)),
                          weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 8)),
                          weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8))},
                *y = NULL;
    weft_compiled *compiled = compile(layer, NULL);
    return weft_require_grad(in[1], true) < 0 || weft_compiled_call(compiled, in, 3, &y, 1) < 0;
}

/* A group in front of it takes several numbers away. */
static weft_status reduces_rows(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                                void *user)
{
    (void)ins, (void)outs, (void)user;
    weft_tensor *h = weft_gelu(weft_mul_scalar(weft_add(weft_mm(in[0], in[1]), in[2]), 2));
    out[0] = weft_max(weft_mm(h, in[1]), (int[]){0}, 1, false);
    return out[0] ? WEFT_OK : weft_last_status();
}

TEST(test_graph_notes_number_the_graph_that_is_printed)
{
    static char all[TEXT];
    weft_tensor *in[] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8)),
                         weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 8)),
                         weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8))},
                *y = NULL;
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    weft_compiled *compiled = weft_compile(reduces_rows, NULL, &opts);
    CHECK_OK(weft_compiled_call(compiled, in, 3, &y, 1));
    CHECK(weft_compiled_details(compiled, all, sizeof all) < TEXT);
    CHECK(graph_notes_check(all) >= 3);
}

/* All that weft_compiled_explain knows, once for each capture. */
TEST(test_graph_trace_logs_what_was_captured)
{
    static const char *const parts[] = {
        "\"fn\": graph \"fn\" {",
        "\"fn\":   guard: inputs are as below, gradients are recorded",
        "\"fn\":   not fused: %3 = mm: a product, which the matrix library computes",
        "\"fn\": void FUSED(char *const *addresses, char *scratch, ",
        "\"fn\":   plan: ",
        "\"fn\": backward: run 0 times; 1 values are saved, 64 bytes"};
    FILE *file = tmpfile();
    CHECK(file != NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(log_to(file));
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    rewind(file);
    text[fread(text, 1, TEXT - 1, file)] = 0;
    fclose(file);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_CONTAINS(text, parts[i]);
    CHECK_INT(count_of("\"fn\": graph \"fn\" {"), 2); /* forward and backward */
    CHECK_INT(count_of("guard: inputs are"), 1);
}

int main(int argc, char **argv)
{
    setenv("WEFT_TENSOR_CACHE", "0", 1); /* what goes is gone, and counted */
    harness_cache_share();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
