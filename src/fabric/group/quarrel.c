/* SPDX-License-Identifier: Apache-2.0 */
/* Finding out that two members wait for each other; see quarrel.h. */
#include "fabric/group/quarrel.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "fabric/group/given.h"
#include "fabric/group/hosts_news.h"

#include <stdio.h>
#include <string.h>

static weft_i_stuck *stuck_of(const weft_group *group, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < group->size);
    return &group->board->row[rank].stuck;
}

/* Has the rank posted what has not run yet?  That may still come to the lane. */
static bool has_posted(const weft_group *group)
{
    /* Pairs with the release of whoever ends posted work: its entries are seen. */
    return atomic_load_explicit(&group->calls.posted, memory_order_acquire) != 0;
}

void weft_i_stay_tell(const weft_i_stay *stay, const weft_i_label *label, char *out, size_t bytes)
{
    if (stay && stay->tell)
        stay->tell(stay->who, out, bytes);
    else
        snprintf(out, bytes, "%s", label->op);
}

static void write_call(weft_i_stuck *mine, const char *text)
{
    char words[WEFT_I_LABEL_BYTES] = "";
    snprintf(words, sizeof words, "%s", text);
    for (size_t i = 0; i < sizeof words / sizeof(uint64_t); i++) {
        uint64_t word;
        memcpy(&word, words + i * sizeof word, sizeof word);
        atomic_store_explicit(&mine->call[i], word, memory_order_relaxed);
    }
}

/* False if the rank has moved on meanwhile. */
static bool read_call(weft_i_stuck *theirs, uint64_t where, char out[WEFT_I_LABEL_BYTES])
{
    for (size_t i = 0; i < WEFT_I_LABEL_BYTES / sizeof(uint64_t); i++) {
        uint64_t word = atomic_load_explicit(&theirs->call[i], memory_order_relaxed);
        memcpy(out + i * sizeof word, &word, sizeof word);
    }
    out[WEFT_I_LABEL_BYTES - 1] = 0;
    atomic_thread_fence(memory_order_acquire); /* the words were read before what follows */
    return atomic_load_explicit(&theirs->where, memory_order_relaxed) == where;
}

/* Does this wait keep the rank from calling anything else, and can nothing of its own come to the
 * other place meanwhile? */
static bool is_kept(const weft_group *group, const weft_i_stay *stay)
{
    return (!stay->is_kept || stay->is_kept(stay->who)) &&
           (stay->place != WEFT_I_ON_BOARD || !has_posted(group));
}

void weft_i_quarrel_settle_in(const weft_i_vigil *vigil)
{
    const weft_i_label *label = vigil->label;
    const weft_i_stay *stay = vigil->stay;
    weft_i_stuck *mine = stuck_of(label->group, label->group->rank);
    uint64_t here = (uint64_t)stay->place << 32 | vigil->turn;
    char text[WEFT_I_LABEL_BYTES];
    /* Our own word. */
    bool said = atomic_load_explicit(&mine->where, memory_order_relaxed) == here;
    bool kept = is_kept(label->group, stay);
    if (said && !kept)
        weft_i_quarrel_move_on(label->group);
    if (said || !kept)
        return;
    weft_i_stay_tell(stay, label, text, sizeof text);
    write_call(mine, text);
    /* Pairs with the acquire in weft_i_quarrel_look. */
    atomic_store_explicit(&mine->where, here, memory_order_release);
    if (label->group->hosts)
        weft_i_hosts_tell_stuck(label->group, here, text);
}

void weft_i_quarrel_copy(weft_i_stuck *row, uint64_t where, const char *call)
{
    atomic_store_explicit(&row->where, 0, memory_order_relaxed);
    /* The words are written after it: read_call looks at it once more. */
    atomic_thread_fence(memory_order_release);
    if (where)
        write_call(row, call);
    /* Pairs with the acquire in weft_i_quarrel_look. */
    atomic_store_explicit(&row->where, where, memory_order_release);
}

