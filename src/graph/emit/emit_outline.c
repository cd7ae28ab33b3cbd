/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order inside one function, and how its operands lie.  A row is walked in phases: what is
 * computed from sums of a phase belongs to a later one.
 */
#include "graph/emit/emit.h"

#include "base/share/dtype.h"
#include "kernels/vector/pointwise.h"

#include <string.h>

const weft_i_emit_member *weft_i_emit_member_of(const weft_i_emit_outline *outline, int value)
{
    for (int i = 0; i < outline->count; i++)
        if (outline->members[i].value == value)
            return &outline->members[i];
    return NULL;
}

int weft_i_emit_operand_of(const weft_i_emit_outline *outline, int value, bool wide, bool written)
{
    for (int i = 0; i < outline->operand_count; i++) {
        const weft_i_emit_operand *operand = &outline->operands[i];
        if (operand->value == value && operand->wide == wide && operand->written == written)
            return i;
    }
    return -1;
}

/* ---- members ---- */

static bool is_wide(const weft_i_emit_outline *o, const weft_i_emit_member *m)
{
    const weft_shape *shape = &o->graph->values[m->value].shape;
    return m->kind != WEFT_I_EMIT_REDUCE && m->kind != WEFT_I_EMIT_COLUMNS &&
           shape->ndim == o->group->shape.ndim &&
           !memcmp(shape->dim, o->group->shape.dim, (size_t)shape->ndim * sizeof *shape->dim);
}

static void add_member(weft_i_emit_outline *o, int i)
{
    const weft_i_graph_node *node = &o->graph->nodes[i];
    weft_i_emit_member *m = &o->members[o->count];
    const char *why;
    int value;
    *m = (weft_i_emit_member){.node = i, .value = node->first, .slot = -1, .out = -1};
    m->kind = weft_i_emit_kind_of(o->graph, node, &why);
    m->dtype = o->graph->values[m->value].dtype;
    m->compute = weft_i_emit_compute(o->graph, node);
    m->wide = is_wide(o, m);
    o->angles |= m->kind == WEFT_I_EMIT_POINTWISE && (node->op->kernel == WEFT_I_POINTWISE_sin ||
                                                      node->op->kernel == WEFT_I_POINTWISE_cos);
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
        const weft_i_emit_member *from = weft_i_emit_member_of(o, value);
        if (from && from->ready > m->phase)
            m->phase = from->ready;
    }
    m->ready = m->phase + (m->kind >= WEFT_I_EMIT_REDUCE && m->kind != WEFT_I_EMIT_COLUMNS);
    o->phases = m->ready + 1 > o->phases ? m->ready + 1 : o->phases;
    o->count++;
}

static weft_i_emit_member *inside(weft_i_emit_outline *o, int value)
{
    return (weft_i_emit_member *)weft_i_emit_member_of(o, value);
}

/* Which members are read as arrays, because a later phase or a whole row needs them. */
static void note_kept(weft_i_emit_outline *o)
{
    int value;
    for (int i = 0; i < o->count; i++) {
        const weft_i_emit_member *m = &o->members[i];
        const weft_i_graph_node *node = &o->graph->nodes[m->node];
        bool rows = weft_i_emit_is_rows(m->kind);
        for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
            weft_i_emit_member *from = inside(o, value);
            if (from && from->wide && from->kind < WEFT_I_EMIT_REDUCE &&
                (m->phase > from->phase || rows))
                from->kept = true;
        }
        if (rows)
            o->members[i].kept = true;
    }
}

/* ---- operands ---- */

/* The stride of operand dimension for dimension d of the loop, 0 where it is repeated. */
static int64_t stride_at(const weft_i_graph_value *value, int d, int ndim)
{
    int own = d - (ndim - value->shape.ndim);
    return own < 0 || value->shape.dim[own] == 1 ? 0 : value->stride[own];
}

/* The last dimensions as one; false if they do not follow each other. */
static bool inner_stride(const weft_i_emit_outline *o, const weft_i_graph_value *value,
                         int64_t *out)
{
    const weft_shape *shape = &o->group->shape;
    bool found = false;
    int64_t step = 0;
    for (int d = shape->ndim - 1; d >= shape->ndim - o->group->inner; d--) {
        int64_t here = stride_at(value, d, shape->ndim);
        if (shape->dim[d] == 1)
            continue;
        if (!found)
            *out = here;
        else if (here != step)
            return false;
        step = here * shape->dim[d];
        found = true;
    }
    if (!found)
        *out = 1;
    return true;
}

