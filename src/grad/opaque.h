/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opaque calls: functions of the user that a capture does not enter.  Such a call is a node of the
 * graph, which calls the function at every run with the tensors that are there then.
 *
 *     %5 = opaque [%4] [%1, %2] hook="hook of a gradient"/1
 *
 * It sees the tensors of the first list, whose places it may give to others of the same shape,
 * dtype and device; those of the second it only reads.  It writes to none of them in place: passes
 * and the memory plan rely on that, and so it is checked, by the version counters.  The node is an
 * effect, which no collective, no gradient of a leaf and no other effect passes.
 */
#ifndef WEFT_GRAD_OPAQUE_H
#define WEFT_GRAD_OPAQUE_H

#include "tensor/object/tensor.h"

typedef struct weft_i_opaque weft_i_opaque;

/* Calls what lies behind, and checks what it leaves in `x`. */
typedef weft_status weft_i_opaque_function(const weft_i_opaque *self, weft_tensor **x,
                                           weft_tensor *const *held);

/* The first member of what a node holds. */
struct weft_i_opaque {
    weft_i_object head;
    weft_i_opaque_function *call;
    char name[64]; /* for people */
};

/* With one reference, owned by nobody; `destroy` ends with weft_i_object_free. */
void *weft_i_opaque_new(size_t bytes, void (*destroy)(weft_i_object *),
                        weft_i_opaque_function *call, const char *name);

/* While capturing: writes the call down.  `x` gets what stands for its results. */
weft_status weft_i_opaque_write(weft_i_opaque *opaque, weft_tensor **x, size_t count,
                                weft_tensor *const *held, size_t held_count);

/* What the tensors of a call are before it; `weft_i_opaque_check` fails if that has changed. */
typedef struct weft_i_opaque_mark {
    uint64_t seen, held;
} weft_i_opaque_mark;

weft_i_opaque_mark weft_i_opaque_mark_of(weft_tensor *const *x, size_t count,
                                         weft_tensor *const *held, size_t held_count);
weft_status weft_i_opaque_check(weft_i_opaque_mark before, weft_i_opaque_mark after);

/* Runs a call of a graph.  `out` gets one tensor of the current scope for each of `x`, which the
 * caller may release; `x` stays as it is. */
weft_status weft_i_opaque_run_now(const weft_i_opaque *opaque, weft_tensor *const *x, size_t count,
                                  weft_tensor *const *held, size_t held_count, weft_tensor **out);

#endif
