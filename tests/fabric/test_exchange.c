/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/exchange.c */
/*
 * How a meeting on a board ends, one cause at a time, in a group whose other members are words that
 * the test writes: which cause counts among several, who is named, and the whole message.
 */
#include "group_by_hand.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define ME_IN "rank 1 of 4 in group \"g\", op"

TEST(test_exchange_label)
{
    char text[160];
    hand_open();
    weft_i_label_text(&hand.call, text, sizeof text);
    CHECK(!strcmp(text, ME_IN));
    weft_i_label_text(&(weft_i_label){hand.group, "barrier", 0}, text, sizeof text);
    CHECK(!strcmp(text, "rank 1 of 4 in group \"g\", barrier on channel 0"));
    hand_close();
}

/* ---- a board that has ended ---- */

static void ended(int by, weft_status why)
{
    hand.group->board->revoked = 1 + (uint32_t)by;
    hand.group->board->failure = why;
}

static void tells(weft_status wanted, const char *text)
{
    hand_said(weft_i_group_tell_revoked(&hand.call), wanted, text);
}

TEST(test_exchange_revoked)
{
    char text[200];
    hand_open();
    CHECK_OK(weft_i_group_check_revoked(&hand.call));
    ended(2, WEFT_OK);
    tells(WEFT_ERR_REVOKED, ME_IN ": rank 2 revoked the group");
    ended(0, WEFT_ERR_NO_MEMORY);
    snprintf(text, sizeof text, ME_IN ": rank 0 ended the group: %s",
             weft_strerror(WEFT_ERR_NO_MEMORY));
    tells(WEFT_ERR_NO_MEMORY, text);
    ended(2, WEFT_ERR_MISMATCH); /* whose calls nobody has told */
    snprintf(text, sizeof text, ME_IN ": rank 2 ended the group: %s",
             weft_strerror(WEFT_ERR_MISMATCH));
    tells(WEFT_ERR_MISMATCH, text);
    ended(2, WEFT_ERR_PEER_LEFT); /* nobody has, that can be seen */
    snprintf(text, sizeof text, ME_IN ": rank 2 ended the group: %s",
             weft_strerror(WEFT_ERR_PEER_LEFT));
    tells(WEFT_ERR_PEER_LEFT, text);
    hand.row[3].left = 1;
    tells(WEFT_ERR_PEER_LEFT, ME_IN ": rank 3 of the world has destroyed the group");
    ended(2, WEFT_ERR_PEER_DEAD);
    hand_kill(0);
    tells(WEFT_ERR_PEER_DEAD, ME_IN ": rank 0 (died, or exited without weft_finish) will not come");
    hand_close();
}

TEST(test_exchange_revoked_elder)
{
    hand_open();
    weft_i_elder elder = {hand.above->board, hand.above->rest.board_segment, hand.above->key,
                          "old"};
    CHECK_OK(weft_i_lineage_new(&(weft_i_lineage){0}, &elder, &hand.group->lineage));
    CHECK_OK(weft_i_group_check_revoked(&hand.call));
    hand.above->board->recalled = 1 + 3;
    ended(2, WEFT_ERR_NO_MEMORY);
    tells(WEFT_ERR_REVOKED,
          ME_IN ": rank 3 of group \"old\", from which this one was made, revoked that");
    CHECK_INT(weft_i_group_fate(hand.group, 0), WEFT_ERR_REVOKED);
    hand_close();
}

TEST(test_exchange_revoked_by_a_quarrel)
{
    hand_open();
    weft_i_quarrel_tell(hand.group, "mine", 2, "theirs");
    CHECK_INT(hand.group->board->revoked, 1 + HAND_ME);
    CHECK_INT(hand.group->board->failure, WEFT_ERR_MISMATCH);
    weft_i_quarrel_tell(hand.group, "again", 3, "other"); /* the first counts */
    tells(WEFT_ERR_MISMATCH, ME_IN ": rank 1 calls mine, but rank 2 calls theirs");
    hand.group->board->failure = WEFT_ERR_IO; /* ended by something else first */
    CHECK_INT(weft_i_group_tell_revoked(&hand.call), WEFT_ERR_IO);
    hand_close();
}

