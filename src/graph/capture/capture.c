/* SPDX-License-Identifier: Apache-2.0 */
/* The eye and the mode of a capture; see capture.h. */
#include "graph/capture/capture_state.h"

#include "base/os/os.h"
#include "functional/ops.h"
#include "functional/traced.h"
#include "tensor/op/ops.h"
#include "weft/coll.h"
#include "weft/grad.h"

#include <stdio.h>
#include <string.h>

static weft_i_capture_state *of_eye(weft_i_eye *eye)
{
    return (weft_i_capture_state *)eye;
}

static void broken(weft_i_eye *eye)
{
    weft_i_capture_state *c = of_eye(eye);
    if (c->status < 0)
        return;
    c->status = weft_last_status();
    bool opaque = eye->entered && c->status != WEFT_ERR_NO_MEMORY;
    snprintf(c->message, sizeof c->message, "%s%s", weft_last_error(),
             opaque
                 ? " (in a hook: weft_hook_opaque, of a module WEFT_HOOK_OPAQUE, would make it a "
                   "call that captures leave alone)"
                 : "");
}

static weft_status refuse(weft_i_eye *eye, const char *what)
{
    weft_status status = weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: cannot be captured", what);
    broken(eye);
    return status;
}

/* ---- stand-ins ---- */

/* Two storages over one piece of memory: writes to one would have to show in the other. */
static bool memory_is_shared(const weft_i_capture_state *c, const weft_storage *storage)
{
    for (size_t i = 0; i < c->storages.room; i++) {
        const weft_storage *other = c->storages.at[i].key;
        if (other && other != storage && other->data && storage->data &&
            (char *)other->data < (char *)storage->data + storage->bytes &&
            (char *)storage->data < (char *)other->data + other->bytes)
            return true;
    }
    return false;
}

/* Notes that `twin` stands for `real`; the tables have room. */
static void pair_up(weft_i_capture_state *c, weft_tensor *real, weft_tensor *twin)
{
    weft_i_pointers_add(&c->twins, weft_i_object_hold(real), weft_keep(twin));
    if (!weft_i_pointers_find(&c->storages, real->storage))
        weft_i_pointers_add(&c->storages, real->storage, twin);
    if (!weft_i_pointers_find(&c->counters, real->version))
        weft_i_pointers_add(&c->counters, real->version, twin);
}

static weft_status make_room(weft_i_capture_state *c)
{
    WEFT_TRY(weft_i_pointers_reserve(&c->twins, 1));
    WEFT_TRY(weft_i_pointers_reserve(&c->storages, 1));
    return weft_i_pointers_reserve(&c->counters, 1);
}

/* Room for one more in the list of inputs. */
static weft_status make_room_for_input(weft_i_capture_state *c)
{
    if (c->lifted_count < c->lifted_room)
        return WEFT_OK;
    int room = c->lifted_room ? 2 * c->lifted_room : 16;
    weft_i_lifted *more = WEFT_OS->resize(c->lifted, (size_t)room * sizeof *more);
    if (!more)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d inputs", room);
    c->lifted = more;
    c->lifted_room = room;
    return WEFT_OK;
}

/* With the eye closed: the question is about the real tensor. */
static unsigned flags_of(weft_tensor *real, bool is_free)
{
    weft_i_eye *eye = weft_i_eye_open;
    weft_i_eye_open = NULL;
    unsigned flags = weft_requires_grad(real) ? WEFT_I_INPUT_GRAD : 0;
    weft_i_eye_open = eye;
    flags |= real->parameter ? WEFT_I_INPUT_PARAMETER : 0;
    return flags | (is_free ? WEFT_I_INPUT_FREE : 0);
}

