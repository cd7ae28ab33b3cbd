/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lives of requests.  Requests move whenever somebody of this rank pushes them on, all of them:
 * whoever waits for one, and the helper thread of the group's queue as long as posted ones are
 * under way.  So no rank has to wait for its sends before it does something else, and a request
 * whose handle was dropped arrives all the same.  One lock guards all requests of a lane; a message
 * that is there, or finds room, costs taking it once.
 */
#include "coll/p2p/p2p.h"
#include "base/os/assert.h"
#include "coll/device/carrier.h"
#include "fabric/group/hosts.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "symm/reach.h"

#include <stdio.h>

/* ---- p2p ---- */

weft_i_p2p *weft_i_p2p_new(int size)
{
    weft_i_p2p *p2p = WEFT_OS->alloc(sizeof *p2p + (size_t)size * sizeof p2p->pairs[0]);
    if (!p2p)
        return NULL;
    p2p->room = weft_i_ring_room(size);
    p2p->last_any = &p2p->any;
    for (int rank = 0; rank < size; rank++) {
        weft_i_p2p_peer *pair = &p2p->pairs[rank];
        pair->rank = rank;
        pair->last_send = &pair->sends;
        pair->last_receive = &pair->receives;
        pair->last_kept = &pair->kept;
    }
    return p2p;
}

void weft_i_p2p_open(weft_i_lane *lane)
{
    for (int rank = 0; rank < lane->size; rank++) {
        lane->p2p->pairs[rank].out_ring = weft_i_lane_ring(lane, lane->me, rank);
        lane->p2p->pairs[rank].in_ring = weft_i_lane_ring(lane, rank, lane->me);
    }
}

void weft_i_p2p_free(weft_i_p2p *p2p, int size)
{
    for (int rank = 0; p2p && rank < size; rank++)
        for (weft_i_kept *kept = p2p->pairs[rank].kept, *next; kept; kept = next) {
            next = kept->next;
            WEFT_OS->free(kept);
        }
    if (p2p)
        weft_i_p2p_close_hosts(p2p, size);
    WEFT_OS->free(p2p);
}

static bool try_lock(void *lane)
{
    return weft_i_p2p_try_lock(lane);
}

void weft_i_p2p_lock_slowly(weft_i_lane *lane)
{
    weft_i_wait_until(try_lock, lane, WEFT_I_NEVER); /* whoever has it is a thread of ours */
}

static void count_under_way(weft_i_p2p *p2p, int change)
{
    /* Relaxed: written under the lock only. */
    int count = atomic_load_explicit(&p2p->under_way, memory_order_relaxed);
    WEFT_ASSERT(count + change >= 0);
    atomic_store_explicit(&p2p->under_way, count + change, memory_order_relaxed);
}

static int under_way(const weft_i_p2p *p2p)
{
    return atomic_load_explicit(&p2p->under_way, memory_order_relaxed); /* a hint */
}

void weft_i_p2p_wake(const weft_i_lane *lane, int rank)
{
    if (lane->mode != WEFT_I_WAIT_SPIN)
        atomic_thread_fence(
            memory_order_seq_cst); /* pairs with the fence of a sleeper in base/share/wait.c */
    _Atomic uint32_t *bell = weft_i_p2p_bell(lane, rank);
    if (bell)
        weft_i_wait_ring(bell);
}

/* ---- the end of a request ---- */

/*
 * The reference to the owner goes before others can see that the requests are over, so that who
 * waited for them may take down the group at once; unless it is the last one, which is dropped
 * where that can do no harm.  So is that of requests whose end somebody wants to be told, which
 * must not happen under the lock.  The owner's destruction waits for the lock (work.c).
 */
static void end_bundle(weft_i_p2p *p2p, weft_i_bundle *bundle)
{
    WEFT_ASSERT(bundle->left == 0);
    if (bundle->owner && (bundle->on_done || !weft_i_object_drop_shared(bundle->owner))) {
        /* Relaxed: under the lock. */
        bundle->next = atomic_load_explicit(&p2p->orphans, memory_order_relaxed);
        atomic_store_explicit(&p2p->orphans, bundle, memory_order_relaxed);
    }
}

