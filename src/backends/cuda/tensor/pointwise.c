/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise operations on CUDA devices: from a call, or a copy, to the parameter of a kernel. */
#include "pointwise.h"

#include "columns.h"
#include "kernels/number/convert.h"
#include "kernels/vector/pointwise.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"

_Static_assert((int)WEFT_K_DIMS == (int)WEFT_I_LOOP_DIMS, "the kernels' loops are weft's");
_Static_assert(WEFT_K_INPUTS + 1 == WEFT_I_LOOP_OPERANDS, "the kernels' loops are weft's");
_Static_assert((int)WEFT_K_COPY > (int)WEFT_I_POINTWISE_COUNT, "a copy is none of them");

bool weft_i_cuda_lay_out(weft_k_pointwise *c, weft_i_loop loop, uint64_t group)
{
    for (int d = 0; d < loop.ndim; d++)
        if (loop.dim[d] == 0)
            return false;
    weft_i_loop_join(&loop);
    c->ndim = loop.ndim ? loop.ndim : 1;
    c->dim[0] = 1;
    c->tasks = 1;
    for (int d = 0; d < loop.ndim; d++) {
        c->dim[d] = (uint64_t)loop.dim[d];
        c->tasks *= d < loop.ndim - 1 ? c->dim[d] : 1;
        for (int k = 0; k < loop.operands; k++)
            c->stride[k][d] = loop.stride[k][d];
    }
    c->groups = (c->dim[c->ndim - 1] + group - 1) / group;
    c->tasks *= c->groups;
    for (int k = 0; k < loop.operands; k++)
        c->data[k] = loop.data[k];
    return true;
}

weft_status weft_i_cuda_launch_loop(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                                    const weft_k_pointwise *what, weft_i_loop loop)
{
    weft_k_pointwise c = *what;
    uint64_t group = kernel == WEFT_I_CUDA_pointwise_f32 ? WEFT_K_GROUP_F32 : WEFT_K_GROUP;
    if (!weft_i_cuda_lay_out(&c, loop, group))
        return WEFT_OK;
    return weft_i_cuda_launch_threads(stream, kernel, c.tasks, &c);
}

/* Whether both operands step by multiples of 8 bytes outside, and the inside is such a number of
 * adjacent bytes. */
static bool is_wide(const weft_i_loop *loop, int64_t size)
{
    int last = loop->ndim - 1;
    if (last < 0 || loop->dim[last] * size % 8)
        return false;
    for (int k = 0; k < 2; k++) {
        if ((uintptr_t)loop->data[k] % 8 || loop->stride[k][last] != size)
            return false;
        for (int d = 0; d < last; d++)
            if (loop->stride[k][d] % 8)
                return false;
    }
    return true;
}

/* ---- operands that all lie packed (kernels/packed.h) ---- */

/* Do all operands lie packed in one line, aligned?  The truth of a choice is smaller than the rest:
 * it goes with the elements of 16 bytes. */
static bool is_line(const weft_i_loop *loop, const weft_k_pointwise *c, int64_t size)
{
    bool choice = c->op == WEFT_I_POINTWISE_where;
    if (loop->ndim != 1 || (uintptr_t)loop->data[0] % 16 || loop->stride[0][0] != size)
        return false;
    for (int k = 0; k < c->inputs; k++) {
        int64_t of = choice && k == 0 ? 1 : size;
        if (c->constants >> k & 1)
            continue;
        if (c->in[k] != (of == size ? c->out : (int32_t)WEFT_BOOL) ||
            loop->stride[k + 1][0] != of ||
            (uintptr_t)loop->data[k + 1] % (uintptr_t)(16 * of / size))
            return false;
    }
    return !(choice && c->constants & 1);
}

/* From how many bytes on a block looks up more elements than it computes for its table. */
enum { GELU_BYTES = 16 << 20 };

