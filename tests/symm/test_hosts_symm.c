/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/remote.c, symm/remote_moves.c, fabric/group/hosts_pads.c, fabric/group/hosts_puts.c */
/*
 * Symmetric memory of a group whose members are on two hosts: addresses, puts and gets of every size,
 * signals, barriers, what orders them, and messages that no member of ours would send.
 */
#include "jobs.h"
#include "symm_scene.h"

#include "fabric/group/hosts.h"
#include "transport/head.h"

#include <pthread.h>

/* The same body on 2 + 2 and on 3 + 1 ranks. */
#define SPREADS(name_)                            \
    static void name_##_body(int rank, int size); \
    HOSTS_TEST(name_##_2_2, 4, "2+2")             \
    {                                             \
        name_##_body(rank, size);                 \
    }                                             \
    HOSTS_TEST(name_##_3_1, 4, "3+1")             \
    {                                             \
        name_##_body(rank, size);                 \
    }                                             \
    static void name_##_body(__attribute__((unused)) int rank, __attribute__((unused)) int size)

static bool is_away(weft_group *group, int rank)
{
    return group->hosts->away[rank];
}

static weft_symm *meet_with(weft_group *world, weft_tensor *x)
{
    weft_symm *mem = weft_symm_rendezvous(x, world);
    if (!mem)
        FAIL("rendezvous: %s", weft_last_error());
    return mem;
}

static weft_symm *memory(weft_group *world, int64_t count)
{
    return meet_with(world, weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count)));
}

static int *own(weft_symm *mem, int rank)
{
    return weft_symm_buffer_ptr(mem, rank);
}

/* Element i of what `from` puts to `to` at a step. */
static int value_of(int from, int to, int step, int64_t i)
{
    return (int)((from * 31 + to * 17 + step * 7 + i * 3) % 65521);
}

static weft_tensor *filled(int from, int to, int step, int64_t count)
{
    weft_tensor *x = weft_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count));
    int *at = weft_tensor_data(x);
    for (int64_t i = 0; i < count; i++)
        at[i] = value_of(from, to, step, i);
    return x;
}

static void check_filled(const int *at, int from, int to, int step, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (at[i] != value_of(from, to, step, i))
            FAIL("element %lld of what %d put to %d at step %d is %d, not %d", (long long)i, from,
                 to, step, at[i], value_of(from, to, step, i));
}

/* ---- addresses ---- */

static void check_refused(const void *got, const char *what)
{
    if (got)
        FAIL("%s has given something", what);
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "is on another host");
    CHECK_CONTAINS(weft_last_error(), "weft_symm_put");
    CHECK_CONTAINS(weft_last_error(), what);
    weft_clear_error();
}

