/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings and requests of a group by hand: both ends of every ring are in this thread, so that each
 * step is the test's own.  Rank 1 is this rank of the group.
 */
#ifndef WEFT_TESTS_RING_BY_HAND_H
#define WEFT_TESTS_RING_BY_HAND_H

#include "group_by_hand.h"

#include "coll/calls/work.h"

enum { ME = HAND_ME, ROOM = 128 << 10, QUARTER = ROOM / 4, MANY = 48, BIG = ROOM + 4096 };

typedef struct ends {
    weft_i_lane lane[HAND_SIZE];
    weft_i_lane_head *heads;
    weft_i_ring *ring[HAND_SIZE][HAND_SIZE]; /* from, to */
} ends;

typedef struct letter {
    weft_i_p2p_request request;
    weft_i_bundle bundle;
} letter;

static ends all;
static letter letters[MANY];
static int posted;
static unsigned char sent[4][BIG], got[4][BIG];

static void *lines(size_t bytes)
{
    bytes = (bytes + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE;
    void *memory = aligned_alloc(WEFT_I_LINE, bytes);
    CHECK(memory);
    return memset(memory, 0, bytes);
}

static void open_ends(weft_i_cma_way cma)
{
    hand_open();
    memset(&all, 0, sizeof all);
    memset(letters, 0, sizeof letters);
    posted = 0;
    all.heads = lines(HAND_SIZE * sizeof *all.heads);
    for (int from = 0; from < HAND_SIZE; from++)
        for (int to = 0; to < HAND_SIZE; to++)
            all.ring[from][to] = lines(weft_i_ring_bytes(HAND_SIZE));
    for (int me = 0; me < HAND_SIZE; me++) {
        weft_i_lane *lane = &all.lane[me];
        lane->me = me;
        lane->size = HAND_SIZE;
        lane->mode = WEFT_I_WAIT_YIELD;
        lane->cma = cma;
        lane->heads = (char *)all.heads;
        lane->head_stride = sizeof *all.heads;
        CHECK(lane->p2p = weft_i_p2p_new(HAND_SIZE));
        CHECK_INT(lane->p2p->room, ROOM);
        for (int rank = 0; rank < HAND_SIZE; rank++) {
            CHECK_INT(lane->p2p->pairs[rank].rank, rank);
            lane->p2p->pairs[rank].out_ring = all.ring[me][rank];
            lane->p2p->pairs[rank].in_ring = all.ring[rank][me];
        }
    }
    for (int i = 0; i < 4; i++)
        for (int at = 0; at < BIG; at++)
            sent[i][at] =
                (unsigned char)((unsigned)at * 31u + (unsigned)at / 251u + (unsigned)i * 7u + 1u);
    memset(got, 0, sizeof got);
}

static void close_ends(void)
{
    for (int i = 0; i < posted; i++)
        weft_i_os_linux.free(letters[i].request.message);
    for (int from = 0; from < HAND_SIZE; from++) {
        weft_i_p2p_free(all.lane[from].p2p, HAND_SIZE);
        for (int to = 0; to < HAND_SIZE; to++)
            free(all.ring[from][to]);
    }
    free(all.heads);
    hand_close();
}

static weft_i_p2p_peer *pair_of(int me, int other)
{
    return &all.lane[me].p2p->pairs[other];
}

static weft_i_p2p_request request_of(int me, weft_i_coll_kind kind, int peer, int tag, void *data,
                                     size_t bytes)
{
    return (weft_i_p2p_request){.group = hand.group,
                                .lane = &all.lane[me],
                                .kind = kind,
                                .dtype = WEFT_U8,
                                .peer = peer,
                                .source = -1,
                                .tag = tag,
                                .digest = (uint32_t)bytes + 9,
                                .data = data,
                                .bytes = bytes,
                                .limit_ms = 0};
}

static letter *prepare(int me, weft_i_coll_kind kind, int peer, int tag, void *data, size_t bytes)
{
    CHECK(posted < MANY);
    letter *it = &letters[posted++];
    it->request = request_of(me, kind, peer, tag, data, bytes);
    it->bundle = (weft_i_bundle){.count = 1, .requests = &it->request};
    return it;
}

static letter *put(int me, int to, int tag, int which, size_t bytes)
{
    letter *it = prepare(me, WEFT_I_SEND, to, tag, sent[which], bytes);
    weft_i_bundle_enqueue(&it->bundle);
    return it;
}

static letter *take(int me, int from, int tag, int which, size_t bytes)
{
    memset(got[which], 0xee, sizeof got[which]);
    letter *it = prepare(me, WEFT_I_RECV, from, tag, got[which], bytes);
    weft_i_bundle_enqueue(&it->bundle);
    return it;
}

/* To its end, on the lane that its requests were prepared for. */
__attribute__((unused)) static weft_status carry(weft_i_bundle *bundle)
{
    hand.group->lane = bundle->requests->lane;
    weft_status status = weft_i_bundle_carry(bundle);
    hand.group->lane = NULL; /* it is not the group's own */
    return status;
}

static bool is_over(const letter *it)
{
    weft_status status = weft_i_p2p_request_status(&it->request);
    CHECK(status == WEFT_OK || status == WEFT_IN_PROGRESS);
    return status == WEFT_OK;
}

/* All of the message, and nothing behind it. */
static void check_bytes(int which, int of, size_t bytes)
{
    for (size_t at = 0; at < BIG; at++)
        if (got[which][at] != (at < bytes ? sent[of][at] : 0xee))
            FAIL("byte %zu of %zu is %d", at, bytes, got[which][at]);
}

#endif
