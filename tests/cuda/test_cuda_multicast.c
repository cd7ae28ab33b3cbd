/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/device/multicast.c, backends/cuda/device/nvlink.c,
 * backends/cuda/ranks/multimem.c */
/*
 * Multicast on the software driver, a device for each rank: how it is made in agreed stages and
 * undone by a fault in any of them, and what goes by it, at every alignment.  The tests of the
 * reference are in test_symm_coll.c.  On GPUs that have it the same runs with WEFT_TEST_CUDA=real.
 */
#define WEFT_TEST_ON_CUDA
#include "device.h"

#include "jobs.h"
#include "symm_info.h"
#include "way_of.h"

#include "backends/cuda/device/retire.h"
#include "base/report/record.h"
#include "fabric/group/group.h"
#include "symm/registration.h"

static void need_multicast(int rank, int size)
{
    const char *why_not = device_spread(rank, size);
    if (why_not)
        SKIP("%s", why_not);
}

static weft_status sync_stream(void)
{
    return weft_stream_sync(weft_stream_current(DEVICE), 30000);
}

static weft_tensor *symmetric(weft_dtype dtype, int64_t count)
{
    weft_tensor *x = weft_symm_empty(dtype, DEVICE, WEFT_SHAPE(count));
    if (!x)
        FAIL("weft_symm_empty: %s", weft_last_error());
    return x;
}

static weft_symm *meet(weft_tensor *x, weft_group *group)
{
    weft_symm *mem = weft_symm_rendezvous(x, group);
    if (!mem)
        FAIL("rendezvous: %s", weft_last_error());
    return mem;
}

/* What the ranks have at element i of an operand: small, so that every order of additions gives the
 * same sum. */
static double value(int rank, int64_t i)
{
    return (double)((i * 7 + rank * 3) % 11 - 5);
}

static void set(weft_tensor *x, int rank)
{
    int64_t count = weft_tensor_numel(x);
    weft_tensor *here = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
    float *data = weft_tensor_data(here);
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)value(rank, i);
    CHECK_OK(weft_copy(
        x, weft_to(weft_to(here, weft_tensor_dtype(x), WEFT_CPU), weft_tensor_dtype(x), DEVICE)));
}

/* Elements [first, first + count) are the sums, all others are `rest`. */
static void check_sums(const char *what, weft_tensor *x, int64_t first, int64_t count, int size,
                       double rest)
{
    weft_tensor *here = weft_to(x, WEFT_F32, WEFT_CPU);
    if (!here)
        FAIL("%s: %s", what, weft_last_error());
    const float *data = weft_tensor_data(here);
    for (int64_t i = 0; i < weft_tensor_numel(x); i++) {
        double want = rest;
        if (i >= first && i < first + count) {
            want = 0;
            for (int rank = 0; rank < size; rank++)
                want += value(rank, i - first);
        }
        if (data[i] != (float)want)
            FAIL("%s: element %lld, of %lld from %lld on, is %g, not %g", what, (long long)i,
                 (long long)count, (long long)first, (double)data[i], want);
    }
}

/* ---- what goes by it ---- */

static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
static const int64_t counts[] = {0, 1, 2, 3, 7, 8, 9, 31, 64, 257};

/* Two shots, in place: every place of the first element among 16 bytes, whole and cut units. */
RANKS_TEST(test_cuda_multimem_all_reduce_any, 3)
{
    need_multicast(rank, size);
    weft_group *world = join(30000);
    for (int d = 0; d < 3; d++) {
        weft_tensor *room = symmetric(dtypes[d], 300);
        CHECK(symm_info(meet(room, world)).multicast_ptr);
        for (int64_t shift = 0; shift < (d ? 8 : 4); shift++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c += d || shift ? 3 : 1) {
                weft_scope_open();
                weft_tensor *x = weft_slice(room, 0, shift, shift + counts[c], 1);
                CHECK_OK(weft_fill(room, 9));
                set(x, rank);
                CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world));
                check_sums("all_reduce", room, shift, counts[c], size, 9);
                weft_scope_close();
            }
    }
    finish(world);
}

