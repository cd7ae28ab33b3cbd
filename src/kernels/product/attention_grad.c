/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of attention.  The weights of a block of queries and a block of keys are computed
 * again, p = e^(score - lse); then
 *
 *     v_grad += p^T grad,   s = p (grad v^T - sum(grad out) + lse_grad),   k_grad += s^T q,   q_grad += s k.
 *
 * Blocks of keys are the outer loop, so each of them is read and its gradient written once.
 */
#include "base/os/os.h"
#include "base/report/status.h"
#include "kernels/number/convert.h"
#include "kernels/product/attention_block.h"
#include "kernels/product/matmul.h"
#include "kernels/walk/copy.h"

#include <math.h>
#include <string.h>

enum { KEYS = WEFT_I_ATTENTION_KEYS };

struct room {
    void *memory;
    char *q, *grad, *q_grad; /* all query rows; q with the scale */
    double *mean, *lse;      /* of each: sum(grad out) - lse_grad */
    char *k, *v, *k_grad, *v_grad, *scores, *slopes, *product, *row; /* of a block */
};

static char *cut(char **at, int64_t count, size_t size)
{
    char *start = *at;
    *at += ((size_t)count * size + 63) / 64 * 64;
    return start;
}

static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Called twice: without memory it only counts. */
static char *lay_out(const weft_i_attention *a, char *at, struct room *room)
{
    size_t size = weft_i_dtype_size(a->compute);
    int64_t all = a->heads * a->queries, rows = WEFT_I_ATTENTION_QUERIES;
    int64_t wide = most_of(a->width, a->value_width);
    room->q = cut(&at, all * a->width, size);
    room->grad = cut(&at, all * a->value_width, size);
    room->q_grad = cut(&at, all * a->width, size);
    room->mean = (double *)(void *)cut(&at, all, sizeof(double));
    room->lse = (double *)(void *)cut(&at, all, sizeof(double));
    room->k = cut(&at, KEYS * a->width, size);
    room->v = cut(&at, KEYS * a->value_width, size);
    room->k_grad = cut(&at, KEYS * a->width, size);
    room->v_grad = cut(&at, KEYS * a->value_width, size);
    room->scores = cut(&at, rows * KEYS, size);
    room->slopes = cut(&at, rows * KEYS, size);
    room->product = cut(&at, most_of(rows, KEYS) * wide, size);
    room->row = cut(&at, most_of(KEYS, wide), size);
    return at;
}

static weft_status make_room(const weft_i_attention *a, struct room *room)
{
    struct room none;
    char start[1];
    size_t bytes = (size_t)(lay_out(a, start, &none) - start) + 64;
    room->memory = WEFT_OS->alloc_aligned(64, bytes);
    if (!room->memory)
        return weft_i_fail(WEFT_ERR_NO_MEMORY,
                           "attention: no memory for the gradients of %lld rows",
                           (long long)(a->heads * a->queries));
    lay_out(a, room->memory, room);
    return WEFT_OK;
}

/* Rows of blocks lie one after the other: a block begins with row `first`. */
static void read_block(const weft_i_attention *a, const weft_i_attention_block *b, int64_t first,
                       struct room *room)
{
    size_t size = weft_i_dtype_size(a->compute);
    for (int64_t r = 0; r < b->rows; r++) {
        char *q = room->q + (size_t)((first + r) * a->width) * size;
        char *grad = room->grad + (size_t)((first + r) * a->value_width) * size;
        weft_i_attention_take(a->compute, q, &a->q, weft_i_attention_at(b, &a->q, r), a->width);
        weft_i_attention_stretch(a->compute, q, a->width, a->scale);
        weft_i_attention_take(a->compute, grad, &a->grad, weft_i_attention_at(b, &a->grad, r),
                              a->value_width);
        weft_i_attention_take(a->compute, room->row, &a->out, weft_i_attention_at(b, &a->out, r),
                              a->value_width);
        room->mean[first + r] =
            weft_i_attention_loops(a)->dot(grad, room->row, (size_t)a->value_width);
        weft_i_convert(WEFT_F64, &room->lse[first + r], a->lse.dtype,
                       weft_i_attention_at(b, &a->lse, r), 1);
        double lse_grad = 0;
        if (a->lse_grad.data)
            weft_i_convert(WEFT_F64, &lse_grad, a->lse_grad.dtype,
                           weft_i_attention_at(b, &a->lse_grad, r), 1);
        room->mean[first + r] -= lse_grad;
    }
}

