/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements by index: take_along and embedding take them, scatter_add and the gradient of embedding add
 * to them.  Sums are in the order of the index, as on the CPU: what is added to one element is
 * added by one thread, entry after entry.
 */
#ifndef WEFT_CUDA_KERNELS_INDEX_H
#define WEFT_CUDA_KERNELS_INDEX_H

#include "order.h"

/* The ticket of the launch that noted something last. */
WEFT_K_GLOBAL uint64_t weft_k_noted;

/* Notes the first index of this launch that is out of range. */
WEFT_K_OUT void weft_k_complain(weft_k_fault *fault, uint64_t ticket, int op, int64_t index,
                                uint64_t at, uint64_t size)
{
    uint64_t seen = weft_k_load(&weft_k_noted);
    if (seen == ticket || !weft_k_swap(&weft_k_noted, seen, ticket))
        return;
    fault->index = (uint64_t)index;
    fault->at = at;
    fault->size = size;
    weft_k_store_release(&fault->op, (uint64_t)op); /* pairs with the host's acquire */
}

WEFT_K int64_t weft_k_index_at(const char *p, int dtype)
{
    return (int64_t)weft_k_extend(dtype, weft_k_get(p, weft_k_size_of(dtype)));
}

/* Where element i of the result is, and where its source is; NULL: the index is out of range. */
typedef struct weft_k_pick {
    char *to;
    const char *from;
} weft_k_pick;

WEFT_K weft_k_pick weft_k_pick_of(const weft_k_gather *c, uint64_t i)
{
    uint64_t rest = i;
    int64_t to = 0, from = 0, at = 0;
    WEFT_K_NO_UNROLL
    for (int d = c->ndim - 1; d >= 0; d--) {
        uint64_t next = d ? rest / c->dim[d] : 0;
        int64_t k = (int64_t)(rest - next * c->dim[d]);
        to += k * c->to_stride[d];
        from += k * c->from_stride[d];
        at += k * c->index_stride[d];
        rest = next;
    }
    int64_t index = weft_k_index_at(c->index + at, c->index_dtype);
    int fits = (uint64_t)index < c->limit;
    if (!fits) /* the entry of the index: an embedding takes a row for each */
        weft_k_complain(c->fault, c->ticket, c->op, index,
                        c->op == WEFT_K_AT_EMBEDDING ? i / c->dim[c->ndim - 1] : i, c->limit);
    weft_k_pick pick = {c->to + to, fits ? c->from + from + index * c->by_index : 0};
    return pick;
}

/* Words of 16 bytes: a thread asks for several before it stores the first. */
enum { WEFT_K_PICKS = 4 };
WEFT_K void weft_k_gather_vectors(const weft_k_gather *c)
{
    uint64_t step = weft_k_grid_step();
    for (uint64_t i = weft_k_grid_first(); i < c->count; i += WEFT_K_PICKS * step) {
        weft_k_pick pick[WEFT_K_PICKS];
        weft_k_vector v[WEFT_K_PICKS];
        WEFT_K_UNROLL
        for (unsigned k = 0; k < WEFT_K_PICKS; k++) {
            weft_k_pick none = {0, 0};
            pick[k] = i + k * step < c->count ? weft_k_pick_of(c, i + k * step) : none;
        }
        WEFT_K_UNROLL
        for (unsigned k = 0; k < WEFT_K_PICKS; k++) {
            weft_k_vector zeros = {{0, 0, 0, 0}};
            v[k] = pick[k].from ? weft_k_load16(pick[k].from) : zeros;
        }
        WEFT_K_UNROLL
        for (unsigned k = 0; k < WEFT_K_PICKS; k++)
            if (pick[k].to)
                weft_k_store16(pick[k].to, v[k]);
    }
}

/* An element without a place is zeros. */
WEFT_K void weft_k_run_gather(const weft_k_gather *c)
{
    if (c->size == 16) {
        weft_k_gather_vectors(c);
        return;
    }
    for (uint64_t i = weft_k_grid_first(); i < c->count; i += weft_k_grid_step()) {
        weft_k_pick pick = weft_k_pick_of(c, i);
        weft_k_put(pick.to, (uint32_t)c->size,
                   pick.from ? weft_k_get(pick.from, (uint32_t)c->size) : 0);
    }
}

/* An element in the type of the sums: f32, f64 or i64. */
WEFT_K uint64_t weft_k_addend(int compute, int dtype, const char *p)
{
    uint64_t bits = weft_k_get(p, weft_k_size_of(dtype));
    if (compute == WEFT_K_I64)
        return weft_k_extend(dtype, bits);
    return compute == WEFT_K_F64 ? bits : weft_k_bits(weft_k_widen(dtype, bits));
}

WEFT_K void weft_k_add_to(int compute, char *to, uint64_t x)
{
    if (compute == WEFT_K_F32)
        *(float *)(void *)to += weft_k_float((uint32_t)x);
    else if (compute == WEFT_K_F64)
        *(double *)(void *)to += weft_k_double(x);
    else
        *(uint64_t *)(void *)to += x;
}

typedef struct weft_k_line {
    char *to;
    const char *from, *index;
} weft_k_line;

WEFT_K weft_k_line weft_k_line_of(const weft_k_scatter *c, uint64_t line)
{
    weft_k_line l;
    l.to = c->to + weft_k_offset(c->ndim, c->dim, c->to_stride, line);
    l.from = c->from + weft_k_offset(c->ndim, c->dim, c->from_stride, line);
    l.index = c->index + weft_k_offset(c->ndim, c->dim, c->index_stride, line);
    return l;
}

