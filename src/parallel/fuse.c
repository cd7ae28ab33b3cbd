/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pass that fuses.  What is to be fused is decided first; then the nodes are called again on new
 * fakes (graph/ir/trace.h), with one call in the place of several.  Products get what they were: the
 * same shape and strides, by a view of the fused result, and by a copy where that is laid out with
 * the gathered dimension in front.
 */
#include "parallel/fuse.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "functional/ops.h"
#include "graph/ir/pass.h"
#include "graph/ir/trace.h"
#include "parallel/fused.h"
#include "tensor/op/ops.h"

enum { NOTES = 4096, LEAST_INNER = 1024 }; /* of a product that is cut where it sums */

typedef enum role { STAYS, GONE, GATHERS, SCATTERS } role;

/* What becomes of the graph. */
typedef struct rewriting {
    const weft_graph *old;
    weft_i_trace trace;
    weft_tensor **fakes; /* of each old value */
    bool *done;          /* of each node: it is in the new graph, or needed no more */
    role *roles;         /* of each node: that of the match it begins */
    int *match_of;       /* of a node that begins one */
    int *products;       /* of each node: the match that takes it as its product; -1: none */
    weft_i_fuse_match *matches;
    bool *keep;   /* of each match: others use what is gathered */
    bool *hidden; /* of each node: a product beside it hides it already */
    weft_i_text notes;
} rewriting;

/* ---- what may be fused ---- */

static bool is_product(const weft_i_graph_node *node)
{
    return node->op == &weft_i_op_mm || node->op == &weft_i_op_scaled_mm;
}

static bool is_scaled(const weft_i_graph_node *node)
{
    return node->op == &weft_i_op_scaled_mm;
}

static bool reads(const weft_i_graph_node *node, int value)
{
    int read;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &read);)
        if (read == value)
            return true;
    return false;
}

/* Can the value be had before node `at`?  What makes it later must be free to move. */
static bool is_free(const rewriting *r, int value, int at, int result)
{
    int node = r->old->values[value].node, read;
    if (value == result)
        return false;
    if (node < at)
        return true;
    const weft_i_graph_node *n = &r->old->nodes[node];
    if (n->op->changes || n->into >= 0 || weft_i_graph_node_is_collective(n) ||
        weft_i_graph_node_has_effect(n))
        return false;
    for (size_t i = 0; weft_i_graph_node_next(n, &i, &read);)
        if (!is_free(r, read, at, result))
            return false;
    return true;
}

static const char *refuse(rewriting *r, const weft_i_fuse_match *match, const char *why)
{
    const weft_i_graph_node *node = &r->old->nodes[match->node];
    weft_i_text_put(&r->notes, "  not fused: %%%d = %s: %s\n", node->first, node->op->name, why);
    return why;
}

/* A view of the gathered tensor as a matrix. */
static bool is_matrix_of(const rewriting *r, const weft_i_graph_node *node, int value)
{
    const weft_shape *from = &r->old->values[value].shape;
    if (node->op != &weft_i_op_view || node->terms[0].value != value)
        return false;
    const weft_shape *to = &r->old->values[node->first].shape;
    return to->ndim == 2 && from->ndim && to->dim[1] == from->dim[from->ndim - 1];
}

/* Takes the products of `value` for match `m`; returns the first node that reads it, or -1. */
static int take_products(rewriting *r, int m, int value, int *count)
{
    int first = -1;
    for (int i = r->old->node_count - 1; i >= 0; i--) {
        const weft_i_graph_node *node = &r->old->nodes[i];
        if (!reads(node, value))
            continue;
        first = i;
        if (is_product(node) && node->terms[0].value == value && node->terms[1].value != value &&
            r->products[i] < 0) {
            r->products[i] = m;
            ++*count;
        } else if (is_matrix_of(r, node, value) && value == r->matches[m].result) {
            int before = *count;
            bool others = r->keep[m];
            take_products(r, m, node->first, count);
            r->keep[m] = others || r->keep[m] || *count == before;
        } else {
            r->keep[m] = true;
        }
    }
    r->keep[m] = r->keep[m] || weft_i_fuse_is_output(r->old, value);
    return first;
}

static const weft_i_graph_node *first_product(const rewriting *r, int m)
{
    for (int i = 0; i < r->old->node_count; i++)
        if (r->products[i] == m)
            return &r->old->nodes[i];
    return NULL;
}

