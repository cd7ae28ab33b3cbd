/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes go together.  Nodes are taken in their order; each joins the group of an operand if
 * it loops over the same elements, and joins further groups through it.  Two units (a group, or a
 * node alone) may become one only if no third lies on a way from one to the other: it would have to
 * run both before and after.
 */
#include "base/os/os.h"
#include "graph/emit/emit.h"
#include "graph/ir/order.h"

#include <string.h>

typedef struct finding {
    const weft_graph *graph;
    weft_i_emit_groups *out;
    int *seen;  /* of each node: the search that was there last */
    int *stack; /* room for one search */
    int search;
} finding;

static bool same_shape(const weft_shape *a, const weft_shape *b)
{
    return a->ndim == b->ndim && !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

static int64_t row_length(const weft_i_emit_group *group)
{
    int64_t n = 1;
    for (int i = group->shape.ndim - group->inner; i < group->shape.ndim; i++)
        n *= group->shape.dim[i];
    return n;
}

/* Whether the shape has one element for each row: the last dimensions are 1, or not there. */
static bool is_row_shape(const weft_i_emit_group *group, const weft_shape *shape)
{
    int kept = group->shape.ndim - group->inner;
    if (!group->inner || (shape->ndim != kept && shape->ndim != group->shape.ndim))
        return false;
    for (int i = 0; i < shape->ndim; i++)
        if (shape->dim[i] != (i < kept ? group->shape.dim[i] : 1))
            return false;
    return true;
}

/* The group of the node that makes the value; -1: none. */
static int group_of(const finding *f, int value)
{
    int node = f->graph->values[value].node;
    return node < 0 ? -1 : f->out->of[node];
}

static bool is_row_node(weft_i_emit_kind kind)
{
    return kind >= WEFT_I_EMIT_REDUCE;
}

static bool is_column_sum(const finding *f, int node)
{
    const char *why;
    return weft_i_emit_kind_of(f->graph, &f->graph->nodes[node], &why) == WEFT_I_EMIT_COLUMNS;
}

/* Whether it has an element for each of the loop's. */
static bool is_wide_kind(weft_i_emit_kind kind)
{
    return kind != WEFT_I_EMIT_REDUCE && kind != WEFT_I_EMIT_COLUMNS;
}

/* Whether all operands from inside the group are what a node of this width can read. */
static bool operands_fit(const finding *f, int g, const weft_i_graph_node *node, bool wide)
{
    const weft_i_emit_group *group = &f->out->at[g];
    const weft_shape *made = &f->graph->values[node->first].shape;
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
        const weft_shape *shape = &f->graph->values[value].shape;
        if (group_of(f, value) != g)
            continue;
        if (is_column_sum(f, f->graph->values[value].node))
            return false; /* not there before the last row */
        bool from_wide = f->out->wide[f->graph->values[value].node];
        bool aligned = shape->ndim == group->shape.ndim || shape->ndim == 0;
        if (wide ? !from_wide && (!aligned || row_length(group) > WEFT_I_EMIT_ROW)
                 : from_wide || !same_shape(shape, made))
            return false;
    }
    return true;
}

/* Rows of which softmax and layer_norm, and reductions, need the same length. */
static bool row_node_fits(const finding *f, int g, const weft_i_graph_node *node,
                          weft_i_emit_kind kind)
{
    const weft_i_emit_group *group = &f->out->at[g];
    int inner = weft_i_emit_row_dims(f->graph, node);
    weft_i_emit_group rows = {.shape = group->shape, .inner = inner};
    if (group->inner && group->inner != inner)
        return false;
    for (int i = 0; i < 1 + (kind == WEFT_I_EMIT_SOFTMAX_GRAD); i++) {
        int x = node->terms[i].value;
        if (!same_shape(&f->graph->values[x].shape, &group->shape) ||
            (group_of(f, x) == g && !f->out->wide[f->graph->values[x].node]))
            return false;
    }
    if (kind == WEFT_I_EMIT_REDUCE)
        return true;
    for (int i = 2; kind == WEFT_I_EMIT_LAYER && i <= 3; i++)
        if (node->terms[i].kind == WEFT_I_ARG_TENSOR && group_of(f, node->terms[i].value) == g)
            return false;
    return row_length(&rows) <=
           (kind == WEFT_I_EMIT_COLUMNS ? WEFT_I_EMIT_COLUMN_MOST : WEFT_I_EMIT_ROW);
}

