/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The most common calls on plain CPU memory.  They take a pointer, a number of elements and a dtype
 * instead of tensors, so there is nothing to make and nothing to release.  They do the same as the
 * forms on tensors (weft/coll.h, weft/p2p.h), and other ranks may call those forms.  The memory
 * must be aligned for the dtype and stay valid until the call returns.  NULL is allowed for 0
 * elements.  WEFT_ERR_UNSUPPORTED while a function is being captured, WEFT_ERR_STATE between
 * weft_coalesce_open and weft_coalesce_close.
 */
#ifndef WEFT_POINTER_H
#define WEFT_POINTER_H

#include "weft/coll.h"
#include "weft/group.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `count` elements on every rank; `out` and `in` may be the same. */
WEFT_API weft_status weft_all_reduce_ptr(void *out, const void *in, size_t count, weft_dtype dtype,
                                         weft_reduction op, weft_group *group);

/* `count` elements, from rank `root` to all others. */
WEFT_API weft_status weft_broadcast_ptr(void *data, size_t count, weft_dtype dtype, int root,
                                        weft_group *group);

/* `count` elements from every rank.  `out` has room for those of all ranks. */
WEFT_API weft_status weft_all_gather_ptr(void *out, const void *in, size_t count, weft_dtype dtype,
                                         weft_group *group);

/* `in` has `count` elements for every rank.  `out` gets the reduction of those for this rank. */
WEFT_API weft_status weft_reduce_scatter_ptr(void *out, const void *in, size_t count,
                                             weft_dtype dtype, weft_reduction op,
                                             weft_group *group);

/* With tag 0; the peer may be WEFT_NOBODY. */
WEFT_API weft_status weft_send_ptr(const void *data, size_t count, weft_dtype dtype, int to,
                                   weft_group *group);
WEFT_API weft_status weft_recv_ptr(void *data, size_t count, weft_dtype dtype, int from,
                                   weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