void weft_i_p2p_request_end(weft_i_p2p_request *request, weft_status status)
{
    WEFT_ASSERT(status != WEFT_IN_PROGRESS &&
                weft_i_p2p_request_status(request) == WEFT_IN_PROGRESS);
    weft_i_lane *lane = request->lane;
    if (status < 0 && request->begun) /* the pair's bytes are out of step */
        weft_i_group_spoil(request->group, status);
    count_under_way(lane->p2p, -1);
    if (request->bundle->owner)
        weft_i_tensor_unpin(request->tensor);
    WEFT_ASSERT(request->bundle->left > 0);
    if (--request->bundle->left == 0)
        end_bundle(lane->p2p, request->bundle);
    /* Pairs with the acquire in weft_i_p2p_request_status. */
    atomic_store_explicit(&request->status, status, memory_order_release);
    weft_i_p2p_wake(lane, lane->me); /* another thread of ours may sleep for it */
}

void weft_i_p2p_request_end_failed(weft_i_p2p_request *request)
{
    request->message = weft_i_error_copy();
    weft_i_p2p_request_end(request, weft_last_status());
}

/* Takes a request that is under way out of its list.  False: it has arrived after all. */
static bool take_out(weft_i_p2p_request *request)
{
    weft_i_lane *lane = request->lane;
    weft_i_p2p *p2p = lane->p2p;
    int rank = request->source >= 0 ? request->source : request->peer;
    weft_i_p2p_peer *pair = rank >= 0 ? &p2p->pairs[rank] : NULL;
    if (request->rts_sent)
        return weft_i_p2p_withdraw(lane, pair, request);
    if (request->kind == WEFT_I_SEND) {
        weft_i_p2p_request_remove(&pair->sends, &pair->last_send, request);
    } else if (request->source >= 0) {
        WEFT_ASSERT(pair->taking == request);
        pair->taking = NULL;
        pair->broken = true;
    } else if (pair) {
        weft_i_p2p_request_remove(&pair->receives, &pair->last_receive, request);
    } else {
        weft_i_p2p_request_remove(&p2p->any, &p2p->last_any, request);
    }
    return true;
}

/* The thread's last error ends a request that is under way. */
static void fail(weft_i_p2p_request *request)
{
    if (take_out(request))
        weft_i_p2p_request_end_failed(request);
    else
        weft_i_p2p_request_end(request, WEFT_OK);
}

/* ---- requests as calls ---- */

weft_i_coll weft_i_p2p_as_coll(const weft_i_p2p_request *request)
{
    bool send = request->kind == WEFT_I_SEND;
    size_t item = weft_dtype_size(request->dtype);
    const char *op = weft_i_coll_name(request->kind);
    return (weft_i_coll){.ask = {.op = op,
                                 .kind = request->kind,
                                 .rank = request->group->rank,
                                 .size = request->group->size,
                                 .dtype = request->dtype,
                                 .device = request->device,
                                 .root = request->peer,
                                 .in = send ? request->data : NULL,
                                 .out = send ? NULL : request->data,
                                 .item = item,
                                 .count = request->bytes / item,
                                 .in_bytes = send ? request->bytes : 0,
                                 .out_bytes = send ? 0 : request->bytes,
                                 .limit_ms = request->limit_ms},
                         .label = {request->group, op, -1},
                         .group = request->group,
                         .in_tensor = send ? request->tensor : NULL,
                         .out_tensor = send ? NULL : request->tensor,
                         .digest = request->digest};
}

void weft_i_p2p_request_carry(weft_i_p2p_request *request)
{
    weft_i_coll coll = weft_i_p2p_as_coll(request);
    weft_i_carrier *carrier = NULL;
    weft_status status = weft_i_carrier_of(&coll, &carrier);
    if (status >= 0)
        status = weft_i_carrier_run(&coll, carrier);
    if (status < 0)
        request->message = weft_i_error_copy();
    request->source = request->kind == WEFT_I_RECV ? request->peer : -1;
    /* Pairs with the acquire in weft_i_p2p_request_status. */
    atomic_store_explicit(&request->status, status, memory_order_release);
}

/* ---- pushing ---- */

static void push_peer(weft_i_lane *lane, weft_i_p2p_peer *pair)
{
    weft_i_p2p_send(lane, pair);
    weft_i_p2p_receive(lane, pair);
    if (pair->rank == lane->me)
        weft_i_p2p_send(lane, pair); /* we have just read what we sent */
}

