/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes: one allocation each, and an end without recursion.  A chain of a million nodes dies in a
 * loop: a node that loses its last reference while another dies waits in a list of the thread.
 */
#include "grad/node.h"

#include "base/os/os.h"
#include "tensor/object/fake.h"

#include <string.h>

static _Thread_local uint64_t sequence;
static _Thread_local weft_i_node *dying;
static _Thread_local bool burying;

uint64_t weft_i_node_next(void)
{
    return ++sequence;
}

/* ---- edges ---- */

static weft_tensor *leaf_of(const weft_i_object *to)
{
    return to && to->kind == WEFT_I_TENSOR ? (weft_tensor *)to : NULL;
}

/* Relaxed: a hint for weft_i_node_untie, read by the tensor's thread. */
static void count_saved(weft_tensor *x, int more)
{
    if (x)
        atomic_fetch_add_explicit(&x->saved, more, memory_order_relaxed);
}

void weft_i_edge_hold(weft_i_edge *edge, weft_i_object *to, int output)
{
    edge->to = weft_i_object_hold(to);
    edge->output = output;
    count_saved(leaf_of(to), 1);
}

void weft_i_edge_drop(weft_i_edge *edge)
{
    weft_i_object *to = edge->to;
    edge->to = NULL;
    count_saved(leaf_of(to), -1);
    weft_i_object_drop(to);
}

/* ---- death ---- */

static void drop_slot(weft_i_saved *slot)
{
    count_saved(slot->tensor, -1);
    weft_i_object_drop(slot->tensor);
    weft_i_object_drop(slot->version);
    weft_i_object_drop(slot->storage);
    slot->tensor = NULL;
    slot->version = NULL;
    slot->storage = NULL;
}

void weft_i_node_release(weft_i_node *node)
{
    for (int i = 0; i < node->slots; i++)
        drop_slot(&node->slot[i]);
    node->released = true;
}

static void bury(weft_i_node *node)
{
    weft_i_node_release(node);
    weft_i_hook_free_all(&node->hooks);
    while (node->retained) {
        weft_i_retained *first = node->retained;
        node->retained = first->next;
        weft_i_object_drop(first);
    }
    for (int i = 0; i < node->edges; i++)
        weft_i_edge_drop(&node->edge[i]);
    for (int i = 0; i < node->op->arity; i++)
        if (node->arg[i].kind == WEFT_I_ARG_GROUP)
            weft_i_object_drop(node->arg[i].group.handle);
    weft_i_object_free(&node->head);
}

static void destroy(weft_i_object *object)
{
    weft_i_node *node = (weft_i_node *)object;
    node->next = dying;
    dying = node;
    if (burying)
        return;
    burying = true;
    while ((node = dying)) {
        dying = node->next;
        bury(node);
    }
    burying = false;
}

/* ---- birth ---- */

/* What the arguments need behind the node. */
struct tally {
    size_t items, integers, dims; /* tensors of lists, and their dimensions */
};

static struct tally count_arguments(const weft_i_op_call *call)
{
    struct tally tally = {0, 0, 0};
    for (int i = 0; i < call->op->arity; i++) {
        const weft_i_arg *arg = &call->args[i];
        tally.integers += arg->kind == WEFT_I_ARG_INTEGERS ? arg->count : 0;
        tally.items += arg->kind == WEFT_I_ARG_TENSORS ? arg->count : 0;
        for (size_t k = 0; arg->kind == WEFT_I_ARG_TENSORS && k < arg->count; k++)
            tally.dims += arg->tensors[k] ? (size_t)arg->tensors[k]->ndim : 0;
    }
    return tally;
}

/* Copies the arguments; tensors are left out, they belong to slots. */
static void copy_arguments(weft_i_node *node, const weft_i_op_call *call, int64_t *integers)
{
    for (int i = 0; i < call->op->arity; i++) {
        weft_i_arg *arg = &node->arg[i];
        *arg = call->args[i];
        if (arg->kind == WEFT_I_ARG_TENSOR)
            arg->tensor = NULL;
        else if (arg->kind == WEFT_I_ARG_TENSORS)
            arg->tensors = node->item;
        else if (arg->kind == WEFT_I_ARG_GROUP)
            weft_i_object_hold(arg->group.handle);
        else if (arg->kind == WEFT_I_ARG_INTEGERS) {
            if (arg->count)
                memcpy(integers, arg->integers, arg->count * sizeof *integers);
            arg->integers = integers;
            integers += arg->count;
        }
    }
}

static void copy_edges(weft_i_node *node, const weft_i_node_plan *plan)
{
    node->edges = plan->count;
    node->sequence = weft_i_node_next();
    for (int i = 0; i < plan->count; i++) {
        const weft_i_edge *edge = &plan->edges[i];
        if (!edge->to)
            continue;
        weft_i_edge_hold(&node->edge[i], edge->to, edge->output);
        /* A graph may come from another thread, with higher numbers than ours. */
        if (weft_i_is_node(edge->to) && ((weft_i_node *)edge->to)->sequence >= node->sequence)
            sequence = node->sequence = ((weft_i_node *)edge->to)->sequence + 1;
    }
}

