/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a storage, and how other floors bring their own memory. */
#ifndef WEFT_TENSOR_STORAGE_H
#define WEFT_TENSOR_STORAGE_H

#include "tensor/object/claim.h"
#include "tensor/object/device.h"
#include "tensor/object/stream.h"
#include "weft/storage.h"
#include "weft/tensor.h"

#include <pthread.h>
#include <stdbool.h>

/* Counts the writes in place; shared by all views of one tensor. */
typedef struct weft_i_version {
    weft_i_object head;
    atomic_int_least64_t count; /* relaxed: a tensor is used by one thread at a time; atomic for the
                                   sake of readers */
    int number; /* of a fake: which counter of its capture it is, from 1; 0: none yet */
} weft_i_version;

/*
 * One block with the counter of its first tensor, with that tensor itself (weft_i_tensor_new), and
 * with its data if they are few.  The counter holds the block and the storage holds the counter, so
 * tensors that have both need only hold the storage.
 */
struct weft_storage {
    weft_i_object head;
    /* What an operation looks at, side by side: */
    weft_device device;
    bool read_only; /* writes through any tensor are refused */
    bool within;    /* the data lie in the storage's own block */
    bool ordered;   /* uses of the memory are ordered by streams, not by returning */
    void *data;     /* NULL if bytes == 0, the device is meta, or there is only a `fake` */
    size_t bytes;
    _Atomic(weft_i_claim *) claims; /* under way: release, pairs with weft_i_storage_ready */
    /* Of ordered memory, both held: who wrote last, and another that has read since (or NULL). */
    weft_stream *stream, *reader;
    void (*release)(
        void *argument); /* external memory: called once when the storage goes; may be NULL */
    void *release_argument;
    atomic_int pinned;  /* posted operations on it: weft_i_tensor_pin */
    atomic_int exports; /* descriptions that other libraries have of the memory (dlpack.c) */
    /* The rest: */
    weft_i_version version;
    const weft_i_device *table;  /* NULL: the memory is external, the size fixed */
    pthread_mutex_t claims_lock; /* guards the list, and `reader` */
    struct weft_i_fake *fake;    /* no memory: it belongs to a capture (fake.h), else NULL */
};

/*
 * A storage of `bytes` bytes, not zeroed, owned by nobody's scope (tensors hold storages).
 * WEFT_ERR_UNSUPPORTED for a device that this build does not have.
 */
weft_storage *weft_i_storage_new(weft_device device, size_t bytes);

/*
 * The same with `extra` zeroed bytes behind the storage, in its block.  Whoever uses them holds
 * `version` as well, beside the storage: that keeps the block.
 */
weft_storage *weft_i_storage_new_with(weft_device device, size_t bytes, size_t extra);

/*
 * Where the memory of a thread's results comes from instead.  `take` gives a storage `bytes` bytes: data and
 * release; its stream is there.  WEFT_ERR_NOT_FOUND without a message: from where it would come anyway.
 */
typedef struct weft_i_source {
    weft_device device;
    weft_status (*take)(struct weft_i_source *source, weft_storage *storage, size_t bytes);
} weft_i_source;

/* NULL: from where it comes.  What is no result (rooms of kernels, arenas) does not ask. */
extern _Thread_local weft_i_source *weft_i_source_now;

/* Threads that have a source.  To look up a variable of the thread costs each call more than this. */
extern _Atomic int weft_i_sources;

/* Gives the thread a source, or takes it away: NULL. */
void weft_i_source_set(weft_i_source *source);

/* From the thread's source, where it has one for that device. */
weft_storage *weft_i_storage_new_sourced(weft_device device, size_t bytes, size_t extra);

/* A storage of a result. */
static inline weft_storage *weft_i_storage_new_result(weft_device device, size_t bytes,
                                                      size_t extra)
{
    /* Relaxed: the source that matters is the thread's own. */
    return __builtin_expect(atomic_load_explicit(&weft_i_sources, memory_order_relaxed) != 0, 0)
               ? weft_i_storage_new_sourced(device, bytes, extra)
               : weft_i_storage_new_with(device, bytes, extra);
}

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

/* Lets the thread's current stream own the memory, if its device has streams. */
weft_status weft_i_storage_adopt(weft_storage *storage);
/* The memory goes: its stream is ordered behind whoever has read it. */
void weft_i_storage_leave(weft_storage *storage);

/* Orders the thread's current stream behind other streams that used the memory, not behind claims.
 * Nothing on the CPU. */
weft_status weft_i_storage_touch(weft_storage *storage, bool write);

/* The same for a stream of the storage's device; `order` is what there may be to do. */
weft_status weft_i_storage_order(weft_storage *storage, bool write, weft_stream *stream);
static inline weft_status weft_i_storage_touch_on(weft_storage *storage, bool write,
                                                  weft_stream *stream)
{
    /* Without the lock: nobody else may use memory that is written. */
    bool behind = stream == storage->stream && !(write && storage->reader);
    return behind || !storage->ordered ? WEFT_OK : weft_i_storage_order(storage, write, stream);
}

/* What the next two do if there is something to do. */
weft_status weft_i_storage_settle_claims(weft_storage *storage, bool write);
weft_status weft_i_storage_settle(weft_storage *storage, bool write);

/*
 * The first half of weft_i_storage_ready: only what is under way on the memory, not other streams.
 * For checks of operands that may go to another stream than the current one, which then has no
 * reason to wait.  Whoever gives them to a stream calls weft_i_storage_touch there.
 */
static inline weft_status weft_i_storage_unclaimed(weft_storage *storage, bool write)
{
    /* Pairs with the release of whoever took the last claim off, or put one on. */
    return atomic_load_explicit(&storage->claims, memory_order_acquire)
               ? weft_i_storage_settle_claims(storage, write)
               : WEFT_OK;
}

/*
 * To be asked before memory is read (or written).  On the CPU it waits for operations under way on
 * it, and costs two loads and a branch when there are none.  Elsewhere work is given to streams,
 * so it orders the thread's current stream behind them, and behind the other streams that used the
 * memory; nobody waits.
 */
static inline weft_status weft_i_storage_ready(weft_storage *storage, bool write)
{
    /* Pairs with the release of whoever took the last claim off, or put one on. */
    bool idle = atomic_load_explicit(&storage->claims, memory_order_acquire) == NULL;
    return __builtin_expect(idle && !storage->ordered, 1) ? WEFT_OK
                                                          : weft_i_storage_settle(storage, write);
}

/* WEFT_ERR_STATE, in the name of `what`, if `pinned`, the count of the storage or of a tensor of it,
 * is not 0 (weft_i_tensor_pin).  Asked before memory moves. */
weft_status weft_i_storage_check_pinned(const char *what, const weft_storage *storage,
                                        const atomic_int *pinned);

#endif
