/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/quarrel.c */
/*
 * When two members quarrel (fabric/group/quarrel.c), and above all when they do not: every condition by
 * itself, in a group whose other members are words that the test writes, on a clock that the test
 * moves.
 */
#include "group_by_hand.h"

#include "symm/backend.h"

static weft_i_os table;
static int64_t now = 5000000000;

static int64_t test_clock(void)
{
    return now;
}

static void open_all(void)
{
    table = weft_i_os_linux;
    table.clock_ns = test_clock;
    hand_open();
    weft_i_os_now = &table;
}

static void close_all(void)
{
    weft_i_os_now = &weft_i_os_linux;
    hand_close();
}

static bool kept_answer;

static bool is_kept(const void *who)
{
    CHECK(who == &kept_answer);
    return kept_answer;
}

static void tell(const void *who, char *out, size_t bytes)
{
    CHECK(who == &kept_answer);
    snprintf(out, bytes, "told");
}

static const weft_i_stay on_board = {.place = WEFT_I_ON_BOARD}, on_lane = {.place = WEFT_I_ON_LANE},
                         lane_told = {WEFT_I_ON_LANE, is_kept, tell, &kept_answer};

static weft_i_point point_of(weft_i_board_row *row, int size)
{
    return (weft_i_point){.me = HAND_ME,
                          .size = size,
                          .words = (char *)&row[0].arrival,
                          .passes = (char *)&row[0].pass,
                          .bells = (char *)&row[0].bell,
                          .gave_up = (char *)&row[0].gave_up,
                          .stride = sizeof *row};
}

static weft_i_vigil vigil_of(const weft_i_point *point, const weft_i_stay *stay, uint32_t turn)
{
    return (weft_i_vigil){.label = &hand.call, .point = point, .stay = stay, .turn = turn};
}

static void stick(weft_i_stuck *stuck, uint64_t place, uint32_t turn, const char *call)
{
    char text[WEFT_I_LABEL_BYTES] = "";
    snprintf(text, sizeof text, "%s", call);
    for (size_t i = 0; i < sizeof text / 8; i++) {
        uint64_t word;
        memcpy(&word, text + 8 * i, 8);
        stuck->call[i] = word;
    }
    stuck->where = place << 32 | turn;
}

static bool quarrels(const weft_group *group)
{
    bool is = group->board->quarrel == 2;
    CHECK(is || !group->board->quarrel);
    CHECK(is == (group->board->revoked != 0));
    return is;
}

static void make_up(weft_group *group)
{
    group->board->quarrel = 0;
    group->board->revoked = 0;
    group->board->failure = 0;
}

/* ---- saying where one is stuck ---- */

TEST(test_quarrel_settles_in)
{
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &on_board, 9);
    weft_i_stuck *mine = &hand.row[HAND_ME].stuck;
    mine->quit[0] = 5; /* lies behind the words */
    mine->quit[1] = 6;
    weft_i_quarrel_settle_in(&vigil);
    CHECK(mine->quit[0] == 5 && mine->quit[1] == 6);
    CHECK(mine->where == ((uint64_t)WEFT_I_ON_BOARD << 32 | 9));
    CHECK(!strcmp((const char *)(const void *)mine->call, "op"));
    mine->call[0] = 0; /* said once: it is not written again */
    weft_i_quarrel_settle_in(&vigil);
    CHECK(mine->where && !mine->call[0]);
    hand.group->calls.posted = 1; /* that may still come to the lane: it is not stuck after all */
    weft_i_quarrel_settle_in(&vigil);
    CHECK_INT(mine->where, 0);
    weft_i_quarrel_settle_in(&vigil);
    CHECK_INT(mine->where, 0);
    vigil.stay = &on_lane; /* there posted work is what it waits in */
    weft_i_quarrel_settle_in(&vigil);
    CHECK(mine->where == ((uint64_t)WEFT_I_ON_LANE << 32 | 9));
    weft_i_quarrel_move_on(hand.group);
    CHECK_INT(mine->where, 0);
    vigil.stay = &lane_told;
    kept_answer = false; /* a helper thread waits, not the rank's own */
    weft_i_quarrel_settle_in(&vigil);
    CHECK_INT(mine->where, 0);
    kept_answer = true;
    weft_i_quarrel_settle_in(&vigil);
    CHECK(mine->where && !strcmp((const char *)(const void *)mine->call, "told"));
    for (int rank = 0; rank < HAND_SIZE; rank++)
        CHECK(rank == HAND_ME || !hand.row[rank].stuck.where);
    close_all();
}

