/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Modules: a function with named parameters, buffers and children, and hooks around its calls.
 *
 *     weft_module *net = weft_module_new(forward, &state);
 *     weft_module_add_param(net, "scale", weft_parameter(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8)), true));
 *     weft_module_add(net, "inner", weft_nn_linear(8, 8));
 *     weft_tensor *y = weft_module_call(net, x);
 *
 * Names reach into children: "inner.weight".  Everything keeps the order in which it was added.  A
 * module is a handle in the current scope, like a tensor.  It holds its tensors and children.  A
 * graph whose backward still has to pass the module's backward hooks holds the module.  Only one
 * thread at a time may use a module.
 *
 * Layers: weft/nn.h.  Optimizers: weft/optim.h.
 */
// clang-format on
#ifndef WEFT_MODULE_H
#define WEFT_MODULE_H

#include "weft/grad.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_module weft_module;

enum {
    WEFT_MODULE_VALUES = 16, /* the most inputs, or results, of a call */
    WEFT_NAME_MAX = 128 /* bytes of a name such as "blocks.3.attention.qkv.weight", with its zero */
};

/*
 * Makes a parameter: a leaf over the memory of `x`, without a copy, that shares its version
 * counter.  `required` says whether it requires gradients, as a float usually does.  NULL gives
 * NULL.
 */
WEFT_API weft_tensor *weft_parameter(weft_tensor *x, bool required);
WEFT_API bool weft_is_parameter(const weft_tensor *x);

/* ---- making ---- */

/* What a module does.  Returning NULL (or, from the list form, a negative status) makes the call
 * fail. */
typedef weft_tensor *(*weft_forward)(weft_module *self, weft_tensor *x, void *user);
typedef weft_status (*weft_forward_list)(weft_module *self, weft_tensor *const *in, int ins,
                                         weft_tensor **out, int outs, void *user);

/* A module with one input and one result, or with as many of each as its callers pass.  If
 * `forward` is NULL, it is a container: it has names, and calling it is WEFT_ERR_STATE. */
WEFT_API weft_module *weft_module_new(weft_forward forward, void *user);
WEFT_API weft_module *weft_module_new_list(weft_forward_list forward, void *user);
/* Makes `release(user)` run when the module is freed. */
WEFT_API weft_status weft_module_own_user(weft_module *module, void (*release)(void *user));

/*
 * Names have 1 to 63 characters and no dot, and are unique in a module (WEFT_ERR_EXISTS).
 * weft_parameter makes parameters.  A child must not contain the module, directly or further down.
 * The module takes its own reference to the tensor or child; the caller keeps theirs.
 */
WEFT_API weft_status weft_module_add_param(weft_module *module, const char *name,
                                           weft_tensor *param);
WEFT_API weft_status weft_module_add_buffer(weft_module *module, const char *name,
                                            weft_tensor *buffer);
WEFT_API weft_status weft_module_add(weft_module *module, const char *name, weft_module *child);

/*
 * Binds another tensor to the name of an existing parameter or buffer.  This registers nothing and
 * does not change the structure, because sharded parameters are bound and unbound in every step.
 * Only a parameter may replace a parameter.
 */
WEFT_API weft_status weft_module_bind(weft_module *module, const char *name, weft_tensor *tensor);

/* ---- asking: borrowed; NULL and WEFT_ERR_NOT_FOUND, with the names beside it and what was probably
 * meant, if there is none */

WEFT_API weft_tensor *weft_module_param(const weft_module *module, const char *name);
WEFT_API weft_tensor *weft_module_buffer(const weft_module *module, const char *name);
WEFT_API weft_module *weft_module_child(const weft_module *module, const char *name);

/* Counts the changes to the module and all modules below it: additions, hooks, switching between
 * training and evaluation.  If the number is the same, so is the structure. */
WEFT_API int64_t weft_module_generation(const weft_module *module);

/* Sets training or evaluation mode, for the module and all below it.  Layers such as dropout depend
 * on it.  A module starts in training mode. */
WEFT_API weft_status weft_module_train(weft_module *module, bool training);
WEFT_API bool weft_module_is_training(const weft_module *module);

/* ---- state ---- */

typedef struct weft_named {
    char name[WEFT_NAME_MAX];
    weft_tensor *tensor; /* borrowed */
} weft_named;

