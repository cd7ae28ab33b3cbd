/* SPDX-License-Identifier: Apache-2.0 */
/* Walking the graph of gradients without running it; see route.h. */
#include "graph/run/route.h"

#include "base/os/os.h"

#include <string.h>

static weft_status no_memory(size_t bytes)
{
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "backward: no memory for %zu bytes of its route", bytes);
}

/* ---- the key ---- */

static weft_status put(weft_i_route *r, const void *bytes, size_t count)
{
    if (r->bytes + count > r->key_room) {
        size_t room = 2 * (r->bytes + count) + 256;
        char *more = WEFT_OS->resize(r->key, room);
        if (!more)
            return no_memory(room);
        r->key = more;
        r->key_room = room;
    }
    if (count)
        memcpy(r->key + r->bytes, bytes, count);
    r->bytes += count;
    return WEFT_OK;
}

static weft_status put_number(weft_i_route *r, int64_t number)
{
    return put(r, &number, sizeof number);
}

static weft_status put_pointer(weft_i_route *r, const void *pointer)
{
    return put_number(r, (int64_t)(intptr_t)pointer);
}

static weft_status put_meta(weft_i_route *r, const weft_i_meta *meta)
{
    WEFT_TRY(put_number(r, (int64_t)meta->dtype << 32 | meta->ndim));
    WEFT_TRY(put_number(r, meta->device));
    WEFT_TRY(put_number(r, meta->offset));
    WEFT_TRY(put(r, meta->sizes, (size_t)meta->ndim * sizeof *meta->sizes));
    return put(r, meta->strides, (size_t)meta->ndim * sizeof *meta->strides);
}

/* Notes where a tensor is, and writes whether it was met before. */
static weft_status put_tensor(weft_i_route *r, const weft_tensor *x, weft_i_place place)
{
    WEFT_TRY(weft_i_pointers_reserve(&r->known, 1));
    intptr_t number = (intptr_t)weft_i_pointers_find(&r->known, x);
    if (number)
        return put_number(r, number);
    if (r->place_count == r->place_room) {
        size_t room = r->place_room ? 2 * r->place_room : 32;
        weft_i_place *more = WEFT_OS->resize(r->places, room * sizeof *more);
        if (!more)
            return no_memory(room * sizeof *more);
        r->places = more;
        r->place_room = room;
    }
    r->places[r->place_count++] = place;
    weft_i_pointers_add(&r->known, x, (void *)(intptr_t)r->place_count);
    return put_number(r, (int64_t)r->place_count);
}

static weft_status put_argument(weft_i_route *r, const weft_i_arg *arg)
{
    WEFT_TRY(put_number(r, (int64_t)arg->kind << 32 | (int64_t)arg->count));
    switch (arg->kind) {
    case WEFT_I_ARG_NUMBER:
        return put(r, &arg->number, sizeof arg->number);
    case WEFT_I_ARG_INTEGER:
        return put_number(r, arg->integer);
    case WEFT_I_ARG_INTEGERS:
        return put(r, arg->integers, arg->count * sizeof *arg->integers);
    case WEFT_I_ARG_GROUP:
        return put_pointer(r, arg->group.handle);
    default:
        return WEFT_OK;
    }
}

static weft_status put_hooks(weft_i_route *r, const weft_i_hook *hook, int stop, int *held)
{
    for (; hook; hook = hook->next) {
        int64_t number = 0;
        if (weft_i_hook_is_removed(hook)) { /* it is there until somebody sweeps */
            *held += (int)hook->count;
            continue;
        }
        const void *what = hook->identity ? hook->identity(hook->user, &number) : hook->user;
        /* Functions as bytes: they are no objects. */
        WEFT_TRY(put(r, &hook->hook, sizeof hook->hook));
        WEFT_TRY(put(r, &hook->on_all, sizeof hook->on_all));
        WEFT_TRY(put_pointer(r, what));
        WEFT_TRY(put_number(r, number));
        WEFT_TRY(put_number(r, (int64_t)hook->output << 32 | (int64_t)hook->count << 1 |
                                   (int64_t)hook->opaque));
        for (size_t i = 0; i < hook->count; i++)
            WEFT_TRY(
                put_tensor(r, hook->held[i], (weft_i_place){WEFT_I_PLACE_HELD, stop, (*held)++}));
    }
    return put_number(r, -1);
}