static bool has_requests(const weft_i_p2p_peer *pair)
{
    return pair->sends || pair->rts_count || pair->receives || pair->taking || pair->keeping ||
           weft_i_p2p_is_behind(pair);
}

static void mark_busy(weft_i_p2p *p2p, weft_i_p2p_peer *pair)
{
    if (pair->busy || !has_requests(pair))
        return;
    pair->busy = true;
    pair->next_busy = p2p->busy;
    p2p->busy = pair;
}

/* Receives from whoever comes first: begins with another rank each time, so that all get their
 * turn. */
static void push_any(weft_i_lane *lane)
{
    weft_i_p2p *p2p = lane->p2p;
    int first = p2p->turn;
    for (int i = 0; p2p->any && i < lane->size; i++) {
        weft_i_p2p_peer *pair = &p2p->pairs[(first + i) % lane->size];
        weft_i_p2p_request *waiting = p2p->any;
        weft_i_p2p_receive(lane, pair);
        mark_busy(p2p, pair);
        if (p2p->any != waiting)
            p2p->turn = (pair->rank + 1) % lane->size;
    }
}

static void push_all(weft_i_lane *lane)
{
    weft_i_p2p *p2p = lane->p2p;
    for (weft_i_p2p_peer **at = &p2p->busy, *pair; (pair = *at);) {
        push_peer(lane, pair);
        pair->busy = has_requests(pair);
        if (pair->busy)
            at = &pair->next_busy;
        else
            *at = pair->next_busy;
    }
    if (p2p->any)
        push_any(lane);
}

bool weft_i_p2p_push(weft_i_lane *lane)
{
    weft_i_p2p_lock(lane);
    push_all(lane);
    bool left = under_way(lane->p2p) > 0;
    weft_i_p2p_unlock(lane);
    return left;
}

void weft_i_p2p_sweep(weft_i_lane *lane)
{
    weft_i_p2p *p2p = lane->p2p;
    /* Relaxed: a hint; whoever made an orphan sweeps after it. */
    if (!atomic_load_explicit(&p2p->orphans, memory_order_relaxed))
        return;
    weft_i_p2p_lock(lane);
    weft_i_bundle *orphans = atomic_load_explicit(&p2p->orphans, memory_order_relaxed);
    atomic_store_explicit(&p2p->orphans, NULL, memory_order_relaxed);
    weft_i_p2p_unlock(lane);
    for (weft_i_bundle *next; orphans; orphans = next) {
        next = orphans->next;
        if (orphans->on_done)
            orphans->on_done(orphans->argument, weft_i_bundle_status(orphans));
        weft_i_object_drop(orphans->owner);
    }
}

/* ---- posting ---- */

static void post_any(weft_i_lane *lane, weft_i_p2p_request *request)
{
    weft_i_p2p *p2p = lane->p2p;
    for (int i = 0; i < lane->size; i++) {
        weft_i_p2p_peer *pair = &p2p->pairs[(p2p->turn + i) % lane->size];
        if (pair->kept && weft_i_p2p_take_kept(lane, pair, request)) {
            p2p->turn = (pair->rank + 1) % lane->size;
            return;
        }
    }
    weft_i_p2p_request_append(&p2p->last_any, request);
    push_any(lane);
}

/* Under the lock: puts a request where it belongs and moves it as far as it goes. */
static void post(weft_i_p2p_request *request)
{
    weft_i_lane *lane = request->lane;
    weft_i_p2p *p2p = lane->p2p;
    request->order = p2p->posted++;
    /* Relaxed: nobody else knows the request yet. */
    atomic_store_explicit(&request->status, WEFT_IN_PROGRESS, memory_order_relaxed);
    count_under_way(p2p, 1);
    if (request->bundle->owner)
        weft_i_tensor_pin(request->tensor);
    if (request->peer == WEFT_ANY) {
        post_any(lane, request);
        return;
    }
    weft_i_p2p_peer *pair = &p2p->pairs[request->peer];
    if (request->kind == WEFT_I_SEND) {
        weft_i_p2p_request_append(&pair->last_send, request);
        weft_i_p2p_send(lane, pair);
    } else if (!pair->kept || !weft_i_p2p_take_kept(lane, pair, request)) {
        weft_i_p2p_request_append(&pair->last_receive, request);
        weft_i_p2p_receive(lane, pair);
    }
    mark_busy(p2p, pair);
}

