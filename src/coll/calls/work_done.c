/* SPDX-License-Identifier: Apache-2.0 */
/* Posted work that is told of when it ends, or that is given up before it begins. */
#include "base/report/status.h"
#include "coll/calls/work.h"

/* Does its end follow from requests that the host moves? */
static bool has_requests(const weft_work *work)
{
    return work->bundle.count && !work->carried && work->coll.lane;
}

/* What guards its end: the lock of requests, or the queue's.  Without either it is over. */
static void lock_end(weft_work *work)
{
    if (has_requests(work))
        weft_i_p2p_lock(work->coll.lane);
    else if (work->lock)
        pthread_mutex_lock(work->lock);
}

static void unlock_end(weft_work *work)
{
    if (has_requests(work))
        weft_i_p2p_unlock(work->coll.lane);
    else if (work->lock)
        pthread_mutex_unlock(work->lock);
}

static weft_status status_of(const weft_work *work)
{
    if (work->bundle.count && !work->carried)
        return weft_i_bundle_status(&work->bundle);
    /* Pairs with the release in `finish` of work.c. */
    return (weft_status)atomic_load_explicit(&work->status, memory_order_acquire);
}

/* Whoever wants to be told does not wait: the helper is to run it soon. */
static void stir(weft_work *work)
{
    weft_i_errors before; /* how it ends is not this thread's error */
    weft_i_errors_save(&before);
    weft_work_test(work);
    weft_i_errors_restore(&before);
}

weft_status weft_work_on_done(weft_work *work, weft_work_done done, void *argument)
{
    if (!work)
        return weft_i_missing("weft_work_on_done: the work is NULL");
    if (!done)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_work_on_done: no function was given");
    if (work->event && weft_work_status(work) == WEFT_IN_PROGRESS)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "weft_work_on_done: the %s is under way on a stream, where no thread "
                           "ends it",
                           work->coll.ask.op);
    lock_end(work);
    bool taken = work->bundle.on_done;
    weft_status status = status_of(work);
    if (!taken) { /* also where it is over: it is told once */
        work->bundle.on_done = done;
        work->bundle.argument = argument;
    }
    unlock_end(work);
    if (taken)
        return weft_i_fail(WEFT_ERR_STATE, "weft_work_on_done: the work has such a function");
    if (status != WEFT_IN_PROGRESS)
        done(argument, status);
    else
        stir(work);
    return WEFT_OK;
}

weft_status weft_work_cancel(weft_work *work)
{
    if (!work)
        return weft_i_missing("weft_work_cancel: the work is NULL");
    if (weft_work_status(work) != WEFT_IN_PROGRESS)
        return WEFT_OK;
    if (!has_requests(work))
        return weft_i_fail(
            WEFT_ERR_UNSUPPORTED,
            "weft_work_cancel: the other ranks count on the %s in group \"%s\"; only "
            "sends and receives can be cancelled",
            work->coll.ask.op, work->coll.group->name);
    if (weft_i_bundle_cancel(&work->bundle) == WEFT_IN_PROGRESS)
        return weft_i_fail(WEFT_ERR_STATE, "weft_work_cancel: the %s has met its counterpart",
                           weft_i_coll_name(work->requests->kind));
    return WEFT_OK;
}
