/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the rows of attention: where they begin, how they are read, what they do not see. */
#include "kernels/product/attention_block.h"

#include "kernels/number/convert.h"
#include "kernels/number/draw.h"
#include "kernels/walk/copy.h"

#include <math.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ceiling(int64_t n, int64_t step)
{
    return (n + step - 1) / step;
}

/* Short rows of queries, as of one new token, share a block with those of other heads. */
static int64_t heads_of_block(const weft_i_attention *a)
{
    return a->queries >= WEFT_I_ATTENTION_QUERIES || !a->queries
               ? 1
               : least(a->heads, WEFT_I_ATTENTION_QUERIES / a->queries);
}

int64_t weft_i_attention_parts(const weft_i_attention *a)
{
    return ceiling(a->heads, heads_of_block(a)) * ceiling(a->queries, WEFT_I_ATTENTION_QUERIES);
}

weft_i_attention_block weft_i_attention_block_of(const weft_i_attention *a, int64_t part)
{
    int64_t along = ceiling(a->queries, WEFT_I_ATTENTION_QUERIES), heads = heads_of_block(a);
    weft_i_attention_block b = {.head = part / along * heads,
                                .query = part % along * WEFT_I_ATTENTION_QUERIES};
    b.heads = least(heads, a->heads - b.head);
    b.queries = least(WEFT_I_ATTENTION_QUERIES, a->queries - b.query);
    b.rows = b.heads * b.queries;
    return b;
}

/* Keys that query `at` sees. */
static int64_t seen_by(const weft_i_attention *a, int64_t at)
{
    int64_t seen = a->keys;
    if (a->causal && (__builtin_add_overflow(a->offset, at + 1, &seen) || seen > a->keys))
        seen = a->keys;
    return seen < 0 ? 0 : seen;
}

int64_t weft_i_attention_seen(const weft_i_attention *a, const weft_i_attention_block *b)
{
    return seen_by(a, b->query + b->queries - 1);
}

void weft_i_attention_take(weft_dtype compute, void *to, const weft_i_attention_rows *x,
                           const char *from, int64_t n)
{
    const void *row = weft_i_load_run(compute, to, x->dtype, from, x->column, (size_t)n);
    if (row != to)
        memcpy(to, row, (size_t)n * weft_i_dtype_size(compute));
}

weft_i_matrix weft_i_attention_keys(const weft_i_attention *a, const weft_i_attention_rows *x,
                                    int64_t from, int64_t count, int64_t width, void *buffer)
{
    int64_t size = (int64_t)weft_i_dtype_size(a->compute);
    char *first = x->data + from * x->row;
    if (x->dtype == a->compute && x->column == size && x->row % size == 0 && x->row >= width * size)
        return (weft_i_matrix){a->compute, first, count, width, x->row / size, 1};
    for (int64_t i = 0; i < count; i++)
        weft_i_attention_take(a->compute, (char *)buffer + i * width * size, x, first + i * x->row,
                              width);
    return weft_i_attention_matrix(a, buffer, count, width);
}

#define ROW_LOOPS(type_)                                                                          \
    static void stretch_##type_(type_ *row, int64_t n, type_ factor)                              \
    {                                                                                             \
        WEFT_I_VECTOR_LOOP                                                                        \
        for (int64_t i = 0; i < n; i++)                                                           \
            row[i] *= factor;                                                                     \
    }                                                                                             \
    static void hide_##type_(type_ *row, int64_t from, int64_t to)                                \
    {                                                                                             \
        for (int64_t i = from; i < to; i++)                                                       \
            row[i] = -(type_)INFINITY;                                                            \
    }                                                                                             \
    static void hide_unless_##type_(type_ *row, const char *mask, int64_t column, int64_t n)      \
    {                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                           \
            row[i] = mask[i * column] ? row[i] : -(type_)INFINITY;                                \
    }                                                                                             \
    static void add_##type_(type_ *row, const type_ *more, int64_t n)                             \
    {                                                                                             \
        WEFT_I_VECTOR_LOOP                                                                        \
        for (int64_t i = 0; i < n; i++)                                                           \
            row[i] += more[i];                                                                    \
    }                                                                                             \
    static void drop_##type_(type_ *row, const weft_i_attention *a, uint64_t at, int64_t key,     \
                             int64_t n)                                                           \
    {                                                                                             \
        type_ factor = (type_)(a->dropout < 1 ? 1 / (1 - a->dropout) : 0);                        \
        uint64_t word[2];                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                         \
            uint64_t place = (uint64_t)(key + i);                                                 \
            if (i == 0 || place % 2 == 0)                                                         \
                weft_i_draw_words(a->seed, at + place / 2, word);                                 \
            row[i] = weft_i_draw_uniform(word[place % 2], 24) < a->dropout ? 0 : row[i] * factor; \
        }                                                                                         \
    }
ROW_LOOPS(float)
ROW_LOOPS(double)

void weft_i_attention_stretch(weft_dtype compute, void *row, int64_t n, double factor)
{
    if (compute == WEFT_F64)
        stretch_double(row, n, factor);
    else
        stretch_float(row, n, (float)factor);
}

static void take_mask(const weft_i_attention *a, const char *mask, int64_t n, void *scores,
                      void *buffer)
{
    const weft_i_attention_rows *x = &a->mask;
    if (x->dtype == WEFT_BOOL && a->compute == WEFT_F64) {
        hide_unless_double(scores, mask, x->column, n);
    } else if (x->dtype == WEFT_BOOL) {
        hide_unless_float(scores, mask, x->column, n);
    } else {
        const void *more =
            weft_i_load_run(a->compute, buffer, x->dtype, mask, x->column, (size_t)n);
        a->compute == WEFT_F64 ? add_double(scores, more, n) : add_float(scores, more, n);
    }
}

void weft_i_attention_mask(const weft_i_attention *a, const weft_i_attention_block *b, int64_t r,
                           int64_t key, int64_t n, void *scores, void *buffer)
{
    int64_t seen = seen_by(a, b->query + r % b->queries) - key;
    if (a->mask.data)
        take_mask(a, weft_i_attention_at(b, &a->mask, r) + key * a->mask.column, n, scores, buffer);
    if (a->compute == WEFT_F64)
        hide_double(scores, seen < 0 ? 0 : seen, n);
    else
        hide_float(scores, seen < 0 ? 0 : seen, n);
}

void weft_i_attention_drop(const weft_i_attention *a, const weft_i_attention_block *b, int64_t r,
                           int64_t key, int64_t n, void *row)
{
    if (a->dropout == 0)
        return;
    int64_t number = a->first + (b->head + r / b->queries) * a->queries + b->query + r % b->queries;
    uint64_t at = (uint64_t)number * (uint64_t)ceiling(a->keys, 2);
    if (a->compute == WEFT_F64)
        drop_double(row, a, at, key, n);
    else
        drop_float(row, a, at, key, n);
}