/* While the group is made: who could not take part, and for whom the first waited. */
TEST(test_exchange_revoked_while_made)
{
    char text[200];
    hand_open();
    hand_make();
    ended(2, WEFT_ERR_NO_MEMORY);
    snprintf(text, sizeof text, ME_IN ": rank 0 of the world could not take part (%s)",
             weft_strerror(WEFT_ERR_NO_MEMORY));
    tells(WEFT_ERR_NO_MEMORY, text);
    ended(2, WEFT_ERR_PEER_DEAD);
    snprintf(text, sizeof text, ME_IN ": rank 0 of the world could not take part (%s)",
             weft_strerror(WEFT_ERR_PEER_DEAD));
    tells(WEFT_ERR_PEER_DEAD, text);
    hand_kill(3); /* then the dead one is the news */
    tells(WEFT_ERR_PEER_DEAD, ME_IN ": rank 3 (died, or exited without weft_finish) will not come");
    hand_revive(3);
    ended(2, WEFT_ERR_MISMATCH);
    snprintf(text, sizeof text, ME_IN ": rank 0 of the world could not take part (%s)",
             weft_strerror(WEFT_ERR_MISMATCH));
    tells(WEFT_ERR_MISMATCH, text);
    weft_i_quarrel_tell(hand.above, "group_new", 4, "barrier");
    tells(WEFT_ERR_MISMATCH, ME_IN ": rank 1 calls group_new, but rank 4 calls barrier");
    hand_close();
}

TEST(test_exchange_given_up_while_made)
{
    hand_open();
    hand_make();
    ended(0, WEFT_ERR_TIMEOUT);
    tells(WEFT_ERR_TIMEOUT, ME_IN ": given up by rank 4 of the world, which waited for rank 0 "
                                  "(alive), rank 3 (alive)");
    hand.row[2].arrival = (uint64_t)1 << 32;
    tells(WEFT_ERR_TIMEOUT,
          ME_IN ": given up by rank 4 of the world, which waited for rank 3 (alive)");
    hand.row[3].gave_up = 1;
    tells(WEFT_ERR_TIMEOUT, ME_IN ": given up by rank 4 of the world, which waited for ranks that "
                                  "came as its deadline passed");
    hand_close();
}

/* ---- fates ---- */

TEST(test_exchange_fates)
{
    hand_open();
    for (int rank = 0; rank < HAND_SIZE; rank++) {
        CHECK_INT(weft_i_group_fate(hand.group, rank), WEFT_OK);
        CHECK_INT(weft_i_group_member_fate(hand.group, rank), WEFT_OK);
    }
    hand.row[2].left = 1;
    CHECK_INT(weft_i_group_fate(hand.group, 2), WEFT_ERR_PEER_LEFT);
    CHECK_INT(weft_i_group_member_fate(hand.group, 2), WEFT_ERR_PEER_LEFT);
    CHECK_INT(weft_i_group_fate(hand.group, 3), WEFT_OK);
    hand_kill(0);
    CHECK_INT(weft_i_group_member_fate(hand.group, 2), WEFT_ERR_PEER_DEAD);
    CHECK_INT(weft_i_group_fate(hand.group, 3), WEFT_OK);
    hand_kill(4);
    CHECK_INT(weft_i_group_fate(hand.group, 0), WEFT_ERR_PEER_DEAD);
    CHECK_INT(weft_i_group_fate(hand.group, 3), WEFT_OK);
    hand_make(); /* now every member counts */
    CHECK_INT(weft_i_group_fate(hand.group, 3), WEFT_ERR_PEER_DEAD);
    ended(2, WEFT_OK); /* and this before all */
    CHECK_INT(weft_i_group_fate(hand.group, 3), WEFT_ERR_REVOKED);
    CHECK_INT(weft_i_group_member_fate(hand.group, 3), WEFT_OK);
    hand_close();
}

static void lost(int rank, weft_status wanted, const char *text)
{
    hand_said(weft_i_group_lost(&hand.call, rank), wanted, text);
}

TEST(test_exchange_lost)
{
    hand_open();
    CHECK_INT(weft_i_group_lost(&hand.call, 2), WEFT_OK);
    hand_leave(0);
    lost(2, WEFT_ERR_PEER_LEFT, ME_IN ": rank 0 (left the job) will not come");
    hand_kill(3); /* ranks leave when another one dies: that one is told */
    lost(2, WEFT_ERR_PEER_DEAD,
         ME_IN ": rank 3 (died, or exited without weft_finish) will not come");
    CHECK_INT(weft_i_group_lost(&hand.call, 0), WEFT_OK);
    hand_kill(4); /* but not in the place of one that has died itself */
    lost(3, WEFT_ERR_PEER_DEAD,
         ME_IN ": rank 3 (died, or exited without weft_finish) will not come");
    hand.row[2].left = 1;
    lost(2, WEFT_ERR_PEER_LEFT, ME_IN ": rank 0 of the world has destroyed the group");
    ended(3, WEFT_OK);
    lost(2, WEFT_ERR_REVOKED, ME_IN ": rank 3 revoked the group");
    hand_close();
}

