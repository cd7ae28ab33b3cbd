/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a graph still stands for its function; see guard.h.  Cheap checks come first. */
#include "graph/capture/guard.h"

#include "base/os/os.h"
#include "coll/lane/request.h"
#include "tensor/op/autocast.h"
#include "weft/grad.h"

#include <stdio.h>
#include <string.h>

static bool is_same(const weft_i_guard *a, const weft_i_guard *b)
{
    return a->kind == b->kind && a->input == b->input && a->number == b->number &&
           a->memory == b->memory && a->factor == b->factor && a->object == b->object &&
           a->read == b->read && (!a->object || !strcmp(a->copy, b->copy));
}

weft_status weft_i_guards_add(weft_i_guards *guards, weft_i_guard guard)
{
    for (int i = 0; i < guards->count; i++)
        if (is_same(&guards->at[i], &guard)) {
            WEFT_OS->free(guard.copy);
            return WEFT_OK;
        }
    if (guards->count == guards->room) {
        int room = guards->room ? 2 * guards->room : 8;
        weft_i_guard *more = WEFT_OS->resize(guards->at, (size_t)room * sizeof *more);
        if (!more) {
            WEFT_OS->free(guard.copy);
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d guards", room);
        }
        guards->at = more;
        guards->room = room;
    }
    guards->at[guards->count++] = guard;
    weft_i_object_hold(guard.object);
    return WEFT_OK;
}

void weft_i_guards_clear(weft_i_guards *guards)
{
    for (int i = 0; i < guards->count; i++) {
        WEFT_OS->free(guards->at[i].copy);
        weft_i_object_drop(guards->at[i].object);
    }
    WEFT_OS->free(guards->at);
    *guards = (weft_i_guards){0};
}

static bool note_holds(const weft_i_guard *guard, weft_tensor *const *inputs)
{
    switch (guard->kind) {
    case WEFT_I_GUARD_WATCH:
        return memcmp(guard->memory, guard->copy, (size_t)guard->number) == 0;
    case WEFT_I_GUARD_VERSION:
        return atomic_load_explicit(&inputs[guard->input]->version->count, memory_order_relaxed) ==
               guard->number;
    case WEFT_I_GUARD_BYTES:
        return inputs[guard->input]->storage->bytes == (size_t)guard->number;
    case WEFT_I_GUARD_PREMUL:
        return weft_i_request_premul() == guard->factor;
    case WEFT_I_GUARD_GRAD:
        return weft_i_guard_has_grad(inputs[guard->input]) == (bool)guard->number;
    case WEFT_I_GUARD_OBJECT:
        return guard->read(guard->object, guard->copy) == guard->number;
    }
    return false;
}

static void say_note(const weft_i_guard *guard, const weft_graph *graph, char *why, size_t bytes)
{
    const char *name = guard->input >= 0 ? graph->inputs[guard->input].name : "";
    switch (guard->kind) {
    case WEFT_I_GUARD_WATCH:
        snprintf(why, bytes, "the %lld watched bytes at %p have changed", (long long)guard->number,
                 guard->memory);
        return;
    case WEFT_I_GUARD_VERSION:
        snprintf(why, bytes, "the version of input \"%s\" was read and is no longer %lld", name,
                 (long long)guard->number);
        return;
    case WEFT_I_GUARD_BYTES:
        snprintf(why, bytes, "the storage of input \"%s\" no longer has %lld bytes", name,
                 (long long)guard->number);
        return;
    case WEFT_I_GUARD_PREMUL:
        snprintf(why, bytes, "the factor of premul_sum is no longer %g", guard->factor);
        return;
    case WEFT_I_GUARD_GRAD:
        snprintf(why, bytes, "input \"%s\" %s a gradient", name,
                 guard->number ? "no longer has" : "has");
        return;
    case WEFT_I_GUARD_OBJECT:
        snprintf(why, bytes, "a module has changed: %s", (const char *)guard->copy);
        return;
    }
}

static bool strides_match(const weft_tensor *x, const weft_i_graph_value *value)
{
    for (int i = 0; i < x->ndim; i++)
        if (x->stride[i] != value->stride[i])
            return false;
    return x->offset == value->offset;
}

static bool shape_matches(const weft_tensor *x, const weft_i_graph_value *value)
{
    bool same = x->ndim == value->shape.ndim;
    for (int i = 0; same && i < x->ndim; i++)
        same = x->dim[i] == value->shape.dim[i];
    return same;
}

/* What is wrong with one input; NULL: nothing. */
static const char *mismatch(const weft_tensor *x, const weft_i_graph_value *value)
{
    if (x->storage->fake)
        return "belongs to a capture";
    if (x->dtype != value->dtype)
        return "has another dtype";
    if (!shape_matches(x, value))
        return "has another shape";
    if (!strides_match(x, value))
        return "has other strides or another offset";
    if (weft_i_tensor_device(x) != value->device)
        return "is on another device";
    if ((x->storage->bytes == 0) != (value->bytes == 0))
        return value->bytes ? "is freed now" : "was freed then";
    return NULL;
}