static void post_bundle(weft_i_bundle *bundle)
{
    weft_i_lane *lane = bundle->requests->lane;
    bundle->left = bundle->count;
    weft_i_p2p_lock(lane);
    for (int i = 0; i < bundle->count; i++) {
        bundle->requests[i].bundle = bundle;
        post(&bundle->requests[i]);
    }
    weft_i_p2p_unlock(lane);
}

void weft_i_bundle_enqueue(weft_i_bundle *bundle)
{
    weft_i_lane *lane = bundle->requests->lane;
    weft_i_object_hold(bundle->owner);
    post_bundle(bundle);
    weft_i_p2p_sweep(lane);
}

/* ---- requests that nobody waits for ---- */

bool weft_i_p2p_is_left_alone(const weft_i_lane *lane)
{
    /* Relaxed: a hint; the helper looks again. */
    return under_way(lane->p2p) > 0 &&
           !atomic_load_explicit(&lane->p2p->waiters, memory_order_relaxed);
}

/* Whom the request waits for. */
static const char *describe_peer(const weft_i_p2p_request *request, char *out, size_t bytes)
{
    const weft_group *group = request->group;
    if (request->peer == WEFT_ANY)
        return "any other rank";
    weft_i_world_describe(group->world, group->members[request->peer], out, bytes);
    return out;
}

static weft_status fail_timeout(const weft_i_p2p_request *request, int64_t timeout_ms)
{
    const weft_group *group = request->group;
    char who[640];
    if (timeout_ms == 0) /* a try: nothing was promised */
        return weft_i_miss(WEFT_ERR_TIMEOUT, "%s of %zu bytes, tag %d, is still under way",
                           weft_i_coll_name(request->kind), request->bytes, request->tag);
    return weft_i_fail(
        WEFT_ERR_TIMEOUT,
        "rank %d of %d in group \"%s\", %s of %zu bytes, tag %d: waited %lld ms for %s",
        group->rank, group->size, group->name, weft_i_coll_name(request->kind), request->bytes,
        request->tag, (long long)timeout_ms, describe_peer(request, who, sizeof who));
}

static void warn_late(const weft_i_p2p_request *request)
{
    const weft_group *group = request->group;
    char who[640];
    weft_i_log(WEFT_LOG_WARN, "rank %d of %d in group \"%s\", %s: has waited %.3g s for %s",
               group->rank, group->size, group->name, weft_i_coll_name(request->kind),
               (double)group->world->warn_ns * 1e-9, describe_peer(request, who, sizeof who));
}

/* Can the request still arrive?  Without a message: it may have come just before its peer was lost.
 * A receive from any rank ends when one of them dies, or when all have left. */
static weft_status request_fate(const weft_i_p2p_request *request, int *culprit)
{
    const weft_group *group = request->group;
    int left = 0;
    *culprit = request->peer;
    if (request->peer != WEFT_ANY)
        return weft_i_group_fate(group, request->peer);
    for (int rank = 0; rank < group->size; rank++) {
        weft_status fate = rank == group->rank ? WEFT_OK : weft_i_group_fate(group, rank);
        *culprit = fate < 0 ? rank : *culprit;
        if (fate < 0 && fate != WEFT_ERR_PEER_LEFT)
            return fate;
        left += fate < 0;
    }
    return left && left == group->size - 1 ? WEFT_ERR_PEER_LEFT : WEFT_OK;
}

/* The receiver may have said why it ended the group. */
static weft_status sender_lost(const weft_i_p2p_request *request, weft_status status)
{
    const weft_i_ring *ring = request->lane->p2p->pairs[request->peer].out_ring;
    /* Pairs with the release in `refuse`. */
    uint64_t refused = status == WEFT_ERR_MISMATCH
                           ? atomic_load_explicit(&ring->refused, memory_order_acquire)
                           : 0;
    if (!refused)
        return status;
    weft_i_group_concerns(request->group);
    return weft_i_fail(status,
                       "send in group \"%s\": rank %d sends %zu bytes of %s, rank %d expects %llu "
                       "bytes, or another dtype",
                       request->group->name, request->group->rank, request->bytes,
                       weft_dtype_name(request->dtype), request->peer,
                       (unsigned long long)refused - 1);
}

