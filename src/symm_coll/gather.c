/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multicast all_gather, and the low-contention collectives.  These are the pull algorithms of
 * move.c and reduce.c: from symmetric inputs in place, else through the bounce buffer, which is
 * the group's own scratch memory; so nothing they use is shared with work in the user's workspace.
 */
#include "weft/symm_coll.h"

#include "base/report/status.h"
#include "coll/calls/run.h"
#include "coll/calls/work.h"
#include "coll/host/algorithms.h"
#include "coll/hosts/hosts.h"
#include "coll/lane/enter.h"
#include "coll/lane/request.h"
#include "symm_coll/gather.h"
#include "symm_coll/reach.h"
#include "symm_coll/traced.h"
#include "tensor/object/eye.h"

/* My bytes into everybody's output at my place. */
static weft_status run_push(weft_i_coll *coll)
{
    WEFT_TRY(weft_i_enter(coll));
    const weft_i_lane *lane = coll->lane;
    size_t at = (size_t)lane->me * coll->ask.in_bytes;
    for (int i = 0; i < lane->size; i++) {
        int rank = (lane->me + i) % lane->size;
        weft_i_coll_put(weft_i_reach_of(coll->reach, rank, at), coll->ask.in, coll->ask.in_bytes);
    }
    return weft_i_coll_sync(coll);
}

/* The shape with dim 0 times the size of the group; a scalar becomes one element per rank. */
static weft_shape gathered(const weft_tensor *x, const weft_group *group)
{
    weft_shape shape = weft_i_tensor_shape(x);
    if (!shape.ndim)
        return WEFT_SHAPE(group->size);
    /* -1 is no shape of a tensor: refused by whoever gets it. */
    shape.dim[0] = shape.dim[0] > INT64_MAX / group->size ? -1 : shape.dim[0] * group->size;
    return shape;
}

