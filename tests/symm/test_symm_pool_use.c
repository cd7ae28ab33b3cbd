/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/pool_use.c, symm/pool.c, symm/block.c */
/*
 * Results of operations in symmetric memory: the reference's tests of its memory pool, agreement of the
 * ranks, and what a pool cannot hold.  On the CPU, and, as test_cuda_symm_pool_use, on a device.
 */
#include "device.h"

#ifndef WEFT_TEST_ON_CUDA
#include "doom.h"
#endif
#include "jobs.h"
#include "way_of.h"

#include "weft/weft.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static weft_symm_pool *begin_use(size_t bytes)
{
    weft_symm_pool *pool = weft_symm_pool_new(DEVICE, bytes);
    if (!pool)
        FAIL("%s", weft_last_error());
    CHECK_OK(weft_symm_pool_use(pool));
    return pool;
}

static void end_use(weft_symm_pool *pool)
{
    CHECK_OK(weft_symm_pool_use(NULL));
    weft_release(pool);
}

static weft_symm_pool_info info_of(weft_symm_pool *pool)
{
    weft_symm_pool_info info;
    CHECK_OK(weft_symm_pool_describe(pool, &info));
    return info;
}

static weft_status sync_stream(void)
{
    return weft_stream_sync(weft_stream_current(DEVICE), 30000);
}

static double at(weft_tensor *x, int64_t i)
{
    weft_tensor *here = weft_to(x, WEFT_F32, WEFT_CPU);
    return weft_item(weft_view(here, WEFT_SHAPE(weft_tensor_numel(here))), i);
}

/* What this process says while it is listened to, and how often it said something. */
static FILE *said;
static int before_said;

static void said_begin(void)
{
    said = tmpfile();
    CHECK(said);
    fflush(stderr);
    before_said = dup(2);
    dup2(fileno(said), 2);
}

static int said_end(const char *what)
{
    static char text[1 << 16];
    fflush(stderr);
    dup2(before_said, 2);
    close(before_said);
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = 0;
    fclose(said);
    int count = 0;
    for (const char *found = strstr(text, what); found; found = strstr(found + 1, what))
        count++;
    return count;
}

/* ---- the reference's ---- */

/* Any factory that runs in the pool gives symmetric memory. */
HOSTS_TOO_TEST(test_mempool_tensor_factory, 2)
{
    weft_group *world = join(0);
    (void)rank;
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *x = weft_arange(WEFT_F32, DEVICE, 0, 1024, 1);
    CHECK(weft_symm_is(x));
    CHECK(weft_symm_rendezvous(x, world));
    weft_tensor *sum = weft_symm_one_shot_all_reduce(x, WEFT_SUM, world);
    CHECK(sum);
    for (int64_t i = 0; i < 1024; i += 31)
        CHECK_NEAR(at(sum, i), (double)(i * size), 0);
    end_use(pool);
    CHECK(!weft_symm_is(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4))));
    finish(world);
}

/* And any operation's result; its operands need not lie there. */
HOSTS_TOO_TEST(test_mempool_compute_ops, 2)
{
    weft_group *world = join(0);
    weft_tensor *a = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(32, 16), rank + 1);
    weft_tensor *b = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(16, 8));
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *product = weft_mm(a, b);
    CHECK(product && weft_symm_is(product));
    CHECK(!weft_symm_is(a));
    CHECK(weft_symm_rendezvous(product, world));
    weft_tensor *sum = weft_symm_one_shot_all_reduce(product, WEFT_SUM, world);
    CHECK(sum && weft_symm_is(sum));
    CHECK_NEAR(at(sum, 77), 16.0 * size * (size + 1) / 2, 0);
    weft_tensor *relu = weft_relu(weft_add(product, product)), *view = weft_slice(relu, 0, 1, 9, 1);
    CHECK(weft_symm_is(relu) && weft_symm_is(view));
    CHECK_NEAR(at(view, 0), 32 * (rank + 1), 0);
    end_use(pool);
    finish(world);
}