SPREADS(test_hosts_symm_addresses)
{
    weft_group *world = join(0);
    weft_symm *mem = memory(world, 64);
    weft_shape all = WEFT_SHAPE(64);
    for (int peer = 0; peer < size; peer++) {
        if (is_away(world, peer)) {
            check_refused(weft_symm_buffer_ptr(mem, peer), "weft_symm_buffer_ptr");
            check_refused(weft_symm_signal_pad_ptr(mem, peer), "weft_symm_signal_pad_ptr");
            check_refused(weft_symm_tensor(mem, peer), "weft_symm_tensor");
            check_refused(weft_symm_buffer(mem, peer, all, WEFT_I32, 0), "weft_symm_buffer");
            check_refused(weft_symm_remote_tensor(mem, peer, all, WEFT_I32),
                          "weft_symm_remote_tensor");
            check_refused(weft_symm_signal_pad(mem, peer, WEFT_SCALAR, WEFT_U32, 0),
                          "weft_symm_signal_pad");
        } else {
            CHECK(weft_symm_buffer_ptr(mem, peer) && weft_symm_signal_pad_ptr(mem, peer));
            CHECK(weft_symm_tensor(mem, peer));
            CHECK(weft_symm_signal_pad(mem, peer, WEFT_SCALAR, WEFT_U32, 0));
        }
    }
    CHECK(!weft_symm_buffer_ptr(mem, size) && weft_last_status() == WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    /* Members of one host share memory as ever. */
    own(mem, rank)[0] = 100 + rank;
    scene_barrier(mem);
    for (int peer = 0; peer < size; peer++)
        if (!is_away(world, peer))
            CHECK_INT(own(mem, peer)[0], 100 + peer);
    scene_barrier(mem);
    finish(world);
}

/* ---- puts and gets ---- */

enum { PIECE = 56 << 10 }; /* bytes, of remote.h */

SPREADS(test_hosts_symm_put_get)
{
    static const int64_t counts[] = {0,     1, 7, 1000, PIECE / 4 - 1, PIECE / 4, PIECE / 4 + 1,
                                     300001};
    enum { STEPS = sizeof counts / sizeof *counts, MOST = 300001 };
    weft_group *world = join(0);
    weft_symm *mem = memory(world, (int64_t)MOST * size);
    for (int step = 0; step < STEPS; step++) {
        int64_t count = counts[step];
        CHECK_OK(weft_scope_open());
        for (int to = 0; to < size; to++)
            CHECK_OK(weft_symm_put(mem, to, filled(rank, to, step, count), (int64_t)rank * MOST));
        CHECK_OK(weft_symm_barrier(mem, step % 3, WEFT_DEFAULT));
        for (int from = 0; from < size; from++)
            check_filled(own(mem, rank) + (int64_t)from * MOST, from, rank, step, count);
        for (int whose = 0; whose < size; whose++) { /* what our neighbour has put to it */
            int from = (rank + 1) % size;
            weft_tensor *got = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count + 1));
            weft_tensor *part = weft_slice(got, 0, 0, count, 1);
            CHECK_OK(weft_symm_get(part, mem, whose, (int64_t)from * MOST));
            check_filled(weft_tensor_data(got), from, whose, step, count);
            CHECK_INT(weft_item(got, count), 0);
        }
        CHECK_OK(weft_symm_barrier(mem, step % 3, WEFT_DEFAULT));
        CHECK_OK(weft_scope_close());
    }
    finish(world);
}