TEST(test_quarrel_quits)
{
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &on_lane, 9);
    weft_i_quarrel_quit(&vigil);
    weft_i_stuck *mine = &hand.row[HAND_ME].stuck;
    CHECK(mine->quit[WEFT_I_ON_LANE] == 9 && !mine->quit[WEFT_I_ON_BOARD] && !mine->quit[0]);
    vigil.stay = NULL;
    vigil.turn = 10;
    weft_i_quarrel_quit(&vigil); /* a place of its own */
    CHECK(mine->quit[WEFT_I_ON_LANE] == 9 && !mine->quit[WEFT_I_ON_BOARD] && !mine->quit[0]);
    close_all();
}

/* ---- who knows of it ---- */

TEST(test_quarrel_is_heard)
{
    open_all();
    CHECK(!weft_i_quarrel_is_heard(hand.group) && !weft_i_quarrel_is_news(hand.group));
    weft_i_quarrel_hear(hand.group); /* of a mismatch that was told otherwise */
    CHECK(!weft_i_quarrel_is_heard(hand.group) && !weft_i_quarrel_is_news(hand.group));
    hand.row[HAND_ME].stuck.heard = 0;
    hand.group->board->quarrel = 2; /* by another member, which is about to end the board */
    CHECK(!weft_i_quarrel_is_heard(hand.group) && !weft_i_quarrel_is_news(hand.group));
    hand.group->board->revoked = 3;
    hand.group->board->failure = WEFT_ERR_MISMATCH;
    CHECK(!weft_i_quarrel_is_heard(hand.group) && weft_i_quarrel_is_news(hand.group));
    CHECK_INT(weft_i_group_tell_revoked(&hand.call), WEFT_ERR_MISMATCH);
    CHECK(weft_i_quarrel_is_heard(hand.group) && !weft_i_quarrel_is_news(hand.group));
    for (int rank = 0; rank < HAND_SIZE; rank++)
        CHECK_INT(hand.row[rank].stuck.heard, rank == HAND_ME);
    weft_i_quarrel_tell(hand.above, "mine", 2, "theirs"); /* who tells knows */
    CHECK(weft_i_quarrel_is_heard(hand.above) && !weft_i_quarrel_is_news(hand.above));
    hand.row_above[HAND_ME].stuck.heard = 0;
    hand_make();
    CHECK_INT(weft_i_group_lost(&(weft_i_label){hand.group, "op", -1}, 0), WEFT_ERR_MISMATCH);
    make_up(hand.group);
    CHECK_INT(weft_i_group_lost(&(weft_i_label){hand.group, "op", -1}, 0), WEFT_ERR_MISMATCH);
    CHECK(weft_i_quarrel_is_heard(hand.above)); /* and who makes a group from it hears there */
    weft_i_board *board = hand.group->board;
    hand.group->board = NULL; /* of several hosts */
    CHECK(!weft_i_quarrel_is_news(hand.group));
    hand.group->board = board;
    close_all();
}

/* ---- looking at another's ---- */

TEST(test_quarrel_between_lane_and_board)
{
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &on_lane, 5);
    weft_i_stuck *theirs = &hand.row[2].stuck;
    hand.row[HAND_ME].arrival = (uint64_t)3 << 32; /* meetings on the board that we have been at */
    weft_i_quarrel_look(&vigil, 2);
    CHECK(!quarrels(hand.group)); /* it is not stuck */
    stick(theirs, WEFT_I_ON_LANE, 4, "barrier");
    weft_i_quarrel_look(&vigil, 2);
    CHECK(!quarrels(hand.group)); /* stuck in the same place */
    stick(theirs, WEFT_I_ON_BOARD, 3, "barrier");
    weft_i_quarrel_look(&vigil, 2);
    CHECK(!quarrels(hand.group)); /* at a meeting that we have been at */
    stick(theirs, WEFT_I_ON_BOARD, 4, "barrier");
    hand.row[2].arrival = (uint64_t)5 << 32;
    weft_i_quarrel_look(&vigil, 2);
    CHECK(!quarrels(hand.group)); /* and it has come to ours */
    hand.row[2].arrival = (uint64_t)4 << 32;
    vigil.stay = &lane_told;
    kept_answer = false;
    weft_i_quarrel_look(&vigil, 2);
    CHECK(!quarrels(hand.group)); /* our own thread is free to go there */
    kept_answer = true;
    weft_i_quarrel_look(&vigil, 2);
    CHECK(quarrels(hand.group));
    CHECK(!strcmp(weft_i_quarrel_told(hand.group), "rank 1 calls told, but rank 2 calls barrier"));
    CHECK_INT(hand.group->board->failure, WEFT_ERR_MISMATCH);
    close_all();
}

