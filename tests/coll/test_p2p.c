/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/p2p/p2p.c, coll/p2p/p2p_send.c, coll/p2p/p2p_recv.c */
/* Point to point: order, tags, receives from any rank, batches, messages to oneself, what fits
 * before anybody receives, two threads at once, and everything that can go wrong.  Ranks that can
 * read each other's memory and ranks that cannot (WEFT_CMA=off) run the same tests. */
#include "base/os/os.h"
#include "coll_values.h"
#include "jobs.h"
#include "standing.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SMALL = 5, MEDIUM = 3000, LARGE = 150000 }; /* i32: a slot, the room, an RTS or pieces */

static weft_tensor *message(int64_t count, int value)
{
    return weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count), value);
}

/* First and last element: pieces in the wrong place show there. */
static bool holds(weft_tensor *x, int value)
{
    int64_t last = weft_tensor_numel(x) - 1;
    return weft_item(x, 0) == value && weft_item(x, last / 2) == value &&
           weft_item(x, last) == value;
}

static weft_i_os no_looks; /* filled before there are threads of the library */
static ssize_t never_look(pid_t process, void *to, uint64_t from, size_t bytes)
{
    (void)process, (void)to, (void)from, (void)bytes;
    errno = EPERM;
    return -1;
}

/* Every test of bytes runs with both ways of large messages.  Without the kernel's copies nobody
 * asks for them. */
static void set_cma(const char *word)
{
    if (harness_in_threads)
        return; /* threads always can */
    setenv("WEFT_CMA", word, 1);
    no_looks = weft_i_os_linux;
    no_looks.read_process = never_look;
    if (!strcmp(word, "off"))
        weft_i_os_now = &no_looks;
}

/* ---- order and tags ---- */

/* Rank 0 sends, with three tags by turns; the others receive tag by tag, so that messages of the
 * other tags have to make way. */
