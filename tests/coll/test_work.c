/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/work.c */
/*
 * Posted work: many at once, waited for in any order and from any thread, polled, dropped, left
 * behind by their group; its errors; sends and receives that pass each other.
 */
#include "base/os/os.h"
#include "coll_acts.h"
#include "jobs.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- many, in any order ---- */

enum { WORKS = 40 };

typedef struct batch {
    act acts[WORKS];
    act_operands operands[WORKS];
    weft_work *works[WORKS];
} batch;

static void post_batch(batch *b, uint64_t seed, int rank, int size, weft_group *group)
{
    static const int64_t counts[] = {0, 1, 13, 500, 9000, 70000};
    for (int i = 0; i < WORKS; i++) {
        uint64_t random = values_random(seed, (uint64_t)i);
        b->acts[i] = (act){.kind = (act_kind)(random % ACT_KINDS),
                           .dtype = random >> 8 & 1 ? WEFT_F32 : WEFT_I16,
                           .root = (int)((random >> 16) % (unsigned)size),
                           .count = counts[(random >> 24) % 6],
                           .posted = true,
                           .seed = random};
        b->operands[i] = act_prepare(&b->acts[i], rank, size);
    }
    for (int i = 0; i < WORKS; i++) {
        CHECK_OK(act_begin(&b->acts[i], &b->operands[i], group, &b->works[i]));
        CHECK(b->works[i]);
    }
}

static void check_one(const batch *b, int i, int rank, int size)
{
    int64_t wrong = act_check(&b->acts[i], &b->operands[i], rank, size);
    if (wrong >= 0)
        FAIL("work %d (kind %d of %lld): element %lld is wrong", i, (int)b->acts[i].kind,
             (long long)b->acts[i].count, (long long)wrong);
}

/* Each rank waits in an order of its own. */
static void wait_shuffled(batch *b, uint64_t seed, int rank, int size, bool by_test)
{
    int order[WORKS];
    for (int i = 0; i < WORKS; i++) {
        int j = (int)(values_random(seed + (unsigned)rank, (uint64_t)i + 99) % (unsigned)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int k = 0; k < WORKS; k++) {
        int i = order[k];
        weft_status status = WEFT_IN_PROGRESS;
        while (by_test && (status = weft_work_test(b->works[i])) == WEFT_IN_PROGRESS)
            rest_us(20);
        if (!by_test)
            status = weft_work_wait(b->works[i], WEFT_DEFAULT);
        CHECK_OK(status);
        CHECK_INT(weft_work_wait(b->works[i], 0), WEFT_OK); /* again */
        CHECK_INT(weft_work_test(b->works[i]), WEFT_OK);
        check_one(b, i, rank, size);
    }
}

static void run_many(int rank, int size, bool by_test)
{
    weft_group *world = join(30000);
    for (int round = 0; round < (VALUES_SANITIZED ? 2 : 6); round++) {
        batch b;
        uint64_t seed = values_random(values_seed(), (uint64_t)round);
        weft_scope_open();
        post_batch(&b, seed, rank, size, world);
        wait_shuffled(&b, seed, rank, size, by_test);
        weft_scope_close();
    }
    finish(world);
}

RANKS_TEST(test_work_many_2, 2)
{
    run_many(rank, size, false);
}

RANKS_TEST(test_work_many_5, 5)
{
    run_many(rank, size, false);
}

RANKS_TEST(test_work_polled, 3)
{
    run_many(rank, size, true);
}

/* Posted and plain calls keep their order. */
RANKS_TEST(test_work_before_plain, 3)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3000), 1);
    for (int round = 0; round < 5; round++) {
        weft_work *first = weft_all_reduce_start(x, x, WEFT_MAX, world);
        weft_work *second = weft_all_reduce_start(x, x, WEFT_SUM, world);
        CHECK(first && second);
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_AVG, world));
        CHECK_INT(weft_work_test(first), WEFT_OK);
        CHECK_INT(weft_work_test(second), WEFT_OK);
        CHECK(weft_item(x, 2999) == pow(3, round + 1));
    }
    finish(world);
}