/* The operands of the products besides the gathered one. */
static const char *check_operands(const rewriting *r, int m, int at)
{
    const weft_i_graph_node *one = first_product(r, m);
    int read;
    for (int i = 0; i < r->old->node_count; i++) {
        const weft_i_graph_node *node = &r->old->nodes[i];
        if (r->products[i] != m)
            continue;
        if (node->op != one->op)
            return "its products are of two kinds";
        if (is_scaled(node) && node->terms[2].value != one->terms[2].value)
            return "its products scale it differently";
        size_t k = 0;
        weft_i_graph_node_next(node, &k, &read); /* what is gathered */
        while (weft_i_graph_node_next(node, &k, &read))
            if (!is_free(r, read, at, r->matches[m].result))
                return "a product needs what is computed from it, or a later collective";
    }
    return NULL;
}

static const char *check_gather(const rewriting *r, int m, int at, int count)
{
    const weft_i_fuse_match *match = &r->matches[m];
    const weft_shape *shard = &r->old->values[match->operand].shape;
    if (shard->ndim < 2)
        return "it has less than 2 dimensions";
    if (!count)
        return "nothing multiplies its result from the right";
    const char *why = check_operands(r, m, at);
    if (!why && r->hidden[match->node])
        why = "it hides behind a product that does not need it";
    if (why || match->dim != shard->ndim - 1)
        return why;
    if (is_scaled(first_product(r, m)))
        return "the product sums over the gathered dimension, and has scales";
    if (r->keep[m])
        return "the product sums over the gathered dimension, and others use the result";
    return shard->dim[match->dim] < LEAST_INNER
               ? "the product sums over the gathered dimension, which is short"
               : NULL;
}

static void plan_gather(rewriting *r, int m)
{
    int count = 0, at = take_products(r, m, r->matches[m].result, &count);
    const char *why = check_gather(r, m, at, count);
    if (!why) {
        r->roles[at] = GATHERS;
        r->match_of[at] = m;
        r->done[r->matches[m].node] = r->done[r->matches[m].wait] = true;
        int view = r->old->values[r->matches[m].result].node;
        r->done[view] = true; /* the wait, or a view of bytes behind it */
        return;
    }
    refuse(r, &r->matches[m], why);
    for (int i = 0; i < r->old->node_count; i++)
        r->products[i] = r->products[i] == m ? -1 : r->products[i];
}

/* The product behind what is scattered; through a view that nobody else uses. */
static int product_of(const rewriting *r, const weft_i_fuse_match *match, int *view)
{
    int node = r->old->values[match->operand].node;
    *view = -1;
    if (node >= 0 && r->old->nodes[node].op == &weft_i_op_view &&
        weft_i_fuse_only_user(r->old, match->operand) == match->node) {
        int behind = r->old->values[r->old->nodes[node].terms[0].value].node;
        *view = node;
        if (behind < 0 || weft_i_fuse_only_user(r->old, r->old->nodes[behind].first) != node)
            return -1;
        node = behind;
    }
    bool fits = node >= 0 && is_product(&r->old->nodes[node]) &&
                (*view >= 0 || weft_i_fuse_only_user(r->old, match->operand) == match->node);
    return fits ? node : -1;
}

static void plan_scatter(rewriting *r, int m)
{
    const weft_i_fuse_match *match = &r->matches[m];
    const weft_shape *shape = &r->old->values[match->operand].shape;
    int view, product = product_of(r, match, &view);
    const char *why = NULL;
    if (product < 0)
        why = "its operand is no product that is used here alone";
    else if (r->products[product] >= 0)
        why = "its product is fused with a gather";
    else if (match->op != WEFT_SUM && match->op != WEFT_AVG)
        why = "only sum and avg are fused";
    else if (view >= 0 && shape->dim[shape->ndim - 1] !=
                              r->old->values[r->old->nodes[product].first].shape.dim[1])
        why = "its product is viewed with other columns";
    else if (is_scaled(&r->old->nodes[product]) && match->dim == shape->ndim - 1)
        why = "it scatters columns of a product that has scales";
    else if (r->hidden[match->node])
        why = "it hides behind a product that does not need it";
    if (why) {
        refuse(r, match, why);
        return;
    }
    r->products[product] = m;
    r->roles[match->node] = SCATTERS;
    r->match_of[match->node] = m;
    r->done[product] = r->done[match->wait] = true;
    if (view >= 0)
        r->done[view] = true;
}

