/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/pass/lower.c, graph/pass/gather.c */
/*
 * LoweringTest: all_reduces and gathers of compiled functions on symmetric memory.  Which are lowered,
 * in how many buffers, what is never placed there; operations and users' own rows that ask for
 * symmetric memory; and that every result is that of the function itself.
 */
#include "device.h"

#include "graph/pass/lower.h"
#include "graph_ranks.h"

static weft_compiled *compile(weft_graph_function function, weft_group *world)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.agree = true;
    return compile_with(opts, function, world);
}

static int count_of(const char *all, const char *word)
{
    int count = 0;
    for (const char *at = all; (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

/* How many values lie in symmetric buffer `n`. */
static int values_in(const char *all, int n)
{
    char line[40];
    snprintf(line, sizeof line, "symmetric buffer %d:", n);
    const char *at = strstr(all, line), *end = at ? strchr(at, '\n') : NULL;
    int count = 0;
    for (; at && at < end; at++)
        count += *at == '%';
    return count;
}

static weft_tensor *random_of(int64_t n, int rank)
{
    weft_seed((uint64_t)(42 + rank));
    return weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(n, n));
}

/* Calls it twice; both results are the function's own, bit for bit, and no symmetric memory comes
 * out. */
static void check_same(weft_compiled *compiled, weft_graph_function function, weft_group *world,
                       weft_tensor *const *in, int ins)
{
    weft_tensor *own, *out;
    CHECK_OK(function(in, ins, &own, 1, world));
    CHECK_OK(weft_wait_tensor(own) ? WEFT_OK : weft_last_status());
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weft_compiled_call(compiled, in, ins, &out, 1));
        CHECK(weft_equal(out, own));
        CHECK(!weft_symm_is(out));
    }
}

/* ---- which are lowered ---- */

FUNCTION(func_0)
{
    out[0] = weft_all_reduce(weft_add_scalar(in[0], 1), WEFT_SUM, world);
    return WEFT_OK;
}

FUNCTION(func_1)
{
    weft_tensor *rows = weft_slice(weft_add_scalar(in[0], 1), 0, 2, 4, 1);
    out[0] = weft_all_reduce(rows, WEFT_SUM, world);
    return WEFT_OK;
}

FUNCTION(func_2)
{
    out[0] = weft_all_reduce(in[0], WEFT_SUM, world);
    return WEFT_OK;
}

FUNCTION(func_3)
{
    out[0] = weft_all_reduce(weft_matmul(in[0], in[0]), WEFT_SUM, world);
    return WEFT_OK;
}

RANKS_TEST(test_lowering_one_shot_all_reduce, 2)
{
    static const weft_graph_function functions[] = {func_0, func_1, func_2, func_3};
    weft_group *world = join(30000);
    weft_tensor *x = random_of(4, rank);
    for (int i = 0; i < 4; i++) {
        weft_compiled *compiled = compile(functions[i], world);
        check_same(compiled, functions[i], world, &x, 1);
        const char *all = explain(compiled);
        bool lowered = i != 2;
        CHECK_INT(count_of(all, "= one_shot_all_reduce %"), lowered);
        CHECK_INT(count_of(all, "= wait_tensor %"), !lowered);
        CHECK_INT(count_of(all, "= all_reduce %"), !lowered);
        CHECK_INT(count_of(all, "symmetric buffer"), lowered);
        if (!lowered)
            CHECK_CONTAINS(all, "not lowered: all_reduce of %0: its operand is an input");
        weft_release(compiled);
    }
    leave(world);
}

FUNCTION(others)
{
    weft_tensor *x = weft_add_scalar(in[0], 1);
    weft_tensor *most = weft_all_reduce(x, WEFT_MAX, world);
    weft_tensor *turned =
        weft_all_reduce(weft_transpose(weft_mul(in[0], in[0]), 0, 1), WEFT_SUM, world);
    weft_tensor *twice = weft_mul_scalar(in[0], 2);
    out[0] = weft_add(weft_add(most, turned), weft_all_reduce(twice, WEFT_SUM, world));
    out[1] = twice;
    return WEFT_OK;
}

