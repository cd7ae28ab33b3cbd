/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of activations and normalisations. */
#include "grad/rules.h"

#include <math.h>

/* ---- gelu ---- */

/* phi(x) (2 - x^2), phi the density of the normal distribution. */
weft_tensor *weft_i_gelu_bend(weft_tensor *g, weft_tensor *x)
{
    weft_tensor *square = weft_mul(x, x);
    weft_tensor *density =
        weft_mul_scalar(weft_exp(weft_mul_scalar(square, -0.5)), 0.5 * M_SQRT1_2 * M_2_SQRTPI);
    return weft_mul(g, weft_mul(density, weft_scalar_sub(2, square)));
}

/* s (1 - s) (2 u' + x ((1 - 2s) u'^2 + u'')), s the logistic function of u = 2k (x + d x^3). */
weft_tensor *weft_i_gelu_tanh_bend(weft_tensor *g, weft_tensor *x)
{
    static const double k = 0.5 * M_2_SQRTPI * M_SQRT2, d = 0.044715;
    weft_tensor *square = weft_mul(x, x);
    weft_tensor *u = weft_mul(x, weft_add_scalar(weft_mul_scalar(square, 2 * k * d), 2 * k));
    weft_tensor *slope = weft_add_scalar(weft_mul_scalar(square, 6 * k * d), 2 * k);
    /* 1 - 2s = -tanh(u / 2) and s (1 - s) = (1 - tanh^2) / 4 */
    weft_tensor *t = weft_tanh(weft_mul_scalar(u, 0.5));
    weft_tensor *width = weft_mul_scalar(weft_scalar_sub(1, weft_mul(t, t)), 0.25);
    weft_tensor *turn =
        weft_sub(weft_mul_scalar(x, 12 * k * d), weft_mul(t, weft_mul(slope, slope)));
    weft_tensor *sum = weft_add(weft_mul_scalar(slope, 2), weft_mul(x, turn));
    return weft_mul(g, weft_mul(width, sum));
}

/* s (1 - s) (2 + x (1 - 2 s)), s the logistic function. */
weft_tensor *weft_i_silu_bend(weft_tensor *g, weft_tensor *x)
{
    weft_tensor *s = weft_sigmoid(x), *rest = weft_scalar_sub(1, s);
    weft_tensor *sum = weft_add_scalar(weft_mul(x, weft_sub(rest, s)), 2);
    return weft_mul(g, weft_mul(weft_mul(s, rest), sum));
}

/* ---- softmax ---- */

static weft_tensor *sum_along(weft_tensor *x, const weft_i_arg *dim)
{
    return weft_sum(x, (int[]){(int)dim->integer}, x && x->ndim ? 1 : 0, true);
}

weft_status weft_i_softmax_back(weft_i_back *c)
{
    return GIVE(0, weft_softmax_grad(c->g[0], c->y[0], (int)ARG(1)->integer));
}

weft_status weft_i_log_softmax_back(weft_i_back *c)
{
    return GIVE(0, weft_log_softmax_grad(c->g[0], c->y[0], (int)ARG(1)->integer));
}

/* Of (grad - sum(grad y)) y, with G for it: (G - sum(G y)) y, and
 * G (grad - sum(grad y)) - grad sum(G y). */
weft_status weft_i_softmax_grad_back(weft_i_back *c)
{
    weft_tensor *G = c->g[0], *grad = ARG(0)->tensor, *y = ARG(1)->tensor;
    const weft_i_arg *dim = ARG(2);
    if (NEEDS(0))
        WEFT_TRY(GIVE(0, weft_softmax_grad(G, y, (int)dim->integer)));
    if (!NEEDS(1))
        return WEFT_OK;
    weft_tensor *inner = sum_along(weft_mul(grad, y), dim), *outer = sum_along(weft_mul(G, y), dim);
    return GIVE(1, weft_sub(weft_mul(G, weft_sub(grad, inner)), weft_mul(grad, outer)));
}

/* Of grad - e^y sum(grad), with G for it: G - sum(G e^y), and - G e^y sum(grad). */
weft_status weft_i_log_softmax_grad_back(weft_i_back *c)
{
    weft_tensor *G = c->g[0], *grown = weft_mul(G, weft_exp(ARG(1)->tensor));
    const weft_i_arg *dim = ARG(2);
    if (NEEDS(0))
        WEFT_TRY(GIVE(0, weft_sub(G, sum_along(grown, dim))));
    if (!NEEDS(1))
        return WEFT_OK;
    return GIVE(1, weft_neg(weft_mul(grown, sum_along(ARG(0)->tensor, dim))));
}

/* ---- layer norm ---- */

