/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an optimizer. */
#ifndef WEFT_NN_OPTIM_H
#define WEFT_NN_OPTIM_H

#include "nn/module.h"
#include "weft/optim.h"

enum { WEFT_I_OPTIM_STATES = 2 };

/* A parameter and what is remembered about it. */
typedef struct weft_i_trained {
    weft_tensor *param;                      /* held */
    weft_tensor *state[WEFT_I_OPTIM_STATES]; /* kept; zeros from the first step on */
    int64_t steps;
} weft_i_trained;

struct weft_optim {
    weft_i_object head;
    const char *kind;
    double rate;
    int states; /* how many of a parameter's states are used */
    weft_status (*step)(const weft_optim *optim, weft_i_trained *trained, weft_tensor *grad);
    weft_sgd_opts sgd;
    weft_adamw_opts adamw;
    int count;
    weft_i_trained trained[];
};

/* An optimizer of the module's parameters, in the current scope. */
weft_optim *weft_i_optim_new(const char *kind, weft_module *module, double rate);

#endif
