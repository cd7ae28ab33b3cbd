/* SPDX-License-Identifier: Apache-2.0 */
/* Making and moving elements on CUDA devices: the column of empty, full, fill, copy and their kin.
 */
#include "backends/cuda/device/launch.h"
#include "backends/cuda/device/stream.h"
#include "kernels/number/convert.h"
#include "pointwise.h"
#include "table.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"

#include <string.h>

static bool is_here(const weft_tensor *x)
{
    return weft_i_device_kind(weft_i_tensor_device(x)) == WEFT_I_KIND_CUDA;
}

/* Elements of `from`, broadcast to the shape of `to`, both on devices. */
static weft_status convert(weft_i_cuda_stream *stream, const weft_tensor *to,
                           const weft_tensor *from)
{
    weft_i_loop loop = weft_i_loop_over(to);
    weft_i_loop_add(&loop, from);
    weft_k_copy copy = {.to = loop.data[0],
                        .from = loop.data[1],
                        .ndim = loop.ndim,
                        .to_dtype = (int32_t)to->dtype,
                        .from_dtype = (int32_t)from->dtype,
                        .size = (int32_t)weft_dtype_size(to->dtype)};
    for (int d = 0; d < loop.ndim; d++) {
        copy.dim[d] = (uint64_t)loop.dim[d];
        copy.to_stride[d] = loop.stride[0][d];
        copy.from_stride[d] = loop.stride[1][d];
    }
    return to->numel ? weft_i_cuda_convert(stream, &copy) : WEFT_OK;
}

/* Two devices of a kind: the target's stream does it, between two points of the source's. */
static weft_status between_devices(weft_tensor *to, weft_tensor *from)
{
    weft_i_cuda_stream *here, *there;
    WEFT_TRY(weft_i_cuda_current(weft_i_tensor_device(to), &here));
    WEFT_TRY(weft_i_cuda_current(weft_i_tensor_device(from), &there));
    WEFT_TRY(weft_i_device_cuda.stream_after(here, there, false));
    size_t bytes = (size_t)from->numel * weft_dtype_size(from->dtype);
    WEFT_TRY(weft_i_cuda_copy(here, weft_i_tensor_data(to), weft_i_tensor_data(from), bytes));
    return weft_i_device_cuda.stream_after(there, here, false);
}

/* Packed elements of one dtype, from one kind of memory to another. */
static weft_status move_packed(weft_tensor *to, weft_tensor *from)
{
    weft_device a = weft_i_tensor_device(to), b = weft_i_tensor_device(from);
    size_t bytes = (size_t)from->numel * weft_dtype_size(from->dtype);
    if (is_here(to) && is_here(from))
        return between_devices(to, from);
    return weft_i_device_copy(a, weft_i_tensor_data(to), b, weft_i_tensor_data(from), bytes);
}

static weft_tensor *packed_like(const weft_tensor *x, weft_dtype dtype, weft_device device)
{
    return weft_keep(weft_i_tensor_new(dtype, device, weft_i_tensor_shape(x), NULL));
}

/* Elements that are not packed, or change their dtype, are packed where they are, moved, and spread
 * where they go; of two dtypes the smaller one travels. */
static weft_status move(weft_tensor *to, weft_tensor *from)
{
    bool smaller = weft_dtype_size(to->dtype) < weft_dtype_size(from->dtype);
    weft_dtype dtype = smaller ? to->dtype : from->dtype;
    bool whole = weft_i_shape_equal(weft_i_tensor_shape(to), weft_i_tensor_shape(from));
    weft_tensor *sent = NULL, *got = NULL;
    weft_status status = WEFT_OK;
    if (from->packed && from->dtype == dtype)
        sent = weft_i_object_hold(from);
    else if ((sent = packed_like(from, dtype, weft_i_tensor_device(from))))
        status = weft_i_tensor_copy(sent, from);
    if (sent && to->packed && to->dtype == dtype && whole)
        got = weft_i_object_hold(to);
    else if (sent)
        got = packed_like(sent, dtype, weft_i_tensor_device(to));
    if (status >= 0)
        status = got ? move_packed(got, sent) : weft_last_status();
    if (status >= 0 && got != to)
        status = weft_i_tensor_copy(to, got);
    weft_i_object_drop(sent);
    weft_i_object_drop(got);
    return status;
}

