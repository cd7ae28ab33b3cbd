/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Gradients.  An operation on a tensor that requires gradients is recorded; weft_backward walks the
 * record back and adds to the gradient of every leaf it comes to.
 *
 *     weft_require_grad(w, true);
 *     weft_tensor *loss = weft_sum(weft_sin(w), NULL, 0, false);
 *     weft_backward(loss);
 *     weft_print(weft_grad(w), stdout);                     // cos(w)
 *
 * A leaf is a tensor that no recorded operation made.  Only tensors of floating dtypes have
 * gradients.  The record belongs to the results: it lives as long as one of them does, even after
 * the scopes of the tensors in between have closed.  An operation keeps references to the tensors
 * that its gradient needs.  If one of them is written before backward gets there, backward fails
 * and says so.
 *
 * Backward runs in the calling thread.  Modes belong to the thread.  One thread at a time may use a
 * graph, as with tensors.
 */
// clang-format on
#ifndef WEFT_GRAD_H
#define WEFT_GRAD_H

#include "weft/tensor.h"

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

/* ---- tensors that require gradients ---- */

/*
 * Says whether operations on the leaf `x` are recorded from now on.  Returns WEFT_ERR_TYPE unless
 * its dtype is a float, and WEFT_ERR_STATE if a recorded operation made `x`: detach it first.
 */
WEFT_API weft_status weft_require_grad(weft_tensor *x, bool required);
/* Whether `x` requires gradients: it is such a leaf, or was computed from one. */
WEFT_API bool weft_requires_grad(weft_tensor *x);
WEFT_API bool weft_is_leaf(weft_tensor *x);

/*
 * The gradient that backward has accumulated for a leaf, or for another tensor after
 * weft_retain_grad.  It is NULL, without an error, if there is none.  The gradient belongs to `x`;
 * weft_keep it if you need it for longer.
 */
WEFT_API weft_tensor *weft_grad(weft_tensor *x);
/*
 * Replaces the gradient of a leaf by an alias of `grad`, without its history.  `grad` has the shape,
 * dtype and device of `x`, or is NULL, which drops the gradient.  A gradient that was computed with
 * `create_graph` holds the graph, and the graph holds `x`: drop it by this call, or `x` lives
 * forever.
 */
WEFT_API weft_status weft_set_grad(weft_tensor *x, weft_tensor *grad);
/* Makes backward keep the gradient of `x`, which need not be a leaf.  Those of leaves are kept
 * anyway. */
WEFT_API weft_status weft_retain_grad(weft_tensor *x);

/* ---- modes ---- */

typedef enum weft_grad_mode {
    WEFT_GRAD_RECORDING, /* every thread starts with this one */
    WEFT_GRAD_OFF,       /* nothing is recorded */
    WEFT_GRAD_INFERENCE  /* nothing can be: no recording, no gradients, no backward */
} weft_grad_mode;

WEFT_API weft_grad_mode weft_grad_mode_now(void);

/*
 * WEFT_NO_GRAD { ... } records nothing inside its braces, WEFT_ENABLE_GRAD { ... } records again,
 * and WEFT_INFERENCE { ... } is the third mode.  Blocks nest.  You may leave one by return, break or
 * goto; a `break` or `continue` inside leaves the block, not a loop around it.
 */
#define WEFT_NO_GRAD     WEFT_GRAD_BLOCK(WEFT_GRAD_OFF, __LINE__)
#define WEFT_ENABLE_GRAD WEFT_GRAD_BLOCK(WEFT_GRAD_RECORDING, __LINE__)
#define WEFT_INFERENCE   WEFT_GRAD_BLOCK(WEFT_GRAD_INFERENCE, __LINE__)

/* What the blocks are made of.  `enter` sets the mode and `leave` puts the old one back.  Inside
 * inference the mode stays inference. */
typedef struct weft_grad_block {
    weft_grad_mode before;
    bool open;
} weft_grad_block;

WEFT_API weft_grad_block weft_grad_block_enter(weft_grad_mode mode);
WEFT_API void weft_grad_block_leave(weft_grad_block *block);

#define WEFT_GRAD_BLOCK(mode_, line_)    WEFT_GRAD_BLOCK_AT(mode_, line_)
#define WEFT_GRAD_BLOCK_AT(mode_, line_) WEFT_GRAD_BLOCK_OF(mode_, weft_grad_block_##line_)
#define WEFT_GRAD_BLOCK_OF(mode_, block_)                                                \
    for (weft_grad_block block_                                                          \
         __attribute__((cleanup(weft_grad_block_leave))) = weft_grad_block_enter(mode_); \
         block_.open; block_.open = false)

/* ---- backward ---- */

/* Options of backward.  Start from WEFT_BACKWARD_OPTS; zero means the default. */
typedef struct weft_backward_opts {
    size_t size; /* of this struct */
    /* The gradient of each output.  NULL, for all or for one: it has one element, and that is 1. */
    weft_tensor *const *seeds;
    bool retain_graph; /* keep what the graph saved, so that backward can run again */
    bool create_graph; /* record backward itself, for higher derivatives; implies retain_graph */
    bool allow_unused; /* give NULL for an input that no output depends on, not an error */
} weft_backward_opts;

#define WEFT_BACKWARD_OPTS                                 \
    {                                                      \
        sizeof(weft_backward_opts), 0, false, false, false \
    }

/* Computes the gradients of `loss`, which has one element, and adds them to those of all leaves that
 * it depends on. */