/* ---- the way ---- */

static weft_status visit(weft_i_route *r, weft_i_object *to, int64_t *number)
{
    WEFT_TRY(weft_i_pointers_reserve(&r->seen, 1));
    *number = (int64_t)(intptr_t)weft_i_pointers_find(&r->seen, to);
    if (*number)
        return WEFT_OK;
    if (r->count == r->room) {
        int room = r->room ? 2 * r->room : 32;
        weft_i_object **more = WEFT_OS->resize(r->stops, (size_t)room * sizeof *more);
        if (!more)
            return no_memory((size_t)room * sizeof *more);
        r->stops = more;
        r->room = room;
    }
    r->stops[r->count++] = to;
    weft_i_pointers_add(&r->seen, to, (void *)(intptr_t)r->count);
    *number = r->count;
    return WEFT_OK;
}

static weft_status put_edge(weft_i_route *r, const weft_i_edge *edge)
{
    int64_t number = 0;
    if (edge->to)
        WEFT_TRY(visit(r, edge->to, &number));
    return put_number(r, number << 16 | edge->output);
}

static weft_status put_slots(weft_i_route *r, const weft_i_node *node, int stop)
{
    for (int i = 0; i < node->slots; i++) {
        const weft_i_saved *slot = &node->slot[i];
        WEFT_TRY(put_number(r, slot->place));
        WEFT_TRY(put_meta(r, &slot->meta));
        if (slot->tensor)
            WEFT_TRY(put_tensor(r, slot->tensor, (weft_i_place){WEFT_I_PLACE_SLOT, stop, i}));
    }
    return WEFT_OK;
}

static weft_status put_node(weft_i_route *r, const weft_i_node *node, int stop)
{
    int held = 0;
    size_t items = 0;
    r->closed |= node->retained || (node->slots && node->released);
    WEFT_TRY(put_pointer(r, node->op));
    WEFT_TRY(
        put_number(r, (int64_t)node->outputs << 32 | (int64_t)node->slots << 16 | node->edges));
    for (int i = 0; i < node->op->arity; i++) {
        WEFT_TRY(put_argument(r, &node->arg[i]));
        items += node->arg[i].kind == WEFT_I_ARG_TENSORS ? node->arg[i].count : 0;
    }
    for (int i = 0; i < node->outputs; i++)
        WEFT_TRY(put_meta(r, &node->output[i]));
    for (size_t i = 0; i < items; i++)
        WEFT_TRY(put_meta(r, &node->listed[i]));
    WEFT_TRY(put_slots(r, node, stop));
    WEFT_TRY(put_hooks(r, node->hooks, stop, &held));
    for (int i = 0; i < node->edges; i++)
        WEFT_TRY(put_edge(r, &node->edge[i]));
    return WEFT_OK;
}

static weft_status put_leaf(weft_i_route *r, const weft_tensor *leaf, int stop)
{
    const weft_i_history *history = weft_i_history_if(leaf);
    int held = 0;
    WEFT_TRY(put_tensor(r, leaf, (weft_i_place){WEFT_I_PLACE_LEAF, stop, 0}));
    WEFT_TRY(put_number(r, history->grad != NULL));
    WEFT_TRY(put_hooks(r, history->hooks, stop, &held));
    return put_hooks(r, history->accumulated, stop, &held);
}

