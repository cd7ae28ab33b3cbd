/* SPDX-License-Identifier: Apache-2.0 */
/* Running a graph row by row; see program.h. */
#include "graph/run/program.h"

#include "base/os/os.h"
#include "grad/engine.h"
#include "grad/opaque.h"
#include "grad/ops.h"
#include "graph/emit/emit.h"
#include "graph/emit/plan.h"
#include "graph/run/work.h"
#include "nn/ops.h"
#include "tensor/object/eye.h"
#include "tensor/op/autocast.h"
#include "tensor/op/profile.h"
#include "weft/module.h"
#include "weft/op.h"

#include <string.h>

struct weft_i_program {
    weft_graph *graph;
    int *root;      /* of each value: the first that is the same tensor */
    int *last;      /* of each root: the last node that needs it; node_count: an output */
    bool *copied;   /* of each constant: it is written or handed out, so runs take copies */
    size_t tensors; /* the most that one node has in lists and results */
    weft_i_work work;
    weft_i_plan plan;
};

typedef struct run {
    weft_i_program *program;
    weft_tensor **values; /* of each root */
    weft_tensor **lists;  /* room for one node */
    const weft_i_hands *hands;
    weft_storage *arena; /* NULL: nothing lies in one */
    weft_tensor **comm;  /* communication buffers; NULL: there are none, or no memory is used */
    bool planned;        /* real tensors, by the plan */
    int64_t *spent;      /* the time of nodes is added here; NULL: it is not measured */
} run;

static int count_tensors(const weft_i_graph_node *node)
{
    int count = node->count;
    for (int i = 0; i < node->op->arity; i++)
        count += node->terms[i].kind == WEFT_I_ARG_TENSORS ? (int)node->terms[i].count : 0;
    return count;
}

static void note_uses(weft_i_program *program)
{
    const weft_graph *graph = program->graph;
    int value;
    for (int i = 0; i < graph->value_count; i++)
        program->root[i] = i;
    for (int i = 0; i < graph->node_count; i++) {
        const weft_i_graph_node *node = &graph->nodes[i];
        for (int k = 0; k < node->count; k++) {
            int same = weft_i_graph_node_same(node, k), made = node->first + k;
            program->root[made] = same < 0 ? made : program->root[same];
            program->last[program->root[made]] = i;
        }
        for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
            program->last[program->root[value]] = i;
        size_t tensors = (size_t)count_tensors(node);
        program->tensors = tensors > program->tensors ? tensors : program->tensors;
    }
    for (int i = 0; i < graph->output_count; i++)
        program->last[program->root[graph->outputs[i]]] = graph->node_count;
}

static bool is_changed(const weft_graph *graph, int storage)
{
    for (int i = 0; i < graph->node_count; i++)
        for (int k = 0; k < graph->nodes[i].count; k++) {
            int same = weft_i_graph_node_same(&graph->nodes[i], k);
            if (same >= 0 && graph->values[same].storage == storage)
                return true;
        }
    for (int i = 0; i < graph->output_count; i++)
        if (graph->values[graph->outputs[i]].storage == storage)
            return true;
    return false;
}

weft_i_program *weft_i_program_new(weft_graph *graph)
{
    size_t values = (size_t)graph->value_count + 1, constants = (size_t)graph->constant_count + 1;
    weft_i_program *program =
        WEFT_OS->alloc(sizeof *program + 2 * values * sizeof(int) + constants * sizeof(bool));
    if (!program)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a program of %d values",
                           graph->value_count);
    program->root = (int *)(program + 1);
    program->last = program->root + values;
    program->copied = (bool *)(program->last + values);
    program->graph = weft_i_object_hold(graph);
    memset(program->last, 0xff, values * sizeof(int));
    note_uses(program);
    for (int i = 0; i < graph->constant_count; i++)
        program->copied[i] = is_changed(graph, graph->values[graph->constants[i].value].storage);
    if (weft_i_work_open(&program->work, graph) < 0 ||
        (graph->planned && weft_i_plan_make(graph, &program->plan) < 0)) {
        weft_i_program_free(program);
        return NULL;
    }
    weft_i_comm_number(program->plan.symmetric, program->plan.symmetric_count);
    return program;
}