/* The other way round; a call as long as its place is cut, and no word behind it is read. */
TEST(test_quarrel_between_board_and_lane)
{
    char call[WEFT_I_LABEL_BYTES], want[2 * WEFT_I_LABEL_BYTES];
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &on_board, 5);
    hand.group->calls.entries = 7;
    hand.row[3].stuck.where = (uint64_t)WEFT_I_ON_LANE << 32 | 7;
    weft_i_quarrel_look(&vigil, 3);
    CHECK(!quarrels(hand.group));
    memset((void *)hand.row[3].stuck.call, 'c', sizeof hand.row[3].stuck.call);
    hand.row[3].stuck.where = (uint64_t)WEFT_I_ON_LANE << 32 | 8;
    hand.group->calls.posted = 1;
    weft_i_quarrel_look(&vigil, 3);
    CHECK(!quarrels(hand.group)); /* what is posted may still come there */
    hand.group->calls.posted = 0;
    weft_i_quarrel_look(&vigil, 3);
    CHECK(quarrels(hand.group));
    memset(call, 'c', WEFT_I_LABEL_BYTES - 1);
    call[WEFT_I_LABEL_BYTES - 1] = 0;
    snprintf(want, sizeof want, "rank 1 calls op, but rank 3 calls %s", call);
    CHECK(!strcmp(weft_i_quarrel_told(hand.group), want));
    close_all();
}

static bool moves_on(const void *who)
{
    CHECK(who == &hand);
    hand.row[2].stuck.where++;
    return true;
}

/* It moves on while its call is read: the words may be of two calls, so nothing is concluded. */
TEST(test_quarrel_while_it_moves_on)
{
    static const weft_i_stay watched = {WEFT_I_ON_LANE, moves_on, NULL, &hand};
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &watched, 5);
    stick(&hand.row[2].stuck, WEFT_I_ON_BOARD, 4, "barrier");
    uint64_t before = hand.row[2].stuck.where;
    weft_i_quarrel_look(&vigil, 2);
    CHECK_INT(hand.row[2].stuck.where, before + 1);
    CHECK(!quarrels(hand.group));
    vigil.stay = &on_lane;
    weft_i_quarrel_look(&vigil, 2);
    CHECK(quarrels(hand.group));
    close_all();
}

/* Turns wrap around. */
TEST(test_quarrel_after_many_turns)
{
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &on_board, 5);
    hand.group->calls.entries = UINT32_MAX;
    stick(&hand.row[3].stuck, WEFT_I_ON_LANE, UINT32_MAX - 1, "x");
    weft_i_quarrel_look(&vigil, 3);
    CHECK(!quarrels(hand.group));
    stick(&hand.row[3].stuck, WEFT_I_ON_LANE, 0, "x");
    weft_i_quarrel_look(&vigil, 3);
    CHECK(quarrels(hand.group));
    close_all();
}

/* ---- while a group is made: with who waits in the group above ---- */

