/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/nccl/collective.c, backends/nccl/comm.c, backends/nccl/carrier.c,
 * backends/nccl/ending.c, backends/nccl/watch.c, backends/nccl/library.c, backends/nccl/nccl.c */
/*
 * Collectives of CUDA tensors by NCCL, ranks as processes and as threads: on the stand-in over the
 * software driver, each rank with a device of its own; or with WEFT_TEST_CUDA=real on NCCL itself
 * and one GPU, over sockets (scripts/gpu-check).
 */
#include "nccl/scene.h"

/* ---- loading ---- */

static void check_refused(const char *why)
{
    weft_backend_info info = {0};
    const weft_i_nccl *nccl;
    weft_i_nccl_forget();
    CHECK_STATUS(weft_i_nccl_load(&nccl), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), why);
    weft_clear_error();
    for (int i = 0; i < weft_backend_count(); i++) {
        CHECK_OK(weft_backend_describe(i, &info));
        if (!strcmp(info.name, "nccl"))
            break;
    }
    CHECK(!info.usable && !strcmp(info.device, "cuda"));
    CHECK_CONTAINS(info.reason, why);
    CHECK_STATUS(weft_last_status(), WEFT_OK); /* to ask is no error */
}

static void check_found(int version, const char *text)
{
    weft_backend_info info = {0};
    const weft_i_nccl *nccl;
    standin.version = version;
    weft_i_nccl_forget();
    CHECK_OK(weft_i_nccl_load(&nccl));
    CHECK_INT(nccl->version, version);
    CHECK_INT(nccl->ncclGetLsaDevicePointer != NULL, version >= 22902);
    for (int i = 0; i < weft_backend_count() && strcmp(info.name ? info.name : "", "nccl"); i++)
        CHECK_OK(weft_backend_describe(i, &info));
    CHECK(info.usable);
    CHECK_CONTAINS(info.reason, text);
}

TEST(test_nccl_loading)
{
    ONLY_STANDIN();
    char reason[192];
    model.no_library = 1; /* first: a driver that was loaded stays so */
    CHECK_INT(weft_i_backend_named("nccl")->probe(reason, sizeof reason), 0);
    CHECK_CONTAINS(reason, "NCCL 2.29.7, but there is no libcuda.so.1");
    model.no_library = 0;
    standin.no_library = 1;
    check_refused("libnccl.so.2 cannot be loaded");
    standin.no_library = 0;
    standin.version = 22705;
    check_refused("NCCL 2.27.5; 2.28 is the oldest");
    standin.version = 30001;
    check_refused("NCCL 3.0.1, of which this weft knows nothing");
    check_found(22800, "NCCL 2.28.0");
    check_found(23203, "NCCL 2.32.3"); /* later ones read the config by its version */
    standin.lacks = "ncclCommWindowRegister";
    check_refused("has no ncclCommWindowRegister");
    standin.lacks = "ncclGetVersion";
    check_refused("does not tell its version");
    standin.lacks = NULL;
    setenv("WEFT_NCCL", "off", 1);
    check_refused("WEFT_NCCL is off");
    setenv("WEFT_NCCL", "always", 1);
    setenv("WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    check_refused("/nowhere/libnccl.so.2 cannot be loaded");
    unsetenv("WEFT_NCCL_LIBRARY");
    standin.version = 0;
    weft_i_nccl_forget();
}

/* ---- collectives ---- */

/* The same calls on the CPU and by NCCL give the same. */
static void run_kinds(weft_group *world, int rank, int size, weft_dtype dtype)
{
    weft_tensor *in[2], *out[2], *whole[2];
    weft_device devices[2] = {WEFT_CPU, GPU};
    for (int k = 0; k < 2; k++) {
        uint64_t before = given(world);
        in[k] = operand(dtype, rank, WEFT_SHAPE(size, 5), devices[k]);
        out[k] = operand(dtype, 9, WEFT_SHAPE(size, 5), devices[k]);
        whole[k] = operand(dtype, 9, WEFT_SHAPE(size * size, 5), devices[k]);
        weft_tensor *one = weft_slice(out[k], 0, 1, 2, 1);
        CHECK_OK(weft_all_reduce_into(out[k], in[k], WEFT_SUM, world));
        CHECK_OK(weft_all_gather_into(whole[k], in[k], world));
        CHECK_OK(weft_reduce_scatter_into(one, in[k], WEFT_SUM, world));
        CHECK_OK(weft_broadcast_in_place(weft_slice(whole[k], 0, 0, 2, 1), 1, world));
        CHECK_OK(weft_gather_into(rank == 1 ? whole[k] : NULL, in[k], 1, world));
        CHECK_OK(weft_all_to_all_into(out[k], in[k], NULL, NULL, world));
        CHECK_OK(weft_scatter_into(in[k], rank == 0 ? whole[k] : NULL, 0, world));
        CHECK_OK(weft_reduce_into(rank == 1 ? out[k] : NULL, in[k], WEFT_SUM, 1, world));
        CHECK_OK(weft_all_reduce_into(in[k], in[k], WEFT_SUM, world));
        weft_clear_error();
        if (k)
            CHECK_GIVEN(world, before, 9);
    }
    check_same("all_to_all, reduce_scatter, reduce", out[1], out[0]);
    check_same("all_gather, broadcast, gather", whole[1], whole[0]);
    check_same("scatter, in place", in[1], in[0]);
}

RANKS_TEST(test_nccl_kinds, 2)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_I64};
    weft_group *world = begin(rank, 30000);
    for (int d = 0; d < 3; d++) {
        weft_scope_open();
        run_kinds(world, rank, size, dtypes[d]);
        weft_scope_close();
    }
    end(world);
}