void weft_i_program_free(weft_i_program *program)
{
    if (program) {
        weft_i_object_drop(program->graph);
        weft_i_plan_clear(&program->plan);
        weft_i_work_close(&program->work);
    }
    WEFT_OS->free(program);
}

static weft_tensor *value_of(const run *r, int value)
{
    return value < 0 ? NULL : r->values[r->program->root[value]];
}

static weft_i_arg argument(const run *r, const weft_i_graph_term *term, weft_tensor ***lists)
{
    weft_i_arg arg = {.kind = term->kind, .count = term->count};
    switch (term->kind) {
    case WEFT_I_ARG_TENSOR:
        arg.tensor = value_of(r, term->value);
        break;
    case WEFT_I_ARG_TENSORS:
        arg.tensors = *lists;
        for (size_t i = 0; i < term->count; i++)
            *(*lists)++ = value_of(r, term->values[i]);
        break;
    case WEFT_I_ARG_NUMBER:
        arg.number = term->number;
        break;
    case WEFT_I_ARG_INTEGER:
        arg.integer = term->integer;
        break;
    case WEFT_I_ARG_INTEGERS:
        arg.integers = term->integers;
        break;
    case WEFT_I_ARG_GROUP:
        arg.group.name = term->group.name;
        arg.group.handle = term->group.handle;
        break;
    case WEFT_I_ARG_NONE:
        break;
    }
    return arg;
}

/* Whether the run made the tensor: all but inputs, and constants that are not copied. */
static bool is_ours(const weft_i_program *program, int root)
{
    const weft_graph *graph = program->graph;
    if (graph->values[root].node >= 0)
        return true;
    for (int i = 0; i < graph->constant_count; i++)
        if (graph->constants[i].value == root)
            return program->copied[i];
    return false;
}

/* Nobody needs the value after node `i`, and it can be given away. */
static bool is_given_up(const run *r, int value, int i)
{
    int root = r->program->root[value];
    return r->program->last[root] == i && is_ours(r->program, root);
}

static weft_status hand_out(run *r, const weft_i_graph_node *node, int i)
{
    int value = node->terms[0].value;
    weft_tensor *g = value_of(r, value);
    bool ours = is_given_up(r, value, i);
    if (!r->hands)
        return weft_i_fail(WEFT_ERR_STATE, "graph \"%s\" is the backward of another one",
                           r->program->graph->name);
    if (ours)
        r->values[r->program->root[value]] = NULL;
    return r->hands->take(r->hands->user, (int)node->terms[1].integer, g, ours);
}

/* A gradient that is needed again is not taken over. */
static weft_status add_up(run *r, const weft_i_graph_node *node, int i)
{
    weft_tensor *leaf = value_of(r, node->terms[0].value);
    weft_tensor *g = value_of(r, node->terms[1].value);
    bool ours = is_given_up(r, node->terms[1].value, i);
    if (!ours)
        weft_i_object_hold(g);
    weft_status status = WEFT_I_ACT(accumulate, WEFT_I_TENSOR_ARG(leaf), WEFT_I_TENSOR_ARG(g),
                                    WEFT_I_INTEGER_ARG(node->terms[2].integer));
    if (!ours)
        weft_i_object_drop(g);
    return status;
}

static weft_status make_leaf(run *r, const weft_i_graph_node *node)
{
    weft_tensor *x = weft_parameter(value_of(r, node->terms[0].value), node->terms[1].integer);
    r->values[node->first] = x;
    return x ? WEFT_OK : weft_last_status();
}

static weft_status read_gradient(run *r, const weft_i_graph_node *node)
{
    weft_tensor *x = weft_i_grad_alias(value_of(r, node->terms[0].value));
    r->values[node->first] = x;
    return x ? WEFT_OK : weft_last_status();
}