TEST(test_exchange_lost_while_made)
{
    hand_open();
    hand_make();
    hand_kill(3);
    lost(0, WEFT_ERR_PEER_DEAD,
         ME_IN ": rank 3 (died, or exited without weft_finish) will not come");
    hand_revive(3);
    CHECK_INT(weft_i_group_lost(&hand.call, 0), WEFT_OK);
    weft_i_quarrel_tell(hand.above, "group_new", 4, "barrier");
    CHECK_INT(weft_i_group_fate(hand.group, 0), WEFT_ERR_REVOKED);
    lost(0, WEFT_ERR_MISMATCH, ME_IN ": rank 1 calls group_new, but rank 4 calls barrier");
    hand.birth.old_quarrel = true; /* it had ended before we began */
    CHECK_INT(weft_i_group_fate(hand.group, 0), WEFT_OK);
    CHECK_INT(weft_i_group_lost(&hand.call, 0), WEFT_OK);
    hand_close();
}

/* ---- refusals: the word of any member, in any place, reaches everybody, once ---- */

TEST(test_exchange_refusals)
{
    char text[200];
    hand_open();
    for (int rank = 0; rank < HAND_SIZE; rank++) {
        int who = -7;
        weft_i_job_refuse(hand_record(hand_members[rank]), hand.birth.list, WEFT_ERR_LIMIT);
        CHECK_INT(weft_i_group_new_refusal(hand.group, &who), 0); /* it is not being made */
        CHECK_INT(weft_i_group_fate(hand.group, 0), WEFT_OK);
        hand_make();
        uint64_t refusal = weft_i_group_new_refusal(hand.group, &who);
        CHECK_INT(who, rank);
        CHECK_INT(weft_i_job_refusal_status(refusal), WEFT_ERR_LIMIT);
        for (int other = 0; other < HAND_SIZE; other++)
            CHECK_INT(weft_i_group_fate(hand.group, other), WEFT_ERR_LIMIT);
        snprintf(text, sizeof text, ME_IN ": rank %d of the world could not take part (%s)",
                 hand_members[rank], weft_strerror(WEFT_ERR_LIMIT));
        lost(0, WEFT_ERR_LIMIT, text);
        CHECK(weft_i_group_hear_refusals(hand.group) == (rank != HAND_ME));
        if (rank == HAND_ME) /* our own word is taken back by the next try */
            weft_i_job_allow(hand_record(HAND_ME), hand.birth.list);
        CHECK_INT(weft_i_group_new_refusal(hand.group, &who), 0);
        CHECK_INT(weft_i_group_fate(hand.group, 0), WEFT_OK);
        weft_i_job_refuse(hand_record(hand_members[rank]), hand.birth.list, WEFT_ERR_IO);
        CHECK_INT(weft_i_group_fate(hand.group, 0), WEFT_ERR_IO); /* the next one is news */
        weft_i_group_hear_refusals(hand.group);
        weft_i_job_allow(hand_record(hand_members[rank]), hand.birth.list);
        CHECK(!weft_i_group_hear_refusals(hand.group));
        hand.birth.under_way = false;
    }
    weft_i_key other = {{0x1234568, 2}};
    hand_make();
    weft_i_job_refuse(hand_record(4), other, WEFT_ERR_IO); /* of another list */
    CHECK(!weft_i_group_hear_refusals(hand.group));
    CHECK_INT(weft_i_group_fate(hand.group, 0), WEFT_OK);
    hand_close();
}

/* The first one that refused is told, and the others are heard with it. */
TEST(test_exchange_refusals_of_two)
{
    int who = -7;
    hand_open();
    hand_make();
    weft_i_job_refuse(hand_record(3), hand.birth.list, WEFT_ERR_LIMIT);
    weft_i_job_refuse(hand_record(4), hand.birth.list, WEFT_ERR_IO);
    CHECK_INT(weft_i_job_refusal_status(weft_i_group_new_refusal(hand.group, &who)), WEFT_ERR_IO);
    CHECK_INT(who, 0);
    CHECK(weft_i_group_hear_refusals(hand.group));
    CHECK_INT(weft_i_group_new_refusal(hand.group, &who), 0);
    hand_close();
}

/* ---- who is missing ---- */

enum { SHORT_MS = 20 };

