/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that are one step of an optimizer, from tensors to the loops of kernels/vector/update.h. */
#include "tensor/op/update.h"

#include "kernels/walk/copy.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"

#include <math.h>

/* The list has one shape and dtype; the gradient has that shape and is a float too. */
weft_status weft_i_update_shape(weft_i_op_call *call)
{
    const weft_tensor *param = call->args[0].tensors[0], *grad = call->args[1].tensor;
    weft_shape shape = weft_i_tensor_shape(param);
    bool fits = weft_i_dtype_is_float(param->dtype) && weft_i_dtype_is_float(grad->dtype) &&
                weft_i_shape_equal(weft_i_tensor_shape(grad), shape);
    for (size_t i = 1; i < call->args[0].count && fits; i++) {
        const weft_tensor *x = call->args[0].tensors[i];
        fits = x->dtype == param->dtype && weft_i_shape_equal(weft_i_tensor_shape(x), shape);
    }
    char text[WEFT_I_SHAPE_TEXT], other[WEFT_I_SHAPE_TEXT];
    if (!fits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: a parameter of %s %s, a gradient of %s %s; both are floats of one "
                           "shape",
                           call->op->name, weft_dtype_name(param->dtype),
                           weft_i_shape_text(shape, text), weft_dtype_name(grad->dtype),
                           weft_i_shape_text(weft_i_tensor_shape(grad), other));
    call->result.dtype = param->dtype;
    call->result.shape = shape;
    return WEFT_OK;
}

enum { BLOCK = 512 }; /* elements that are converted at once */

typedef struct update {
    const weft_i_op_call *call;
    weft_dtype compute;
    weft_dtype dtype[WEFT_I_LOOP_OPERANDS];
    int written; /* the operands before the gradient */
    weft_i_sgd sgd;
    weft_i_adamw adamw;
} update;

static void step(const update *u, void *const *at, size_t n)
{
    if (u->call->op == &weft_i_op_sgd_)
        weft_i_update_sgd(u->compute, at[0], u->written > 1 ? at[1] : NULL, at[u->written], n,
                          &u->sgd);
    else
        weft_i_update_adamw(u->compute, at[0], at[1], at[2], at[3], n, &u->adamw);
}

/* What cannot be worked on where it is goes through buffers, a block at a time. */
static void run_blocks(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const update *u = state;
    double buffers[WEFT_I_LOOP_OPERANDS][BLOCK];
    bool direct = true;
    for (int k = 0; k <= u->written; k++)
        direct &= u->dtype[k] == u->compute && stride[k] == (int64_t)weft_i_dtype_size(u->compute);
    for (size_t i = 0; i < n;) {
        size_t count = direct || n - i < BLOCK ? n - i : BLOCK;
        void *at[WEFT_I_LOOP_OPERANDS] = {NULL};
        for (int k = 0; k <= u->written; k++)
            at[k] = (void *)weft_i_load_run(u->compute, buffers[k], u->dtype[k],
                                            data[k] + (int64_t)i * stride[k], stride[k], count);
        step(u, at, count);
        for (int k = 0; k < u->written; k++)
            if (at[k] == buffers[k])
                weft_i_store_run(u->dtype[k], data[k] + (int64_t)i * stride[k], stride[k],
                                 u->compute, at[k], count);
        i += count;
    }
}

static void run(update *u)
{
    const weft_i_arg *list = &u->call->args[0];
    weft_tensor *param = list->tensors[0], *grad = u->call->args[1].tensor;
    weft_i_loop loop = weft_i_loop_over(param);
    u->written = (int)list->count;
    u->compute = param->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    for (int k = 0; k < u->written; k++)
        u->dtype[k] = param->dtype;
    u->dtype[u->written] = grad->dtype;
    for (int k = 1; k < u->written; k++)
        weft_i_loop_add(&loop, list->tensors[k]);
    weft_i_loop_add(&loop, grad);
    weft_i_loop_share(loop, (2 * u->written + 1) * (int64_t)weft_i_dtype_size(param->dtype),
                      run_blocks, u);
}

weft_i_sgd weft_i_sgd_of(const weft_i_op_call *call)
{
    const weft_i_arg *arg = call->args;
    return (weft_i_sgd){.rate = arg[2].number,
                        .momentum = arg[3].number,
                        .decay = arg[4].number,
                        .first = arg[5].integer != 0};
}

weft_i_adamw weft_i_adamw_of(const weft_i_op_call *call)
{
    const weft_i_arg *arg = call->args;
    double rate = arg[2].number, beta1 = arg[3].number, beta2 = arg[4].number,
           step_number = (double)arg[7].integer;
    return (weft_i_adamw){.shrink = 1 - rate * arg[6].number,
                          .beta1 = beta1,
                          .beta2 = beta2,
                          .epsilon = arg[5].number,
                          .rate = rate / (1 - pow(beta1, step_number)),
                          .root = sqrt(1 - pow(beta2, step_number))};
}

weft_status weft_i_sgd_run(weft_i_op_call *call)
{
    update u = {.call = call, .sgd = weft_i_sgd_of(call)};
    run(&u);
    return WEFT_OK;
}

weft_status weft_i_adamw_run(weft_i_op_call *call)
{
    update u = {.call = call, .adamw = weft_i_adamw_of(call)};
    run(&u);
    return WEFT_OK;
}