RANKS_TEST(test_lowering_says_why_not, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = random_of(4, rank), *own[2], *out[2];
    weft_compiled *compiled = compile(others, world);
    CHECK_OK(others(&x, 1, own, 2, world));
    CHECK_OK(weft_compiled_call(compiled, &x, 1, out, 2));
    CHECK(weft_equal(out[0], own[0]) && weft_equal(out[1], own[1]));
    const char *all = explain(compiled);
    CHECK_CONTAINS(all, "it is not a sum");
    CHECK_CONTAINS(all, "its operand is not contiguous");
    CHECK_CONTAINS(all, "its operand is seen outside");
    CHECK_INT(count_of(all, "= one_shot_all_reduce %"), 0);
    weft_release(compiled);
    leave(world);
}

/* Two shots leave part of the result in the operand, so one that is needed again is put right. */
FUNCTION(large)
{
    weft_tensor *x = weft_mul(in[0], in[1]);
    weft_tensor *sum = weft_all_reduce(x, WEFT_SUM, world);
    weft_tensor *y = weft_mul_scalar(weft_mul(sum, x), 0.5);
    out[0] = weft_add(weft_all_reduce(y, WEFT_SUM, world), sum);
    return WEFT_OK;
}

RANKS_TEST(test_lowering_two_shot_all_reduce, 2)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {random_of(301, rank), random_of(301, rank + 2)};
    weft_compiled *compiled = compile(large, world);
    check_same(compiled, large, world, in, 2);
    const char *all = explain(compiled);
    CHECK_INT(count_of(all, "= two_shot_all_reduce %"), 2);
    CHECK_INT(count_of(all, "keep=true"), 1);
    CHECK_INT(count_of(all, "keep=false"), 1);
    weft_release(compiled);
    leave(world);
}

RANKS_TEST(test_lowering_stops_where_overlap_pays, 2)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {random_of(1100, rank), random_of(1100, rank + 2)};
    weft_compiled *compiled = compile(large, world);
    check_same(compiled, large, world, in, 2);
    CHECK_INT(count_of(explain(compiled), "_shot_all_reduce"), 0);
    CHECK_CONTAINS(text, "it is so large that it rather runs behind");
    weft_release(compiled);
    leave(world);
}

TEST(test_lowering_thresholds)
{
    CHECK_INT(weft_i_lower_choose(2, false, 64), WEFT_I_LOWER_ONE_SHOT);
    CHECK_INT(weft_i_lower_choose(2, false, 1 << 20), WEFT_I_LOWER_TWO_SHOT);
    CHECK_INT(weft_i_lower_choose(2, false, 1 << 30), WEFT_I_LOWER_NOT);
    setenv("WEFT_ONE_SHOT", "1K", 1);
    setenv("WEFT_TWO_SHOT", "2K", 1);
    CHECK_INT(weft_i_lower_choose(8, true, 1024), WEFT_I_LOWER_ONE_SHOT);
    CHECK_INT(weft_i_lower_choose(8, true, 1025), WEFT_I_LOWER_TWO_SHOT);
    CHECK_INT(weft_i_lower_choose(8, true, 2049), WEFT_I_LOWER_NOT);
    setenv("WEFT_ONE_SHOT", "0", 1);
    setenv("WEFT_TWO_SHOT", "0", 1);
    CHECK_INT(weft_i_lower_choose(2, false, 4), WEFT_I_LOWER_NOT);
    unsetenv("WEFT_ONE_SHOT");
    unsetenv("WEFT_TWO_SHOT");
}

/* ---- buffers ---- */