static bool add_operand(weft_i_emit_outline *o, int value, int at, bool wide, bool written)
{
    const weft_i_graph_value *v = &o->graph->values[value];
    int ndim = o->group->shape.ndim, kept = ndim - o->group->inner;
    if (weft_i_emit_operand_of(o, value, wide, written) >= 0)
        return true;
    weft_i_emit_operand *operand = &o->operands[o->operand_count++];
    *operand = (weft_i_emit_operand){.value = value, .at = at, .wide = wide, .written = written};
    if (wide && o->group->inner && !inner_stride(o, v, &operand->inner))
        return false;
    /* What has the width of rows has their dimensions first, with or without ones behind. */
    for (int d = 0; d < (o->group->inner ? kept : ndim); d++)
        operand->outer[d] = wide                                       ? stride_at(v, d, ndim)
                            : v->shape.ndim > d && v->shape.dim[d] > 1 ? v->stride[d]
                                                                       : 0;
    return true;
}

static int index_in(int *list, int *count, int value)
{
    for (int i = 0; i < *count; i++)
        if (list[i] == value)
            return i;
    if (*count == WEFT_I_EMIT_OPERANDS)
        return -1;
    list[*count] = value;
    return (*count)++;
}

/* Of what has the width of rows: an operand from outside must lie as the result does. */
static bool row_operand_fits(const weft_i_emit_outline *o, const weft_i_emit_member *m, int value)
{
    const weft_i_graph_value *v = &o->graph->values[value];
    return v->shape.ndim == o->graph->values[m->value].shape.ndim ||
           weft_i_emit_numel(&v->shape) == 1;
}

static bool add_reads(weft_i_emit_outline *o, const weft_i_emit_member *m, const char **why)
{
    const weft_i_graph_node *node = &o->graph->nodes[m->node];
    bool wide = m->wide || m->kind == WEFT_I_EMIT_REDUCE || m->kind == WEFT_I_EMIT_COLUMNS;
    int value, seen = 0;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value); seen++) {
        if (weft_i_emit_member_of(o, value))
            continue;
        int index = index_in(o->in, &o->ins, value);
        *why = "it has too many operands";
        if (index < 0)
            return false;
        if (m->kind == WEFT_I_EMIT_LAYER && seen > 0)
            continue; /* weight and bias are read as they are */
        *why = "an operand's last dimensions do not follow each other in memory";
        if (!wide && !row_operand_fits(o, m, value))
            return false;
        if (!add_operand(o, value, index, wide, false))
            return false;
    }
    return true;
}

/* A row of results that stays where it is; false if it has gaps. */
static bool set_columns(weft_i_emit_outline *o, const weft_i_emit_member *m)
{
    const weft_i_graph_value *v = &o->graph->values[m->value];
    weft_i_emit_operand *operand = &o->operands[weft_i_emit_operand_of(o, m->value, false, true)];
    int64_t stride[WEFT_MAX_DIMS];
    weft_i_shape_strides(v->shape, stride);
    memset(operand->outer, 0, sizeof operand->outer);
    for (int d = 0; d < v->shape.ndim; d++)
        if (v->shape.dim[d] != 1 && v->stride[d] != stride[d])
            return false;
    return true;
}

static bool add_writes(weft_i_emit_outline *o, const bool *outside, const char **why)
{
    for (int i = 0; i < o->count; i++) {
        weft_i_emit_member *m = &o->members[i];
        if (!outside[m->value])
            continue;
        *why = "it has too many results";
        if ((m->out = index_in(o->out, &o->outs, m->value)) < 0)
            return false;
        *why = "a result's last dimensions do not follow each other in memory";
        if (!add_operand(o, m->value, m->out, m->wide, true) ||
            (m->kind == WEFT_I_EMIT_COLUMNS && !set_columns(o, m)))
            return false;
    }
    return true;
}

/* ---- the loops ---- */

static void swap_dims(weft_i_emit_outline *o, int a, int b)
{
    int64_t dim = o->dim[a];
    o->dim[a] = o->dim[b];
    o->dim[b] = dim;
    for (int k = 0; k < o->operand_count; k++) {
        int64_t *outer = o->operands[k].outer, stride = outer[a];
        outer[a] = outer[b];
        outer[b] = stride;
    }
}

static void copy_dim(weft_i_emit_outline *o, int to, int from)
{
    o->dim[to] = o->dim[from];
    for (int k = 0; k < o->operand_count; k++)
        o->operands[k].outer[to] = o->operands[k].outer[from];
}

