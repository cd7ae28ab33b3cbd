/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/registration.c, symm/handle.c, symm/signals.c, symm/workspace.c */
/*
 * What is known to go wrong with symmetric memory elsewhere (section 8 of its specification): one
 * test for each weakness that a CPU can have.
 */
#include "jobs.h"
#include "symm_info.h"
#include "values_seed.h"

#include <weft/weft.h>

#include <pthread.h>
#include <sys/stat.h>

static weft_tensor *floats(int64_t count)
{
    return weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count));
}

/* 3: a rendezvous in a subgroup must not disturb the next one in a larger group. */
RANKS_TEST(test_weakness_subgroup_first, 3)
{
    weft_group *world = join(0);
    int pair[] = {0, 2}, other[] = {1, 2};
    weft_group *a = weft_group_new(world, pair, 2, "name");
    weft_group *b = weft_group_new(world, other, 2, "other");
    for (int i = 0; i < 5; i++) {
        if (a)
            CHECK(weft_symm_rendezvous(floats(8), a));
        if (b)
            CHECK(weft_symm_rendezvous(floats(8), b));
        CHECK(weft_symm_rendezvous(floats(16), world));
    }
    CHECK_OK(weft_group_destroy(a)); /* a name is no identity */
    weft_group *recycled = weft_group_new(world, pair, 2, "name");
    CHECK((recycled != NULL) == (rank != 1));
    if (recycled)
        CHECK(weft_symm_rendezvous(floats(8), recycled));
    CHECK(weft_symm_rendezvous(floats(16), world));
    finish(world);
}

/* 4, 7: pads are zero at the start and belong to one pair of block and group. */
RANKS_TEST(test_weakness_pads, 3)
{
    weft_group *world = join(0);
    weft_group *again = weft_group_split(world, 0, 0);
    CHECK(again);
    for (int round = 0; round < 4; round++) {
        weft_tensor *x = floats(8);
        weft_symm *one = weft_symm_rendezvous(x, world), *two = weft_symm_rendezvous(x, again);
        CHECK(one && two);
        weft_symm *both[] = {one, two};
        for (int i = 0; i < 2; i++)
            for (int peer = 0; peer < size; peer++) {
                weft_tensor *pad = weft_symm_signal_pad(both[i], peer, WEFT_SCALAR, WEFT_U32, 0);
                const uint32_t *words = weft_tensor_data(pad);
                for (int64_t k = 0; k < weft_tensor_numel(pad); k++)
                    CHECK_INT(words[k], 0);
            }
        CHECK_OK(weft_symm_barrier(one, 0, WEFT_DEFAULT));
        CHECK_OK(weft_symm_put_signal(one, (rank + 1) % size, 2, WEFT_DEFAULT));
        CHECK_STATUS(weft_symm_wait_signal(two, (rank + 2) % size, 2, 5), WEFT_ERR_TIMEOUT);
        CHECK_OK(weft_symm_wait_signal(one, (rank + 2) % size, 2, WEFT_DEFAULT));
        memset(weft_symm_signal_pad_ptr(one, rank), 0xff, 64); /* garbage, recycled next round */
        CHECK_OK(weft_symm_barrier(two, 0, WEFT_DEFAULT));
        weft_release(one);
        weft_release(two);
        weft_release(x);
    }
    finish(world);
}

/* What one thread of a rank does on a channel that another one uses as well, in its own group. */
typedef struct channel_user {
    weft_symm *mem;
    int rank, size, wrong;
    weft_status status;
} channel_user;

static void *use_channel(void *arg)
{
    enum { ROUNDS = 300, CHANNEL = 3 };
    channel_user *user = arg;
    int next = (user->rank + 1) % user->size, before = (user->rank + user->size - 1) % user->size;
    for (int i = 0; i < ROUNDS && user->status == WEFT_OK; i++) {
        user->status = weft_symm_barrier(user->mem, CHANNEL, WEFT_DEFAULT);
        if (user->status == WEFT_OK)
            user->status = weft_symm_put_signal(user->mem, next, CHANNEL, WEFT_DEFAULT);
        if (user->status == WEFT_OK)
            user->status = weft_symm_wait_signal(user->mem, before, CHANNEL, WEFT_DEFAULT);
    }
    if (user->status == WEFT_OK) /* as many came as were sent */
        user->wrong = weft_symm_wait_signal(user->mem, before, CHANNEL, 0) != WEFT_ERR_TIMEOUT;
    return NULL;
}

