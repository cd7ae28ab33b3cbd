/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends a communicator before its time: a lost rank, the group's end, an error that NCCL tells
 * of, a limit that has passed.  The sentry's thread looks.
 */
#include "comm.h"

#include "backends/cuda/device/stream.h"
#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/status.h"
#include "base/share/wait.h"

#include <stdio.h>

enum {
    MS = 1000 * 1000,
    ENQUEUE_NS = 500 * 1000, /* longer than NCCL takes to enqueue a call */
    PATIENCE_MS = 500,       /* after an error of NCCL: who died may be known only then */
    MARKS_MOST = 200         /* beyond so many calls a mark might wait for room on the stream */
};

/* Under the communicator's lock. */
static void condemn(weft_i_nccl_comm *comm, weft_status status, int rank, weft_i_nccl_result result,
                    const char *late)
{
    weft_i_nccl_raw raw = comm->raw;
    if (!raw)
        return;
    comm->raw = NULL;
    comm->lost = rank;
    comm->result = result;
    comm->late = late;
    /* Pairs with the acquire in weft_i_nccl_comm_check. */
    atomic_store_explicit(&comm->fate, status, memory_order_release);
    if (comm->has_windows)
        comm->doomed = raw; /* with the last of its windows */
    else
        weft_i_nccl_abort(comm, raw);
}

void weft_i_nccl_condemn(weft_i_nccl_comm *comm, weft_status status, int rank,
                         weft_i_nccl_result result, const char *late)
{
    weft_i_latch_take(&comm->lock);
    condemn(comm, status, rank, result, late);
    weft_i_latch_give(&comm->lock);
}

/* ---- the sentry's looks, under the lock ---- */

static void look_for_error(weft_i_nccl_comm *comm, int64_t now)
{
    weft_i_nccl_result result = WEFT_I_ncclSuccess;
    weft_i_nccl_result asked = weft_i_nccl_library()->ncclCommGetAsyncError(comm->raw, &result);
    result = asked == WEFT_I_ncclSuccess ? result : asked;
    if (weft_i_nccl_is_fine(result))
        return;
    comm->failing_since = comm->failing_since ? comm->failing_since : now;
    if (now - comm->failing_since >= (int64_t)PATIENCE_MS * MS)
        condemn(comm, weft_i_nccl_status_of(result), -1, result, NULL);
}

/* The stream that was given the last call, if it is still there and not being captured. */
static bool mark_last(weft_i_nccl_comm *comm)
{
    weft_i_cuda_device *device = comm->device;
    bool marked = false;
    pthread_mutex_lock(&device->lock);
    for (weft_i_cuda_stream *s = device->streams; s && !marked; s = s->next)
        if (s == comm->last && s->number == comm->last_number)
            marked = !weft_i_cuda_is_captured(s) && weft_i_cuda_mark_set(&comm->mark, s) == WEFT_OK;
    pthread_mutex_unlock(&device->lock);
    return marked;
}

/* Sets a mark behind all calls so far, or sees that the last mark was reached. */
static void look_at_stream(weft_i_nccl_comm *comm)
{
    if (comm->marked > comm->reached) {
        if (weft_i_cuda_use(comm->device) == WEFT_OK &&
            weft_i_cuda_reached(&comm->mark) != WEFT_IN_PROGRESS)
            comm->reached = comm->marked;
        return;
    }
    if (comm->given == comm->reached || comm->inside || comm->given - comm->reached > MARKS_MOST)
        return;
    if (mark_last(comm)) {
        comm->marked = comm->given;
        comm->marked_due = comm->due;
        comm->due = INT64_MAX;
    } else {
        comm->reached = comm->given; /* with its stream, its work has gone */
    }
}

static void look_at_limit(weft_i_nccl_comm *comm, int64_t now)
{
    bool late = (comm->marked > comm->reached && now > comm->marked_due) ||
                (comm->given > comm->marked && comm->given > comm->reached && now > comm->due);
    if (late)
        condemn(comm, WEFT_ERR_TIMEOUT, -1, WEFT_I_ncclSuccess, comm->op);
}