/* More than fits the buffers, and more than two ranks. */
RANKS_TEST(test_nccl_large, 4)
{
    ONLY_STANDIN();
    weft_group *world = begin(rank, 30000);
    weft_tensor *here = large(WEFT_F32, rank, 200, WEFT_CPU), *there = weft_to(here, WEFT_F32, GPU);
    weft_tensor *part = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(50, 1000));
    weft_tensor *host_part = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(50, 1000));
    check_same("all_gather", weft_all_gather_tensor(there, 0, world),
               weft_all_gather_tensor(here, 0, world));
    CHECK_OK(weft_reduce_scatter_into(part, there, WEFT_SUM, world));
    CHECK_OK(weft_reduce_scatter_into(host_part, here, WEFT_SUM, world));
    check_same("reduce_scatter", part, host_part);
    check_same("all_to_all", weft_all_to_all_single(there, NULL, NULL, world),
               weft_all_to_all_single(here, NULL, NULL, world));
    check_same("all_reduce", weft_all_reduce(there, WEFT_SUM, world),
               weft_all_reduce(here, WEFT_SUM, world));
    CHECK_GIVEN(world, 0, 4);
    end(world);
}

/* What NCCL has for every dtype and reduction; the rest goes weft's own way, with its results. */
RANKS_TEST(test_nccl_reductions, 2)
{
    weft_group *world = begin(rank, 30000);
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int op = 0; op < WEFT_REDUCTIONS; op++) {
            weft_scope_open();
            weft_set_premul(rank ? 0.5 : 2);
            weft_tensor *here = operand((weft_dtype)dtype, rank, WEFT_SHAPE(33), WEFT_CPU);
            weft_tensor *there = weft_to(here, (weft_dtype)dtype, GPU);
            weft_status status = weft_all_reduce_into(here, here, (weft_reduction)op, world);
            uint64_t before = given(world);
            CHECK_STATUS(weft_all_reduce_into(there, there, (weft_reduction)op, world), status);
            bool is_float = dtype <= WEFT_BF16, has = dtype != WEFT_F8E4M3 &&
                                                      dtype != WEFT_F8E5M2 && dtype != WEFT_I16 &&
                                                      dtype != WEFT_U16 && dtype != WEFT_BOOL;
            bool exact = op == WEFT_SUM || op == WEFT_PRODUCT || (op == WEFT_AVG && is_float) ||
                         ((op == WEFT_MIN || op == WEFT_MAX) && !is_float) ||
                         (op == WEFT_PREMUL_SUM && dtype <= WEFT_F32);
            if (status == WEFT_OK)
                check_same(weft_reduction_name((weft_reduction)op), there, here);
            if (status == WEFT_OK && comm_of(world))
                CHECK_GIVEN(world, before, has && exact);
            weft_clear_error();
            weft_scope_close();
        }
    weft_set_premul(1);
    end(world);
}