/* ---- from other threads ---- */

typedef struct waiter {
    pthread_t thread;
    batch *b;
    int first, step;
    atomic_int failed; /* 1 + the first work that failed */
} waiter;

static void *wait_some(void *arg)
{
    waiter *w = arg;
    for (int i = w->first; i < WORKS; i += w->step)
        if (weft_work_wait(w->b->works[i], WEFT_DEFAULT) != WEFT_OK)
            atomic_store(&w->failed, i + 1);
    return NULL;
}

/* Works of one group, waited for by three threads besides the one that posts, which posts more
 * meanwhile. */
RANKS_TEST(test_work_waiters, 3)
{
    weft_group *world = join(30000);
    for (int round = 0; round < (VALUES_SANITIZED ? 3 : 10); round++) {
        batch b, more;
        waiter waiters[3] = {{0}};
        weft_scope_open();
        post_batch(&b, values_random(values_seed(), (uint64_t)round), rank, size, world);
        for (int t = 0; t < 3; t++) {
            waiters[t].b = &b;
            waiters[t].first = t;
            waiters[t].step = 3;
            CHECK(!pthread_create(&waiters[t].thread, NULL, wait_some, &waiters[t]));
        }
        post_batch(&more, values_random(values_seed(), (uint64_t)round + 500), rank, size, world);
        for (int t = 0; t < 3; t++) {
            pthread_join(waiters[t].thread, NULL);
            CHECK_INT(atomic_load(&waiters[t].failed), 0);
        }
        wait_shuffled(&more, (uint64_t)round, rank, size, false);
        for (int i = 0; i < WORKS; i++)
            check_one(&b, i, rank, size);
        weft_scope_close();
    }
    finish(world);
}

/* The helper dozes after a while without work.  Whoever then waits for the second of two works,
 * while another thread only waits for the first, does not wait for the end of the doze. */
RANKS_TEST(test_work_left_behind, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10));
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    long long fastest = LLONG_MAX; /* who waits for the end of the doze does so every time */
    for (int round = 0; round < 30 && fastest >= 600; round++) {
        rest_us(300000);
        batch b = {.works = {weft_all_reduce_start(x, x, WEFT_MAX, world),
                             weft_all_reduce_start(x, x, WEFT_MAX, world)}};
        waiter first = {.b = &b, .first = 0, .step = WORKS};
        long long begin = harness_now();
        CHECK(!pthread_create(&first.thread, NULL, wait_some, &first));
        CHECK_OK(weft_work_wait(b.works[1], WEFT_DEFAULT));
        pthread_join(first.thread, NULL);
        long long took = (harness_now() - begin) / 1000000;
        fastest = took < fastest ? took : fastest;
    }
    CHECK(fastest < 600);
    finish(world);
}

/* ---- limits ---- */

/* A wait that is shorter than the operation's limit ends in time, and the operation goes on. */
RANKS_TEST(test_work_short_wait, 2)
{
    weft_group *world = join(30000);
    int both[] = {0, 1};
    weft_group *side = weft_group_new(world, both, 2, NULL);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    for (int large = 0; large < 2; large++) {
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(large ? 100000 : 10));
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        if (rank) /* comes when the other one has seen that it does not */
            CHECK_OK(weft_group_barrier(side, WEFT_DEFAULT));
        weft_work *work = weft_all_reduce_start(x, x, WEFT_SUM, world);
        if (!rank) {
            long long begin = harness_now();
            CHECK_STATUS(weft_work_wait(work, 0), WEFT_ERR_TIMEOUT); /* does not run it itself */
            CHECK_STATUS(weft_work_wait(work, 20), WEFT_ERR_TIMEOUT);
            CHECK((harness_now() - begin) / 1000000 < 10000);
            CHECK_CONTAINS(weft_last_error(), "under way");
            CHECK_STATUS(weft_work_wait(work, 0), WEFT_ERR_TIMEOUT);
            CHECK_INT(weft_work_test(work), WEFT_IN_PROGRESS);
            weft_clear_error();
            CHECK_OK(weft_group_barrier(side, WEFT_DEFAULT));
        }
        CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        CHECK(weft_item(x, 9) == 2);
    }
    weft_work *barrier = weft_barrier_start(world);
    CHECK_STATUS(weft_work_wait(barrier, -7), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_work_wait(barrier, WEFT_FOREVER));
    weft_clear_error();
    CHECK_STATUS(weft_work_wait(NULL, 1), WEFT_ERR_INVALID_ARG);
    finish(world);
}

