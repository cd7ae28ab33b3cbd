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

WEFT_API weft_tensor *weft_neg(weft_tensor *x);
WEFT_API weft_status weft_neg_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_abs(weft_tensor *x);
WEFT_API weft_status weft_abs_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_relu(weft_tensor *x);
WEFT_API weft_status weft_relu_into(weft_tensor *out, weft_tensor *x);
/* integers are converted to f32 */
WEFT_API weft_tensor *weft_sin(weft_tensor *x);
WEFT_API weft_status weft_sin_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_cos(weft_tensor *x);
WEFT_API weft_status weft_cos_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_exp(weft_tensor *x);
WEFT_API weft_status weft_exp_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_log(weft_tensor *x);
WEFT_API weft_status weft_log_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_tanh(weft_tensor *x);
WEFT_API weft_status weft_tanh_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_erf(weft_tensor *x);
WEFT_API weft_status weft_erf_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_sqrt(weft_tensor *x);
WEFT_API weft_status weft_sqrt_into(weft_tensor *out, weft_tensor *x);
/* 1 / sqrt(x) */
WEFT_API weft_tensor *weft_rsqrt(weft_tensor *x);
WEFT_API weft_status weft_rsqrt_into(weft_tensor *out, weft_tensor *x);
/* 1 / (1 + e^-x), and x times that */
WEFT_API weft_tensor *weft_sigmoid(weft_tensor *x);
WEFT_API weft_status weft_sigmoid_into(weft_tensor *out, weft_tensor *x);
WEFT_API weft_tensor *weft_silu(weft_tensor *x);
WEFT_API weft_status weft_silu_into(weft_tensor *out, weft_tensor *x);
/* x/2 (1 + erf(x / sqrt 2)) */
WEFT_API weft_tensor *weft_gelu(weft_tensor *x);
WEFT_API weft_status weft_gelu_into(weft_tensor *out, weft_tensor *x);
/* the tanh approximation */
WEFT_API weft_tensor *weft_gelu_tanh(weft_tensor *x);
WEFT_API weft_status weft_gelu_tanh_into(weft_tensor *out, weft_tensor *x);
/* the result is bool */
WEFT_API weft_tensor *weft_logical_not(weft_tensor *x);
WEFT_API weft_status weft_logical_not_into(weft_tensor *out, weft_tensor *x);