/* The real tensor becomes an input; its stand-in. */
static weft_tensor *lift(weft_i_capture_state *c, weft_tensor *real, const char *name, bool is_free)
{
    weft_i_graph_value like = weft_i_graph_value_of(real);
    weft_i_graph_input input = {
        .name = name, .flags = flags_of(real, is_free), .tensor = is_free ? real : NULL};
    if (make_room(c) < 0 || make_room_for_input(c) < 0)
        return NULL;
    if (memory_is_shared(c, real->storage))
        return weft_i_null(WEFT_ERR_UNSUPPORTED,
                           "input \"%s\" lies in the memory of another input's storage", name);
    weft_tensor *twin =
        weft_i_trace_input(&c->trace, &like, weft_i_pointers_find(&c->storages, real->storage),
                           weft_i_pointers_find(&c->counters, real->version), &input);
    if (!twin)
        return NULL;
    twin->storage->read_only = real->storage->read_only;
    if (!real->storage->table)
        twin->storage->table = NULL; /* of a fixed size */
    twin->lifted = true;
    twin->parameter = real->parameter;
    pair_up(c, real, twin);
    weft_i_lifted *lifted = &c->lifted[c->lifted_count++];
    *lifted = (weft_i_lifted){.twin = twin, .value = (int)twin->node};
    return weft_i_capture_give_history(c, real, lifted, input.flags) < 0 ? NULL : twin;
}

static weft_tensor *see(weft_i_eye *eye, const weft_tensor *x)
{
    weft_i_capture_state *c = of_eye(eye);
    char name[32];
    if (weft_i_trace_owns(&c->trace, x->storage))
        return (weft_tensor *)x;
    weft_tensor *twin = weft_i_pointers_find(&c->twins, x);
    if (twin)
        return twin;
    if (x->storage->fake) {
        weft_i_fail(WEFT_ERR_STATE,
                    "a stand-in of another capture, %%%d there, is used in this one",
                    x->storage->fake->value);
    } else {
        snprintf(name, sizeof name, "free%d", c->free_count);
        twin = lift(c, (weft_tensor *)x, name, true);
        c->free_count += twin != NULL;
    }
    if (!twin)
        broken(eye);
    return twin;
}

static weft_storage *see_storage(weft_i_eye *eye, const weft_storage *storage)
{
    weft_i_capture_state *c = of_eye(eye);
    if (weft_i_trace_owns(&c->trace, storage))
        return (weft_storage *)storage;
    weft_tensor *twin = weft_i_pointers_find(&c->storages, storage);
    if (twin)
        return twin->storage;
    refuse(eye, "a storage no tensor of which was used yet");
    return NULL;
}

static weft_status constant(weft_i_eye *eye, weft_tensor *made)
{
    weft_i_capture_state *c = of_eye(eye);
    weft_tensor *twin = make_room(c) < 0 ? NULL : weft_i_trace_constant(&c->trace, made);
    if (!twin) {
        broken(eye);
        return weft_last_status();
    }
    pair_up(c, made, twin);
    return WEFT_OK;
}

/* ---- calls ---- */

/* The tensors of a list as the eye sees them, in memory of their own; NULL and an error. */
static weft_tensor **see_list(weft_i_eye *eye, const weft_i_arg *arg)
{
    weft_tensor **list = WEFT_OS->alloc((arg->count + 1) * sizeof *list);
    if (!list)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors", arg->count);
    for (size_t i = 0; i < arg->count; i++)
        if (arg->tensors[i] && !(list[i] = see(eye, arg->tensors[i]))) {
            WEFT_OS->free(list);
            return NULL;
        }
    return list;
}

static weft_status see_args(weft_i_eye *eye, const weft_i_op_call *call, weft_i_arg *args)
{
    for (int i = 0; i < call->op->arity; i++) {
        args[i] = call->args[i];
        if (args[i].kind == WEFT_I_ARG_TENSOR && !(args[i].tensor = see(eye, args[i].tensor)))
            return weft_last_status();
        if (args[i].kind == WEFT_I_ARG_TENSORS && !(args[i].tensors = see_list(eye, &args[i])))
            return weft_last_status();
    }
    return WEFT_OK;
}

static void drop_lists(const weft_i_op_call *call, weft_i_arg *args)
{
    for (int i = 0; i < call->op->arity; i++)
        if (args[i].kind == WEFT_I_ARG_TENSORS)
            WEFT_OS->free((void *)args[i].tensors);
}