/* Into everybody's `out`, which is symmetric memory. */
static weft_status gather_out(weft_i_coll_kind kind, weft_tensor *out, weft_tensor *x,
                              weft_group *group)
{
    weft_i_coll coll;
    char expected[WEFT_I_SHAPE_TEXT], given[WEFT_I_SHAPE_TEXT];
    WEFT_TRY(weft_i_request_begin(&coll, kind, group));
    WEFT_TRY(weft_i_request_input(&coll, x));
    WEFT_TRY(weft_i_request_output(&coll, out));
    WEFT_TRY(weft_i_reach_check(coll.ask.op, "output", out));
    weft_shape shape = gathered(x, group);
    if (!weft_i_shape_equal(shape, weft_i_tensor_shape(out)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: expected out shape %s, not %s", coll.ask.op,
                           weft_i_shape_text(shape, expected),
                           weft_i_shape_text(weft_i_tensor_shape(out), given));
    WEFT_TRY(weft_i_request_check_overlap(&coll, 0, (size_t)group->rank * coll.ask.in_bytes));
    WEFT_TRY(weft_i_request_accept(&coll, coll.ask.in_bytes));
    return weft_i_reach_run(&coll, out);
}

weft_status weft_symm_multimem_all_gather_out(weft_tensor *out, weft_tensor *x, weft_group *group)
{
    if (weft_i_eye_open)
        return weft_i_traced_symm_gather_out(out, x, group);
    return gather_out(WEFT_I_MULTIMEM_ALL_GATHER, out, x, group);
}

bool weft_i_symm_gather_reaches(const weft_tensor *out)
{
    const weft_i_lease *lease = weft_i_block_lease_of(out);
    const weft_i_device_memory *memory = lease ? lease->block->backend->device_memory : NULL;
    return lease && (!memory || memory->strided);
}

weft_status weft_i_symm_gather_out(weft_tensor *out, weft_tensor *x, weft_group *group)
{
    return gather_out(WEFT_I_LOW_CONTENTION_ALL_GATHER_OUT, out, x, group);
}

/* See weft_i_kind_run. */
__attribute__((constructor)) static void give_runners(void)
{
    weft_i_kind_run(WEFT_I_MULTIMEM_ALL_GATHER, run_push);
    weft_i_kind_run(WEFT_I_LOW_CONTENTION_ALL_GATHER_OUT, run_push);
    weft_i_kind_run(WEFT_I_LOW_CONTENTION_ALL_GATHER, weft_i_coll_move);
    weft_i_kind_run(WEFT_I_LOW_CONTENTION_REDUCE_SCATTER, weft_i_coll_reduce_scatter);
    weft_i_hosts_kind_run(WEFT_I_MULTIMEM_ALL_GATHER, weft_i_hosts_gather_all);
    weft_i_hosts_kind_run(WEFT_I_LOW_CONTENTION_ALL_GATHER_OUT, weft_i_hosts_gather_all);
    weft_i_hosts_kind_run(WEFT_I_LOW_CONTENTION_ALL_GATHER, weft_i_hosts_gather_all);
    weft_i_hosts_kind_run(WEFT_I_LOW_CONTENTION_REDUCE_SCATTER, weft_i_hosts_reduce_scatter);
}

/* ---- low contention ---- */

/* All ranks agree whether the input is symmetric; if it is and has not met, it does now. */
static weft_status settle(weft_i_coll *coll, weft_tensor *x)
{
    bool symmetric = weft_i_block_lease_of(x) != NULL;
    coll->digest = weft_i_digest(coll->digest, symmetric);
    if (!symmetric)
        return WEFT_OK;
    weft_i_reach reach = {0};
    WEFT_TRY(weft_i_reach_open(coll, x, &reach));
    weft_i_reach_close(&reach);
    return WEFT_OK;
}

/* Posts a filled call; the result is `out`, or NULL if that fails. */
static weft_tensor *post(weft_i_coll *coll, weft_status filled, weft_tensor *out, weft_work **work)
{
    if (!work && filled >= 0)
        filled =
            weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: there is nowhere to put the work", coll->ask.op);
    if (!work) {
        weft_release(out);
        return NULL;
    }
    *work = filled < 0 ? NULL : weft_i_work_enqueue(coll, NULL);
    if (*work)
        return out;
    weft_release(out);
    return NULL;
}

static weft_status fill_gather(weft_i_coll *coll, weft_tensor **out, weft_tensor *x,
                               weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_LOW_CONTENTION_ALL_GATHER, group));
    WEFT_TRY(weft_i_request_input(coll, x));
    *out = weft_empty(x->dtype, weft_i_tensor_device(x), gathered(x, group));
    WEFT_TRY(weft_i_request_output(coll, *out));
    WEFT_TRY(weft_i_request_accept(coll, coll->ask.in_bytes));
    return settle(coll, x);
}

weft_tensor *weft_symm_low_contention_all_gather(weft_tensor *x, weft_group *group,
                                                 weft_work **work)
{
    if (weft_i_eye_open)
        return weft_i_traced_symm_gather(x, group, work);
    weft_i_coll coll;
    weft_tensor *out = NULL;
    weft_status filled = fill_gather(&coll, &out, x, group);
    return post(&coll, filled, out, work);
}

static weft_status fill_scatter(weft_i_coll *coll, weft_tensor **out, weft_tensor *x,
                                weft_reduction op, weft_group *group)
{
    WEFT_TRY(weft_i_request_begin(coll, WEFT_I_LOW_CONTENTION_REDUCE_SCATTER, group));
    WEFT_TRY(weft_i_request_input(coll, x));
    weft_shape shape = weft_i_tensor_shape(x);
    if (!shape.ndim || shape.dim[0] % group->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: dim 0, of %lld, must be divisible by the %d ranks", coll->ask.op,
                           shape.ndim ? (long long)shape.dim[0] : 1, group->size);
    shape.dim[0] /= group->size;
    WEFT_TRY(weft_i_request_reduction(coll, op));
    *out = weft_empty(x->dtype, weft_i_tensor_device(x), shape);
    WEFT_TRY(weft_i_request_output(coll, *out));
    WEFT_TRY(weft_i_request_accept(coll, coll->ask.out_bytes));
    return settle(coll, x);
}

weft_tensor *weft_symm_low_contention_reduce_scatter(weft_tensor *x, weft_reduction op,
                                                     weft_group *group, weft_work **work)
{
    weft_i_coll coll;
    weft_tensor *out = NULL;
    weft_status filled = fill_scatter(&coll, &out, x, op, group);
    return post(&coll, filled, out, work);
}