/* Recycled memory has sound pads. */
RANKS_TEST(test_mempool_recycled_alloc_signal_pad, 2)
{
    weft_group *world = join(0);
    weft_symm_pool *pool = begin_use(0);
    void *data = NULL;
    for (int round = 0; round < 2; round++) {
        weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(1000), 10 * round + rank);
        CHECK(!data || weft_tensor_data(x) == data);
        data = weft_tensor_data(x);
        weft_symm *mem = weft_symm_rendezvous(x, world);
        CHECK(mem);
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        CHECK_OK(sync_stream());
        int peer = (rank + 1) % size;
        CHECK_NEAR(at(weft_symm_tensor(mem, peer), 999), 10 * round + peer, 0);
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        CHECK_OK(sync_stream());
        weft_release(mem);
        weft_release(x);
    }
    end_use(pool);
    finish(world);
}

RANKS_TEST(test_mempool_large_alloc_barrier, 2)
{
    weft_group *world = join(0);
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(4 * MIB), rank);
    CHECK(x && weft_symm_is(x));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_OK(sync_stream());
    weft_tensor *theirs = weft_symm_tensor(mem, (rank + 1) % size);
    weft_tensor *last = weft_slice(theirs, 0, 4 * MIB - 8, 4 * MIB, 1);
    CHECK_OK(weft_symm_pool_use(NULL));
    CHECK_NEAR(at(last, 7), (rank + 1) % size, 0);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_OK(sync_stream());
    weft_release(pool);
    finish(world);
}

RANKS_TEST(test_mempool_storage_reuse, 1)
{
    (void)rank, (void)size;
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *x = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(333));
    void *data = weft_tensor_data(x);
    weft_release(x);
    for (int i = 0; i < 5; i++) {
        weft_tensor *y = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(333));
        CHECK(weft_tensor_data(y) == data);
        weft_release(y);
    }
    CHECK_INT(info_of(pool).blocks, 1);
    end_use(pool);
}

/* A persistent allocation that is made again after its tensors have gone is the same memory. */
RANKS_TEST(test_symm_mem_empty_storage_reuse, 1)
{
    (void)rank, (void)size;
    void *data = NULL;
    for (int i = 0; i < 4; i++) {
        weft_tensor *x =
            weft_symm_empty_strided_p2p(WEFT_SHAPE(64, 64), NULL, WEFT_F32, DEVICE, NULL, 77);
        CHECK(x && (!data || weft_tensor_data(x) == data));
        data = weft_tensor_data(x);
        weft_release(x);
    }
    CHECK_OK(weft_symm_forget(77));
}

/* Rounds of the same tensors, of more, and of fewer, with a sum of each. */
static void reuse(weft_group *world, int rank, int size, const int *counts, int rounds)
{
    weft_symm_pool *pool = begin_use(0);
    void *first = NULL;
    for (int round = 0; round < rounds; round++) {
        weft_tensor *x[8];
        for (int i = 0; i < counts[round]; i++) {
            x[i] = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(5000), rank + i);
            CHECK_OK(weft_symm_pool_meet(pool, world));
            weft_tensor *sum = weft_symm_one_shot_all_reduce(x[i], WEFT_SUM, world);
            CHECK(sum);
            CHECK_NEAR(at(sum, 4999), size * (size - 1) / 2.0 + size * i, 0);
            weft_release(sum);
        }
        CHECK(!first || weft_tensor_data(x[0]) == first);
        first = weft_tensor_data(x[0]);
        for (int i = 0; i < counts[round]; i++)
            weft_release(x[i]);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    end_use(pool);
}

HOSTS_TOO_TEST(test_nccl_symmem_address_reuse_loop, 2)
{
    weft_group *world = join(0);
    reuse(world, rank, size, (const int[]){2, 2, 2, 2, 2}, 5);
    finish(world);
}

HOSTS_TOO_TEST(test_nccl_symmem_address_reuse_grow, 2)
{
    weft_group *world = join(0);
    reuse(world, rank, size, (const int[]){1, 3, 5, 8}, 4);
    finish(world);
}

HOSTS_TOO_TEST(test_nccl_symmem_address_reuse_shrink, 2)
{
    weft_group *world = join(0);
    reuse(world, rank, size, (const int[]){8, 5, 3, 1}, 4);
    finish(world);
}

/* ---- plain collectives ---- */

