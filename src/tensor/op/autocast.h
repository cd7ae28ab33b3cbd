/* SPDX-License-Identifier: Apache-2.0 */
/* Autocast: what stands between a call and dispatch in a block of WEFT_AUTOCAST, above captures and
 * the recorder, so that conversions are seen by both. */
#ifndef WEFT_TENSOR_AUTOCAST_H
#define WEFT_TENSOR_AUTOCAST_H

#include "tensor/op/op.h"
#include "weft/autocast.h"

#include <stdatomic.h>

/* The dtype of the thread's block; 0 (no float): outside of all. */
extern _Thread_local int weft_i_autocast;

/* Open blocks of all threads.  To look up a variable of the thread costs each call more than this. */
extern _Atomic int weft_i_autocast_blocks;

/* Whether the thread may be in a block.  Relaxed: the blocks that matter are its own. */
static inline bool weft_i_autocast_may_be(void)
{
    return atomic_load_explicit(&weft_i_autocast_blocks, memory_order_relaxed) != 0;
}

/* The floor that owns gradients says whether calls are recorded: what was converted otherwise is not
 * used. */
void weft_i_autocast_set_recording(bool (*function)(void));

/* The conversions of a call, which are released after it. */
typedef struct weft_i_autocast_casts {
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_tensor *made[WEFT_I_OP_ARGS + 1];
    weft_tensor **list; /* of the list argument, or NULL */
    size_t count, listed;
} weft_i_autocast_casts;

/* The arguments as the block wants them: the caller's own, or those in `casts`; NULL and an error.
 * weft_i_autocast_end is called in any case. */
const weft_i_arg *weft_i_autocast_begin(const weft_i_op *op, const weft_i_arg *args,
                                        weft_i_autocast_casts *casts);
void weft_i_autocast_end(weft_i_autocast_casts *casts);

/* x in the dtype of the block, as a handle of its own for operations that are put together from
 * others; outside of all blocks x itself, and `*made` is false. */
weft_tensor *weft_i_autocast_lower(weft_tensor *x, bool *made);

#endif
