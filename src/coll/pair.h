/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point to point from the inside: a send or receive is a letter, letters that are posted together a
 * bundle, and what a rank knows of the letters and boxes between it and the others its mail.
 * pair.c has the letters' lives, pair_send.c and pair_recv.c move their bytes, pair_call.c has the
 * public functions.
 */
#ifndef WEFT_COLL_PAIR_H
#define WEFT_COLL_PAIR_H

#include "coll/call.h"
#include "weft/pair.h"

typedef struct weft_i_bundle weft_i_bundle;

struct weft_i_letter {
    weft_group *group;
    weft_i_lane *lane;
    weft_i_coll_kind kind; /* WEFT_I_SEND or WEFT_I_RECV */
    weft_dtype dtype;
    int peer;   /* WEFT_ANY: the first that comes */
    int source; /* of a receive that has met its message; -1 */
    int tag;
    uint32_t digest; /* of dtype and count: the same at both ends */
    char *data;
    size_t bytes, done;
    weft_tensor *tensor; /* held while posted */
    int64_t limit_ms;
    int64_t deadline;       /* of work that nobody waits for any more; 0: somebody may */
    uint64_t order;         /* of posting */
    uint32_t offer;         /* its number in the box */
    bool offered;           /* a send: its offer stands */
    bool doomed;            /* found hopeless; ends unless it arrives now */
    bool begun;             /* bytes have moved, and the peer counts on the others */
    _Atomic int32_t status; /* WEFT_IN_PROGRESS until it is over: release by whoever ends it,
                               acquire by whoever waits for it */
    char *message;          /* why it failed; NULL: no memory for it */
    weft_i_bundle *bundle;
    weft_i_letter *next;
};

/* Letters posted together; one handle is about them all. */
struct weft_i_bundle {
    weft_i_object *owner; /* posted work, held while letters are under way; NULL: on a stack */
    int count, left;      /* letters; those under way, guarded by the lock of letters */
    weft_i_letter *letters;
    weft_i_bundle *next; /* among orphans */
};

/* A message that came before its receive and had to make way for another. */
typedef struct weft_i_kept {
    struct weft_i_kept *next;
    uint64_t bytes, done;
    uint32_t digest;
    int tag;
    bool offered;
    weft_i_sheet_piece offer; /* where it lies, if it is offered */
    char data[];
} weft_i_kept;

/* What this rank knows of one other: guarded by the lock of letters. */
typedef struct weft_i_pair {
    int rank;
    bool busy; /* in the list of peers with letters */
    struct weft_i_pair *next_busy;
    /* out: */
    weft_i_box *outbox;
    uint32_t sent, gone;              /* sheets; those known to be taken */
    uint64_t used, freed;             /* bytes of the room, ever */
    uint64_t ends[WEFT_I_BOX_SHEETS]; /* of the room used by each sheet and those before */
    weft_i_letter *sends, **last_send;
    weft_i_letter *offers[WEFT_I_BOX_OFFERS];
    int offer_count;
    /* in: */
    weft_i_box *inbox;
    _Atomic uint32_t taken; /* sheets; relaxed: written under the lock, a hint without it */
    weft_i_letter *receives, **last_receive; /* that wait for a message of this peer */
    weft_i_letter *taking;                   /* has met its message, which is not all there yet */
    weft_i_kept *kept, **last_kept;          /* messages, oldest first */
    weft_i_kept *keeping;                    /* the last of them is not all there yet */
    bool broken;                             /* a message was refused or given up: no more */
} weft_i_pair;

typedef struct weft_i_mail {
    size_t room; /* of each box */
    uint64_t posted;
    atomic_int under_way; /* letters; relaxed: written under the lock, a hint without it */
    atomic_int waiters;   /* threads that wait for letters; relaxed, as above */
    weft_i_letter *any, **last_any;   /* receives from whoever comes first */
    int turn;                         /* whose messages they look at first */
    weft_i_pair *busy;                /* peers with letters */
    _Atomic(weft_i_bundle *) orphans; /* over, and held by nobody else; relaxed, as above */
    weft_i_pair pairs[];
} weft_i_mail;

/*
 * The lock of letters.  Not a mutex: giving it back is a plain store, which does not wait until
 * what we have just written has reached the other core.
 */
void weft_i_mail_lock_slowly(weft_i_lane *lane);

static inline bool weft_i_mail_try(weft_i_lane *lane)
{
    /* Pairs with the release in weft_i_mail_unlock. */
    return !atomic_exchange_explicit(&lane->letters_lock, true, memory_order_acquire);
}

