/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions.  One engine serves all types: it knows elements only through two functions per
 * (operation, type), `block` and `fold`.  It works on `width` neighbouring results at once where
 * the reduced dimension is not the innermost in memory, so that memory is read in order; the bits
 * are the same.
 */
#include "kernels/reduce.h"

#include "kernels/convert.h"
#include "kernels/copy.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512, LANES = 16, WIDTH = 64, LEVELS = 56 };

struct combiner {
    void (*block)(size_t n, const void *x, void *lanes);  /* lanes[i % LANES] takes in x[i] */
    void (*fold)(size_t n, void *into, const void *from); /* into[i] takes in from[i] */
    const void *identity;
};

#define COMBINER(op_, type_, expression_, start_)                              \
    static void block_##op_##_##type_(size_t n, const void *x_, void *lanes_)  \
    {                                                                          \
        const type_ *x = x_;                                                   \
        type_ *lanes = lanes_, lane[LANES];                                    \
        size_t i = 0;                                                          \
        memcpy(lane, lanes, sizeof lane);                                      \
        for (; i + LANES <= n; i += LANES)                                     \
            for (size_t l = 0; l < LANES; l++) {                               \
                type_ a = lane[l], b = x[i + l];                               \
                lane[l] = (type_)(expression_);                                \
            }                                                                  \
        for (size_t l = 0; i + l < n; l++) {                                   \
            type_ a = lane[l], b = x[i + l];                                   \
            lane[l] = (type_)(expression_);                                    \
        }                                                                      \
        memcpy(lanes, lane, sizeof lane);                                      \
    }                                                                          \
    static void fold_##op_##_##type_(size_t n, void *into_, const void *from_) \
    {                                                                          \
        type_ *into = into_;                                                   \
        const type_ *from = from_;                                             \
        WEFT_I_VECTOR_LOOP                                                     \
        for (size_t i = 0; i < n; i++) {                                       \
            type_ a = into[i], b = from[i];                                    \
            into[i] = (type_)(expression_);                                    \
        }                                                                      \
    }                                                                          \
    static const type_ identity_##op_##_##type_ = start_;

/* Integer sums wrap: the arithmetic is done on unsigned numbers. */
COMBINER(sum, float, a + b, 0)
COMBINER(sum, double, a + b, 0)
COMBINER(sum, int64_t, (uint64_t)a + (uint64_t)b, 0)
COMBINER(prod, float, a *b, 1)
COMBINER(prod, double, a *b, 1)
COMBINER(prod, int64_t, (uint64_t)a *(uint64_t)b, 1)
COMBINER(max, float, a != a || a > b ? a : b, -INFINITY)
COMBINER(max, double, a != a || a > b ? a : b, -INFINITY)
COMBINER(max, int64_t, a > b ? a : b, INT64_MIN)
COMBINER(max, uint64_t, a > b ? a : b, 0)
COMBINER(max, uint8_t, a > b ? a : b, 0)
COMBINER(min, float, a != a || a < b ? a : b, INFINITY)
COMBINER(min, double, a != a || a < b ? a : b, INFINITY)
COMBINER(min, int64_t, a < b ? a : b, INT64_MAX)
COMBINER(min, uint64_t, a < b ? a : b, UINT64_MAX)
COMBINER(min, uint8_t, a < b ? a : b, UINT8_MAX)

#define USE(op_, type_)                                                        \
    {                                                                          \
        block_##op_##_##type_, fold_##op_##_##type_, &identity_##op_##_##type_ \
    }
static const struct combiner combiners[WEFT_I_REDUCE_COUNT][WEFT_DTYPE_COUNT] = {
    [WEFT_I_REDUCE_SUM] = {[WEFT_F32] = USE(sum, float),
                           [WEFT_F64] = USE(sum, double),
                           [WEFT_I64] = USE(sum, int64_t)},
    [WEFT_I_REDUCE_PROD] = {[WEFT_F32] = USE(prod, float),
                            [WEFT_F64] = USE(prod, double),
                            [WEFT_I64] = USE(prod, int64_t)},
    [WEFT_I_REDUCE_MAX] = {[WEFT_F32] = USE(max, float),
                           [WEFT_F64] = USE(max, double),
                           [WEFT_I64] = USE(max, int64_t),
                           [WEFT_U64] = USE(max, uint64_t),
                           [WEFT_U8] = USE(max, uint8_t)},
    [WEFT_I_REDUCE_MIN] = {[WEFT_F32] = USE(min, float),
                           [WEFT_F64] = USE(min, double),
                           [WEFT_I64] = USE(min, int64_t),
                           [WEFT_U64] = USE(min, uint64_t),
                           [WEFT_U8] = USE(min, uint8_t)},
};

/* Partial results of `width` columns, combined pairwise as blocks arrive: the bits of `blocks` say
 * which are there. */
struct tree {
    const struct combiner *combiner;
    size_t width, row; /* columns; bytes of a row of partial results */
    uint64_t blocks;
    uint64_t level[LEVELS][WIDTH];
};

