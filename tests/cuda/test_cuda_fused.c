/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parallel/pipe.c, parallel/gather_matmul.c, parallel/matmul_scatter.c */
/*
 * Fused operations on a CUDA device that the ranks share, as processes and as threads: AsyncTPTest of
 * the reference on the software driver, or on a GPU with WEFT_TEST_CUDA=real.
 */
#define HARNESS_LABEL cuda_label
static const char *cuda_label(const char *backend);

/* The one of all ranks, or with WEFT_TEST_PEERS this rank's own: scripts/gpu-check peers. */
#define FUSED_DEVICE      WEFT_CUDA(getenv("WEFT_TEST_PEERS") ? harness_this_rank : 0)
#define FUSED_ROWS        (is_real() ? 4096 : 64) /* the software driver multiplies slowly */
#define FUSED_INNER       (is_real() ? 1024 : 16)
#define FUSED_TEST(name_) RANKS_TEST(name_, 2)
#define FUSED_LEFT()      nothing_left()

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

static void nothing_left(void);
#include "fused_jobs.h"

#include "backends/cuda/device/device.h"

#include "cuda/model.h"

/* Results on the software driver are told from those on a GPU. */
static const char *cuda_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    return is_real() ? threads ? "cuda-threads" : "cuda"
           : threads ? "softcuda-threads"
                     : "softcuda";
}

/* No memory, streams, events or modules: neither this rank's nor what it had mapped of others.  Of a
 * process with several ranks the last one cannot know. */
static void nothing_left(void)
{
    weft_i_stream_forget();
    if (is_real() || harness_in_threads)
        return;
    weft_i_cuda_close_all();
    CHECK_INT(model_live(), 0);
}

/* Gives what is noted to the stream, `times` times, with zeroed results before each. */
static void replay(weft_replay *noted, weft_tensor *out, weft_tensor *expected, int times)
{
    if (!noted)
        FAIL("%s", weft_last_error());
    for (int i = 0; i < times; i++) {
        CHECK_OK(weft_fill(out, 0));
        CHECK_OK(weft_replay_run(noted));
        CHECK(is_close(out, expected));
    }
}

/* The first call makes the workspace; then the call is noted, and run again and again. */
RANKS_TEST(test_fused_all_gather_matmul_native_graph_capture, 2)
{
    weft_group *world = begin(rank);
    weft_stream *stream = weft_stream_current(FUSED_DEVICE);
    weft_tensor *shard = uniform(WEFT_BF16, WEFT_SHAPE(FUSED_ROWS / size, 16));
    weft_tensor *b = uniform(WEFT_BF16, WEFT_SHAPE(16, 16)), *out = NULL, *expected = NULL;
    CHECK_OK(weft_all_gather_matmul(NULL, &expected, shard, &b, 1, 0, world));
    CHECK_OK(weft_stream_sync(stream, 20000));
    int before = calls_of(world, "ag_matmul");
    CHECK_OK(weft_capture_begin(stream));
    weft_status status = weft_all_gather_matmul(NULL, &out, shard, &b, 1, 0, world);
    weft_replay *noted = weft_capture_end(stream);
    CHECK_OK(status);
    CHECK_INT(calls_of(world, "ag_matmul"),
              before + 1); /* what is noted has its line, and its way */
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_PIPELINED);
    replay(noted, out, expected, 3);
    leave(world);
}

/* On the stream, three times. */
static void check_reduce_captured(weft_group *world, weft_tensor *a, weft_tensor *b,
                                  weft_tensor *plain)
{
    weft_stream *stream = weft_stream_current(FUSED_DEVICE);
    weft_tensor *out = NULL, *in[] = {a, b};
    int before = calls_of(world, "matmul_rs");
    CHECK_OK(weft_stream_sync(stream, 20000));
    CHECK_OK(weft_capture_begin(stream));
    weft_status status = average_rows(in, 2, &out, 1, world);
    weft_replay *noted = weft_capture_end(stream);
    CHECK_OK(status);
    CHECK_INT(calls_of(world, "matmul_rs"), before + 1);
    CHECK_INT(way_of(world, "matmul_rs"), WEFT_I_WAY_PIPELINED);
    CHECK(same_layout(out, plain));
    replay(noted, out, plain, 3);
}

