/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signal protocol: how ranks tell each other that they have arrived.
 *
 * Meeting (barriers, exchanges).  Every rank owns one arrival word per lane and is its only writer:
 * a 32-bit epoch and a 32-bit digest of the call.  To meet, a rank stores the next epoch into its
 * own word (release) and reads the words of the others (acquire) until all show that epoch or a
 * later one.  One hop between cores.  A later epoch is fine: a rank can be at most one meeting
 * ahead.  When all have arrived and the digests of equal epochs differ, that is a mismatch; nobody
 * goes on from it.
 *
 * Giving up.  Beside its arrival word a rank has a pass word, in a line that is not read as long
 * as all goes well.  It says LOOKING before the rank reads the words of the others, and the rank
 * has gone on once it has changed that to PASSED, or found a mismatch once it has changed it to
 * MISMATCHED (compare and exchange, in its own cache).  A rank
 * that wants to give up restores its old arrival, makes every core pass a full barrier, and then
 * changes every LOOKING it finds to BARRED.  A rank that was barred looks again from the start and
 * finds the arrival missing; a rank that looks later finds it missing too.  So none goes on after
 * that; and if one has gone on before, that shows in a pass word, everybody who wants to give
 * up finds it there, and the meeting has succeeded after all.  A meeting succeeds for all or for
 * none, and may be tried again.
 *
 * One way.  Where data goes from one rank to others, or to one, not every rank has to wait for
 * every other: a rank that only gives arrives and goes on, a rank that only takes waits for the
 * giver. A rank that has gone on so knows nothing of the others, and says in its pass word, when it
 * looks next, up to which meeting it does know that all had arrived.  A rank that gives and goes on never
 * takes its arrival back.  Epochs count on; words by turns keep what was written beside them until
 * all have arrived later, which the writer makes sure of before it comes round to the same word.
 *
 * Operations of several meetings.  A rank may give up between them, and try the operation again,
 * while another one still waits in a later meeting.  The digests of later meetings are odd: a rank that
 * sees an even one there knows that the other has started anew, and gives up too; one that sees an odd
 * one where it starts anew waits for that to happen.
 *
 * Semaphores (put and wait).  A word is 0 or 1: put changes 0 to 1 (release), take changes 1 to 0
 * (acquire).
 */
#ifndef WEFT_BASE_SIGNAL_H
#define WEFT_BASE_SIGNAL_H

#include "base/share/wait.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two cache lines: neighbouring lines are fetched in pairs on x86, and some Arm cores have lines of
 * 128 bytes. */
enum { WEFT_I_LINE = 128 };

struct weft_i_meeting;
struct weft_i_point;

/*
 * Members on other hosts.  Each host has words and passes of its own, where the words of members
 * elsewhere are copies, written by a member there from what they send.  Their pass words are not.
 */
typedef struct weft_i_far {
    const unsigned char *away; /* by rank: 1: on another host */
    /* Our word was put back: the other hosts' copies too. */
    void (*told)(const struct weft_i_point *point, const struct weft_i_meeting *meeting);
    /* Takes it back there, bars whoever looks there, and says what weft_i_signal_bar does. */
    weft_status (*bar)(const struct weft_i_point *point, struct weft_i_meeting *meeting);
    const weft_i_wheel *wheel;
    bool alone; /* on this host: nobody rings a bell */
} weft_i_far;

/* A place to meet: one lane of arrival and pass words, and the bells of those who sleep. */
typedef struct weft_i_point {
    int me, size;
    char *words, *passes, *bells; /* of rank 0 */
    size_t stride;                /* to the next rank's */
    /*
     * Not 0: several words per rank by turns of the epoch, this far apart; then something may be
     * written beside a word before it is stored, and stays until everybody has read it.  The epoch
     * is the caller's to count.
     */
    size_t turn_stride;
    uint32_t turns;   /* a power of two */
    uint32_t epoch;   /* of the last meeting, with turns */
    uint32_t settled; /* the last one at which all are known to have arrived, with turns */
    int whom;         /* 0: all are waited for; otherwise only rank `whom` - 1 */
    bool later;       /* not the first meeting of its operation */
    weft_i_wait_mode mode;
    int looks; /* at others before this rank gives its core away, where they share cores; 0: one */
    uint32_t tag;          /* told apart by stamps, where several points share a word */
    const weft_i_far *far; /* members on other hosts; NULL: none */
    weft_status (*lost)(void *arg, uint64_t missing); /* can rank `missing` still come? */
    void (*giving_up)(void *arg); /* called before the arrival is taken back; may be NULL */
    char *gave_up; /* of rank 0: when it last gave up, for messages (weft_i_stamp); may be NULL */
    void *arg;
} weft_i_point;

static inline _Atomic uint64_t *weft_i_point_word(const weft_i_point *point, int rank)
{
    return (_Atomic uint64_t *)(void *)(point->words + (size_t)rank * point->stride);
}

/* The word of a rank in the meeting `epoch`. */
static inline _Atomic uint64_t *weft_i_point_turn(const weft_i_point *point, int rank,
                                                  uint32_t epoch)
{
    uint32_t turn = point->turn_stride ? epoch & (point->turns - 1) : 0;
    return weft_i_point_word(point, rank) + turn * (point->turn_stride / sizeof(uint64_t));
}