static void run_tags(int rank, int size, const char *cma)
{
    static const int64_t counts[] = {SMALL, MEDIUM, LARGE, 1};
    enum { MESSAGES = 24, TAGS = 3 };
    set_cma(cma);
    weft_group *world = join(30000);
    weft_work *works[2 * MESSAGES];
    int posted = 0;
    for (int to = 1; rank == 0 && to < size; to++)
        for (int m = 0; m < MESSAGES; m++) {
            works[posted] = weft_send_tag_start(message(counts[m / TAGS % 4], 100 * to + m), to,
                                                m % TAGS, world);
            CHECK(works[posted]);
            CHECK_INT(weft_work_source(works[posted++]), -1);
        }
    for (int tag = TAGS - 1; rank && tag >= 0; tag--)
        for (int m = tag; m < MESSAGES; m += TAGS) {
            weft_tensor *x = message(counts[m / TAGS % 4], 0);
            CHECK_OK(weft_recv_tag(x, 0, tag, world));
            CHECK(holds(x, 100 * rank + m));
        }
    while (posted)
        CHECK_OK(weft_work_wait(works[--posted], WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_p2p_tags, 3)
{
    run_tags(rank, size, "auto");
}

RANKS_TEST(test_p2p_tags_staged, 2)
{
    if (harness_in_threads)
        SKIP("threads never stage");
    run_tags(rank, size, "off");
}

/* Receives posted before their messages come, in another order than they come. */
RANKS_TEST(test_p2p_posted_receives, 2)
{
    enum { TAGS = 6 };
    static const int64_t counts[] = {LARGE, SMALL, MEDIUM};
    weft_group *world = join(30000);
    weft_tensor *got[2 * TAGS];
    weft_work *works[2 * TAGS];
    if (rank == 1)
        for (int i = 0; i < 2 * TAGS; i++) {
            got[i] = message(counts[i % 3], -1);
            CHECK(works[i] = weft_recv_tag_start(got[i], 0, i % TAGS, world));
        }
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    for (int tag = TAGS - 1; rank == 0 && tag >= 0; tag--) {
        CHECK_OK(weft_send_tag(message(counts[tag % 3], tag), 1, tag, world));
        CHECK_OK(weft_send_tag(message(counts[tag % 3], tag + TAGS), 1, tag, world));
    }
    for (int i = 0; rank == 1 && i < 2 * TAGS; i++) {
        CHECK_OK(weft_work_wait(works[i], WEFT_DEFAULT));
        CHECK(holds(got[i], i));
        CHECK_INT(weft_work_source(works[i]), 0);
    }
    finish(world);
}

/* ---- any source ---- */

/* Everybody sends to rank 0, which does not say from whom it takes; each sender's order is kept. */
RANKS_TEST(test_p2p_any, 4)
{
    enum { MESSAGES = 40 };
    weft_group *world = join(30000);
    for (int m = 0; rank && m < MESSAGES; m++)
        CHECK_OK(weft_send(message(SMALL, m), 0, world));
    if (rank)
        CHECK_OK(weft_send_tag(message(LARGE, rank), 0, 7, world));
    int next[4] = {0};
    for (int i = 0; rank == 0 && i < (size - 1) * MESSAGES; i++) {
        int source = -1;
        weft_tensor *x = message(SMALL, -1);
        CHECK_OK(weft_recv_any(x, 0, world, &source));
        CHECK(source > 0 && source < size);
        CHECK(holds(x, next[source]++));
    }
    for (int i = 1; rank == 0 && i < size; i++) { /* the large ones waited behind */
        weft_tensor *x = message(LARGE, -1);
        weft_work *work = weft_recv_tag_start(x, WEFT_ANY, 7, world);
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        CHECK(weft_work_source(work) > 0 && holds(x, weft_work_source(work)));
        next[weft_work_source(work)]++;
    }
    for (int i = 1; rank == 0 && i < size; i++)
        CHECK_INT(next[i], MESSAGES + 1);
    finish(world);
}

/* When all have sent all they have, everybody gets a turn in each round. */
RANKS_TEST(test_p2p_any_fair, 4)
{
    enum { MESSAGES = 20 };
    weft_group *world = join(30000);
    for (int m = 0; rank && m < MESSAGES; m++)
        CHECK_OK(weft_send(message(SMALL, m), 0, world));
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    for (int m = 0; rank == 0 && m < MESSAGES; m++) {
        int seen = 0, source = -1;
        for (int i = 1; i < size; i++) {
            CHECK_OK(weft_recv_any(message(SMALL, 0), 0, world, &source));
            seen |= 1 << source;
        }
        CHECK_INT(seen, 0xe);
    }
    finish(world);
}

/* Of two receives that fit a message the one posted first gets it, whether it names the rank or
 * not. */
RANKS_TEST(test_p2p_any_order, 2)
{
    weft_group *world = join(30000);
    weft_tensor *got[4];
    weft_work *works[4];
    for (int i = 0; rank == 1 && i < 4; i++) {
        got[i] = message(SMALL, -1);
        CHECK(works[i] = weft_recv_start(got[i], i % 2 ? 0 : WEFT_ANY, world));
    }
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    for (int i = 0; i < 4; i++)
        if (rank == 0) {
            CHECK_OK(weft_send(message(SMALL, i), 1, world));
        } else {
            CHECK_OK(weft_work_wait(works[i], WEFT_DEFAULT));
            CHECK(holds(got[i], i));
        }
    finish(world);
}

/* A receive from any rank goes on while one of them is there, and ends when all have left. */
RANKS_TEST(test_p2p_any_left, 3)
{
    weft_group *world = join(30000);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT)); /* makes what it shares */
    if (rank == 0) {
        weft_tensor *x = message(SMALL, -1);
        while (weft_i_group_fate(world, 2) != WEFT_ERR_PEER_LEFT)
            rest_us(500);
        standing_mark(world);
        harness_mark();
        CHECK_OK(weft_recv(x, WEFT_ANY, world));
        CHECK(holds(x, 1));
        CHECK_STATUS(weft_recv(x, WEFT_ANY, world), WEFT_ERR_PEER_LEFT);
    } else if (rank == 1) {
        CHECK(harness_await(0, 1));
        CHECK(standing_await(world, 0, "recv", true));
        CHECK_OK(weft_send(message(SMALL, 1), 0, world));
    }
    finish(world);
}