/* The first result decides the order of loops, as in kernels/walk/loop.c. */
static bool is_outside(const weft_i_emit_outline *o, int a, int b)
{
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < o->operand_count; k++) {
            const weft_i_emit_operand *operand = &o->operands[k];
            if (operand->written != (pass == 0))
                continue;
            if (operand->outer[a] != operand->outer[b])
                return operand->outer[a] > operand->outer[b];
        }
    return false;
}

static bool joins(const weft_i_emit_outline *o, int outer, int inner)
{
    for (int k = 0; k < o->operand_count; k++)
        if (o->operands[k].outer[outer] != o->operands[k].outer[inner] * o->dim[inner])
            return false;
    return true;
}

static void join_dims(weft_i_emit_outline *o)
{
    int n = 0;
    for (int i = 0; i < o->outer; i++)
        if (o->dim[i] != 1)
            copy_dim(o, n++, i);
    o->outer = n;
    for (int i = 1; i < o->outer && !o->group->inner; i++)
        for (int j = i; j > 0 && is_outside(o, j, j - 1); j--)
            swap_dims(o, j, j - 1);
    n = 0;
    for (int i = 1; i < o->outer; i++) {
        int64_t dim = o->dim[n];
        bool joined = joins(o, n, i);
        copy_dim(o, joined ? n : ++n, i);
        o->dim[n] *= joined ? dim : 1;
    }
    o->outer = o->outer ? n + 1 : 0;
}

/* Without rows, the innermost loop is the one over a row. */
static void split_inner(weft_i_emit_outline *o)
{
    o->n = o->outer ? o->dim[--o->outer] : 1;
    for (int k = 0; k < o->operand_count; k++)
        o->operands[k].inner = o->n == 1 ? 1 : o->operands[k].outer[o->outer];
}

static void make_loops(weft_i_emit_outline *o)
{
    const weft_shape *shape = &o->group->shape;
    o->outer = shape->ndim - o->group->inner;
    memcpy(o->dim, shape->dim, (size_t)o->outer * sizeof *o->dim);
    o->n = 1;
    for (int i = o->outer; i < shape->ndim; i++)
        o->n *= shape->dim[i];
    join_dims(o);
    if (!o->group->inner)
        split_inner(o);
}

static bool is_small(weft_dtype dtype)
{
    return weft_i_dtype_is_small_float(dtype);
}

/*
 * Whether the rows of results go past the caches.  A row is computed in a scratch buffer and stored
 * when it is complete.  Written in place, every line would first be read from memory, half as much
 * traffic again.
 */
static bool rows_go_far(const weft_i_emit_outline *o)
{
    enum { LINE = 64 };
    size_t bytes = 0, elements = (size_t)weft_i_emit_numel(&o->group->shape);
#ifndef __x86_64__
    return false;
#endif
    for (int k = 0; k < o->operand_count; k++) {
        const weft_i_emit_operand *operand = &o->operands[k];
        weft_dtype dtype = o->graph->values[operand->value].dtype;
        if (!operand->written || !operand->wide)
            continue;
        if (operand->inner != 1 || (dtype != WEFT_F32 && dtype != WEFT_F64) ||
            (size_t)o->n * weft_dtype_size(dtype) % LINE)
            return false;
        bytes += elements * weft_dtype_size(dtype);
    }
    return o->group->inner && o->n <= WEFT_I_EMIT_ROW && bytes >= WEFT_I_EMIT_FAR &&
           weft_i_emit_device(o) == WEFT_CPU;
}

/* Arrays: a result that lies like one is its own. */
static void give_slots(weft_i_emit_outline *o)
{
    int rows = 0;
    for (int i = 0; i < o->count; i++) {
        weft_i_emit_member *m = &o->members[i];
        int k = m->out < 0 ? -1 : weft_i_emit_operand_of(o, m->value, true, true);
        rows += weft_i_emit_arrays(m->kind);
        if (m->kept)
            m->listed = k >= 0 && o->operands[k].inner == 1 && !is_small(m->dtype);
        if ((m->kept && !m->listed) || (o->far_rows && k >= 0))
            m->slot = o->slots++;
    }
    o->slots += rows; /* what they read, unless that is an array already */
    for (int i = 0, columns = 0; i < o->count; i++)
        if (o->members[i].kind == WEFT_I_EMIT_COLUMNS)
            o->members[i].slot = columns++;
}

int64_t weft_i_emit_far_page(const weft_i_emit_outline *outline)
{
    enum { PAGE = 4096 };
    size_t least = sizeof(float); /* of 8 bytes: two pages */
    for (int k = 0; k < outline->operand_count; k++) {
        size_t size = weft_dtype_size(outline->graph->values[outline->operands[k].value].dtype);
        least = size < least ? size : least;
    }
    return PAGE / (int64_t)least;
}

