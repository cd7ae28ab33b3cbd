/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a block of queries: block after block of keys, with a running maximum. */
#include "kernels/product/attention.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "kernels/number/convert.h"
#include "kernels/number/math.h"
#include "kernels/product/attention_block.h"
#include "kernels/product/matmul.h"
#include "kernels/walk/copy.h"

#include <math.h>
#include <string.h>

/* The arrays of a part: matrices of the compute type, and numbers of each row. */
struct room {
    void *memory;
    char *q, *k, *v, *scores, *product, *out, *row;
    double *most, *sum, *factor;
};

static char *cut(char **at, int64_t count, size_t size)
{
    char *start = *at;
    *at += ((size_t)count * size + 63) / 64 * 64;
    return start;
}

/* Called twice: without memory it only counts. */
static char *lay_out(const weft_i_attention *a, int64_t rows, char *at, struct room *room)
{
    enum { KEYS = WEFT_I_ATTENTION_KEYS };
    size_t size = weft_i_dtype_size(a->compute);
    room->q = cut(&at, rows * a->width, size);
    room->k = cut(&at, KEYS * a->width, size);
    room->v = cut(&at, KEYS * a->value_width, size);
    room->scores = cut(&at, rows * KEYS, size);
    room->product = cut(&at, rows * a->value_width, size);
    room->out = cut(&at, rows * a->value_width, size);
    room->row = cut(&at, KEYS, size);
    room->most = (double *)(void *)cut(&at, rows, sizeof(double));
    room->sum = (double *)(void *)cut(&at, rows, sizeof(double));
    room->factor = (double *)(void *)cut(&at, rows, sizeof(double));
    return at;
}

static weft_status make_room(const weft_i_attention *a, int64_t rows, struct room *room)
{
    struct room none;
    char start[1];
    size_t bytes = (size_t)(lay_out(a, rows, start, &none) - start) + 64;
    room->memory = WEFT_OS->alloc_aligned(64, bytes);
    if (!room->memory)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "attention: no memory for a block of %lld rows",
                           (long long)rows);
    lay_out(a, rows, room->memory, room);
    return WEFT_OK;
}

/* The queries of the block, with the scale; nothing summed yet. */
static void begin(const weft_i_attention *a, const weft_i_attention_block *b, struct room *room)
{
    size_t size = weft_i_dtype_size(a->compute);
    for (int64_t r = 0; r < b->rows; r++) {
        char *to = room->q + (size_t)(r * a->width) * size;
        weft_i_attention_take(a->compute, to, &a->q, weft_i_attention_at(b, &a->q, r), a->width);
        weft_i_attention_stretch(a->compute, to, a->width, a->scale);
        room->most[r] = -INFINITY;
        room->sum[r] = 0;
    }
    memset(room->out, 0, (size_t)(b->rows * a->value_width) * size);
}

/* Makes weights of a row of scores; `factor`: what all that was summed before it is worth now. */
static void weigh_row(const weft_i_attention *a, const weft_i_attention_block *b, struct room *room,
                      int64_t r, int64_t key, int64_t n)
{
    const weft_i_attend_loops *loops = weft_i_attention_loops(a);
    char *row = room->scores + (size_t)(r * n) * weft_i_dtype_size(a->compute);
    weft_i_attention_mask(a, b, r, key, n, row, room->row);
    double before = room->most[r], here = loops->largest(row, (size_t)n);
    double most = before > here || before != before ? before : here;
    room->factor[r] = 1;
    if (most == -INFINITY) { /* nothing is seen yet */
        memset(row, 0, (size_t)n * weft_i_dtype_size(a->compute));
        return;
    }
    if (most != before)
        room->factor[r] = before == -INFINITY ? 0 : weft_i_exp_f64(before - most);
    room->sum[r] = room->sum[r] * room->factor[r] + loops->grow(row, (size_t)n, most);
    room->most[r] = most;
    weft_i_attention_drop(a, b, r, key, n, row);
}

static weft_status take_keys(const weft_i_attention *a, const weft_i_attention_block *b,
                             struct room *room, int64_t key, int64_t n)
{
    size_t wide = (size_t)a->value_width * weft_i_dtype_size(a->compute);
    weft_i_matrix q = weft_i_attention_matrix(a, room->q, b->rows, a->width);
    weft_i_matrix k = weft_i_attention_keys(a, &a->k, key, n, a->width, room->k);
    weft_i_matrix v = weft_i_attention_keys(a, &a->v, key, n, a->value_width, room->v);
    weft_i_matrix scores = weft_i_attention_matrix(a, room->scores, b->rows, n);
    weft_i_matrix product = weft_i_attention_matrix(a, room->product, b->rows, a->value_width);
    weft_i_matrix turned = weft_i_matrix_transposed(&k);
    WEFT_TRY(weft_i_matmul(&scores, &q, &turned));
    for (int64_t r = 0; r < b->rows; r++)
        weigh_row(a, b, room, r, key, n);
    WEFT_TRY(weft_i_matmul(&product, &scores, &v));
    for (int64_t r = 0; r < b->rows; r++)
        weft_i_attention_loops(a)->fade(room->out + (size_t)r * wide, (size_t)a->value_width,
                                        room->factor[r], room->product + (size_t)r * wide);
    return WEFT_OK;
}

/* A row that sees nothing is 0. */
static void finish(const weft_i_attention *a, const weft_i_attention_block *b, struct room *room)
{
    size_t size = weft_i_dtype_size(a->compute);
    for (int64_t r = 0; r < b->rows; r++) {
        char *row = room->out + (size_t)(r * a->value_width) * size;
        double sum = room->sum[r], lse = room->most[r] + weft_i_log_f64(sum);
        weft_i_attention_stretch(a->compute, row, a->value_width, sum == 0 ? 0 : 1 / sum);
        weft_i_store_run(a->out.dtype, weft_i_attention_at(b, &a->out, r), a->out.column,
                         a->compute, row, (size_t)a->value_width);
        weft_i_convert(a->lse.dtype, weft_i_attention_at(b, &a->lse, r), WEFT_F64, &lse, 1);
    }
}

weft_status weft_i_attention_forward(const weft_i_attention *a, int64_t part)
{
    struct room room;
    weft_i_attention_block b = weft_i_attention_block_of(a, part);
    weft_status status = make_room(a, b.rows, &room);
    if (status < 0)
        return status;
    begin(a, &b, &room);
    int64_t seen = weft_i_attention_seen(a, &b);
    for (int64_t key = 0; key < seen && status >= 0; key += WEFT_I_ATTENTION_KEYS) {
        int64_t left = seen - key;
        status = take_keys(a, &b, &room, key,
                           left < WEFT_I_ATTENTION_KEYS ? left : WEFT_I_ATTENTION_KEYS);
    }
    if (status >= 0)
        finish(a, &b, &room);
    WEFT_OS->free(room.memory);
    return status;
}
