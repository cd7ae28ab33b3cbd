/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Operations on tensors, with the names and rules of PyTorch.  Operands broadcast; dtypes meet by
 * the table in docs/tensor.md; floats of 16 and 8 bits compute in f32 and round once per operation.
 *
 *     weft_add(a, b)              a new tensor in the current scope; NULL on failure; NULL inputs
 *                                 pass through
 *     weft_add_scalar(a, 2)       the same with a number.  Numbers are weak: beside a float tensor
 *                                 they never change its dtype; beside an integer tensor a whole
 *                                 number keeps the dtype, any other number gives f32
 *     weft_add_into(out, a, b)    writes a tensor of yours, of the result's shape; `out` may be `a`
 *                                 or `b` (in place).  For what has no such form: weft_copy(out, ...)
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
/* Copies elements, broadcasting and converting; source and target may overlap. */
WEFT_API weft_status weft_copy(weft_tensor *to, weft_tensor *from);
/* A copy with memory of its own; keeps the strides if the memory has no gaps. */
WEFT_API weft_tensor *weft_clone(weft_tensor *x);
/* Row-major; an alias of x if it already is. */
WEFT_API weft_tensor *weft_contiguous(weft_tensor *x);
/* Another dtype or device; an alias of x if nothing changes.  Data moves from the CPU to meta only,
 * which drops it. */
WEFT_API weft_tensor *weft_to(weft_tensor *x, weft_dtype dtype, weft_device device);
WEFT_API weft_tensor *weft_to_dtype(weft_tensor *x, weft_dtype dtype);
/* Joins along dimension `dim`, or along a new one. */
WEFT_API weft_tensor *weft_cat(weft_tensor *const *tensors, size_t count, int dim);
WEFT_API weft_tensor *weft_stack(weft_tensor *const *tensors, size_t count, int dim);
/* x takes over storage, shape, strides and offset of `source` (same dtype); counts as one write. */
WEFT_API weft_status weft_set(weft_tensor *x, weft_tensor *source);
/* weft_storage_resize of x's storage, as an operation that can be captured.  Not counted as a
 * write. */
WEFT_API weft_status weft_resize_storage(weft_tensor *x, int64_t bytes);

/* Random numbers in place, from the thread's generator (weft_seed). */
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
/* integers become f32 */
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
WEFT_OPERATOR(div)     /* true division: integers become f32 */
WEFT_OPERATOR(pow)     /* of integers: powers wrap, and negative exponents round towards 0 */
WEFT_OPERATOR(maximum) /* NaN wins */
WEFT_OPERATOR(minimum)
WEFT_INTO(add)
WEFT_INTO(mul)
/* A number on the left, where the order matters: 1 - x, 1 / x, 2 ^ x. */
WEFT_API weft_tensor *weft_scalar_sub(double a, weft_tensor *b);
WEFT_API weft_tensor *weft_scalar_div(double a, weft_tensor *b);
WEFT_API weft_tensor *weft_scalar_pow(double a, weft_tensor *b);
/* give bool */
WEFT_OPERATOR(eq)
WEFT_OPERATOR(ne)
WEFT_OPERATOR(lt)
WEFT_OPERATOR(le)
WEFT_OPERATOR(gt)
WEFT_OPERATOR(ge)
WEFT_BINARY(logical_and)
WEFT_BINARY(logical_or)
WEFT_BINARY(logical_xor)

/* The gradients of gelu and gelu_tanh for x, given that of their result. */
WEFT_API weft_tensor *weft_gelu_grad(weft_tensor *grad, weft_tensor *x);
WEFT_API weft_tensor *weft_gelu_tanh_grad(weft_tensor *grad, weft_tensor *x);

