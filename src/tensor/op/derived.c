/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are a few others: their gradients, devices and compiled forms are those of the
 * others. */
#include "tensor/object/eye.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <math.h>

#define T(x_) WEFT_I_TENSOR_ARG(x_)
#define N(x_) WEFT_I_NUMBER_ARG(x_)

/* The tensor as the thread sees it; NULL and the error of the operation that met it. */
static weft_tensor *see(const char *what, weft_tensor *x)
{
    if (!x)
        return weft_detach(NULL);
    x = weft_i_see(x);
    return x && weft_i_tensor_check_live(what, x) >= 0 ? x : NULL;
}

/* ---- choices ---- */

/* Not by maximum and minimum: at a bound the whole gradient passes, and NaN stays NaN. */
weft_tensor *weft_clamp(weft_tensor *x, double low, double high)
{
    if (!(low <= high))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "clamp: from %g to %g", low, high);
    weft_tensor *out = x;
    if (low > -INFINITY || high == INFINITY) /* once at least: the result is a tensor of its own */
        out = WEFT_I_APPLY(where, T(weft_lt_scalar(x, low)), N(low), T(x));
    return high < INFINITY ? WEFT_I_APPLY(where, T(weft_gt_scalar(out, high)), N(high), T(out))
                           : out;
}

weft_tensor *weft_masked_fill(weft_tensor *x, weft_tensor *mask, double value)
{
    return WEFT_I_APPLY(where, T(mask), N(value), T(x));
}

/* Columns minus rows of the last two dimensions, compared with the number of a diagonal. */
static weft_tensor *triangle(const char *what, weft_tensor *given, int64_t diagonal, bool upper)
{
    weft_tensor *x = see(what, given);
    if (!x)
        return NULL;
    if (x->ndim < 2)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: of a tensor of %d dimensions; it takes two",
                           what, x->ndim);
    weft_device device = weft_i_tensor_device(x);
    int64_t rows = x->dim[x->ndim - 2], columns = x->dim[x->ndim - 1];
    weft_tensor *row = weft_arange(WEFT_I64, device, 0, (double)rows, 1);
    weft_tensor *column = weft_arange(WEFT_I64, device, 0, (double)columns, 1);
    weft_tensor *number =
        weft_sub(weft_view(column, WEFT_SHAPE(1, columns)), weft_view(row, WEFT_SHAPE(rows, 1)));
    weft_tensor *in = (upper ? weft_ge_scalar : weft_le_scalar)(number, (double)diagonal);
    return WEFT_I_APPLY(where, T(in), T(given), N(0));
}

weft_tensor *weft_tril(weft_tensor *x, int64_t diagonal)
{
    return triangle("tril", x, diagonal, false);
}

weft_tensor *weft_triu(weft_tensor *x, int64_t diagonal)
{
    return triangle("triu", x, diagonal, true);
}

/* A sum rather than a comparison: it refuses what is no class. */
weft_tensor *weft_one_hot(weft_tensor *given, int64_t classes)
{
    weft_tensor *x = see("one_hot", given);
    if (!x)
        return NULL;
    if (classes < 1 || weft_i_dtype_class(x->dtype) != 1 || x->ndim == WEFT_MAX_DIMS)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "one_hot: %lld classes for %s of %d dimensions; they are integers of at "
                           "most %d",
                           (long long)classes, weft_dtype_name(x->dtype), x->ndim,
                           WEFT_MAX_DIMS - 1);
    weft_shape shape = weft_i_tensor_shape(x), one = shape;
    shape.dim[shape.ndim++] = classes;
    one.dim[one.ndim++] = 1;
    weft_device device = weft_i_tensor_device(x);
    return weft_scatter_add(weft_zeros(WEFT_I64, device, shape), -1, weft_unsqueeze(given, -1),
                            weft_ones(WEFT_I64, device, one));
}

/* ---- moments ---- */

/* How many elements one of the result is made of; -1 and an error. */
static int64_t count_of(const weft_tensor *x, const int *dims, int count)
{
    int64_t n = 1;
    if (count < 0 || count > WEFT_MAX_DIMS || (count && !dims))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "var: %d dimensions named", count), -1;
    for (int i = 0; i < (count ? count : x->ndim); i++) {
        int dim = x->ndim ? weft_i_dim_wrap("var", count ? dims[i] : i, x->ndim) : 0;
        if (dim < 0)
            return -1;
        n *= x->ndim ? x->dim[dim] : 1;
    }
    return n;
}

weft_tensor *weft_var(weft_tensor *given, const int *dims, int count, double correction,
                      bool keepdim)
{
    weft_tensor *x = see("var", given);
    int64_t n = x ? count_of(x, dims, count) : -1;
    if (n < 0)
        return NULL;
    double divisor = (double)n - correction;
    weft_tensor *apart = weft_sub(given, weft_mean(given, dims, count, true));
    weft_tensor *sum = weft_sum(weft_mul(apart, apart), dims, count, keepdim);
    return weft_div_scalar(sum, divisor > 0 ? divisor : 0);
}

