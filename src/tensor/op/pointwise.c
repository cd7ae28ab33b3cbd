/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operations.  Four shape rules (arithmetic, float, comparison, logical) and `where`
 * serve all rows; one run function turns a call into a loop for the row's kernel.  The public
 * functions are generated, one line per row.
 */
#include "kernels/vector/pointwise.h"

#include "base/team/team.h"
#include "kernels/number/convert.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "tensor/op/promote.h"
#include "weft/op.h"

#include <string.h>

static int last_arg(const weft_i_op_call *call)
{
    return weft_i_op_param_count(call->op) - 1;
}

/* A whole number beside integers must fit their dtype: it would silently become another. */
static weft_status check_numbers(const weft_i_op_call *call, weft_dtype dtype)
{
    for (int i = 0; weft_i_dtype_class(dtype) == 1 && i <= last_arg(call); i++) {
        uint64_t element;
        double back;
        if (call->args[i].kind != WEFT_I_ARG_NUMBER)
            continue;
        weft_i_convert(dtype, &element, WEFT_F64, &call->args[i].number, 1);
        weft_i_convert(WEFT_F64, &back, dtype, &element, 1);
        if (back != call->args[i].number)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %g does not fit %s", call->op->name,
                               call->args[i].number, weft_dtype_name(dtype));
    }
    return WEFT_OK;
}

weft_status weft_i_arithmetic_shape(weft_i_op_call *call)
{
    weft_dtype dtype;
    WEFT_TRY(weft_i_promote_dtypes(call, 0, last_arg(call), &dtype));
    if (!weft_i_pointwise_find(call->op->kernel, weft_i_pointwise_compute(dtype)))
        dtype = WEFT_F32; /* this operation makes floats of integers */
    bool negates =
        call->op->kernel == WEFT_I_POINTWISE_neg || call->op->kernel == WEFT_I_POINTWISE_sub;
    if (dtype == WEFT_BOOL && negates)
        return weft_i_fail(WEFT_ERR_TYPE,
                           "%s: bool has no negative; use weft_logical_not or weft_logical_xor",
                           call->op->name);
    WEFT_TRY(check_numbers(call, dtype));
    call->result.dtype = dtype;
    call->result.compute = weft_i_pointwise_compute(dtype);
    return weft_i_promote_shapes(call, 0, last_arg(call));
}

weft_status weft_i_compare_shape(weft_i_op_call *call)
{
    WEFT_TRY(weft_i_arithmetic_shape(call));
    call->result.dtype = WEFT_BOOL;
    return WEFT_OK;
}

weft_status weft_i_logical_shape(weft_i_op_call *call)
{
    call->result.dtype = call->result.compute = WEFT_BOOL;
    return weft_i_promote_shapes(call, 0, last_arg(call));
}

weft_status weft_i_where_shape(weft_i_op_call *call)
{
    if (call->args[0].tensor->dtype != WEFT_BOOL)
        return weft_i_fail(WEFT_ERR_TYPE, "where: the condition is %s, not bool",
                           weft_dtype_name(call->args[0].tensor->dtype));
    WEFT_TRY(weft_i_promote_dtypes(call, 1, 2, &call->result.dtype));
    WEFT_TRY(check_numbers(call, call->result.dtype));
    call->result.compute = call->result.dtype; /* a choice computes nothing */
    return weft_i_promote_shapes(call, 0, 2);
}

/* What the kernel gives: bytes of truth from comparisons, else its compute type. */
static weft_dtype made_by(const weft_i_op_call *call)
{
    return call->result.dtype == WEFT_BOOL && call->op->shape == weft_i_compare_shape
               ? WEFT_BOOL
               : call->result.compute;
}

/* Whether all tensors are packed and have as many elements as the result: then so are their
 * elements, one after the other. */
static bool is_one_run(const weft_i_op_call *call)
{
    const weft_tensor *out = call->out;
    bool same = out->packed;
    for (int i = 0; same && i < call->op->arity; i++) {
        const weft_i_arg *arg = &call->args[i];
        same = arg->kind != WEFT_I_ARG_TENSOR ||
               (arg->tensor->packed && arg->tensor->numel == out->numel);
    }
    return same;
}

static void run_at_once(const weft_i_op_call *call, const weft_i_pointwise *what, uint64_t *number)
{
    char *data[WEFT_I_LOOP_OPERANDS] = {weft_i_tensor_data(call->out)};
    int64_t stride[WEFT_I_LOOP_OPERANDS] = {(int64_t)weft_i_dtype_size(what->out)};
    int n = call->op->arity;
    for (int i = 0; i < n; i++) {
        bool tensor = call->args[i].kind == WEFT_I_ARG_TENSOR;
        data[i + 1] = tensor ? weft_i_tensor_data(call->args[i].tensor) : (char *)&number[i];
        stride[i + 1] = tensor ? (int64_t)weft_i_dtype_size(what->in[i]) : 0;
    }
    weft_i_pointwise_run_one(what, n, (size_t)call->out->numel, data, stride);
}

