/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group.c, fabric/group/group_new.c, fabric/group/group_split.c,
 * fabric/group/group_find.c, fabric/group/group_end.c */
/* Groups: making, splitting, names, ranks, limits, revoking, mismatches, and every wrong argument.
 */
#include "jobs.h"
#include "standing.h"

#include <weft/weft.h>

static weft_symm *share(weft_group *group, int64_t count)
{
    return weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count)), group);
}

static const int every[] = {0, 1, 2, 3};

static void rest(int ms)
{
    struct timespec duration = {0, ms * 1000000L};
    nanosleep(&duration, NULL);
}

RANKS_TEST(test_group_world, 4)
{
    weft_group *world = join(0);
    CHECK_INT(weft_rank(world), rank);
    CHECK_INT(weft_size(world), size);
    CHECK_INT(weft_local_rank(world), rank);
    CHECK_INT(weft_local_size(world), size);
    CHECK(!strcmp(weft_group_name(world), "0"));
    for (int i = 0; i < size; i++) {
        CHECK_INT(weft_group_world_rank(world, i), i);
        CHECK_INT(weft_group_rank_of(world, i), i);
    }
    CHECK_INT(weft_group_timeout(world), 600000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_group_order, 4)
{
    weft_group *world = join(0);
    int order[] = {3, 0, 2};
    weft_group *group = weft_group_new(world, order, 3, "odd one out");
    if (rank == 1) {
        CHECK(!group);
        CHECK_INT(weft_last_status(), WEFT_OK);
    } else {
        CHECK(group);
        CHECK(!strcmp(weft_group_name(group), "odd one out"));
        CHECK_INT(weft_size(group), 3);
        CHECK_INT(weft_rank(group), rank == 3 ? 0 : rank == 0 ? 1 : 2);
        for (int i = 0; i < 3; i++) {
            CHECK_INT(weft_group_world_rank(group, i), order[i]);
            CHECK_INT(weft_group_rank_of(group, order[i]), i);
        }
        CHECK_INT(weft_group_rank_of(group, 1), -1);
        weft_symm *mem = share(group, 4);
        CHECK(mem);
        *(float *)weft_symm_buffer_ptr(mem, weft_rank(group)) = (float)rank;
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        for (int i = 0; i < 3; i++)
            CHECK_INT(*(float *)weft_symm_buffer_ptr(mem, i), order[i]);
        /* A group of a group: ranks are those of the parent. */
        int inner[] = {2, 0};
        weft_group *pair = weft_group_new(group, inner, 2, NULL);
        CHECK(rank == 0 ? !pair : pair != NULL);
        if (pair) {
            CHECK_INT(weft_group_world_rank(pair, 0), 2);
            CHECK_INT(weft_group_world_rank(pair, 1), 3);
            CHECK_OK(weft_group_barrier(pair, WEFT_DEFAULT));
        }
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* One list, many groups: each has barriers, pads and rendezvous of its own. */
RANKS_TEST(test_group_repeated, 3)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2};
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_symm *before = NULL;
    for (int i = 0; i < 20; i++) {
        weft_group *group = weft_group_new(world, all, 3, NULL);
        if (!group)
            FAIL("group %d: %s", i, weft_last_error());
        weft_symm *mem = weft_symm_rendezvous(x, group);
        CHECK(mem);
        if (rank == 0) /* left in the pad: must not be seen in the next group's */
            CHECK_OK(weft_symm_put_signal(mem, 1, 0, WEFT_DEFAULT));
        CHECK_OK(weft_symm_barrier(mem, 0, WEFT_DEFAULT));
        if (before)
            CHECK(weft_symm_signal_pad_ptr(before, 0) != weft_symm_signal_pad_ptr(mem, 0));
        if (before && rank == 1)
            CHECK_OK(weft_symm_wait_signal(before, 0, 0, 0));
        if (i % 3 == 0)
            weft_release(group);
        before = mem;
    }
    finish(world);
}

RANKS_TEST(test_group_overlapping, 4)
{
    weft_group *world = join(0);
    int lists[][3] = {{0, 1, 2}, {1, 2, 3}, {2, 3, 0}, {3, 0, 1}};
    weft_group *groups[4];
    for (int i = 0; i < 4; i++) {
        groups[i] = weft_group_new(world, lists[i], 3, NULL);
        CHECK((groups[i] != NULL) == (rank != (i + 3) % 4));
    }
    weft_tensor *x = weft_symm_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4));
    weft_symm *mems[4] = {0};
    for (int i = 0; i < 4; i++)
        if (groups[i])
            CHECK((mems[i] = weft_symm_rendezvous(x, groups[i])) != NULL);
    for (int round = 0; round < 50; round++)
        for (int i = 0; i < 4; i++)
            if (groups[i]) {
                CHECK_OK(weft_symm_barrier(mems[i], round % 3, WEFT_DEFAULT));
                CHECK_OK(weft_group_barrier(groups[i], WEFT_DEFAULT));
            }
    CHECK(share(world, 4)); /* a larger group after smaller ones */
    finish(world);
}

