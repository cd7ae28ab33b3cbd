/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused operations from the inside: what a call asks for, read from its arguments with every check
 * that needs no other rank.  The shape rules and the run functions read the same.
 */
#ifndef WEFT_PARALLEL_FUSED_H
#define WEFT_PARALLEL_FUSED_H

#include "parallel/ops.h"
#include "weft/fused.h"

typedef enum weft_i_scaling {
    WEFT_I_UNSCALED,
    WEFT_I_TENSOR_WISE,    /* one for all */
    WEFT_I_ROWS_SHARDED,   /* one for each row of the shard: gathered with it */
    WEFT_I_ROWS_REPLICATED /* one for each row of what is gathered */
} weft_i_scaling;

/* What scales the products of a call; all NULL: nothing does. */
typedef struct weft_i_scales {
    weft_tensor *b, *bias, *result;
} weft_i_scales;

/* An all_gather in front of products. */
typedef struct weft_i_gathering {
    const char *op;
    weft_tensor *shard;
    weft_tensor *const *b;
    int count;      /* of right-hand sides */
    int dim, ranks; /* what is gathered, and of how many */
    bool last;      /* it is the dimension that the products sum over */
    bool keep;      /* the gathered tensor is a result */
    weft_i_scaling scaling;
    weft_tensor *scale; /* of the shard, or of all; NULL: unscaled */
    weft_tensor *const *b_scale, *const *bias, *const *result_scale;
    const int64_t *dtypes; /* of the results; -1: that of b */
} weft_i_gathering;

/* A product in front of a reduce_scatter. */
typedef struct weft_i_scattering {
    const char *op;
    weft_tensor *a, *b;
    weft_reduction reduction;
    int dim, ranks;
    bool last;          /* the columns of b are scattered */
    weft_dtype dtype;   /* of partial products and of the result */
    weft_tensor *scale; /* of a; NULL: unscaled */
    bool by_rows;       /* one for each row */
    weft_i_scales scales;
} weft_i_scattering;

weft_status weft_i_gathering_read(const weft_i_op_call *call, weft_i_gathering *out);
weft_status weft_i_scattering_read(const weft_i_op_call *call, weft_i_scattering *out);

/* The dtype of product i. */
weft_dtype weft_i_gathering_dtype(const weft_i_gathering *g, int i);

/* The way that the user wishes (weft_fused_use). */
weft_fused_way weft_i_fused_wish(void);

/* Is a pipeline faster than the pair, for so many bytes that are gathered or scattered in all?  Asked
 * of nothing that may differ between ranks: neither of widths of right-hand sides nor of the inner
 * dimension of a scatter.  A pipeline that was wished for always is. */
bool weft_i_fused_pays(bool gathers, weft_device device, int64_t bytes);

#endif