/* One shot, to any rank or to one, into memory that lies as the operand does or otherwise. */
RANKS_TEST(test_cuda_multimem_one_shot_any, 2)
{
    need_multicast(rank, size);
    weft_group *world = join(30000);
    for (int d = 0; d < 3; d++) {
        weft_tensor *room = symmetric(dtypes[d], 300), *to = weft_empty_like(room);
        for (int64_t shift = 0; shift < 4; shift++) {
            int64_t at = (shift * 3 + d) % 5, count = 258 - 3 * shift;
            weft_scope_open();
            weft_tensor *x = weft_slice(room, 0, shift, shift + count, 1);
            weft_tensor *out = weft_slice(to, 0, at, at + count, 1);
            CHECK_OK(weft_fill(to, 9));
            set(x, rank);
            CHECK_OK(weft_symm_multimem_one_shot_all_reduce_out(out, x, WEFT_SUM, world));
            check_sums("one_shot", to, at, count, size, 9);
            CHECK_OK(weft_fill(to, 9));
            CHECK_OK(weft_symm_multimem_one_shot_reduce_out(rank == 1 ? out : NULL, x, WEFT_SUM, 1,
                                                            world));
            check_sums("reduce", to, at, rank == 1 ? count : 0, size, 9);
            CHECK_OK(weft_symm_multimem_one_shot_reduce_out(rank == 0 ? x : NULL, x, WEFT_SUM, 0,
                                                            world));
            if (rank == 0)
                check_sums("reduce in place", x, 0, count, size, 9);
            weft_scope_close();
        }
    }
    finish(world);
}

/* Bytes at any place, from an input that lies elsewhere among 16 bytes. */
RANKS_TEST(test_cuda_multimem_all_gather_any, 3)
{
    need_multicast(rank, size);
    weft_group *world = join(30000);
    weft_tensor *room = symmetric(WEFT_U8, 1000);
    weft_tensor *from = weft_empty(WEFT_U8, DEVICE, WEFT_SHAPE(320));
    meet(room, world);
    for (int64_t shift = 0; shift < 20; shift += 3) {
        int64_t count = 300 - 13 * shift, at = shift * 5 % 17;
        weft_scope_open();
        weft_tensor *x = weft_slice(from, 0, at, at + count, 1);
        weft_tensor *out = weft_slice(room, 0, shift, shift + count * size, 1);
        CHECK_OK(weft_fill(room, 99));
        CHECK_OK(weft_fill(x, 10 + rank));
        CHECK_OK(weft_fill(weft_slice(x, 0, count - 1, count, 1), 20 + rank));
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* all rooms are filled */
        CHECK_OK(sync_stream());
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_OK(weft_symm_multimem_all_gather_out(out, x, world));
        weft_tensor *here = weft_to(room, WEFT_U8, WEFT_CPU);
        const unsigned char *data = weft_tensor_data(here);
        for (int64_t i = 0; i < 1000; i++) {
            int64_t in = i - shift, owner = in / (count ? count : 1);
            bool inside = in >= 0 && in < count * size;
            int want = !inside ? 99 : (int)((in % count == count - 1 ? 20 : 10) + owner);
            if (data[i] != want)
                FAIL("byte %lld is %d, not %d, of %lld from %lld on", (long long)i, data[i], want,
                     (long long)count, (long long)shift);
        }
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        weft_scope_close();
    }
    /* In place: the input is this rank's part of the output. */
    weft_tensor *all = weft_slice(room, 0, 1, 1 + 100 * size, 1);
    weft_tensor *part = weft_slice(all, 0, 100 * rank, 100 * rank + 100, 1);
    CHECK_OK(weft_fill(part, 50 + rank));
    CHECK_OK(weft_symm_multimem_all_gather_out(all, part, world));
    for (int r = 0; r < size; r++)
        CHECK(weft_item(all, 100 * r) == 50 + r && weft_item(all, 100 * r + 99) == 50 + r);
    finish(world);
}