/* In a process with several ranks no code is loaded late: the first use of a product's kernel would
 * wait for another rank's kernel.  A process with one rank keeps what the driver does by itself. */
RANKS_TEST(test_fused_code_is_there, 2)
{
    weft_group *world = begin(rank);
    weft_tensor *x = uniform(WEFT_F32, WEFT_SHAPE(4, 4));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    if (harness_in_threads)
        CHECK(!weft_i_cuda_loads_late());
    else
        CHECK(!getenv("CUDA_MODULE_LOADING"));
    CHECK_OK(weft_all_reduce_into(weft_mm(x, x), x, WEFT_SUM, world));
    leave(world);
}

/* A rank that is slow to copy still reads another's shard when the third has long begun to scatter,
 * and writes into the workspace in which that shard lies. */
RANKS_TEST(test_fused_slow_reader, 3)
{
    weft_group *world = begin(rank);
    weft_tensor *shard = uniform(WEFT_F32, WEFT_SHAPE(16, 16)), *y = NULL;
    weft_tensor *b = uniform(WEFT_F32, WEFT_SHAPE(16, 16));
    weft_tensor *a = uniform(WEFT_F32, WEFT_SHAPE(16 * size, 16));
    weft_tensor *gathered = weft_mm(weft_all_gather_tensor(shard, 0, world), b);
    weft_tensor *scattered =
        weft_wait_tensor(weft_reduce_scatter_tensor(weft_mm(a, b), WEFT_SUM, 0, world));
    CHECK(gathered && scattered);
    CHECK_OK(weft_stream_sync(weft_stream_current(FUSED_DEVICE), 20000));
    if (rank == 2 && !is_real() && !harness_in_threads)
        model.copy_pause_us = 20000;
    for (int k = 0; k < 2; k++) {
        CHECK_OK(weft_all_gather_matmul(NULL, &y, shard, &b, 1, 0, world));
        weft_tensor *z = weft_matmul_reduce_scatter(a, b, WEFT_SUM, 0, world);
        CHECK(is_close(y, gathered));
        CHECK(is_close(z, scattered));
    }
    CHECK_OK(weft_stream_sync(weft_stream_current(FUSED_DEVICE), 20000));
    if (!harness_in_threads)
        model.copy_pause_us = 0;
    leave(world);
}

/* A scatter may begin while another rank still reads what the last one brought, also where the two
 * differ in size, and where one is replayed, which uses the same slots each time. */
RANKS_TEST(test_fused_slots_by_turns, 2)
{
    enum { CALLS = 6, REPLAYS = 12 };
    weft_group *world = begin(rank);
    weft_stream *stream = weft_stream_current(FUSED_DEVICE);
    weft_tensor *b = uniform(WEFT_F32, WEFT_SHAPE(16, 16)), *a[CALLS], *out[CALLS];
    for (int i = 0; i < CALLS; i++)
        a[i] = full_of(WEFT_SHAPE(i % 3 ? 8 : 64, 16), i + 1);
    for (int i = 0; i < CALLS; i++)
        CHECK(out[i] = weft_matmul_reduce_scatter(a[i], b, WEFT_SUM, 0, world));
    for (int i = 0; i < CALLS; i++)
        CHECK(is_close(out[i], weft_wait_tensor(weft_reduce_scatter_tensor(weft_mm(a[i], b),
                                                                           WEFT_SUM, 0, world))));
    CHECK_OK(weft_stream_sync(stream, 20000));
    CHECK_OK(weft_capture_begin(stream));
    out[0] = weft_matmul_reduce_scatter(a[0], b, WEFT_SUM, 0, world);
    weft_replay *noted = weft_capture_end(stream);
    CHECK(out[0] && noted);
    weft_tensor *each = weft_empty(WEFT_F32, FUSED_DEVICE, WEFT_SHAPE(REPLAYS, 32, 16));
    for (int i = 0; i < REPLAYS; i++) {
        CHECK_OK(weft_fill(a[0], i));
        CHECK_OK(weft_replay_run(noted));
        CHECK_OK(weft_copy(weft_select(each, 0, i), out[0]));
        if (i % 4 == 3) /* of the same slots, or the others */
            CHECK(weft_matmul_reduce_scatter(a[1], b, WEFT_SUM, 0, world));
    }
    for (int i = 0; i < REPLAYS; i++) {
        CHECK_OK(weft_fill(a[0], i));
        CHECK(is_close(weft_select(each, 0, i), weft_wait_tensor(weft_reduce_scatter_tensor(
                                                    weft_mm(a[0], b), WEFT_SUM, 0, world))));
    }
    leave(world);
}

