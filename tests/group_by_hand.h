/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group whose other members are words that the test writes: a world of five, of which `hand` has
 * world ranks 4, 1, 0 and 3, this rank being 1 in both; `hand.above` is the group of all.  Nobody
 * runs, so every look finds exactly what the test has written, and messages can be read in full.
 */
#ifndef WEFT_TESTS_GROUP_BY_HAND_H
#define WEFT_TESTS_GROUP_BY_HAND_H

#include "harness.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/exchange.h"
#include "fabric/group/quarrel.h"

#include <weft/weft.h>

#include <linux/futex.h>

enum { HAND_WORLD = 5, HAND_SIZE = 4, HAND_ME = 1 };

static const int hand_members[HAND_SIZE] = {4, 1, 0, 3};

typedef struct by_hand {
    weft_i_world *world;
    weft_group *group, *above;
    weft_i_birth birth; /* of the group */
    weft_i_board_row *row, *row_above;
    weft_i_label call;
} by_hand;

static by_hand hand;

static weft_group *hand_group(int size, const int *members, const char *name)
{
    weft_group *group = weft_i_group_allocate(hand.world, size);
    CHECK(group != NULL);
    for (int rank = 0; rank < size; rank++)
        group->members[rank] = members ? members[rank] : rank;
    group->rank = HAND_ME;
    group->local = true;
    group->id = 77;
    snprintf(group->name, sizeof group->name, "%s", name);
    CHECK_OK(weft_i_segment_new(weft_i_board_bytes(size), WEFT_I_BETWEEN_PROCESSES, "a board",
                                &group->rest.board_segment));
    group->board = (weft_i_board *)(void *)group->rest.board_segment->base;
    group->key = group->rest.board_segment->key;
    return group;
}

static weft_i_rank_record *hand_record(int world_rank)
{
    return hand.world->peers[world_rank].rank_record;
}

static void hand_open(void)
{
    weft_i_segment *job = NULL;
    CHECK_OK(weft_scope_open());
    CHECK_OK(weft_i_job_new(HAND_WORLD, WEFT_I_BETWEEN_PROCESSES, &job));
    CHECK_OK(weft_i_world_new(HAND_ME, HAND_WORLD, &hand.world));
    hand.world->job = job;
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_PROCESSES, &hand.world->fdpass));
    hand.world->local_size = HAND_WORLD;
    for (int rank = 0; rank < HAND_WORLD; rank++) {
        weft_i_rank_record *record = weft_i_job_rank(weft_i_job_of(job), rank);
        hand.world->peers[rank].rank_record = record;
        weft_i_record_init(&record->record);
        record->life.state = WEFT_I_RANK_HERE;
        record->life.word = 1;
    }
    hand.world->mine = hand_record(HAND_ME);
    hand.group = hand_group(HAND_SIZE, hand_members, "g");
    hand.above = hand_group(HAND_WORLD, NULL, "0");
    hand.birth = (weft_i_birth){.list = {{0x1234567, 2}}};
    hand.group->birth = &hand.birth;
    hand.row = hand.group->board->row;
    hand.row_above = hand.above->board->row;
    hand.call = (weft_i_label){hand.group, "op", -1};
    weft_i_world_drop(hand.world); /* the groups hold it */
    weft_clear_error();
}

static void hand_close(void)
{
    hand.birth.from = NULL;
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

/* While `hand.group` is made from the other. */
__attribute__((unused)) static void hand_make(void)
{
    hand.birth.under_way = true;
    hand.birth.from = hand.above;
}

__attribute__((unused)) static void hand_kill(int world_rank)
{
    hand_record(world_rank)->life.word = FUTEX_OWNER_DIED | 1;
}

__attribute__((unused)) static void hand_leave(int world_rank)
{
    hand_record(world_rank)->life.state = WEFT_I_RANK_LEFT;
}

__attribute__((unused)) static void hand_revive(int world_rank)
{
    hand_record(world_rank)->life.word = 1;
    hand_record(world_rank)->life.state = WEFT_I_RANK_HERE;
}

/* The word of a member that has come to a meeting on the board. */
__attribute__((unused)) static uint64_t hand_arrival(const char *what, size_t bytes, uint32_t epoch,
                                                     bool later)
{
    uint32_t digest = weft_i_digest(1, bytes);
    for (const char *c = what; *c; c++)
        digest = weft_i_digest(digest, (unsigned char)*c);
    /* Bit 0 tells first meetings from later ones, see base/share/signal.h. */
    return (uint64_t)epoch << 32 | (later ? digest | 1 : digest & ~1u);
}

/* The status, and all of the message. */
__attribute__((unused)) static void hand_said(weft_status status, weft_status wanted,
                                              const char *text)
{
    if (status != wanted)
        FAIL("status %d, not %d: %s", status, wanted, weft_last_error());
    if (strcmp(weft_last_error(), text))
        FAIL("\"%s\", not \"%s\"", weft_last_error(), text);
    weft_clear_error();
}

#endif