/* What the switch cannot add is refused before anything is enqueued, and the rest still works. */
RANKS_TEST(test_cuda_multimem_refuses, 2)
{
    need_multicast(rank, size);
    weft_group *world = join(30000);
    weft_tensor *whole = symmetric(WEFT_I32, 64), *x = symmetric(WEFT_F32, 64);
    CHECK_OK(weft_fill(whole, rank + 1));
    meet(whole, world);
    CHECK_STATUS(weft_symm_multimem_all_reduce(whole, WEFT_SUM, world), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "multicast adds f32, bf16 and f16, and has no sum of i32");
    CHECK(!weft_symm_multimem_one_shot_all_reduce(x, WEFT_MAX, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "has no max of f32; the one_shot and two_shot forms have");
    weft_clear_error();
    CHECK(weft_item(whole, 63) == rank + 1);
    CHECK_OK(weft_symm_two_shot_all_reduce(whole, WEFT_SUM, world));
    CHECK(weft_item(whole, 63) == 3);
    set(x, rank);
    CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world));
    check_sums("all_reduce", x, 0, 64, size, 0);
    finish(world);
}

/* Ranks that differ, and one that does not come: told on all, and a reset makes all of it good. */
RANKS_TEST(test_cuda_multimem_mismatch, 2)
{
    need_multicast(rank, size);
    weft_group *world = join(30000);
    weft_tensor *x = symmetric(WEFT_F32, 64);
    weft_symm *mem = meet(x, world);
    for (int kind = 0; kind < 4; kind++) {
        weft_scope_open();
        weft_tensor *half = weft_slice(x, 0, kind == 1 && rank ? 8 : 0, 32, 1);
        weft_tensor *moved = weft_slice(x, 0, rank, rank + 32, 1);
        set(x, rank);
        CHECK_OK(sync_stream());
        weft_status status = WEFT_OK;
        if (kind == 0)
            status = rank ? weft_symm_multimem_all_reduce(x, WEFT_SUM, world)
                          : weft_symm_two_shot_all_reduce(x, WEFT_SUM, world);
        else if (kind < 3)
            status = weft_symm_multimem_all_reduce(kind == 1 ? half : moved, WEFT_SUM, world);
        else if (rank == 0)
            weft_group_set_timeout(world, 200),
                status = weft_symm_multimem_all_reduce(x, WEFT_SUM, world);
        status = status < 0 ? status : kind == 3 && rank ? WEFT_ERR_TIMEOUT : sync_stream();
        CHECK_INT(status, kind < 3 ? WEFT_ERR_MISMATCH : WEFT_ERR_TIMEOUT);
        weft_clear_error();
        CHECK_OK(weft_group_set_timeout(world, 30000));
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_OK(weft_symm_reset(mem, WEFT_DEFAULT));
        set(x, rank);
        CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world));
        check_sums("after a reset", x, 0, 64, size, 0);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        weft_scope_close();
    }
    finish(world);
}

RANKS_TEST(test_cuda_multimem_capture, 2)
{
    need_multicast(rank, size);
    weft_group *world = join(30000);
    weft_tensor *x = symmetric(WEFT_F32, 100), *all = symmetric(WEFT_F32, 200);
    weft_tensor *out = weft_empty_like(x);
    CHECK_OK(weft_fill(x, 1));
    meet(x, world);
    meet(all, world);
    CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world)); /* 2 */
    weft_stream *stream = weft_stream_current(DEVICE);
    CHECK_OK(weft_stream_sync(stream, 30000));
    CHECK_OK(weft_capture_begin(stream));
    CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world));
    CHECK_OK(weft_symm_multimem_one_shot_all_reduce_out(out, x, WEFT_SUM, world));
    CHECK_OK(weft_symm_multimem_all_gather_out(all, out, world));
    weft_replay *replay = weft_capture_end(stream);
    CHECK(replay);
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_replay_run(replay));
    CHECK(weft_item(x, 99) == 16 && weft_item(out, 0) == 32);
    CHECK(weft_item(all, 0) == 32 && weft_item(all, 199) == 32);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_multimem_all_gather_matmul, 2)
{
    need_multicast(rank, size);
    weft_group *world = join(30000);
    int64_t n = device_is_real() ? 1024 : 48;
    weft_tensor *shard = weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(n / size, n));
    weft_tensor *b = weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(n, n)), *out[3] = {NULL}, *a = NULL;
    shard = weft_to_dtype(shard, WEFT_BF16);
    b = weft_to_dtype(b, WEFT_BF16);
    weft_fused_use(WEFT_FUSED_MULTICAST);
    CHECK_OK(weft_all_gather_matmul(NULL, &out[0], shard, &b, 1, 0, world));
    CHECK_INT(way_of(world, "ag_matmul"), WEFT_I_WAY_MULTICAST);
    weft_fused_use(WEFT_FUSED_PAIR);
    CHECK_OK(weft_all_gather_matmul(NULL, &out[1], shard, &b, 1, 0, world));
    CHECK(weft_allclose(weft_to(out[0], WEFT_F32, WEFT_CPU), weft_to(out[1], WEFT_F32, WEFT_CPU),
                        1.6e-2, 1e-5, false));
    /* A way that cannot be gone is not: A is wanted here. */
    weft_fused_use(WEFT_FUSED_MULTICAST);
    CHECK_OK(weft_all_gather_matmul(&a, &out[2], shard, &b, 1, 0, world));
    CHECK(a && way_of(world, "ag_matmul") != WEFT_I_WAY_MULTICAST);
    finish(world);
}

