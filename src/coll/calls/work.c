/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posted work.  A lane has one queue; its works run one after the other, in the order they were
 * posted, by the thread that comes first: one that waits for one of them, or the queue's helper
 * thread.  Small work is left to the waiter, because waking a thread costs more than it.  Sends and
 * receives are requests and move whenever anybody pushes (p2p.c); the helper does when nobody else
 * does.
 */
#include "coll/calls/work.h"
#include "base/os/assert.h"
#include "coll/calls/run.h"
#include "coll/device/beside.h"
#include "coll/device/carrier.h"
#include "coll/lane/list.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "base/team/team.h"

#include <stdio.h>

enum {
    NAP_NS = 1000 * 1000, /* between looks while there was work lately */
    NAPS = 100,           /* without work: then the helper dozes until it is woken */
    DOZE_NS = 1000 * 1000 * 1000,
    VERDICT_MS = 40, /* longer than an operation's limit, so that its own verdict comes first */
    MIND_NS = 20 * 1000 * 1000 /* between looks at whether requests can still arrive */
};

struct weft_i_queue {
    pthread_mutex_t lock; /* guards the next five */
    weft_work *first, *last;
    bool running; /* somebody runs `first` */
    bool dozing;  /* the helper must be woken for anything that nobody waits for */
    int waiters;  /* threads that sleep until somebody else has run their work */
    weft_i_lane *lane;
    int rank;
    bool crowded; /* the helper shares a core with the rank */
    bool alone;   /* the rank is a thread and has a team, which is not the helper's */
    pthread_t helper;
    _Atomic uint32_t alarm; /* counts wake-ups of the helper; release, pairs with its acquire */
    atomic_bool stop;       /* release, pairs with the helper's acquire */
};

static _Thread_local weft_i_queue *helping; /* the queue whose helper this thread is */

static void wake_helper(weft_i_queue *queue)
{
    atomic_fetch_add_explicit(&queue->alarm, 1, memory_order_release);
    WEFT_OS->futex_wake(&queue->alarm, 1);
    /* It may sleep for requests.  Pairs with the fence of a sleeper in base/share/wait.c. */
    atomic_thread_fence(memory_order_seq_cst);
    weft_i_wait_ring(weft_i_p2p_bell(queue->lane, queue->lane->me));
}

/* ---- running ---- */

static bool done(void *work)
{
    return atomic_load_explicit(&((weft_work *)work)->status, memory_order_acquire) !=
           WEFT_IN_PROGRESS;
}

/* Until somebody takes the error, or drops the work, the rank owes it to weft_finish. */
static void owe(weft_work *work, weft_status status)
{
    atomic_store_explicit(&work->untold, true, memory_order_release); /* pairs with pay's */
    weft_i_losses_owe(&work->coll.group->world->losses, status, weft_last_error());
}

static void pay(weft_work *work)
{
    /* Relaxed: owe's store came before the end that the caller has seen.  An exchange is dear. */
    if (atomic_load_explicit(&work->untold, memory_order_relaxed) &&
        atomic_exchange_explicit(&work->untold, false, memory_order_acq_rel)) /* pairs with owe's */
        weft_i_losses_tell(&work->coll.group->world->losses);
}

/* While nobody waits for it, work that the helper runs leaves the core to others, where the rank
 * has no second one. */
static void stand_aside(weft_i_queue *queue, bool aside)
{
    atomic_store_explicit(&queue->lane->aside, aside && queue->crowded, memory_order_relaxed);
}

/* What ran needs its operands no more; with a completion, they may be what holds the work. */
static void let_go(weft_work *work)
{
    /* Release, pairs with the acquire in functional/pending.c: whoever counts a reference less sees
     * this. */
    atomic_store_explicit(&work->holds, 0, memory_order_release);
    weft_i_object_drop(work->coll.in_tensor);
    weft_i_object_drop(work->coll.out_tensor);
    weft_i_object_drop(work->coll.list);
    weft_i_object_drop(work->completion);
    work->coll.in_tensor = work->coll.out_tensor = NULL;
    work->coll.list = NULL;
    work->completion = NULL;
}

