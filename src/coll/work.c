/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posted work.  A lane has one queue; its works run one after the other, in the order they were
 * posted, by whoever comes first: a thread that waits for one of them, or the queue's helper
 * thread.  Small work is left to the waiter, because waking a thread costs more than it.  Sends and
 * receives are letters and move whenever anybody pushes (pair.c).
 */
#include "coll/work.h"

#include "base/os.h"
#include "base/status.h"

#include <stdio.h>

enum {
    WAKE_FROM =
        32 << 10, /* bytes: smaller work is left to its waiter, or to the helper's next look */
    NAP_NS = 1000 * 1000, /* between looks while there was work lately */
    NAPS = 100,           /* without work: then the helper dozes until it is woken */
    DOZE_NS = 1000 * 1000 * 1000
};

struct weft_i_queue {
    pthread_mutex_t lock; /* guards the list and `running` */
    weft_work *first, *last;
    bool running; /* somebody runs `first` */
    weft_i_lane *lane;
    int rank;
    pthread_t helper;
    _Atomic uint32_t alarm; /* counts wake-ups of the helper; release, pairs with its acquire */
    atomic_bool stop;       /* release, pairs with the helper's acquire */
    atomic_bool dozing;     /* relaxed: whoever misses it waits for the end of a doze at worst */
    /* Works that are done but still held by whoever ran them.  Release, pairs with the acquire of
     * the waiter, who goes on when there is none: then its own reference is the last. */
    atomic_int leaving;
};

static _Thread_local weft_i_queue *helping; /* the queue whose helper this thread is */

/* ---- running ---- */

static void finish(weft_work *work, weft_status status)
{
    if (status < 0)
        snprintf(work->message, sizeof work->message, "%s", weft_last_error());
    /* Pairs with the acquire in `done`: the waiter sees the outputs and the message. */
    atomic_store_explicit(&work->status, status, memory_order_release);
    WEFT_OS->futex_wake(&work->bell, INT32_MAX);
    weft_i_wait_ring(&work->bell);
}

static bool done(void *work)
{
    return atomic_load_explicit(&((weft_work *)work)->status, memory_order_acquire) !=
           WEFT_IN_PROGRESS;
}

/* Runs the oldest work, unless somebody does already; false if there was nothing to do. */
static bool run_first(weft_i_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    weft_work *work = queue->running ? NULL : queue->first;
    queue->running |= work != NULL;
    pthread_mutex_unlock(&queue->lock);
    if (!work)
        return false;
    weft_i_coll coll = work->coll; /* it may change on its way; the work drops what it holds */
    weft_status status = weft_i_coll_run(&coll);
    pthread_mutex_lock(&queue->lock);
    queue->first = work->next;
    if (!queue->first)
        queue->last = NULL;
    queue->running = false;
    pthread_mutex_unlock(&queue->lock);
    bool helper = helping == queue;
    atomic_fetch_add_explicit(&queue->leaving, 1, memory_order_relaxed); /* seen with the status */
    finish(work, status);
    weft_i_object_drop(work); /* the queue's reference */
    if (!helper || helping)   /* else the queue went with it */
        atomic_fetch_sub_explicit(&queue->leaving, 1, memory_order_release);
    return true;
}

static void *help(void *arg)
{
    weft_i_queue *queue = arg;
    helping = queue;
    weft_i_status_set_rank(queue->rank);
    for (int idle = 0; !atomic_load_explicit(&queue->stop, memory_order_acquire); idle++) {
        uint32_t seen = atomic_load_explicit(&queue->alarm, memory_order_acquire);
        for (; run_first(queue); idle = 0)
            if (!helping)
                return NULL; /* the last work took the group, and the queue, with it */
        weft_i_pair_push(queue->lane);
        atomic_store_explicit(&queue->dozing, idle > NAPS, memory_order_relaxed);
        WEFT_OS->futex_wait(&queue->alarm, seen, idle > NAPS ? DOZE_NS : NAP_NS);
    }
    return NULL;
}

/* ---- the queue ---- */

static void wake_helper(weft_i_queue *queue)
{
    atomic_fetch_add_explicit(&queue->alarm, 1, memory_order_release);
    WEFT_OS->futex_wake(&queue->alarm, 1);
}

static weft_status queue_of(weft_i_lane *lane, int rank, weft_i_queue **out)
{
    if (!lane->queue) {
        weft_i_queue *queue = WEFT_OS->alloc(sizeof *queue);
        if (!queue)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a queue of work");
        pthread_mutex_init(&queue->lock, NULL);
        queue->lane = lane;
        queue->rank = rank;
        int error = WEFT_OS->thread_create(&queue->helper, help, queue);
        if (error) {
            pthread_mutex_destroy(&queue->lock);
            WEFT_OS->free(queue);
            return weft_i_fail_errno(error, "cannot start the helper thread of a group");
        }
        lane->queue = queue;
    }
    *out = lane->queue;
    return WEFT_OK;
}

void weft_i_queue_free(weft_i_queue *queue)
{
    if (!queue)
        return;
    if (helping == queue) {
        helping = NULL;
        pthread_detach(pthread_self());
    } else {
        atomic_store_explicit(&queue->stop, true, memory_order_release);
        wake_helper(queue);
        pthread_join(queue->helper, NULL);
    }
    pthread_mutex_destroy(&queue->lock);
    WEFT_OS->free(queue);
}

/* ---- work ---- */

static void destroy(weft_i_object *object)
{
    weft_work *work = (weft_work *)object;
    if (work->letter.coll)
        weft_i_pair_forget(&work->letter);
    weft_i_object_drop(work->coll.in_tensor);
    weft_i_object_drop(work->coll.out_tensor);
    weft_i_object_drop(work->coll.list);
    WEFT_OS->free(work->splits);
    weft_i_object_drop(work->coll.group);
    weft_i_object_free(object);
}