weft_tensor *weft_rms_norm(weft_tensor *given, int dims, weft_tensor *weight, double epsilon)
{
    weft_tensor *x = see("rms_norm", given);
    int last[WEFT_MAX_DIMS];
    if (!x)
        return NULL;
    if (dims < 1 || dims > x->ndim || !weft_i_dtype_is_float(x->dtype))
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "rms_norm: the last %d of %d dimensions of %s; it takes floats", dims,
                           x->ndim, weft_dtype_name(x->dtype));
    for (int i = 0; i < dims; i++)
        last[i] = x->ndim - dims + i;
    bool small = weft_i_dtype_is_small_float(x->dtype);
    weft_tensor *wide = small ? weft_to_dtype(given, WEFT_F32) : given;
    weft_tensor *square = weft_mean(weft_mul(wide, wide), last, dims, true);
    weft_tensor *out = weft_mul(wide, weft_rsqrt(weft_add_scalar(square, epsilon)));
    if (small)
        out = weft_to_dtype(out, x->dtype);
    return weight ? weft_mul(out, weight) : out;
}

/* ---- positions ---- */

/* Angles of [..., time, half]: the position times base^(-2 i / width), in f64. */
static weft_tensor *angles_of(const weft_tensor *x, weft_tensor *positions, double base)
{
    weft_device device = weft_i_tensor_device(x);
    int64_t half = x->dim[x->ndim - 1] / 2, time = x->dim[x->ndim - 2];
    weft_tensor *at = positions ? weft_to_dtype(positions, WEFT_F64)
                                : weft_arange(WEFT_F64, device, 0, (double)time, 1);
    weft_tensor *power = weft_mul_scalar(weft_arange(WEFT_F64, device, 0, (double)half, 1),
                                         -log(base) / (double)half);
    return weft_mul(weft_unsqueeze(at, -1), weft_exp(power));
}

weft_tensor *weft_rotary(weft_tensor *given, weft_tensor *positions, double base)
{
    weft_tensor *x = see("rotary", given);
    if (!x)
        return NULL;
    if (x->ndim < 2 || x->dim[x->ndim - 1] % 2 || !weft_i_dtype_is_float(x->dtype) || !(base > 1))
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "rotary: %s of %d dimensions, base %g; it takes floats [..., time, an "
                           "even width] and a base above 1",
                           weft_dtype_name(x->dtype), x->ndim, base);
    int64_t half = x->dim[x->ndim - 1] / 2;
    weft_dtype compute = x->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    weft_tensor *angles = angles_of(x, positions, base);
    weft_tensor *c = weft_to_dtype(weft_cos(angles), compute);
    weft_tensor *s = weft_to_dtype(weft_sin(angles), compute);
    weft_tensor *a = weft_narrow(given, -1, 0, half), *b = weft_narrow(given, -1, half, half);
    weft_tensor *both[] = {weft_sub(weft_mul(a, c), weft_mul(b, s)),
                           weft_add(weft_mul(b, c), weft_mul(a, s))};
    return weft_to_dtype(weft_cat(both, 2, -1), x->dtype);
}

/* ---- draws ---- */

/* p / e with e exponential: the largest is a draw by the weights (the exponential race).  e is not 0,
 * so that a weight of 0 is never drawn. */
static weft_tensor *race(weft_tensor *weights, weft_shape shape)
{
    weft_device device = weft_i_tensor_device(weights);
    weft_tensor *draw = weft_scalar_sub(1, weft_rand(WEFT_F64, device, shape));
    weft_tensor *time = weft_maximum_scalar(weft_neg(weft_log(draw)), 1e-300);
    return weft_div(weft_to_dtype(weights, WEFT_F64), time);
}

weft_tensor *weft_multinomial(weft_tensor *given, int64_t count, bool replacement)
{
    weft_tensor *x = see("multinomial", given), *pair[2];
    if (!x)
        return NULL;
    weft_shape shape = weft_i_tensor_shape(x);
    int64_t size = x->ndim ? x->dim[x->ndim - 1] : 0;
    if (x->ndim < 1 || x->ndim > 2 || !weft_i_dtype_is_float(x->dtype) || count < 1 || size < 1 ||
        (!replacement && count > size))
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "multinomial: %lld draws%s from %s of %d dimensions, %lld in the last; "
                           "the weights are floats of one or two",
                           (long long)count, replacement ? "" : " without replacement",
                           weft_dtype_name(x->dtype), x->ndim, (long long)size);
    weft_tensor *plain = weft_detach(given);
    if (count == 1)
        return weft_argmax(race(plain, shape), -1, true);
    if (!replacement)
        return weft_topk(race(plain, shape), count, -1, true, pair) < 0 ? NULL : pair[1];
    shape.dim[shape.ndim] = size;
    shape.dim[shape.ndim++ - 1] = count;
    return weft_argmax(race(weft_unsqueeze(plain, -2), shape), -1, false);
}