/* The memory of operands stays where it is until the work is over.  Claimed ones are waited for. */
static void pin(const weft_work *work, void (*each)(weft_tensor *x))
{
    const weft_i_list *list = work->coll.list;
    if (work->claimed)
        return;
    each(work->coll.in_tensor);
    if (work->coll.out_tensor != work->coll.in_tensor) /* a locked instruction is dear */
        each(work->coll.out_tensor);
    for (size_t i = 0; list && i < list->count; i++) {
        each(list->items[i].in_tensor);
        each(list->items[i].out_tensor);
    }
}

/* Written under the queue's lock alone: needs no locked instruction. */
static void change_posted(weft_group *group, int by, memory_order order)
{
    uint32_t posted = atomic_load_explicit(&group->calls.posted, memory_order_relaxed);
    WEFT_ASSERT(by > 0 || posted > 0);
    atomic_store_explicit(&group->calls.posted, posted + (uint32_t)by, order);
}

/*
 * Takes the work that was run out of the list and tells how it ended.  The queue's reference goes
 * before that is seen, so that who waited for it may take down the group at once; false if it was
 * the last one and is still held.  The work's destruction waits for the lock.
 */
static bool finish(weft_i_queue *queue, weft_work *work, weft_status status)
{
    if (status < 0) {
        work->message = weft_i_error_copy();
        owe(work, status);
    }
    pin(work, weft_i_tensor_unpin);
    if (work->completion)
        let_go(work);
    pthread_mutex_lock(&queue->lock);
    WEFT_ASSERT(queue->running && queue->first == work);
    queue->first = work->next;
    if (!queue->first)
        queue->last = NULL;
    queue->running = false;
    stand_aside(queue, false);
    weft_group *group = work->coll.group;
    weft_i_world *world = group->world;
    weft_work_done on_done = work->bundle.on_done; /* the work may go before it is told */
    void *argument = work->bundle.argument;
    bool dropped = weft_i_object_drop_shared(work);
    /* Pairs with the acquire in has_posted of fabric/group/quarrel.c, and in weft_i_work_now. */
    change_posted(group, -1, memory_order_release);
    /* Pairs with the acquire in `done`: the waiter sees the outputs and the message. */
    atomic_store_explicit(&work->status, status, memory_order_release);
    if (queue->waiters) { /* whoever is not counted yet finds it done, once it has the lock */
        atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence of a sleeper */
        weft_i_wait_ring(&work->bell);
    }
    /* Pairs with the acquire of weft_finish.  Still under the lock, for which the world's end
     * waits. */
    atomic_fetch_sub_explicit(&world->under_way, 1, memory_order_release);
    if (queue->first && queue->waiters && helping != queue)
        wake_helper(queue);
    pthread_mutex_unlock(&queue->lock);
    if (on_done)
        on_done(argument, status);
    return dropped;
}

/* Runs the oldest work, unless somebody does already; false if there was nothing to do. */
static bool run_first(weft_i_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    weft_work *work = queue->running ? NULL : queue->first;
    queue->running |= work != NULL;
    if (work)
        stand_aside(queue, helping == queue && !queue->waiters);
    pthread_mutex_unlock(&queue->lock);
    if (!work)
        return false;
    work->runner = pthread_self();
    weft_i_coll coll; /* it may change on its way; the work drops what it holds */
    weft_i_coll_copy(&coll, &work->coll);
    uint64_t next = (uint64_t)queue->lane->epoch + 1;
    weft_status status = weft_i_coll_run(&coll);
    work->sequence = status < 0 ? next : queue->lane->epoch;
    work->number = coll.number;
    if (work->completion)
        status = work->completion->follow(work->completion, status);
    if (!finish(queue, work, status))
        weft_i_object_drop(work);
    return true;
}

/* ---- the helper ---- */

typedef struct task {
    weft_i_queue *queue;
    uint32_t seen; /* of the alarm */
} task;

static bool called_or_delivered(void *arg)
{
    const task *on = arg;
    return atomic_load_explicit(&on->queue->alarm, memory_order_acquire) != on->seen ||
           !weft_i_p2p_push(on->queue->lane);
}

