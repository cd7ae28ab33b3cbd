/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/p2p/p2p.c, coll/p2p/p2p_recv.c, coll/p2p/p2p_send.c, coll/calls/work.c */
/*
 * Requests without other ranks: those that are given up, refused, lost with their peer, posted and
 * left alone.
 */
#include "ring_by_hand.h"

#include <errno.h>

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
TEST(test_bundle_withdrawn)
{
    static weft_i_os table;
    open_ends(WEFT_I_CMA_THREADS);
    table = weft_i_os_linux;
    table.clock_ns = clock_then_done;
    weft_i_os_now = &table;
    looks = done_at = 0; /* how often it looks at the clock before it gives up */
    letter *trial = prepare(ME, WEFT_I_SEND, 3, 1, sent[0], ROOM);
    CHECK_INT(carry(&trial->bundle), WEFT_ERR_TIMEOUT);
    trial->request.message = NULL;
    weft_clear_error();
    hand.group->board->revoked = 0;
    done_at = looks;
    looks = 0;
    letter *taken = prepare(ME, WEFT_I_SEND, 0, 1, sent[0], ROOM);
    CHECK_INT(carry(&taken->bundle), WEFT_OK);
    CHECK_INT(all.lane[ME].p2p->under_way, 0);
    CHECK(looks == done_at && !pair_of(ME, 0)->rts_count && !weft_i_group_has_ended(hand.group));
    done_at = 0;
    letter *late = prepare(ME, WEFT_I_SEND, 0, 2, sent[0], ROOM);
    weft_status status = carry(&late->bundle);
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

static int64_t clock_ms;
static int turns, die_at, reads, quick_reads;

/* A millisecond a look; at one of them the sender dies. */
static int64_t clock_by_ms(void)
{
    if (++turns == die_at)
        hand_kill(hand_members[0]);
    return clock_ms += 1000000;
}

/* The first reads succeed by 16 MiB; then the kernel refuses. */
static ssize_t refuse_read(pid_t process, void *to, uint64_t from, size_t bytes)
{
    (void)process, (void)to, (void)from;
    if (quick_reads < 0) /* its sender gives up meanwhile */
        atomic_store(&all.ring[0][ME]->rts[0].state, WEFT_I_RTS_WITHDRAWN);
    if (reads++ < quick_reads || quick_reads < 0)
        return (ssize_t)bytes;
    errno = EPERM;
    return -1;
}

static weft_i_os unreadable;
static weft_i_sample samples[HAND_SIZE];

/* Takes a message of two parts that cannot be read, or of which the second cannot. */
static letter *take_large(void)
{
    enum { LARGE = (16 << 20) + 5 };
    open_ends(WEFT_I_CMA_KERNEL);
    all.lane[ME].samples = samples;
    letter *from = prepare(0, WEFT_I_SEND, ME, 1, sent[0], LARGE);
    weft_i_bundle_enqueue(&from->bundle);
    unreadable = weft_i_os_linux;
    unreadable.clock_ns = clock_by_ms;
    unreadable.read_process = refuse_read;
    weft_i_os_now = &unreadable;
    turns = reads = 0;
    letter *to = prepare(ME, WEFT_I_RECV, 0, 1, got[0], LARGE);
    weft_i_bundle_enqueue(&to->bundle);
    weft_i_os_now = &weft_i_os_linux;
    CHECK(pair_of(ME, 0)->broken && to->request.source == 0);
    return to;
}

static weft_status take_unreadable(weft_i_ring **ring)
{
    letter *to = take_large();
    CHECK(!pair_of(ME, 0)->taking && !all.lane[ME].p2p->under_way);
    CHECK_INT(to->request.done, quick_reads ? 16 << 20 : 0);
    CHECK(weft_i_group_has_ended(hand.group));
    *ring = all.ring[0][ME];
    return weft_i_bundle_outcome(&to->bundle);
}

/* A peer whose memory cannot be read fails the receive; and if it is dead, which may show a moment
 * later, that is the news. */
TEST(test_bundle_unreadable)
{
    weft_i_ring *ring;
    die_at = quick_reads = 0;
    weft_status status = take_unreadable(&ring);
    CHECK(status < 0 && status != WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(),
                   "16777216 bytes between this rank's memory and that of rank 0");
    CHECK_INT(atomic_load(&ring->rts[0].state), WEFT_I_RTS_READY); /* its sender may withdraw it */
    CHECK(turns >= 90); /* some time for its cause to show */
    int all_turns = turns;
    weft_clear_error();
    close_ends();
    for (int i = 0; i < 2; i++) {
        die_at = i ? all_turns - 20 : 1;
        quick_reads = 1;
        CHECK_INT(take_unreadable(&ring), WEFT_ERR_PEER_DEAD);
        CHECK_CONTAINS(weft_last_error(), "recv: rank 4 (");
        CHECK(i || turns < 20); /* it does not wait for more */
        weft_clear_error();
        close_ends();
    }
}

static int waits;

/* At the deadline the receiver copies a part; it gives the RTS back a little later. */
static int64_t clock_then_taking(void)
{
    if (++looks == done_at)
        atomic_store(&all.ring[ME][0]->rts[0].state, WEFT_I_RTS_TAKING);
    return looks;
}

static void give_back_later(void)
{
    if (looks >= done_at && ++waits == 3)
        atomic_store(&all.ring[ME][0]->rts[0].state, WEFT_I_RTS_READY);
}

/* A thread that copies is waited for, a process is not: it may have been stopped. */
TEST(test_bundle_withdrawn_from_a_copy)
{
    static weft_i_os table;
    for (int threads = 0; threads < 2; threads++) {
        int64_t last = 0;
        for (int round = 0; round < 2; round++) { /* the first counts looks at the clock */
            open_ends(threads ? WEFT_I_CMA_THREADS : WEFT_I_CMA_KERNEL);
            letter *it = prepare(ME, WEFT_I_SEND, 0, 1, sent[0], ROOM);
            table = weft_i_os_linux;
            table.clock_ns = clock_then_taking;
            table.yield = give_back_later;
            looks = waits = 0;
            done_at = round ? last : INT64_MAX;
            weft_i_os_now = &table;
            weft_status status = carry(&it->bundle);
            weft_i_os_now = &weft_i_os_linux;
            it->request.message = NULL;
            CHECK_INT(status, WEFT_ERR_TIMEOUT);
            CHECK_INT(atomic_load(&all.ring[ME][0]->rts[0].state), WEFT_I_RTS_WITHDRAWN);
            CHECK_INT(waits, round && threads ? 3 : 0);
            last = looks;
            weft_clear_error();
            close_ends();
        }
    }
}

/* What was withdrawn while it was read does not count: the receive waits for the group's end. */
TEST(test_bundle_withdrawn_while_read)
{
    quick_reads = -1;
    letter *to = take_large();
    CHECK(!is_over(to) && pair_of(ME, 0)->taking == &to->request);
    CHECK(!weft_i_group_has_ended(hand.group) && reads == 1);
    close_ends();
}

/* Out of each list in which a request may wait; those around it stay. */
TEST(test_bundle_given_up)
{
    open_ends(WEFT_I_CMA_NONE);
    letter *before = take(ME, 0, 1, 0, 8), *any = take(ME, WEFT_ANY, 2, 1, 8);
    for (int i = 0; i < 2; i++) {
        letter *late = prepare(ME, WEFT_I_RECV, i ? WEFT_ANY : 0, 1 + i, got[2], 8);
        weft_status status = carry(&late->bundle);
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
    letter *half = prepare(ME, WEFT_I_RECV, WEFT_ANY, 4, got[0], BIG);
    CHECK(!is_over(put(0, ME, 4, 0, BIG)));
    weft_status status = carry(&half->bundle);
    half->request.message = NULL;
    CHECK_INT(status, WEFT_ERR_TIMEOUT);
    CHECK(!pair_of(ME, 0)->taking && pair_of(ME, 0)->broken && weft_i_group_has_ended(hand.group));
    CHECK(!is_over(take(ME, 0, 4, 0, BIG)));
    check_bytes(0, 0, 0); /* what is left of it belongs to nobody */
    close_ends();
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

TEST(test_bundle_refused)
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
TEST(test_bundle_refused_sender)
{
    open_ends(WEFT_I_CMA_THREADS);
    letter *it = prepare(ME, WEFT_I_SEND, 2, 1, sent[0], ROOM);
    it->request.limit_ms = 20000;
    atomic_store(&all.ring[ME][2]->refused, 17);
    weft_i_bundle_enqueue(&it->bundle);
    weft_i_group_spoil(hand.group, WEFT_ERR_MISMATCH);
    CHECK_OK(weft_i_bundle_wait(&it->bundle, it->request.limit_ms));
    weft_status status = weft_i_bundle_close(&it->bundle);
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
    status = carry(&it->bundle);
    it->request.message = NULL;
    CHECK_INT(status, WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "in group \"g\", send: rank 0 (");
    weft_clear_error();
    close_ends();
}

/* ---- peers that are lost ---- */

static int64_t patience = 60000;

static weft_status receive_from(int peer)
{
    letter *it = prepare(ME, WEFT_I_RECV, peer, 1, got[0], 8);
    it->request.limit_ms = patience;
    weft_status status = carry(&it->bundle);
    it->request.message = NULL;
    return status;
}

/* A receive from any rank ends when one of them dies, or when all have left; a named one with its peer alone. */
TEST(test_bundle_lost)
{
    open_ends(WEFT_I_CMA_NONE);
    hand_leave(hand_members[0]);
    hand_leave(hand_members[2]);
    CHECK_INT(receive_from(2), WEFT_ERR_PEER_LEFT);
    CHECK_CONTAINS(weft_last_error(), "in group \"g\", recv: rank 0 (");
    patience = 1;
    CHECK_INT(receive_from(WEFT_ANY), WEFT_ERR_TIMEOUT); /* one is still there */
    patience = 60000;
    put(3, ME, 1, 3, 8);
    CHECK_INT(receive_from(WEFT_ANY), WEFT_OK);
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
    hand.group->size = 2; /* of which this rank is the last */
    hand_leave(hand_members[0]);
    CHECK_INT(receive_from(WEFT_ANY), WEFT_ERR_PEER_LEFT);
    CHECK_CONTAINS(weft_last_error(), "recv: rank 4 (");
    hand.group->size = HAND_SIZE;
    weft_clear_error();
    close_ends();
}

static int64_t minutes;

static int64_t clock_by_seconds(void)
{
    return minutes += 1000000000;
}

/* What a wait for too long says, of a rank by name and of any. */
TEST(test_bundle_timeout)
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

/* Of requests that were posted together the first that failed says why. */
TEST(test_bundle_of_two)
{
    open_ends(WEFT_I_CMA_NONE);
    weft_i_p2p_request two[] = {request_of(ME, WEFT_I_RECV, 0, 1, got[0], 8),
                                request_of(ME, WEFT_I_RECV, 0, 2, got[1], 8)};
    weft_i_bundle bundle = {.count = 2, .requests = two};
    put(0, ME, 1, 3, 8);
    memset(got, 0xee, sizeof got);
    hand_said(carry(&bundle), WEFT_ERR_TIMEOUT, "recv of 8 bytes, tag 2, is still under way");
    CHECK_INT(weft_i_p2p_request_status(&two[0]), WEFT_OK);
    CHECK(weft_i_bundle_failed(&bundle) == &two[1] && bundle.left == 0);
    check_bytes(0, 3, 8); /* the other one has arrived */
    check_bytes(1, 0, 0);
    close_ends();
}

/* ---- as a call ---- */

/* For messages and for backends that carry messages themselves. */
TEST(test_bundle_as_a_call)
{
    open_ends(WEFT_I_CMA_NONE);
    for (int sends = 0; sends < 2; sends++) {
        weft_i_coll_kind kind = sends ? WEFT_I_SEND : WEFT_I_RECV;
        weft_i_p2p_request request = request_of(ME, kind, 2, 5, sent[0], 24);
        request.dtype = WEFT_F64;
        request.device = WEFT_CPU;
        request.limit_ms = 77;
        request.tensor = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3));
        weft_i_coll coll = weft_i_p2p_as_coll(&request);
        CHECK(!strcmp(coll.ask.op, sends ? "send" : "recv") && coll.label.op == coll.ask.op);
        CHECK(coll.ask.kind == kind && coll.ask.rank == ME && coll.ask.size == HAND_SIZE);
        CHECK(coll.ask.dtype == WEFT_F64 && coll.ask.root == 2 && coll.ask.item == 8);
        CHECK(coll.ask.count == 3 && coll.ask.limit_ms == 77 && coll.ask.device == WEFT_CPU);
        CHECK(coll.ask.in == (sends ? (void *)sent[0] : NULL));
        CHECK(coll.ask.out == (sends ? NULL : (void *)sent[0]));
        CHECK(coll.ask.in_bytes == (sends ? 24 : 0) && coll.ask.out_bytes == (sends ? 0 : 24));
        CHECK(coll.in_tensor == (sends ? request.tensor : NULL));
        CHECK(coll.out_tensor == (sends ? NULL : request.tensor));
        CHECK(coll.label.group == hand.group && coll.group == hand.group && coll.label.channel < 0);
        CHECK_INT(coll.digest, request.digest);
    }
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
TEST(test_bundle_posted)
{
    open_ends(WEFT_I_CMA_NONE);
    weft_tensor *x = weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(8));
    weft_work *work = post(WEFT_I_RECV, 0, 1, x);
    CHECK(references(work) == 2 && references(x) == 2);
    CHECK_STATUS(weft_resize_storage(x, 64), WEFT_ERR_STATE); /* the memory stays */
    weft_clear_error();
    CHECK_INT(weft_work_status(work), WEFT_IN_PROGRESS);
    CHECK(weft_i_p2p_is_left_alone(&all.lane[ME])); /* one is enough */
    put(0, ME, 1, 0, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]));
    CHECK_INT(references(work), 1);
    CHECK_OK(weft_work_status(work));
    CHECK_INT(weft_work_source(work), 0);
    CHECK_OK(weft_resize_storage(x, 64));
    weft_release(work);
    CHECK_INT(references(x), 1);
    work = post(WEFT_I_RECV, 0, 1, x); /* nobody has it when it ends: who sweeps drops it */
    weft_release(work);
    put(0, ME, 1, 0, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]));
    CHECK_INT(references(x), 2);
    weft_i_p2p_sweep(&all.lane[ME]);
    CHECK_INT(references(x), 1);
    weft_i_p2p_sweep(&all.lane[ME]); /* once */
    CHECK_INT(references(x), 1);
    close_ends();
}

static int64_t clock_now;

static int64_t stopped_clock(void)
{
    return clock_now;
}

/* Requests that nobody waits for end at their limit, which begins when they are left alone; others go on. */
TEST(test_bundle_sorted_out)
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
    CHECK(weft_i_p2p_is_left_alone(&all.lane[ME]) && !weft_i_p2p_is_left_alone(&all.lane[0]));
    atomic_store(&all.lane[ME].p2p->waiters, 1); /* who waits pushes */
    CHECK(!weft_i_p2p_is_left_alone(&all.lane[ME]));
    atomic_store(&all.lane[ME].p2p->waiters, 0);
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
    put(0, ME, 1, 0, 8), put(0, ME, 1, 0, 8);
    CHECK(!weft_i_p2p_push(&all.lane[ME]) && references(held) == 1);
    close_ends();
}

/* Of a peer that is lost all posted requests end, each list of them, but what came before its end arrives. */
TEST(test_bundle_sorted_out_of_the_dead)
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