/* Is something under way that may wait for others?  Never waits: the call inside has the lock. */
static bool is_waiting(void *arg)
{
    weft_i_nccl_comm *comm = arg;
    if (!weft_i_latch_try(&comm->lock))
        return true;
    int64_t now = WEFT_OS->clock_ns();
    weft_i_errors before;
    weft_i_errors_save(&before);
    if (comm->raw)
        look_for_error(comm, now);
    if (comm->raw)
        look_at_stream(comm);
    if (comm->raw)
        look_at_limit(comm, now);
    bool waits = comm->raw && (comm->inside || comm->given > comm->reached);
    comm->needed = comm->given + (comm->inside && comm->enqueues);
    weft_i_latch_give(&comm->lock);
    weft_i_errors_restore(&before);
    return waits;
}

static void told(void *arg, weft_status status, int rank)
{
    weft_i_nccl_condemn(arg, status, rank, WEFT_I_ncclSuccess, NULL);
}

/* A member that has given NCCL as many calls as this one may leave: NCCL ends them. */
static uint64_t needs(void *arg)
{
    const weft_i_nccl_comm *comm = arg;
    return comm->needed;
}

weft_status weft_i_nccl_watch(const weft_i_circle *circle, weft_i_nccl_comm *comm)
{
    weft_i_post_duty duty = {told, is_waiting, comm, comm->has_windows ? NULL : needs, NULL};
    WEFT_TRY(weft_i_post_open(circle, &duty, &comm->post));
    if (!comm->has_windows)
        weft_i_post_show(comm->post, 0); /* nobody calls before all agree to have it */
    return WEFT_OK;
}

/* ---- calls ---- */

WEFT_I_COLD static weft_status tell_fate(weft_i_nccl_comm *comm, weft_status fate)
{
    char who[128], about[512] = "";
    weft_i_post_text(comm->post, who, sizeof who);
    atomic_store_explicit(&comm->told, true, memory_order_relaxed);
    if (comm->late)
        return weft_i_fail(fate,
                           "%s, %s by NCCL on cuda:%d: it has not ended within its limit; a rank "
                           "has not called it, or called something else",
                           who, comm->late, comm->device->ordinal);
    if (comm->lost < 0)
        return weft_i_fail(fate, "%s: NCCL on cuda:%d says \"%s\" (%d)", who, comm->device->ordinal,
                           weft_i_nccl_library()->ncclGetErrorString(comm->result), comm->result);
    const char *quarrel = fate == WEFT_ERR_MISMATCH ? weft_i_post_quarrel(comm->post) : NULL;
    if (quarrel)
        return weft_i_fail(fate, "%s, collectives by NCCL on cuda:%d: %s; the group has ended", who,
                           comm->device->ordinal, quarrel);
    weft_i_post_describe(comm->post, comm->lost, about, sizeof about);
    return weft_i_fail(fate, "%s, collectives by NCCL on cuda:%d: %s will not come", who,
                       comm->device->ordinal, about);
}

WEFT_I_HOT weft_status weft_i_nccl_comm_check(weft_i_nccl_comm *comm)
{
    /* Pairs with the release in condemn. */
    weft_status fate = (weft_status)atomic_load_explicit(&comm->fate, memory_order_acquire);
    return __builtin_expect(fate == WEFT_OK, 1) ? WEFT_OK : tell_fate(comm, fate);
}

static bool is_decided(void *arg)
{
    weft_i_nccl_comm *comm = arg;
    /* Pairs with the release in condemn. */
    return atomic_load_explicit(&comm->fate, memory_order_acquire) != WEFT_OK;
}

weft_status weft_i_nccl_comm_ask(weft_i_nccl_comm *comm)
{
    weft_i_nccl_result result = WEFT_I_ncclSuccess;
    weft_i_latch_take(&comm->lock);
    if (comm->raw)
        weft_i_nccl_library()->ncclCommGetAsyncError(comm->raw, &result);
    weft_i_latch_give(&comm->lock);
    if (__builtin_expect(!weft_i_nccl_is_fine(result), 0) &&
        !weft_i_wait_until(is_decided, comm, weft_i_os_deadline(4 * PATIENCE_MS)))
        weft_i_nccl_condemn(comm, weft_i_nccl_status_of(result), -1, result, NULL);
    return weft_i_nccl_comm_check(comm);
}

