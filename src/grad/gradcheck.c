/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients against central differences.  What is checked is a number: the sum of the function's
 * results, each times a weight.  For the second order the number is a weighted sum of the first
 * gradients, and the weights of the results are among what it depends on: so linear functions are
 * checked too.  Weights are the same on every rank.
 */
#include "base/os/os.h"
#include "base/report/opts.h"
#include "grad/node.h"

#include <math.h>

/* A check of one order. */
struct check {
    weft_function function;
    void *user;
    weft_tensor *const *inputs;
    weft_tensor **of; /* those that are checked, then the weights */
    size_t *number;   /* which of the inputs they are */
    size_t count;     /* of them, without the weights */
    weft_tensor *weights;
    weft_gradcheck_opts opts;
    bool second;
    bool differences; /* now; the gradients of gradients are not needed */
};

/* ---- the number ---- */

/* Far from zero and from one another, and of both signs. */
static weft_tensor *make_weights(weft_shape shape, int64_t seed)
{
    weft_tensor *weights = weft_empty(WEFT_F64, WEFT_CPU, shape);
    double *at = weights ? weft_tensor_data(weights) : NULL;
    for (int64_t i = 0; at && i < weights->numel; i++) {
        double part = fmod(0.61803398874989485 * (double)(seed + i), 1);
        at[i] = (i & 1 ? -0.5 : 0.5) - part;
    }
    return weights;
}

static weft_tensor *weigh(weft_tensor *x, weft_tensor *weights)
{
    return weft_sum(weft_mul(x, weights), NULL, 0, false);
}

static weft_tensor *first_number(struct check *k)
{
    weft_tensor *y = k->function(k->inputs, k->user);
    if (y && y->dtype != WEFT_F64)
        return weft_i_null(WEFT_ERR_TYPE, "weft_gradcheck: the function gives %s, it must give f64",
                           weft_dtype_name(y->dtype));
    if (y && !k->weights) {
        weft_tensor *weights = make_weights(weft_i_tensor_shape(y), 1);
        k->weights = weft_keep(weights);
        k->of[k->count] = k->weights;
    }
    return y ? weigh(y, k->weights) : NULL;
}

static weft_tensor *second_number(struct check *k)
{
    weft_tensor *first = first_number(k), *sum = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SCALAR);
    if (!first || !weft_requires_grad(first))
        return first ? sum : NULL;
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.allow_unused = true;
    opts.create_graph = !k->differences;
    weft_tensor **grad = WEFT_OS->alloc(k->count * sizeof *grad);
    if (!grad)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_gradcheck: no memory for %zu gradients",
                           k->count);
    if (weft_gradients(grad, k->of, k->count, &first, 1, &opts) < 0)
        sum = NULL;
    for (size_t i = 0; sum && i < k->count; i++)
        if (grad[i])
            sum = weft_add(sum, weigh(grad[i], make_weights(weft_i_tensor_shape(grad[i]),
                                                            7 * (int64_t)i + 3)));
    WEFT_OS->free(grad);
    return sum;
}

static weft_tensor *number_of(struct check *k)
{
    return k->second ? second_number(k) : first_number(k);
}

/* ---- differences ---- */

static int64_t place_of(const weft_tensor *x, int64_t element)
{
    int64_t place = x->offset;
    for (int i = x->ndim - 1; i >= 0; i--) {
        place += element % x->dim[i] * x->stride[i];
        element /= x->dim[i];
    }
    return place;
}

/* Not counted as a write: backward is not to know. */
static weft_status set_element(weft_tensor *x, int64_t place, double value)
{
    weft_tensor *alias = weft_data(x);
    weft_tensor *one = alias ? weft_as_strided(alias, WEFT_SCALAR, NULL, place) : NULL;
    return one ? weft_fill(one, value) : weft_last_status();
}

static weft_status evaluate(struct check *k, double *out)
{
    weft_tensor *number = number_of(k);
    if (!number)
        return weft_last_status();
    *out = weft_item(number, 0);
    return WEFT_OK;
}

static weft_status evaluate_at(struct check *k, weft_tensor *x, int64_t place, double value,
                               double *out)
{
    WEFT_TRY(weft_scope_open());
    weft_status status = set_element(x, place, value);
    if (status >= 0)
        status = evaluate(k, out);
    weft_scope_close();
    return status;
}

static weft_status difference(struct check *k, weft_tensor *x, int64_t element, double *slope)
{
    double old = weft_item(x, element), high = old + k->opts.step, low = old - k->opts.step;
    double a = 0, b = 0;
    int64_t place = place_of(x, element);
    weft_status status = evaluate_at(k, x, place, high, &a);
    if (status >= 0)
        status = evaluate_at(k, x, place, low, &b);
    weft_status restored = weft_scope_open();
    if (restored >= 0) {
        restored = set_element(x, place, old);
        weft_scope_close();
    }
    WEFT_TRY(status);
    *slope = (a - b) / (high - low);
    return restored;
}

