/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group that spans hosts, where its world has a transport (world/remote.h).
 *
 * Each host has a board of its own, in memory that the members there share, with a row for every member
 * of the group.  The rows of members elsewhere are copies.  What a rank says to a host goes to its
 * partner there, the member of the same place among those of its host, who writes the copy; so a
 * row has one writer.  The protocol of base/share/signal.h runs on each board as on that of one host:
 * arriving also sends an ARRIVE to each other host, giving up asks each of them by a BAR.
 *
 * Rail k of a group are the members that are the k-th on their host.
 */
#ifndef WEFT_FABRIC_HOSTS_H
#define WEFT_FABRIC_HOSTS_H

#include "fabric/group/exchange.h"
#include "fabric/group/hosts_news.h"
#include "fabric/world/remote.h"

/* Where members meet on their boards.  Exchanges and barriers are on the first; the second, where groups of one
 * host make their lane, is the collectives' own. */
typedef enum weft_i_hosts_place {
    WEFT_I_HOSTS_BOARD,
    WEFT_I_HOSTS_LANE,
    WEFT_I_HOSTS_PLACES,
    WEFT_I_HOSTS_PADS = WEFT_I_HOSTS_PLACES, /* of symmetric memory: many, see hosts_pads.h */
    WEFT_I_HOSTS_ALL_PLACES
} weft_i_hosts_place;

typedef struct weft_i_host {
    int count;
    const int *members; /* in the group, the least first */
} weft_i_host;

/* What others have answered to a BAR; under the remote's lock. */
typedef struct weft_i_hosts_bar {
    uint32_t serial, epoch;
    uint64_t before;
    weft_status found;
    int who;
    int *asked; /* by host: the member that was asked; -1: nobody is left; -2: it has answered */
} weft_i_hosts_bar;

struct weft_i_hosts;
typedef struct weft_i_hosts_far {
    weft_i_far far; /* first: signal.h knows this part */
    struct weft_i_hosts *hosts;
    weft_i_hosts_place place;
    uint32_t serial, channel; /* on pads */
} weft_i_hosts_far;

typedef struct weft_i_hosts {
    int count; /* of hosts, in the order of their first members */
    int mine;  /* this rank's */
    int index; /* of this rank among the members of its host */
    int rails; /* the least number of members on a host */
    weft_i_host *host;
    int *host_of, *index_of; /* by member */
    unsigned char *away;     /* by member: 1: on another host */
    weft_group *near;        /* the members of this host, in their order; held */
    uint64_t tag;            /* the group's, in heads */
    /* What is below is of hosts*.c. */
    weft_group *group; /* whose this is */
    struct weft_i_hosts *next;
    weft_i_hosts_far far[WEFT_I_HOSTS_PLACES];
    weft_i_hosts_bar bar[WEFT_I_HOSTS_ALL_PLACES];
    size_t shown[WEFT_I_HOSTS_PLACES][2]; /* bytes of our notes, by parity of the epoch */
    int *route;                           /* by host: our partner there */
    int *member_of;                       /* by rank of the world; -1: no member */
    int *numbers;                         /* that the above point into */
    void *letters; /* what takes messages of send (coll/p2p); under the remote's lock */
    /* Of symmetric memory (hosts_pads.h): */
    struct weft_i_hosts_pads *pads; /* under the remote's lock */
    struct weft_i_hosts_put *puts;  /* by member; NULL: there was no such memory yet */
    _Atomic int
        unsettled; /* members that have not applied all that was put to them; relaxed: changed
                              under the remote's lock */
    pthread_mutex_t barring; /* one rank gives a meeting on pads up at a time */
    int64_t cared_at;        /* when partners were looked after */
} weft_i_hosts;

/* ---- messages between members on different hosts ---- */

/* At most a segment of data, which is copied. */
weft_status weft_i_hosts_tell(const weft_group *group, int member, weft_i_head_kind kind,
                              const uint32_t word[WEFT_I_HEAD_WORDS], const void *data,
                              size_t bytes);
/* From memory that stays until `sent` is done. */
weft_status weft_i_hosts_send(const weft_group *group, int member, weft_i_head_kind kind,
                              const uint32_t word[WEFT_I_HEAD_WORDS], const void *data,
                              size_t bytes, weft_i_sent *sent);

/* Takes the messages of a kind, in whichever thread drives: remote.h.  False: not yet; the message is
 * kept, with those of such kinds that follow from this member, until weft_i_hosts_again.  From a
 * constructor. */
typedef bool weft_i_hosts_take(weft_group *group, int from, const weft_i_head *head,
                               const void *data, size_t bytes);
void weft_i_hosts_on(weft_i_head_kind kind, weft_i_hosts_take *take);
void weft_i_hosts_again(const weft_group *group);

/*
 * Waits until `ready` for what comes from member `whom`, driving the wire.  Looks at its life, at
 * whether the group lasts, and at the limit; with a message.
 */
weft_status weft_i_hosts_wait(const weft_i_label *label, bool (*ready)(void *arg), void *arg,
                              int whom, int64_t timeout_ms);

/* The same for what comes from several members.  The death of any member ends it, as then the whole
 * operation fails; one that has left does only if something is `owed` by it. */