/* ---- errors ---- */

RANKS_TEST(test_work_error, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10 + rank));
    weft_work *works[4];
    for (int i = 0; i < 4; i++)
        CHECK(works[i] = weft_all_reduce_start(x, x, WEFT_SUM, world));
    weft_clear_error();
    CHECK_STATUS(weft_work_wait(works[0], WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 10");
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 11");
    for (int i = 3; i > 0; i--) /* what was posted behind it cannot work either */
        CHECK_STATUS(weft_work_wait(works[i], WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    weft_clear_error();
    CHECK_STATUS(weft_work_wait(works[0], WEFT_DEFAULT), WEFT_ERR_MISMATCH); /* told again */
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 11");
    CHECK_STATUS(weft_work_test(works[0]), WEFT_ERR_MISMATCH);
    CHECK(weft_item(x, 0) == 1);
    weft_clear_error();
    CHECK(!weft_all_reduce_start(x, NULL, WEFT_SUM, world));
    CHECK(weft_last_status() == WEFT_ERR_INVALID_ARG);
    finish(world);
}

static void *expect_mismatch(void *arg)
{
    waiter *w = arg;
    weft_status status = weft_work_wait(w->b->works[0], WEFT_DEFAULT);
    bool told = strstr(weft_last_error(), "sends 40 bytes") != NULL;
    atomic_store(&w->failed, status == WEFT_ERR_MISMATCH && told ? 1 : 2);
    return NULL;
}

/* Whoever pushes a letter finds out; whoever waits for it is told. */
RANKS_TEST(test_work_p2p_error, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10 + rank));
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
    if (rank == 0) {
        CHECK_OK(weft_send(x, 1, world));
    } else {
        batch b = {.works = {weft_recv_start(x, 0, world)}};
        waiter other = {.b = &b};
        weft_status status = WEFT_IN_PROGRESS;
        while ((status = weft_work_test(b.works[0])) == WEFT_IN_PROGRESS)
            rest_us(100);
        CHECK_STATUS(status, WEFT_ERR_MISMATCH);
        CHECK(!pthread_create(&other.thread, NULL, expect_mismatch, &other));
        pthread_join(other.thread, NULL);
        CHECK_INT(atomic_load(&other.failed), 1);
    }
    finish(world);
}

/* A rank dies: the works of the others fail, posted before or after. */
RANKS_TEST(test_work_death, 3)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(20000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100000));
    weft_work *works[20];
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, world));
    if (rank == 2) {
        harness_rank_dies();
        for (int i = 0; i < 5; i++)
            CHECK(works[i] = weft_all_reduce_start(x, x, WEFT_MAX, world));
        rest_us(500);
        kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < 20; i++)
        CHECK(works[i] = weft_all_reduce_start(x, x, WEFT_MAX, world));
    weft_work *letter = weft_recv_start(x, 2, world);
    CHECK_STATUS(weft_work_wait(works[19], WEFT_DEFAULT), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 2 (");
    for (int i = 0; i < 20; i++) {
        weft_status status = weft_work_test(works[i]);
        if (status != WEFT_OK && status != WEFT_ERR_PEER_DEAD)
            FAIL("work %d: %d", i, (int)status);
    }
    if (letter)
        CHECK_STATUS(weft_work_wait(letter, WEFT_DEFAULT), WEFT_ERR_PEER_DEAD);
    finish(world);
}

/* ---- dropped handles and groups ---- */

/* Work whose handle is dropped is done all the same: the others need it. */
RANKS_TEST(test_work_dropped, 3)
{
    weft_group *world = join(30000);
    for (int round = 0; round < 20; round++) {
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2000), rank);
        weft_tensor *y = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(50000), rank);
        weft_tensor *z = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(50000));
        weft_release(weft_all_reduce_start(x, x, WEFT_SUM, world));
        weft_release(weft_send_start(y, (rank + 1) % size, world));
        weft_release(weft_recv_start(z, (rank + 2) % size, world));
        if (rank == round % size)
            rest_us(3000);
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, world));
        CHECK(weft_item(x, 1999) == 3);
        /* The next message of the pair follows the dropped one. */
        weft_work *sending = weft_send_start(x, (rank + 1) % size, world);
        CHECK_OK(weft_recv(x, (rank + 2) % size, world));
        CHECK_OK(weft_work_wait(sending, WEFT_DEFAULT));
        CHECK(weft_item(z, 49999) == (rank + 2) % size);
    }
    finish(world);
}

