/* SPDX-License-Identifier: Apache-2.0 */
/* A latch that is not free; see latch.h. */
#include "base/share/latch.h"

#include "base/os/os.h"
#include "base/os/place.h"

enum { SLICE_NS = 100 * 1000 * 1000 }; /* of sleep; a wake-up that gets lost costs no more */

/* Whoever comes here takes it as one that is awaited: others may sleep as well. */
WEFT_I_COLD void weft_i_latch_await(weft_i_latch *latch)
{
    /* Pairs with the release in weft_i_latch_give. */
    while (atomic_exchange_explicit(latch, WEFT_I_LATCH_AWAITED, memory_order_acquire) !=
           WEFT_I_LATCH_FREE)
        WEFT_OS->futex_wait(latch, WEFT_I_LATCH_AWAITED, SLICE_NS);
}

WEFT_I_COLD void weft_i_latch_wake(weft_i_latch *latch)
{
    WEFT_OS->futex_wake(latch, 1);
}