/* Both products are needed to the end. */
FUNCTION(both_alive)
{
    weft_tensor *a = weft_matmul(in[0], in[1]), *b = weft_matmul(a, in[1]);
    weft_tensor *sums =
        weft_add(weft_all_reduce(a, WEFT_SUM, world), weft_all_reduce(b, WEFT_SUM, world));
    out[0] = weft_add(sums, weft_mul(a, b));
    return WEFT_OK;
}

/* Nothing but the sums reads both. */
FUNCTION(both_summed)
{
    weft_tensor *a = weft_matmul(in[0], in[1]), *b = weft_matmul(a, in[1]);
    out[0] = weft_add(weft_all_reduce(a, WEFT_SUM, world), weft_all_reduce(b, WEFT_SUM, world));
    return WEFT_OK;
}

FUNCTION(one_by_one)
{
    weft_tensor *a = weft_all_reduce(weft_matmul(in[0], in[1]), WEFT_SUM, world);
    weft_tensor *b = weft_matmul(weft_matmul(a, in[1]), in[1]);
    out[0] = weft_mul_scalar(weft_all_reduce(b, WEFT_SUM, world), 0.5);
    return WEFT_OK;
}

RANKS_TEST(test_comm_buffer_reuse, 2)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {random_of(8, rank), random_of(8, rank + 2)};
    static const weft_graph_function functions[] = {both_summed, both_alive};
    for (int i = 0; i < 2; i++) {
        weft_compiled *alive = compile(functions[i], world);
        check_same(alive, functions[i], world, in, 2);
        CHECK_INT(count_of(explain(alive), "symmetric buffer"), 2);
        CHECK_INT(values_in(text, 0), 1);
        CHECK_INT(values_in(text, 1), 1);
        CHECK_INT(count_of(text, "= one_shot_all_reduce %"), 2);
        weft_release(alive);
    }
    weft_compiled *reused = compile(one_by_one, world);
    check_same(reused, one_by_one, world, in, 2);
    CHECK_INT(count_of(explain(reused), "symmetric buffer"), 1);
    CHECK_INT(values_in(text, 0), 2);
    CHECK_INT(count_of(text, "= one_shot_all_reduce %"), 2);
    CHECK_INT(count_of(text, "= mm %"), 3); /* the one between them is ordinary */
    weft_release(reused);
    leave(world);
}

static _Thread_local int layers;

FUNCTION(summed_layers)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < layers; i++)
        x = weft_symm_one_shot_all_reduce(weft_matmul(x, in[1]), WEFT_SUM, world);
    out[0] = x;
    return WEFT_OK;
}

/* The same by the plain collective: explicit ones refuse ordinary memory. */
FUNCTION(plain_layers)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < layers; i++)
        x = weft_all_reduce(weft_matmul(x, in[1]), WEFT_SUM, world);
    out[0] = x;
    return WEFT_OK;
}

/* The number before these words; -1: they are not there. */
static int number_before(const char *all, const char *words)
{
    const char *at = strstr(all, words);
    while (at && at > all && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return at ? atoi(at) : -1;
}

/* Every product is written where it is summed, in one buffer for all.  Of the sums the last is the
 * caller's; each other one is written where the one before the last was. */
static void check_layers(weft_graph_function function, weft_group *world, weft_tensor *const *in)
{
    for (layers = 3; layers < 6; layers++) {
        weft_compiled *compiled = compile(function, world);
        check_same(compiled, plain_layers, world, in, 2);
        const char *all = explain(compiled);
        char plan[64], holds[64];
        int at = snprintf(holds, sizeof holds, "holds"), first = number_before(all, " = mm %");
        for (int i = 0; i < layers; i++) /* products and sums take turns */
            at += snprintf(holds + at, sizeof holds - (size_t)at, " %%%d", first + 2 * i);
        snprintf(holds + at, sizeof holds - (size_t)at, ", id");
        snprintf(plan, sizeof plan, "plan: %d values in an arena of 256 bytes, 0 in", layers - 1);
        CHECK_INT(count_of(all, "= one_shot_all_reduce %"), layers);
        CHECK_INT(count_of(all, "symmetric buffer"), 1);
        CHECK_CONTAINS(all, holds);
        CHECK_CONTAINS(all, ", 0 copies");
        CHECK_CONTAINS(all, plan);
        CHECK_INT(number_before(all, " where others were"), layers - 2);
        weft_release(compiled);
    }
    layers = 3;
}

RANKS_TEST(test_output_buffer_reuse, 2)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {random_of(8, rank), random_of(8, rank + 2)}, *out;
    check_layers(summed_layers, world, in);
    check_layers(plain_layers, world, in);
    CHECK_OK(summed_layers(in, 2, &out, 1, world));
    CHECK(!out);
    CHECK_STATUS(weft_last_status(), WEFT_ERR_TYPE);
    weft_clear_error();
    leave(world);
}

