/* SPDX-License-Identifier: Apache-2.0 */
/* What attention and its gradient share: blocks of rows, and the scores of a block. */
#ifndef WEFT_KERNELS_ATTENTION_BLOCK_H
#define WEFT_KERNELS_ATTENTION_BLOCK_H

#include "kernels/blas/matrix.h"
#include "kernels/product/attention.h"
#include "kernels/vector/vector.h"

enum { WEFT_I_ATTENTION_QUERIES = 64, WEFT_I_ATTENTION_KEYS = 256 };

/* Query rows of `heads` heads from `head` on: `queries` of each, from `query` on. */
typedef struct weft_i_attention_block {
    int64_t head, heads, query, queries, rows;
} weft_i_attention_block;

weft_i_attention_block weft_i_attention_block_of(const weft_i_attention *a, int64_t part);
/* How many keys at least one row of the block sees. */
int64_t weft_i_attention_seen(const weft_i_attention *a, const weft_i_attention_block *b);

/* Where row `r` of the block is in `x`. */
static inline char *weft_i_attention_at(const weft_i_attention_block *b,
                                        const weft_i_attention_rows *x, int64_t r)
{
    return x->data + (b->head + r / b->queries) * x->head + (b->query + r % b->queries) * x->row;
}

/* One row as adjacent elements of the compute type, at `to`. */
void weft_i_attention_take(weft_dtype compute, void *to, const weft_i_attention_rows *x,
                           const char *from, int64_t n);
/* Multiplies a row by a number. */
void weft_i_attention_stretch(weft_dtype compute, void *row, int64_t n, double factor);

/* Rows `from` ... of a head's keys or values as a matrix of the compute type: where they are, or
 * copied to `buffer`. */
weft_i_matrix weft_i_attention_keys(const weft_i_attention *a, const weft_i_attention_rows *x,
                                    int64_t from, int64_t count, int64_t width, void *buffer);

/* Adds the mask to row `r` of the scores of keys [key, key + n), and makes minus infinity of what
 * the row does not see.  `buffer` has room for n elements. */
void weft_i_attention_mask(const weft_i_attention *a, const weft_i_attention_block *b, int64_t r,
                           int64_t key, int64_t n, void *scores, void *buffer);
/* Sets what dropout takes away to 0, and stretches the rest. */
void weft_i_attention_drop(const weft_i_attention *a, const weft_i_attention_block *b, int64_t r,
                           int64_t key, int64_t n, void *row);

static inline const weft_i_attend_loops *weft_i_attention_loops(const weft_i_attention *a)
{
    return weft_i_vector()->attend[a->compute];
}

/* A row-major matrix of the compute type at `data`. */
static inline weft_i_matrix weft_i_attention_matrix(const weft_i_attention *a, void *data,
                                                    int64_t rows, int64_t columns)
{
    return (weft_i_matrix){a->compute, data, rows, columns, columns, 1};
}

#endif