/* Threads of this process. */
static int count_threads(void)
{
    int count = 0;
    DIR *list = opendir("/proc/self/task");
    for (struct dirent *entry; list && (entry = readdir(list));)
        count += entry->d_name[0] != '.';
    if (list)
        closedir(list);
    return count;
}

/* A group that is released with work under way goes with the last of it. */
RANKS_TEST(test_work_group_released, 3)
{
    weft_group *world = join(30000);
    unsigned char before[1024], after[1024];
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    harness_descriptors(before, NULL);
    int threads = count_threads();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    int everybody[] = {2, 0, 1};
    for (int round = 0; round < 10; round++) {
        weft_scope_open();
        weft_group *group = weft_group_new(world, everybody, 3, NULL);
        CHECK(group);
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20000), 1);
        weft_work *kept = weft_keep(weft_all_reduce_start(x, x, WEFT_SUM, group));
        for (int i = 0; i < 3; i++)
            CHECK(weft_all_reduce_start(x, x, WEFT_MAX, group));
        weft_send_start(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20000)),
                        (weft_rank(group) + 1) % 3, group);
        weft_recv_start(weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20000)),
                        (weft_rank(group) + 2) % 3, group);
        weft_scope_close(); /* the group, the tensors and most of the work */
        if (rank == round % size)
            rest_us(2000);
        CHECK_OK(weft_work_wait(kept, WEFT_DEFAULT));
        weft_release(kept);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    /* The last ones may still be at it: their helpers go when they are done. */
    for (int i = 0; i < 2000; i++) {
        if (count_threads() <= threads &&
            (harness_in_threads || harness_descriptors(after, before) < 0))
            break;
        rest_us(10000);
    }
    CHECK(count_threads() <= threads);
    if (!harness_in_threads) /* there, the others are looking at the same moment */
        CHECK_INT(harness_descriptors(after, before), -1);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* A message that nobody takes does not keep its group for ever. */
RANKS_TEST(test_work_abandoned, 2)
{
    weft_group *world = join(30000);
    int everybody[] = {0, 1};
    weft_group *group = weft_group_new(world, everybody, 2, NULL);
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    CHECK_OK(weft_group_set_timeout(group, 50));
    if (rank == 0)
        weft_release(weft_send_start(x, 1, group));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_status status = WEFT_ERR_TIMEOUT;
    for (int i = 0; i < 2000 && status == WEFT_ERR_TIMEOUT; i++)
        status = rank ? WEFT_ERR_REVOKED : weft_group_barrier(group, 10);
    CHECK_STATUS(status, WEFT_ERR_REVOKED);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1)
        CHECK_STATUS(weft_recv(x, 0, group), WEFT_ERR_REVOKED);
    finish(world);
}

/* ---- sends and receives ---- */

/* Everybody sends to everybody first and receives later, with a collective in between: goes on only
 * if sends need no thread that waits for them. */
