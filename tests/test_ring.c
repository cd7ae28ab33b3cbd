/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and rings without other ranks: both ends of every ring are in this thread, so that each step is the test's
 * own.  What lies in a slot, in which piece, what waits for room, what is put aside, and whom a request tells when its
 * peer is gone.  Rank 1 is that of the group by hand.
 */
#include "group_by_hand.h"

#include "base/log.h"
#include "coll/work.h"

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

/* ---- slots and pieces ---- */

/* As many short messages as there are slots go out before anybody receives; the next waits for one. */
TEST(test_ring_slots)
{
    open_ends(WEFT_I_CMA_NONE);
    const weft_i_ring *ring = all.ring[0][ME];
    for (int i = 0; i < WEFT_I_RING_SLOTS; i++)
        CHECK(is_over(put(0, ME, i, i % 4, 3)));
    CHECK_INT(pair_of(0, ME)->sent, WEFT_I_RING_SLOTS);
    letter *late = put(0, ME, 77, 1, WEFT_I_RING_SHORT), *last = put(0, ME, 78, 2, 0);
    CHECK(!is_over(late) && !is_over(last));
    CHECK(weft_i_p2p_push(&all.lane[0]));
    CHECK(!is_over(late) && weft_i_p2p_is_left_alone(&all.lane[0]));
    CHECK(is_over(take(ME, 0, 0, 0, 3)));
    check_bytes(0, 0, 3);
    CHECK_INT(atomic_load(&ring->taken), 1);
    CHECK(weft_i_p2p_push(&all.lane[0]));
    CHECK(is_over(late) && !is_over(last));
    CHECK_INT(ring->slots[0].kind, WEFT_I_RING_SLOT_SHORT);
    CHECK_INT(ring->slots[0].tag, 77);
    CHECK_INT(ring->slots[0].length, WEFT_I_RING_SHORT);
    CHECK(is_over(take(ME, 0, 1, 0, 3)));
    CHECK(!weft_i_p2p_push(&all.lane[0]) && is_over(last));
    CHECK(!weft_i_p2p_is_left_alone(&all.lane[0]));
    letter *of_late = take(ME, 0, 77, 1, WEFT_I_RING_SHORT); /* those before it are put aside */
    CHECK(is_over(of_late) && of_late->request.source == 0);
    check_bytes(1, 1, WEFT_I_RING_SHORT);
    CHECK(is_over(take(ME, 0, 78, 2, 0)));
    for (int i = 2; i < WEFT_I_RING_SLOTS; i++) {
        CHECK(is_over(take(ME, 0, i, 0, 3)));
        check_bytes(0, i % 4, 3);
        posted--;
    }
    CHECK(!pair_of(ME, 0)->kept && pair_of(ME, 0)->last_kept == &pair_of(ME, 0)->kept);
    close_ends();
}

static void check_piece(int slot, weft_i_ring_slot_kind kind, size_t bytes, size_t at,
                        size_t length)
{
    const weft_i_ring_slot *it = &all.ring[0][ME]->slots[slot];
    CHECK_INT(it->kind, kind);
    CHECK_INT(it->piece.bytes, bytes);
    CHECK_INT(it->piece.at, at);
    CHECK_INT(it->piece.length, length);
}

