/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_new.c */
/*
 * A rank that cannot take part in making a group: whichever of its calls to the system fails, and
 * whichever member it is, all others fail with the same status and its name, at once, and the same
 * list can be made a group of afterwards.  Two orders, each brought about and not left to chance:
 * the others wait when the rank fails; and it has failed before they call.
 */
#define FAULT_OF _Thread_local
#include "fault.h"
#include "harness_ranks.h"
#include "standing.h"

#include "fabric/group/exchange.h"

#include <weft/weft.h>

enum { SIZE = 3, LIMIT_MS = 15000, MOST = 200 };

static const int list[SIZE] = {2, 0, 1}; /* the first member is the last rank */

/* The n-th call of this thread fails; the table stays in place, for other threads run meanwhile. */
static void arm(int n)
{
    atomic_store_explicit(&fault_left, n, memory_order_relaxed);
}

static bool disarm(void)
{
    bool fired = atomic_load_explicit(&fault_left, memory_order_relaxed) <= 0;
    atomic_store_explicit(&fault_left, 0, memory_order_relaxed);
    return fired;
}

/* Is that rank waiting in the making of a group? */
static bool is_making(const weft_group *world, int rank)
{
    weft_i_record_entry entries[4];
    const weft_i_record *record = &world->world->peers[rank].rank_record->record;
    size_t count = weft_i_record_newest(record, entries, 4);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(entries[i].name, "group_new") && !entries[i].finished)
            return true;
    return false;
}

/* Waits until the rank waits there, or has made `marks` marks. */
static void await_making(const weft_group *world, int rank, int marks)
{
    for (int i = 0; i < STANDING_LOOKS; i++) {
        if (is_making(world, rank) || harness_marks_of(rank) >= marks)
            return;
        standing_rest();
    }
    FAIL("rank %d neither waits nor fails", rank);
}

static weft_status make_group(weft_group *world)
{
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.timeout_ms = LIMIT_MS;
    weft_group *group = weft_group_new_with(world, list, SIZE, &opts);
    if (!group)
        return weft_last_status();
    CHECK_INT(weft_size(group), SIZE);
    return weft_group_barrier(group, LIMIT_MS);
}

/* The statuses of all ranks. */
static void compare(weft_group *world, weft_status mine, weft_status all[SIZE])
{
    CHECK_OK(weft_i_group_exchange(world, "compare", &mine, sizeof mine, all, LIMIT_MS));
}

typedef struct order {
    bool before; /* the victim calls first */
    int victim;
    int rounds; /* marks that each rank has made */
} order;

/* One try in which the n-th call of the victim fails; false: it makes fewer. */
static bool try_with(weft_group *world, order *o, int rank, int n, int *refused)
{
    weft_status all[SIZE];
    int fired = 0, fires[SIZE];
    o->rounds++;
    CHECK_OK(weft_scope_open());
    for (int other = 0; other < SIZE && rank == o->victim && !o->before; other++)
        if (other != rank)
            await_making(world, other, o->rounds);
    if (rank != o->victim && o->before)
        await_making(world, o->victim, o->rounds);
    if (rank == o->victim)
        arm(n);
    long long began = harness_now();
    weft_status status = make_group(world);
    if (rank == o->victim)
        fired = disarm();
    long long ms = (harness_now() - began) / 1000000;
    harness_mark();
    char said[512];
    snprintf(said, sizeof said, "%s", weft_last_error());
    CHECK_OK(weft_scope_close());
    compare(world, status, all);
    CHECK_OK(weft_i_group_exchange(world, "fired", &fired, sizeof fired, fires, LIMIT_MS));
    for (int other = 0; other < SIZE; other++)
        if (all[other] != all[o->victim])
            FAIL("call %d of rank %d failed: rank %d has %d, rank %d %d (here: %s)", n, o->victim,
                 o->victim, all[o->victim], other, all[other], said);
    CHECK(ms < LIMIT_MS / 2 && status != WEFT_ERR_TIMEOUT);
    if (status < 0 && rank != o->victim) {
        char want[96];
        snprintf(want, sizeof want, "rank %d of the world could not take part (%s)", o->victim,
                 weft_strerror(status));
        CHECK_CONTAINS(said, want);
    }
    *refused += status < 0;
    CHECK(fires[o->victim] || status == WEFT_OK);
    return fires[o->victim];
}

static void refuse_all(int rank, bool before)
{
    weft_group *world = weft_init(NULL);
    CHECK(world != NULL);
    order o = {.before = before};
    for (o.victim = 0; o.victim < SIZE; o.victim++) {
        int refused = 0, n = 1;
        while (n < MOST && try_with(world, &o, rank, n, &refused)) {
            weft_status all[SIZE];
            CHECK_OK(weft_scope_open());
            compare(world, make_group(world), all); /* and then all can, */
            CHECK_OK(weft_scope_close());
            for (int other = 0; other < SIZE; other++)
                CHECK_INT(all[other], WEFT_OK);
            n++;
        }
        CHECK(n < MOST && refused >= 4); /* object, list, lineage, plans */
    }
    CHECK_OK(weft_finish(world));
}

RANKS_TEST(test_group_new_refused_while_others_wait, SIZE)
{
    refuse_all(rank, false);
}

