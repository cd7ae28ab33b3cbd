/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/p2p/p2p.c, coll/p2p/p2p_send.c, coll/p2p/p2p_recv.c */
/*
 * Rings without other ranks: what lies in a slot, in which piece, what waits for room, what stays
 * where it is, and what is put aside.
 */
#include "ring_by_hand.h"

/* ---- slots and pieces ---- */

/* As many short messages as there are slots go out before anybody receives; the next waits for one. */
/* The more ranks, the smaller the room of each, and all of a rank's together have a bound. */
TEST(test_ring_room)
{
    static const struct {
        int size;
        size_t room;
    } cases[] = {{1, 128 << 10}, {2, 128 << 10}, {16, 128 << 10}, {17, 64 << 10},
                 {32, 64 << 10}, {33, 32 << 10}, {64, 32 << 10},  {1000, 32 << 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(weft_i_ring_room(cases[i].size), cases[i].room);
}

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
    CHECK(!is_over(put(0, 2, 1, 0, BIG)) &&
          is_over(put(0, 3, 1, 0, 8)));                           /* other rings are others' */
    letter *gone = prepare(0, WEFT_I_SEND, ME, 79, sent[3], 200); /* larger, without a slot */
    weft_status status = carry(&gone->bundle);
    gone->request.message = NULL;
    hand_said(status, WEFT_ERR_TIMEOUT, "send of 200 bytes, tag 79, is still under way");
    CHECK(!gone->request.begun && !weft_i_group_has_ended(hand.group));
    CHECK(pair_of(0, ME)->last_send == &last->request.next && !last->request.next);
    CHECK(is_over(take(ME, 0, 0, 0, 3)));
    check_bytes(0, 0, 3);
    CHECK_INT(atomic_load(&ring->taken), 1);
    weft_i_p2p_push(&all.lane[0]);
    CHECK(is_over(late) && !is_over(last));
    CHECK_INT(ring->slots[0].kind, WEFT_I_RING_SLOT_SHORT);
    CHECK_INT(ring->slots[0].tag, 77);
    CHECK_INT(ring->slots[0].length, WEFT_I_RING_SHORT);
    CHECK(is_over(take(ME, 0, 1, 0, 3)));
    CHECK(weft_i_p2p_push(&all.lane[0]) && is_over(last)); /* what goes to rank 2 */
    CHECK_INT(all.lane[0].p2p->under_way, 1);
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

/* To oneself one push moves as much as goes: in, out, and in again. */
TEST(test_ring_self)
{
    open_ends(WEFT_I_CMA_THREADS);
    for (int i = 0; i < WEFT_I_RING_RTS_MAX; i++) /* so that what follows goes in pieces */
        CHECK(put(ME, ME, 1, 0, ROOM)->request.rts_sent);
    letter *from = put(ME, ME, 2, 0, 2 * BIG), *to = take(ME, ME, 2, 0, 2 * BIG);
    CHECK(from->request.done == ROOM && to->request.done == ROOM);
    CHECK(weft_i_p2p_push(&all.lane[ME]) && is_over(from) && !is_over(to));
    weft_i_p2p_push(&all.lane[ME]);
    CHECK(is_over(to) && !memcmp(got, sent, 2 * BIG) && to->request.source == ME);
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
    letter *ninth = put(0, ME, 1, 1, BIG);
    CHECK(!ninth->request.rts_sent && ninth->request.done == ROOM && !is_over(ninth));
    for (int i = 0; i < WEFT_I_RING_RTS_MAX; i++) {
        CHECK(is_over(take(ME, 0, 1, 0, ROOM)));
        check_bytes(0, i % 4, ROOM);
        CHECK(weft_i_p2p_push(&all.lane[0]) && is_over(large[i]));
        CHECK(!ninth->request.rts_sent); /* it has begun in pieces */
    }
    letter *tenth = put(0, ME, 2, 3, ROOM); /* behind it, though there would be room */
    CHECK(!tenth->request.rts_sent && pair_of(0, ME)->rts_count == 0);
    letter *last = take(ME, 0, 1, 0, BIG);
    CHECK(weft_i_p2p_push(&all.lane[0]) && is_over(ninth));
    CHECK(tenth->request.rts_sent && tenth->request.rts == 0); /* in the place of the first */
    CHECK(!weft_i_p2p_push(&all.lane[ME]) && is_over(last));
    check_bytes(0, 1, BIG);
    CHECK(is_over(take(ME, 0, 2, 1, ROOM)));
    check_bytes(1, 3, ROOM);
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
        CHECK(!pair_of(ME, 0)->receives && !all.lane[ME].p2p->under_way);
        close_ends();
    }
}

/* One that stays where it is is only noted; and one push reads on behind it. */
TEST(test_ring_kept_rts)
{
    open_ends(WEFT_I_CMA_THREADS);
    letter *large = put(0, ME, 1, 0, ROOM);
    put(0, ME, 2, 1, 8);
    CHECK(is_over(take(ME, 0, 2, 1, 8)));
    CHECK(weft_i_p2p_push(&all.lane[0]) && !is_over(large));
    atomic_store(&all.heads[0].p2p_bell, 1);
    CHECK(is_over(take(ME, 0, 1, 0, ROOM)));
    CHECK(!atomic_load(&all.heads[0].p2p_bell)); /* its sender may sleep */
    CHECK(!weft_i_p2p_push(&all.lane[0]) && is_over(large));
    check_bytes(0, 0, ROOM);
    letter *first = take(ME, 0, 3, 0, ROOM), *second = take(ME, 0, 4, 1, 8);
    put(0, ME, 3, 1, ROOM), put(0, ME, 4, 2, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]) && is_over(first) && is_over(second));
    check_bytes(0, 1, ROOM);
    check_bytes(1, 2, 8);
    close_ends();
}

