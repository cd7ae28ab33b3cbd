/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets: collectives that follow each other and do not need each other become one over a list.
 * They have the same row, group, reduction, dtype and device, and together at most WEFT_BUCKET
 * bytes; no other collective stands between them, so none is swapped.  A bucket is started where
 * its last member stood; a node that needs the others comes after it.  If that needs more memory at the
 * peak, the largest bucket is halved, until it does not.
 */
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/text.h"
#include "functional/ops.h"
#include "graph/ir/order.h"
#include "graph/ir/replay.h"
#include "graph/pass/passes.h"
#include "tune/tune.h"

#include <string.h>

enum { TRIES = 32 }; /* buckets that are halved before all of them are given up */

typedef struct bucket {
    int first, last, count; /* nodes */
    size_t bytes;
} bucket;

typedef struct bucketing {
    weft_graph *graph;
    weft_i_graph_order order;
    bucket *buckets;
    int count;
    int *of;          /* of each node: the bucket that it is a member of; -1 */
    int *needs;       /* of each node: the last bucket that it needs a member of; -1 */
    int *result;      /* the new order; members of a bucket stand together */
    bool *cut;        /* of each node: it begins a bucket, or the peak would be higher */
    const char **why; /* of each collective that could have been in a bucket: why it is in none */
    size_t most;
    weft_i_trace trace;
    weft_i_replay replay;
} bucketing;

/* ---- who goes together ---- */

/* The row over lists; NULL: there is none. */
static const weft_i_op *list_of(const weft_i_graph_node *node)
{
    if (node->op == &weft_i_op_all_reduce)
        return &weft_i_op_all_reduce_coalesced;
    if (node->op == &weft_i_op_reduce_scatter_tensor)
        return &weft_i_op_reduce_scatter_tensor_coalesced;
    return node->op == &weft_i_op_all_gather_into_tensor && node->terms[1].integer == 0
               ? &weft_i_op_all_gather_into_tensor_coalesced
               : NULL;
}

/* What it moves: the larger of what it takes and gives. */
static size_t bytes_of(const weft_graph *graph, const weft_i_graph_node *node)
{
    const weft_i_graph_value *in = &graph->values[node->terms[0].value],
                             *out = &graph->values[node->first];
    int64_t a = weft_i_shape_numel(in->shape), b = weft_i_shape_numel(out->shape);
    return (size_t)(a > b ? a : b) * weft_dtype_size(in->dtype);
}

static bool same_term(const weft_i_graph_term *a, const weft_i_graph_term *b)
{
    switch (a->kind) {
    case WEFT_I_ARG_NUMBER:
        return a->number == b->number;
    case WEFT_I_ARG_GROUP:
        return a->group.handle == b->group.handle && !strcmp(a->group.name, b->group.name);
    default:
        return a->integer == b->integer;
    }
}

/* Each may have its own dimension where the list has dimensions. */
static bool are_alike(const weft_graph *graph, const weft_i_graph_node *a,
                      const weft_i_graph_node *b)
{
    const weft_i_graph_value *x = &graph->values[a->terms[0].value],
                             *y = &graph->values[b->terms[0].value];
    if (a->op != b->op || x->dtype != y->dtype || x->device != y->device || a->quiet != b->quiet)
        return false;
    for (int i = 1; i < a->op->arity; i++)
        if (!(a->op == &weft_i_op_reduce_scatter_tensor && i == 3) &&
            !same_term(&a->terms[i], &b->terms[i]))
            return false;
    return true;
}

/* Which bucket, of those from `from` on, the node comes after a member of. */
static int needed_by(const bucketing *b, int i, int from)
{
    int last = -1;
    for (int e = b->order.starts[i]; e < b->order.starts[i + 1]; e++) {
        int on = b->order.on[e];
        /* The chain of collectives does not count between members. */
        bool chain = weft_i_graph_node_is_collective(&b->graph->nodes[on]) &&
                     weft_i_graph_node_is_collective(&b->graph->nodes[i]);
        int here = b->of[on] >= 0 && !chain ? b->of[on] : -1;
        here = b->needs[on] > here ? b->needs[on] : here;
        last = here > last ? here : last;
    }
    return last >= from ? last : -1;
}

/* Why node `i` cannot join the bucket; NULL: it can. */
static const char *cannot_join(const bucketing *b, const bucket *to, int i, bool between)
{
    const weft_i_graph_node *node = &b->graph->nodes[i];
    if (between || !are_alike(b->graph, &b->graph->nodes[to->first], node))
        return "the one before it is of another kind, group, reduction or dtype";
    if (b->needs[i] == b->count - 1)
        return "it needs the result of the one before it";
    if (b->cut[i])
        return "together with those before it, it would need more memory";
    if (to->bytes + bytes_of(b->graph, node) > b->most)
        return "together with those before it, it is larger than WEFT_BUCKET";
    return NULL;
}

