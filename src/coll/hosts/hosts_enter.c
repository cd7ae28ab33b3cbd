/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of a collective between hosts; see hosts.h. */
#include "coll/hosts/hosts.h"

#include "base/report/status.h"
#include "coll/lane/enter.h"
#include "fabric/group/hosts_pads.h"
#include "fabric/group/quarrel.h"

/* A rank that calls something else than we do; -1: those that came do not differ from us. */
static int find_other(const weft_i_coll *coll, const weft_i_meeting *meeting,
                      const weft_i_signature *mine, weft_i_signature *theirs)
{
    for (int i = 0; i < coll->lane->size; i++) {
        int rank = (meeting->culprit > 0 ? meeting->culprit + i : i) % coll->lane->size;
        weft_i_hosts_card card;
        /* Acquire: pairs with the release of its arrival, or of the copy of that; the note came before. */
        uint64_t word =
            atomic_load_explicit(weft_i_point_word(&coll->lane->entry, rank), memory_order_acquire);
        if (rank == coll->lane->me || weft_i_arrival_epoch(word) != meeting->epoch)
            continue;
        memcpy(&card, weft_i_hosts_note(coll->group, WEFT_I_HOSTS_LANE, rank, meeting->epoch),
               sizeof card);
        *theirs = card.signature;
        if (!weft_i_signature_same(theirs, mine))
            return rank;
    }
    return -1;
}

/* Tells both calls, and the others, who may not see them any more. */
static weft_status fail_mismatch(weft_i_coll *coll, const weft_i_meeting *meeting)
{
    weft_i_lane *lane = coll->lane;
    const weft_i_signature *mine = weft_i_lane_signature(lane, lane->me, lane->epoch + 1);
    weft_i_signature theirs;
    char ours[WEFT_I_SIGNATURE_TEXT], other_text[WEFT_I_SIGNATURE_TEXT];
    if (weft_i_quarrel_told(coll->group))
        WEFT_TRY(weft_i_group_check_revoked(&coll->label));
    int other = find_other(coll, meeting, mine, &theirs);
    weft_i_signature_text(mine, ours, sizeof ours);
    weft_i_group_concerns(coll->group);
    if (other < 0)
        return weft_i_fail(
            WEFT_ERR_MISMATCH,
            "group \"%s\", operation %u: rank %d calls %s; others call something else",
            coll->group->name, lane->epoch + 1, lane->me, ours);
    weft_i_signature_text(&theirs, other_text, sizeof other_text);
    weft_i_quarrel_tell(coll->group, ours, other, other_text);
    return weft_i_fail(WEFT_ERR_MISMATCH,
                       "group \"%s\", operation %u: rank %d calls %s, but rank %d calls %s",
                       coll->group->name, lane->epoch + 1, lane->me, ours, other, other_text);
}

/* The notes are overwritten two meetings later, so they are copied. */
static void read_cards(weft_i_coll *coll, uint32_t epoch)
{
    weft_i_lane *lane = coll->lane;
    weft_i_remote_enter(coll->group->world->remote); /* for place, in ferry.c */
    for (int rank = 0; rank < lane->size; rank++) {
        weft_i_hosts_card *card = (weft_i_hosts_card *)(void *)lane->ferry->notes + rank;
        memcpy(card, weft_i_hosts_note(coll->group, WEFT_I_HOSTS_LANE, rank, epoch), sizeof *card);
        lane->factors[rank] = card->factor;
        lane->ferry->partner[rank].attempt = (uint32_t)card->attempt;
    }
    weft_i_remote_give(coll->group->world->remote);
}

static void fill_card(weft_i_coll *coll, const void *data, size_t bytes, weft_i_hosts_card *card)
{
    weft_i_lane *lane = coll->lane;
    weft_i_signature *mine = weft_i_lane_signature(lane, lane->me, lane->epoch + 1);
    memset(card, 0, sizeof *card);
    weft_i_coll_put_signature(mine, coll);
    /* Relaxed: the arrival carries it. */
    atomic_store_explicit(&mine->shown, lane->epoch + 1, memory_order_relaxed);
    card->signature = *mine;
    card->factor = coll->ask.factor;
    card->attempt = ++lane->ferry->attempts;
    if (bytes)
        memcpy(card->data, data, bytes);
}

/* The lane of the members here, once all are known to be in one call. */
static weft_status open_near(weft_i_coll *coll)
{
    weft_group *near = coll->group->hosts->near;
    weft_i_lane *lane;
    if (near->size == 1 || near->lane)
        return WEFT_OK;
    weft_status status = weft_i_lane_of(near, coll->ask.op, true, &lane);
    if (status < 0)
        weft_i_group_spoil(coll->group, status);
    return status < 0 ? weft_i_explain(status, "%s, the first of its group", coll->ask.op)
                      : WEFT_OK;
}

static weft_status enter(weft_i_coll *coll, const void *data, size_t bytes, int moves)
{
    weft_i_lane *lane = coll->lane;
    weft_i_hosts_card card;
    weft_i_meeting meeting = {.culprit = -1};
    uint32_t digest = weft_i_digest(lane->chain, coll->digest);
    WEFT_ASSERT(bytes <= WEFT_I_HOSTS_SHOWN);
    weft_i_enter_note(coll);
    fill_card(coll, data, bytes, &card);
    weft_status status = weft_i_group_check_revoked(&coll->label);
    if (status == WEFT_OK)
        status = weft_i_hosts_settle(&coll->label, WEFT_I_HOSTS_PUT_TO_ALL, coll->ask.limit_ms);
    if (status == WEFT_OK)
        status = weft_i_hosts_come(coll->group, &lane->entry, digest, &card, sizeof card, &meeting);
    if (status == WEFT_OK && moves)
        weft_i_ferry_send_early(coll, moves);
    if (status == WEFT_OK)
        status = weft_i_hosts_await(&coll->label, &lane->entry, &lane->at_entry, coll->ask.limit_ms,
                                    &meeting);
    if (status == WEFT_ERR_MISMATCH)
        status = fail_mismatch(coll, &meeting);
    if (status < 0) {
        if (weft_status_scope(status) == WEFT_SCOPE_GROUP)
            weft_i_group_spoil(coll->group, status);
        return status;
    }
    read_cards(coll, meeting.epoch);
    lane->chain = digest;
    lane->ferry->prepared = moves;
    lane->settled = ++lane->epoch;
    /* Relaxed: see fabric/group/quarrel.c. */
    atomic_store_explicit(lane->entered, lane->epoch, memory_order_relaxed);
    return open_near(coll);
}

weft_status weft_i_hosts_enter(weft_i_coll *coll, const void *data, size_t bytes)
{
    return enter(coll, data, bytes, 0);
}

weft_status weft_i_hosts_enter_moving(weft_i_coll *coll, int moves)
{
    return enter(coll, NULL, 0, moves);
}

weft_status weft_i_hosts_barrier(weft_i_coll *coll)
{
    return weft_i_hosts_enter(coll, NULL, 0);
}