static weft_status exchange(bool later)
{
    return later ? weft_i_group_exchange_later(hand.group, "op", NULL, 0, NULL, SHORT_MS)
                 : weft_i_group_exchange(hand.group, "op", NULL, 0, NULL, SHORT_MS);
}

static void misses(bool later, const char *names)
{
    char text[400];
    snprintf(text, sizeof text, ME_IN ": waited 20 ms for %s", names);
    hand_said(exchange(later), WEFT_ERR_TIMEOUT, text);
}

TEST(test_exchange_names_the_missing)
{
    hand_open();
    misses(false, "rank 4 (alive), rank 0 (alive), rank 3 (alive)");
    hand.row[0].arrival = hand_arrival("op", 0, 1, false);
    misses(false, "rank 0 (alive), rank 3 (alive)");
    hand.row[3].gave_up = weft_i_stamp(WEFT_OS->clock_ns() + 1000000000, 0); /* while we wait */
    misses(false, "rank 0 (alive)");
    hand.row[3].gave_up = weft_i_stamp(WEFT_OS->clock_ns() - 1000000000, 0); /* long before */
    misses(false, "rank 0 (alive), rank 3 (alive)");
    CHECK(hand.row[HAND_ME].gave_up != 0 && hand.row[HAND_ME].arrival == 0); /* taken back */
    CHECK_INT(hand.row[HAND_ME].stuck.quit[WEFT_I_ON_BOARD], 1);
    CHECK_INT(hand.row[HAND_ME].stuck.where, 0);
    hand_close();
}

/* In a later meeting of an operation, who waits for another rank's memory is not to blame. */
TEST(test_exchange_names_whom_the_missing_await)
{
    hand_open();
    for (int rank = 0; rank < HAND_SIZE; rank++)
        hand.row[rank].arrival = hand_arrival("op", 0, 1, false);
    hand.row[0].arrival = hand_arrival("op", 0, 2, true);
    hand.row[2].fetches = 1 + 3;
    misses(true, "rank 3 (alive)");
    hand.row[3].fetches = 1 + HAND_ME; /* for us: it is behind */
    misses(true, "rank 3 (alive)");
    hand.row[3].fetches = 1 + 0; /* for one that has come, but does not answer */
    misses(true, "rank 4 (alive), rank 3 (alive)");
    hand.row[3].fetches = 0;
    hand.row[2].fetches = 0;
    misses(true, "rank 0 (alive), rank 3 (alive)");
    hand.row[3].arrival = hand_arrival("op", 0, 2, true);
    hand.row[0].arrival = hand_arrival("op", 0, 1, false);
    hand.row[2].fetches = 1 + 0; /* both are behind, and one waits for the other */
    misses(true, "rank 4 (alive)");
    hand.row[2].arrival = hand_arrival("op", 0, 2, true);
    hand.row[2].fetches = 0;
    hand.row[0].fetches = 1 + 3; /* only the first is behind: it counts like any other */
    misses(true, "rank 3 (alive)");
    hand_close();
}

/* A place of meeting beside the board is closed with the group: who comes does not even arrive. */
TEST(test_exchange_revoked_elsewhere)
{
    _Atomic uint64_t cells[3] = {0};
    hand_open();
    weft_i_point point = {.size = 1,
                          .words = (char *)&cells[0],
                          .passes = (char *)&cells[1],
                          .bells = (char *)&cells[2],
                          .stride = sizeof cells};
    weft_i_meeting meeting;
    CHECK_OK(weft_i_group_meet(&hand.call, &point, 4, 1000, &meeting));
    uint64_t came = cells[0];
    CHECK(came);
    ended(2, WEFT_OK);
    hand_said(weft_i_group_meet(&hand.call, &point, 4, 1000, &meeting), WEFT_ERR_REVOKED,
              ME_IN ": rank 2 revoked the group");
    CHECK(cells[0] == came && meeting.culprit == -1);
    hand_close();
}

/* Who is stopped waits for nobody, whatever it did last. */
TEST(test_exchange_names_the_stopped)
{
    hand_open();
    int child = fork(), status;
    if (child == 0)
        for (;;)
            pause();
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    for (int rank = 0; rank < HAND_SIZE; rank++)
        hand.row[rank].arrival = hand_arrival("op", 0, 1, false);
    hand.row[0].arrival = hand.row[3].arrival = hand_arrival("op", 0, 2, true);
    hand_record(0)->address.process = child;
    hand.row[2].fetches = 1 + 3;
    weft_status got = exchange(true);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    CHECK_INT(got, WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), ": waited 20 ms for rank 0 (stopped by a signal");
    CHECK(!strstr(weft_last_error(), "rank 3"));
    hand_close();
}

