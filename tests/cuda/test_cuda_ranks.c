/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/ranks/carrier.c, backends/cuda/ranks/site.c, backends/cuda/ranks/staged.c,
 * coll/device/carrier.c, coll/device/beside.c */
/*
 * Collectives of CUDA tensors, ranks as processes and as threads: by kernels, through the group's
 * stage, beside the same calls on the CPU.  On the software driver, or on a GPU with
 * WEFT_TEST_CUDA=real.
 */
#include "cuda/ranks_scene.h"

/* Element i of rank r's operand. */
static weft_tensor *operand(weft_dtype dtype, int rank, weft_shape shape, weft_device device)
{
    weft_tensor *x = weft_empty(dtype, WEFT_CPU, shape);
    int64_t n = weft_tensor_numel(x);
    weft_tensor *flat = weft_view(x, WEFT_SHAPE(n));
    for (int64_t i = 0; i < n; i++)
        CHECK_OK(
            weft_fill(weft_slice(flat, 0, i, i + 1, 1), (double)((i * 7 + rank * 3) % 11 - 5)));
    return weft_to(x, dtype, device);
}

/* The same calls on the CPU and on a device give the same bits. */
RANKS_TEST(test_cuda_ranks_collectives, 3)
{
    weft_group *world = join(30000);
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_I64};
    for (int d = 0; d < 3; d++) {
        weft_tensor *in[2], *out[2], *whole[2];
        weft_device devices[2] = {WEFT_CPU, GPU};
        weft_scope_open();
        for (int k = 0; k < 2; k++) {
            in[k] = operand(dtypes[d], rank, WEFT_SHAPE(size, 5), devices[k]);
            out[k] = operand(dtypes[d], 9, WEFT_SHAPE(size, 5), devices[k]);
            whole[k] = operand(dtypes[d], 9, WEFT_SHAPE(size * size, 5), devices[k]);
            weft_tensor *one = weft_slice(out[k], 0, 1, 2, 1);
            CHECK_OK(weft_all_reduce_into(out[k], in[k], WEFT_SUM, world));
            CHECK_OK(weft_all_gather_into(whole[k], in[k], world));
            CHECK_OK(weft_reduce_scatter_into(one, in[k], WEFT_MAX, world));
            CHECK_OK(weft_broadcast_in_place(weft_slice(whole[k], 0, 0, 2, 1), 1, world));
            CHECK_OK(weft_gather_into(rank == 2 ? whole[k] : NULL, in[k], 2, world));
            CHECK_OK(weft_scatter_into(in[k], rank == 0 ? whole[k] : NULL, 0, world));
            CHECK_OK(weft_reduce_into(rank == 1 ? out[k] : NULL, in[k], WEFT_SUM, 1, world));
            weft_clear_error();
            if (k)
                check_way(world, "device");
        }
        check_same("all_reduce, reduce_scatter, reduce", out[1], out[0]);
        check_same("all_gather, broadcast, gather", whole[1], whole[0]);
        check_same("scatter", in[1], in[0]);
        weft_scope_close();
    }
    finish(world);
}

/* Ranks whose kernels would choose differently would wait for each other: all go through the host. */
RANKS_TEST(test_cuda_ranks_decide_apart, 2)
{
    if (weft_i_spawn_seat())
        SKIP("ranks that are threads share their thresholds");
    weft_group *world = join(30000);
    for (int apart = 1; apart >= 0; apart--) {
        weft_scope_open();
        CHECK_OK(weft_tune_set(WEFT_TUNE_CUDA_PACKETS, "all_reduce", size,
                               apart && rank ? 64 : 1 << 18));
        weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, apart ? "apart" : "alike");
        weft_tensor *x = weft_to(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100), 2), WEFT_F32, GPU);
        for (int call = 0; call < 2; call++) /* the first makes what it needs */
            CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        CHECK(weft_item(x, 99) == 8);
        check_way(group, apart ? "host" : "device");
        weft_scope_close();
    }
    finish(world);
}

