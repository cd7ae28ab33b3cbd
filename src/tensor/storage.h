/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a storage, and how other floors bring their own memory. */
#ifndef WEFT_TENSOR_STORAGE_H
#define WEFT_TENSOR_STORAGE_H

#include "tensor/claim.h"
#include "weft/storage.h"
#include "weft/tensor.h"

#include <pthread.h>
#include <stdbool.h>

/* Where the memory of resizable storages comes from, one table per device kind. */
typedef struct weft_i_allocator {
    void *(*alloc)(weft_device device, size_t bytes); /* never 0 bytes; NULL when memory runs out */
    void (*free)(weft_device device, void *memory, size_t bytes);
    void (*copy)(weft_device device, void *to, const void *from, size_t bytes);
} weft_i_allocator;

/* Where the memory of devices of `kind` comes from (a kind of weft_device); `table` stays the
 * caller's.  For floors that bring a device, before there is more than one thread. */
void weft_i_storage_add_allocator(int kind, const weft_i_allocator *table);

/* Counts the writes in place; shared by all views of one tensor. */
typedef struct weft_i_version {
    weft_i_object head;
    atomic_int_least64_t count; /* relaxed: a tensor is used by one thread at a time; atomic for the
                                   sake of readers */
    int number; /* of a fake: which counter of its capture it is, from 1; 0: none yet */
} weft_i_version;

/*
 * One allocation with the counter of its first tensor, and with its data if they are few.  The
 * counter holds the memory and the storage holds the counter, so tensors that have both need only
 * hold the storage.
 */
struct weft_storage {
    weft_i_object head;
    weft_i_version version;
    weft_device device;
    bool read_only; /* writes through any tensor are refused */
    bool within;    /* the data lie in the storage's own block */
    void *data;     /* NULL if bytes == 0, the device is meta, or there is only a `fake` */
    size_t bytes;
    const weft_i_allocator *allocator; /* NULL: the memory is external, the size fixed */
    void (*release)(
        void *argument); /* external memory: called once when the storage goes; may be NULL */
    void *release_argument;
    _Atomic(weft_i_claim *) claims; /* under way: release, pairs with weft_i_storage_ready */
    pthread_mutex_t claims_lock;    /* guards the list */
    struct weft_i_fake *fake;       /* no memory: it belongs to a capture (fake.h), else NULL */
};

/*
 * A storage of `bytes` bytes, not zeroed, owned by nobody's scope (tensors hold storages).
 * WEFT_ERR_UNSUPPORTED for a device without an allocator.
 */
weft_storage *weft_i_storage_new(weft_device device, size_t bytes);

/* As above with a size only; for fakes (fake.h). */
weft_storage *weft_i_storage_new_empty(weft_device device, size_t bytes);

/* weft_storage_resize of this storage, no matter who looks. */
weft_status weft_i_storage_resize(weft_storage *storage, size_t bytes);

/*
 * A storage over memory of others.  It cannot be resized.  `release(argument)` runs when its last
 * tensor goes; if this call fails it does not run and the memory stays the caller's.
 */
weft_storage *weft_i_storage_wrap(void *data, size_t bytes, weft_device device,
                                  void (*release)(void *argument), void *argument);

/*
 * To be asked before memory is read (or written): waits for operations under way on it.  Costs a
 * load and a branch when there are none.
 */
static inline weft_status weft_i_storage_ready(weft_storage *storage, bool write)
{
    /* Pairs with the release of who took the last claim off, or put one on. */
    return __builtin_expect(atomic_load_explicit(&storage->claims, memory_order_acquire) == NULL, 1)
               ? WEFT_OK
               : weft_i_claim_settle(storage, write, false);
}

/*
 * Operations that were posted with a tensor know where its bytes lie.  The floor that runs them
 * says whether the storage, or just that tensor of it unless it is NULL, is an operand of one that
 * is not over; asked before memory moves.
 */
typedef bool weft_i_storage_is_posted(const weft_storage *storage, const weft_tensor *tensor);
void weft_i_storage_watch_posted(weft_i_storage_is_posted *is_posted);

/* WEFT_ERR_STATE, in the name of `what`, if it is. */
weft_status weft_i_storage_check_posted(const char *what, const weft_storage *storage,
                                        const weft_tensor *tensor);

static inline int weft_i_device_kind(weft_device device)
{
    return device >> 16;
}

#endif