/*
 * Lists the parameters, or the parameters and buffers, of the module and all below it.  Stores the
 * first `room` of them in `out`.  Returns how many there are, or a negative status.  A tensor with
 * several names is listed once by weft_module_params, under the first, and under all of them by
 * weft_module_state.
 */
WEFT_API int weft_module_params(const weft_module *module, weft_named *out, int room);
WEFT_API int weft_module_state(const weft_module *module, weft_named *out, int room);
/*
 * Copies a state into the module's own tensors, converting dtypes.  The names and shapes must be
 * the same on both sides, and each name is given once.  All tensors are looked at before the first
 * copy: if one is missing, does not fit, or has no memory (freed, on meta, of an operation that
 * failed), the error names it, and nothing is copied.
 */
WEFT_API weft_status weft_module_load(weft_module *module, const weft_named *in, int count);
/*
 * Moves parameters, buffers and gradients to the device; those already there stay.  The tensors
 * stay the same objects with different memory, so handles, hooks and optimizers keep them.  The
 * state of an optimizer that has made a step follows at its next step.  Tensors that shared memory
 * no longer do.  If the call fails, nothing has moved.
 */
WEFT_API weft_status weft_module_to(weft_module *module, weft_device device);

/* ---- calling ---- */

/* Calls the hooks, the forward function and the hooks after it.  Returns NULL on failure; the
 * message names the class of the module. */
WEFT_API weft_tensor *weft_module_call(weft_module *module, weft_tensor *x);
/* `out` gets `outs` results, all or none.  Any element of `in` may be NULL. */
WEFT_API weft_status weft_module_call_list(weft_module *module, weft_tensor **out, int outs,
                                           weft_tensor *const *in, int ins);

/* ---- hooks ---- */

typedef enum weft_hook_point {
    WEFT_HOOK_FORWARD_PRE,  /* before forward; may replace `in` */
    WEFT_HOOK_FORWARD,      /* after it; may replace `out` */
    WEFT_HOOK_BACKWARD_PRE, /* the gradients of all results are known; may replace `out` */
    WEFT_HOOK_BACKWARD      /* the gradients of the inputs are known; may replace `in` */
} weft_hook_point;

enum {
    WEFT_HOOK_PREPEND = 1, /* before the existing hooks, not after them */
    WEFT_HOOK_ALWAYS = 2,  /* WEFT_HOOK_FORWARD: also if forward failed; `out` is then all NULL */
    /* Captures do not enter it: compiled code calls it at every run, as weft_hook_opaque says.  It
     * writes to nothing in place, and in forward it replaces nothing. */
    WEFT_HOOK_OPAQUE = 4
};

/* What a hook sees.  To replace a value, the hook stores another one in the array; a gradient must
 * keep its shape.  Later hooks see the replacement. */
typedef struct weft_hook_event {
    weft_module *module;
    weft_tensor **in;         /* the inputs of the call; in backward, their gradients */
    weft_tensor **out;        /* its results; in backward, their gradients, as replaced */
    int ins, outs;            /* there are no results yet at FORWARD_PRE */
    weft_tensor *const *held; /* the tensors given with the hook */
    void *user;
    weft_status status; /* of forward; negative in an ALWAYS hook after a failure */
} weft_hook_event;

/* A negative status ends the call, or the backward, with that status. */
typedef weft_status (*weft_module_hook)(weft_hook_event *event);

/*
 * Hooks run in the order in which they were added.  WEFT_HOLD() lists the tensors that the hook
 * reads beside the event; the module keeps them.  Returns a number (from 1) for
 * weft_module_hook_remove.
 *
 * Backward hooks see the gradients of all tensors of a call at once.  An entry without a gradient
 * is NULL, and must stay NULL.  They are called only if a result of the call needs gradients.  If
 * no input does, WEFT_HOOK_BACKWARD follows right after WEFT_HOOK_BACKWARD_PRE.  A module with
 * backward hooks hands out views of its inputs and results: writing to them in place is an error.
 */
WEFT_API int64_t weft_module_hook_add(weft_module *module, weft_hook_point point, unsigned flags,
                                      weft_module_hook hook, void *user, weft_held held);
WEFT_API weft_status weft_module_hook_remove(weft_module *module, int64_t hook);

#ifdef __cplusplus
}
#endif

#endif