/* Moves requests for a while; false if there are none that nobody else moves. */
static bool mind_requests(weft_i_queue *queue, uint32_t seen)
{
    weft_i_lane *lane = queue->lane;
    bool alone = weft_i_p2p_is_left_alone(lane);
    if (alone) {
        task on = {queue, seen};
        weft_i_wait wait = {.ready = called_or_delivered,
                            .arg = &on,
                            .bell = weft_i_p2p_bell(lane, lane->me),
                            .wheel = weft_i_p2p_wheel(lane),
                            .deadline = WEFT_OS->clock_ns() + MIND_NS,
                            .mode = WEFT_I_WAIT_SLEEP};
        weft_i_wait_for(&wait);
        weft_i_p2p_sort_out(lane);
    }
    weft_i_p2p_sweep(lane); /* perhaps the queue is gone now */
    return alone;
}

static bool may_doze(weft_i_queue *queue, int idle)
{
    pthread_mutex_lock(&queue->lock);
    bool doze = queue->dozing = idle > NAPS && !queue->first;
    pthread_mutex_unlock(&queue->lock);
    return doze;
}

static void *help(void *arg)
{
    weft_i_queue *queue = arg;
    helping = queue;
    weft_i_status_serve(queue->rank);
    if (queue->alone)
        weft_i_team_alone();
    for (int idle = 0; !atomic_load_explicit(&queue->stop, memory_order_acquire); idle++) {
        uint32_t seen = atomic_load_explicit(&queue->alarm, memory_order_acquire);
        for (; run_first(queue); idle = 0)
            if (!helping)
                return NULL; /* the last work took the group, and the queue, with it */
        bool busy = mind_requests(queue, seen);
        if (!helping)
            return NULL;
        if (!busy)
            WEFT_OS->futex_wait(&queue->alarm, seen, may_doze(queue, idle) ? DOZE_NS : NAP_NS);
        if (busy || atomic_load_explicit(&queue->alarm, memory_order_acquire) != seen)
            idle = 0;
    }
    return NULL;
}

/* ---- the queue ---- */

static bool is_crowded(const weft_i_world *world)
{
    int mine = weft_i_os_cores(), all = world->cores ? world->cores : mine;
    return mine < 2 || all < 2 * world->local_size;
}

static weft_status queue_of(weft_i_lane *lane, const weft_i_world *world, weft_i_queue **out)
{
    if (!lane->queue) {
        weft_i_queue *queue = WEFT_OS->alloc(sizeof *queue);
        if (!queue)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a queue of work");
        pthread_mutex_init(&queue->lock, NULL);
        queue->lane = lane;
        queue->rank = world->rank;
        queue->crowded = is_crowded(world);
        queue->alone = world->sharing == WEFT_I_BETWEEN_THREADS;
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

bool weft_i_queue_keeps_rank(const weft_i_lane *lane)
{
    if (!helping || helping->lane != lane)
        return true;
    pthread_mutex_lock(&helping->lock);
    bool awaited = helping->waiters > 0;
    pthread_mutex_unlock(&helping->lock);
    return awaited;
}

void weft_i_queue_free(weft_i_queue *queue)
{
    if (!queue)
        return;
    if (helping == queue) {
        helping = NULL;
        WEFT_OS->thread_detach();
    } else {
        atomic_store_explicit(&queue->stop, true, memory_order_release);
        wake_helper(queue);
        WEFT_OS->thread_join(queue->helper);
    }
    pthread_mutex_destroy(&queue->lock);
    WEFT_OS->free(queue);
}

/* ---- work ---- */

static void destroy(weft_i_object *object)
{
    weft_work *work = (weft_work *)object;
    if (work->lock && !pthread_equal(work->runner, pthread_self())) {
        /* Whoever told its end may not have left it yet. */
        pthread_mutex_lock(work->lock);
        pthread_mutex_unlock(work->lock);
    } else if (work->bundle.count && work->coll.lane) {
        weft_i_p2p_lock(work->coll.lane);
        weft_i_p2p_unlock(work->coll.lane);
    }
    let_go(work);
    if (work->coll.group)
        pay(work);
    for (int i = 0; i < work->bundle.count; i++) {
        weft_i_object_drop(work->requests[i].tensor);
        WEFT_OS->free(work->requests[i].message);
    }
    if (work->event)
        work->stream->table->event_free(work->event);
    weft_i_object_drop(work->stream);
    WEFT_OS->free(work->splits);
    WEFT_OS->free(work->message);
    weft_i_object_drop(work->coll.group);
    weft_i_object_free(object);
}

static bool copy_splits(weft_work *work)
{
    weft_i_coll *coll = &work->coll;
    if (!coll->ask.in_splits)
        return true;
    size_t size = (size_t)coll->group->size;
    work->splits = WEFT_OS->alloc(2 * size * sizeof *work->splits);
    if (!work->splits)
        return false;
    memcpy(work->splits, coll->ask.in_splits, size * sizeof *work->splits);
    memcpy(work->splits + size, coll->ask.out_splits, size * sizeof *work->splits);
    coll->ask.in_splits = work->splits;
    coll->ask.out_splits = work->splits + size;
    return true;
}

static weft_work *new_work(const weft_i_coll *coll, weft_i_completion *completion)
{
    weft_work *work = weft_i_object_new(WEFT_I_WORK, sizeof *work, destroy);
    if (!work)
        return NULL;
    weft_i_coll_copy(&work->coll, coll);
    work->coll.label.group = coll->group;
    weft_i_object_hold(coll->group);
    weft_i_object_hold(coll->in_tensor);
    weft_i_object_hold(coll->out_tensor);
    weft_i_object_hold(coll->list);
    work->completion = weft_i_object_hold(completion);
    bool twice = coll->out_tensor && coll->out_tensor == coll->in_tensor;
    atomic_init(&work->holds, coll->out_tensor || coll->list ? 1 + twice : 0);
    work->claimed = completion != NULL;
    atomic_init(&work->status, WEFT_IN_PROGRESS);
    if (copy_splits(work))
        return work;
    weft_release(work);
    return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to post work");
}

/* Puts the work at the end of the list; true if the helper should be woken for it. */
static bool append(weft_i_queue *queue, weft_work *work)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->last)
        queue->last->next = work;
    else
        queue->first = work;
    queue->last = work;
    change_posted(work->coll.group, 1, memory_order_relaxed); /* read by us alone */
    bool dozing = queue->dozing;
    pthread_mutex_unlock(&queue->lock);
    return dozing || work->coll.ask.in_bytes + work->coll.ask.out_bytes >=
                         weft_i_tune_same(WEFT_I_TUNE_WAKE, WEFT_I_BARRIER);
}

