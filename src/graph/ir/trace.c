/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on fakes, written down; see trace.h. */
#include "graph/ir/trace.h"

#include "base/os/os.h"
#include "functional/ops.h"
#include "tensor/op/ops.h"

#include <string.h>

/* A version that nobody can know: far below anything that counting could reach. */
static const int64_t unknown = INT64_MIN / 2;

weft_status weft_i_trace_begin(weft_i_trace *trace, const char *name)
{
    static atomic_uint_least64_t captures; /* relaxed: only the number counts */
    *trace =
        (weft_i_trace){.graph = weft_i_graph_new(name),
                       .id = 1 + atomic_fetch_add_explicit(&captures, 1, memory_order_relaxed)};
    return trace->graph ? WEFT_OK : weft_last_status();
}

void weft_i_trace_abandon(weft_i_trace *trace)
{
    weft_release(trace->graph);
    WEFT_OS->free(trace->starts);
    trace->graph = NULL;
    trace->starts = NULL;
}

weft_graph *weft_i_trace_end(weft_i_trace *trace, const int *outputs, int count)
{
    weft_graph *whole = weft_i_graph_set_outputs(trace->graph, outputs, count) < 0
                            ? NULL
                            : weft_i_graph_rebuild(trace->graph, NULL);
    weft_i_trace_abandon(trace);
    return whole;
}

weft_i_graph_value weft_i_graph_value_of(const weft_tensor *x)
{
    weft_i_graph_value value = {.dtype = x->dtype,
                                .device = weft_i_tensor_device(x),
                                .shape = weft_i_tensor_shape(x),
                                .offset = x->offset,
                                .bytes = x->storage->bytes,
                                .node = -1};
    memcpy(value.stride, x->stride, sizeof value.stride);
    value.version = atomic_load_explicit(&x->version->count, memory_order_relaxed);
    return value;
}

/* Gives the fake's counter a number; false if memory runs out. */
static bool number_counter(weft_i_trace *trace, weft_i_version *version)
{
    int count = trace->graph->counters;
    if (version->number)
        return true;
    if (count == trace->start_room) {
        int room = count ? 2 * count : 32;
        int64_t *more = WEFT_OS->resize(trace->starts, (size_t)room * sizeof *more);
        if (!more) {
            weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d counters of a graph", room);
            return false;
        }
        trace->starts = more;
        trace->start_room = room;
    }
    trace->starts[count] = atomic_load_explicit(&version->count, memory_order_relaxed);
    version->number = ++trace->graph->counters;
    return true;
}

/* The fake becomes a new value, which is returned; -1 and an error. */
static int add_value(weft_i_trace *trace, weft_tensor *x, int node, const char *op)
{
    if (!number_counter(trace, x->version))
        return -1;
    weft_i_fake *fake = x->storage->fake;
    if (fake->storage < 0)
        fake->storage = trace->graph->storages++;
    weft_i_graph_value value = weft_i_graph_value_of(x);
    value.storage = fake->storage;
    value.counter = x->version->number - 1;
    value.version = value.version < 0 ? -1 : value.version - trace->starts[value.counter];
    value.node = node;
    int at = weft_i_graph_add_value(trace->graph, &value);
    x->node = at;
    fake->value = at;
    fake->op = op;
    fake->dtype = x->dtype;
    fake->shape = value.shape;
    return at;
}

weft_tensor *weft_i_trace_input(weft_i_trace *trace, const weft_i_graph_value *like,
                                weft_tensor *base, weft_tensor *counted,
                                const weft_i_graph_input *input)
{
    weft_storage *storage = base ? weft_i_object_hold(base->storage)
                                 : weft_i_fake_storage(trace->id, like->device, like->bytes);
    if (!storage)
        return NULL;
    weft_i_version *version = counted ? counted->version : base ? NULL : &storage->version;
    weft_tensor *x = weft_i_tensor_new_view(storage, version, like->dtype, like->shape,
                                            like->stride, like->offset);
    weft_i_object_drop(storage);
    if (!x)
        return NULL;
    if (!counted)
        atomic_store_explicit(&x->version->count, like->version, memory_order_relaxed);
    weft_i_graph_input copy = *input;
    if ((copy.value = add_value(trace, x, -1, "input")) < 0 ||
        weft_i_graph_add_input(trace->graph, &copy) < 0) {
        weft_release(x);
        return NULL;
    }
    return x;
}

weft_tensor *weft_i_trace_constant(weft_i_trace *trace, weft_tensor *tensor)
{
    weft_tensor *x = weft_i_fake_new(trace->id, tensor->dtype, weft_i_tensor_device(tensor),
                                     weft_i_tensor_shape(tensor), tensor->stride);
    if (!x)
        return NULL;
    int value = add_value(trace, x, -1, "constant");
    if (value < 0 || weft_i_graph_add_constant(trace->graph, tensor, value) < 0) {
        weft_release(x);
        return NULL;
    }
    return x;
}

