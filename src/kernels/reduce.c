/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions.  One engine serves all types: it knows elements only through the loops of
 * reduce.h.  It works on `width` neighbouring results at once where the reduced dimension is
 * not the innermost in memory, so that memory is read in order; the bits are the same.
 */
#include "kernels/reduce.h"

#include "kernels/convert.h"
#include "kernels/copy.h"
#include "kernels/vector.h"

#include <string.h>

enum { BLOCK = WEFT_I_REDUCE_BLOCK, LANES = WEFT_I_REDUCE_LANES, LEVELS = WEFT_I_REDUCE_LEVELS };
enum { ROW_BYTES = 1024 }; /* of neighbouring results that are worked on at once */

/* Partial results of `width` columns, combined pairwise as blocks arrive: the bits of `blocks` say
 * which are there. */
struct tree {
    const weft_i_reduce_loops *combiner;
    size_t width, row; /* columns; bytes of a row of partial results */
    uint64_t blocks;
    uint64_t level[LEVELS][ROW_BYTES / sizeof(uint64_t)];
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

static void fill_identity(const weft_i_reduce_loops *combiner, void *lanes, size_t count,
                          size_t size)
{
    size_t all = count * size;
    memcpy(lanes, combiner->identity, size);
    for (size_t done = size; done < all; done *= 2)
        memcpy((char *)lanes + done, lanes, done < all - done ? done : all - done);
}

/* LANES rows of `width` become one, pairwise, in row 0. */
static void join_lanes(const weft_i_reduce_loops *combiner, char *lanes, size_t width, size_t size)
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

/* Whether elements are taken as they are in memory; a bool is a byte of 0 or 1. */
static bool is_plain(const weft_i_reduce *what)
{
    return what->in == what->taken && (what->taken == what->compute || what->taken == WEFT_BOOL);
}

/* Whether the reduced elements are one run of adjacent ones of the compute type. */
static bool is_packed(const weft_i_reduce *what)
{
    int64_t step = (int64_t)weft_i_dtype_size(what->in);
    bool packed = is_plain(what);
    for (int d = what->reduced - 1; d >= 0 && packed; d--) {
        packed = what->reduced_in[d] == step;
        step *= what->reduced_dim[d];
    }
    return packed;
}

/* One result: lanes run along the reduced dimension. */
static void *reduce_one(const weft_i_reduce *what, const char *from, struct tree *tree)
{
    uint64_t buffer[BLOCK], partial;
    const weft_i_reduce_loops *combiner = tree->combiner;
    struct cursor cursor = {.what = what, .at = from};
    int64_t left = reduced_count(what);
    if (is_packed(what)) {
        combiner->all((size_t)left, from, tree->level);
        return tree->level;
    }
    for (; left > 0; left -= BLOCK) {
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        combiner->all(n, gather(&cursor, n, buffer), &partial);
        push(tree, &partial);
    }
    return finish(tree);
}

/* A block of rows, each `tree->width` elements, into the lanes. */
static void take_rows(struct tree *tree, struct cursor *cursor, size_t n, void *lanes)
{
    const weft_i_reduce *what = cursor->what;
    uint64_t row[ROW_BYTES / sizeof(uint64_t)];
    size_t width = tree->width;
    if (what->reduced == 1 && is_plain(what)) {
        tree->combiner->rows(n, cursor->at, what->reduced_in[0], width, lanes);
        move(cursor, (int64_t)n);
        return;
    }
    for (size_t i = 0; i < n; i++, move(cursor, 1))
        tree->combiner->fold(width, (char *)lanes + i % LANES * tree->row,
                             weft_i_load_run(what->taken, row, what->in, cursor->at,
                                             (int64_t)weft_i_dtype_size(what->in), width));
}

/* `tree->width` adjacent results: lanes are rows of that many. */
static void *reduce_columns(const weft_i_reduce *what, const char *from, struct tree *tree)
{
    uint64_t lanes[LANES * ROW_BYTES / sizeof(uint64_t)];
    size_t size = weft_i_dtype_size(what->compute), width = tree->width;
    const weft_i_reduce_loops *combiner = tree->combiner;
    struct cursor cursor = {.what = what, .at = from};
    for (int64_t left = reduced_count(what); left > 0; left -= BLOCK) {
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        fill_identity(combiner, lanes, LANES * width, size);
        take_rows(tree, &cursor, n, lanes);
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
    tree.combiner = &weft_i_vector()->reduce[what->which][what->compute];
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
    size_t width = ROW_BYTES / weft_i_dtype_size(what->compute);
    for_each_result(what, columns_pay(what) ? width : 1, reduce_to);
}

/* Where the first element is that is `best`, or NaN if that is; `best` is among them. */
#define INDEX(type_)                                                        \
    static size_t index_##type_(const void *x_, const void *best_)          \
    {                                                                       \
        const type_ *x = x_, best = *(const type_ *)best_;                  \
        size_t i = 0;                                                       \
        while (best != best ? x[i] == x[i] : x[i] != best)                  \
            i++;                                                            \
        return i;                                                           \
    }                                                                       \
    static bool beats_##type_(bool largest, const void *a_, const void *b_) \
    {                                                                       \
        type_ a = *(const type_ *)a_, b = *(const type_ *)b_;               \
        return (largest ? a > b : a < b) || (a != a && b == b);             \
    }
INDEX(float)
INDEX(double)
INDEX(int64_t)
INDEX(uint64_t)

static const struct {
    size_t (*index)(const void *x, const void *best);
    bool (*beats)(bool largest, const void *a, const void *b);
} searches[WEFT_DTYPE_COUNT] = {[WEFT_F32] = {index_float, beats_float},
                                [WEFT_F64] = {index_double, beats_double},
                                [WEFT_I64] = {index_int64_t, beats_int64_t},
                                [WEFT_U64] = {index_uint64_t, beats_uint64_t}};

/* The best of each block is found by the loops of the reduction; only if it is better than those
 * before, its place is looked for. */
static void index_to(const weft_i_reduce *what, const char *from, char *to, int64_t to_stride,
                     size_t width)
{
    uint64_t buffer[BLOCK], best = 0, next = 0;
    int64_t at = -1, total = reduced_count(what);
    struct cursor cursor = {.what = what, .at = from};
    bool largest = what->which == WEFT_I_REDUCE_MAX;
    const weft_i_reduce_loops *loops = &weft_i_vector()->reduce[what->which][what->compute];
    (void)to_stride, (void)width;
    for (int64_t first = 0; first < total; first += BLOCK) {
        size_t n = total - first < BLOCK ? (size_t)(total - first) : BLOCK;
        const void *x = gather(&cursor, n, buffer);
        loops->all(n, x, &next);
        if (at >= 0 && !searches[what->compute].beats(largest, &next, &best))
            continue;
        best = next;
        at = first + (int64_t)searches[what->compute].index(x, &best);
    }
    memcpy(to, &at, sizeof at);
}

void weft_i_reduce_index(const weft_i_reduce *what)
{
    for_each_result(what, 1, index_to);
}