/* What was changed is returned as the tensor that the caller knows. */
static weft_tensor *as_caller_knows(const weft_i_op_call *call, weft_tensor *out)
{
    if (!out || (!call->into && !call->op->changes))
        return out;
    if (call->into)
        return call->into;
    if (call->op->changes != 'm')
        return call->args[0].tensor;
    for (size_t i = 0; call->outs && i < call->args[0].count; i++)
        call->outs[i] = call->args[0].tensors[i];
    return call->args[0].tensors[0];
}

static weft_tensor *apply(weft_i_eye *eye, const weft_i_op_call *call)
{
    weft_i_arg args[WEFT_I_OP_ARGS] = {{0}};
    weft_i_op_call seen = *call;
    seen.args = args;
    weft_status status = see_args(eye, call, args);
    if (status >= 0 && call->into && !(seen.into = see(eye, call->into)))
        status = weft_last_status();
    /* Here, as the recorder turns itself off for what it passes on. */
    weft_i_capture_state *c = of_eye(eye);
    c->trace.quiet = c->recording && weft_grad_mode_now() != WEFT_GRAD_RECORDING;
    weft_tensor *out = status < 0 ? NULL : weft_i_op_seen(&seen);
    drop_lists(call, args);
    /* Another mistake would be one without the capture as well, and the function may handle it. */
    if (!out && weft_last_status() == WEFT_ERR_NO_MEMORY)
        broken(eye);
    return as_caller_knows(call, out);
}

/* Every collective is followed by its waits; a result that is absent needs none. */
static weft_status wait_for(weft_i_capture_state *c, const weft_i_op_call *call, weft_tensor *out)
{
    size_t count = call->op->flags & WEFT_I_OP_LIST ? call->args[0].count : 1;
    for (size_t i = 0; i < count; i++) {
        weft_tensor *result = call->outs ? call->outs[i] : out;
        if (result)
            WEFT_TRY(weft_i_trace_wait(&c->trace, result));
    }
    return WEFT_OK;
}

static weft_status note_factor(weft_i_capture_state *c, const weft_i_op_call *call)
{
    if (!c->guards || c->eye.factored)
        return WEFT_OK;
    for (int i = 0; i + 1 < call->op->arity; i++)
        if (call->op->kinds[i] == 'p' && call->args[i].integer == WEFT_PREMUL_SUM)
            return weft_i_guards_add(c->guards, (weft_i_guard){.kind = WEFT_I_GUARD_PREMUL,
                                                               .input = -1,
                                                               .factor = call->args[i + 1].number});
    return WEFT_OK;
}

/* Those on symmetric memory are done when they return. */
static bool is_posted(const weft_i_op *op)
{
    return !(op->flags & WEFT_I_OP_LAYOUT) && strchr(op->kinds, 'g') && !strchr(op->kinds, 'y');
}

static bool has_factor(const weft_i_op *op)
{
    return strchr(op->kinds, 'p') != NULL;
}

static weft_tensor *handle(weft_i_mode *mode, const weft_i_op_call *call)
{
    weft_i_capture_state *c =
        (weft_i_capture_state *)((char *)mode - offsetof(weft_i_capture_state, mode));
    if (call->op == &weft_i_op_wait_tensor) /* the one behind its collective is there already */
        return call->args[0].tensor;
    weft_tensor *out = weft_i_trace_call(&c->trace, call);
    if (out && ((is_posted(call->op) && wait_for(c, call, out) < 0) ||
                (has_factor(call->op) && note_factor(c, call) < 0))) {
        broken(&c->eye);
        return NULL;
    }
    return out;
}

/* ---- questions about counters and sizes ---- */

static int input_with(const weft_graph *graph, int number, bool counter)
{
    for (int i = 0; i < graph->input_count; i++) {
        const weft_i_graph_value *value = &graph->values[graph->inputs[i].value];
        if ((counter ? value->counter : value->storage) == number)
            return i;
    }
    return -1;
}

