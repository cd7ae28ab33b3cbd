/* SPDX-License-Identifier: Apache-2.0 */
/* Copying a graph with other numbers; see weft_i_graph_rebuild. */
#include "graph/ir/graph.h"

#include "base/os/assert.h"
#include "base/os/os.h"

#include <string.h>

struct copying {
    const weft_graph *from;
    weft_graph *to;
    int *values, *storages, *counters; /* new numbers; -1: none yet */
};

static int renumbered(int *numbers, int old, int *next)
{
    if (numbers[old] < 0)
        numbers[old] = (*next)++;
    return numbers[old];
}

/* Copies value `old`; its new number, or -1. */
static int copy_value(struct copying *c, int old, int node)
{
    weft_i_graph_value value = c->from->values[old];
    value.node = node;
    if (!value.absent) {
        value.storage = renumbered(c->storages, value.storage, &c->to->storages);
        value.counter = renumbered(c->counters, value.counter, &c->to->counters);
    }
    return c->values[old] = weft_i_graph_add_value(c->to, &value);
}

static weft_status copy_list(struct copying *c, weft_i_graph_term *term)
{
    int *values = weft_i_graph_copy(c->to, term->values, term->count * sizeof *values);
    if (!values)
        return weft_last_status();
    for (size_t i = 0; i < term->count; i++)
        values[i] = values[i] < 0 ? -1 : c->values[values[i]];
    term->values = values;
    return WEFT_OK;
}

static weft_status copy_group(struct copying *c, weft_i_graph_term *term)
{
    if (!(term->group.name = weft_i_graph_string(c->to, term->group.name)))
        return weft_last_status();
    return term->group.handle ? weft_i_graph_hold(c->to, term->group.handle) : WEFT_OK;
}

static weft_status copy_term(struct copying *c, weft_i_graph_term *term)
{
    switch (term->kind) {
    case WEFT_I_ARG_TENSOR:
        WEFT_ASSERT(c->values[term->value] >= 0); /* what is kept uses nothing that is not */
        term->value = c->values[term->value];
        return WEFT_OK;
    case WEFT_I_ARG_TENSORS:
        return copy_list(c, term);
    case WEFT_I_ARG_INTEGERS:
        term->integers =
            weft_i_graph_copy(c->to, term->integers, term->count * sizeof *term->integers);
        return term->integers ? WEFT_OK : weft_last_status();
    case WEFT_I_ARG_GROUP:
        return copy_group(c, term);
    default:
        return WEFT_OK;
    }
}

static weft_status copy_node(struct copying *c, const weft_i_graph_node *old)
{
    weft_i_graph_node node = *old;
    node.terms = weft_i_graph_copy(c->to, old->terms, (size_t)old->op->arity * sizeof *old->terms);
    if (!node.terms)
        return weft_last_status();
    for (int i = 0; i < old->op->arity; i++)
        WEFT_TRY(copy_term(c, &node.terms[i]));
    if (old->into >= 0)
        node.into = c->values[old->into];
    node.first = c->to->value_count;
    for (int k = 0; k < old->count; k++)
        if (copy_value(c, old->first + k, c->to->node_count) < 0)
            return weft_last_status();
    return weft_i_graph_add_node(c->to, &node) < 0 ? weft_last_status() : WEFT_OK;
}

static weft_status copy_inputs(struct copying *c)
{
    for (int i = 0; i < c->from->input_count; i++) {
        weft_i_graph_input input = c->from->inputs[i];
        input.value = copy_value(c, input.value, -1);
        if (input.value < 0 || weft_i_graph_add_input(c->to, &input) < 0)
            return weft_last_status();
    }
    return weft_i_graph_set_arguments(c->to, c->from->arguments, c->from->argument_count);
}

static bool is_used(const weft_graph *graph, const bool *keep, int value)
{
    int read;
    for (int i = 0; i < graph->node_count; i++)
        for (size_t at = 0; keep[i] && weft_i_graph_node_next(&graph->nodes[i], &at, &read);)
            if (read == value)
                return true;
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i] == value)
            return true;
    return false;
}