/* The symmetric way once the pools have met, and not before; the result is right either way. */
RANKS_TEST(test_pool_use_plain_collectives, 2)
{
    enum { COUNT = 300000 }; /* not by packets, nor inline */
    weft_group *world = join(0);
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(COUNT), rank + 1);
    weft_tensor *y = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(COUNT));
    int ways[2];
    for (int met = 0; met < 2; met++) {
        if (met)
            CHECK_OK(weft_symm_pool_meet(pool, world));
        CHECK_OK(weft_all_reduce_into(y, x, WEFT_SUM, world));
        CHECK_NEAR(at(y, COUNT - 1), size * (size + 1) / 2.0, 0);
        ways[met] = way_of(world, "all_reduce");
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    }
    if (DEVICE == WEFT_CPU)
        CHECK_INT(ways[1], WEFT_I_WAY_ZERO_COPY);
    if (DEVICE == WEFT_CPU && !harness_in_threads)
        CHECK(ways[0] != WEFT_I_WAY_ZERO_COPY);
    weft_tensor *all = weft_all_gather_tensor(x, 0, world), *part;
    CHECK(all && weft_wait_tensor(all));
    CHECK_NEAR(at(all, COUNT * (int64_t)size - 1), size, 0);
    part = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(COUNT / size));
    CHECK_OK(weft_reduce_scatter_into(part, x, WEFT_SUM, world));
    CHECK_NEAR(at(part, 3), size * (size + 1) / 2.0, 0);
    CHECK_OK(weft_symm_pool_meet(pool, world)); /* nothing new: local but for the comparison */
    end_use(pool);
    finish(world);
}

/* A pool of another group: right, the plain way, and told once. */
RANKS_TEST(test_pool_use_other_group, 2)
{
    enum { COUNT = 300000 };
    if (harness_in_threads)
        SKIP("what other ranks say would be counted too");
    weft_group *world = join(0), *other = fresh_group(world), *third = fresh_group(world);
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(COUNT), rank + 1);
    said_begin();
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, world)); /* it has met in none: nothing to say */
    CHECK_INT(said_end("symmetric pool"), 0);
    CHECK_OK(weft_symm_pool_meet(pool, other));
    said_begin();
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, other));
    CHECK_INT(said_end("symmetric pool"), 0);
    said_begin();
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, i ? world : third));
    CHECK_INT(said_end("symmetric pool that has met in another group"), 1);
    CHECK_NEAR(at(x, COUNT - 1), size * size, 0);
    CHECK_OK(weft_symm_pool_meet(pool, world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    if (DEVICE == WEFT_CPU)
        CHECK_INT(way_of(world, "all_reduce"), WEFT_I_WAY_ZERO_COPY);
    CHECK_NEAR(at(x, COUNT - 1), size * size * size, 0);
    weft_release(third);
    weft_release(other);
    end_use(pool);
    finish(world);
}

/* ---- ranks that differ ---- */

HOSTS_TOO_TEST(test_pool_meet_differs, 3)
{
    weft_group *world = join(0);
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *x = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(1000));
    weft_tensor *more = rank == 1 ? weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(10)) : NULL;
    CHECK_STATUS(weft_symm_pool_meet(pool, world), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "rank 0: 1 taken");
    CHECK_CONTAINS(weft_last_error(), "rank 1: 2 taken");
    CHECK_CONTAINS(weft_last_error(), "rank 2: 1 taken");
    weft_clear_error();
    weft_release(more);
    CHECK_OK(weft_symm_pool_meet(pool, world)); /* alike again */
    CHECK(weft_symm_rendezvous(x, world));
    CHECK_STATUS(weft_symm_pool_meet(rank == 2 ? NULL : pool, world), WEFT_ERR_INVALID_ARG);
    if (rank != 2)
        CHECK_CONTAINS(weft_last_error(), "rank 2 cannot take part");
    weft_clear_error();
    /* Sums of tensors at different places: the same bits, or an error on all; never another sum. */
    more = rank == 1 ? weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(10)) : NULL;
    weft_tensor *y = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(400000), rank);
    weft_status status = weft_all_reduce_into(y, y, WEFT_SUM, world);
    weft_status later = sync_stream();
    if (status >= 0 && later >= 0)
        CHECK_NEAR(at(y, 399999), 3, 0);
    else
        CHECK_INT(status < 0 ? status : later, WEFT_ERR_MISMATCH);
    weft_clear_error();
    weft_symm_pool_use(NULL);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