weft_status weft_i_route_find(weft_i_route *route, const weft_i_edge *roots, size_t count)
{
    *route = (weft_i_route){0};
    for (size_t i = 0; i < count; i++)
        WEFT_TRY(put_edge(route, &roots[i]));
    for (int i = 0; i < route->count; i++) {
        weft_i_object *stop = route->stops[i];
        WEFT_TRY(weft_i_is_node(stop) ? put_node(route, (weft_i_node *)stop, i)
                                      : put_leaf(route, (weft_tensor *)stop, i));
    }
    return WEFT_OK;
}

void weft_i_route_clear(weft_i_route *route)
{
    weft_i_pointers_clear(&route->seen);
    weft_i_pointers_clear(&route->known);
    WEFT_OS->free(route->stops);
    WEFT_OS->free(route->places);
    WEFT_OS->free(route->key);
    *route = (weft_i_route){0};
}

/* ---- its tensors ---- */

weft_i_place weft_i_route_place(const weft_i_route *route, const weft_tensor *x)
{
    intptr_t number = (intptr_t)weft_i_pointers_find(&route->known, x);
    return number ? route->places[number - 1] : (weft_i_place){WEFT_I_PLACE_FIXED, 0, 0};
}

static weft_i_node *node_at(const weft_i_route *route, int stop)
{
    weft_i_object *object = route->stops[stop];
    return weft_i_is_node(object) ? (weft_i_node *)object : NULL;
}

static weft_tensor *held_at(const weft_i_route *route, weft_i_place place)
{
    const weft_i_node *node = node_at(route, place.stop);
    const weft_i_history *history =
        node ? NULL : weft_i_history_if((const weft_tensor *)route->stops[place.stop]);
    const weft_i_hook *lists[] = {node ? node->hooks : history->hooks,
                                  node ? NULL : history->accumulated};
    int left = place.index;
    for (int i = 0; i < 2; i++)
        for (const weft_i_hook *hook = lists[i]; hook; left -= (int)hook->count, hook = hook->next)
            if (left < (int)hook->count)
                return hook->held[left];
    return weft_i_null(WEFT_ERR_INTERNAL, "backward: a tensor that a hook holds is gone");
}

weft_tensor *weft_i_route_tensor(const weft_i_route *route, weft_i_place place)
{
    weft_i_node *node = node_at(route, place.stop);
    if (place.kind == WEFT_I_PLACE_LEAF)
        return (weft_tensor *)route->stops[place.stop];
    return place.kind == WEFT_I_PLACE_SLOT ? weft_i_saved_get(node, &node->slot[place.index], false)
                                           : held_at(route, place);
}

weft_status weft_i_route_unpack(weft_i_route *route)
{
    for (int i = 0; i < route->count; i++) {
        weft_i_node *node = node_at(route, i);
        for (int k = 0; node && k < node->slots; k++) {
            weft_i_saved *slot = &node->slot[k];
            if (!(slot->unpacked = weft_i_saved_get(node, slot, false)))
                return weft_last_status();
            size_t before = route->bytes; /* the key is complete without them */
            if (!slot->tensor)
                WEFT_TRY(
                    put_tensor(route, slot->unpacked, (weft_i_place){WEFT_I_PLACE_SLOT, i, k}));
            route->bytes = before;
        }
    }
    return WEFT_OK;
}

void weft_i_route_pack(weft_i_route *route)
{
    for (int i = 0; i < route->count; i++) {
        weft_i_node *node = node_at(route, i);
        for (int k = 0; node && k < node->slots; k++)
            node->slot[k].unpacked = NULL;
    }
}

weft_status weft_i_route_check(const weft_i_route *route)
{
    for (int i = 0; i < route->count; i++) {
        const weft_i_node *node = node_at(route, i);
        for (int k = 0; node && k < node->slots; k++)
            WEFT_TRY(weft_i_saved_check(node, &node->slot[k]));
    }
    return WEFT_OK;
}

void weft_i_route_release(weft_i_route *route)
{
    for (int i = 0; i < route->count; i++)
        if (node_at(route, i))
            weft_i_node_release(node_at(route, i));
}
