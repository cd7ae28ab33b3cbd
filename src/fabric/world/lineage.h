/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's lineage: the groups it was made from, the oldest first.  A revoke of one of them
 * ends this group as well, also while it is being made.  A group that shrinking has made takes the
 * place of the old one, so it has the old one's elders but not the old one itself.
 */
#ifndef WEFT_FABRIC_LINEAGE_H
#define WEFT_FABRIC_LINEAGE_H

#include "fabric/world/board.h"
#include "weft/status.h"

typedef struct weft_i_elder {
    weft_i_board *board;     /* NULL: its members are on several hosts, the store tells */
    weft_i_segment *segment; /* that holds the board; held.  NULL: the job's page */
    weft_i_key key;
    char name[64];
} weft_i_elder;

typedef struct weft_i_lineage {
    weft_i_elder *elders;
    int count;
} weft_i_lineage;

/* The lineage of a group whose youngest elder is `last`; without it, a copy of `old`. */
weft_status weft_i_lineage_new(const weft_i_lineage *old, const weft_i_elder *last,
                               weft_i_lineage *out);
void weft_i_lineage_free(weft_i_lineage *lineage);

static inline bool weft_i_board_is_recalled(const weft_i_board *board)
{
    /* Pairs with the release in weft_group_revoke. */
    return board && atomic_load_explicit(&board->recalled, memory_order_acquire) != 0;
}

/* The oldest elder that was revoked; NULL: none. */
static inline const weft_i_elder *weft_i_lineage_recalled(const weft_i_lineage *lineage)
{
    for (int i = 0; i < lineage->count; i++)
        if (weft_i_board_is_recalled(lineage->elders[i].board))
            return &lineage->elders[i];
    return NULL;
}

#endif
