/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_to_all with sizes in symmetric memory (all_to_all_vdev, _2d, _2d_offset).  After the entry
 * every block copies the tables of splits of all ranks to its own scratch memory, so all blocks of all
 * ranks know the whole exchange and judge it alike.  One that is refused is noted in the record,
 * nothing is moved, and the group goes on.  Otherwise a block works out where the parts for its
 * rank lie and where they go, and pulls its share of each.
 *
 * Scratch memory is the stage of this rank's own pad: after the entry all earlier kernels of all
 * ranks are over, and in this one nobody else touches it.
 */
#ifndef WEFT_CUDA_KERNELS_VDEV_H
#define WEFT_CUDA_KERNELS_VDEV_H

#include "move.h"

/* Where a rank shows the rows of its input and output: in the line of its block. */
enum { WEFT_K_ROWS_AT = 16 };
#define WEFT_K_ROWS_MOST ((int64_t)(~(uint64_t)0 >> 1))

/* Scratch memory of a block, in words. */
typedef struct weft_k_parts {
    int64_t *splits;    /* of every rank, `words` each: splits, and offsets if the input has them */
    int64_t *rows;      /* of every rank: its input's, its output's */
    int64_t *bad;       /* of every rank: WEFT_K_SENT..., 0: fine */
    int64_t *totals;    /* for every (rank, expert): the rows that it receives */
    int64_t *from, *to; /* for every (source, expert): the first row there and here */
    int64_t words, entries;
} weft_k_parts;

WEFT_K weft_k_parts weft_k_lay_out_parts(const weft_k_vdev *v)
{
    int64_t size = v->call.group.size, entries = size * v->experts;
    weft_k_parts p;
    p.entries = entries;
    p.words = v->by_expert ? 2 * entries : entries;
    p.splits = (int64_t *)(void *)(weft_k_pad(&v->call.group, v->call.group.rank) +
                                   v->call.group.stage_at + v->scratch * weft_k_block());
    p.rows = p.splits + size * p.words;
    p.bad = p.rows + 2 * size;
    p.totals = p.bad + size;
    p.from = p.totals + entries;
    p.to = p.from + entries;
    return p;
}

/* The rows that `source` has for expert `expert` of `rank`. */
WEFT_K int64_t weft_k_split(const weft_k_vdev *v, const weft_k_parts *p, int source, int rank,
                            int expert)
{
    int entry = v->by_expert ? expert * v->call.group.size + rank : rank * v->experts + expert;
    return p->splits[source * p->words + entry];
}

/* Of rows that are not negative; what has no number becomes the largest. */
WEFT_K int64_t weft_k_add_rows(int64_t a, int64_t b)
{
    return a > WEFT_K_ROWS_MOST - b ? WEFT_K_ROWS_MOST : a + b;
}

/* The row after `rows` rows of an expert that begins at `start`: an empty one takes a unit too. */
WEFT_K int64_t weft_k_after_expert(int64_t start, int64_t rows, int64_t align)
{
    if (!align)
        return weft_k_add_rows(start, rows);
    int64_t units = rows / align + (rows % align != 0);
    units = units ? units : 1;
    return units > (WEFT_K_ROWS_MOST - start) / align ? WEFT_K_ROWS_MOST : start + units * align;
}

WEFT_K int64_t *weft_k_rows_word(const weft_k_meeting *m, int rank)
{
    return (int64_t *)(void *)(weft_k_line(&m->call->group, rank, m->at, m->line) + WEFT_K_ROWS_AT);
}

WEFT_K void weft_k_show_rows(const weft_k_meeting *m, const weft_k_vdev *v)
{
    uint64_t *word = (uint64_t *)(void *)weft_k_rows_word(m, v->call.group.rank);
    if (weft_k_thread() ==
        0) { /* the arrival releases them; read after it in weft_k_fetch_tables */
        weft_k_store(word, (uint64_t)v->in_rows);
        weft_k_store(word + 1, (uint64_t)v->out_rows);
    }
    weft_k_sync();
}

WEFT_K void weft_k_fetch_tables(const weft_k_meeting *m, const weft_k_vdev *v,
                                const weft_k_parts *p)
{
    int64_t size = v->call.group.size, all = size * p->words;
    WEFT_K_NO_UNROLL
    for (int64_t i = weft_k_thread(); i < all; i += weft_k_threads()) {
        const char *table =
            v->splits + weft_k_shift(v->splits_step, v->splits_shifts, (int)(i / p->words));
        p->splits[i] = ((const int64_t *)(const void *)table)[i % p->words];
    }
    WEFT_K_NO_UNROLL
    for (int64_t i = weft_k_thread(); i < 2 * size; i += weft_k_threads())
        p->rows[i] = (int64_t)weft_k_load(
            (const uint64_t *)(const void *)weft_k_rows_word(m, (int)(i / 2)) + i % 2);
    weft_k_sync();
}