static inline void weft_i_mail_lock(weft_i_lane *lane)
{
    if (!weft_i_mail_try(lane))
        weft_i_mail_lock_slowly(lane);
}

static inline void weft_i_mail_unlock(weft_i_lane *lane)
{
    /* Pairs with the acquire in weft_i_mail_try. */
    atomic_store_explicit(&lane->letters_lock, false, memory_order_release);
}

/* How it stands.  After WEFT_OK the bytes received are seen. */
static inline weft_status weft_i_letter_status(const weft_i_letter *letter)
{
    /* Pairs with the release in weft_i_letter_end. */
    return (weft_status)atomic_load_explicit(&letter->status, memory_order_acquire);
}

/* The letter as a call: for messages, and for backends that carry calls themselves. */
weft_i_coll weft_i_letter_call(const weft_i_letter *letter);

/* Has such a backend carry it. */
void weft_i_letter_carry(weft_i_letter *letter);

/* The first letter that failed; NULL: none has. */
const weft_i_letter *weft_i_bundle_failed(const weft_i_bundle *bundle);

/* ---- under the lock of letters ---- */

/* Tells that a letter is over.  It is in no list any more, and if nobody owns it nothing may touch
 * it after this. */
void weft_i_letter_end(weft_i_letter *letter, weft_status status);

/* The same with the thread's last error. */
void weft_i_letter_end_failed(weft_i_letter *letter);

/* Wakes `rank`, which may sleep for something we did. */
void weft_i_letter_ring(const weft_i_lane *lane, int rank);

/* Moves the sends to a peer, and the messages from it, as far as they go. */
void weft_i_pair_send(weft_i_lane *lane, weft_i_pair *pair);
void weft_i_pair_receive(weft_i_lane *lane, weft_i_pair *pair);

/* A receive takes the oldest message that was kept for it, if there is one. */
bool weft_i_pair_take_kept(weft_i_lane *lane, weft_i_pair *pair, weft_i_letter *letter);

/* Takes an offer back: nobody reads the letter's memory after this.  False: it was taken before. */
bool weft_i_pair_withdraw(const weft_i_lane *lane, weft_i_pair *pair, const weft_i_letter *letter);

static inline uint32_t weft_i_pair_taken(const weft_i_pair *pair)
{
    /* Relaxed: under the lock, or a hint. */
    return atomic_load_explicit(&pair->taken, memory_order_relaxed);
}

/* Lists of letters, oldest first. */
static inline void weft_i_letter_append(weft_i_letter ***last, weft_i_letter *letter)
{
    letter->next = NULL;
    **last = letter;
    *last = &letter->next;
}

static inline void weft_i_letter_remove(weft_i_letter **first, weft_i_letter ***last,
                                        const weft_i_letter *letter)
{
    while (*first != letter)
        first = &(*first)->next;
    *first = letter->next;
    if (!*first)
        *last = first;
}

/* ---- without it ---- */

/* Posts the letters of a bundle whose owner is set, and moves what can be moved. */
void weft_i_bundle_post(weft_i_bundle *bundle);

/* Moves all letters of the lane as far as they go; true if some are still under way.  Any thread of
 * the rank may. */
bool weft_i_mail_push(weft_i_lane *lane);

/* Are letters under way that no thread waits for? */
bool weft_i_mail_is_left_alone(const weft_i_lane *lane);

/* Ends posted letters whose peer is lost, and those that nobody waits for and nobody takes. */
void weft_i_mail_sort_out(weft_i_lane *lane);

/* Drops the owners of letters that ended when nobody else held them: perhaps the last references to
 * the group, and so to the lane. */
void weft_i_mail_sweep(weft_i_lane *lane);

/* WEFT_IN_PROGRESS, or how its letters ended; without a message. */
weft_status weft_i_bundle_status(const weft_i_bundle *bundle);

/*
 * Pushes until all letters are over: WEFT_OK then, also if they failed.  WEFT_ERR_TIMEOUT: some are
 * still under way.
 */
weft_status weft_i_bundle_wait(weft_i_bundle *bundle, int64_t timeout_ms);

/* How letters that are over ended, with the message of the first that failed. */
weft_status weft_i_bundle_outcome(const weft_i_bundle *bundle);

/* Runs letters that nobody owns to their end, in the calling thread. */
weft_status weft_i_bundle_carry(weft_i_bundle *bundle);

#endif
