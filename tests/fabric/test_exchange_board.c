/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/exchange.c, fabric/group/monitor.c */
/*
 * Meetings on a board, whose other members are words that the test writes: barriers, exchanges that
 * make a lane beside it, and what is told of those who are late.  test_exchange.c has how they end.
 */
#include "group_by_hand.h"

#include "base/report/log.h"
#include "fabric/group/exchange.h"

#include <sys/mman.h>
#include <unistd.h>

#define ME_IN "rank 1 of 4 in group \"g\", op"

enum { SHORT_MS = 20 };

static void ended(int by, weft_status why)
{
    hand.group->board->revoked = 1 + (uint32_t)by;
    hand.group->board->failure = why;
}

static weft_status exchange(bool later)
{
    return later ? weft_i_group_exchange_later(hand.group, "op", NULL, 0, NULL, SHORT_MS)
                 : weft_i_group_exchange(hand.group, "op", NULL, 0, NULL, SHORT_MS);
}

static void nobody_comes(void)
{
    hand_said(exchange(false), WEFT_ERR_TIMEOUT,
              ME_IN ": waited 20 ms for rank 4 (alive), rank 0 (alive), rank 3 (alive)");
}

/* Who shows its failure waits for the others, and keeps its own reason. */
TEST(test_board_shows)
{
    hand_open();
    hand.group->timeout_ms = SHORT_MS;
    CHECK_INT(weft_i_fail(WEFT_ERR_IO, "before"), WEFT_ERR_IO);
    weft_i_group_show(hand.group, "op", "no", 3);
    CHECK(weft_last_status() == WEFT_ERR_IO && !strcmp(weft_last_error(), "before"));
    CHECK(!strcmp((char *)hand.row[HAND_ME].note[1], "no"));
    CHECK_INT(hand.group->sequence, 1);
    hand_close();
}

static weft_i_os held_table;
static int64_t held_now;

static int64_t held_clock(void)
{
    return held_now;
}

/* This rank yields its core and gets it back long after its deadline; meanwhile rank 4 gives up. */
static void held_yield(void)
{
    held_now += 1000000;
    hand.row[0].gave_up = weft_i_stamp(held_now, 0);
    held_now += 100 * 1000000;
}

/* Who was held up before it looked at anybody knows when its wait began: one that has given up since
 * is not missing, one that did before is. */
TEST(test_board_held_up)
{
    hand_open();
    held_now = INT64_C(5000000000);
    held_table = weft_i_os_linux;
    held_table.clock_ns = held_clock;
    held_table.yield = held_yield;
    hand.world->mode = WEFT_I_WAIT_YIELD;
    hand.row[2].gave_up = weft_i_stamp(held_now - 1000000, 0);
    weft_i_os_now = &held_table;
    weft_status status = exchange(false);
    weft_i_os_now = &weft_i_os_linux;
    hand_said(status, WEFT_ERR_TIMEOUT, ME_IN ": waited 20 ms for rank 0 (alive), rank 3 (alive)");
    hand_close();
}

/* For whom a lane is made is told only where one is made. */
TEST(test_board_made_for)
{
    hand_open();
    hand.group->rest.lane_making.op = "all_reduce";
    nobody_comes();
    hand.group->rest.lane_making.under_way = true;
    hand_said(exchange(false), WEFT_ERR_TIMEOUT,
              "rank 1 of 4 in group \"g\", all_reduce: waited 20 ms for rank 4 (alive), rank 0 "
              "(alive), rank 3 (alive)");
    hand.group->rest.lane_making.op = NULL;
    nobody_comes();
    hand.group->rest.lane_making.under_way = false;
    hand_close();
}