static weft_status copy_constants(struct copying *c, const bool *keep)
{
    for (int i = 0; i < c->from->constant_count; i++) {
        const weft_i_graph_constant *constant = &c->from->constants[i];
        if (keep && !is_used(c->from, keep, constant->value))
            continue;
        int value = copy_value(c, constant->value, -1);
        if (value < 0 || weft_i_graph_add_constant(c->to, constant->tensor, value) < 0)
            return weft_last_status();
    }
    return WEFT_OK;
}

/* A row that stands for several nodes. */
static weft_status add_fused(struct copying *c, const weft_i_graph_step *step)
{
    weft_i_graph_node node = {.op = step->op, .into = -1, .count = step->outs, .quiet = true};
    int *in = weft_i_graph_copy(c->to, step->in, (size_t)step->ins * sizeof *in);
    node.terms = weft_i_graph_alloc(c->to, sizeof *node.terms);
    if (!in || !node.terms)
        return weft_last_status();
    for (int i = 0; i < step->ins; i++)
        in[i] = c->values[in[i]];
    node.terms[0].kind = WEFT_I_ARG_TENSORS;
    node.terms[0].count = (size_t)step->ins;
    node.terms[0].values = in;
    node.first = c->to->value_count;
    for (int k = 0; k < step->outs; k++)
        if (copy_value(c, step->out[k], c->to->node_count) < 0)
            return weft_last_status();
    return weft_i_graph_add_node(c->to, &node) < 0 ? weft_last_status() : WEFT_OK;
}

static weft_status copy_steps(struct copying *c, const weft_i_graph_step *steps, int count)
{
    for (int i = 0; i < count; i++)
        WEFT_TRY(steps[i].node >= 0 ? copy_node(c, &c->from->nodes[steps[i].node])
                                    : add_fused(c, &steps[i]));
    return WEFT_OK;
}

static weft_status copy_kept(struct copying *c, const bool *keep)
{
    for (int i = 0; i < c->from->node_count; i++)
        if (!keep || keep[i])
            WEFT_TRY(copy_node(c, &c->from->nodes[i]));
    return WEFT_OK;
}

static int number_of(const void *about, int value)
{
    const struct copying *c = about;
    return value < c->from->value_count ? c->values[value] : -1;
}

static weft_status copy_notes(struct copying *c)
{
    if (c->from->notes && !(c->to->notes = weft_i_graph_string(c->to, c->from->notes)))
        return weft_last_status();
    return weft_i_graph_renumber_notes(c->to, number_of, c);
}

static weft_status copy_all(struct copying *c, const bool *keep, const weft_i_graph_step *steps,
                            int count)
{
    WEFT_TRY(copy_inputs(c));
    WEFT_TRY(copy_constants(c, keep));
    WEFT_TRY(steps ? copy_steps(c, steps, count) : copy_kept(c, keep));
    c->to->planned = c->from->planned;
    WEFT_TRY(copy_notes(c));
    WEFT_TRY(weft_i_graph_set_outputs(c->to, c->from->outputs, c->from->output_count));
    for (int i = 0; i < c->to->output_count; i++) {
        WEFT_ASSERT(c->values[c->to->outputs[i]] >= 0); /* outputs are kept */
        c->to->outputs[i] = c->values[c->to->outputs[i]];
    }
    return WEFT_OK;
}

static weft_graph *rebuild(const weft_graph *graph, const bool *keep,
                           const weft_i_graph_step *steps, int steps_count)
{
    size_t count = (size_t)(graph->value_count + graph->storages + graph->counters + 1);
    struct copying c = {.from = graph, .to = weft_i_graph_new(graph->name)};
    c.values = c.to ? WEFT_OS->alloc(count * sizeof *c.values) : NULL;
    if (!c.values) {
        weft_release(c.to);
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a graph of %d values",
                           graph->value_count);
    }
    memset(c.values, 0xff, count * sizeof *c.values);
    c.storages = c.values + graph->value_count;
    c.counters = c.storages + graph->storages;
    weft_status status = copy_all(&c, keep, steps, steps_count);
    WEFT_OS->free(c.values);
    if (status >= 0)
        return c.to;
    weft_release(c.to);
    return NULL;
}

weft_graph *weft_i_graph_rebuild(const weft_graph *graph, const bool *keep)
{
    return rebuild(graph, keep, NULL, 0);
}

weft_graph *weft_i_graph_rebuild_steps(const weft_graph *graph, const weft_i_graph_step *steps,
                                       int count)
{
    return rebuild(graph, NULL, steps, count);
}