/* A rank whose deadline passed here has left: who it waited for is the news. */
TEST(test_exchange_names_whom_leavers_awaited)
{
    hand_open();
    hand_leave(0);
    hand.row[2].gave_up = weft_i_stamp(WEFT_OS->clock_ns() + 1000000000, 0);
    hand.row[0].arrival = hand_arrival("op", 0, 1, false);
    hand_said(exchange(false), WEFT_ERR_PEER_LEFT,
              ME_IN ": rank 0 (left the job) waited in vain, as we do, for rank 3 (alive)");
    hand.row[2].gave_up = 0; /* it left without having waited */
    hand_said(exchange(false), WEFT_ERR_PEER_LEFT, ME_IN ": rank 0 (left the job) will not come");
    hand.row[2].gave_up = weft_i_stamp(WEFT_OS->clock_ns() + 1000000000, 0);
    hand.row[3].arrival = hand_arrival("op", 0, 1, false); /* nobody else is missing */
    hand_said(exchange(false), WEFT_ERR_PEER_LEFT, ME_IN ": rank 0 (left the job) will not come");
    hand.row[3].arrival = 0;
    hand_kill(3); /* a death is always the news */
    hand_said(exchange(false), WEFT_ERR_PEER_DEAD,
              ME_IN ": rank 3 (died, or exited without weft_finish) will not come");
    hand_revive(3);
    hand_kill(4); /* of the first member, too */
    hand_said(exchange(false), WEFT_ERR_PEER_DEAD,
              ME_IN ": rank 4 (died, or exited without weft_finish) will not come");
    hand_revive(4);
    hand_revive(0);
    hand_leave(4); /* and who has left may be the first */
    hand.row[0].arrival = 0;
    hand.row[0].gave_up = weft_i_stamp(WEFT_OS->clock_ns() + 1000000000, 0);
    hand.row[2].arrival = hand_arrival("op", 0, 1, false);
    hand_said(exchange(false), WEFT_ERR_PEER_LEFT,
              ME_IN ": rank 4 (left the job) waited in vain, as we do, for rank 3 (alive)");
    hand_close();
}

/* ---- what is exchanged ---- */

TEST(test_exchange_notes)
{
    hand_open();
    char mine[3] = "me", all[HAND_SIZE][3];
    for (uint32_t epoch = 1; epoch <= 4; epoch++) { /* by turns in two places */
        for (int rank = 0; rank < HAND_SIZE; rank++) {
            if (rank == HAND_ME)
                continue;
            snprintf((char *)hand.row[rank].note[epoch & 1], 3, "%u%d", epoch, rank);
            hand.row[rank].arrival = hand_arrival("op", 3, epoch, false);
        }
        uint64_t before = hand.group->sequence;
        CHECK_OK(weft_i_group_exchange(hand.group, "op", mine, 3, all, 5000));
        CHECK_INT(hand.group->sequence, before + 1);
        CHECK(!strcmp((char *)hand.row[HAND_ME].note[epoch & 1], "me"));
        CHECK(!strcmp(hand.row[HAND_ME].op, "op"));
        CHECK_INT(weft_i_arrival_epoch(hand.row[HAND_ME].arrival), epoch);
        for (int rank = 0; rank < HAND_SIZE; rank++)
            CHECK((hand.row[rank].pass != 0) == (rank == HAND_ME));
        for (int rank = 0; rank < HAND_SIZE; rank++) {
            char want[3];
            snprintf(want, sizeof want, "%u%d", epoch, rank);
            CHECK(!strcmp(all[rank], rank == HAND_ME ? "me" : want));
        }
    }
    static char large[WEFT_I_NOTE_BYTES + 1];
    CHECK_STATUS(weft_i_group_exchange(hand.group, "op", large, sizeof large, NULL, 5000),
                 WEFT_ERR_INTERNAL);
    CHECK_CONTAINS(weft_last_error(), "an exchange of 961 bytes does not fit a note");
    for (int rank = 0; rank < HAND_SIZE; rank++)
        if (rank != HAND_ME)
            hand.row[rank].arrival = hand_arrival("op", sizeof large - 1, 5, false);
    CHECK_OK(weft_i_group_exchange(hand.group, "op", large, sizeof large - 1, NULL, 5000));
    hand_close();
}