/* Lines of that name since the newest operation of that kind began. */
static int lines_of(weft_group *group, const char *operation, const char *name)
{
    weft_i_record_entry entries[256];
    size_t count = weft_i_record_newest(weft_i_group_record(group), entries, 256);
    int lines = 0;
    for (size_t i = 0; i < count && strcmp(entries[i].name, operation) != 0; i++)
        lines += !strcmp(entries[i].name, name);
    return lines;
}

/* A gather may begin while another rank, whose products are slow, still reads the shard of the last
 * one: also where the two differ in size, and where one is replayed, which uses the same place each
 * time. */
RANKS_TEST(test_fused_shards_by_turns, 2)
{
    enum { CALLS = 6, REPLAYS = 12 };
    weft_group *world = begin(rank);
    weft_stream *stream = weft_stream_current(FUSED_DEVICE);
    weft_tensor *b = weft_ones(WEFT_F32, FUSED_DEVICE, WEFT_SHAPE(16, 8)), *out[CALLS], *y = NULL;
    weft_tensor *shard = full_of(WEFT_SHAPE(32, 16), 0);
    if (rank == 1 && !is_real() && !harness_in_threads)
        model.call_pause_us = 2000;
    for (int i = 0; i < CALLS; i++) {
        weft_tensor *x =
            weft_narrow(shard, 0, 0, i % 3 < 2 ? 4 : 32); /* the third needs more room */
        CHECK_OK(weft_fill(shard, 10 * i + rank + 1));
        CHECK_OK(weft_all_gather_matmul(NULL, &out[i], x, &b, 1, 0, world));
    }
    for (int i = 0; i < CALLS; i++)
        for (int q = 0; q < 2; q++)
            CHECK(weft_item(out[i], q * weft_tensor_numel(out[i]) / 2) == 16 * (10 * i + q + 1));
    CHECK_OK(weft_capture_begin(stream));
    weft_status status = weft_all_gather_matmul(NULL, &y, shard, &b, 1, 0, world);
    weft_replay *noted = weft_capture_end(stream);
    CHECK(status == WEFT_OK && noted);
    weft_tensor *each = weft_empty(WEFT_F32, FUSED_DEVICE, WEFT_SHAPE(REPLAYS, 64, 8));
    for (int i = 0; i < REPLAYS; i++) {
        CHECK_OK(weft_fill(shard, 2 * i + rank));
        CHECK_OK(weft_replay_run(noted));
        CHECK_OK(weft_copy(weft_select(each, 0, i), y));
        if (i % 4 == 3) /* in the same place, or the other */
            CHECK_OK(weft_all_gather_matmul(NULL, &out[0], shard, &b, 1, 0, world));
    }
    for (int i = 0; i < 2 * REPLAYS; i++)
        CHECK(weft_item(each, i * 32 * 8) == 16 * i);
    if (!harness_in_threads)
        model.call_pause_us = 0;
    leave(world);
}

/* On one device nobody copies another's shard, once the group knows that it is one, unless the
 * gathered tensor is wanted; sharded scales are read there too.  A shard in symmetric memory is not
 * copied by its rank. */
