/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/block.c, symm/handle.c, symm/put.c, symm/signals.c */
/*
 * What PyTorch's tests of symmetric memory have added since the specifications were written, under its
 * names: on the CPU, on a device, and in NCCL's windows.
 */
#include "device.h"

#include "jobs.h"
#include "symm_info.h"

#include "weft/weft.h"

#include <stdlib.h>
#include <unistd.h>

static weft_status sync_stream(void)
{
    return weft_stream_sync(weft_stream_current(DEVICE), 30000);
}

static weft_tensor *floats(int64_t count)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, DEVICE, WEFT_SHAPE(count));
    if (!x)
        FAIL("%s", weft_last_error());
    return x;
}

static weft_symm *meet(weft_tensor *x, weft_group *group)
{
    weft_symm *mem = weft_symm_rendezvous(x, group);
    if (!mem)
        FAIL("%s", weft_last_error());
    return mem;
}

static double at(weft_tensor *x, int64_t i)
{
    return weft_item(weft_to(x, weft_tensor_dtype(x), WEFT_CPU), i);
}

/* All have arrived, and the host knows. */
static void barrier(weft_symm *mem)
{
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_OK(sync_stream());
}

/* ---- asking and sizes ---- */

RANKS_TEST(test_is_symm_mem_tensor, 1)
{
    (void)rank, (void)size;
    weft_tensor *x = floats(8);
    CHECK(weft_symm_is(x) && weft_symm_is(weft_slice(x, 0, 2, 4, 1)));
    CHECK(!weft_symm_is(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(8))));
    CHECK(!weft_symm_is(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8))));
    CHECK(!weft_symm_is(weft_clone(x)) && !weft_symm_is(NULL));
}

RANKS_TEST(test_get_signal_pad_size, 1)
{
    (void)rank, (void)size;
    size_t bytes = weft_symm_signal_pad_size();
    CHECK(bytes > 0 && bytes % 4 == 0);
    CHECK_INT(weft_symm_signal_pad_size(), bytes);
}

/* Ranks that are threads have one setting. */
static void set_pads(weft_group *world, int rank, size_t bytes)
{
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0 || !harness_in_threads)
        CHECK_OK(weft_symm_set_signal_pad_size(bytes));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_INT(weft_symm_signal_pad_size(), bytes);
}