static bool copy_splits(weft_work *work)
{
    weft_i_coll *coll = &work->coll;
    if (!coll->in_splits)
        return true;
    size_t size = (size_t)coll->group->size;
    work->splits = WEFT_OS->alloc(2 * size * sizeof *work->splits);
    if (!work->splits)
        return false;
    memcpy(work->splits, coll->in_splits, size * sizeof *work->splits);
    memcpy(work->splits + size, coll->out_splits, size * sizeof *work->splits);
    coll->in_splits = work->splits;
    coll->out_splits = work->splits + size;
    return true;
}

static weft_work *new_work(const weft_i_coll *coll)
{
    weft_work *work = weft_i_object_new(WEFT_I_WORK, sizeof *work, destroy);
    if (!work)
        return NULL;
    work->coll = *coll;
    work->coll.call.group = coll->group;
    weft_i_object_hold(coll->group);
    weft_i_object_hold(coll->in_tensor);
    weft_i_object_hold(coll->out_tensor);
    weft_i_object_hold(coll->list);
    atomic_init(&work->status, WEFT_IN_PROGRESS);
    if (copy_splits(work))
        return work;
    weft_release(work);
    return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to post work");
}

static bool is_letter(const weft_i_coll *coll)
{
    return coll->kind == WEFT_I_SEND || coll->kind == WEFT_I_RECV;
}

static weft_status enqueue(weft_work *work)
{
    weft_i_queue *queue = NULL;
    WEFT_TRY(queue_of(work->coll.lane, work->coll.group->world->rank, &queue));
    weft_i_object_hold(work);
    pthread_mutex_lock(&queue->lock);
    if (queue->last)
        queue->last->next = work;
    else
        queue->first = work;
    queue->last = work;
    pthread_mutex_unlock(&queue->lock);
    if (work->coll.in_bytes + work->coll.out_bytes >= WAKE_FROM ||
        atomic_load_explicit(&queue->dozing, memory_order_relaxed))
        wake_helper(queue);
    return WEFT_OK;
}

weft_work *weft_i_work_post(const weft_i_coll *coll)
{
    weft_work *work = coll ? new_work(coll) : NULL;
    if (!work)
        return NULL;
    weft_status status = weft_i_lane_of(work->coll.group, &work->coll.lane);
    if (status == WEFT_OK && is_letter(&work->coll)) {
        work->letter.coll = &work->coll;
        weft_i_pair_post(&work->letter);
    } else if (status == WEFT_OK) {
        status = enqueue(work);
    }
    if (status == WEFT_OK)
        return work;
    weft_release(work);
    return NULL;
}

weft_status weft_i_work_now(weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->group->lane;
    if (is_letter(coll) || !lane || !lane->queue)
        return weft_i_coll_run(coll);
    pthread_mutex_lock(&lane->queue->lock);
    bool idle = !lane->queue->first;
    pthread_mutex_unlock(&lane->queue->lock);
    if (idle)
        return weft_i_coll_run(coll);
    weft_work *work = weft_i_work_post(coll);
    weft_status status = work ? weft_work_wait(work, WEFT_FOREVER) : weft_last_status();
    weft_release(work);
    return status;
}

/* ---- waiting ---- */

static weft_status outcome(weft_work *work)
{
    weft_status status = (weft_status)atomic_load_explicit(&work->status, memory_order_acquire);
    return status < 0 ? weft_i_fail(status, "%s", work->message) : status;
}

static weft_status wait_letter(weft_work *work, int64_t timeout_ms)
{
    weft_i_letter *letter = &work->letter;
    if (done(work))
        return outcome(work);
    weft_status status = weft_i_pair_wait(letter, weft_i_group_limit(work->coll.group, timeout_ms));
    if (status == WEFT_ERR_TIMEOUT)
        return status;
    weft_i_pair_forget(letter);
    finish(work, status < 0 ? status : letter->status);
    return outcome(work);
}

weft_status weft_work_wait(weft_work *work, int64_t timeout_ms)
{
    if (!work)
        return weft_last_status() < 0 ? weft_last_status()
                                      : weft_i_fail(WEFT_ERR_INVALID_ARG, "the work is NULL");
    if (work->letter.coll)
        return wait_letter(work, timeout_ms);
    weft_i_queue *queue = work->coll.lane->queue;
    while (!done(work) && run_first(queue))
        ;
    if (!done(work)) { /* somebody else runs it */
        weft_i_wait wait = {
            .ready = done,
            .arg = work,
            .bell = &work->bell,
            .deadline = weft_i_os_deadline(weft_i_group_limit(work->coll.group, timeout_ms)),
            .mode = WEFT_I_WAIT_YIELD};
        weft_status status = weft_i_wait_for(&wait);
        if (status < 0)
            return weft_i_fail(status, "%s in group \"%s\" is still under way", work->coll.call.op,
                               work->coll.group->name);
    }
    while (atomic_load_explicit(&queue->leaving, memory_order_acquire))
        WEFT_OS->yield(); /* a moment: nothing of the operation is held when we return */
    return outcome(work);
}

weft_status weft_work_test(weft_work *work)
{
    if (!work)
        return weft_last_status() < 0 ? weft_last_status()
                                      : weft_i_fail(WEFT_ERR_INVALID_ARG, "the work is NULL");
    if (work->letter.coll && !done(work)) {
        weft_i_pair_push(work->coll.lane);
        if (work->letter.status != WEFT_IN_PROGRESS) {
            weft_i_pair_forget(&work->letter);
            finish(work, work->letter.status);
        }
    } else if (!done(work)) {
        wake_helper(work->coll.lane->queue);
    }
    return outcome(work);
}