RANKS_TEST(test_cuda_ranks_uneven, 2)
{
    weft_group *world = join(30000);
    weft_tensor *out[2];
    const int64_t in_splits[] = {1 + rank, 3 - rank}, out_splits[] = {1 + 2 * rank, 2};
    for (int k = 0; k < 2; k++) {
        weft_tensor *in = operand(WEFT_F32, rank, WEFT_SHAPE(4, 3), k ? GPU : WEFT_CPU);
        out[k] = operand(WEFT_F32, 5, WEFT_SHAPE(3 + 2 * rank, 3), k ? GPU : WEFT_CPU);
        CHECK_OK(weft_all_to_all_into(out[k], in, out_splits, in_splits, world));
    }
    check_same("all_to_all", out[1], out[0]);
    weft_tensor *list_in[2], *list_out[2], *host_in[2], *host_out[2];
    for (int i = 0; i < 2; i++) {
        host_in[i] = operand(WEFT_F16, rank + i, WEFT_SHAPE(4 + i), WEFT_CPU);
        host_out[i] = operand(WEFT_F16, 7, WEFT_SHAPE(4 + i), WEFT_CPU);
        list_in[i] = weft_to(host_in[i], WEFT_F16, GPU);
        list_out[i] = weft_to(host_out[i], WEFT_F16, GPU);
    }
    CHECK_OK(weft_all_reduce_list_into(list_out, list_in, 2, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_list_into(host_out, host_in, 2, WEFT_SUM, world));
    check_same("first of a list", list_out[0], host_out[0]);
    check_same("second of a list", list_out[1], host_out[1]);
    weft_tensor *alone = weft_empty_like(list_in[0]);
    CHECK_OK(weft_all_reduce_list_into(&alone, list_in, 1, WEFT_SUM, world));
    check_same("one of a list", alone, host_out[0]);
    weft_tensor *parts[2] = {weft_empty(WEFT_F16, GPU, WEFT_SHAPE(4)),
                             weft_empty(WEFT_F16, GPU, WEFT_SHAPE(5))};
    CHECK_OK(weft_all_gather_parts_into(parts, list_in[rank], world));
    check_same("own part", parts[rank], host_in[rank]);
    check_way(world, "host"); /* parts may differ in size: no way on a device */
    list_out[1] = host_out[1];
    CHECK_STATUS(weft_all_reduce_list_into(list_out, list_out, 2, WEFT_SUM, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "tensor 1 is on cpu, those before it on cuda:0");
    weft_clear_error();
    finish(world);
}

#ifdef __SANITIZE_THREAD__
enum { FUNCTIONAL_SIZES = 1 }; /* the memory of gcc 12's does not suffice for all threads of more */
#else
enum { FUNCTIONAL_SIZES = 2 };
#endif

/* Functional collectives: results on the device, claimed until they are there. */
RANKS_TEST(test_cuda_ranks_functional, 2)
{
    weft_group *world = join(30000);
    static const int64_t sizes[] = {6, 40000};
    for (int s = 0; s < FUNCTIONAL_SIZES; s++) {
        weft_scope_open();
        weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(4, 6), WEFT_CPU);
        weft_tensor *here = weft_contiguous(
            weft_expand(weft_view(x, WEFT_SHAPE(4, 6, 1)), WEFT_SHAPE(4, 6, sizes[s] / 6 + 1)));
        weft_tensor *there = weft_to(here, WEFT_F32, GPU);
        weft_tensor *turned = weft_transpose(there, 0, 1);
        check_same("all_reduce", weft_all_reduce(there, WEFT_SUM, world),
                   weft_all_reduce(here, WEFT_SUM, world));
        check_same("all_reduce, strided", weft_all_reduce(turned, WEFT_SUM, world),
                   weft_all_reduce(weft_transpose(here, 0, 1), WEFT_SUM, world));
        for (int dim = 0; dim < 2; dim++) {
            check_same("all_gather", weft_all_gather_tensor(there, dim, world),
                       weft_all_gather_tensor(here, dim, world));
            check_same("reduce_scatter", weft_reduce_scatter_tensor(there, WEFT_SUM, dim, world),
                       weft_reduce_scatter_tensor(here, WEFT_SUM, dim, world));
        }
        check_same("broadcast", weft_broadcast(there, 1, world), weft_broadcast(here, 1, world));
        check_same("all_to_all", weft_all_to_all_single(there, NULL, NULL, world),
                   weft_all_to_all_single(here, NULL, NULL, world));
        weft_tensor *y = weft_all_reduce(there, WEFT_SUM, world);
        check_same("waited for", weft_wait_tensor(y), weft_all_reduce(here, WEFT_SUM, world));
        CHECK(weft_all_reduce_(turned, WEFT_SUM, world));
        check_same("in place", there, weft_all_reduce(here, WEFT_SUM, world));
        CHECK_INT(weft_unwaited(world), 0);
        weft_scope_close();
    }
    finish(world);
}

/* Operands of what is posted, with the sum that comes out, and another tensor.  Rank 1 comes when
 * rank 0 has done its own work, however long that takes. */
static weft_tensor *prepare_posting(weft_group *world, int rank, weft_tensor **x, weft_tensor **out,
                                    weft_tensor **sum)
{
    *x = operand(WEFT_F32, rank, WEFT_SHAPE(5000), GPU);
    *out = weft_empty_like(*x);
    weft_tensor *host = weft_to(*x, WEFT_F32, WEFT_CPU);
    *sum = weft_empty_like(host);
    CHECK_OK(weft_all_reduce_into(*sum, host, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_into(*out, *x, WEFT_SUM, world)); /* opens the group's site */
    weft_tensor *other = weft_full(WEFT_F32, GPU, WEFT_SHAPE(100), 2);
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == 1)
        CHECK(harness_await(0, 1)); /* see add_beside */
    return other;
}

/* Twice `y`, which rank 0 has while the work still waits for the other rank. */
static weft_tensor *add_beside(weft_tensor *y, int rank, weft_work *work)
{
    weft_tensor *twice = weft_add(y, y);
    if (rank == 0) {
        CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 15000));
        CHECK_INT(weft_work_test(work), WEFT_IN_PROGRESS);
        harness_mark();
    }
    return twice;
}

