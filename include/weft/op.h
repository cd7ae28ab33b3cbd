/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Operations on tensors, with the names and rules of PyTorch.  Operands broadcast.  docs/tensor.md
 * has the table of dtypes of results.  Floats of 16 and 8 bits compute in f32 and are rounded once
 * per operation.
 *
 *     weft_add(a, b)              returns a new tensor in the current scope; NULL on failure, or if
 *                                 an input is NULL
 *     weft_add_scalar(a, 2)       the same with a number.  A number never changes the dtype of a
 *                                 float tensor.  With an integer tensor, a whole number keeps the
 *                                 dtype, and any other number gives f32
 *     weft_add_into(out, a, b)    writes to your tensor, which has the shape of the result; `out`
 *                                 may be `a` or `b` (in place).  Operations without this form can
 *                                 use weft_copy(out, ...)
 *
 * Functions that return weft_status act on their first argument.
 */
// clang-format on
#ifndef WEFT_OP_H
#define WEFT_OP_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- moving elements ---- */

WEFT_API weft_status weft_fill(weft_tensor *x, double value);
/* Copies elements, with broadcasting and conversion.  Source and target may overlap. */
WEFT_API weft_status weft_copy(weft_tensor *to, weft_tensor *from);
/* A copy with its own memory.  It keeps the strides of `x` if the memory of `x` has no gaps. */
WEFT_API weft_tensor *weft_clone(weft_tensor *x);
/* A row-major copy, or an alias of `x` if it is row-major already. */
WEFT_API weft_tensor *weft_contiguous(weft_tensor *x);
/* Converts to another dtype or device.  The result is an alias of `x` if nothing changes.  Moving a
 * tensor to meta drops its data. */
WEFT_API weft_tensor *weft_to(weft_tensor *x, weft_dtype dtype, weft_device device);
WEFT_API weft_tensor *weft_to_dtype(weft_tensor *x, weft_dtype dtype);
/* Joins tensors along dimension `dim` (cat), or along a new dimension (stack). */
WEFT_API weft_tensor *weft_cat(weft_tensor *const *tensors, size_t count, int dim);
WEFT_API weft_tensor *weft_stack(weft_tensor *const *tensors, size_t count, int dim);
/* Gives `x` the storage, shape, strides and offset of `source`, which has the same dtype.  Counts
 * as one write. */
WEFT_API weft_status weft_set(weft_tensor *x, weft_tensor *source);
/* weft_storage_resize for the storage of `x`, as an operation that can be captured.  It does not
 * count as a write. */
WEFT_API weft_status weft_resize_storage(weft_tensor *x, int64_t bytes);

/* Fills `x` with random numbers from the thread's generator (weft_seed). */
WEFT_API weft_status weft_uniform(weft_tensor *x, double low, double high);
WEFT_API weft_status weft_normal(weft_tensor *x, double mean, double deviation);
WEFT_API weft_status weft_integers(weft_tensor *x, int64_t low, int64_t high);

/* ---- element by element ---- */

#define WEFT_UNARY(name_)                               \
    WEFT_API weft_tensor *weft_##name_(weft_tensor *x); \
    WEFT_API weft_status weft_##name_##_into(weft_tensor *out, weft_tensor *x);
#define WEFT_BINARY(name_) WEFT_API weft_tensor *weft_##name_(weft_tensor *a, weft_tensor *b);
#define WEFT_OPERATOR(name_) \
    WEFT_BINARY(name_)       \
    WEFT_API weft_tensor *weft_##name_##_scalar(weft_tensor *a, double b);
#define WEFT_INTO(name_)                                                                        \
    WEFT_API weft_status weft_##name_##_into(weft_tensor *out, weft_tensor *a, weft_tensor *b); \
    WEFT_API weft_status weft_##name_##_scalar_into(weft_tensor *out, weft_tensor *a, double b);

WEFT_UNARY(neg)
WEFT_UNARY(abs)
WEFT_UNARY(relu)
/* integers are converted to f32 */
WEFT_UNARY(sin)
WEFT_UNARY(cos)
WEFT_UNARY(exp)
WEFT_UNARY(log)
WEFT_UNARY(tanh)
WEFT_UNARY(erf)
WEFT_UNARY(sqrt)
WEFT_UNARY(gelu)      /* x/2 (1 + erf(x / sqrt 2)) */
WEFT_UNARY(gelu_tanh) /* the tanh approximation */
WEFT_UNARY(logical_not)

