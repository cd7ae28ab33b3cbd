/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on symmetric memory as rows, for graphs: what a program asked for by name, and what a
 * graph makes of a plain all_reduce whose operand it can place (graph/pass/lower.c).  Unlike functional
 * collectives they are done when they return, so nobody waits for them.  A graph that places nothing
 * has ordinary operands: then the plain collective runs, which has the same result.
 */
#include "coll/device/carrier.h"
#include "coll/lane/request.h"
#include "functional/functional.h"
#include "kernels/fold/fold.h"
#include "symm_coll/gather.h"
#include "symm_coll/ops.h"
#include "symm_coll/reach.h"
#include "tensor/op/loops.h"
#include "weft/op.h"
#include "weft/symm_coll.h"

/* ---- shapes: those of all_reduce are in functional/rule.c ---- */

static weft_status check_reduction(const weft_i_op_call *call, int arg, weft_dtype dtype)
{
    int64_t op = call->args[arg].integer;
    if (op < 0 || op >= WEFT_REDUCTIONS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %lld is not a reduction", call->op->name,
                           (long long)op);
    return weft_i_fold_find(dtype, (weft_i_fold_op)op)
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_TYPE, "%s: reduction %s has no meaning for %s",
                             call->op->name, weft_reduction_name((weft_reduction)op),
                             weft_dtype_name(dtype));
}

static weft_status give(weft_i_op_call *call, weft_dtype dtype, weft_shape shape)
{
    call->result.dtype = dtype;
    call->result.shape = shape;
    weft_i_shape_strides(shape, call->result.stride);
    return WEFT_OK;
}

weft_status weft_i_symm_row_one_shot_copy_shape(weft_i_op_call *call)
{
    const weft_tensor *buffer = call->args[0].tensor, *local = call->args[1].tensor;
    WEFT_TRY(check_reduction(call, 2, local->dtype));
    if (buffer->dtype != local->dtype || buffer->numel < local->numel)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: a buffer of %lld elements of %s for a local input of %lld of %s",
                           call->op->name, (long long)buffer->numel, weft_dtype_name(buffer->dtype),
                           (long long)local->numel, weft_dtype_name(local->dtype));
    return give(call, local->dtype, weft_i_tensor_shape(local));
}

/* A part of the last dimension, or of the first: of all elements in their order. */
weft_status weft_i_symm_row_symm_scatter_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor;
    weft_shape shape = weft_i_tensor_shape(x);
    int64_t ranks = (int64_t)call->args[4].count;
    int dim = call->args[1].integer ? x->ndim - 1 : 0;
    WEFT_TRY(check_reduction(call, 2, x->dtype));
    if (!x->ndim || ranks < 1 || shape.dim[dim] % ranks)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: dimension %d of %d has no parts for each of %lld ranks",
                           call->op->name, dim, x->ndim, (long long)ranks);
    shape.dim[dim] /= ranks;
    return give(call, x->dtype, shape);
}

static weft_status gather_rule(weft_i_op_call *call, const weft_tensor *x)
{
    const weft_i_arg *group = &call->args[call->op->arity - 1];
    weft_shape shape = x->ndim ? weft_i_tensor_shape(x) : WEFT_SHAPE(1);
    if (!group->count || !group->group.name ||
        __builtin_mul_overflow(shape.dim[0], (int64_t)group->count, &shape.dim[0]))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %zu ranks are none or too many",
                           call->op->name, group->count);
    WEFT_TRY(weft_i_shape_check(call->op->name, x->dtype, shape, NULL));
    return give(call, x->dtype, shape);
}

weft_status weft_i_symm_row_gather_shape(weft_i_op_call *call)
{
    return gather_rule(call, call->args[0].tensor);
}

weft_status weft_i_symm_row_gather_out_shape(weft_i_op_call *call)
{
    const weft_tensor *out = call->args[0].tensor;
    char expected[WEFT_I_SHAPE_TEXT], given[WEFT_I_SHAPE_TEXT];
    WEFT_TRY(gather_rule(call, call->args[1].tensor));
    if (out->dtype == call->result.dtype &&
        weft_i_shape_equal(call->result.shape, weft_i_tensor_shape(out)))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: expected out %s%s, not %s%s", call->op->name,
                       weft_dtype_name(call->result.dtype),
                       weft_i_shape_text(call->result.shape, expected), weft_dtype_name(out->dtype),
                       weft_i_shape_text(weft_i_tensor_shape(out), given));
}