/* A list is one operation of NCCL, and so are unequal parts. */
RANKS_TEST(test_nccl_lists, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *in[2][3], *out[2][3], *sums[2][2], *rows[2];
    const int64_t in_splits[] = {1 + rank, 3 - rank}, out_splits[] = {1 + 2 * rank, 2};
    for (int k = 0; k < 2; k++) {
        weft_device device = k ? GPU : WEFT_CPU;
        uint64_t before = given(world);
        int groups = standin_groups();
        for (int i = 0; i < 3; i++) {
            in[k][i] = operand(WEFT_F16, rank + i, WEFT_SHAPE(4 + 2 * i), device);
            out[k][i] = operand(WEFT_F16, 7, WEFT_SHAPE(4 + 2 * i), device);
        }
        for (int i = 0; i < 2; i++)
            sums[k][i] = operand(WEFT_F16, 7, WEFT_SHAPE(2 + i), device);
        rows[k] = operand(WEFT_F32, 5, WEFT_SHAPE(3 + 2 * rank, 3), device);
        CHECK_OK(weft_all_reduce_list_into(out[k], in[k], 3, WEFT_SUM, world));
        CHECK_OK(weft_reduce_scatter_list_into(sums[k], in[k], 2, WEFT_SUM, world));
        CHECK_OK(weft_all_to_all_into(rows[k], operand(WEFT_F32, rank, WEFT_SHAPE(4, 3), device),
                                      out_splits, in_splits, world));
        if (k && comm_of(world))
            CHECK_GIVEN(world, before, 3);
        if (k && !is_real() && !harness_in_threads)
            CHECK_INT(standin_groups() - groups, 3);
    }
    for (int i = 0; i < 3; i++)
        check_same("all_reduce of a list", out[1][i], out[0][i]);
    for (int i = 0; i < 2; i++)
        check_same("reduce_scatter of a list", sums[1][i], sums[0][i]);
    check_same("all_to_all by rows", rows[1], rows[0]);
    weft_tensor *lists[2][2];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++)
            lists[k][i] = operand(WEFT_F16, 3, WEFT_SHAPE(4 + 2 * rank), k ? GPU : WEFT_CPU);
        CHECK_OK(weft_all_to_all_list_into(lists[k], in[k], world));
        weft_tensor *parts[2] = {operand(WEFT_F16, 1, WEFT_SHAPE(4), k ? GPU : WEFT_CPU),
                                 operand(WEFT_F16, 1, WEFT_SHAPE(6), k ? GPU : WEFT_CPU)};
        CHECK_OK(weft_all_gather_parts_into(parts, in[k][rank], world)); /* compared by the host */
        check_same("own part", k ? parts[rank] : weft_to(parts[rank], WEFT_F16, GPU), in[0][rank]);
    }
    check_same("all_to_all of a list", lists[1][0], lists[0][0]);
    check_same("all_to_all of a list", lists[1][1], lists[0][1]);
    end(world);
}

