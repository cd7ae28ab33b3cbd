/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Your own operations.  Once declared, an operation is handled like the library's: dtypes, devices
 * and memory are checked, unfinished results are waited for, meta tensors get shapes, gradients are
 * recorded, and hooks and weft_gradcheck work.
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

/* One argument.  The `params` of the operation say which field applies. */
typedef struct weft_value {
    weft_tensor *tensor;
    double number;
    int64_t integer;
} weft_value;

/* For C only: an array of values, and one value of each kind. */
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

/* Dtype and shape of the result. */
typedef struct weft_custom_result {
    weft_dtype dtype;
    weft_shape shape; /* row-major */
} weft_custom_result;

typedef struct weft_custom weft_custom;

typedef struct weft_custom_opts {
    size_t size;      /* of this struct */
    const char *name; /* letters, digits and _; not that of another operation */
    /*
     * Name and kind of each parameter, up to 16 of them: "x:t weight:o eps:n dim:i".  t is a
     * tensor, o a tensor or NULL, n a number, i an integer.  The first is a tensor.  y is a tensor
     * in symmetric memory (any other is WEFT_ERR_TYPE), for operations between ranks.  Such an
     * operation performs the rendezvous itself (weft_symm_rendezvous).  A graph compiled by backend
     * "c" puts the tensor into symmetric memory, in a buffer that belongs to the operation until it
     * returns.
     */
    const char *params;
    /* Sets dtype and shape of the result.  Both are preset to those of the first tensor; if this
     * function is NULL, they stay so.  It sees shapes, not elements: the tensors may be on meta. */
    weft_status (*shape)(weft_custom_result *out, const weft_value *in, void *user);
    /* Fills `out`, which is row-major.  It is on the CPU unless `any_device` is set.  The arguments
     * are tensors of any layout, which are not written to meanwhile. */
    weft_status (*run)(weft_tensor *out, const weft_value *in, void *user);
    /*
     * Stores in grads[i] the gradient for argument i, or NULL if there is none, given the gradient
     * `g` of the result.  If it uses operations of the library, it can be differentiated too.
     * Gradients of broadcast shapes or other dtypes are corrected afterwards.  `out` and the
     * tensors in `in` are available if they were saved.  If this function is NULL, arguments that
     * require gradients are refused.
     */
    weft_status (*gradient)(weft_tensor **grads, weft_tensor *g, weft_tensor *out,
                            const weft_value *in, void *user);
    /* What is saved for `gradient`: bit i for argument i, WEFT_CUSTOM_RESULT for the result.  0
     * saves all arguments. */
    unsigned save;
    void *user;
    /* If not 0, `run` also accepts tensors of other devices, all on the same one.  It must use
     * operations of the library, or follow the order of the device's current stream. */
    int any_device;
} weft_custom_opts;

enum { WEFT_CUSTOM_RESULT = 1 << 16, WEFT_CUSTOM_NOTHING = 1 << 18 };

/*
 * Adds the operation.  Like the library's own, it stays until the process ends.  The strings are
 * copied.  WEFT_ERR_EXISTS if there is one of that name.  May be called from any thread.
 */
WEFT_API weft_custom *weft_custom_new(const weft_custom_opts *opts);
/* Finds an operation by name.  NULL and WEFT_ERR_NOT_FOUND if there is none. */
WEFT_API weft_custom *weft_custom_find(const char *name);
/* Runs the operation.  `in` has one value for each parameter. */
WEFT_API weft_tensor *weft_custom_call(weft_custom *op, const weft_value *in);

#ifdef __cplusplus
}
#endif

#endif
