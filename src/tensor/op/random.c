/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors.  The generator belongs to the thread, so ranks that are threads draw
 * independently of each other. */
#include "kernels/number/random.h"

#include "kernels/walk/copy.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

enum { BLOCK = 512 };

static _Thread_local weft_i_generator generator;

void weft_seed(uint64_t seed)
{
    if (weft_i_not_captured("weft_seed") < 0)
        return;
    generator = (weft_i_generator){seed, 0};
}

weft_i_generator weft_i_random_take(uint64_t steps)
{
    weft_i_generator before = generator;
    generator.counter += steps;
    return before;
}

weft_i_generator weft_i_random_swap(weft_i_generator next)
{
    weft_i_generator before = generator;
    generator = next;
    return before;
}

/*
 * Bits of a uniform draw: those of the dtype's mantissa, the hidden one included, so that rounding
 * never gives 1. The draw itself is the same for all dtypes.
 */
int weft_i_random_bits(weft_dtype dtype)
{
    static const int bits[] = {[WEFT_F64] = 53, [WEFT_F32] = 24,   [WEFT_F16] = 11,
                               [WEFT_BF16] = 8, [WEFT_F8E4M3] = 4, [WEFT_F8E5M2] = 3};
    return bits[dtype];
}

weft_status weft_i_float_in_place_shape(weft_i_op_call *call)
{
    if (!weft_i_dtype_is_float(call->args[0].tensor->dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "%s: draws floats, the tensor is %s", call->op->name,
                           weft_dtype_name(call->args[0].tensor->dtype));
    return WEFT_OK;
}

weft_status weft_i_integers_shape(weft_i_op_call *call)
{
    if (call->args[1].integer >= call->args[2].integer)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "integers: from %lld up to %lld there are none",
                           (long long)call->args[1].integer, (long long)call->args[2].integer);
    return WEFT_OK;
}

/*
 * Draws run in row-major order of the shape whatever the strides are, in blocks of the same even
 * number, so that the values do not depend on the layout.
 */
typedef void draw_block(const weft_i_op_call *call, void *block, size_t n);

static void draw_row(const weft_i_op_call *call, draw_block *draw, weft_dtype drawn, char *at,
                     int64_t stride, size_t n)
{
    uint64_t block[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        draw(call, block, count);
        weft_i_store_run(call->out->dtype, at + (int64_t)i * stride, stride, drawn, block, count);
    }
}

static void draw_all(const weft_i_op_call *call, draw_block *draw, weft_dtype drawn)
{
    const weft_tensor *out = call->out;
    int64_t size = (int64_t)weft_dtype_size(out->dtype), numel = weft_i_tensor_numel(out);
    if (numel == 0)
        return;
    if (weft_i_tensor_is_contiguous(out)) {
        draw_row(call, draw, drawn, weft_i_tensor_data(out), size, (size_t)numel);
        return;
    }
    uint64_t block[BLOCK];
    size_t left = 0, next = 0;
    int64_t index[WEFT_MAX_DIMS] = {0};
    for (int64_t i = 0; i < numel; i++, left--) {
        if (left == 0) {
            left = (size_t)(numel - i) < BLOCK ? (size_t)(numel - i) : BLOCK;
            draw(call, block, left);
            next = 0;
        }
        int64_t at = 0;
        for (int d = 0; d < out->ndim; d++)
            at += index[d] * out->stride[d];
        weft_i_store_run(out->dtype, weft_i_tensor_data(out) + at * size, size, drawn,
                         &block[next++], 1);
        for (int d = out->ndim - 1; d >= 0 && ++index[d] == out->dim[d]; d--)
            index[d] = 0;
    }
}

static void draw_uniform(const weft_i_op_call *call, void *block, size_t n)
{
    double low = call->args[1].number, high = call->args[2].number, *out = block;
    weft_i_random_uniform(&generator, out, n, weft_i_random_bits(call->out->dtype));
    for (size_t i = 0; i < n && (low != 0 || high != 1); i++)
        out[i] = low + out[i] * (high - low);
}

static void draw_normal(const weft_i_op_call *call, void *block, size_t n)
{
    double mean = call->args[1].number, deviation = call->args[2].number, *out = block;
    weft_i_random_normal(&generator, out, n);
    for (size_t i = 0; i < n; i++)
        out[i] = mean + out[i] * deviation;
}

static void draw_integers(const weft_i_op_call *call, void *block, size_t n)
{
    weft_i_random_integers(&generator, block, n, call->args[1].integer, call->args[2].integer);
}

weft_status weft_i_uniform_run(weft_i_op_call *call)
{
    draw_all(call, draw_uniform, WEFT_F64);
    return WEFT_OK;
}

weft_status weft_i_normal_run(weft_i_op_call *call)
{
    draw_all(call, draw_normal, WEFT_F64);
    return WEFT_OK;
}

weft_status weft_i_integers_run(weft_i_op_call *call)
{
    draw_all(call, draw_integers, WEFT_I64);
    return WEFT_OK;
}

weft_status weft_uniform(weft_tensor *x, double low, double high)
{
    return WEFT_I_ACT(uniform, WEFT_I_TENSOR_ARG(x), WEFT_I_NUMBER_ARG(low),
                      WEFT_I_NUMBER_ARG(high));
}

weft_status weft_normal(weft_tensor *x, double mean, double deviation)
{
    return WEFT_I_ACT(normal, WEFT_I_TENSOR_ARG(x), WEFT_I_NUMBER_ARG(mean),
                      WEFT_I_NUMBER_ARG(deviation));
}

weft_status weft_integers(weft_tensor *x, int64_t low, int64_t high)
{
    return WEFT_I_ACT(integers, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(low),
                      WEFT_I_INTEGER_ARG(high));
}