/* Pieces of a quarter of the room, cut at its end; the room of whole lines is free again when its slot is taken. */
TEST(test_ring_pieces)
{
    enum { FIRST = 257, LINES = 384 }; /* one byte in the last line */
    open_ends(WEFT_I_CMA_NONE);
    CHECK(is_over(put(0, ME, 1, 0, FIRST)));
    letter *big = put(0, ME, 2, 1, ROOM);
    CHECK(!is_over(big));
    check_piece(0, WEFT_I_RING_SLOT_FIRST, FIRST, 0, FIRST);
    check_piece(1, WEFT_I_RING_SLOT_FIRST, ROOM, LINES, QUARTER);
    check_piece(2, WEFT_I_RING_SLOT_NEXT, ROOM, LINES + QUARTER, QUARTER);
    check_piece(3, WEFT_I_RING_SLOT_NEXT, ROOM, LINES + 2 * QUARTER, QUARTER);
    check_piece(4, WEFT_I_RING_SLOT_NEXT, ROOM, LINES + 3 * QUARTER, QUARTER - LINES);
    CHECK_INT(pair_of(0, ME)->sent, 5);
    CHECK(weft_i_p2p_push(&all.lane[0])); /* nobody has taken anything */
    CHECK_INT(pair_of(0, ME)->sent, 5);
    CHECK(is_over(take(ME, 0, 1, 0, FIRST)));
    check_bytes(0, 0, FIRST);
    CHECK(!weft_i_p2p_push(&all.lane[0])); /* what it has left is just what is missing */
    CHECK(is_over(big) && big->request.done == ROOM);
    check_piece(5, WEFT_I_RING_SLOT_NEXT, ROOM, 0, LINES);
    CHECK(!is_over(put(0, ME, 3, 2, WEFT_I_RING_SHORT + 1))); /* and now there is none */
    CHECK_INT(pair_of(0, ME)->sent, 6);
    CHECK(is_over(take(ME, 0, 2, 1, ROOM)));
    check_bytes(1, 1, ROOM);
    CHECK(!weft_i_p2p_push(&all.lane[0]));
    check_piece(6, WEFT_I_RING_SLOT_FIRST, WEFT_I_RING_SHORT + 1, LINES, WEFT_I_RING_SHORT + 1);
    CHECK(is_over(take(ME, 0, 3, 2, WEFT_I_RING_SHORT + 1)));
    check_bytes(2, 2, WEFT_I_RING_SHORT + 1);
    CHECK_INT(pair_of(0, ME)->used, ROOM + LINES + WEFT_I_LINE);
    close_ends();
}

static bool rings(int rank)
{
    return !atomic_exchange(&all.heads[rank].p2p_bell, 1);
}

/* Whoever moves something wakes the other end, and who waits for the request here; nobody is woken for nothing. */
TEST(test_ring_bells)
{
    open_ends(WEFT_I_CMA_THREADS);
    for (int rank = 0; rank < HAND_SIZE; rank++)
        CHECK(!rings(rank) || atomic_load(&all.heads[rank].p2p_bell));
    for (int i = 0; i < 3; i++) {
        size_t bytes = i == 0 ? 8 : i == 1 ? 1000 : ROOM; /* a slot, a piece, an RTS */
        letter *from = put(0, ME, 1, 0, bytes);
        CHECK(rings(ME) && rings(0) == (i < 2) && !rings(2));
        weft_i_p2p_push(&all.lane[ME]);
        CHECK(!rings(ME) && !rings(0)); /* no receive, nothing moves */
        CHECK(is_over(take(ME, 0, 1, 0, bytes)));
        CHECK(rings(ME) && rings(0) && !rings(2) && !rings(3));
        weft_i_p2p_push(&all.lane[0]);
        CHECK(is_over(from) && rings(0) == (i == 2) && !rings(ME));
    }
    close_ends();
}

static int yields;

static void yield_then_unlock(void)
{
    if (++yields == 3)
        weft_i_p2p_unlock(&all.lane[ME]);
}

/* Who finds the lock taken waits until it is given back. */
TEST(test_ring_lock)
{
    static weft_i_os table;
    open_ends(WEFT_I_CMA_NONE);
    table = weft_i_os_linux;
    table.yield = yield_then_unlock;
    weft_i_os_now = &table;
    weft_i_p2p_lock(&all.lane[ME]);
    CHECK_INT(yields, 0);
    weft_i_p2p_lock(&all.lane[ME]);
    CHECK_INT(yields, 3);
    CHECK(!weft_i_p2p_try_lock(&all.lane[ME]));
    weft_i_p2p_unlock(&all.lane[ME]);
    weft_i_os_now = &weft_i_os_linux;
    close_ends();
}

static int frees;

static void count_free(void *memory)
{
    frees += memory != NULL;
    weft_i_os_linux.free(memory);
}

/* What was put aside for receives that never came goes with the lane. */
TEST(test_ring_freed)
{
    static weft_i_os table;
    open_ends(WEFT_I_CMA_NONE);
    for (int rank = 0; rank < HAND_SIZE; rank += 3) {
        put(rank, ME, 1, 0, 8), put(rank, ME, 1, 0, 8), put(rank, ME, 2, 0, 8);
        CHECK(is_over(take(ME, rank, 2, 0, 8)));
    }
    table = weft_i_os_linux;
    table.free = count_free;
    weft_i_os_now = &table;
    weft_i_p2p_free(all.lane[ME].p2p, HAND_SIZE);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(frees, 2 * 2 + 1);
    all.lane[ME].p2p = NULL;
    close_ends();
}