weft_status weft_i_hosts_wait_for_owed(const weft_i_label *label, bool (*ready)(void *arg),
                                       bool (*owed)(void *arg, int member), void *arg,
                                       int64_t timeout_ms);

/* ---- meeting ---- */

weft_i_point weft_i_hosts_point(const weft_group *group, weft_i_hosts_place place, bool later);

/* Arrives with a note: of at most WEFT_I_NOTE_BYTES, or, for collectives, WEFT_I_LANE_NOTE_BYTES.  As
 * weft_i_signal_come. */
weft_status weft_i_hosts_come(weft_group *group, weft_i_point *point, uint32_t digest,
                              const void *note, size_t bytes, weft_i_meeting *meeting);
/* As weft_i_group_await; afterwards the notes of all are there. */
weft_status weft_i_hosts_await(const weft_i_label *label, weft_i_point *point,
                               const struct weft_i_stay *stay, int64_t timeout_ms,
                               weft_i_meeting *meeting);
/* The note of a member, with which it came to a meeting that has succeeded, or, after a mismatch, to this
 * one: until the next but one. */
static inline const void *weft_i_hosts_note(const weft_group *group, weft_i_hosts_place place,
                                            int member, uint32_t epoch)
{
    const weft_i_board_row *row = &group->board->row[member];
    return place == WEFT_I_HOSTS_LANE ? row->lane_note[epoch & 1] : row->note[epoch & 1];
}

/* Has the member come to that meeting?  Then its note is there. */
bool weft_i_hosts_has_come(const weft_group *group, weft_i_hosts_place place, int member,
                           uint32_t epoch);

weft_status weft_i_exchange_hosts(const weft_i_label *label, weft_group *group, uint32_t digest,
                                  bool later, const void *mine, size_t bytes, char *all,
                                  int64_t timeout_ms);

/* ---- its beginning and end ---- */

/* Makes the part of a group that spans hosts: the members of this host meet, and share a board.  The
 * group has its key.  `again`: an earlier try has failed, so that others may have come already. */
weft_status weft_i_hosts_open(weft_group *group, weft_group *parent, bool again, int64_t deadline);
/* Messages are no more for this group; before anything goes that they are taken into. */
void weft_i_hosts_end(weft_i_hosts *hosts);
void weft_i_hosts_free(weft_i_hosts *hosts);
/* The same for the world, which has met through the store. */
weft_status weft_i_hosts_open_world(weft_group *world, int64_t deadline);

/* This rank will be no member of the group with this key, which it cannot even begin to make. */
void weft_i_hosts_refuse(weft_i_world *world, weft_i_key key, int member_world_rank, int rank,
                         weft_status why);

/* While a member is missing (-1: any): hears who has gone, and takes the place of a partner that has died. */
void weft_i_hosts_look(const weft_group *group, int missing);
/* Who has left may have done so because another one has died. */
void weft_i_hosts_hear(weft_i_world *world);

/* ---- for hosts*.c ---- */

enum {
    WEFT_I_HOSTS_OP_BYTES = 32, /* before a note on the board */
    WEFT_I_HOSTS_WORD_BITS = 8  /* of a place, in a head's first word */
};

/* Asks every other host for what a member has shown last, which it may not be able to say itself any more. */
void weft_i_hosts_ask_all(const weft_group *group, weft_i_hosts_place place, int member);

void weft_i_hosts_answer_bar(weft_i_world *world, int to, const weft_i_head *asked,
                             weft_status found, int who);
bool weft_i_hosts_take_barred(weft_group *group, int from, const weft_i_head *head,
                              const void *data, size_t bytes);
weft_status weft_i_hosts_bar_all(const weft_i_point *point, weft_i_meeting *meeting);
void weft_i_hosts_send_arrival(const weft_i_point *point, const weft_i_meeting *meeting);
/* Whom this rank talks to on a host; -1: nobody lives there. */
int weft_i_hosts_partner(const weft_i_hosts *hosts, int host);
/* The same before something is sent there: a new one has been told what came before it. */
int weft_i_hosts_meet_partner(weft_i_hosts *hosts, int host);
/* From now on messages for the group are its own; those that came before are delivered. */
void weft_i_hosts_join(weft_i_hosts *hosts);
void weft_i_hosts_leave(weft_i_hosts *hosts);
weft_i_hosts *weft_i_hosts_find(weft_i_world *world, uint64_t tag);
static inline uint64_t weft_i_hosts_tag(weft_i_key key)
{
    return key.word[1] ? key.word[1] : 1; /* 0 is the world's own */
}
/* A member's words and notes at a place. */
_Atomic uint64_t *weft_i_hosts_word(const weft_group *group, weft_i_hosts_place place, int member);
/* Sends what a member of this host shows at a place, its last two notes with it. */
void weft_i_hosts_repeat(const weft_group *group, int to, weft_i_hosts_place place, int member);
/* The same of all places on pads where this rank has arrived.  Under the remote's lock. */
void weft_i_hosts_pads_repeat(const weft_i_hosts *hosts, int to);
/* The group goes. */
void weft_i_hosts_pads_forget(weft_i_hosts *hosts);

#endif
