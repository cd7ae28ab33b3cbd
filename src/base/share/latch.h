/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mutex of one word, for calls that find nothing in the caches: one of the C library's leads through
 * five lines of code and data on four pages, one after the other.  Zero is free.
 */
#ifndef WEFT_BASE_LATCH_H
#define WEFT_BASE_LATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint32_t weft_i_latch;

enum { WEFT_I_LATCH_FREE, WEFT_I_LATCH_HELD, WEFT_I_LATCH_AWAITED };

/* Sleep until it is ours; wake who sleeps. */
void weft_i_latch_await(weft_i_latch *latch);
void weft_i_latch_wake(weft_i_latch *latch);

/* Takes it if it is free. */
static inline bool weft_i_latch_try(weft_i_latch *latch)
{
    uint32_t free = WEFT_I_LATCH_FREE;
    /* Pairs with the release in weft_i_latch_give. */
    return atomic_compare_exchange_strong_explicit(latch, &free, WEFT_I_LATCH_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void weft_i_latch_take(weft_i_latch *latch)
{
    if (__builtin_expect(!weft_i_latch_try(latch), 0))
        weft_i_latch_await(latch);
}

static inline void weft_i_latch_give(weft_i_latch *latch)
{
    /* Pairs with the acquire of whoever takes it next. */
    uint32_t was = atomic_exchange_explicit(latch, WEFT_I_LATCH_FREE, memory_order_release);
    if (__builtin_expect(was == WEFT_I_LATCH_AWAITED, 0))
        weft_i_latch_wake(latch);
}

#endif
