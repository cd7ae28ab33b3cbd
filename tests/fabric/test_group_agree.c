/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_agree.c, fabric/world/watch.c */
/*
 * Agreement: the same flags, the same status and the same ranks told to all who live, whoever dies
 * or leaves and whenever; also in a group that was revoked, with members that come late, and
 * between hosts.
 */
#include "crew.h"
#include "doom.h"
#include "hosts.h"
#include "jobs.h"

#include <limits.h>

RANKS_TEST(test_agree_flags, 4)
{
    weft_group *world = join(20000);
    for (uint64_t round = 0; round < 100; round++) {
        uint64_t flags = ~((UINT64_C(1) << (round + (unsigned)rank) % 64) | (round == 7 ? 1u : 0));
        uint64_t expected = ~UINT64_C(0);
        for (unsigned r = 0; r < 4; r++)
            expected &= ~((UINT64_C(1) << (round + r) % 64) | (round == 7 ? 1u : 0));
        CHECK_OK(weft_group_agree(world, &flags, WEFT_DEFAULT));
        CHECK(flags == expected);
    }
    (void)size;
    finish(world);
}

RANKS_TEST(test_agree_arguments, 1)
{
    weft_group *world = join(0);
    uint64_t flags = 5;
    CHECK_STATUS(weft_group_agree(world, NULL, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_group_agree(NULL, &flags, 1), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_group_agree(world, &flags, -7), WEFT_ERR_INVALID_ARG);
    CHECK_OK(weft_group_agree(world, &flags, WEFT_FOREVER));
    CHECK(flags == 5);
    (void)rank;
    (void)size;
    finish(world);
    CHECK_STATUS(weft_group_agree(world, &flags, 1), WEFT_ERR_STATE);
    weft_clear_error();
}

/* A revoked group, one in which a call was different, and one made from a revoked one. */
RANKS_TEST(test_agree_revoked, 3)
{
    static const int all[] = {0, 1, 2};
    weft_group *world = join(20000), *child = weft_group_new(world, all, 3, NULL);
    uint64_t flags = 7u & ~(1u << rank);
    if (rank == 1)
        CHECK_OK(weft_group_revoke(world));
    CHECK_OK(weft_group_agree(world, &flags, WEFT_DEFAULT));
    CHECK(flags == 0);
    flags = 3;
    CHECK_OK(weft_group_agree(child, &flags, WEFT_DEFAULT));
    CHECK(flags == 3);
    CHECK_STATUS(weft_group_barrier(child, WEFT_DEFAULT), WEFT_ERR_REVOKED);
    (void)size;
    finish(world);
}

/* Who does not come is named, and nobody else; then the agreement goes on, with the flags that were
 * shown first. */
RANKS_TEST(test_agree_late, 3)
{
    weft_group *world = join(20000);
    uint64_t flags = 0xf0u | (1u << rank);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank != 1) {
        CHECK_STATUS(weft_group_agree(world, &flags, 2000), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 1 (");
        CHECK(!strstr(weft_last_error(), "rank 0 (") && !strstr(weft_last_error(), "rank 2 ("));
        CHECK(flags == (0xf0u | (1u << rank)));
        weft_clear_error();
        harness_mark();
        flags = 0; /* too late */
    }
    harness_await_marks(2);
    CHECK_OK(weft_group_agree(world, &flags, WEFT_DEFAULT));
    CHECK(flags == 0xf0);
    flags = 1;
    CHECK_OK(weft_group_agree(world, &flags, WEFT_DEFAULT));
    CHECK(flags == 1);
    (void)size;
    finish(world);
}

/* ---- a rank is lost in the middle ---- */

typedef struct outcome {
    int rounds, status;
    uint64_t flags;
    char ranks[64];
} outcome;

/* What the message says of who is lost, without the words about each, which time changes. */
static void note_ranks(outcome *out)
{
    const char *from = strstr(weft_last_error(), "agreed without"), *to = NULL;
    to = from ? strstr(from, " of the group") : NULL;
    snprintf(out->ranks, sizeof out->ranks, "%.*s", to ? (int)(to - from) : 0, from ? from : "");
}

/* Agrees until somebody is lost.  Each rank's flags are its own in each round, so that it shows
 * whose have counted. */
static outcome agree_until_lost(weft_group *group, int rank)
{
    outcome out = {0};
    for (out.status = WEFT_OK; out.status == WEFT_OK; out.rounds++) {
        out.flags = ~(UINT64_C(1) << (8 * rank + out.rounds % 8));
        out.status = weft_group_agree(group, &out.flags, 20000);
    }
    note_ranks(&out);
    return out;
}

static bool same_outcome(const outcome *a, const outcome *b)
{
    return a->rounds == b->rounds && a->status == b->status && a->flags == b->flags &&
           !strcmp(a->ranks, b->ranks);
}

typedef struct death {
    int victim;
    int step;     /* the victim dies at its n-th call to the system; 0: by time */
    long wait_us; /* after so long */
} death;

static outcome *outcomes; /* of each rank, shared */

/* Kills at any moment, in whatever the rank does. */
static void *kill_later(void *arg)
{
    rest_us(((const death *)arg)->wait_us);
    kill(getpid(), SIGKILL);
    return NULL;
}

static int dying_crew(int rank, void *arg)
{
    const death *d = arg;
    if (rank == d->victim && d->step)
        doom_arm(INT_MAX); /* before any thread of the library is there */
    weft_group *world = weft_init(NULL);
    CREW(world, "%s", weft_last_error());
    uint64_t flags = 1;
    CREW(weft_group_agree(world, &flags, 20000) == WEFT_OK, "%s", weft_last_error());
    if (rank == d->victim && d->step) {
        atomic_store_explicit(&doom_left, d->step, memory_order_relaxed);
    } else if (rank == d->victim) {
        pthread_t killer;
        CREW(!pthread_create(&killer, NULL, kill_later, (void *)(uintptr_t)d), "no thread");
    }
    outcomes[rank] = agree_until_lost(world, rank);
    CREW(outcomes[rank].status == WEFT_ERR_PEER_DEAD, "%s", weft_last_error());
    weft_clear_error();
    flags = 6; /* all know of it by now: the next one says so, too */
    weft_status again = weft_group_agree(world, &flags, 20000);
    CREW(again == WEFT_ERR_PEER_DEAD && flags == 6, "%d, %s", (int)again, weft_last_error());
    weft_clear_error();
    weft_group *rest = weft_group_shrink(world);
    CREW(rest && weft_size(rest) == 3, "%s", weft_last_error());
    CREW(weft_group_agree(rest, &flags, 20000) == WEFT_OK && flags == 6, "%s", weft_last_error());
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

static void run_death(const death *d)
{
    char text[64];
    memset(outcomes, 0, CREW_MAX * sizeof *outcomes);
    crew_run("a death", 4, dying_crew, (void *)(uintptr_t)d, d->victim);
    const outcome *first = &outcomes[d->victim == 0];
    snprintf(text, sizeof text, "agreed without rank %d", d->victim);
    CHECK(!strcmp(first->ranks, text));
    for (int rank = 0; rank < 4; rank++)
        if (rank != d->victim && !same_outcome(first, &outcomes[rank]))
            FAIL("victim %d, step %d, %ld us: rank %d: %d rounds, %d, %llx, %s; another: %d, %d, "
                 "%llx, %s",
                 d->victim, d->step, d->wait_us, rank, outcomes[rank].rounds, outcomes[rank].status,
                 (unsigned long long)outcomes[rank].flags, outcomes[rank].ranks, first->rounds,
                 first->status, (unsigned long long)first->flags, first->ranks);
}

TEST(test_agree_death_at_any_time)
{
    enum { DEATHS = 60 };
    for (int i = 0; i < DEATHS; i++)
        run_death(&(death){.victim = i % 4, .wait_us = 200 + i * 7919 % 3000});
}

TEST(test_agree_death_at_every_call)
{
    enum { STEPS = 24 };
    for (int step = 1; step <= STEPS; step++)
        run_death(&(death){.victim = step % 4, .step = step});
}

/* Threads cannot die alone, but leave in the middle. */
RANKS_TEST(test_agree_leaves, 4)
{
    enum { GONE = 2 };
    weft_group *world = join(20000);
    outcome *mine = &outcomes[rank];
    uint64_t flags = 1;
    CHECK_OK(weft_group_agree(world, &flags, WEFT_DEFAULT));
    if (rank == GONE) {
        for (int i = 0; i < 37; i++) {
            flags = ~(UINT64_C(1) << (8 * rank + i % 8));
            CHECK_OK(weft_group_agree(world, &flags, WEFT_DEFAULT));
        }
    } else {
        *mine = agree_until_lost(world, rank);
        CHECK_INT(mine->status, WEFT_ERR_PEER_LEFT);
        CHECK_INT(mine->rounds, 38);
        CHECK(!strcmp(mine->ranks, "agreed without rank 2"));
        harness_mark();
        harness_await_marks(3);
        for (int other = 0; other < size; other++)
            CHECK(other == GONE || same_outcome(mine, &outcomes[other]));
    }
    finish(world);
}

/* ---- between hosts ---- */

static int hosts_crew(int rank, void *arg)
{
    weft_group *world = hosts_join(rank, 4, 2, *(int *)arg);
    CREW(world, "%s", weft_last_error());
    for (int round = 0; round < 3; round++) {
        uint64_t flags = ~(UINT64_C(1) << (4 * round + rank));
        CREW(weft_group_agree(world, &flags, 20000) == WEFT_OK, "%s", weft_last_error());
        CREW(flags == ~(UINT64_C(15) << 4 * round), "%llx", (unsigned long long)flags);
    }
    if (rank == 3)
        kill(getpid(), SIGKILL);
    uint64_t flags = 7u & ~(1u << rank);
    weft_status status = weft_group_agree(world, &flags, 20000); /* rank 2 alone can see it */
    CREW(status == WEFT_ERR_PEER_DEAD, "%d, %s", (int)status, weft_last_error());
    CREW(strstr(weft_last_error(), "agreed without rank 3 of the group"), "%s", weft_last_error());
    CREW(flags == 0, "%llx", (unsigned long long)flags);
    weft_clear_error();
    crew->go++;
    while (rank == 0 && crew->go < 3) /* the store is rank 0's */
        crew_rest(1);
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

TEST(test_agree_hosts)
{
    int port = free_port();
    if (!port)
        SKIP("no port is free here");
    crew_run("hosts", 4, hosts_crew, &port, 3);
}

int main(int argc, char **argv)
{
    outcomes = mmap(NULL, CREW_MAX * sizeof *outcomes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return outcomes == MAP_FAILED ? 1 : harness_main(argc, argv);
}