/* 5: one channel number of one block, used by two threads of each rank at once, each in its group:
 * neither sees the other's arrivals or signals. */
RANKS_TEST(test_weakness_channel_of_two_threads, 3)
{
    weft_group *world = join(0), *again = weft_group_split(world, 0, 0);
    weft_tensor *x = floats(8);
    channel_user users[2] = {{weft_symm_rendezvous(x, world), rank, size, 0, WEFT_OK},
                             {weft_symm_rendezvous(x, again), rank, size, 0, WEFT_OK}};
    pthread_t threads[2];
    CHECK(users[0].mem && users[1].mem);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, use_channel, &users[i]));
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(users[i].status, WEFT_OK);
        CHECK(!users[i].wrong);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* 5: collectives leave the user's channels alone, all of them. */
RANKS_TEST(test_weakness_channels_are_the_users, 3)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(24), *all = weft_narrow(x, 0, 0, 24),
                *part = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem && all);
    int channels = symm_info(mem).channels, next = (rank + 1) % size, before = (rank + 2) % size;
    for (int channel = 0; channel < channels; channel++)
        CHECK_OK(weft_symm_put_signal(mem, next, channel, WEFT_DEFAULT));
    CHECK_OK(weft_symm_two_shot_all_reduce(x, WEFT_SUM, world));
    CHECK(weft_symm_one_shot_all_reduce(x, WEFT_SUM, world));
    CHECK_OK(weft_symm_multimem_all_gather_out(all, part, world));
    CHECK_OK(weft_reduce_scatter_into(part, x, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    for (int channel = 0; channel < channels; channel++) { /* each has its one signal */
        CHECK_OK(weft_symm_wait_signal(mem, before, channel, WEFT_DEFAULT));
        CHECK_STATUS(weft_symm_wait_signal(mem, before, channel, 0), WEFT_ERR_TIMEOUT);
    }
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* 6: channels, ranks, offsets and shapes are checked, at their very bounds. */
RANKS_TEST(test_weakness_bounds, 3)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(10);
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    int last = symm_info(mem).channels - 1;
    CHECK_INT(last + 1, symm_info(mem).pad_bytes / 4 / 3);
    CHECK_OK(weft_symm_barrier(mem, last, WEFT_DEFAULT));
    CHECK_OK(weft_symm_put_signal(mem, (rank + 1) % size, last, WEFT_DEFAULT));
    CHECK_OK(weft_symm_wait_signal(mem, (rank + 2) % size, last, WEFT_DEFAULT));
    const int channels[] = {-1, last + 1, 1 << 30};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(weft_symm_barrier(mem, channels[i], 0), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_symm_put_signal(mem, 0, channels[i], 0), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_symm_wait_signal(mem, 0, channels[i], 0), WEFT_ERR_INVALID_ARG);
    }
    const int ranks[] = {-1, 3, 1 << 30};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(weft_symm_put_signal(mem, ranks[i], 0, 0), WEFT_ERR_INVALID_ARG);
        CHECK_STATUS(weft_symm_wait_signal(mem, ranks[i], 0, 0), WEFT_ERR_INVALID_ARG);
        CHECK(!weft_symm_buffer(mem, ranks[i], WEFT_SHAPE(1), WEFT_F32, 0));
        CHECK(!weft_symm_remote_tensor(mem, ranks[i], WEFT_SHAPE(1), WEFT_F32));
        CHECK(!weft_symm_tensor(mem, ranks[i]));
        CHECK(!weft_symm_buffer_ptr(mem, ranks[i]));
        CHECK(!weft_symm_signal_pad_ptr(mem, ranks[i]));
        CHECK(!weft_symm_signal_pad(mem, ranks[i], WEFT_SCALAR, WEFT_U32, 0));
    }
    CHECK(weft_symm_buffer(mem, 0, WEFT_SHAPE(10), WEFT_F32, 0));
    CHECK(weft_symm_buffer(mem, 0, WEFT_SHAPE(0), WEFT_F32, 10));
    CHECK(weft_symm_buffer(mem, 0, WEFT_SHAPE(40), WEFT_U8, 0));
    CHECK(!weft_symm_buffer(mem, 0, WEFT_SHAPE(11), WEFT_F32, 0));
    CHECK(!weft_symm_buffer(mem, 0, WEFT_SHAPE(10), WEFT_F32, 1));
    CHECK(!weft_symm_buffer(mem, 0, WEFT_SHAPE(1), WEFT_F32, -1));
    CHECK(!weft_symm_buffer(mem, 0, WEFT_SHAPE(6), WEFT_F64, 0));
    CHECK(!weft_symm_buffer(mem, 0, WEFT_SHAPE(1), WEFT_F32, INT64_MAX));
    CHECK(!weft_symm_buffer(mem, 0, WEFT_SHAPE(INT64_MAX), WEFT_F32, 0));
    CHECK(!weft_symm_buffer(mem, 0, WEFT_SHAPE((int64_t)1 << 40, (int64_t)1 << 40), WEFT_F32, 0));
    CHECK(!weft_symm_signal_pad(mem, 0, WEFT_SCALAR, WEFT_U32, 1 << 20));
    CHECK(!weft_symm_signal_pad(mem, 0, WEFT_SCALAR, (weft_dtype)9999, 0));
    CHECK_STATUS(weft_symm_barrier(mem, 0, -3), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT)); /* nothing of all that has left a mark */
    finish(world);
}