/* The kernel for elements that lie in a line; false: there is none. */
static bool packed_kernel(const weft_k_pointwise *c, weft_i_cuda_kernel general, int64_t bytes,
                          weft_i_cuda_kernel *out)
{
    int64_t size = (int64_t)weft_dtype_size((weft_dtype)c->out);
    if (c->op == WEFT_I_POINTWISE_where) {
        *out = size == 2 ? WEFT_I_CUDA_choose_2 : WEFT_I_CUDA_choose_4;
        return (size == 2 || size == 4) && c->made == c->out &&
               ((c->constants & 2) || c->taken[1] == c->out) &&
               ((c->constants & 4) || c->taken[2] == c->out);
    }
    if (general != WEFT_I_CUDA_pointwise_f32 || c->made == (int32_t)WEFT_BOOL)
        return false;
    *out = c->out == (int32_t)WEFT_F32    ? WEFT_I_CUDA_packed_f32
           : c->out == (int32_t)WEFT_BF16 ? WEFT_I_CUDA_packed_bf16
                                          : WEFT_I_CUDA_packed_f16;
    if (c->out == (int32_t)WEFT_BF16 && c->op == WEFT_I_POINTWISE_gelu && bytes >= GELU_BYTES)
        *out = WEFT_I_CUDA_gelu_bf16;
    return c->out == (int32_t)WEFT_F32 || c->out == (int32_t)WEFT_BF16 ||
           c->out == (int32_t)WEFT_F16;
}

static uint64_t filling_word(uint64_t number, int64_t size)
{
    return size == 2 ? (number & 0xffff) * 0x10001 : number;
}

static weft_status launch_packed(weft_i_cuda_stream *stream, weft_i_cuda_kernel kernel,
                                 const weft_k_pointwise *what, const weft_i_loop *loop,
                                 int64_t size)
{
    weft_k_packed c = {.bytes = (uint64_t)(loop->dim[0] * size),
                       .to = loop->data[0],
                       .op = what->op,
                       .inputs = what->inputs,
                       .constants = what->constants};
    for (int k = 0; k < what->inputs; k++) {
        c.from[k] = loop->data[k + 1];
        c.number[k] = what->op == WEFT_I_POINTWISE_where ? filling_word(what->number[k], size)
                                                         : what->number[k];
    }
    bool wide = kernel == WEFT_I_CUDA_packed_f32; /* 16 elements of 4 bytes */
    uint64_t each = (uint64_t)stream->device->kernel_threads[kernel] * 16 * (wide ? 4 : 2);
    return weft_i_cuda_launch_blocks(stream, kernel, (c.bytes + each - 1) / each, &c);
}

/* ---- copies that turn ---- */

/* The dimension along which operand k is adjacent, if it is long enough for tiles; else -1. */
static int adjacent(const weft_i_loop *loop, int k, int64_t size)
{
    enum { LEAST = 16 };
    for (int d = loop->ndim - 1; d >= 0; d--)
        if (loop->stride[k][d] == size && loop->dim[d] >= LEAST)
            return d;
    return -1;
}

/* Elements that are adjacent along different dimensions of the two operands go by tiles
 * (kernels/turn.h); false: these are not, or there are none. */
static bool turns(const weft_i_loop *loop, int64_t size, weft_k_turn *c)
{
    int column = adjacent(loop, 0, size), row = adjacent(loop, 1, size);
    uint64_t side = size == 8 ? 32 : 64;
    if (column < 0 || row < 0 || column == row || loop->stride[1][column] == size)
        return false;
    *c = (weft_k_turn){.to = loop->data[0],
                       .from = loop->data[1],
                       .rows = (uint64_t)loop->dim[row],
                       .columns = (uint64_t)loop->dim[column],
                       .to_step = loop->stride[0][row],
                       .from_step = loop->stride[1][column],
                       .size = (int32_t)size};
    c->tasks = ((c->rows + side - 1) / side) * ((c->columns + side - 1) / side);
    for (int d = 0; d < loop->ndim; d++) {
        if (d == column || d == row)
            continue;
        c->dim[c->ndim] = (uint64_t)loop->dim[d];
        c->to_stride[c->ndim] = loop->stride[0][d];
        c->from_stride[c->ndim++] = loop->stride[1][d];
        c->tasks *= (uint64_t)loop->dim[d];
    }
    if (c->ndim == 0)
        c->dim[c->ndim++] = 1;
    return c->tasks > 0;
}

/* Whether tiles are whole and all of their rows begin at multiples of 16 bytes. */
static bool is_whole(const weft_k_turn *c)
{
    uint64_t all =
        (uintptr_t)c->to | (uintptr_t)c->from | (uint64_t)c->to_step | (uint64_t)c->from_step;
    for (int d = 0; d < c->ndim; d++)
        all |= (uint64_t)c->to_stride[d] | (uint64_t)c->from_stride[d];
    return (c->rows | c->columns) % WEFT_K_TURN_SIDE == 0 && all % 16 == 0;
}

