/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that everybody uses, on plain memory of the CPU: a pointer, a number of elements and a
 * dtype instead of tensors, so that nothing is made and nothing has to be released.  They do what
 * the forms on tensors do (weft/coll.h, weft/p2p.h), and other ranks may call those.  The memory
 * must be aligned for the dtype and stay until the call returns; NULL is fine for 0 elements.
 * WEFT_ERR_UNSUPPORTED while a function is captured, WEFT_ERR_STATE between weft_coalesce_open
 * and its close.
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

/* `count` elements of every rank; `out` has room for those of all. */
WEFT_API weft_status weft_all_gather_ptr(void *out, const void *in, size_t count, weft_dtype dtype,
                                         weft_group *group);

/* `in` has `count` elements for every rank; `out` gets the sum of those for this one. */
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