TEST(test_exchange_mismatch)
{
    hand_open();
    for (int rank = 0; rank < HAND_SIZE; rank++)
        if (rank != HAND_ME)
            hand.row[rank].arrival = hand_arrival(rank == 3 ? "other" : "op", 0, 1, false);
    memset(hand.row[3].op, 'o', sizeof hand.row[3].op); /* fills its place to the end */
    char text[200], told[100];
    snprintf(told, sizeof told, "rank 1 calls op, but rank 3 calls %.32s",
             "oooooooooooooooooooooooooooooooooooooo");
    snprintf(text, sizeof text, ME_IN ": %s", told);
    hand_said(exchange(false), WEFT_ERR_MISMATCH, text);
    CHECK_INT(hand.group->board->failure, WEFT_ERR_MISMATCH);
    CHECK(weft_i_quarrel_told(hand.group) && !strncmp(weft_i_quarrel_told(hand.group), told, 40));
    hand_close();
}

/* Whoever it is that calls something else, the first member as well. */
TEST(test_exchange_mismatch_of_each)
{
    for (int other = 0; other < HAND_SIZE; other++) {
        char text[200];
        hand_open();
        weft_i_meeting meeting = {.culprit = other};
        snprintf(hand.row[other].op, sizeof hand.row[other].op, "theirs");
        snprintf(text, sizeof text,
                 ME_IN ": another rank called something else here: rank %d (alive)",
                 hand_members[other]);
        if (other != HAND_ME)
            hand_said(weft_i_group_mismatch(&hand.call, &meeting), WEFT_ERR_MISMATCH, text);
        hand.group->rest.lane_making.under_way =
            true; /* there the words on the board are not of this meeting */
        if (other != HAND_ME)
            hand_said(weft_i_group_fail_quarrel(&hand.call, &meeting), WEFT_ERR_MISMATCH, text);
        CHECK(!weft_i_quarrel_told(hand.group));
        hand.group->rest.lane_making.under_way = false;
        snprintf(text, sizeof text, ME_IN ": rank 1 calls op, but rank %d calls theirs", other);
        if (other != HAND_ME)
            hand_said(weft_i_group_fail_quarrel(&hand.call, &meeting), WEFT_ERR_MISMATCH, text);
        hand_close();
    }
    hand_open();
    weft_i_meeting nobody = {.culprit = -1};
    CHECK_INT(weft_i_group_mismatch(&hand.call, &nobody), WEFT_ERR_MISMATCH); /* told elsewhere */
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK_INT(weft_i_group_fail_quarrel(&hand.call, &nobody), WEFT_ERR_MISMATCH);
    CHECK(!weft_i_quarrel_told(hand.group));
    hand_close();
}

/* One gave up because another died: the dead one is the news, whoever it is. */
TEST(test_exchange_refused_for_a_death)
{
    for (int dead = 0; dead < HAND_SIZE; dead++) {
        char text[200];
        if (dead == HAND_ME)
            continue;
        hand_open();
        hand_make();
        weft_i_job_refuse(hand_record(hand_members[2]), hand.birth.list, WEFT_ERR_PEER_DEAD);
        hand_kill(hand_members[dead]);
        snprintf(text, sizeof text,
                 ME_IN ": rank %d (died, or exited without weft_finish) will not come",
                 hand_members[dead]);
        hand_said(weft_i_group_lost(&hand.call, 3), WEFT_ERR_PEER_DEAD, text);
        hand_close();
    }
}

/* Without peers, everybody shows what we show. */
TEST(test_exchange_with_self)
{
    hand_open();
    char mine[3] = "me", all[HAND_SIZE + 1][3] = {{0}};
    hand.world->fake = true;
    CHECK_OK(weft_i_group_exchange(hand.group, "op", mine, 3, all, 5000));
    for (int rank = 0; rank < HAND_SIZE; rank++)
        CHECK(!strcmp(all[rank], "me"));
    CHECK(!all[HAND_SIZE][0]);
    CHECK_OK(weft_i_group_exchange(hand.group, "op", NULL, 0, NULL, 5000));
    ended(2, WEFT_OK);
    CHECK_STATUS(weft_i_group_exchange(hand.group, "op", mine, 3, all, 5000), WEFT_ERR_REVOKED);
    hand.world->fake = false;
    hand_close();
}

/* ---- what is noted ---- */

