/* SPDX-License-Identifier: Apache-2.0 */
/* Functional collectives under way; see pending.h. */
#include "functional/pending.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "coll/device/carrier.h"
#include "tensor/op/loops.h"
#include "weft/functional.h"

/* ---- the claims ---- */

static weft_i_pending *pending_of(const weft_i_claim *claim)
{
    return (weft_i_pending *)(void *)claim->owner;
}

static bool done(const weft_i_claim *claim)
{
    /* Pairs with the release in work.c: whoever sees the end sees what was written. */
    return atomic_load_explicit(&pending_of(claim)->work->status, memory_order_acquire) !=
           WEFT_IN_PROGRESS;
}

static weft_status wait_for(const weft_i_claim *claim)
{
    weft_work *work = pending_of(claim)->work;
    if (claim->writes)
        return weft_work_wait(work, WEFT_FOREVER); /* the operation has a limit of its own */
    weft_i_errors before;
    weft_i_errors_save(&before);
    if (!done(claim))
        weft_work_wait(work, WEFT_FOREVER);
    weft_i_errors_restore(&before);
    return WEFT_OK;
}

static int holds(const weft_i_claim *claim)
{
    /* Pairs with the release in let_go of work.c. */
    return atomic_load_explicit(&pending_of(claim)->work->holds, memory_order_acquire);
}

static void warn_dropped(const weft_i_pending_claim *claim)
{
    const weft_i_pending *pending = pending_of(&claim->claim);
    const weft_work *work = pending->work;
    char shape[WEFT_I_SHAPE_TEXT];
    const char *failure = work->message; /* the status may not have been told yet */
    weft_i_log(WEFT_LOG_WARN,
               "%s in group \"%s\" (operation %llu of this rank): nobody waited for its result, "
               "%s%s, before dropping it%s%s",
               pending->op, work->coll.group->name, (unsigned long long)work->number,
               weft_dtype_name(claim->dtype), weft_i_shape_text(claim->shape, shape),
               failure ? "; it failed: " : "", failure ? failure : "");
}

/* There is nothing in it that anybody could have read. */
static bool is_empty(const weft_i_claim *claim)
{
    weft_shape shape = ((const weft_i_pending_claim *)(const void *)claim)->shape;
    for (int i = 0; i < shape.ndim; i++)
        if (shape.dim[i] == 0)
            return true;
    return false;
}

static void ended(const weft_i_claim *claim, bool waited)
{
    if (!claim->writes)
        return;
    const weft_work *work = pending_of(claim)->work;
    if (!waited && (work->message || !is_empty(claim)))
        warn_dropped((const weft_i_pending_claim *)(const void *)claim);
    /* Relaxed: a count. */
    atomic_fetch_sub_explicit(&pending_of(claim)->work->coll.group->world->unwaited, 1,
                              memory_order_relaxed);
}

static const weft_i_claimant claimant = {
    .done = done, .wait = wait_for, .holds = holds, .ended = ended};

/* ---- the object ---- */

static void drop_moves(weft_i_pending *pending)
{
    for (size_t i = 0; i < pending->moves; i++) {
        weft_i_object_drop(pending->move[i].to);
        weft_i_object_drop(pending->move[i].from);
    }
    pending->moves = 0;
}

static weft_status follow(weft_i_completion *completion, weft_status status)
{
    weft_i_pending *pending = (weft_i_pending *)(void *)completion;
    for (size_t i = 0; status >= 0 && i < pending->moves; i++)
        status = weft_i_tensor_copy(pending->move[i].to, pending->move[i].from);
    drop_moves(pending);
    return status;
}

static void destroy(weft_i_object *object)
{
    weft_i_pending *pending = (weft_i_pending *)(void *)object;
    drop_moves(pending);
    weft_i_object_drop(pending->work);
    weft_i_object_free(object);
}

weft_i_pending *weft_i_pending_new(const char *op, size_t room, size_t moves)
{
    size_t claims_end = sizeof(weft_i_pending) + room * sizeof(weft_i_pending_claim);
    weft_i_pending *pending = weft_i_object_new_unscoped(
        WEFT_I_PENDING, claims_end + moves * sizeof *pending->move, destroy);
    if (!pending)
        return NULL;
    pending->completion.follow = follow;
    pending->op = op;
    pending->room = room;
    pending->moves_room = moves;
    pending->move = (void *)((char *)pending + claims_end);
    return pending;
}

void weft_i_pending_claim_on(weft_i_pending *pending, const weft_tensor *x, bool writes)
{
    WEFT_ASSERT(pending->claims < pending->room);
    weft_i_pending_claim *mine = &pending->claim[pending->claims++];
    mine->claim = (weft_i_claim){
        .claimant = &claimant, .owner = &pending->completion.object, .writes = writes};
    mine->storage = x->storage;
    mine->dtype = x->dtype;
    mine->shape = weft_i_tensor_shape(x);
}

void weft_i_pending_move(weft_i_pending *pending, weft_tensor *to, weft_tensor *from)
{
    WEFT_ASSERT(to && from && pending->moves < pending->moves_room);
    pending->move[pending->moves].to = weft_i_object_hold(to);
    pending->move[pending->moves++].from = weft_i_object_hold(from);
}

static void put_claims(weft_i_pending *pending, weft_i_world *world)
{
    WEFT_ASSERT(pending->work && pending->claims <= pending->room);
    for (size_t i = 0; i < pending->claims; i++) {
        weft_i_pending_claim *mine = &pending->claim[i];
        if (mine->claim.writes) /* relaxed: a count */
            atomic_fetch_add_explicit(&world->unwaited, 1, memory_order_relaxed);
        weft_i_claim_put(&mine->claim, mine->storage);
    }
}

/* Is it on a stream?  Then streams order whoever uses its tensors, and nobody need wait for it. */
static bool is_enqueued(const weft_work *work)
{
    return !work->lock && !weft_i_device_is_host(work->coll.ask.device) &&
           !work->coll.group->world->carrier;
}

weft_status weft_i_pending_enqueue(weft_i_pending *pending, weft_i_coll *coll)
{
    weft_status status = WEFT_OK;
    if (coll->group->size == 1) { /* nobody to wait for */
        status = follow(&pending->completion, weft_i_work_now(coll));
    } else if ((pending->work = weft_keep(weft_i_work_enqueue(coll, &pending->completion)))) {
        if (is_enqueued(pending->work))
            status = weft_work_wait(pending->work, 0);
        else
            put_claims(pending, coll->group->world);
    } else {
        status = weft_last_status();
    }
    weft_i_object_drop(pending);
    return status;
}

int weft_unwaited(const weft_group *group)
{
    return group && group->world
               ? atomic_load_explicit(&group->world->unwaited, memory_order_relaxed)
               : 0;
}
