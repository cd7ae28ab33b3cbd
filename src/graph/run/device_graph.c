/* SPDX-License-Identifier: Apache-2.0 */
/* Capturing programs and replaying them; see device_graph.h. */
#include "graph/run/device_graph.h"

#include "base/os/os.h"
#include "coll/device/carrier.h"
#include "functional/ops.h"
#include "graph/emit/plan.h"
#include "tensor/object/stream.h"
#include "tensor/op/ops.h"
#include "weft/fake.h"
#include "weft/op.h"

#include <stdarg.h>
#include <stdio.h>

/* A tensor that the replay reads or writes. */
typedef struct input {
    const void *at;     /* where it lay at the last call */
    int writes;         /* so many nodes write to it, which its version counts */
    bool moves;         /* it was elsewhere once */
    weft_tensor *place; /* the copy that is read then; held */
} input;

typedef struct output {
    weft_storage *storage; /* held; memory of the replay */
    const void *data;      /* of the storage, when it was made */
    weft_dtype dtype;
    weft_shape shape;
    int64_t stride[WEFT_MAX_DIMS], offset;
    int same; /* the first output that is the same tensor */
} output;

typedef struct member {
    weft_group *group;
    uint64_t calls; /* that one run makes */
} member;

struct weft_i_device_graph {
    const weft_graph *graph;
    weft_device device;
    bool never; /* `why` will not change */
    bool seen;  /* a call has run */
    char why[256];
    weft_stream *stream; /* of the last call; held */
    weft_replay *replay; /* held */
    input *inputs;
    output *outputs;
    member *groups;
    weft_tensor **given; /* room for the inputs of a run */
    int group_count, copies;
    uint64_t captures, replays;
};

/* ---- what can be captured ---- */

__attribute__((format(printf, 2, 3))) static bool refuse(weft_i_device_graph *d, const char *format,
                                                         ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->why, sizeof d->why, format, args);
    va_end(args);
    return false;
}

/* Rows of the tensors', compiled code and collectives give work to a stream and nothing else. */
static bool is_of_device(const weft_i_graph_node *node)
{
    return node->op == &weft_i_op_empty || node->op->flags & WEFT_I_OP_VIEW ||
           weft_i_plan_only_reads(node) || weft_i_graph_node_is_posted(node);
}

/* At the end a pure graph copies to the inputs that its function wrote, or gathers into them. */
static bool check_write(weft_i_device_graph *d, const weft_i_graph_node *node)
{
    const weft_graph *graph = d->graph;
    bool known = node->op == &weft_i_op_copy || weft_i_graph_node_is_collective(node);
    int i = node->op->changes == 'w' && node->into < 0 && known ? 0 : graph->input_count;
    while (i < graph->input_count && graph->inputs[i].value != node->terms[0].value)
        i++;
    if (i == graph->input_count)
        return refuse(d, "%s writes to memory that is there already", node->op->name);
    d->inputs[i].writes++;
    return true;
}

static bool check_node(weft_i_device_graph *d, const weft_i_graph_node *node)
{
    const weft_i_op *op = node->op;
    const weft_i_graph_term *group = weft_i_graph_node_group(node);
    if (op == &weft_i_op_wait_tensor)
        return true;
    if (weft_i_graph_node_is_draw(node))
        return refuse(d, "%s draws numbers, which would be the same each time", op->name);
    bool writes = op->changes || node->into >= 0;
    if (writes && !check_write(d, node))
        return false;
    if (op->flags & WEFT_I_OP_MEETS)
        return refuse(d, "the ranks of %s meet on the host each time", op->name);
    if (!writes && !is_of_device(node))
        return refuse(d, "%s may do more than to give work to the device", op->name);
    if (group && (!group->group.handle || weft_fake_is(group->group.handle)))
        return refuse(d, "the group of %s is only a name, or a fake", op->name);
    return true;
}

static bool check_value(weft_i_device_graph *d, int i)
{
    const weft_i_graph_value *value = &d->graph->values[i];
    char name[16];
    if (value->absent || value->device == d->device)
        return true;
    return refuse(d, "%%%d is on %s", i, weft_device_name(value->device, name));
}

