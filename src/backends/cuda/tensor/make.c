/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers out of nothing on CUDA devices: arange, and random numbers with the bits of the CPU's. */
#include "kernels/number/random.h"

#include "backends/cuda/device/launch.h"
#include "columns.h"
#include "tensor/op/ops.h"

static weft_k_make over(const weft_tensor *out, int kind)
{
    weft_k_make c = {.to = weft_i_cuda_data(out),
                     .count = (uint64_t)out->numel,
                     .kind = kind,
                     .dtype = (int32_t)out->dtype,
                     .ndim = out->packed ? 1 : out->ndim};
    for (int d = 0; d < out->ndim; d++) {
        c.dim[d] = (uint64_t)out->dim[d];
        c.stride[d] = out->stride[d] * (int64_t)weft_dtype_size(out->dtype);
    }
    if (out->packed) {
        c.dim[0] = c.count;
        c.stride[0] = (int64_t)weft_dtype_size(out->dtype);
    }
    return c;
}

static weft_status launch(weft_i_op_call *call, weft_k_make *c)
{
    weft_i_cuda_stream *stream;
    if (c->count == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    return weft_i_cuda_launch_threads(stream, WEFT_I_CUDA_make,
                                      c->kind == WEFT_K_ARANGE ? c->count : (c->count + 1) / 2, c);
}

weft_status weft_i_cuda_arange_run(weft_i_op_call *call)
{
    weft_k_make c = over(call->out, WEFT_K_ARANGE);
    c.a = call->args[2].number;
    c.b = call->args[4].number;
    return launch(call, &c);
}

/* Two elements take one step of the thread's generator. */
static weft_status draw(weft_i_op_call *call, weft_k_make *c)
{
    weft_i_generator generator = weft_i_random_take((c->count + 1) / 2);
    c->seed = generator.seed;
    c->counter = generator.counter;
    return launch(call, c);
}

weft_status weft_i_cuda_uniform_run(weft_i_op_call *call)
{
    weft_k_make c = over(call->out, WEFT_K_UNIFORM);
    c.a = call->args[1].number;
    c.b = call->args[2].number;
    c.bits = weft_i_random_bits(call->out->dtype);
    return draw(call, &c);
}

weft_status weft_i_cuda_normal_run(weft_i_op_call *call)
{
    weft_k_make c = over(call->out, WEFT_K_NORMAL);
    c.a = call->args[1].number;
    c.b = call->args[2].number;
    c.bits = 1;
    return draw(call, &c);
}

weft_status weft_i_cuda_integers_run(weft_i_op_call *call)
{
    weft_k_make c = over(call->out, WEFT_K_INTEGERS);
    c.low = call->args[1].integer;
    c.high = call->args[2].integer;
    c.bits = 1;
    return draw(call, &c);
}