/* WEFT_OK while the request can still arrive; otherwise with a message. */
static weft_status request_lost(const weft_i_p2p_request *request)
{
    int culprit;
    weft_i_label label = {request->group, weft_i_coll_name(request->kind), -1};
    if (request_fate(request, &culprit) == WEFT_OK)
        return WEFT_OK;
    weft_status status = weft_i_group_lost(&label, culprit);
    return status < 0 && request->kind == WEFT_I_SEND ? sender_lost(request, status) : status;
}

/* Must this posted request end now?  Under the lock; the error is the thread's last. */
static bool is_hopeless(weft_i_p2p_request *request)
{
    if (request_lost(request) < 0)
        return true;
    /* Relaxed: ours is the last reference, so nobody can take another one. */
    if (atomic_load_explicit(&request->bundle->owner->references, memory_order_relaxed) > 1)
        return false;
    if (!request->deadline)
        request->deadline = weft_i_os_deadline(request->limit_ms);
    return WEFT_OS->clock_ns() >= request->deadline && fail_timeout(request, request->limit_ms) < 0;
}

static bool sort_out_one(weft_i_p2p_request *request, bool now)
{
    if (!request || !request->bundle->owner || (now && !request->doomed) || !is_hopeless(request))
        return false;
    request->doomed = true;
    if (now)
        fail(request);
    return true;
}

static bool sort_out_list(weft_i_p2p_request *request, bool now)
{
    bool found = false;
    for (weft_i_p2p_request *next; request; request = next) {
        next = request->next;
        found |= sort_out_one(request, now);
    }
    return found;
}

static bool sort_out_all(weft_i_lane *lane, bool now)
{
    bool found = sort_out_list(lane->p2p->any, now);
    for (weft_i_p2p_peer *pair = lane->p2p->busy; pair; pair = pair->next_busy) {
        found |= sort_out_one(pair->taking, now);
        for (int i = 0; i < WEFT_I_RING_RTS_MAX; i++)
            found |= sort_out_one(pair->rts[i], now);
        found |= sort_out_list(pair->sends, now);
        found |= sort_out_list(pair->receives, now);
    }
    return found;
}

/* The peer may have sent its part before it left: look again before a hopeless request ends. */
void weft_i_p2p_sort_out(weft_i_lane *lane)
{
    weft_i_errors before; /* messages are the requests', not this thread's */
    weft_i_errors_save(&before);
    if (lane->p2p->hosts)
        weft_i_hosts_look(lane->p2p->hosts->group, -1);
    weft_i_p2p_lock(lane);
    if (sort_out_all(lane, false)) {
        push_all(lane);
        sort_out_all(lane, true);
    }
    weft_i_p2p_unlock(lane);
    weft_i_errors_restore(&before);
}

/* ---- waiting ---- */

weft_status weft_i_bundle_status(const weft_i_bundle *bundle)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < bundle->count; i++) {
        weft_status one = weft_i_p2p_request_status(&bundle->requests[i]);
        if (one == WEFT_IN_PROGRESS)
            return one;
        status = status < 0 ? status : one;
    }
    return status;
}

const weft_i_p2p_request *weft_i_bundle_failed(const weft_i_bundle *bundle)
{
    for (int i = 0; i < bundle->count; i++)
        if (weft_i_p2p_request_status(&bundle->requests[i]) < 0)
            return &bundle->requests[i];
    return NULL;
}

weft_status weft_i_bundle_outcome(const weft_i_bundle *bundle)
{
    weft_status status = weft_i_bundle_status(bundle);
    if (status == WEFT_OK || status == WEFT_IN_PROGRESS)
        return status;
    const weft_i_p2p_request *request = weft_i_bundle_failed(bundle);
    weft_i_group_concerns(request->group);
    return weft_i_fail(status, "%s", request->message ? request->message : weft_strerror(status));
}

weft_status weft_i_bundle_close(const weft_i_bundle *bundle)
{
    weft_status status = weft_i_bundle_outcome(bundle);
    for (int i = 0; i < bundle->count && status < 0; i++) /* what went well has no message */
        WEFT_OS->free(bundle->requests[i].message);
    return status;
}

static weft_i_p2p_request *first_under_way(const weft_i_bundle *bundle)
{
    for (int i = 0; i < bundle->count; i++)
        if (weft_i_p2p_request_status(&bundle->requests[i]) == WEFT_IN_PROGRESS)
            return &bundle->requests[i];
    return NULL;
}