static void run_strided(const weft_i_op_call *call, const weft_i_pointwise *what, uint64_t *number)
{
    weft_i_loop loop = weft_i_loop_over(call->out);
    for (int i = 0; i < call->op->arity; i++) {
        if (call->args[i].kind == WEFT_I_ARG_TENSOR)
            weft_i_loop_add(&loop, call->args[i].tensor);
        else
            weft_i_loop_add_value(&loop, &number[i]);
    }
    weft_i_pointwise_each(&loop, what);
}

weft_status weft_i_pointwise_run(weft_i_op_call *call)
{
    uint64_t number[WEFT_I_POINTWISE_INPUTS];
    weft_i_pointwise what;
    what.kernel = weft_i_pointwise_find(call->op->kernel, call->result.compute);
    what.made = made_by(call);
    what.out = call->out->dtype;
    for (int i = 0; i < call->op->arity; i++) {
        const weft_i_arg *arg = &call->args[i];
        bool condition = call->op->shape == weft_i_where_shape && i == 0;
        what.taken[i] = condition ? WEFT_BOOL : call->result.compute;
        what.in[i] = arg->kind == WEFT_I_ARG_TENSOR ? arg->tensor->dtype : what.taken[i];
        if (arg->kind != WEFT_I_ARG_TENSOR)
            weft_i_convert(what.taken[i], &number[i], WEFT_F64, &arg->number, 1);
    }
    (is_one_run(call) ? run_at_once : run_strided)(call, &what, number);
    return WEFT_OK;
}

/* ---- the common case: packed tensors of one dtype and one shape ---- */

/* Elements that can be counted as bytes of any dtype. */
enum { LARGE_BYTES = 8 }; /* of an element: as little as is worth being cut */

/* On the CPU, whole, and nothing is under way on its memory. */
static inline bool is_at_hand(const weft_tensor *x)
{
    const weft_storage *storage = x->storage;
    /* Acquire: as in weft_i_storage_ready. */
    return storage->device == WEFT_CPU && x->packed && x->end <= storage->bytes &&
           !storage->ordered && !atomic_load_explicit(&storage->claims, memory_order_acquire);
}

static inline bool is_like(const weft_tensor *x, const weft_tensor *one)
{
    bool same = x->dtype == one->dtype && x->ndim == one->ndim;
    for (int i = 0; same && i < x->ndim; i++)
        same = x->dim[i] == one->dim[i];
    return same;
}

/* The target may be an argument, but not overlap one. */
static bool may_write(const weft_i_op_call *call, const weft_tensor *one)
{
    const weft_tensor *into = call->into;
    if (!is_at_hand(into) || !is_like(into, one) || into->storage->read_only)
        return false;
    const char *to = weft_i_tensor_data(into);
    size_t bytes = (size_t)one->numel * weft_i_dtype_size(one->dtype);
    for (int i = 0; i < call->op->arity; i++) {
        const char *from = weft_i_tensor_data(call->args[i].tensor);
        if (from != to && from < to + bytes && to < from + bytes)
            return false;
    }
    return true;
}

bool weft_i_pointwise_quick(weft_i_op_call *call)
{
    const void *in[WEFT_I_POINTWISE_INPUTS];
    const weft_tensor *one = call->args[0].tensor;
    for (int i = 0; i < call->op->arity; i++) {
        const weft_tensor *x = call->args[i].tensor;
        if (call->args[i].kind != WEFT_I_ARG_TENSOR)
            return false;
        if ((i == 0 || x != one) && (!is_at_hand(x) || (i && !is_like(x, one))))
            return false;
        in[i] = weft_i_tensor_data(x);
    }
    weft_dtype dtype = one->dtype;
    weft_i_pointwise_kernel *kernel = weft_i_pointwise_find(call->op->kernel, dtype);
    if (!kernel || dtype == WEFT_BOOL || !one->numel ||
        weft_i_team_may_cut(one->numel, LARGE_BYTES)) /* the team has it */
        return false;
    if (call->into && !may_write(call, one))
        return false;
    call->out = call->into ? call->into : weft_i_tensor_new_like(one, dtype);
    if (call->out)
        kernel((size_t)one->numel, weft_i_tensor_data(call->out), in);
    if (call->into)
        weft_i_tensor_bump(call->into);
    return true;
}

#define T(x_) WEFT_I_TENSOR_ARG(x_)
#define N(x_) WEFT_I_NUMBER_ARG(x_)

