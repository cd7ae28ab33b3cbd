/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one wait function.  Every wait of the library for another rank ends here: it looks at the
 * awaited value, at whether the value can still come (peers alive, group not revoked), and at the
 * deadline, and gives up the processor by circumstance: spin while the ranks fit the cores,
 * otherwise a few spins, then yield, then sleep.
 */
#ifndef WEFT_BASE_WAIT_H
#define WEFT_BASE_WAIT_H

#include "weft/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum weft_i_wait_mode {
    WEFT_I_WAIT_SPIN,
    WEFT_I_WAIT_YIELD,
    WEFT_I_WAIT_SLEEP
} weft_i_wait_mode;

/* What has to be turned so that a wait can end: messages from other hosts come by it.  Whoever waits
 * turns it, and sleeps where it wakes. */
typedef struct weft_i_wheel {
    int (*turn)(void *of); /* how much has happened */
    bool (*arm)(void *of); /* before a sleep at the door; false: something has come, look again */
    void (*rest)(void *of,
                 bool resting); /* the waiter sleeps elsewhere: somebody else is to turn it */
    const int *door;            /* readable when there is something to turn; -1 in it: none */
    void *of;
} weft_i_wheel;

typedef struct weft_i_wait {
    bool (*ready)(void *arg); /* has it happened?  Loads with acquire order.  May make it happen: it
                                 is not called again once it has said so */
    weft_status (*lost)(
        void *arg); /* WEFT_OK while it can still happen; otherwise an error with its message */
    void *arg;
    _Atomic uint32_t
        *bell; /* the waiter's bell, rung by whoever makes it ready; NULL: sleep in slices only */
    const int *door; /* without a bell: a slice of sleep ends when this descriptor has something to
                         read; NULL or -1 in it: slices only */
    const weft_i_wheel
        *wheel;       /* turned at every look; without a bell its door is where the waiter sleeps.
                                  NULL: none */
    int64_t deadline; /* monotonic nanoseconds, or WEFT_I_NEVER */
    int64_t *began;   /* when it did, unless there is a time already; NULL: nobody asks */
    uint32_t (*awaits)(void *arg); /* what the bell says while its owner sleeps; NULL: it wakes for
                                      anybody */
    int peers;                     /* how many `lost` looks at, where they may be many */
    bool hasty;                    /* without `lost` too, the thread's program may cut it short */
    weft_i_wait_mode mode;
    int64_t spin_ns; /* how long to spin, where the mode allows it; 0: as long as a hop may take */
} weft_i_wait;

/*
 * Returns WEFT_OK once ready; what `lost` said; or WEFT_ERR_TIMEOUT without a message, because only
 * the caller knows whom it waited for.
 */
weft_status weft_i_wait_for(const weft_i_wait *wait);

/*
 * Asked now and then while this thread waits for another rank: once it says true, the wait ends with
 * WEFT_ERR_TIMEOUT.  NULL: nobody is asked.  The program's own, see weft_limit_interrupt.
 */
typedef struct weft_i_interrupt {
    bool (*asked)(void *argument);
    void *argument;
} weft_i_interrupt;

extern _Thread_local weft_i_interrupt weft_i_wait_interrupt;

/* Waits for `ready` alone, giving way, whoever dies meanwhile; false if `deadline` passes first. */
static inline bool weft_i_wait_until(bool (*ready)(void *arg), void *arg, int64_t deadline)
{
    weft_i_wait wait = {
        .ready = ready, .arg = arg, .deadline = deadline, .mode = WEFT_I_WAIT_YIELD};
    return weft_i_wait_for(&wait) == WEFT_OK;
}

/* What WEFT_WAIT says, or for "auto": spin if there is a core for each of the ranks, else yield. */
weft_i_wait_mode weft_i_wait_mode_for(int ranks, int cores);

/* What a bell says: 0, nobody sleeps, or whom the sleeper waits for. */
enum { WEFT_I_WAIT_ANYBODY = 1, WEFT_I_WAIT_RANK = 2 /* and from here on that rank alone */ };

/* Silences a bell and wakes its owner. */
void weft_i_wait_wake(_Atomic uint32_t *bell);

/*
 * Wakes the owner of a bell if it sleeps.  Where waits may sleep, the ringer's store of the value
 * and this look at the bell need a full fence between them (the sleeper has one between setting its
 * bell and its last look); a ringer that goes without may miss a sleeper, who then wakes at the end
 * of its slice.
 */
static inline void weft_i_wait_ring(_Atomic uint32_t *bell)
{
    /* Relaxed: the caller's fence orders it. */
    if (atomic_load_explicit(bell, memory_order_relaxed))
        weft_i_wait_wake(bell);
}

/* The same by `rank`, whose own doing is all that has changed: a sleeper that waits for another one
 * first sleeps on.  Of 500 ranks that meet, each would otherwise wake 500 times. */
static inline void weft_i_wait_ring_by(_Atomic uint32_t *bell, int rank)
{
    /* Relaxed: the caller's fence orders it. */
    uint32_t awaited = atomic_load_explicit(bell, memory_order_relaxed);
    if (awaited && (awaited == WEFT_I_WAIT_ANYBODY || awaited == WEFT_I_WAIT_RANK + (uint32_t)rank))
        weft_i_wait_wake(bell);
}

#endif