static weft_status hand_over(weft_work *work)
{
    weft_i_queue *queue = NULL;
    weft_i_coll *coll = &work->coll;
    WEFT_TRY(weft_i_lane_of(coll->group, coll->ask.op, true, &coll->lane));
    WEFT_TRY(queue_of(coll->lane, coll->group->world, &queue));
    WEFT_ASSERT(!work->lock && !work->next);
    if (weft_i_record_wants_details(weft_i_group_record(coll->group)))
        coll->posted = weft_i_os_ticks();
    weft_i_object_hold(work);
    work->lock = &queue->lock;
    pin(work, weft_i_tensor_pin);
    /* Relaxed: weft_finish is called by the thread that posts, or after it. */
    atomic_fetch_add_explicit(&coll->group->world->under_way, 1, memory_order_relaxed);
    if (append(queue, work))
        wake_helper(queue);
    return WEFT_OK;
}

/* Notes where on a stream the end of the work is.  What is being captured has not been begun. */
static weft_status mark_end(weft_work *work)
{
    weft_device device = work->coll.ask.device;
    weft_stream *stream = weft_i_stream_current(device);
    if (!stream)
        return weft_last_status();
    if (!stream->table->event_record)
        return WEFT_OK;
    work->stream = weft_i_object_hold(stream);
    return weft_i_stream_is_captured(stream)
               ? WEFT_OK
               : stream->table->event_record(&work->event, stream->own);
}

/* On a stream beside the thread's current one; over at its event. */
static weft_status run_beside(weft_work *work)
{
    weft_stream *back;
    WEFT_TRY(weft_i_beside_begin(&work->coll, &back));
    weft_status status = weft_i_coll_run(&work->coll);
    if (status >= 0)
        status = mark_end(work);
    return weft_i_beside_end(back, status);
}

/*
 * A backend that carries collectives itself has run it when it returns, or enqueued it on a stream.
 * What has a completion is ordered by the streams of its tensors.
 */