/*
 * Posted work does not hold up the stream of who posts it: while the other rank has not come, the
 * current stream gets its own work done.  Who uses an operand afterwards is behind the collective
 * without waiting for it.
 */
RANKS_TEST(test_cuda_ranks_work_runs_beside, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x, *out, *sum, *y = prepare_posting(world, rank, &x, &out, &sum);
    weft_work *work = weft_all_reduce_start(out, x, WEFT_SUM, world);
    CHECK(work);
    weft_tensor *twice = add_beside(y, rank, work);
    weft_tensor *more = weft_add(out, out); /* on the current stream */
    CHECK_OK(weft_fill(x, 0));              /* behind the one that reads it */
    check_same("beside", twice, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100), 4));
    check_same("behind", more, weft_add(sum, sum));
    CHECK_OK(weft_work_wait(work, 30000));
    check_same("posted", out, sum);
    finish(world);
}

/* Nor does what is posted next, with the same operands: it is behind the first on their stream, and
 * the current one, which does nothing with them, is behind neither. */
RANKS_TEST(test_cuda_ranks_work_posted_again, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x, *out, *sum, *y = prepare_posting(world, rank, &x, &out, &sum);
    CHECK(weft_all_reduce_start(out, x, WEFT_SUM, world));
    weft_work *work = weft_all_reduce_start(out, x, WEFT_SUM, world);
    CHECK(work);
    weft_tensor *twice = add_beside(y, rank, work);
    weft_tensor *more = weft_add(out, out); /* this is behind both */
    check_same("beside", twice, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100), 4));
    check_same("behind", more, weft_add(sum, sum));
    CHECK(weft_all_reduce_start(more, out, WEFT_MAX, world));
    check_same("of what was posted", more, sum); /* on another stream than the add that wrote it */
    finish(world);
}

/* The other way round: what is posted does not wait for the current stream, which is held up, if its
 * operands were not used there.  A rank that is not the root of a scatter has one only. */
RANKS_TEST(test_cuda_ranks_work_overtakes, 2)
{
    weft_group *world = join(30000), *pair = weft_group_new(world, (int[]){0, 1}, 2, "pair");
    weft_tensor *x = operand(WEFT_F32, 1, WEFT_SHAPE(600), GPU), *z = weft_empty_like(x);
    weft_tensor *out = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(300));
    weft_tensor *want = weft_slice(operand(WEFT_F32, 1, WEFT_SHAPE(600), WEFT_CPU), 0, 300 * rank,
                                   300 * rank + 300, 1);
    CHECK_OK(weft_send_recv(z, 1 - rank, x, 1 - rank, pair)); /* opens its site */
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    for (int i = 0; i < 2; i++) {
        if (i && rank == 0)
            CHECK_OK(weft_recv(z, 1, pair)); /* which comes later */
        weft_work *work = weft_scatter_start(out, rank ? x : NULL, 1, world);
        CHECK(work);
        CHECK_OK(weft_work_wait(work, 15000));
    }
    harness_mark();
    if (rank == 1) {
        CHECK(harness_await(0, 1));
        CHECK_OK(weft_send(x, 0, pair));
    }
    check_same("overtaking", out, want);
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    finish(world);
}

/* A list is ordered behind what wrote each of its outputs, or refused: here behind another stream. */
RANKS_TEST(test_cuda_ranks_list_unordered, 2)
{
    if (is_real() || harness_in_threads)
        SKIP("a driver with faults of this rank alone is wanted");
    weft_group *world = join(30000);
    weft_stream *mine = weft_stream_current(GPU), *other = weft_stream_new(GPU, false);
    weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(8), GPU), *y = weft_empty_like(x);
    CHECK_OK(weft_all_reduce_list_into(&y, &x, 1, WEFT_SUM, world)); /* opens the group's site */
    CHECK_OK(weft_stream_use(other));
    CHECK_OK(weft_fill(y, 1));
    CHECK_OK(weft_stream_use(mine));
    model = (model_wishes){
        .multiprocessors = 24, .fail = "cuStreamWaitEvent", .fail_at = 1, .fail_with = 1};
    CHECK(weft_all_reduce_list_into(&y, &x, 1, WEFT_SUM, world) < 0);
    CHECK_INT(model.fail_at, 0); /* it was called */
    model.fail = NULL;
    weft_clear_error();
    CHECK_OK(weft_all_reduce_list_into(&y, &x, 1, WEFT_SUM, world));
    check_same("after all", weft_sub(y, x), operand(WEFT_F32, 1 - rank, WEFT_SHAPE(8), WEFT_CPU));
    finish(world);
}

