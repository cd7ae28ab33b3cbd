/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an optimizer. */
#ifndef WEFT_NN_OPTIM_H
#define WEFT_NN_OPTIM_H

#include "nn/module.h"
#include "weft/optim.h"

enum {
    WEFT_I_OPTIM_STATES = 3,
    WEFT_I_OPTIM_DEVICES = 16, /* that are looked at once; those beyond more than once */
    WEFT_I_OPTIM_LABEL = WEFT_NAME_MAX + 16
};

/* A parameter and what is remembered about it. */
typedef struct weft_i_trained {
    weft_tensor *param;                      /* held */
    weft_tensor *state[WEFT_I_OPTIM_STATES]; /* kept; zeros from the first step on */
    int64_t steps;
    weft_tensor *listed_steps; /* kept: what weft_optim_state has listed for `steps`, or NULL */
    int group;                 /* its number */
    char name[WEFT_NAME_MAX];  /* for messages and states; may be empty */
} weft_i_trained;

/* What the parameters of a group have in common. */
typedef struct weft_i_optim_group {
    double rate;
    int states; /* how many of a parameter's states are used */
    bool finite;
    bool master; /* of small floats: one more state, and all f32 */
    union {
        weft_sgd_opts sgd;
        weft_adamw_opts adamw;
    };
} weft_i_optim_group;

typedef struct weft_i_optim_kind {
    const char *name;
    const char *state[WEFT_I_OPTIM_STATES]; /* PyTorch's words for the states */
    weft_status (*step)(const weft_i_optim_group *group, weft_i_trained *trained,
                        weft_tensor *grad);
} weft_i_optim_kind;

struct weft_optim {
    weft_i_object head;
    const weft_i_optim_kind *kind;
    bool finite; /* a step refuses gradients that are not: a group says so */
    bool told;   /* that a step found no gradient at all */
    int count, groups;
    weft_i_trained *trained;
    weft_i_optim_group *group;
};

/* Whom an optimizer trains: what the module has, or the `listed` tensors. */
typedef struct weft_i_subject {
    weft_module *module;
    const weft_named *params;
    int count;
    bool listed;
} weft_i_subject;

/* An optimizer in the current scope with one group; `what` is the caller. */
weft_optim *weft_i_optim_new(const char *what, const weft_i_optim_kind *kind, weft_i_subject whom,
                             weft_i_optim_group group);
/* Adds a group; its number or a negative status. */
int weft_i_optim_add(const char *what, const weft_i_optim_kind *kind, weft_optim *optim,
                     weft_i_subject whom, weft_i_optim_group group);

weft_status weft_i_optim_check(const char *what, const weft_optim *optim);
weft_status weft_i_optim_check_rate(const char *what, double rate);

/* Whether the parameter has a master, and how many states there are with it. */
bool weft_i_optim_has_master(const weft_optim *optim, const weft_i_trained *trained);
int weft_i_optim_states(const weft_optim *optim, const weft_i_trained *trained);
/* The states of a parameter, where it is. */
weft_status weft_i_optim_make_states(const weft_optim *optim, weft_i_trained *trained);

/* A parameter in messages: its name in quotes, or its number. */
const char *weft_i_optim_label(const char *name, int i, char out[WEFT_I_OPTIM_LABEL]);

/* WEFT_ERR_NUMERIC, with the first such parameter, if a gradient is not finite.  Waits for it. */
weft_status weft_i_optim_check_finite(const weft_optim *optim);

/* As weft_clip_grad_norm, of parameters that several ranks may have copies of: share[i] is 1 / how
 * many, and the squares are added up over the ranks of all groups, one group after the other. */
weft_status weft_i_clip_shared(const weft_named *params, const double *share, int count,
                               double limit, weft_group *const *groups, int group_count,
                               double *norm);

#endif