static _Thread_local weft_tensor *staging;

FUNCTION(staged_layers)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < layers; i++)
        x = weft_symm_one_shot_all_reduce_copy(staging, weft_matmul(x, in[1]), WEFT_SUM, world);
    out[0] = x;
    return WEFT_OK;
}

HOSTS_TOO_TEST(test_output_buffer_reuse_copy_variant, 2)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {random_of(8, rank), random_of(8, rank + 2)}, *own, *out;
    staging = weft_symm_empty(WEFT_F32, DEVICE, WEFT_SHAPE(64));
    check_layers(staged_layers, world, in);
    /* Interpreted, it stages where it was told to. */
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "aot_eager";
    weft_compiled *rows = weft_compile(staged_layers, world, &opts);
    CHECK_OK(staged_layers(in, 2, &own, 1, world));
    CHECK_OK(weft_compiled_call(rows, in, 2, &out, 1));
    CHECK(weft_equal(own, out));
    weft_release(rows);
    weft_release(staging);
    leave(world);
}

FUNCTION(on_input)
{
    out[0] = weft_symm_one_shot_all_reduce(in[0], WEFT_SUM, world);
    return WEFT_OK;
}

HOSTS_TOO_TEST(test_external_allocation_fallback, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = random_of(8, rank);
    weft_compiled *compiled = compile(on_input, world);
    check_same(compiled, func_2, world, &x, 1);
    const char *all = explain(compiled);
    CHECK_INT(count_of(all, "symmetric buffer"), 1);
    CHECK_INT(count_of(all, "= one_shot_all_reduce %"), 1);
    CHECK_CONTAINS(all, "copied: one_shot_all_reduce of %0: its operand is an input");
    weft_release(compiled);
    leave(world);
}

FUNCTION(scaled_product)
{
    weft_tensor *x = weft_mul_scalar(weft_matmul(in[0], in[1]), 2);
    out[0] = weft_all_reduce(x, WEFT_SUM, world);
    return WEFT_OK;
}

/* Two operations become one that may be done in place. */
FUNCTION(moved_product)
{
    weft_tensor *x = weft_add_scalar(weft_matmul(in[0], in[1]), 1);
    out[0] = weft_all_reduce(weft_mul_scalar(x, 2), WEFT_SUM, world);
    return WEFT_OK;
}

/* The same without a collective, where it is. */
FUNCTION(moved_alone)
{
    weft_tensor *x = weft_add_scalar(weft_matmul(in[0], in[1]), 1);
    out[0] = weft_matmul(weft_mul_scalar(x, 2), in[1]);
    return WEFT_OK;
}