RANKS_TEST(test_group_many, 4)
{
    weft_group *world = join(0);
    weft_group *groups[64] = {0};
    for (int i = 0; i < 64; i++) {
        int members[4], count = 0; /* every subset of ranks, four times over */
        for (int member = 0; member < 4; member++)
            if ((i + 1) >> member & 1)
                members[count++] = member;
        if (!count)
            members[count++] = i % 4;
        groups[i] = weft_group_new(world, members, count, NULL);
        bool mine = false;
        for (int k = 0; k < count; k++)
            mine |= members[k] == rank;
        CHECK(mine == (groups[i] != NULL));
    }
    for (int i = 63; i >= 0; i--)
        if (groups[i])
            CHECK_OK(weft_group_barrier(groups[i], WEFT_DEFAULT));
    for (int i = 0; i < 64; i++)
        for (int k = 0; k < i; k++)
            if (groups[i] && groups[k])
                CHECK(strcmp(weft_group_name(groups[i]), weft_group_name(groups[k])));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_group_split, 4)
{
    weft_group *world = join(0);
    weft_group *half = weft_group_split(world, rank % 2, -rank);
    CHECK(half);
    CHECK_INT(weft_size(half), 2);
    CHECK_INT(weft_rank(half), rank < 2); /* the higher rank has the lower key */
    CHECK_INT(weft_group_world_rank(half, 0), rank % 2 + 2);
    CHECK_OK(weft_group_barrier(half, WEFT_DEFAULT));
    weft_group *same = weft_group_split(world, 7, 0);
    CHECK(same && weft_size(same) == size && weft_rank(same) == rank);
    weft_group *some = weft_group_split(world, rank == 2 ? -1 : 0, 0);
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK(rank == 2 ? !some : weft_size(some) == 3);
    CHECK(!weft_group_split(world, -5, 0)); /* nobody */
    CHECK_INT(weft_last_status(), WEFT_OK);
    weft_group *alone = weft_group_split(world, rank, 0);
    CHECK(alone && weft_size(alone) == 1 && weft_rank(alone) == 0);
    CHECK_OK(weft_group_barrier(alone, WEFT_DEFAULT));
    weft_group *quarter = weft_group_split(half, weft_rank(half), 0);
    CHECK(quarter && weft_size(quarter) == 1);
    finish(world);
}