/* A posted message that nobody waits for gets on, also after this rank has waited for another. */
RANKS_TEST(test_p2p_pushed_after_a_wait, 2)
{
    set_cma("off"); /* in pieces: somebody must push */
    weft_group *world = join(30000);
    weft_tensor *first = message(SMALL, rank), *large = message(LARGE, rank);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT)); /* makes what it shares */
    standing_mark(world);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0) {
        CHECK_OK(weft_recv(first, 1, world));
        weft_work *work = weft_send_start(large, 1, world);
        CHECK(work && harness_await(1, 1)); /* it is not weft that this rank waits in */
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    } else {
        CHECK(standing_await(world, 0, "recv", true));
        CHECK_OK(weft_send(first, 0, world));
        CHECK_OK(weft_recv(large, 0, world));
        CHECK(holds(large, 0));
        harness_mark();
    }
    finish(world);
}

/* ---- oneself, both at once, batches ---- */

RANKS_TEST(test_p2p_self, 2)
{
    static const int64_t counts[] = {SMALL, MEDIUM, LARGE};
    weft_group *world = join(30000);
    for (int i = 0; i < 6; i++) {
        weft_tensor *x = message(counts[i % 3], 10 * rank + i), *y = message(counts[i % 3], -1);
        weft_work *first =
            i < 3 ? weft_send_start(x, rank, world) : weft_recv_start(y, rank, world);
        weft_work *second =
            i < 3 ? weft_recv_start(y, rank, world) : weft_send_start(x, rank, world);
        CHECK_OK(weft_work_wait(first, WEFT_DEFAULT));
        CHECK_OK(weft_work_wait(second, WEFT_DEFAULT));
        CHECK(holds(y, 10 * rank + i));
        CHECK_INT(weft_work_source(i < 3 ? second : first), rank);
    }
    weft_tensor *x = message(SMALL, 3), *y = message(SMALL, 0);
    CHECK_OK(weft_send_recv(y, rank, x, rank, world));
    CHECK(holds(y, 3));
    weft_clear_error();
    CHECK_STATUS(weft_send(x, rank, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "itself");
    CHECK_STATUS(weft_recv(x, rank, world), WEFT_ERR_INVALID_ARG);
    finish(world);
}

static void run_ring(int rank, int size, const char *cma)
{
    static const int64_t counts[] = {0, 1, 12, 28, 29, 1000, 8192, 8193, 40000, LARGE};
    set_cma(cma);
    weft_group *world = join(30000);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int round = 0; round < 3; round++) {
            size_t count = (size_t)counts[i];
            uint64_t seed = i * 10 + (unsigned)round;
            weft_tensor *x = weft_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(counts[i]));
            weft_tensor *y = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(counts[i]));
            values_put(WEFT_I32, VALUES_ANY, seed, rank, 0, count, weft_tensor_data(x));
            CHECK_OK(weft_send_recv(y, last, x, next, world));
            CHECK_INT(values_check(WEFT_I32, VALUES_ANY, seed, last, 0, count, weft_tensor_data(y)),
                      -1);
        }
    finish(world);
}

RANKS_TEST(test_p2p_ring, 3)
{
    run_ring(rank, size, "auto");
}

RANKS_TEST(test_p2p_ring_staged, 4)
{
    if (harness_in_threads)
        SKIP("threads never stage");
    run_ring(rank, size, "off");
}

/* ---- symmetric memory ---- */

static weft_i_os counting_table;
static int kernel_copies;