/* A receive that has met its message gets the pieces as they come, whoever pushes. */
TEST(test_ring_receive_in_pieces)
{
    open_ends(WEFT_I_CMA_NONE);
    letter *to = take(ME, 0, 5, 0, BIG), *from = put(0, ME, 5, 1, BIG);
    CHECK(!is_over(to) && !is_over(from) && !to->request.begun);
    CHECK(weft_i_p2p_push(&all.lane[ME]));
    CHECK(to->request.begun && to->request.done == ROOM && pair_of(ME, 0)->taking == &to->request);
    CHECK(!pair_of(ME, 0)->receives && to->request.source == 0);
    CHECK(!weft_i_p2p_push(&all.lane[0]) && is_over(from));
    CHECK(!weft_i_p2p_push(&all.lane[ME]) && is_over(to) && !pair_of(ME, 0)->taking);
    check_bytes(0, 1, BIG);
    CHECK(!pair_of(ME, 0)->busy && !all.lane[ME].p2p->busy && !all.lane[0].p2p->busy);
    close_ends();
}

/* ---- ready to send ---- */

/* More than half a room stays where it is, where the ranks can read each other's memory. */
TEST(test_ring_rts)
{
    open_ends(WEFT_I_CMA_THREADS);
    CHECK(is_over(put(0, ME, 1, 0, ROOM / 2)));
    CHECK_INT(all.ring[0][ME]->slots[0].kind, WEFT_I_RING_SLOT_FIRST);
    letter *large = put(0, ME, 2, 1, ROOM / 2 + 1);
    const weft_i_ring_slot *slot = &all.ring[0][ME]->slots[2];
    CHECK(!is_over(large) && large->request.rts_sent && large->request.begun);
    CHECK_INT(slot->kind, WEFT_I_RING_SLOT_RTS);
    CHECK_INT(slot->piece.bytes, ROOM / 2 + 1);
    CHECK(slot->piece.address == (uintptr_t)sent[1] && !slot->piece.segment.word[0]);
    CHECK(!pair_of(0, ME)->sends && pair_of(0, ME)->rts_count == 1);
    CHECK(is_over(take(ME, 0, 2, 0, ROOM / 2 + 1))); /* the other message makes way */
    check_bytes(0, 1, ROOM / 2 + 1);
    CHECK(!weft_i_p2p_push(&all.lane[0]) && is_over(large) && !pair_of(0, ME)->rts_count);
    CHECK(is_over(take(ME, 0, 1, 1, ROOM / 2)));
    check_bytes(1, 0, ROOM / 2);
    all.lane[ME].cma = WEFT_I_CMA_NONE;
    CHECK(!put(ME, 0, 3, 0, ROOM)->request.rts_sent);
    letter *self = put(ME, ME, 3, 2, ROOM); /* one's own memory can always be read */
    CHECK(self->request.rts_sent && is_over(take(ME, ME, 3, 2, ROOM)));
    check_bytes(2, 2, ROOM);
    close_ends();
}

/* Eight at a time; one more goes in pieces, behind them. */
TEST(test_ring_rts_all_taken)
{
    open_ends(WEFT_I_CMA_THREADS);
    letter *large[WEFT_I_RING_RTS_MAX];
    for (int i = 0; i < WEFT_I_RING_RTS_MAX; i++) {
        large[i] = put(0, ME, 1, i % 4, ROOM);
        CHECK(large[i]->request.rts_sent);
        CHECK_INT(large[i]->request.rts, i);
    }
    letter *ninth = put(0, ME, 1, 1, ROOM);
    CHECK(!ninth->request.rts_sent && ninth->request.done == ROOM && is_over(ninth));
    for (int i = 0; i < WEFT_I_RING_RTS_MAX; i++) {
        CHECK(is_over(take(ME, 0, 1, 0, ROOM)));
        check_bytes(0, i % 4, ROOM);
        CHECK(weft_i_p2p_push(&all.lane[0]) == (i < WEFT_I_RING_RTS_MAX - 1) && is_over(large[i]));
        if (i == 2) {
            letter *tenth = put(0, ME, 2, 3, ROOM); /* in the place of the first */
            CHECK(tenth->request.rts_sent && tenth->request.rts == 0);
            CHECK(weft_i_ring_withdraw(all.ring[0][ME], 0, false)); /* not part of this */
            pair_of(0, ME)->rts[0] = NULL;
            pair_of(0, ME)->rts_count--;
            atomic_fetch_sub(&all.lane[0].p2p->under_way, 1);
        }
    }
    CHECK(is_over(take(ME, 0, 1, 0, ROOM)));
    check_bytes(0, 1, ROOM);
    close_ends();
}

