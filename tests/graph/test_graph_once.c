/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/pass/once.c */
/*
 * Equal nodes are merged, and constants computed at the capture: results keep eager's bits, and what somebody
 * outside may hold or write stays apart.
 */
#include "graph_both.h"
#include "harness_cache.h"

#include <math.h>

static void check_same(const char *what, weft_graph_function function, weft_tensor *const *in,
                       int ins, int outs)
{
    weft_tensor *plain[4], *fast[4];
    weft_compiled *compiled = compile(function, NULL);
    CHECK_OK(function(in, ins, plain, outs, NULL));
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weft_compiled_call(compiled, in, ins, fast, outs));
        for (int i = 0; i < outs; i++)
            check_bits(what, plain[i], fast[i]);
    }
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
}

FUNCTION(twice)
{
    weft_tensor *a = weft_matmul(in[0], in[1]), *b = weft_matmul(in[0], in[1]);
    out[0] = weft_add(weft_exp(a), weft_sin(b));
    return WEFT_OK;
}

TEST(test_once_equal_products)
{
    weft_seed(1);
    weft_tensor *in[2] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5, 7)),
                          weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7, 3))};
    check_same("twice", twice, in, 2, 1);
    CHECK_INT(count_of(" = mm "), 1);
    CHECK_CONTAINS(text, "once: 1 nodes were there twice");
}

/* The signs of zeros, and numbers that differ in a bit only, make different nodes. */
FUNCTION(nearly)
{
    out[0] = weft_div(in[0], weft_mul_scalar(weft_abs(in[0]), 0.0));
    out[1] = weft_div(in[0], weft_mul_scalar(weft_abs(in[0]), -0.0));
    out[2] = weft_add(weft_mul_scalar(in[0], 0.1), weft_mul_scalar(in[0], nextafter(0.1, 1)));
    return WEFT_OK;
}

TEST(test_once_numbers_are_compared_in_all_bits)
{
    weft_tensor *in[1] = {weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(33))};
    check_same("nearly", nearly, in, 1, 3);
}

/* Two results are two tensors, also if they are equal. */
FUNCTION(both)
{
    out[0] = weft_matmul(in[0], in[1]);
    out[1] = weft_matmul(in[0], in[1]);
    return WEFT_OK;
}

TEST(test_once_results_stay_apart)
{
    weft_seed(2);
    weft_tensor *out[2], *in[2] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5, 7)),
                                   weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7, 3))};
    CHECK_OK(weft_compiled_call(compile(both, NULL), in, 2, out, 2));
    CHECK(out[0] != out[1] && out[0]->storage != out[1]->storage);
}

/* Draws give other numbers each time, and each run. */
FUNCTION(draws)
{
    weft_tensor *a = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64)),
                *b = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64));
    out[0] = weft_sub(weft_mul(a, in[0]), weft_mul(b, in[0]));
    return WEFT_OK;
}

TEST(test_once_draws_are_no_constants)
{
    weft_tensor *out[2], *in[1] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64))};
    weft_compiled *compiled = compile(draws, NULL);
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_compiled_call(compiled, in, 1, &out[i], 1));
    CHECK(fabs(weft_item(weft_sum(weft_abs(out[0]), NULL, 0, false), 0)) > 0);
    CHECK(weft_item(weft_sum(weft_abs(weft_sub(out[0], out[1])), NULL, 0, false), 0) > 0);
}

/* A mask of which every block makes one. */
static weft_tensor *masked(weft_tensor *x)
{
    int64_t n = weft_tensor_shape(x).dim[0];
    weft_tensor *at = weft_arange(WEFT_I64, WEFT_CPU, 0, (double)n, 1);
    weft_tensor *ahead =
        weft_gt(weft_reshape(at, WEFT_SHAPE(1, n)), weft_reshape(at, WEFT_SHAPE(n, 1)));
    return weft_softmax(weft_where(ahead, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), -1e9), x),
                        -1);
}

FUNCTION(blocks)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < 3; i++)
        x = weft_matmul(masked(x), in[0]);
    out[0] = x;
    return WEFT_OK;
}

TEST(test_once_masks_are_made_at_the_capture)
{
    weft_seed(3);
    weft_tensor *in[1] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(40, 40))};
    check_same("blocks", blocks, in, 1, 1);
    CHECK_INT(count_of(" = arange"), 0);
    CHECK_CONTAINS(text, "1 constants of");
}

/* What is written in the end is read before, and a view of it is no copy. */
FUNCTION(writes)
{
    weft_tensor *before = weft_mul_scalar(in[0], 2);
    if (weft_add_into(in[0], in[0], in[1]) < 0)
        return weft_last_status();
    weft_tensor *after = weft_mul_scalar(in[0], 2);
    out[0] = weft_sub(after, before);
    return WEFT_OK;
}

TEST(test_once_a_write_lies_between)
{
    weft_seed(4);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(50)), *out[2];
    weft_tensor *y = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(50));
    weft_tensor *first[2] = {weft_clone(x), y}, *second[2] = {weft_clone(x), y};
    CHECK_OK(writes(first, 2, &out[0], 1, NULL));
    CHECK_OK(weft_compiled_call(compile(writes, NULL), second, 2, &out[1], 1));
    check_bits("difference", out[0], out[1]);
    check_bits("written", first[0], second[0]);
}

int main(int argc, char **argv)
{
    harness_cache_share();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