static void *level(struct tree *tree, int i)
{
    return (char *)tree->level + (size_t)i * tree->row;
}

static void push(struct tree *tree, const void *partial)
{
    int depth = __builtin_popcountll(tree->blocks);
    memcpy(level(tree, depth), partial, tree->row);
    for (uint64_t bits = ++tree->blocks; !(bits & 1); bits >>= 1, depth--)
        tree->combiner->fold(tree->width, level(tree, depth - 1), level(tree, depth));
}

/* The result of everything pushed, at level 0. */
static void *finish(struct tree *tree)
{
    for (int depth = __builtin_popcountll(tree->blocks) - 1; depth > 0; depth--)
        tree->combiner->fold(tree->width, level(tree, depth - 1), level(tree, depth));
    return tree->level;
}

static void fill_identity(const struct combiner *combiner, void *lanes, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++)
        memcpy((char *)lanes + i * size, combiner->identity, size);
}

/* LANES rows of `width` become one, pairwise, in row 0. */
static void join_lanes(const struct combiner *combiner, char *lanes, size_t width, size_t size)
{
    for (size_t half = LANES / 2; half; half /= 2)
        combiner->fold(half * width, lanes, lanes + half * width * size);
}

/* A position in the reduced dimensions, in logical order. */
struct cursor {
    const weft_i_reduce *what;
    int64_t index[WEFT_I_REDUCE_DIMS];
    const char *at;
};

/* Moves `n` elements on inside the innermost dimension, or from its end to the next run. */
static void move(struct cursor *cursor, int64_t n)
{
    const weft_i_reduce *what = cursor->what;
    int d = what->reduced - 1;
    if (d < 0)
        return;
    cursor->at += n * what->reduced_in[d];
    cursor->index[d] += n;
    for (; d > 0 && cursor->index[d] == what->reduced_dim[d]; d--) {
        cursor->at += what->reduced_in[d - 1] - what->reduced_dim[d] * what->reduced_in[d];
        cursor->index[d] = 0;
        cursor->index[d - 1]++;
    }
}

/* Up to `n` elements from the cursor on as adjacent elements of `compute`; returns where they are.
 */
static const void *gather(struct cursor *cursor, size_t n, void *buffer)
{
    const weft_i_reduce *what = cursor->what;
    int d = what->reduced - 1;
    size_t size = weft_dtype_size(what->compute);
    const void *where = buffer;
    for (size_t done = 0; done < n;) {
        int64_t left = d < 0 ? 1 : what->reduced_dim[d] - cursor->index[d];
        size_t count = (size_t)left < n - done ? (size_t)left : n - done;
        char *to = (char *)buffer + done * size;
        const void *loaded = weft_i_load_run(
            what->taken, to, what->in, cursor->at,
            d < 0 ? (int64_t)weft_dtype_size(what->in) : what->reduced_in[d], count);
        if (count == n)
            where = loaded;
        else if (loaded != to)
            memcpy(to, loaded, count * size);
        done += count;
        move(cursor, (int64_t)count);
    }
    return where;
}

static int64_t reduced_count(const weft_i_reduce *what)
{
    int64_t count = 1;
    for (int i = 0; i < what->reduced; i++)
        count *= what->reduced_dim[i];
    return count;
}

/* One result: lanes run along the reduced dimension. */
static void *reduce_one(const weft_i_reduce *what, const char *from, struct tree *tree)
{
    uint64_t buffer[BLOCK], lanes[LANES];
    size_t size = weft_dtype_size(what->compute);
    const struct combiner *combiner = tree->combiner;
    struct cursor cursor = {.what = what, .at = from};
    for (int64_t left = reduced_count(what); left > 0; left -= BLOCK) {
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        fill_identity(combiner, lanes, LANES, size);
        combiner->block(n, gather(&cursor, n, buffer), lanes);
        join_lanes(combiner, (char *)lanes, 1, size);
        push(tree, lanes);
    }
    return finish(tree);
}

/* `tree->width` adjacent results: lanes are rows of that many. */
static void *reduce_columns(const weft_i_reduce *what, const char *from, struct tree *tree)
{
    uint64_t row[WIDTH], lanes[LANES * WIDTH];
    size_t size = weft_dtype_size(what->compute), width = tree->width;
    const struct combiner *combiner = tree->combiner;
    struct cursor cursor = {.what = what, .at = from};
    for (int64_t left = reduced_count(what); left > 0; left -= BLOCK) {
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        fill_identity(combiner, lanes, LANES * width, size);
        for (size_t i = 0; i < n; i++, move(&cursor, 1))
            combiner->fold(width, (char *)lanes + i % LANES * width * size,
                           weft_i_load_run(what->taken, row, what->in, cursor.at,
                                           (int64_t)weft_dtype_size(what->in), width));
        join_lanes(combiner, (char *)lanes, width, size);
        push(tree, lanes);
    }
    return finish(tree);
}