WEFT_OPERATOR(add)
WEFT_OPERATOR(sub)
WEFT_OPERATOR(mul)
WEFT_OPERATOR(div)     /* true division: integers are converted to f32 */
WEFT_OPERATOR(pow)     /* integer powers wrap; negative exponents round towards 0 */
WEFT_OPERATOR(maximum) /* NaN wins */
WEFT_OPERATOR(minimum)
WEFT_INTO(add)
WEFT_INTO(mul)
/* A number on the left, where the order matters: 1 - x, 1 / x, 2 ^ x. */
WEFT_API weft_tensor *weft_scalar_sub(double a, weft_tensor *b);
WEFT_API weft_tensor *weft_scalar_div(double a, weft_tensor *b);
WEFT_API weft_tensor *weft_scalar_pow(double a, weft_tensor *b);
/* the result is bool */
WEFT_OPERATOR(eq)
WEFT_OPERATOR(ne)
WEFT_OPERATOR(lt)
WEFT_OPERATOR(le)
WEFT_OPERATOR(gt)
WEFT_OPERATOR(ge)
WEFT_BINARY(logical_and)
WEFT_BINARY(logical_or)
WEFT_BINARY(logical_xor)

/* The gradients of gelu and gelu_tanh with respect to x, from the gradient of the result. */
WEFT_API weft_tensor *weft_gelu_grad(weft_tensor *grad, weft_tensor *x);
WEFT_API weft_tensor *weft_gelu_tanh_grad(weft_tensor *grad, weft_tensor *x);

