/* SPDX-License-Identifier: Apache-2.0 */
/* embedding: rows of a table chosen by integers.  All indices are checked before the first row is
 * copied. */
#include "base/team/team.h"
#include "kernels/number/convert.h"
#include "kernels/vector/reduce.h"
#include "kernels/vector/vector.h"
#include "kernels/walk/copy.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

weft_status weft_i_embedding_shape(weft_i_op_call *call)
{
    const weft_tensor *weight = call->args[0].tensor, *indices = call->args[1].tensor;
    weft_i_result *result = &call->result;
    if (weight->ndim != 2)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "embedding: the weight has %d dimensions, not 2",
                           weight->ndim);
    if (weft_i_dtype_class(indices->dtype) != 1)
        return weft_i_fail(WEFT_ERR_TYPE, "embedding: the indices are %s, not integers",
                           weft_dtype_name(indices->dtype));
    if (indices->ndim == WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "embedding: the result would have %d dimensions",
                           WEFT_MAX_DIMS + 1);
    result->dtype = weight->dtype;
    result->shape = weft_i_tensor_shape(indices);
    result->shape.dim[result->shape.ndim++] = weight->dim[1];
    WEFT_TRY(weft_i_shape_check("embedding", result->dtype, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

static weft_status check_indices(const int64_t *index, int64_t count, int64_t rows)
{
    for (int64_t i = 0; i < count; i++)
        if (index[i] < 0 || index[i] >= rows)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "embedding: index %lld at %lld; the weight has %lld rows",
                               (long long)index[i], (long long)i, (long long)rows);
    return WEFT_OK;
}

struct taking {
    const weft_tensor *out, *weight;
    const int64_t *index;
    int64_t count, parts;
};

static void take_part(void *state, int64_t part)
{
    const struct taking *t = state;
    int64_t size = (int64_t)weft_dtype_size(t->weight->dtype), width = t->weight->dim[1];
    int64_t end = weft_i_team_bound(t->count, t->parts, part + 1);
    for (int64_t i = weft_i_team_bound(t->count, t->parts, part); i < end && width; i++)
        weft_i_copy_elements(
            (size_t)size, (size_t)width, weft_i_tensor_data(t->out) + i * width * size, size,
            weft_i_tensor_data(t->weight) + t->index[i] * weft_i_tensor_step(t->weight, 0),
            weft_i_tensor_step(t->weight, 1));
}

static void take_rows(const weft_tensor *out, const weft_tensor *weight, const int64_t *index,
                      int64_t count)
{
    struct taking t = {out, weight, index, count, 1};
    t.parts = weft_i_team_parts(2 * out->numel * (int64_t)weft_i_dtype_size(out->dtype));
    weft_i_team_run(t.parts, take_part, &t);
}

weft_status weft_i_embedding_run(weft_i_op_call *call)
{
    const weft_tensor *weight = call->args[0].tensor, *indices = call->args[1].tensor;
    weft_tensor *index = weft_i_tensor_new(WEFT_I64, WEFT_CPU, weft_i_tensor_shape(indices), NULL);
    if (!index)
        return weft_last_status();
    weft_i_copy_tensor(index, indices);
    const int64_t *values = (const int64_t *)(const void *)weft_i_tensor_data(index);
    int64_t count = weft_i_tensor_numel(index);
    weft_status status = check_indices(values, count, weight->dim[0]);
    if (status >= 0)
        take_rows(call->out, weight, values, count);
    weft_release(index);
    return status;
}

weft_status weft_i_embedding_grad_shape(weft_i_op_call *call)
{
    const weft_tensor *grad = call->args[0].tensor, *indices = call->args[1].tensor;
    weft_i_result *result = &call->result;
    bool fits = grad->ndim == indices->ndim + 1;
    for (int i = 0; fits && i < indices->ndim; i++)
        fits = grad->dim[i] == indices->dim[i];
    if (!fits || weft_i_dtype_class(indices->dtype) != 1 || !weft_i_dtype_is_float(grad->dtype))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "embedding_grad: a %s gradient of %d dimensions for %s indices of %d",
                           weft_dtype_name(grad->dtype), grad->ndim,
                           weft_dtype_name(indices->dtype), indices->ndim);
    result->dtype = grad->dtype;
    result->shape.ndim = 2;
    result->shape.dim[0] = call->args[2].integer;
    result->shape.dim[1] = grad->dim[grad->ndim - 1];
    WEFT_TRY(weft_i_shape_check("embedding_grad", result->dtype, result->shape, NULL));
    weft_i_shape_strides(result->shape, result->stride);
    return WEFT_OK;
}