/* ---- running ---- */

typedef struct running {
    weft_tensor *out; /* contiguous: the result, or what is copied to it */
    bool shared;      /* everybody reaches the operand */
    weft_reduction op;
    weft_group *group;
    double premul; /* the thread's, put back afterwards */
} running;

/* Has it met in the group?  Then everybody reaches it. */
static bool has_met(const weft_tensor *x, weft_group *group)
{
    weft_i_registration *found = weft_i_registration_of(weft_i_block_lease_of(x)->block, group);
    weft_i_registration_drop(found);
    return found;
}

/*
 * Whether it is symmetric memory that everybody reaches.  That of a device is not where the ranks
 * have no carrier there, as on one GPU that they may not share: then plain collectives go through
 * the host.  All ranks open the carrier together, after they have compared what they are about to
 * do: one that calls something else is a mismatch.
 */
static weft_status is_shared(const weft_i_op_call *call, const weft_tensor *x, weft_group *group,
                             bool *out)
{
    weft_i_carrier *carrier = NULL;
    weft_device device = weft_i_tensor_device(x);
    uint32_t digest = 0;
    *out = weft_symm_is(x);
    if (!*out || weft_i_device_is_host(device) || has_met(x, group))
        return WEFT_OK;
    for (const char *at = call->op->name; *at; at++)
        digest = weft_i_digest(digest, (uint64_t)*at);
    WEFT_TRY(weft_i_reach_agree(x, WEFT_I_FIRST_USE, digest, group));
    WEFT_TRY(weft_i_carrier_find(group, device, &carrier));
    *out = carrier != NULL;
    return WEFT_OK;
}

/* The operand is the first argument. */
static weft_status begin(weft_i_op_call *call, int reduction, running *r)
{
    const weft_i_arg *factor = &call->args[reduction + 1];
    bool direct = weft_i_tensor_is_contiguous(call->out);
    *r = (running){.op = (weft_reduction)call->args[reduction].integer,
                   .group = weft_i_functional_group(call),
                   .premul = weft_i_request_premul()};
    if (!r->group)
        return weft_last_status();
    WEFT_TRY(is_shared(call, call->args[0].tensor, r->group, &r->shared));
    r->out = direct ? call->out
                    : weft_i_tensor_new(call->out->dtype, weft_i_tensor_device(call->out),
                                        weft_i_tensor_shape(call->out), NULL);
    if (!r->out)
        return weft_last_status();
    weft_set_premul(factor->number);
    return WEFT_OK;
}

static weft_status end(weft_i_op_call *call, running *r, weft_status status)
{
    weft_set_premul(r->premul);
    if (r->out == call->out)
        return status;
    if (status >= 0)
        status = weft_i_tensor_copy(call->out, r->out);
    weft_release(r->out);
    return status;
}

/* The sum of ordinary memory. */
static weft_status reduce_plainly(const running *r, weft_tensor *x)
{
    WEFT_TRY(weft_i_tensor_copy(r->out, x));
    return weft_all_reduce_into(r->out, r->out, r->op, r->group);
}

weft_status weft_i_symm_row_one_shot_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    running r;
    WEFT_TRY(begin(call, 1, &r));
    return end(call, &r,
               r.shared ? weft_symm_one_shot_all_reduce_out(r.out, x, r.op, r.group)
                        : reduce_plainly(&r, x));
}

weft_status weft_i_symm_row_multimem_one_shot_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    running r;
    WEFT_TRY(begin(call, 1, &r));
    return end(call, &r,
               r.shared ? weft_symm_multimem_one_shot_all_reduce_out(r.out, x, r.op, r.group)
                        : reduce_plainly(&r, x));
}

