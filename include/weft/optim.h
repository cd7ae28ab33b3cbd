/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers update the parameters of a module from their gradients.
 *
 *     weft_optim *adam = weft_optim_adamw(net, 1e-3, NULL);
 *     ...
 *     weft_backward(loss);
 *     weft_optim_step(adam);
 *
 * The parameters are those that the module has when the optimizer is made, each once.  The
 * optimizer holds them.  Its state has the dtype of the parameter; floats of 16 and 8 bits compute
 * in f32.
 */
#ifndef WEFT_OPTIM_H
#define WEFT_OPTIM_H

#include "weft/module.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_optim weft_optim;

/* g += decay * p;  v = momentum * v + g (at first v = g);  p -= rate * v */
typedef struct weft_sgd_opts {
    size_t size;     /* of this struct */
    double momentum; /* 0: none */
    double decay;    /* 0: none */
} weft_sgd_opts;
#define WEFT_SGD_OPTS_INIT                                 \
    {                                                      \
        sizeof(weft_sgd_opts), 0 /*momentum*/, 0 /*decay*/ \
    }

/* p -= rate * decay * p;  m, v: running means of g and g^2, corrected for their start at 0;
 * p -= rate * m / (sqrt(v) + epsilon) */
typedef struct weft_adamw_opts {
    size_t size; /* of this struct */
    double beta1, beta2, epsilon, decay;
} weft_adamw_opts;
#define WEFT_ADAMW_OPTS_INIT                            \
    {                                                   \
        sizeof(weft_adamw_opts), 0.9, 0.999, 1e-8, 1e-2 \
    }

/* Makes an optimizer, a handle in the current scope.  If `opts` is NULL, the values of the INIT
 * macro apply. */
WEFT_API weft_optim *weft_optim_sgd(weft_module *module, double rate, const weft_sgd_opts *opts);
WEFT_API weft_optim *weft_optim_adamw(weft_module *module, double rate,
                                      const weft_adamw_opts *opts);

/* Updates every parameter that has a gradient, then clears the gradients.  If it fails, the
 * gradients of parameters that were not updated are still there. */
WEFT_API weft_status weft_optim_step(weft_optim *optim);

/* Sets the rate of the following steps, for schedules. */
WEFT_API weft_status weft_optim_set_rate(weft_optim *optim, double rate);

#ifdef __cplusplus
}
#endif

#endif