WEFT_I_FAST static void note_stream(weft_i_nccl_comm *comm, weft_i_cuda_stream *stream)
{
    uint64_t bit = (uint64_t)1 << stream->number % 64;
    /* Relaxed: whoever waits for the stream has enqueued there, or has been told by whoever did. */
    if (!(atomic_load_explicit(&comm->streams, memory_order_relaxed) & bit))
        atomic_fetch_or_explicit(&comm->streams, bit, memory_order_relaxed);
    comm->last = stream;
    comm->last_number = stream->number;
}

WEFT_I_COLD static weft_status refuse(weft_i_nccl_comm *comm, const char *op)
{
    WEFT_TRY(weft_i_nccl_comm_check(comm));
    return weft_i_fail(WEFT_ERR_STATE, "%s by NCCL: this rank has left its world", op);
}

WEFT_I_FAST weft_status weft_i_nccl_comm_take(weft_i_nccl_comm *comm, weft_i_cuda_stream *stream,
                                              const char *op)
{
    weft_i_latch_take(&comm->lock);
    if (!comm->raw) {
        weft_i_latch_give(&comm->lock);
        return refuse(comm, op);
    }
    comm->inside = true;
    comm->enqueues = stream != NULL;
    comm->op = op;
    if (stream)
        note_stream(comm, stream);
    return WEFT_OK;
}

WEFT_I_HOT weft_status weft_i_nccl_comm_enter(weft_i_nccl_comm *comm, weft_i_cuda_stream *stream,
                                              const char *op)
{
    WEFT_TRY(weft_i_cuda_use(comm->device));
    return weft_i_nccl_comm_take(comm, stream, op);
}

/* A call that NCCL has not enqueued yet. */
typedef struct call {
    weft_i_nccl_comm *comm;
    weft_i_nccl_result result;
} call;

/* Has it?  Also if it never will.  Then the lock is kept. */
WEFT_I_BACK static bool is_enqueued(void *arg)
{
    call *c = arg;
    weft_i_latch_take(&c->comm->lock);
    if (c->comm->raw)
        weft_i_nccl_library()->ncclCommGetAsyncError(c->comm->raw, &c->result);
    if (!c->comm->raw || c->result != WEFT_I_ncclInProgress)
        return true;
    weft_i_latch_give(&c->comm->lock);
    return false;
}

/* NCCL's thread is at it: the sentry may look meanwhile. */
WEFT_I_BACK static void await_enqueued(call *c, int64_t deadline)
{
    weft_i_nccl_comm *comm = c->comm;
    weft_i_nccl_library()->ncclCommGetAsyncError(comm->raw, &c->result);
    if (c->result != WEFT_I_ncclInProgress)
        return;
    weft_i_latch_give(&comm->lock);
    weft_i_wait wait = {.ready = is_enqueued,
                        .arg = c,
                        .deadline = deadline,
                        .mode = comm->mode,
                        .spin_ns = ENQUEUE_NS};
    if (weft_i_wait_for(&wait) == WEFT_OK)
        return;
    weft_i_latch_take(&comm->lock);
    condemn(comm, WEFT_ERR_TIMEOUT, -1, WEFT_I_ncclInProgress, comm->op);
}

WEFT_I_COLD static weft_status tell_refusal(const weft_i_nccl_comm *comm, weft_i_nccl_result result)
{
    return weft_i_nccl_fail(result, comm->raw, "%s by NCCL on cuda:%d", comm->op,
                            comm->device->ordinal);
}

WEFT_I_BACK weft_status weft_i_nccl_comm_leave(weft_i_nccl_comm *comm, weft_i_nccl_result result,
                                               int64_t limit_ms)
{
    call c = {comm, result};
    int64_t deadline = weft_i_os_deadline(limit_ms);
    weft_status status = WEFT_OK;
    weft_i_post_note_work(comm->post); /* it must not slow the call itself */
    if (result == WEFT_I_ncclInProgress)
        await_enqueued(&c, deadline);
    comm->inside = false;
    if (comm->enqueues) {
        comm->due = comm->due < deadline ? comm->due : deadline;
        comm->given++;
        weft_i_post_show(comm->post, comm->given);
    }
    bool gone = !comm->raw;
    if (!gone && !weft_i_nccl_is_fine(c.result))
        status = tell_refusal(comm, c.result);
    weft_i_latch_give(&comm->lock);
    return gone ? weft_i_nccl_comm_check(comm) : status;
}