static void guard(weft_i_capture_state *c, weft_i_guard_kind kind, int input, int64_t number)
{
    weft_i_guard note = {.kind = kind, .input = input, .number = number};
    if (input >= 0 && c->guards && weft_i_guards_add(c->guards, note) < 0)
        broken(&c->eye);
}

static weft_status read_version(weft_i_eye *eye, const weft_tensor *x, int64_t *out)
{
    weft_i_capture_state *c = of_eye(eye);
    int64_t count = atomic_load_explicit(&x->version->count, memory_order_relaxed);
    if (count < 0) {
        weft_status status = weft_i_fail(
            WEFT_ERR_STATE, "the version of %%%d is not known while capturing", (int)x->node);
        broken(eye);
        return status;
    }
    int counter = x->version->number - 1;
    guard(c, WEFT_I_GUARD_VERSION, input_with(c->trace.graph, counter, true),
          c->trace.starts[counter]);
    *out = count;
    return c->status;
}

static size_t read_bytes(weft_i_eye *eye, const weft_storage *storage)
{
    weft_i_capture_state *c = of_eye(eye);
    weft_storage *twin = see_storage(eye, storage);
    if (!twin)
        return 0;
    const weft_graph *graph = c->trace.graph;
    int input = input_with(graph, twin->fake->storage, false);
    if (input >= 0)
        guard(c, WEFT_I_GUARD_BYTES, input,
              (int64_t)graph->values[graph->inputs[input].value].bytes);
    return twin->bytes;
}

/* By the last tensor that was made on the storage: the row wants one. */
static weft_status resize(weft_i_eye *eye, weft_storage *storage, size_t bytes)
{
    weft_i_capture_state *c = of_eye(eye);
    weft_storage *twin = see_storage(eye, storage);
    if (!twin)
        return weft_last_status();
    weft_i_graph_value last = c->trace.graph->values[twin->fake->value];
    weft_tensor *x = weft_i_tensor_new_view(twin, &twin->version, last.dtype, last.shape,
                                            last.stride, last.offset);
    if (!x) {
        broken(eye);
        return weft_last_status();
    }
    x->node = twin->fake->value;
    weft_status status =
        WEFT_I_ACT(resize_storage, WEFT_I_TENSOR_ARG(x), WEFT_I_INTEGER_ARG((int64_t)bytes));
    weft_release(x);
    return status;
}

static weft_status read_grad(weft_i_eye *eye, const weft_tensor *x, bool present)
{
    weft_i_capture_state *c = of_eye(eye);
    const weft_graph *graph = c->trace.graph;
    for (int i = 0; i < c->lifted_count; i++)
        for (int k = 0; c->lifted[i].twin == x && k < graph->input_count; k++)
            if (graph->inputs[k].value == c->lifted[i].value)
                guard(c, WEFT_I_GUARD_GRAD, k, present);
    return c->status;
}

static weft_status depend(weft_i_eye *eye, void *object, int64_t (*number)(void *, const char *),
                          const char *name)
{
    weft_i_capture_state *c = of_eye(eye);
    if (!c->guards)
        return WEFT_OK;
    char *copy = WEFT_OS->alloc(strlen(name) + 1);
    weft_i_guard note = {
        .kind = WEFT_I_GUARD_OBJECT, .input = -1, .object = object, .read = number};
    note.number = number(object, name);
    note.copy = copy ? strcpy(copy, name) : NULL;
    weft_status status = copy ? weft_i_guards_add(c->guards, note)
                              : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a guard");
    if (status < 0)
        broken(eye);
    return status;
}

static weft_status undo(weft_i_eye *eye, void *object,
                        void (*put_back)(void *, const char *, void *), const char *name, void *old)
{
    weft_i_capture_state *c = of_eye(eye);
    weft_i_undo *at = WEFT_OS->alloc(sizeof *at + strlen(name) + 1);
    if (!at) {
        weft_i_object_drop(old);
        weft_status status = weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to bind \"%s\"", name);
        broken(eye);
        return status;
    }
    at->object = weft_i_object_hold(object);
    at->put_back = put_back;
    at->old = old;
    strcpy(at->name, name);
    at->next = c->undone;
    c->undone = at;
    return WEFT_OK;
}