/* ---- the new graph ---- */

static weft_tensor *call_row(rewriting *r, const weft_i_op *op, weft_i_arg *args,
                             weft_tensor **outs)
{
    weft_i_op_call call = {.op = op, .args = args, .outs = outs};
    return weft_i_trace_call(&r->trace, &call);
}

static weft_tensor *viewed(rewriting *r, weft_tensor *x, weft_shape shape)
{
    if (!x || weft_i_shape_equal(weft_i_tensor_shape(x), shape))
        return x;
    return call_row(
        r, &weft_i_op_view,
        (weft_i_arg[]){WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGERS_ARG(shape.dim, shape.ndim)}, NULL);
}

static weft_tensor *packed(rewriting *r, weft_tensor *x)
{
    if (!x || weft_i_tensor_is_contiguous(x))
        return x;
    return call_row(r, &weft_i_op_contiguous, (weft_i_arg[]){WEFT_I_TENSOR_ARG(x)}, NULL);
}

static weft_tensor *value_of(void *self, int value)
{
    const rewriting *r = self;
    return r->fakes[value] ? r->fakes[value]
                           : weft_i_null(WEFT_ERR_INTERNAL, "fuse: value %%%d is not there", value);
}

static weft_status call_again(rewriting *r, int at)
{
    const weft_i_graph_node *node = &r->old->nodes[at];
    weft_i_arg args[WEFT_I_OP_ARGS];
    bool several = node->op->flags & WEFT_I_OP_LIST || node->op->results > 1;
    weft_tensor **outs = weft_i_graph_alloc(r->trace.graph, (size_t)node->count * sizeof *outs);
    if (!outs)
        return weft_last_status();
    for (int i = 0; i < node->op->arity; i++)
        WEFT_TRY(weft_i_graph_read_term(r->trace.graph, &node->terms[i], value_of, r, &args[i]));
    weft_i_op_call call = {.op = node->op,
                           .args = args,
                           .into = node->into < 0 ? NULL : r->fakes[node->into],
                           .outs = several ? outs : NULL};
    if (node->op == &weft_i_op_wait_tensor) {
        WEFT_TRY(weft_i_trace_wait(&r->trace, args[0].tensor));
        outs[0] = args[0].tensor;
    } else {
        if (node->op == &weft_i_op_as_strided) /* its offset is that of the storage */
            args[3].integer += args[0].tensor->offset - r->old->values[node->terms[0].value].offset;
        weft_tensor *out = weft_i_trace_call(&r->trace, &call);
        if (!out)
            return weft_last_status();
        r->trace.graph->nodes[r->trace.graph->node_count - 1].quiet = node->quiet;
        if (!several)
            outs[0] = out;
    }
    for (int k = 0; k < node->count; k++)
        r->fakes[node->first + k] = outs[k];
    r->done[at] = true;
    return WEFT_OK;
}

/* The value, with what makes it moved here if it stands later. */
static weft_tensor *have(rewriting *r, int value)
{
    int node = r->old->values[value].node, read;
    if (r->fakes[value] || node < 0)
        return r->fakes[value];
    for (size_t at = 0; weft_i_graph_node_next(&r->old->nodes[node], &at, &read);)
        if (!have(r, read))
            return NULL;
    return call_again(r, node) < 0 ? NULL : r->fakes[value];
}

static weft_tensor *have_optional(rewriting *r, const weft_i_graph_term *term)
{
    return term->kind == WEFT_I_ARG_TENSOR ? have(r, term->value) : NULL;
}

/* x with the leading sizes of `like` instead of one size for all. */
static weft_tensor *with_rows_of(rewriting *r, weft_tensor *x, weft_shape like)
{
    if (!x || x->numel == 1)
        return x;
    like.dim[like.ndim - 1] = x->dim[x->ndim - 1];
    return viewed(r, x, like);
}

static weft_i_arg group_arg(const weft_i_fuse_match *match)
{
    return WEFT_I_GROUP_ARG(match->group->group.handle, match->group->group.name,
                            match->group->count);
}