/* Results that are memory of inputs or constants are not the replay's to give. */
static bool check_output(weft_i_device_graph *d, int i)
{
    const weft_graph *graph = d->graph;
    int storage = graph->values[graph->outputs[i]].storage;
    for (int k = 0; k < graph->input_count; k++)
        if (graph->values[graph->inputs[k].value].storage == storage)
            return refuse(d, "result %d is memory of an input", i);
    for (int k = 0; k < graph->constant_count; k++)
        if (graph->values[graph->constants[k].value].storage == storage)
            return refuse(d, "result %d is memory of a constant", i);
    return true;
}

static bool check_graph(weft_i_device_graph *d)
{
    const weft_graph *graph = d->graph;
    if (!graph->node_count || !graph->value_count)
        return refuse(d, "there is nothing to run");
    d->device = graph->values[0].device;
    if (weft_i_device_is_host(d->device))
        return refuse(d, "it runs on the CPU");
    for (int i = 0; i < graph->value_count; i++)
        if (!check_value(d, i))
            return false;
    for (int i = 0; i < graph->output_count; i++)
        if (!check_output(d, i))
            return false;
    for (int i = 0; i < graph->node_count; i++)
        if (!check_node(d, &graph->nodes[i]))
            return false;
    return true;
}

static void list_groups(weft_i_device_graph *d)
{
    for (int i = 0; i < d->graph->node_count; i++) {
        const weft_i_graph_term *term = weft_i_graph_node_group(&d->graph->nodes[i]);
        int k = 0;
        while (term && k < d->group_count && d->groups[k].group != term->group.handle)
            k++;
        if (term && k == d->group_count)
            d->groups[d->group_count++].group = term->group.handle;
    }
}

weft_i_device_graph *weft_i_device_graph_new(const weft_graph *graph)
{
    size_t inputs = (size_t)graph->input_count + 1, outputs = (size_t)graph->output_count + 1;
    size_t groups = (size_t)graph->node_count + 1;
    weft_i_device_graph *d =
        WEFT_OS->alloc(sizeof *d + outputs * sizeof *d->outputs + inputs * sizeof *d->inputs +
                       groups * sizeof *d->groups + inputs * sizeof *d->given);
    if (!d)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for the device graph of \"%s\"",
                           graph->name);
    d->outputs = (output *)(d + 1);
    d->inputs = (input *)(d->outputs + outputs);
    d->groups = (member *)(d->inputs + inputs);
    d->given = (weft_tensor **)(d->groups + groups);
    d->graph = graph;
    d->never = !check_graph(d);
    if (!d->never)
        list_groups(d);
    return d;
}

/* What the replay made goes; what users hold of it stays theirs. */
static void forget_replay(weft_i_device_graph *d)
{
    for (int i = 0; d->replay && i < d->graph->output_count; i++)
        weft_i_object_drop(d->outputs[i].storage);
    weft_i_object_drop(d->replay);
    d->replay = NULL;
}

void weft_i_device_graph_free(weft_i_device_graph *d)
{
    if (!d)
        return;
    forget_replay(d);
    for (int i = 0; i < d->graph->input_count; i++)
        weft_i_object_drop(d->inputs[i].place);
    weft_i_object_drop(d->stream);
    WEFT_OS->free(d);
}

/* ---- may this call be replayed? ---- */

/* Collectives run by the backend's own kernels there, which a capture can note. */
static bool check_carriers(weft_i_device_graph *d)
{
    for (int i = 0; i < d->group_count; i++) {
        const weft_i_carrier *carrier =
            weft_i_carrier_opened(d->groups[i].group, weft_i_device_kind(d->device));
        if (!carrier || !carrier->backend)
            return refuse(d, "collectives of group \"%s\" go through the host",
                          d->groups[i].group->name);
        if (carrier->backend->carry->captures && !carrier->backend->carry->captures(carrier->state))
            return refuse(d, "collectives of group \"%s\" may go by %s", d->groups[i].group->name,
                          carrier->backend->name);
    }
    return true;
}

/* An input that is found elsewhere gets a place, and the replay that reads it where it was goes. */
static bool find_place(weft_i_device_graph *d, int i, const weft_tensor *x)
{
    input *in = &d->inputs[i];
    if (in->writes)
        return refuse(d, "input %d, which it writes to, is elsewhere", i);
    if (!weft_i_tensor_is_contiguous(x) || x->offset)
        return refuse(d, "input %d is elsewhere each time, and not contiguous", i);
    weft_i_errors before;
    weft_i_errors_save(&before);
    forget_replay(d);
    in->place = weft_keep(weft_i_tensor_new(x->dtype, d->device, weft_i_tensor_shape(x), NULL));
    weft_i_errors_restore(&before); /* the call goes on without */
    in->moves = in->place;
    d->copies += in->moves;
    return in->moves || refuse(d, "no memory for a copy of input %d", i);
}

