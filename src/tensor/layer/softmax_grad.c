/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of softmax and log_softmax: rows of adjacent f32 or f64 are worked on where they
 * are, others by way of a buffer. */
#include "base/team/berths.h"
#include "base/team/team.h"
#include "kernels/vector/normalize.h"
#include "kernels/vector/vector.h"
#include "kernels/walk/copy.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

enum { GRAD, Y, DIM }; /* arguments */
enum { OPERANDS = 3 }; /* out, grad, y */

weft_status weft_i_softmax_grad_shape(weft_i_op_call *call)
{
    const weft_tensor *grad = call->args[GRAD].tensor;
    weft_i_op_call plain = {.op = call->op};
    weft_i_arg args[] = {call->args[Y], call->args[DIM]};
    plain.args = args;
    WEFT_TRY(weft_i_softmax_shape(&plain));
    if (grad->dtype != plain.result.dtype ||
        !weft_i_shape_equal(weft_i_tensor_shape(grad), plain.result.shape))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the gradient has not the shape and dtype of the result",
                           call->op->name);
    call->result.dtype = plain.result.dtype;
    call->result.compute = plain.result.compute;
    call->result.shape = plain.result.shape;
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

struct rows {
    void (*work)(void *out, const void *grad, const void *y, size_t n);
    weft_dtype dtype, compute;
    size_t length;
    int64_t stride[OPERANDS]; /* within a row; bytes */
    weft_i_berths *scratch;   /* for three rows; NULL: rows are worked on in place */
};

static void work_on(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const struct rows *rows = state;
    size_t bytes = rows->length * weft_i_dtype_size(rows->compute);
    char *room = rows->scratch ? weft_i_berths_take(rows->scratch) : NULL;
    for (size_t i = 0; i < n; i++) {
        char *out = data[0] + (int64_t)i * stride[0];
        const void *in[OPERANDS];
        for (int k = 1; k < OPERANDS; k++) {
            const char *from = data[k] + (int64_t)i * stride[k];
            in[k] = room ? weft_i_load_run(rows->compute, room + (size_t)k * bytes, rows->dtype,
                                           from, rows->stride[k], rows->length)
                         : from;
        }
        rows->work(room ? room : out, in[1], in[2], rows->length);
        if (room)
            weft_i_store_run(rows->dtype, out, rows->stride[0], rows->compute, room, rows->length);
    }
    if (room)
        weft_i_berths_give(rows->scratch, room);
}

/* Takes one dimension out of a loop over all elements; the rows are along it. */
static void set_rows(struct rows *rows, weft_i_loop *loop, weft_tensor *const *operands, int dim)
{
    int64_t size = (int64_t)weft_i_dtype_size(rows->dtype);
    rows->length = 1;
    for (int k = 0; k < OPERANDS; k++)
        rows->stride[k] = dim < 0 ? size : weft_i_tensor_step(operands[k], dim);
    if (dim < 0)
        return;
    rows->length = (size_t)operands[0]->dim[dim];
    loop->dim[dim] = rows->length ? 1 : 0;
}

static bool is_direct(const struct rows *rows)
{
    int64_t size = (int64_t)weft_i_dtype_size(rows->dtype);
    bool adjacent = true;
    for (int k = 0; k < OPERANDS; k++)
        adjacent &= rows->stride[k] == size;
    return adjacent && rows->dtype == rows->compute;
}

weft_status weft_i_softmax_grad_run(weft_i_op_call *call)
{
    weft_tensor *y = call->args[Y].tensor, *operands[] = {call->out, call->args[GRAD].tensor, y};
    int dim = y->ndim ? weft_i_dim_wrap(call->op->name, call->args[DIM].integer, y->ndim) : -1;
    struct rows rows = {.dtype = y->dtype, .compute = call->result.compute};
    const weft_i_normalize_loops *loops = weft_i_vector()->normalize[rows.compute];
    weft_i_loop loop = weft_i_loop_over(call->out);
    weft_i_berths scratch = {.memory = NULL};
    size_t bytes = 0;
    rows.work = call->op->kernel == WEFT_I_NORMALIZE_SOFTMAX ? loops->softmax_grad
                                                             : loops->log_softmax_grad;
    for (int k = 1; k < OPERANDS; k++)
        weft_i_loop_add(&loop, operands[k]);
    set_rows(&rows, &loop, operands, dim);
    /* An element is read twice and written, with some work on it. */
    int64_t work = (int64_t)rows.length * 5 * (int64_t)weft_i_dtype_size(rows.dtype);
    if (!is_direct(&rows)) {
        bool shared = weft_i_team_parts(weft_i_tensor_numel(y) /
                                        (int64_t)(rows.length ? rows.length : 1) * work) > 1;
        if (__builtin_mul_overflow(rows.length, OPERANDS * weft_i_dtype_size(rows.compute),
                                   &bytes) ||
            !weft_i_berths_open(&scratch, bytes, shared))
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for a row of %zu elements",
                               call->op->name, rows.length);
        rows.scratch = &scratch;
    }
    weft_i_loop_share(loop, work, work_on, &rows);
    weft_i_berths_close(&scratch);
    return WEFT_OK;
}

weft_tensor *weft_softmax_grad(weft_tensor *grad, weft_tensor *y, int dim)
{
    return WEFT_I_APPLY(softmax_grad, WEFT_I_TENSOR_ARG(grad), WEFT_I_TENSOR_ARG(y),
                        WEFT_I_INTEGER_ARG(dim));
}

weft_tensor *weft_log_softmax_grad(weft_tensor *grad, weft_tensor *y, int dim)
{
    return WEFT_I_APPLY(log_softmax_grad, WEFT_I_TENSOR_ARG(grad), WEFT_I_TENSOR_ARG(y),
                        WEFT_I_INTEGER_ARG(dim));
}