/* `a` where `condition` (bool) is true, `b` elsewhere. */
WEFT_API weft_tensor *weft_where(weft_tensor *condition, weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_where_into(weft_tensor *out, weft_tensor *condition, weft_tensor *a,
                                     weft_tensor *b);

/* ---- reductions ---- */

/*
 * Reductions over the `count` dimensions in `dims`, or over all if `count` is 0.  With `keepdim` a
 * reduced dimension stays, with size 1.  The order of additions is fixed, so the same input always
 * gives the same bits.  sum and prod of integers and bool give i64.  max and min of an empty
 * tensor, and mean of integers, are errors.  NaN wins in max and min.
 */
#define WEFT_REDUCE(name_) \
    WEFT_API weft_tensor *weft_##name_(weft_tensor *x, const int *dims, int count, bool keepdim);
WEFT_REDUCE(sum)
WEFT_REDUCE(mean)
WEFT_REDUCE(prod)
WEFT_REDUCE(max)
WEFT_REDUCE(min)
WEFT_REDUCE(any)
WEFT_REDUCE(all)
/* The index (i64) of the first largest or smallest element, along one dimension or in the flattened
 * tensor. */
WEFT_API weft_tensor *weft_argmax(weft_tensor *x, int dim, bool keepdim);
WEFT_API weft_tensor *weft_argmin(weft_tensor *x, int dim, bool keepdim);
WEFT_API weft_tensor *weft_argmax_all(weft_tensor *x);
WEFT_API weft_tensor *weft_argmin_all(weft_tensor *x);

#undef WEFT_UNARY
#undef WEFT_BINARY
#undef WEFT_OPERATOR
#undef WEFT_INTO
#undef WEFT_REDUCE

/* ---- networks ---- */

WEFT_API weft_tensor *weft_softmax(weft_tensor *x, int dim);
WEFT_API weft_tensor *weft_log_softmax(weft_tensor *x, int dim);
/* The gradients of softmax and log_softmax with respect to x, from the gradient of the result and
 * the result `y`.  Both have the same shape and dtype. */
WEFT_API weft_tensor *weft_softmax_grad(weft_tensor *grad, weft_tensor *y, int dim);
WEFT_API weft_tensor *weft_log_softmax_grad(weft_tensor *grad, weft_tensor *y, int dim);
/* Normalises over the last `dims` dimensions.  `weight` and `bias` have the shape of these
 * dimensions, or are NULL. */
WEFT_API weft_tensor *weft_layer_norm(weft_tensor *x, int dims, weft_tensor *weight,
                                      weft_tensor *bias, double epsilon);
/* The gradients of layer_norm, from the gradient of the result: out[0] for x, out[1] for the weight
 * (NULL if there is none), out[2] for the bias (NULL unless `bias` is true).  Gives all of them or
 * none. */
WEFT_API weft_status weft_layer_norm_grad(weft_tensor *grad, weft_tensor *x, int dims,
                                          weft_tensor *weight, double epsilon, bool bias,
                                          weft_tensor *out[3]);
/* Looks up row indices[i] of `weight` [rows, width] for every i.  The result has the shape of
 * `indices` (integers), followed by `width`. */
WEFT_API weft_tensor *weft_embedding(weft_tensor *weight, weft_tensor *indices);
/* The gradient of embedding with respect to the weight: starts from zeros [rows, width] and adds
 * row i of `grad` to row indices[i], in order. */
WEFT_API weft_tensor *weft_embedding_grad(weft_tensor *grad, weft_tensor *indices, int64_t rows);

/* ---- elements by index ---- */

/*
 * In these functions `index` holds integers that are not negative.  It has as many dimensions as
 * `x`, and no dimension other than `dim` is larger than that of `x`.  Each of its entries selects
 * an element along `dim`; the other coordinates are those of the entry itself.  An index out of
 * range is WEFT_ERR_INVALID_ARG.
 */

/* The selected elements, in the shape of `index`. */
WEFT_API weft_tensor *weft_gather(weft_tensor *x, int dim, weft_tensor *index);
/* A copy of `x` with the elements of `source` added to the selected ones, in the order of `index`.
 * No dimension of `index` is larger than that of `source`.  Floats of 8 and 16 bits are summed in
 * f32 and rounded once. */
WEFT_API weft_tensor *weft_scatter_add(weft_tensor *x, int dim, weft_tensor *index,
                                       weft_tensor *source);
/* A row-major copy of `x` in which `source`, of shape `shape`, replaces the elements at offset +
 * sum of i[d] * strides[d], counted in the copy.  The region must not overlap itself. */
WEFT_API weft_tensor *weft_view_scatter(weft_tensor *x, weft_tensor *source, weft_shape shape,
                                        const int64_t *strides, int64_t offset);

/* Matrix products: mm of [m, k] and [k, n]; bmm with a batch dimension in front; matmul by
 * PyTorch's rules for 1 to 8 dimensions. */
WEFT_API weft_tensor *weft_mm(weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_mm_into(weft_tensor *out, weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_bmm(weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_bmm_into(weft_tensor *out, weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_matmul(weft_tensor *a, weft_tensor *b);
/* x [..., in] times weight [out, in] transposed, plus bias [out] (or NULL). */
WEFT_API weft_tensor *weft_linear(weft_tensor *x, weft_tensor *weight, weft_tensor *bias);

/*
 * ((a * scale_a) (b * scale_b) + bias) * result_scale, as `dtype`, for floats of 8 bits.  `a` is
 * [m, k] and `b` is [k, n].  Scales are f32: one element for the whole matrix, or [m, 1] for the
 * rows of `a` and [1, n] for the columns of `b`.  `bias` [n] and `result_scale` (one element) may
 * be NULL.  Sums are f32; the result is rounded once.
 */
WEFT_API weft_tensor *weft_scaled_mm(weft_tensor *a, weft_tensor *b, weft_tensor *scale_a,
                                     weft_tensor *scale_b, weft_tensor *bias,
                                     weft_tensor *result_scale, weft_dtype dtype);

/* What computes matrix products on the CPU. */
typedef struct weft_matmul_info {
    const char *library;      /* "libopenblas.so.0"; "" if there is none: then plain loops */
    const char *config;       /* the library's own description, or "" */
    const char *small_floats; /* how floats of 16 and 8 bits are multiplied */
    const char *bf16;         /* what multiplies bf16, if not f32: "AMX", "libdnnl.so.2", or "" */
    bool slow;                /* no library, or one that may be the reference BLAS */
} weft_matmul_info;

/* Describes it.  Loads the library first if no product has been computed yet.  Local.
 * WEFT_ERR_INVALID_ARG if `out` is NULL. */
WEFT_API weft_status weft_matmul_describe(weft_matmul_info *out);

/* ---- comparing tensors ---- */

/* Whether shape, dtype and all elements are equal.  NaN differs from itself.  Returns false and
 * sets the error if the two cannot be compared. */
WEFT_API bool weft_equal(weft_tensor *a, weft_tensor *b);
/* Whether the shapes are equal and |a - b| <= absolute + relative |b| for all elements.  With
 * `equal_nan`, NaN is close to NaN. */
WEFT_API bool weft_allclose(weft_tensor *a, weft_tensor *b, double relative, double absolute,
                            bool equal_nan);

#ifdef __cplusplus
}
#endif

#endif