static weft_i_cuda_kernel turn_kernel(const weft_k_turn *c)
{
    if ((c->size != 2 && c->size != 4) || !is_whole(c))
        return WEFT_I_CUDA_turn;
    return c->size == 2 ? WEFT_I_CUDA_turn_2 : WEFT_I_CUDA_turn_4;
}

static bool is_up_to_f32(weft_dtype dtype)
{
    return weft_i_dtype_is_float(dtype) && dtype != WEFT_F64;
}

weft_status weft_i_cuda_copy_loop(weft_i_cuda_stream *stream, weft_i_loop loop, weft_dtype to,
                                  weft_dtype from)
{
    static const weft_dtype bits[] = {
        [1] = WEFT_U8, [2] = WEFT_U16, [4] = WEFT_U32, [8] = WEFT_U64};
    weft_k_pointwise c = {.op = WEFT_K_COPY, .inputs = 1};
    int64_t size = (int64_t)weft_dtype_size(to);
    bool floats = to != from && is_up_to_f32(to) && is_up_to_f32(from);
    weft_k_turn turn;
    weft_i_loop_join(&loop);
    if (to == from && turns(&loop, size, &turn))
        return weft_i_cuda_launch_blocks(stream, turn_kernel(&turn), turn.tasks, &turn);
    if (to == from && is_wide(&loop, size)) {
        int last = loop.ndim - 1;
        loop.dim[last] = loop.dim[last] * size / 8;
        loop.stride[0][last] = loop.stride[1][last] = size = 8;
    }
    if (to == from)
        to = from = bits[size];
    c.in[0] = (int32_t)from;
    c.out = (int32_t)to;
    c.taken[0] = c.made = floats ? (int32_t)WEFT_F32 : (int32_t)to;
    return weft_i_cuda_launch_loop(
        stream, floats ? WEFT_I_CUDA_pointwise_f32 : WEFT_I_CUDA_pointwise_bits, &c, loop);
}

static weft_i_cuda_kernel kernel_for(const weft_i_op_call *call)
{
    if (call->op->kernel == WEFT_I_POINTWISE_where)
        return WEFT_I_CUDA_pointwise_bits;
    return call->result.compute == WEFT_F32   ? WEFT_I_CUDA_pointwise_f32
           : call->result.compute == WEFT_F64 ? WEFT_I_CUDA_pointwise_f64
                                              : WEFT_I_CUDA_pointwise_bits;
}

/* Argument i as input i: a tensor, or a number that travels in the parameter. */
static void add_input(const weft_i_op_call *call, int i, weft_k_pointwise *c, weft_i_loop *loop)
{
    const weft_i_arg *arg = &call->args[i];
    bool condition = call->op->shape == weft_i_where_shape && i == 0;
    weft_dtype taken = condition ? WEFT_BOOL : call->result.compute;
    c->taken[i] = c->in[i] = (int32_t)taken;
    if (arg->kind == WEFT_I_ARG_TENSOR) {
        c->in[i] = (int32_t)arg->tensor->dtype;
        weft_i_loop_add(loop, arg->tensor);
        return;
    }
    weft_i_convert(taken, &c->number[i], WEFT_F64, &arg->number, 1);
    c->constants |= 1 << i;
    weft_i_loop_add_value(loop, NULL);
}

weft_status weft_i_cuda_pointwise_run(weft_i_op_call *call)
{
    weft_i_cuda_stream *stream;
    bool compare = call->result.dtype == WEFT_BOOL && call->op->shape == weft_i_compare_shape;
    weft_k_pointwise c = {.op = call->op->kernel,
                          .inputs = call->op->arity,
                          .made = compare ? (int32_t)WEFT_BOOL : (int32_t)call->result.compute,
                          .out = (int32_t)call->out->dtype};
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_i_loop loop = weft_i_loop_over(call->out);
    for (int i = 0; i < call->op->arity; i++)
        add_input(call, i, &c, &loop);
    weft_i_cuda_kernel kernel = kernel_for(call), packed;
    int64_t size = (int64_t)weft_dtype_size(call->out->dtype);
    weft_i_loop_join(&loop);
    if (packed_kernel(&c, kernel, call->out->numel * size, &packed) && is_line(&loop, &c, size))
        return launch_packed(stream, packed, &c, &loop, size);
    return weft_i_cuda_launch_loop(stream, kernel, &c, loop);
}