static bool fits(const finding *f, int g, const weft_i_graph_node *node, weft_i_emit_kind kind,
                 bool *wide)
{
    const weft_i_emit_group *group = &f->out->at[g];
    const weft_shape *shape = &f->graph->values[node->first].shape;
    if (group->count == WEFT_I_EMIT_MEMBERS)
        return false;
    *wide = is_wide_kind(kind);
    if (is_row_node(kind))
        return row_node_fits(f, g, node, kind);
    *wide = same_shape(shape, &group->shape);
    return (*wide || is_row_shape(group, shape)) && operands_fit(f, g, node, *wide);
}

/* Nodes of the unit that node `i` is in. */
static int unit_nodes(const finding *f, int i, const int **out, const int *alone)
{
    int g = f->out->of[i];
    *out = g < 0 ? alone : f->out->at[g].nodes;
    return g < 0 ? 1 : f->out->at[g].count;
}

static bool is_in(const finding *f, int node, int g, int i)
{
    return g >= 0 ? f->out->of[node] == g : node == i;
}

/* Puts on the stack what the unit of node `i` comes after, but for units `a` and what was seen. */
static int push_before(finding *f, int i, int top)
{
    const int *nodes, *starts = f->out->starts;
    int count = unit_nodes(f, i, &nodes, &i);
    for (int k = 0; k < count; k++)
        for (int e = starts[nodes[k]]; e < starts[nodes[k] + 1]; e++) {
            int on = f->out->on[e];
            if (f->seen[on] == f->search)
                continue;
            f->seen[on] = f->search;
            f->stack[top++] = on;
        }
    return top;
}

/* Whether a third unit lies on a way from group `from` to the unit `to` (a group, or node `i`). */
static bool is_between(finding *f, int from, int to, int i)
{
    f->search++;
    int top = push_before(f, to >= 0 ? f->out->at[to].nodes[0] : i, 0), kept = 0;
    for (int k = 0; k < top; k++) /* a direct way does no harm */
        if (f->out->of[f->stack[k]] != from && !is_in(f, f->stack[k], to, i))
            f->stack[kept++] = f->stack[k];
    /* Those of the two units may be reached again by others. */
    for (int k = 0; k < f->graph->node_count; k++)
        if (f->out->of[k] == from && f->seen[k] == f->search)
            f->seen[k] = 0;
    while (kept) {
        int node = f->stack[--kept];
        if (f->out->of[node] == from)
            return true;
        kept = push_before(f, node, kept);
    }
    return false;
}

static void put_sorted(weft_i_emit_group *group, int node)
{
    int at = group->count++;
    for (; at > 0 && group->nodes[at - 1] > node; at--)
        group->nodes[at] = group->nodes[at - 1];
    group->nodes[at] = node;
}

static void join(finding *f, int g, int i, weft_i_emit_kind kind, bool wide)
{
    weft_i_emit_group *group = &f->out->at[g];
    put_sorted(group, i);
    f->out->of[i] = g;
    f->out->wide[i] = wide;
    if (is_row_node(kind))
        group->inner = weft_i_emit_row_dims(f->graph, &f->graph->nodes[i]);
}

/* Whether a member that has the width of elements reads one that has the width of rows, or rows are
 * worked on as arrays: such rows must stay in the cache. */
static bool needs_short_rows(const finding *f, int g)
{
    const weft_i_emit_group *group = &f->out->at[g];
    const char *why;
    int value;
    for (int k = 0; k < group->count; k++) {
        const weft_i_graph_node *node = &f->graph->nodes[group->nodes[k]];
        if (weft_i_emit_kind_of(f->graph, node, &why) > WEFT_I_EMIT_REDUCE)
            return true;
        for (size_t at = 0;
             f->out->wide[group->nodes[k]] && weft_i_graph_node_next(node, &at, &value);)
            if (group_of(f, value) == g && !f->out->wide[f->graph->values[value].node])
                return true;
    }
    return false;
}

/* Whether every member can read what it reads from inside. */
static bool holds(const finding *f, int g)
{
    const weft_i_emit_group *group = &f->out->at[g];
    const char *why;
    for (int k = 0; k < group->count; k++) {
        const weft_i_graph_node *node = &f->graph->nodes[group->nodes[k]];
        weft_i_emit_kind kind = weft_i_emit_kind_of(f->graph, node, &why);
        if (is_row_node(kind) ? !row_node_fits(f, g, node, kind)
                              : !operands_fit(f, g, node, f->out->wide[group->nodes[k]]))
            return false;
    }
    return row_length(group) <= WEFT_I_EMIT_ROW || !needs_short_rows(f, g);
}