static void check_turn(weft_group *world, uint32_t turn, bool on_device)
{
    weft_i_record_entry last;
    CHECK(weft_i_record_last(weft_i_group_record(world), &last));
    if (last.turn != turn || last.on_device != on_device)
        FAIL("%s has turn %u%s, not %u", last.name, last.turn,
             last.on_device ? " on the device" : "", turn);
}

/* The flight record counts what the device carries apart from what meets on the lane, and messages
 * of two ranks nowhere: all ranks show the same. */
RANKS_TEST(test_cuda_ranks_turns, 3)
{
    weft_group *world = join(30000);
    weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(6), GPU),
                *here = weft_to(x, WEFT_F32, WEFT_CPU);
    weft_tensor *out = weft_empty_like(x), *got = weft_empty_like(x);
    CHECK_OK(weft_all_reduce_into(out, x, WEFT_SUM, world));
    check_turn(world, 1, true);
    for (int i = 0; i < 2; i++) /* the first sets up the lane, and records that too */
        CHECK_OK(weft_all_reduce_into(here, here, WEFT_SUM, world));
    weft_i_record_entry last;
    CHECK(weft_i_record_last(weft_i_group_record(world), &last) && !last.on_device);
    uint32_t lane = last.turn;
    if (rank == 0)
        CHECK_OK(weft_send(x, 1, world));
    if (rank == 1)
        CHECK_OK(weft_recv(got, 0, world));
    weft_work *work = weft_all_reduce_start(out, x, WEFT_MAX, world);
    check_turn(world, 2, true);
    CHECK_OK(weft_work_wait(work, 30000));
    CHECK_INT(weft_work_sequence(work), 2);
    CHECK_OK(weft_all_reduce_into(here, here, WEFT_SUM, world));
    check_turn(world, lane + 1, false);
    const int64_t splits[] = {2, 2, 2};
    CHECK_OK(weft_all_to_all_into(out, x, splits, splits, world));
    check_way(world, "host");
    check_turn(world, lane + 2, false);
    finish(world);
}

/* To post a collective takes no error from who waits for the stream. */
RANKS_TEST(test_cuda_ranks_work_leaves_errors, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(500), GPU), *out = weft_empty_like(x);
    static const int64_t values[] = {1, 77};
    weft_tensor *bad = weft_to(weft_tensor_from(WEFT_I64, WEFT_SHAPE(2), values), WEFT_I64, GPU);
    CHECK_OK(weft_all_reduce_into(out, x, WEFT_SUM, world));
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    CHECK_OK(
        weft_group_barrier(world, 30000)); /* ranks that are threads share the device's errors */
    if (rank == 0) {
        CHECK(weft_embedding(weft_ones(WEFT_F32, GPU, WEFT_SHAPE(5, 8)), bad) != NULL);
        rest_us(200000); /* until it has run; were it slower, nothing could be lost */
    }
    CHECK(weft_all_reduce_start(out, x, WEFT_SUM, world));
    if (rank == 0) {
        CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), 30000), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "embedding: index 77 at 1;");
        weft_clear_error();
    }
    CHECK_OK(weft_group_barrier(world, 30000));
    finish(world);
}

/* Memory of what is posted may go at once: who gets it next is behind the collective. */
RANKS_TEST(test_cuda_ranks_work_is_left_alone, 2)
{
    weft_group *world = join(30000);
    weft_tensor *out = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(3000));
    weft_tensor *host = operand(WEFT_F32, rank, WEFT_SHAPE(3000), WEFT_CPU);
    weft_tensor *sum = weft_empty_like(host);
    CHECK_OK(weft_all_reduce_into(sum, host, WEFT_SUM, world));
    for (int i = 0; i < 20; i++) {
        weft_scope_open();
        weft_tensor *x = weft_to(host, WEFT_F32, GPU);
        CHECK(weft_all_reduce_start(out, x, WEFT_SUM, world));
        weft_scope_close(); /* x and the work are gone */
        weft_scope_open();
        CHECK(weft_full(WEFT_F32, GPU, WEFT_SHAPE(3000), 7)); /* perhaps where x was */
        check_same("left alone", out, sum);
        weft_scope_close();
    }
    finish(world);
}

/* Who leaves with work enqueued that nobody has waited for leaves nothing behind: neither its
 * memory, nor a peer that comes later and waits for it. */
RANKS_TEST(test_cuda_ranks_leave_unread, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(500), GPU), *out = weft_empty_like(x);
    CHECK_OK(weft_all_reduce_into(out, x, WEFT_SUM, world));
    if (rank == 1)
        rest_us(1500000); /* longer than the harness lets descriptors live */
    CHECK_OK(weft_all_reduce_into(out, x, WEFT_SUM, world));
    CHECK(weft_all_reduce_start(out, x, WEFT_SUM, world));
    CHECK(weft_add(out, x));
    finish(world);
}