RANKS_TEST(test_set_signal_pad_size, 1)
{
    (void)size;
    weft_group *world = join(0);
    size_t usual = weft_symm_signal_pad_size();
    set_pads(world, rank, 1 << 20);
    CHECK_STATUS(weft_symm_set_signal_pad_size(7), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    set_pads(world, rank, usual);
    finish(world);
}

RANKS_TEST(test_set_signal_pad_size_with_allocation, 2)
{
    weft_group *world = join(0);
    weft_tensor *early = floats(4);
    size_t usual = weft_symm_signal_pad_size(), wanted = 2 * usual;
    set_pads(world, rank, wanted);
    weft_symm *before = meet(early, world), *mem = meet(floats(4), world);
    CHECK_INT(symm_info(before).pad_bytes, usual); /* a block keeps its own */
    CHECK_INT(symm_info(mem).pad_bytes, wanted);
    weft_tensor *pad = weft_symm_signal_pad(mem, rank, WEFT_SCALAR, WEFT_U32, 0);
    CHECK_INT(weft_tensor_numel(pad), wanted / 4);
    CHECK_OK(weft_fill(weft_slice(pad, 0, 0, 1, 1), 42));
    CHECK_OK(weft_fill(weft_slice(pad, 0, (int64_t)wanted / 4 - 1, (int64_t)wanted / 4, 1), 43));
    CHECK_OK(sync_stream());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_tensor *theirs = weft_symm_signal_pad(mem, (rank + 1) % size, WEFT_SCALAR, WEFT_U32, 0);
    CHECK_NEAR(at(theirs, 0), 42, 0);
    CHECK_NEAR(at(theirs, (int64_t)wanted / 4 - 1), 43, 0); /* its last word works */
    set_pads(world, rank, usual);
    finish(world);
}

/* ---- one-sided reads, and bounds ---- */

HOSTS_TOO_TEST(test_get, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(64), *to = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(32), -1);
    weft_symm *mem = meet(x, world);
    int peer = (rank + 1) % size;
    CHECK_OK(weft_copy(x, weft_arange(WEFT_F32, DEVICE, 100 * rank, 100 * rank + 64, 1)));
    barrier(mem);
    CHECK_OK(weft_symm_get(weft_slice(to, 0, 8, 16, 1), mem, peer, 5));
    for (int64_t i = 0; i < 32; i++) /* what is beside it is as it was */
        CHECK_NEAR(at(to, i), i < 8 || i >= 16 ? -1 : (double)(100 * peer + 5 + i - 8), 0);
    CHECK_STATUS(weft_symm_get(weft_slice(to, 0, 0, 16, 2), mem, peer, 0), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "contiguous");
    CHECK_STATUS(weft_symm_get(to, mem, peer, -1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "non-negative");
    CHECK_STATUS(weft_symm_get(to, mem, peer, 33), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "exceeds");
    CHECK_STATUS(weft_symm_get(to, mem, size, 0), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "invalid peer");
    weft_clear_error();
    barrier(mem);
    finish(world);
}

/* The last channel is one; the next is none, on any call; nor are ranks outside the group. */
static void check_bounds(weft_group *world, int rank, int size, int call)
{
    weft_symm *mem = meet(floats(4), world);
    int last = symm_info(mem).channels - 1, peer = (rank + 1) % size;
    const int wrong[] = {-1, last + 1, INT32_MAX};
    for (int i = 0; i < 3; i++) {
        weft_status status = call == 0   ? weft_symm_barrier(mem, wrong[i], 1000)
                             : call == 1 ? weft_symm_put_signal(mem, peer, wrong[i], 1000)
                                         : weft_symm_wait_signal(mem, peer, wrong[i], 1000);
        CHECK_INT(status, WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "exceeds the maximum supported channel");
    }
    if (call == 1)
        CHECK_STATUS(weft_symm_put_signal(mem, size, 0, 1000), WEFT_ERR_INVALID_ARG);
    if (call == 2)
        CHECK_STATUS(weft_symm_wait_signal(mem, -1, 0, 1000), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_OK(weft_symm_barrier(mem, last, WEFT_DEFAULT));
    CHECK_OK(weft_symm_put_signal(mem, peer, last, WEFT_DEFAULT));
    CHECK_OK(weft_symm_wait_signal(mem, (rank + size - 1) % size, last, WEFT_DEFAULT));
    CHECK_OK(sync_stream());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
}

HOSTS_TOO_TEST(test_barrier_channel_out_of_bounds, 2)
{
    weft_group *world = join(0);
    check_bounds(world, rank, size, 0);
    finish(world);
}

HOSTS_TOO_TEST(test_put_signal_channel_out_of_bounds, 2)
{
    weft_group *world = join(0);
    check_bounds(world, rank, size, 1);
    finish(world);
}

HOSTS_TOO_TEST(test_wait_signal_channel_out_of_bounds, 2)
{
    weft_group *world = join(0);
    check_bounds(world, rank, size, 2);
    finish(world);
}

/* ---- rendezvous ---- */

/* A group that leaves a rank out does not disturb the next rendezvous of all. */
RANKS_TEST(test_rendezvous_after_strict_subgroup, 3)
{
    weft_group *world = join(0);
    weft_group *pair = weft_group_new(world, (const int[]){0, 1}, 2, "pair");
    CHECK((pair != NULL) == (rank < 2));
    for (int i = 0; pair && i < 3; i++)
        barrier(meet(floats(8), pair));
    weft_tensor *x = floats(8);
    weft_symm *mem = meet(x, world);
    CHECK_OK(weft_fill(x, rank));
    barrier(mem);
    for (int peer = 0; peer < size; peer++)
        CHECK_NEAR(at(weft_symm_tensor(mem, peer), 7), peer, 0);
    barrier(mem);
    finish(world);
}

RANKS_TEST(test_rendezvous_on_overlapping_subgroups, 3)
{
    weft_group *world = join(0);
    weft_group *a = weft_group_new(world, (const int[]){0, 1}, 2, "a");
    weft_group *b = weft_group_new(world, (const int[]){1, 2}, 2, "b");
    weft_tensor *x = floats(8);
    CHECK_OK(weft_fill(x, 10 + rank));
    CHECK_OK(sync_stream());
    weft_symm *in_a = a ? meet(x, a) : NULL; /* one block, several groups */
    weft_symm *in_b = b ? meet(x, b) : NULL;
    if (in_a) {
        barrier(in_a);
        CHECK_NEAR(at(weft_symm_tensor(in_a, 1 - rank), 0), 11 - rank, 0);
    }
    if (in_b) {
        barrier(in_b);
        CHECK_NEAR(at(weft_symm_tensor(in_b, 2 - rank), 0), 13 - rank, 0);
    }
    if (rank == 1) /* a signal in one is none in the other */
        CHECK(weft_symm_signal_pad_ptr(in_a, 0) != weft_symm_signal_pad_ptr(in_b, 0));
    barrier(meet(x, world));
    finish(world);
}

RANKS_TEST(test_rendezvous_after_group_name_recycled, 3)
{
    weft_group *world = join(0);
    for (int round = 0; round < 3; round++) {
        weft_group *group = weft_group_new(world, (const int[]){0, round % 2 + 1}, 2, "again");
        CHECK((group != NULL) == (rank == 0 || rank == round % 2 + 1));
        if (group) {
            weft_tensor *x = floats(8);
            weft_symm *mem = meet(x, group);
            CHECK_OK(weft_fill(x, round));
            barrier(mem);
            CHECK_NEAR(at(weft_symm_tensor(mem, 1 - (rank != 0)), 0), round, 0);
            barrier(mem);
            weft_release(mem);
            CHECK_OK(weft_group_destroy(group));
        }
    }
    barrier(meet(floats(8), world));
    finish(world);
}

/* ---- data with a signal ---- */

static void put_and_wait(weft_group *world, int rank, int size)
{
    weft_tensor *x = floats(1024), *mine = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(1024), rank + 1);
    weft_symm *mem = meet(x, world);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int round = 0; round < 3; round++) {
        CHECK_OK(weft_symm_put_with_signal(mem, to, mine, 0, 1, WEFT_DEFAULT));
        CHECK_OK(weft_symm_wait_signal(mem, from, 1, WEFT_DEFAULT));
        CHECK_NEAR(at(x, 1023), from + 1, 0);
        barrier(mem);
        CHECK_OK(weft_fill(x, 0));
        barrier(mem);
    }
}