TEST(test_quarrel_above)
{
    open_all();
    weft_i_stuck *theirs = &hand.row_above[3].stuck; /* world rank 3, which is 3 here as well */
    weft_i_stuck *fourth = &hand.row_above[4].stuck; /* world rank 4, which is 0 here */
    hand.row_above[HAND_ME].arrival = (uint64_t)6 << 32;
    stick(fourth, WEFT_I_ON_BOARD, 7, "barrier");
    weft_i_quarrel_look_above(hand.group, NULL, 0);
    CHECK(!quarrels(hand.above)); /* nothing is being made */
    hand_make();
    CHECK(!weft_i_quarrel_told_above(hand.group));
    weft_i_quarrel_look_above(hand.group, NULL, 3);
    CHECK(!quarrels(hand.above)); /* that one is not stuck */
    hand.birth.old_quarrel = true;
    weft_i_quarrel_look_above(hand.group, NULL, 0);
    hand.birth.old_quarrel = false;
    CHECK(!quarrels(hand.above));
    hand.above->calls.posted = 1;
    weft_i_quarrel_look_above(hand.group, NULL, 0);
    hand.above->calls.posted = 0;
    CHECK(!quarrels(hand.above));
    hand_kill(2); /* of the group above: waits there end by themselves */
    weft_i_quarrel_look_above(hand.group, NULL, 0);
    hand_revive(2);
    CHECK(!quarrels(hand.above));
    weft_i_job_refuse(hand_record(3), hand.birth.list, WEFT_ERR_IO);
    weft_i_quarrel_look_above(hand.group, NULL, 0);
    weft_i_job_allow(hand_record(3), hand.birth.list);
    CHECK(!quarrels(hand.above)); /* whoever has heard that may go on */
    weft_i_quarrel_look_above(hand.group, NULL, 0);
    CHECK(quarrels(hand.above) && !quarrels(hand.group));
    CHECK(!strcmp(weft_i_quarrel_told_above(hand.group),
                  "rank 1 calls group_new, but rank 4 calls barrier"));
    make_up(hand.above);
    hand.above->calls.entries = 2;
    stick(theirs, WEFT_I_ON_LANE, 3, "all_reduce");
    weft_i_quarrel_look_above(hand.group, NULL, 3);
    CHECK(!strcmp(weft_i_quarrel_told_above(hand.group),
                  "rank 1 calls group_new, but rank 3 calls all_reduce"));
    close_all();
}

/* Who waits there for a meeting that we have come to does not wait for us. */
TEST(test_quarrel_above_is_not_for_us)
{
    open_all();
    hand_make();
    weft_i_stuck *theirs = &hand.row_above[3].stuck;
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &on_board, 1);
    hand.row_above[HAND_ME].arrival = (uint64_t)6 << 32;
    stick(theirs, WEFT_I_ON_BOARD, 6, "barrier");
    weft_i_quarrel_look_above(hand.group, &vigil, 3);
    CHECK(!quarrels(hand.above));
    stick(theirs, WEFT_I_ON_BOARD, 7, "barrier");
    hand.row_above[HAND_ME].stuck.quit[WEFT_I_ON_BOARD] = 7; /* came, and gave it up */
    weft_i_quarrel_look_above(hand.group, &vigil, 3);
    CHECK(!quarrels(hand.above));
    hand.row_above[HAND_ME].stuck.quit[WEFT_I_ON_BOARD] = 6;
    hand.row_above[HAND_ME].stuck.quit[WEFT_I_ON_LANE] = 9; /* of another place */
    hand.row[3].arrival = (uint64_t)1 << 32;                /* and it has come to the new group */
    weft_i_quarrel_look_above(hand.group, &vigil, 3);
    CHECK(!quarrels(hand.above));
    hand.row[3].arrival = 0;
    stick(theirs, 3, 7, "nowhere"); /* no place there is */
    weft_i_quarrel_look_above(hand.group, &vigil, 3);
    stick(theirs, 0, 7, "nowhere");
    weft_i_quarrel_look_above(hand.group, &vigil, 3);
    CHECK(!quarrels(hand.above));
    stick(theirs, WEFT_I_ON_BOARD, 7, "barrier");
    weft_i_quarrel_look_above(hand.group, &vigil, 3);
    CHECK(quarrels(hand.above));
    close_all();
}

/* ---- lanes that another member wants made ---- */