/* Posted and functional ones are ordered by their streams. */
RANKS_TEST(test_nccl_work, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *host = large(WEFT_F32, rank, 50, WEFT_CPU), *want = weft_empty_like(host);
    weft_tensor *x = weft_to(host, WEFT_F32, GPU), *out = weft_empty_like(x);
    CHECK_OK(weft_all_reduce_into(want, host, WEFT_SUM, world));
    weft_work *work = weft_all_reduce_start(out, x, WEFT_SUM, world);
    CHECK(work);
    CHECK_OK(weft_work_wait(work, 30000));
    check_same("posted", out, want);
    weft_stream *mine = weft_keep(weft_stream_current(GPU)), *other = weft_stream_new(GPU, false);
    CHECK_OK(weft_fill(out, 0));
    work = weft_all_reduce_start(out, x, WEFT_SUM, world);
    CHECK_OK(weft_work_order(work, other));
    CHECK_OK(weft_stream_use(other));
    weft_tensor *copy = weft_clone(out);
    check_same("ordered", copy, want);
    CHECK_OK(weft_all_reduce_into(copy, x, WEFT_SUM, world)); /* behind the one on `mine` */
    check_same("on another stream", copy, want);
    CHECK_OK(weft_stream_use(mine));
    weft_release(mine);
    check_same("functional", weft_all_reduce(x, WEFT_SUM, world), want);
    CHECK_INT(weft_unwaited(world), 0);
    weft_tensor *none = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(0));
    CHECK_OK(weft_all_reduce_into(none, none, WEFT_SUM, world));
    check_same("after nothing", weft_all_reduce(x, WEFT_SUM, world), want);
    end(world);
}

/* ---- choices ---- */

/* The threshold is set, as WEFT_TUNE does, between two calls of all ranks. */
static void set_threshold(weft_group *world, size_t bytes)
{
    CHECK_OK(weft_group_barrier(world, 30000));
    CHECK_OK(weft_tune_set(WEFT_TUNE_NCCL, "all_reduce", 2, bytes));
    CHECK_OK(weft_group_barrier(world, 30000));
}

/* Ranks that are threads share their environment: one changes it, once all are in the test and
 * before any of them goes on, for nobody may read it meanwhile. */
static void set_shared(int rank, int size, const char *name, const char *value)
{
    static atomic_bool is_set;
    if (!harness_in_threads) {
        setenv(name, value, 1);
        return;
    }
    harness_mark();
    for (int other = 0; other < size; other++)
        CHECK(harness_await(other, 1));
    if (rank == 0) {
        setenv(name, value, 1);
        atomic_store_explicit(&is_set, true, memory_order_release);
    }
    /* Pairs with the release above: the others see what was set. */
    while (!atomic_load_explicit(&is_set, memory_order_acquire))
        rest_us(100);
}

/* Did NCCL carry the last one, whose threads may have moved the data through the caches? */
static bool is_cold(weft_group *group)
{
    return weft_i_carrier_opened(group, WEFT_I_KIND_CUDA)->lines.cold;
}

/* By size; in a capture weft's own kernels. */
RANKS_TEST(test_nccl_choice, 2)
{
    ONLY_STANDIN();
    set_shared(rank, size, "WEFT_NCCL", "auto");
    weft_group *world = begin(rank, 30000);
    weft_tensor *small = operand(WEFT_F32, rank, WEFT_SHAPE(100), GPU);
    weft_tensor *x = large(WEFT_F32, rank, 1100, GPU); /* 4.4 MB */
    weft_tensor *want = weft_all_reduce(weft_to(x, WEFT_F32, WEFT_CPU), WEFT_SUM, world);
    CHECK(weft_wait_tensor(want)); /* nothing of the lane comes between the calls that follow */
    CHECK_OK(weft_all_reduce_into(small, small, WEFT_SUM, world));
    CHECK(comm_of(world));
    CHECK_GIVEN(world, 0, 0);
    CHECK(!world->fast && !is_cold(world)); /* how the next call begins: coll/device/fast.h */
    check_same("large", weft_all_reduce(x, WEFT_SUM, world), want);
    CHECK_GIVEN(world, 0, 1);
    CHECK(world->fast && is_cold(world));
    weft_stream *stream = weft_stream_current(GPU);
    CHECK_OK(weft_stream_sync(stream, 30000));
    weft_tensor *out = weft_empty_like(x);
    CHECK_OK(weft_capture_begin(stream));
    CHECK_OK(weft_all_reduce_into(out, x, WEFT_SUM, world));
    weft_replay *replay = weft_capture_end(stream);
    CHECK(replay);
    CHECK_OK(weft_replay_run(replay));
    check_same("captured", out, want);
    CHECK_GIVEN(world, 0, 1);
    size_t usual = weft_tune_get(WEFT_TUNE_NCCL, "all_reduce", 2);
    CHECK(usual > 400 && usual <= 4400000);
    set_threshold(world, 401);
    CHECK_OK(weft_all_reduce_into(small, small, WEFT_SUM, world)); /* of 400 bytes */
    CHECK_GIVEN(world, 0, 1);
    set_threshold(world, 400);
    CHECK_OK(weft_all_reduce_into(small, small, WEFT_SUM, world));
    CHECK_GIVEN(world, 0, 2);
    CHECK(is_cold(world));
    set_threshold(world, SIZE_MAX);
    check_same("never", weft_all_reduce(x, WEFT_SUM, world), want);
    CHECK_GIVEN(world, 0, 2);
    CHECK(world->fast && !is_cold(world));
    set_threshold(world, usual);
    end(world);
}

