/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How functional collectives of several tensors run on the CPU: one operation, one pending object,
 * a claim for every tensor it writes or reads.  See run.c.
 */
#include "functional/functional.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/calls/coll.h"
#include "coll/lane/list.h"

#include <limits.h>

/* The operands of a list: what is read and written, references of ours. */
typedef struct operands {
    const weft_i_op_call *call;
    weft_group *group;
    weft_tensor *const *x; /* the arguments */
    size_t count;
    weft_tensor **in, **out; /* `out[i]` is the result, or moved there afterwards */
} operands;

static void close_operands(operands *on)
{
    for (size_t i = 0; on->in && i < on->count; i++) {
        weft_i_object_drop(on->in[i]);
        weft_i_object_drop(on->out[i]);
    }
    WEFT_OS->free(on->in);
}

static weft_status open_operands(const weft_i_op_call *call, operands *on)
{
    *on = (operands){.call = call,
                     .group = weft_i_functional_group(call),
                     .x = call->args[0].tensors,
                     .count = call->args[0].count};
    if (!on->group)
        return weft_last_status();
    if (on->count > INT_MAX / 2 || !(on->in = WEFT_OS->alloc(2 * on->count * sizeof *on->in)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu tensors", call->op->name,
                           on->count);
    on->out = on->in + on->count;
    return WEFT_OK;
}

/* The tensors the caller gets. */
static weft_tensor *result(const operands *on, size_t i)
{
    return on->call->op->kinds[0] == 'm' ? on->x[i] : on->call->outs[i];
}

static weft_status post(const operands *on, weft_i_coll *coll)
{
    weft_i_pending *pending = weft_i_pending_new(on->call->op->name, 2 * on->count, on->count);
    if (!pending)
        return weft_last_status();
    for (size_t i = 0; i < on->count; i++) {
        weft_tensor *out = result(on, i);
        weft_i_pending_claim_on(pending, out, true);
        if (on->out[i] != out)
            weft_i_pending_move(pending, out, on->out[i]);
        if (on->in[i] == on->x[i] && out != on->x[i])
            weft_i_pending_claim_on(pending, on->x[i], false);
    }
    return weft_i_pending_enqueue(pending, coll);
}

/* ---- all_reduce ---- */

static bool is_small(const operands *on)
{
    size_t bytes = 0;
    for (size_t i = 0; i < on->count; i++)
        bytes += weft_i_functional_bytes(on->x[i]);
    return weft_i_functional_copies(bytes);
}

static weft_status prepare_reduce(operands *on)
{
    bool in_place = on->call->op->kinds[0] == 'm', small = is_small(on);
    for (size_t i = 0; i < on->count; i++) {
        weft_tensor *x = on->x[i], *out = result(on, i);
        bool copied = !in_place && (small || !weft_i_tensor_is_contiguous(x));
        if (copied)
            WEFT_TRY(weft_i_functional_copy(out, x));
        on->out[i] = weft_i_functional_contiguous(out, false);
        on->in[i] = weft_i_object_hold(in_place || copied ? on->out[i] : x);
        if (!on->in[i])
            return weft_last_status();
    }
    return WEFT_OK;
}

/* ---- those with results of other sizes ---- */

static weft_status prepare(operands *on)
{
    for (size_t i = 0; i < on->count; i++) {
        on->out[i] = weft_i_object_hold(result(on, i));
        if (!(on->in[i] = weft_i_functional_contiguous(on->x[i], false)))
            return weft_last_status();
    }
    return WEFT_OK;
}

static weft_status prepare_scatter(operands *on)
{
    const int64_t *dims = on->call->args[3].integers;
    for (size_t i = 0; i < on->count; i++) {
        int dim = (int)(dims[i] < 0 ? dims[i] + on->x[i]->ndim : dims[i]);
        on->out[i] = weft_i_object_hold(result(on, i));
        if (!(on->in[i] = weft_i_functional_by_parts(on->x[i], dim, on->group->size)))
            return weft_last_status();
    }
    return WEFT_OK;
}

/* ---- running them ---- */

/* `prepare_all` makes the operands ready.  Rows that reduce have the reduction and this rank's
 * factor as arguments 1 and 2. */
static weft_status run(const weft_i_op_call *call, weft_i_coll_kind kind,
                       weft_status (*prepare_all)(operands *on))
{
    operands on;
    weft_i_coll coll = {0};
    bool reduces = kind == WEFT_I_ALL_REDUCE_LIST || kind == WEFT_I_REDUCE_SCATTER_LIST;
    weft_reduction op = reduces ? (weft_reduction)call->args[1].integer : WEFT_SUM;
    weft_status status = open_operands(call, &on);
    if (status >= 0)
        status = prepare_all(&on);
    if (status >= 0 && kind == WEFT_I_ALL_TO_ALL_LIST)
        status = weft_i_request_all_to_all_list(&coll, on.out, on.in, on.group);
    else if (status >= 0)
        status = weft_i_request_list(&coll, kind, on.out, on.in, (int)on.count, op, on.group);
    if (reduces)
        coll.ask.factor = call->args[2].number;
    if (status >= 0)
        status = post(&on, &coll);
    weft_i_object_drop(coll.list);
    close_operands(&on);
    return status;
}

weft_status weft_i_functional_reduce_list_run(weft_i_op_call *call)
{
    return run(call, WEFT_I_ALL_REDUCE_LIST, prepare_reduce);
}

weft_status weft_i_functional_gather_list_run(weft_i_op_call *call)
{
    return run(call, WEFT_I_ALL_GATHER_LIST, prepare);
}

weft_status weft_i_functional_scatter_list_run(weft_i_op_call *call)
{
    return run(call, WEFT_I_REDUCE_SCATTER_LIST, prepare_scatter);
}

weft_status weft_i_functional_all_to_all_run(weft_i_op_call *call)
{
    return run(call, WEFT_I_ALL_TO_ALL_LIST, prepare);
}