TEST(test_quarrel_wants_lane_above)
{
    open_all();
    hand_make();
    CHECK(!weft_i_quarrel_wants_lane_above(hand.group));
    for (int there = 0; there < HAND_WORLD; there++) { /* 2 is not in the new group */
        hand.row_above[there].lane_need = weft_i_group_lane_need(NULL);
        CHECK(weft_i_quarrel_wants_lane_above(hand.group) == (there != HAND_ME && there != 2));
        hand.row_above[there].lane_need = weft_i_group_lane_need(hand.group); /* helps, as we do */
        CHECK(!weft_i_quarrel_wants_lane_above(hand.group));
        hand.row_above[there].lane_need = 0;
    }
    /* One that helps on the way to another group needs us as well. */
    hand.row_above[0].lane_need = weft_i_group_lane_need(hand.group);
    hand.row_above[4].lane_need = weft_i_group_lane_need(hand.group) + 4;
    CHECK(weft_i_quarrel_wants_lane_above(hand.group));
    hand_leave(2);
    CHECK(!weft_i_quarrel_wants_lane_above(hand.group));
    hand_revive(2);
    hand.above->lane = hand.above; /* there is one */
    CHECK(!weft_i_quarrel_wants_lane_above(hand.group));
    hand.above->lane = NULL;
    hand.birth.under_way = false;
    CHECK(!weft_i_quarrel_wants_lane_above(hand.group));
    close_all();
}

/* What is told of a member that makes the lane: never 0, and not what a call of the group tells. */
TEST(test_quarrel_lane_need)
{
    open_all();
    CHECK_INT(weft_i_group_lane_need(NULL), 1);
    for (uint64_t word = 0; word < 4; word++) {
        hand.birth.list.word[0] = word;
        CHECK_INT(weft_i_group_lane_need(hand.group), word | 2);
    }
    weft_i_group_show_lane_need(hand.above, 7);
    CHECK_INT(hand.row_above[HAND_ME].lane_need, 7);
    weft_i_group_show_lane_need(hand.above, 0);
    CHECK_INT(hand.row_above[HAND_ME].lane_need, 0);
    close_all();
}

/* Who only helps goes when the last member that needs the lane has given up, wherever it waits. */
TEST(test_quarrel_helps_in_vain)
{
    open_all();
    hand_make();
    weft_i_point point = point_of(hand.row_above, HAND_WORLD);
    weft_i_label label = {hand.above, "op", -1};
    weft_i_vigil vigil = {.label = &label, .point = &point, .turn = 1};
    CHECK(!weft_i_quarrel_helps_in_vain(hand.above)); /* it makes the lane for itself */
    CHECK_INT(weft_i_vigil_look(&vigil, 4), WEFT_OK);
    hand.above->rest.lane_making.on_behalf = hand.group;
    hand.row_above[3].lane_need = 1;
    CHECK(!weft_i_quarrel_helps_in_vain(hand.above));
    CHECK_INT(weft_i_vigil_look(&vigil, 4), WEFT_OK);
    hand.row_above[3].lane_need = 0;
    hand.row_above[0].lane_need = weft_i_group_lane_need(hand.group);
    CHECK(weft_i_quarrel_helps_in_vain(hand.above));
    CHECK_INT(weft_i_vigil_look(&vigil, 4), WEFT_ERR_CANCELLED);
    CHECK(!vigil.wanted);
    weft_i_circle circle = {.size = HAND_WORLD, .group = hand.above};
    hand_said(weft_i_circle_lost(&circle), WEFT_ERR_TIMEOUT,
              "rendezvous: nobody needs the lane any more");
    hand.row_above[3].lane_need = 1;
    CHECK_OK(weft_i_circle_lost(&circle));
    hand.row_above[3].lane_need = 0;
    hand_kill(4); /* a death is the better reason */
    CHECK_INT(weft_i_vigil_look(&vigil, 4), WEFT_ERR_PEER_DEAD);
    hand.above->rest.lane_making.on_behalf = NULL;
    close_all();
}