/* In memory that this process has mapped, if the message lies within it; otherwise at its address. */
TEST(test_ring_rts_in_a_segment)
{
    enum { BYTES = ROOM / 2 + 1 };
    weft_i_segment *owned = NULL, *segment = NULL;
    open_ends(WEFT_I_CMA_THREADS);
    CHECK_OK(weft_i_segment_new(BYTES + 4096, WEFT_I_BETWEEN_PROCESSES, "test", &owned));
    CHECK_OK(weft_i_segment_map(owned->fd, owned->bytes, owned->key, &segment));
    size_t bytes = segment->bytes;
    memcpy(segment->base + bytes - BYTES, sent[3], BYTES);
    const struct {
        uint64_t offset;
        int of;
    } cases[] = {
        {bytes - BYTES, 3}, {bytes - BYTES + 1, 1}, {bytes, 1}, {bytes + 1, 1}, {UINT64_MAX, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(0, ME, 1, 1, BYTES);
        weft_i_ring_slot *slot = &all.ring[0][ME]->slots[i];
        slot->piece.segment = segment->key;
        slot->piece.offset = cases[i].offset;
        CHECK(is_over(take(ME, 0, 1, 0, BYTES)));
        check_bytes(0, cases[i].of, BYTES);
        weft_i_p2p_push(&all.lane[0]);
    }
    weft_i_key key = segment->key;
    weft_i_segment_drop(segment);
    CHECK(!weft_i_segment_find(key)); /* nobody holds it any more */
    weft_i_segment_drop(owned);
    close_ends();
}

/* ---- giving up ---- */

static int64_t looks, done_at;

/* The receiver takes the message just as the deadline passes. */
static int64_t clock_then_done(void)
{
    if (++looks == done_at)
        atomic_store(&all.ring[ME][0]->rts[0].state, WEFT_I_RTS_DONE);
    return looks;
}

/* A message that was taken at the last moment has arrived; otherwise nobody reads it after its sender has given up. */
TEST(test_ring_withdrawn)
{
    static weft_i_os table;
    open_ends(WEFT_I_CMA_THREADS);
    table = weft_i_os_linux;
    table.clock_ns = clock_then_done;
    weft_i_os_now = &table;
    looks = 0;
    done_at = 2; /* the first is for the deadline */
    CHECK_OK(weft_i_bundle_carry(&prepare(ME, WEFT_I_SEND, 0, 1, sent[0], ROOM)->bundle));
    CHECK(looks >= done_at && !pair_of(ME, 0)->rts_count && !weft_i_group_has_ended(hand.group));
    done_at = 0;
    letter *late = prepare(ME, WEFT_I_SEND, 0, 2, sent[0], ROOM);
    weft_status status = weft_i_bundle_carry(&late->bundle);
    weft_i_os_now = &weft_i_os_linux;
    late->request.message = NULL;
    hand_said(status, WEFT_ERR_TIMEOUT, "send of 131072 bytes, tag 2, is still under way");
    CHECK_INT(atomic_load(&all.ring[ME][0]->rts[0].state), WEFT_I_RTS_WITHDRAWN);
    CHECK(!pair_of(ME, 0)->rts_count && !pair_of(ME, 0)->rts[0]);
    CHECK(weft_i_group_has_ended(hand.group)); /* the receiver counts on it */
    CHECK_INT(all.lane[ME].p2p->under_way, 0);
    letter *to = take(0, ME, 2, 1, ROOM); /* which finds it gone, and does not end it well */
    CHECK(!is_over(take(0, ME, 1, 0, ROOM)) && !is_over(to));
    check_bytes(1, 1, 0);
    close_ends();
}

/* Out of each list in which a request may wait; those around it stay. */
TEST(test_ring_given_up)
{
    open_ends(WEFT_I_CMA_NONE);
    letter *before = take(ME, 0, 1, 0, 8), *any = take(ME, WEFT_ANY, 2, 1, 8);
    for (int i = 0; i < 2; i++) {
        letter *late = prepare(ME, WEFT_I_RECV, i ? WEFT_ANY : 0, 1 + i, got[2], 8);
        weft_status status = weft_i_bundle_carry(&late->bundle);
        late->request.message = NULL;
        hand_said(status, WEFT_ERR_TIMEOUT,
                  i ? "recv of 8 bytes, tag 2, is still under way"
                    : "recv of 8 bytes, tag 1, is still under way");
    }
    letter *behind = take(ME, 0, 1, 2, 8), *any_behind = take(ME, WEFT_ANY, 2, 3, 8);
    put(0, ME, 2, 1, 8), put(0, ME, 1, 0, 8), put(0, ME, 1, 2, 8), put(3, ME, 2, 3, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]));
    CHECK(is_over(before) && is_over(any) && is_over(behind) && is_over(any_behind));
    for (int i = 0; i < 4; i++)
        check_bytes(i, i, 8);
    CHECK(!weft_i_group_has_ended(hand.group)); /* nothing had begun */
    letter *half = prepare(ME, WEFT_I_RECV, 0, 4, got[0], BIG);
    CHECK(!is_over(put(0, ME, 4, 0, BIG)));
    weft_status status = weft_i_bundle_carry(&half->bundle);
    half->request.message = NULL;
    CHECK_INT(status, WEFT_ERR_TIMEOUT);
    CHECK(!pair_of(ME, 0)->taking && pair_of(ME, 0)->broken && weft_i_group_has_ended(hand.group));
    CHECK(!is_over(take(ME, 0, 4, 0, BIG)));
    check_bytes(0, 0, 0); /* what is left of it belongs to nobody */
    close_ends();
}