static void run_carried(weft_work *work, const weft_i_carrier *carrier)
{
    bool beside = !work->completion && !weft_i_device_is_host(work->coll.ask.device);
    uint64_t carried = carrier->calls;
    weft_status status = beside ? run_beside(work) : weft_i_coll_run(&work->coll);
    /* What the carrier does not do itself went through the lane.  A call that failed has the number
     * of the next, as on the lane. */
    bool elsewhere = status >= 0 && carrier->calls == carried;
    work->sequence =
        elsewhere ? atomic_load_explicit(&work->coll.group->calls.entries, memory_order_relaxed)
                  : carried + 1;
    work->number = work->coll.number;
    if (work->completion)
        status = work->completion->follow(work->completion, status);
    if (status < 0)
        work->message = weft_i_error_copy();
    if (work->completion)
        let_go(work);
    /* Pairs with the acquire in `done`. */
    atomic_store_explicit(&work->status, status >= 0 && work->event ? WEFT_IN_PROGRESS : status,
                          memory_order_release);
}

/* Several threads may look at one work's event. */
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;

/* The work's event was reached, or can not be. */
static void end_on_stream(weft_work *work, weft_status status)
{
    pthread_mutex_lock(&ending);
    if (!done(work)) {
        status = status >= 0 ? weft_i_carrier_check(&work->coll) : status;
        if (status < 0)
            work->message = weft_i_error_copy();
        /* Pairs with the acquire in `done`. */
        atomic_store_explicit(&work->status, status, memory_order_release);
    }
    pthread_mutex_unlock(&ending);
}

/* Looks at the event of work that is on a stream; the thread's error stays. */
static void look_at_stream(weft_work *work)
{
    if (!work->event || done(work))
        return;
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = work->stream->table->event_query(work->event);
    if (status != WEFT_IN_PROGRESS)
        end_on_stream(work, status);
    weft_i_errors_restore(&before);
}

static weft_work *enqueue(const weft_i_coll *coll, weft_i_completion *completion)
{
    weft_i_carrier *carrier = NULL;
    weft_i_coll_count(coll);
    if (weft_i_carrier_of(coll, &carrier) < 0)
        return NULL;
    weft_work *work = new_work(coll, completion);
    if (work && carrier && weft_i_carrier_takes(carrier, coll)) {
        run_carried(work, carrier);
        return work;
    }
    bool host = weft_i_device_is_host(coll->ask.device);
    if (!work || ((host || weft_i_carrier_touch(coll) >= 0) && hand_over(work) == WEFT_OK))
        return work;
    weft_release(work);
    return NULL;
}

weft_work *weft_i_work_enqueue(const weft_i_coll *coll, weft_i_completion *completion)
{
    _Atomic uintptr_t *door = &coll->group->on_lane;
    if (weft_i_group_enter(coll->group, door, coll->ask.op) < 0)
        return NULL;
    weft_work *work = enqueue(coll, completion);
    weft_i_group_leave(door);
    return work;
}

weft_work *weft_i_work_new_p2p(weft_group *group, int count)
{
    size_t bytes = sizeof(weft_work) + (size_t)count * sizeof(weft_i_p2p_request);
    weft_work *work = weft_i_object_new(WEFT_I_WORK, bytes, destroy);
    if (!work)
        return NULL;
    work->coll.group = weft_i_object_hold(group);
    work->bundle =
        (weft_i_bundle){.owner = &work->object, .count = count, .requests = work->requests};
    return work;
}

void weft_i_work_set_request(weft_work *work, int index, const weft_i_p2p_request *request)
{
    WEFT_ASSERT(index >= 0 && index < work->bundle.count);
    work->requests[index] = *request;
    weft_i_object_hold(request->tensor);
}

static weft_status hand_over_p2p(weft_work *work)
{
    weft_i_queue *queue = NULL;
    WEFT_TRY(weft_i_bundle_open_lane(&work->bundle));
    WEFT_TRY(queue_of(work->requests->lane, work->coll.group->world, &queue));
    work->coll.lane = work->requests->lane;
    weft_i_bundle_enqueue(&work->bundle);
    if (weft_i_bundle_status(&work->bundle) != WEFT_IN_PROGRESS)
        return WEFT_OK;
    pthread_mutex_lock(&queue->lock);
    bool dozing = queue->dozing;
    pthread_mutex_unlock(&queue->lock);
    if (dozing)
        wake_helper(queue);
    return WEFT_OK;
}