static bool find_inputs(weft_i_device_graph *d, weft_tensor *const *inputs)
{
    for (int i = 0; i < d->graph->input_count; i++)
        if (d->inputs[i].writes && inputs[i]->storage->read_only)
            return refuse(d, "input %d, which it writes to, is read-only", i);
    for (int i = 0; i < d->graph->input_count; i++)
        if (!d->inputs[i].moves && d->inputs[i].at != weft_i_tensor_data(inputs[i]) &&
            !find_place(d, i, inputs[i]))
            return false;
    return true;
}

/* Does anybody but this hold what the last replay made? */
static bool check_outputs(weft_i_device_graph *d)
{
    for (int i = 0; d->replay && i < d->graph->output_count; i++) {
        const weft_storage *storage = d->outputs[i].storage;
        int own = 0;
        for (int k = 0; k < d->graph->output_count; k++)
            own += d->outputs[k].storage == storage;
        /* Acquire, pairs with the release of whoever let go: it does not touch the memory any more. */
        if (atomic_load_explicit(&storage->head.references, memory_order_acquire) != own)
            return refuse(d, "result %d of the last replay is still held", i);
        if (storage->data != d->outputs[i].data) {
            forget_replay(d); /* somebody freed its storage; the next capture makes another */
            return true;
        }
    }
    return true;
}

static bool check_call(weft_i_device_graph *d, weft_stream *stream, weft_tensor *const *inputs)
{
    if (!d->seen)
        return refuse(d, "the first call compiles, and meets other ranks");
    if (weft_i_stream_is_captured(stream))
        return refuse(d, "its stream is being captured");
    if (stream != d->stream)
        return refuse(d, "it was called on another stream");
    return check_carriers(d) && check_outputs(d) && find_inputs(d, inputs);
}

/* ---- runs ---- */

/* The stream is behind all that used what is read, and behind the groups' earlier calls. */
static weft_status order(weft_i_device_graph *d, weft_tensor *const *inputs)
{
    for (int i = 0; i < d->graph->input_count; i++) {
        weft_tensor *place = d->inputs[i].place;
        WEFT_TRY(place ? weft_copy(place, inputs[i])
                       : weft_i_storage_ready(inputs[i]->storage, d->inputs[i].writes > 0));
    }
    for (int i = 0; i < d->graph->constant_count; i++)
        WEFT_TRY(weft_i_storage_ready(d->graph->constants[i].tensor->storage, false));
    for (int i = 0; i < d->group_count; i++)
        WEFT_TRY(weft_i_carrier_follow("replay", d->groups[i].group, d->stream));
    return WEFT_OK;
}

static weft_status launch(weft_i_device_graph *d)
{
    for (int i = 0; i < d->graph->output_count; i++)
        WEFT_TRY(weft_i_storage_ready(d->outputs[i].storage, true));
    WEFT_TRY(weft_replay_run(d->replay));
    for (int i = 0; i < d->group_count; i++)
        d->groups[i].group->sequence += d->groups[i].calls;
    d->replays++;
    return WEFT_OK;
}

/* New tensors over what the replay writes; inputs that it writes count that. */
static weft_status give(const weft_i_device_graph *d, weft_tensor *const *inputs,
                        weft_tensor **outs)
{
    for (int i = 0; i < d->graph->input_count; i++)
        for (int k = 0; k < d->inputs[i].writes; k++)
            weft_i_tensor_bump(inputs[i]);
    for (int i = 0; i < d->graph->output_count; i++) {
        const output *o = &d->outputs[i];
        outs[i] = o->same < i ? outs[o->same]
                              : weft_i_tensor_new_view(o->storage, NULL, o->dtype, o->shape,
                                                       o->stride, o->offset);
        if (!outs[i])
            return weft_last_status();
    }
    return WEFT_OK;
}