WEFT_API weft_tensor *weft_add(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_add_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_sub(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_sub_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_mul(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_mul_scalar(weft_tensor *a, double b);
/* true division: integers are converted to f32 */
WEFT_API weft_tensor *weft_div(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_div_scalar(weft_tensor *a, double b);
/* integer powers wrap; negative exponents round towards 0 */
WEFT_API weft_tensor *weft_pow(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_pow_scalar(weft_tensor *a, double b);
/* NaN wins */
WEFT_API weft_tensor *weft_maximum(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_maximum_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_minimum(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_minimum_scalar(weft_tensor *a, double b);
WEFT_API weft_status weft_add_into(weft_tensor *out, weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_add_scalar_into(weft_tensor *out, weft_tensor *a, double b);
WEFT_API weft_status weft_mul_into(weft_tensor *out, weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_mul_scalar_into(weft_tensor *out, weft_tensor *a, double b);
/* A number on the left, where the order matters: 1 - x, 1 / x, 2 ^ x. */
WEFT_API weft_tensor *weft_scalar_sub(double a, weft_tensor *b);
WEFT_API weft_tensor *weft_scalar_div(double a, weft_tensor *b);
WEFT_API weft_tensor *weft_scalar_pow(double a, weft_tensor *b);
/* the result is bool */
WEFT_API weft_tensor *weft_eq(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_eq_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_ne(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_ne_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_lt(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_lt_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_le(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_le_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_gt(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_gt_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_ge(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_ge_scalar(weft_tensor *a, double b);
WEFT_API weft_tensor *weft_logical_and(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_logical_or(weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_logical_xor(weft_tensor *a, weft_tensor *b);

/* The gradients of gelu, gelu_tanh and silu with respect to x, from the gradient of the result. */
WEFT_API weft_tensor *weft_gelu_grad(weft_tensor *grad, weft_tensor *x);
WEFT_API weft_tensor *weft_gelu_tanh_grad(weft_tensor *grad, weft_tensor *x);
WEFT_API weft_tensor *weft_silu_grad(weft_tensor *grad, weft_tensor *x);

/* `a` where `condition` (bool) is true, `b` elsewhere. */
WEFT_API weft_tensor *weft_where(weft_tensor *condition, weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_where_into(weft_tensor *out, weft_tensor *condition, weft_tensor *a,
                                     weft_tensor *b);

/* x within [low, high], which may be infinite; NaN stays. */
WEFT_API weft_tensor *weft_clamp(weft_tensor *x, double low, double high);
/* `value` where `mask` (bool) is true, x elsewhere. */
WEFT_API weft_tensor *weft_masked_fill(weft_tensor *x, weft_tensor *mask, double value);
/* x with zeros above (tril) or below (triu) a diagonal of its last two dimensions: 0 is the main
 * one, 1 the next above it. */
WEFT_API weft_tensor *weft_tril(weft_tensor *x, int64_t diagonal);
WEFT_API weft_tensor *weft_triu(weft_tensor *x, int64_t diagonal);

/* ---- reductions ---- */

/*
 * Reductions over the `count` dimensions in `dims`, or over all if `count` is 0.  With `keepdim` a
 * reduced dimension stays, with size 1.  The order of additions is fixed, so the same input always
 * gives the same bits.  sum and prod of integers and bool give i64.  max and min of an empty
 * tensor, and mean of integers, are errors.  NaN wins in max and min.
 */
WEFT_API weft_tensor *weft_sum(weft_tensor *x, const int *dims, int count, bool keepdim);
WEFT_API weft_tensor *weft_mean(weft_tensor *x, const int *dims, int count, bool keepdim);
WEFT_API weft_tensor *weft_prod(weft_tensor *x, const int *dims, int count, bool keepdim);
WEFT_API weft_tensor *weft_max(weft_tensor *x, const int *dims, int count, bool keepdim);
WEFT_API weft_tensor *weft_min(weft_tensor *x, const int *dims, int count, bool keepdim);
WEFT_API weft_tensor *weft_any(weft_tensor *x, const int *dims, int count, bool keepdim);
WEFT_API weft_tensor *weft_all(weft_tensor *x, const int *dims, int count, bool keepdim);
/* The mean of the squared differences from the mean, divided by n - correction instead of n: 1 for
 * a sample, 0 for all there is.  Dimensions as above. */
WEFT_API weft_tensor *weft_var(weft_tensor *x, const int *dims, int count, double correction,
                               bool keepdim);
/* The sum of the elements up to each along `dim`.  Sums are f64, each rounded once; of integers
 * i64. */
WEFT_API weft_tensor *weft_cumsum(weft_tensor *x, int dim);
/* The index (i64) of the first largest or smallest element, along one dimension or in the flattened
 * tensor. */
WEFT_API weft_tensor *weft_argmax(weft_tensor *x, int dim, bool keepdim);
WEFT_API weft_tensor *weft_argmin(weft_tensor *x, int dim, bool keepdim);
WEFT_API weft_tensor *weft_argmax_all(weft_tensor *x);
WEFT_API weft_tensor *weft_argmin_all(weft_tensor *x);

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
/* x / sqrt(mean(x^2) + epsilon) over the last `dims` dimensions, times the weight (or NULL), which
 * has the shape of these.  Means of 16-bit floats are f32. */
WEFT_API weft_tensor *weft_rms_norm(weft_tensor *x, int dims, weft_tensor *weight, double epsilon);
/* Rotary embedding: turns element i of the first half of the last dimension, together with element
 * i of the second half, by position * base^(-i / half).  x is [..., time, width]; `positions` are
 * `time` integers, or NULL for 0, 1, 2 ...  A usual base is 10000. */
WEFT_API weft_tensor *weft_rotary(weft_tensor *x, weft_tensor *positions, double base);
/* Looks up row indices[i] of `weight` [rows, width] for every i.  The result has the shape of
 * `indices` (integers), followed by `width`. */
WEFT_API weft_tensor *weft_embedding(weft_tensor *weight, weft_tensor *indices);
/* The gradient of embedding with respect to the weight: starts from zeros [rows, width] and adds
 * row i of `grad` to row indices[i], in order. */
WEFT_API weft_tensor *weft_embedding_grad(weft_tensor *grad, weft_tensor *indices, int64_t rows);

/* How weft_attention sees.  Start from WEFT_ATTENTION_OPTS. */
typedef struct weft_attention_opts {
    size_t size; /* of this struct */
    /* Broadcasts to [..., heads, queries, keys].  bool: true where the query sees the key.  Of the
     * dtype of the queries: added to the scores.  NULL: every key is seen. */
    weft_tensor *mask;
    bool causal;    /* query i sees the keys 0 ... offset + i, of those that the mask leaves */
    double scale;   /* of the products of queries and keys; 0: 1 / sqrt(width) */
    double dropout; /* drops weights with this probability, and divides the others by 1 - dropout */
    int64_t offset; /* where the first query stands, if the keys have a past */
    /* Instead of `offset`: a tensor of one integer, which is read when the operation runs.  So a
     * captured function can be run again with another position. */
    weft_tensor *position;
} weft_attention_opts;
#define WEFT_ATTENTION_OPTS                                                                \
    {                                                                                      \
        sizeof(weft_attention_opts), 0, false, 0 /*scale*/, 0 /*dropout*/, 0 /*offset*/, 0 \
    }

/*
 * softmax(scale q k^T + mask) v: q [..., heads, queries, width], k [..., key heads, keys, width],
 * v [..., key heads, keys, any width], all f64, f32, bf16 or f16.  Each key head serves
 * heads / key heads query heads, one after the other.  Scores are never stored as a whole: keys are
 * taken a block at a time, and sums are f32 (f64 of f64).  A query that sees no key gives 0.  The
 * result has the shape of q, with the width of v, and lies as q lies.  On devices without a kernel
 * it is put together from products and softmax.
 */
WEFT_API weft_tensor *weft_attention(weft_tensor *q, weft_tensor *k, weft_tensor *v,
                                     const weft_attention_opts *opts);

/* ---- elements by index ---- */

/*
 * In these functions `index` holds integers that are not negative.  It has as many dimensions as
 * `x`, and no dimension other than `dim` is larger than that of `x`.  Each of its entries selects
 * an element along `dim`; the other coordinates are those of the entry itself.  An index out of
 * range is WEFT_ERR_INVALID_ARG.
 */

/* The selected elements, in the shape of `index`: torch.gather. */
WEFT_API weft_tensor *weft_take_along(weft_tensor *x, int dim, weft_tensor *index);
/* A copy of `x` with the elements of `source` added to the selected ones, in the order of `index`.
 * No dimension of `index` is larger than that of `source`.  Floats of 8 and 16 bits are summed in
 * f32 and rounded once. */
WEFT_API weft_tensor *weft_scatter_add(weft_tensor *x, int dim, weft_tensor *index,
                                       weft_tensor *source);
/* A row-major copy of `x` in which `source`, of shape `shape`, replaces the elements at offset +
 * sum of i[d] * strides[d], counted in the copy.  The region must not overlap itself. */
WEFT_API weft_tensor *weft_view_scatter(weft_tensor *x, weft_tensor *source, weft_shape shape,
                                        const int64_t *strides, int64_t offset);

/* Replaces the slices index[0], index[1] ... of `x` along `dim` by those of `source`, which is as x
 * with as many slices as there are indices.  Of equal indices the last one wins on the CPU.  Acts on
 * x. */
WEFT_API weft_status weft_index_copy(weft_tensor *x, int dim, weft_tensor *index,
                                     weft_tensor *source);
/* Zeros (i64) with a new last dimension of `classes` elements, and a 1 at each integer of x. */
WEFT_API weft_tensor *weft_one_hot(weft_tensor *x, int64_t classes);

/* ---- order ---- */

/* The elements along `dim` in order (out[0]) and where they were (out[1], i64).  NaN is the largest;
 * equal elements stay in their order. */
WEFT_API weft_status weft_sort(weft_tensor *x, int dim, bool descending, weft_tensor *out[2]);
/* The first `count` of that, the largest or the smallest first. */
WEFT_API weft_status weft_topk(weft_tensor *x, int64_t count, int dim, bool largest,
                               weft_tensor *out[2]);
/* Draws `count` indices (i64) by the weights in the last dimension of x, [classes] or
 * [rows, classes], which need not add up to 1 and are not negative.  Without replacement no index
 * comes twice.  A weight of 0 is drawn only when nothing else is left. */
WEFT_API weft_tensor *weft_multinomial(weft_tensor *x, int64_t count, bool replacement);

/* ---- products ---- */

/* Matrix products: mm of [m, k] and [k, n]; bmm with a batch dimension in front; matmul by
 * PyTorch's rules for 1 to 8 dimensions. */
WEFT_API weft_tensor *weft_mm(weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_mm_into(weft_tensor *out, weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_bmm(weft_tensor *a, weft_tensor *b);
WEFT_API weft_status weft_bmm_into(weft_tensor *out, weft_tensor *a, weft_tensor *b);
WEFT_API weft_tensor *weft_matmul(weft_tensor *a, weft_tensor *b);
/* x [..., in] times weight [out, in] transposed, plus bias [out] (or NULL). */
WEFT_API weft_tensor *weft_linear(weft_tensor *x, weft_tensor *weight, weft_tensor *bias);

/* Sums of products by the letters of dimensions: weft_einsum("bij,bjk->bik", (weft_tensor *[]){a,
 * b}, 2).  A letter that the result has not is summed over; a letter that stands twice in one operand
 * means its diagonal.  Without "->" the result has the letters that stand once, in the order of the
 * alphabet.  Two operands at a time become one batched product. */
WEFT_API weft_tensor *weft_einsum(const char *equation, weft_tensor *const *operands, size_t count);

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
    const char *library; /* "libopenblas.so.0"; "" if there is none: then plain loops */
    const char *config;  /* the library's own description, or "" */
    /* The processor for which the library took its kernels, and by whose choice: "SkylakeX, told by weft",
     * "Haswell, its own choice", "Prescott, by OPENBLAS_CORETYPE"; "" if it does not say. */
    const char *core;
    const char *small_floats; /* how floats of 16 and 8 bits are multiplied */
    const char *bf16;         /* what multiplies bf16, if not f32: "AMX", "libdnnl.so.2", or "" */
    /* Operations a second of one thread's processor time, as measured once for this machine and
     * library: a product of f32, and the vector units alone.  0: could not be measured. */
    double product_rate, vector_rate;
    bool slow; /* no library, or products below a third of what the vector units do */
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