/* Of a view: its place, its bounds; and the same refusals as on one host. */
SPREADS(test_hosts_symm_views)
{
    weft_group *world = join(0);
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(100));
    weft_symm *whole = meet_with(world, x), *view = meet_with(world, weft_slice(x, 0, 40, 60, 1));
    int to = (rank + 2) % size;
    weft_tensor *five = filled(rank, to, 0, 5);
    CHECK_OK(weft_symm_put(view, to, five, 15));
    CHECK_STATUS(weft_symm_put(view, to, five, 16), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "exceeds the 20 there are");
    CHECK_STATUS(weft_symm_put(view, to, five, -1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_put(view, size, five, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_get(five, view, to, 16), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_put_with_signal(view, to, five, 0, symm_info(view).channels, 0),
                 WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_OK(weft_symm_barrier(whole, 0, WEFT_DEFAULT));
    const int *at = own(whole, rank);
    for (int i = 0; i < 100; i++)
        CHECK_INT(at[i],
                  i >= 55 && i < 60 ? value_of((rank + size - 2) % size, rank, 0, i - 55) : 0);
    CHECK_OK(weft_symm_barrier(whole, 0, WEFT_DEFAULT));
    weft_tensor *got = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(5));
    CHECK_OK(weft_symm_get(got, whole, to, 55));
    check_filled(weft_tensor_data(got), rank, to, 0, 5);
    CHECK_OK(weft_symm_barrier(whole, 0, WEFT_DEFAULT));
    finish(world);
}

/* What was put is seen after whatever the group does together, and after a signal by a third rank. */
SPREADS(test_hosts_symm_order)
{
    enum { COUNT = 20000, ROUNDS = 12 };
    weft_group *world = join(0);
    weft_symm *mem = memory(world, COUNT);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(weft_scope_open());
        int to = (rank + 1 + round % (size - 1)) % size;
        int from = (rank + size - 1 - round % (size - 1)) % size;
        weft_tensor *one = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
        CHECK_OK(weft_symm_put(mem, to, filled(rank, to, round, COUNT), 0));
        if (round % 3 == 0)
            CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        else if (round % 3 == 1)
            CHECK_OK(weft_all_reduce_into(one, one, WEFT_SUM, world));
        else
            CHECK_OK(weft_symm_barrier(mem, 5, WEFT_DEFAULT));
        check_filled(own(mem, rank), from, rank, round, COUNT);
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        CHECK_OK(weft_scope_close());
    }
    /* 0 puts to the last one and signals 1, who looks there. */
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *got = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT));
        if (rank == 0) {
            CHECK_OK(weft_symm_put(mem, size - 1, filled(0, 9, round, COUNT), 0));
            CHECK_OK(weft_symm_put_signal(mem, 1, 2, WEFT_DEFAULT));
            CHECK_OK(weft_symm_wait_signal(mem, 1, 2, WEFT_DEFAULT));
        } else if (rank == 1) {
            CHECK_OK(weft_symm_wait_signal(mem, 0, 2, WEFT_DEFAULT));
            CHECK_OK(weft_symm_get(got, mem, size - 1, 0));
            check_filled(weft_tensor_data(got), 0, 9, round, COUNT);
            CHECK_OK(weft_symm_put_signal(mem, 0, 2, WEFT_DEFAULT));
        }
        CHECK_OK(weft_scope_close());
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

/* ---- signals ---- */

/* A word of the pad for each channel and source; each holds one signal. */
SPREADS(test_hosts_symm_signals)
{
    weft_group *world = join(0);
    weft_symm *mem = memory(world, 1);
    int last = symm_info(mem).channels - 1;
    const int channels[] = {0, 1, last};
    const uint32_t *pad = weft_symm_signal_pad_ptr(mem, rank);
    size_t words = symm_info(mem).pad_bytes / sizeof(uint32_t);
    for (int to = 0; to < size; to++)
        for (int c = 0; c < 3; c++)
            if ((rank + to + c) % 3) {
                CHECK_OK(weft_symm_put_signal(mem, to, channels[c], WEFT_DEFAULT));
                CHECK_STATUS(weft_symm_put_signal(mem, to, channels[c], 0), WEFT_ERR_TIMEOUT);
            }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    for (size_t i = 0; i < words; i++) {
        int channel = (int)(i / (size_t)size), from = (int)(i % (size_t)size), c = 0;
        while (c < 3 && channels[c] != channel)
            c++;
        if (pad[i] != (c < 3 && (from + rank + c) % 3 ? 1u : 0u))
            FAIL("word %zu, of channel %d from rank %d, is %u", i, channel, from, pad[i]);
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT)); /* all have looked */
    for (int from = 0; from < size; from++)
        for (int c = 0; c < 3; c++)
            if ((from + rank + c) % 3)
                CHECK_OK(weft_symm_wait_signal(mem, from, channels[c], 0));
            else
                CHECK_STATUS(weft_symm_wait_signal(mem, from, channels[c], 0), WEFT_ERR_TIMEOUT);
    for (size_t i = 0; i < words; i++)
        CHECK_INT(pad[i], 0);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

