/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of lifeline.h share.  Everything but `told` belongs to the thread once it runs. */
#ifndef WEFT_FABRIC_LIFELINE_PARTS_H
#define WEFT_FABRIC_LIFELINE_PARTS_H

#include "lifeline.h"
#include "lifeline_link.h"

#include <pthread.h>

enum { WEFT_I_LIFE_TICK_MS = 100, WEFT_I_LIFE_HASTE_MS = 10, WEFT_I_LIFE_STRANGERS = 32 };

typedef struct weft_i_life_host {
    int count;
    const int *members; /* ranks, the least first */
    weft_i_life_link link;
    int contact; /* the rank that is asked; -1: nobody yet */
    int64_t
        heard; /* when anything last came from there, its kernel's answers included; 0: not asked yet */
    int64_t dial_at; /* not before */
    int64_t beat_at; /* when it is asked next */
    int64_t asked;   /* when the oldest question was put that is not answered; 0: all are */
    int questions;   /* not answered */
    uint64_t number; /* of the last question */
} weft_i_life_host;

/* What was noticed of a rank. */
typedef struct weft_i_life_rank {
    weft_i_life_news *told; /* NULL: nothing.  Under the lock */
    bool mute;              /* it does not answer, though its host does; under the lock */
    bool refused;           /* nobody listens in its place */
    int host;
    char address[WEFT_I_LIFELINE_ADDRESS];
} weft_i_life_rank;

struct weft_i_lifeline {
    weft_i_life_self self;
    weft_i_world *world;
    pthread_mutex_t lock; /* guards what is told, against callers that compose messages */
    weft_i_life_rank *rank;
    int hosts, mine;
    weft_i_life_host *host;
    int *numbers;         /* that hosts' members point into */
    weft_i_life_link *in; /* accepted */
    int in_most;
    int listener, wake;
    int *
        process; /* by rank: a descriptor of the process on this host, whose end wakes us; negative: none */
    struct pollfd *polled;
    bool outcast; /* the others have taken this host for dead */
    bool guards;  /* this rank is the guard of its host */
    int64_t beat_ns, silence_ns, round_at;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;   /* release by whoever ends it, acquire by the thread */
    atomic_bool urgent; /* relaxed: the eventfd follows; all hosts are asked at once */
};

/* ---- lifeline_news.c ---- */

/* Takes news that came by `from` (NULL: of our own) and passes them on. */
void weft_i_life_learn(weft_i_lifeline *life, const weft_i_life_news *news,
                       const weft_i_life_link *from);
/* Tells whoever is new all that is known. */
void weft_i_life_tell_all(weft_i_lifeline *life, weft_i_life_link *link);
/* Looks at what is known of all ranks without their help; who is the guard of this host. */
int weft_i_life_look(weft_i_lifeline *life);
void weft_i_life_mark_dead(weft_i_lifeline *life, int rank, const char *text);
void weft_i_life_set_mute(weft_i_lifeline *life, int rank, bool mute);
bool weft_i_life_lives(const weft_i_lifeline *life, int rank);
bool weft_i_life_is_stopped(weft_i_lifeline *life, int rank);

/* ---- lifeline_hosts.c ---- */

/* Keeps up the connections that this rank dials, asks, and judges who is silent.  How long the thread may
 * sleep then, in ms. */
int weft_i_life_tend(weft_i_lifeline *life, int guard, int64_t now);
/* What the socket of a host's connection says. */
void weft_i_life_host_moves(weft_i_lifeline *life, weft_i_life_host *host, short revents,
                            int64_t now);

#endif
