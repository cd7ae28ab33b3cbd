/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over dimensions: one shape rule family and one run function over the engine of
 * kernels/reduce. */
#include "kernels/vector/reduce.h"

#include "tensor/op/ops.h"
#include "weft/op.h"

enum { DIMS = 1, KEEPDIM = 2 }; /* positions of the arguments */

/* The dimensions that go, as bits; all of them if none is named. */
static weft_status reduced_dims(const weft_i_op_call *call, unsigned *out)
{
    const weft_tensor *x = call->args[0].tensor;
    const weft_i_arg *dims = &call->args[DIMS];
    *out = dims->count ? 0 : (1u << x->ndim) - 1;
    for (size_t i = 0; i < dims->count; i++) {
        int64_t dim = dims->integers[i];
        if (x->ndim == 0 && (dim == 0 || dim == -1))
            continue; /* as in PyTorch, a 0-d tensor may be reduced over "its" dimension */
        int at = weft_i_dim_wrap(call->op->name, dim, x->ndim);
        if (at < 0)
            return weft_last_status();
        if (*out & 1u << at)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: dimension %d is named twice",
                               call->op->name, at);
        *out |= 1u << at;
    }
    return WEFT_OK;
}

/* Without an `identity` there must be something along every dimension that goes. */
static weft_status take_shape(weft_i_op_call *call, bool identity)
{
    const weft_tensor *x = call->args[0].tensor;
    weft_shape shape = {0, {0}};
    char text[WEFT_I_SHAPE_TEXT];
    unsigned gone;
    WEFT_TRY(reduced_dims(call, &gone));
    for (int i = 0; i < x->ndim; i++) {
        bool goes = gone >> i & 1;
        if (goes && !identity && x->dim[i] == 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: no elements along dimension %d of shape %s, and no identity",
                               call->op->name, i, weft_i_shape_text(weft_i_tensor_shape(x), text));
        if (!goes)
            shape.dim[shape.ndim++] = x->dim[i];
        else if (call->args[KEEPDIM].integer)
            shape.dim[shape.ndim++] = 1;
    }
    call->result.shape = shape;
    weft_i_shape_strides(shape, call->result.stride);
    return WEFT_OK;
}

/* f32 for the small floats; i64 for integers and bool, except that u64 is compared as itself. */
static weft_dtype compute_of(weft_dtype dtype)
{
    return dtype == WEFT_F64 ? WEFT_F64 : weft_i_dtype_is_float(dtype) ? WEFT_F32 : WEFT_I64;
}

weft_status weft_i_sum_shape(weft_i_op_call *call)
{
    weft_dtype dtype = call->args[0].tensor->dtype;
    call->result.dtype = weft_i_dtype_is_float(dtype) ? dtype : WEFT_I64;
    call->result.compute = compute_of(dtype);
    return take_shape(call, true);
}

