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

typedef struct weft_i_wait {
    bool (*ready)(void *arg); /* has it happened?  Loads with acquire order.  May make it happen: it
                                 is not called again once it has said so */
    weft_status (*lost)(
        void *arg); /* WEFT_OK while it can still happen; otherwise an error with its message */
    void *arg;
    _Atomic uint32_t
        *bell; /* the waiter's bell, rung by whoever makes it ready; NULL: sleep in slices only */
    const int *door;  /* without a bell: a slice of sleep ends when this descriptor has something to
                         read; NULL or -1 in it: slices only */
    int64_t deadline; /* monotonic nanoseconds, or WEFT_I_NEVER */
    int64_t *began;   /* when it did, unless there is a time already; NULL: nobody asks */
    weft_i_wait_mode mode;
    int64_t spin_ns; /* how long to spin, where the mode allows it; 0: as long as a hop may take */
} weft_i_wait;

/*
 * Returns WEFT_OK once ready; what `lost` said; or WEFT_ERR_TIMEOUT without a message, because only
 * the caller knows whom it waited for.
 */
weft_status weft_i_wait_for(const weft_i_wait *wait);

/* Waits for `ready` alone, giving way, whoever dies meanwhile; false if `deadline` passes first. */
static inline bool weft_i_wait_until(bool (*ready)(void *arg), void *arg, int64_t deadline)
{
    weft_i_wait wait = {
        .ready = ready, .arg = arg, .deadline = deadline, .mode = WEFT_I_WAIT_YIELD};
    return weft_i_wait_for(&wait) == WEFT_OK;
}

/* What WEFT_WAIT says, or for "auto": spin if there is a core for each of the ranks, else yield. */
weft_i_wait_mode weft_i_wait_mode_for(int ranks, int cores);

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

#endif