static void describe(weft_i_node *node, weft_i_meta *meta, const weft_tensor *x)
{
    meta->dtype = x->dtype;
    meta->device = weft_i_tensor_device(x);
    meta->ndim = x->ndim;
    meta->offset = x->offset;
    meta->sizes = node->sizes;
    meta->strides = meta->sizes + x->ndim;
    for (int i = 0; i < x->ndim; i++) {
        meta->sizes[i] = x->dim[i];
        meta->strides[i] = x->stride[i];
    }
    node->sizes += 2 * x->ndim;
}

/* All tensors of the list: where the gradient of one begins in that of the result may depend on the
 * others. */
static void describe_list(weft_i_node *node, const weft_i_op_call *call)
{
    weft_i_meta *meta = node->listed;
    for (int i = 0; i < call->op->arity; i++)
        for (size_t k = 0; call->args[i].kind == WEFT_I_ARG_TENSORS && k < call->args[i].count;
             k++, meta++)
            if (call->args[i].tensors[k])
                describe(node, meta, call->args[i].tensors[k]);
}

/* All parts have sizes that are multiples of 8, and lie one behind the other. */
weft_i_node *weft_i_node_new(const weft_i_node_plan *plan)
{
    const weft_i_op_call *call = plan->call;
    struct tally tally = count_arguments(call);
    size_t edges = (size_t)plan->count, outputs = (size_t)plan->outputs,
           slots = (size_t)plan->slots, arity = (size_t)call->op->arity,
           dims = (size_t)plan->dims + tally.dims;
    weft_i_node *node = weft_i_object_new_unscoped(
        WEFT_I_NODE,
        sizeof *node + edges * sizeof *node->edge + outputs * sizeof *node->output +
            slots * sizeof *node->slot + arity * sizeof *node->arg +
            tally.items * (sizeof *node->item + sizeof *node->listed) +
            (tally.integers + 2 * dims) * sizeof(int64_t),
        destroy);
    if (!node)
        return NULL;
    node->edge = (weft_i_edge *)(void *)(node + 1);
    node->output = (weft_i_meta *)(void *)(node->edge + edges);
    node->slot = (weft_i_saved *)(void *)(node->output + outputs);
    node->arg = (weft_i_arg *)(void *)(node->slot + slots);
    node->item = (weft_tensor **)(void *)(node->arg + arity);
    node->listed = (weft_i_meta *)(void *)(node->item + tally.items);
    int64_t *integers = (int64_t *)(void *)(node->listed + tally.items);
    node->sizes = integers + tally.integers;
    node->op = call->op;
    copy_arguments(node, call, integers);
    copy_edges(node, plan);
    if (tally.items)
        describe_list(node, call);
    return node;
}

void weft_i_node_output(weft_i_node *node, const weft_tensor *x)
{
    weft_i_meta *meta = &node->output[node->outputs++];
    if (x)
        describe(node, meta, x);
}

static void save_memory(weft_i_saved *slot, const weft_tensor *x)
{
    slot->storage = weft_i_object_hold(x->storage);
    if (x->version != &x->storage->version)
        slot->version = weft_i_object_hold(x->version);
}

void weft_i_node_save(weft_i_node *node, int place, weft_tensor *x, bool by_reference)
{
    weft_i_saved *slot = &node->slot[node->slots++];
    int output;
    slot->place = place;
    slot->count = weft_i_tensor_version(x);
    slot->value = x->node;
    describe(node, &slot->meta, x);
    if (by_reference && !x->base && !weft_i_history_node(x, &output)) {
        slot->tensor = weft_i_object_hold(x);
        count_saved(x, 1);
    } else {
        save_memory(slot, x);
    }
}

/* ---- walks ---- */