RANKS_TEST(test_fused_shards_stay, 2)
{
    weft_group *world = begin(rank);
    weft_tensor *shard = uniform(WEFT_F8E4M3, WEFT_SHAPE(16, 16)), *y = NULL, *all = NULL;
    weft_tensor *scale = weft_add_scalar(uniform(WEFT_F32, WEFT_SHAPE(16, 1)), 0.5);
    weft_scaled right = {.b = column_major(uniform(WEFT_F8E4M3, WEFT_SHAPE(16, 16))),
                         .scale = full_of(WEFT_SHAPE(1, 16), 0.1),
                         .dtype = WEFT_F32};
    weft_tensor *left = weft_mul(weft_to_dtype(shard, WEFT_F32), scale);
    left = weft_all_gather_tensor(left, 0, world);
    weft_tensor *exact = weft_mul_scalar(weft_mm(left, weft_to_dtype(right.b, WEFT_F32)), 0.1);
    for (int i = 0; i < 6; i++) {
        bool keep = i % 3 == 2;
        CHECK_OK(weft_all_gather_scaled_matmul(keep ? &all : NULL, &y, shard, scale, &right, 1, 0,
                                               world));
        CHECK_INT(lines_of(world, "ag_scaled_mm", "chunk"), 2);
        CHECK_INT(lines_of(world, "ag_scaled_mm", "chunk_copy"), i && !keep ? 1 : 2);
        CHECK(weft_allclose(here(y), here(exact), 1e-4, 1e-4, false));
    }
    weft_tensor *shared = weft_symm_empty(WEFT_F8E4M3, FUSED_DEVICE, WEFT_SHAPE(16, 16));
    CHECK(shared && weft_symm_rendezvous(shared, world));
    CHECK_OK(weft_copy(shared, shard));
    CHECK_OK(weft_all_gather_scaled_matmul(NULL, &y, shared, scale, &right, 1, 0, world));
    CHECK_INT(way_of(world, "ag_scaled_mm"), WEFT_I_WAY_ZERO_COPY);
    CHECK_INT(lines_of(world, "ag_scaled_mm", "chunk_copy"), 1);
    CHECK(weft_allclose(here(y), here(exact), 1e-4, 1e-4, false));
    leave(world);
}

/* Rank 1 contributes 0.5 to everything, rank 0 256.75, which lies between 256 and 258 in bf16.  The
 * own product of rank 0 is rounded with the other's, not before; that of rank 1 finds 256.  Threads
 * round each. */
RANKS_TEST(test_fused_adds_before_rounding, 2)
{
    double sum[] = {harness_in_threads ? 256 : 258, 256}, avg[] = {sum[0] / 2, 128};
    weft_group *world = begin(rank);
    for (int turn = 0; turn < 3; turn++) {
        weft_tensor *a = weft_full(WEFT_BF16, FUSED_DEVICE, WEFT_SHAPE(4, 16), 0);
        weft_tensor *b = weft_full(WEFT_BF16, FUSED_DEVICE, WEFT_SHAPE(16, 8), 1);
        CHECK_OK(weft_fill(weft_narrow(a, 1, 0, 1), rank ? 0 : 256));
        CHECK_OK(weft_fill(weft_narrow(a, 1, 1, 1), rank ? 0.5 : 0.75));
        weft_tensor *x = weft_matmul_reduce_scatter(a, b, WEFT_SUM, 0, world);
        weft_tensor *y = weft_matmul_reduce_scatter(a, b, WEFT_AVG, 0, world);
        weft_tensor *z = weft_matmul_reduce_scatter(a, b, WEFT_SUM, 1, world);
        CHECK(weft_item(x, 3) == sum[rank] && weft_item(y, 3) == avg[rank]);
        CHECK(weft_item(z, 3) == sum[rank]);
    }
    weft_tensor *whole = weft_full(WEFT_I32, FUSED_DEVICE, WEFT_SHAPE(4, 4), 1 + rank);
    weft_tensor *w =
        weft_matmul_reduce_scatter(whole, whole, WEFT_SUM, 0, world); /* in two steps */
    CHECK(weft_item(w, 0) == 20);
    leave(world);
}

/* The shard is multiplied where it is while a slow copy of it goes to the others; what the stream
 * writes there afterwards comes behind both.  Also by a shard that has to be put in order first. */
