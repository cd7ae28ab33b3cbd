/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues and their fronts; see queue.h.  A front's stream is marked at once where another one may follow
 * it: a mark costs a quarter of a microsecond, so a thread that has one stream sets none, and the first
 * operation on another stream then waits for all that the old one was given.  A thread with one stream
 * may post a call, which runs beside it: marks are then set until a few operations in a row have come by
 * the same stream.
 */
#include "queue.h"

#include "base/os/os.h"
#include "base/os/place.h"
#include "capture.h"
#include "stream.h"
#include "tensor/object/stream.h"

#include <stdatomic.h>

enum {
    BUCKETS = 16,
    SETTLED =
        8 /* so many operations by one stream, and the next ones are taken to come by it too */
};

struct weft_i_cuda_front {
    weft_i_cuda_queue *queue; /* held by fronts of captures, which may outlive its owner */
    uint64_t key, context;
    /* The queue's lock guards these; where `last` is not the caller's own stream, `moves` as well. */
    weft_i_cuda_stream *last; /* NULL: none, or it has gone; atomic, as its stream may go */
    weft_i_cuda_mark mark;
    bool marked;                            /* the mark stands behind the last operation */
    weft_i_cuda_front *next;                /* in its bucket */
    weft_i_cuda_front *beside, **reference; /* in the list of `last`; `moves` guards it */
    weft_i_cuda_front *noted;               /* of its capture; `moves` guards it until that ends */
    weft_i_cuda_front *entered;             /* by a replay that is being given to a stream */
};

struct weft_i_cuda_queue {
    atomic_int references; /* relaxed up, acq_rel down */
    pthread_mutex_t lock;  /* held while an operation is given to a stream */
    int follow; /* its next operations may come by another stream than the last one: so many */
    weft_i_cuda_front *buckets[BUCKETS];
};

/* Guards which front is at which stream; taken last. */
static pthread_mutex_t moves = PTHREAD_MUTEX_INITIALIZER;

weft_status weft_i_cuda_queue_new(weft_i_cuda_queue **out)
{
    *out = WEFT_OS->alloc(sizeof **out);
    if (!*out)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an order among streams");
    atomic_init(&(*out)->references, 1);
    pthread_mutex_init(&(*out)->lock, NULL);
    return WEFT_OK;
}

weft_i_cuda_queue *weft_i_cuda_queue_hold(weft_i_cuda_queue *queue)
{
    atomic_fetch_add_explicit(&queue->references, 1, memory_order_relaxed);
    return queue;
}

/* ---- which front is at which stream: under `moves` ---- */

static void leave_list(weft_i_cuda_front *front)
{
    if (!front->last)
        return;
    *front->reference = front->beside;
    if (front->beside)
        front->beside->reference = front->reference;
    __atomic_store_n(&front->last, NULL, __ATOMIC_RELAXED); /* pairs with the load in enter */
}

static void join_list(weft_i_cuda_front *front, weft_i_cuda_stream *stream)
{
    __atomic_store_n(&front->last, stream, __ATOMIC_RELAXED); /* the same */
    front->beside = stream->fronts;
    front->reference = &stream->fronts;
    if (front->beside)
        front->beside->reference = &front->beside;
    stream->fronts = front;
}

/* Marks the tail of the front's stream, which reaches behind the operation. */
static weft_status mark_tail(weft_i_cuda_front *front)
{
    if (!front->last || front->marked)
        return WEFT_OK;
    weft_status status = weft_i_cuda_mark_set(&front->mark, front->last);
    front->marked = status >= 0;
    return status;
}

weft_status weft_i_cuda_queue_settle(weft_i_cuda_stream *stream)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&moves);
    for (weft_i_cuda_front *front = stream->fronts; front && status >= 0; front = front->beside)
        status = mark_tail(front);
    pthread_mutex_unlock(&moves);
    return status;
}

void weft_i_cuda_queue_leave_stream(weft_i_cuda_stream *stream)
{
    pthread_mutex_lock(&moves);
    while (stream->fronts) {
        weft_i_cuda_front *front = stream->fronts;
        mark_tail(front); /* if it fails, the device has failed */
        leave_list(front);
    }
    pthread_mutex_unlock(&moves);
}

/* ---- the fronts of a queue: under its lock ---- */

static weft_i_cuda_front **bucket_of(weft_i_cuda_queue *queue, uint64_t key)
{
    return &queue->buckets[(key ^ key >> 5) % BUCKETS];
}