/* Laid out as the capture supposed; `x` goes if another takes its place. */
static weft_tensor *as_captured(weft_tensor *x, const weft_i_graph_value *like)
{
    bool same = x->offset == like->offset;
    for (int i = 0; same && i < x->ndim; i++)
        same = x->dim[i] == 1 || x->stride[i] == like->stride[i];
    if (same)
        return x;
    weft_tensor *copy = weft_empty_strided(x->dtype, like->device, like->shape, like->stride);
    if (copy && weft_copy(copy, x) < 0) {
        weft_release(copy);
        copy = NULL;
    }
    weft_release(x);
    return copy;
}

/* The user's function, with the tensors of this run. */
static weft_status call_opaque(run *r, const weft_i_graph_node *node)
{
    weft_tensor **lists = r->lists, **out = r->values + node->first;
    weft_i_arg x = argument(r, &node->terms[0], &lists),
               held = argument(r, &node->terms[1], &lists);
    const weft_i_opaque *opaque = node->terms[2].group.handle;
    if (!opaque)
        return weft_i_fail(WEFT_ERR_STATE, "opaque: \"%s\" is only a name in this graph",
                           node->terms[2].group.name);
    WEFT_TRY(weft_i_opaque_run_now(opaque, x.tensors, x.count, held.tensors, held.count, out));
    for (int k = 0; k < node->count; k++)
        if (!(out[k] = as_captured(out[k], &r->program->graph->values[node->first + k])))
            return weft_last_status();
    return WEFT_OK;
}

/* Calls the row of one node; its results are noted. */
static weft_status run_node(run *r, const weft_i_graph_node *node)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_tensor **lists = r->lists, *one = NULL, **outs = NULL;
    bool several = node->op->flags & WEFT_I_OP_LIST || node->op->results > 1;
    for (int i = 0; i < node->op->arity; i++)
        args[i] = argument(r, &node->terms[i], &lists);
    if (several) {
        outs = lists;
        WEFT_TRY(weft_i_op_apply_list(node->op, outs, args));
    } else if (!(one = weft_i_op_apply(node->op, value_of(r, node->into), args)))
        return weft_last_status();
    for (int k = 0; k < node->count; k++)
        if (weft_i_graph_node_same(node, k) < 0)
            r->values[node->first + k] = outs ? outs[k] : one;
    return WEFT_OK;
}

/* The tensor that a planned node writes: its place in the arena, or memory of its own. */
static weft_tensor *target_of(const run *r, int value)
{
    const weft_i_graph_value *v = &r->program->graph->values[value];
    int64_t at = r->program->plan.at[value];
    int comm = r->program->plan.comm[value];
    if (comm >= 0)
        return weft_i_tensor_new_view(r->comm[comm]->storage, NULL, v->dtype, v->shape, v->stride,
                                      0);
    if (at < 0)
        return weft_i_tensor_new(v->dtype, v->device, v->shape, v->stride);
    return weft_i_tensor_new_view(r->arena, NULL, v->dtype, v->shape, v->stride,
                                  at / (int64_t)weft_dtype_size(v->dtype));
}

static weft_status make_targets(run *r, const weft_i_graph_node *node)
{
    for (int k = 0; k < node->count; k++)
        if (!(r->values[node->first + k] = target_of(r, node->first + k)))
            return weft_last_status();
    return WEFT_OK;
}

static uint64_t bytes_of(weft_tensor *const *list, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += (uint64_t)list[i]->numel * weft_dtype_size(list[i]->dtype);
    return bytes;
}

/* Compiled code, whose operands were checked when the graph was made; but some may be under way. */
static weft_status run_code(run *r, const weft_i_graph_node *node)
{
    weft_tensor **lists = r->lists;
    weft_i_arg ins = argument(r, &node->terms[0], &lists);
    for (size_t i = 0; i < ins.count; i++)
        WEFT_TRY(weft_i_tensor_check_fits(node->op->name, ins.tensors[i]));
    WEFT_TRY(make_targets(r, node));
    weft_tensor **outs = r->values + node->first;
    int64_t began = weft_i_profile_begin(weft_i_emit_row_device(node->op));
    WEFT_TRY(weft_i_emit_row_run(node->op, ins.tensors, ins.count, outs));
    if (began >= 0)
        weft_i_profile_end(node->op, weft_i_emit_row_device(node->op),
                           bytes_of(ins.tensors, ins.count) + bytes_of(outs, (size_t)node->count),
                           began);
    return WEFT_OK;
}

