/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of a store and the meaning of every request, in one place for all kinds.  Not locked:
 * the in-process store guards it with a mutex, a server by having one thread, a file store by its
 * file's lock.
 */
#ifndef WEFT_STORE_MAP_H
#define WEFT_STORE_MAP_H

#include "store/store.h"

typedef struct weft_i_store_entry weft_i_store_entry;

/* An element of a queue. */
typedef struct weft_i_store_item {
    struct weft_i_store_item *next;
    size_t bytes;
    char data[];
} weft_i_store_item;

/* A request that waits.  Hangs on the first of its keys that is missing, or in the map's list of
 * those to try again. */
typedef struct weft_i_store_waiter {
    struct weft_i_store_waiter *next,
        **link;                /* link: where the pointer to us is; NULL when nowhere */
    weft_i_store_entry *entry; /* NULL in the list of those to try again */
} weft_i_store_waiter;

typedef struct weft_i_store_map {
    weft_i_store_entry **buckets;
    size_t bucket_count, entries,
        keys; /* entries without a value exist while somebody waits for them */
    size_t bytes, limit;
    weft_i_store_waiter *ready, **ready_end; /* whose key came, oldest first */
} weft_i_store_map;

/* What a request gave.  The answer's views point into the map and hold until the map changes. */
typedef struct weft_i_store_outcome {
    bool blocked;             /* no answer yet: the waiter hangs in the map */
    bool changed;             /* the data is different now */
    weft_i_store_item *taken; /* popped: the caller frees it or puts it back */
} weft_i_store_outcome;

weft_status weft_i_store_map_open(weft_i_store_map *map, size_t limit);
/* Frees all data.  Waiters are forgotten, not answered. */
void weft_i_store_map_close(weft_i_store_map *map);

/*
 * Carries out a request.  If keys are missing and it may block and `waiter` is given, the waiter is
 * hung up and outcome->blocked set; without a waiter the answer is NOT_FOUND or EMPTY.  Any other
 * failure is answer->status, and then nothing has changed.  Never sets the thread's error.
 */
void weft_i_store_map_apply(weft_i_store_map *map, const weft_i_store_request *request,
                            weft_i_store_waiter *waiter, weft_i_store_answer *answer,
                            weft_i_store_outcome *outcome);

/* The oldest waiter whose key came, taken off the list; NULL if none. */
weft_i_store_waiter *weft_i_store_map_ready(weft_i_store_map *map);

/* Forgets a waiter, wherever it hangs. */
void weft_i_store_map_unhang(weft_i_store_map *map, weft_i_store_waiter *waiter);

/*
 * Returns an element that nobody received to the front of its queue; with a
 * warning frees it if a value took the name meanwhile or memory is short.
 */
void weft_i_store_map_put_back(weft_i_store_map *map, weft_i_view key, weft_i_store_item *item);

/* Frees a popped element. */
void weft_i_store_map_drop(weft_i_store_item *item);

#endif