HOSTS_TOO_TEST(test_put_wait_signal, 2)
{
    weft_group *world = join(0);
    put_and_wait(world, rank, size);
    finish(world);
}

HOSTS_TOO_TEST(test_nccl_symmem_handle_signal, 2)
{
    weft_group *world = join(0);
    weft_symm *mem = meet(floats(1024), world);
    CHECK(weft_symm_rendezvous(weft_symm_tensor(mem, rank), world)); /* the same registration */
    if (rank == 0)
        CHECK_OK(weft_symm_put_signal(mem, 1, 0, WEFT_DEFAULT));
    else
        CHECK_OK(weft_symm_wait_signal(mem, 0, 0, WEFT_DEFAULT));
    CHECK_OK(sync_stream());
    (void)size;
    put_and_wait(world, rank, size);
    finish(world);
}

HOSTS_TOO_TEST(test_nccl_symmem_put, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(1024);
    weft_symm *mem = meet(x, world);
    CHECK_OK(weft_fill(x, rank + 1));
    barrier(mem);
    if (rank == 0)
        CHECK_OK(weft_symm_put(mem, 1, weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(1024), 7), 0));
    barrier(mem);
    CHECK_NEAR(at(x, 1023), rank == 0 ? 1 : 7, 0);
    (void)size;
    barrier(mem);
    finish(world);
}