/* ---- messages that make way ---- */

/* One that is not all there yet waits for its end, and then for its receive, whichever is later. */
TEST(test_ring_kept_in_pieces)
{
    for (int early = 0; early < 2; early++) {
        open_ends(WEFT_I_CMA_NONE);
        letter *big = put(0, ME, 1, 0, BIG), *small = put(0, ME, 2, 1, 8);
        letter *second = take(ME, 0, 2, 1, 8); /* begins to put the first aside */
        CHECK(!is_over(second) && !is_over(big) && pair_of(ME, 0)->keeping);
        letter *first = early ? take(ME, 0, 1, 0, BIG) : NULL;
        CHECK(!first || !is_over(first));
        weft_i_p2p_push(&all.lane[0]);
        CHECK(is_over(big) && is_over(small));
        CHECK(!weft_i_p2p_push(&all.lane[ME]) && is_over(second) && !pair_of(ME, 0)->keeping);
        first = first ? first : take(ME, 0, 1, 0, BIG);
        CHECK(is_over(first) && first->request.source == 0);
        check_bytes(0, 0, BIG);
        check_bytes(1, 1, 8);
        CHECK(!pair_of(ME, 0)->kept && pair_of(ME, 0)->last_kept == &pair_of(ME, 0)->kept);
        close_ends();
    }
}

/* From the middle and from both ends of what was put aside, and by a receive from any rank; oldest first. */
TEST(test_ring_kept_any)
{
    open_ends(WEFT_I_CMA_NONE);
    put(0, ME, 1, 0, 9), put(0, ME, 2, 1, 10), put(0, ME, 2, 2, 10), put(0, ME, 3, 3, 9);
    put(0, ME, 9, 0, 0);
    CHECK(is_over(take(ME, 0, 9, 0, 0)));
    CHECK(!is_over(take(ME, WEFT_ANY, 8, 0, 0)));
    letter *any = take(ME, WEFT_ANY, 2, 0, 10);
    CHECK(is_over(any) && any->request.source == 0);
    check_bytes(0, 1, 10);
    CHECK_INT(all.lane[ME].p2p->turn, 1);
    CHECK(is_over(take(ME, 0, 3, 1, 9)));
    check_bytes(1, 3, 9);
    put(0, ME, 4, 0, 7), put(2, ME, 2, 3, 10);
    CHECK(weft_i_p2p_push(&all.lane[ME])); /* puts those aside too */
    any = take(ME, WEFT_ANY, 2, 0, 10);    /* from rank 1 on, so rank 2 is before rank 0 */
    CHECK(is_over(any) && any->request.source == 2 && all.lane[ME].p2p->turn == 3);
    check_bytes(0, 3, 10);
    CHECK(is_over(take(ME, 0, 4, 1, 7)) && is_over(take(ME, 0, 1, 2, 9)));
    check_bytes(1, 0, 7);
    check_bytes(2, 0, 9);
    CHECK(is_over(take(ME, WEFT_ANY, 2, 3, 10)));
    check_bytes(3, 2, 10);
    CHECK(!pair_of(ME, 0)->kept && !pair_of(ME, 2)->kept);
    close_ends();
}