static inline _Atomic uint64_t *weft_i_point_pass(const weft_i_point *point, int rank)
{
    return (_Atomic uint64_t *)(void *)(point->passes + (size_t)rank * point->stride);
}

static inline _Atomic uint32_t *weft_i_point_bell(const weft_i_point *point, int rank)
{
    return (_Atomic uint32_t *)(void *)(point->bells + (size_t)rank * point->stride);
}

/* When the rank last took an arrival back; relaxed, as the arrival that it put back brings it. */
static inline _Atomic uint64_t *weft_i_point_gave_up(const weft_i_point *point, int rank)
{
    return (_Atomic uint64_t *)(void *)(point->gave_up + (size_t)rank * point->stride);
}

static inline uint32_t weft_i_arrival_epoch(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline uint32_t weft_i_arrival_digest(uint64_t word)
{
    return (uint32_t)word;
}

/* Epochs wrap around; a rank is never half a circle ahead of another. */
static inline bool weft_i_arrived(uint64_t word, uint32_t epoch)
{
    return (int32_t)(weft_i_arrival_epoch(word) - epoch) >= 0;
}

/* When a rank gave up, in units of 1,024 ns, and at which of the points that share the word. */
static inline uint64_t weft_i_stamp(int64_t now_ns, uint32_t tag)
{
    return (uint64_t)now_ns >> 10 << 16 | (tag & 0xffff);
}

typedef struct weft_i_meeting {
    uint32_t epoch, digest;
    int culprit;     /* the first rank that is missing or called something else; -1 */
    uint64_t before; /* our word, should we take the arrival back */
    uint64_t pass;   /* our pass word while we look */
    int64_t began;   /* the wait for it, by weft_i_signal_await; 0: that was short */
} weft_i_meeting;

/*
 * Arrives and waits for all.  WEFT_OK; WEFT_ERR_TIMEOUT (`culprit` is missing) and
 * WEFT_ERR_CANCELLED (`culprit` has given this operation up and started anew): the arrival is taken
 * back, no message; WEFT_ERR_MISMATCH (`culprit` called something else, no message), now and for
 * ever; or what `lost` said, arrival taken back.
 */
weft_status weft_i_signal_meet(const weft_i_point *point, uint32_t digest, int64_t timeout_ms,
                               weft_i_meeting *meeting);

/*
 * The same in two steps: what is done in between costs no time, as it takes a hop until others can
 * be seen here.  The second must follow the first if that said WEFT_OK; it says WEFT_ERR_MISMATCH
 * after an earlier one.
 */
weft_status weft_i_signal_come(const weft_i_point *point, uint32_t digest, weft_i_meeting *meeting);
weft_status weft_i_signal_await(const weft_i_point *point, int64_t timeout_ms,
                                weft_i_meeting *meeting);

/* Between the two: looks for as long as most meetings take.  WEFT_OK or WEFT_ERR_MISMATCH: that was
 * all.  WEFT_IN_PROGRESS: the second must follow; what that needs to know of a long wait need not
 * be there before. */
weft_status weft_i_signal_look(const weft_i_point *point, weft_i_meeting *meeting);

/* Arrives and goes on, on points with turns: never waits, never fails. */
void weft_i_signal_arrive(const weft_i_point *point, uint32_t digest);

/* Waits until all have arrived at `epoch`, whatever they called.  `culprit` is who never will. */
weft_status weft_i_signal_settle(const weft_i_point *point, uint32_t epoch, int64_t timeout_ms,
                                 int *culprit);

/*
 * What a rank does that gives up, once its arrival is taken back and all cores have passed a barrier:
 * bars everybody on this host who is looking at `epoch`, but for rank `but` (-1: nobody).  WEFT_OK if
 * somebody has gone on already, WEFT_ERR_MISMATCH if somebody has found a mismatch, `*who` in both,
 * unless it names one already; else WEFT_IN_PROGRESS.  `digest` is of the call; with turns, who went on
 * from `epoch` with another one does not count.
 */
weft_status weft_i_signal_bar(const weft_i_point *point, uint32_t epoch, uint32_t digest, int but,
                              int *who);

/* Did the rank with this pass word go on from `epoch`? */
bool weft_i_signal_has_gone_on(uint64_t pass, uint32_t epoch);

/* Have all arrived at `epoch`, which must be one of the last `turns`? */
bool weft_i_signal_is_settled(const weft_i_point *point, uint32_t epoch);

/* Rings the bells of all others; called after a store that somebody may wait for. */
void weft_i_signal_ring(const weft_i_point *point);

/* Semaphore: 0 -> 1.  The release pairs with the acquire of weft_i_signal_take. */
static inline bool weft_i_signal_put(_Atomic uint32_t *word)
{
    uint32_t empty = 0;
    return atomic_compare_exchange_strong_explicit(word, &empty, 1, memory_order_release,
                                                   memory_order_relaxed);
}

/* Semaphore: 1 -> 0.  The acquire pairs with the release of weft_i_signal_put; the next put sees
 * the word empty. */
static inline bool weft_i_signal_take(_Atomic uint32_t *word)
{
    uint32_t full = 1;
    return atomic_compare_exchange_strong_explicit(word, &full, 0, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* A short digest of what a call is, so that ranks notice when they call different things. */
static inline uint32_t weft_i_digest(uint32_t digest, uint64_t value)
{
    uint64_t mixed = (digest ^ value) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(mixed >> 32) ^ (uint32_t)mixed;
}

#endif