RANKS_TEST(test_group_limits, 2)
{
    weft_group *world = join(0);
    int both[] = {0, 1};
    weft_group *side = weft_group_new(world, both, 2, NULL);
    CHECK_OK(weft_group_set_timeout(world, 120));
    CHECK_INT(weft_group_timeout(world), 120);
    CHECK_STATUS(weft_group_set_timeout(world, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_group_set_timeout(world, WEFT_DEFAULT), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_group_set_timeout(world, -77), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_group_timeout(world), 120);
    if (rank == 0) { /* the other one comes late: when this one has given up */
        long long began = harness_now();
        CHECK_STATUS(weft_group_barrier(world, WEFT_DEFAULT), WEFT_ERR_TIMEOUT);
        long long ms = (harness_now() - began) / 1000000;
        CHECK(ms >= 119 && ms < 20000);
        CHECK_CONTAINS(weft_last_error(), "rank 1 (");
        CHECK_CONTAINS(weft_last_error(), "120 ms");
        CHECK_STATUS(weft_group_barrier(world, 0), WEFT_ERR_TIMEOUT);
    }
    CHECK_OK(weft_group_barrier(side, WEFT_FOREVER));
    CHECK_OK(weft_group_barrier(world, WEFT_FOREVER));
    CHECK_OK(weft_group_set_timeout(world, 30000));
    weft_group *child = weft_group_new(world, both, 2, NULL);
    CHECK_INT(weft_group_timeout(child), 30000); /* inherited */
    CHECK_OK(weft_group_set_timeout(child, WEFT_FOREVER));
    CHECK_INT(weft_group_timeout(world), 30000);
    CHECK_OK(weft_group_barrier(child, WEFT_DEFAULT));
    finish(world);
}

/* Group-making that timed out can be tried again. */
RANKS_TEST(test_group_new_late, 3)
{
    weft_group *world = join(0);
    int all[] = {1, 0, 2};
    weft_tensor *tally = weft_symm_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_fill(tally, 0));
    weft_symm *mem = weft_symm_rendezvous(tally, world);
    CHECK(mem);
    _Atomic int64_t *late = weft_symm_buffer_ptr(mem, 0); /* how often each rank gave up */
    CHECK_OK(weft_group_barrier(world, 20000));
    CHECK_OK(weft_group_set_timeout(world, 60));
    for (int who = 0; who < 3; who++) {
        weft_group *group = NULL;
        int64_t before[3] = {late[0], late[1], late[2]};
        CHECK_OK(weft_group_barrier(world, 20000));
        for (int peer = 0; peer < 3; peer++) /* late: when the others have given up */
            while (rank == who && peer != who && late[peer] == before[peer])
                rest(1);
        while (!(group = weft_group_new(world, all, 3, NULL))) {
            CHECK_STATUS(weft_last_status(), WEFT_ERR_TIMEOUT);
            late[rank]++;
        }
        CHECK_OK(weft_group_barrier(group, 20000));
        CHECK_OK(weft_group_barrier(world, 20000));
    }
    CHECK(late[rank] > 1);
    finish(world);
}

/* A rank that is known to stand in an operation stands in the one meant, not in the one before. */
RANKS_TEST(test_group_standing, 1)
{
    weft_group *world = join(0);
    weft_i_record *record = weft_i_group_record(world);
    CHECK(!standing_in(world, 0, "thing", false));
    uint64_t before = weft_i_record_begin(record, "thing", world->id, 0, -1, -1);
    CHECK(!standing_in(world, 0, "thing", true)); /* it has not been announced */
    standing_mark(world);
    CHECK(!standing_in(world, 0, "thing", true));
    weft_i_record_end(record, before, 0);
    CHECK(!standing_in(world, 0, "thing", false));
    uint64_t meant = weft_i_record_begin(record, "thing", world->id, 0, -1, -1);
    CHECK(standing_in(world, 0, "thing", true));
    CHECK(!standing_in(world, 0, "other", false));
    weft_i_record_end(record, meant, 0);
    CHECK(!standing_in(world, 0, "thing", true));
    CHECK(standing_in(world, 0, "thing", false));
    finish(world);
}

RANKS_TEST(test_group_revoke, 4)
{
    weft_group *world = join(0);
    int all[] = {0, 1, 2, 3};
    weft_group *group = weft_group_new(world, all, 4, "doomed");
    weft_symm *mem = group ? share(group, 4) : NULL;
    CHECK(mem);
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    standing_mark(group);
    long long began = harness_now();
    weft_status status = WEFT_OK;
    if (rank == 2) { /* when all the others wait */
        CHECK(standing_await(group, 0, "group_barrier", true));
        CHECK(standing_await(group, 1, "barrier", true));
        CHECK(standing_await(group, 3, "wait_signal", true));
        CHECK_OK(weft_group_revoke(group));
    } else if (rank == 0) {
        status = weft_group_barrier(group, WEFT_FOREVER);
    } else if (rank == 1) {
        status = weft_symm_barrier(mem, 0, WEFT_FOREVER);
    } else {
        status = weft_symm_wait_signal(mem, 0, 0, WEFT_FOREVER);
    }
    if (rank != 2) {
        CHECK_STATUS(status, WEFT_ERR_REVOKED);
        CHECK_CONTAINS(weft_last_error(), "rank 2 revoked");
        CHECK_CONTAINS(weft_last_error(), "doomed");
    }
    CHECK((harness_now() - began) / 1000000 < 15000);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));                       /* the parent lives */
    CHECK_STATUS(weft_group_barrier(group, WEFT_DEFAULT), WEFT_ERR_REVOKED); /* now and later */
    CHECK_STATUS(weft_symm_barrier(mem, 0, WEFT_DEFAULT), WEFT_ERR_REVOKED);
    CHECK_STATUS(weft_symm_put_signal(mem, 0, 0, WEFT_DEFAULT), WEFT_ERR_REVOKED);
    CHECK(!share(group, 4));
    CHECK_INT(weft_last_status(), WEFT_ERR_REVOKED);
    CHECK_OK(weft_group_revoke(group));
    weft_group *next = weft_group_new(world, all, 4, NULL);
    CHECK(next);
    CHECK_OK(weft_group_barrier(next, WEFT_DEFAULT));
    finish(world);
}