static void unlink_front(weft_i_cuda_front *front)
{
    weft_i_cuda_front **at = bucket_of(front->queue, front->key);
    while (*at != front)
        at = &(*at)->next;
    *at = front->next;
    pthread_mutex_lock(&moves);
    leave_list(front);
    pthread_mutex_unlock(&moves);
    weft_i_cuda_mark_release(&front->mark);
    front->marked = false;
}

void weft_i_cuda_queue_drop(weft_i_cuda_queue *queue)
{
    if (!queue || atomic_fetch_sub_explicit(&queue->references, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < BUCKETS; i++)
        while (queue->buckets[i]) {
            weft_i_cuda_front *front = queue->buckets[i];
            unlink_front(front);
            WEFT_OS->free(front);
        }
    pthread_mutex_destroy(&queue->lock);
    WEFT_OS->free(queue);
}

/* Odd numbers are our own captures, other even ones those of the program; 0: no capture. */
static weft_status context_of(const weft_i_cuda_stream *stream, uint64_t *out)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    int status = WEFT_I_CU_STREAM_CAPTURE_STATUS_NONE;
    weft_i_cu_capture_id id = 0;
    *out = stream->capture ? weft_i_cuda_capture_number(stream->capture) << 1 | 1 : 0;
    if (stream->capture || stream->ours || !cu->cuStreamGetCaptureInfo)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_use(stream->device));
    WEFT_CUDA_TRY(cu->cuStreamGetCaptureInfo(stream->raw, &status, &id),
                  "whether a stream of cuda:%d is captured", stream->device->ordinal);
    *out = status == WEFT_I_CU_STREAM_CAPTURE_STATUS_NONE ? 0 : id << 1;
    return WEFT_OK;
}

/* Does it belong to a capture of the program's own that has ended? */
static bool has_ended(const weft_i_cuda_front *front)
{
    uint64_t now = 0;
    if (!front->context || front->context & 1)
        return false;
    pthread_mutex_lock(&moves);
    bool goes_on = front->last && context_of(front->last, &now) >= 0 && now == front->context;
    pthread_mutex_unlock(&moves);
    return !goes_on;
}

/* Nobody says when such a capture ends: its fronts go when another one is met. */
static void drop_ended(weft_i_cuda_queue *queue)
{
    for (int i = 0; i < BUCKETS; i++)
        for (weft_i_cuda_front *front = queue->buckets[i], *next; front; front = next) {
            next = front->next;
            if (has_ended(front)) {
                unlink_front(front);
                WEFT_OS->free(front);
            }
        }
}

