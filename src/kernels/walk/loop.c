/* SPDX-License-Identifier: Apache-2.0 */
/* Orders and joins the dimensions of a strided loop, then walks it; and the strided copy of one
 * run. */
#include "kernels/walk/loop.h"

#include "base/os/assert.h"
#include "base/team/team.h"

#include <string.h>

/* Whether dimension `a` belongs outside dimension `b`: the first operand whose strides differ
 * decides. */
static bool outside(const weft_i_loop *loop, int a, int b)
{
    for (int k = 0; k < loop->operands; k++)
        if (loop->stride[k][a] != loop->stride[k][b])
            return loop->stride[k][a] > loop->stride[k][b];
    return false;
}

static void swap_dims(weft_i_loop *loop, int a, int b)
{
    int64_t dim = loop->dim[a];
    loop->dim[a] = loop->dim[b];
    loop->dim[b] = dim;
    for (int k = 0; k < loop->operands; k++) {
        int64_t stride = loop->stride[k][a];
        loop->stride[k][a] = loop->stride[k][b];
        loop->stride[k][b] = stride;
    }
}

static void copy_dim(weft_i_loop *loop, int to, int from)
{
    loop->dim[to] = loop->dim[from];
    for (int k = 0; k < loop->operands; k++)
        loop->stride[k][to] = loop->stride[k][from];
}

static void drop_ones(weft_i_loop *loop)
{
    int n = 0;
    for (int i = 0; i < loop->ndim; i++)
        if (loop->dim[i] != 1)
            copy_dim(loop, n++, i);
    loop->ndim = n;
}

static void order(weft_i_loop *loop)
{
    for (int i = 1; i < loop->ndim; i++)
        for (int j = i; j > 0 && outside(loop, j, j - 1); j--)
            swap_dims(loop, j, j - 1);
}

/* Whether stepping through `outer` continues where the whole of `inner` ends, for every operand. */
static bool joins(const weft_i_loop *loop, int outer, int inner)
{
    for (int k = 0; k < loop->operands; k++)
        if (loop->stride[k][outer] != loop->stride[k][inner] * loop->dim[inner])
            return false;
    return true;
}

static void join(weft_i_loop *loop)
{
    int n = 0;
    for (int i = 1; i < loop->ndim; i++) {
        if (joins(loop, n, i)) {
            int64_t dim = loop->dim[n];
            copy_dim(loop, n, i);
            loop->dim[n] *= dim;
        } else {
            copy_dim(loop, ++n, i);
        }
    }
    loop->ndim = loop->ndim ? n + 1 : 0;
}

void weft_i_loop_join(weft_i_loop *loop)
{
    WEFT_ASSERT(loop->ndim >= 0 && loop->ndim <= WEFT_I_LOOP_DIMS && loop->operands > 0 &&
                loop->operands <= WEFT_I_LOOP_OPERANDS);
    drop_ones(loop);
    order(loop);
    join(loop);
}

static bool is_empty(const weft_i_loop *loop)
{
    for (int i = 0; i < loop->ndim; i++)
        if (loop->dim[i] == 0)
            return true;
    return false;
}

/* Adds one to the index of the outer dimensions and moves the pointers; false after the last. */
static bool advance(const weft_i_loop *loop, int64_t *index, char **data)
{
    for (int i = loop->ndim - 2; i >= 0; i--) {
        int64_t steps = ++index[i] < loop->dim[i] ? 1 : 1 - loop->dim[i];
        for (int k = 0; k < loop->operands; k++)
            data[k] += steps * loop->stride[k][i];
        if (steps == 1)
            return true;
        index[i] = 0;
    }
    return false;
}

/* All runs of a loop that is joined; its pointers move. */
static void walk_all(weft_i_loop *loop, weft_i_loop_run *run, void *state)
{
    int64_t index[WEFT_I_LOOP_DIMS] = {0}, stride[WEFT_I_LOOP_OPERANDS] = {0};
    int64_t n = loop->ndim ? loop->dim[loop->ndim - 1] : 1;
    for (int k = 0; k < loop->operands && loop->ndim; k++)
        stride[k] = loop->stride[k][loop->ndim - 1];
    do
        run(state, (size_t)n, loop->data, stride);
    while (advance(loop, index, loop->data));
}

void weft_i_loop_each(weft_i_loop loop, weft_i_loop_run *run, void *state)
{
    if (is_empty(&loop))
        return;
    weft_i_loop_join(&loop);
    walk_all(&loop, run, state);
}

/* ---- by the team ---- */

/* Elements that stay together, so that lines of a result are written by one thread each; of what takes more
 * than a line, one alone. */
enum { GRAIN = 64 };