/* There and back, with data of every size before the signal. */
SPREADS(test_hosts_symm_put_with_signal)
{
    static const int64_t counts[] = {1, 0, 2, 5000, PIECE / 4, PIECE / 4 + 1, 100000};
    enum { MOST = 100000, ROUNDS = 70 };
    weft_group *world = join(0);
    weft_symm *mem = memory(world, (int64_t)MOST * size);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t count = counts[round % 7];
        CHECK_OK(weft_scope_open());
        for (int k = 1; k < size; k++) {
            int to = (rank + k) % size;
            CHECK_OK(weft_symm_put_with_signal(mem, to, filled(rank, to, round, count),
                                               (int64_t)rank * MOST, 1, WEFT_DEFAULT));
        }
        for (int k = 1; k < size; k++) {
            int from = (rank + k) % size;
            CHECK_OK(weft_symm_wait_signal(mem, from, 1, WEFT_DEFAULT));
            check_filled(own(mem, rank) + (int64_t)from * MOST, from, rank, round, count);
            CHECK_OK(weft_symm_put_signal(mem, from, 2, WEFT_DEFAULT)); /* has looked */
        }
        for (int k = 1; k < size; k++)
            CHECK_OK(weft_symm_wait_signal(mem, (rank + k) % size, 2, WEFT_DEFAULT));
        CHECK_OK(weft_scope_close());
    }
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

/* ---- barriers ---- */

typedef struct lane {
    weft_symm *mem;
    int channel, rounds, failed;
    char text[200];
} lane;

static void *run_lane(void *arg)
{
    lane *l = arg;
    for (int i = 0; i < l->rounds && !l->failed; i++)
        l->failed = weft_symm_barrier(l->mem, l->channel, WEFT_DEFAULT);
    snprintf(l->text, sizeof l->text, "%s", weft_last_error());
    return NULL;
}

/* Channels do not disturb each other, whatever the order of the threads that use them. */
SPREADS(test_hosts_symm_barrier_channels)
{
    weft_group *world = join(0);
    weft_symm *mem = memory(world, 1);
    lane lanes[2] = {{.mem = mem, .channel = 1, .rounds = 60},
                     {.mem = mem, .channel = symm_info(mem).channels - 1, .rounds = 60}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) /* not begun in one order */
        CHECK(!pthread_create(&thread[i], NULL, run_lane, &lanes[(i + rank) % 2]));
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(thread[i], NULL));
    for (int i = 0; i < 2; i++)
        if (lanes[i].failed)
            FAIL("channel %d: %s", lanes[i].channel, lanes[i].text);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* A barrier that fails fails for all who came, and is there again. */
SPREADS(test_hosts_symm_barrier_timeout)
{
    enum { LIMIT = 300 };
    weft_group *world = join(0);
    weft_symm *mem = memory(world, 1);
    for (int late = 0; late < size; late++) {
        if (rank != late) {
            CHECK_STATUS(weft_symm_barrier(mem, 3, LIMIT), WEFT_ERR_TIMEOUT);
            CHECK_CONTAINS(weft_last_error(), "barrier on channel 3: waited 300 ms");
            weft_clear_error();
        }
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        for (int i = 0; i < 5; i++)
            CHECK_OK(weft_symm_barrier(mem, 3, WEFT_DEFAULT));
    }
    if (rank == 0) {
        CHECK_STATUS(weft_symm_wait_signal(mem, size - 1, 0, 100), WEFT_ERR_TIMEOUT);
        char who[32];
        snprintf(who, sizeof who, "rank %d", size - 1);
        CHECK_CONTAINS(weft_last_error(), who);
        weft_clear_error();
    }
    CHECK_OK(weft_symm_reset(mem, WEFT_DEFAULT));
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

/* ---- meeting, and letting go ---- */

SPREADS(test_hosts_symm_rendezvous)
{
    weft_group *world = join(0);
    int ends[] = {0, size - 1}, middle[] = {1, 2};
    bool at_end = rank == 0 || rank == size - 1;
    weft_group *two = weft_group_new(world, at_end ? ends : middle, 2, NULL);
    CHECK(two);
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(64));
    weft_symm *wide = meet_with(world, x), *narrow = meet_with(two, x);
    CHECK(weft_symm_rendezvous(x, world)->registration == wide->registration);
    /* A signal in one group does not end a wait in the other. */
    int beside = 1 - weft_rank(two), peer = at_end ? size - 1 - rank : 3 - rank;
    CHECK_OK(weft_symm_put_signal(wide, peer, 0, WEFT_DEFAULT));
    CHECK_STATUS(weft_symm_wait_signal(narrow, beside, 0, 20), WEFT_ERR_TIMEOUT);
    weft_clear_error();
    CHECK_OK(weft_symm_wait_signal(wide, peer, 0, WEFT_DEFAULT));
    CHECK_OK(weft_symm_put(narrow, beside, filled(rank, peer, 0, 64), 0));
    CHECK_OK(weft_symm_barrier(narrow, 0, WEFT_DEFAULT));
    check_filled(own(wide, rank), peer, rank, 0, 64);
    /* What differs is told to all, with a table; so is a rank that cannot take part. */
    weft_tensor *uneven = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(rank == 2 ? 5 : 4));
    CHECK(!weft_symm_rendezvous(uneven, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "rank 2: 20 bytes");
    weft_clear_error();
    weft_tensor *ordinary = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *fresh = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK(!weft_symm_rendezvous(rank == 1 ? ordinary : fresh, two) == (rank == 1 || rank == 2));
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_symm_barrier(memory(world, 1 + i), 0, WEFT_DEFAULT));
    finish(world);
}