RANKS_TEST(test_comm_buffer_inplace_prevention, 2)
{
    static const weft_graph_function functions[] = {scaled_product, moved_product};
    weft_group *world = join(30000);
    weft_tensor *in[2] = {random_of(8, rank), random_of(8, rank + 2)};
    for (int i = 0; i < 2; i++) {
        weft_compiled *compiled = compile(functions[i], world);
        check_same(compiled, functions[i], world, in, 2);
        const char *all = explain(compiled);
        CHECK_INT(count_of(all, "= one_shot_all_reduce %"), 1);
        CHECK_INT(count_of(all, "symmetric buffer"), 1);
        CHECK_INT(values_in(all, 0), 1);
        CHECK_CONTAINS(all, ", 0 in place,"); /* the product's buffer is not the sum's */
        weft_release(compiled);
    }
    weft_compiled *alone = compile(moved_alone, world);
    CHECK_OK(weft_compiled_call(alone, in, 2, in, 1));
    CHECK_CONTAINS(explain(alone), ", 1 in place,");
    weft_release(alone);
    leave(world);
}

static unsigned long long id_in(const char *all)
{
    const char *at = strstr(all, ", id ");
    return at ? strtoull(at + 5, NULL, 16) : 0;
}

/* A plain gather whose result goes to an input writes it at once, on every device. */
static _Thread_local weft_tensor *whole;

FUNCTION(gather_to_whole)
{
    CHECK_OK(weft_all_gather_into(whole, weft_add_scalar(in[0], 1), world));
    out[0] = weft_mul_scalar(in[0], 3);
    return WEFT_OK;
}

/* It is read first, so it must not be written before. */
FUNCTION(whole_is_read)
{
    weft_tensor *all = weft_all_gather_tensor(in[0], 0, world);
    out[0] = weft_add(weft_wait_tensor(all), whole);
    return weft_copy(whole, all);
}

RANKS_TEST(test_plain_gather_into_input, 2)
{
    static const weft_graph_function functions[] = {gather_to_whole, whole_is_read};
    weft_group *world = join(30000);
    weft_tensor *x = random_of(8, rank), *out, *own;
    for (int i = 0; i < 2; i++) {
        weft_compiled *compiled = compile(functions[i], world);
        whole = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(8 * size, 8), 5);
        CHECK_OK(functions[i](&x, 1, &own, 1, world));
        weft_tensor *expected = weft_clone(whole);
        for (int round = 0; round < 2; round++) {
            CHECK_OK(weft_fill(whole, 5));
            int64_t version = weft_tensor_version(whole);
            CHECK_OK(weft_compiled_call(compiled, &x, 1, &out, 1));
            CHECK(weft_equal(out, own) && weft_equal(whole, expected));
            CHECK_INT(weft_tensor_version(whole), version + 1);
        }
        CHECK_INT(count_of(explain(compiled), "= all_gather_into_tensor_out %"), i == 0);
        CHECK_INT(count_of(text, "= copy %"), i == 1);
        weft_release(compiled);
    }
    leave(world);
}

/* ---- gathers ---- */

/* The elements, wherever they lie. */
static const float *floats_of(weft_tensor *x)
{
    return weft_tensor_data(weft_to(x, WEFT_F32, WEFT_CPU));
}

FUNCTION(named_gather)
{
    weft_work *work;
    out[0] = weft_symm_low_contention_all_gather(in[0], world, &work);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    weft_release(work);
    return WEFT_OK;
}

/* The result stays inside: nothing is copied. */
FUNCTION(named_gather_used)
{
    weft_tensor *all;
    CHECK_OK(named_gather(in, 1, &all, 1, world));
    out[0] = weft_mul_scalar(all, 2);
    return WEFT_OK;
}