/* The index of entry i of a line; -1 and a note if it is out of range. */
WEFT_K int64_t weft_k_entry_index(const weft_k_scatter *c, const weft_k_line *l, uint64_t i)
{
    int64_t index = weft_k_index_at(l->index + (int64_t)i * c->index_step, c->index_dtype);
    if ((uint64_t)index < c->limit)
        return index;
    weft_k_complain(c->fault, c->ticket, c->op, index, i, c->limit);
    return -1;
}

typedef struct weft_k_scan {
    int64_t index[WEFT_K_SCAN];
    uint64_t value[WEFT_K_SCAN];
} weft_k_scan;

/* One line by a block of threads: of the entries that meet in one element, the first's thread adds
 * them all. */
WEFT_K void weft_k_scatter_line(const weft_k_scatter *c, const weft_k_line *l, weft_k_scan *s)
{
    WEFT_K_NO_UNROLL
    for (uint64_t first = 0; first < c->length; first += WEFT_K_SCAN) {
        unsigned n = (unsigned)(c->length - first < WEFT_K_SCAN ? c->length - first : WEFT_K_SCAN);
        for (unsigned t = weft_k_thread(); t < n; t += weft_k_threads()) {
            s->index[t] = weft_k_entry_index(c, l, first + t);
            s->value[t] =
                weft_k_addend(c->compute, c->dtype, l->from + (int64_t)(first + t) * c->from_step);
        }
        weft_k_sync();
        for (unsigned t = weft_k_thread(); t < n; t += weft_k_threads()) {
            unsigned k = 0;
            while (k < t && s->index[k] != s->index[t])
                k++;
            if (s->index[t] < 0 || k < t)
                continue;
            for (; k < n; k++)
                if (s->index[k] == s->index[t])
                    weft_k_add_to(c->compute, l->to + s->index[t] * c->by_index, s->value[k]);
        }
        weft_k_sync();
    }
}

WEFT_K void weft_k_run_scatter(const weft_k_scatter *c)
{
    WEFT_K_SHARED(weft_k_scan, s);
    if (c->wide) {
        WEFT_K_NO_UNROLL
        for (uint64_t line = weft_k_block(); line < c->lines; line += weft_k_blocks()) {
            weft_k_line l = weft_k_line_of(c, line);
            weft_k_scatter_line(c, &l, s);
        }
        return;
    }
    for (uint64_t line = weft_k_grid_first(); line < c->lines; line += weft_k_grid_step()) {
        weft_k_line l = weft_k_line_of(c, line);
        WEFT_K_NO_UNROLL
        for (uint64_t i = 0; i < c->length; i++) {
            int64_t index = weft_k_entry_index(c, &l, i);
            if (index >= 0)
                weft_k_add_to(
                    c->compute, l.to + index * c->by_index,
                    weft_k_addend(c->compute, c->dtype, l.from + (int64_t)i * c->from_step));
        }
    }
}

typedef struct weft_k_matches {
    uint8_t is[WEFT_K_SCAN];
} weft_k_matches;

/* Whether an entry before `me` has its index; the threads of the block look together. */
WEFT_K int weft_k_came_before(const weft_k_spread *c, uint64_t me)
{
    int alone = 1;
    for (uint64_t i = weft_k_thread(); i < me && alone; i += weft_k_threads())
        alone = c->index[i] != c->index[me];
    return !weft_k_sync_all(alone);
}

WEFT_K void weft_k_add_row(const weft_k_spread *c, int64_t row, uint64_t entry)
{
    uint32_t from_size = weft_k_size_of(c->dtype), to_size = weft_k_size_of(c->compute);
    const char *from = c->from + entry * c->width * from_size;
    char *to = c->to + (uint64_t)row * c->width * to_size;
    for (uint64_t i = weft_k_thread(); i < c->width; i += weft_k_threads())
        weft_k_add_to(c->compute, to + i * to_size,
                      weft_k_addend(c->compute, c->dtype, from + i * from_size));
}

/* A block of threads takes an entry; the first of those with one index adds them all, each thread
 * in columns of its own. */
WEFT_K void weft_k_run_spread(const weft_k_spread *c)
{
    WEFT_K_SHARED(weft_k_matches, s);
    WEFT_K_NO_UNROLL
    for (uint64_t me = weft_k_block(); me < c->count; me += weft_k_blocks()) {
        int64_t row = c->index[me];
        if ((uint64_t)row >= c->limit) {
            if (weft_k_thread() == 0)
                weft_k_complain(c->fault, c->ticket, c->op, row, me, c->limit);
            continue;
        }
        if (weft_k_came_before(c, me))
            continue;
        WEFT_K_NO_UNROLL
        for (uint64_t first = me; first < c->count; first += WEFT_K_SCAN) {
            uint64_t left = c->count - first;
            unsigned n = (unsigned)(left < WEFT_K_SCAN ? left : WEFT_K_SCAN);
            for (unsigned t = weft_k_thread(); t < n; t += weft_k_threads())
                s->is[t] = c->index[first + t] == row;
            weft_k_sync();
            WEFT_K_NO_UNROLL
            for (unsigned t = 0; t < n; t++)
                if (s->is[t])
                    weft_k_add_row(c, row, first + t);
            weft_k_sync();
        }
    }
}

#endif
