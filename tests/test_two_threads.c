/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads of a rank in one group, against the rule: one of them is told. */
#include "harness_ranks.h"

#include <weft/weft.h>

#include <pthread.h>

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

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