/* Posted work is done when its stream has come to it; the host may wait, or another stream. */
RANKS_TEST(test_cuda_ranks_work, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(50000), GPU), *out = weft_empty_like(x);
    weft_tensor *host = weft_to(x, WEFT_F32, WEFT_CPU), *host_out = weft_empty_like(host);
    weft_work *work = weft_all_reduce_start(out, x, WEFT_SUM, world);
    CHECK(work);
    CHECK_OK(weft_all_reduce_into(host_out, host, WEFT_SUM, world));
    CHECK_OK(weft_work_wait(work, 30000));
    CHECK_INT(weft_work_status(work), WEFT_OK);
    CHECK_OK(weft_work_test(work));
    check_same("posted", out, host_out);
    weft_stream *mine = weft_keep(weft_stream_current(GPU)), *other = weft_stream_new(GPU, false);
    CHECK_OK(weft_fill(out, 0));
    work = weft_all_reduce_start(out, x, WEFT_SUM, world);
    CHECK_OK(weft_work_order(work, other));
    CHECK_OK(weft_stream_use(other));
    weft_tensor *copy = weft_clone(out);
    CHECK_OK(weft_work_order(work, NULL));
    check_same("ordered", copy, host_out);
    CHECK_OK(weft_all_reduce_into(copy, x, WEFT_SUM, world)); /* behind the one on `mine` */
    check_same("on another stream", copy, host_out);
    CHECK_OK(weft_stream_use(mine));
    weft_release(mine);
    work = weft_all_reduce_start(host_out, host, WEFT_SUM, world);
    CHECK_OK(weft_work_order(work, NULL)); /* of the CPU: waits */
    CHECK_INT(weft_work_status(work), WEFT_OK);
    CHECK_STATUS(weft_work_order(NULL, NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    finish(world);
}

/* Every dtype with every reduction that it has, as packets and through the stage. */
RANKS_TEST(test_cuda_ranks_reductions, 2)
{
    weft_group *world = join(30000);
    static const int64_t counts[] = {9, 70001};
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int op = 0; op < WEFT_REDUCTIONS; op++) {
            weft_scope_open();
            weft_set_premul(rank ? 0.5 : 2);
            int64_t count = counts[dtype == WEFT_I32 || dtype == WEFT_BF16];
            weft_tensor *small = operand((weft_dtype)dtype, rank, WEFT_SHAPE(9), WEFT_CPU);
            weft_tensor *here = weft_contiguous(
                weft_expand(weft_view(small, WEFT_SHAPE(9, 1)), WEFT_SHAPE(9, count / 9 + 1)));
            weft_tensor *there = weft_to(here, (weft_dtype)dtype, GPU);
            weft_status status = weft_all_reduce_into(here, here, (weft_reduction)op, world);
            CHECK_STATUS(weft_all_reduce_into(there, there, (weft_reduction)op, world), status);
            if (status == WEFT_OK)
                check_same(weft_reduction_name((weft_reduction)op), there, here);
            weft_clear_error();
            weft_scope_close();
        }
    weft_set_premul(1);
    finish(world);
}

/* Nothing to move is a call like others; so is a group of one. */
RANKS_TEST(test_cuda_ranks_nothing, 2)
{
    weft_group *world = join(30000);
    weft_tensor *none = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(0));
    weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(6), GPU);
    weft_tensor *want = weft_all_reduce(weft_to(x, WEFT_F32, WEFT_CPU), WEFT_SUM, world);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(weft_all_reduce_into(none, none, WEFT_SUM, world));
        check_same("between nothings", weft_all_reduce(x, WEFT_SUM, world), want);
        CHECK_OK(weft_all_gather_into(none, none, world));
    }
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    weft_group *own = weft_group_new(world, &rank, 1, "own");
    weft_tensor *y = weft_empty_like(x);
    CHECK_OK(weft_all_reduce_into(y, x, WEFT_SUM, own));
    CHECK(weft_equal(y, x));
    CHECK_OK(weft_all_gather_into(y, x, own));
    weft_release(own);
    finish(world);
}