/* A lane is made in words of its own: what meets on the board beside it is not touched. */
TEST(test_board_lane)
{
    static char large[WEFT_I_LANE_NOTE_BYTES + 1];
    char mine[3] = "me", all[HAND_SIZE][3];
    hand_open();
    weft_i_board_row *row = &hand.row[HAND_ME];
    hand.group->rest.lane_making.under_way = true;
    nobody_comes();
    CHECK(row->lane_gave_up && !row->lane_arrival && !row->gave_up && !row->arrival);
    CHECK_INT(row->stuck.quit[WEFT_I_ON_BOARD], 0);
    for (uint32_t epoch = 1; epoch <= 3; epoch++) {
        for (int rank = 0; rank < HAND_SIZE; rank++) {
            snprintf((char *)hand.row[rank].lane_note[epoch & 1], 3, "%u%d", epoch, rank);
            if (rank != HAND_ME)
                hand.row[rank].lane_arrival = hand_arrival("op", 3, epoch, false);
        }
        CHECK_OK(weft_i_group_exchange(hand.group, "op", mine, 3, all, 5000));
        CHECK_INT(weft_i_arrival_epoch(row->lane_arrival), epoch);
        CHECK(!row->arrival && !row->op[0] && !row->note[epoch & 1][0]);
        for (int rank = 0; rank < HAND_SIZE; rank++) {
            char want[3];
            snprintf(want, sizeof want, "%u%d", epoch, rank);
            CHECK(!strcmp(all[rank], rank == HAND_ME ? "me" : want));
        }
    }
    CHECK_STATUS(weft_i_group_exchange(hand.group, "op", large, sizeof large, NULL, 5000),
                 WEFT_ERR_INTERNAL);
    for (int rank = 0; rank < HAND_SIZE; rank++)
        if (rank != HAND_ME)
            hand.row[rank].lane_arrival = hand_arrival("op", sizeof large - 1, 4, false);
    CHECK_OK(weft_i_group_exchange(hand.group, "op", large, sizeof large - 1, NULL, 5000));
    hand.group->rest.lane_making.under_way = false;
    hand_close();
}

/* A barrier, which all have come to, one of a group that has ended, and one with a bad limit. */
TEST(test_board_barriers)
{
    weft_i_record_entry last;
    hand_open();
    const weft_i_record *record = weft_i_group_record(hand.group);
    for (int rank = 0; rank < HAND_SIZE; rank++)
        if (rank != HAND_ME)
            hand.row[rank].arrival = (uint64_t)1 << 32 | 0x62617272;
    CHECK_OK(weft_group_barrier(hand.group, 5000));
    CHECK(!strcmp(hand.row[HAND_ME].op, "group_barrier"));
    CHECK_INT(hand.row[HAND_ME].arrival, (uint64_t)1 << 32 | 0x62617272);
    CHECK(weft_i_record_last(record, &last) && !strcmp(last.name, "group_barrier"));
    CHECK(last.finished && last.status == WEFT_OK && last.turn == 1 && hand.group->sequence == 1);
    ended(2, WEFT_OK);
    hand_said(weft_group_barrier(hand.group, 5000), WEFT_ERR_REVOKED,
              "rank 1 of 4 in group \"g\", group_barrier: rank 2 revoked the group");
    CHECK_INT(hand.row[HAND_ME].arrival, (uint64_t)1 << 32 | 0x62617272); /* it did not come */
    CHECK(weft_i_record_last(record, &last) && last.finished && last.turn == 2);
    CHECK(last.status == WEFT_ERR_REVOKED && last.number == 2 && hand.group->sequence == 2);
    hand_said(weft_group_barrier(hand.group, -7), WEFT_ERR_INVALID_ARG,
              "weft_group_barrier: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, "
              "not -7");
    CHECK(weft_i_record_last(record, &last) && last.number == 2 && hand.group->sequence == 2);
    hand_said(weft_group_barrier(NULL, 5000), WEFT_ERR_INVALID_ARG, "the group is NULL");
    hand_close();
}

