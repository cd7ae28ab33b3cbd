/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lifeline: a plain TCP connection whose both ends have proved that they know the job's secret.  The
 * dialler says HELLO with a fresh nonce and a first proof, the other answers WELCOME with a nonce of its
 * own and a proof over both; what follows is signed with keys of these two nonces, so that nothing can be
 * repeated, changed or sent back.  Framing is that of the store's connections (store/link.h).  Nothing here
 * waits.
 */
#ifndef WEFT_FABRIC_LIFELINE_LINK_H
#define WEFT_FABRIC_LIFELINE_LINK_H

#include "base/share/segment.h"
#include "store/address.h"
#include "store/link.h"

enum {
    WEFT_I_LIFE_NONCE = 16,
    WEFT_I_LIFE_TEXT = 200,
    WEFT_I_LIFE_STRANGER_BYTES = 256 /* read buffer of one that has proved nothing */
};

/* Who we are, for all lifelines of a rank. */
typedef struct weft_i_life_self {
    uint8_t key[WEFT_I_KEYED_BYTES];
    weft_i_key job;
    int rank, ranks;
    int silence_ms;
} weft_i_life_self;

typedef enum weft_i_life_stage {
    WEFT_I_LIFE_CLOSED,
    WEFT_I_LIFE_CONNECTING, /* dialled */
    WEFT_I_LIFE_GREETING,   /* dialled: HELLO is said, WELCOME is to come */
    WEFT_I_LIFE_LISTENING,  /* accepted: HELLO is to come */
    WEFT_I_LIFE_PROVING,    /* accepted: a HELLO may be a repeated one, a signed frame is not */
    WEFT_I_LIFE_OPEN
} weft_i_life_stage;

typedef enum weft_i_life_end {
    WEFT_I_LIFE_GOES_ON,
    WEFT_I_LIFE_BROKE,  /* ended, or never came about; may be tried again */
    WEFT_I_LIFE_REFUSED /* nobody of this job listens there */
} weft_i_life_end;

typedef struct weft_i_life_link {
    weft_i_life_stage stage;
    weft_i_store_link line;
    int rank; /* at the other end; -1: not known yet */
    bool dialled;
    int64_t since;              /* when the stage began */
    weft_i_store_address where; /* dialled: whom */
    uint8_t nonce[WEFT_I_LIFE_NONCE], other[WEFT_I_LIFE_NONCE];
} weft_i_life_link;

typedef enum weft_i_life_kind {
    WEFT_I_LIFE_HELLO = 1,
    WEFT_I_LIFE_WELCOME,
    WEFT_I_LIFE_PING, /* a number */
    WEFT_I_LIFE_PONG, /* the same */
    WEFT_I_LIFE_NEWS  /* of a rank */
} weft_i_life_kind;

/* What is told of a rank. */
typedef struct weft_i_life_news {
    int rank;
    int fate;        /* a weft_i_fate */
    bool stopped;    /* of one that lives */
    uint64_t serial; /* of one that lives: how often it has shown life; later news count */
    char text[WEFT_I_LIFE_TEXT];
} weft_i_life_news;

void weft_i_life_self_set(weft_i_life_self *self, const uint8_t secret[WEFT_I_KEYED_BYTES],
                          weft_i_key job, int rank, int ranks, int silence_ms);

/* Begins to connect.  REFUSED, or BROKE if no socket can be made. */
weft_i_life_end weft_i_life_dial(weft_i_life_link *link, const weft_i_life_self *self, int rank,
                                 const char *address);
/* Takes over a socket that was accepted. */
void weft_i_life_accept(weft_i_life_link *link, const weft_i_life_self *self, int fd);
void weft_i_life_close(weft_i_life_link *link);

/* For poll. */
short weft_i_life_events(const weft_i_life_link *link);
/* What the socket has to say: `revents` of poll. */
weft_i_life_end weft_i_life_move(weft_i_life_link *link, const weft_i_life_self *self,
                                 short revents);

typedef struct weft_i_life_said {
    weft_i_life_kind kind;
    uint64_t number;       /* of a PING or PONG */
    weft_i_life_news news; /* of NEWS */
} weft_i_life_said;

/* 1: `out` is what the other says next; 0: nothing yet; negative: it broke the rules. */
int weft_i_life_next(weft_i_life_link *link, const weft_i_life_self *self, weft_i_life_said *out);

/* Queue and send what the kernel takes.  What cannot be sent shows as the end of the connection. */
void weft_i_life_say_number(weft_i_life_link *link, weft_i_life_kind kind, uint64_t number);
void weft_i_life_say_news(weft_i_life_link *link, const weft_i_life_news *news);

/* How long ago the other host's kernel last acknowledged something, in ns; -1: not known.  `*settled`: it
 * has acknowledged all that we have said. */
int64_t weft_i_life_quiet_ns(const weft_i_life_link *link, bool *settled);

#endif