/* Who waits for us meanwhile is told whom we fetch from; after a time limit, too. */
TEST(test_quarrel_circle_tells)
{
    char text[700], who[512];
    open_all();
    weft_i_circle circle = {.size = HAND_SIZE, .group = hand.group, .deadline = 77};
    weft_i_fdpass_order order = weft_i_circle_order(&circle, 2, hand.group->key, 4096);
    CHECK_INT(hand.row[HAND_ME].fetches, 3);
    CHECK(order.own == hand.world->fdpass && weft_i_key_equal(order.key, hand.group->key));
    CHECK(order.peer == hand.world->peers[hand_members[2]].fdpass && order.bytes == 4096);
    CHECK(order.deadline == 77 && order.lost && order.lost(order.arg) == WEFT_OK);
    CHECK_INT(weft_i_circle_fetched(&circle, 2, WEFT_ERR_NO_MEMORY), WEFT_ERR_NO_MEMORY);
    weft_i_world_describe(hand.world, hand_members[2], who, sizeof who);
    snprintf(text, sizeof text, "rendezvous in group \"g\": no answer from %s", who);
    hand_said(weft_i_circle_fetched(&circle, 2, WEFT_ERR_TIMEOUT), WEFT_ERR_TIMEOUT, text);
    CHECK_INT(hand.row[HAND_ME].fetches, 3);
    CHECK_OK(weft_i_circle_fetched(&circle, 2, WEFT_OK));
    CHECK_INT(hand.row[HAND_ME].fetches, 0);
    hand.world->fake = true; /* where nobody looks */
    weft_i_circle_order(&circle, 2, hand.group->key, 4096);
    CHECK_INT(hand.row[HAND_ME].fetches, 0);
    hand.world->fake = false;
    close_all();
}

/* An exchange of a circle fails as the group's does. */
TEST(test_quarrel_circle_exchange)
{
    int mine = 5, all[HAND_SIZE];
    open_all();
    weft_i_os_now = &weft_i_os_linux; /* lives are looked at as time goes by */
    weft_i_circle circle = {.size = HAND_SIZE, .group = hand.group, .limit_ms = 20000};
    hand_kill(hand_members[3]);
    CHECK_INT(weft_i_circle_exchange(&circle, &mine, sizeof mine, all), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "opening a carrier: rank 3 (died");
    weft_clear_error();
    close_all();
}

static const int32_t *outcomes;

static weft_status give_outcomes(const weft_i_circle *circle, const void *mine, size_t bytes,
                                 void *all)
{
    CHECK_INT(bytes, sizeof *outcomes);
    memcpy(all, outcomes, (size_t)circle->size * bytes);
    memcpy((char *)all + (size_t)circle->rank * bytes, mine, bytes);
    return outcomes[circle->rank] ? weft_i_fail((weft_status)outcomes[circle->rank], "lost")
                                  : WEFT_OK;
}

/* All have it, or nobody: the first that has not is named; who has not itself keeps its reason. */
TEST(test_quarrel_circle_agrees)
{
    static const int32_t fine[HAND_SIZE], first[HAND_SIZE] = {WEFT_ERR_IO},
                                          last[HAND_SIZE] = {[3] = WEFT_ERR_NO_MEMORY},
                                          lost[HAND_SIZE] = {[HAND_ME] = WEFT_ERR_PEER_DEAD};
    int32_t room[HAND_SIZE];
    open_all();
    weft_i_circle circle = {
        .name = "g", .size = HAND_SIZE, .rank = HAND_ME, .exchange = give_outcomes};
    outcomes = fine;
    CHECK_OK(weft_i_circle_agree(&circle, WEFT_OK, "cannot", room));
    CHECK(weft_last_status() == WEFT_OK && !weft_last_error()[0]);
    outcomes = first;
    hand_said(weft_i_circle_agree(&circle, WEFT_OK, "cannot", room), WEFT_ERR_IO,
              "group \"g\": rank 0 cannot (the system refused a read, write or open)");
    outcomes = last;
    hand_said(weft_i_circle_agree(&circle, WEFT_OK, "cannot", room), WEFT_ERR_NO_MEMORY,
              "group \"g\": rank 3 cannot (out of memory)");
    CHECK_INT(weft_i_fail(WEFT_ERR_LIMIT, "mine"), WEFT_ERR_LIMIT);
    hand_said(weft_i_circle_agree(&circle, WEFT_ERR_LIMIT, "cannot", room), WEFT_ERR_LIMIT, "mine");
    outcomes = lost;
    hand_said(weft_i_circle_agree(&circle, WEFT_OK, "cannot", room), WEFT_ERR_PEER_DEAD, "lost");
    close_all();
}