/* Ranks on one GPU without an id of their own: NCCL would refuse, so it is not asked. */
RANKS_TEST(test_nccl_one_gpu, 2)
{
    ONLY_STANDIN();
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CUDA(0), WEFT_SHAPE(10));
    int before = standin_calls("ncclCommInitRankConfig");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 2 && !comm_of(world));
    CHECK_INT(standin_calls("ncclCommInitRankConfig"), before);
    end(world);
}

/* Without the library everything goes on. */
RANKS_TEST(test_nccl_missing, 2)
{
    ONLY_STANDIN();
    standin.no_library = 1;
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 2 && !comm_of(world));
    end(world);
}

/* One rank has another version, none, or another setting: nobody uses NCCL, and all agree. */
RANKS_TEST(test_nccl_versions, 2)
{
    ONLY_STANDIN();
    if (harness_in_threads)
        return; /* there is one library for all threads */
    standin.version = rank ? 22809 : 23004;
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 2 && !comm_of(world));
    weft_i_nccl_forget();
    standin.version = 0;
    standin.no_library = rank;
    weft_group *again = weft_group_new(world, (int[]){0, 1}, 2, "again");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, again));
    CHECK(weft_item(x, 9) == 4 && !comm_of(again));
    weft_release(again);
    weft_i_nccl_forget();
    standin.no_library = 0;
    setenv("WEFT_NCCL", rank ? "auto" : "always", 1);
    weft_group *other = weft_group_new(world, (int[]){0, 1}, 2, "other");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, other));
    CHECK(weft_item(x, 9) == 8 && !comm_of(other));
    weft_release(other);
    setenv("WEFT_NCCL", "always", 1);
    size_t usual = weft_tune_get(WEFT_TUNE_NCCL, "all_gather", 2);
    CHECK_OK(weft_tune_set(WEFT_TUNE_NCCL, "all_gather", 2, usual + (size_t)rank));
    weft_group *tuned = weft_group_new(world, (int[]){0, 1}, 2, "tuned");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, tuned));
    CHECK(weft_item(x, 9) == 16 && !comm_of(tuned));
    weft_release(tuned);
    CHECK_OK(weft_tune_set(WEFT_TUNE_NCCL, "all_gather", 2, usual));
    weft_group *alike = weft_group_new(world, (int[]){0, 1}, 2, "alike");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, alike));
    CHECK(weft_item(x, 9) == 32 && comm_of(alike));
    weft_release(alike);
    end(world);
}

/* ---- failures ---- */

/* A rank whose part of the meeting never comes: the limit ends it, and weft's kernels take over. */
RANKS_TEST(test_nccl_init_stuck, 2)
{
    ONLY_STANDIN();
    standin.stuck = 1;
    weft_group *world = begin(rank, 1500);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    weft_status status = weft_all_reduce_into(x, x, WEFT_SUM, world);
    CHECK(status == WEFT_OK || status == WEFT_ERR_TIMEOUT);
    CHECK(!comm_of(world));
    end(world);
}

