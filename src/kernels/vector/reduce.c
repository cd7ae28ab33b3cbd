/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions.  One engine serves all types: it knows elements only through the loops of
 * reduce.h.  It works on `width` neighbouring results at once where the reduced dimension is
 * not the innermost in memory, so that memory is read in order; the bits are the same.
 */
#include "kernels/vector/reduce.h"

#include "base/os/os.h"
#include "base/team/team.h"
#include "kernels/number/convert.h"
#include "kernels/vector/vector.h"
#include "kernels/walk/copy.h"

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

/* To element `at` in logical order. */
static void seek(struct cursor *cursor, int64_t at)
{
    const weft_i_reduce *what = cursor->what;
    for (int d = what->reduced - 1; d >= 0 && at; d--) {
        int64_t index = d ? at % what->reduced_dim[d] : at;
        at = d ? at / what->reduced_dim[d] : 0;
        cursor->index[d] = index;
        cursor->at += index * what->reduced_in[d];
    }
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

/* The reduced elements [first, first + count): all, or a stretch of them. */
struct stretch {
    int64_t first, count;
};

/* One result: lanes run along the reduced dimension. */
static void *reduce_one(const weft_i_reduce *what, const char *from, struct stretch stretch,
                        struct tree *tree)
{
    uint64_t buffer[BLOCK], partial;
    const weft_i_reduce_loops *combiner = tree->combiner;
    struct cursor cursor = {.what = what, .at = from};
    int64_t left = stretch.count;
    if (is_packed(what)) {
        combiner->all((size_t)left, from + stretch.first * (int64_t)weft_i_dtype_size(what->in),
                      tree->level);
        return tree->level;
    }
    seek(&cursor, stretch.first);
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
static void *reduce_columns(const weft_i_reduce *what, const char *from, struct stretch stretch,
                            struct tree *tree)
{
    uint64_t lanes[LANES * ROW_BYTES / sizeof(uint64_t)];
    size_t size = weft_i_dtype_size(what->compute), width = tree->width;
    const weft_i_reduce_loops *combiner = tree->combiner;
    struct cursor cursor = {.what = what, .at = from};
    seek(&cursor, stretch.first);
    for (int64_t left = stretch.count; left > 0; left -= BLOCK) {
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

static void begin(struct tree *tree, const weft_i_reduce *what, size_t width)
{
    tree->combiner = &weft_i_vector()->reduce[what->which][what->compute];
    tree->width = width;
    tree->row = width * weft_dtype_size(what->compute);
    tree->blocks = 0;
    fill_identity(tree->combiner, tree->level, width, weft_dtype_size(what->compute));
}

/* What is at level 0 leaves. */
static void store(const weft_i_reduce *what, void *results, char *to, int64_t to_stride,
                  size_t width)
{
    if (what->mean)
        divide(what->compute, results, width, reduced_count(what));
    weft_i_store_run(what->out, to, to_stride, what->compute, results, width);
}

static void *reduce_stretch(const weft_i_reduce *what, const char *from, struct stretch stretch,
                            size_t width, struct tree *tree)
{
    begin(tree, what, width);
    return width > 1 ? reduce_columns(what, from, stretch, tree)
                     : reduce_one(what, from, stretch, tree);
}

static void reduce_to(const weft_i_reduce *what, const char *from, char *to, int64_t to_stride,
                      size_t width)
{
    struct tree tree;
    void *results =
        reduce_stretch(what, from, (struct stretch){0, reduced_count(what)}, width, &tree);
    store(what, results, to, to_stride, width);
}

/* Neighbouring results are neighbours in memory, and the elements of one result are not. */
static bool columns_pay(const weft_i_reduce *what)
{
    int64_t size = (int64_t)weft_dtype_size(what->in);
    return what->kept && what->reduced && what->kept_in[what->kept - 1] == size &&
           what->kept_dim[what->kept - 1] > 1 && what->reduced_in[what->reduced - 1] != size;
}

/* Groups of up to `width` results along the innermost kept dimension; what is done for each of them. */
typedef void each_fn(const weft_i_reduce *what, const char *from, char *to, int64_t to_stride,
                     size_t width);

struct groups {
    const weft_i_reduce *what;
    int64_t size, width; /* of the innermost kept dimension; of a group */
    int64_t along, all;  /* groups along it, and in all */
    each_fn *each;
    int64_t parts;
};

static struct groups groups_of(const weft_i_reduce *what, int64_t width)
{
    struct groups g = {.what = what, .width = width, .size = 1, .all = 1};
    if (what->kept)
        g.size = what->kept_dim[what->kept - 1];
    for (int i = 0; i < what->kept - 1; i++)
        g.all *= what->kept_dim[i];
    g.along = (g.size + width - 1) / width;
    g.all *= g.along;
    return g;
}

/* Where group `number` begins, and the place of its first result along the innermost kept dimension. */
static int64_t find_group(const struct groups *g, int64_t number, int64_t *in, int64_t *out)
{
    const weft_i_reduce *what = g->what;
    int last = what->kept - 1;
    int64_t first = number % g->along * g->width, outer = number / g->along;
    *in = last < 0 ? 0 : first * what->kept_in[last];
    *out = last < 0 ? 0 : first * what->kept_out[last];
    for (int i = last - 1; i >= 0 && outer; i--) {
        *in += outer % what->kept_dim[i] * what->kept_in[i];
        *out += outer % what->kept_dim[i] * what->kept_out[i];
        outer /= what->kept_dim[i];
    }
    return first;
}

static size_t width_of(const struct groups *g, int64_t first)
{
    return (size_t)(g->size - first < g->width ? g->size - first : g->width);
}

static int64_t out_step(const weft_i_reduce *what)
{
    return what->kept ? what->kept_out[what->kept - 1] : 0;
}

static void each_group(void *state, int64_t part)
{
    const struct groups *g = state;
    int64_t end = weft_i_team_bound(g->all, g->parts, part + 1), in, out;
    int last = g->what->kept - 1;
    int64_t in_skip = last < 0 ? 0 : g->width * g->what->kept_in[last],
            out_skip = g->width * out_step(g->what);
    for (int64_t i = weft_i_team_bound(g->all, g->parts, part); i < end;) {
        int64_t left = g->size - find_group(g, i, &in, &out);
        for (; i < end && left > 0; i++, left -= g->width, in += in_skip, out += out_skip)
            g->each(g->what, g->what->from + in, g->what->to + out, out_step(g->what),
                    (size_t)(left < g->width ? left : g->width));
    }
}

/* Bytes that are read, and what is worth as many. */
static int64_t bytes_of(const weft_i_reduce *what)
{
    int64_t bytes = (int64_t)weft_i_dtype_size(what->in) * reduced_count(what);
    for (int i = 0; i < what->kept; i++)
        bytes *= what->kept_dim[i];
    return bytes;
}

static void for_each_group(struct groups *g, each_fn *each, int64_t parts)
{
    g->each = each;
    g->parts = parts;
    weft_i_team_run(parts, each_group, g);
}

/* ---- few results of many elements ---- */

/*
 * Stretches of 512 * 2^k elements each give what the tree has for them anyway, so the bits are those of
 * one walk over all; their results lie in rows.
 */
struct stretches {
    struct groups groups;
    int64_t length, count; /* of a stretch; how many there are */
    char *results;
    size_t row;
};

static char *result_of(const struct stretches *s, int64_t stretch, int64_t group)
{
    return s->results + (size_t)stretch * s->row +
           (size_t)(group * s->groups.width) * weft_i_dtype_size(s->groups.what->compute);
}

static void reduce_part(void *state, int64_t part)
{
    const struct stretches *s = state;
    const weft_i_reduce *what = s->groups.what;
    struct tree tree;
    int64_t group = part % s->groups.all, number = part / s->groups.all, in, out;
    struct stretch stretch = {number * s->length, s->length};
    int64_t left = reduced_count(what) - stretch.first;
    stretch.count = left < stretch.count ? left : stretch.count;
    size_t width = width_of(&s->groups, find_group(&s->groups, group, &in, &out));
    void *results = reduce_stretch(what, what->from + in, stretch, width, &tree);
    memcpy(result_of(s, number, group), results, tree.row);
}

static void join_stretches(const struct stretches *s, int64_t group)
{
    struct tree tree;
    int64_t in, out;
    const weft_i_reduce *what = s->groups.what;
    size_t width = width_of(&s->groups, find_group(&s->groups, group, &in, &out));
    begin(&tree, what, width);
    for (int64_t i = 0; i < s->count; i++)
        push(&tree, result_of(s, i, group));
    store(what, finish(&tree), what->to + out, out_step(what), width);
}

enum { STRETCHES = 64 };

/* Whether it was done so: there is room, and it pays. */
static bool by_stretches(const struct groups *groups, int64_t parts)
{
    struct stretches s = {.groups = *groups, .length = BLOCK};
    int64_t elements = reduced_count(groups->what), most = parts / groups->all + 1;
    most = most < STRETCHES ? most : STRETCHES;
    while ((elements + s.length - 1) / s.length > most)
        s.length *= 2;
    s.count = (elements + s.length - 1) / s.length;
    s.row = (size_t)(groups->all * groups->width) * weft_i_dtype_size(groups->what->compute);
    if (s.count < 2 || !(s.results = WEFT_OS->alloc_aligned(64, (size_t)s.count * s.row)))
        return false;
    weft_i_team_run(s.count * groups->all, reduce_part, &s);
    for (int64_t i = 0; i < groups->all; i++)
        join_stretches(&s, i);
    WEFT_OS->free(s.results);
    return true;
}

enum { FEW = 32, LEAST_WIDTH = 64 };

void weft_i_reduce_run(const weft_i_reduce *what)
{
    int64_t width = columns_pay(what) ? ROW_BYTES / (int64_t)weft_i_dtype_size(what->compute) : 1;
    struct groups groups = groups_of(what, width);
    int64_t parts = weft_i_team_parts(bytes_of(what));
    if (__builtin_expect(parts > 1 && groups.all < FEW, 0)) {
        if (by_stretches(&groups, parts))
            return;
        if (width > LEAST_WIDTH)
            groups = groups_of(what, LEAST_WIDTH);
    }
    for_each_group(&groups, reduce_to, parts < groups.all ? parts : groups.all);
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
    struct groups groups = groups_of(what, 1);
    int64_t parts = weft_i_team_parts(bytes_of(what));
    for_each_group(&groups, index_to, parts < groups.all ? parts : groups.all);
}