/* Divides by the number of elements in the compute type, so that small floats round only once, on
 * their way out. */
static void divide(weft_dtype compute, void *sums, size_t n, int64_t count)
{
    for (size_t i = 0; i < n; i++)
        if (compute == WEFT_F64)
            ((double *)sums)[i] /= (double)count;
        else
            ((float *)sums)[i] /= (float)count;
}

static void reduce_to(const weft_i_reduce *what, const char *from, char *to, int64_t to_stride,
                      size_t width)
{
    struct tree tree;
    tree.combiner = &combiners[what->which][what->compute];
    tree.width = width;
    tree.row = width * weft_dtype_size(what->compute);
    tree.blocks = 0;
    fill_identity(tree.combiner, tree.level, width, weft_dtype_size(what->compute));
    void *results = width > 1 ? reduce_columns(what, from, &tree) : reduce_one(what, from, &tree);
    if (what->mean)
        divide(what->compute, results, width, reduced_count(what));
    weft_i_store_run(what->out, to, to_stride, what->compute, results, width);
}

/* Neighbouring results are neighbours in memory, and the elements of one result are not. */
static bool columns_pay(const weft_i_reduce *what)
{
    int64_t size = (int64_t)weft_dtype_size(what->in);
    return what->kept && what->reduced && what->kept_in[what->kept - 1] == size &&
           what->kept_dim[what->kept - 1] > 1 && what->reduced_in[what->reduced - 1] != size;
}

/* Calls `each` for every result, or for every group of up to `width` along the innermost kept
 * dimension. */
typedef void each_fn(const weft_i_reduce *what, const char *from, char *to, int64_t to_stride,
                     size_t width);

static void for_each_result(const weft_i_reduce *what, size_t width, each_fn *each)
{
    int64_t index[WEFT_I_REDUCE_DIMS] = {0};
    int last = what->kept - 1;
    for (int i = 0; i < what->kept; i++)
        if (what->kept_dim[i] == 0)
            return;
    for (;;) {
        int64_t in = 0, out = 0, size = last < 0 ? 1 : what->kept_dim[last];
        for (int i = 0; i < last; i++) {
            in += index[i] * what->kept_in[i];
            out += index[i] * what->kept_out[i];
        }
        int64_t in_step = last < 0 ? 0 : what->kept_in[last],
                out_step = last < 0 ? 0 : what->kept_out[last];
        for (int64_t i = 0; i < size; i += (int64_t)width)
            each(what, what->from + in + i * in_step, what->to + out + i * out_step, out_step,
                 size - i < (int64_t)width ? (size_t)(size - i) : width);
        int d = last - 1;
        for (; d >= 0 && ++index[d] == what->kept_dim[d]; d--)
            index[d] = 0;
        if (d < 0)
            return;
    }
}

void weft_i_reduce_run(const weft_i_reduce *what)
{
    for_each_result(what, columns_pay(what) ? WIDTH : 1, reduce_to);
}

/* Takes the elements after `first` in; `best` holds the best so far and `at` its index. */
#define INDEX(type_)                                                                    \
    static int64_t index_##type_(bool largest, const type_ *x, size_t n, int64_t first, \
                                 type_ *best, int64_t at)                               \
    {                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                \
            bool better = largest ? x[i] > *best : x[i] < *best;                        \
            bool is_nan = x[i] != x[i] && *best == *best;                               \
            if (at < 0 || better || is_nan) {                                           \
                *best = x[i];                                                           \
                at = first + (int64_t)i;                                                \
            }                                                                           \
        }                                                                               \
        return at;                                                                      \
    }
INDEX(float)
INDEX(double)
INDEX(int64_t)
INDEX(uint64_t)

static void index_to(const weft_i_reduce *what, const char *from, char *to, int64_t to_stride,
                     size_t width)
{
    uint64_t buffer[BLOCK], best = 0;
    int64_t at = -1, total = reduced_count(what);
    struct cursor cursor = {.what = what, .at = from};
    bool largest = what->which == WEFT_I_REDUCE_MAX;
    (void)to_stride, (void)width;
    for (int64_t first = 0; first < total; first += BLOCK) {
        size_t n = total - first < BLOCK ? (size_t)(total - first) : BLOCK;
        const void *x = gather(&cursor, n, buffer);
        if (what->compute == WEFT_F32)
            at = index_float(largest, x, n, first, (float *)&best, at);
        else if (what->compute == WEFT_F64)
            at = index_double(largest, x, n, first, (double *)&best, at);
        else if (what->compute == WEFT_U64)
            at = index_uint64_t(largest, x, n, first, &best, at);
        else
            at = index_int64_t(largest, x, n, first, (int64_t *)&best, at);
    }
    memcpy(to, &at, sizeof at);
}

void weft_i_reduce_index(const weft_i_reduce *what)
{
    for_each_result(what, 1, index_to);
}
