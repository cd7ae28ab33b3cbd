/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of agreements share: group_agree.c, on one board or in the store, and
 * group_agree_hosts.c, both. */
#ifndef WEFT_FABRIC_GROUP_AGREE_H
#define WEFT_FABRIC_GROUP_AGREE_H

#include "fabric/group/group.h"

/* What a member shows, and what a round comes to. */
typedef struct weft_i_ballot {
    uint64_t flags;
    int64_t status;       /* WEFT_OK: all took part; else the gravest fate */
    unsigned char lost[]; /* one byte for each member */
} weft_i_ballot;

typedef struct weft_i_agreeing {
    weft_group *group;
    const char *op; /* for messages */
    uint32_t round;
    int64_t deadline, limit_ms;
    weft_i_ballot *mine, *heard; /* what this rank shows, or proposes; and room for others' */
} weft_i_agreeing;

static inline size_t weft_i_ballot_bytes(const weft_group *group)
{
    return sizeof(weft_i_ballot) + (size_t)group->size;
}

/* ---- on the board ---- */

weft_i_vote *weft_i_agree_vote(const weft_i_agreeing *a, int rank);
/* Has the member come to this round?  Its flags are complete then. */
bool weft_i_agree_has_come(const weft_i_agreeing *a, int rank);
/* Shows this rank's flags, unless it did so in an earlier try. */
void weft_i_agree_show(const weft_i_agreeing *a);
uint64_t weft_i_agree_word(const weft_i_agreeing *a);
bool weft_i_agree_is_decided(uint64_t word, uint32_t round);
void weft_i_agree_ring(const weft_i_agreeing *a);
/* Takes what was decided. */
void weft_i_agree_follow(weft_i_agreeing *a);

/* ---- both ---- */

/* The gravest fate of those who are lost. */
weft_status weft_i_agree_fate(const weft_i_agreeing *a, const weft_i_ballot *b);
/* `missing` live and have not come. */
weft_status weft_i_agree_fail_late(const weft_i_agreeing *a, const unsigned char *missing);

/* ---- a group that spans hosts ---- */

weft_status weft_i_agree_between_hosts(weft_i_agreeing *a);

/* The next round of the group: `*flags` of all who take part, and in `lost`, of group->size bytes, who does
 * not.  WEFT_OK also without those. */
weft_status weft_i_agree_round(weft_group *group, const char *op, uint64_t *flags,
                               unsigned char *lost, int64_t limit_ms, weft_status *fate);

#endif
