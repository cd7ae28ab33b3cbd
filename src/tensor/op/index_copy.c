/* SPDX-License-Identifier: Apache-2.0 */
/* index_copy: slices of a tensor are replaced by those of another, by their numbers.  All indices are
 * checked before the first element is written. */
#include "kernels/number/convert.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <string.h>

enum { X, DIM, INDEX, SOURCE };

/* The shape of the source: that of x, with as many slices as there are indices. */
static weft_status check(const weft_tensor *x, int64_t dim_given, const weft_tensor *index,
                         const weft_tensor *source, int *dim)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    *dim = weft_i_dim_wrap("index_copy", dim_given, x->ndim);
    if (*dim < 0)
        return weft_last_status();
    if (weft_i_dtype_class(index->dtype) != 1 || index->ndim != 1)
        return weft_i_fail(WEFT_ERR_TYPE,
                           "index_copy: the index is %s of %d dimensions; it is integers of one",
                           weft_dtype_name(index->dtype), index->ndim);
    weft_shape wanted = weft_i_tensor_shape(x);
    wanted.dim[*dim] = index->dim[0];
    if (source->dtype != x->dtype || !weft_i_shape_equal(weft_i_tensor_shape(source), wanted))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "index_copy: a source of %s %s; it must be %s %s",
                           weft_dtype_name(source->dtype),
                           weft_i_shape_text(weft_i_tensor_shape(source), a),
                           weft_dtype_name(x->dtype), weft_i_shape_text(wanted, b));
    return WEFT_OK;
}

weft_status weft_i_index_copy_shape(weft_i_op_call *call)
{
    int dim;
    return check(call->args[X].tensor, call->args[DIM].integer, call->args[INDEX].tensor,
                 call->args[SOURCE].tensor, &dim);
}

/* Entry `i` of the index; -1 and an error if there is no such slice. */
static int64_t index_at(const weft_tensor *index, int64_t i, int64_t size)
{
    int64_t value;
    weft_i_convert(WEFT_I64, &value, index->dtype,
                   weft_i_tensor_data(index) + i * weft_i_tensor_step(index, 0), 1);
    if (value >= 0 && value < size)
        return value;
    weft_i_fail(WEFT_ERR_INVALID_ARG,
                "index_copy: index %lld at %lld; the dimension has %lld elements", (long long)value,
                (long long)i, (long long)size);
    return -1;
}

static void copy_slice(const weft_tensor *x, const weft_tensor *source, int dim, int64_t to,
                       int64_t from)
{
    weft_tensor target = *x, slice = *source;
    target.dim[dim] = slice.dim[dim] = 1;
    target.offset += to * x->stride[dim];
    slice.offset += from * source->stride[dim];
    weft_i_copy_tensor(&target, &slice);
}

weft_status weft_i_index_copy_run(weft_i_op_call *call)
{
    weft_tensor *x = call->out, *index = call->args[INDEX].tensor;
    weft_tensor *source = call->args[SOURCE].tensor, *copy = NULL;
    int dim = weft_i_dim_wrap("index_copy", call->args[DIM].integer, x->ndim);
    for (int64_t i = 0; i < index->numel; i++)
        if (index_at(index, i, x->dim[dim]) < 0)
            return weft_last_status();
    if (!source->numel)
        return WEFT_OK;
    if (weft_i_tensor_ranges_meet(x, source) || weft_i_tensor_ranges_meet(x, index)) {
        copy = weft_i_tensor_new(x->dtype, WEFT_CPU, weft_i_tensor_shape(source), NULL);
        if (!copy)
            return weft_last_status();
        weft_i_copy_tensor(copy, source);
    }
    for (int64_t i = 0; i < index->numel; i++)
        copy_slice(x, copy ? copy : source, dim, index_at(index, i, x->dim[dim]), i);
    weft_release(copy);
    return WEFT_OK;
}

/* ---- for devices on which the row does not run ---- */

/* A vector along dimension `dim` of `ndim`, broadcast to `shape`. */
static weft_tensor *spread(weft_tensor *x, int dim, weft_shape shape)
{
    weft_shape one = {shape.ndim, {1, 1, 1, 1, 1, 1, 1, 1}};
    one.dim[dim] = weft_tensor_size(x, 0);
    return weft_expand(weft_view(x, one), shape);
}

/* Which slice of the source goes where, as a vector over x's slices, and where none does: then
 * every slice is taken from the one or the other. */
static weft_status composed(weft_tensor *x, int dim, weft_tensor *index, weft_tensor *source)
{
    weft_device device = weft_i_tensor_device(x);
    weft_shape shape = weft_i_tensor_shape(x);
    int64_t slices = shape.dim[dim], count = index->dim[0];
    weft_tensor *zeros = weft_zeros(WEFT_I64, device, WEFT_SHAPE(slices));
    weft_tensor *number = weft_arange(WEFT_I64, device, 0, (double)count, 1);
    weft_tensor *ones = weft_ones(WEFT_I64, device, WEFT_SHAPE(count));
    weft_tensor *from = weft_scatter_add(zeros, 0, index, number);
    weft_tensor *hit = weft_gt_scalar(weft_scatter_add(zeros, 0, index, ones), 0);
    if (!hit || !count)
        return hit ? WEFT_OK : weft_last_status();
    weft_tensor *taken = weft_take_along(source, dim, spread(from, dim, shape));
    weft_tensor *mixed = weft_where(spread(hit, dim, shape), taken, x);
    return mixed ? weft_copy(x, mixed) : weft_last_status();
}

static weft_status in_parts(weft_tensor *x, int dim, weft_tensor *index, weft_tensor *source)
{
    int at;
    WEFT_TRY(weft_i_tensor_check_live("index_copy", index));
    WEFT_TRY(weft_i_tensor_check_live("index_copy", source));
    WEFT_TRY(check(x, dim, index, source, &at));
    return composed(x, at, index, source);
}

weft_status weft_index_copy(weft_tensor *x, int dim, weft_tensor *index, weft_tensor *source)
{
    const weft_tensor *seen = x && index && source ? weft_i_see(x) : NULL;
    bool live = seen && weft_i_tensor_check_live("index_copy", seen) >= 0;
    weft_device device = live ? weft_i_tensor_device(seen) : WEFT_CPU;
    int kind = weft_i_device_kind(device);
    if (live && device != WEFT_META && kind > 0 && kind < WEFT_I_DEVICE_KINDS &&
        !weft_i_op_index_copy_.run[kind])
        return in_parts(weft_i_see(x), dim, weft_i_see(index), weft_i_see(source));
    return WEFT_I_ACT(index_copy_, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim),
                      WEFT_I_TENSOR_ARG(index), WEFT_I_TENSOR_ARG(source));
}