RANKS_TEST(test_low_contention_all_gather_planned_output, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(8, 8), rank);
    for (int used = 0; used < 2; used++) {
        weft_graph_function function = used ? named_gather_used : named_gather;
        weft_compiled *compiled = compile(function, world);
        weft_tensor *out;
        unsigned long long id = 0;
        for (int round = 0; round < 3; round++) {
            CHECK_OK(weft_compiled_call(compiled, &x, 1, &out, 1));
            CHECK_INT(weft_tensor_size(out, 0), 8 * size);
            CHECK_INT(weft_tensor_size(out, 1), 8);
            const float *data = floats_of(out);
            for (int i = 0; i < 64 * size; i++)
                CHECK(data[i] == (float)((i / 64) * (1 + used)));
            CHECK(!weft_symm_is(out));
            unsigned long long now = id_in(explain(compiled));
            CHECK(now && (!id || id == now));
            id = now;
        }
        CHECK_INT(count_of(text, "symmetric buffer"), 1);
        CHECK_INT(count_of(text, "= low_contention_all_gather %"), 1);
        CHECK_INT(count_of(text, "= wait_tensor"), 0);
        CHECK_INT(count_of(text, "copied: low_contention_all_gather"), !used);
        check_same(compiled, function, world, &x, 1);
        weft_release(compiled);
    }
    leave(world);
}

/* The first dimension grows, whatever the others are. */
RANKS_TEST(test_low_contention_all_gather_shapes, 2)
{
    const weft_shape shapes[] = {WEFT_SHAPE(3, 5), WEFT_SHAPE(5, 3), WEFT_SHAPE(7),
                                 WEFT_SHAPE(2, 1, 4), WEFT_SCALAR};
    weft_group *world = join(30000);
    for (int i = 0; i < 5; i++) {
        weft_tensor *x = weft_full(WEFT_F32, DEVICE, shapes[i], rank + 1), *out;
        int64_t count = weft_tensor_numel(x);
        weft_compiled *compiled = compile(named_gather, world);
        CHECK_OK(weft_compiled_call(compiled, &x, 1, &out, 1));
        CHECK_INT(weft_tensor_ndim(out), shapes[i].ndim ? shapes[i].ndim : 1);
        CHECK_INT(weft_tensor_size(out, 0), (shapes[i].ndim ? shapes[i].dim[0] : 1) * size);
        for (int d = 1; d < shapes[i].ndim; d++)
            CHECK_INT(weft_tensor_size(out, d), shapes[i].dim[d]);
        for (int64_t at = 0; at < count * size; at++)
            CHECK(weft_item(out, at) == (double)(at / count + 1));
        check_same(compiled, named_gather, world, &x, 1);
        weft_release(compiled);
    }
    leave(world);
}

static _Thread_local weft_tensor *given;

FUNCTION(gather_to_given)
{
    CHECK_OK(weft_symm_multimem_all_gather_out(given, weft_add_scalar(in[0], 1), world));
    out[0] = weft_mul_scalar(in[0], 3);
    return WEFT_OK;
}

FUNCTION(plain_to_given)
{
    CHECK_OK(weft_all_gather_into(given, weft_add_scalar(in[0], 1), world));
    out[0] = weft_mul_scalar(in[0], 3);
    return WEFT_OK;
}

/* What was there is read first, so it must not be written before. */
FUNCTION(given_is_read)
{
    weft_tensor *all = weft_all_gather_tensor(in[0], 0, world);
    out[0] = weft_add(weft_wait_tensor(all), given);
    return weft_copy(given, all);
}

static void check_given(weft_group *world, weft_tensor *x, float base)
{
    int rank = weft_rank(world), size = weft_size(world);
    const float *data = floats_of(given);
    for (int i = 0; i < 64 * size; i++)
        CHECK(data[i] == (float)(i / 64) + base);
    CHECK(*floats_of(x) == (float)rank);
}