/* What a fused gather is called with; lists in the order of the row. */
typedef struct gather_lists {
    weft_tensor **x, **scales, **biases, **results, **outs;
    int64_t *dtypes;
    int *nodes;
    size_t count; /* of products */
} gather_lists;

static weft_status make_lists(rewriting *r, int m, gather_lists *l)
{
    size_t room = (size_t)r->old->node_count + 1;
    weft_tensor **all = weft_i_graph_alloc(r->trace.graph, 5 * room * sizeof *all);
    l->dtypes = weft_i_graph_alloc(r->trace.graph, room * sizeof *l->dtypes);
    l->nodes = weft_i_graph_alloc(r->trace.graph, room * sizeof *l->nodes);
    if (!all || !l->dtypes || !l->nodes)
        return weft_last_status();
    *l = (gather_lists){
        all, all + room, all + 2 * room, all + 3 * room, all + 4 * room, l->dtypes, l->nodes, 0};
    for (int i = 0; i < r->old->node_count; i++) {
        const weft_i_graph_node *node = &r->old->nodes[i];
        if (r->products[i] != m)
            continue;
        l->nodes[l->count] = i;
        if (!(l->x[l->count] = have(r, node->terms[1].value)))
            return weft_last_status();
        if (is_scaled(node)) {
            if (!(l->scales[l->count] = have(r, node->terms[3].value)))
                return weft_last_status();
            l->biases[l->count] = have_optional(r, &node->terms[4]);
            l->results[l->count] = have_optional(r, &node->terms[5]);
            l->dtypes[l->count] = node->terms[6].integer;
        }
        l->count++;
    }
    return WEFT_OK;
}

static weft_tensor *call_gather(rewriting *r, int m, gather_lists *l)
{
    const weft_i_fuse_match *match = &r->matches[m];
    const weft_i_graph_node *one = &r->old->nodes[l->nodes[0]];
    size_t n = l->count;
    weft_i_arg dim = WEFT_I_INTEGER_ARG(match->dim), keep = WEFT_I_INTEGER_ARG(r->keep[m]);
    if (!(l->x[n] = have(r, match->operand)))
        return NULL;
    if (!is_scaled(one))
        return call_row(
            r, &weft_i_op_all_gather_matmul,
            (weft_i_arg[]){WEFT_I_TENSORS_ARG(l->x, n + 1), dim, keep, group_arg(match)}, l->outs);
    weft_shape whole = r->old->values[match->result].shape;
    if (!(l->scales[n] = with_rows_of(r, have(r, one->terms[2].value), whole)))
        return NULL;
    return call_row(
        r, &weft_i_op_all_gather_scaled_matmul,
        (weft_i_arg[]){WEFT_I_TENSORS_ARG(l->x, n + 1), WEFT_I_TENSORS_ARG(l->scales, n + 1),
                       WEFT_I_TENSORS_ARG(l->biases, n), WEFT_I_TENSORS_ARG(l->results, n),
                       WEFT_I_INTEGERS_ARG(l->dtypes, n), dim, keep, group_arg(match)},
        l->outs);
}

static weft_status emit_gather(rewriting *r, int m)
{
    gather_lists l = {0};
    WEFT_TRY(make_lists(r, m, &l));
    if (!call_gather(r, m, &l))
        return weft_last_status();
    for (size_t i = 0; i <= l.count; i++)
        if (l.outs[i])
            WEFT_TRY(weft_i_trace_wait(&r->trace, l.outs[i]));
    for (size_t i = 0; i < l.count; i++) {
        int value = r->old->nodes[l.nodes[i]].first;
        r->fakes[value] = viewed(r, packed(r, l.outs[i]), r->old->values[value].shape);
        if (!r->fakes[value])
            return weft_last_status();
        r->done[l.nodes[i]] = true;
    }
    weft_i_text_put(&r->notes, "  fused: %%%d = all_gather_into_tensor with %zu product%s\n",
                    r->old->nodes[l.nodes[0]].first, l.count, l.count == 1 ? "" : "s");
    if (r->keep[m]) {
        r->fakes[r->matches[m].result] = packed(r, l.outs[l.count]);
        return r->fakes[r->matches[m].result] ? WEFT_OK : weft_last_status();
    }
    for (int i = 0; i < r->old->node_count; i++) /* views that only its products read */
        r->done[i] = r->done[i] || is_matrix_of(r, &r->old->nodes[i], r->matches[m].result);
    return WEFT_OK;
}

