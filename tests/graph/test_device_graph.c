/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/run/device_graph.c */
/*
 * Compiled functions as graphs of their device: which calls are replayed, that their results are
 * those of the function itself whatever the caller does with them, and what is said where a call is
 * not replayed.  On the CPU none is.
 */
#include "device.h"

#define FAULT_OF _Thread_local
#include "fault.h"
#include "graph_ranks.h"

static weft_compiled *compile(weft_graph_function function, weft_group *world)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.device_graph = true;
    return compile_with(opts, function, world);
}

/* On the CPU nothing is replayed, and that is said. */
static void check_replays(const weft_compiled *compiled, int replays, int captures, int copies)
{
    char line[120];
    snprintf(line, sizeof line, "device graph: %d replays of %d captures, %d inputs copied first\n",
             replays, captures, copies);
    CHECK_CONTAINS(explain(compiled), DEVICE == WEFT_CPU ? "no device graph: it runs on the CPU"
                                      : replays          ? line
                                                         : "no device graph");
    if (DEVICE == WEFT_CPU || !replays)
        CHECK(!strstr(text, "  device graph:"));
}

static weft_tensor *square(int64_t n)
{
    return weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(n, n));
}

/* One call of each in a scope; the compiled one has the function's bits. */
static void check_call(weft_compiled *compiled, weft_graph_function function, weft_group *world,
                       weft_tensor *const *in, int ins, int outs)
{
    weft_tensor *own[4], *out[4];
    CHECK_OK(weft_scope_open());
    CHECK_OK(function(in, ins, own, outs, world));
    CHECK_OK(weft_compiled_call(compiled, in, ins, out, outs));
    for (int i = 0; i < outs; i++)
        CHECK(weft_equal(out[i], own[i]));
    CHECK_OK(weft_scope_close());
}

FUNCTION(layers)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < 3; i++)
        x = weft_softmax(weft_matmul(weft_gelu(weft_add_scalar(x, 1)), in[1]), -1);
    out[0] = weft_mul_scalar(x, 2);
    out[1] = weft_transpose(weft_neg(x), 0, 1);
    return WEFT_OK;
}

/* ---- one rank ---- */

RANKS_TEST(test_device_graph_replays, 1)
{
    weft_seed(1);
    weft_tensor *in[2] = {square(8), square(8)};
    weft_compiled *compiled = compile(layers, NULL);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(weft_uniform(in[0], -1, 1)); /* what is read is what is there now */
        check_call(compiled, layers, NULL, in, 2, 2);
    }
    check_replays(compiled, 4, 1, 0);
    weft_release(compiled);
}

RANKS_TEST(test_device_graph_is_asked_for, 1)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    weft_tensor *in[2] = {square(8), square(8)};
    weft_compiled *compiled = weft_compile(layers, NULL, &opts);
    for (int i = 0; i < 3; i++)
        check_call(compiled, layers, NULL, in, 2, 2);
    CHECK(!strstr(explain(compiled), "device graph"));
    weft_release(compiled);
}

/* A tensor that is another one each time is copied; one that stays is not. */
RANKS_TEST(test_device_graph_inputs_move, 1)
{
    weft_seed(2);
    weft_tensor *weight = square(8), *kept[6];
    weft_compiled *compiled = compile(layers, NULL);
    for (int i = 0; i < 6; i++) {
        kept[i] = square(8);
        weft_tensor *in[2] = {kept[i], weight};
        check_call(compiled, layers, NULL, in, 2, 2);
    }
    check_replays(compiled, 5, 1, 1);
    weight = square(8); /* the second one moves too, once: another capture */
    for (int i = 0; i < 2; i++) {
        weft_tensor *in[2] = {kept[i], weight};
        check_call(compiled, layers, NULL, in, 2, 2);
    }
    check_replays(compiled, 7, 2, 2);
    weft_release(compiled);
}