/* 6, 16: the pad's size is the block's, whatever the setting says later. */
RANKS_TEST(test_weakness_pad_size, 2)
{
    weft_group *world = join(0);
    size_t usual = weft_symm_signal_pad_size();
    weft_tensor *before = floats(4);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0 || !weft_i_spawn_seat())
        CHECK_OK(weft_symm_set_signal_pad_size(2 * usual));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_symm *small = weft_symm_rendezvous(before, world);
    weft_symm *large = weft_symm_rendezvous(floats(4), world);
    CHECK(small && large);
    CHECK_INT(symm_info(small).pad_bytes, usual);
    CHECK_INT(symm_info(large).pad_bytes, 2 * usual);
    CHECK_INT(symm_info(large).channels, 2 * symm_info(small).channels);
    const size_t wrong[] = {0, 63, 65, ((size_t)1 << 30) + 8};
    for (int i = 0; i < 4; i++)
        CHECK_STATUS(weft_symm_set_signal_pad_size(wrong[i]), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_symm_set_signal_pad_size(usual));
    finish(world);
}

/* 19: what differs between ranks is told in a table, and can be put right. */
RANKS_TEST(test_weakness_mismatch, 3)
{
    weft_group *world = join(0);
    CHECK(!weft_symm_rendezvous(floats(rank == 1 ? 99 : 100), world));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "rank 0: 400 bytes");
    CHECK_CONTAINS(weft_last_error(), "rank 1: 396 bytes");
    CHECK_CONTAINS(weft_last_error(), "rank 2: 400 bytes");
    /* One rank brings ordinary memory: all are told, at once. */
    long long began = harness_now();
    weft_tensor *x = rank == 2 ? weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100)) : floats(100);
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    if (rank != 2)
        CHECK_CONTAINS(weft_last_error(), "rank 2: ");
    CHECK((harness_now() - began) / 1000000 < 8000);
    CHECK(weft_symm_rendezvous(floats(100), world));
    finish(world);
}