struct adding {
    const weft_tensor *to, *from;
    const int64_t *index;
    int64_t parts;
};

enum { GRAIN = 64 }; /* columns */

/* Adds some columns of row i of `from` to row index[i] of `to`, in that order; both packed, f32 or f64. */
static void add_part(void *state, int64_t part)
{
    const struct adding *a = state;
    int64_t width = a->to->dim[1], from = weft_i_team_bound_at(width, GRAIN, a->parts, part),
            columns = weft_i_team_bound_at(width, GRAIN, a->parts, part + 1) - from;
    int64_t size = (int64_t)weft_i_dtype_size(a->to->dtype),
            count = columns ? a->from->numel / width : 0;
    const weft_i_reduce_loops *loops = &weft_i_vector()->reduce[WEFT_I_REDUCE_SUM][a->to->dtype];
    for (int64_t i = 0; i < count; i++)
        loops->fold((size_t)columns,
                    weft_i_tensor_data(a->to) + (a->index[i] * width + from) * size,
                    weft_i_tensor_data(a->from) + (i * width + from) * size);
}

static void add_rows(const weft_tensor *to, const weft_tensor *from, const int64_t *index)
{
    struct adding a = {to, from, index, 1};
    int64_t most = (to->dim[1] + GRAIN - 1) / GRAIN;
    a.parts = weft_i_team_parts(3 * from->numel * (int64_t)weft_i_dtype_size(to->dtype));
    a.parts = a.parts < most ? a.parts : most;
    weft_i_team_run(a.parts, add_part, &a);
}

static void clear(const weft_tensor *x)
{
    weft_i_loop loop = weft_i_loop_over(x);
    double zero = 0; /* of any type */
    weft_i_fill(&loop, x->dtype, &zero);
}

/* The sums are in f32 or f64 and rounded once. */
weft_status weft_i_embedding_grad_run(weft_i_op_call *call)
{
    weft_tensor *grad = call->args[0].tensor, *indices = call->args[1].tensor;
    weft_dtype compute = grad->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    weft_shape shape = weft_i_tensor_shape(call->out);
    weft_tensor *index = weft_i_tensor_new(WEFT_I64, WEFT_CPU, weft_i_tensor_shape(indices), NULL);
    weft_tensor *from = weft_i_tensor_new(compute, WEFT_CPU, weft_i_tensor_shape(grad), NULL);
    weft_tensor *sums = weft_i_tensor_new(compute, WEFT_CPU, shape, NULL);
    weft_status status = index && from && sums ? WEFT_OK : weft_last_status();
    if (status >= 0) {
        const int64_t *values = (const int64_t *)(const void *)weft_i_tensor_data(index);
        weft_i_copy_tensor(index, indices);
        weft_i_copy_tensor(from, grad);
        status = check_indices(values, index->numel, shape.dim[0]);
        if (status >= 0 && sums->numel) {
            clear(sums);
            add_rows(sums, from, values);
            weft_i_copy_tensor(call->out, sums);
        }
    }
    weft_release(index);
    weft_release(from);
    weft_release(sums);
    return status;
}

weft_tensor *weft_embedding(weft_tensor *weight, weft_tensor *indices)
{
    return WEFT_I_APPLY(embedding, WEFT_I_TENSOR_ARG(weight), WEFT_I_TENSOR_ARG(indices));
}

weft_tensor *weft_embedding_grad(weft_tensor *grad, weft_tensor *indices, int64_t rows)
{
    return WEFT_I_APPLY(embedding_grad, WEFT_I_TENSOR_ARG(grad), WEFT_I_TENSOR_ARG(indices),
                        WEFT_I_INTEGER_ARG(rows));
}