/* A monitored barrier has no number in its group: nobody is told by that who has entered it. */
TEST(test_board_monitored)
{
    weft_i_record_entry last;
    hand_open();
    CHECK_INT(weft_monitored_barrier(hand.group, 1, true), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), "rank 4");
    CHECK(weft_i_record_last(weft_i_group_record(hand.group), &last));
    CHECK(!strcmp(last.name, "monitor_barrier") && last.finished && !last.turn);
    CHECK_INT(last.status, WEFT_ERR_TIMEOUT);
    weft_clear_error();
    hand_close();
}

/* In a later meeting of an operation, another member has begun the operation anew. */
TEST(test_board_begun_anew)
{
    hand_open();
    for (int rank = 0; rank < HAND_SIZE; rank++)
        hand.row[rank].arrival = hand_arrival("op", 0, 1, false);
    hand.row[2].arrival = hand_arrival("op", 0, 2, false);
    hand_said(exchange(true), WEFT_ERR_TIMEOUT,
              ME_IN ": given up by rank 0 (alive), whose deadline passed");
    hand_close();
}

/* If that is because a third one died, the death is told. */
TEST(test_board_begun_anew_after_a_death)
{
    hand_open();
    for (int rank = 0; rank < HAND_SIZE; rank++)
        hand.row[rank].arrival = hand_arrival("op", 0, rank == 2 ? 2 : 1, false);
    hand_kill(hand_members[3]);
    CHECK_INT(exchange(true), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 3 (died");
    weft_clear_error();
    hand_close();
}

/* Who waits for the board of a new group helps with the lane of the parent, until its time is up. */
TEST(test_board_new_group_helps_in_vain)
{
    static const int ranks[] = {0, 1};
    hand_open();
    snprintf(hand.world->peers[0].fdpass, sizeof hand.world->peers[0].fdpass, "%s",
             weft_i_fdpass_name(hand.world->fdpass));
    hand.above->timeout_ms = SHORT_MS;
    hand.row_above[0].lane_need = 1;
    CHECK(!weft_group_new(hand.above, ranks, 2, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), "waited");
    CHECK(!hand.above->rest.lane_making.on_behalf && !hand.above->rest.lane_making.under_way);
    CHECK_INT(hand.row_above[HAND_ME].lane_arrival, 0);
    hand_close();
}

static void stay(weft_i_object *object)
{
    FAIL("an object at %p, which others hold, is gone", (void *)object);
}

/* What floors above have put into a group goes with it: each once, and nothing beside. */
TEST(test_board_parts_go)
{
    static weft_i_object parts[WEFT_I_GROUP_FLOORS], lane;
    hand_open();
    for (int floor = 0; floor < WEFT_I_GROUP_FLOORS; floor++) {
        parts[floor] = (weft_i_object){.references = 2, .destroy = stay};
        hand.group->floor[floor] = &parts[floor];
    }
    lane = (weft_i_object){.references = 2, .destroy = stay};
    hand.group->lane = &lane;
    hand_close(); /* releases it */
    for (int floor = 0; floor < WEFT_I_GROUP_FLOORS; floor++)
        CHECK_INT(parts[floor].references, 1);
    CHECK_INT(lane.references, 1);
}

/* A wait that takes long is told, once, with those who are missing. */
TEST(test_board_warns)
{
    static const char want[] =
        ME_IN ": has waited 0.005 s for rank 4 (alive), rank 0 (alive), rank 3 (alive)";
    char said[2000] = "";
    int output = memfd_create("output", MFD_CLOEXEC), before = dup(2), level = weft_i_log_level;
    hand_open();
    hand.world->warn_ns = 5000000;
    weft_i_log_level = 1 + WEFT_LOG_WARN;
    dup2(output, 2);
    weft_status status = weft_i_group_exchange(hand.group, "op", NULL, 0, NULL, 60);
    dup2(before, 2);
    weft_i_log_level = level;
    CHECK(status == WEFT_ERR_TIMEOUT && pread(output, said, sizeof said - 1, 0) > 0);
    close(before);
    close(output);
    const char *told = strstr(said, want);
    CHECK(told && !strstr(told + 1, ME_IN ": has waited"));
    hand_close();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