static void *no_memory(size_t bytes)
{
    return bytes == sizeof(weft_i_kept) + 200 ? NULL : weft_i_os_linux.alloc(bytes);
}

/* Without memory to put a message aside, the receive for which it would have made way fails; the message stays. */
TEST(test_ring_no_memory_to_keep)
{
    static weft_i_os table;
    for (int any = 0; any < 2; any++) {
        open_ends(WEFT_I_CMA_NONE);
        table = weft_i_os_linux;
        table.alloc = no_memory;
        weft_i_os_now = &table;
        put(0, ME, 1, 0, 200);
        letter *behind = take(ME, any ? WEFT_ANY : 0, 2, 1, 8);
        weft_i_os_now = &weft_i_os_linux;
        CHECK_INT(weft_i_p2p_request_status(&behind->request), WEFT_ERR_NO_MEMORY);
        CHECK(!pair_of(ME, 0)->receives && !all.lane[ME].p2p->any && !all.lane[ME].p2p->under_way);
        hand_said(weft_i_bundle_outcome(&behind->bundle), WEFT_ERR_NO_MEMORY,
                  "recv in group \"g\": no memory to put aside a message of 200 bytes with tag 1 "
                  "of rank 0, which came "
                  "before the one waited for");
        CHECK(is_over(take(ME, 0, 1, 0, 200)) && !weft_i_group_has_ended(hand.group));
        check_bytes(0, 0, 200);
        close_ends();
    }
}

/* ---- mismatches ---- */

/* The receiver says what both say, ends the group, and leaves word for the sender. */
static void run_refused(size_t expected, weft_dtype dtype, uint32_t digest, bool aside,
                        const char *says)
{
    open_ends(WEFT_I_CMA_NONE);
    put(0, ME, 1, 0, 12), put(0, ME, 2, 1, 8);
    if (aside)
        CHECK(is_over(take(ME, 0, 2, 1, 8)));
    memset(got[0], 0xee, sizeof got[0]);
    letter *it = prepare(ME, WEFT_I_RECV, 0, 1, got[0], expected);
    it->request.dtype = dtype;
    it->request.digest = digest;
    weft_i_bundle_enqueue(&it->bundle);
    hand_said(weft_i_bundle_outcome(&it->bundle), WEFT_ERR_MISMATCH, says);
    check_bytes(0, 0, 0);
    CHECK(it->request.begun && pair_of(ME, 0)->broken && weft_i_group_has_ended(hand.group));
    CHECK_INT(hand.group->board->failure, WEFT_ERR_MISMATCH);
    CHECK_INT(atomic_load(&all.ring[0][ME]->refused), expected + 1);
    CHECK_INT(atomic_load(&all.ring[0][ME]->taken), aside ? 2 : 0);
    CHECK(!is_over(
        take(ME, 0, 1, 2,
             12))); /* nothing follows it, neither from the ring nor from what was put aside */
    close_ends();
}

TEST(test_ring_refused)
{
    run_refused(16, WEFT_I32, 25, false,
                "recv in group \"g\": rank 0 sends 12 bytes, rank 1 expects 16 bytes of i32");
    run_refused(16, WEFT_I32, 25, true,
                "recv in group \"g\": rank 0 sends 12 bytes, rank 1 expects 16 bytes of i32");
    run_refused(16, WEFT_I32, 21, false,
                "recv in group \"g\": rank 0 sends 12 bytes, rank 1 expects 16 bytes of i32");
    run_refused(12, WEFT_F32, 22, false,
                "recv in group \"g\": rank 0 sends 12 bytes, rank 1 expects 12 bytes of f32; the "
                "dtypes differ");
    run_refused(12, WEFT_F32, 22, true,
                "recv in group \"g\": rank 0 sends 12 bytes, rank 1 expects 12 bytes of f32; the "
                "dtypes differ");
}