/* Ranks that share a GPU take another way. */
RANKS_TEST(test_cuda_multicast_not_fused, 2)
{
    weft_group *world = join(30000);
    weft_tensor *shard = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(8, 16));
    weft_tensor *b = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(16, 4)), *out = NULL;
    weft_fused_use(WEFT_FUSED_MULTICAST);
    CHECK_OK(weft_all_gather_matmul(NULL, &out, shard, &b, 1, 0, world));
    CHECK(way_of(world, "ag_matmul") != WEFT_I_WAY_MULTICAST);
    CHECK(weft_item(weft_view(out, WEFT_SHAPE(64)), 63) == 16);
    CHECK_INT(weft_last_status(), WEFT_OK);
    finish(world);
}

/* ---- how it is made ---- */

static int open_descriptors(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    while (list && readdir(list))
        count++;
    closedir(list);
    return count;
}

/* Of the process: thread ranks count between two barriers, when nothing is under way; descriptors
 * one of them alone, since whoever counts them opens one. */
typedef struct stock {
    int mapped, descriptors;
} stock;

static stock take_stock(weft_group *world)
{
    CHECK_OK(sync_stream());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    stock now = {model_mapped(), harness_in_threads && harness_this_rank ? 0 : open_descriptors()};
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    return now;
}

/* Nothing is left of what came since.  What is retired goes when every stream has reached its mark,
 * which it does by itself. */
static void check_stock(const char *when, const stock *before, weft_group *world)
{
    CHECK_OK(sync_stream());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    for (int ms = 0; ms < 5000 && model_mapped() != before->mapped; ms++) {
        rest_us(1000);
        weft_i_cuda_reap();
    }
    stock now = take_stock(world);
    if (now.mapped != before->mapped || now.descriptors != before->descriptors)
        FAIL("after %s: %d objects, not %d; %d descriptors, not %d", when, now.mapped,
             before->mapped, now.descriptors, before->descriptors);
}

/* Whatever a handle had is given back with it. */
RANKS_TEST(test_cuda_multicast_handle, 2)
{
    need_multicast(rank, size);
    weft_group *world = join(30000);
    weft_tensor *warm = symmetric(WEFT_F32, 16);
    meet(warm, world);
    CHECK_OK(weft_symm_multimem_all_reduce(warm, WEFT_SUM, world)); /* opens the group's site */
    stock before = take_stock(world);
    for (int i = 0; i < 3; i++) {
        weft_scope_open();
        weft_tensor *x = symmetric(WEFT_F32, 1000);
        weft_symm *mem = meet(x, world);
        weft_symm_info info = symm_info(mem);
        CHECK(info.multicast_ptr && !info.why_no_multicast && !info.emulates_multicast);
        for (int r = 0; r < size; r++)
            CHECK(info.multicast_ptr != weft_symm_buffer_ptr(mem, r));
        weft_symm_info later = symm_info(meet(weft_slice(x, 0, 10, 20, 1), world));
        CHECK_INT((char *)later.multicast_ptr - (char *)info.multicast_ptr, 40);
        CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world));
        weft_scope_close(); /* nobody has waited for the kernel */
    }
    check_stock("a handle", &before, world);
    finish(world);
}

