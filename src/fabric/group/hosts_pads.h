/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a group that spans hosts has of its symmetric memory (symm/remote.h).
 *
 * Points to meet at, one for each channel of each registration.  As the group's board they lie in memory
 * that the members of a host share, with copies of the arrivals of members elsewhere, which their partners
 * write (hosts.h).  An arrival goes out as a POINT; giving up asks by a POINT_BAR.
 *
 * And counts of what was put into memory of members elsewhere, piece by piece, signals included.  A member
 * that arrives anywhere in the group first waits until all its pieces are applied: a rank that sees the arrival
 * sees them.  One that signals a member waits for the data that it has put to others.
 */
#ifndef WEFT_FABRIC_HOSTS_PADS_H
#define WEFT_FABRIC_HOSTS_PADS_H

#include "fabric/group/hosts.h"

enum { WEFT_I_HOSTS_PADS_BYTES = 8 }; /* of a name of a point: serial and channel */

typedef struct weft_i_hosts_pads {
    struct weft_i_hosts_pads *next;
    weft_i_hosts *hosts; /* NULL: the group has gone */
    unsigned generation; /* of forks */
    uint32_t serial;     /* of the registration, equal on all members */
    int channels;
    weft_i_point first; /* of channel 0; those of the next are a word further on */
} weft_i_hosts_pads;

/* From now on messages for these points are taken.  All members do it before any of them arrives there. */
weft_status weft_i_hosts_pads_join(weft_group *group, weft_i_hosts_pads *pads);
/* Afterwards nobody looks at them; whether or not the group is still there, or they had joined. */
void weft_i_hosts_pads_leave(weft_i_hosts_pads *pads);

/* Under the remote's lock. */
weft_i_hosts_pads *weft_i_hosts_pads_find(const weft_group *group, uint32_t serial);

weft_i_point weft_i_hosts_pads_point(const weft_i_hosts_pads *pads, int channel);

/* As weft_i_group_meet. */
weft_status weft_i_hosts_pads_meet(const weft_i_label *label, const weft_i_hosts_pads *pads,
                                   uint32_t digest, int64_t timeout_ms, weft_i_meeting *meeting);

/* ---- puts: hosts_puts.c ---- */

/* Of one member elsewhere; under the remote's lock. */
typedef struct weft_i_hosts_put {
    uint32_t sent, applied; /* pieces to it; those that it is known to have applied */
    uint32_t data;          /* up to the last one that was no mere signal */
    uint32_t asked;         /* up to which it will tell that */
    uint32_t came, told;    /* pieces of it; those that it was told of */
} weft_i_hosts_put;

enum { WEFT_I_HOSTS_PUTS = 16 }; /* pieces on their way to a member, at most */

/* Under the remote's lock: is there room for a piece; one has been sent; so many were applied; pieces of a
 * member were applied, which is to be told at once, or when it has sent some more. */
bool weft_i_hosts_put_has_room(const weft_i_hosts *hosts, int member);
void weft_i_hosts_put_sent(weft_i_hosts *hosts, int member, bool has_data, bool asks);
void weft_i_hosts_put_applied(weft_i_hosts *hosts, int member, uint32_t count);
void weft_i_hosts_put_came(weft_i_hosts *hosts, int member, bool tell);
/* How many, for a message that tells it on its way. */
uint32_t weft_i_hosts_put_tell(weft_i_hosts *hosts, int member);

/* Waits until all pieces are applied; or, where `but` is a member, all data of the others.  Of those who are
 * lost nobody will see them. */
enum { WEFT_I_HOSTS_PUT_TO_ALL = -1 };
weft_status weft_i_hosts_settle_slowly(const weft_i_label *label, int but, int64_t timeout_ms);

static inline bool weft_i_hosts_is_unsettled(weft_i_hosts *hosts)
{
    /* Relaxed: what this thread has put it has counted itself. */
    return hosts && atomic_load_explicit(&hosts->unsettled, memory_order_relaxed);
}

static inline weft_status weft_i_hosts_settle(const weft_i_label *label, int but,
                                              int64_t timeout_ms)
{
    return weft_i_hosts_is_unsettled(label->group->hosts)
               ? weft_i_hosts_settle_slowly(label, but, timeout_ms)
               : WEFT_OK;
}

/* ---- for hosts*.c ---- */

void weft_i_hosts_pads_name(const weft_i_hosts_far *far,
                            unsigned char out[WEFT_I_HOSTS_PADS_BYTES]);
#endif
