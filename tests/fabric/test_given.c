/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/given.c */
/*
 * What members have given to their devices (fabric/group/given.c), and when one that waits on the lane may
 * conclude something from it: every condition by itself, in a group whose other members are words
 * that the test writes.  test_cuda_fused.c has ranks that run.
 */
#include "group_by_hand.h"

#include "fabric/group/given.h"

enum { OTHER = 2, TURN = 6 };

static bool kept;

static bool is_kept(const void *who)
{
    CHECK(who == &kept);
    return kept;
}

static void tell(const void *who, char *out, size_t bytes)
{
    CHECK(who == &kept);
    snprintf(out, bytes, "mine");
}

static void tell_given(uint64_t what, uint64_t count, char *out, size_t bytes)
{
    snprintf(out, bytes, "%llu x %llu", (unsigned long long)what, (unsigned long long)count);
}

static const weft_i_lanes by_hand_lanes = {.tell_given = tell_given}, *lanes;

static const weft_i_stay on_lane = {WEFT_I_ON_LANE, is_kept, tell, &kept},
                         on_board = {.place = WEFT_I_ON_BOARD};

static weft_i_point point_by_hand(void)
{
    return (weft_i_point){.me = HAND_ME,
                          .size = HAND_SIZE,
                          .words = (char *)&hand.row[0].arrival,
                          .passes = (char *)&hand.row[0].pass,
                          .bells = (char *)&hand.row[0].bell,
                          .stride = sizeof *hand.row};
}

/* The other one has given its device 3 collectives, the last after 5 entries of the lane; this rank
 * has given 2, and is at entry 6. */
static void set_scene(void)
{
    hand_open();
    weft_i_given *theirs = &hand.row[OTHER].given;
    kept = true;
    lanes = weft_i_lanes_table;
    weft_i_lanes_table = &by_hand_lanes;
    hand.row[HAND_ME].given.calls = 2;
    for (uint64_t i = 0; i < WEFT_I_GIVEN_CALLS; i++) {
        theirs->what[i] = 10 + i;
        theirs->count[i] = 20 + i;
    }
    theirs->calls = 3;
    theirs->entries = TURN - 1;
}

/* Does a look end the group?  Then it tells; and makes up again. */
static bool ends_at(const weft_i_stay *stay, uint32_t turn, const char *text)
{
    weft_i_point point = point_by_hand();
    weft_i_vigil vigil = {.label = &hand.call, .point = &point, .stay = stay, .turn = turn};
    weft_i_board *board = hand.group->board;
    weft_i_given_look(&vigil, OTHER);
    bool ended = board->quarrel == 2;
    CHECK(ended || (!board->quarrel && !board->revoked));
    if (ended) {
        CHECK_INT(board->failure, WEFT_ERR_MISMATCH);
        if (strcmp(weft_i_quarrel_told(hand.group), text))
            FAIL("%s", weft_i_quarrel_told(hand.group));
        CHECK(weft_i_quarrel_on(board) == weft_i_quarrel_told(hand.group));
    }
    board->quarrel = 0;
    board->revoked = 0;
    board->failure = 0;
    return ended;
}

static bool ends(void)
{
    return ends_at(&on_lane, TURN, "rank 1 calls mine, but rank 2 calls 12 x 22");
}

TEST(test_given_notes)
{
    hand_open();
    weft_i_given *mine = &hand.row[HAND_ME].given;
    hand.group->calls.entries = 4;
    for (uint64_t i = 0; i < 2 * WEFT_I_GIVEN_CALLS; i++) {
        weft_i_given_note(hand.group, 10 + i, 50 + i);
        CHECK(mine->calls == i + 1 && mine->entries == 4);
        CHECK(mine->what[i % WEFT_I_GIVEN_CALLS] == 10 + i);
        CHECK(mine->count[i % WEFT_I_GIVEN_CALLS] == 50 + i);
    }
    hand.row[HAND_ME].stuck.quit[WEFT_I_ON_BOARD] = 9;
    hand.row[HAND_ME].stuck.quit[WEFT_I_ON_LANE] = 3; /* long ago */
    weft_i_given_note(hand.group, 1, 1);
    CHECK(mine->entries == 4);
    hand.row[HAND_ME].stuck.quit[WEFT_I_ON_LANE] = 5; /* it came to the fifth, and gave it up */
    weft_i_given_note(hand.group, 1, 1);
    CHECK(mine->entries == 5);
    hand.group->calls.posted = 1; /* what is posted comes to the lane when it likes */
    weft_i_given_note(hand.group, 1, 1);
    CHECK(mine->entries == WEFT_I_GIVEN_UNSURE);
    CHECK_INT(mine->calls, 2 * WEFT_I_GIVEN_CALLS + 3);
    CHECK_INT(hand.row[OTHER].given.calls, 0);
    weft_i_lanes_table = lanes;
    hand_close();
}