static ssize_t count_read_process(int process, void *to, uint64_t from, size_t bytes)
{
    kernel_copies++;
    return weft_i_os_linux.read_process(process, to, from, bytes);
}

static void meet(weft_group *world)
{
    weft_tensor *x = message(1, 1);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
}

/* A part of symmetric memory goes from rank 0 to rank 1, who takes it in so many copies by
 * the kernel. */
static void send_part(weft_group *world, weft_tensor *block, int rank, int64_t first, int64_t count,
                      int copies)
{
    weft_tensor *part = weft_narrow(block, 0, first, count), *out = message(count, -1);
    int before = kernel_copies;
    if (rank == 0)
        weft_fill(part, 7 + (double)count);
    CHECK_OK(rank == 0 ? weft_send(part, 1, world) : weft_recv(out, 0, world));
    CHECK(rank == 0 || holds(out, 7 + (int)count));
    if (rank == 1)
        CHECK_INT(kernel_copies - before, copies);
}

/* Who has mapped the sender's memory copies it by itself, from 32 KiB on; who has let go of it, or
 * has never met it, still gets the message. */
RANKS_TEST(test_p2p_symmetric, 2)
{
    enum { COUNT = 5 << 20, PART = 4 << 20 }; /* more than is copied between two looks */
    weft_group *world = join(30000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_tensor *block = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT));
    weft_tensor *stranger = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(LARGE));
    CHECK(block && stranger);
    meet(world);               /* for the first time: they try to read each other's memory */
    if (!harness_in_threads) { /* they need no kernel */
        counting_table = weft_i_os_linux;
        counting_table.read_process = count_read_process;
        weft_i_os_now = &counting_table;
    }
    int once = harness_in_threads ? 0 : 1;
    weft_scope_open();
    CHECK(weft_symm_rendezvous(block, world));
    send_part(world, block, rank, 3, 100, 0);
    send_part(world, block, rank, 1001, 9000, 0);
    send_part(world, block, rank, 77, LARGE, 0);
    send_part(world, block, rank, COUNT - PART - 5, PART + 5, 0);
    send_part(world, stranger, rank, 0, LARGE, once);
    weft_scope_close();
    meet(world);
    if (rank == 1) {
        weft_release(block); /* and with it what was mapped */
        block = message(COUNT, 0);
    }
    send_part(world, block, rank, 77, LARGE, once);
    meet(world);
    if (!harness_in_threads)
        weft_i_os_now = &weft_i_os_linux;
    finish(world);
}

/* Ordinary memory of more than one copy: every element at its place, nothing behind the last. */
RANKS_TEST(test_p2p_several_copies, 2)
{
    enum { COUNT = (9 << 20) + 3 }; /* of 4 bytes: 16 MiB are copied between two looks */
    weft_group *world = join(30000);
    weft_tensor *x = weft_arange(WEFT_I32, WEFT_CPU, 0, rank ? COUNT + 5 : COUNT, 1);
    CHECK(x);
    if (rank) {
        weft_fill(x, -1);
        CHECK_OK(weft_recv(weft_narrow(x, 0, 0, COUNT), 0, world));
        const int32_t *data = weft_tensor_data(x);
        for (int i = 0; i < COUNT; i++)
            if (data[i] != i)
                FAIL("element %d is %d", i, data[i]);
        for (int i = COUNT; i < COUNT + 5; i++)
            CHECK_INT(data[i], -1);
    } else {
        CHECK_OK(weft_send(x, 1, world));
    }
    (void)size;
    finish(world);
}

/* 32 KiB find room before anybody receives, wherever the last message ended and the memory lies. */
RANKS_TEST(test_p2p_send_first, 2)
{
    weft_group *world = join(30000);
    int other = 1 - rank;
    for (int round = 0; round < 30; round++) {
        int64_t count = round % 2 ? 8192 : 100 + 37 * round;
        weft_tensor *x = message(count, round), *y = message(count, -1);
        if (round % 3 == 0)
            CHECK_OK(weft_fill(x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count)), round));
        CHECK_OK(weft_send(x, other, world));
        CHECK_OK(weft_recv(y, other, world));
        CHECK(holds(y, round));
    }
    finish(world);
}

