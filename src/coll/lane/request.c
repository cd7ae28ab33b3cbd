/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of arguments, in the order in which the calls fill themselves; see request.h. */
#include "coll/lane/request.h"
#include "base/os/assert.h"
#include "base/os/place.h"
#include "coll/lane/lines.h"

#include "base/report/status.h"

#include <stdio.h>
#include <string.h>

/* A reduction is cast to the fold of its name. */
_Static_assert((int)WEFT_SUM == WEFT_I_FOLD_SUM && (int)WEFT_AVG == WEFT_I_FOLD_AVG &&
                   (int)WEFT_PRODUCT == WEFT_I_FOLD_PRODUCT && (int)WEFT_MIN == WEFT_I_FOLD_MIN &&
                   (int)WEFT_MAX == WEFT_I_FOLD_MAX && (int)WEFT_BAND == WEFT_I_FOLD_BAND &&
                   (int)WEFT_BOR == WEFT_I_FOLD_BOR && (int)WEFT_BXOR == WEFT_I_FOLD_BXOR &&
                   (int)WEFT_PREMUL_SUM == WEFT_I_FOLD_PREMUL_SUM &&
                   (int)WEFT_REDUCTIONS == WEFT_I_FOLD_OPS,
               "reductions and folds are the same, in the same order");

static _Thread_local double premul = 1;

void weft_set_premul(double factor)
{
    premul = factor;
    if (weft_i_eye_open)
        weft_i_eye_open->factored = true;
}

double weft_i_request_swap_premul(double factor)
{
    double old = premul;
    premul = factor;
    return old;
}

double weft_i_request_premul(void)
{
    return premul;
}

weft_status weft_i_request_refuse_group(const char *op, weft_group *group)
{
    if (!group)
        return weft_i_missing("%s: the group is NULL", op);
    WEFT_TRY(weft_i_group_usable(group));
    return weft_i_reach_of_group(group, WEFT_I_ANY_DEVICE) == WEFT_I_REACH_NONE
               ? weft_i_reach_refuse(op, group, "carries it")
               : WEFT_OK;
}

weft_status weft_i_request_check_contiguous(const char *op, const char *which,
                                            const weft_tensor *tensor)
{
    char text[WEFT_I_SHAPE_TEXT];
    if (weft_i_tensor_is_contiguous(tensor))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the %s, of shape %s, is not contiguous; %s", op,
                       which, weft_i_shape_text(weft_i_tensor_shape(tensor), text),
                       strcmp(which, "output") ? "weft_contiguous makes a copy that is"
                                               : "take a contiguous one, and weft_copy from it");
}

WEFT_I_COLD static weft_status check_layout(const char *op, const char *which,
                                            const weft_tensor *tensor)
{
    WEFT_TRY(weft_i_request_check_contiguous(op, which, tensor));
    WEFT_TRY(weft_i_storage_unclaimed(tensor->storage, false));
    return weft_i_tensor_fits(op, tensor);
}

weft_status weft_i_request_check_anywhere(const char *op, const char *which,
                                          const weft_tensor *tensor)
{
    if (!tensor)
        return weft_i_missing("%s: the %s is NULL", op, which);
    WEFT_TRY(weft_i_tensor_check_live(op, tensor));
    if (weft_i_tensor_device(tensor) == WEFT_META)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s: the %s is on meta, where tensors have no elements", op, which);
    return weft_i_request_is_fine(tensor) ? WEFT_OK : check_layout(op, which, tensor);
}

weft_status weft_i_request_check_output(const char *op, const weft_tensor *tensor)
{
    WEFT_TRY(weft_i_request_check_anywhere(op, "output", tensor));
    if (tensor->storage->read_only)
        return weft_i_fail(WEFT_ERR_STATE, "%s: the output is read-only memory", op);
    return weft_i_storage_unclaimed(tensor->storage, true);
}

weft_status weft_i_request_refuse_root(const char *op, const weft_group *group, int root)
{
    int here = weft_group_rank_of(group, root);
    char hint[96] = "";
    if (here >= 0)
        snprintf(hint, sizeof hint, "; rank %d of the world is rank %d of it", root, here);
    else if (root >= 0 && root < group->world->size)
        snprintf(hint, sizeof hint, "; rank %d of the world is no member", root);
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: rank %d must be in [0, %d): ranks are those of group \"%s\"%s", op,
                       root, group->size, group->name, hint);
}

/* The operands of a rank are of one dtype, and on one device. */
WEFT_I_COLD static weft_status fail_different(const weft_i_coll *coll, const weft_tensor *x)
{
    weft_device device = weft_i_tensor_device(x);
    char a[16], b[16];
    if (device != coll->ask.device)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the input is on %s, the output on %s", coll->ask.op,
                           weft_device_name(coll->ask.device, a), weft_device_name(device, b));
    return weft_i_fail(WEFT_ERR_TYPE, "%s: the input is %s, the output %s", coll->ask.op,
                       weft_dtype_name(coll->ask.dtype), weft_dtype_name(x->dtype));
}

/* Where the elements of an operand lie that is fine. */
static inline weft_status note(weft_i_coll *coll, weft_tensor *x, bool written)
{
    if (!written) {
        coll->ask.device = x->storage->device;
        coll->ask.dtype = x->dtype;
        coll->ask.in = weft_i_tensor_data(x);
        coll->ask.in_bytes = (size_t)x->numel * weft_i_dtype_size(x->dtype);
        coll->in_tensor = x;
        return WEFT_OK;
    }
    coll->out_tensor = x;
    if (x == coll->in_tensor) { /* in place */
        coll->ask.out = coll->ask.in;
        coll->ask.out_bytes = coll->ask.in_bytes;
        return WEFT_OK;
    }
    weft_device device = x->storage->device;
    if (coll->in_tensor && (device != coll->ask.device || x->dtype != coll->ask.dtype))
        return fail_different(coll, x);
    coll->ask.device = device;
    coll->ask.dtype = x->dtype;
    coll->ask.out = weft_i_tensor_data(x);
    coll->ask.out_bytes = (size_t)x->numel * weft_i_dtype_size(x->dtype);
    return WEFT_OK;
}