/* Of two receives that fit, the one posted first. */
TEST(test_ring_order)
{
    open_ends(WEFT_I_CMA_NONE);
    letter *any = take(ME, WEFT_ANY, 1, 0, 8), *own = take(ME, 0, 1, 1, 8);
    put(0, ME, 1, 2, 8);
    CHECK(weft_i_p2p_push(&all.lane[ME]) && is_over(any) && !is_over(own));
    any = take(ME, WEFT_ANY, 1, 0, 8);
    put(0, ME, 1, 3, 8);
    CHECK(weft_i_p2p_push(&all.lane[ME]) && is_over(own) && !is_over(any));
    check_bytes(1, 3, 8);
    put(2, ME, 1, 2, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]) && is_over(any) && any->request.source == 2);
    check_bytes(0, 2, 8);
    close_ends();
}

/* Receives from any rank begin behind the last one served; a message in pieces gets all of them. */
TEST(test_ring_any_turns)
{
    static const int sources[] = {0, 2, 3, 0};
    open_ends(WEFT_I_CMA_NONE);
    put(0, ME, 1, 0, 8), put(2, ME, 1, 2, 8);
    for (int i = 0; i < 4; i++) {
        letter *any = take(ME, WEFT_ANY, 1, 0, 8);
        CHECK(is_over(any));
        CHECK_INT(any->request.source, sources[i]);
        CHECK_INT(all.lane[ME].p2p->turn, (sources[i] + 1) % HAND_SIZE);
        check_bytes(0, sources[i], 8);
        if (i == 1)
            put(0, ME, 1, 0, 8), put(3, ME, 1, 3, 8);
    }
    letter *big = put(3, ME, 1, 3, BIG), *any = take(ME, WEFT_ANY, 1, 0, BIG);
    CHECK(!is_over(any) && !is_over(big) && any->request.source == 3);
    CHECK_INT(all.lane[ME].p2p->turn, 0);
    CHECK(!weft_i_p2p_push(&all.lane[3]) && is_over(big));
    CHECK(!weft_i_p2p_push(&all.lane[ME]) && is_over(any));
    check_bytes(0, 3, BIG);
    close_ends();
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

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}