static weft_status find_or_make(weft_i_cuda_queue *queue, const weft_i_cuda_stream *stream,
                                uint64_t key, uint64_t context, weft_i_cuda_front **out)
{
    weft_i_cuda_front **bucket = bucket_of(queue, key), *found = *bucket;
    while (found && !(found->key == key && found->context == context))
        found = found->next;
    *out = found;
    if (found)
        return WEFT_OK;
    if (context && !(context & 1))
        drop_ended(queue);
    if (!(found = WEFT_OS->alloc(sizeof *found)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an order among streams");
    found->queue = queue;
    found->key = key;
    found->context = context;
    found->next = *bucket;
    *out = *bucket = found;
    if (context & 1) {
        weft_i_cuda_front **noted = weft_i_cuda_capture_noted(stream->capture);
        weft_i_cuda_queue_hold(queue);
        pthread_mutex_lock(&moves);
        found->noted = *noted;
        *noted = found;
        pthread_mutex_unlock(&moves);
    }
    return WEFT_OK;
}

/* ---- entering and leaving ---- */

/* The front's last operation went elsewhere. */
WEFT_I_COLD static weft_status take_over(weft_i_cuda_front *front, weft_i_cuda_stream *stream)
{
    pthread_mutex_lock(&moves);
    bool waits = front->last || front->marked;
    weft_status status = mark_tail(front);
    if (status >= 0) {
        leave_list(front);
        join_list(front, stream);
        front->marked = false;
    }
    pthread_mutex_unlock(&moves);
    if (status < 0 || !waits)
        return status;
    front->queue->follow = SETTLED;
    /* A kernel that follows a mark is not launched early: nothing says what it would be early for.
     * Relaxed: two threads that share a stream know who is first. */
    atomic_store_explicit(&stream->behind, true, memory_order_relaxed);
    return weft_i_cuda_after(stream, &front->mark);
}

/* The queue is locked. */
static weft_status enter(weft_i_cuda_queue *queue, weft_i_cuda_stream *stream, uint64_t key,
                         uint64_t context, weft_i_cuda_front **out)
{
    WEFT_TRY(find_or_make(queue, stream, key, context, out));
    /* Relaxed: a stream that this thread uses does not go, and no other one concerns it here.  Pairs with
     * the stores in the lists. */
    bool follows = __atomic_load_n(&(*out)->last, __ATOMIC_RELAXED) == stream;
    return follows ? WEFT_OK : take_over(*out, stream);
}

static weft_status leave(weft_i_cuda_front *front, weft_i_cuda_stream *stream)
{
    front->marked = false;
    if (!front->context && !front->queue->follow &&
        !weft_i_stream_has_others(WEFT_CUDA(stream->device->ordinal)))
        return WEFT_OK;
    front->queue->follow -= front->queue->follow > 0;
    weft_status status = weft_i_cuda_mark_set(&front->mark, stream);
    front->marked = status >= 0;
    return status;
}

weft_status weft_i_cuda_queue_enter(weft_i_cuda_queue *queue, weft_i_cuda_stream *stream,
                                    uint64_t key, weft_i_cuda_front **out)
{
    uint64_t context;
    WEFT_TRY(context_of(stream, &context));
    pthread_mutex_lock(&queue->lock);
    weft_status status = enter(queue, stream, key, context, out);
    if (status < 0)
        pthread_mutex_unlock(&queue->lock);
    return status;
}

weft_status weft_i_cuda_queue_leave(weft_i_cuda_front *front, weft_i_cuda_stream *stream)
{
    weft_i_cuda_queue *queue = front->queue;
    weft_status status = leave(front, stream);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* ---- captures and replays ---- */

/* By their queues' addresses: whoever locks several does so in one order. */
static void sort(weft_i_cuda_front **list)
{
    weft_i_cuda_front *sorted = NULL;
    while (*list) {
        weft_i_cuda_front *front = *list, **at = &sorted;
        *list = front->noted;
        while (*at && (uintptr_t)(*at)->queue < (uintptr_t)front->queue)
            at = &(*at)->noted;
        front->noted = *at;
        *at = front;
    }
    *list = sorted;
}

void weft_i_cuda_queue_end_capture(weft_i_cuda_front **noted)
{
    for (weft_i_cuda_front *front = *noted; front; front = front->noted) {
        pthread_mutex_lock(&front->queue->lock);
        unlink_front(front);
        pthread_mutex_unlock(&front->queue->lock);
    }
    sort(noted);
}

void weft_i_cuda_queue_drop_noted(weft_i_cuda_front *noted)
{
    while (noted) {
        weft_i_cuda_front *next = noted->noted;
        weft_i_cuda_queue_drop(noted->queue);
        WEFT_OS->free(noted);
        noted = next;
    }
}

static bool ends_queue(const weft_i_cuda_front *front)
{
    return !front->noted || front->noted->queue != front->queue;
}

static void unlock_until(weft_i_cuda_front *noted, const weft_i_cuda_front *end)
{
    for (const weft_i_cuda_queue *last = NULL; noted != end; noted = noted->noted) {
        if (noted->queue != last)
            pthread_mutex_unlock(&noted->queue->lock);
        last = noted->queue;
    }
}

weft_status weft_i_cuda_queue_enter_noted(weft_i_cuda_front *noted, weft_i_cuda_stream *stream)
{
    uint64_t context = 0;
    weft_status status = noted ? context_of(stream, &context) : WEFT_OK;
    const weft_i_cuda_queue *locked = NULL;
    weft_i_cuda_front *at = noted;
    for (; at && status >= 0; at = at->noted) {
        if (at->queue != locked)
            pthread_mutex_lock(&at->queue->lock);
        locked = at->queue;
        status = enter(at->queue, stream, at->key, context, &at->entered);
    }
    if (status < 0)
        unlock_until(noted, at);
    return status;
}

weft_status weft_i_cuda_queue_leave_noted(weft_i_cuda_front *noted, weft_i_cuda_stream *stream)
{
    weft_status first = WEFT_OK;
    for (weft_i_cuda_front *at = noted, *next; at; at = next) {
        next = at->noted;
        weft_status status = leave(at->entered, stream);
        first = first < 0 ? first : status;
        if (ends_queue(at))
            pthread_mutex_unlock(&at->queue->lock);
    }
    return first;
}