static weft_status call_something(weft_group *group, int what)
{
    switch (what) {
    case 0:
        return weft_group_barrier(group, WEFT_DEFAULT);
    case 1:
        return share(group, 4) ? WEFT_OK : weft_last_status();
    default:
        return weft_group_split(group, 0, 0) ? WEFT_OK : weft_last_status();
    }
}

/* Ranks that call different things all learn it, also those that come late. */
RANKS_TEST(test_group_mismatch, 3)
{
    static const char *const names[] = {"group_barrier", "rendezvous", "group_split"};
    weft_group *world = join(0);
    int all[] = {0, 1, 2};
    for (int odd = 0; odd < 3; odd++)
        for (int pair = 0; pair < 3; pair++) {
            int common = pair, other = (pair + 1) % 3;
            weft_group *group = weft_group_new(world, all, 3, NULL);
            CHECK(group);
            standing_mark(group);
            for (int peer = 0; peer < 3; peer++) /* late: when the others have come */
                if (rank == (odd + pair) % 3 && peer != rank)
                    CHECK(standing_await(group, peer, names[peer == odd ? other : common], false));
            long long began = harness_now();
            CHECK_STATUS(call_something(group, rank == odd ? other : common), WEFT_ERR_MISMATCH);
            CHECK((harness_now() - began) / 1000000 < 15000);
            CHECK_CONTAINS(weft_last_error(), names[rank == odd ? other : common]);
            CHECK_CONTAINS(weft_last_error(), "rank ");
            /* Such a group is lost; the next one is not. */
            CHECK_STATUS(weft_group_barrier(group, WEFT_DEFAULT), WEFT_ERR_MISMATCH);
            CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        }
    finish(world);
}

/* Who gave up waiting for a third rank makes a group without it, while another still waits: that
 * one follows, and nothing is a mismatch.  In a barrier, in the first collective and in a later
 * one. */
RANKS_TEST(test_group_after_timeout, 3)
{
    weft_group *world = join(20000);
    int marks = 0;
    for (int number = 0; number < 6; number++) {
        int two[] = {number / 3, 1 - number / 3}; /* the first one makes the board */
        weft_scope_open();
        weft_group *group = weft_group_new(world, every, 3, NULL);
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(5));
        if (number % 3 == 2)
            CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, group));
        CHECK_OK(weft_group_set_timeout(group, rank ? 300 : 100));
        if (rank < 2) {
            weft_status status = number % 3 ? weft_all_reduce_into(x, x, WEFT_SUM, group)
                                            : weft_group_barrier(group, WEFT_DEFAULT);
            CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
            CHECK_CONTAINS(weft_last_error(), "rank 2 (");
            weft_clear_error();
            CHECK_OK(weft_group_set_timeout(group, 20000));
            weft_group *pair = weft_group_new(group, two, 2, NULL);
            if (!pair)
                FAIL("%d: %s", number, weft_last_error());
            CHECK_OK(weft_group_barrier(pair, WEFT_DEFAULT));
            harness_mark();
        }
        harness_await_marks(marks += 2);
        weft_scope_close();
    }
    finish(world);
}

