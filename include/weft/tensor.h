/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: a dtype, a shape of up to 8 dimensions and strides (in elements) over a storage.  A
 * function that makes a tensor puts it into the thread's current scope (weft/scope.h).  It returns
 * NULL on failure, and also if an input is NULL.  Only one thread at a time may use a tensor.
 * While a storage is being written or resized, this holds for all tensors that share it.
 */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H

#include "weft/dtype.h"
#include "weft/scope.h"
#include "weft/storage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_tensor weft_tensor;

enum { WEFT_MAX_DIMS = 8 };

typedef struct weft_shape {
    int ndim;
    int64_t dim[WEFT_MAX_DIMS];
} weft_shape;

/* WEFT_SHAPE(2, 3) is a weft_shape of two dimensions; up to 8 are possible.  WEFT_SCALAR has no
 * dimensions and one element. */
#define WEFT_SHAPE(...)                                          WEFT_SHAPE_PICK(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, )(__VA_ARGS__)
#define WEFT_SHAPE_PICK(a_, b_, c_, d_, e_, f_, g_, h_, n_, ...) WEFT_SHAPE_JOIN(n_)
#define WEFT_SHAPE_JOIN(n_)                                      WEFT_SHAPE_##n_
#ifdef __cplusplus
#define WEFT_SHAPE_OF(...) (weft_shape{__VA_ARGS__})
#else
#define WEFT_SHAPE_OF(...) ((weft_shape){__VA_ARGS__})
#endif
#define WEFT_SHAPE_D(a_)     WEFT_CAST(int64_t, a_)
#define WEFT_SCALAR          WEFT_SHAPE_OF(0, {0})
#define WEFT_SHAPE_1(a_)     WEFT_SHAPE_OF(1, {WEFT_SHAPE_D(a_)})
#define WEFT_SHAPE_2(a_, b_) WEFT_SHAPE_OF(2, {WEFT_SHAPE_D(a_), WEFT_SHAPE_D(b_)})
#define WEFT_SHAPE_3(a_, b_, c_) \
    WEFT_SHAPE_OF(3, {WEFT_SHAPE_D(a_), WEFT_SHAPE_D(b_), WEFT_SHAPE_D(c_)})
#define WEFT_SHAPE_4(a_, b_, c_, d_) \
    WEFT_SHAPE_OF(4, {WEFT_SHAPE_D(a_), WEFT_SHAPE_D(b_), WEFT_SHAPE_D(c_), WEFT_SHAPE_D(d_)})
#define WEFT_SHAPE_5(a_, b_, c_, d_, e_)                                                      \
    WEFT_SHAPE_OF(5, {WEFT_SHAPE_D(a_), WEFT_SHAPE_D(b_), WEFT_SHAPE_D(c_), WEFT_SHAPE_D(d_), \
                      WEFT_SHAPE_D(e_)})
#define WEFT_SHAPE_6(a_, b_, c_, d_, e_, f_)                                                  \
    WEFT_SHAPE_OF(6, {WEFT_SHAPE_D(a_), WEFT_SHAPE_D(b_), WEFT_SHAPE_D(c_), WEFT_SHAPE_D(d_), \
                      WEFT_SHAPE_D(e_), WEFT_SHAPE_D(f_)})
#define WEFT_SHAPE_7(a_, b_, c_, d_, e_, f_, g_)                                              \
    WEFT_SHAPE_OF(7, {WEFT_SHAPE_D(a_), WEFT_SHAPE_D(b_), WEFT_SHAPE_D(c_), WEFT_SHAPE_D(d_), \
                      WEFT_SHAPE_D(e_), WEFT_SHAPE_D(f_), WEFT_SHAPE_D(g_)})
#define WEFT_SHAPE_8(a_, b_, c_, d_, e_, f_, g_, h_)                                          \
    WEFT_SHAPE_OF(8, {WEFT_SHAPE_D(a_), WEFT_SHAPE_D(b_), WEFT_SHAPE_D(c_), WEFT_SHAPE_D(d_), \
                      WEFT_SHAPE_D(e_), WEFT_SHAPE_D(f_), WEFT_SHAPE_D(g_), WEFT_SHAPE_D(h_)})

/* Making tensors.  `empty` leaves the content undefined.  Strides count elements and are not
 * negative. */
WEFT_API weft_tensor *weft_empty(weft_dtype dtype, weft_device device, weft_shape shape);
WEFT_API weft_tensor *weft_empty_strided(weft_dtype dtype, weft_device device, weft_shape shape,
                                         const int64_t *strides);
WEFT_API weft_tensor *weft_zeros(weft_dtype dtype, weft_device device, weft_shape shape);
WEFT_API weft_tensor *weft_ones(weft_dtype dtype, weft_device device, weft_shape shape);
WEFT_API weft_tensor *weft_full(weft_dtype dtype, weft_device device, weft_shape shape,
                                double value);