void weft_i_quarrel_quit(const weft_i_vigil *vigil)
{
    weft_i_stuck *mine = stuck_of(vigil->label->group, vigil->label->group->rank);
    if (vigil->stay)
        atomic_store_explicit(&mine->quit[vigil->stay->place], vigil->turn, memory_order_relaxed);
}

void weft_i_quarrel_move_on(const weft_group *group)
{
    /* Relaxed: whoever still sees it cannot misread it, the turn is one that we have come to. */
    uint64_t before =
        atomic_exchange_explicit(&stuck_of(group, group->rank)->where, 0, memory_order_relaxed);
    if (before && group->hosts)
        weft_i_hosts_tell_stuck(group, 0, "");
}

/* How many meetings this rank has come to in a place where it does not wait now. */
static uint32_t turns_seen(const weft_group *group, weft_i_stay_place place)
{
    if (place == WEFT_I_ON_LANE && group->hosts)
        return weft_i_arrival_epoch(atomic_load_explicit(
            &group->board->row[group->rank].lane_arrival, memory_order_relaxed)); /* ours */
    if (place == WEFT_I_ON_LANE)
        return atomic_load_explicit(&group->calls.entries,
                                    memory_order_relaxed); /* see has_posted */
    return weft_i_arrival_epoch(atomic_load_explicit(&group->board->row[group->rank].arrival,
                                                     memory_order_relaxed)); /* our own word */
}

bool weft_i_vigil_has_come(const weft_i_vigil *vigil, int rank)
{
    /* Relaxed: the acquire of what it wrote later, its stuck word or what it has given to its
     * device, has brought its arrival. */
    uint64_t word = atomic_load_explicit(weft_i_point_turn(vigil->point, rank, vigil->turn),
                                         memory_order_relaxed);
    return weft_i_arrived(word, vigil->turn);
}

void weft_i_quarrel_look(const weft_i_vigil *vigil, int rank)
{
    const weft_i_label *label = vigil->label;
    const weft_i_stay *stay = vigil->stay;
    const weft_group *group = label->group;
    weft_i_stuck *theirs = stuck_of(group, rank);
    /* Pairs with the release in weft_i_quarrel_settle_in: the call is complete. */
    uint64_t where = atomic_load_explicit(&theirs->where, memory_order_acquire);
    weft_i_stay_place place = (weft_i_stay_place)(where >> 32);
    if (!where || place == stay->place || !is_kept(group, stay))
        return;
    if ((int32_t)((uint32_t)where - turns_seen(group, place)) <= 0)
        return; /* we have been there: it is about to move on */
    if (weft_i_vigil_has_come(vigil, rank))
        return; /* and has gone on since we looked for it */
    char mine[WEFT_I_LABEL_BYTES], other[WEFT_I_LABEL_BYTES];
    if (!read_call(theirs, where, other))
        return;
    weft_i_stay_tell(stay, label, mine, sizeof mine);
    weft_i_quarrel_tell(group, mine, rank, other);
}