RANKS_TEST(test_group_arguments, 2)
{
    weft_group *world = join(0);
    int good[] = {0, 1}, twice[] = {1, 1}, high[] = {0, 2}, low[] = {0, -1};
    CHECK(!weft_group_new(world, NULL, 2, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_group_new(world, good, 0, NULL));
    CHECK(!weft_group_new(world, good, -3, NULL));
    CHECK(!weft_group_new(world, good, 3, NULL));
    CHECK(!weft_group_new(world, twice, 2, NULL));
    CHECK_CONTAINS(weft_last_error(), "twice");
    CHECK(!weft_group_new(world, high, 2, NULL));
    CHECK_CONTAINS(weft_last_error(), "rank 2");
    CHECK(!weft_group_new(world, low, 2, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    char name[80];
    memset(name, 'n', sizeof name);
    name[64] = 0;
    CHECK(!weft_group_new(world, good, 2, name));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    name[63] = 0;
    weft_group *group = weft_group_new(world, good, 2, name);
    CHECK(group && !strcmp(weft_group_name(group), name));
    CHECK_STATUS(weft_group_barrier(world, -3), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_group_world_rank(world, 2), -1);
    CHECK_INT(weft_group_world_rank(world, -1), -1);
    CHECK_INT(weft_group_rank_of(world, 2), -1);
    weft_clear_error();
    CHECK(!weft_group_new(NULL, good, 2, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK(!weft_group_split(NULL, 0, 0));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_group_barrier(NULL, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_group_revoke(NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_group_set_timeout(NULL, 5), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_rank(NULL), -1);
    CHECK_INT(weft_size(NULL), -1);
    CHECK_INT(weft_local_rank(NULL), -1);
    CHECK_INT(weft_local_size(NULL), -1);
    CHECK_INT(weft_group_timeout(NULL), 0);
    CHECK_INT(weft_group_world_rank(NULL, 0), -1);
    CHECK_INT(weft_group_rank_of(NULL, 0), -1);
    CHECK(!strcmp(weft_group_name(NULL), ""));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* nothing of it reached the other rank */
    finish(world);
}

RANKS_TEST(test_group_after_finish, 2)
{
    weft_group *world = join(0);
    int all[] = {0, 1};
    weft_group *group = weft_group_new(world, all, 2, NULL);
    weft_symm *mem = group ? share(group, 4) : NULL;
    CHECK(mem);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
    CHECK_STATUS(weft_group_barrier(world, 0), WEFT_ERR_STATE);
    CHECK_STATUS(weft_group_barrier(group, 0), WEFT_ERR_STATE);
    CHECK_STATUS(weft_symm_barrier(mem, 0, 0), WEFT_ERR_STATE);
    CHECK_STATUS(weft_symm_put_signal(mem, 0, 0, 0), WEFT_ERR_STATE);
    CHECK(!weft_group_new(world, all, 2, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK(!weft_group_split(group, 0, 0));
    CHECK(!share(group, 4));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_STATUS(weft_group_revoke(group), WEFT_ERR_STATE);
    CHECK_INT(weft_rank(group), rank);              /* asking still works */
    CHECK_INT(-weft_finish(world), WEFT_ERR_STATE); /* reports the first error, leaves once */
    CHECK(!weft_init(NULL));                        /* a rank enters its job once */
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
}

/* ---- options, blocks, lists ---- */

RANKS_TEST(test_group_options, 4)
{
    weft_group *world = join(0);
    int order[] = {2, 3, 0};
    weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
    opts.name = "fast";
    opts.description = "for gradients";
    opts.timeout_ms = 5000;
    opts.sorted = 1;
    weft_group *group = weft_group_new_with(world, order, 3, &opts);
    CHECK((group != NULL) == (rank != 1));
    if (group) {
        CHECK(!strcmp(weft_group_name(group), "fast"));
        CHECK(!strcmp(weft_group_description(group), "for gradients"));
        CHECK_INT(weft_group_timeout(group), 5000);
        for (int i = 0; i < 3; i++)
            CHECK_INT(weft_group_ranks(group)[i], i ? i + 1 : 0);
        uint64_t before = weft_group_sequence(group);
        CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
        weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        uint64_t after = weft_group_sequence(group);
        CHECK(after >= before + 2);
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
        CHECK(weft_group_sequence(group) == after + 1);
    }
    weft_group *plain = weft_group_new_with(world, NULL, 0, NULL);
    CHECK(plain && weft_size(plain) == 4 && weft_rank(plain) == rank);
    CHECK(!strcmp(weft_group_description(plain), "undefined"));
    weft_group_opts wrong = WEFT_GROUP_OPTS_INIT;
    wrong.timeout_ms = -9;
    CHECK(!weft_group_new_with(world, NULL, 0, &wrong));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    wrong = (weft_group_opts){0};
    CHECK(!weft_group_new_with(world, NULL, 0, &wrong));
    CHECK_CONTAINS(weft_last_error(), "WEFT_GROUP_OPTS_INIT");
    finish(world);
}

/* A call counts once, however many tensors it has; one that is refused does not count. */
RANKS_TEST(test_group_sequence_counts_calls, 2)
{
    weft_group *world = join(0);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 6));
    weft_tensor *y = weft_ones(WEFT_I32, WEFT_CPU, WEFT_SHAPE(3));
    weft_tensor *meta = weft_ones(WEFT_F32, WEFT_META, WEFT_SHAPE(3));
    weft_tensor *list[] = {x, y}, *bad[] = {x, meta};
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world)); /* makes the group's lane */
    uint64_t before = weft_group_sequence(world);
    CHECK_OK(weft_all_reduce_list_into(list, list, 2, WEFT_SUM, world));
    CHECK_INT(weft_group_sequence(world), before + 1);
    if (rank == 1) /* alone: the ranks must still agree afterwards */
        CHECK(weft_all_reduce_list_into(bad, bad, 2, WEFT_SUM, world) < 0);
    CHECK_INT(weft_group_sequence(world), before + 1);
    weft_work *work = weft_all_reduce_list_start(list, list, 2, WEFT_SUM, world);
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    CHECK_INT(weft_group_sequence(world), before + 2);
    CHECK(weft_wait_tensor(weft_all_gather_tensor(x, 1, world))); /* by rows */
    CHECK_INT(weft_group_sequence(world), before + 3);
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, world));
    CHECK_OK(weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT));
    CHECK_INT(weft_group_sequence(world), before + 4);
    finish(world);
}

/* Members that want different things: all learn it, and the next try is not disturbed. */
RANKS_TEST(test_group_differing_options, 3)
{
    weft_group *world = join(0);
    for (int what = 0; what < 2; what++) {
        weft_group_opts opts = WEFT_GROUP_OPTS_INIT;
        opts.name = what == 0 && rank == 2 ? "b" : "a";
        opts.tag = what == 1 && rank == 1 ? "t" : NULL;
        CHECK(!weft_group_new_with(world, NULL, 0, &opts));
        CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
        CHECK_CONTAINS(weft_last_error(), what ? "different tags" : "different names");
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    }
    weft_clear_error();
    weft_group *group = weft_group_new(world, every, 3, "a");
    CHECK(group);
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_group_blocks, 4)
{
    weft_group *world = join(0);
    weft_group *half = weft_group_new_blocks(world, 2, NULL);
    CHECK(half && weft_size(half) == 2 && weft_rank(half) == rank % 2);
    CHECK_INT(weft_group_world_rank(half, 0), rank / 2 * 2);
    weft_group *single = weft_group_new_blocks(half, 1, NULL);
    CHECK(single && weft_group_world_rank(single, 0) == rank);
    CHECK_OK(weft_group_barrier(half, WEFT_DEFAULT));
    struct {
        int block;
        const char *words;
    } wrong[] = {{0, "at least one"}, {-2, "at least one"}, {8, "has only 4"}, {3, "no multiple"}};
    for (int i = 0; i < 4; i++) {
        CHECK(!weft_group_new_blocks(world, wrong[i].block, NULL));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), wrong[i].words);
    }
    finish(world);
}