/* ---- what a pool cannot hold ---- */

RANKS_TEST(test_pool_use_full, 1)
{
    (void)rank, (void)size;
    said_begin();
    weft_symm_pool *pool = begin_use(4096);
    weft_tensor *x = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(512));
    weft_tensor *y = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(1024)), *z = weft_add(y, y);
    CHECK(weft_symm_is(x) && y && !weft_symm_is(y) && z && !weft_symm_is(z));
    CHECK_NEAR(at(z, 1023), 2, 0);
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK_INT(said_end("has no room for a result of 4096 bytes"), 1); /* once */
    CHECK(!weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(1024)));
    CHECK_INT(weft_last_status(), WEFT_ERR_NO_SPACE);
    weft_clear_error();
    end_use(pool);
}

RANKS_TEST(test_pool_use_refused, 1)
{
    (void)rank, (void)size;
    weft_symm_pool_info info;
    CHECK_STATUS(weft_symm_pool_describe(NULL, &info), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_symm_pool *pool = begin_use(0);
    CHECK_STATUS(weft_symm_pool_describe(pool, NULL), WEFT_ERR_INVALID_ARG);
    weft_tensor *x = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4));
    CHECK_STATUS(weft_symm_pool_use((weft_symm_pool *)(void *)x), WEFT_ERR_TYPE);
    weft_clear_error();
    CHECK(weft_symm_is(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(4)))); /* as before */
    CHECK(!weft_symm_is(weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(4))));
    CHECK(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(0)));
    weft_tensor *resized = weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(8));
    CHECK_STATUS(weft_storage_resize(weft_tensor_storage(resized), 0), WEFT_ERR_STATE);
    weft_clear_error();
    end_use(pool);
    CHECK_NEAR(at(x, 3), 0, 0); /* it holds what it needs of the pool */
}

/* Gradients too lie there, and a step has the same addresses each time. */
RANKS_TEST(test_pool_use_steps, 1)
{
    (void)rank, (void)size;
    weft_tensor *w = weft_keep(weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(64, 64)));
    CHECK_OK(weft_require_grad(w, true));
    weft_symm_pool *pool = begin_use(0);
    void *gradient = NULL;
    for (int step = 0; step < 3; step++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(16, 64), step);
        weft_tensor *loss = weft_sum(weft_mm(x, w), NULL, 0, false);
        CHECK_OK(weft_backward(loss));
        weft_tensor *grad = weft_grad(w);
        CHECK(grad && weft_symm_is(grad));
        CHECK(!gradient || weft_tensor_data(grad) == gradient);
        gradient = weft_tensor_data(grad);
        CHECK_NEAR(at(grad, 5), 16 * step, 0);
        CHECK_OK(weft_set_grad(w, NULL));
        CHECK_OK(weft_scope_close());
    }
    weft_symm_pool_info info = info_of(pool);
    CHECK_INT(info.blocks, 1);
    CHECK(info.takes > 6 && info.most >= info.used && info.bytes >= 32 * MIB);
    end_use(pool);
    weft_release(w);
}

typedef struct releaser {
    weft_tensor *x;
} releaser;

static void *release(void *argument)
{
    weft_release(((releaser *)argument)->x);
    return NULL;
}

RANKS_TEST(test_pool_use_other_threads, 1)
{
    (void)rank, (void)size;
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *x = weft_keep(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(999)));
    void *data = weft_tensor_data(x);
    pthread_t thread;
    releaser r = {x};
    CHECK_OK(sync_stream());
    pthread_create(&thread, NULL, release, &r);
    pthread_join(thread, NULL);
    CHECK(weft_tensor_data(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(999))) == data);
    end_use(pool);
}

static void *make_zeros(void *argument)
{
    weft_tensor **made = argument;
    *made = weft_keep(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(9)));
    return NULL;
}

/* Results of other threads lie in plain memory. */
RANKS_TEST(test_pool_use_is_of_the_thread, 1)
{
    (void)rank, (void)size;
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *theirs = NULL;
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, make_zeros, &theirs), 0);
    pthread_join(thread, NULL);
    CHECK(theirs && !weft_symm_is(theirs));
    CHECK(weft_symm_is(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(9))));
    weft_release(theirs);
    end_use(pool);
    CHECK(!weft_symm_is(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(9))));
}