/* Results are the caller's for as long as it wants. */
RANKS_TEST(test_device_graph_results_are_held, 1)
{
    weft_seed(3);
    weft_tensor *in[2] = {square(8), square(8)}, *held[6][2], *own[6][2];
    weft_compiled *compiled = compile(layers, NULL);
    for (int i = 0; i < 6; i++) {
        CHECK_OK(weft_uniform(in[0], -1, 1));
        CHECK_OK(layers(in, 2, own[i], 2, NULL));
        CHECK_OK(weft_compiled_call(compiled, in, 2, held[i], 2));
    }
    for (int i = 0; i < 6; i++)
        CHECK(weft_equal(held[i][0], own[i][0]) && weft_equal(held[i][1], own[i][1]));
    check_replays(compiled, 1, 1, 0);
    if (DEVICE != WEFT_CPU)
        CHECK_CONTAINS(text, "no device graph in the last call: result 0 of the last replay is "
                             "still held");
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 2; k++)
            weft_release(held[i][k]);
    check_call(compiled, layers, NULL, in, 2, 2);
    check_replays(compiled, 2, 1, 0);
    weft_release(compiled);
}

/* An input that moves while results are held is not read where it was. */
RANKS_TEST(test_device_graph_moves_while_held, 1)
{
    weft_seed(11);
    weft_tensor *weight = square(8), *x[6], *out[2];
    weft_compiled *compiled = compile(layers, NULL);
    for (int i = 0; i < 6; i++)
        x[i] = square(8);
    for (int i = 0; i < 2; i++) /* captured with the first */
        check_call(compiled, layers, NULL, (weft_tensor *[]){x[0], weight}, 2, 2);
    CHECK_OK(weft_compiled_call(compiled, (weft_tensor *[]){x[0], weight}, 2, out, 2));
    check_call(compiled, layers, NULL, (weft_tensor *[]){x[1], weight}, 2, 2);
    weft_release(out[0]);
    weft_release(out[1]);
    for (int i = 1; i < 6; i++)
        check_call(compiled, layers, NULL, (weft_tensor *[]){x[i], weight}, 2, 2);
    weft_release(compiled);
}

/* A view of a result holds it as well, and so does a result when the function has gone. */
RANKS_TEST(test_device_graph_outlived, 1)
{
    weft_seed(4);
    weft_tensor *in[2] = {square(8), square(8)}, *out[2], *own[2];
    weft_compiled *compiled = compile(layers, NULL);
    CHECK_OK(layers(in, 2, own, 2, NULL));
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_compiled_call(compiled, in, 2, out, 2));
    weft_tensor *row = weft_select(out[0], 0, 3);
    weft_release(out[0]);
    weft_release(out[1]);
    CHECK_OK(weft_fill(in[0], 0));
    CHECK_OK(weft_compiled_call(compiled, in, 2, out, 2));
    check_replays(compiled, 1, 1, 0);
    weft_release(compiled);
    CHECK(weft_equal(row, weft_select(own[0], 0, 3)));
}

/* Who frees the storage of a result takes nothing from the next call. */
RANKS_TEST(test_device_graph_result_is_freed, 1)
{
    weft_seed(5);
    weft_tensor *in[2] = {square(8), square(8)}, *out[2];
    weft_compiled *compiled = compile(layers, NULL);
    for (int i = 0; i < 4; i++) {
        check_call(compiled, layers, NULL, in, 2, 2);
        CHECK_OK(weft_scope_open());
        CHECK_OK(weft_compiled_call(compiled, in, 2, out, 2));
        CHECK_OK(weft_storage_resize(weft_tensor_storage(out[0]), 0));
        CHECK_OK(weft_scope_close());
    }
    weft_release(compiled);
}

RANKS_TEST(test_device_graph_other_stream, 1)
{
    weft_seed(6);
    weft_tensor *in[2] = {square(8), square(8)};
    weft_compiled *compiled = compile(layers, NULL);
    weft_stream *first = weft_stream_current(DEVICE), *side = weft_stream_new(DEVICE, false);
    for (int i = 0; i < 9; i++) {
        CHECK_OK(weft_stream_use(i % 3 == 2 ? side : first));
        CHECK_OK(weft_uniform(in[0], -1, 1));
        check_call(compiled, layers, NULL, in, 2, 2);
    }
    CHECK_OK(weft_stream_use(first));
    weft_release(compiled);
}

/* ---- what is not replayed ---- */

FUNCTION(draws)
{
    out[0] = weft_add(in[0], weft_rand(WEFT_F32, DEVICE, weft_tensor_shape(in[0])));
    return WEFT_OK;
}

FUNCTION(writes)
{
    CHECK_OK(weft_copy(in[1], weft_add_scalar(in[1], 1)));
    out[0] = weft_neg(in[0]);
    return WEFT_OK;
}

FUNCTION(returns)
{
    out[0] = weft_transpose(in[0], 0, 1);
    return WEFT_OK;
}