/* Operands in symmetric memory of the device are reached where they are. */
RANKS_TEST(test_cuda_ranks_symmetric, 2)
{
    static const int64_t rows[] = {2, 600};
    weft_group *world = join(30000);
    for (int k = 0; k < 2; k++) {
        weft_scope_open();
        weft_tensor *small = operand(WEFT_BF16, rank, WEFT_SHAPE(1, 32), WEFT_CPU);
        weft_tensor *here = weft_contiguous(weft_expand(small, WEFT_SHAPE(rows[k], 32)));
        weft_tensor *local = weft_to(here, WEFT_BF16, GPU), *want, *out;
        weft_tensor *x = weft_symm_empty(WEFT_BF16, GPU, WEFT_SHAPE(rows[k], 32));
        CHECK_OK(weft_copy(x, local));
        want = weft_all_reduce(here, WEFT_SUM, world);
        check_same("one_shot", weft_symm_one_shot_all_reduce(x, WEFT_SUM, world), want);
        check_way(world, "device");
        out = weft_empty_like(local);
        CHECK_OK(weft_symm_two_shot_all_reduce_out(out, x, WEFT_SUM, world));
        check_same("two_shot_out", out, want);
        for (int split = 0; split < 2; split++) {
            weft_shape shape = split ? WEFT_SHAPE(rows[k], 16) : WEFT_SHAPE(rows[k] / 2, 32);
            out = weft_empty(WEFT_BF16, GPU, shape);
            CHECK_OK(weft_symm_reduce_scatter_out(out, x, split, WEFT_MAX, world));
            check_same("reduce_scatter_out", out,
                       weft_reduce_scatter_tensor(here, WEFT_MAX, split, world));
        }
        CHECK_OK(weft_symm_two_shot_all_reduce(x, WEFT_SUM, world));
        check_same("two_shot", x, want);
        check_same("one_shot_copy", weft_symm_one_shot_all_reduce_copy(x, local, WEFT_SUM, world),
                   want);
        CHECK_STATUS(weft_symm_multimem_all_reduce(x, WEFT_SUM, world), WEFT_ERR_UNSUPPORTED);
        CHECK_CONTAINS(weft_last_error(), "multicast");
        weft_clear_error();
        weft_scope_close();
    }
    finish(world);
}

static weft_tensor *met(weft_tensor *like, weft_group *world)
{
    weft_tensor *x = weft_symm_empty(weft_tensor_dtype(like), GPU, weft_tensor_shape(like));
    if (!x || !weft_symm_rendezvous(x, world))
        FAIL("%s", weft_last_error());
    CHECK_OK(weft_copy(x, like));
    return x;
}

/* All plain collectives once, on operands that are given. */
static void call_all(weft_tensor *in, weft_tensor *out, weft_tensor *part, weft_tensor *parts,
                     weft_group *world)
{
    int size = weft_size(world);
    CHECK_OK(weft_all_reduce_into(out, in, WEFT_SUM, world));
    CHECK_OK(weft_reduce_scatter_into(part, in, WEFT_MAX, world));
    CHECK_OK(weft_all_gather_into(parts, part, world));
    CHECK_OK(weft_all_reduce_into(parts, parts, WEFT_AVG, world));
    CHECK_OK(weft_all_to_all_into(in, parts, NULL, NULL, world));
    CHECK_OK(weft_broadcast_in_place(weft_select(in, 0, size - 1), size - 1, world));
    /* In place: this rank's part of the output is the input. */
    CHECK_OK(weft_all_gather_into(out, weft_select(out, 0, weft_rank(world)), world));
}

/* Plain collectives whose operands are symmetric do the same without a stage. */
RANKS_TEST(test_cuda_ranks_direct, 3)
{
    static const int64_t columns[] = {5, 35000};
    weft_group *world = join(30000);
    for (int k = 0; k < 2; k++) {
        weft_scope_open();
        weft_shape shape = WEFT_SHAPE(size, columns[k]);
        weft_tensor *small = operand(WEFT_F32, rank, WEFT_SHAPE(size, 5), WEFT_CPU), *all[2][4];
        weft_tensor *row = weft_view(small, WEFT_SHAPE(size, 1, 5));
        weft_tensor *in = weft_contiguous(
            weft_reshape(weft_expand(row, WEFT_SHAPE(size, columns[k] / 5, 5)), shape));
        all[0][0] = in;
        all[0][1] = weft_zeros(WEFT_F32, WEFT_CPU, shape);
        all[0][2] = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(columns[k]));
        all[0][3] = weft_zeros(WEFT_F32, WEFT_CPU, shape);
        for (int i = 0; i < 4; i++)
            all[1][i] = met(all[0][i], world);
        for (int on = 0; on < 2; on++)
            call_all(all[on][0], all[on][1], all[on][2], all[on][3], world);
        for (int i = 0; i < 4; i++)
            check_same("an operand", all[1][i], all[0][i]);
        weft_scope_close();
    }
    finish(world);
}

/* The input alone is symmetric: in one shot ranks read it where it is; two shots would need everybody's
 * output, so more goes through the stage. */
RANKS_TEST(test_cuda_ranks_direct_input, 3)
{
    static const int64_t counts[] = {40000, 1100000};
    weft_group *world = join(30000);
    for (int k = 0; k < 2; k++) {
        weft_scope_open();
        weft_tensor *few = operand(WEFT_F32, rank, WEFT_SHAPE(1, 100), WEFT_CPU);
        weft_tensor *here =
            weft_reshape(weft_expand(few, WEFT_SHAPE(counts[k] / 100, 100)), WEFT_SHAPE(counts[k]));
        weft_tensor *there = met(weft_contiguous(here), world),
                    *out = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(counts[k]));
        CHECK_OK(weft_all_reduce_into(out, there, WEFT_SUM, world));
        check_way(world, "device");
        check_same("the sum", out, weft_all_reduce(weft_contiguous(here), WEFT_SUM, world));
        check_same("the input", there, here);
        weft_scope_close();
    }
    finish(world);
}