RANKS_TEST(test_group_lists, 4)
{
    weft_group *world = join(0);
    int back[] = {3, 0};
    weft_rank_list lists[] = {{back, 2}, {every + 1, 1}};
    for (int splits = 0; splits < 2; splits++) {
        weft_group *group = splits ? weft_group_split_lists(world, lists, 2, NULL)
                                   : weft_group_new_lists(world, lists, 2, NULL);
        CHECK_INT(weft_last_status(), WEFT_OK);
        CHECK((group != NULL) == (rank != 2));
        if (rank == 3 || rank == 0) {
            CHECK_INT(weft_rank(group), rank == 0);
            CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
            weft_group *found = weft_group_find(world, "", back, 2);
            CHECK(found && (found == group) == !splits); /* a split is not found so */
        }
    }
    weft_group *odd = weft_group_new(world, (const int[]){3, 1}, 2, NULL);
    weft_rank_list inner[] = {{every + 1, 1}}; /* ranks of the parent */
    if (odd) {
        weft_group *last = weft_group_split_lists(odd, inner, 1, NULL);
        CHECK((last != NULL) == (rank == 1));
    }
    weft_rank_list empty[] = {{back, 2}, {back, 0}}, shared[] = {{every, 3}, {every + 2, 2}};
    weft_rank_list twice[] = {{(const int[]){1, 1}, 2}}, high[] = {{(const int[]){4}, 1}};
    struct {
        const weft_rank_list *lists;
        int count;
        const char *words;
    } wrong[] = {{lists, 0, "no lists"},        {NULL, 2, "no lists"},
                 {empty, 2, "list 1 is empty"}, {shared, 2, "rank 2 is in lists 0 and 1"},
                 {twice, 1, "named twice"},     {high, 1, "rank 4 is outside"}};
    for (int i = 0; i < 6; i++) {
        CHECK(!weft_group_new_lists(world, wrong[i].lists, wrong[i].count, NULL));
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), wrong[i].words);
        CHECK(!weft_group_split_lists(world, wrong[i].lists, wrong[i].count, NULL));
        CHECK_CONTAINS(weft_last_error(), wrong[i].words);
    }
    lists[1].count = rank == 1 ? 2 : 1; /* not what the others say */
    CHECK(!weft_group_split_lists(world, lists, 2, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "different lists");
    weft_clear_error();
    /* Each of the lists counts, the first and the last. */
    for (int which = 0; which < 2; which++) {
        int pairs[2][2] = {{0, 1}, {2, 3}}, *odd_one = pairs[which], first = odd_one[0];
        if (rank == 2) {
            odd_one[0] = odd_one[1];
            odd_one[1] = first;
        }
        weft_rank_list two[] = {{pairs[0], 2}, {pairs[1], 2}};
        CHECK(!weft_group_split_lists(world, two, 2, NULL));
        CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
        weft_clear_error();
    }
    finish(world);
}

