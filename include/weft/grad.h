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
 * A leaf is a tensor that no recorded operation made.  Only tensors of floating dtypes carry
 * gradients.  The graph belongs to its results: it lives as long as one of them, also when the
 * scope of what lies between has closed.  What an operation needs for its gradient it keeps by
 * reference; if that is written before backward comes to it, backward fails and says so.
 *
 * backward works in the calling thread.  Modes are the thread's own.  A graph is used by one thread
 * at a time, as tensors are.
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
 * From now on operations on the leaf `x` are recorded, or no longer.  WEFT_ERR_TYPE unless its
 * dtype is a float; WEFT_ERR_STATE for a tensor that an operation made (detach it first).
 */
WEFT_API weft_status weft_require_grad(weft_tensor *x, bool required);
/* Whether gradients pass through x: a leaf that requires them, or computed from one. */
WEFT_API bool weft_requires_grad(weft_tensor *x);
WEFT_API bool weft_is_leaf(weft_tensor *x);

/*
 * The gradient that backward has added up for a leaf, or for another tensor after weft_retain_grad.
 * NULL, without an error, if there is none.  It belongs to x: weft_keep it to have it longer.
 */
WEFT_API weft_tensor *weft_grad(weft_tensor *x);
/*
 * Replaces the gradient of a leaf by an alias of `grad`, without its history; NULL drops it.  Same
 * shape, dtype and device as x.  What was
 * computed with `create_graph` holds the graph, and through it x: drop such gradients by this call,
 * or x never dies.
 */
WEFT_API weft_status weft_set_grad(weft_tensor *x, weft_tensor *grad);
/* Lets backward keep the gradient of x, which is no leaf (of a leaf it is kept anyway). */
WEFT_API weft_status weft_retain_grad(weft_tensor *x);

/* ---- modes ---- */

typedef enum weft_grad_mode {
    WEFT_GRAD_RECORDING, /* as every thread begins */
    WEFT_GRAD_OFF,       /* nothing is recorded */
    WEFT_GRAD_INFERENCE  /* nor can recording be turned on, gradients asked for, or backward run */
} weft_grad_mode;

WEFT_API weft_grad_mode weft_grad_mode_now(void);

/*
 * WEFT_NO_GRAD { ... }: nothing inside is recorded.  WEFT_ENABLE_GRAD { ... }: the opposite.
 * WEFT_INFERENCE { ... }: see above.  They nest; return, break and goto out of them are safe.
 * A `break` or `continue` inside belongs to the block itself.
 */
#define WEFT_NO_GRAD     WEFT_GRAD_BLOCK(WEFT_GRAD_OFF, __LINE__)
#define WEFT_ENABLE_GRAD WEFT_GRAD_BLOCK(WEFT_GRAD_RECORDING, __LINE__)
#define WEFT_INFERENCE   WEFT_GRAD_BLOCK(WEFT_GRAD_INFERENCE, __LINE__)

/* What the blocks are made of: from `enter` to `leave`, which nest, the mode is another.  Inside
 * inference it stays that. */
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

/* Zero fields are the defaults.  Start from WEFT_BACKWARD_OPTS. */
typedef struct weft_backward_opts {
    size_t size; /* of this struct */
    weft_tensor *const
        *seeds;        /* gradient of each output; NULL, or NULL in it: 1, for one element */
    bool retain_graph; /* keep what the graph saved: it can be walked again */
    bool create_graph; /* record backward itself, for higher derivatives; retains too */
    bool allow_unused; /* an input that no output depends on: NULL instead of an error */
} weft_backward_opts;

#define WEFT_BACKWARD_OPTS                                 \
    {                                                      \
        sizeof(weft_backward_opts), 0, false, false, false \
    }

/* The gradients of `loss`, which has one element, are added to all leaves it depends on. */
WEFT_API weft_status weft_backward(weft_tensor *loss);
/* The same from several outputs at once.  `opts` may be NULL. */
WEFT_API weft_status weft_backward_all(weft_tensor *const *outputs, size_t count,
                                       const weft_backward_opts *opts);
/*
 * The gradients of the outputs' sum for chosen tensors, leaves or not: out[i] that of inputs[i], in
 * the current scope.  Adds to no leaf, and runs only what leads to the inputs.  All of them or
 * none.
 */
WEFT_API weft_status weft_gradients(weft_tensor **out, weft_tensor *const *inputs,
                                    size_t input_count, weft_tensor *const *outputs, size_t count,
                                    const weft_backward_opts *opts);

/* ---- hooks ---- */

/*
 * What runs when a gradient is there.  It may read *grad, and put another of the same shape in its
 * place; NULL there is the error that made it NULL.  A negative status ends backward with it.
 * `held` are the tensors that were named when the hook was added.  Nothing is recorded inside,
 * unless backward creates a graph.
 */
typedef weft_status (*weft_hook)(weft_tensor **grad, weft_tensor *const *held, void *user);

/*
 * The tensors that a hook uses: WEFT_HOLD(a, b), or WEFT_HOLD() for none.  The library holds them
 * as long as the hook is there.  One that was computed from the hooked tensor is held without its
 * history, or the graph would hold itself.  (Two leaves whose hooks hold each other do.)
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
#define WEFT_HOLD(...) weft_held_of({(weft_tensor *)nullptr, __VA_ARGS__})
extern "C" {
#else
#define WEFT_HOLD(...)                                          \
    ((weft_held){(weft_tensor *const[]){NULL, __VA_ARGS__} + 1, \
                 sizeof((weft_tensor *const[]){NULL, __VA_ARGS__}) / sizeof(weft_tensor *) - 1})
#endif

/*
 * Runs `hook` with the whole gradient of x before anybody uses it: before it is added to a leaf,
 * before it goes on to what made x.  Hooks of one tensor run in the order in which they were added.
 * One of a tensor that is written in place later stays with the old value.  Returns a number
 * for weft_unhook, or a negative status.
 */
WEFT_API int64_t weft_tensor_hook(weft_tensor *x, weft_hook hook, void *user, weft_held held);
/*
 * Runs `hook` each time after something was added to the gradient of the leaf x; *grad is that
 * gradient, and what is put there becomes it.
 */
WEFT_API int64_t weft_accumulated_hook(weft_tensor *x, weft_hook hook, void *user, weft_held held);
/* WEFT_ERR_NOT_FOUND if x has no such hook. */
WEFT_API weft_status weft_unhook(weft_tensor *x, int64_t number);
/*
 * To be called while backward runs (by hooks): runs `hook`, with NULL for grad, once, after all of
 * it.  Callbacks run in the order in which they were queued, and may queue more.  Nested backwards
 * have callbacks of their own.  WEFT_ERR_STATE outside of backward.
 */
WEFT_API weft_status weft_backward_then(weft_hook hook, void *user, weft_held held);

/* ---- checking ---- */

/* What is checked: makes its results out of `inputs`.  Returns one tensor; called many times. */
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
 * Compares the gradients of `function` with central differences.  Those of `inputs` are checked
 * that require gradients; they must be f64.  WEFT_ERR_NUMERIC if they differ: the message has the
 * input, the element and both values.  `opts` may be NULL.
 */
WEFT_API weft_status weft_gradcheck(weft_function function, void *user, weft_tensor *const *inputs,
                                    size_t count, const weft_gradcheck_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
