/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Operations of your own.  Once declared, one takes the same path as the library's: dtypes, devices
 * and memory are checked, results under way are waited for, meta tensors get shapes, gradients are
 * recorded, hooks and weft_gradcheck work on it.
 *
 *     static weft_status run(weft_tensor *out, const weft_value *in, void *user)
 *     {
 *         float *to = weft_tensor_data(out), *x = weft_tensor_data(in[0].tensor);
 *         for (int64_t i = 0; i < weft_tensor_numel(out); i++)
 *             to[i] = x[i] * x[i] * x[i];
 *         return WEFT_OK;
 *     }
 *
 *     static weft_status gradient(weft_tensor **grads, weft_tensor *g, weft_tensor *out,
 *                                 const weft_value *in, void *user)
 *     {
 *         grads[0] = weft_mul(g, weft_mul_scalar(weft_mul(in[0].tensor, in[0].tensor), 3));
 *         return WEFT_OK;
 *     }
 *
 *     weft_custom *cube = weft_custom_new(&(weft_custom_opts){.size = sizeof(weft_custom_opts),
 *         .name = "cube", .params = "x:t", .run = run, .gradient = gradient});
 *     weft_tensor *y = weft_custom_call(cube, WEFT_VALUES(WEFT_T(x)));
 */
// clang-format on
#ifndef WEFT_CUSTOM_H
#define WEFT_CUSTOM_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One argument; the operation's `params` say which field counts. */
typedef struct weft_value {
    weft_tensor *tensor;
    double number;
    int64_t integer;
} weft_value;

/* Only in C: an array of values, and one of each kind. */
#define WEFT_VALUES(...) ((const weft_value[]){__VA_ARGS__})
#define WEFT_T(x_)                                \
    {                                             \
        .tensor = (x_), .number = 0, .integer = 0 \
    }
#define WEFT_N(x_)                                               \
    {                                                            \
        .tensor = (weft_tensor *)0, .number = (x_), .integer = 0 \
    }
#define WEFT_I(x_)                                               \
    {                                                            \
        .tensor = (weft_tensor *)0, .number = 0, .integer = (x_) \
    }

/* What the result is like. */
typedef struct weft_custom_result {
    weft_dtype dtype;
    weft_shape shape; /* row-major */
} weft_custom_result;

typedef struct weft_custom weft_custom;

typedef struct weft_custom_opts {
    size_t size;      /* of this struct */
    const char *name; /* letters, digits and _; not that of another operation */
    /*
     * Name and kind of each parameter, of which there are up to 16: "x:t weight:o eps:n dim:i".
     * t tensor, o tensor or NULL, n number, i integer.  The first is a tensor.
     * y is a tensor in symmetric memory (WEFT_ERR_TYPE for another), for operations between ranks,
     * which meet for it themselves (weft_symm_rendezvous).  A graph that is compiled by backend "c"
     * puts it there, in a buffer that is the operation's until it returns.
     */
    const char *params;
    /* dtype and shape of the result; both are preset to those of the first tensor.  NULL: they stay
     * so.  Sees shapes, not elements: the tensors may be on meta. */
    weft_status (*shape)(weft_custom_result *out, const weft_value *in, void *user);
    /* Fills `out`, which is row-major, on the CPU unless `any_device` says otherwise.  The arguments are tensors of any layout that
     * nobody writes meanwhile. */
    weft_status (*run)(weft_tensor *out, const weft_value *in, void *user);
    /*
     * Leaves in grads[i] the gradient of argument i, NULL for none, given that of the result, g.
     * Written with operations of the library, it has gradients itself.  Shapes that were broadcast
     * and other dtypes are put right afterwards.  `out` and the tensors in `in` are there as far as
     * they were saved.  NULL: arguments that require gradients are refused.
     */
    weft_status (*gradient)(weft_tensor **grads, weft_tensor *g, weft_tensor *out,
                            const weft_value *in, void *user);
    /* What is saved for it: bit i for argument i, WEFT_CUSTOM_RESULT for the result.  0: all
     * arguments. */
    unsigned save;
    void *user;
    /* Not 0: `run` takes tensors of other devices too, all on one, and works on them by operations
     * of the library or in the order of the device's current stream. */
    int any_device;
} weft_custom_opts;

enum { WEFT_CUSTOM_RESULT = 1 << 16, WEFT_CUSTOM_NOTHING = 1 << 18 };

/*
 * Adds the operation.  It stays until the process ends, as the library's do; the strings are
 * copied.  WEFT_ERR_EXISTS if there is one of that name.  Any thread.
 */
WEFT_API weft_custom *weft_custom_new(const weft_custom_opts *opts);
/* The one of that name; NULL and WEFT_ERR_NOT_FOUND if nobody added it. */
WEFT_API weft_custom *weft_custom_find(const char *name);
/* Runs it; `in` has one value for each parameter. */
WEFT_API weft_tensor *weft_custom_call(weft_custom *op, const weft_value *in);

#ifdef __cplusplus
}
#endif

#endif
