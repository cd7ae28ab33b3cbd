/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums along a dimension, from the front or from the back.  Sums are f64 or i64, whatever
 * the dtype, and each is rounded once. */
#include "kernels/number/convert.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

#include <string.h>

enum { X, DIM, REVERSE };

weft_status weft_i_cumsum_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor;
    if (weft_i_dim_wrap("cumsum", call->args[DIM].integer, x->ndim ? x->ndim : 1) < 0)
        return weft_last_status();
    bool floats = weft_i_dtype_is_float(x->dtype);
    call->result.dtype = floats ? x->dtype : WEFT_I64;
    call->result.shape = weft_i_tensor_shape(x);
    weft_i_shape_strides(call->result.shape, call->result.stride);
    return WEFT_OK;
}

/* One row of `n` elements, `from` and `to` steps apart. */
struct row {
    weft_dtype in, out;
    int64_t n, from, to;
    bool reverse;
};

static void sum_floats(const struct row *row, char *to, const char *from)
{
    double sum = 0, x;
    for (int64_t i = 0; i < row->n; i++) {
        int64_t at = row->reverse ? row->n - 1 - i : i;
        weft_i_convert(WEFT_F64, &x, row->in, from + at * row->from, 1);
        sum += x;
        weft_i_convert(row->out, to + at * row->to, WEFT_F64, &sum, 1);
    }
}

static void sum_integers(const struct row *row, char *to, const char *from)
{
    uint64_t sum = 0;
    int64_t x;
    for (int64_t i = 0; i < row->n; i++) {
        int64_t at = row->reverse ? row->n - 1 - i : i;
        weft_i_convert(WEFT_I64, &x, row->in, from + at * row->from, 1);
        sum += (uint64_t)x;
        memcpy(to + at * row->to, &sum, sizeof sum);
    }
}

static void each_row(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const struct row *row = state;
    for (size_t i = 0; i < n; i++)
        (weft_i_dtype_is_float(row->in) ? sum_floats : sum_integers)(
            row, data[0] + (int64_t)i * stride[0], data[1] + (int64_t)i * stride[1]);
}

weft_status weft_i_cumsum_run(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor, *out = call->out;
    struct row row = {x->dtype, out->dtype, 1, 0, 0, call->args[REVERSE].integer != 0};
    weft_i_loop loop = weft_i_loop_over(out);
    weft_i_loop_add(&loop, x);
    if (x->ndim) {
        int dim = weft_i_dim_wrap("cumsum", call->args[DIM].integer, x->ndim);
        row.n = x->dim[dim];
        row.from = weft_i_tensor_step(x, dim);
        row.to = weft_i_tensor_step(out, dim);
        loop.dim[dim] = row.n ? 1 : 0;
    }
    weft_i_loop_each(loop, each_row, &row);
    return WEFT_OK;
}

weft_tensor *weft_cumsum(weft_tensor *x, int dim)
{
    return WEFT_I_APPLY(cumsum, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG(dim),
                        WEFT_I_INTEGER_ARG(0));
}
