/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers update the parameters of a module, or tensors of a list, from their gradients.
 *
 *     weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL);
 *     ...
 *     weft_backward(loss);
 *     weft_clip_grad_norm(params, count, 1, NULL, NULL);
 *     weft_optim_set_rate(adam, weft_rate_cosine(step, 100, 10000, 1e-3, 1e-4));
 *     weft_optim_step(adam);
 *
 * The parameters are those that the module has when the optimizer is made, each once.  The
 * optimizer holds them.  Its state has the dtype of the parameter, unless AdamW has master weights;
 * floats of 16 and 8 bits compute in f32.
 */
#ifndef WEFT_OPTIM_H
#define WEFT_OPTIM_H

#include "weft/group.h"
#include "weft/module.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_optim weft_optim;

/* g += decay * p;  v = momentum * v + g (at first v = g);  p -= rate * v */
typedef struct weft_sgd_opts {
    size_t size;     /* of this struct */
    double momentum; /* or 0 */
    double decay;    /* or 0 */
    bool finite;     /* see weft_optim_step */
} weft_sgd_opts;
#define WEFT_SGD_OPTS_INIT                                        \
    {                                                             \
        sizeof(weft_sgd_opts), 0 /*momentum*/, 0 /*decay*/, false \
    }

/* p -= rate * decay * p;  m, v: running means of g and g^2, corrected for their start at 0;
 * p -= rate * m / (sqrt(v) + epsilon) */
typedef struct weft_adamw_opts {
    size_t size; /* of this struct */
    double beta1, beta2, epsilon, decay;
    bool finite; /* see weft_optim_step */
    /* Of parameters of 16 and 8 bits the state is f32, with a copy of the parameter itself
     * ("master") that takes the steps; the parameter is the rounded copy.  Without it, steps below
     * half a unit in the last place are lost. */
    bool master;
} weft_adamw_opts;
#define WEFT_ADAMW_OPTS_INIT                                          \
    {                                                                 \
        sizeof(weft_adamw_opts), 0.9, 0.999, 1e-8, 1e-2, false, false \
    }

/* Makes an optimizer, a handle in the current scope.  If `opts` is NULL, the values of the INIT
 * macro apply.  A module without parameters is WEFT_ERR_INVALID_ARG. */
WEFT_API weft_optim *weft_optim_sgd(weft_module *module, double rate, const weft_sgd_opts *opts);
WEFT_API weft_optim *weft_optim_adamw(weft_module *module, double rate,
                                      const weft_adamw_opts *opts);

/*
 * The same for a list of tensors, such as a part of what weft_module_params lists:
 *
 *     weft_named list[] = {{"scale", scale}, {"shift", shift}};
 *     weft_optim *sgd = weft_optim_sgd_of(list, 2, 0.1, NULL);
 *
 * The names are for messages and may be empty.  All tensors are leaves that require gradients, and
 * no two are the same; if not, WEFT_ERR_INVALID_ARG says which.
 */
WEFT_API weft_optim *weft_optim_sgd_of(const weft_named *params, int count, double rate,
                                       const weft_sgd_opts *opts);
WEFT_API weft_optim *weft_optim_adamw_of(const weft_named *params, int count, double rate,
                                         const weft_adamw_opts *opts);

/*
 * Updates every parameter that has a gradient, then clears the gradients.  If it fails, the
 * gradients of parameters that were not updated are still there.  If no parameter has one, nothing
 * happens, and the log says so once.
 *
 * With the option `finite` it looks at all gradients first.  If one has an infinity or NaN, it
 * returns WEFT_ERR_NUMERIC with the first such parameter, and nothing has changed: to leave the
 * batch out, clear the gradients with weft_set_grad.  The look reads every gradient and waits for
 * devices.  Ranks that train together see the same gradients, and so refuse the same step, if those
 * were reduced before.
 *
 * A step of an optimizer that remembers something cannot be captured (WEFT_ERR_UNSUPPORTED): call it
 * beside the captured function.
 */
WEFT_API weft_status weft_optim_step(weft_optim *optim);

/* ---- groups of parameters ---- */

/*
 * Adds parameters that have a rate and options of their own, such as biases without decay.  Returns
 * the number of their group, or a negative status; what the optimizer was made with is group 0.  The
 * list is as for weft_optim_sgd_of, and none of its tensors is in the optimizer already.  A step
 * looks at the gradients of all groups if one of them has the option `finite`.
 */
WEFT_API int weft_optim_sgd_add(weft_optim *optim, const weft_named *params, int count, double rate,
                                const weft_sgd_opts *opts);
WEFT_API int weft_optim_adamw_add(weft_optim *optim, const weft_named *params, int count,
                                  double rate, const weft_adamw_opts *opts);

/* Sets the rate of the following steps: of all groups, or of one. */
WEFT_API weft_status weft_optim_set_rate(weft_optim *optim, double rate);
WEFT_API weft_status weft_optim_set_group_rate(weft_optim *optim, int group, double rate);