/* One rank's operand is symmetric, another's is not: both are told, and nothing is written. */
RANKS_TEST(test_cuda_ranks_direct_mixed, 2)
{
    weft_group *world = join(30000);
    weft_tensor *plain = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(90000));
    weft_tensor *there = met(plain, world);
    weft_tensor *x = rank ? there : plain;
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    sync_fails(WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 90000 f32, sum in symmetric memory");
    weft_clear_error();
    CHECK(weft_item(x, 0) == 1);
    weft_clear_error();
    finish(world);
}

/* Of so few bytes it does not matter whose operand is symmetric.  Of more it does, as soon as symmetric
 * ones go without packets: ordinary ones still take them. */
RANKS_TEST(test_cuda_ranks_direct_few, 3)
{
    static const int64_t counts[] = {16000, 24000};
    weft_group *world = join(30000);
    for (int k = 0; k < 2; k++) {
        weft_scope_open();
        weft_tensor *plain = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(counts[k]));
        weft_tensor *there = met(plain, world), *x = rank == 1 ? plain : there;
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
        if (k == 0)
            check_same("the sum", x, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(counts[k]), size));
        else
            sync_fails(WEFT_ERR_MISMATCH);
        weft_clear_error();
        weft_scope_close();
    }
    finish(world);
}

/* Lists, and the dimensions of a mesh. */
RANKS_TEST(test_cuda_ranks_mesh, 4)
{
    weft_group *world = join(30000);
    weft_mesh *mesh =
        weft_mesh_new(world, GPU, WEFT_SHAPE(2, 2), (int[]){0, 1, 2, 3}, "row,column");
    weft_tensor *here = operand(WEFT_F32, rank, WEFT_SHAPE(4, 6), WEFT_CPU);
    weft_tensor *there = weft_to(here, WEFT_F32, GPU);
    for (int dim = 0; dim < 2; dim++) {
        weft_group *group = weft_mesh_group(mesh, dim);
        check_same("mesh all_reduce", weft_all_reduce(there, WEFT_SUM, group),
                   weft_all_reduce(here, WEFT_SUM, group));
        check_same("mesh all_gather", weft_all_gather_tensor(there, 1, group),
                   weft_all_gather_tensor(here, 1, group));
    }
    weft_tensor *list[2] = {there, weft_clone(there)}, *host[2] = {here, weft_clone(here)};
    weft_tensor *sums[2], *host_sums[2];
    for (int i = 0; i < 2; i++) {
        sums[i] = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(1, 6));
        host_sums[i] = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 6));
    }
    CHECK_OK(weft_reduce_scatter_list_into(sums, list, 2, WEFT_MAX, world));
    check_way(world, "device");
    CHECK_OK(weft_reduce_scatter_list_into(host_sums, host, 2, WEFT_MAX, world));
    check_same("list", sums[1], host_sums[1]);
    finish(world);
}

/* Captured and replayed; but not the call that opens the group's memory. */
RANKS_TEST(test_cuda_ranks_capture, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(40000)),
                *small = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(40));
    weft_tensor *whole = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(80));
    weft_tensor *parts[2] = {weft_clone(small), weft_clone(small)};
    weft_stream *stream = weft_stream_current(GPU);
    CHECK_OK(weft_stream_sync(stream, 30000));
    CHECK_OK(weft_capture_begin(stream));
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "cannot be captured");
    weft_clear_error();
    weft_release(weft_capture_end(stream));
    weft_clear_error();
    CHECK_OK(weft_all_reduce_into(small, small, WEFT_SUM, world));
    CHECK_OK(weft_capture_begin(stream));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_into(small, small, WEFT_SUM, world));
    weft_work *work = weft_all_gather_start(whole, small, world);
    CHECK(work);
    CHECK_OK(weft_work_order(work, NULL));
    CHECK_STATUS(weft_all_gather_parts_into(parts, small, world), WEFT_ERR_STATE);
    weft_clear_error();
    weft_replay *replay = weft_capture_end(stream);
    CHECK(replay);
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_replay_run(replay));
    CHECK(weft_item(x, 39999) == 8);
    CHECK(weft_item(small, 39) == 16);
    CHECK(weft_item(whole, 79) == 16);
    finish(world);
}