RANKS_TEST(test_work_sends_first, 4)
{
    enum { COUNT = 60000 };
    weft_group *world = join(30000);
    for (int round = 0; round < (VALUES_SANITIZED ? 2 : 6); round++) {
        weft_scope_open();
        weft_work *sends[8];
        weft_tensor *sum = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(round % 2 ? 4 : 30000));
        for (int peer = 0; peer < size; peer++) {
            if (peer == rank)
                continue;
            weft_tensor *x = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(COUNT));
            values_put(WEFT_I64, VALUES_ANY, (uint64_t)peer, rank, 0, COUNT, weft_tensor_data(x));
            CHECK(sends[peer] = weft_send_start(x, peer, world));
        }
        if (rank == round % size) /* takes its messages before the collective */
            for (int peer = 0; peer < size; peer++) {
                weft_tensor *x = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(COUNT));
                if (peer == rank)
                    continue;
                CHECK_OK(weft_recv(x, peer, world));
                CHECK_INT(values_check(WEFT_I64, VALUES_ANY, (uint64_t)rank, peer, 0, COUNT,
                                       weft_tensor_data(x)),
                          -1);
            }
        CHECK_OK(weft_all_reduce_into(sum, sum, WEFT_SUM, world));
        CHECK(weft_item(sum, 3) == size);
        for (int peer = size - 1; peer >= 0 && rank != round % size; peer--) {
            weft_tensor *x = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(COUNT));
            if (peer == rank)
                continue;
            CHECK_OK(weft_recv(x, peer, world));
            CHECK_INT(values_check(WEFT_I64, VALUES_ANY, (uint64_t)rank, peer, 0, COUNT,
                                   weft_tensor_data(x)),
                      -1);
        }
        for (int peer = 0; peer < size; peer++)
            if (peer != rank)
                CHECK_OK(weft_work_wait(sends[peer], WEFT_DEFAULT));
        weft_scope_close();
    }
    finish(world);
}

/* Many messages of all sizes between all pairs, sent and received in random order of the peers;
 * messages of one pair keep theirs. */
RANKS_TEST(test_work_messages, 4)
{
    enum { MESSAGES = VALUES_SANITIZED ? 12 : 30 };
    static const int64_t sizes[] = {0, 1, 100, 4096, 4097, 30000};
    weft_group *world = join(30000);
    weft_work *works[2 * 8 * MESSAGES];
    weft_tensor *got[8 * MESSAGES];
    int count = 0;
    for (int m = 0; m < MESSAGES; m++)
        for (int step = 1; step < size; step++) {
            uint64_t random = values_random(values_seed(), (uint64_t)(m * 16 + step));
            int to = (rank + step) % size, from = (rank + size - step) % size;
            int64_t n = sizes[random % 6];
            weft_tensor *x = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(n));
            values_put(WEFT_F32, VALUES_ANY, random, rank, 0, (size_t)n, weft_tensor_data(x));
            got[count] = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(n));
            bool early = random >> 20 & 1;
            if (early)
                CHECK(works[2 * count] = weft_recv_start(got[count], from, world));
            CHECK(works[2 * count + 1] = weft_send_start(x, to, world));
            if (!early)
                CHECK(works[2 * count] = weft_recv_start(got[count], from, world));
            count++;
        }
    for (int i = 2 * count - 1; i >= 0; i--)
        CHECK_OK(weft_work_wait(works[i], WEFT_DEFAULT));
    for (int i = 0; i < count; i++) {
        int step = 1 + i % (size - 1), from = (rank + size - step) % size;
        uint64_t random = values_random(values_seed(), (uint64_t)(i / (size - 1) * 16 + step));
        CHECK_INT(values_check(WEFT_F32, VALUES_ANY, random, from, 0,
                               (size_t)weft_tensor_numel(got[i]), weft_tensor_data(got[i])),
                  -1);
    }
    finish(world);
}

/* ---- asking ---- */

typedef struct question {
    const weft_work *work;
    weft_status status;
    char error[512], text[1024];
} question;