/* May a push do anything?  Looks without the lock where a lone receive waits for its slot. */
static bool stirs(const weft_i_p2p_request *request)
{
    const weft_i_p2p *p2p = request->lane->p2p;
    if (request->kind != WEFT_I_RECV || request->peer == WEFT_ANY || under_way(p2p) != 1)
        return true;
    uint32_t digest;
    const weft_i_p2p_peer *pair = &p2p->pairs[request->peer];
    return weft_i_ring_look(pair->in_ring, weft_i_p2p_taken(pair), &digest) != NULL;
}

typedef struct outlook {
    weft_i_bundle *bundle;
    weft_i_p2p_request *lost;
    int64_t late; /* of weft_i_world_is_late */
} outlook;

static bool are_over(void *arg)
{
    const weft_i_bundle *bundle = ((const outlook *)arg)->bundle;
    const weft_i_p2p_request *request = first_under_way(bundle);
    if (!request)
        return true;
    if (request->lane->p2p->hosts)
        weft_i_p2p_drive(request->lane);
    if (!stirs(request))
        return false;
    weft_i_p2p_push(request->lane);
    return !first_under_way(bundle);
}

static weft_status outlook_lost(void *arg)
{
    outlook *on = arg;
    const weft_i_bundle *bundle = on->bundle;
    int culprit;
    if (bundle->requests->group->hosts)
        weft_i_hosts_look(bundle->requests->group, -1);
    for (int i = 0; i < bundle->count; i++) {
        on->lost = &bundle->requests[i];
        if (weft_i_p2p_request_status(on->lost) == WEFT_IN_PROGRESS)
            WEFT_TRY(request_fate(on->lost, &culprit));
    }
    const weft_i_p2p_request *request = first_under_way(bundle);
    if (request && weft_i_world_is_late(request->group->world, &on->late, WEFT_OS->clock_ns()))
        warn_late(request);
    return WEFT_OK;
}

/* Ends the request, unless it is over: with what became of its peer, or else with the thread's last
 * error. */
static void give_up(weft_i_p2p_request *request, bool lost)
{
    weft_i_p2p_lock(request->lane);
    if (weft_i_p2p_request_status(request) == WEFT_IN_PROGRESS &&
        (!lost || request_lost(request) < 0))
        fail(request);
    weft_i_p2p_unlock(request->lane);
}

/* Has it met its counterpart?  Then bytes move, or may at any moment. */
static bool has_met(const weft_i_p2p_request *request)
{
    return request->begun || request->done || request->rts_sent || request->source >= 0;
}

weft_status weft_i_bundle_cancel(weft_i_bundle *bundle)
{
    weft_i_lane *lane = bundle->requests->lane;
    weft_i_errors before; /* messages are the requests', not this thread's */
    weft_i_errors_save(&before);
    weft_i_p2p_lock(lane);
    push_all(lane); /* what has come is not cancelled */
    for (int i = 0; i < bundle->count; i++) {
        weft_i_p2p_request *request = &bundle->requests[i];
        if (weft_i_p2p_request_status(request) != WEFT_IN_PROGRESS || has_met(request))
            continue;
        weft_i_fail(WEFT_ERR_CANCELLED, "%s of %zu bytes, tag %d, in group \"%s\" was cancelled",
                    weft_i_coll_name(request->kind), request->bytes, request->tag,
                    request->group->name);
        fail(request);
    }
    weft_i_p2p_unlock(lane);
    weft_i_errors_restore(&before);
    weft_status status = weft_i_bundle_status(bundle);
    weft_i_p2p_sweep(lane);
    return status == WEFT_IN_PROGRESS ? status : WEFT_OK;
}

/* Waits for one thing after the other: all requests over, one lost, time up. */
static weft_status wait_on(outlook *on, int64_t deadline)
{
    weft_i_lane *lane = on->bundle->requests->lane;
    weft_i_wait wait = {.ready = are_over,
                        .lost = outlook_lost,
                        .arg = on,
                        .bell = weft_i_p2p_bell(lane, lane->me),
                        .wheel = weft_i_p2p_wheel(lane),
                        .deadline = deadline,
                        .mode = lane->mode};
    weft_status status = WEFT_OK;
    do {
        status = weft_i_wait_for(&wait);
        if (status < 0 && status != WEFT_ERR_TIMEOUT)
            give_up(on->lost, true);
    } while (status != WEFT_ERR_TIMEOUT && first_under_way(on->bundle));
    return status == WEFT_ERR_TIMEOUT ? status : WEFT_OK;
}