weft_status weft_i_symm_row_one_shot_copy_run(weft_i_op_call *call)
{
    weft_tensor *buffer = call->args[0].tensor, *local = call->args[1].tensor;
    running r;
    WEFT_TRY(begin(call, 2, &r));
    return end(call, &r,
               r.shared
                   ? weft_symm_one_shot_all_reduce_copy_out(r.out, buffer, local, r.op, r.group)
                   : reduce_plainly(&r, local));
}

weft_status weft_i_symm_row_symm_scatter_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor;
    bool last = call->args[1].integer && x->ndim > 1;
    running r;
    WEFT_TRY(begin(call, 2, &r));
    return end(call, &r,
               r.shared || last
                   ? weft_symm_reduce_scatter_out(r.out, x, call->args[1].integer, r.op, r.group)
                   : weft_reduce_scatter_into(r.out, x, r.op, r.group));
}

/* The slice of the input in which the rank's own result is left, and a copy of what lies there; both
 * stay NULL if nothing is left there. */
static weft_status keep_slice(weft_tensor *x, const weft_group *group, weft_tensor **slice,
                              weft_tensor **kept)
{
    weft_i_span mine =
        weft_i_coll_slice((size_t)x->numel, group->size, group->rank, weft_dtype_size(x->dtype));
    if (!mine.count || !weft_i_device_is_host(weft_i_tensor_device(x)))
        return WEFT_OK;
    *slice =
        weft_i_tensor_new_view(x->storage, x->version, x->dtype, WEFT_SHAPE((int64_t)mine.count),
                               NULL, x->offset + (int64_t)mine.first);
    *kept = *slice ? weft_i_tensor_new(x->dtype, weft_i_tensor_device(x),
                                       weft_i_tensor_shape(*slice), NULL)
                   : NULL;
    return *kept ? weft_i_tensor_copy(*kept, *slice) : weft_last_status();
}

/* Nobody looks into the input after the operation, so it may be put right then. */
weft_status weft_i_symm_row_two_shot_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[0].tensor, *slice = NULL, *kept = NULL;
    running r;
    WEFT_TRY(begin(call, 1, &r));
    if (!r.shared)
        return end(call, &r, reduce_plainly(&r, x));
    weft_status status = WEFT_OK;
    if (call->args[3].integer && weft_i_tensor_is_contiguous(x))
        status = keep_slice(x, r.group, &slice, &kept);
    if (status >= 0)
        status = weft_symm_two_shot_all_reduce_out(r.out, x, r.op, r.group);
    if (status >= 0 && kept)
        status = weft_i_tensor_copy(slice, kept);
    weft_release(kept);
    weft_release(slice);
    return end(call, &r, status);
}

/* Into symmetric memory every rank puts its own part of everybody's result; else a plain gather. */
static weft_status gather(weft_i_op_call *call, weft_tensor *out, weft_tensor *x)
{
    weft_group *group = weft_i_functional_group(call);
    bool apart = weft_i_tensor_ranges_meet(x, out), shared = false;
    if (!group)
        return weft_last_status();
    WEFT_TRY(is_shared(call, out, group, &shared));
    weft_tensor *in = weft_i_functional_contiguous(x, apart);
    if (!in)
        return weft_last_status();
    weft_status status = shared && weft_i_symm_gather_reaches(out)
                             ? weft_i_symm_gather_out(out, in, group)
                             : weft_all_gather_into(out, in, group);
    weft_i_object_drop(in);
    return status;
}

static weft_status gather_into(weft_i_op_call *call, weft_tensor *out, weft_tensor *x)
{
    if (weft_i_tensor_is_contiguous(out))
        return gather(call, out, x);
    weft_tensor *whole =
        weft_i_tensor_new(out->dtype, weft_i_tensor_device(out), weft_i_tensor_shape(out), NULL);
    weft_status status = whole ? gather(call, whole, x) : weft_last_status();
    if (status >= 0)
        status = weft_i_tensor_copy(out, whole);
    weft_release(whole);
    return status;
}

weft_status weft_i_symm_row_gather_run(weft_i_op_call *call)
{
    return gather_into(call, call->out, call->args[0].tensor);
}

weft_status weft_i_symm_row_gather_out_run(weft_i_op_call *call)
{
    return gather_into(call, call->args[0].tensor, call->args[1].tensor);
}
