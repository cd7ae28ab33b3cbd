/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a joint graph apart; see joint.h. */
#include "graph/capture/joint.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "grad/ops.h"
#include "graph/ir/replay.h"
#include "graph/pass/cut.h"
#include "graph/pass/passes.h"
#include "tensor/op/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct splitting {
    const weft_graph *joint;
    const weft_i_capture_how *how;
    int boundary;  /* the first value of backward */
    int *roots;    /* of each value: the first that is the same tensor */
    int *latest;   /* of each root: the last before the boundary */
    int *places;   /* of each root: number of the output of the forward half that it is; -1 */
    int *owners;   /* of each storage: the first input on it; -1 */
    size_t *bytes; /* of each storage at the boundary */
    bool *written; /* of each storage: by the forward half; then: by the backward half */
    int *crossing, crossing_count;
    int *fed; /* of each input: its number in the forward half; -1: a tangent */
    weft_graph *forward;
    weft_i_cut cut;
    weft_i_trace trace;
    weft_i_replay old, pure; /* nodes of the joint graph; nodes that are done again */
    weft_tensor **inputs;    /* of each input of the joint graph: its fake in backward */
    weft_i_halves *halves;
} splitting;

/* ---- looking at it ---- */

static weft_status make_room(splitting *s)
{
    const weft_graph *j = s->joint;
    size_t values = (size_t)j->value_count + 1, storages = (size_t)j->storages + 1,
           inputs = (size_t)j->input_count + 1;
    s->roots = WEFT_OS->alloc((4 * values + storages + inputs) * sizeof *s->roots);
    s->bytes = WEFT_OS->alloc(storages * sizeof *s->bytes);
    s->written = WEFT_OS->alloc(2 * storages);
    s->old.fakes = WEFT_OS->alloc((values + inputs) * sizeof *s->old.fakes);
    if (!s->roots || !s->bytes || !s->written || !s->old.fakes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu values", values);
    s->latest = s->roots + values;
    s->places = s->latest + values;
    s->crossing = s->places + values;
    s->owners = s->crossing + values;
    s->fed = s->owners + storages;
    s->inputs = s->old.fakes + values;
    memset(s->places, 0xff, values * sizeof *s->places);
    memset(s->owners, 0xff, storages * sizeof *s->owners);
    return WEFT_OK;
}

static void look_at_node(splitting *s, int i)
{
    const weft_graph *j = s->joint;
    const weft_i_graph_node *node = &j->nodes[i];
    bool back = i >= s->how->split;
    for (int k = 0; k < node->count; k++) {
        int same = weft_i_graph_node_same(node, k), value = node->first + k;
        s->roots[value] = same < 0 ? value : s->roots[same];
        bool about = node->op->flags & WEFT_I_OP_EFFECT; /* gradients, names */
        if (same >= 0 && !about)
            s->written[(back ? j->storages : 0) + j->values[same].storage] = true;
        if (back || j->values[value].absent)
            continue;
        s->latest[s->roots[value]] = value;
        s->bytes[j->values[value].storage] = j->values[value].bytes;
    }
}

static weft_status look(splitting *s)
{
    const weft_graph *j = s->joint;
    int fed = 0;
    WEFT_TRY(make_room(s));
    for (int i = 0; i < j->value_count; i++) {
        s->roots[i] = s->latest[i] = i;
        if (j->values[i].node < 0)
            s->bytes[j->values[i].storage] = j->values[i].bytes;
    }
    for (int i = 0; i < j->input_count; i++) {
        bool tangent = j->inputs[i].flags & WEFT_I_INPUT_TANGENT;
        s->fed[i] = tangent ? -1 : fed++;
        int *owner = &s->owners[j->values[j->inputs[i].value].storage];
        *owner = !tangent && *owner < 0 ? i : *owner;
    }
    for (int i = 0; i < j->node_count; i++)
        look_at_node(s, i);
    s->boundary = s->how->split < j->node_count ? j->nodes[s->how->split].first : j->value_count;
    return WEFT_OK;
}

static bool is_constant(const splitting *s, int root)
{
    return root >= s->joint->input_count && root < s->joint->input_count + s->joint->constant_count;
}

/* Backward needs it from the forward half: no input, nor a view of one, which is read again. */
static bool crosses(const splitting *s, int value)
{
    int root = s->roots[value], storage = s->joint->values[root].storage;
    if (value >= s->boundary || root >= s->boundary || root < s->joint->input_count)
        return false;
    if (is_constant(s, root) && !s->written[storage])
        return false;
    return s->owners[storage] < 0;
}

static void find_crossing(splitting *s)
{
    const weft_graph *j = s->joint;
    int value;
    for (int i = s->how->split; i < j->node_count; i++)
        for (size_t at = 0; weft_i_graph_node_next(&j->nodes[i], &at, &value);) {
            bool leaf =
                j->nodes[i].op == &weft_i_op_accumulate && value == j->nodes[i].terms[0].value;
            int root = s->roots[value];
            if (leaf || !crosses(s, value) || s->places[root] >= 0)
                continue;
            WEFT_ASSERT(s->crossing_count < j->value_count);
            s->places[root] = s->joint->output_count + s->crossing_count;
            s->crossing[s->crossing_count++] = root;
        }
}

/* ---- the forward half ---- */

/* An input that the half has already and that shares the storage, or the counter, with it. */
static weft_tensor *sharing(const splitting *s, int input, bool counter)
{
    const weft_graph *j = s->joint;
    const weft_i_graph_value *v = &j->values[j->inputs[input].value];
    for (int i = 0; i < j->input_count; i++) {
        const weft_i_graph_value *other = &j->values[j->inputs[i].value];
        if (s->inputs[i] && (counter ? other->counter == v->counter : other->storage == v->storage))
            return s->inputs[i];
    }
    return NULL;
}

static weft_tensor *add_input(splitting *s, int i, weft_i_graph_value like, bool holds)
{
    weft_i_graph_input input = s->joint->inputs[i];
    input.tensor = holds ? input.tensor : NULL;
    like.version = 0;
    return s->inputs[i] = weft_i_trace_input(&s->trace, &like, sharing(s, i, false),
                                             sharing(s, i, true), &input);
}

static weft_status begin_forward(splitting *s)
{
    const weft_graph *j = s->joint;
    for (int i = 0; i < j->input_count; i++) {
        int value = j->inputs[i].value;
        if (s->fed[i] >= 0 && !(s->old.fakes[value] = add_input(s, i, j->values[value], true)))
            return weft_last_status();
    }
    for (int i = 0; i < j->constant_count; i++) {
        const weft_i_graph_constant *constant = &j->constants[i];
        s->old.fakes[constant->value] = weft_i_trace_constant(&s->trace, constant->tensor);
        if (!s->old.fakes[constant->value])
            return weft_last_status();
    }
    WEFT_TRY(weft_i_graph_set_arguments(s->trace.graph, j->arguments, j->argument_count));
    for (int i = 0; i < j->argument_count; i++)
        s->trace.graph->arguments[i] = s->fed[j->arguments[i]];
    return WEFT_OK;
}

/* Nodes up to the boundary; `outputs` gets their values. */
static weft_status walk_forward(splitting *s, int *outputs)
{
    const weft_graph *j = s->joint;
    s->old = (weft_i_replay){j, &s->trace, s->old.fakes, NULL, s, NULL};
    WEFT_TRY(weft_i_trace_begin(&s->trace, j->name));
    WEFT_TRY(begin_forward(s));
    for (int i = 0; i < s->how->split; i++)
        WEFT_TRY(weft_i_replay_node(&s->old, &j->nodes[i]));
    for (int i = 0; i < j->output_count + s->crossing_count; i++) {
        int value =
            i < j->output_count ? j->outputs[i] : s->latest[s->crossing[i - j->output_count]];
        WEFT_ASSERT(value < s->boundary && s->old.fakes[value]); /* the forward half makes it */
        outputs[i] = (int)s->old.fakes[value]->node;
    }
    return WEFT_OK;
}

/* Whether backward may read the input of the joint graph again as forward had it. */
static bool is_free(const splitting *s, int input)
{
    const weft_i_graph_input *in = &s->joint->inputs[input];
    int storage = s->joint->values[in->value].storage;
    return in->flags & WEFT_I_INPUT_NEEDED && !s->written[storage] &&
           !s->written[s->joint->storages + storage];
}

static weft_status find_cut(splitting *s)
{
    bool *usable = WEFT_OS->alloc((size_t)s->joint->input_count + 1);
    if (!usable)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a cut");
    for (int i = 0; i < s->joint->input_count; i++)
        if (s->fed[i] >= 0)
            usable[s->fed[i]] = is_free(s, i);
    weft_status status = weft_i_cut_find(s->forward, s->joint->output_count, usable, &s->cut);
    WEFT_OS->free(usable);
    return status;
}

/* What was traced, after the passes; in the current scope.  The trace is over. */
static weft_graph *end_trace(splitting *s, weft_status status, const int *outputs, int count,
                             unsigned stages)
{
    weft_graph *raw = status < 0 ? NULL : weft_keep(weft_i_trace_end(&s->trace, outputs, count));
    if (s->trace.graph)
        weft_i_trace_abandon(&s->trace);
    weft_scope_close();
    if (!raw)
        return NULL;
    weft_i_object_scope(raw);
    weft_graph *graph = weft_i_graph_pass_run(raw, stages);
    weft_release(raw);
    return graph;
}

static weft_status make_forward(splitting *s, unsigned stages)
{
    int count = s->joint->output_count + s->crossing_count;
    int *outputs = WEFT_OS->alloc(((size_t)count + 1) * sizeof *outputs);
    weft_status status =
        outputs ? weft_scope_open() : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for outputs");
    if (status >= 0) {
        s->forward = end_trace(s, walk_forward(s, outputs), outputs, count, stages);
        status = s->forward ? find_cut(s) : weft_last_status();
    }
    WEFT_OS->free(outputs);
    /* Backward has fakes of its own. */
    size_t fakes = (size_t)(s->joint->value_count + s->joint->input_count + 1);
    memset(s->old.fakes, 0, fakes * sizeof *s->old.fakes);
    return status;
}

/* The forward half with what is saved as its last outputs. */
static weft_status end_forward(splitting *s)
{
    weft_graph *f = s->forward;
    int own = s->joint->output_count;
    int *outputs = WEFT_OS->alloc((size_t)(own + s->cut.count + 1) * sizeof *outputs);
    if (!outputs)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d outputs", own + s->cut.count);
    memcpy(outputs, f->outputs, (size_t)own * sizeof *outputs);
    if (s->cut.count)
        memcpy(outputs + own, s->cut.saved, (size_t)s->cut.count * sizeof *outputs);
    weft_status status = weft_i_graph_set_outputs(f, outputs, own + s->cut.count);
    WEFT_OS->free(outputs);
    WEFT_TRY(status);
    s->halves->forward = weft_i_graph_pass_run(f, WEFT_I_STAGE_CLEAN);
    return s->halves->forward ? WEFT_OK : weft_last_status();
}

/* ---- the backward half: its inputs ---- */

static weft_status note_input(splitting *s, weft_i_back_input input)
{
    weft_i_halves *h = s->halves;
    size_t bytes = ((size_t)h->input_count + 1) * sizeof *h->inputs;
    weft_i_back_input *more = WEFT_OS->resize(h->inputs, bytes);
    if (!more)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    h->inputs = more;
    h->inputs[h->input_count++] = input;
    return WEFT_OK;
}

/* The fake of an input of the joint graph. */
static weft_tensor *input_of(splitting *s, int i)
{
    const weft_graph *j = s->joint;
    const weft_i_graph_input *in = &j->inputs[i];
    if (s->inputs[i])
        return s->inputs[i];
    weft_i_graph_value like = j->values[s->latest[in->value]];
    weft_i_back_input what = {
        .kind = WEFT_I_BACK_INPUT, .index = s->fed[i], .checked = in->flags & WEFT_I_INPUT_NEEDED};
    like.bytes = s->bytes[like.storage];
    return note_input(s, what) < 0 ? NULL : add_input(s, i, like, false);
}

static weft_status add_tangents(splitting *s)
{
    const weft_graph *j = s->joint;
    weft_i_halves *h = s->halves;
    if (!(h->tangents = WEFT_OS->alloc(((size_t)j->input_count + 1) * sizeof *h->tangents)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for tangents");
    for (int i = 0; i < j->input_count; i++) {
        const weft_i_graph_input *in = &j->inputs[i];
        if (!(in->flags & WEFT_I_INPUT_TANGENT))
            continue;
        WEFT_TRY(note_input(s, (weft_i_back_input){WEFT_I_BACK_TANGENT, h->tangent_count, false}));
        h->tangents[h->tangent_count++] = atoi(in->name + strlen("tangent"));
        weft_i_graph_input input = {.name = in->name};
        weft_i_graph_value like = j->values[in->value];
        if (!(s->inputs[i] = weft_i_trace_input(&s->trace, &like, NULL, NULL, &input)))
            return weft_last_status();
    }
    return WEFT_OK;
}

/* ---- the backward half: values that come from forward ---- */

static weft_tensor *saved_input(splitting *s, int index)
{
    char name[32];
    weft_i_graph_value like = s->forward->values[s->cut.saved[index]];
    snprintf(name, sizeof name, "saved%d", index);
    weft_i_graph_input input = {.name = name};
    like.version = 0;
    if (note_input(s, (weft_i_back_input){WEFT_I_BACK_SAVED, index, true}) < 0)
        return NULL;
    return weft_i_trace_input(&s->trace, &like, NULL, NULL, &input);
}

/* A value of the pure forward half: saved, an input, a constant, or done again. */
static weft_tensor *find_pure(weft_i_replay *replay, int value)
{
    splitting *s = replay->user;
    const weft_graph *f = s->forward;
    for (int i = 0; i < s->cut.count; i++)
        if (s->cut.saved[i] == value)
            return saved_input(s, i);
    for (int i = 0; i < s->joint->input_count; i++)
        if (value < f->input_count && s->fed[i] == value)
            return input_of(s, i);
    for (int i = 0; i < f->constant_count; i++)
        if (f->constants[i].value == value)
            return weft_i_trace_constant(&s->trace, f->constants[i].tensor);
    if (weft_i_replay_node(replay, &f->nodes[f->values[value].node]) < 0)
        return NULL;
    return replay->fakes[value];
}

/* A view of an input, taken when it is needed: the input may be empty before. */
static weft_tensor *view_of_input(splitting *s, int root)
{
    const weft_i_graph_value *v = &s->joint->values[s->latest[root]];
    weft_tensor *base = input_of(s, s->owners[v->storage]);
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(base), WEFT_I_INTEGERS_ARG(v->shape.dim, v->shape.ndim),
                         WEFT_I_INTEGERS_ARG(v->stride, v->shape.ndim),
                         WEFT_I_INTEGER_ARG(v->offset)};
    weft_i_op_call call = {.op = &weft_i_op_as_strided, .args = args};
    return base ? weft_i_trace_call(&s->trace, &call) : NULL;
}

static weft_tensor *find_old(weft_i_replay *replay, int value)
{
    splitting *s = replay->user;
    const weft_graph *j = s->joint;
    int root = s->roots[value];
    if (value != root && (root < s->boundary || replay->fakes[root]))
        return weft_i_replay_value(replay, root);
    if (root < j->input_count)
        return input_of(s, root); /* input i is value i */
    if (s->places[root] >= 0)
        return weft_i_replay_value(&s->pure, s->forward->outputs[s->places[root]]);
    if (is_constant(s, root))
        return weft_i_trace_constant(&s->trace, j->constants[root - j->input_count].tensor);
    return s->owners[j->values[root].storage] >= 0
               ? view_of_input(s, root)
               : weft_i_null(WEFT_ERR_INTERNAL, "value %%%d of a joint graph is nowhere", value);
}

/* ---- the backward half: its nodes ---- */

/* The number of the edge that leads to this leaf, or -1: nobody can see its gradient. */
static int edge_to(splitting *s, int leaf)
{
    const weft_graph *j = s->joint;
    weft_i_halves *h = s->halves;
    int root = s->roots[leaf], made = -1;
    for (int i = 0; root >= j->input_count && i < h->outs && made < 0; i++)
        made = s->roots[j->outputs[i]] == root ? i : -1;
    if (root >= j->input_count && made < 0)
        return -1;
    weft_i_back_edge edge = {made >= 0, made >= 0 ? made : s->fed[root], 0};
    size_t bytes = ((size_t)h->edge_count + 1) * sizeof *h->edges;
    weft_i_back_edge *more = WEFT_OS->resize(h->edges, bytes);
    if (!more)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes", bytes), -2;
    h->edges = more;
    h->edges[h->edge_count] = edge;
    return h->edge_count++;
}

static weft_status hand_out(splitting *s, const weft_i_graph_node *node)
{
    int edge = edge_to(s, node->terms[0].value);
    if (edge == -2)
        return weft_last_status();
    if (edge < 0)
        return WEFT_OK;
    weft_tensor *g = weft_i_replay_value(&s->old, node->terms[1].value);
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(g), WEFT_I_INTEGER_ARG(edge)};
    weft_i_op_call call = {.op = &weft_i_op_hand_out, .args = args};
    s->trace.quiet = false;
    return g && weft_i_trace_call(&s->trace, &call) ? WEFT_OK : weft_last_status();
}

static weft_status check_tangents(const splitting *s)
{
    const weft_graph *j = s->joint;
    for (int i = 0; i < j->input_count; i++)
        if (j->inputs[i].flags & WEFT_I_INPUT_TANGENT &&
            s->written[j->storages + j->values[j->inputs[i].value].storage])
            return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                               "backward writes to the gradient of output %s, which is not its "
                               "own; write to a clone",
                               j->inputs[i].name + strlen("tangent"));
    return WEFT_OK;
}

