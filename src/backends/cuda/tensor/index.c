/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements by index on CUDA devices, and what is put together from copies: cat, view_scatter.
 *
 * The host does not see the values of an index.  A kernel that meets one out of range leaves that
 * element out and notes it, and the next wait for the device says so.
 */
#include "backends/cuda/device/launch.h"
#include "columns.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"

#include <string.h>

enum { X, DIM, INDEX, SOURCE }; /* positions of the arguments */

static uint64_t next_ticket(weft_i_cuda_device *device)
{
    return atomic_fetch_add_explicit(&device->tickets, 1, memory_order_relaxed) + 1;
}

static int dim_of(const weft_i_op_call *call)
{
    int ndim = call->args[X].tensor->ndim;
    return ndim ? weft_i_dim_wrap(call->op->name, call->args[DIM].integer, ndim) : 0;
}

static int64_t size_of(const weft_tensor *x)
{
    return (int64_t)weft_dtype_size(x->dtype);
}

weft_status weft_i_cuda_take_along_run(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor, *index = call->args[INDEX].tensor;
    const weft_tensor *out = call->out;
    int dim = dim_of(call);
    weft_i_cuda_stream *stream;
    if (index->numel == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_k_gather c = {.to = weft_i_cuda_data(out),
                       .from = weft_i_cuda_data(x),
                       .index = weft_i_cuda_data(index),
                       .fault = stream->device->fault,
                       .ticket = next_ticket(stream->device),
                       .count = (uint64_t)index->numel,
                       .limit = x->ndim ? (uint64_t)x->dim[dim] : 1,
                       .by_index = x->ndim ? x->stride[dim] * size_of(x) : 0,
                       .ndim = index->ndim,
                       .size = (int32_t)size_of(x),
                       .index_dtype = (int32_t)index->dtype,
                       .op = WEFT_K_AT_GATHER};
    for (int d = 0; d < index->ndim; d++) {
        c.dim[d] = (uint64_t)index->dim[d];
        c.to_stride[d] = out->stride[d] * size_of(out);
        c.from_stride[d] = d == dim ? 0 : x->stride[d] * size_of(x);
        c.index_stride[d] = index->stride[d] * size_of(index);
    }
    return weft_i_cuda_launch_threads(stream, WEFT_I_CUDA_gather, c.count, &c);
}

/* Rows whose bytes are adjacent are moved by the largest words, up to 16 bytes, that all of them
 * consist of. */
static void widen(weft_k_gather *c)
{
    int last = c->ndim - 1;
    uint64_t bytes = c->dim[last] * (uint64_t)c->size;
    uint64_t together = (uintptr_t)c->from | (uintptr_t)c->to | (uint64_t)c->by_index | bytes | 16;
    for (int d = 0; d < last; d++)
        together |= (uint64_t)c->to_stride[d];
    uint64_t word = together & -together; /* its lowest bit: the largest that divides them all */
    if (c->from_stride[last] != c->size || c->to_stride[last] != c->size ||
        word <= (uint64_t)c->size)
        return;
    c->count = c->count / c->dim[last] * (bytes / word);
    c->dim[last] = bytes / word;
    c->size = (int32_t)word;
    c->from_stride[last] = c->to_stride[last] = (int64_t)word;
}

weft_status weft_i_cuda_embedding_run(weft_i_op_call *call)
{
    const weft_tensor *weight = call->args[0].tensor, *index = call->args[1].tensor;
    const weft_tensor *out = call->out;
    int last = index->ndim;
    weft_i_cuda_stream *stream;
    if (out->numel == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_k_gather c = {.to = weft_i_cuda_data(out),
                       .from = weft_i_cuda_data(weight),
                       .index = weft_i_cuda_data(index),
                       .fault = stream->device->fault,
                       .ticket = next_ticket(stream->device),
                       .count = (uint64_t)out->numel,
                       .limit = (uint64_t)weight->dim[0],
                       .by_index = weight->stride[0] * size_of(weight),
                       .ndim = last + 1,
                       .size = (int32_t)size_of(weight),
                       .index_dtype = (int32_t)index->dtype,
                       .op = WEFT_K_AT_EMBEDDING};
    for (int d = 0; d <= last; d++) {
        c.dim[d] = (uint64_t)out->dim[d];
        c.to_stride[d] = out->stride[d] * size_of(out);
        c.index_stride[d] = d < last ? index->stride[d] * size_of(index) : 0;
    }
    c.from_stride[last] = weight->stride[1] * size_of(weight);
    widen(&c);
    return weft_i_cuda_launch_threads(stream, WEFT_I_CUDA_gather, c.count, &c);
}

/* Sums of small floats are in f32, so that they round once; integers wrap. */
static weft_dtype compute_of(weft_dtype dtype)
{
    return dtype == WEFT_F64 ? WEFT_F64 : weft_i_dtype_is_float(dtype) ? WEFT_F32 : WEFT_I64;
}

/* A packed tensor of the compute type: the result itself where that is one, else room. */
static weft_tensor *sums_for(weft_tensor *out, weft_dtype compute)
{
    if (out->dtype == compute && out->packed)
        return weft_i_object_hold(out);
    return weft_keep(
        weft_i_tensor_new(compute, weft_i_tensor_device(out), weft_i_tensor_shape(out), NULL));
}

static weft_k_scatter lines_of(const weft_i_op_call *call, const weft_tensor *sum, int dim)
{
    const weft_tensor *index = call->args[INDEX].tensor, *source = call->args[SOURCE].tensor;
    bool flat = index->ndim == 0;
    weft_k_scatter c = {.to = weft_i_cuda_data(sum),
                        .from = weft_i_cuda_data(source),
                        .index = weft_i_cuda_data(index),
                        .lines = 1,
                        .length = flat ? 1 : (uint64_t)index->dim[dim],
                        .limit = flat ? 1 : (uint64_t)sum->dim[dim],
                        .by_index = flat ? 0 : sum->stride[dim] * size_of(sum),
                        .from_step = flat ? 0 : source->stride[dim] * size_of(source),
                        .index_step = flat ? 0 : index->stride[dim] * size_of(index),
                        .dtype = (int32_t)source->dtype,
                        .compute = (int32_t)sum->dtype,
                        .index_dtype = (int32_t)index->dtype,
                        .op = WEFT_K_AT_SCATTER};
    for (int d = 0; d < index->ndim; d++) {
        if (d == dim)
            continue;
        c.dim[c.ndim] = (uint64_t)index->dim[d];
        c.to_stride[c.ndim] = sum->stride[d] * size_of(sum);
        c.from_stride[c.ndim] = source->stride[d] * size_of(source);
        c.index_stride[c.ndim++] = index->stride[d] * size_of(index);
        c.lines *= (uint64_t)index->dim[d];
    }
    c.wide = c.length > 32 && c.lines < 4096;
    return c;
}

weft_status weft_i_cuda_scatter_add_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[X].tensor;
    weft_i_cuda_stream *stream;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_tensor *sum = sums_for(call->out, compute_of(x->dtype));
    weft_status status = sum ? weft_i_tensor_copy(sum, x) : weft_last_status();
    if (status >= 0 && call->args[INDEX].tensor->numel) {
        weft_k_scatter c = lines_of(call, sum, dim_of(call));
        c.fault = stream->device->fault;
        c.ticket = next_ticket(stream->device);
        status = c.wide ? weft_i_cuda_launch_blocks(stream, WEFT_I_CUDA_scatter_add, c.lines, &c)
                        : weft_i_cuda_launch_threads(stream, WEFT_I_CUDA_scatter_add, c.lines, &c);
    }
    if (status >= 0 && sum != call->out)
        status = weft_i_tensor_copy(call->out, sum);
    weft_i_object_drop(sum);
    return status;
}

static weft_status spread(weft_i_cuda_stream *stream, const weft_i_op_call *call,
                          const weft_tensor *sums, const weft_tensor *grad,
                          const weft_tensor *index)
{
    weft_k_spread c = {.to = weft_i_cuda_data(sums),
                       .from = weft_i_cuda_data(grad),
                       .index = (const int64_t *)(const void *)weft_i_cuda_data(index),
                       .fault = stream->device->fault,
                       .ticket = next_ticket(stream->device),
                       .count = (uint64_t)index->numel,
                       .width = (uint64_t)call->out->dim[1],
                       .limit = (uint64_t)call->out->dim[0],
                       .dtype = (int32_t)grad->dtype,
                       .compute = (int32_t)sums->dtype,
                       .op = WEFT_K_AT_EMBEDDING_GRAD};
    return weft_i_cuda_launch_blocks(stream, WEFT_I_CUDA_spread, c.count, &c);
}

weft_status weft_i_cuda_embedding_grad_run(weft_i_op_call *call)
{
    weft_tensor *grad = call->args[0].tensor, *out = call->out;
    weft_i_cuda_stream *stream;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_tensor *index = weft_i_cuda_packed(call->args[1].tensor, WEFT_I64);
    weft_tensor *from = index ? weft_i_cuda_packed(grad, grad->dtype) : NULL;
    weft_tensor *sums = from ? sums_for(out, compute_of(grad->dtype)) : NULL;
    weft_status status = sums ? WEFT_OK : weft_last_status();
    if (status >= 0 && sums->numel)
        status = weft_i_device_fill(weft_i_tensor_device(sums), weft_i_tensor_data(sums), 0,
                                    (size_t)sums->numel * weft_dtype_size(sums->dtype));
    if (status >= 0)
        status = spread(stream, call, sums, from, index);
    if (status >= 0 && sums != out && out->numel)
        status = weft_i_tensor_copy(out, sums);
    weft_i_object_drop(index);
    weft_i_object_drop(from);
    weft_i_object_drop(sums);
    return status;
}

weft_status weft_i_cuda_view_scatter_run(weft_i_op_call *call)
{
    WEFT_TRY(weft_i_tensor_copy(call->out, call->args[0].tensor));
    weft_tensor region = *call->out; /* a window on the result, which the shape rule has checked */
    region.ndim = (int)call->args[2].count;
    for (int d = 0; d < region.ndim; d++) {
        region.dim[d] = call->args[2].integers[d];
        region.stride[d] = call->args[3].integers[d];
    }
    region.offset += call->args[4].integer;
    weft_i_tensor_measure(&region);
    return weft_i_tensor_copy(&region, call->args[1].tensor);
}

weft_status weft_i_cuda_cat_run(weft_i_op_call *call)
{
    const weft_i_arg *list = &call->args[0];
    weft_tensor part = *call->out; /* a window on the result that moves along */
    int dim = weft_i_dim_wrap("cat", call->args[1].integer, part.ndim);
    for (size_t i = 0; i < list->count; i++) {
        part.dim[dim] = list->tensors[i]->dim[dim];
        weft_i_tensor_measure(&part);
        WEFT_TRY(weft_i_tensor_copy(&part, list->tensors[i]));
        part.offset += part.dim[dim] * part.stride[dim];
    }
    return WEFT_OK;
}
