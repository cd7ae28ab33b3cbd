/* SPDX-License-Identifier: Apache-2.0 */
/* What remote.c and remote_drive.c share. */
#ifndef WEFT_FABRIC_REMOTE_WIRE_H
#define WEFT_FABRIC_REMOTE_WIRE_H

#include "pair.h"

#include <pthread.h>

struct weft_i_remote {
    weft_i_world *world; /* whose it is */
    const weft_i_transport *table;
    void *wire;           /* NULL once it is closed */
    pthread_mutex_t lock; /* recursive: guards all that has no word of its own here */
    size_t segment;
    bool started;
    bool
        shut; /* the program has closed the wire's descriptors: the library behind it would abort */
    uint8_t secret[WEFT_I_KEYED_BYTES];
    unsigned char nonce[WEFT_I_PAIR_NONCE];
    struct {
        bool there; /* on another host, and known */
        unsigned char nonce[WEFT_I_PAIR_NONCE];
    } * known;           /* by rank */
    weft_i_pair **pairs; /* by rank; NULL: neither has written yet */
    int under_way;       /* copies that the wire still has */
    uint64_t strays;
    void *groups; /* of group/hosts.c */
    /* Who drives: */
    weft_i_wheel wheel;
    int door;
    pthread_t thread;
    bool has_thread;
    int wake;             /* an eventfd: ends the thread's sleep at the door */
    atomic_bool stop;     /* release by whoever ends it, acquire by the thread */
    atomic_uint turns;    /* by callers; relaxed: a hint to the thread */
    atomic_int resting;   /* callers that sleep at their bells; relaxed: a hint */
    _Atomic uint32_t nap; /* counted up to end the thread's rest; relaxed */
};

void weft_i_remote_make_lock(weft_i_remote *remote);
weft_status weft_i_remote_start_thread(weft_i_remote *remote);
void weft_i_remote_stop_thread(weft_i_remote *remote);
bool weft_i_remote_is_shut(weft_i_remote *remote); /* looks */

#endif