WEFT_API weft_status weft_backward(weft_tensor *loss);
/* The same from several outputs at once.  `opts` may be NULL. */
WEFT_API weft_status weft_backward_all(weft_tensor *const *outputs, size_t count,
                                       const weft_backward_opts *opts);
/*
 * Computes the gradients of the sum of the outputs for chosen tensors, leaves or not.  out[i] is the
 * one for inputs[i], a tensor of the current scope.  Nothing is added to any leaf, and only the part
 * of the graph that leads to the inputs runs.  On failure there are no results at all.
 */
WEFT_API weft_status weft_gradients(weft_tensor **out, weft_tensor *const *inputs,
                                    size_t input_count, weft_tensor *const *outputs, size_t count,
                                    const weft_backward_opts *opts);

/* ---- hooks ---- */

/*
 * A hook runs when a gradient is complete.  It may read *grad, and replace it by another tensor of
 * the same shape.  If it leaves NULL there, backward fails with the error that made it NULL; if it
 * returns a negative status, backward fails with that.  `held` are the tensors named when the hook
 * was added.  Nothing inside a hook is recorded, unless backward creates a graph.
 */
typedef weft_status (*weft_hook)(weft_tensor **grad, weft_tensor *const *held, void *user);

/*
 * The tensors that a hook uses: WEFT_HOLD(a, b), or WEFT_HOLD() for none, written in the call that
 * adds the hook (in C++ the list is gone after it).  The library holds the tensors as long as the
 * hook exists.  A tensor that was computed from the hooked one is held without its history;
 * otherwise the graph would keep itself alive.  Two leaves whose hooks hold each other do keep each
 * other alive.
 */
typedef struct weft_held {
    weft_tensor *const *tensors;
    size_t count;
} weft_held;

#ifdef __cplusplus
}
static inline weft_held weft_held_of(std::initializer_list<weft_tensor *> list)
{
    weft_held held = {list.begin() + 1, list.size() - 1};
    return held;
}
#define WEFT_HOLD(...) weft_held_of({static_cast<weft_tensor *>(nullptr), __VA_ARGS__})
extern "C" {
#else
#define WEFT_HOLD(...)                                          \
    ((weft_held){(weft_tensor *const[]){NULL, __VA_ARGS__} + 1, \
                 sizeof((weft_tensor *const[]){NULL, __VA_ARGS__}) / sizeof(weft_tensor *) - 1})
#endif

/*
 * Adds a hook that runs with the complete gradient of `x` before anybody uses it: before it is added
 * to a leaf, or passed on to the operation that made `x`.  Hooks of one tensor run in the order in
 * which they were added.  If `x` is written in place later, the hook stays with the old value.
 * Returns a number for weft_unhook, or a negative status.
 */
WEFT_API int64_t weft_tensor_hook(weft_tensor *x, weft_hook hook, void *user, weft_held held);
/*
 * Adds a hook that runs each time after backward has added to the gradient of the leaf `x`.  *grad
 * is that gradient, and a tensor put there replaces it.
 */
WEFT_API int64_t weft_accumulated_hook(weft_tensor *x, weft_hook hook, void *user, weft_held held);
/*
 * Makes a hook of `x` opaque, and returns its number; a negative number passes through, so
 *
 *     weft_hook_opaque(x, weft_tensor_hook(x, look, &seen, WEFT_HOLD()));
 *
 * A compiled backward (weft/graph.h) does not enter such a hook while it captures, but calls it at
 * every run, with the gradient of that run and in the order of the others.  So it may ask for
 * values, branch on them, print and count.  It must not write in place to the gradient nor to what
 * it holds, compiled or not: backward fails with WEFT_ERR_STATE then.  It sees the tensors that it
 * holds as they are at that moment; what it reaches by other ways may not be up to date.  A hook that
 * it adds or removes counts from the next backward on.  What it queues by weft_backward_then runs
 * behind all else.  The function and `user` must live as long as what was compiled with them.
 */
WEFT_API int64_t weft_hook_opaque(weft_tensor *x, int64_t number);
/* Removes a hook.  Returns WEFT_ERR_NOT_FOUND if `x` has no hook of this number. */
WEFT_API weft_status weft_unhook(weft_tensor *x, int64_t number);
/*
 * Queues `hook` to run once, with NULL for grad, when the backward that is running has done all
 * else.  Hooks call this; outside of backward it returns WEFT_ERR_STATE.  Queued hooks run in their
 * order and may queue more.  A backward inside another has a queue of its own.
 */
WEFT_API weft_status weft_backward_then(weft_hook hook, void *user, weft_held held);

/* ---- checking ---- */

/* The function to check.  It computes one tensor from `inputs`, and is called many times. */
typedef weft_tensor *(*weft_function)(weft_tensor *const *inputs, void *user);

typedef struct weft_gradcheck_opts {
    size_t size;               /* of this struct */
    double step;               /* of the differences; 0: 1e-6 */
    double relative, absolute; /* tolerances; both 0: 1e-5 and 1e-7 */
    bool second;               /* the gradients of the gradients too */
} weft_gradcheck_opts;

#define WEFT_GRADCHECK_OPTS                         \
    {                                               \
        sizeof(weft_gradcheck_opts), 0, 0, 0, false \
    }

/*
 * Compares the gradients of `function` with central differences, for all `inputs` that require
 * gradients.  These must be f64.  Returns WEFT_ERR_NUMERIC if the two differ; the message names the
 * input, the element and both values.  `opts` may be NULL.
 */
WEFT_API weft_status weft_gradcheck(weft_function function, void *user, weft_tensor *const *inputs,
                                    size_t count, const weft_gradcheck_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