HOSTS_TOO_TEST(test_nccl_symmem_get, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(1024), *to = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(1024));
    weft_symm *mem = meet(x, world);
    CHECK_OK(weft_fill(x, rank + 1));
    barrier(mem);
    CHECK_OK(weft_symm_get(to, mem, (rank + 1) % size, 0));
    CHECK_NEAR(at(to, 1023), (rank + 1) % size + 1, 0);
    barrier(mem);
    finish(world);
}

/* ---- blocks that come and go ---- */

HOSTS_TOO_TEST(test_nccl_symmem_alloc, 2)
{
    weft_group *world = join(0);
    (void)rank, (void)size;
    CHECK_OK(weft_scope_open());
    CHECK(meet(floats(1024), world));
    CHECK_OK(weft_scope_close());
    CHECK(meet(floats(1024), world));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

HOSTS_TOO_TEST(test_nccl_symmem_rendezvous_world, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(16);
    weft_symm *mem = meet(x, world), *again = meet(x, world);
    CHECK_INT(symm_info(mem).rank, rank);
    CHECK_INT(symm_info(mem).size, size);
    CHECK(weft_symm_buffer_ptr(mem, (rank + 1) % size) ==
          weft_symm_buffer_ptr(again, (rank + 1) % size));
    barrier(mem);
    finish(world);
}

RANKS_TEST(test_nccl_symmem_rendezvous_subgroup, 4)
{
    weft_group *world = join(0);
    int half[2] = {rank / 2 * 2, rank / 2 * 2 + 1};
    weft_group *mine = NULL;
    for (int i = 0; i < 2; i++) {
        weft_group *made = weft_group_new(world, (const int[]){2 * i, 2 * i + 1}, 2, NULL);
        mine = made ? made : mine;
    }
    weft_tensor *x = floats(16);
    weft_symm *mem = meet(x, mine);
    CHECK_INT(symm_info(mem).size, 2);
    CHECK_OK(weft_fill(x, rank));
    barrier(mem);
    CHECK_NEAR(at(weft_symm_tensor(mem, 1 - rank % 2), 0), half[1 - rank % 2], 0);
    barrier(mem);
    (void)size;
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

HOSTS_TOO_TEST(test_nccl_symmem_rendezvous_many_allocations, 2)
{
    enum { MANY = 64 };
    weft_group *world = join(0);
    weft_tensor *all[MANY];
    for (int i = 0; i < MANY; i++)
        all[i] = floats(1);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i += 16) {
            weft_symm *mem = meet(all[i], world);
            CHECK_INT(symm_info(mem).rank, rank);
            CHECK_INT(symm_info(mem).size, size);
        }
    CHECK(meet(all[MANY - 1], world));
    CHECK_OK(weft_fill(all[MANY - 1], rank));
    weft_tensor *sum = weft_symm_one_shot_all_reduce(all[MANY - 1], WEFT_SUM, world);
    CHECK(sum);
    CHECK_NEAR(at(sum, 0), size * (size - 1) / 2.0, 0);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_nccl_symmem_barrier, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(16);
    weft_symm *mem = meet(x, world);
    for (int round = 0; round < 5; round++) {
        CHECK_OK(weft_fill(x, 10 * round + rank));
        barrier(mem);
        CHECK_NEAR(at(weft_symm_tensor(mem, (rank + 1) % size), 3), 10 * round + (rank + 1) % size,
                   0);
        barrier(mem);
    }
    finish(world);
}

HOSTS_TOO_TEST(test_nccl_symmem_collective, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(5000), *all = floats(5000 * size);
    CHECK(meet(x, world) && meet(all, world));
    CHECK_OK(weft_fill(x, rank + 1));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_NEAR(at(x, 4999), size * (size + 1) / 2.0, 0);
    CHECK_OK(weft_fill(x, rank));
    CHECK_OK(weft_all_gather_into(all, x, world));
    CHECK_NEAR(at(all, 5000 * (int64_t)size - 1), size - 1, 0);
    CHECK_OK(weft_reduce_scatter_into(x, all, WEFT_SUM, world));
    CHECK_NEAR(at(x, 17), rank * size, 0);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

#ifdef WEFT_TEST_ON_CUDA

RANKS_TEST(test_nccl_symmem_collective_cuda_graph, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(5000), *sum = floats(5000);
    CHECK(meet(x, world) && meet(sum, world));
    weft_stream *stream = weft_stream_current(DEVICE);
    CHECK_OK(weft_fill(x, rank));
    CHECK_OK(weft_all_reduce_into(sum, x, WEFT_SUM, world)); /* what is made at first use */
    CHECK_OK(sync_stream());
    CHECK_OK(weft_capture_begin(stream));
    CHECK_OK(weft_all_reduce_into(sum, x, WEFT_SUM, world));
    weft_replay *replay = weft_capture_end(stream);
    if (!replay)
        FAIL("%s", weft_last_error());
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_fill(x, rank + i));
        CHECK_OK(weft_replay_run(replay));
        CHECK_OK(sync_stream());
        CHECK_NEAR(at(sum, 4999), size * (size - 1) / 2.0 + size * i, 0);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    }
    weft_release(replay);
    finish(world);
}