/* ---- one capture ---- */

static void undo_all(weft_i_capture_state *c)
{
    while (c->undone) {
        weft_i_undo *at = c->undone;
        c->undone = at->next;
        at->put_back(at->object, at->name, at->old);
        weft_i_object_drop(at->object);
        WEFT_OS->free(at);
    }
}

static void close_capture(weft_i_capture_state *c)
{
    undo_all(c);
    WEFT_OS->free(c->lifted);
    WEFT_OS->free(c->outputs);
    for (size_t i = 0; i < c->twins.room; i++)
        if (c->twins.at[i].key) {
            weft_release(c->twins.at[i].value);
            weft_i_object_drop((void *)c->twins.at[i].key);
        }
    weft_i_pointers_clear(&c->twins);
    weft_i_pointers_clear(&c->storages);
    weft_i_pointers_clear(&c->counters);
    weft_i_trace_abandon(&c->trace);
}

static weft_status lift_arguments(weft_i_capture_state *c, weft_tensor *const *in, int ins)
{
    weft_graph *graph = c->trace.graph;
    int *inputs = weft_i_graph_alloc(graph, (size_t)ins * sizeof *inputs);
    char name[32];
    for (int i = 0; inputs && i < ins; i++) {
        if (!in[i] || in[i]->head.kind != WEFT_I_TENSOR || in[i]->storage->fake)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "argument %d is %s", i,
                               !in[i] ? "NULL" : "no real tensor");
        snprintf(name, sizeof name, "arg%d", i);
        weft_tensor *twin = weft_i_pointers_find(&c->twins, in[i]);
        if (!twin && !(twin = lift(c, in[i], name, false)))
            return weft_last_status();
        for (int k = 0; k < graph->input_count; k++)
            if (graph->inputs[k].value == twin->node)
                inputs[i] = k;
    }
    return inputs ? weft_i_graph_set_arguments(graph, inputs, ins) : weft_last_status();
}

/* What the function left in `out`, as values. */
static weft_status read_outputs(weft_i_capture_state *c, weft_tensor *const *out, int outs,
                                int *values)
{
    for (int i = 0; i < outs; i++) {
        if (!out[i])
            return weft_i_missing("result %d is NULL", i);
        weft_tensor *twin = see(&c->eye, out[i]);
        if (!twin)
            return weft_last_status();
        values[i] = (int)twin->node;
    }
    return WEFT_OK;
}