void weft_i_quarrel_say(const weft_group *group, const char *text)
{
    weft_i_board *board = group->board;
    uint32_t nobody = 0;
    weft_i_quarrel_hear(group);
    /* Acquire: pairs with nothing but keeps the text after it; the first one writes. */
    if (!atomic_compare_exchange_strong_explicit(&board->quarrel, &nobody, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    snprintf(board->quarrel_text, sizeof board->quarrel_text, "%s", text);
    /* Pairs with the acquire in weft_i_quarrel_told. */
    atomic_store_explicit(&board->quarrel, 2, memory_order_release);
    weft_i_group_end_board(group, WEFT_ERR_MISMATCH);
}

void weft_i_quarrel_tell(const weft_group *group, const char *mine, int rank, const char *theirs)
{
    char text[sizeof group->board->quarrel_text];
    WEFT_ASSERT(rank >= 0 && rank < group->size && rank != group->rank);
    snprintf(text, sizeof text, "rank %d calls %s, but rank %d calls %s", group->rank, mine, rank,
             theirs);
    weft_i_quarrel_say(group, text);
}

const char *weft_i_quarrel_on(const weft_i_board *board)
{
    /* Pairs with the release in weft_i_quarrel_tell. */
    return atomic_load_explicit(&board->quarrel, memory_order_acquire) == 2 ? board->quarrel_text
                                                                            : NULL;
}

const char *weft_i_quarrel_told(const weft_group *group)
{
    return weft_i_quarrel_on(group->board);
}

void weft_i_quarrel_hear(const weft_group *group)
{
    atomic_store_explicit(&stuck_of(group, group->rank)->heard, 1, memory_order_relaxed);
}

bool weft_i_quarrel_is_heard(const weft_group *group)
{
    return weft_i_quarrel_told(group) &&
           atomic_load_explicit(&stuck_of(group, group->rank)->heard, memory_order_relaxed);
}

bool weft_i_quarrel_is_news(const weft_group *group)
{
    /* Relaxed: until it is there, the quarrel is not over. */
    return group->board && weft_i_quarrel_told(group) && !weft_i_quarrel_is_heard(group) &&
           atomic_load_explicit(&group->board->failure, memory_order_relaxed) == WEFT_ERR_MISMATCH;
}

/* Is the rank making the lane, without us? */
static bool lacks_lane(const weft_group *group, int rank)
{
    const weft_i_board_row *row = group->board->row;
    if (group->lane || group->hosts || group->rest.lane_making.under_way)
        return false;
    /* Acquire: pairs with the release of its arrival; our own word beside it. */
    uint64_t theirs = atomic_load_explicit(&row[rank].lane_arrival, memory_order_acquire);
    uint64_t mine = atomic_load_explicit(&row[group->rank].lane_arrival, memory_order_relaxed);
    return weft_i_arrived(theirs, weft_i_arrival_epoch(mine) + 1);
}

/* Only who waits on the board is asked: on the lane the lane is there. */
static bool wants_lane(const weft_i_vigil *vigil, int rank)
{
    const weft_group *group = vigil->label->group;
    return vigil->stay->place == WEFT_I_ON_BOARD &&
           (lacks_lane(group, rank) || weft_i_quarrel_wants_lane_above(group));
}

/* ---- while a group is made ---- */

/* The group that this one is made from, if its members can quarrel there with who makes this one.
 */
static const weft_group *group_above(const weft_group *group)
{
    const weft_group *above = weft_i_group_is_made(group) ? weft_i_group_made_from(group) : NULL;
    return above && above->board && !group->birth->old_quarrel ? above : NULL;
}

/* Does who waits there in meeting `where` wait for us?  Not if we have come to it, also if we gave
 * it up since: its own limit, or the death that made us go, ends its wait. */
static bool is_for_us(const weft_group *above, uint64_t where)
{
    weft_i_stay_place place = (weft_i_stay_place)(where >> 32);
    if (place != WEFT_I_ON_BOARD && place != WEFT_I_ON_LANE)
        return false;
    uint32_t quit = atomic_load_explicit(&stuck_of(above, above->rank)->quit[place],
                                         memory_order_relaxed); /* our own word */
    return (int32_t)((uint32_t)where - turns_seen(above, place)) > 0 &&
           (int32_t)((uint32_t)where - quit) > 0;
}

/* Will waits there end by themselves, because a member is gone or all is over? */
static bool is_ending(const weft_group *above)
{
    for (int rank = 0; rank < above->size; rank++)
        if (weft_i_group_fate(above, rank) < 0)
            return true;
    return false;
}

/* Does a rank of the group above, which is in this one too, make the lane there for anything else
 * than to get on with this one? */
static bool needs_lane(const weft_group *group, const weft_group *above, int there)
{
    /* Pairs with the release in weft_i_group_show_lane_need. */
    uint64_t need = atomic_load_explicit(&above->board->row[there].lane_need, memory_order_acquire);
    return need && need != weft_i_group_lane_need(group) && there != above->rank &&
           weft_group_rank_of(group, above->members[there]) >= 0;
}

/* All are asked, not only the first that is missing: that may be one that helps. */
bool weft_i_quarrel_wants_lane_above(const weft_group *group)
{
    const weft_group *above = group_above(group);
    if (!above || above->lane)
        return false;
    for (int there = 0; there < above->size; there++)
        if (needs_lane(group, above, there))
            return !is_ending(above);
    return false;
}

bool weft_i_quarrel_helps_in_vain(const weft_group *group)
{
    return group->rest.lane_making.on_behalf &&
           !weft_i_quarrel_wants_lane_above(group->rest.lane_making.on_behalf);
}

void weft_i_quarrel_look_above(const weft_group *group, const weft_i_vigil *vigil, int rank)
{
    const weft_group *above = group_above(group);
    if (!above || has_posted(above))
        return;
    int there = weft_group_rank_of(above, group->members[rank]);
    WEFT_ASSERT(there >= 0);
    weft_i_stuck *theirs = stuck_of(above, there);
    /* Pairs with the release in weft_i_quarrel_settle_in: the call is complete. */
    uint64_t where = atomic_load_explicit(&theirs->where, memory_order_acquire);
    if (!is_for_us(above, where) || is_ending(above))
        return;
    if (vigil && weft_i_vigil_has_come(vigil, rank))
        return; /* to the new group, and has gone on from there since we looked for it */
    int refuser;
    if (weft_i_group_new_refusal(group, &refuser))
        return; /* somebody could not make the group: whoever has heard that may go on */
    char call[WEFT_I_LABEL_BYTES];
    if (read_call(theirs, where, call))
        weft_i_quarrel_tell(above, "group_new", there, call);
}

const char *weft_i_quarrel_told_above(const weft_group *group)
{
    const weft_group *above = group_above(group);
    return above ? weft_i_quarrel_told(above) : NULL;
}

weft_status weft_i_vigil_look(weft_i_vigil *vigil, int missing)
{
    enum { PATIENCE_NS = 1000000 };
    const weft_i_label *label = vigil->label;
    int64_t now = WEFT_OS->clock_ns();
    weft_status fate = weft_i_group_fate(label->group, missing);
    if (!vigil->begin)
        vigil->begin = now;
    if (fate == WEFT_OK && weft_i_quarrel_helps_in_vain(label->group))
        return WEFT_ERR_CANCELLED;
    if (fate < 0)
        return fate;
    if (vigil->stay && wants_lane(vigil, missing)) {
        vigil->wanted = true;
        return WEFT_ERR_CANCELLED;
    }
    if (now - vigil->begin < PATIENCE_NS)
        return WEFT_OK;
    weft_i_given_look(vigil, missing);
    if (vigil->stay) {
        weft_i_quarrel_settle_in(vigil);
        weft_i_quarrel_look(vigil, missing);
        weft_i_quarrel_look_above(label->group, vigil, missing);
    }
    return weft_i_group_fate(label->group, missing);
}

bool weft_i_vigil_saw_give_up(const weft_i_vigil *vigil, int rank)
{
    const weft_i_point *point = vigil->point;
    if (!point->gave_up || !vigil->begin)
        return false;
    /* Relaxed: its arrival, which was seen to be gone, was taken back with release after it. */
    uint64_t stamp = atomic_load_explicit(weft_i_point_gave_up(point, rank), memory_order_relaxed);
    return stamp >> 16 >= weft_i_stamp(vigil->begin, 0) >> 16 &&
           (stamp & 0xffff) == (point->tag & 0xffff);
}