/* ---- rates by the number of the step, from 0 on ---- */

/*
 * All rise in even steps to `peak`, which the step number `warmup` is the first to have: step 0 has
 * peak / (warmup + 1).  Then the rate stays; or goes down, on a line or half a cosine, to `least`,
 * which it has from step `total` on.  Any numbers will do: a negative step is step 0, a negative
 * `warmup` is none, and if `total` is not after `warmup`, `least` follows the rise at once.  All
 * machines compute the same bits.
 */
WEFT_API double weft_rate_constant(int64_t step, int64_t warmup, double peak);
WEFT_API double weft_rate_linear(int64_t step, int64_t warmup, int64_t total, double peak,
                                 double least);
WEFT_API double weft_rate_cosine(int64_t step, int64_t warmup, int64_t total, double peak,
                                 double least);

/* ---- clipping ---- */

/*
 * Computes the norm of all gradients of the parameters, as of one long vector, and stores it in
 * `norm` unless that is NULL.  If it is above `limit`, multiplies every gradient in place by
 * limit / norm.  With a limit of INFINITY it only computes.  Parameters without a gradient count as
 * 0; no two have the same gradient.
 *
 * Squares are added up in f64, whatever the dtype, in an order that depends on the shapes and the
 * order of the list alone: all devices give the same bits.
 *
 * With `group` the gradients are a rank's part of sharded ones: every rank of it makes the call with
 * the same limit, the squares are added up over the ranks, and all get the same norm, bit by bit.
 * Gradients that all ranks have in full are clipped with NULL: every rank computes the same.
 *
 * An infinity or NaN in a gradient is WEFT_ERR_NUMERIC on all ranks, with the first such parameter
 * and its rank; no gradient has changed, and `norm` is infinite or NaN.  The call reads the norm, so
 * it waits for devices, and cannot be captured (WEFT_ERR_UNSUPPORTED).
 */
WEFT_API weft_status weft_clip_grad_norm(const weft_named *params, int count, double limit,
                                         weft_group *group, double *norm);

/* ---- loss scaling, for gradients of f16 ---- */

/*
 * Small gradients of f16 would be 0.  So the loss is multiplied by a scale before backward, and the
 * gradients are divided by it before the step:
 *
 *     weft_loss_scale scale = WEFT_LOSS_SCALE;
 *     ...
 *     weft_backward(weft_mul_scalar(loss, scale.scale));
 *     weft_loss_scale_step(&scale, adam);
 *
 * Start from WEFT_LOSS_SCALE; the fields are yours to read, save and set.
 */
typedef struct weft_loss_scale {
    size_t size;    /* of this struct */
    double scale;   /* now */
    double growth;  /* the scale is multiplied by this after `interval` good steps in a row */
    double backoff; /* ... and by this after a step with an infinity or NaN */
    int64_t interval, good, skipped; /* good steps since the scale changed; steps left out */
} weft_loss_scale;
#define WEFT_LOSS_SCALE                                                           \
    {                                                                             \
        sizeof(weft_loss_scale), 65536, 2 /*growth*/, 0.5 /*backoff*/, 2000, 0, 0 \
    }

/*
 * Divides the gradients by the scale and takes a step of the optimizer.  If a gradient has an
 * infinity or NaN, no parameter changes, the gradients are dropped, and the scale shrinks: that is
 * no error, and `skipped` counts it.  It reads all gradients, and waits for devices.  Ranks that train
 * together call it after their gradients were reduced, and so decide alike.
 */
WEFT_API weft_status weft_loss_scale_step(weft_loss_scale *scale, weft_optim *optim);

/* ---- state, to stop and go on ---- */

/*
 * Lists what the optimizer remembers, by the parameters' names and PyTorch's words: "w.step" (i64,
 * the parameter's steps so far) with "w.exp_avg" and "w.exp_avg_sq" of AdamW (and "w.master"), or with
 * "w.momentum_buffer" of SGD; SGD without momentum remembers nothing.  Parameters of a list that
 * have no name have their number instead, counted through all groups.  Every parameter is listed,
 * with zeros before its first step.  Stores the first `room` entries in `out`; returns how many
 * there are, or a negative status.  Two parameters of one name are WEFT_ERR_INVALID_ARG.
 *
 * The tensors belong to the optimizer, and the next step changes them; ".step" is a copy of now.  What
 * is remembered about a part has the place of the part (weft/shard.h).
 * Rates and options are no state: give those to the optimizer that goes on.
 */
WEFT_API int weft_optim_state(weft_optim *optim, weft_named *out, int room);
/*
 * Copies such a state into the optimizer, which then takes the same next step, bit by bit, as the
 * one that the state came from.  The names, shapes and dtypes must be the same on both sides, and
 * each name is given once.  All tensors are looked at before the first copy: if one is missing, does
 * not fit, or has no memory, the error names it, and nothing has changed.
 */
WEFT_API weft_status weft_optim_load(weft_optim *optim, const weft_named *in, int count);

#ifdef __cplusplus
}
#endif

#endif