/* A circle is lost with any of its members. */
TEST(test_quarrel_circle_lost)
{
    open_all();
    weft_i_circle circle = {.size = HAND_SIZE, .group = hand.group};
    for (int rank = 0; rank < HAND_SIZE; rank++) {
        if (rank == HAND_ME)
            continue;
        CHECK_OK(weft_i_circle_lost(&circle));
        hand_kill(hand_members[rank]);
        CHECK_INT(weft_i_circle_lost(&circle), WEFT_ERR_PEER_DEAD);
        CHECK_CONTAINS(weft_last_error(), ", rendezvous: rank ");
        CHECK(!strstr(weft_last_error(), "channel")); /* it has none */
        hand_revive(hand_members[rank]);
        weft_clear_error();
    }
    close_all();
}

/* ---- a wait's looks, one after the other ---- */

TEST(test_quarrel_vigil_looks)
{
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &on_board, 1);
    stick(&hand.row[2].stuck, WEFT_I_ON_LANE, 1, "all_reduce");
    CHECK_INT(weft_i_vigil_look(&vigil, 2), WEFT_OK);
    CHECK_INT(vigil.begin, now);
    int64_t begin = now;
    now += 999999; /* patience of a millisecond */
    CHECK_INT(weft_i_vigil_look(&vigil, 2), WEFT_OK);
    CHECK(vigil.begin == begin && !hand.row[HAND_ME].stuck.where && !quarrels(hand.group));
    now += 1;
    CHECK_INT(weft_i_vigil_look(&vigil, 2), WEFT_ERR_REVOKED);
    CHECK(hand.row[HAND_ME].stuck.where && quarrels(hand.group) && !vigil.wanted);
    make_up(hand.group);
    hand_make(); /* it looks above as well */
    stick(&hand.row[2].stuck, 0, 0, "");
    stick(&hand.row_above[0].stuck, WEFT_I_ON_BOARD, 1, "barrier");
    CHECK_INT(weft_i_vigil_look(&vigil, 2), WEFT_ERR_REVOKED);
    CHECK(quarrels(hand.above) && !quarrels(hand.group));
    close_all();
}

TEST(test_quarrel_vigil_is_wanted)
{
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    weft_i_vigil vigil = vigil_of(&point, &on_board, 1);
    hand.row[2].lane_arrival = (uint64_t)1 << 32;
    CHECK_INT(weft_i_vigil_look(&vigil, 2), WEFT_ERR_CANCELLED);
    CHECK(vigil.wanted);
    vigil = vigil_of(&point, &on_lane, 1); /* on the lane the lane is there */
    CHECK_INT(weft_i_vigil_look(&vigil, 2), WEFT_OK);
    vigil = vigil_of(&point, NULL, 1); /* in a place of its own nobody quarrels */
    now += 5000000;
    CHECK_INT(weft_i_vigil_look(&vigil, 2), WEFT_OK);
    CHECK(!vigil.wanted && !hand.row[HAND_ME].stuck.where);
    hand_kill(0);
    vigil = vigil_of(&point, &on_board, 1);
    CHECK_INT(weft_i_vigil_look(&vigil, 2), WEFT_ERR_PEER_DEAD); /* before all else */
    CHECK(!vigil.wanted);
    close_all();
}

TEST(test_quarrel_vigil_saw_give_up)
{
    open_all();
    weft_i_point point = point_of(hand.row, HAND_SIZE);
    point.tag = 0x10005;
    weft_i_vigil vigil = vigil_of(&point, &on_board, 1);
    hand.row[2].gave_up = weft_i_stamp(now, 5);
    CHECK(!weft_i_vigil_saw_give_up(&vigil, 2)); /* before the first look nothing is known */
    vigil.begin = now;
    CHECK(weft_i_vigil_saw_give_up(&vigil, 2));
    CHECK(!weft_i_vigil_saw_give_up(&vigil, 3));
    hand.row[2].gave_up = weft_i_stamp(now, 6); /* at another of the points that share the word */
    CHECK(!weft_i_vigil_saw_give_up(&vigil, 2));
    hand.row[2].gave_up = weft_i_stamp(now - 1024, 5);
    CHECK(!weft_i_vigil_saw_give_up(&vigil, 2));
    hand.row[2].gave_up = weft_i_stamp(now + 1024, 5);
    CHECK(weft_i_vigil_saw_give_up(&vigil, 2));
    point.gave_up = NULL;
    CHECK(!weft_i_vigil_saw_give_up(&vigil, 2));
    close_all();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