/* Ranks that share a GPU have none: all know why, and what goes by it is refused on all. */
RANKS_TEST(test_cuda_multicast_shared_device, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = symmetric(WEFT_F32, 64);
    weft_symm_info info = symm_info(meet(x, world));
    CHECK(!info.multicast_ptr && !info.emulates_multicast);
    CHECK_CONTAINS(info.why_no_multicast,
                   weft_symm_has_multicast(DEVICE) ? "share a GPU" : "has no multicast");
    CHECK_STATUS(weft_symm_multimem_all_reduce(x, WEFT_SUM, world), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), info.why_no_multicast);
    weft_clear_error();
    set(x, rank);
    CHECK_OK(weft_symm_two_shot_all_reduce(x, WEFT_SUM, world));
    check_sums("two_shot", x, 0, 64, size, 0);
    finish(world);
}

/* One member's device has none, and then a setting turns it off for one. */
RANKS_TEST(test_cuda_multicast_lacking, 2)
{
    if (device_is_real() || harness_in_threads)
        return; /* devices of one process are alike */
    if (rank == 1)
        model.multicast = 0;
    device_mine = WEFT_CUDA(rank);
    weft_group *world = join(30000);
    weft_symm_info info = symm_info(meet(symmetric(WEFT_F32, 64), world));
    CHECK(!info.multicast_ptr && weft_symm_has_multicast(DEVICE) == !rank);
    CHECK_CONTAINS(info.why_no_multicast, "the device of rank 1 (cuda:1 there) has no multicast");
    finish(world);
}

RANKS_TEST(test_cuda_multicast_off, 2)
{
    if (device_is_real() || harness_in_threads)
        return;
    device_mine = WEFT_CUDA(rank);
    setenv("WEFT_CUDA_MULTICAST", "0", 1);
    CHECK(!weft_symm_has_multicast(DEVICE));
    weft_group *world = join(30000);
    CHECK(!symm_info(meet(symmetric(WEFT_F32, 64), world)).multicast_ptr);
    CHECK_INT(model_calls("cuMulticastCreate"), 0);
    finish(world);
}

/* What fails, at its last call in a rendezvous, on which rank that can be, and what is told. */
typedef struct fault {
    const char *call;
    int only; /* this rank makes the call; -1: any */
    const char *told;
} fault;
static const fault faults[] = {
    {"cuMulticastCreate", 0, "making a multicast object"},
    {"cuMulticastAddDevice", -1, "to a multicast object"},
    {"cuMulticastBindMem", -1, "binding a block of"},
    {"cuMemAddressReserve", -1, "no addresses for multicast"},
    {"cuMemMap", -1, "mapping a multicast object"},
    {"cuMemSetAccess", -1, "to a multicast object"},
    {"cuMemExportToShareableHandle", 0, "exporting a block"},
    {"cuMemImportFromShareableHandle", 1, "importing a block"},
};

/* Calls of a function in a rendezvous: the last of them is the stage's. */
static int calls_of(const char *name, weft_tensor *x, weft_group *world)
{
    int before = model_calls(name);
    meet(x, world);
    return model_calls(name) - before;
}

static void check_fault(const fault *f, int culprit, int rank, int size, weft_group *world)
{
    weft_tensor *trial = symmetric(WEFT_F32, 64), *x = symmetric(WEFT_F32, 64);
    int last = calls_of(f->call, trial, world);
    CHECK(symm_info(meet(trial, world)).multicast_ptr);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == culprit) {
        CHECK(last > 0);
        model.fail = f->call;
        model.fail_with = WEFT_I_CUDA_ERROR_NOT_SUPPORTED;
        model.fail_at = last;
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_symm_info info = symm_info(meet(x, world));
    char who[32];
    snprintf(who, sizeof who, "rank %d: ", culprit);
    if (rank == culprit)
        CHECK_INT(model.fail_at, 0); /* it was called */
    if (info.multicast_ptr || !info.why_no_multicast)
        FAIL("%s failed on rank %d, and there is multicast", f->call, culprit);
    CHECK_CONTAINS(info.why_no_multicast, f->told);
    CHECK_CONTAINS(info.why_no_multicast, "CUDA_ERROR_NOT_SUPPORTED");
    CHECK_CONTAINS(info.why_no_multicast, who);
    CHECK_INT(weft_last_status(), WEFT_OK); /* no error of the rendezvous */
    CHECK_STATUS(weft_symm_multimem_all_reduce(x, WEFT_SUM, world), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), info.why_no_multicast);
    weft_clear_error();
    set(x, rank);
    CHECK_OK(weft_symm_two_shot_all_reduce(x, WEFT_SUM, world));
    check_sums("two_shot", x, 0, 64, size, 0);
}