RANKS_TEST(test_group_new_refused_before_others_call, SIZE)
{
    refuse_all(rank, true);
}

/* A refusal is no news twice: who has acted on it makes the group with the same list at once, also
 * if the rank that refused has not called again. */
RANKS_TEST(test_group_new_refusal_is_heard_once, SIZE)
{
    weft_group *world = weft_init(NULL);
    CHECK(world != NULL);
    weft_i_rank_record *mine = world->world->mine;
    for (int round = 1; round <= 3; round++) {
        if (rank == 1)
            arm(1);
        weft_status status = make_group(world);
        if (rank == 1)
            CHECK(disarm());
        CHECK_INT(status, WEFT_ERR_NO_MEMORY);
        weft_status all[SIZE];
        compare(world, status, all); /* all have failed */
        if (rank != 1)
            harness_mark(); /* calls first, with the refusal still in sight */
        else {
            await_making(world, 0, 2 * SIZE * round);
            await_making(world, 2, 2 * SIZE * round);
            CHECK(mine->refusals[0] || mine->refusals[1] || mine->refusals[2] || mine->refusals[3]);
        }
        CHECK_OK(make_group(world));
        compare(world, WEFT_OK, all);
    }
    CHECK_OK(weft_finish(world));
}

/* ---- a first member that gives up ---- */

/* The group whose maker is in a hurry: its time is up as soon as rank 0 waits on the new board. */
static _Thread_local const weft_group *hurried;

static bool waits_on_board(const weft_group *world, int rank)
{
    weft_i_record_entry entries[4];
    const weft_i_record *record = &world->world->peers[rank].rank_record->record;
    size_t count = weft_i_record_newest(record, entries, 4);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(entries[i].name, "group_new") && !entries[i].finished &&
            entries[i].group != world->id)
            return true;
    return false;
}

static int64_t hurried_clock(void)
{
    int64_t now = weft_i_os_linux.clock_ns();
    return hurried && waits_on_board(hurried, 0) ? now + (int64_t)LIMIT_MS * 1000000000 : now;
}

/* The first member takes the board away when its time is up: who waits there hears of it at once,
 * and of whom it waited for. */
RANKS_TEST(test_group_new_first_member_gives_up, SIZE)
{
    weft_group *world = weft_init(NULL);
    CHECK(world != NULL);
    if (rank == 1) { /* comes too late */
        CHECK(harness_await(list[0], 1) && harness_await(0, 1));
    } else {
        hurried = rank == list[0] ? world : NULL;
        weft_status status = make_group(world);
        hurried = NULL;
        CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), rank ? "waited " : "given up by rank 2 of the world");
        /* Rank 0 is missing too if it has begun to wait, but not yet shown that it is there. */
        CHECK_CONTAINS(weft_last_error(), " rank 1 (");
        harness_mark();
    }
    CHECK_OK(make_group(world));
    CHECK_OK(weft_finish(world));
}

/* ---- parents that have ended ---- */

static weft_status call_late(weft_group *group, int what)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    switch (what) {
    case 0:
        return make_group(group);
    case 1:
        return weft_group_split(group, 0, 0) ? WEFT_OK : weft_last_status();
    case 2:
        return weft_group_barrier(group, LIMIT_MS);
    default:
        return weft_all_reduce_into(x, x, WEFT_SUM, group);
    }
}

static weft_status quarrel(weft_group *group, bool on_board)
{
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    return on_board ? weft_group_barrier(group, LIMIT_MS)
                    : weft_all_reduce_into(x, x, WEFT_SUM, group);
}

/* A rank that comes when the others have quarrelled hears of it at once, whatever it calls, and does
 * not wait for members that have gone on.  Then all know, and can make a group of the same ranks. */
RANKS_TEST(test_group_new_late_to_a_quarrel, SIZE)
{
    weft_group *world = weft_init(NULL);
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.timeout_ms = LIMIT_MS;
    for (int round = 0; round < 8; round++) {
        CHECK_OK(weft_scope_open());
        /* The last member: the others miss each other first. */
        int late = list[SIZE - 1], first = list[round % 2];
        weft_group *group = weft_group_new_with(world, list, SIZE, &opts);
        CHECK(group != NULL);
        CHECK_OK(quarrel(group, false)); /* now there is a lane */
        for (int other = 0; rank == late && other < SIZE; other++)
            if (other != late)
                CHECK(harness_await(other, round + 1));
        long long began = harness_now();
        weft_status status =
            rank == late ? call_late(group, round / 2) : quarrel(group, rank == first);
        if (status != WEFT_ERR_MISMATCH)
            FAIL("round %d: %d: %s", round, status, weft_last_error());
        CHECK_CONTAINS(weft_last_error(), "calls group_barrier");
        CHECK_CONTAINS(weft_last_error(), "calls all_reduce of 3 f32, sum");
        CHECK((harness_now() - began) / 1000000 < LIMIT_MS / 2);
        harness_mark();
        CHECK_OK(make_group(group)); /* knowing that it has ended */
        CHECK_OK(weft_scope_close());
    }
    weft_clear_error();
    CHECK_OK(weft_finish(world));
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    fault_table.clock_ns = hurried_clock;
    weft_i_os_now = &fault_table;
    return harness_main(argc, argv);
}