/* Every collective begins a bucket, unless it can join the last. */
static void fill(bucketing *b)
{
    bool between = false; /* a collective that fits no bucket came since the last one */
    memset(b->of, 0xff, ((size_t)b->graph->node_count + 1) * sizeof *b->of);
    b->count = 0;
    for (int i = 0; i < b->graph->node_count; i++) {
        const weft_i_graph_node *node = &b->graph->nodes[i];
        b->needs[i] = needed_by(b, i, 0);
        if (!weft_i_graph_node_is_collective(node))
            continue;
        if (!list_of(node) || node->into >= 0) {
            between = true;
            continue;
        }
        bucket *last = b->count ? &b->buckets[b->count - 1] : NULL;
        b->why[i] = last ? cannot_join(b, last, i, between) : "";
        between = false;
        if (!b->why[i]) {
            last->last = i;
            last->count++;
            last->bytes += bytes_of(b->graph, node);
        } else {
            b->buckets[b->count++] = (bucket){i, i, 1, bytes_of(b->graph, node)};
        }
        b->of[i] = b->count - 1;
    }
}

/* ---- the new order ---- */

static bool is_bucket(const bucketing *b, int k)
{
    return k >= 0 && b->buckets[k].count > 1;
}

/* Members, and who needs them, wait for the last member.  A later bucket is closed later, so who
 * waits for one needs none that is open besides. */
static void arrange(bucketing *b)
{
    int at = 0, from = 0;
    for (int i = 0; i < b->graph->node_count; i++) {
        int k = b->of[i];
        bool member = is_bucket(b, k);
        bool late = is_bucket(b, b->needs[i]) && i < b->buckets[b->needs[i]].last;
        if (!member && !late)
            b->result[at++] = i;
        if (!member || i != b->buckets[k].last)
            continue;
        for (int n = b->buckets[k].first; n <= i; n++)
            if (b->of[n] == k)
                b->result[at++] = n;
        from = b->buckets[k].first;
        for (int n = from; n < i; n++)
            if (b->of[n] != k && b->needs[n] == k)
                b->result[at++] = n;
    }
}

/* The largest bucket begins anew with the later half of its members. */
static void halve(bucketing *b)
{
    int worst = -1, seen = 0;
    for (int k = 0; k < b->count; k++)
        if (is_bucket(b, k) && (worst < 0 || b->buckets[k].bytes > b->buckets[worst].bytes))
            worst = k;
    for (int i = 0; worst >= 0 && i < b->graph->node_count; i++)
        if (b->of[i] == worst && seen++ == b->buckets[worst].count / 2)
            b->cut[i] = true;
}

/* The order with as many buckets as do not raise the peak; whether there are any. */
static weft_status choose(bucketing *b, bool *any)
{
    size_t before, after;
    WEFT_TRY(weft_i_graph_order_peak(b->graph, NULL, &before));
    for (int round = 0;; round++) {
        *any = false;
        fill(b);
        arrange(b);
        for (int k = 0; k < b->count; k++)
            *any |= is_bucket(b, k);
        WEFT_TRY(weft_i_graph_order_peak(b->graph, b->result, &after));
        if (after <= before || !*any)
            return WEFT_OK;
        if (round < TRIES)
            halve(b);
        else
            memset(b->cut, true, (size_t)b->graph->node_count);
    }
}

/* ---- rewriting ---- */

/* The arguments of the list: tensors, the first member's others, dimensions. */
static weft_status list_args(bucketing *b, int k, weft_i_arg *args, const weft_i_op *row)
{
    const bucket *from = &b->buckets[k];
    weft_graph *to = b->trace.graph;
    weft_tensor **in = weft_i_graph_alloc(to, (size_t)from->count * sizeof *in);
    int64_t *dims = weft_i_graph_alloc(to, (size_t)from->count * sizeof *dims);
    if (!in || !dims)
        return weft_last_status();
    int at = 0;
    for (int i = from->first; i <= from->last; i++) {
        const weft_i_graph_node *node = &b->graph->nodes[i];
        if (b->of[i] != k)
            continue;
        dims[at] = node->op == &weft_i_op_reduce_scatter_tensor ? node->terms[3].integer : 0;
        if (!(in[at++] = weft_i_replay_value(&b->replay, node->terms[0].value)))
            return weft_last_status();
    }
    weft_i_arg old[WEFT_I_OP_ARGS];
    const weft_i_graph_node *first = &b->graph->nodes[from->first];
    WEFT_TRY(weft_i_replay_args(&b->replay, first, old));
    args[0] = WEFT_I_TENSORS_ARG(in, (size_t)from->count);
    if (row == &weft_i_op_all_gather_into_tensor_coalesced) {
        args[1] = old[2];
        return WEFT_OK;
    }
    for (int i = 1; i < first->op->arity; i++)
        args[i] = old[i];
    if (row == &weft_i_op_reduce_scatter_tensor_coalesced)
        args[3] = WEFT_I_INTEGERS_ARG(dims, from->count);
    return WEFT_OK;
}