/* A row that writes where it is told to. */
static weft_status run_into(run *r, const weft_i_graph_node *node)
{
    weft_i_arg args[WEFT_I_OP_ARGS];
    weft_tensor **lists = r->lists;
    for (int i = 0; i < node->op->arity; i++)
        args[i] = argument(r, &node->terms[i], &lists);
    WEFT_TRY(make_targets(r, node));
    return weft_i_op_into(node->op, r->values[node->first], args);
}

static weft_status run_planned(run *r, const weft_i_graph_node *node)
{
    const weft_i_plan *plan = &r->program->plan;
    if (r->planned && weft_i_emit_row_is(node->op))
        return run_code(r, node);
    return r->planned && node->count == 1 &&
                   (plan->at[node->first] >= 0 || plan->comm[node->first] >= 0)
               ? run_into(r, node)
               : run_node(r, node);
}

static weft_status run_any(run *r, const weft_i_graph_node *node, int i)
{
    if (node->op == &weft_i_op_hand_out)
        return hand_out(r, node, i);
    if (node->op == &weft_i_op_accumulate)
        return add_up(r, node, i);
    if (node->op == &weft_i_op_grad)
        return read_gradient(r, node);
    if (node->op == &weft_i_op_opaque && !weft_i_eye_open)
        return call_opaque(r, node);
    return node->op == &weft_i_op_parameter ? make_leaf(r, node) : run_planned(r, node);
}

/* As it was called: some without recording gradients. */
static weft_status run_quietly(run *r, const weft_i_graph_node *node, int i)
{
    if (!node->quiet)
        return run_any(r, node, i);
    weft_grad_block block = weft_grad_block_enter(WEFT_GRAD_OFF);
    weft_status status = run_any(r, node, i);
    weft_grad_block_leave(&block);
    return status;
}

static weft_status run_measured(run *r, const weft_i_graph_node *node, int i)
{
    if (!r->spent)
        return run_quietly(r, node, i);
    int64_t began = WEFT_OS->clock_ns();
    weft_status status = run_quietly(r, node, i);
    r->spent[i] += WEFT_OS->clock_ns() - began;
    return status;
}

static void let_go(run *r, int value)
{
    int root = r->program->root[value];
    if (r->values[root] && is_ours(r->program, root))
        weft_release(r->values[root]);
    r->values[root] = NULL;
}

/* Lets go of what node `i` was the last to need. */
static void let_go_after(run *r, int i)
{
    const weft_i_graph_node *node = &r->program->graph->nodes[i];
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        if (r->program->last[r->program->root[value]] == i)
            let_go(r, value);
    for (int k = 0; k < node->count; k++)
        if (r->program->last[r->program->root[node->first + k]] == i)
            let_go(r, node->first + k);
}

static weft_status begin(run *r, weft_tensor *const *inputs)
{
    const weft_graph *graph = r->program->graph;
    for (int i = 0; i < graph->input_count; i++)
        r->values[graph->inputs[i].value] = inputs[i];
    for (int i = 0; i < graph->constant_count; i++) {
        weft_tensor *constant = graph->constants[i].tensor;
        weft_tensor *here = r->program->copied[i] ? weft_clone(constant) : constant;
        if (!(r->values[graph->constants[i].value] = here))
            return weft_last_status();
    }
    return WEFT_OK;
}

static void give_up(run *r)
{
    for (int i = 0; i < r->program->graph->value_count; i++)
        if (r->program->root[i] == i)
            let_go(r, i);
}

static weft_status run_all(run *r, weft_tensor *const *inputs, weft_tensor **outs)
{
    const weft_graph *graph = r->program->graph;
    const weft_i_plan *plan = &r->program->plan;
    WEFT_TRY(begin(r, inputs));
    for (int i = 0; i < graph->node_count; i++) {
        if (r->planned && plan->bytes && i == plan->from &&
            !(r->arena = weft_i_storage_new(plan->device, plan->bytes)))
            return weft_last_status();
        WEFT_TRY(run_measured(r, &graph->nodes[i], i));
        let_go_after(r, i);
        if (r->arena && i == plan->until) {
            weft_i_object_drop(r->arena);
            r->arena = NULL;
        }
    }
    for (int i = 0; i < graph->output_count; i++)
        outs[i] = value_of(r, graph->outputs[i]);
    return WEFT_OK;
}

