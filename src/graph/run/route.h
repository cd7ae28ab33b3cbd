/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a backward: the nodes and leaves that it will come to, in an order that depends on
 * nothing but how they hang together, and a key with all that decides what their rules and hooks
 * do, but for the elements of tensors.  Two backwards with the same key do the same; the tensors
 * that one of them uses are found in the other at the same places.
 */
#ifndef WEFT_GRAPH_ROUTE_H
#define WEFT_GRAPH_ROUTE_H

#include "grad/engine.h"
#include "graph/ir/pointers.h"

/* Where a tensor is found. */
typedef struct weft_i_place {
    enum { WEFT_I_PLACE_SLOT, WEFT_I_PLACE_LEAF, WEFT_I_PLACE_HELD, WEFT_I_PLACE_FIXED } kind;
    int stop;  /* of the route */
    int index; /* of the slot, or of all tensors that the hooks there hold */
} weft_i_place;

typedef struct weft_i_route {
    weft_i_object **stops; /* nodes and leaves; borrowed */
    int count, room;
    weft_i_pointers seen;  /* stop -> its number + 1 */
    weft_i_pointers known; /* tensor -> the place where it was met first, from 1 on */
    weft_i_place *places;
    size_t place_count, place_room;
    char *key;
    size_t bytes, key_room;
    bool closed; /* what lies there cannot be captured */
} weft_i_route;

/* Finds the way, and its key. */
weft_status weft_i_route_find(weft_i_route *route, const weft_i_edge *roots, size_t count);
void weft_i_route_clear(weft_i_route *route);

/* The place of a tensor; `kind` is FIXED if the route does not have it. */
weft_i_place weft_i_route_place(const weft_i_route *route, const weft_tensor *x);
/* The tensor at a place of this route; of slots in the current scope.  NULL and an error. */
weft_tensor *weft_i_route_tensor(const weft_i_route *route, weft_i_place place);

/* From here on slots give tensors that weft_i_route_place knows; `end` takes that back. */
weft_status weft_i_route_unpack(weft_i_route *route);
void weft_i_route_pack(weft_i_route *route);
/* Nothing that was saved was written since. */
weft_status weft_i_route_check(const weft_i_route *route);
/* Lets go of what was saved. */
void weft_i_route_release(weft_i_route *route);

#endif