FUNCTION(crosses)
{
    weft_tensor *there = weft_to(weft_neg(in[0]), WEFT_F32, WEFT_CPU);
    out[0] = weft_to(weft_exp(there), WEFT_F32, DEVICE);
    return WEFT_OK;
}

static void check_reason(weft_graph_function function, const char *reason)
{
    weft_tensor *in[2] = {square(8), square(8)}, *out;
    weft_compiled *compiled = compile(function, NULL);
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_compiled_call(compiled, in, 2, &out, 1));
    CHECK_CONTAINS(explain(compiled), DEVICE == WEFT_CPU ? "it runs on the CPU" : reason);
    CHECK(!strstr(text, "replays"));
    weft_release(compiled);
}

RANKS_TEST(test_device_graph_says_why_not, 1)
{
    check_reason(draws,
                 "no device graph: uniform draws numbers, which would be the same each time");
    check_reason(returns, "no device graph: result 0 is memory of an input");
    check_reason(crosses, "no device graph: %3 is on cpu");
}

/* Every write and draw comes out as if the function itself had run. */
RANKS_TEST(test_device_graph_effects_stay, 1)
{
    weft_tensor *in[2] = {weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4, 4)),
                          weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4, 4))};
    weft_tensor *out, *before = NULL;
    weft_compiled *writing = compile(writes, NULL), *drawing = compile(draws, NULL);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_compiled_call(writing, in, 2, &out, 1));
        CHECK(weft_item(in[1], 5) == i + 1);
        CHECK_OK(weft_compiled_call(drawing, in, 2, &out, 1));
        CHECK(!before || !weft_equal(out, before));
        before = out;
    }
    weft_release(writing);
    weft_release(drawing);
}

/* An input that is written, as a cache or a running mean is, stays where it is; another one in its
 * place is written too. */
RANKS_TEST(test_device_graph_writes, 1)
{
    weft_tensor *x = square(4), *out, *place[2];
    weft_compiled *compiled = compile(writes, NULL);
    for (int k = 0; k < 2; k++)
        place[k] = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4, 4));
    for (int i = 0; i < 10; i++) {
        weft_tensor *to = place[i / 5];
        int64_t version = weft_tensor_version(to);
        CHECK_OK(weft_scope_open());
        CHECK_OK(weft_compiled_call(compiled, (weft_tensor *[]){x, to}, 2, &out, 1));
        CHECK(weft_equal(out, weft_neg(x)));
        CHECK_OK(weft_scope_close());
        CHECK(weft_item(to, 5) == i % 5 + 1);
        CHECK_INT(weft_tensor_version(to), version + 1);
    }
    CHECK(weft_item(place[0], 5) == 5);
    check_replays(compiled, 8, 2, 0); /* the first call of each runs node by node */
    weft_release(compiled);
}

static _Thread_local int called;

static weft_status count_and_negate(weft_tensor *out, const weft_value *in, void *user)
{
    (void)user;
    called++;
    return weft_copy(out, weft_neg(in[0].tensor));
}

static weft_custom *users_row(void)
{
    weft_custom *row = weft_custom_find("test_negate");
    weft_clear_error();
    weft_custom_opts opts = {.size = sizeof opts,
                             .name = "test_negate",
                             .params = "x:t",
                             .run = count_and_negate,
                             .any_device = 1};
    return row ? row : weft_custom_new(&opts);
}

FUNCTION(users)
{
    out[0] = weft_custom_call(users_row(), WEFT_VALUES(WEFT_T(weft_add(in[0], in[1]))));
    return WEFT_OK;
}

/* A user's function is called every time. */
RANKS_TEST(test_device_graph_users_row, 1)
{
    CHECK(users_row() != NULL);
    check_reason(users, "no device graph: test_negate may do more than to give work to the device");
    CHECK_INT(called, 3);
}

/* ---- no memory ---- */

/* Fails for want of memory, or is right; whether a call to the system was made to fail. */
static bool call_in_want(weft_compiled *compiled, weft_tensor *const *in, weft_tensor *const *own,
                         int n)
{
    weft_tensor *out[2];
    CHECK_OK(weft_scope_open());
    fault_arm(n);
    weft_status status = weft_compiled_call(compiled, in, 2, out, 2);
    bool fired = fault_disarm();
    if (status >= 0)
        CHECK(weft_equal(out[0], own[0]) && weft_equal(out[1], own[1]));
    else
        CHECK_STATUS(status, WEFT_ERR_NO_MEMORY);
    CHECK(fired || status >= 0);
    weft_clear_error();
    CHECK_OK(weft_scope_close());
    return fired;
}