/* What the function leaves, and its backward if that is wanted. */
static weft_status finish_call(weft_i_capture_state *c, weft_tensor **out, int outs)
{
    if (!(c->outputs = WEFT_OS->alloc(((size_t)outs + 1) * sizeof *c->outputs)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d results", outs);
    c->output_count = outs;
    WEFT_TRY(read_outputs(c, out, outs, c->outputs));
    c->how->hooked = c->eye.hooked;
    if (c->how->seal)
        WEFT_TRY(weft_i_seal_make(c->trace.graph, c->trace.graph->node_count, c->outputs, outs,
                                  c->how->seal));
    bool joint = c->how->joint == WEFT_I_JOINT_ALWAYS ||
                 (c->how->joint == WEFT_I_JOINT_IF_HOOKED && c->eye.hooked);
    if (joint)
        WEFT_TRY(weft_i_capture_backward(c, out, outs));
    return !c->eye.collecting
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_STATE,
                             "a group still collects calls where the function ends: what opens "
                             "(weft_coalesce_open) in a capture must close in it");
}

__attribute__((constructor)) static void give_forms(void)
{
    weft_i_traced_give();
}

/* Calls the function with the eye open. */
static weft_status call(weft_i_capture_state *c, weft_graph_function function, void *user,
                        weft_tensor *const *in, int ins, weft_tensor **out, int outs)
{
    weft_i_eye_open = &c->eye;
    weft_i_mode_push(&c->mode);
    weft_status status = function(in, ins, out, outs, user);
    if (c->status >= 0 && status >= 0)
        status = finish_call(c, out, outs);
    weft_i_mode_pop(&c->mode);
    weft_i_eye_open = NULL;
    if (c->status < 0) /* what went wrong first */
        return weft_i_fail(c->status, "%s", c->message);
    return status;
}

static weft_status run(weft_i_capture_state *c, const char *name, weft_graph_function function,
                       void *user, weft_tensor *const *in, int ins, int outs, weft_graph **graph)
{
    weft_tensor **out = WEFT_OS->alloc(((size_t)outs + 1) * sizeof *out);
    weft_status status = !out ? weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d results", outs)
                              : weft_i_trace_begin(&c->trace, name);
    if (status >= 0)
        status = lift_arguments(c, in, ins);
    if (status >= 0)
        status = call(c, function, user, in, ins, out, outs);
    if (status >= 0)
        weft_i_capture_mark_needed(c);
    if (status >= 0 && !(*graph = weft_i_trace_end(&c->trace, c->outputs, c->output_count)))
        status = weft_last_status();
    if (status >= 0)
        weft_keep(*graph); /* beyond the scope of the capture */
    close_capture(c);
    WEFT_OS->free(out);
    return status;
}

static weft_status check(const char *name, weft_graph_function function, weft_tensor *const *in,
                         int ins, int outs)
{
    if (!function || ins < 0 || outs < 0 || (ins && !in) || !name || strlen(name) > 200)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "capture: %s",
                           !function ? "the function is NULL"
                           : !name   ? "the name is NULL"
                                     : "bad numbers of arguments or results");
    return weft_i_not_captured("a capture inside another");
}

weft_graph *weft_i_capture(const char *name, weft_graph_function function, void *user,
                           weft_tensor *const *in, int ins, int outs, weft_i_capture_how *how)
{
    weft_i_capture_how none = {0};
    weft_i_capture_state c = {.eye = {see, see_storage, apply, read_version, read_bytes, resize,
                                      constant, broken, refuse, read_grad, depend, undo, false, 0,
                                      0, false},
                              .mode = {.handle = handle},
                              .how = how ? how : &none,
                              .guards = how ? how->guards : NULL,
                              .recording = weft_grad_mode_now() == WEFT_GRAD_RECORDING};
    c.how->split = -1;
    weft_graph *graph = NULL;
    if (check(name, function, in, ins, outs) < 0 || weft_scope_open() < 0)
        return NULL;
    weft_status status = run(&c, name, function, user, in, ins, outs, &graph);
    weft_scope_close();
    if (status >= 0)
        return weft_i_object_scope(graph);
    weft_i_explain(status, "capture of \"%s\"", name);
    return NULL;
}

bool weft_tracing(void)
{
    return weft_i_eye_open != NULL;
}

weft_status weft_watch(const void *memory, size_t bytes)
{
    if (!weft_i_eye_open)
        return WEFT_OK;
    weft_i_capture_state *c = of_eye(weft_i_eye_open);
    if (!memory && bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_watch: %zu bytes at NULL", bytes);
    if (!bytes || !c->guards)
        return WEFT_OK;
    void *copy = WEFT_OS->alloc(bytes);
    if (copy)
        memcpy(copy, memory, bytes);
    weft_i_guard note = {.kind = WEFT_I_GUARD_WATCH,
                         .input = -1,
                         .number = (int64_t)bytes,
                         .memory = memory,
                         .copy = copy};
    weft_status status =
        copy ? weft_i_guards_add(c->guards, note)
             : weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_watch: no memory for %zu bytes", bytes);
    if (status < 0)
        broken(&c->eye);
    return status;
}

weft_graph *weft_graph_capture(const char *name, weft_graph_function function, void *user,
                               weft_tensor *const *in, int ins, int outs)
{
    return weft_i_capture(name, function, user, in, ins, outs, NULL);
}