static void *ask(void *arg)
{
    question *q = arg;
    q->status = weft_work_status(q->work);
    snprintf(q->error, sizeof q->error, "%s", weft_work_error(q->work));
    weft_work_describe(q->work, q->text, sizeof q->text);
    return weft_last_status() == WEFT_OK ? NULL : q; /* asking is no error of this thread */
}

/* What works tell, to any thread: what they are, their numbers, why they failed. */
RANKS_TEST(test_work_asked, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 5));
    char text[256];
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, world));
    weft_work *first = weft_all_reduce_start(x, x, WEFT_MAX, world);
    weft_work *second = weft_broadcast_start(x, 1, world);
    CHECK_CONTAINS(weft_work_describe(first, text, sizeof text),
                   "all_reduce of 10 f32, max, shape [2, 5] in group \"0\": ");
    CHECK_OK(weft_work_wait(second, WEFT_DEFAULT));
    CHECK_INT(weft_work_status(first), WEFT_OK);
    CHECK(!*weft_work_error(first));
    CHECK_INT(weft_work_sequence(first), 2);
    CHECK_INT(weft_work_sequence(second), 3);
    CHECK_CONTAINS(weft_work_describe(second, text, sizeof text), "root 1, shape [2, 5]");
    CHECK_CONTAINS(text, ": done");
    weft_work_describe(second, text, 10); /* cut, but terminated */
    CHECK_INT(strlen(text), 9);
    weft_work *pair = rank ? weft_recv_start(x, 0, world) : weft_send_start(x, 1, world);
    CHECK_OK(weft_work_wait(pair, WEFT_DEFAULT));
    CHECK_CONTAINS(weft_work_describe(pair, text, sizeof text), rank ? "recv of 10" : "send of 10");
    CHECK_CONTAINS(text, rank ? "from rank 0" : "to rank 1");
    CHECK_INT(weft_work_sequence(pair), 0);

    weft_work *wrong = weft_all_reduce_start(x, x, rank ? WEFT_SUM : WEFT_MAX, world);
    CHECK_STATUS(weft_work_wait(wrong, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    question q = {.work = wrong};
    pthread_t thread;
    void *failed = &q;
    CHECK(!pthread_create(&thread, NULL, ask, &q));
    pthread_join(thread, &failed);
    CHECK(!failed);
    CHECK_INT(q.status, WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(q.error, "all_reduce of 10 f32, sum");
    CHECK_CONTAINS(q.error, "all_reduce of 10 f32, max");
    CHECK_CONTAINS(q.text, "WEFT_ERR_MISMATCH, group");
    CHECK_INT(weft_work_sequence(wrong), 4);
    weft_clear_error();
    CHECK_STATUS(weft_work_status(NULL), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_work_sequence(NULL), 0);
    CHECK_CONTAINS(weft_work_describe(NULL, text, sizeof text), "no work");
    (void)size;
    finish(world);
}

/* The whole text: what is over without an error says nothing more. */
RANKS_TEST(test_work_described_whole, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 5));
    char text[512], expected[1024];
    weft_work *sum = weft_all_reduce_start(x, x, WEFT_SUM, world);
    CHECK_OK(weft_work_wait(sum, WEFT_DEFAULT));
    CHECK(!strcmp(weft_work_describe(sum, text, sizeof text),
                  "all_reduce of 10 f32, sum, shape [2, 5] in group \"0\": done"));
    weft_work *pair = rank ? weft_recv_start(x, 0, world) : NULL;
    if (rank)
        CHECK(!strcmp(weft_work_describe(pair, text, sizeof text),
                      "recv of 10 f32, shape [2, 5] from rank 0 in group \"0\": under way"));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (!rank)
        pair = weft_send_start(x, 1, world);
    CHECK_OK(weft_work_wait(pair, WEFT_DEFAULT));
    CHECK(!strcmp(weft_work_describe(pair, text, sizeof text),
                  rank ? "recv of 10 f32, shape [2, 5] from rank 0 in group \"0\": done"
                       : "send of 10 f32, shape [2, 5] to rank 1 in group \"0\": done"));
    weft_work *wrong = weft_all_reduce_start(x, x, rank ? WEFT_SUM : WEFT_MAX, world);
    CHECK_STATUS(weft_work_wait(wrong, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    snprintf(expected, sizeof expected,
             "all_reduce of 10 f32, %s, shape [2, 5] in group \"0\": WEFT_ERR_MISMATCH, %.200s",
             rank ? "sum" : "max", weft_work_error(wrong));
    weft_work_describe(wrong, text, sizeof text);
    CHECK(!strncmp(text, expected, strlen(expected)));
    (void)size;
    finish(world);
}

/* ---- who wakes the helper ---- */

static weft_i_os watched;
static _Atomic(_Atomic uint32_t *) dozing_at; /* relaxed: only whether it has happened */
static atomic_int woken;                      /* relaxed: counts */
static pthread_t own_thread;

/* The helper dozes for a second at a time; nobody else but it waits so. */
static void watch_wait(_Atomic uint32_t *word, uint32_t expected, int64_t duration)
{
    if (!pthread_equal(pthread_self(), own_thread) && duration == 1000000000)
        atomic_store_explicit(&dozing_at, word, memory_order_relaxed);
    weft_i_os_linux.futex_wait(word, expected, duration);
}

static void watch_wake(_Atomic uint32_t *word, int count)
{
    if (pthread_equal(pthread_self(), own_thread) &&
        word == atomic_load_explicit(&dozing_at, memory_order_relaxed))
        atomic_fetch_add_explicit(&woken, 1, memory_order_relaxed);
    weft_i_os_linux.futex_wake(word, count);
}

static void await_doze(void)
{
    atomic_store_explicit(&dozing_at, NULL, memory_order_relaxed);
    for (int ms = 0; ms < 20000 && !atomic_load_explicit(&dozing_at, memory_order_relaxed); ms++)
        rest_us(1000);
    CHECK(atomic_load_explicit(&dozing_at, memory_order_relaxed));
    atomic_store_explicit(&woken, 0, memory_order_relaxed);
}

/* A helper that dozes is woken for a receive that must wait, and not for a message that is gone. */
RANKS_TEST(test_work_wakes_the_helper, 2)
{
    if (harness_in_threads)
        SKIP("the table of system calls belongs to the whole process");
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10), rank);
    own_thread = pthread_self();
    watched = weft_i_os_linux;
    watched.futex_wait = watch_wait;
    watched.futex_wake = watch_wake;
    weft_i_os_now = &watched;
    if (rank == 0) {
        CHECK_OK(weft_work_wait(weft_send_start(x, 1, world), WEFT_DEFAULT)); /* makes the helper */
        await_doze();
        weft_work *sent = weft_send_start(x, 1, world);
        CHECK_INT(weft_work_status(sent), WEFT_OK);
        CHECK_INT(woken, 0);
        weft_work *received = weft_recv_start(x, 1, world);
        CHECK_INT(weft_work_status(received), WEFT_IN_PROGRESS);
        CHECK_INT(woken, 1);
        CHECK_OK(weft_send(x, 1, world));
        CHECK_OK(weft_work_wait(received, WEFT_DEFAULT));
        CHECK(weft_item(x, 9) == 1);
    } else {
        weft_tensor *y = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10));
        for (int i = 0; i < 3; i++)
            CHECK_OK(weft_recv(y, 0, world));
        CHECK_OK(weft_send(x, 0, world));
    }
    weft_i_os_now = &weft_i_os_linux;
    (void)size;
    finish(world);
}