static bool memories_meet(const weft_storage *a, const weft_storage *b)
{
    const char *data_a = a->data, *data_b = b->data;
    return data_a && data_b && data_a < data_b + b->bytes && data_b < data_a + a->bytes;
}

/* What is wrong with two inputs beside each other. */
static const char *clash(const weft_graph *graph, weft_tensor *const *inputs, int i, int k)
{
    const weft_i_graph_value *a = &graph->values[graph->inputs[i].value],
                             *b = &graph->values[graph->inputs[k].value];
    if ((inputs[i]->storage == inputs[k]->storage) != (a->storage == b->storage))
        return a->storage == b->storage ? "shared a storage then" : "share a storage now";
    if ((inputs[i]->version == inputs[k]->version) != (a->counter == b->counter))
        return "share a version counter otherwise than then";
    if (a->storage != b->storage && memories_meet(inputs[i]->storage, inputs[k]->storage))
        return "lie in the same memory";
    return inputs[i] == inputs[k] ? "are the same tensor now" : NULL;
}

int weft_i_guard_mode(void)
{
    return (int)weft_grad_mode_now() | weft_i_autocast << 8;
}

static bool grads_hold(const weft_i_guards *guards, const weft_graph *graph,
                       weft_tensor *const *inputs, char *why, size_t bytes)
{
    if (guards->mode != weft_i_guard_mode()) {
        snprintf(why, bytes, "%s otherwise than then",
                 (guards->mode ^ weft_i_guard_mode()) & 0xff ? "gradients are recorded"
                                                             : "autocast converts");
        return false;
    }
    for (int i = 0; i < graph->input_count; i++) {
        bool then = graph->inputs[i].flags & WEFT_I_INPUT_GRAD, now = weft_requires_grad(inputs[i]);
        if (then != now) {
            snprintf(why, bytes, "input \"%s\" %s a gradient", graph->inputs[i].name,
                     now ? "requires" : "no longer requires");
            return false;
        }
    }
    return true;
}

/*
 * Whether it is plain that no two inputs have anything in common, now or then: every storage is
 * another one and is weft's own memory, with its own counter.  A false no is possible, and costs
 * the comparison of all pairs.
 */
static bool are_apart(const weft_graph *graph, weft_tensor *const *inputs)
{
    uint64_t seen[32] = {0};
    for (int i = 0; i < graph->input_count; i++) {
        const weft_i_graph_value *value = &graph->values[graph->inputs[i].value];
        const weft_storage *storage = inputs[i]->storage;
        /* Storages are numbered as they appear: a number that is not new is shared. */
        if (value->storage != i || value->counter != i || !storage->table ||
            inputs[i]->version != &storage->version)
            return false;
        unsigned at = (unsigned)((uint64_t)(uintptr_t)storage * 0x9e3779b97f4a7c15u >> 53);
        if (seen[at / 64] >> at % 64 & 1)
            return false;
        seen[at / 64] |= (uint64_t)1 << at % 64;
    }
    return true;
}

static bool inputs_hold(const weft_graph *graph, weft_tensor *const *inputs, char *why,
                        size_t bytes)
{
    for (int i = 0; i < graph->input_count; i++) {
        const char *what = mismatch(inputs[i], &graph->values[graph->inputs[i].value]);
        if (what) {
            snprintf(why, bytes, "input \"%s\" %s", graph->inputs[i].name, what);
            return false;
        }
    }
    if (are_apart(graph, inputs))
        return true;
    for (int i = 0; i < graph->input_count; i++)
        for (int k = 0; k < i; k++) {
            const char *what = clash(graph, inputs, i, k);
            if (what) {
                snprintf(why, bytes, "inputs \"%s\" and \"%s\" %s", graph->inputs[k].name,
                         graph->inputs[i].name, what);
                return false;
            }
        }
    return true;
}

bool weft_i_guards_hold(const weft_i_guards *guards, const weft_graph *graph,
                        weft_tensor *const *inputs, char *why, size_t bytes)
{
    for (int i = 0; guards && i < guards->count; i++)
        if ((guards->at[i].kind == WEFT_I_GUARD_WATCH ||
             guards->at[i].kind == WEFT_I_GUARD_OBJECT) &&
            !note_holds(&guards->at[i], inputs)) {
            say_note(&guards->at[i], graph, why, bytes);
            return false;
        }
    if (!inputs_hold(graph, inputs, why, bytes) ||
        (guards && !grads_hold(guards, graph, inputs, why, bytes)))
        return false;
    for (int i = 0; guards && i < guards->count; i++)
        if (!note_holds(&guards->at[i], inputs)) {
            say_note(&guards->at[i], graph, why, bytes);
            return false;
        }
    return true;
}