/* The last rank lets go of its memory while others put there: nobody sees that, and nothing breaks. */
SPREADS(test_hosts_symm_free)
{
    enum { COUNT = 200000 };
    weft_group *world = join(0);
    for (int round = 0; round < 6; round++) {
        CHECK_OK(weft_scope_open());
        weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT));
        weft_symm *mem = meet_with(world, x);
        weft_tensor *data = filled(rank, 0, round, COUNT);
        if (rank == size - 1) {
            CHECK_OK(weft_symm_wait_signal(mem, 0, 0, WEFT_DEFAULT));
            weft_release(mem);
            weft_release(x);
        } else if (rank == 0) {
            CHECK_OK(weft_symm_put_signal(mem, size - 1, 0, WEFT_DEFAULT));
            for (int i = 0; i < 4; i++)
                CHECK_OK(weft_symm_put(mem, size - 1, data, 0));
        }
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        if (rank == 0) {
            CHECK_STATUS(weft_symm_get(data, mem, size - 1, 0), WEFT_ERR_STATE);
            CHECK_CONTAINS(weft_last_error(), "it has let go of that memory");
            weft_clear_error();
        }
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_OK(weft_scope_close());
    }
    finish(world);
}

/* Memory may outlive its group, and the world. */
SPREADS(test_hosts_symm_outlives)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3};
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(8));
    weft_keep(x);
    for (int i = 0; i < 3; i++) {
        weft_group *group = weft_group_new(world, all, size, NULL);
        CHECK(group);
        weft_symm *mem = meet_with(group, x);
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        weft_release(mem);
        CHECK_OK(weft_group_destroy(group));
    }
    CHECK_OK(weft_symm_barrier(meet_with(world, x), 0, WEFT_DEFAULT));
    finish(world);
    weft_release(x);
}

/* ---- what no member sends ---- */

static void tell(weft_group *group, int to, weft_i_head_kind kind, uint32_t a, uint32_t b,
                 uint32_t c, uint32_t d, size_t bytes)
{
    static const unsigned char data[64];
    const uint32_t word[WEFT_I_HEAD_WORDS] = {a, b, c, d};
    CHECK_OK(weft_i_hosts_tell(group, to, kind, word, data, bytes));
}