/* Every allocation of a capture, of one anew for an input that moves, and of a replay fails once. */
RANKS_TEST(test_device_graph_no_memory, 1)
{
    weft_tensor *in[2] = {square(8), square(8)}, *own[2], *moved[2] = {weft_clone(in[0]), in[1]};
    bool fired = true;
    CHECK_OK(layers(in, 2, own, 2, NULL));
    for (int n = 1; fired; n++) {
        weft_compiled *compiled = compile(layers, NULL);
        check_call(compiled, layers, NULL, in, 2, 2);
        fired = false;
        for (int i = 0; i < 3; i++)
            fired |= call_in_want(compiled, i == 1 ? moved : in, own, n);
        for (int i = 0; i < 2; i++)
            check_call(compiled, layers, NULL, in, 2, 2);
        weft_release(compiled);
        CHECK(n < 2000);
    }
}

/* ---- gradients ---- */

FUNCTION(loss)
{
    weft_tensor *x = weft_gelu(weft_matmul(in[0], in[1]));
    out[0] = weft_sum(weft_mul(x, x), NULL, 0, false);
    return WEFT_OK;
}

/* Forward is replayed, with what it saves; backward runs node by node. */
RANKS_TEST(test_device_graph_gradients, 1)
{
    weft_seed(7);
    weft_compiled *compiled = compile(loss, NULL);
    weft_tensor *weight = weft_parameter(square(8), true),
                *twin = weft_parameter(weft_clone(weight), true);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = square(8), *out, *own;
        CHECK_OK(loss((weft_tensor *[]){x, twin}, 2, &own, 1, NULL));
        CHECK_OK(weft_backward(own));
        CHECK_OK(weft_compiled_call(compiled, (weft_tensor *[]){x, weight}, 2, &out, 1));
        CHECK_OK(weft_backward(out));
        CHECK(weft_equal(out, own));
        CHECK(weft_allclose(weft_grad(weight), weft_grad(twin), 1e-5, 1e-6, false));
        CHECK_OK(weft_scope_close());
    }
    CHECK_CONTAINS(explain(compiled), DEVICE == WEFT_CPU ? "runs on the CPU" : "3 replays");
    weft_release(compiled);
}

/* ---- ranks ---- */

FUNCTION(with_collectives)
{
    weft_tensor *sum = weft_all_reduce(weft_matmul(in[0], in[1]), WEFT_SUM, world);
    weft_tensor *all = weft_all_gather_tensor(weft_mul_scalar(sum, 0.5), 0, world);
    weft_tensor *part = weft_reduce_scatter_tensor(weft_neg(all), WEFT_SUM, 0, world);
    out[0] = weft_add(part, sum);
    out[1] = weft_all_reduce(weft_exp(part), WEFT_MAX, world);
    return WEFT_OK;
}

/* Lowered and plain ones; calls between them keep their order on all ranks. */
RANKS_TEST(test_device_graph_collectives, 2)
{
    weft_group *world = join(30000);
    weft_seed(8 + (uint64_t)rank);
    weft_tensor *in[2] = {square(8), square(8)};
    weft_compiled *compiled = compile(with_collectives, world);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(weft_uniform(in[0], -1, 1));
        uint64_t before = weft_group_sequence(world);
        check_call(compiled, with_collectives, world, in, 2, 2);
        if (i) /* the first one meets; a replay counts what it repeats */
            CHECK_INT(weft_group_sequence(world) - before, 8);
    }
    check_replays(compiled, 4, 1, 0);
    weft_release(compiled);
    leave(world);
}

FUNCTION(gathers_into)
{
    CHECK_OK(weft_all_gather_into(in[1], weft_add_scalar(in[0], 1), world));
    out[0] = weft_neg(in[0]);
    return WEFT_OK;
}