static atomic_bool holding, held; /* relaxed: only whether it has happened */

/* The helper does not come back from its nap while it is held. */
static void hold_wait(_Atomic uint32_t *word, uint32_t expected, int64_t duration)
{
    bool ours = pthread_equal(pthread_self(), own_thread) || word != dozing_at;
    while (!ours && atomic_load_explicit(&holding, memory_order_relaxed)) {
        atomic_store_explicit(&held, true, memory_order_relaxed);
        rest_us(100);
    }
    weft_i_os_linux.futex_wait(word, expected, duration);
}

/* Who sleeps for work that nobody runs wakes the helper, which may nap. */
RANKS_TEST(test_work_sleeper_wakes_the_helper, 2)
{
    if (harness_in_threads)
        SKIP("the table of system calls belongs to the whole process");
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10), rank);
    own_thread = pthread_self();
    watched = weft_i_os_linux;
    watched.futex_wait = watch_wait;
    watched.futex_wake = watch_wake;
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT)); /* makes the helper */
    if (rank == 0) {
        weft_i_os_now = &watched;
        await_doze(); /* tells where it waits */
        watched.futex_wait = hold_wait;
        atomic_store_explicit(&holding, true, memory_order_relaxed);
        CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT)); /* by us; wakes it */
        while (!atomic_load_explicit(&held, memory_order_relaxed))
            rest_us(100);
        weft_work *work = weft_all_reduce_start(x, x, WEFT_SUM, world);
        atomic_store_explicit(&woken, 0, memory_order_relaxed);
        CHECK_STATUS(weft_work_wait(work, 20), WEFT_ERR_TIMEOUT);
        CHECK_INT(woken, 1);
        atomic_store_explicit(&holding, false, memory_order_relaxed);
        harness_mark();
        CHECK_OK(weft_work_wait(work, 20000)); /* less than its own limit: the helper runs it */
    } else {
        CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT));
        CHECK(harness_await(0, 1));
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    }
    CHECK(weft_item(x, 9) == 1);
    weft_i_os_now = &weft_i_os_linux;
    (void)size;
    finish(world);
}