HOSTS_TOO_TEST(test_low_contention_all_gather_keeps_out, 2)
{
    static const weft_graph_function functions[] = {gather_to_given, plain_to_given};
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(8, 8), rank), *out;
    given = weft_symm_empty(WEFT_F32, DEVICE, WEFT_SHAPE(8 * size, 8));
    for (int i = 0; i < 2; i++) {
        weft_compiled *compiled = compile(functions[i], world);
        for (int round = 0; round < 2; round++) {
            const void *before = weft_tensor_data(given);
            CHECK_OK(weft_fill(given, -1));
            int64_t version = weft_tensor_version(given);
            CHECK_OK(weft_compiled_call(compiled, &x, 1, &out, 1));
            CHECK(weft_tensor_data(given) == before);
            CHECK(weft_symm_is(given));
            CHECK_INT(weft_tensor_version(given), version + 1);
            check_given(world, x, 1);
        }
        const char *all = explain(compiled);
        CHECK_INT(count_of(all, i ? "= all_gather_into_tensor_out %"
                                  : "= low_contention_all_gather_out %"),
                  1);
        CHECK_INT(count_of(all, "= copy %"), 0);
        CHECK_INT(count_of(all, "symmetric buffer"), 0);
        weft_release(compiled);
    }
    weft_compiled *compiled = compile(given_is_read, world);
    CHECK_OK(weft_fill(given, 5));
    CHECK_OK(weft_compiled_call(compiled, &x, 1, &out, 1));
    CHECK(floats_of(out)[64] == 6);
    check_given(world, x, 0);
    CHECK_INT(count_of(explain(compiled), "all_gather_into_tensor_out"), 0);
    weft_release(compiled);
    weft_release(given);
    leave(world);
}

/* Plain gathers: those that would go through a bounce buffer or a stage, and whose result stays
 * inside.  On the CPU small ones need neither. */
FUNCTION(plain_gather)
{
    weft_tensor *all = weft_all_gather_tensor(in[0], 0, world);
    out[0] = weft_mul_scalar(all, 2);
    return WEFT_OK;
}

RANKS_TEST(test_lowering_plain_gathers, 2)
{
    weft_group *world = join(30000);
    static const int sides[] = {8, 400, 1100};
    for (int i = 0; i < 3; i++) {
        weft_tensor *x = random_of(sides[i], rank);
        weft_compiled *compiled = compile(plain_gather, world);
        check_same(compiled, plain_gather, world, &x, 1);
        int placed = i == 1 || (i == 0 && DEVICE != WEFT_CPU);
        CHECK_INT(count_of(explain(compiled), "= low_contention_all_gather %"), placed);
        CHECK_INT(count_of(text, "symmetric buffer"), placed);
        if (!placed)
            CHECK_CONTAINS(text, i ? "rather runs behind" : "goes along with the entry");
        weft_release(compiled);
    }
    leave(world);
}

/* Ranks of a new group whose functions differ, one lowered and one plain: none waits for its limit,
 * which would be another error. */
RANKS_TEST(test_lowering_ranks_differ, 2)
{
    weft_group *world = join(30000), *group = weft_group_split(world, 0, rank);
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    weft_tensor *x = random_of(8, rank), *out;
    opts.backend = "c";
    weft_compiled *compiled = weft_compile(rank ? func_2 : func_0, group, &opts);
    CHECK_STATUS(weft_compiled_call(compiled, &x, 1, &out, 1), WEFT_ERR_MISMATCH);
    weft_clear_error();
    weft_release(compiled);
    leave(world);
}

/* With a GPU for each rank, and multicast between them, a store reaches everybody. */
RANKS_TEST(test_lowering_gathers_by_multicast, 2)
{
    const char *why_not = device_spread(rank, size);
    if (why_not)
        SKIP("%s", why_not);
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(8, 8), rank), *out;
    given = weft_symm_empty(WEFT_F32, DEVICE, WEFT_SHAPE(8 * size, 8));
    weft_compiled *inside = compile(plain_gather, world),
                  *outside = compile(gather_to_given, world);
    check_same(inside, plain_gather, world, &x, 1);
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weft_fill(given, -1));
        CHECK_OK(weft_compiled_call(outside, &x, 1, &out, 1));
        check_given(world, x, 1);
    }
    weft_release(inside);
    weft_release(outside);
    weft_release(given);
    leave(world);
}