/* The sender is told with the receiver's words; of any other end, with that. */
TEST(test_ring_refused_sender)
{
    open_ends(WEFT_I_CMA_THREADS);
    letter *it = prepare(ME, WEFT_I_SEND, 2, 1, sent[0], ROOM);
    it->request.limit_ms = 20000;
    atomic_store(&all.ring[ME][2]->refused, 17);
    weft_i_group_spoil(hand.group, WEFT_ERR_MISMATCH);
    weft_status status = weft_i_bundle_carry(&it->bundle);
    it->request.message = NULL;
    hand_said(status, WEFT_ERR_MISMATCH,
              "send in group \"g\": rank 1 sends 131072 bytes of u8, rank 2 expects 16 bytes, or "
              "another dtype");
    close_ends();
    open_ends(WEFT_I_CMA_THREADS);
    it = prepare(ME, WEFT_I_SEND, 2, 1, sent[0], ROOM);
    it->request.limit_ms = 20000;
    atomic_store(&all.ring[ME][2]->refused, 17);
    hand_kill(hand_members[2]);
    status = weft_i_bundle_carry(&it->bundle);
    it->request.message = NULL;
    CHECK_INT(status, WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "in group \"g\", send: rank 0 (");
    weft_clear_error();
    close_ends();
}

/* ---- peers that are lost ---- */

static weft_status receive_from(int peer)
{
    letter *it = prepare(ME, WEFT_I_RECV, peer, 1, got[0], 8);
    it->request.limit_ms = 60000;
    weft_status status = weft_i_bundle_carry(&it->bundle);
    it->request.message = NULL;
    return status;
}

/* A receive from any rank ends when one of them dies, or when all have left; a named one with its peer alone. */
TEST(test_ring_lost)
{
    open_ends(WEFT_I_CMA_NONE);
    hand_leave(hand_members[0]);
    hand_leave(hand_members[2]);
    CHECK_INT(receive_from(2), WEFT_ERR_PEER_LEFT);
    CHECK_CONTAINS(weft_last_error(), "in group \"g\", recv: rank 0 (");
    put(3, ME, 1, 3, 8);
    CHECK_INT(receive_from(WEFT_ANY), WEFT_OK); /* one is still there */
    put(0, ME, 1, 2, 8);
    CHECK_INT(receive_from(0), WEFT_OK); /* sent before it left */
    hand_leave(hand_members[3]);
    CHECK_INT(receive_from(WEFT_ANY), WEFT_ERR_PEER_LEFT);
    CHECK_CONTAINS(weft_last_error(), "rank 3 (");
    hand_revive(hand_members[0]);
    hand_revive(hand_members[2]);
    hand_kill(hand_members[2]);
    CHECK_INT(receive_from(WEFT_ANY), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 0 (");
    hand_revive(hand_members[2]);
    hand_revive(hand_members[3]);
    hand_leave(hand_members[ME]); /* one's own end says nothing about others */
    put(0, ME, 1, 2, 8);
    CHECK_INT(receive_from(WEFT_ANY), WEFT_OK);
    hand_revive(hand_members[ME]);
    weft_clear_error();
    close_ends();
}

static int64_t minutes;

static int64_t clock_by_seconds(void)
{
    return minutes += 1000000000;
}

/* What a wait for too long says, of a rank by name and of any. */
TEST(test_ring_timeout)
{
    static weft_i_os table;
    open_ends(WEFT_I_CMA_NONE);
    table = weft_i_os_linux;
    table.clock_ns = clock_by_seconds;
    weft_i_os_now = &table;
    weft_status any = receive_from(WEFT_ANY);
    char message[600];
    snprintf(message, sizeof message, "%s", weft_last_error());
    weft_status named = receive_from(2);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(any, WEFT_ERR_TIMEOUT);
    CHECK_INT(named, WEFT_ERR_TIMEOUT);
    CHECK(!strcmp(
        message,
        "rank 1 of 4 in group \"g\", recv of 8 bytes, tag 1: waited 60000 ms for any other rank"));
    CHECK_CONTAINS(
        weft_last_error(),
        "rank 1 of 4 in group \"g\", recv of 8 bytes, tag 1: waited 60000 ms for rank 0 (");
    CHECK(!all.lane[ME].p2p->any && !pair_of(ME, 2)->receives && !all.lane[ME].p2p->waiters);
    weft_clear_error();
    close_ends();
}

/* ---- posted work ---- */

static weft_work *post(weft_i_coll_kind kind, int peer, int tag, weft_tensor *x)
{
    weft_work *work = weft_i_work_new_p2p(hand.group, 1);
    CHECK(work);
    weft_i_p2p_request request =
        request_of(ME, kind, peer, tag, weft_tensor_data(x), (size_t)weft_tensor_numel(x));
    request.tensor = x;
    request.limit_ms = 50;
    weft_i_work_set_request(work, 0, &request);
    work->coll.lane = &all.lane[ME];
    weft_i_bundle_enqueue(&work->bundle);
    return work;
}

static int references(const void *object)
{
    return atomic_load(&((const weft_i_object *)object)->references);
}

/* Posted requests hold their work until they are over. */
TEST(test_ring_posted)
{
    open_ends(WEFT_I_CMA_NONE);
    weft_tensor *x = weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(8));
    weft_work *work = post(WEFT_I_RECV, 0, 1, x);
    CHECK(references(work) == 2 && references(x) == 2);
    CHECK_INT(weft_work_status(work), WEFT_IN_PROGRESS);
    put(0, ME, 1, 0, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]));
    CHECK_INT(references(work), 1);
    CHECK_OK(weft_work_status(work));
    CHECK_INT(weft_work_source(work), 0);
    weft_release(work);
    CHECK_INT(references(x), 1);
    work = post(WEFT_I_RECV, 0, 1, x); /* nobody has it when it ends: who sweeps drops it */
    weft_release(work);
    put(0, ME, 1, 0, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]));
    CHECK_INT(references(x), 2);
    weft_i_p2p_sweep(&all.lane[ME]);
    CHECK_INT(references(x), 1);
    close_ends();
}

