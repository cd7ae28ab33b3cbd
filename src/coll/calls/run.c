/* SPDX-License-Identifier: Apache-2.0 */
/* Running a checked call: the choice of its protocol, and the way to its algorithm. */
#include "coll/calls/run.h"

#include "base/os/assert.h"
#include "base/os/place.h"
#include "coll/device/carrier.h"
#include "coll/host/algorithms.h"
#include "coll/hosts/hosts.h"
#include "coll/lane/enter.h"
#include "coll/lane/list.h"
#include "coll/lane/trial.h"

#include "base/report/status.h"

/* A call that only has to be agreed on. */
weft_status weft_i_coll_barrier(weft_i_coll *coll)
{
    return weft_i_enter(coll);
}

/* Those of this floor, and what floors above add before anybody calls. */
static weft_i_runner *runners[WEFT_I_COLL_KINDS] = {
    [WEFT_I_BARRIER] = weft_i_coll_barrier,
    [WEFT_I_ALL_REDUCE] = weft_i_coll_all_reduce,
    [WEFT_I_REDUCE] = weft_i_coll_reduce,
    [WEFT_I_BROADCAST] = weft_i_coll_move,
    [WEFT_I_ALL_GATHER] = weft_i_coll_move,
    [WEFT_I_GATHER] = weft_i_coll_move,
    [WEFT_I_SCATTER] = weft_i_coll_move,
    [WEFT_I_REDUCE_SCATTER] = weft_i_coll_reduce_scatter,
    [WEFT_I_ALL_TO_ALL] = weft_i_coll_all_to_all,
    [WEFT_I_ALL_REDUCE_LIST] = weft_i_list_all_reduce,
    [WEFT_I_ALL_GATHER_LIST] = weft_i_list_all_gather,
    [WEFT_I_REDUCE_SCATTER_LIST] = weft_i_list_reduce_scatter,
    [WEFT_I_ALL_TO_ALL_LIST] = weft_i_coll_all_to_all,
};

void weft_i_kind_run(weft_i_coll_kind kind, weft_i_runner *runner)
{
    WEFT_ASSERT(kind < WEFT_I_COLL_KINDS && !runners[kind]);
    runners[kind] = runner;
}

weft_i_runner *weft_i_kind_runner(weft_i_coll_kind kind)
{
    WEFT_ASSERT(kind < WEFT_I_COLL_KINDS);
    return runners[kind];
}

/* An odd number with its bits everywhere, so that two values in one word do not cancel out. */
#define SPREAD 0x9e3779b97f4a7c15

/* Chooses the protocol.  The same on all ranks. */
static void choose(weft_i_coll *coll)
{
    weft_i_ground ground = weft_i_tune_ground(coll->lane->mode);
    int size = coll->group->size;
    weft_i_coll_kind as = weft_i_kinds[coll->ask.kind].as;
    size_t bytes = weft_i_enter_bytes(coll);
    coll->algorithm = weft_i_choose(coll->ask.kind, size, ground, bytes);
    /* The factor travels beside the arrival word, where tiny data would be; lists are packed in
     * the bounce buffer. */
    if (coll->algorithm == WEFT_I_ALGO_INLINE &&
        (coll->ask.reduction == WEFT_PREMUL_SUM || coll->list))
        coll->algorithm = WEFT_I_ALGO_EAGER;
    bool one_way = weft_i_kind_is(coll->ask.kind, WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT);
    if (coll->algorithm != WEFT_I_ALGO_RENDEZVOUS)
        coll->is_short = one_way && as == coll->ask.kind && bytes <= WEFT_I_SHORT &&
                         !weft_i_eager_is_chunked(coll);
    if (coll->algorithm == WEFT_I_ALGO_INLINE)
        return; /* the digest of who chose otherwise differs */
    if (coll->algorithm == WEFT_I_ALGO_RENDEZVOUS) {
        coll->cma_from = weft_i_tune_of(WEFT_I_TUNE_CMA, as, size, ground);
        coll->cma_fixed = weft_i_tune_is_set(WEFT_I_TUNE_CMA, as, size, ground);
        coll->shown_up_to = weft_i_tune_of(WEFT_I_TUNE_EAGER, coll->ask.kind, size, ground);
        coll->lane->fold_whole_up_to = weft_i_tune_same(WEFT_I_TUNE_FOLD_WHOLE, as);
        coll->lane->push_from = weft_i_tune_same(WEFT_I_TUNE_PUSH, as);
        coll->digest = weft_i_digest(coll->digest, coll->lane->fold_whole_up_to +
                                                       (uint64_t)coll->lane->push_from * SPREAD);
    }
    coll->digest =
        weft_i_digest(coll->digest, (uint64_t)coll->algorithm ^ (uint64_t)coll->cma_fixed << 2 ^
                                        coll->cma_from << 3);
}