/* ---- comparing ---- */

static weft_status report(const struct check *k, size_t i, int64_t element, double is, double must)
{
    char what[64], shape[WEFT_I_SHAPE_TEXT];
    const char *order = k->second ? "second" : "first";
    if (i < k->count)
        snprintf(what, sizeof what, "input %zu", k->number[i]);
    else
        snprintf(what, sizeof what, "the gradient of the result");
    return weft_i_fail(WEFT_ERR_NUMERIC,
                       "weft_gradcheck: %s order, element %lld of %s (shape %s): backward gives "
                       "%.9g, differences give %.9g",
                       order, (long long)element, what,
                       weft_i_shape_text(weft_i_tensor_shape(k->of[i]), shape), is, must);
}

static weft_status compare(struct check *k, size_t i, weft_tensor *grad)
{
    weft_tensor *x = k->of[i];
    for (int64_t element = 0; element < x->numel; element++) {
        double is = grad ? weft_item(grad, element) : 0, must;
        WEFT_TRY(difference(k, x, element, &must));
        /* Written so that NaN fails. */
        if (!(fabs(is - must) <= k->opts.absolute + k->opts.relative * fabs(must)))
            return report(k, i, element, is, must);
    }
    return WEFT_OK;
}

/* The gradients of the number; NULL where it does not depend on one. */
static weft_status find_gradients(struct check *k, weft_tensor **grad)
{
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.allow_unused = true;
    k->differences = false;
    weft_tensor *number = number_of(k);
    if (!number)
        return weft_last_status();
    return weft_requires_grad(number)
               ? weft_gradients(grad, k->of, k->count + k->second, &number, 1, &opts)
               : WEFT_OK;
}

static weft_status check_order(struct check *k, weft_tensor **grad)
{
    WEFT_TRY(find_gradients(k, grad));
    k->differences = true;
    for (size_t i = 0; i < k->count + k->second; i++)
        WEFT_TRY(compare(k, i, grad[i]));
    return WEFT_OK;
}

/* ---- the call ---- */

static weft_status take_input(struct check *k, weft_tensor *x, size_t i)
{
    if (!x)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_gradcheck: input %zu is NULL", i);
    if (!weft_requires_grad(x))
        return WEFT_OK;
    if (x->dtype != WEFT_F64)
        return weft_i_fail(WEFT_ERR_TYPE, "weft_gradcheck: input %zu is %s, it must be f64", i,
                           weft_dtype_name(x->dtype));
    if (weft_i_tensor_overlaps_itself(x))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_gradcheck: elements of input %zu share memory", i);
    k->number[k->count] = i;
    k->of[k->count++] = x;
    return WEFT_OK;
}

static weft_status check_inputs(struct check *k, size_t count)
{
    for (size_t i = 0; i < count; i++)
        WEFT_TRY(take_input(k, k->inputs[i], i));
    return k->count
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_gradcheck: no input requires gradients");
}

static weft_status check_orders(struct check *k, size_t count)
{
    weft_tensor **grad = WEFT_OS->alloc((count + 1) * sizeof *grad);
    if (!grad)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_gradcheck: no memory for %zu inputs", count);
    weft_status status = check_order(k, grad);
    if (status >= 0 && k->opts.second) {
        k->second = true;
        status = weft_require_grad(k->weights, true);
        for (size_t i = 0; i <= count; i++)
            grad[i] = NULL;
        status = status < 0 ? status : check_order(k, grad);
    }
    WEFT_OS->free(grad);
    return status;
}

static weft_status run_check(struct check *k, size_t count)
{
    weft_status status = weft_scope_open();
    if (status < 0)
        return status;
    status = check_inputs(k, count);
    WEFT_ENABLE_GRAD
    {
        if (status >= 0)
            status = check_orders(k, count);
    }
    weft_scope_close();
    weft_release(k->weights);
    return status;
}

weft_status weft_gradcheck(weft_function function, void *user, weft_tensor *const *inputs,
                           size_t count, const weft_gradcheck_opts *opts)
{
    struct check k = {.function = function, .user = user, .inputs = inputs};
    WEFT_TRY(weft_i_opts_copy(&k.opts, sizeof k.opts, opts, __func__));
    if (!function || !inputs || !count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a function and at least one input", __func__);
    if (k.opts.step == 0)
        k.opts.step = 1e-6;
    if (k.opts.relative == 0 && k.opts.absolute == 0) {
        k.opts.relative = 1e-5;
        k.opts.absolute = 1e-7;
    }
    k.of = WEFT_OS->alloc((count + 1) * sizeof *k.of);
    k.number = WEFT_OS->alloc(count * sizeof *k.number);
    weft_status status =
        k.of && k.number
            ? run_check(&k, count)
            : weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu inputs", __func__, count);
    WEFT_OS->free(k.of);
    WEFT_OS->free(k.number);
    return status;
}
