/* SPDX-License-Identifier: Apache-2.0 */
/* The node of a compiled call; see frame_back.h. */
#include "graph/run/frame_back.h"

#include "base/os/os.h"
#include "grad/engine.h"

#include <string.h>

/* The list has the leaves of the edges first, then what is saved. */
enum { LIST, PLAN, ARITY };

static weft_status back(weft_i_back *c);
static const weft_i_gradient gradient = {.back = back, .hands_out = true};
static const weft_i_op frame_row = {
    .name = "frame", .params = "x:l plan:g", .arity = ARITY, .kinds = "lg", .gradient = &gradient};

static void destroy(weft_i_object *object)
{
    weft_i_frame_plan *plan = (weft_i_frame_plan *)object;
    weft_i_program_free(plan->program);
    weft_i_object_drop(plan->halves.forward);
    weft_i_object_drop(plan->halves.back);
    weft_i_halves_clear(&plan->halves);
    weft_i_object_free(object);
}

weft_i_frame_plan *weft_i_frame_plan_new(weft_i_halves *halves)
{
    weft_i_frame_plan *plan = weft_i_object_new_unscoped(WEFT_I_FRAME, sizeof *plan, destroy);
    if (!plan) {
        weft_i_halves_clear(halves);
        return NULL;
    }
    plan->halves = *halves;
    weft_i_object_hold(halves->forward);
    weft_i_object_hold(halves->back);
    *halves = (weft_i_halves){0};
    if ((plan->program = weft_i_program_new(plan->halves.back)))
        return plan;
    weft_i_object_drop(plan);
    return NULL;
}

/* ---- backward ---- */

typedef struct walk {
    const weft_i_back *c;
    weft_i_frame_plan *plan;
    bool *handed;  /* of each edge */
    uint64_t came; /* tangents that are there */
} walk;

static weft_status take(void *user, int place, weft_tensor *grad, bool ours)
{
    walk *w = user;
    w->handed[place] = true;
    if (w->plan->halves.edges[place].needs & w->came)
        return weft_i_engine_hand_out(w->c->node, ARITY + place, grad, ours);
    if (ours)
        weft_release(grad);
    return weft_i_engine_hand_out(w->c->node, ARITY + place, NULL, false);
}

/* Laid out as the capture supposed; zeros if nothing depends on the output. */
static weft_tensor *tangent(const walk *w, int index, const weft_i_graph_value *like)
{
    weft_tensor *g = weft_i_back_g(w->c, index);
    bool same = g && g->offset == 0;
    for (int i = 0; same && i < g->ndim; i++)
        same = g->stride[i] == like->stride[i];
    return !g || same ? g : weft_clone(weft_contiguous(g));
}

static weft_status gather(walk *w, weft_tensor **inputs)
{
    const weft_i_halves *h = &w->plan->halves;
    int item = h->edge_count;
    for (int i = 0; i < h->input_count; i++) {
        const weft_i_back_input *in = &h->inputs[i];
        if (in->kind == WEFT_I_BACK_TANGENT)
            inputs[i] = tangent(w, in->index, &h->back->values[i]);
        else
            inputs[i] = w->c->node->item[item++];
        if (!inputs[i])
            return weft_last_status();
    }
    return WEFT_OK;
}

static weft_status run_back(walk *w, weft_tensor **inputs)
{
    const weft_i_halves *h = &w->plan->halves;
    weft_i_hands hands = {take, w};
    for (int i = 0; i < h->tangent_count; i++)
        w->came |= w->c->g[i] ? (uint64_t)1 << (i < 63 ? i : 63) : 0;
    WEFT_TRY(gather(w, inputs));
    WEFT_TRY(weft_i_program_run_back(w->plan->program, inputs, NULL, &hands));
    for (int i = 0; i < h->edge_count; i++)
        if (!w->handed[i])
            WEFT_TRY(weft_i_engine_hand_out(w->c->node, ARITY + i, NULL, false));
    w->plan->runs++;
    return WEFT_OK;
}

static weft_status back(weft_i_back *c)
{
    weft_i_frame_plan *plan = c->arg[PLAN].group.handle;
    const weft_i_halves *h = &plan->halves;
    walk w = {.c = c, .plan = plan};
    if (weft_i_engine_now()->create)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "the backward of a compiled function is not recorded: no second "
                           "derivatives pass \"%s\"; use backend \"eager\", without hooks inside",
                           h->forward->name);
    size_t inputs = (size_t)h->input_count + 1;
    weft_tensor **room = WEFT_OS->alloc(inputs * sizeof *room + (size_t)h->edge_count);
    if (!room)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu inputs", inputs);
    w.handed = (bool *)(room + inputs);
    weft_status status = run_back(&w, room);
    WEFT_OS->free(room);
    return status;
}

/* ---- forward ---- */

/* The tangent of an output; -1: it is a constant. */
static int tangent_of(const weft_i_halves *h, int output)
{
    for (int i = 0; i < h->tangent_count; i++)
        if (h->tangents[i] == output)
            return i;
    return -1;
}

weft_status weft_i_frame_prepare(weft_i_frame_call *call)
{
    const weft_i_halves *h = &call->plan->halves;
    int first = h->outs;
    call->spare = WEFT_OS->alloc(((size_t)h->changed + 1) * sizeof *call->spare);
    if (!call->spare)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d inputs", h->changed);
    for (int i = 0; i < h->changed; i++)
        WEFT_TRY(weft_i_history_prepare(call->inputs[h->changed_inputs[i]],
                                        tangent_of(h, first + i) > 0, &call->spare[i]));
    return WEFT_OK;
}