/* Ranks that call different things all learn it, with both calls, and nothing is written. */
RANKS_TEST(test_cuda_ranks_mismatch, 2)
{
    static const int64_t counts[] = {4, 90000};
    weft_group *world = join(30000);
    for (int k = 0; k < 2; k++) {
        weft_scope_open();
        weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, k ? "large" : "small");
        weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(counts[k]));
        CHECK_OK(weft_all_reduce_into(x, x, rank ? WEFT_SUM : WEFT_MAX, group));
        sync_fails(WEFT_ERR_MISMATCH);
        char mine[64], theirs[64];
        snprintf(mine, sizeof mine, "this rank called all_reduce of %lld f32, %s",
                 (long long)counts[k], rank ? "sum" : "max");
        snprintf(theirs, sizeof theirs, "rank %d all_reduce of %lld f32, %s", 1 - rank,
                 (long long)counts[k], rank ? "max" : "sum");
        CHECK_CONTAINS(weft_last_error(), mine);
        CHECK_CONTAINS(weft_last_error(), theirs);
        weft_clear_error();
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, group), WEFT_ERR_MISMATCH);
        weft_clear_error();
        CHECK(weft_item(x, 0) == 1);
        weft_clear_error();
        weft_work *work = weft_all_reduce_start(x, x, WEFT_SUM, group);
        CHECK(!work || weft_work_wait(work, 30000) == WEFT_ERR_MISMATCH);
        weft_clear_error();
        weft_scope_close();
    }
    finish(world);
}

/* What rank 1 calls otherwise than rank 0, on operands of its own. */
typedef enum difference { OPERATION, DTYPE, COUNT, REDUCTION, OFFSET, DIFFERENCES } difference;

enum { DIFFERING = 90000 };

static weft_status call_differently(difference d, bool other, weft_tensor *floats,
                                    weft_tensor *integers, weft_group *group)
{
    weft_tensor *x = other && d == DTYPE ? integers : floats;
    x = weft_narrow(x, 0, other && d == OFFSET ? 4 : 0,
                    other && d == COUNT ? DIFFERING / 2 : DIFFERING);
    if (other && d == OPERATION)
        return weft_broadcast_in_place(x, 0, group);
    return weft_all_reduce_into(x, x, other && d == REDUCTION ? WEFT_MAX : WEFT_SUM, group);
}

/* Both calls, as this rank is told them. */
static void check_told(difference d, int rank)
{
    static const char *const others[DIFFERENCES] = {
        "broadcast of 90000 f32, root 0", "all_reduce of 90000 i32, sum",
        "all_reduce of 45000 f32, sum", "all_reduce of 90000 f32, max",
        "all_reduce of 90000 f32, sum in symmetric memory"};
    const char *usual = d == OFFSET ? others[d] : "all_reduce of 90000 f32, sum";
    char mine[96], theirs[96];
    snprintf(mine, sizeof mine, "this rank called %s", rank ? others[d] : usual);
    snprintf(theirs, sizeof theirs, "rank %d %s", 1 - rank, rank ? usual : others[d]);
    CHECK_CONTAINS(weft_last_error(), mine);
    CHECK_CONTAINS(weft_last_error(), theirs);
    if (d == OFFSET)
        CHECK_CONTAINS(weft_last_error(), "of another place");
}

/* Every kind of difference, eagerly and in a replayed graph: both ranks are told it, with both
 * calls, and nothing is written. */
RANKS_TEST(test_cuda_ranks_mismatches, 2)
{
    weft_group *world = join(30000);
    weft_stream *stream = weft_stream_current(GPU);
    for (int k = 0; k < 2 * DIFFERENCES; k++) {
        difference d = (difference)(k / 2);
        char name[16];
        weft_scope_open();
        snprintf(name, sizeof name, "differ%d", k);
        weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, name);
        weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(DIFFERING + 4)),
                    *y = weft_ones(WEFT_I32, GPU, WEFT_SHAPE(DIFFERING + 4));
        if (d == OFFSET)
            x = met(x, group);
        weft_tensor *first = weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(4));
        CHECK_OK(weft_all_reduce_into(first, first, WEFT_SUM, group));
        CHECK_OK(weft_stream_sync(stream, 30000));
        if (k % 2)
            CHECK_OK(weft_capture_begin(stream));
        CHECK_OK(call_differently(d, rank == 1, x, y, group));
        weft_replay *replay = k % 2 ? weft_capture_end(stream) : NULL;
        if (k % 2)
            CHECK_OK(replay ? weft_replay_run(replay) : weft_last_status());
        sync_fails(WEFT_ERR_MISMATCH);
        check_told(d, rank);
        weft_clear_error();
        CHECK(weft_item(x, DIFFERING - 1) == 1 && weft_item(y, DIFFERING - 1) == 1);
        weft_clear_error();
        weft_scope_close();
    }
    finish(world);
}

RANKS_TEST(test_cuda_ranks_refuses, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4)),
                *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_STATUS(weft_all_reduce_into(x, y, WEFT_SUM, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "the input is on cpu, the output on cuda:0");
    CHECK_STATUS(weft_all_reduce_into(weft_to(x, WEFT_F32, WEFT_META), x, WEFT_SUM, world),
                 WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    weft_tensor *z = weft_ones(WEFT_F32, WEFT_CUDA(1), WEFT_SHAPE(4));
    if (z || !is_real()) { /* a machine may have one GPU */
        CHECK_STATUS(weft_all_reduce_into(z, z, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "cuda:0");
    }
    weft_clear_error();
    finish(world);
}

int main(int argc, char **argv)
{
    return scene_main(argc, argv);
}
