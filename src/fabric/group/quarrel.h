/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A quarrel: two members of a group that wait for each other in different places, one on the board
 * (barriers, exchanges), one on the lane (collectives).  Each place alone cannot know: there the
 * other has merely not come.  So a member that has waited for a while writes into its row where it
 * is stuck and what it called.  A member that waits for it elsewhere, and is awaited there, writes
 * both calls onto the board and ends the group with WEFT_ERR_MISMATCH; all are told from
 * there.  A member may also wait by its device alone: see given.h.
 *
 * Nothing is concluded from slowness.  A rank that is stuck in meeting n of one place cannot have
 * gone on to another.  So a rank that waits elsewhere, and has seen fewer than n meetings there, has
 * called operations in a different order.  Posted work that has not run yet could still come there,
 * so a member with such work is not stuck.
 */
#ifndef WEFT_FABRIC_QUARREL_H
#define WEFT_FABRIC_QUARREL_H

#include "fabric/group/group.h"

typedef enum weft_i_stay_place { WEFT_I_ON_BOARD = 1, WEFT_I_ON_LANE } weft_i_stay_place;

/* A way to wait in one of the places; made once, since a wait is often as short as a hop. */
typedef struct weft_i_stay {
    weft_i_stay_place place;
    /* Is the rank's own thread kept by this wait?  NULL: yes. */
    bool (*is_kept)(const void *who);
    /* What was called: "all_reduce of 100 f32, sum".  NULL: the name is enough. */
    void (*tell)(const void *who, char *out, size_t bytes);
    const void *who;
} weft_i_stay;

/* A wait for the others, as its point's `lost` and `giving_up` see it. */
typedef struct weft_i_vigil {
    const weft_i_label *label;
    const weft_i_point *point;
    const weft_i_stay *stay; /* NULL: in a place of its own */
    uint32_t turn;           /* number of the meeting there */
    int64_t begin; /* of its first look, or, once it is over, of the wait; 0: no look yet */
    int64_t late;  /* of weft_i_world_is_late */
    bool wanted;   /* ended, because another rank needs the lane to be made */
} weft_i_vigil;

/* Can rank `missing` still come?  Sees quarrels too.  Without a message; WEFT_ERR_CANCELLED and
 * `wanted`: it waits for us to make the lane. */
weft_status weft_i_vigil_look(weft_i_vigil *vigil, int missing);

/* Has the rank come to our meeting after all? */
bool weft_i_vigil_has_come(const weft_i_vigil *vigil, int rank);

/* What was called by whoever waits so.  NULL: in a place of its own. */
void weft_i_stay_tell(const weft_i_stay *stay, const weft_i_label *label, char *out, size_t bytes);

/* Has the rank come and given up since the wait began? */
bool weft_i_vigil_saw_give_up(const weft_i_vigil *vigil, int rank);

/* Writes into our row that we are stuck here, unless posted work may still move us on. */
void weft_i_quarrel_settle_in(const weft_i_vigil *vigil);

/* What another host's member says of itself, onto its row here. */
void weft_i_quarrel_copy(weft_i_stuck *row, uint64_t where, const char *call);

/* The wait is over, in vain: we have come to that meeting, and may call something else now. */
void weft_i_quarrel_quit(const weft_i_vigil *vigil);

/* The wait is over. */
void weft_i_quarrel_move_on(const weft_group *group);

/* Looks whether `rank`, which has not come here, is stuck elsewhere for want of us; if so, tells
 * all. */
void weft_i_quarrel_look(const weft_i_vigil *vigil, int rank);

/*
 * While a group is made: looks whether `rank` of it, which has not come, is stuck in the group that
 * this one is made from, for want of us; if so, tells all there.  `vigil`: the wait for it on the
 * new board; NULL: there is none yet.
 */
void weft_i_quarrel_look_above(const weft_group *group, const weft_i_vigil *vigil, int rank);

/* Meanwhile: does any member of it need us to make the lane of that group?  Not one that helps
 * there on its way to this one, as we do. */
bool weft_i_quarrel_wants_lane_above(const weft_group *group);

/* Do we make the lane of this group to help on the way to another one, and nobody needs it now? */
bool weft_i_quarrel_helps_in_vain(const weft_group *group);

/* Both calls, if such a look, of any member, has ended that group since we began. */
const char *weft_i_quarrel_told_above(const weft_group *group);

/* Ends the group with both calls; the first one who tells counts. */
void weft_i_quarrel_tell(const weft_group *group, const char *mine, int rank, const char *theirs);

/* The same in words of its own, where it is not the calls that differ. */
void weft_i_quarrel_say(const weft_group *group, const char *text);

/* Both calls, once the group has ended with WEFT_ERR_MISMATCH; NULL if they are not known. */
const char *weft_i_quarrel_told(const weft_group *group);
const char *weft_i_quarrel_on(const weft_i_board *board);

/* A call of this rank is about to fail with them.  Whatever it calls after that it calls knowing
 * that the group has ended, such as weft_group_new with the group as a parent. */
void weft_i_quarrel_hear(const weft_group *group);
bool weft_i_quarrel_is_heard(const weft_group *group);

/* Has the group ended so before this rank came, which was not told yet? */
bool weft_i_quarrel_is_news(const weft_group *group);

#endif