static weft_status start(bucketing *b, int k)
{
    const bucket *from = &b->buckets[k];
    const weft_i_graph_node *first = &b->graph->nodes[from->first];
    const weft_i_op *row = list_of(first);
    weft_i_arg args[WEFT_I_OP_ARGS];
    WEFT_TRY(list_args(b, k, args, row));
    weft_tensor **outs = weft_i_graph_alloc(b->trace.graph, (size_t)from->count * sizeof *outs);
    if (!outs)
        return weft_last_status();
    b->trace.quiet = first->quiet;
    if (!weft_i_trace_call(&b->trace, &(weft_i_op_call){.op = row, .args = args, .outs = outs}))
        return weft_last_status();
    for (int i = from->first, at = 0; i <= from->last; i++)
        if (b->of[i] == k)
            b->replay.fakes[b->graph->nodes[i].first] = outs[at++];
    return WEFT_OK;
}

static weft_status walk(void *user)
{
    bucketing *b = user;
    for (int at = 0; at < b->graph->node_count; at++) {
        int i = b->result[at], k = b->of[i];
        if (!is_bucket(b, k))
            WEFT_TRY(weft_i_replay_node(&b->replay, &b->graph->nodes[i]));
        else if (i == b->buckets[k].first)
            WEFT_TRY(start(b, k));
    }
    return WEFT_OK;
}

/* ---- what there is to say ---- */

static void put_bucket(weft_i_text *s, const bucketing *b, int k)
{
    const bucket *from = &b->buckets[k];
    weft_i_text_put(s, "  bucket: %d %s, %zu bytes, of", from->count,
                    b->graph->nodes[from->first].op->name, from->bytes);
    for (int i = from->first; i <= from->last; i++)
        if (b->of[i] == k)
            weft_i_text_put(s, " %%%d", b->graph->nodes[i].terms[0].value);
    weft_i_text_put(s, "\n");
}

static void put_notes(weft_i_text *s, const void *about)
{
    const bucketing *b = about;
    weft_i_text_put(s, "%s", b->graph->notes ? b->graph->notes : "");
    for (int k = 0; k < b->count; k++)
        if (b->buckets[k].count > 1)
            put_bucket(s, b, k);
    for (int i = 0; i < b->graph->node_count; i++)
        if (b->of[i] >= 0 && b->buckets[b->of[i]].first == i && b->why[i] && *b->why[i])
            weft_i_text_put(s, "  new bucket: %s of %%%d: %s\n", b->graph->nodes[i].op->name,
                            b->graph->nodes[i].terms[0].value, b->why[i]);
}

static weft_status note(const bucketing *b, weft_graph *to)
{
    for (int k = 0; k < b->count; k++)
        if (is_bucket(b, k))
            weft_i_log(WEFT_LOG_INFO, "graph \"%s\": a bucket of %d %s, %zu bytes", b->graph->name,
                       b->buckets[k].count, b->graph->nodes[b->buckets[k].first].op->name,
                       b->buckets[k].bytes);
    return weft_i_replay_write_notes(&b->replay, to, put_notes, b);
}

/* ---- the pass ---- */

static weft_graph *put_together(bucketing *b)
{
    bool any;
    if (choose(b, &any) < 0)
        return NULL;
    weft_graph *to =
        any ? weft_i_replay_rewrite(&b->replay, walk) : weft_i_graph_rebuild(b->graph, NULL);
    if (to && note(b, to) < 0) {
        weft_release(to);
        to = NULL;
    }
    return to;
}

static int collectives_of(const weft_graph *graph)
{
    int count = 0;
    for (int i = 0; i < graph->node_count; i++)
        count += list_of(&graph->nodes[i]) != NULL;
    return count;
}

weft_graph *weft_i_graph_pass_bucket(weft_graph *graph)
{
    bucketing b = {.graph = graph,
                   .most = weft_i_tune_or_variable(WEFT_I_TUNE_BUCKET, WEFT_I_BARRIER, 1,
                                                   WEFT_I_GROUND_ROOMY)};
    size_t nodes = (size_t)graph->node_count + 1, values = (size_t)graph->value_count + 1;
    if (!b.most || collectives_of(graph) < 2)
        return graph;
    if (weft_i_graph_order_find(graph, WEFT_I_CHAIN_COLLECTIVES, &b.order) < 0)
        return NULL;
    b.buckets = WEFT_OS->alloc(nodes * sizeof *b.buckets);
    b.why = WEFT_OS->alloc(nodes * (sizeof *b.why + 3 * sizeof *b.of + sizeof *b.cut));
    weft_tensor **fakes = WEFT_OS->alloc(values * sizeof *fakes);
    weft_graph *to = NULL;
    if (b.buckets && b.why && fakes) {
        b.of = (int *)(void *)(b.why + nodes);
        b.needs = b.of + nodes;
        b.result = b.needs + nodes;
        b.cut = (bool *)(b.result + nodes);
        b.replay = (weft_i_replay){graph, &b.trace, fakes, NULL, &b, NULL};
        to = put_together(&b);
    } else
        weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for buckets of %d nodes", graph->node_count);
    WEFT_OS->free(b.buckets);
    WEFT_OS->free(b.why);
    WEFT_OS->free(fakes);
    weft_i_graph_order_clear(&b.order);
    return to;
}
