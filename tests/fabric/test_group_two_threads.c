/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group.c */
/* Two threads of a rank in one group, against the rule: one of them is told. */
#include "fabric/group/group.h"
#include "harness_ranks.h"

#include <weft/weft.h>

#include <pthread.h>
#include <sched.h>

typedef struct second {
    weft_group *group;
    weft_status (*call)(weft_group *group);
    weft_status status;
    atomic_bool done;
    char message[512];
} second;

static weft_status call_barrier(weft_group *group)
{
    return weft_group_barrier(group, WEFT_DEFAULT);
}

static weft_status call_all_reduce(weft_group *group)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    return weft_all_reduce_into(x, x, WEFT_SUM, group);
}

static void *run_second(void *arg)
{
    second *it = arg;
    weft_scope_open();
    it->status = it->call(it->group);
    snprintf(it->message, sizeof it->message, "%s", weft_last_error());
    weft_scope_close();
    atomic_store(&it->done, true);
    return NULL;
}

/* Rank 1 comes only when a thread of rank 0 was turned away, so that the other cannot be through. */
static void meet_with_two_threads(int rank, weft_group *group, weft_status (*call)(weft_group *),
                                  int marks)
{
    if (rank == 1) {
        CHECK(harness_await(0, marks));
        CHECK_OK(call(group));
        return;
    }
    second other = {.group = group, .call = call};
    pthread_t thread;
    weft_status mine = WEFT_ERR_TIMEOUT;
    CHECK(!pthread_create(&thread, NULL, run_second, &other));
    CHECK_OK(weft_limit_open(20));
    while (mine == WEFT_ERR_TIMEOUT && !atomic_load(&other.done))
        mine = call(group);
    CHECK_OK(weft_limit_close());
    const char *said = mine == WEFT_ERR_STATE ? weft_last_error() : other.message;
    CHECK(mine == WEFT_ERR_STATE || (mine == WEFT_ERR_TIMEOUT && other.status == WEFT_ERR_STATE));
    CHECK_CONTAINS(said, "another thread of rank 0 is in a call on this group");
    harness_mark();
    CHECK(!pthread_join(thread, NULL));
    if (mine == WEFT_ERR_STATE)
        CHECK_OK(other.status);
    else
        CHECK_OK(call(group));
}

RANKS_TEST(test_group_two_threads, 2)
{
    weft_group *world = weft_init(NULL);
    CHECK_OK(call_barrier(world));
    CHECK_OK(call_all_reduce(world));
    meet_with_two_threads(rank, world, call_barrier, 1);
    meet_with_two_threads(rank, world, call_all_reduce, 2);
    CHECK_OK(call_all_reduce(world));
    weft_clear_error();
    CHECK_INT(weft_finish(world), 0);
}

/* ---- one thread after the other ---- */

/* The group's first collective may be in any thread of a rank, whichever the others take. */
RANKS_TEST(test_two_threads_first_call, 2)
{
    weft_group *world = weft_init(NULL);
    second other = {.group = world, .call = call_all_reduce};
    pthread_t thread;
    if (rank == 0) {
        CHECK(!pthread_create(&thread, NULL, run_second, &other));
        CHECK(!pthread_join(thread, NULL));
        CHECK_OK(other.status);
    } else {
        CHECK_OK(call_all_reduce(world));
    }
    CHECK_OK(call_all_reduce(world));
    CHECK_INT(weft_finish(world), 0);
}

/* ---- both at the same moment ---- */

typedef struct pair {
    weft_group *group;
    atomic_int ready[2];
    atomic_int done, refused;
    atomic_bool wrong;
} pair;

typedef struct half {
    pair *pair;
    int me;
} half;

