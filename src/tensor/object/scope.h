/* SPDX-License-Identifier: Apache-2.0 */
/* The head that every handle of weft starts with, and how handles enter scopes. */
#ifndef WEFT_TENSOR_SCOPE_H
#define WEFT_TENSOR_SCOPE_H

#include "weft/scope.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weft_i_scope weft_i_scope;

/* So many objects of one scope are taken for a leak: 40 to 60 MB of handles. */
enum { WEFT_I_SCOPE_MANY = 100000 };

/* What kind of handle this is, for checks of void pointers.  A released one has none, until its block
 * serves another. */
typedef enum weft_i_kind {
    WEFT_I_TENSOR = 0x7e01,
    WEFT_I_STORAGE,
    WEFT_I_GROUP,
    WEFT_I_SYMM,
    WEFT_I_STORE,
    WEFT_I_POOL,
    WEFT_I_WORK,
    WEFT_I_MESH,
    WEFT_I_LANE,
    WEFT_I_LIST,
    WEFT_I_BLOBS,
    WEFT_I_COALESCE,
    WEFT_I_PENDING,
    WEFT_I_JOB,
    WEFT_I_NODE,
    WEFT_I_HISTORY,
    WEFT_I_RETAINED,
    WEFT_I_OPAQUE,
    WEFT_I_MODULE,
    WEFT_I_MODULE_HOOK,
    WEFT_I_MODULE_CALL,
    WEFT_I_REPLICA,
    WEFT_I_UNIT,
    WEFT_I_SCHEDULE,
    WEFT_I_CUT,
    WEFT_I_PIPELINE,
    WEFT_I_OPTIM,
    WEFT_I_GRAPH,
    WEFT_I_COMPILED,
    WEFT_I_FRAME,
    WEFT_I_FAKE,
    WEFT_I_STREAM,
    WEFT_I_EVENT,
    WEFT_I_REPLAY,
    WEFT_I_CARRIER,
    WEFT_I_SHARD,
    WEFT_I_FILE_MAP,
    WEFT_I_SAFETENSORS,
    WEFT_I_CHECKPOINT,
    WEFT_I_TOKENS,
    WEFT_I_PROGRESS,
    WEFT_I_PROFILE,
    WEFT_I_GROUP_PART, /* of a floor; the last */
    WEFT_I_RELEASED = 0
} weft_i_kind;

/* First member of every handle. */
typedef struct weft_i_object {
    uint16_t kind;
    uint16_t units; /* of its block on the shelf; 0: the block is none of those */
    atomic_int
        references; /* relaxed up, acq_rel down: the last owner sees all writes of the others */
    void (*destroy)(
        struct weft_i_object *object); /* called once, at zero references; frees the memory too */
    /* Place in the list of the owning scope; touched only by the thread that owns the scope. */
    weft_i_scope *scope;
    struct weft_i_object *newer, *older;
} weft_i_object;

/*
 * Allocates a zeroed handle of `bytes` (its first member a weft_i_object) with one reference, owned
 * by the thread's current scope.  NULL and an error if memory runs out; then nothing has happened.
 */
void *weft_i_object_new(weft_i_kind kind, size_t bytes, void (*destroy)(weft_i_object *));

/* As above, but owned by nobody: for objects inside other objects. */
void *weft_i_object_new_unscoped(weft_i_kind kind, size_t bytes, void (*destroy)(weft_i_object *));

/* The same with `room` bytes behind it whose content is undefined. */
void *weft_i_object_new_with(weft_i_kind kind, size_t bytes, size_t room,
                             void (*destroy)(weft_i_object *));

/* Makes a handle with one reference, owned by nobody, of a zeroed part of another's block. */
static inline void weft_i_object_start(weft_i_object *self, weft_i_kind kind,
                                       void (*destroy)(weft_i_object *))
{
    self->kind = (uint16_t)kind;
    self->destroy = destroy;
    atomic_init(&self->references, 1);
}

/* Gives an object that nobody's scope owns to the current one; NULL and an error, and the object is
 * dropped, if there is none. */
void *weft_i_object_scope(void *object);

/*
 * Counts one reference less; whether it was the last.  The only one left cannot become two by
 * itself, so a load will do then.  Acquire, and acq_rel: the last owner sees all writes of the
 * others.
 */
static inline bool weft_i_object_give_up(atomic_int *references)
{
    return atomic_load_explicit(references, memory_order_acquire) == 1 ||
           atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

/* One more reference, for an object that holds another; `drop` gives it back.  NULL passes through.
 */
static inline void *weft_i_object_hold(void *pointer)
{
    weft_i_object *self = pointer;
    if (self)
        atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
    return self;
}

static inline void weft_i_object_drop(void *pointer)
{
    weft_i_object *self = pointer;
    if (self && weft_i_object_give_up(&self->references))
        self->destroy(self);
}

/* Drops a reference unless it is the last one; false then.  For who must not destroy the object
 * where it stands. */
bool weft_i_object_drop_shared(void *object);

/*
 * Closes all scopes of the calling thread, as its end does; without `release` what they own is left
 * as it is.  For simulated threads (tests/simulator/turns.h), which may die anywhere.
 */
void weft_i_scope_abandon(bool release);

/*
 * Gives a reference of the caller to the current scope; if a scope owns the object already, that
 * one stays its owner and the reference is dropped.  For what leaves a scope that was closed. There
 * must be a current scope.  NULL is fine.
 */
void weft_i_scope_adopt(void *object);

/* Frees the memory of a handle: the last line of every destroy function. */
void weft_i_object_free(weft_i_object *object);

#endif
