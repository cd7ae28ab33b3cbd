/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on pointers: requests are filled without tensors; see weft/pointer.h. */
#include "weft/pointer.h"

#include "base/report/status.h"
#include "coll/calls/coalesce.h"
#include "coll/calls/coll.h"
#include "coll/calls/p2p_call.h"
#include "coll/calls/work.h"
#include "coll/lane/request.h"
#include "weft/p2p.h"

/* Begins a request; refuses what a pointer cannot stand for. */
static weft_status begin(weft_i_coll *coll, weft_i_coll_kind kind, weft_dtype dtype,
                         weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, kind, group));
    if (!weft_dtype_size(dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "%s: %d is not a dtype", coll->ask.op, (int)dtype);
    coll->ask.device = WEFT_CPU;
    coll->ask.dtype = dtype;
    coll->ask.item = weft_dtype_size(dtype);
    return WEFT_OK;
}

/* `parts` times `count` elements at `data`. */
static weft_status note(const weft_i_coll *coll, const char *which, const void *data, size_t count,
                        size_t parts, char **at, size_t *bytes)
{
    size_t item = coll->ask.item;
    if (count > (size_t)PTRDIFF_MAX / item / parts)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the %s has %zu elements for each of %zu ranks", coll->ask.op, which,
                           count, parts);
    if (count && !data)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the %s is NULL but has %zu elements",
                           coll->ask.op, which, count);
    if ((uintptr_t)data % item)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the %s at %p is not aligned for %s",
                           coll->ask.op, which, data, weft_dtype_name(coll->ask.dtype));
    *at = (char *)(uintptr_t)data;
    *bytes = count * parts * item;
    return WEFT_OK;
}

/* A collective by the facts of its kind: `count` elements are a part. */
static weft_status run(weft_i_coll_kind kind, void *out, const void *in, size_t count,
                       weft_dtype dtype, weft_reduction op, int root, weft_group *group)
{
    weft_i_coll coll;
    WEFT_TRY(begin(&coll, kind, dtype, group));
    size_t size = (size_t)group->size;
    WEFT_TRY(note(&coll, "input", in, count, weft_i_kind_is(kind, WEFT_I_HAS_PARTS) ? size : 1,
                  &coll.ask.in, &coll.ask.in_bytes));
    WEFT_TRY(note(&coll, "output", out, count, weft_i_kind_is(kind, WEFT_I_PLACES_PARTS) ? size : 1,
                  &coll.ask.out, &coll.ask.out_bytes));
    WEFT_TRY(weft_i_request_finish(&coll, op, root));
    if (weft_i_coalesce_is_open(group))
        return weft_i_coalesce_refuse(&coll, WEFT_OK);
    return weft_i_work_now(&coll);
}

weft_status weft_all_reduce_ptr(void *out, const void *in, size_t count, weft_dtype dtype,
                                weft_reduction op, weft_group *group)
{
    return run(WEFT_I_ALL_REDUCE, out, in, count, dtype, op, 0, group);
}

weft_status weft_broadcast_ptr(void *data, size_t count, weft_dtype dtype, int root,
                               weft_group *group)
{
    return run(WEFT_I_BROADCAST, data, data, count, dtype, WEFT_SUM, root, group);
}

weft_status weft_all_gather_ptr(void *out, const void *in, size_t count, weft_dtype dtype,
                                weft_group *group)
{
    return run(WEFT_I_ALL_GATHER, out, in, count, dtype, WEFT_SUM, 0, group);
}

weft_status weft_reduce_scatter_ptr(void *out, const void *in, size_t count, weft_dtype dtype,
                                    weft_reduction op, weft_group *group)
{
    return run(WEFT_I_REDUCE_SCATTER, out, in, count, dtype, op, 0, group);
}

/* ---- messages ---- */

static weft_status exchange(weft_i_coll_kind kind, const void *data, size_t count, weft_dtype dtype,
                            int peer, weft_group *group)
{
    weft_i_coll coll;
    WEFT_TRY(begin(&coll, kind, dtype, group));
    WEFT_TRY(note(&coll, "input", data, count, 1, &coll.ask.in, &coll.ask.in_bytes));
    weft_i_p2p_request request;
    weft_i_p2p_request_fill(&request, group, kind, dtype, peer, coll.ask.in, coll.ask.in_bytes);
    return weft_i_p2p_exchange(&request);
}

weft_status weft_send_ptr(const void *data, size_t count, weft_dtype dtype, int to,
                          weft_group *group)
{
    return exchange(WEFT_I_SEND, data, count, dtype, to, group);
}

weft_status weft_recv_ptr(void *data, size_t count, weft_dtype dtype, int from, weft_group *group)
{
    return exchange(WEFT_I_RECV, data, count, dtype, from, group);
}