static weft_status walk_back(splitting *s)
{
    const weft_graph *j = s->joint;
    WEFT_TRY(check_tangents(s));
    WEFT_TRY(weft_i_trace_begin(&s->trace, j->name));
    s->old = (weft_i_replay){j, &s->trace, s->old.fakes, find_old, s, NULL};
    s->pure = (weft_i_replay){s->forward, &s->trace, NULL, find_pure, s, NULL};
    s->pure.fakes = WEFT_OS->alloc(((size_t)s->forward->value_count + 1) * sizeof *s->pure.fakes);
    if (!s->pure.fakes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d values", s->forward->value_count);
    WEFT_TRY(add_tangents(s));
    for (int i = s->how->split; i < j->node_count; i++) {
        const weft_i_graph_node *node = &j->nodes[i];
        WEFT_TRY(node->op == &weft_i_op_accumulate ? hand_out(s, node)
                                                   : weft_i_replay_node(&s->old, node));
    }
    return WEFT_OK;
}

/* Which tangents each gradient depends on. */
static weft_status find_needs(weft_i_halves *h)
{
    const weft_graph *b = h->back;
    uint64_t *needs = WEFT_OS->alloc(((size_t)b->value_count + 1) * sizeof *needs);
    if (!needs)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d values", b->value_count);
    for (int i = 0; i < h->tangent_count; i++) /* they come first */
        needs[i] = (uint64_t)1 << (i < 63 ? i : 63);
    for (int i = 0, value; i < b->node_count; i++) {
        const weft_i_graph_node *node = &b->nodes[i];
        uint64_t all = 0;
        for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
            all |= needs[value];
        for (int k = 0; k < node->count; k++)
            needs[node->first + k] = all;
        if (node->op == &weft_i_op_hand_out)
            h->edges[node->terms[1].integer].needs = all;
    }
    WEFT_OS->free(needs);
    return WEFT_OK;
}

static weft_status make_back(splitting *s, unsigned stages)
{
    WEFT_TRY(weft_scope_open());
    s->halves->back = end_trace(s, walk_back(s), NULL, 0, stages);
    return s->halves->back ? find_needs(s->halves) : weft_last_status();
}

/* ---- all of it ---- */

static weft_status find_changed(splitting *s)
{
    weft_i_halves *h = s->halves;
    size_t count = (size_t)h->changed + 1;
    if (!(h->changed_inputs = WEFT_OS->alloc(count * sizeof *h->changed_inputs)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu inputs", count);
    for (int i = 0; i < h->changed; i++)
        h->changed_inputs[i] = s->fed[s->roots[s->joint->outputs[h->outs + i]]];
    return WEFT_OK;
}

/* Guards are about inputs of the forward half, which has no tangents. */
static void renumber_guards(const splitting *s)
{
    weft_i_guards *guards = s->how->guards;
    for (int i = 0; guards && i < guards->count; i++)
        if (guards->at[i].input >= 0)
            guards->at[i].input = s->fed[guards->at[i].input];
}

static weft_status split(splitting *s, unsigned stages)
{
    WEFT_TRY(look(s));
    renumber_guards(s);
    WEFT_TRY(find_changed(s));
    find_crossing(s);
    WEFT_TRY(make_forward(s, stages));
    WEFT_TRY(make_back(s, stages));
    s->halves->saved = s->cut.count;
    s->halves->saved_bytes = s->cut.bytes;
    s->halves->whole_bytes = s->cut.whole;
    return end_forward(s);
}

weft_status weft_i_joint_split(const weft_graph *joint, const weft_i_capture_how *how,
                               unsigned stages, weft_i_halves *halves)
{
    *halves = (weft_i_halves){.changed = how->changed, .outs = joint->output_count - how->changed};
    splitting s = {.joint = joint, .how = how, .halves = halves};
    weft_status status = split(&s, stages);
    weft_i_cut_clear(&s.cut);
    WEFT_OS->free(s.roots);
    WEFT_OS->free(s.bytes);
    WEFT_OS->free(s.written);
    WEFT_OS->free(s.old.fakes);
    WEFT_OS->free(s.pure.fakes);
    if (status < 0)
        weft_i_halves_clear(halves);
    return status;
}

void weft_i_halves_clear(weft_i_halves *halves)
{
    WEFT_OS->free(halves->tangents);
    WEFT_OS->free(halves->inputs);
    WEFT_OS->free(halves->edges);
    WEFT_OS->free(halves->changed_inputs);
    *halves = (weft_i_halves){0};
}