RANKS_TEST(test_fused_shard_overwritten, 2)
{
    weft_group *world = begin(rank);
    if (!is_real() && !harness_in_threads)
        model.copy_pause_us = 10000;
    for (int dim = 0; dim < 2; dim++) {
        weft_tensor *shard = uniform(WEFT_F32, WEFT_SHAPE(4, 6, 16)), *y = NULL;
        weft_tensor *b = uniform(WEFT_F32, WEFT_SHAPE(16, 8));
        weft_tensor *expected = weft_matmul(weft_all_gather_tensor(shard, dim, world), b);
        CHECK_OK(weft_all_gather_matmul(NULL, &y, shard, &b, 1, dim, world));
        CHECK_OK(weft_fill(shard, 0));
        CHECK(is_close(y, expected));
        CHECK(weft_item(weft_sum(shard, NULL, 0, false), 0) == 0);
    }
    if (!harness_in_threads)
        model.copy_pause_us = 0;
    leave(world);
}

/* Multicast is asked for, and ranks that share a device have none: the call goes another way, says so,
 * and is right.  test_cuda_multicast.c has devices with it. */
RANKS_TEST(test_fused_multicast_asked, 2)
{
    weft_group *world = begin(rank);
    weft_tensor *shard = uniform(WEFT_BF16, WEFT_SHAPE(FUSED_ROWS / size, 16)), *out = NULL;
    weft_tensor *b = uniform(WEFT_BF16, WEFT_SHAPE(16, 16));
    weft_fused_use(WEFT_FUSED_MULTICAST);
    CHECK_OK(weft_all_gather_matmul(NULL, &out, shard, &b, 1, 0, world));
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_PAIR); /* it is small */
    CHECK(is_close(out, weft_mm(weft_all_gather_tensor(shard, 0, world), b)));
    weft_fused_use(WEFT_FUSED_PIPELINE);
    leave(world);
}

/* Ranks on one GPU that they may not share have no workspace there: the pair goes through the host. */
RANKS_TEST(test_fused_without_sharing, 2)
{
    weft_symm_allow_overlap(false);
    weft_group *world = begin(rank);
    weft_tensor *a = uniform(WEFT_F32, WEFT_SHAPE(16, 16)), *y = NULL, *all = NULL,
                *b = uniform(WEFT_F32, WEFT_SHAPE(16, 16));
    CHECK_OK(weft_all_gather_matmul(&all, &y, a, &b, 1, 0, world));
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_PAIR);
    CHECK(is_close(all, weft_all_gather_tensor(a, 0, world)) && is_close(y, weft_mm(all, b)));
    weft_tensor *part = weft_matmul_reduce_scatter(a, b, WEFT_SUM, 0, world);
    CHECK(part && is_close(part, weft_reduce_scatter_tensor(weft_mm(a, b), WEFT_SUM, 0, world)));
    CHECK_INT(way_of(world, "matmul_rs"), WEFT_I_WAY_PAIR);
    leave(world);
    weft_symm_allow_overlap(true);
}

/* Calls of the driver so far that a thread makes to give a device work. */
static int driver_calls(void)
{
    static const char *const names[] = {
        "cuLaunchKernelEx", "cuMemcpyAsync",     "cuMemsetD8Async", "cuEventCreate",
        "cuEventRecord",    "cuStreamWaitEvent", "cuMemAllocAsync", "cuStreamIsCapturing"};
    int calls = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(model_calls(names[i]) >= 0);
        calls += model_calls(names[i]);
    }
    return calls;
}

/* A fused call, or the two calls, on small operands. */
static weft_tensor *small_call(int which, weft_group *world, weft_tensor *a, weft_tensor *b)
{
    weft_tensor *out = NULL;
    if (which == 0)
        CHECK_OK(weft_all_gather_matmul(NULL, &out, a, &b, 1, 0, world));
    else if (which == 1)
        out = weft_mm(weft_all_gather_tensor(a, 0, world), b);
    else if (which == 2)
        out = weft_matmul_reduce_scatter(a, b, WEFT_SUM, 0, world);
    else
        out = weft_wait_tensor(weft_reduce_scatter_tensor(weft_mm(a, b), WEFT_SUM, 0, world));
    return out;
}