weft_status weft_i_mean_shape(weft_i_op_call *call)
{
    weft_dtype dtype = call->args[0].tensor->dtype;
    if (!weft_i_dtype_is_float(dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "mean: of %s; convert it to a float with weft_to_dtype",
                           weft_dtype_name(dtype));
    return weft_i_sum_shape(call);
}

weft_status weft_i_extreme_shape(weft_i_op_call *call)
{
    weft_dtype dtype = call->args[0].tensor->dtype;
    call->result.dtype = dtype;
    call->result.compute = dtype == WEFT_U64 ? WEFT_U64 : compute_of(dtype);
    return take_shape(call, false);
}

weft_status weft_i_truth_shape(weft_i_op_call *call)
{
    call->result.dtype = WEFT_BOOL;
    call->result.compute = WEFT_U8;
    return take_shape(call, true);
}

weft_status weft_i_index_shape(weft_i_op_call *call)
{
    WEFT_TRY(weft_i_extreme_shape(call));
    call->result.dtype = WEFT_I64;
    return WEFT_OK;
}

/* Bytes from one element to the next.  A dimension of one has no next, and any stride at all. */
static int64_t step_of(const weft_tensor *x, int dim, int64_t size)
{
    return x->dim[dim] == 1 ? 0 : x->stride[dim] * size;
}

weft_i_reduce weft_i_reduce_describe(const weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor, *out = call->out;
    bool truth = call->op->shape == weft_i_truth_shape;
    /* Without elements there is no memory to step through, and nothing is read. */
    bool empty = weft_i_tensor_numel(x) == 0;
    int64_t size = empty ? 0 : (int64_t)weft_dtype_size(x->dtype),
            out_size = (int64_t)weft_dtype_size(out->dtype);
    weft_i_reduce what = {.which = call->op->kernel & 0xff,
                          .mean = call->op->kernel & WEFT_I_REDUCE_MEAN,
                          .in = x->dtype,
                          .out = out->dtype,
                          .compute = call->result.compute,
                          .taken = truth ? WEFT_BOOL : call->result.compute,
                          .from = empty ? "" : weft_i_tensor_data(x),
                          .to = weft_i_tensor_data(out)};
    unsigned gone = 0;
    reduced_dims(call, &gone); /* the shape rule checked it */
    for (int i = 0, to = 0; i < x->ndim; i++) {
        if (gone & 1u << i) {
            to += call->args[KEEPDIM].integer != 0;
            what.reduced_dim[what.reduced] = x->dim[i];
            what.reduced_in[what.reduced] = step_of(x, i, size);
            what.reduced += x->dim[i] != 1;
        } else {
            what.kept_dim[what.kept] = x->dim[i];
            what.kept_in[what.kept] = step_of(x, i, size);
            what.kept_out[what.kept] = step_of(out, to++, out_size);
            what.kept += x->dim[i] != 1;
        }
    }
    return what;
}

weft_status weft_i_reduce_row_run(weft_i_op_call *call)
{
    weft_i_reduce what = weft_i_reduce_describe(call);
    weft_i_reduce_run(&what);
    return WEFT_OK;
}

weft_status weft_i_reduce_index_run(weft_i_op_call *call)
{
    weft_i_reduce what = weft_i_reduce_describe(call);
    weft_i_reduce_index(&what);
    return WEFT_OK;
}

/* Widens the caller's ints; the row checks them. */
static weft_tensor *reduce(const weft_i_op *op, weft_tensor *x, const int *dims, int count,
                           bool keepdim)
{
    int64_t wide[WEFT_MAX_DIMS];
    if (count < 0 || count > WEFT_MAX_DIMS || (count && !dims))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: %d dimensions named", op->name, count);
    for (int i = 0; i < count; i++)
        wide[i] = dims[i];
    return weft_i_op_apply(op, NULL,
                           (weft_i_arg[]){WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGERS_ARG(wide, count),
                                          WEFT_I_INTEGER_ARG(keepdim)});
}

#define REDUCE(public_, row_)                                                      \
    weft_tensor *public_(weft_tensor *x, const int *dims, int count, bool keepdim) \
    {                                                                              \
        return reduce(&weft_i_op_##row_, x, dims, count, keepdim);                 \
    }
REDUCE(weft_sum, sum)
REDUCE(weft_mean, mean)
REDUCE(weft_prod, prod)
REDUCE(weft_max, max)
REDUCE(weft_min, min)
REDUCE(weft_any, any)
REDUCE(weft_all, all)

weft_tensor *weft_argmax(weft_tensor *x, int dim, bool keepdim)
{
    return reduce(&weft_i_op_argmax, x, &dim, 1, keepdim);
}

weft_tensor *weft_argmin(weft_tensor *x, int dim, bool keepdim)
{
    return reduce(&weft_i_op_argmin, x, &dim, 1, keepdim);
}

weft_tensor *weft_argmax_all(weft_tensor *x)
{
    return reduce(&weft_i_op_argmax, x, NULL, 0, false);
}

weft_tensor *weft_argmin_all(weft_tensor *x)
{
    return reduce(&weft_i_op_argmin, x, NULL, 0, false);
}