static bool is_in(weft_tensor *const *list, int count, const weft_tensor *x)
{
    for (int i = 0; i < count; i++)
        if (list[i] == x)
            return true;
    return false;
}

void weft_i_frame_release(const weft_i_frame_plan *plan, weft_tensor *const *inputs,
                          weft_tensor **outs)
{
    const weft_i_halves *h = &plan->halves;
    int last = h->outs + h->changed + h->saved;
    for (int i = h->outs; i < last; i++)
        if (!is_in(outs, i, outs[i]) && !is_in(inputs, h->forward->input_count, outs[i]))
            weft_release(outs[i]);
}

void weft_i_frame_finish(weft_i_frame_call *call)
{
    for (int i = 0; call->spare && i < call->plan->halves.changed; i++)
        weft_i_object_drop(call->spare[i]);
    WEFT_OS->free(call->spare);
    call->spare = NULL;
}

/* What one node is made of. */
typedef struct making {
    const weft_i_frame_call *call;
    weft_tensor *const *outs;
    weft_tensor **items;
    weft_i_edge *edges;
    int items_count, dims;
    weft_i_node *node;
} making;

/* The tensor whose gradient a tangent is. */
static weft_tensor *result(const making *m, int tangent)
{
    return m->outs[m->call->plan->halves.tangents[tangent]];
}

static weft_tensor *saved(const making *m, const weft_i_back_input *in)
{
    const weft_i_halves *h = &m->call->plan->halves;
    return in->kind == WEFT_I_BACK_INPUT ? m->call->inputs[in->index]
                                         : m->outs[h->outs + h->changed + in->index];
}

static weft_status list(making *m)
{
    const weft_i_halves *h = &m->call->plan->halves;
    for (int i = 0; i < h->edge_count; i++) {
        const weft_i_back_edge *edge = &h->edges[i];
        weft_tensor *x = edge->made ? m->outs[edge->index] : m->call->inputs[edge->index];
        WEFT_TRY(weft_i_history_edge(x, &m->edges[ARITY + i]));
        m->items[m->items_count++] = x;
    }
    for (int i = 0; i < h->input_count; i++)
        if (h->inputs[i].kind != WEFT_I_BACK_TANGENT) {
            m->items[m->items_count++] = saved(m, &h->inputs[i]);
            m->dims += m->items[m->items_count - 1]->ndim;
        }
    for (int i = 0; i < h->tangent_count; i++)
        m->dims += result(m, i)->ndim;
    return WEFT_OK;
}

static void save(making *m)
{
    const weft_i_halves *h = &m->call->plan->halves;
    int item = h->edge_count;
    for (int i = 0; i < h->input_count; i++) {
        const weft_i_back_input *in = &h->inputs[i];
        if (in->kind == WEFT_I_BACK_TANGENT)
            continue;
        weft_i_node_save(m->node, ARITY + item, m->items[item], in->kind == WEFT_I_BACK_INPUT);
        if (!in->checked)
            m->node->slot[m->node->slots - 1].count = -1;
        item++;
    }
}

static weft_status make_node(making *m)
{
    const weft_i_halves *h = &m->call->plan->halves;
    WEFT_TRY(list(m));
    weft_i_arg args[ARITY] = {WEFT_I_TENSORS_ARG(m->items, (size_t)m->items_count),
                              WEFT_I_GROUP_ARG(m->call->plan, h->forward->name, 0)};
    weft_i_op_call call = {.op = &frame_row, .args = args};
    weft_i_node_plan plan = {.call = &call,
                             .edges = m->edges,
                             .count = ARITY + m->items_count,
                             .outputs = h->tangent_count,
                             .slots = m->items_count - h->edge_count,
                             .dims = m->dims};
    if (!(m->node = weft_i_node_new(&plan)))
        return weft_last_status();
    for (int i = 0; i < h->tangent_count; i++)
        weft_i_node_output(m->node, result(m, i));
    save(m);
    return WEFT_OK;
}

/* Results, and inputs that were written, are what the node made. */
static weft_status give_histories(making *m)
{
    const weft_i_halves *h = &m->call->plan->halves;
    for (int i = 0; i < h->tangent_count; i++)
        if (h->tangents[i] < h->outs)
            WEFT_TRY(weft_i_history_set(m->outs[h->tangents[i]], m->node, i));
    for (int i = 0; i < h->changed; i++) {
        int tangent = tangent_of(h, h->outs + i);
        weft_i_history_written(m->call->inputs[h->changed_inputs[i]], tangent < 0 ? NULL : m->node,
                               tangent < 0 ? 0 : tangent, m->call->spare[i]);
        m->call->spare[i] = NULL;
    }
    return WEFT_OK;
}

weft_status weft_i_frame_attach(weft_i_frame_call *call, weft_tensor *const *outs)
{
    const weft_i_halves *h = &call->plan->halves;
    size_t most = (size_t)(h->edge_count + h->input_count + ARITY);
    making m = {.call = call,
                .outs = outs,
                .items = WEFT_OS->alloc(most * sizeof *m.items),
                .edges = WEFT_OS->alloc(most * sizeof *m.edges)};
    weft_status status = m.items && m.edges
                             ? make_node(&m)
                             : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors", most);
    if (status >= 0)
        status = give_histories(&m);
    weft_i_object_drop(m.node);
    WEFT_OS->free(m.items);
    WEFT_OS->free(m.edges);
    return status;
}