/* Whether results go past the caches: they are large, nothing is needed twice, and all lies one
 * behind the other.  An Arm64 processor finds out by itself that whole lines are written. */
static bool goes_far(const weft_i_emit_outline *o)
{
    size_t bytes = 0, elements = (size_t)weft_i_emit_numel(&o->group->shape);
#ifndef __x86_64__
    return false;
#endif
    for (int k = 0; k < o->operand_count; k++) {
        const weft_i_emit_operand *operand = &o->operands[k];
        if (operand->inner != 1 && (operand->written || operand->inner != 0))
            return false;
        if (operand->written)
            bytes += elements * weft_dtype_size(o->graph->values[operand->value].dtype);
    }
    return !o->group->inner && o->n >= WEFT_I_EMIT_FAR_CHUNK && bytes >= WEFT_I_EMIT_FAR;
}

int64_t weft_i_emit_row_count(const weft_i_emit_outline *outline)
{
    int64_t rows = 1;
    for (int i = 0; i < outline->outer; i++)
        rows *= outline->dim[i];
    return rows;
}

/* The lanes of each block, and as many levels as there are bits in the number of blocks, and one more. */
size_t weft_i_emit_partials(const weft_i_emit_outline *outline)
{
    int64_t all = weft_i_emit_row_count(outline) / WEFT_I_EMIT_COLUMN_BLOCK + 1, rows = 2;
    for (int64_t blocks = all; blocks; blocks /= 2)
        rows++;
    return (size_t)(all * WEFT_I_EMIT_COLUMN_LANES + rows) * (size_t)outline->n * 8 + 64;
}

size_t weft_i_emit_sums(const weft_i_emit_outline *outline)
{
    size_t sums = 0;
    for (int i = 0; i < outline->count; i++)
        if (outline->members[i].kind == WEFT_I_EMIT_COLUMNS)
            sums += weft_i_emit_partials(outline);
    return sums;
}

int64_t weft_i_emit_units(const weft_i_emit_outline *outline)
{
    return weft_i_emit_row_count(outline) * ((outline->n + outline->piece - 1) / outline->piece);
}

int64_t weft_i_emit_work(const weft_i_emit_outline *outline)
{
    enum { STEP = 4, ROW = 16 }; /* bytes for each element and member */
    int64_t each = 0;
    for (int k = 0; k < outline->operand_count; k++)
        if (outline->operands[k].wide)
            each +=
                (int64_t)weft_dtype_size(outline->graph->values[outline->operands[k].value].dtype);
    for (int i = 0; i < outline->count; i++)
        each += weft_i_emit_is_rows(outline->members[i].kind) ? ROW : STEP;
    return each * weft_i_emit_numel(&outline->group->shape);
}

weft_device weft_i_emit_device(const weft_i_emit_outline *outline)
{
    return outline->graph->values[outline->members[0].value].device;
}

size_t weft_i_emit_scratch(const weft_i_emit_outline *outline)
{
    return ((size_t)outline->n * 8 + 64) * (size_t)outline->slots;
}

/*
 * Of groups without rows: where there are few rows, they are cut, so that threads can share them.  A
 * piece is a multiple of what a loop past the caches takes at a time.
 */
static void cut_rows(weft_i_emit_outline *o)
{
    enum { ENOUGH = 128, GRAIN = 4096, FAR_GRAIN = 16384 };
    int64_t grain = o->far ? FAR_GRAIN : GRAIN, rows = weft_i_emit_row_count(o);
    o->piece = o->n > 0 ? o->n : 1;
    if (o->group->inner || rows >= ENOUGH || o->n < 2 * grain)
        return;
    int64_t pieces = (ENOUGH + rows - 1) / (rows ? rows : 1);
    int64_t piece = (o->n / pieces + grain - 1) / grain * grain;
    o->piece = piece < grain ? grain : piece;
}

bool weft_i_emit_outline_make(const weft_graph *graph, const weft_i_emit_group *group,
                              const bool *outside, weft_i_emit_outline *out, const char **why)
{
    memset(out, 0, sizeof *out);
    out->graph = graph;
    out->group = group;
    for (int i = 0; i < group->count; i++)
        add_member(out, group->nodes[i]);
    note_kept(out);
    for (int i = 0; i < out->count; i++)
        if (!add_reads(out, &out->members[i], why))
            return false;
    if (!add_writes(out, outside, why))
        return false;
    make_loops(out);
    out->far_rows = rows_go_far(out);
    give_slots(out);
    out->far = goes_far(out);
    cut_rows(out);
    return true;
}