RANKS_TEST(test_nccl_init_fails, 2)
{
    ONLY_STANDIN();
    static const char *const functions[] = {"ncclGetUniqueId", "ncclCommInitRankConfig"};
    weft_group *world = begin(rank, 30000);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_group_barrier(world, 30000));
        standin.fail = functions[i];
        standin.fail_with = WEFT_I_ncclSystemError;
        CHECK_OK(weft_group_barrier(world, 30000));
        weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, functions[i]);
        weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        CHECK(weft_item(x, 9) == 2 && !comm_of(group));
        weft_release(group);
    }
    end(world);
}

/* Rank 1 never calls: the limit of rank 0's call ends it. */
RANKS_TEST(test_nccl_peer_never_comes, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 2);
    CHECK_OK(weft_group_set_timeout(world, 400));
    if (rank == 0) {
        long long began = harness_now();
        weft_status status = weft_all_reduce_into(x, x, WEFT_SUM, world);
        status = status < 0 ? status : weft_stream_sync(weft_stream_current(GPU), 20000);
        CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "has not ended within its limit");
        CHECK_CONTAINS(weft_last_error(), "all_reduce");
        CHECK(harness_now() - began < 10 * 1000000000LL);
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_TIMEOUT);
        weft_clear_error();
        harness_mark();
    }
    CHECK(harness_await(0, 1));
    end(world);
}

/* What NCCL tells afterwards ends everything in the group, with its own words. */
RANKS_TEST(test_nccl_async_error, 2)
{
    ONLY_STANDIN();
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 2);
    CHECK_OK(weft_group_barrier(world, 30000));
    atomic_store(&standin.error, WEFT_I_ncclRemoteError);
    weft_status status = WEFT_OK;
    for (int ms = 0; ms < 20000 && status == WEFT_OK; ms++) {
        rest_us(1000);
        status = weft_i_nccl_comm_check(comm_of(world));
    }
    CHECK_STATUS(status, WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "remote process exited");
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_UNREACHABLE);
    weft_clear_error();
    end(world);
}

/* A call that NCCL refuses is an error of the call. */
RANKS_TEST(test_nccl_call_refused, 2)
{
    ONLY_STANDIN();
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(weft_group_barrier(world, 30000));
    standin.fail = "ncclAllReduce";
    standin.fail_with = WEFT_I_ncclInvalidArgument;
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "NCCL says \"invalid argument\"");
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, 30000));
    standin.fail = NULL;
    CHECK_OK(weft_group_barrier(world, 30000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 4);
    end(world);
}

/* A rank dies inside an all_reduce: survivors learn it, by its number, and go on without it. */
RANKS_TEST(test_nccl_kill, 3)
{
    if (harness_in_threads)
        return; /* a thread cannot die alone */
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 3 && comm_of(world));
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == 2) {
        harness_rank_dies();
        CHECK(harness_await(0, 1) && harness_await(1, 1));
        rest_us(20000); /* their kernels wait by now; if not, they will */
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    harness_mark();
    long long began = harness_now();
    CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), 20000), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    CHECK(harness_now() - began < 12 * 1000000000LL);
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    weft_clear_error();
    weft_group *rest = weft_group_shrink(world);
    CHECK(rest && weft_size(rest) == 2);
    weft_tensor *y = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1000));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, rest));
    CHECK(weft_item(y, 999) == 2 && comm_of(rest));
    weft_clear_error();
    weft_release(rest);
    weft_scope_close();
    weft_finish(world);
    weft_clear_error();
    weft_release(world);
}

/* A group that is revoked while an all_reduce waits. */
RANKS_TEST(test_nccl_revoked, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1000));
    weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, "revoked");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    CHECK(weft_item(x, 9) == 2);
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == 0) {
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        harness_mark();
        CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), 20000), WEFT_ERR_REVOKED);
        CHECK_CONTAINS(weft_last_error(), "rank 0 of 2 in group \"revoked\"");
        weft_clear_error();
    } else {
        CHECK(harness_await(0, 1));
        CHECK_OK(weft_group_revoke(group));
    }
    CHECK_OK(weft_group_barrier(world, 30000)); /* the world goes on */
    weft_release(group);
    end(world);
}