/* Each stage fails once on each rank: all do without, all know why, nothing is left. */
RANKS_TEST(test_cuda_multicast_faults, 2)
{
    if (device_is_real() || harness_in_threads)
        return; /* the fault would hit any of the threads */
    need_multicast(rank, size);
    weft_group *world = join(30000);
    weft_tensor *warm = symmetric(WEFT_F32, 16);
    meet(warm, world);
    CHECK_OK(weft_symm_two_shot_all_reduce(warm, WEFT_SUM, world)); /* opens the group's site */
    stock before = take_stock(world);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int culprit = 0; culprit < size; culprit++) {
            if (faults[i].only >= 0 && faults[i].only != culprit)
                continue;
            weft_scope_open();
            check_fault(&faults[i], culprit, rank, size, world);
            weft_scope_close();
            check_stock(faults[i].call, &before, world);
        }
    weft_tensor *x = symmetric(WEFT_F32, 64); /* and the next has it */
    CHECK(symm_info(meet(x, world)).multicast_ptr);
    set(x, rank);
    CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world));
    check_sums("all_reduce", x, 0, 64, size, 0);
    finish(world);
}

/* A rank that dies in a stage: the others are told who, at once, and go on without it. */
RANKS_TEST(test_cuda_multicast_death, 3)
{
    static const char *const calls[] = {"cuMulticastAddDevice", "cuMulticastBindMem"};
    if (device_is_real() || harness_in_threads)
        return; /* a thread cannot die alone */
    need_multicast(rank, size);
    weft_group *world = join(30000);
    weft_group *rest = weft_group_new(world, (int[]){0, 1}, 2, "rest");
    weft_tensor *x = symmetric(WEFT_F32, 64);
    meet(symmetric(WEFT_F32, 16), world);
    if (rank == 2) {
        harness_rank_dies();
        model.fail = calls[getpid() % 2];
        model.fail_with = MODEL_DIES;
        model.fail_at = 1;
    }
    long long began = harness_now();
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    CHECK(harness_now() - began < 10 * 1000000000LL); /* not the limit's 30 s */
    weft_clear_error();
    CHECK(symm_info(meet(x, rest)).multicast_ptr); /* two of the three devices */
    set(x, rank);
    CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, rest));
    check_sums("all_reduce", x, 0, 64, 2, 0);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

/* The same among threads: one of them is hit, whichever, and all do without. */
RANKS_TEST(test_cuda_multicast_faults_of_threads, 3)
{
    static const char *const calls[] = {"cuMulticastCreate", "cuMulticastAddDevice",
                                        "cuMulticastBindMem"};
    if (device_is_real() || !harness_in_threads)
        return;
    need_multicast(rank, size);
    weft_group *world = join(30000);
    weft_tensor *warm = symmetric(WEFT_F32, 16);
    CHECK_OK(weft_symm_two_shot_all_reduce(warm, WEFT_SUM, world));
    stock before = take_stock(world);
    for (int i = 0; i < 9; i++) {
        weft_scope_open();
        if (rank == 0) {
            model.fail = calls[i / 3];
            model.fail_with = WEFT_I_CUDA_ERROR_NOT_SUPPORTED;
            model.fail_at = i < 3 ? 1 : i % 3 + 1;
        }
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        weft_tensor *x = symmetric(WEFT_F32, 64);
        weft_symm_info info = symm_info(meet(x, world));
        CHECK(!info.multicast_ptr);
        CHECK_CONTAINS(info.why_no_multicast, "CUDA_ERROR_NOT_SUPPORTED");
        CHECK_STATUS(weft_symm_multimem_all_reduce(x, WEFT_SUM, world), WEFT_ERR_UNSUPPORTED);
        weft_clear_error();
        weft_scope_close();
        check_stock(calls[i / 3], &before, world);
    }
    weft_tensor *x = symmetric(WEFT_F32, 64);
    set(x, rank);
    CHECK_OK(weft_symm_multimem_all_reduce(x, WEFT_SUM, world));
    check_sums("all_reduce", x, 0, 64, size, 0);
    finish(world);
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