weft_status weft_i_layer_norm_back(weft_i_back *c)
{
    weft_tensor *out[3];
    WEFT_TRY(weft_layer_norm_grad(c->g[0], ARG(0)->tensor, (int)ARG(1)->integer,
                                  weft_i_back_x(c, 2), ARG(4)->number, NEEDS(3), out));
    c->grad[0] = out[0];
    c->grad[2] = out[1];
    c->grad[3] = out[2];
    return WEFT_OK;
}

/*
 * The gradient of the gradient.  With r = 1 / sqrt(variance + epsilon), n = (x - mean) r,
 * P(u) = u - mean(u) - n mean(u n) and u = grad weight, its results are
 *
 *     r P(u),  sum of grad n over the rows,  sum of grad over the rows,
 *
 * and G, w, b are their gradients.
 */
struct norm {
    int first, dims[WEFT_MAX_DIMS], count; /* the dimensions that are normalised */
    weft_tensor *n, *r, *u;
};

static weft_tensor *mean(const struct norm *m, weft_tensor *x)
{
    return weft_mean(x, m->dims, m->count, true);
}

static weft_tensor *project(const struct norm *m, weft_tensor *u)
{
    return weft_sub(weft_sub(u, mean(m, u)), weft_mul(m->n, mean(m, weft_mul(u, m->n))));
}

static void measure(struct norm *m, const weft_i_back *c, weft_tensor *x, weft_tensor *weight)
{
    m->count = (int)ARG(2)->integer;
    for (int i = 0; i < m->count; i++)
        m->dims[i] = x->ndim - m->count + i;
    weft_tensor *centred = weft_sub(x, mean(m, x));
    weft_tensor *variance = mean(m, weft_mul(centred, centred));
    m->r = weft_pow_scalar(weft_add_scalar(variance, ARG(4)->number), -0.5);
    m->n = weft_mul(centred, m->r);
    m->u = weight ? weft_mul(ARG(0)->tensor, weight) : ARG(0)->tensor;
}

/* Adds to a sum that may have no terms yet. */
static void add_term(weft_tensor **sum, weft_tensor *term, weft_status *status)
{
    *sum = *sum ? weft_add(*sum, term) : term;
    if (!*sum)
        *status = weft_last_status();
}

/* For grad: w n + b, and weight r P(G). */
static weft_status grad_of_grad(weft_i_back *c, const struct norm *m, weft_tensor *projected)
{
    weft_status status = WEFT_OK;
    weft_tensor *sum = NULL, *weight = weft_i_back_x(c, 3);
    if (projected)
        add_term(&sum, weight ? weft_mul(projected, weight) : projected, &status);
    if (c->g[1])
        add_term(&sum, weft_mul(m->n, c->g[1]), &status);
    if (c->g[2])
        add_term(&sum, weft_expand(c->g[2], SHAPE(0)), &status);
    c->grad[0] = sum;
    return status;
}

/* For x: r P(q) for what reaches n, q = grad w - r (G mean(u n) + u mean(G n)), and
 * - r^2 n mean(G P(u)) for what reaches r. */
static weft_status grad_of_x(weft_i_back *c, const struct norm *m)
{
    weft_status status = WEFT_OK;
    weft_tensor *q = NULL, *sum = NULL, *G = c->g[0], *r = m->r, *n = m->n, *u = m->u;
    if (c->g[1])
        add_term(&q, weft_mul(ARG(0)->tensor, c->g[1]), &status);
    if (G) {
        weft_tensor *cross =
            weft_add(weft_mul(G, mean(m, weft_mul(u, n))), weft_mul(u, mean(m, weft_mul(G, n))));
        add_term(&q, weft_neg(weft_mul(r, cross)), &status);
        weft_tensor *through_r = mean(m, weft_mul(G, project(m, u)));
        add_term(&sum, weft_neg(weft_mul(weft_mul(weft_mul(r, r), n), through_r)), &status);
    }
    if (q)
        add_term(&sum, weft_mul(r, project(m, q)), &status);
    c->grad[1] = sum;
    return status;
}

weft_status weft_i_layer_norm_grad_back(weft_i_back *c)
{
    struct norm m;
    weft_tensor *projected = NULL, *weight = weft_i_back_x(c, 3);
    measure(&m, c, ARG(1)->tensor, weight);
    if (c->g[0] && !(projected = weft_mul(m.r, project(&m, c->g[0]))))
        return weft_last_status();
    if (NEEDS(0))
        WEFT_TRY(grad_of_grad(c, &m, projected));
    if (NEEDS(1))
        WEFT_TRY(grad_of_x(c, &m));
    if (NEEDS(3) && projected) /* the engine sums over the rows */
        return GIVE(3, weft_mul(ARG(0)->tensor, projected));
    return WEFT_OK;
}