/* The weights of row `r` from its scores, without dropout. */
static void weigh_row(const weft_i_attention *a, const weft_i_attention_block *b,
                      const struct room *room, int64_t first, int64_t r, int64_t key, int64_t n)
{
    size_t size = weft_i_dtype_size(a->compute);
    char *row = room->scores + (size_t)(r * n) * size;
    weft_i_attention_mask(a, b, r, key, n, row, room->row);
    if (room->lse[first + r] == -INFINITY)
        memset(row, 0, (size_t)n * size);
    else
        weft_i_attention_loops(a)->grow(row, (size_t)n, room->lse[first + r]);
}

#define ADD_TO_MASK(type_)                                                                  \
    static void add_to_mask_##type_(char *to, int64_t column, const type_ *from, int64_t n) \
    {                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                     \
            *(type_ *)(void *)(to + i * column) += from[i];                                 \
    }
ADD_TO_MASK(float)
ADD_TO_MASK(double)

static void add_to_mask(const weft_i_attention *a, const weft_i_attention_block *b, int64_t r,
                        int64_t key, int64_t n, const void *row)
{
    const weft_i_attention_rows *x = &a->mask_grad;
    char *to = x->data ? weft_i_attention_at(b, x, r) + key * x->column : NULL;
    if (to && a->compute == WEFT_F64)
        add_to_mask_double(to, x->column, row, n);
    else if (to)
        add_to_mask_float(to, x->column, row, n);
}

/* From the gradients of the weights to those of the scores; then dropout goes over the weights. */
static void slope_row(const weft_i_attention *a, const weft_i_attention_block *b,
                      const struct room *room, int64_t first, int64_t r, int64_t key, int64_t n)
{
    size_t at = (size_t)(r * n) * weft_i_dtype_size(a->compute);
    weft_i_attention_drop(a, b, r, key, n, room->slopes + at);
    weft_i_attention_loops(a)->slope(room->slopes + at, room->scores + at, (size_t)n,
                                     room->mean[first + r]);
    weft_i_attention_drop(a, b, r, key, n, room->scores + at);
    add_to_mask(a, b, r, key, n, room->slopes + at);
}

/* to += a b */
static weft_status add_product(const weft_i_attention *a, const struct room *room, char *to,
                               const weft_i_matrix *x, const weft_i_matrix *y)
{
    weft_i_matrix product = weft_i_attention_matrix(a, room->product, x->rows, y->columns);
    WEFT_TRY(weft_i_matmul(&product, x, y));
    weft_i_attention_loops(a)->fade(to, (size_t)(x->rows * y->columns), 1, room->product);
    return WEFT_OK;
}

/* What a block of queries and a block of keys give each other. */
static weft_status meet(const weft_i_attention *a, const weft_i_attention_block *b,
                        const struct room *room, int64_t first, int64_t key, const weft_i_matrix *k,
                        const weft_i_matrix *v)
{
    size_t size = weft_i_dtype_size(a->compute);
    int64_t n = k->rows;
    char *q_at = room->q + (size_t)(first * a->width) * size;
    char *grad_at = room->grad + (size_t)(first * a->value_width) * size;
    weft_i_matrix q = weft_i_attention_matrix(a, q_at, b->rows, a->width);
    weft_i_matrix grad = weft_i_attention_matrix(a, grad_at, b->rows, a->value_width);
    weft_i_matrix scores = weft_i_attention_matrix(a, room->scores, b->rows, n);
    weft_i_matrix slopes = weft_i_attention_matrix(a, room->slopes, b->rows, n);
    weft_i_matrix k_turned = weft_i_matrix_transposed(k), v_turned = weft_i_matrix_transposed(v);
    weft_i_matrix scores_turned = weft_i_matrix_transposed(&scores);
    weft_i_matrix slopes_turned = weft_i_matrix_transposed(&slopes);
    WEFT_TRY(weft_i_matmul(&scores, &q, &k_turned));
    WEFT_TRY(weft_i_matmul(&slopes, &grad, &v_turned));
    for (int64_t r = 0; r < b->rows; r++) {
        weigh_row(a, b, room, first, r, key, n);
        slope_row(a, b, room, first, r, key, n);
    }
    WEFT_TRY(add_product(a, room, room->v_grad, &scores_turned, &grad));
    WEFT_TRY(add_product(a, room, room->k_grad, &slopes_turned, &q));
    return add_product(a, room, room->q_grad + (size_t)(first * a->width) * size, &slopes, k);
}