/* Of tensors on a device: the carrier enqueues them all at once. */
static weft_work *enqueue_on_device(weft_work *work)
{
    weft_i_coll coll;
    if (weft_i_p2p_post_on_device(&work->bundle, &coll) < 0 ||
        (work->coll.ask = coll.ask, mark_end(work)) < 0) {
        weft_release(work);
        return NULL;
    }
    work->carried = true;
    /* Pairs with the acquire in `done`. */
    atomic_store_explicit(&work->status, work->event ? WEFT_IN_PROGRESS : WEFT_OK,
                          memory_order_release);
    return work;
}

weft_work *weft_i_work_enqueue_p2p(weft_work *work)
{
    if (!work->coll.group->world->carrier && !weft_i_p2p_is_on_host(work->requests))
        return enqueue_on_device(work);
    if (work->coll.group->world->carrier) {
        for (int i = 0; i < work->bundle.count; i++)
            weft_i_p2p_request_carry(&work->requests[i]);
        return work;
    }
    if (hand_over_p2p(work) == WEFT_OK)
        return work;
    weft_release(work);
    return NULL;
}

static weft_status run_behind_posts(weft_i_coll *coll)
{
    weft_work *work = enqueue(coll, NULL);
    weft_status status = work ? weft_work_wait(work, WEFT_FOREVER) : weft_last_status();
    weft_release(work);
    return status;
}

WEFT_I_HOT weft_status weft_i_work_now(weft_i_coll *coll)
{
    weft_status status;
    _Atomic uintptr_t *door = &coll->group->on_lane;
    WEFT_TRY(weft_i_group_enter(coll->group, door, coll->ask.op));
    /* Nobody else posts from here on.  Pairs with the release in `finish`: what was posted before is
     * off the lane. */
    if (atomic_load_explicit(&coll->group->calls.posted, memory_order_acquire)) {
        status = run_behind_posts(coll);
    } else {
        weft_i_coll_count(coll);
        status = weft_i_coll_run(coll);
    }
    weft_i_group_leave(door);
    return status;
}

/* ---- waiting ---- */

/* Does its end follow from requests that the host moves? */
static bool has_requests(const weft_work *work)
{
    return work->bundle.count && !work->carried;
}

static weft_status outcome(weft_work *work)
{
    if (has_requests(work))
        return weft_i_bundle_outcome(&work->bundle);
    weft_status status = (weft_status)atomic_load_explicit(&work->status, memory_order_acquire);
    if (status >= 0)
        return status;
    pay(work);
    weft_i_group_concerns(work->coll.group);
    return weft_i_fail(status, "%s", work->message ? work->message : weft_strerror(status));
}

/* Somebody who sleeps for work counts on a thread that runs it. */
static void begin_sleep(weft_i_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->waiters++;
    stand_aside(queue, false);
    bool running = queue->running;
    pthread_mutex_unlock(&queue->lock);
    if (!running)
        wake_helper(queue);
}

static void end_sleep(weft_i_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    WEFT_ASSERT(queue->waiters > 0);
    queue->waiters--;
    pthread_mutex_unlock(&queue->lock);
}

/* How many works were posted before this one and are not over. */
static int works_before(weft_i_queue *queue, const weft_work *work)
{
    int before = 0;
    pthread_mutex_lock(&queue->lock);
    for (const weft_work *other = queue->first; other && other != work; other = other->next)
        before++;
    pthread_mutex_unlock(&queue->lock);
    return before;
}

static weft_status fail_late(const weft_work *work, int64_t limit)
{
    const weft_i_coll *coll = &work->coll;
    char names[1400], behind[64] = "";
    int before = works_before(coll->lane->queue, work);
    if (before)
        snprintf(behind, sizeof behind, ", behind %d posted before it", before);
    if (limit == 0) /* a try: nothing was promised */
        return weft_i_miss(WEFT_ERR_TIMEOUT, "%s in group \"%s\" is still under way%s",
                           coll->ask.op, coll->group->name, behind);
    bool any = weft_i_lane_name_missing(coll->lane, coll->group, names, sizeof names);
    return weft_i_fail(WEFT_ERR_TIMEOUT,
                       "%s in group \"%s\" is still under way after %lld ms%s: %s%s", coll->ask.op,
                       coll->group->name, (long long)limit, behind,
                       any ? "waiting for " : "all ranks have come", any ? names : "");
}