/* ---- growing pools against a model ---- */

/* Whatever is taken and given back, nothing overlaps, nothing is written by others, and a pool that is
 * empty again is one gap. */
RANKS_TEST(test_pool_use_property, 1)
{
    enum { HELD = 40, STEPS = 3000 };
    (void)rank, (void)size;
    weft_symm_pool *pool = begin_use(0);
    struct {
        weft_tensor *x;
        char *begin, *end;
    } held[HELD];
    int n = 0;
    uint64_t state = 11;
    for (int step = 0; step < STEPS; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t dice = state >> 33;
        if (n < HELD && dice % 2) {
            int64_t bytes = 1 + (int64_t)(dice / 2 % (dice % 7 ? 3000 : 9 * MIB));
            weft_tensor *x = weft_keep(weft_empty(WEFT_U8, DEVICE, WEFT_SHAPE(bytes)));
            CHECK(x && weft_symm_is(x));
            char *begin = weft_tensor_data(x), *end = begin + bytes;
            CHECK((uintptr_t)begin % 64 == 0);
            for (int i = 0; i < n; i++)
                CHECK(end <= held[i].begin || begin >= held[i].end);
            held[n].x = x;
            held[n].begin = begin;
            held[n++].end = end;
        } else if (n) {
            int which = (int)(dice / 2 % (uint64_t)n);
            weft_release(held[which].x);
            held[which] = held[--n];
        }
    }
    CHECK(info_of(pool).takes > 1000);
    while (n)
        weft_release(held[--n].x);
    weft_symm_pool_info info = info_of(pool);
    CHECK_INT(info.used, 0);
    CHECK_INT(info.blocks, 1); /* one is kept */
    CHECK_INT(info.gaps, 1);
    CHECK_INT(info.largest_gap, info.bytes);
    end_use(pool);
}

/* ---- streams and captures ---- */

#ifdef WEFT_TEST_ON_CUDA
/* A tensor cut where another stream wrote last is behind it. */
RANKS_TEST(test_pool_use_streams, 1)
{
    enum { COUNT = 100000, ROUNDS = 40 };
    (void)rank, (void)size;
    weft_symm_pool *pool = begin_use(0);
    weft_stream *streams[4], *home = weft_stream_current(DEVICE);
    for (int i = 0; i < 4; i++)
        streams[i] = weft_stream_new(DEVICE, i % 2);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(weft_scope_open());
        CHECK_OK(weft_stream_use(streams[round % 4]));
        weft_tensor *old = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(COUNT), -1);
        for (int i = 0; i < 4; i++)
            CHECK_OK(weft_fill(old, -round));
        weft_release(old); /* its stream has yet to write all this */
        CHECK_OK(weft_stream_use(streams[(round + 1) % 4]));
        weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(COUNT - round), round);
        CHECK_OK(weft_stream_sync(streams[round % 4], 30000));
        CHECK_NEAR(at(x, 0), round, 0);
        CHECK_NEAR(at(x, COUNT - round - 1), round, 0);
        CHECK_OK(weft_scope_close());
    }
    CHECK_OK(weft_stream_use(home));
    for (int i = 0; i < 4; i++)
        CHECK_OK(weft_stream_sync(streams[i], 30000));
    end_use(pool);
}

RANKS_TEST(test_pool_use_captures, 1)
{
    (void)rank, (void)size;
    weft_symm_pool *pool = begin_use(0);
    weft_stream *stream = weft_stream_current(DEVICE);
    weft_tensor *x = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(100));
    CHECK_OK(sync_stream());
    said_begin();
    CHECK_OK(weft_capture_begin(stream));
    weft_tensor *y = weft_add(x, x);
    weft_replay *replay = weft_capture_end(stream);
    CHECK(replay && y && !weft_symm_is(y));
    CHECK_INT(said_end("is being captured"), 1);
    CHECK_OK(weft_fill(x, 5));
    CHECK_OK(weft_replay_run(replay));
    CHECK_NEAR(at(y, 99), 10, 0);
    weft_release(replay);
    end_use(pool);
}
#endif

/* ---- faults ---- */

