/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posted collectives of tensors on a device run beside what the thread computes there: on its
 * urgent stream, behind whatever used their operands.  Streams that use the operands later are
 * ordered behind the collective by themselves (tensor/object/touch.c).
 */
#ifndef WEFT_COLL_BESIDE_H
#define WEFT_COLL_BESIDE_H

#include "coll/lane/call.h"
#include "tensor/object/stream.h"

/*
 * Makes the urgent stream the thread's current one; `*back` is the one that was, held, and NULL if
 * the call stays there: it is being captured, or the device has no streams.
 */
weft_status weft_i_beside_begin(const weft_i_coll *coll, weft_stream **back);

/* The thread's current stream is `back` again, unless that is NULL.  Returns `status`, or why it
 * could not be. */
weft_status weft_i_beside_end(weft_stream *back, weft_status status);

#endif