TEST(test_given_ends)
{
    set_scene();
    CHECK(ends());
    CHECK(ends_at(&on_lane, TURN + 1, "rank 1 calls mine, but rank 2 calls 12 x 22"));
    hand.row[HAND_ME].given.calls = 0; /* several behind: the first that it lacks is told */
    CHECK(ends_at(&on_lane, TURN, "rank 1 calls mine, but rank 2 calls 10 x 20"));
    hand.row[OTHER].given.calls = WEFT_I_GIVEN_CALLS - 1;
    CHECK(ends_at(&on_lane, TURN, "rank 1 calls mine, but rank 2 calls 10 x 20"));
    hand.row[OTHER].given.calls = WEFT_I_GIVEN_CALLS; /* it may be written over just now */
    CHECK(ends_at(&on_lane, TURN, "rank 1 calls mine, but rank 2 calls collectives on a device"));
    weft_i_lanes_table = NULL; /* a program without collectives */
    hand.row[OTHER].given.calls = 1;
    CHECK(ends_at(&on_lane, TURN, "rank 1 calls mine, but rank 2 calls collectives on a device"));
    weft_i_lanes_table = lanes;
    hand_close();
}

TEST(test_given_concludes_nothing)
{
    set_scene();
    weft_i_given *theirs = &hand.row[OTHER].given;
    CHECK(!ends_at(&on_board, TURN, "")); /* other threads may be there */
    kept = false;
    CHECK(!ends()); /* the helper thread waits, and the rank may call what it lacks */
    kept = true;
    hand.group->calls.replays = true;
    CHECK(!ends()); /* it does not know what its device runs */
    hand.group->calls.replays = false;
    hand.row[HAND_ME].given.calls = 3;
    CHECK(!ends()); /* it has called as many */
    hand.row[HAND_ME].given.calls = 4;
    CHECK(!ends());
    hand.row[HAND_ME].given.calls = 2;
    theirs->entries = TURN;
    CHECK(!ends()); /* that came to the entry before */
    theirs->entries = WEFT_I_GIVEN_UNSURE;
    CHECK(!ends());
    theirs->entries = TURN - 1;
    hand.row[OTHER].arrival = (uint64_t)TURN << 32;
    CHECK(!ends()); /* it has come meanwhile */
    hand.row[OTHER].arrival = (uint64_t)(TURN - 1) << 32;
    CHECK(ends());
    weft_i_lanes_table = lanes;
    hand_close();
}

/* Where there is no lane yet, who makes it for a collective is at its first entry. */
TEST(test_given_while_the_lane_is_made)
{
    set_scene();
    hand.row[OTHER].given.entries = 0;
    CHECK(!ends_at(NULL, TURN, "")); /* something else is made */
    hand.group->rest.lane_making.under_way = true;
    CHECK(!ends_at(NULL, TURN, "")); /* for a message, which not all members know of */
    hand.group->rest.lane_making.enters = true;
    CHECK(ends_at(NULL, TURN, "rank 1 calls op, but rank 2 calls 12 x 22"));
    hand.row[OTHER].given.entries = WEFT_I_GIVEN_UNSURE;
    CHECK(!ends_at(NULL, TURN, ""));
    hand.group->rest.lane_making.under_way = hand.group->rest.lane_making.enters = false;
    weft_i_lanes_table = lanes;
    hand_close();
}

/* A wait looks after a while, and ends then. */
TEST(test_given_is_looked_at)
{
    set_scene();
    weft_i_point point = point_by_hand();
    weft_i_vigil vigil = {.label = &hand.call, .point = &point, .stay = &on_lane, .turn = TURN};
    CHECK_OK(weft_i_vigil_look(&vigil, OTHER)); /* has just begun */
    vigil.begin -= 2000000;
    CHECK_INT(weft_i_vigil_look(&vigil, OTHER), WEFT_ERR_REVOKED); /* the board says why */
    CHECK(weft_i_quarrel_told(hand.group));
    weft_i_lanes_table = lanes;
    hand_close();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