/* ---- the check, the same in all blocks of all ranks ---- */

/* Do the parts that a rank sends lie in its input? */
WEFT_K int weft_k_sends_fit(const weft_k_vdev *v, const weft_k_parts *p, int rank)
{
    const int64_t *splits = p->splits + rank * p->words;
    int64_t room = p->rows[2 * rank], at = 0;
    WEFT_K_NO_UNROLL
    for (int64_t i = 0; i < p->entries; i++) {
        int64_t rows = splits[i], from = at;
        if (v->by_expert)
            from = rows ? splits[p->entries + i] : 0;
        if (rows < 0 || from < 0 || from > room || rows > room - from)
            return 0;
        at += v->by_expert ? 0 : rows;
    }
    return 1;
}

/* Does what a rank receives fit its output? */
WEFT_K int weft_k_receipts_fit(const weft_k_vdev *v, const weft_k_parts *p, int rank)
{
    int64_t room = p->rows[2 * rank + 1], at = 0;
    WEFT_K_NO_UNROLL
    for (int e = 0; e < v->experts; e++) {
        int64_t rows = p->totals[rank * v->experts + e];
        if (rows && (at > room || rows > room - at))
            return 0;
        at = weft_k_after_expert(at, rows, v->align);
    }
    return 1;
}

WEFT_K void weft_k_sum_receipts(const weft_k_vdev *v, const weft_k_parts *p)
{
    WEFT_K_NO_UNROLL
    for (int64_t i = weft_k_thread(); i < p->entries; i += weft_k_threads()) {
        int rank = (int)(i / v->experts), expert = (int)(i % v->experts);
        int64_t sum = 0;
        WEFT_K_NO_UNROLL
        for (int source = 0; source < v->call.group.size; source++)
            sum = weft_k_add_rows(sum, weft_k_split(v, p, source, rank, expert));
        p->totals[i] = sum;
    }
    weft_k_sync();
}

/* Judges all ranks' parts; `what` says whether those they send or those they receive. */
WEFT_K int weft_k_judge(const weft_k_vdev *v, const weft_k_parts *p, int what)
{
    int fine = 1;
    WEFT_K_NO_UNROLL
    for (int r = (int)weft_k_thread(); r < v->call.group.size; r += (int)weft_k_threads()) {
        int fits = what == WEFT_K_SENT ? weft_k_sends_fit(v, p, r) : weft_k_receipts_fit(v, p, r);
        p->bad[r] = fits ? 0 : what;
        fine &= fits;
    }
    return weft_k_sync_all(fine);
}

/* Tells the host of the first rank whose parts do not fit. */
WEFT_K void weft_k_refuse(const weft_k_vdev *v, const weft_k_parts *p, int what)
{
    weft_k_record *record = v->call.group.record;
    int rank = 0;
    if (weft_k_block() || weft_k_thread())
        return;
    while (!p->bad[rank])
        rank++;
    weft_k_store(&record->refused_rank, (uint64_t)rank);
    weft_k_store(&record->refused_rows,
                 (uint64_t)p->rows[2 * rank + (what == WEFT_K_SENT ? 0 : 1)]);
    weft_k_store(&record->refused_kind, v->call.signature[1]);
    weft_k_store_release(&record->refused, (uint64_t)what); /* pairs with the host's look */
}

/* All threads alike. */
WEFT_K int weft_k_parts_fit(const weft_k_vdev *v, const weft_k_parts *p)
{
    int what = WEFT_K_SENT;
    int fine = weft_k_judge(v, p, what);
    if (fine) {
        weft_k_sum_receipts(v, p);
        what = WEFT_K_RECEIVED;
        fine = weft_k_judge(v, p, what);
    }
    if (!fine)
        weft_k_refuse(v, p, what);
    return fine;
}

/* ---- where parts lie and go ---- */

/* What `source` has for this rank, in its input. */
WEFT_K void weft_k_find_parts(const weft_k_vdev *v, const weft_k_parts *p, int source)
{
    const int64_t *splits = p->splits + source * p->words;
    int me = v->call.group.rank, first = me * v->experts;
    int64_t at = 0;
    WEFT_K_NO_UNROLL
    for (int i = 0; !v->by_expert && i < first; i++)
        at += splits[i];
    WEFT_K_NO_UNROLL
    for (int e = 0; e < v->experts; e++) {
        p->from[source * v->experts + e] =
            v->by_expert ? splits[p->entries + e * v->call.group.size + me] : at;
        at += weft_k_split(v, p, source, me, e);
    }
}