/* Options that were not started from WEFT_GROUP_OPTS_INIT, or have a bad name, whoever reads them. */
RANKS_TEST(test_group_opts_of_all, 2)
{
    weft_group *world = join(0);
    char longest[64], longer[65]; /* names: 63 characters, 64 */
    memset(longest, 'n', sizeof longest);
    memset(longer, 'n', sizeof longer);
    longest[63] = longer[64] = 0;
    weft_rank_list list = {every, size};
    weft_group_opts bad[] = {WEFT_GROUP_OPTS_INIT, WEFT_GROUP_OPTS_INIT, WEFT_GROUP_OPTS_INIT};
    bad[0].size = 3;
    bad[1].name = longer;
    bad[2].description = longer;
    for (int i = 0; i < 12; i++) {
        const weft_group_opts *opts = &bad[i % 3];
        weft_clear_error();
        weft_group *made = i / 3 == 0   ? weft_group_new_with(world, every, size, opts)
                           : i / 3 == 1 ? weft_group_new_blocks(world, size, opts)
                           : i / 3 == 2 ? weft_group_new_lists(world, &list, 1, opts)
                                        : weft_group_split_lists(world, &list, 1, opts);
        CHECK(!made);
        CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), i % 3 ? "at most 63 characters" : "WEFT_GROUP_OPTS_INIT");
    }
    weft_group_opts good = WEFT_GROUP_OPTS_INIT;
    good.name = longest;
    weft_group *named = weft_group_new_with(world, every, size, &good);
    CHECK(named && !strcmp(weft_group_name(named), longest) && weft_rank(named) == rank);
    finish(world);
}

/* ---- the end of a group ---- */