/* The memory of an operand stays where it is until the work is over: weft_set of the tensor and
 * resizing its storage are refused, also for lists, sends and receives, and views do not matter. */
static void check_pinned(weft_tensor *x, const char *what)
{
    weft_tensor *other = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7)),
                *view = weft_view(x, WEFT_SHAPE(-1));
    void *data = weft_tensor_data(x);
    if (weft_set(x, other) != WEFT_ERR_STATE || weft_resize_storage(x, 64) != WEFT_ERR_STATE ||
        weft_resize_storage(view, 0) != WEFT_ERR_STATE)
        FAIL("%s: memory of an operand was taken away: %s", what, weft_last_error());
    CHECK_CONTAINS(weft_last_error(), "posted work");
    CHECK(weft_tensor_data(x) == data);
    CHECK_OK(weft_set(view, other)); /* the operand keeps the memory */
    CHECK_OK(weft_resize_storage(other, 400));
    weft_clear_error();
}

RANKS_TEST(test_work_pinned, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(40000), rank + 1);
    weft_tensor *y = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(80000));
    weft_tensor *in[] = {weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5), rank + 1)};
    weft_tensor *z = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(300000));
    CHECK_OK(weft_all_reduce_into(in[0], in[0], WEFT_MAX, world));
    if (rank) /* late: what rank 0 has posted is under way until then */
        CHECK(harness_await(0, 1));
    weft_work *works[] = {weft_all_gather_start(y, x, world),
                          weft_all_reduce_list_start(in, in, 1, WEFT_SUM, world),
                          rank ? weft_send_start(z, 0, world) : weft_recv_start(z, 1, world)};
    if (!rank) {
        check_pinned(x, "input");
        check_pinned(y, "output");
        check_pinned(in[0], "list");
        check_pinned(z, "receive");
        harness_mark();
    }
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_work_wait(works[i], 20000));
    CHECK(weft_item(y, 79999) == 2 && weft_item(in[0], 4) == 4);
    CHECK_OK(weft_resize_storage(y, 16)); /* over: it may go, though the work is still there */
    CHECK_OK(weft_set(x, in[0]));
    CHECK_OK(weft_resize_storage(z, 0));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    setenv("WEFT_KILL_GRACE", "30000", 1);
    return harness_main(argc, argv);
}