/* A rank dies before it meets, or stops while it allocates. */
HOSTS_TOO_TEST(test_pool_meet_kill, 3)
{
    if (harness_in_threads)
        SKIP("a thread cannot be killed alone");
    weft_group *world = join(30000);
    weft_symm_pool *pool = begin_use(0);
    CHECK(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(1000)));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 2) {
        harness_rank_dies();
        kill(getpid(), SIGKILL);
    }
    CHECK_STATUS(weft_symm_pool_meet(pool, world), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    weft_clear_error();
    CHECK(weft_symm_is(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(1000)))); /* the pool lives on */
    end_use(pool);
    weft_finish(world);
    weft_clear_error();
}

/* A rank dies while its pool grows: at a call to the system after so many thirds of those that make a
 * block, or in one of the driver's calls that do. */
static void grow_and_die(int third)
{
    harness_rank_dies();
#ifdef WEFT_TEST_ON_CUDA
    static const char *const calls[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap"};
    model.fail_at = 1;
    model.fail_with = MODEL_DIES;
    model.fail = calls[third];
#else
    weft_symm_pool *used = begin_use(0);
    doom_arm(INT_MAX);
    weft_release(weft_zeros(WEFT_U8, DEVICE, WEFT_SHAPE(40 * MIB)));
    int steps = atomic_load_explicit(&doom_steps, memory_order_relaxed);
    weft_release(used);
    begin_use(0);
    doom_arm(1 + steps * third / 3);
#endif
    weft_zeros(WEFT_U8, DEVICE, WEFT_SHAPE(40 * MIB)); /* a block of its own */
#ifdef WEFT_TEST_ON_CUDA
    FAIL("the allocation came to an end");
#else
    /* Other threads of the library call the system too, so the first block may have been counted with
     * more calls than this one took: then it dies right behind it. */
    kill(getpid(), SIGKILL);
#endif
}

/* The others are told at the meeting, and their pools, which have grown, still give and take. */
static void survive_growth(int rank, int size, int third)
{
    if (harness_in_threads)
        SKIP("a thread cannot be killed alone");
#ifdef WEFT_TEST_ON_NCCL
    SKIP("its memory comes from the stand-in, which dies in no call");
#elif defined WEFT_TEST_ON_CUDA
    if (device_is_real())
        SKIP("it is the software driver that dies in a call");
#endif
    weft_group *world = join(30000);
    weft_symm_pool *pool = begin_use(0);
    weft_tensor *small = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(1000));
    CHECK_OK(weft_symm_pool_meet(pool, world));
    CHECK_OK(sync_stream());
    if (rank == size - 1)
        grow_and_die(third);
    weft_tensor *x = weft_zeros(WEFT_U8, DEVICE, WEFT_SHAPE(40 * MIB));
    CHECK(x && weft_symm_is(x));
    CHECK_STATUS(weft_symm_pool_meet(pool, world), WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    CHECK_INT(info_of(pool).blocks, 2);
    weft_release(x);
    CHECK_NEAR(at(small, 999), 1, 0);
    CHECK(weft_symm_is(weft_zeros(WEFT_F32, DEVICE, WEFT_SHAPE(1000))));
    end_use(pool);
    weft_finish(world);
    weft_clear_error();
}

RANKS_TEST(test_pool_use_kill_early, 3)
{
    survive_growth(rank, size, 0);
}

RANKS_TEST(test_pool_use_kill_midway, 3)
{
    survive_growth(rank, size, 1);
}

RANKS_TEST(test_pool_use_kill_late, 3)
{
    survive_growth(rank, size, 2);
}

HOSTS_TOO_TEST(test_pool_use_stop, 2)
{
    if (harness_in_threads)
        SKIP("a thread cannot be stopped alone");
    weft_group *world = join(30000);
    if (rank == 1)
        arrange_stop(1000, 150000, 0);
    weft_symm_pool *pool = begin_use(0);
    for (int i = 0; i < 12; i++) {
        weft_tensor *x = weft_zeros(WEFT_U8, DEVICE, WEFT_SHAPE(7 * MIB)); /* grows now and then */
        CHECK(x && weft_symm_is(x));
    }
    CHECK_OK(weft_symm_pool_meet(pool, world));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    end_use(pool);
    finish(world);
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