RANKS_TEST(test_group_destroy, 4)
{
    weft_group *world = join(0);
    weft_group *group = weft_group_new(world, every, 4, "g");
    weft_group *child = weft_group_split(group, 0, 0), *grand = weft_group_split(child, 0, 0);
    weft_symm *mem = share(child, 4);
    CHECK(grand && mem);
    CHECK_INT(weft_group_count(world), 4);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_group_destroy(group));
    CHECK_INT(weft_group_count(world), 1);
    weft_group *ended[] = {group, child, grand};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(weft_group_barrier(ended[i], WEFT_DEFAULT), WEFT_ERR_STATE);
        CHECK_CONTAINS(weft_last_error(), "already destroyed");
        CHECK_STATUS(weft_group_destroy(ended[i]), WEFT_ERR_STATE);
        CHECK_STATUS(weft_group_revoke(ended[i]), WEFT_ERR_STATE);
        CHECK(!weft_group_split(ended[i], 0, 0));
        CHECK(!weft_group_shrink(ended[i]));
        CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    }
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, group), WEFT_ERR_STATE);
    CHECK_STATUS(weft_symm_barrier(mem, 0, WEFT_DEFAULT), WEFT_ERR_STATE);
    CHECK_INT(weft_rank(group), rank); /* asking still works */
    CHECK_OK(weft_group_destroy(NULL));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_group *next = weft_group_new(world, every, 4, "g");
    CHECK(next);
    CHECK_OK(weft_group_barrier(next, WEFT_DEFAULT));
    CHECK_OK(weft_group_destroy(world)); /* ends all */
    CHECK_STATUS(weft_group_barrier(next, WEFT_DEFAULT), WEFT_ERR_STATE);
    CHECK_STATUS(weft_group_barrier(world, WEFT_DEFAULT), WEFT_ERR_STATE);
    CHECK(!weft_group_new(world, every, 4, NULL));
    finish(world);
}

/* Who still waits for a rank that has destroyed the group is told, whatever it waits in. */
RANKS_TEST(test_group_destroy_tells, 3)
{
    weft_group *world = join(0);
    weft_group *group = weft_group_new(world, every, 3, NULL);
    weft_symm *mem = group ? share(group, 4) : NULL;
    CHECK(mem);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    standing_mark(group);
    if (rank == 2) {
        CHECK(standing_await(group, 0, "wait_signal", true));
        CHECK(standing_await(group, 1, "group_barrier", true));
        CHECK_OK(weft_group_destroy(group));
    } else {
        weft_status status = rank ? weft_group_barrier(group, WEFT_FOREVER)
                                  : weft_symm_wait_signal(mem, 2, 0, WEFT_FOREVER);
        CHECK_STATUS(status, WEFT_ERR_PEER_LEFT);
        CHECK_CONTAINS(weft_last_error(), "rank 2 of the world has destroyed the group");
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, group), WEFT_ERR_PEER_LEFT);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

/* The members who live agree, also when nobody is dead; who is late is named. */
RANKS_TEST(test_group_shrink_whole, 3)
{
    weft_group *world = join(0);
    weft_group *group = weft_group_new(world, every, 3, NULL);
    CHECK(group);
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    CHECK_OK(weft_group_revoke(group));
    weft_group *same = weft_group_shrink(group); /* after a revoke */
    if (!same)
        FAIL("%s", weft_last_error());
    CHECK_INT(weft_size(same), 3);
    CHECK_OK(weft_group_barrier(same, WEFT_DEFAULT));
    CHECK_OK(weft_limit_open(150));
    if (rank == 0) {
        CHECK(!weft_group_shrink(same));
        CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 1 (");
        CHECK_CONTAINS(weft_last_error(), "rank 2 (");
    }
    CHECK_OK(weft_limit_close());
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 1) { /* leaves the job: the others go on */
        finish(world);
        return;
    }
    while (weft_group_barrier(same, 20) == WEFT_ERR_TIMEOUT)
        continue;
    CHECK_INT(weft_last_status(), WEFT_ERR_PEER_LEFT);
    weft_group *two = weft_group_shrink(same);
    if (!two)
        FAIL("%s", weft_last_error());
    CHECK_INT(weft_size(two), 2);
    CHECK_INT(weft_group_world_rank(two, 1), 2);
    CHECK_OK(weft_group_barrier(two, WEFT_DEFAULT));
    finish(world);
}

/* WEFT_DEBUG=INFO tells of every group that is made, in one line. */
TEST(test_group_log)
{
    char self[512], command[1200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    self[n] = 0;
    snprintf(command, sizeof command,
             "WEFT_DEBUG=INFO WEFT_TEST_BACKENDS=threads '%s' test_group_options 2>&1 | grep -q "
             "'group \"fast\" "
             "([0-9a-f]*) made: rank 1 of 3, world ranks 0,2-3, tag \"ptd:fast\", limit 5000 ms, "
             "for gradients'",
             self);
    CHECK_INT(system(command), 0);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