/* Everybody to everybody, itself too, in one batch; sources are told one by one. */
RANKS_TEST(test_p2p_batch, 3)
{
    static const int64_t counts[] = {SMALL, LARGE, MEDIUM};
    weft_group *world = join(30000);
    weft_p2p_op ops[6];
    for (int peer = 0; peer < size; peer++) {
        ops[peer] = (weft_p2p_op){WEFT_P2P_SEND, message(counts[peer], 10 * rank + peer), peer,
                                  peer, world};
        ops[size + peer] =
            (weft_p2p_op){WEFT_P2P_RECV, message(counts[rank], -1), peer, rank, world};
    }
    weft_work *work = weft_batch_start(ops, 2 * size);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    CHECK_OK(weft_work_test(work));
    CHECK_INT(weft_work_source(work), -1);
    for (int peer = 0; peer < size; peer++) {
        CHECK(holds(ops[size + peer].x, 10 * peer + rank));
        CHECK_INT(weft_batch_source(work, peer), -1);
        CHECK_INT(weft_batch_source(work, size + peer), peer);
    }
    CHECK_INT(weft_batch_source(work, 2 * size), -1);
    finish(world);
}

RANKS_TEST(test_p2p_arguments, 2)
{
    weft_group *world = join(30000);
    int everybody[] = {0, 1};
    weft_group *group = weft_group_new(world, everybody, 2, NULL);
    weft_tensor *x = message(SMALL, rank), *y = message(SMALL, 0);
    weft_p2p_op good = {WEFT_P2P_SEND, x, 1 - rank, 0, world}, ops[2];
    struct {
        weft_p2p_op op;
        const char *says;
    } bad[] = {{{(weft_p2p_kind)7, x, 0, 0, world}, "neither send nor receive"},
               {{WEFT_P2P_RECV, y, 0, 0, group}, "another group"},
               {{WEFT_P2P_RECV, y, 2, 0, world}, "rank 2 must be in [0, 2)"},
               {{WEFT_P2P_SEND, x, WEFT_ANY, 0, world}, "rank -1 must be in [0, 2)"},
               {{WEFT_P2P_SEND, x, 0, -3, world}, "tag -3"},
               {{WEFT_P2P_SEND, NULL, 0, 0, world}, "the input is NULL"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_clear_error();
        ops[0] = good;
        ops[1] = bad[i].op;
        CHECK(!weft_batch_start(ops, 2));
        CHECK(weft_last_status() == WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), bad[i].says);
    }
    weft_clear_error();
    CHECK(!weft_batch_start(NULL, 1) && weft_last_status() == WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK(!weft_batch_start(&good, -1) && weft_last_status() == WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_recv_any(y, 0, world, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_send_tag(x, 1 - rank, -1, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_send_recv(x, 1 - rank, x, 1 - rank, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "overlap");
    CHECK_INT(weft_work_source(NULL), -1);
    weft_clear_error();
    CHECK_OK(weft_send_recv(y, 1 - rank, x, 1 - rank, world)); /* nothing of it has gone out */
    CHECK(holds(y, 1 - rank));
    finish(world);
}

/* ---- threads ---- */

typedef struct poster {
    weft_group *world;
    int rank, tag;
    atomic_int wrong; /* relaxed: read after the join */
    pthread_t thread;
} poster;

static void *exchange_much(void *arg)
{
    poster *p = arg;
    static const int64_t counts[] = {SMALL, MEDIUM, 9000, 40000};
    weft_scope_open();
    for (int m = 0; m < 40 && !atomic_load(&p->wrong); m++) {
        int64_t count = counts[m % 4];
        weft_tensor *x = message(count, 1000 * p->tag + m), *y = message(count, -1);
        weft_work *sending = weft_send_tag_start(x, 1 - p->rank, p->tag, p->world);
        bool right = weft_recv_tag(y, 1 - p->rank, p->tag, p->world) == WEFT_OK &&
                     weft_work_wait(sending, WEFT_DEFAULT) == WEFT_OK &&
                     holds(y, 1000 * p->tag + m);
        atomic_store(&p->wrong, !right);
    }
    weft_scope_close();
    return NULL;
}

RANKS_TEST(test_p2p_threads, 2)
{
    enum { THREADS = 3 };
    weft_group *world = join(30000);
    poster posters[THREADS];
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    for (int i = 0; i < THREADS; i++) {
        posters[i] = (poster){.world = world, .rank = rank, .tag = i};
        CHECK(!pthread_create(&posters[i].thread, NULL, exchange_much, &posters[i]));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(posters[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(atomic_load(&posters[i].wrong), 0);
    finish(world);
}

/* ---- what goes wrong ---- */

/* The receiver names another count: it is told, also if the message had been put aside; so is a
 * sender that still waits. */
static void run_mismatch(int rank, int64_t sent, bool aside)
{
    weft_group *world = join(30000);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    if (rank == 0) {
        weft_p2p_op ops[] = {{WEFT_P2P_SEND, message(sent, 1), 1, 1, world},
                             {WEFT_P2P_SEND, message(SMALL, 2), 1, 2, world}};
        weft_work *work = weft_batch_start(ops, 2);
        weft_status status = weft_work_wait(work, WEFT_DEFAULT);
        CHECK(status == WEFT_ERR_MISMATCH || (sent < LARGE && status == WEFT_OK));
    } else {
        weft_tensor *x = message(SMALL, 0);
        if (aside) {
            CHECK_OK(weft_recv_tag(x, 0, 2, world));
            CHECK(holds(x, 2));
        }
        CHECK_STATUS(weft_recv_tag(message(sent + 1, 0), 0, 1, world), WEFT_ERR_MISMATCH);
        CHECK_CONTAINS(weft_last_error(), "rank 0 sends");
        CHECK_CONTAINS(weft_last_error(), "rank 1 expects");
        CHECK_STATUS(weft_recv_tag(x, 0, 2, world), WEFT_ERR_MISMATCH);
    }
    finish(world);
}

RANKS_TEST(test_p2p_mismatch_small, 2)
{
    run_mismatch(rank, SMALL, false);
}

RANKS_TEST(test_p2p_mismatch_large, 2)
{
    run_mismatch(rank, LARGE, false);
}

RANKS_TEST(test_p2p_mismatch_aside, 2)
{
    run_mismatch(rank, LARGE, true);
}

/* A receive that times out has not happened; one for a tag that never comes does not take others.
 */
RANKS_TEST(test_p2p_timeout, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = message(SMALL, 0);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    if (rank == 1) {
        int source = -1;
        CHECK_OK(weft_group_set_timeout(world, 30));
        CHECK_STATUS(weft_recv_any(x, 5, world, &source), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "any other rank");
        weft_tensor *never = message(SMALL, 77);
        CHECK_STATUS(weft_recv_any(never, 7, world, &source), WEFT_ERR_TIMEOUT);
        CHECK_STATUS(weft_recv_tag(x, 0, 5, world), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "tag 5");
        weft_work *work = weft_recv_tag_start(x, 0, 6, world);
        CHECK_STATUS(weft_work_wait(work, 20), WEFT_ERR_TIMEOUT);
        CHECK_OK(weft_group_set_timeout(world, 30000));
        weft_clear_error();
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT)); /* it went on */
        CHECK(holds(x, 6));
        CHECK_OK(weft_recv_tag(x, 0, 5, world));
        CHECK(holds(x, 5));
        work = weft_recv_tag_start(x, WEFT_ANY, 7, world); /* it, not the one that gave up */
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        CHECK(holds(x, 7) && weft_work_source(work) == 0 && holds(never, 77));
    } else {
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        CHECK_OK(weft_send_tag(message(SMALL, 5), 1, 5, world));
        CHECK_OK(weft_send_tag(message(SMALL, 7), 1, 7, world));
        CHECK_OK(weft_send_tag(message(SMALL, 6), 1, 6, world));
    }
    finish(world);
}

/* A large send that times out: nobody reads its memory any more, and the group is lost. */
RANKS_TEST(test_p2p_withdrawn, 2)
{
    weft_group *world = join(30000);
    int everybody[] = {0, 1};
    weft_group *group = weft_group_new(world, everybody, 2, NULL);
    weft_tensor *x = message(LARGE, rank);
    CHECK_OK(weft_work_wait(weft_barrier_start(group), WEFT_DEFAULT));
    if (rank == 0) {
        CHECK_OK(weft_group_set_timeout(group, 30));
        CHECK_STATUS(weft_send(x, 1, group), WEFT_ERR_TIMEOUT);
        weft_release(x);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1)
        CHECK_STATUS(weft_recv(x, 0, group), WEFT_ERR_REVOKED);
    finish(world);
}

/* A rank dies: whoever waits for it, by name or not, is told; what it sent before is there. */
static void run_death(int rank, int64_t count, bool any)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(30000);
    int source = -1;
    weft_tensor *x = message(count, rank);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    if (rank == 2) {
        harness_rank_dies();
        CHECK_OK(weft_send(message(SMALL, 9), 0, world));
        weft_send_start(x, 0, world);
        if (count > MEDIUM)
            weft_send_start(x, 0, world); /* perhaps in its middle */
        rest_us(rank * 100);
        kill(getpid(), SIGKILL);
    }
    if (rank == 0) {
        weft_tensor *first = message(SMALL, 0);
        CHECK_OK(weft_recv(first, 2, world));
        CHECK(holds(first, 9));
        weft_status status = WEFT_OK;
        for (int i = 0; i < 3 && status == WEFT_OK; i++)
            status = any ? weft_recv_any(x, 0, world, &source) : weft_recv(x, 2, world);
        CHECK_STATUS(status, WEFT_ERR_PEER_DEAD);
        CHECK_CONTAINS(weft_last_error(), "rank 2 (");
    }
    finish(world);
}

RANKS_TEST(test_p2p_death_small, 3)
{
    run_death(rank, SMALL, false);
}

RANKS_TEST(test_p2p_death_large, 3)
{
    run_death(rank, LARGE, false);
}

RANKS_TEST(test_p2p_death_any, 3)
{
    run_death(rank, LARGE, true);
}

/* The receiver dies: a large send that waits for it is told. */
RANKS_TEST(test_p2p_death_receiver, 2)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(30000);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    if (rank == 1) {
        harness_rank_dies();
        rest_us(2000);
        kill(getpid(), SIGKILL);
    }
    weft_status status = WEFT_OK;
    while (status == WEFT_OK)
        status = weft_send(message(LARGE, 0), 1, world);
    CHECK_STATUS(status, WEFT_ERR_PEER_DEAD);
    finish(world);
}

/* Requests whose handles were dropped arrive; their tensors are theirs until then. */
RANKS_TEST(test_p2p_dropped, 3)
{
    static const int64_t counts[] = {LARGE, SMALL, MEDIUM};
    weft_group *world = join(30000);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    weft_p2p_op ops[3];
    for (int i = 0; i < 3; i++)
        ops[i] = (weft_p2p_op){WEFT_P2P_SEND, message(counts[i], 10 * rank + i), next, i, world};
    weft_release(weft_batch_start(ops, 3));
    for (int i = 0; i < 3; i++)
        weft_release(ops[i].x);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    for (int i = 2; i >= 0; i--) {
        weft_tensor *x = message(counts[i], -1);
        CHECK_OK(weft_recv_tag(x, last, i, world));
        CHECK(holds(x, 10 * last + i));
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* all have arrived: one look ends them */
    weft_tensor *x = message(SMALL, 0);
    weft_work *work = weft_send_start(message(SMALL, 1), next, world);
    CHECK_OK(weft_recv(x, last, world));
    CHECK_OK(weft_work_test(work));
    rest_us(20000); /* if the helper thread was at it, it still holds what the harness looks for */
    finish(world);
}

/* A message that had to make way for one with another tag is compared too, when it is received. */
static void run_kept(int rank, int64_t count, weft_dtype dtype, int64_t expected)
{
    weft_group *world = join(20000);
    weft_tensor *x = message(count, 5), *y = message(SMALL, 6);
    if (rank == 0) {
        weft_work *first = weft_send_tag_start(x, 1, 3, world);
        CHECK(first);
        CHECK_OK(weft_send_tag(y, 1, 4, world));
        (void)weft_work_wait(first, 20000); /* an RTS that is refused is told */
    } else {
        CHECK_OK(weft_recv_tag(y, 0, 4, world));
        CHECK(holds(y, 6));
        weft_tensor *other = weft_zeros(dtype, WEFT_CPU, WEFT_SHAPE(expected));
        CHECK_STATUS(weft_recv_tag(other, 0, 3, world), WEFT_ERR_MISMATCH);
        CHECK_CONTAINS(weft_last_error(), "rank 0 sends");
        CHECK(weft_item(other, 0) == 0); /* nothing of it was written */
    }
    finish(world);
}

RANKS_TEST(test_p2p_kept_dtype, 2)
{
    (void)size;
    run_kept(rank, SMALL, WEFT_F32, SMALL);
}

RANKS_TEST(test_p2p_kept_dtype_medium, 2)
{
    (void)size;
    run_kept(rank, MEDIUM, WEFT_F32, MEDIUM);
}

RANKS_TEST(test_p2p_kept_dtype_large, 2)
{
    (void)size;
    run_kept(rank, LARGE, WEFT_F32, LARGE);
}

RANKS_TEST(test_p2p_kept_length, 2)
{
    (void)size;
    run_kept(rank, MEDIUM, WEFT_I32, MEDIUM - 1);
}

/* ---- the first operation of a group ---- */

static weft_status come_together(int how, weft_group *group)
{
    switch (how) {
    case 0:
        return weft_group_barrier(group, WEFT_DEFAULT);
    case 1:
        return weft_monitored_barrier(group, 20000, true);
    case 2:
        return weft_group_split(group, 0, 0) ? WEFT_OK : weft_last_status();
    default:
        return weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)), group)
                   ? WEFT_OK
                   : weft_last_status();
    }
}

/* Two ranks exchange a message, which needs the group's bounce buffer; the others are waiting for
 * them elsewhere, or come there later. */
RANKS_TEST(test_p2p_first_of_its_group, 4)
{
    static const int all[] = {0, 1, 2, 3};
    weft_group *world = join(20000);
    for (int round = 0; round < 16; round++) {
        weft_scope_open();
        weft_group *group = weft_group_new(world, all, size, NULL);
        weft_tensor *x = message(round / 8 ? LARGE : SMALL, rank == 0 ? 70 + round : 0);
        bool pair = rank == 0 || rank == 3;
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        if (pair == (round / 4 % 2 == 0)) /* both orders; either is right */
            rest_us(3000);
        if (rank == 0)
            CHECK_OK(weft_send(x, 3, group));
        if (rank == 3) {
            CHECK_OK(weft_recv(x, 0, group));
            CHECK(holds(x, 70 + round));
        }
        CHECK_OK(come_together(round % 4, group));
        weft_tensor *sum = message(SMALL, 1); /* and the group is whole */
        CHECK_OK(weft_all_reduce_into(sum, sum, WEFT_SUM, group));
        CHECK(holds(sum, size));
        weft_scope_close();
    }
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