static void move_all(finding *f, const weft_i_emit_group *group, int to)
{
    for (int k = 0; k < group->count; k++)
        f->out->of[group->nodes[k]] = to;
}

/* Makes the groups one, if that can be. */
static void unite(finding *f, int a, int b)
{
    weft_i_emit_group *to = &f->out->at[a], *from = &f->out->at[b], before = *to;
    if (!same_shape(&to->shape, &from->shape) ||
        (to->inner && from->inner && to->inner != from->inner) ||
        to->count + from->count > WEFT_I_EMIT_MEMBERS || is_between(f, a, b, -1) ||
        is_between(f, b, a, -1))
        return;
    to->inner = to->inner ? to->inner : from->inner;
    for (int k = 0; k < from->count; k++)
        put_sorted(to, from->nodes[k]);
    move_all(f, from, a);
    if (holds(f, a)) {
        from->count = 0;
        return;
    }
    *to = before;
    move_all(f, from, b);
}

static void start_group(finding *f, int i, weft_i_emit_kind kind)
{
    const weft_i_graph_node *node = &f->graph->nodes[i];
    int like = is_row_node(kind) ? node->terms[0].value : node->first;
    int g = f->out->count++;
    f->out->at[g] = (weft_i_emit_group){.shape = f->graph->values[like].shape};
    join(f, g, i, kind, is_wide_kind(kind));
}

/* The groups of the node's operands that it fits: the first takes it, the others are united. */
static void place(finding *f, int i, weft_i_emit_kind kind)
{
    const weft_i_graph_node *node = &f->graph->nodes[i];
    bool wide;
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);) {
        int g = group_of(f, value);
        if (g < 0 || f->out->of[i] == g)
            continue;
        if (f->out->of[i] >= 0)
            unite(f, f->out->of[i], g);
        else if (fits(f, g, node, kind, &wide) && !is_between(f, g, -1, i))
            join(f, g, i, kind, wide);
        else
            f->out->why[i] = "its operands are looped over differently, or something lies between";
    }
    if (f->out->of[i] < 0)
        start_group(f, i, kind);
}

void weft_i_emit_groups_dissolve(weft_i_emit_groups *groups, int group, const char *why)
{
    for (int k = 0; k < groups->at[group].count; k++) {
        groups->of[groups->at[group].nodes[k]] = -1;
        groups->why[groups->at[group].nodes[k]] = why;
    }
    groups->at[group].count = 0;
}

/* Whether nothing but views lies between the first and the last node of the two groups: then what
 * they make lives no longer if they are one. */
static bool are_close(const finding *f, int a, int b)
{
    const weft_i_emit_group *x = &f->out->at[a], *y = &f->out->at[b];
    int low = x->nodes[0] < y->nodes[0] ? x->nodes[0] : y->nodes[0];
    int x_last = x->nodes[x->count - 1], y_last = y->nodes[y->count - 1];
    for (int i = low; i < (x_last > y_last ? x_last : y_last); i++)
        if (f->out->of[i] != a && f->out->of[i] != b &&
            !(f->graph->nodes[i].op->flags & WEFT_I_OP_VIEW))
            return false;
    return true;
}

static bool share_input(const finding *f, int a, int b)
{
    int value, other;
    for (int k = 0; k < f->out->at[a].count; k++)
        for (size_t at = 0;
             weft_i_graph_node_next(&f->graph->nodes[f->out->at[a].nodes[k]], &at, &value);)
            for (int l = 0; l < f->out->at[b].count; l++)
                for (size_t to = 0;
                     weft_i_graph_node_next(&f->graph->nodes[f->out->at[b].nodes[l]], &to, &other);)
                    if (value == other)
                        return true;
    return false;
}

/* Neighbours that read the same: once is enough. */
static void unite_readers(finding *f)
{
    for (int a = 0; a < f->out->count; a++)
        for (int b = a + 1; b < f->out->count; b++)
            if (f->out->at[a].count && f->out->at[b].count && are_close(f, a, b) &&
                share_input(f, a, b))
                unite(f, a, b);
}

static void drop_lone(finding *f)
{
    const char *why;
    for (int g = 0; g < f->out->count; g++) {
        weft_i_emit_group *group = &f->out->at[g];
        int work = 0;
        for (int k = 0; k < group->count; k++)
            work += weft_i_emit_kind_of(f->graph, &f->graph->nodes[group->nodes[k]], &why) !=
                    WEFT_I_EMIT_CONSTANT;
        const char *reason = group->count ? f->out->why[group->nodes[0]] : NULL;
        if (group->count && work < 2)
            weft_i_emit_groups_dissolve(f->out, g, reason ? reason : "it has no neighbour to join");
    }
}