/* 14: views and offsets mean the same on all ranks. */
RANKS_TEST(test_weakness_views, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = floats(64);
    float *mine = weft_tensor_data(x);
    for (int i = 0; i < 64; i++)
        mine[i] = (float)(100 * rank + i);
    weft_tensor *part = weft_slice(x, 0, 16, 32, 1);
    weft_symm *mem = weft_symm_rendezvous(part, world);
    CHECK(mem);
    CHECK_INT(symm_info(mem).offset, 64);
    CHECK_INT(symm_info(mem).bytes, 256);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    int peer = 1 - rank;
    CHECK_INT(weft_item(weft_symm_tensor(mem, peer), 0), 100 * peer + 16);
    CHECK_INT(weft_tensor_numel(weft_symm_tensor(mem, peer)), 16);
    CHECK_INT(weft_item(weft_symm_remote_tensor(mem, peer, WEFT_SHAPE(48), WEFT_F32), 47),
              100 * peer + 63);
    CHECK(!weft_symm_remote_tensor(mem, peer, WEFT_SHAPE(49), WEFT_F32));
    CHECK_INT(weft_item(weft_symm_buffer(mem, peer, WEFT_SHAPE(2), WEFT_F32, 3), 1),
              100 * peer + 4);
    weft_symm *whole = weft_symm_rendezvous(x, world); /* cached: the same block */
    CHECK(whole && symm_info(whole).offset == 0);
    CHECK(weft_symm_buffer_ptr(whole, peer) == weft_symm_buffer_ptr(mem, peer));
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

/* 15, 16: many tensors in one block, at equal offsets, whose places are used again. */
RANKS_TEST(test_weakness_pool, 2)
{
    weft_group *world = join(0);
    weft_symm_pool *pool = weft_symm_pool_new(WEFT_CPU, 1 << 20);
    CHECK(pool);
    weft_tensor *tensors[200];
    for (int i = 0; i < 200; i++) {
        tensors[i] = weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(i % 17 * 30 + 1));
        CHECK(tensors[i]);
    }
    for (int i = 0; i < 200; i += 3) /* in an order of its own on each rank */
        weft_release(tensors[rank ? i : 198 - i]);
    weft_tensor *again = weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(57 % 17 * 30 + 1));
    CHECK(again && weft_item(again, 0) == 0);
    weft_symm *one = weft_symm_rendezvous(tensors[1], world);
    weft_symm *two = weft_symm_rendezvous(tensors[100], world); /* local: the block is known */
    CHECK(one && two);
    CHECK(weft_symm_buffer_ptr(one, 1 - rank) == weft_symm_buffer_ptr(two, 1 - rank));
    weft_fill(tensors[100], rank + 5);
    CHECK_OK(weft_symm_barrier(two, 1, WEFT_DEFAULT));
    CHECK_INT(weft_item(weft_symm_tensor(two, 1 - rank), 0), 1 - rank + 5);
    CHECK_OK(weft_symm_barrier(two, 1, WEFT_DEFAULT));
    CHECK(!weft_symm_pool_empty(pool, WEFT_F32, WEFT_SHAPE(1 << 20)));
    CHECK_INT(weft_last_status(), WEFT_ERR_NO_SPACE);
    CHECK(!weft_symm_pool_new(WEFT_CPU, SIZE_MAX));
    weft_release(pool); /* the tensors keep the block */
    CHECK_INT(weft_item(tensors[100], 0), rank + 5);
    /* Released in full, a pool has one gap again. */
    weft_symm_pool *fresh = weft_symm_pool_new(WEFT_CPU, 1 << 16);
    for (int round = 0; round < 3; round++) {
        weft_tensor *pieces[16];
        for (int i = 0; i < 16; i++)
            CHECK((pieces[i] = weft_symm_pool_empty(fresh, WEFT_U8, WEFT_SHAPE(4096))) != NULL);
        CHECK(!weft_symm_pool_empty(fresh, WEFT_U8, WEFT_SHAPE(1)));
        for (int i = 0; i < 16; i++)
            weft_release(pieces[i * 7 % 16]);
        weft_tensor *all = weft_symm_pool_empty(fresh, WEFT_U8, WEFT_SHAPE(1 << 16));
        CHECK(all);
        void *place = weft_tensor_data(all);
        weft_release(all);
        all = weft_symm_pool_empty(fresh, WEFT_U8, WEFT_SHAPE(100));
        CHECK(all && weft_tensor_data(all) == place); /* the place is used again */
        weft_release(all);
    }
    finish(world);
}