/* Each takes the full names that it defines, so that a search for one ends at its definition. */
#define UNARY(new_, into_, row_)                        \
    weft_tensor *new_(weft_tensor *x)                   \
    {                                                   \
        return WEFT_I_APPLY(row_, T(x));                \
    }                                                   \
    weft_status into_(weft_tensor *out, weft_tensor *x) \
    {                                                   \
        return WEFT_I_APPLY_INTO(row_, out, T(x));      \
    }
#define BINARY(new_, row_)                            \
    weft_tensor *new_(weft_tensor *a, weft_tensor *b) \
    {                                                 \
        return WEFT_I_APPLY(row_, T(a), T(b));        \
    }
#define OPERATOR(new_, scalar_, row_)              \
    BINARY(new_, row_)                             \
    weft_tensor *scalar_(weft_tensor *a, double b) \
    {                                              \
        return WEFT_I_APPLY(row_, T(a), N(b));     \
    }
#define INTO(into_, scalar_into_, row_)                                  \
    weft_status into_(weft_tensor *out, weft_tensor *a, weft_tensor *b)  \
    {                                                                    \
        return WEFT_I_APPLY_INTO(row_, out, T(a), T(b));                 \
    }                                                                    \
    weft_status scalar_into_(weft_tensor *out, weft_tensor *a, double b) \
    {                                                                    \
        return WEFT_I_APPLY_INTO(row_, out, T(a), N(b));                 \
    }
#define FROM_SCALAR(scalar_, row_)                 \
    weft_tensor *scalar_(double a, weft_tensor *b) \
    {                                              \
        return WEFT_I_APPLY(row_, N(a), T(b));     \
    }

UNARY(weft_neg, weft_neg_into, neg)
UNARY(weft_abs, weft_abs_into, abs)
UNARY(weft_relu, weft_relu_into, relu)
UNARY(weft_sin, weft_sin_into, sin)
UNARY(weft_cos, weft_cos_into, cos)
UNARY(weft_exp, weft_exp_into, exp)
UNARY(weft_log, weft_log_into, log)
UNARY(weft_tanh, weft_tanh_into, tanh)
UNARY(weft_erf, weft_erf_into, erf)
UNARY(weft_sqrt, weft_sqrt_into, sqrt)
UNARY(weft_rsqrt, weft_rsqrt_into, rsqrt)
UNARY(weft_sigmoid, weft_sigmoid_into, sigmoid)
UNARY(weft_silu, weft_silu_into, silu)
UNARY(weft_gelu, weft_gelu_into, gelu)
UNARY(weft_gelu_tanh, weft_gelu_tanh_into, gelu_tanh)
UNARY(weft_logical_not, weft_logical_not_into, logical_not)
OPERATOR(weft_add, weft_add_scalar, add)
OPERATOR(weft_sub, weft_sub_scalar, sub)
OPERATOR(weft_mul, weft_mul_scalar, mul)
OPERATOR(weft_div, weft_div_scalar, div)
OPERATOR(weft_pow, weft_pow_scalar, pow)
OPERATOR(weft_maximum, weft_maximum_scalar, maximum)
OPERATOR(weft_minimum, weft_minimum_scalar, minimum)
OPERATOR(weft_eq, weft_eq_scalar, eq)
OPERATOR(weft_ne, weft_ne_scalar, ne)
OPERATOR(weft_lt, weft_lt_scalar, lt)
OPERATOR(weft_le, weft_le_scalar, le)
OPERATOR(weft_gt, weft_gt_scalar, gt)
OPERATOR(weft_ge, weft_ge_scalar, ge)
BINARY(weft_logical_and, logical_and)
BINARY(weft_logical_or, logical_or)
BINARY(weft_logical_xor, logical_xor)
INTO(weft_add_into, weft_add_scalar_into, add)
INTO(weft_mul_into, weft_mul_scalar_into, mul)
FROM_SCALAR(weft_scalar_sub, sub)
FROM_SCALAR(weft_scalar_div, div)
FROM_SCALAR(weft_scalar_pow, pow)

weft_tensor *weft_gelu_grad(weft_tensor *grad, weft_tensor *x)
{
    return WEFT_I_APPLY(gelu_grad, T(grad), T(x));
}

weft_tensor *weft_gelu_tanh_grad(weft_tensor *grad, weft_tensor *x)
{
    return WEFT_I_APPLY(gelu_tanh_grad, T(grad), T(x));
}

weft_tensor *weft_silu_grad(weft_tensor *grad, weft_tensor *x)
{
    return WEFT_I_APPLY(silu_grad, T(grad), T(x));
}

weft_tensor *weft_where(weft_tensor *condition, weft_tensor *a, weft_tensor *b)
{
    return WEFT_I_APPLY(where, T(condition), T(a), T(b));
}

weft_status weft_where_into(weft_tensor *out, weft_tensor *condition, weft_tensor *a,
                            weft_tensor *b)
{
    return WEFT_I_APPLY_INTO(where, out, T(condition), T(a), T(b));
}
