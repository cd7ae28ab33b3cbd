/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of optimizers on CUDA devices. */
#include "tensor/op/update.h"

#include "columns.h"
#include "pointwise.h"
#include "tensor/op/loops.h"

static weft_status launch(const weft_i_op_call *call, weft_k_update *c)
{
    const weft_i_arg *list = &call->args[0];
    weft_tensor *param = list->tensors[0], *grad = call->args[1].tensor;
    bool wide = param->dtype == WEFT_F64;
    weft_i_cuda_stream *stream;
    WEFT_TRY(weft_i_cuda_stream_of(call, &stream));
    weft_i_loop loop = weft_i_loop_over(param);
    weft_i_loop_add(&loop, grad);
    for (size_t k = 1; k < list->count; k++)
        weft_i_loop_add(&loop, list->tensors[k]);
    c->loop.out = (int32_t)param->dtype;
    c->loop.in[0] = (int32_t)grad->dtype;
    if (!weft_i_cuda_lay_out(&c->loop, loop, wide ? WEFT_K_GROUP : WEFT_K_GROUP_F32))
        return WEFT_OK;
    return weft_i_cuda_launch_threads(
        stream, wide ? WEFT_I_CUDA_update_f64 : WEFT_I_CUDA_update_f32, c->loop.tasks, c);
}

weft_status weft_i_cuda_sgd_run(weft_i_op_call *call)
{
    bool momentum = call->args[0].count > 1;
    weft_k_update c = {.loop.op = momentum ? WEFT_K_MOMENTUM : WEFT_K_SGD,
                       .sgd = weft_i_sgd_of(call)};
    return launch(call, &c);
}

weft_status weft_i_cuda_adamw_run(weft_i_op_call *call)
{
    weft_k_update c = {.loop.op = WEFT_K_ADAMW, .adamw = weft_i_adamw_of(call)};
    return launch(call, &c);
}