/* ---- release ---- */

/* Memory goes when what was given to streams has run. */
RANKS_TEST(test_free_waits_for_pending_work, 2)
{
    weft_group *world = join(0);
    (void)rank, (void)size;
    weft_tensor *out = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(1 << 16));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = floats(1 << 16);
        CHECK(meet(x, world));
        CHECK_OK(weft_fill(x, 1));
        weft_tensor *sum = weft_symm_one_shot_all_reduce(x, WEFT_SUM, world);
        CHECK(sum);
        CHECK_OK(weft_copy(out, sum));
        CHECK_OK(weft_scope_close()); /* nobody has waited */
        CHECK_NEAR(at(out, (1 << 16) - 1), size, 0);
        CHECK_OK(weft_fill(out, 0));
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* After a device has failed everything can still be released, and the process ends in order. */
RANKS_TEST(test_free_after_device_assert, 1)
{
    (void)rank, (void)size;
    if (device_is_real())
        SKIP("the software driver fails on demand");
    weft_group *world = join(0);
    weft_tensor *x = floats(64);
    weft_symm *mem = meet(x, world);
    CHECK_OK(weft_fill(x, 1));
    CHECK_OK(sync_stream());
    model.broken = 710; /* a kernel's assertion */
    CHECK_STATUS(weft_fill(x, 2), WEFT_ERR_DEVICE);
    weft_release(mem);
    weft_release(x);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
    model.broken = 0; /* the harness counts what is left */
}

/* Allocation and rendezvous are complete for the current stream, and wait for no other. */
RANKS_TEST(test_alloc_rendezvous_on_current_stream, 2)
{
    weft_group *world = join(0);
    weft_stream *home = weft_stream_current(DEVICE), *mine = weft_stream_new(DEVICE, false);
    CHECK_OK(weft_fill(floats(4), 0)); /* the device is open */
    CHECK_OK(weft_stream_use(mine));
    for (int i = 0; i < 3; i++) {
        weft_tensor *x = floats(1 << 16);
        CHECK_OK(weft_add_into(x, x, weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(1 << 16), rank + 1)));
        weft_symm *mem = meet(x, world);
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        weft_tensor *copy = weft_clone(weft_symm_tensor(mem, (rank + 1) % size));
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        CHECK_OK(weft_stream_sync(mine, 30000));
        CHECK_NEAR(at(copy, (1 << 16) - 1), (rank + 1) % size + 1, 0);
    }
    CHECK_OK(weft_stream_use(home));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}
#endif

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
