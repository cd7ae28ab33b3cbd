/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: requests go into the ring of their peer, in order; see p2p_ring.h for how. */
#include "coll/p2p/p2p.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "coll/lane/cma.h"

/* Looks how far the receiver is. */
static void look(weft_i_p2p_peer *pair)
{
    WEFT_ASSERT(pair->sent - pair->gone <= WEFT_I_RING_SLOTS);
    uint32_t gone = weft_i_ring_taken(pair->out_ring);
    if (gone != pair->gone)
        pair->freed = pair->ends[(gone - 1) % WEFT_I_RING_SLOTS];
    pair->gone = gone;
}

static weft_i_ring_slot *next_slot(weft_i_p2p_peer *pair)
{
    if (pair->sent - pair->gone == WEFT_I_RING_SLOTS)
        look(pair);
    return pair->sent - pair->gone == WEFT_I_RING_SLOTS
               ? NULL
               : weft_i_ring_slot_at(pair->out_ring, pair->sent);
}

static void show(weft_i_p2p_peer *pair, weft_i_ring_slot *slot, const weft_i_p2p_request *request,
                 weft_i_ring_slot_kind kind)
{
    WEFT_ASSERT(pair->sent - pair->gone < WEFT_I_RING_SLOTS); /* the slot is free */
    slot->tag = request->tag;
    slot->kind = (uint16_t)kind;
    pair->ends[pair->sent % WEFT_I_RING_SLOTS] = pair->used;
    weft_i_ring_show(pair->out_ring, pair->sent++, request->digest);
}