static void note_outputs(weft_i_device_graph *d, weft_tensor *const *outs)
{
    for (int i = 0; i < d->graph->output_count; i++) {
        const weft_tensor *x = outs[i];
        output *o = &d->outputs[i];
        *o = (output){.storage = weft_i_object_hold(x->storage),
                      .data = x->storage->data,
                      .dtype = x->dtype,
                      .shape = weft_i_tensor_shape(x),
                      .offset = x->offset};
        for (int k = 0; k < x->ndim; k++)
            o->stride[k] = x->stride[k];
        while (outs[o->same] != x)
            o->same++;
    }
}

/* Notes one run instead of running it.  Collectives count when they are replayed. */
static weft_status note(weft_i_device_graph *d, weft_i_program *program, weft_tensor **outs)
{
    for (int i = 0; i < d->group_count; i++)
        d->groups[i].calls = d->groups[i].group->sequence;
    WEFT_TRY(weft_capture_begin(d->stream));
    weft_status status = weft_i_program_run(program, d->given, outs);
    weft_i_errors reason;
    weft_i_errors_save(&reason);
    weft_replay *noted = weft_keep(weft_capture_end(d->stream));
    for (int i = 0; i < d->group_count; i++) {
        uint64_t before = d->groups[i].calls;
        d->groups[i].calls = d->groups[i].group->sequence - before;
        d->groups[i].group->sequence = before;
    }
    if (status >= 0 && noted) {
        note_outputs(d, outs);
        d->replay = noted;
        d->captures++;
        return WEFT_OK;
    }
    weft_i_object_drop(noted);
    if (status < 0)
        weft_i_errors_restore(&reason);
    for (int i = 0; status >= 0 && i < d->graph->output_count; i++)
        weft_release(outs[i]);
    return weft_last_status();
}

/* The stream must be behind what the program reads before it is captured. */
static bool capture(weft_i_device_graph *d, weft_i_program *program, weft_tensor *const *inputs,
                    weft_tensor **outs)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    for (int i = 0; i < d->graph->input_count; i++)
        d->given[i] = d->inputs[i].place ? d->inputs[i].place : inputs[i];
    weft_status status = order(d, inputs);
    if (status >= 0)
        status = note(d, program, outs);
    if (status < 0) {
        refuse(d, "%s", weft_last_error());
        d->never = true;
        weft_i_errors_restore(&before);
    }
    return status >= 0;
}

static weft_status run_plainly(weft_i_device_graph *d, weft_i_program *program, weft_stream *stream,
                               weft_tensor *const *inputs, weft_tensor **outs)
{
    bool moved = stream != d->stream;
    for (int i = 0; i < d->graph->input_count; i++) {
        const void *at = weft_i_tensor_data(inputs[i]);
        moved |= !d->inputs[i].moves && d->inputs[i].at != at;
        d->inputs[i].at = at;
    }
    if (moved) /* what it reads is not what the next call will find where it was now */
        forget_replay(d);
    if (stream != d->stream) {
        weft_i_object_drop(d->stream);
        d->stream = weft_i_object_hold(stream);
    }
    d->seen = true;
    return weft_i_program_run(program, inputs, outs);
}

weft_status weft_i_device_graph_run(weft_i_device_graph *d, weft_i_program *program,
                                    weft_tensor *const *inputs, weft_tensor **outs)
{
    if (d->never)
        return weft_i_program_run(program, inputs, outs);
    weft_stream *stream = weft_i_stream_current(d->device);
    if (!stream)
        return weft_last_status();
    if (!check_call(d, stream, inputs))
        return run_plainly(d, program, stream, inputs, outs);
    bool fresh = !d->replay;
    if (fresh && !capture(d, program, inputs, outs))
        return weft_i_program_run(program, inputs, outs);
    if (!fresh)
        WEFT_TRY(order(d, inputs));
    WEFT_TRY(launch(d));
    d->why[0] = 0;
    return fresh ? WEFT_OK : give(d, inputs, outs);
}

void weft_i_device_graph_text(const weft_i_device_graph *d, weft_i_text *s)
{
    if (d->replays)
        weft_i_text_put(s,
                        "  device graph: %llu replays of %llu captures, %d inputs copied first\n",
                        (unsigned long long)d->replays, (unsigned long long)d->captures, d->copies);
    if (d->why[0])
        weft_i_text_put(s, "  no device graph%s: %s\n", d->never ? "" : " in the last call",
                        d->why);
}