/* Marks of walks: threads walk graphs of their own, but numbers must differ. */
static uint64_t next_visit(void)
{
    static atomic_uint_least64_t last; /* relaxed: numbers need only differ */
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

static void push(weft_i_node **stack, weft_i_object *object, uint64_t visit, uint64_t least)
{
    weft_i_node *node = object && weft_i_is_node(object) ? (weft_i_node *)object : NULL;
    if (!node || node->visit == visit || node->sequence < least)
        return;
    node->visit = visit;
    node->next = *stack;
    *stack = node;
}

bool weft_i_node_reaches(weft_i_node *from, const weft_i_object *to)
{
    uint64_t visit = next_visit();
    uint64_t least = weft_i_is_node(to) ? ((const weft_i_node *)to)->sequence : 0;
    weft_i_node *stack = NULL;
    push(&stack, &from->head, visit, least);
    while (stack) {
        weft_i_node *node = stack;
        stack = node->next;
        if (&node->head == to)
            return true;
        for (int i = 0; i < node->edges; i++) {
            if (node->edge[i].to == to)
                return true;
            push(&stack, node->edge[i].to, visit, least);
        }
    }
    return false;
}

/* Memory and layout stay; what is written to x from now on is seen through them as well. */
static void untie_slot(weft_i_saved *slot, weft_tensor *x)
{
    if (slot->tensor != x)
        return;
    save_memory(slot, x);
    slot->tensor = NULL;
    count_saved(x, -1);
    weft_i_object_drop(x);
}

void weft_i_node_untie(weft_i_node *from, weft_tensor *x)
{
    if (!from || atomic_load_explicit(&x->saved, memory_order_relaxed) == 0)
        return;
    uint64_t visit = next_visit();
    weft_i_node *stack = NULL;
    push(&stack, &from->head, visit, 0);
    while (stack) {
        weft_i_node *node = stack;
        stack = node->next;
        for (int i = 0; i < node->slots; i++)
            untie_slot(&node->slot[i], x);
        for (int i = 0; i < node->edges; i++) {
            if (node->edge[i].to == &x->head) /* a leaf no longer */
                weft_i_edge_drop(&node->edge[i]);
            else
                push(&stack, node->edge[i].to, visit, 0);
        }
    }
}

/* ---- what was saved ---- */

static const char *place_text(const weft_i_node *node, const weft_i_saved *slot, char out[96])
{
    int length, i = slot->place;
    if (i < 0) {
        snprintf(out, 96, "its result %d", -1 - i);
    } else if (i >= node->op->arity) {
        snprintf(out, 96, "tensor %d of its list", i - node->op->arity);
    } else {
        const char *name = weft_i_op_param_name(node->op, i, &length);
        snprintf(out, 96, "its argument %.*s", length, name);
    }
    return out;
}

static weft_status refuse_written(const weft_i_node *node, const weft_i_saved *slot, int64_t now)
{
    char shape[WEFT_I_SHAPE_TEXT], place[96], maker[64] = "a leaf";
    weft_shape sizes = {slot->meta.ndim, {0}};
    memcpy(sizes.dim, slot->meta.sizes, (size_t)slot->meta.ndim * sizeof *sizes.dim);
    const weft_i_edge *edge = slot->place >= 0 ? &node->edge[slot->place] : NULL;
    if (!edge)
        snprintf(maker, sizeof maker, "result %d of %s", -1 - slot->place, node->op->name);
    else if (edge->to && weft_i_is_node(edge->to))
        snprintf(maker, sizeof maker, "result %d of %s", edge->output,
                 ((const weft_i_node *)edge->to)->op->name);
    return weft_i_fail(WEFT_ERR_STATE,
                       "backward of %s: a tensor needed for the gradient was modified in place: "
                       "%s, %s%s, %s, is at version %lld, expected version %lld; write to a clone, "
                       "or hide the write (weft_tensor_preserve_version) if backward is to see it",
                       node->op->name, place_text(node, slot, place),
                       weft_dtype_name(slot->meta.dtype), weft_i_shape_text(sizes, shape), maker,
                       (long long)now, (long long)slot->count);
}

static weft_tensor *from_memory(weft_i_node *node, const weft_i_saved *slot)
{
    weft_shape shape = {slot->meta.ndim, {0}};
    memcpy(shape.dim, slot->meta.sizes, (size_t)slot->meta.ndim * sizeof *shape.dim);
    (void)node;
    weft_tensor *x = weft_i_tensor_new_view(
        slot->storage, slot->version ? slot->version : &slot->storage->version, slot->meta.dtype,
        shape, slot->meta.strides, slot->meta.offset);
    if (x)
        x->node = slot->value; /* of a fake: the same tensor in the capture */
    return x;
}

weft_status weft_i_saved_check(const weft_i_node *node, const weft_i_saved *slot)
{
    const weft_i_version *version = slot->tensor    ? slot->tensor->version
                                    : slot->version ? slot->version
                                                    : &slot->storage->version;
    int64_t now = atomic_load_explicit(&version->count, memory_order_relaxed);
    return slot->count >= 0 && now != slot->count ? refuse_written(node, slot, now) : WEFT_OK;
}

weft_tensor *weft_i_saved_get(weft_i_node *node, const weft_i_saved *slot, bool history)
{
    if (weft_i_saved_check(node, slot) < 0)
        return NULL;
    weft_storage *storage = slot->tensor ? slot->tensor->storage : slot->storage;
    if (storage->fake)
        storage->fake->unpacked = true;
    if (slot->unpacked)
        return slot->unpacked;
    if (slot->tensor)
        return slot->tensor;
    weft_tensor *x = from_memory(node, slot);
    weft_i_edge own = {&node->head, -1 - slot->place};
    const weft_i_edge *edge = slot->place < 0 ? &own : &node->edge[slot->place];
    if (x && history && edge->to && weft_i_is_node(edge->to) &&
        weft_i_history_set(x, (weft_i_node *)edge->to, edge->output) < 0)
        return NULL;
    return x;
}