WEFT_K void weft_k_place_part(const weft_k_vdev *v, const weft_k_parts *p, int source, int expert,
                              int64_t entry, int64_t *at)
{
    int64_t rows = weft_k_split(v, p, source, v->call.group.rank, expert);
    p->to[source * v->experts + expert] = *at;
    if (weft_k_block() == 0) {
        v->table[entry] = rows;
        v->table[p->entries + entry] = *at;
    }
    *at += rows;
}

/* Expert number `expert` of an output by experts: what all sources have for it. */
WEFT_K void weft_k_place_expert(const weft_k_vdev *v, const weft_k_parts *p, int expert)
{
    const int64_t *totals = p->totals + v->call.group.rank * v->experts;
    int64_t at = 0, entry = (int64_t)expert * v->call.group.size;
    WEFT_K_NO_UNROLL
    for (int e = 0; e < expert; e++)
        at = weft_k_after_expert(at, totals[e], v->align);
    WEFT_K_NO_UNROLL
    for (int source = 0; source < v->call.group.size; source++)
        weft_k_place_part(v, p, source, expert, entry + source, &at);
}

/* Source number `source` of an output by ranks: what it has for all experts. */
WEFT_K void weft_k_place_source(const weft_k_vdev *v, const weft_k_parts *p, int source)
{
    int64_t at = 0, entry = (int64_t)source * v->experts;
    WEFT_K_NO_UNROLL
    for (int before = 0; before < source; before++)
        WEFT_K_NO_UNROLL
    for (int e = 0; e < v->experts; e++)
        at += weft_k_split(v, p, before, v->call.group.rank, e);
    WEFT_K_NO_UNROLL
    for (int e = 0; e < v->experts; e++)
        weft_k_place_part(v, p, source, e, entry + e, &at);
}

WEFT_K void weft_k_plan_parts(const weft_k_vdev *v, const weft_k_parts *p)
{
    int size = v->call.group.size, lines = v->by_expert ? size : v->experts;
    WEFT_K_NO_UNROLL
    for (int i = (int)weft_k_thread(); i < size; i += (int)weft_k_threads())
        weft_k_find_parts(v, p, i);
    WEFT_K_NO_UNROLL
    for (int i = (int)weft_k_thread(); i < lines; i += (int)weft_k_threads()) {
        if (v->by_expert)
            weft_k_place_source(v, p, i);
        else
            weft_k_place_expert(v, p, i);
    }
    weft_k_sync();
}

/* ---- pulling ---- */

/* The largest elements of up to 8 bytes in which both can be read. */
WEFT_K uint32_t weft_k_element_size(const char *a, const char *b, uint64_t bytes)
{
    uint64_t bits = (uint64_t)(uintptr_t)a | (uint64_t)(uintptr_t)b | bytes | 8;
    return (uint32_t)(bits & (~bits + 1));
}

/* Small parts are taken by one block each, by turns: `turn` moves the blocks round. */
WEFT_K void weft_k_pull_part(const weft_k_vdev *v, const weft_k_parts *p, int source, int expert,
                             uint64_t turn)
{
    const weft_k_shape shape = {4, 0, 0};
    int64_t part = (int64_t)source * v->experts + expert;
    uint64_t row = v->call.count, blocks = weft_k_blocks();
    uint64_t bytes = (uint64_t)weft_k_split(v, p, source, v->call.group.rank, expert) * row;
    const char *from = v->call.from + weft_k_shift(v->call.from_step, v->call.from_shifts, source) +
                       (uint64_t)p->from[part] * row;
    weft_k_sink sink = {v->call.out + (uint64_t)p->to[part] * row, 0, 1, 0};
    if (bytes)
        weft_k_spread(sink, from, bytes, weft_k_element_size(from, sink.to, bytes),
                      weft_k_deal_out(shape, (weft_k_block() + turn) % blocks, blocks), shape);
}

WEFT_K void weft_k_run_vdev(const weft_k_vdev *v)
{
    weft_k_begin();
    const weft_k_group *g = &v->call.group;
    weft_k_meeting m = weft_k_next_meeting(&v->call);
    weft_k_show_rows(&m, v);
    if (!weft_k_enter(&m, 1))
        return;
    weft_k_parts p = weft_k_lay_out_parts(v);
    weft_k_fetch_tables(&m, v, &p);
    if (weft_k_parts_fit(v, &p)) {
        weft_k_plan_parts(v, &p);
        uint64_t turn = 0;
        int source = g->rank;
        WEFT_K_NO_UNROLL
        for (int k = 0; k < g->size; k++) {
            WEFT_K_NO_UNROLL
            for (int e = 0; e < v->experts; e++)
                weft_k_pull_part(v, &p, source, e, turn++);
            source = source + 1 < g->size ? source + 1 : 0;
        }
    }
    weft_k_leave(&m); /* also after a refusal: the others may still read our splits */
}

#endif