static weft_tensor *call_scatter(rewriting *r, int m, const weft_i_graph_node *node)
{
    const weft_i_fuse_match *match = &r->matches[m];
    weft_shape whole = r->old->values[match->operand].shape;
    weft_tensor *a = with_rows_of(r, have(r, node->terms[0].value), whole);
    weft_tensor *b = a ? have(r, node->terms[1].value) : NULL;
    weft_i_arg op = WEFT_I_INTEGER_ARG(match->op), dim = WEFT_I_INTEGER_ARG(match->dim);
    if (!b)
        return NULL;
    if (!is_scaled(node))
        return call_row(
            r, &weft_i_op_matmul_reduce_scatter,
            (weft_i_arg[]){WEFT_I_TENSOR_ARG(a), WEFT_I_TENSOR_ARG(b), op, dim, group_arg(match)},
            NULL);
    weft_tensor *scale = with_rows_of(r, have(r, node->terms[2].value), whole);
    weft_tensor *scale_b = scale ? have(r, node->terms[3].value) : NULL;
    if (!scale_b)
        return NULL;
    return call_row(r, &weft_i_op_scaled_matmul_reduce_scatter,
                    (weft_i_arg[]){WEFT_I_TENSOR_ARG(a), WEFT_I_TENSOR_ARG(b),
                                   WEFT_I_TENSOR_ARG(scale), WEFT_I_TENSOR_ARG(scale_b),
                                   WEFT_I_OPTIONAL_ARG(have_optional(r, &node->terms[4])),
                                   WEFT_I_OPTIONAL_ARG(have_optional(r, &node->terms[5])),
                                   WEFT_I_INTEGER_ARG(node->terms[6].integer), op, dim,
                                   group_arg(match)},
                    NULL);
}

static weft_status emit_scatter(rewriting *r, int m)
{
    const weft_i_fuse_match *match = &r->matches[m];
    const weft_i_graph_node *node = first_product(r, m);
    weft_tensor *out = call_scatter(r, m, node);
    if (!out)
        return weft_last_status();
    WEFT_TRY(weft_i_trace_wait(&r->trace, out));
    r->fakes[match->result] = out;
    r->done[match->node] = true;
    weft_i_text_put(&r->notes, "  fused: %%%d = reduce_scatter_tensor with its product\n",
                    match->result);
    return WEFT_OK;
}

static weft_status emit(rewriting *r, int at)
{
    if (r->roles[at] == GATHERS)
        WEFT_TRY(emit_gather(r, r->match_of[at]));
    if (r->roles[at] == SCATTERS)
        WEFT_TRY(emit_scatter(r, r->match_of[at]));
    return r->done[at] ? WEFT_OK : call_again(r, at);
}

/* ---- all of it ---- */

static int first_sharing(const weft_graph *graph, int i, bool counter)
{
    const weft_i_graph_value *v = &graph->values[graph->inputs[i].value];
    for (int k = 0; k < i; k++) {
        const weft_i_graph_value *other = &graph->values[graph->inputs[k].value];
        if (counter ? other->counter == v->counter : other->storage == v->storage)
            return graph->inputs[k].value;
    }
    return -1;
}

static weft_status add_inputs(rewriting *r)
{
    const weft_graph *old = r->old;
    for (int i = 0; i < old->input_count; i++) {
        weft_i_graph_value like = old->values[old->inputs[i].value];
        int base = first_sharing(old, i, false), counted = first_sharing(old, i, true);
        like.version = 0;
        r->fakes[old->inputs[i].value] =
            weft_i_trace_input(&r->trace, &like, base < 0 ? NULL : r->fakes[base],
                               counted < 0 ? NULL : r->fakes[counted], &old->inputs[i]);
        if (!r->fakes[old->inputs[i].value])
            return weft_last_status();
    }
    for (int i = 0; i < old->constant_count; i++)
        if (!(r->fakes[old->constants[i].value] =
                  weft_i_trace_constant(&r->trace, old->constants[i].tensor)))
            return weft_last_status();
    return weft_i_graph_set_arguments(r->trace.graph, old->arguments, old->argument_count);
}