/* Says what is wrong with an operand, or waits until nothing is. */
WEFT_I_COLD static weft_status examine(weft_i_coll *coll, weft_tensor *x, bool written)
{
    WEFT_TRY(written ? weft_i_request_check_output(coll->ask.op, x)
                     : weft_i_request_check_anywhere(coll->ask.op, "input", x));
    return note(coll, x, written);
}

WEFT_I_HOT weft_status weft_i_request_operand(weft_i_coll *coll, weft_tensor *x, bool written)
{
    bool fine = x && weft_i_request_is_fine(x) && !(written && x->storage->read_only);
    return fine ? note(coll, x, written) : examine(coll, x, written);
}

WEFT_I_HOT weft_status weft_i_request_check_overlap(const weft_i_coll *coll, size_t in_at,
                                                    size_t out_at)
{
    const char *in = coll->ask.in, *out = coll->ask.out;
    if (!coll->ask.in_bytes || !coll->ask.out_bytes || in + coll->ask.in_bytes <= out ||
        out + coll->ask.out_bytes <= in || in + in_at == out + out_at)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: input and output overlap without being the same",
                       coll->ask.op);
}

weft_status weft_i_request_check_counts(const weft_i_coll *coll, size_t larger, size_t smaller,
                                        const char *which)
{
    return weft_i_request_check_total(coll->ask.op, which, larger, smaller, coll->group->size,
                                      coll->ask.dtype);
}

weft_status weft_i_request_check_total(const char *op, const char *which, size_t larger,
                                       size_t smaller, int size, weft_dtype dtype)
{
    size_t ranks = (size_t)size, item = weft_i_dtype_size(dtype);
    size_t total = smaller > SIZE_MAX / ranks ? SIZE_MAX : smaller * ranks;
    if (larger == total)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: the %s has %zu elements; for %zu ranks with %zu each it must have %zu",
                       op, which, larger / item, ranks, smaller / item, total / item);
}

weft_status weft_i_request_fail_unequal(const char *op, const weft_tensor *in,
                                        const weft_tensor *out)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: the input has %lld elements, shape %s, but the output %lld, shape %s",
                       op, (long long)in->numel, weft_i_shape_text(weft_i_tensor_shape(in), a),
                       (long long)out->numel, weft_i_shape_text(weft_i_tensor_shape(out), b));
}

WEFT_I_HOT weft_status weft_i_request_reduction(weft_i_coll *coll, weft_reduction op)
{
    if ((unsigned)op >= WEFT_REDUCTIONS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %d is not a reduction", coll->ask.op,
                           (int)op);
    coll->ask.reduction = op;
    coll->ask.factor = op == WEFT_PREMUL_SUM ? premul : 1;
    coll->fold = weft_i_fold_find(coll->ask.dtype, (weft_i_fold_op)op);
    if (!coll->fold)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: reduction %s has no meaning for %s", coll->ask.op,
                           weft_reduction_name(op), weft_dtype_name(coll->ask.dtype));
    return WEFT_OK;
}

WEFT_I_HOT weft_status weft_i_request_begin(weft_i_coll *coll, weft_i_coll_kind kind,
                                            weft_group *group)
{
    const char *op = weft_i_coll_name(kind);
    weft_i_coll_empty(coll);
    coll->ask.op = op;
    coll->ask.kind = kind;
    coll->group = group;
    coll->label = (weft_i_label){group, op, -1};
    /* Pairs with the release of note_library in carrier.c. */
    const weft_i_call_lines *fast =
        group ? atomic_load_explicit(&group->fast, memory_order_acquire) : NULL;
    if (fast)
        weft_i_lines_fetch_all(fast);
    WEFT_TRY(weft_i_request_check_group(op, group));
    coll->ask.rank = group->rank;
    coll->ask.size = group->size;
    coll->ask.limit_ms = weft_i_group_limit(group, WEFT_DEFAULT);
    return WEFT_OK;
}

/* The last step of every filling: what the ranks must agree on. */
WEFT_I_HOT weft_status weft_i_request_accept(weft_i_coll *coll, size_t part_bytes)
{
    coll->ask.item = weft_i_dtype_size(coll->ask.dtype);
    WEFT_ASSERT(part_bytes % coll->ask.item == 0);
    coll->ask.count =
        part_bytes >> __builtin_ctzll(coll->ask.item); /* sizes of elements are powers of two */
    uint64_t what = (uint64_t)coll->ask.kind | (uint64_t)coll->ask.dtype << 8 |
                    (uint64_t)coll->ask.reduction << 16 | (uint64_t)(uint32_t)coll->ask.root << 32;
    coll->digest = weft_i_digest(weft_i_digest(1, what), coll->ask.count);
    return WEFT_OK;
}

/* Bytes of one row: elements of dim 0; of a 1-d tensor an element. */
size_t weft_i_request_row_bytes(const weft_tensor *x)
{
    size_t bytes = weft_i_dtype_size(x->dtype);
    for (int dim = 1; dim < x->ndim; dim++)
        bytes *= (size_t)x->dim[dim];
    return bytes;
}