static size_t in_lines(size_t bytes)
{
    return (bytes + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE;
}

/* How much of `left` bytes goes into the room as one piece now; 0: it is full.  Pieces of a quarter
 * let sender and receiver copy at the same time; one that would go beyond the end is cut there. */
static size_t fit(weft_i_p2p_peer *pair, size_t room, size_t left)
{
    WEFT_ASSERT(left > 0 && pair->freed <= pair->used && pair->used - pair->freed <= room);
    size_t length =
        weft_i_coll_min(weft_i_coll_min(left, room / 4), room - (size_t)(pair->used % room));
    if (pair->used + in_lines(length) - pair->freed > room)
        look(pair);
    return pair->used + in_lines(length) - pair->freed > room ? 0 : length;
}

static bool put_short(weft_i_p2p_peer *pair, weft_i_p2p_request *request)
{
    WEFT_ASSERT(request->bytes <= WEFT_I_RING_SHORT);
    weft_i_ring_slot *slot = next_slot(pair);
    if (!slot)
        return false;
    if (request->bytes)
        memcpy(slot->text, request->data, request->bytes);
    slot->length = (uint16_t)request->bytes;
    request->done = request->bytes;
    show(pair, slot, request, WEFT_I_RING_SLOT_SHORT);
    return true;
}

static bool put_piece(weft_i_p2p_peer *pair, size_t room, weft_i_p2p_request *request)
{
    WEFT_ASSERT(request->done < request->bytes || !request->bytes);
    weft_i_ring_slot *slot = next_slot(pair);
    size_t length = slot ? fit(pair, room, request->bytes - request->done) : 0;
    if (!length)
        return false;
    size_t at = (size_t)(pair->used % room);
    memcpy(pair->out_ring->room + at, request->data + request->done, length);
    slot->piece = (weft_i_ring_piece){
        .bytes = request->bytes, .at = (uint32_t)at, .length = (uint32_t)length};
    pair->used += in_lines(length);
    show(pair, slot, request, request->done ? WEFT_I_RING_SLOT_NEXT : WEFT_I_RING_SLOT_FIRST);
    request->done += length;
    request->begun = true;
    return true;
}

static int free_rts(const weft_i_p2p_peer *pair)
{
    for (int i = 0; i < WEFT_I_RING_RTS_MAX; i++)
        if (!pair->rts[i])
            return i;
    return -1;
}

static const weft_i_lease *lease_of(const weft_i_p2p_request *request)
{
    return request->tensor ? weft_i_block_lease_of(request->tensor) : NULL;
}

/* Shows the receiver where the message lies; false if that cannot be: then it goes in pieces. */
static bool put_rts(weft_i_p2p_peer *pair, weft_i_p2p_request *request)
{
    int rts = free_rts(pair);
    weft_i_ring_slot *slot = rts >= 0 ? next_slot(pair) : NULL;
    if (!slot)
        return false;
    WEFT_ASSERT(!request->done && !request->rts_sent);
    weft_i_ring_rts(pair->out_ring, (uint32_t)rts);
    slot->piece = (weft_i_ring_piece){.bytes = request->bytes,
                                      .address = (uint64_t)(uintptr_t)request->data,
                                      .rts = (uint32_t)rts};
    const weft_i_lease *lease = lease_of(request);
    if (lease) { /* for a receiver that has mapped that memory too */
        slot->piece.segment = lease->block->segment->key;
        slot->piece.offset = (uint64_t)(request->data - lease->block->segment->base);
    }
    request->rts = (uint32_t)rts;
    request->rts_sent = request->begun = true;
    pair->rts[rts] = request;
    pair->rts_count++;
    show(pair, slot, request, WEFT_I_RING_SLOT_RTS);
    return true;
}

static bool may_rts(const weft_i_lane *lane, const weft_i_p2p_peer *pair,
                    const weft_i_p2p_request *request)
{
    if (request->bytes <= WEFT_I_RING_ROOM || request->done ||
        (lane->cma == WEFT_I_CMA_NONE && pair->rank != lane->me))
        return false;
    /* Half a room is copied twice as quickly as once by the kernel, and waits for nobody. */
    return request->bytes > lane->p2p->room / 2 || lease_of(request);
}

/* Moves a send on.  True: it has left; it is over, or its RTS stands. */
static bool move(const weft_i_lane *lane, weft_i_p2p_peer *pair, weft_i_p2p_request *request,
                 bool *moved)
{
    if (request->bytes <= WEFT_I_RING_SHORT)
        return put_short(pair, request) ? (*moved = true) : false;
    if (may_rts(lane, pair, request) && put_rts(pair, request))
        return *moved = true;
    while (request->done < request->bytes && put_piece(pair, lane->p2p->room, request))
        *moved = true;
    return request->done == request->bytes;
}

static void end_rts(weft_i_p2p_peer *pair)
{
    for (uint32_t i = 0; pair->rts_count && i < WEFT_I_RING_RTS_MAX; i++) {
        weft_i_p2p_request *request = pair->rts[i];
        if (request && weft_i_ring_is_done(pair->out_ring, i)) {
            WEFT_ASSERT(request->rts == i && request->rts_sent);
            pair->rts[i] = NULL;
            pair->rts_count--;
            weft_i_p2p_request_end(request, WEFT_OK);
        }
    }
}

void weft_i_p2p_send(weft_i_lane *lane, weft_i_p2p_peer *pair)
{
    bool moved = false;
    if (pair->rts_count)
        end_rts(pair);
    for (weft_i_p2p_request *request;
         (request = pair->sends) && move(lane, pair, request, &moved);) {
        weft_i_p2p_request_remove(&pair->sends, &pair->last_send, request);
        if (!request->rts_sent)
            weft_i_p2p_request_end(request, WEFT_OK);
    }
    if (pair->far)
        weft_i_p2p_send_slots(pair);
    else if (moved)
        weft_i_p2p_wake(lane, pair->rank);
}

bool weft_i_p2p_withdraw(const weft_i_lane *lane, weft_i_p2p_peer *pair,
                         const weft_i_p2p_request *request)
{
    /* A thread that copies ends soon; a process may have been stopped. */
    bool force = lane->cma != WEFT_I_CMA_THREADS;
    while (!weft_i_ring_withdraw(pair->out_ring, request->rts, force))
        WEFT_OS->yield();
    WEFT_ASSERT(pair->rts[request->rts] == request && pair->rts_count > 0);
    pair->rts[request->rts] = NULL;
    pair->rts_count--;
    return !weft_i_ring_is_done(pair->out_ring, request->rts);
}
