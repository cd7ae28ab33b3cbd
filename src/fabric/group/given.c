/* SPDX-License-Identifier: Apache-2.0 */
/* Counting what is given to devices, and comparing it with the ranks that wait on the lane; see given.h. */
#include "fabric/group/given.h"
#include "base/os/assert.h"
#include "base/os/place.h"

#include <stdio.h>

static weft_i_given *given_of(const weft_group *group, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < group->size);
    return &group->board->row[rank].given;
}

/* Entries of the lane that this rank has called.  Posted ones may still come, in their own time. */
static uint64_t entries_called(const weft_group *group)
{
    /* Pairs with the release of whoever ends posted work: its entries are seen. */
    if (atomic_load_explicit(&group->calls.posted, memory_order_acquire))
        return WEFT_I_GIVEN_UNSURE;
    uint32_t entries = atomic_load_explicit(&group->calls.entries, memory_order_relaxed);
    /* One that it gave up counts: it may have gone on knowingly.  Our own word. */
    uint32_t quit = atomic_load_explicit(&group->board->row[group->rank].stuck.quit[WEFT_I_ON_LANE],
                                         memory_order_relaxed);
    return (int32_t)(quit - entries) > 0 ? quit : entries;
}

WEFT_I_BACK void weft_i_given_note(const weft_group *group, uint64_t what, uint64_t count)
{
    weft_i_given *mine = given_of(group, group->rank);
    uint64_t calls = atomic_load_explicit(&mine->calls, memory_order_relaxed); /* our own word */
    size_t at = calls % WEFT_I_GIVEN_CALLS;
    atomic_store_explicit(&mine->what[at], what, memory_order_relaxed);
    atomic_store_explicit(&mine->count[at], count, memory_order_relaxed);
    atomic_store_explicit(&mine->entries, entries_called(group), memory_order_relaxed);
    /* Pairs with the acquire in weft_i_given_look. */
    atomic_store_explicit(&mine->calls, calls + 1, memory_order_release);
}

/* Names number `calls` + 1 of the rank, unless so many came after it that it is gone. */
static void tell_next(const weft_group *group, int rank, uint64_t calls, char *out, size_t bytes)
{
    const weft_i_given *theirs = given_of(group, rank);
    size_t at = calls % WEFT_I_GIVEN_CALLS;
    uint64_t what = atomic_load_explicit(&theirs->what[at], memory_order_relaxed);
    uint64_t count = atomic_load_explicit(&theirs->count[at], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire); /* both were read before what follows */
    uint64_t now = atomic_load_explicit(&theirs->calls, memory_order_relaxed);
    if (weft_i_lanes_table && now - calls < WEFT_I_GIVEN_CALLS)
        weft_i_lanes_table->tell_given(what, count, out, bytes);
    else
        snprintf(out, bytes, "collectives on a device");
}

/* Has the rank called number `calls` + 1 of its device before entry `turn` of the lane? */
static bool is_before(const weft_i_given *theirs, uint64_t calls, uint32_t turn)
{
    /* Pairs with the release in weft_i_given_note: what is read next is of that call, or of a later
     * one, which has no fewer entries before it. */
    if (atomic_load_explicit(&theirs->calls, memory_order_acquire) <= calls)
        return false;
    uint64_t entries = atomic_load_explicit(&theirs->entries, memory_order_relaxed);
    return entries != WEFT_I_GIVEN_UNSURE && (int32_t)(turn - (uint32_t)entries) > 0;
}

/* Does this wait keep the rank at an entry of the lane, or at the making of the lane for one?  Then
 * `*turn` is the number of the entry. */
static bool is_at_entry(const weft_i_vigil *vigil, uint32_t *turn)
{
    const weft_group *group = vigil->label->group;
    const weft_i_stay *stay = vigil->stay;
    *turn = vigil->turn;
    if (stay)
        return stay->place == WEFT_I_ON_LANE && (!stay->is_kept || stay->is_kept(stay->who));
    *turn = atomic_load_explicit(&group->calls.entries, memory_order_relaxed) +
            1; /* there is no other */
    return group->rest.lane_making.under_way && group->rest.lane_making.enters;
}

void weft_i_given_look(const weft_i_vigil *vigil, int rank)
{
    const weft_group *group = vigil->label->group;
    uint32_t turn;
    if (!group->board || !is_at_entry(vigil, &turn) ||
        atomic_load_explicit(&group->calls.replays, memory_order_relaxed))
        return;
    uint64_t calls = atomic_load_explicit(&given_of(group, group->rank)->calls,
                                          memory_order_relaxed); /* our own word */
    if (!is_before(given_of(group, rank), calls, turn) || weft_i_vigil_has_come(vigil, rank))
        return;
    char mine[WEFT_I_LABEL_BYTES], theirs[WEFT_I_LABEL_BYTES];
    weft_i_stay_tell(vigil->stay, vigil->label, mine, sizeof mine);
    tell_next(group, rank, calls, theirs, sizeof theirs);
    weft_i_quarrel_tell(group, mine, rank, theirs);
}