static weft_status copy(weft_tensor *to, weft_tensor *from)
{
    weft_i_cuda_stream *stream;
    if (to->numel == 0)
        return WEFT_OK;
    if (weft_i_tensor_device(to) != weft_i_tensor_device(from))
        return move(to, from);
    WEFT_TRY(weft_i_cuda_current(weft_i_tensor_device(to), &stream));
    if (!weft_i_tensor_ranges_meet(to, from))
        return convert(stream, to, from);
    if (weft_i_tensor_same_view(to, from))
        return WEFT_OK;
    weft_tensor *apart = packed_like(from, from->dtype, weft_i_tensor_device(from));
    weft_status status = apart ? convert(stream, apart, from) : weft_last_status();
    if (status >= 0)
        status = convert(stream, to, apart);
    weft_i_object_drop(apart);
    return status;
}

static weft_status run_copy(weft_i_op_call *call)
{
    return copy(call->out, call->args[1].tensor);
}

static weft_status run_clone(weft_i_op_call *call)
{
    return copy(call->out, call->args[0].tensor);
}

static weft_status run_empty(weft_i_op_call *call)
{
    (void)call; /* the content is undefined */
    return WEFT_OK;
}

/* The bytes of an element, all alike? */
static bool is_one_byte(const unsigned char *element, size_t size)
{
    for (size_t i = 1; i < size; i++)
        if (element[i] != element[0])
            return false;
    return true;
}

/* One element elsewhere, and copies of it.  Not in `out` itself: some threads would read it there
 * while another writes it. */
static weft_status spread(weft_i_cuda_stream *stream, weft_tensor *out,
                          const unsigned char *element, size_t size)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_tensor *one =
        weft_keep(weft_i_tensor_new(out->dtype, weft_i_tensor_device(out), WEFT_SCALAR, NULL));
    weft_i_cu_result result = WEFT_I_CUDA_SUCCESS;
    if (!one)
        return weft_last_status();
    weft_i_cu_ptr at = (weft_i_cu_ptr)(uintptr_t)weft_i_tensor_data(one);
    for (size_t i = 0; i < size && result == WEFT_I_CUDA_SUCCESS; i++)
        result = cu->cuMemsetD8Async(at + i, element[i], 1, stream->raw);
    weft_status status = weft_i_cuda_fail(result, "filling a tensor");
    if (status == WEFT_OK)
        status = convert(stream, out, one);
    weft_i_object_drop(one);
    return status;
}

/* Without gaps and by bytes or words the driver fills; else an element is copied to all places. */
static weft_status fill(weft_tensor *out, double value)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    unsigned char element[8] = {0};
    uint32_t word[2];
    size_t size = weft_dtype_size(out->dtype);
    weft_i_cuda_stream *stream;
    if (out->numel == 0)
        return WEFT_OK;
    weft_i_convert(out->dtype, element, WEFT_F64, &value, 1);
    memcpy(word, element, sizeof word);
    WEFT_TRY(weft_i_cuda_current(weft_i_tensor_device(out), &stream));
    WEFT_TRY(weft_i_cuda_use(stream->device));
    weft_i_cu_ptr at = (weft_i_cu_ptr)(uintptr_t)weft_i_tensor_data(out);
    size_t count = (size_t)out->numel;
    if (weft_i_tensor_is_dense(out) && is_one_byte(element, size))
        return weft_i_cuda_fail(cu->cuMemsetD8Async(at, element[0], count * size, stream->raw),
                                "filling a tensor");
    if (weft_i_tensor_is_dense(out) && size == 4)
        return weft_i_cuda_fail(cu->cuMemsetD32Async(at, word[0], count, stream->raw),
                                "filling a tensor");
    return spread(stream, out, element, size);
}

static weft_status run_fill(weft_i_op_call *call)
{
    return fill(call->out, call->args[1].number);
}

static weft_status run_full(weft_i_op_call *call)
{
    return fill(call->out, call->args[3].number);
}

void weft_i_cuda_add_columns(void)
{
    static const weft_i_op_column rows[] = {
        {&weft_i_op_empty, run_empty}, {&weft_i_op_empty_strided, run_empty},
        {&weft_i_op_full, run_full},   {&weft_i_op_fill, run_fill},
        {&weft_i_op_copy, run_copy},   {&weft_i_op_clone, run_clone},
        {&weft_i_op_to, run_clone},    {&weft_i_op_contiguous, run_clone},
    };
    weft_i_op_add_column(WEFT_I_KIND_CUDA, rows, sizeof rows / sizeof *rows);
}