static weft_status write_list(weft_graph *graph, const weft_i_arg *arg, weft_i_graph_term *term)
{
    int *values = weft_i_graph_alloc(graph, arg->count * sizeof *values);
    if (!values)
        return weft_last_status();
    for (size_t i = 0; i < arg->count; i++)
        values[i] = arg->tensors[i] ? (int)arg->tensors[i]->node : -1;
    term->values = values;
    return WEFT_OK;
}

static weft_status write_group(weft_graph *graph, const weft_i_arg *arg, weft_i_graph_term *term)
{
    if (!(term->group.name = weft_i_graph_string(graph, arg->group.name)))
        return weft_last_status();
    term->group.handle = arg->group.handle;
    return arg->group.handle ? weft_i_graph_hold(graph, arg->group.handle) : WEFT_OK;
}

/* One argument as it stands in the graph. */
static weft_status write_term(weft_graph *graph, const weft_i_arg *arg, weft_i_graph_term *term)
{
    *term = (weft_i_graph_term){.kind = arg->kind, .count = arg->count};
    switch (arg->kind) {
    case WEFT_I_ARG_TENSOR:
        term->value = (int)arg->tensor->node;
        return WEFT_OK;
    case WEFT_I_ARG_TENSORS:
        return write_list(graph, arg, term);
    case WEFT_I_ARG_NUMBER:
        term->number = arg->number;
        return WEFT_OK;
    case WEFT_I_ARG_INTEGER:
        term->integer = arg->integer;
        return WEFT_OK;
    case WEFT_I_ARG_INTEGERS:
        term->integers = weft_i_graph_copy(graph, arg->integers, arg->count * sizeof(int64_t));
        return term->integers ? WEFT_OK : weft_last_status();
    case WEFT_I_ARG_GROUP:
        return write_group(graph, arg, term);
    default:
        return WEFT_OK;
    }
}

/* The node of a call, with its terms, before the call changes anything. */
static weft_status write_node(weft_graph *graph, bool quiet, const weft_i_op_call *call,
                              weft_i_graph_node *node)
{
    *node = (weft_i_graph_node){
        .quiet = quiet, .op = call->op, .into = call->into ? (int)call->into->node : -1};
    node->terms = weft_i_graph_alloc(graph, (size_t)call->op->arity * sizeof *node->terms);
    if (!node->terms)
        return weft_last_status();
    for (int i = 0; i < call->op->arity; i++)
        WEFT_TRY(write_term(graph, &call->args[i], &node->terms[i]));
    return WEFT_OK;
}

static weft_status add_results(weft_i_trace *trace, weft_i_graph_node *node,
                               weft_tensor *const *results, int count)
{
    weft_i_graph_value absent = {.absent = true, .node = trace->graph->node_count};
    node->first = trace->graph->value_count;
    node->count = count;
    for (int k = 0; k < count; k++) {
        int value = results[k]
                        ? add_value(trace, results[k], trace->graph->node_count, node->op->name)
                        : weft_i_graph_add_value(trace->graph, &absent);
        if (value < 0)
            return weft_last_status();
    }
    return weft_i_graph_add_node(trace->graph, node) < 0 ? weft_last_status() : WEFT_OK;
}

/* What the shape rules do not know of the counters that are values. */
static void follow_version(const weft_i_op_call *call, weft_tensor *out)
{
    weft_tensor *x = call->op->arity ? call->args[0].tensor : NULL;
    if (call->op == &weft_i_op_version)
        out->storage->fake->read = atomic_load_explicit(&x->version->count, memory_order_relaxed);
    else if (call->op == &weft_i_op_set_version && call->args[1].kind == WEFT_I_ARG_TENSOR) {
        int64_t read = call->args[1].tensor->storage->fake->read;
        atomic_store_explicit(&x->version->count, read < 0 ? unknown : read, memory_order_relaxed);
    } else if (call->into || call->op->changes == 'w')
        out->storage->fake->read = -1;
}

weft_tensor *weft_i_trace_call(weft_i_trace *trace, const weft_i_op_call *call)
{
    weft_i_op_call fake = *call;
    weft_i_graph_node node;
    fake.fake = trace->id;
    if (call->op == &weft_i_op_wait_tensor)
        return weft_i_trace_wait(trace, call->args[0].tensor) < 0 ? NULL : call->args[0].tensor;
    if (write_node(trace->graph, trace->quiet, call, &node) < 0)
        return NULL;
    weft_tensor *out = weft_i_op_pass_on(&fake);
    if (!out)
        return NULL;
    follow_version(call, out);
    int count = call->op->flags & WEFT_I_OP_LIST ? (int)call->args[0].count
                : call->op->results > 1          ? call->op->results
                                                 : 1;
    return add_results(trace, &node, call->outs ? call->outs : &out, count) < 0 ? NULL : out;
}

weft_status weft_i_trace_wait(weft_i_trace *trace, weft_tensor *x)
{
    weft_i_graph_node node;
    weft_i_op_call call = {.op = &weft_i_op_wait_tensor,
                           .args = (weft_i_arg[]){WEFT_I_TENSOR_ARG(x)}};
    WEFT_TRY(write_node(trace->graph, trace->quiet, &call, &node));
    return add_results(trace, &node, &x, 1);
}
