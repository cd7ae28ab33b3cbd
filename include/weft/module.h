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
 * module is a handle of the current scope, as a tensor is; it holds its tensors and children, and a
 * graph that still has to pass its backward hooks holds the module.  One thread at a time.
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
    WEFT_MODULE_VALUES = 16, /* tensors that go into a call, or come out of it, at most */
    WEFT_NAME_MAX = 128      /* bytes of "blocks.3.attention.qkv.weight", with its zero */
};

/*
 * A parameter: a leaf over the memory of x, no copy, with a version counter in common.  `required`:
 * it requires gradients (a float does, as a rule).  NULL passes through.
 */
WEFT_API weft_tensor *weft_parameter(weft_tensor *x, bool required);
WEFT_API bool weft_is_parameter(const weft_tensor *x);

/* ---- making ---- */

/* What a module does.  NULL and the list form's negative status fail the call. */
typedef weft_tensor *(*weft_forward)(weft_module *self, weft_tensor *x, void *user);
typedef weft_status (*weft_forward_list)(weft_module *self, weft_tensor *const *in, int ins,
                                         weft_tensor **out, int outs, void *user);

/* A module of one tensor in and one out; or of as many as its callers say. */
WEFT_API weft_module *weft_module_new(weft_forward forward, void *user);
WEFT_API weft_module *weft_module_new_list(weft_forward_list forward, void *user);
/* `release(user)` runs when the module goes. */
WEFT_API weft_status weft_module_own_user(weft_module *module, void (*release)(void *user));

/*
 * Names have 1 to 63 characters and no dot, and are taken once in a module (WEFT_ERR_EXISTS).  A
 * parameter is what weft_parameter makes; a child must not have the module among its own children.
 * The module takes a reference of its own to the tensor or child; the caller keeps its own.
 */
WEFT_API weft_status weft_module_add_param(weft_module *module, const char *name,
                                           weft_tensor *param);
WEFT_API weft_status weft_module_add_buffer(weft_module *module, const char *name,
                                            weft_tensor *buffer);
WEFT_API weft_status weft_module_add(weft_module *module, const char *name, weft_module *child);

/*
 * Another tensor under the name of a parameter or buffer that is there.  Registers nothing and is
 * no structural change: sharded parameters are bound and unbound in every step.  A parameter's
 * place takes parameters only.
 */
WEFT_API weft_status weft_module_bind(weft_module *module, const char *name, weft_tensor *tensor);

/* ---- asking: borrowed; NULL and WEFT_ERR_NOT_FOUND, with the names there are, if there is none */

WEFT_API weft_tensor *weft_module_param(const weft_module *module, const char *name);
WEFT_API weft_tensor *weft_module_buffer(const weft_module *module, const char *name);
WEFT_API weft_module *weft_module_child(const weft_module *module, const char *name);

/* Counts what changes the module or a module below it: additions, hooks, training or not.  The same
 * number: the same structure. */
WEFT_API int64_t weft_module_generation(const weft_module *module);

/* Dropout and its like ask whether this is training (it is, at first).  Sets all below as well. */
WEFT_API weft_status weft_module_train(weft_module *module, bool training);
WEFT_API bool weft_module_is_training(const weft_module *module);

/* ---- state ---- */

typedef struct weft_named {
    char name[WEFT_NAME_MAX];
    weft_tensor *tensor; /* borrowed */
} weft_named;

/*
 * The parameters, or parameters and buffers, of the module and all below it: `out` gets the first
 * `room` of them.  Returns how many there are, or a negative status.  A tensor that is there under
 * several names is listed by the first, but in a state by all.
 */
WEFT_API int weft_module_params(const weft_module *module, weft_named *out, int room);
WEFT_API int weft_module_state(const weft_module *module, weft_named *out, int room);
/*
 * Copies a state into the module's own tensors, converting dtypes.  Names must be the same on both
 * sides and shapes too: WEFT_ERR_INVALID_ARG says what is missing, and nothing was copied.
 */
WEFT_API weft_status weft_module_load(weft_module *module, const weft_named *in, int count);
/*
 * Moves parameters, buffers and gradients to the device; what is there already stays.  The tensors
 * are the same ones, with other memory: handles, hooks and optimizers keep them.  The state of an
 * optimizer that has stepped follows at its next step.  Tensors that shared memory share none
 * afterwards.  If it fails, nothing has moved.
 */
WEFT_API weft_status weft_module_to(weft_module *module, weft_device device);

/* ---- calling ---- */

/* Hooks, forward, hooks.  NULL on failure, whose message names the module by its class. */
WEFT_API weft_tensor *weft_module_call(weft_module *module, weft_tensor *x);
/* `out` gets `outs` results, all or none.  Of `in`, any may be NULL. */
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
    WEFT_HOOK_PREPEND = 1, /* before the hooks that are there, not after them */
    WEFT_HOOK_ALWAYS = 2   /* WEFT_HOOK_FORWARD: also if forward failed; `out` is all NULL then */
};

/* What a hook sees.  To replace a value it puts another into the array, of the same shape where it
 * is a gradient; later hooks see that. */
typedef struct weft_hook_event {
    weft_module *module;
    weft_tensor **in;  /* what the module was called with; in backward the gradients of those */
    weft_tensor **out; /* its results; in backward the gradients of those, as replaced */
    int ins, outs;     /* forward_pre: there are no results yet */
    weft_tensor *const *held; /* what was given with the hook */
    void *user;
    weft_status status; /* of forward: negative for an always-called hook after a failure */
} weft_hook_event;

/* A negative status ends the call, or the backward, with it. */
typedef weft_status (*weft_module_hook)(weft_hook_event *event);

/*
 * Hooks run in the order in which they were added.  Tensors in WEFT_HOLD() are those the hook reads
 * beside the event; the module keeps them.  Returns a number (from 1) to remove the hook by.
 *
 * Backward hooks see the gradients of all tensors of a call at once; where there is none (not a
 * tensor, needs no gradient) stands NULL, and must stay.  They are called only if a result of the
 * call needs gradients.  If no input does, WEFT_HOOK_BACKWARD comes right after
 * WEFT_HOOK_BACKWARD_PRE.  A module with backward hooks hands out views of its inputs and results:
 * writing to them in place is an error.
 */
WEFT_API int64_t weft_module_hook_add(weft_module *module, weft_hook_point point, unsigned flags,
                                      weft_module_hook hook, void *user, weft_held held);
WEFT_API weft_status weft_module_hook_remove(weft_module *module, int64_t hook);

#ifdef __cplusplus
}
#endif

#endif