static weft_status wait_for_others(weft_work *work, int64_t limit, int64_t deadline)
{
    weft_i_queue *queue = work->coll.lane->queue;
    weft_i_wait wait = {.ready = done,
                        .arg = work,
                        .bell = &work->bell,
                        .deadline = deadline,
                        .hasty = true,
                        .mode = WEFT_I_WAIT_YIELD};
    begin_sleep(queue);
    weft_status status = weft_i_wait_for(&wait);
    end_sleep(queue);
    return status < 0 ? fail_late(work, limit) : outcome(work);
}

/* Work that was enqueued: until the stream has come to its end. */
static weft_status wait_on_stream(weft_work *work, int64_t limit)
{
    weft_status status = work->stream->table->event_sync(work->event, limit);
    if (status == WEFT_ERR_TIMEOUT)
        return weft_i_fail(status,
                           "%s in group \"%s\" is still under way on its stream after "
                           "%lld ms",
                           work->coll.ask.op, work->coll.group->name, (long long)limit);
    end_on_stream(work, status);
    return outcome(work);
}

/* May the caller run the work?  That can take as long as the operation's own limit. */
static bool is_patient(const weft_work *work, int64_t limit)
{
    return limit < 0 || (work->coll.ask.limit_ms >= 0 && limit >= work->coll.ask.limit_ms);
}

weft_status weft_work_wait(weft_work *work, int64_t timeout_ms)
{
    if (!work)
        return weft_i_missing("the work is NULL");
    WEFT_TRY(weft_i_group_check_limit("weft_work_wait", timeout_ms));
    if (!has_requests(work) && done(work)) /* an empty batch has no group */
        return outcome(work);
    int64_t limit = weft_i_group_limit(work->coll.group, timeout_ms);
    if (has_requests(work)) {
        if (weft_i_bundle_status(&work->bundle) == WEFT_IN_PROGRESS)
            WEFT_TRY(weft_i_bundle_wait(&work->bundle, limit));
        return outcome(work);
    }
    if (work->event)
        return wait_on_stream(work, limit);
    bool mine = is_patient(work, limit);
    int64_t deadline = weft_i_os_deadline(mine && limit >= 0 ? limit + VERDICT_MS : limit);
    while (mine && !done(work) && run_first(work->coll.lane->queue))
        mine = done(work) || WEFT_OS->clock_ns() < deadline; /* a clock is dear */
    return done(work) ? outcome(work) : wait_for_others(work, limit, deadline);
}

weft_status weft_work_order(weft_work *work, weft_stream *stream)
{
    if (!work || !work->stream)
        return weft_work_wait(work, WEFT_DEFAULT);
    if (!stream && !(stream = weft_i_stream_current(work->coll.ask.device)))
        return weft_last_status();
    if (stream->device != work->stream->device && stream->table != work->stream->table)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_work_order: the stream is of another kind of device than the %s",
                           work->coll.ask.op);
    return work->event ? stream->table->event_wait(stream->own, work->event)
                       : weft_i_stream_after(stream, work->stream, true);
}

weft_status weft_work_test(weft_work *work)
{
    if (!work)
        return weft_i_missing("the work is NULL");
    if (has_requests(work) && work->coll.lane) {
        weft_i_p2p_push(work->coll.lane);
        weft_i_p2p_sweep(work->coll.lane);
    } else if (work->event) {
        look_at_stream(work);
    } else if (!work->bundle.count && !done(work)) {
        wake_helper(work->coll.lane->queue);
    }
    return outcome(work);
}

/* ---- asking ---- */

weft_status weft_work_status(const weft_work *work)
{
    if (!work)
        return weft_last_status() < 0 ? weft_last_status() : WEFT_ERR_INVALID_ARG;
    if (has_requests(work))
        return weft_i_bundle_status(&work->bundle);
    look_at_stream((weft_work *)(uintptr_t)work);
    /* Pairs with the release in `finish`. */
    weft_status status = (weft_status)atomic_load_explicit(&work->status, memory_order_acquire);
    if (status < 0)
        pay((weft_work *)(uintptr_t)work);
    return status;
}

const char *weft_work_error(const weft_work *work)
{
    if (!work || weft_work_status(work) >= 0)
        return "";
    const weft_i_p2p_request *request = weft_i_bundle_failed(&work->bundle);
    const char *message = request ? request->message : work->message;
    return message ? message : weft_strerror(weft_work_status(work));
}