/* Memory files of weft that this process maps: how many, and how many KiB. */
static int count_mappings(long *kib)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from = 0, to = 0;
        if (!strstr(line, "memfd:weft"))
            continue;
        count++;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2)
            *kib += (long)((to - from) / 1024);
    }
    if (maps)
        fclose(maps);
    return count;
}

/* Those that it keeps open, in KiB.  What nobody maps or keeps open is gone. */
static long open_kib(void)
{
    long kib = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], target[64] = "";
        struct stat file;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "memfd:weft") &&
            !fstat(fd, &file))
            kib += (long)file.st_blocks / 2;
    }
    return kib;
}

/* 15: released memory goes back to the system, on all ranks. */
RANKS_TEST(test_weakness_memory_returns, 2)
{
    weft_group *world = join(0);
    CHECK(weft_symm_rendezvous(floats(1), world)); /* what the first one makes stays */
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    long mapped = 0, mapped_after = 0, opened = open_kib();
    int before = count_mappings(&mapped);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    for (int i = 0; i < 10; i++) {
        weft_scope_open();
        weft_tensor *x = weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(64 << 20));
        weft_symm *mem = weft_symm_rendezvous(x, world);
        CHECK(mem);
        weft_tensor *theirs = weft_symm_tensor(mem, 1 - rank);
        ((char *)weft_tensor_data(theirs))[(64 << 20) - 1] = 1;
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        weft_scope_close();
    }
    CHECK(weft_symm_workspace(world, WEFT_CPU, 1000));
    CHECK(weft_symm_workspace(world, WEFT_CPU, 500)); /* no smaller one is made */
    CHECK_INT(symm_info(weft_symm_workspace(world, WEFT_CPU, 10)).bytes, 1000);
    weft_symm *grown = weft_symm_workspace(world, WEFT_CPU, 4000);
    CHECK(grown && symm_info(grown).bytes == 4000);
    CHECK_OK(weft_symm_barrier(grown, 0, WEFT_DEFAULT));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(count_mappings(&mapped_after) <=
          before + 6); /* the workspaces: handles of both are in scope */
    CHECK(mapped_after - mapped < 8 * 1024 && open_kib() - opened < 8 * 1024);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* Large blocks between ranks; the last byte counts. */
RANKS_TEST(test_weakness_two_gib, 2)
{
    weft_group *world = join(0);
    bool small = VALUES_SANITIZED || harness_in_threads; /* sees no more in more; test_coll_large */
    int64_t bytes = small ? 1 << 28 : (int64_t)2 << 30;
    weft_tensor *x = rank < 2 ? weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(bytes)) : NULL;
    weft_status status = x ? WEFT_OK : weft_last_status();
    weft_symm *mem = weft_symm_rendezvous(x, world);
    if (!mem && (status == WEFT_ERR_NO_MEMORY || weft_last_status() == WEFT_ERR_NO_MEMORY))
        SKIP("this machine has not 4 GiB to spare");
    CHECK(mem);
    unsigned char *mine = weft_tensor_data(x);
    mine[bytes - 1] = (unsigned char)(rank + 7);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    CHECK_INT(((unsigned char *)weft_symm_buffer_ptr(mem, 1 - rank))[bytes - 1], 1 - rank + 7);
    CHECK_INT(weft_item(weft_symm_buffer(mem, 1 - rank, WEFT_SHAPE(1), WEFT_U8, bytes - 1), 0),
              1 - rank + 7);
    CHECK(!weft_symm_buffer(mem, 1 - rank, WEFT_SHAPE(1), WEFT_U8, bytes));
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

/* 9: nothing but the rendezvous is collective: ranks allocate and release as they like. */
RANKS_TEST(test_weakness_local, 3)
{
    weft_group *world = join(0);
    for (int i = 0; i < 10 + rank * 7; i++)
        weft_release(floats(1000 + i));
    weft_tensor *x = floats(10);
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    weft_tensor *theirs = weft_symm_tensor(mem, (rank + 1) % size);
    if (rank == 1) { /* gives up its own; the others still see it */
        weft_release(x);
        weft_release(mem);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    } else {
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_INT(weft_item(theirs, 9), 0);
    }
    weft_release(theirs);
    CHECK(weft_symm_rendezvous(floats(10), world));
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