/* A rank that leaves while another's all_reduce waits for it. */
RANKS_TEST(test_nccl_left, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1000));
    weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, "left");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    CHECK(weft_item(x, 9) == 2);
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == 0) {
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        harness_mark();
        weft_status status = weft_stream_sync(weft_stream_current(GPU), 20000);
        CHECK(status == WEFT_ERR_PEER_LEFT || status == WEFT_ERR_UNREACHABLE);
        weft_clear_error();
    } else {
        CHECK(harness_await(0, 1));
    }
    weft_release(group);
    end(world);
}

/* A rank that leaves when its part is done: the others' end all the same, however late. */
RANKS_TEST(test_nccl_left_done, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 2);
    CHECK_OK(weft_group_barrier(world, 30000));
    standin.held = 1 + 1; /* rank 1's stream */
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    if (rank == 0) {
        CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 20000));
        CHECK(!weft_finish(world));
        CHECK(comm_of(world)->finalized && !comm_of(world)->raw); /* and destroyed */
        harness_mark();
        weft_scope_close();
        let_go(world);
        return;
    }
    CHECK(harness_await(0, 1));
    for (int ms = 0; ms < 400; ms++) { /* a rank that is missed is told after 100 */
        CHECK_OK(weft_i_nccl_comm_check(comm_of(world)));
        rest_us(1000);
    }
    standin.held = 0;
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 20000));
    CHECK(weft_item(x, 999) == 4);
    end(world);
}

/* A rank that leaves with calls under way waits for their end. */
RANKS_TEST(test_nccl_left_early, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 2);
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == 0) {
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
        harness_mark();
        CHECK(!weft_finish(world));
        CHECK(comm_of(world)->finalized && !comm_of(world)->raw); /* and destroyed */
        weft_scope_close();
        let_go(world);
        return;
    }
    CHECK(harness_await(0, 1));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 20000));
    CHECK(weft_item(x, 999) == 4);
    end(world);
}

/* What a root has given to NCCL reaches the others also when its process is gone at once. */
RANKS_TEST(test_nccl_left_root, 2)
{
    enum { ROWS = 16000 }; /* 64 MB */
    weft_group *world = begin(rank, 60000);
    weft_tensor *x = large(WEFT_F32, rank, ROWS, GPU);
    CHECK_OK(weft_broadcast_in_place(x, 0, world));
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 60000));
    if (rank == 0) {
        CHECK(!weft_finish(world));
        CHECK(!comm_of(world)->raw);
        CHECK_STATUS(weft_i_nccl_comm_enter(comm_of(world), NULL, "broadcast"), WEFT_ERR_STATE);
        CHECK_CONTAINS(weft_last_error(), "this rank has left its world");
        weft_clear_error();
        weft_scope_close();
        let_go(world);
        return;
    }
    check_same("broadcast", x, large(WEFT_F32, 0, ROWS, WEFT_CPU));
    end(world);
}

/* A peer that never reads what was sent keeps nobody from leaving. */
RANKS_TEST(test_nccl_left_unread, 1)
{
    ONLY_STANDIN();
    if (harness_in_threads)
        SKIP("it takes 5 s, and processes show it");
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    weft_scope_close();
    standin.unread = 1;
    int64_t began = WEFT_OS->clock_ns();
    CHECK(!weft_finish(world));
    int64_t ms = (WEFT_OS->clock_ns() - began) / 1000000;
    CHECK(ms >= 4900 && ms < 20000);
    CHECK(standin_live() > 0);
    standin.unread = 0;
    weft_release(world);
    for (ms = 0; ms < 10000 && standin_live(); ms++)
        rest_us(1000);
    CHECK_INT(standin_live(), 0);
}

int main(int argc, char **argv)
{
    return scene_main(argc, argv);
}