/* A small call is the two calls, and asks no more of the driver than they do. */
RANKS_TEST(test_fused_small_calls, 2)
{
    if (is_real() || harness_in_threads)
        SKIP("the software driver counts the calls of a process");
    weft_group *world = begin(rank);
    weft_tensor *a = uniform(WEFT_F32, WEFT_SHAPE(16, 16)),
                *b = uniform(WEFT_F32, WEFT_SHAPE(16, 16));
    int calls[4] = {0};
    weft_fused_use(WEFT_FUSED_CHOOSE);
    for (int i = 0; i < 12; i++) { /* the first ones make what the others use */
        CHECK_OK(weft_scope_open());
        int before = driver_calls();
        CHECK(small_call(i % 4, world, a, b));
        calls[i % 4] = driver_calls() - before;
        CHECK_OK(weft_stream_sync(weft_stream_current(FUSED_DEVICE), 20000));
        CHECK_OK(weft_scope_close());
    }
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_PAIR);
    CHECK(calls[0] > 0 && calls[0] <= calls[1]);
    CHECK(calls[2] > 0 && calls[2] <= calls[3]);
    leave(world);
}

/* Large chunks go in pieces, two for each of two ranks; odd ones too, with A and scales of rows. */
RANKS_TEST(test_fused_pieces, 2)
{
    weft_group *world = begin(rank);
    const int64_t rows = 1037;
    weft_tensor *shard = uniform(WEFT_F32, WEFT_SHAPE(rows, 16)), *all, *out, *a = NULL;
    weft_tensor *b = uniform(WEFT_F32, WEFT_SHAPE(16, 8));
    for (int keep = 0; keep < 2; keep++) {
        CHECK_OK(weft_all_gather_matmul(keep ? &a : NULL, &out, shard, &b, 1, 0, world));
        CHECK_INT(lines_of(world, "ag_matmul", "chunk"), 4);
        all = weft_all_gather_tensor(shard, 0, world);
        CHECK(is_close(out, weft_mm(all, b)) && (!keep || weft_equal(here(a), here(all))));
    }
    out = weft_matmul_reduce_scatter(all, b, WEFT_SUM, 0, world);
    CHECK_INT(lines_of(world, "matmul_rs", "chunk"), 4);
    CHECK(is_close(out, weft_reduce_scatter_tensor(weft_mm(all, b), WEFT_SUM, 0, world)));
    weft_tensor *small = uniform(WEFT_F8E4M3, WEFT_SHAPE(rows, 16));
    weft_tensor *scale = weft_add_scalar(uniform(WEFT_F32, WEFT_SHAPE(rows, 1)), 0.5);
    weft_scaled right = {.b = column_major(uniform(WEFT_F8E4M3, WEFT_SHAPE(16, 16))),
                         .scale = full_of(WEFT_SHAPE(1, 16), 0.1),
                         .dtype = WEFT_F32};
    CHECK_OK(weft_all_gather_scaled_matmul(NULL, &out, small, scale, &right, 1, 0, world));
    CHECK_INT(lines_of(world, "ag_scaled_mm", "chunk"), 4);
    weft_tensor *left = weft_mul(weft_to_dtype(small, WEFT_F32), scale);
    left = weft_all_gather_tensor(left, 0, world);
    weft_tensor *exact = weft_mul_scalar(weft_mm(left, weft_to_dtype(right.b, WEFT_F32)), 0.1);
    CHECK(weft_allclose(here(out), here(exact), 1e-4, 1e-4, false));
    leave(world);
}

/* ---- a fused call meets on the host, a collective on the device ---- */

/* Everybody has a carrier for the group on the device, and with `lane` a lane as well. */
static weft_group *open_group(weft_group *world, int size, bool lane)
{
    static const int ranks[] = {0, 1, 2};
    weft_group *group = weft_group_new(world, ranks, size, NULL);
    weft_tensor *x = full_of(WEFT_SHAPE(5), 1), *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_OK(weft_group_set_timeout(group, 20000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    CHECK_OK(weft_stream_sync(weft_stream_current(FUSED_DEVICE), 20000));
    if (lane)
        CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, group));
    return group;
}

/* A fused call, or collectives on the device; how it ends for this rank. */
static weft_status fuse_or_reduce(weft_group *group, bool fuses, int times)
{
    weft_tensor *a = full_of(WEFT_SHAPE(4, 8), 1), *b = full_of(WEFT_SHAPE(8, 4), 1), *out = NULL;
    weft_tensor *x = full_of(WEFT_SHAPE(7), 1);
    if (fuses) {
        weft_status status = weft_all_gather_matmul(NULL, &out, a, &b, 1, 0, group);
        CHECK(!out);
        return status;
    }
    for (int i = 0; i < times; i++) /* a late one finds that the group has ended */
        WEFT_TRY(weft_all_reduce_into(x, x, WEFT_MAX, group));
    return weft_stream_sync(weft_stream_current(FUSED_DEVICE), 25000);
}