/* Ranks on one GPU that they may not share have no symmetric memory there: compiled functions do as
 * the functions themselves, by plain collectives. */
RANKS_TEST(test_lowering_without_sharing, 2)
{
    static const weft_graph_function functions[] = {func_0, plain_gather, named_gather_used,
                                                    on_input};
    weft_symm_allow_overlap(DEVICE == WEFT_CPU);
    weft_group *world = join(30000);
    weft_tensor *x = random_of(8, rank);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        weft_compiled *compiled = compile(functions[i], world);
        check_same(compiled, i == 3 ? func_2 : functions[i], world, &x, 1);
        weft_release(compiled);
    }
    leave(world);
    weft_symm_allow_overlap(true);
}

/* ---- users' rows ---- */

static _Thread_local weft_group *here;
static _Thread_local int seen, symmetric;

static weft_status total(weft_tensor *out, const weft_value *in, void *user)
{
    (void)user;
    seen++;
    symmetric += weft_symm_is(in[0].tensor);
    return weft_symm_one_shot_all_reduce_out(out, in[0].tensor, WEFT_SUM, here);
}

static weft_custom *total_row(void)
{
    weft_custom *row = weft_custom_find("test_total");
    weft_clear_error();
    weft_custom_opts opts = {
        .size = sizeof opts, .name = "test_total", .params = "x:y", .run = total, .any_device = 1};
    if (!row && !(row = weft_custom_new(&opts))) {
        row = weft_custom_find("test_total"); /* another thread was first */
        weft_clear_error();
    }
    return row;
}

FUNCTION(by_row)
{
    (void)world;
    weft_tensor *x = weft_mul_scalar(weft_matmul(in[0], in[1]), 2);
    out[0] = weft_custom_call(total_row(), WEFT_VALUES(WEFT_T(x)));
    return WEFT_OK;
}

HOSTS_TOO_TEST(test_custom_op_symm_mem_realization, 2)
{
    weft_group *world = here = join(30000);
    weft_tensor *in[2] = {random_of(8, rank), random_of(8, rank + 2)}, *out;
    CHECK(total_row() != NULL);
    weft_compiled *compiled = compile(by_row, world);
    check_same(compiled, scaled_product, world, in, 2);
    CHECK_INT(seen, 2);
    CHECK_INT(symmetric, 2);
    CHECK_INT(count_of(explain(compiled), "symmetric buffer"), 1);
    /* Eagerly nobody places anything. */
    CHECK(by_row(in, 2, &out, 1, world) >= 0 && !out);
    CHECK_STATUS(weft_last_status(), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "test_total: x is not symmetric memory");
    weft_clear_error();
    weft_release(compiled);
    leave(world);
}

/* ---- ids ---- */

RANKS_TEST(test_symm_mem_alloc_id_no_collision_after_reseed, 2)
{
    weft_group *world = join(30000);
    weft_compiled *compiled[2];
    unsigned long long ids[2];
    for (int i = 0; i < 2; i++) {
        weft_seed(42);
        weft_tensor *x = weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(4 << i, 4 << i));
        compiled[i] = compile(func_3, world);
        check_same(compiled[i], func_3, world, &x, 1);
        ids[i] = id_in(explain(compiled[i]));
    }
    CHECK(ids[0] && ids[1] && ids[0] != ids[1]);
    /* They are the library's own, so no user has them by chance, or can forget them. */
    CHECK(!weft_symm_empty_strided_p2p(WEFT_SHAPE(4), NULL, WEFT_F32, DEVICE, world, ids[0]));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_forget(ids[0]), WEFT_ERR_NOT_FOUND);
    weft_clear_error();
    for (int i = 0; i < 2; i++)
        weft_release(compiled[i]);
    leave(world);
}

int main(int argc, char **argv)
{
    harness_cache_share();
    device_install();
    int failed = harness_main(argc, argv);
    harness_cache_close();
    return failed;
}
