/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving: the messages in the ring of a peer are read in order, and each goes to the receive
 * that was posted first of those it matches.  One that matches none stays in the ring as long as
 * no receive waits for what may lie behind it; then it is kept aside.
 */
#include "base/os/assert.h"
#include "coll/p2p/p2p.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "coll/lane/cma.h"

#include <stdio.h>

/* ---- the end of a message ---- */

/* The segment in which the message of an RTS lies, held, if this process has mapped it; or NULL. */
static weft_i_segment *find_segment(const weft_i_ring_piece *piece)
{
    weft_i_segment *segment = piece->segment.word[0] ? weft_i_segment_find(piece->segment) : NULL;
    if (segment &&
        (piece->offset > segment->bytes || piece->bytes > segment->bytes - piece->offset)) {
        weft_i_segment_drop(segment);
        return NULL;
    }
    return segment;
}

/* Copies memory that a peer has sent an RTS for: from `near` if that is not NULL.  WEFT_IN_PROGRESS: the RTS
 * was withdrawn. */
static weft_status copy_rts(weft_i_lane *lane, const weft_i_p2p_peer *pair,
                            weft_i_p2p_request *request, uint64_t address, const char *near)
{
    enum { PART = 16 << 20 }; /* between looks at whether the RTS still stands */
    weft_i_label label = {request->group, weft_i_coll_name(request->kind), -1};
    weft_status status = WEFT_OK;
    while (request->done < request->bytes) {
        size_t part = weft_i_coll_min(request->bytes - request->done, PART);
        if (!weft_i_ring_claim(pair->in_ring, request->rts))
            return WEFT_IN_PROGRESS;
        if (near)
            memcpy(request->data + request->done, near + request->done, part);
        else
            status = weft_i_cma(lane, &label, pair->rank, request->data + request->done,
                                address + request->done, part);
        request->done += status == WEFT_OK ? part : 0;
        if (!weft_i_ring_give_back(pair->in_ring, request->rts, request->done == request->bytes))
            return WEFT_IN_PROGRESS;
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

static void take_rts(weft_i_lane *lane, weft_i_p2p_peer *pair, weft_i_p2p_request *request,
                     const weft_i_ring_piece *piece)
{
    WEFT_ASSERT(!request->rts_sent && request->done == 0);
    request->rts = piece->rts;
    request->begun = true;
    weft_i_segment *segment = find_segment(piece);
    weft_status status = copy_rts(lane, pair, request, piece->address,
                                  segment ? segment->base + piece->offset : NULL);
    weft_i_segment_drop(segment);
    if (status == WEFT_OK) {
        weft_i_p2p_request_end(request, WEFT_OK);
        weft_i_p2p_wake(lane, pair->rank);
        return;
    }
    pair->broken = true;
    if (status < 0)
        weft_i_p2p_request_end_failed(request);
    else
        pair->taking = request; /* withdrawn: the group is lost, which whoever waits will find */
}

/* ---- which receive ---- */

static weft_i_p2p_request *first_with(weft_i_p2p_request *request, int tag)
{
    while (request && request->tag != tag)
        request = request->next;
    return request;
}

/* The receive that gets a message with this tag: the first that was posted.  NULL: none. */
static weft_i_p2p_request *find_receive(const weft_i_lane *lane, const weft_i_p2p_peer *pair,
                                        int tag)
{
    weft_i_p2p_request *own = first_with(pair->receives, tag);
    weft_i_p2p_request *any = first_with(lane->p2p->any, tag);
    return !any || (own && own->order < any->order) ? own : any;
}

/* The request has met its message. */
static void take_out(weft_i_lane *lane, weft_i_p2p_peer *pair, weft_i_p2p_request *request)
{
    if (request->peer == WEFT_ANY)
        weft_i_p2p_request_remove(&lane->p2p->any, &lane->p2p->last_any, request);
    else
        weft_i_p2p_request_remove(&pair->receives, &pair->last_receive, request);
    WEFT_ASSERT(request->source < 0); /* a receive meets one message */
    request->source = pair->rank;
}

static void refuse(weft_i_p2p_peer *pair, weft_i_p2p_request *request, uint64_t bytes)
{
    weft_i_group_concerns(request->group);
    weft_i_fail(WEFT_ERR_MISMATCH,
                "recv in group \"%s\": rank %d sends %llu bytes, rank %d expects %zu bytes of %s%s",
                request->group->name, pair->rank, (unsigned long long)bytes, request->group->rank,
                request->bytes, weft_dtype_name(request->dtype),
                bytes == request->bytes ? "; the dtypes differ" : "");
    request->begun = pair->broken = true; /* the message stays where it is: nothing can follow it */
    /* Pairs with the acquire in `sender_lost`. */
    atomic_store_explicit(&pair->in_ring->refused, request->bytes + 1, memory_order_release);
    weft_i_p2p_tell_refused(pair, request->bytes + 1);
    weft_i_p2p_request_end_failed(request);
}

/* ---- messages kept aside ---- */

static void forget(weft_i_p2p_peer *pair, weft_i_kept *kept)
{
    weft_i_kept **at = &pair->kept;
    while (*at != kept)
        at = &(*at)->next;
    *at = kept->next;
    if (!*at)
        pair->last_kept = at;
    WEFT_OS->free(kept);
}

/* Hands a kept message to its receive, which is in no list. */
static void deliver(weft_i_lane *lane, weft_i_p2p_peer *pair, weft_i_kept *kept,
                    weft_i_p2p_request *request)
{
    request->source = pair->rank;
    if (kept->bytes != request->bytes || kept->digest != request->digest) {
        refuse(pair, request, kept->bytes);
    } else if (kept->rts_sent) {
        take_rts(lane, pair, request, &kept->rts);
    } else {
        weft_i_coll_put(request->data, kept->data, request->bytes);
        weft_i_p2p_request_end(request, WEFT_OK);
    }
    forget(pair, kept);
}

bool weft_i_p2p_take_kept(weft_i_lane *lane, weft_i_p2p_peer *pair, weft_i_p2p_request *request)
{
    weft_i_kept *kept = pair->kept;
    while (kept && (kept->tag != request->tag || kept == pair->keeping))
        kept = kept->next;
    if (!kept || pair->broken)
        return false;
    deliver(lane, pair, kept, request);
    return true;
}

static void keep_piece(weft_i_lane *lane, weft_i_p2p_peer *pair, const weft_i_ring_slot *slot)
{
    weft_i_kept *kept = pair->keeping;
    memcpy(kept->data + kept->done, pair->in_ring->room + slot->piece.at, slot->piece.length);
    weft_i_p2p_count_piece(pair, slot->piece.length);
    kept->done += slot->piece.length;
    if (kept->done < kept->bytes)
        return;
    pair->keeping = NULL;
    weft_i_p2p_request *request = find_receive(lane, pair, kept->tag); /* posted meanwhile */
    if (request) {
        take_out(lane, pair, request);
        deliver(lane, pair, kept, request);
    }
}

static uint64_t bytes_of(const weft_i_ring_slot *slot)
{
    return slot->kind == WEFT_I_RING_SLOT_SHORT ? slot->length : slot->piece.bytes;
}

/* Without memory for it a receive that waits for something behind it fails. */
static void fail_keep(weft_i_lane *lane, weft_i_p2p_peer *pair, uint64_t bytes, int tag)
{
    weft_i_p2p_request *request = pair->receives ? pair->receives : lane->p2p->any;
    weft_i_fail(WEFT_ERR_NO_MEMORY,
                "recv in group \"%s\": no memory to put aside a message of %llu bytes with tag %d "
                "of rank %d, which came before the one waited for",
                request->group->name, (unsigned long long)bytes, tag, pair->rank);
    take_out(lane, pair, request);
    weft_i_p2p_request_end_failed(request);
}

static bool keep(weft_i_lane *lane, weft_i_p2p_peer *pair, const weft_i_ring_slot *slot,
                 uint32_t digest)
{
    uint64_t bytes = bytes_of(slot);
    bool rts_sent = slot->kind == WEFT_I_RING_SLOT_RTS;
    weft_i_kept *kept = WEFT_OS->alloc(sizeof *kept + (rts_sent ? 0 : (size_t)bytes));
    if (!kept) {
        fail_keep(lane, pair, bytes, slot->tag);
        return false;
    }
    kept->bytes = bytes;
    kept->tag = slot->tag;
    kept->digest = digest;
    kept->rts_sent = rts_sent;
    *pair->last_kept = kept;
    pair->last_kept = &kept->next;
    if (rts_sent) {
        kept->rts = slot->piece;
    } else if (slot->kind == WEFT_I_RING_SLOT_SHORT) {
        memcpy(kept->data, slot->text, bytes);
    } else {
        pair->keeping = kept;
        keep_piece(lane, pair, slot);
    }
    return true;
}

/* ---- slots ---- */

static void count_slot(weft_i_p2p_peer *pair)
{
    uint32_t taken = weft_i_p2p_taken(pair) + 1;
    /* Relaxed: under the lock. */
    atomic_store_explicit(&pair->taken, taken, memory_order_relaxed);
    weft_i_ring_take(pair->in_ring, taken);
}

static void take_piece(weft_i_p2p_peer *pair, weft_i_p2p_request *request,
                       const weft_i_ring_slot *slot)
{
    memcpy(request->data + request->done, pair->in_ring->room + slot->piece.at, slot->piece.length);
    weft_i_p2p_count_piece(pair, slot->piece.length);
    request->done += slot->piece.length;
    request->begun = true;
    pair->taking = request->done < request->bytes ? request : NULL;
}

/* The slot was read; the message may be complete with it. */
static void end_slot(weft_i_p2p_peer *pair, weft_i_p2p_request *request)
{
    count_slot(pair);
    if (!pair->taking)
        weft_i_p2p_request_end(request, WEFT_OK);
}

/* A message begins, and a receive waits for it. */
static bool open_for(weft_i_lane *lane, weft_i_p2p_peer *pair, weft_i_p2p_request *request,
                     const weft_i_ring_slot *slot, uint32_t digest)
{
    take_out(lane, pair, request);
    if (bytes_of(slot) != request->bytes || digest != request->digest) {
        refuse(pair, request, bytes_of(slot));
        return false;
    }
    if (slot->kind == WEFT_I_RING_SLOT_RTS) {
        weft_i_ring_piece piece = slot->piece;
        count_slot(pair);
        take_rts(lane, pair, request, &piece);
        return true;
    }
    if (slot->kind == WEFT_I_RING_SLOT_SHORT)
        weft_i_coll_put(request->data, (const char *)slot->text, request->bytes);
    else
        take_piece(pair, request, slot);
    end_slot(pair, request);
    return true;
}

/* Reads a slot; false if it stays where it is. */
static bool read_slot(weft_i_lane *lane, weft_i_p2p_peer *pair, const weft_i_ring_slot *slot,
                      uint32_t digest)
{
    weft_i_p2p_request *request = pair->taking;
    if (request) {
        take_piece(pair, request, slot);
        end_slot(pair, request);
        return true;
    }
    if (pair->keeping) {
        keep_piece(lane, pair, slot);
    } else {
        request = find_receive(lane, pair, slot->tag);
        if (request)
            return open_for(lane, pair, request, slot, digest);
        WEFT_ASSERT(pair->receives || lane->p2p->any); /* for whom the message makes way */
        if (!keep(lane, pair, slot, digest))
            return false;
    }
    count_slot(pair);
    return true;
}

void weft_i_p2p_receive(weft_i_lane *lane, weft_i_p2p_peer *pair)
{
    bool moved = false;
    uint32_t digest;
    const weft_i_ring_slot *slot;
    while (!pair->broken && (pair->taking || pair->keeping || pair->receives || lane->p2p->any) &&
           (slot = weft_i_ring_look(pair->in_ring, weft_i_p2p_taken(pair), &digest)) &&
           read_slot(lane, pair, slot, digest))
        moved = true;
    if (moved && pair->far)
        weft_i_p2p_tell_taken(lane, pair);
    else if (moved)
        weft_i_p2p_wake(lane, pair->rank);
}