/*
 * How often a rank looks for a message before it gives its core to another one.  A peer that runs
 * answers sooner than a switch ends, and a rank that stays takes all that is on its way to it.  But
 * if the peer waits for this very core, every look is in vain.  So after each wait in vain a rank
 * looks half as often, and as often as ever once a message came while it looked.  It does not look
 * for the end of an RTS: the copy takes longer than a switch.
 */
static int looks_allowed(const weft_i_bundle *bundle)
{
    enum { LOOKS = 200, HALVINGS = 12 };
    const weft_i_lane *lane = bundle->requests->lane;
    if (lane->mode != WEFT_I_WAIT_YIELD)
        return lane->mode == WEFT_I_WAIT_SPIN ? LOOKS : 1;
    for (int i = 0; i < bundle->count; i++)
        if (bundle->requests[i].rts_sent)
            return 1;
    /* Relaxed, as below: a guess that the threads of the rank share. */
    int vain = atomic_load_explicit(&lane->p2p->in_vain, memory_order_relaxed);
    return vain < HALVINGS ? 1 << (HALVINGS - vain) : 1;
}

/* A message that was there at the first look says nothing.  Now and then it is tried afresh. */
static void learn_looks(weft_i_lane *lane, int looks, bool came)
{
    enum { AFRESH = 64 };
    if (lane->mode != WEFT_I_WAIT_YIELD || (came && !looks))
        return;
    int vain = atomic_load_explicit(&lane->p2p->in_vain, memory_order_relaxed);
    atomic_store_explicit(&lane->p2p->in_vain, came ? 0 : (vain + 1) % AFRESH,
                          memory_order_relaxed);
}

/* Looks for a moment without pausing: a message that comes now is a hop away. */
static bool come_at_once(outlook *on)
{
    weft_i_lane *lane = on->bundle->requests->lane;
    int allowed = looks_allowed(on->bundle), looks = 0;
    bool came;
    while (!(came = are_over(on)) && ++looks < allowed)
        ;
    learn_looks(lane, looks, came);
    return came;
}

weft_status weft_i_bundle_wait(weft_i_bundle *bundle, int64_t timeout_ms)
{
    weft_i_lane *lane = bundle->requests->lane;
    weft_status status = WEFT_OK;
    outlook on = {.bundle = bundle};
    if (!come_at_once(&on)) {
        /* Relaxed: while somebody waits, and so pushes, the helper need not. */
        atomic_fetch_add_explicit(&lane->p2p->waiters, 1, memory_order_relaxed);
        status = wait_on(&on, weft_i_os_deadline(timeout_ms));
        atomic_fetch_sub_explicit(&lane->p2p->waiters, 1, memory_order_relaxed);
    }
    weft_i_p2p_sweep(lane);
    const weft_i_p2p_request *request = status < 0 ? first_under_way(bundle) : NULL;
    return request ? fail_timeout(request, timeout_ms) : WEFT_OK;
}

weft_status weft_i_bundle_open_lane(const weft_i_bundle *bundle)
{
    weft_i_p2p_request *requests = bundle->requests;
    weft_i_label label = {requests->group, weft_i_coll_name(requests->kind), -1};
    weft_status status = weft_i_lane_of(requests->group, label.op, false, &requests->lane);
    if (status < 0)
        return weft_i_explain(status, "%s, the first of its group", label.op);
    for (int i = 1; i < bundle->count; i++)
        requests[i].lane = requests->lane;
    if (requests->group->hosts)
        WEFT_TRY(weft_i_p2p_open_hosts(requests->lane, requests->group));
    return weft_i_group_check_revoked(&label);
}

weft_status weft_i_bundle_carry(weft_i_bundle *bundle)
{
    WEFT_TRY(weft_i_bundle_open_lane(bundle));
    post_bundle(bundle);
    if (weft_i_bundle_status(bundle) == WEFT_IN_PROGRESS &&
        weft_i_bundle_wait(bundle, bundle->requests->limit_ms) < 0)
        for (int i = 0; i < bundle->count; i++)
            give_up(&bundle->requests[i], false);
    weft_i_p2p_sweep(bundle->requests->lane);
    return weft_i_bundle_close(bundle);
}
