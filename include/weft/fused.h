/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused operations: a matrix product and a collective as one, so that communication hides behind
 * the product.  An all_gather in front of a product begins with the rank's own part and takes the
 * others as they come, in cyclic order.  A product in front of a reduce_scatter hands each rank its
 * part as soon as it is multiplied.  These are the two ends of a tensor-parallel layer.
 *
 *     weft_tensor *y;
 *     weft_all_gather_matmul(NULL, &y, x_shard, &w1, 1, 0, tp);       // gather x, times w1
 *     y = weft_matmul_reduce_scatter(weft_gelu(y), w2, WEFT_SUM, 0, tp);
 *
 * Results are those of the collective and the product one after the other (within rounding: a
 * product in parts may be rounded differently), with the same dtypes and the strides that are named
 * below.  All ranks of the group make the same call; if their calls differ, all of them get
 * WEFT_ERR_MISMATCH.  Tensors may be on the CPU or on a GPU, where the call returns when the work is enqueued.
 * All differentiate, but for the scaled ones, and can be captured.  The flight record says which
 * way each call took.
 */
#ifndef WEFT_FUSED_H
#define WEFT_FUSED_H

#include "weft/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A = everybody's a_shard [..., k] one after the other along `dim`; out[i] = A b[i], for `count`
 * matrices b [k, n] (at least one; n may differ, between ranks too).  `*a` gets A; NULL: it is not
 * wanted, and may never be made.  Along the last dimension, which the product sums over, b has a
 * row for each of A's columns.
 *
 * A and out[i] are contiguous once `dim` is moved to the front; along the last dimension they are
 * contiguous as they are.  A shard that lies so too is not copied where symmetric memory of the
 * group holds it; weft_restride_shard brings it into that layout.
 */
WEFT_API weft_status weft_all_gather_matmul(weft_tensor **a, weft_tensor **out,
                                            weft_tensor *a_shard, weft_tensor *const *b, int count,
                                            int dim, weft_group *group);

/* This rank's part along `dim` of the reduction (WEFT_SUM or WEFT_AVG) of everybody's a [..., k]
 * times b [k, n]; contiguous.  The ranks divide the size of that dimension. */
WEFT_API weft_tensor *weft_matmul_reduce_scatter(weft_tensor *a, weft_tensor *b, weft_reduction op,
                                                 int dim, weft_group *group);

/* ---- floats of 8 bits, with scales: see weft_scaled_mm ---- */

/* The right-hand side of a scaled product. */
typedef struct weft_scaled {
    weft_tensor *b;            /* [k, n] */
    weft_tensor *scale;        /* f32: one element, or [1, n] */
    weft_tensor *bias;         /* [n], or NULL */
    weft_tensor *result_scale; /* one f32, or NULL */
    int dtype;                 /* of the result, a weft_dtype; -1: that of b */
} weft_scaled;

/*
 * As weft_all_gather_matmul, along any dimension but the last.  The shape of
 * a_scale says what it is: one element scales all of A; the shape of a_shard with 1 as its last size
 * is this rank's part of the scales, which are gathered with A; the shape of A with 1 as its last
 * size is the whole, which every rank has already.
 */
WEFT_API weft_status weft_all_gather_scaled_matmul(weft_tensor **a, weft_tensor **out,
                                                   weft_tensor *a_shard, weft_tensor *a_scale,
                                                   const weft_scaled *b, int count, int dim,
                                                   weft_group *group);

/* As weft_matmul_reduce_scatter.  The scale of a is one element, or has the shape of a with 1 as its
 * last size.  Every rank's product has its bias before the reduction. */
WEFT_API weft_tensor *weft_scaled_matmul_reduce_scatter(weft_tensor *a, weft_tensor *a_scale,
                                                        const weft_scaled *b, weft_reduction op,
                                                        int dim, weft_group *group);

/* ---- layouts ---- */

/* The same elements and shape, contiguous once `dim` is moved to the front; an alias if they lie so
 * already.  What weft_all_gather_matmul and weft_matmul_reduce_scatter read without a copy. */
WEFT_API weft_tensor *weft_restride_shard(weft_tensor *a_shard, int dim);
WEFT_API weft_tensor *weft_restride_for_scatter(weft_tensor *a, int dim);

/* ---- ways ---- */

typedef enum weft_fused_way {
    WEFT_FUSED_CHOOSE,   /* by the size of the operands, what the device has and the group */
    WEFT_FUSED_PAIR,     /* the collective and the product one after the other */
    WEFT_FUSED_PIPELINE, /* in parts, through symmetric memory */
    WEFT_FUSED_MULTICAST /* of all_gather, along dimension 0 with A not wanted: by multicast, which
                            the CPU emulates; others take what they would choose */
} weft_fused_way;

/* Sets the way that fused operations of this thread take from now on.  All ranks set the same one.
 * Where it cannot be taken, another is; the flight record says which. */
WEFT_API void weft_fused_use(weft_fused_way way);

/*
 * Whether functions that this thread compiles from now on (weft_compile with backend "c") have
 * gathers in front of products, and products in front of scatters, replaced by fused operations; off
 * at first.  weft_compiled_explain tells what was fused, and why other collectives were not.
 */
WEFT_API void weft_fused_rewrite(bool on);

#ifdef __cplusplus
}
#endif

#endif