TEST(test_exchange_is_recorded)
{
    weft_i_record_entry last;
    hand_open();
    const weft_i_record *record = weft_i_group_record(hand.group);
    CHECK_STATUS(weft_group_barrier(hand.group, SHORT_MS), WEFT_ERR_TIMEOUT);
    CHECK(weft_i_record_last(record, &last) && !strcmp(last.name, "group_barrier"));
    CHECK(last.finished && last.status == WEFT_ERR_TIMEOUT && last.turn == 1 && last.group == 77);
    CHECK_STATUS(exchange(false), WEFT_ERR_TIMEOUT);
    CHECK(weft_i_record_last(record, &last) && !strcmp(last.name, "op") && last.finished);
    CHECK(last.status == WEFT_ERR_TIMEOUT && last.turn == 1 && last.number == 2);
    for (int rank = 0; rank < HAND_SIZE; rank++)
        if (rank != HAND_ME)
            hand.row[rank].arrival = hand_arrival("op", 0, 1, false);
    CHECK_OK(exchange(false));
    CHECK(weft_i_record_last(record, &last) && last.finished && last.status == WEFT_OK);
    CHECK_INT(hand.group->sequence, 3);
    hand_close();
}

/* One thread at a time: another's address stands at the door meanwhile, and ours only then. */
TEST(test_exchange_of_another_thread)
{
    hand_open();
    const char *text =
        "%s in group \"g\": another thread of rank 1 is in a call on this group; one "
        "thread at a time may use a group, so give each thread one of its own "
        "(weft_group_new)";
    char want[256];
    hand.group->on_board = 1;
    snprintf(want, sizeof want, text, "group_barrier");
    hand_said(weft_group_barrier(hand.group, SHORT_MS), WEFT_ERR_STATE, want);
    snprintf(want, sizeof want, text, "op");
    hand_said(exchange(false), WEFT_ERR_STATE, want);
    CHECK_INT(hand.group->on_board, 1);
    hand.group->on_board = 0;
    CHECK_STATUS(weft_group_barrier(hand.group, SHORT_MS), WEFT_ERR_TIMEOUT);
    CHECK_INT(hand.group->on_board, 0);
    CHECK_STATUS(exchange(false), WEFT_ERR_TIMEOUT);
    CHECK_INT(hand.group->on_board, 0);
    hand_close();
}

static weft_i_os watched_os;
static int64_t gives_up_at;

/* While we wait, we show that we only help; then the one that needs the lane gives up. */
static int64_t watch_clock(void)
{
    int64_t now = weft_i_os_linux.clock_ns();
    if (hand.above->rest.lane_making.under_way)
        CHECK_INT(hand.row_above[HAND_ME].lane_need, weft_i_group_lane_need(hand.group));
    if (gives_up_at && now >= gives_up_at)
        hand.row_above[3].lane_need = 0;
    return now;
}

/* Help with the lane of the group above is given as long as somebody needs it, and leaves no trace
 * when it is in vain: the deadline of the group that is made counts. */
TEST(test_exchange_helps_above)
{
    hand_open();
    hand_make();
    watched_os = weft_i_os_linux;
    watched_os.clock_ns = watch_clock;
    weft_i_os_now = &watched_os;
    CHECK_INT(weft_i_fail(WEFT_ERR_IO, "before"), WEFT_ERR_IO);
    for (int needed = 0; needed < 2; needed++) {
        hand.row_above[3].lane_need = (uint64_t)needed;
        gives_up_at = weft_i_os_linux.clock_ns() + 120 * 1000000; /* longer than any slice */
        CHECK_INT(weft_i_group_help_above(hand.group, weft_i_os_deadline(60000)), WEFT_OK);
        CHECK(!needed || weft_i_os_linux.clock_ns() >= gives_up_at);
        CHECK(weft_last_status() == WEFT_ERR_IO && !strcmp(weft_last_error(), "before"));
        CHECK(!hand.above->rest.lane_making.on_behalf && !hand.above->rest.lane_making.under_way);
        CHECK_INT(hand.row_above[HAND_ME].lane_need, 0);
        CHECK_INT(hand.row_above[HAND_ME].lane_arrival, 0); /* taken back */
    }
    gives_up_at = 0;
    hand.row_above[3].lane_need = 1;
    CHECK_INT(weft_i_group_help_above(hand.group, weft_i_os_deadline(5)), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), "waited");
    CHECK(!hand.above->rest.lane_making.on_behalf);
    weft_i_os_now = &weft_i_os_linux;
    ended(2, WEFT_OK); /* of the group itself: told to who needs it */
    weft_clear_error();
    CHECK_INT(weft_i_fail(WEFT_ERR_IO, "before"), WEFT_ERR_IO);
    CHECK_INT(weft_i_group_help_make_lane(hand.group, weft_i_os_deadline(60000)), WEFT_OK);
    CHECK(weft_last_status() == WEFT_ERR_IO && !strcmp(weft_last_error(), "before"));
    hand_close();
}

/* ---- waiting for who has gone on ---- */