/* a where `condition` (bool) holds, else b. */
WEFT_API weft_tensor *weft_where(weft_tensor *condition, weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_where_into(weft_tensor *out, weft_tensor *condition, weft_tensor *a,
                                     weft_tensor *b);

/* ---- reductions ---- */

/*
 * Over the `count` dimensions in `dims`, or over all if count is 0.  `keepdim` leaves size 1 where
 * a dimension went. The order of additions is fixed: the same input gives the same bits every time.
 * sum and prod of integers and bool give i64; max and min of nothing, and mean of integers, are
 * errors; NaN wins in max and min.
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
/* The index (i64) of the first largest or smallest element along one dimension, or in the flattened
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
/* Their gradients for x, given that of their result and the result, y, which have the same shape and
 * dtype. */
WEFT_API weft_tensor *weft_softmax_grad(weft_tensor *grad, weft_tensor *y, int dim);
WEFT_API weft_tensor *weft_log_softmax_grad(weft_tensor *grad, weft_tensor *y, int dim);
/* Normalises over the last `dims` dimensions; weight and bias have their shape, or are NULL. */
WEFT_API weft_tensor *weft_layer_norm(weft_tensor *x, int dims, weft_tensor *weight,
                                      weft_tensor *bias, double epsilon);
/* Its gradients, given that of its result: out[0] for x, out[1] for the weight (NULL without one),
 * out[2] for the bias (NULL unless `bias`).  All of them or none. */
WEFT_API weft_status weft_layer_norm_grad(weft_tensor *grad, weft_tensor *x, int dims,
                                          weft_tensor *weight, double epsilon, bool bias,
                                          weft_tensor *out[3]);
/* Row indices[i] (integers) of `weight` [rows, width] for every i: shape of indices, then width. */
WEFT_API weft_tensor *weft_embedding(weft_tensor *weight, weft_tensor *indices);
/* Its gradient for the weight: zeros [rows, width], to whose row indices[i] row i of `grad` is
 * added, in order. */
WEFT_API weft_tensor *weft_embedding_grad(weft_tensor *grad, weft_tensor *indices, int64_t rows);

/* ---- elements by index ---- */

/*
 * `index` (integers, none negative) has as many dimensions as x and is nowhere larger, but along
 * `dim`.  In each place it says which element along `dim` is meant; the other coordinates are its
 * own.  An index out of range is WEFT_ERR_INVALID_ARG.
 */

/* These elements, in the shape of the index. */
WEFT_API weft_tensor *weft_gather(weft_tensor *x, int dim, weft_tensor *index);
/* A copy of x to whose elements those of `source` are added, in the order of the index, which is
 * nowhere larger than `source`.  Small floats are summed in f32 and rounded once. */
WEFT_API weft_tensor *weft_scatter_add(weft_tensor *x, int dim, weft_tensor *index,
                                       weft_tensor *source);
/* A row-major copy of x in which the elements at offset + sum of i[d] * strides[d] (counted in the
 * copy) are those of `source`, which has `shape`.  The region must not overlap itself. */
WEFT_API weft_tensor *weft_view_scatter(weft_tensor *x, weft_tensor *source, weft_shape shape,
                                        const int64_t *strides, int64_t offset);

/* [m, k] x [k, n]; with a batch dimension in front; and by the rules of PyTorch for 1 to 8
 * dimensions. */
WEFT_API weft_tensor *weft_mm(weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_mm_into(weft_tensor *out, weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_bmm(weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_bmm_into(weft_tensor *out, weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_matmul(weft_tensor *a, weft_tensor *b);
/* x [..., in] times weight [out, in] transposed, plus bias [out] (or NULL). */
WEFT_API weft_tensor *weft_linear(weft_tensor *x, weft_tensor *weight, weft_tensor *bias);

/*
 * (a * scale_a) (b * scale_b) + bias, times result_scale, as `dtype`, for floats of 8 bits: a [m, k]
 * and b [k, n].  Scales are f32: one element for all, or [m, 1] for the rows of a, [1, n] for the
 * columns of b.  `bias` [n] and `result_scale` (one element) may be NULL.  Sums are f32; the result
 * is rounded once.
 */
WEFT_API weft_tensor *weft_scaled_mm(weft_tensor *a, weft_tensor *b, weft_tensor *scale_a,
                                     weft_tensor *scale_b, weft_tensor *bias,
                                     weft_tensor *result_scale, weft_dtype dtype);

/* What matrix products on the CPU are done by. */
typedef struct weft_matmul_info {
    const char *library;      /* "libopenblas.so.0"; "" if there is none and products are loops */
    const char *config;       /* what the library says about itself; "" if it says nothing */
    const char *small_floats; /* how floats of 16 and 8 bits are multiplied */
    const char *bf16;         /* what multiplies bf16, if not f32: "AMX", "libdnnl.so.2"; else "" */
    bool slow;                /* no library, or one that may be the reference BLAS */
} weft_matmul_info;

/* Looks for the library if no product has been done yet.  Local.  WEFT_ERR_INVALID_ARG if `out` is
 * NULL. */
WEFT_API weft_status weft_matmul_describe(weft_matmul_info *out);

/* ---- comparing tensors ---- */

/* Same shape, dtype and elements (NaN differs from itself).  False and an error if they cannot be
 * compared. */
WEFT_API bool weft_equal(weft_tensor *a, weft_tensor *b);
/* Same shape, and |a - b| <= absolute + relative |b| for all elements; `equal_nan`: NaN is close to
 * NaN. */
WEFT_API bool weft_allclose(weft_tensor *a, weft_tensor *b, double relative, double absolute,
                            bool equal_nan);

#ifdef __cplusplus
}
#endif

#endif