/* A walk that is cut: each run into `pieces` of `piece` elements, and all pieces into parts. */
struct shared {
    const weft_i_loop *loop;
    weft_i_loop_run *run;
    void *state;
    int64_t runs, pieces, piece, parts;
};

/* Elements [from, to) of one run. */
static void run_piece(const struct shared *s, char *const *at, int64_t from, int64_t to)
{
    const weft_i_loop *loop = s->loop;
    char *data[WEFT_I_LOOP_OPERANDS];
    int64_t stride[WEFT_I_LOOP_OPERANDS] = {0};
    for (int k = 0; k < loop->operands; k++) {
        stride[k] = loop->ndim ? loop->stride[k][loop->ndim - 1] : 0;
        data[k] = at[k] + from * stride[k];
    }
    s->run(s->state, (size_t)(to - from), data, stride);
}

/* Where run `number` begins: its index, and the pointers. */
static void find_run(const weft_i_loop *loop, int64_t number, int64_t *index, char **data)
{
    memcpy(data, loop->data, sizeof loop->data);
    for (int i = loop->ndim - 2; i >= 0; i--) {
        index[i] = number % loop->dim[i];
        number /= loop->dim[i];
        for (int k = 0; k < loop->operands; k++)
            data[k] += index[i] * loop->stride[k][i];
    }
}

static void walk_part(void *argument, int64_t part)
{
    const struct shared *s = argument;
    const weft_i_loop *loop = s->loop;
    int64_t index[WEFT_I_LOOP_DIMS] = {0}, n = loop->ndim ? loop->dim[loop->ndim - 1] : 1;
    int64_t all = s->runs * s->pieces, at = weft_i_team_bound(all, s->parts, part),
            end = weft_i_team_bound(all, s->parts, part + 1);
    char *data[WEFT_I_LOOP_OPERANDS];
    find_run(loop, at / s->pieces, index, data);
    while (at < end) {
        int64_t first = at % s->pieces,
                count = end - at < s->pieces - first ? end - at : s->pieces - first;
        int64_t to = (first + count) * s->piece;
        run_piece(s, data, first * s->piece, to < n ? to : n);
        at += count;
        advance(loop, index, data);
    }
}

/* Whether elements of the result share memory; then they are written in order. */
static bool repeats_result(const weft_i_loop *loop)
{
    bool repeats = false;
    for (int i = 0; i < loop->ndim; i++)
        repeats |= loop->stride[0][i] == 0;
    return repeats;
}

void weft_i_loop_share(weft_i_loop loop, int64_t bytes, weft_i_loop_run *run, void *state)
{
    int64_t runs = 1;
    if (is_empty(&loop))
        return;
    weft_i_loop_join(&loop);
    int64_t n = loop.ndim ? loop.dim[loop.ndim - 1] : 1;
    for (int i = 0; i < loop.ndim - 1; i++)
        runs *= loop.dim[i];
    int64_t parts = weft_i_team_parts(runs * n * bytes);
    if (__builtin_expect(parts < 2, 1) || repeats_result(&loop)) {
        walk_all(&loop, run, state);
        return;
    }
    int64_t wanted = (parts + runs - 1) / runs, piece = (n + wanted - 1) / wanted;
    if (bytes < GRAIN)
        piece = (piece + GRAIN - 1) / GRAIN * GRAIN;
    struct shared shared = {.loop = &loop,
                            .run = run,
                            .state = state,
                            .runs = runs,
                            .pieces = (n + piece - 1) / piece,
                            .piece = piece,
                            .parts = parts};
    weft_i_team_run(parts, walk_part, &shared);
}

#define COPY(type_)                                                                       \
    do {                                                                                  \
        if (to_stride == sizeof(type_)) {                                                 \
            type_ *out = (type_ *)(void *)to;                                             \
            for (size_t i = 0; i < n; i++)                                                \
                out[i] = *(const type_ *)(const void *)(from + (int64_t)i * from_stride); \
        } else {                                                                          \
            for (size_t i = 0; i < n; i++)                                                \
                *(type_ *)(void *)(to + (int64_t)i * to_stride) =                         \
                    *(const type_ *)(const void *)(from + (int64_t)i * from_stride);      \
        }                                                                                 \
    } while (0)

void weft_i_copy_elements(size_t size, size_t n, char *to, int64_t to_stride, const char *from,
                          int64_t from_stride)
{
    if (to_stride == (int64_t)size && from_stride == (int64_t)size)
        memcpy(to, from, n * size);
    else if (size == 1)
        COPY(uint8_t);
    else if (size == 2)
        COPY(uint16_t);
    else if (size == 4)
        COPY(uint32_t);
    else
        COPY(uint64_t);
}