/* Operands that the host can touch: by the carrier, if there is one, else on the lane. */
static weft_status run_on_host(weft_i_coll *coll)
{
    weft_i_carrier *carrier;
    if (!coll->group->local && coll->group->hosts && !coll->group->world->carrier)
        return weft_i_hosts_run(coll, run_on_host, runners[coll->ask.kind]);
    WEFT_TRY(weft_i_carrier_of(coll, &carrier));
    if (carrier) {
        weft_i_carrier_note(coll, carrier, -1);
        return weft_i_carrier_run(coll, carrier);
    }
    if (!coll->group->lane)
        weft_i_enter_note(coll);
    weft_status status = weft_i_lane_of(coll->group, coll->ask.op, true, &coll->lane);
    if (status < 0)
        return weft_i_explain(status, "%s, the first of its group", coll->ask.op);
    if (atomic_load_explicit(&coll->group->fast, memory_order_relaxed)) /* as it is written */
        atomic_store_explicit(&coll->group->fast, NULL, memory_order_relaxed);
    choose(coll);
    uint32_t turns = coll->is_short ? WEFT_I_TURNS : WEFT_I_EAGERS;
    if (!weft_i_lane_has_room(coll->lane, turns)) {
        weft_i_enter_note(coll);
        WEFT_TRY(weft_i_lane_make_room(coll->lane, &coll->label, turns, coll->ask.limit_ms));
    }
    if (coll->algorithm != WEFT_I_ALGO_INLINE)
        weft_i_enter_note_way(coll);
    status = runners[coll->ask.kind](coll);
    if (coll->trial && status == WEFT_OK)
        weft_i_trial_end(coll);
    return status;
}

/* What nobody carries there goes through the host; a carrier that a world names knows no device. */
WEFT_I_HOT static weft_status run_on_device(weft_i_coll *coll)
{
    weft_i_carrier *carrier = NULL;
    weft_status status = WEFT_ERR_UNSUPPORTED;
    if (!coll->group->world->carrier)
        WEFT_TRY(weft_i_carrier_of(coll, &carrier));
    if (carrier && weft_i_carrier_takes(carrier, coll)) {
        weft_i_carrier_note(coll, carrier, WEFT_I_WAY_DEVICE);
        status = weft_i_carrier_run(coll, carrier);
    }
    if (status != WEFT_ERR_UNSUPPORTED)
        return status;
    if (weft_i_kind_is(coll->ask.kind, WEFT_I_SYMMETRIC))
        return carrier ? status
                       : weft_i_fail(status, "%s: nobody carries it on this device", coll->ask.op);
    status = weft_i_through_host(coll, run_on_host);
    weft_i_enter_note(coll);
    weft_i_record_way(weft_i_group_record(coll->group), coll->number, WEFT_I_WAY_HOST);
    return status;
}

WEFT_I_HOT weft_status weft_i_coll_run(weft_i_coll *coll)
{
    WEFT_ASSERT(coll->ask.kind < WEFT_I_COLL_KINDS);
    weft_status status =
        weft_i_device_is_host(coll->ask.device) ? run_on_host(coll) : run_on_device(coll);
    weft_i_enter_note(coll); /* one that never came to its entry */
    weft_i_record_end(weft_i_group_record(coll->group), coll->number, status);
    return status;
}
