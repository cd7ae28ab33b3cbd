/* SPDX-License-Identifier: Apache-2.0 */
/* A table from pointers to pointers: what stands for what in a capture. */
#ifndef WEFT_GRAPH_POINTERS_H
#define WEFT_GRAPH_POINTERS_H

#include "weft/status.h"

#include <stddef.h>

typedef struct weft_i_pointers {
    struct weft_i_pointer_pair {
        const void *key;
        void *value;
    } * at; /* `room` of them, a power of two; an empty one has no key */
    size_t count, room;
} weft_i_pointers;

void *weft_i_pointers_find(const weft_i_pointers *table, const void *key); /* NULL: not there */
/* Makes room for `more` pairs, so that adding them cannot fail. */
weft_status weft_i_pointers_reserve(weft_i_pointers *table, size_t more);
void weft_i_pointers_add(weft_i_pointers *table, const void *key, void *value);
void weft_i_pointers_clear(weft_i_pointers *table);

#endif