static void *call_together(void *arg)
{
    enum { ROUNDS = 1000, SECONDS = 20 };
    half *it = arg;
    weft_limit_open(SECONDS * 1000); /* a broken group ends the test, and does not hang it */
    for (int round = 1; round <= ROUNDS && !atomic_load(&it->pair->wrong); round++) {
        atomic_store(&it->pair->ready[it->me], round);
        while (atomic_load(&it->pair->ready[!it->me]) < round && !atomic_load(&it->pair->wrong))
            sched_yield();
        int32_t x = 1;
        weft_status status = weft_all_reduce_ptr(&x, &x, 1, WEFT_I32, WEFT_SUM, it->pair->group);
        if (status != WEFT_OK && status != WEFT_ERR_STATE)
            atomic_store(&it->pair->wrong, true);
        else
            atomic_fetch_add(status ? &it->pair->refused : &it->pair->done, 1);
    }
    weft_limit_close();
    return NULL;
}

/* Calls that nobody refused have happened, one after the other; the rest have not.  Rank 1 makes
 * calls until it is told by the sum that there are no more. */
RANKS_TEST(test_two_threads_at_once, 2)
{
    weft_group *world = weft_init(NULL);
    int32_t sum = 0, calls = 0;
    CHECK_OK(call_all_reduce(world));
    uint64_t before = weft_group_sequence(world);
    if (rank == 0) {
        pair both = {.group = world};
        half halves[2] = {{&both, 0}, {&both, 1}};
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            CHECK(!pthread_create(&threads[i], NULL, call_together, &halves[i]));
        for (int i = 0; i < 2; i++)
            CHECK(!pthread_join(threads[i], NULL));
        CHECK(!atomic_load(&both.wrong));
        CHECK_INT(weft_group_sequence(world) - before, atomic_load(&both.done));
    }
    do {
        sum = 0;
        CHECK_OK(weft_all_reduce_ptr(&sum, &sum, 1, WEFT_I32, WEFT_SUM, world));
        calls += sum;
    } while (sum);
    if (rank == 1)
        CHECK_INT(weft_group_sequence(world) - before, calls + 1);
    weft_clear_error();
    CHECK_INT(weft_finish(world), 0);
}

/* ---- one inside, the other elsewhere in the same group ---- */

/* Until the other thread's call is on the board or on the lane. */
static void await_call(_Atomic uintptr_t *door)
{
    while (!atomic_load_explicit(door, memory_order_relaxed))
        sched_yield();
}

/* A thread of rank 0 waits for rank 1 in `first`; nothing else of the group may be begun meanwhile. */
static void refuse_beside(int rank, weft_group *group, weft_status (*first)(weft_group *),
                          bool on_board, int marks)
{
    if (rank == 1) {
        CHECK(harness_await(0, marks));
        CHECK_OK(first(group));
        return;
    }
    second other = {.group = group, .call = first};
    pthread_t thread;
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK(!pthread_create(&thread, NULL, run_second, &other));
    await_call(on_board ? &group->on_board : &group->on_lane);
    CHECK_INT(call_all_reduce(group), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "another thread of rank 0 is in a call on this group");
    CHECK(!weft_all_reduce(x, WEFT_SUM, group));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK(!weft_all_reduce_start(x, x, WEFT_SUM, group));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_INT(call_barrier(group), WEFT_ERR_STATE);
    harness_mark();
    CHECK(!pthread_join(thread, NULL));
    CHECK_OK(other.status);
}

RANKS_TEST(test_two_threads_post, 2)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    refuse_beside(rank, world, call_barrier, true, 1); /* the group has no lane yet */
    CHECK_OK(call_all_reduce(world));
    refuse_beside(rank, world, call_all_reduce, false, 2);
    CHECK(weft_item(weft_all_reduce(x, WEFT_SUM, world), 0) == 2);
    refuse_beside(rank, world, call_all_reduce, false, 3); /* now it has a queue */
    CHECK_OK(call_all_reduce(world));
    /* What was refused does not count: the ranks are as far as each other. */
    int64_t calls = (int64_t)weft_group_sequence(world), most = calls;
    CHECK_OK(weft_all_reduce_ptr(&most, &most, 1, WEFT_I64, WEFT_MAX, world));
    CHECK_INT(most, calls);
    weft_clear_error();
    CHECK_INT(weft_finish(world), 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