static weft_status get_room(const weft_graph *graph, weft_i_emit_groups *out)
{
    size_t nodes = (size_t)graph->node_count + 1;
    out->at = WEFT_OS->alloc(nodes * sizeof *out->at);
    out->of = WEFT_OS->alloc(nodes * sizeof *out->of);
    out->wide = WEFT_OS->alloc(nodes * sizeof *out->wide);
    out->why = WEFT_OS->alloc(nodes * sizeof *out->why);
    out->order = WEFT_OS->alloc(2 * nodes * sizeof *out->order);
    if (!out->at || !out->of || !out->wide || !out->why || !out->order)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to group %d nodes", graph->node_count);
    memset(out->of, 0xff, nodes * sizeof *out->of);
    weft_i_graph_order order;
    WEFT_TRY(weft_i_graph_order_find(graph, WEFT_I_CHAIN_ALL, &order));
    out->starts = order.starts;
    out->on = order.on;
    return WEFT_OK;
}

weft_status weft_i_emit_groups_find(const weft_graph *graph, weft_i_emit_groups *out)
{
    *out = (weft_i_emit_groups){0};
    WEFT_TRY(get_room(graph, out));
    size_t nodes = (size_t)graph->node_count + 1;
    finding f = {.graph = graph, .out = out, .seen = WEFT_OS->alloc(2 * nodes * sizeof *f.seen)};
    if (!f.seen)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to group %d nodes", graph->node_count);
    f.stack = f.seen + nodes;
    for (int i = 0; i < graph->node_count; i++) {
        weft_i_emit_kind kind = weft_i_emit_kind_of(graph, &graph->nodes[i], &out->why[i]);
        if (kind != WEFT_I_EMIT_NOT)
            place(&f, i, kind);
    }
    unite_readers(&f);
    drop_lone(&f);
    WEFT_OS->free(f.seen);
    return WEFT_OK;
}

void weft_i_emit_groups_clear(weft_i_emit_groups *groups)
{
    WEFT_OS->free(groups->at);
    WEFT_OS->free(groups->of);
    WEFT_OS->free(groups->wide);
    WEFT_OS->free(groups->why);
    WEFT_OS->free(groups->order);
    WEFT_OS->free(groups->starts);
    WEFT_OS->free(groups->on);
    *groups = (weft_i_emit_groups){0};
}

/* Whether all that the unit of node `i` comes after is done, but for itself. */
static bool is_due(const weft_i_emit_groups *groups, const bool *done, const int *nodes, int count)
{
    for (int k = 0; k < count; k++)
        for (int e = groups->starts[nodes[k]]; e < groups->starts[nodes[k] + 1]; e++) {
            int on = groups->on[e], g = groups->of[nodes[k]];
            if (!done[on] && (g < 0 || groups->of[on] != g))
                return false;
        }
    return true;
}

/* Takes the unit of node `i`, if it is due and `i` its last node. */
static bool take(weft_i_emit_groups *groups, bool *done, int i)
{
    int g = groups->of[i], count = g < 0 ? 1 : groups->at[g].count;
    const int *nodes = g < 0 ? &i : groups->at[g].nodes;
    if (done[i] || !is_due(groups, done, nodes, count))
        return false;
    for (int k = 0; k < count; k++)
        done[nodes[k]] = true;
    groups->order[groups->units++] = g < 0 ? -1 - i : g;
    return true;
}

/* The units by the place of their last node, and earlier ones as soon as nobody keeps them
 * waiting. */
static void take_all(const weft_graph *graph, weft_i_emit_groups *groups, bool *done)
{
    for (int low = 0, i = 0; i < graph->node_count;) {
        int g = groups->of[i];
        bool last = g < 0 || groups->at[g].nodes[groups->at[g].count - 1] == i;
        if (!last || !take(groups, done, i)) {
            i++;
            continue;
        }
        while (low < graph->node_count && done[low])
            low++;
        i = low;
    }
}

weft_status weft_i_emit_groups_order(const weft_graph *graph, weft_i_emit_groups *groups)
{
    bool *done = WEFT_OS->alloc((size_t)graph->node_count + 1), all = true;
    if (!done)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to order %d nodes", graph->node_count);
    groups->units = 0;
    take_all(graph, groups, done);
    for (int i = 0; i < graph->node_count; i++)
        all &= done[i];
    WEFT_OS->free(done);
    return all ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INTERNAL, "\"%s\": groups wait for each other", graph->name);
}
