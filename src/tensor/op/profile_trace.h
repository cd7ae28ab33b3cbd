/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a profile, and its operations as a Chrome trace.  Times are those of the host's monotonic
 * clock, as in traces of the flight record, so that both can be looked at together. */
#ifndef WEFT_TENSOR_PROFILE_TRACE_H
#define WEFT_TENSOR_PROFILE_TRACE_H

#include "tensor/op/op.h"
#include "weft/profile.h"

typedef struct weft_i_profile_entry {
    const weft_i_op *op;
    int next; /* 1 + the next of its bucket; 0: none */
    weft_profile_row row;
} weft_i_profile_entry;

typedef struct weft_i_profile_rows {
    weft_i_profile_entry *at;
    int count, room;
} weft_i_profile_rows;

/* Its number; -1: there is no memory, and no error is set. */
int weft_i_profile_rows_add(weft_i_profile_rows *rows, const weft_i_op *op, weft_device device);
void weft_i_profile_rows_clear(weft_i_profile_rows *rows);

typedef struct weft_i_profile_event {
    int row;
    uint64_t bytes;
    int64_t began, returned, done; /* ns */
} weft_i_profile_event;

typedef struct weft_i_profile_events {
    weft_i_profile_event *at;
    size_t count, room, dropped;
} weft_i_profile_events;

/* False if there is no memory; no error is set. */
bool weft_i_profile_events_add(weft_i_profile_events *events, weft_i_profile_event event);

/* The path with its %r, %p and %h replaced, owned; NULL and an error. */
char *weft_i_profile_path(const char *pattern);
weft_status weft_i_profile_write(const char *path, const weft_i_profile_rows *rows,
                                 const weft_i_profile_events *events);

#endif