/* Into ordinary memory, and into symmetric memory of the caller's. */
RANKS_TEST(test_device_graph_gathers_into_inputs, 2)
{
    weft_group *world = join(30000);
    weft_seed(12 + (uint64_t)rank);
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        weft_shape shape = WEFT_SHAPE(8 * size, 8);
        weft_tensor *in[2] = {square(8), symmetric ? weft_symm_empty(WEFT_F32, DEVICE, shape)
                                                   : weft_empty(WEFT_F32, DEVICE, shape)};
        weft_compiled *compiled = compile(gathers_into, world);
        for (int i = 0; i < 4; i++) {
            weft_tensor *out;
            CHECK_OK(weft_scope_open());
            CHECK_OK(weft_uniform(in[0], -1, 1));
            CHECK_OK(weft_compiled_call(compiled, in, 2, &out, 1));
            CHECK(weft_equal(out, weft_neg(in[0])));
            CHECK(weft_equal(in[1], weft_all_gather_tensor(weft_add_scalar(in[0], 1), 0, world)));
            CHECK_OK(weft_scope_close());
        }
        check_replays(compiled, 3, 1, 0);
        weft_release(compiled);
    }
    leave(world);
}

FUNCTION(fused_product)
{
    return weft_all_gather_matmul(NULL, out, in[0], &in[1], 1, 0, world);
}

RANKS_TEST(test_device_graph_not_of_fused_products, 2)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {square(8), square(8)};
    weft_compiled *compiled = compile(fused_product, world);
    for (int i = 0; i < 3; i++)
        check_call(compiled, fused_product, world, in, 2, 1);
    check_replays(compiled, 0, 0, 0);
    if (DEVICE != WEFT_CPU)
        CHECK_CONTAINS(text, "the ranks of all_gather_matmul meet on the host each time");
    weft_release(compiled);
    leave(world);
}

/* A rank that holds its results runs node by node, and meets the replays of the other. */
RANKS_TEST(test_device_graph_one_rank_holds, 2)
{
    enum { ROUNDS = 6 };
    weft_group *world = join(30000);
    weft_seed(9 + (uint64_t)rank);
    weft_tensor *in[2] = {square(8), square(8)}, *out[ROUNDS][2], *own[ROUNDS][2];
    weft_compiled *compiled = compile(with_collectives, world);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_OK(weft_uniform(in[0], -1, 1));
        CHECK_OK(with_collectives(in, 2, own[i], 2, world));
        CHECK_OK(weft_compiled_call(compiled, in, 2, out[i], 2));
        for (int k = 0; k < 2; k++) {
            CHECK(weft_equal(out[i][k], own[i][k]));
            if (rank)
                weft_release(out[i][k]);
        }
    }
    for (int i = 0; i < ROUNDS && !rank; i++)
        CHECK(weft_equal(out[i][0], own[i][0]) && weft_equal(out[i][1], own[i][1]));
    check_replays(compiled, rank ? ROUNDS - 1 : 1, 1, 0);
    weft_release(compiled);
    leave(world);
}

/* The other one is gone before the third call: an error, no hang, and the group says so too. */
RANKS_TEST(test_device_graph_rank_is_gone, 2)
{
    weft_group *world = join(3000);
    weft_seed(10 + (uint64_t)rank);
    weft_tensor *in[2] = {square(8), square(8)}, *out[2];
    weft_compiled *compiled = compile(with_collectives, world);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_scope_open());
        CHECK_OK(weft_compiled_call(compiled, in, 2, out, 2));
        CHECK_OK(weft_scope_close());
    }
    CHECK_OK(weft_stream_sync(weft_stream_current(DEVICE), 20000));
    if (rank == 1) {
        weft_release(compiled);
        weft_finish(world);
        return;
    }
    weft_status status = weft_compiled_call(compiled, in, 2, out, 2);
    if (status >= 0)
        status = weft_stream_sync(weft_stream_current(DEVICE), 20000);
    if (status >= 0) /* kernels that gave up are told of by the next call */
        status = weft_compiled_call(compiled, in, 2, out, 2);
    CHECK(status < 0);
    CHECK_CONTAINS(weft_last_error(), "rank 1");
    weft_release(compiled);
    weft_finish(world);
}

RANKS_TEST(test_device_graph_group_is_revoked, 2)
{
    weft_group *world = join(30000), *group = weft_group_split(world, 0, rank);
    weft_tensor *in[2] = {square(8), square(8)}, *out[2];
    weft_compiled *compiled = compile(with_collectives, group);
    for (int i = 0; i < 3; i++)
        check_call(compiled, with_collectives, group, in, 2, 2);
    check_replays(compiled, 2, 1, 0);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_group_revoke(group));
    CHECK_STATUS(weft_compiled_call(compiled, in, 2, out, 2), WEFT_ERR_REVOKED);
    weft_clear_error();
    weft_release(compiled);
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