/* A contiguous tensor with the dtype, device and shape of `x`. */
WEFT_API weft_tensor *weft_empty_like(weft_tensor *x);
WEFT_API weft_tensor *weft_zeros_like(weft_tensor *x);
/* The values start, start + step ... that are below `end` (above it if step < 0). */
WEFT_API weft_tensor *weft_arange(weft_dtype dtype, weft_device device, double start, double end,
                                  double step);

/*
 * Random tensors from the thread's generator: uniform in [0, 1), normal with mean 0 and deviation
 * 1, or integers in [low, high).  The same seed gives the same bits on every machine.  weft_seed
 * restarts the generator.  Each thread starts with seed 0.
 */
WEFT_API void weft_seed(uint64_t seed);
WEFT_API weft_tensor *weft_rand(weft_dtype dtype, weft_device device, weft_shape shape);
WEFT_API weft_tensor *weft_randn(weft_dtype dtype, weft_device device, weft_shape shape);
WEFT_API weft_tensor *weft_randint(weft_dtype dtype, weft_device device, weft_shape shape,
                                   int64_t low, int64_t high);

/* A CPU tensor with a copy of the elements at `data`, in row-major order. */
WEFT_API weft_tensor *weft_tensor_from(weft_dtype dtype, weft_shape shape, const void *data);
/*
 * A tensor over the caller's memory, row-major, without a copy.  `release(argument)` runs when the
 * last tensor on that memory is gone; `release` may be NULL.  It does not run if this call fails.
 */
WEFT_API weft_tensor *weft_tensor_wrap(weft_dtype dtype, weft_device device, weft_shape shape,
                                       void *data, void (*release)(void *argument), void *argument);

/* Properties.  `dim` may count from the end (-1 is the last dimension).  NULL or a bad `dim` gives
 * 0 and sets the error. */
WEFT_API weft_dtype weft_tensor_dtype(const weft_tensor *x); /* (weft_dtype)-1 for NULL */
WEFT_API weft_device weft_tensor_device(const weft_tensor *x);
WEFT_API weft_shape weft_tensor_shape(const weft_tensor *x);
WEFT_API int weft_tensor_ndim(const weft_tensor *x);
WEFT_API int64_t weft_tensor_size(const weft_tensor *x, int dim);
WEFT_API int64_t weft_tensor_stride(const weft_tensor *x, int dim);
WEFT_API int64_t weft_tensor_offset(const weft_tensor *x);
WEFT_API int64_t weft_tensor_numel(const weft_tensor *x);
WEFT_API size_t weft_tensor_bytes(const weft_tensor *x); /* of its elements, not of its storage */
WEFT_API bool weft_tensor_is_contiguous(const weft_tensor *x);
WEFT_API weft_storage *weft_tensor_storage(const weft_tensor *x); /* borrowed */

/* Returns the address of the first element.  NULL without an error if the tensor has no elements;
 * NULL with an error if it is on meta, its storage was freed, or the thread is capturing. */
WEFT_API void *weft_tensor_data(const weft_tensor *x);

/* Returns element `index`, counted in row-major order.  If there is none, returns NaN (0 for the
 * second form) and sets the error.  Exact up to 2^53. */
WEFT_API double weft_item(const weft_tensor *x, int64_t index);
WEFT_API int64_t weft_item_int(const weft_tensor *x,
                               int64_t index); /* integers exact; floats cut to integers */

/*
 * Version counters.  A new tensor has version 0.  Each in-place write through any tensor that
 * shares the counter, such as a view or a detached alias, adds 1.  Resizing the storage does not
 * count.
 */
WEFT_API int64_t weft_tensor_version(const weft_tensor *x);
/* Sets the counters of `count` tensors, to hide writes from gradient checks.  Versions are not
 * negative.  Sets all of them or none. */
WEFT_API weft_status weft_tensor_set_version(weft_tensor *const *tensors, const int64_t *versions,
                                             size_t count);
/*
 * Runs `body(argument)` and then restores the version counters of the tensors, even if it fails.
 * This hides the writes of `body` from gradient checks.  Returns what `body` returned.
 */
WEFT_API weft_status weft_tensor_preserve_version(weft_tensor *const *tensors, size_t count,
                                                  weft_status (*body)(void *argument),
                                                  void *argument);

/*
 * The counter as a tensor of one i64, to be written back later.  In a captured function
 * (weft/graph.h) these two access the counter each time the function runs; the plain number above
 * is the one at capture.
 */
WEFT_API weft_tensor *weft_tensor_read_version(weft_tensor *x);
WEFT_API weft_status weft_tensor_write_version(weft_tensor *x, weft_tensor *version);

/* Prints `x` in PyTorch's format.  Only the edges of a long tensor are shown. */
WEFT_API weft_status weft_print(const weft_tensor *x, FILE *file);
/* Writes the same text to `out`, as snprintf does.  Returns the length of the whole text, or a
 * negative status. */
WEFT_API int weft_tensor_text(const weft_tensor *x, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