/* Both calls, with the ranks that made them; the finder is one that waits on the host.  Of more calls
 * than are remembered the kind is told alone, unless it looks before so many are there. */
static void check_both_calls(weft_group *group, int lone, bool lone_fuses, int times)
{
    char finder[64], reduced[96], many[96];
    const char *text = weft_last_error();
    bool found = false;
    for (int host = 0; host < 3; host++) {
        snprintf(finder, sizeof finder, "rank %d calls all_gather_matmul", host);
        found |= (host == lone) == lone_fuses && strstr(text, finder);
    }
    for (int there = 0; found && there < 3; there++) {
        snprintf(reduced, sizeof reduced,
                 "but rank %d calls all_reduce of 7 f32, max, on its device", there);
        snprintf(many, sizeof many, "but rank %d calls collectives on a device", there);
        if ((there == lone) != lone_fuses &&
            (strstr(text, reduced) || (times > 8 && strstr(text, many))))
            return;
    }
    FAIL("group %s: %s", weft_group_name(group), text);
}

/* All members learn it by the two calls, long before their limit, whoever is the odd one out, and
 * also where the fused call is the first that needs the group's lane.  The next group works. */
RANKS_TEST(test_fused_against_a_collective, 3)
{
    weft_group *world = begin(rank);
    for (int how = 0; how < 12; how++) {
        weft_scope_open();
        bool lane = how & 1, lone_fuses = how & 2;
        int lone = how / 4, times = how == 8 ? 12 : 1;
        weft_group *group = open_group(world, size, lane);
        bool fuses = (rank == lone) == lone_fuses;
        CHECK_STATUS(fuse_or_reduce(group, fuses, times), WEFT_ERR_MISMATCH);
        check_both_calls(group, lone, lone_fuses, times);
        weft_clear_error();
        weft_tensor *x = full_of(WEFT_SHAPE(7), 1);
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, group), WEFT_ERR_MISMATCH);
        weft_clear_error();
        weft_scope_close();
    }
    check_gather(world, 0);
    leave(world);
}

/* Calls that are posted, captured or replayed are no reason to end a group, however long a rank
 * waits for one that has given its device more than it has itself. */
RANKS_TEST(test_fused_waits_for_the_slow, 2)
{
    weft_group *world = begin(rank), *group = open_group(world, size, true);
    weft_stream *stream = weft_stream_current(FUSED_DEVICE);
    weft_tensor *x = full_of(WEFT_SHAPE(5), 1), *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    weft_work *work = weft_all_reduce_start(y, y, WEFT_SUM, group);
    CHECK(work);
    if (rank == 0) /* waits for it before it gives the device anything, and the other one after */
        CHECK_OK(weft_work_wait(work, 20000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    if (rank == 1)
        usleep(20000);
    CHECK_OK(weft_work_wait(work, 20000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group)); /* on the stream that is captured */
    CHECK_OK(weft_stream_sync(stream, 20000));
    weft_replay *noted = NULL;
    if (rank == 1) { /* the other one calls what this one replays */
        CHECK_OK(weft_capture_begin(stream));
        for (int i = 0; i < 3; i++)
            CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        CHECK(noted = weft_capture_end(stream));
        usleep(20000);
    }
    check_gather(group, 0);
    for (int i = 0; i < 3 && rank == 0; i++)
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    if (rank == 1)
        CHECK_OK(weft_replay_run(noted));
    if (rank == 0)
        usleep(20000);
    check_gather(group, 0);
    CHECK(weft_item(x, 4) == 32);
    leave(world);
}

int main(int argc, char **argv)
{
    if (!is_real())
        model_install();
    weft_symm_allow_overlap(true);
    setenv("WEFT_FUSED_CHUNKS", "4", 1);
    return harness_main(argc, argv);
}