/* The last one comes as soon as somebody waits for it. */
static int64_t clock_and_come(void)
{
    hand.row[2].arrival = (uint64_t)1 << 32;
    return weft_i_os_linux.clock_ns();
}

TEST(test_exchange_settles)
{
    hand_open();
    weft_i_point point = {.me = HAND_ME,
                          .size = HAND_SIZE,
                          .words = (char *)&hand.row[0].arrival,
                          .passes = (char *)&hand.row[0].pass,
                          .bells = (char *)&hand.row[0].bell,
                          .stride = sizeof *hand.row};
    hand.row[HAND_ME].arrival = hand.row[0].arrival = (uint64_t)1 << 32;
    hand_said(weft_i_group_settle(&hand.call, &point, NULL, 1, SHORT_MS), WEFT_ERR_TIMEOUT,
              ME_IN ": waited 20 ms for rank 0 (alive), rank 3 (alive)");
    hand_kill(3);
    hand_said(weft_i_group_settle(&hand.call, &point, NULL, 1, 5000), WEFT_ERR_PEER_DEAD,
              ME_IN ": rank 3 (died, or exited without weft_finish) will not come");
    hand.row[3].arrival = (uint64_t)2 << 32; /* it had come before, and further */
    weft_i_os table = weft_i_os_linux;
    table.clock_ns = clock_and_come;
    weft_i_os_now = &table;
    weft_status status = weft_i_group_settle(&hand.call, &point, NULL, 1, 5000);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_OK(status);
    CHECK_OK(weft_i_group_settle(&hand.call, &point, NULL, 1, 5000)); /* nobody waits any more */
    CHECK(weft_last_status() == WEFT_OK && !weft_last_error()[0]);
    ended(2, WEFT_OK);
    hand_said(weft_i_group_settle(&hand.call, &point, NULL, 1, 5000), WEFT_ERR_REVOKED,
              ME_IN ": rank 2 revoked the group");
    hand_close();
}

/* A member of another host cannot be seen to refuse; a limit is checked here, too. */
TEST(test_exchange_of_another_host)
{
    int who = -1;
    hand_open();
    hand_make();
    hand.world->peers[hand_members[2]].rank_record = NULL;
    CHECK(!weft_i_group_new_refusal(hand.group, &who));
    hand.world->peers[hand_members[2]].rank_record =
        weft_i_job_rank(weft_i_job_of(hand.world->job), hand_members[2]);
    hand.birth.under_way = false;
    uint64_t before = hand.group->sequence;
    hand_said(weft_i_group_exchange(hand.group, "op", NULL, 0, NULL, -7), WEFT_ERR_INVALID_ARG,
              "op: a time limit is a number of ms, WEFT_FOREVER or WEFT_DEFAULT, not -7");
    CHECK(hand.group->sequence == before && !hand.row[HAND_ME].arrival);
    hand_close();
}

/* ---- ends that others must be told ---- */

/* Once, of groups that have ended, have others in them, and no board on which these would see it. */
TEST(test_registry_doomed)
{
    hand_open();
    weft_i_registry *registry = &hand.world->registry;
    weft_group *group = hand.group;
    weft_i_board *board = group->board;
    weft_i_key key = {{0, 0}};
    CHECK_OK(weft_i_registry_enter(registry, hand.above));
    CHECK_OK(weft_i_registry_enter(registry, group));
    group->board = NULL;
    CHECK(!weft_i_registry_next_doomed(registry, &key)); /* it lives */
    weft_i_group_mark_destroyed(group);
    group->board = board;
    CHECK(!weft_i_registry_next_doomed(registry, &key) && !group->listing.told);
    group->board = NULL;
    group->size = 1;
    CHECK(!weft_i_registry_next_doomed(registry, &key) && !group->listing.told);
    group->size = HAND_SIZE;
    CHECK(weft_i_registry_next_doomed(registry, &key) && group->listing.told);
    CHECK(weft_i_key_equal(key, group->key));
    CHECK(!weft_i_registry_next_doomed(registry, &key) && !hand.above->listing.told);
    group->board = board;
    group->listing.published = true;
    weft_i_registry_leave(registry, group);
    CHECK(registry->count == 1 && registry->gone_count == 1);
    weft_i_registry_leave(registry, group); /* twice is once */
    CHECK(registry->count == 1 && registry->gone_count == 1);
    group->listing.published = false;
    weft_i_registry_leave(registry, hand.above); /* nobody knew its name */
    CHECK(registry->count == 0 && registry->gone_count == 1);
    hand_close();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
