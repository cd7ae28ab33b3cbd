/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention: out = softmax(scale q k^T + mask) v for the query heads that share one key head.  Keys
 * are taken a block at a time, with a running maximum (Milakov and Gimelshein, 2018), so there is
 * never a matrix of all queries and keys.  The order of all sums follows from the shapes alone.
 */
#ifndef WEFT_KERNELS_ATTENTION_H
#define WEFT_KERNELS_ATTENTION_H

#include "base/share/dtype.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The rows of some heads; the distances are in bytes.  No data: there are none. */
typedef struct weft_i_attention_rows {
    weft_dtype dtype;
    char *data;
    int64_t head, row, column;
} weft_i_attention_rows;

typedef struct weft_i_attention {
    weft_dtype compute; /* WEFT_F32 or WEFT_F64 */
    int64_t heads;      /* query heads that share the key head */
    int64_t queries, keys, width, value_width;
    bool causal;
    int64_t offset; /* causal: query i sees the keys 0 ... offset + i */
    double scale, dropout;
    uint64_t seed; /* of dropout: an element is dropped or not by its own number alone */
    int64_t first; /* number of the first query row here among all of the call */
    /* A row of the mask has an element for each key: bool, or a float that is added.  `lse` is the
     * logarithm of the sum of a row's exponentials, of the compute type; one column. */
    weft_i_attention_rows q, k, v, mask, out, lse;
    /* Of the gradient alone: those of the results (of lse there may be none), and what it gives.
     * mask_grad, of the compute type, is added to. */
    weft_i_attention_rows grad, lse_grad, q_grad, k_grad, v_grad, mask_grad;
} weft_i_attention;

/* How many blocks of query rows there are, and the work of one: out and lse of its rows. */
int64_t weft_i_attention_parts(const weft_i_attention *a);
weft_status weft_i_attention_forward(const weft_i_attention *a, int64_t part);

/* All gradients of these heads. */
weft_status weft_i_attention_backward(const weft_i_attention *a);

#endif