static int64_t clock_now;

static int64_t stopped_clock(void)
{
    return clock_now;
}

/* Requests that nobody waits for end at their limit, which begins when they are left alone; others go on. */
TEST(test_ring_sorted_out)
{
    static weft_i_os table;
    open_ends(WEFT_I_CMA_NONE);
    weft_tensor *x = weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(8)),
                *y = weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(8));
    weft_work *left = post(WEFT_I_RECV, 0, 1, x), *held = post(WEFT_I_RECV, WEFT_ANY, 1, y);
    letter *plain = take(ME, 0, 1, 0, 8);
    table = weft_i_os_linux;
    table.clock_ns = stopped_clock;
    weft_i_os_now = &table;
    clock_now = 1000;
    CHECK(weft_i_p2p_is_left_alone(&all.lane[ME]));
    weft_release(left);
    weft_i_p2p_sort_out(&all.lane[ME]); /* from now on */
    clock_now += 50 * 1000000 - 1;
    weft_i_p2p_sort_out(&all.lane[ME]);
    weft_i_p2p_sweep(&all.lane[ME]);
    CHECK_INT(references(x), 2);
    clock_now++;
    weft_i_p2p_sort_out(&all.lane[ME]);
    CHECK_INT(references(x), 2);
    weft_i_p2p_sweep(&all.lane[ME]);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(references(x), 1);
    CHECK(references(y) == 2 && weft_work_status(held) == WEFT_IN_PROGRESS && !is_over(plain));
    CHECK_INT(all.lane[ME].p2p->under_way, 2);
    CHECK_INT(weft_last_status(), WEFT_OK); /* the message is the request's */
    close_ends();
}

/* Of a peer that is lost all posted requests end, each list of them, but what came before its end arrives. */
TEST(test_ring_sorted_out_of_the_dead)
{
    open_ends(WEFT_I_CMA_THREADS);
    weft_tensor *x = weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(8)),
                *big = weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(ROOM));
    weft_work *works[] = {post(WEFT_I_SEND, 2, 1, big), post(WEFT_I_RECV, 2, 1, x),
                          post(WEFT_I_RECV, 2, 2, x), post(WEFT_I_RECV, 3, 1, x),
                          post(WEFT_I_RECV, WEFT_ANY, 7, x)};
    put(2, ME, 2, 0, 8);
    hand_kill(hand_members[2]);
    weft_i_p2p_sort_out(&all.lane[ME]);
    CHECK_INT(weft_work_status(works[0]), WEFT_ERR_PEER_DEAD);
    CHECK_INT(weft_work_status(works[1]), WEFT_ERR_PEER_DEAD);
    CHECK_INT(weft_work_status(works[4]), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_work_error(works[1]), "in group \"g\", recv: rank 0 (");
    CHECK_OK(weft_work_status(works[2]));
    CHECK_INT(weft_work_source(works[2]), 2);
    CHECK_INT(weft_work_source(works[1]), -1);
    CHECK_INT(all.lane[ME].p2p->under_way, 1);
    CHECK_INT(weft_work_status(works[3]), WEFT_IN_PROGRESS);
    put(3, ME, 1, 0, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]));
    for (int i = 0; i < 5; i++)
        weft_release(works[i]);
    CHECK(references(x) == 1 && references(big) == 1);
    close_ends();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}