static weft_graph *write_down(rewriting *r)
{
    const weft_graph *old = r->old;
    if (weft_i_trace_begin(&r->trace, old->name) < 0 || add_inputs(r) < 0)
        return NULL;
    for (int i = 0; i < old->node_count; i++)
        if (emit(r, i) < 0)
            return NULL;
    int *outputs = weft_i_graph_alloc(r->trace.graph, (size_t)old->output_count * sizeof *outputs);
    for (int i = 0; outputs && i < old->output_count; i++) {
        const weft_tensor *x = value_of(r, old->outputs[i]);
        if (!x)
            return NULL;
        outputs[i] = (int)x->node;
    }
    return outputs ? weft_i_trace_end(&r->trace, outputs, old->output_count) : NULL;
}

static weft_status make_room(rewriting *r)
{
    size_t nodes = (size_t)r->old->node_count + 1, values = (size_t)r->old->value_count + 1;
    r->fakes = WEFT_OS->alloc(values * sizeof *r->fakes);
    r->done = WEFT_OS->alloc(nodes);
    r->keep = WEFT_OS->alloc(nodes);
    r->hidden = WEFT_OS->alloc(nodes);
    r->roles = WEFT_OS->alloc(nodes * sizeof *r->roles);
    r->match_of = WEFT_OS->alloc(2 * nodes * sizeof *r->match_of);
    r->matches = WEFT_OS->alloc(nodes * sizeof *r->matches);
    r->notes.out = WEFT_OS->alloc(NOTES);
    r->notes.room = NOTES;
    if (!r->fakes || !r->done || !r->keep || !r->hidden || !r->roles || !r->match_of ||
        !r->matches || !r->notes.out)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to fuse %zu nodes", nodes);
    r->products = r->match_of + nodes;
    for (size_t i = 0; i < nodes; i++)
        r->products[i] = -1;
    weft_i_text_put(&r->notes, "%s", r->old->notes ? r->old->notes : "");
    return weft_i_fuse_find_hidden(r->old, r->hidden);
}

static void give_room_back(rewriting *r)
{
    WEFT_OS->free(r->fakes);
    WEFT_OS->free(r->done);
    WEFT_OS->free(r->keep);
    WEFT_OS->free(r->hidden);
    WEFT_OS->free(r->roles);
    WEFT_OS->free(r->match_of);
    WEFT_OS->free(r->matches);
    WEFT_OS->free(r->notes.out);
}

static bool plan(rewriting *r)
{
    int gathers = weft_i_fuse_find_gathers(r->old, r->matches);
    int all = gathers + weft_i_fuse_find_scatters(r->old, r->matches + gathers);
    bool any = false;
    for (int m = 0; m < all; m++)
        m < gathers ? plan_gather(r, m) : plan_scatter(r, m);
    for (int i = 0; i < r->old->node_count; i++)
        any = any || r->roles[i];
    return any;
}

static int number_of(const void *about, int value)
{
    const rewriting *r = about;
    return value < r->old->value_count && r->fakes[value] ? (int)r->fakes[value]->node : -1;
}

/* The notes, which speak of the old graph's values, as those of the new one. */
static bool note(const rewriting *r, weft_graph *out)
{
    out->notes = weft_i_graph_string(out, r->notes.out);
    return out->notes && (out == r->old || weft_i_graph_renumber_notes(out, number_of, r) >= 0);
}

weft_graph *weft_i_fuse(weft_graph *graph)
{
    rewriting r = {.old = graph};
    weft_graph *out = NULL;
    if (weft_scope_open() < 0)
        return NULL;
    weft_status status = make_room(&r);
    if (status >= 0)
        out = plan(&r) ? weft_keep(write_down(&r)) : graph;
    if (r.trace.graph)
        weft_i_trace_abandon(&r.trace);
    if (out && !note(&r, out)) {
        weft_release(out == graph ? NULL : out);
        out = NULL;
    }
    give_room_back(&r);
    weft_scope_close();
    return out && out != graph ? weft_i_object_scope(out) : out;
}

/* ---- the pass ---- */

static _Thread_local bool wanted;

void weft_fused_rewrite(bool on)
{
    wanted = on;
}

static weft_graph *run(weft_graph *graph)
{
    return wanted ? weft_i_fuse(graph) : graph;
}

__attribute__((constructor)) static void add_pass(void)
{
    static weft_i_graph_pass pass = {"fuse", WEFT_I_STAGE_REWRITE, run, NULL};
    weft_i_graph_pass_add(&pass);
}