/* The buffers of the plan; the arena comes when it is needed.  Fakes have no memory. */
static weft_status open_memory(run *r)
{
    const weft_i_plan *plan = &r->program->plan;
    if (!r->program->graph->planned || weft_i_eye_open)
        return WEFT_OK;
    r->planned = true;
    for (int i = 0; i < plan->symmetric_count; i++)
        if (!(r->comm[i] = weft_i_comm_open(&plan->symmetric[i])))
            return weft_last_status();
    return WEFT_OK;
}

static void close_memory(run *r)
{
    for (int i = 0; i < r->program->plan.symmetric_count; i++)
        weft_i_object_drop(r->comm[i]);
    weft_i_object_drop(r->arena);
}

weft_status weft_i_program_run(weft_i_program *program, weft_tensor *const *inputs,
                               weft_tensor **outs)
{
    return weft_i_program_run_back(program, inputs, outs, NULL);
}

static weft_status run_as_captured(weft_i_program *program, weft_tensor *const *inputs,
                                   weft_tensor **outs, const weft_i_hands *hands)
{
    size_t values = (size_t)program->graph->value_count;
    size_t room = values + program->tensors + (size_t)program->plan.symmetric_count + 1;
    run r = {.program = program, .hands = hands, .values = WEFT_OS->alloc(room * sizeof *r.values)};
    if (!r.values)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to run \"%s\"", program->graph->name);
    r.lists = r.values + values;
    r.comm = r.lists + program->tensors;
    if (!weft_i_eye_open && weft_i_work_begin(&program->work))
        r.spent = program->work.ns;
    int64_t began = r.spent ? WEFT_OS->clock_ns() : 0;
    weft_status status = open_memory(&r);
    if (status >= 0)
        status = run_all(&r, inputs, outs);
    if (r.spent) {
        program->work.whole += WEFT_OS->clock_ns() - began;
        program->work.measured++;
    }
    if (status < 0)
        give_up(&r);
    close_memory(&r);
    WEFT_OS->free(r.values);
    return status;
}

/* The conversions of autocast are in the program. */
weft_status weft_i_program_run_back(weft_i_program *program, weft_tensor *const *inputs,
                                    weft_tensor **outs, const weft_i_hands *hands)
{
    int autocast = weft_i_autocast;
    weft_i_autocast = 0;
    weft_status status = run_as_captured(program, inputs, outs, hands);
    weft_i_autocast = autocast;
    return status;
}

static void put_values(weft_i_text *s, const char *what, const weft_i_graph_term *term)
{
    for (size_t i = 0; i < term->count; i++)
        weft_i_text_put(s, "%s%%%d", i ? ", " : what, term->values[i]);
}

static void put_opaque(weft_i_text *s, const weft_graph *graph)
{
    for (int i = 0; i < graph->node_count; i++) {
        const weft_i_graph_node *node = &graph->nodes[i];
        if (node->op != &weft_i_op_opaque)
            continue;
        weft_i_text_put(s, "  opaque: %%%d: every run calls a %s", node->first,
                        node->terms[2].group.name);
        put_values(s, ", which sees ", &node->terms[0]);
        put_values(s, " and holds ", &node->terms[1]);
        weft_i_text_put(s, "; no collective, gradient or effect passes it\n");
    }
}

void weft_i_program_work(const weft_i_program *program, weft_i_text *s)
{
    weft_i_work_text(&program->work, s);
    if (program->graph->planned)
        weft_i_text_put(
            s, "    memory: at most %zu bytes in use beside inputs, %zu without the plan\n",
            program->plan.peak, program->plan.free);
}

void weft_i_program_text(const weft_i_program *program, weft_i_text *s)
{
    put_opaque(s, program->graph);
    if (program->graph->planned)
        weft_i_plan_text(&program->plan, program->graph, s);
}