static void store_rows(const weft_i_attention *a, const weft_i_attention_rows *to, int64_t key,
                       int64_t n, int64_t width, const char *from)
{
    size_t wide = (size_t)width * weft_i_dtype_size(a->compute);
    for (int64_t i = 0; i < n && to->data; i++)
        weft_i_store_run(to->dtype, to->data + (key + i) * to->row, to->column, a->compute,
                         from + (size_t)i * wide, (size_t)width);
}

static weft_status take_keys(const weft_i_attention *a, const struct room *room, int64_t key,
                             int64_t n)
{
    size_t size = weft_i_dtype_size(a->compute);
    weft_i_matrix k = weft_i_attention_keys(a, &a->k, key, n, a->width, room->k);
    weft_i_matrix v = weft_i_attention_keys(a, &a->v, key, n, a->value_width, room->v);
    memset(room->k_grad, 0, (size_t)(n * a->width) * size);
    memset(room->v_grad, 0, (size_t)(n * a->value_width) * size);
    for (int64_t part = 0, first = 0, parts = weft_i_attention_parts(a); part < parts; part++) {
        weft_i_attention_block b = weft_i_attention_block_of(a, part);
        if (weft_i_attention_seen(a, &b) > key)
            WEFT_TRY(meet(a, &b, room, first, key, &k, &v));
        first += b.rows;
    }
    store_rows(a, &a->k_grad, key, n, a->width, room->k_grad);
    store_rows(a, &a->v_grad, key, n, a->value_width, room->v_grad);
    return WEFT_OK;
}

static void store_queries(const weft_i_attention *a, const struct room *room)
{
    size_t wide = (size_t)a->width * weft_i_dtype_size(a->compute);
    char *row = room->q_grad;
    for (int64_t part = 0, parts = weft_i_attention_parts(a); part < parts; part++) {
        weft_i_attention_block b = weft_i_attention_block_of(a, part);
        for (int64_t r = 0; r < b.rows; r++, row += wide) {
            weft_i_attention_stretch(a->compute, row, a->width, a->scale);
            weft_i_store_run(a->q_grad.dtype, weft_i_attention_at(&b, &a->q_grad, r),
                             a->q_grad.column, a->compute, row, (size_t)a->width);
        }
    }
}

weft_status weft_i_attention_backward(const weft_i_attention *a)
{
    struct room room;
    weft_status status = make_room(a, &room);
    if (status < 0)
        return status;
    memset(room.q_grad, 0,
           (size_t)(a->heads * a->queries * a->width) * weft_i_dtype_size(a->compute));
    for (int64_t part = 0, first = 0, parts = weft_i_attention_parts(a); part < parts; part++) {
        weft_i_attention_block b = weft_i_attention_block_of(a, part);
        read_block(a, &b, first, &room);
        first += b.rows;
    }
    for (int64_t key = 0; key < a->keys && status >= 0; key += KEYS)
        status = take_keys(a, &room, key, a->keys - key < KEYS ? a->keys - key : KEYS);
    if (status >= 0)
        store_queries(a, &room);
    WEFT_OS->free(room.memory);
    return status;
}
