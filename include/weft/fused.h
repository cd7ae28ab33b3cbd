/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused operations: a matrix product and a collective combined, so that the communication is hidden
 * behind the product.  An all_gather followed by a product starts with the rank's own part and
 * takes the others as they arrive, in cyclic order.  A product followed by a reduce_scatter hands
 * each rank its part as soon as it is computed.  These are the two ends of a tensor-parallel layer.
 *
 *     weft_tensor *y;
 *     weft_all_gather_matmul(NULL, &y, x_shard, &w1, 1, 0, tp);       // gather x, times w1
 *     y = weft_matmul_reduce_scatter(weft_gelu(y), w2, WEFT_SUM, 0, tp);
 *
 * Results equal those of the collective and the product done one after the other, within rounding:
 * a product in parts may be rounded differently.  Dtypes are the same, and the strides are as
 * stated below.  All ranks of the group make the same call; if their calls differ, all of them get
 * WEFT_ERR_MISMATCH.  Tensors may be on the CPU, or on a GPU, where the call returns when the work
 * is enqueued.  All operations except the scaled ones can be differentiated, and all can be
 * captured.  The flight record says which way each call took.
 */
#ifndef WEFT_FUSED_H
#define WEFT_FUSED_H

#include "weft/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A is the a_shard [..., k] of all ranks, concatenated along `dim`.  out[i] = A b[i], for `count`
 * matrices b [k, n], at least one; n may differ, also between ranks.  `*a` gets A; if `a` is NULL,
 * A is not wanted and may never be made.  If `dim` is the last dimension, which the product sums
 * over, b has one row for each column of A.
 *
 * A and out[i] are contiguous once `dim` is moved to the front; if `dim` is the last dimension,
 * they are contiguous as they are.  A shard with that layout in symmetric memory of the group is
 * not copied.  weft_restride_shard produces the layout.
 */
WEFT_API weft_status weft_all_gather_matmul(weft_tensor **a, weft_tensor **out,
                                            weft_tensor *a_shard, weft_tensor *const *b, int count,
                                            int dim, weft_group *group);

/* This rank's part, along `dim`, of the reduction (WEFT_SUM or WEFT_AVG) of a [..., k] times b [k,
 * n] over all ranks.  The result is contiguous.  The number of ranks must divide the size of that
 * dimension. */
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
 * Like weft_all_gather_matmul, along any dimension but the last.  The shape of a_scale decides its
 * meaning.  One element scales all of A.  The shape of a_shard with 1 as its last size is this
 * rank's part of the scales, which are gathered with A.  The shape of A with 1 as its last size is
 * all of the scales, which every rank already has.
 */
WEFT_API weft_status weft_all_gather_scaled_matmul(weft_tensor **a, weft_tensor **out,
                                                   weft_tensor *a_shard, weft_tensor *a_scale,
                                                   const weft_scaled *b, int count, int dim,
                                                   weft_group *group);

/* Like weft_matmul_reduce_scatter.  The scale of `a` is one element, or has the shape of `a` with 1
 * as its last size.  The bias is added to every rank's product before the reduction. */
WEFT_API weft_tensor *weft_scaled_matmul_reduce_scatter(weft_tensor *a, weft_tensor *a_scale,
                                                        const weft_scaled *b, weft_reduction op,
                                                        int dim, weft_group *group);

/* ---- layouts ---- */

/* The same elements and shape, contiguous once `dim` is moved to the front; an alias if they
 * already are.  weft_all_gather_matmul and weft_matmul_reduce_scatter read this layout without a
 * copy. */
WEFT_API weft_tensor *weft_restride_shard(weft_tensor *a_shard, int dim);
WEFT_API weft_tensor *weft_restride_for_scatter(weft_tensor *a, int dim);

/* ---- ways ---- */

typedef enum weft_fused_way {
    WEFT_FUSED_CHOOSE,   /* by the size of the operands, the device and the group */
    WEFT_FUSED_PAIR,     /* the collective and the product one after the other */
    WEFT_FUSED_PIPELINE, /* in parts, through symmetric memory */
    WEFT_FUSED_MULTICAST /* by multicast, which the CPU emulates: for all_gather along dimension 0
                            if A is not wanted; others choose as above.  That of GPUs is untested on
                            hardware: scripts/gpu-check peers */
} weft_fused_way;

/* Sets the way that fused operations of this thread take from now on.  All ranks must set the same
 * one.  If it is not possible, another one is taken; the flight record says which. */
WEFT_API void weft_fused_use(weft_fused_way way);

/*
 * Sets whether functions that this thread compiles from now on (weft_compile with backend "c") use
 * fused operations in place of gathers followed by products, and products followed by scatters.
 * Off by default.  weft_compiled_explain says what was fused, and why other collectives were not.
 */
WEFT_API void weft_fused_rewrite(bool on);

#ifdef __cplusplus
}
#endif

#endif