/* What makes no sense is dropped: of other memory, of meetings and gets that are not there. */
SPREADS(test_hosts_symm_stray)
{
    weft_group *world = join(0);
    weft_symm *mem = memory(world, 16);
    uint32_t serial = mem->registration->serial, none = serial + 1000;
    int last = size - 1, channels = symm_info(mem).channels;
    if (rank == 0) {
        tell(world, last, WEFT_I_HEAD_PUT, none, 0, 0, 0, 8);
        tell(world, last, WEFT_I_HEAD_GET, none, 0, 0, 77, 4);
        tell(world, last, WEFT_I_HEAD_GET, serial, 1 << 20, 0, 78, 4);
        tell(world, last, WEFT_I_HEAD_GET, serial, 0, 0xffffffff, 79, 4);
        tell(world, last, WEFT_I_HEAD_GET, serial, 0, 0, 80, 3);
        tell(world, last, WEFT_I_HEAD_GOT, serial, 5, 0, 0, 40);
        tell(world, last, WEFT_I_HEAD_GOT, none, 5, 0, 0, 40);
        tell(world, last, WEFT_I_HEAD_SIGNAL, none, 0, 0, 0, 0);
        tell(world, last, WEFT_I_HEAD_TAKEN, none, 0, 0, 0, 0);
        tell(world, last, WEFT_I_HEAD_TAKEN, serial, 0, 4000, 0, 0); /* it was not put */
        tell(world, last, WEFT_I_HEAD_APPLIED, 1u << 31, 0, 0, 0, 0);
        tell(world, last, WEFT_I_HEAD_POINT, (uint32_t)channels, 9, 9, serial, 0);
        tell(world, last, WEFT_I_HEAD_POINT, 0, 9, 9, none, 0);
        tell(world, last, WEFT_I_HEAD_POINT_BAR, 2, 9, 9, 9, 8);
        tell(world, last, WEFT_I_HEAD_POINT_BAR, 2, 9, 9, 9, 3);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    for (int i = 0; i < 20; i++)
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    for (int i = 0; i < 16; i++)
        CHECK_INT(own(mem, rank)[i], 0);
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    weft_tensor *one = filled(rank, 0, 0, 1);
    CHECK_OK(weft_symm_put(mem, (rank + 2) % size, one, rank));
    CHECK_OK(weft_symm_get(one, mem, last, 0));
    CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    finish(world);
}

/* Bytes that are not in the memory, and channels that are not in the pad: nobody can know what else is wrong,
 * so the group ends, for all. */
static void end_by(int rank, int size, weft_i_head_kind kind, uint32_t b, uint32_t c, uint32_t d,
                   size_t bytes)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3}, last = size - 1;
    weft_group *group = weft_group_new(world, all, size, NULL);
    CHECK(group);
    weft_symm *mem = memory(group, 16);
    if (rank == 0)
        tell(group, last, kind, mem->registration->serial, b, c, d, bytes);
    CHECK_STATUS(weft_symm_wait_signal(mem, (rank + 1) % size, 0, 60000), WEFT_ERR_PROTOCOL);
    weft_clear_error();
    for (int i = 0; i < 16; i++)
        CHECK_INT(own(mem, rank)[i], 0);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

SPREADS(test_hosts_symm_hostile_put)
{
    end_by(rank, size, WEFT_I_HEAD_PUT, 60, 0, 0, 8);
}

SPREADS(test_hosts_symm_hostile_offset)
{
    end_by(rank, size, WEFT_I_HEAD_PUT, 0xfffffff8, 0xffffffff, 0, 8);
}

SPREADS(test_hosts_symm_hostile_put_signal)
{
    end_by(rank, size, WEFT_I_HEAD_PUT, 0, 0, 0xfffffffe, 0);
}

SPREADS(test_hosts_symm_hostile_signal)
{
    end_by(rank, size, WEFT_I_HEAD_SIGNAL, 1 << 30, 0, 0, 0);
}

SPREADS(test_hosts_symm_hostile_taken)
{
    end_by(rank, size, WEFT_I_HEAD_TAKEN, 1 << 30, 0, 0, 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
