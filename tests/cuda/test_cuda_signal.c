/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/ranks/pads.c, backends/cuda/ranks/team.c, backends/cuda/kernels/meet.h,
 * backends/cuda/kernels/signal.h */
/*
 * Signals of CUDA teams and what happens when a rank does not come: deadlines, mismatches, verdicts
 * of the host, poison, reset.  On the software driver, or on a GPU with WEFT_TEST_CUDA=real.
 */
#include "cuda/team_scene.h"

#include "kernels/fold/fold.h"

enum { BYTES = 1 << 20, LONG_MS = 20000, SHORT_MS = 200 };
static const weft_i_cuda_sizes sizes = {8, 4, 512, 4096, 0, false};

/* What one rank writes before a barrier, the others read after it. */
static void barrier_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    int rounds = *(int *)arg, ranks = scene.ranks;
    void *memory;
    RANK_OK(weft_i_cuda_pinned(scene.device, 4096, &memory));
    scene_meet(); /* no rank's kernel waits while another asks for pinned memory */
    uint32_t *mine = memory;
    for (int k = 0; k < rounds; k++)
        mine[k] = (uint32_t)(1000 * rank + k);
    uint32_t got[64 * SCENE_MOST];
    for (int k = 0; k < rounds; k++) {
        RANK_OK(weft_i_cuda_copy(me->stream, me->data, mine + k, 4));
        RANK_OK(weft_i_cuda_barrier(&me->team, me->stream, k % 4, LONG_MS));
        for (int r = 0; r < ranks; r++)
            RANK_OK(weft_i_cuda_copy(me->stream, me->data + 1024 + 4 * (k * ranks + r),
                                     weft_i_cuda_span_of(&scene.data, r), 4));
        RANK_OK(weft_i_cuda_barrier(&me->team, me->stream, (k + 1) % 4, LONG_MS));
    }
    RANK_OK(weft_i_cuda_read(me->stream, got, me->data + 1024, 4u * (unsigned)(rounds * ranks)));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    for (int k = 0; k < rounds; k++)
        for (int r = 0; r < ranks; r++)
            RANK(got[k * ranks + r] == (uint32_t)(1000 * r + k), "round %d: rank %d shows %u", k, r,
                 got[k * ranks + r]);
    weft_i_cuda_unpin(memory);
}

TEST(test_cuda_barrier)
{
    int rounds = 20;
    for (int ranks = 1; ranks <= 4; ranks++) {
        scene_open(ranks, BYTES, &sizes);
        scene_run(barrier_body, &rounds);
        scene_close();
    }
}

/* A ring: data, then a signal that it is there; the semaphore holds one. */
static void ring_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    int ranks = scene.ranks, next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    uint32_t seen = 0, token = 41;
    (void)arg;
    for (int k = 0; k < 5; k++) {
        if (rank != 0 || k > 0)
            RANK_OK(weft_i_cuda_wait_signal(&me->team, me->stream, last, 2, LONG_MS));
        if (rank == 0 && k == 0)
            RANK_OK(weft_i_cuda_copy(me->stream, me->data, &token, 4));
        RANK_OK(weft_i_cuda_copy(me->stream, weft_i_cuda_span_of(&scene.data, next), me->data, 4));
        RANK_OK(weft_i_cuda_put_signal(&me->team, me->stream, next, 2, LONG_MS));
    }
    if (rank == 0)
        RANK_OK(weft_i_cuda_wait_signal(&me->team, me->stream, last, 2, LONG_MS));
    RANK_OK(weft_i_cuda_read(me->stream, &seen, me->data, 4));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    RANK(seen == 41, "the token is %u", seen);
}

TEST(test_cuda_put_wait)
{
    scene_open(3, BYTES, &sizes);
    scene_run(ring_body, NULL);
    scene_close();
}

/* Fails, is told by every later call, and works again after a reset of all. */
static weft_status barrier_and_sync(int rank, int channel, int64_t limit)
{
    scene_rank *me = &scene.rank[rank];
    WEFT_TRY(weft_i_cuda_barrier(&me->team, me->stream, channel, limit));
    WEFT_TRY(weft_i_cuda_stream_sync(me->stream, 2 * LONG_MS));
    return weft_i_cuda_team_check(&me->team);
}

static void after_reset(int rank)
{
    int rounds = 2;
    RANK_OK(scene_reset(rank));
    barrier_body(rank, &rounds);
}

static void timeout_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    int missing = *(int *)arg;
    if (rank != missing) {
        int64_t start = WEFT_OS->clock_ns();
        weft_status status = barrier_and_sync(rank, 1, SHORT_MS);
        int64_t took = (WEFT_OS->clock_ns() - start) / 1000000;
        RANK(status == WEFT_ERR_TIMEOUT, "%d", status);
        RANK(strstr(weft_last_error(), "barrier on channel 1"), "%s", weft_last_error());
        RANK(took >= SHORT_MS / 2 && took < LONG_MS / 2, "it took %d ms", (int)took);
        weft_i_cuda_sum sum = {.dtype = WEFT_F32,
                               .count = 4,
                               .way = WEFT_I_CUDA_PACKETS,
                               .limit_ms = LONG_MS,
                               .in = me->data,
                               .out = me->data};
        RANK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum) == WEFT_ERR_TIMEOUT, "no error");
    }
    scene_meet();
    if (rank == missing) { /* comes late: it is poisoned, and returns at once */
        weft_status status = barrier_and_sync(rank, 1, LONG_MS);
        RANK(status == WEFT_ERR_TIMEOUT, "%d: %s", status, weft_last_error());
        RANK(strstr(weft_last_error(), "gave up waiting"), "%s", weft_last_error());
    }
    after_reset(rank);
}

TEST(test_cuda_timeout)
{
    for (int missing = 0; missing < 3; missing++) {
        scene_open(3, BYTES, &sizes);
        scene_run(timeout_body, &missing);
        scene_close();
    }
}

/* A collective that one rank does not call, by every way. */
static void absent_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    weft_i_cuda_way way = *(weft_i_cuda_way *)arg;
    weft_i_cuda_sum sum = {
        .dtype = WEFT_BF16, .count = 300, .way = way, .limit_ms = SHORT_MS, .out = me->data + 4096};
    if (way == WEFT_I_CUDA_PACKETS)
        sum.in = me->data;
    else
        sum.from = scene_reach(0);
    sum.to = scene_reach(8192);
    if (rank != 1) {
        RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum));
        weft_status status = weft_i_cuda_stream_sync(me->stream, LONG_MS); /* tells it, once */
        RANK(status == WEFT_ERR_TIMEOUT, "way %d: %d, %s", way, status, weft_last_error());
        RANK_OK(weft_i_cuda_stream_sync(me->stream, LONG_MS));
        status = weft_i_cuda_team_check(&me->team);
        RANK(status == WEFT_ERR_TIMEOUT, "way %d: %d, %s", way, status, weft_last_error());
    }
    after_reset(rank);
}

TEST(test_cuda_absent)
{
    for (int way = WEFT_I_CUDA_PACKETS; way <= WEFT_I_CUDA_TWO_SHOT; way++) {
        scene_open(3, BYTES, &sizes);
        scene_run(absent_body, &way);
        scene_close();
    }
    for (unsigned narrow = 1; narrow < 8; narrow++) {
        weft_i_cuda_way way = WEFT_I_CUDA_PACKETS;
        scene_open(3, BYTES, &sizes);
        scene_hurry(narrow);
        scene_run(absent_body, &way);
        scene_close();
    }
}

/* The ranks call different things: all learn it, long before the deadline. */
typedef struct difference {
    weft_i_cuda_way way;
    weft_i_cuda_sum other; /* what the last rank calls */
} difference;

static void mismatch_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    const difference *d = arg;
    weft_i_cuda_sum sum = {
        .dtype = WEFT_F32, .op = WEFT_I_FOLD_SUM, .count = 256, .limit_ms = LONG_MS};
    if (rank == scene.ranks - 1)
        sum = d->other;
    sum.way = d->way;
    sum.out = me->data + 8192;
    if (d->way == WEFT_I_CUDA_PACKETS)
        sum.in = me->data;
    else
        sum.from = scene_reach(0);
    sum.to = scene_reach(16384);
    int64_t start = WEFT_OS->clock_ns();
    RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum));
    weft_status status = weft_i_cuda_stream_sync(me->stream, 2 * LONG_MS);
    RANK(status == WEFT_ERR_MISMATCH, "way %d: %d, %s", d->way, status, weft_last_error());
    status = weft_i_cuda_team_check(&me->team);
    RANK(status == WEFT_ERR_MISMATCH, "way %d: %d, %s", d->way, status, weft_last_error());
    RANK(WEFT_OS->clock_ns() - start < (int64_t)LONG_MS / 2 * 1000000, "only at the deadline");
    after_reset(rank);
}

TEST(test_cuda_mismatch)
{
    static const weft_i_cuda_sum others[] = {
        {.dtype = WEFT_I32, .op = WEFT_I_FOLD_SUM, .count = 256, .limit_ms = LONG_MS},
        {.dtype = WEFT_F32, .op = WEFT_I_FOLD_MAX, .count = 256, .limit_ms = LONG_MS},
        {.dtype = WEFT_F32, .op = WEFT_I_FOLD_SUM, .count = 64, .limit_ms = LONG_MS},
    };
    for (int way = WEFT_I_CUDA_PACKETS; way <= WEFT_I_CUDA_TWO_SHOT; way++)
        for (int i = 0; i < 3; i++) {
            difference d = {way, others[i]};
            scene_open(2 + i, BYTES, &sizes);
            scene_run(mismatch_body, &d);
            scene_close();
        }
    for (int i = 0; i < 6; i++) {
        difference d = {WEFT_I_CUDA_PACKETS, others[i % 3]};
        scene_open(3, BYTES, &sizes);
        scene_hurry(i < 3 ? 7 : 1);
        scene_run(mismatch_body, &d);
        scene_close();
    }
}

/* When the rank's kernel waits, a host thread says that rank 2 is gone: the kernel ends, and names
 * it. */
static void condemn_peer(int rank)
{
    scene_rank *me = &scene.rank[rank];
    int64_t deadline = weft_i_os_deadline(LONG_MS);
    while (weft_i_cuda_team_waits_for(&me->team) < 0 && WEFT_OS->clock_ns() < deadline)
        WEFT_OS->sleep_ns(100000);
    int awaited = weft_i_cuda_team_waits_for(&me->team);
    RANK(awaited == 1 || awaited == 2, "waits for %d", awaited);
    weft_i_cuda_team_condemn(&me->team, WEFT_ERR_PEER_DEAD, 2);
    weft_status status = weft_i_cuda_stream_sync(me->stream, LONG_MS);
    RANK(status == WEFT_ERR_PEER_DEAD, "%d: %s", status, weft_last_error());
    status = weft_i_cuda_team_check(&me->team);
    RANK(status == WEFT_ERR_PEER_DEAD, "%d: %s", status, weft_last_error());
    RANK(strstr(weft_last_error(), "rank 2 will not come"), "%s", weft_last_error());
    RANK(weft_i_cuda_team_waits_for(&me->team) < 0, "still waits");
}

/* In a barrier. */
static void verdict_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    (void)arg;
    if (rank == 0) {
        RANK_OK(weft_i_cuda_barrier(&me->team, me->stream, 0, 2 * LONG_MS));
        condemn_peer(rank);
    }
    scene_meet();
    if (rank == 1) {
        weft_status status = barrier_and_sync(rank, 0, LONG_MS);
        RANK(status == WEFT_ERR_PEER_DEAD, "%d: %s", status, weft_last_error());
    }
    after_reset(rank);
}

/* The same for packets in narrow blocks. */
static void narrow_verdict_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    (void)arg;
    if (rank == 0) {
        weft_i_cuda_sum sum = {.dtype = WEFT_F32,
                               .count = 300,
                               .way = WEFT_I_CUDA_PACKETS,
                               .limit_ms = 2 * LONG_MS,
                               .in = me->data,
                               .out = me->data};
        RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum));
        condemn_peer(rank);
    }
    scene_meet();
    after_reset(rank);
}

TEST(test_cuda_narrow_verdict)
{
    scene_open(3, BYTES, &sizes);
    scene_hurry(1);
    scene_run(narrow_verdict_body, NULL);
    scene_close();
}

TEST(test_cuda_verdict)
{
    scene_open(3, BYTES, &sizes);
    scene_run(verdict_body, NULL);
    scene_close();
}

static void await_waiting(int rank, int first, int last)
{
    scene_rank *me = &scene.rank[rank];
    int64_t deadline = weft_i_os_deadline(LONG_MS);
    int awaited = -1;
    while (!(awaited >= first && awaited <= last) && WEFT_OS->clock_ns() < deadline) {
        WEFT_OS->sleep_ns(2000000);
        awaited = weft_i_cuda_team_waits_for(&me->team);
    }
    RANK(awaited >= first && awaited <= last, "waits for %d, not %d to %d", awaited, first, last);
}

/* Of two threads that wait, one for each rank, the first ends: the other is still seen to wait. */
static void still_waiting_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    (void)arg;
    if (rank == 0) {
        RANK_OK(weft_i_cuda_barrier(&me->team, me->stream, 0, 2 * LONG_MS));
        await_waiting(rank, 1, 2);
    }
    scene_meet();
    if (rank == 1)
        RANK_OK(weft_i_cuda_barrier(&me->team, me->stream, 0, 2 * LONG_MS));
    if (rank == 1)
        await_waiting(rank, 2, 2); /* so it has arrived */
    scene_meet();
    if (rank == 0)
        await_waiting(rank, 2, 2);
    scene_meet();
    if (rank == 2)
        RANK_OK(weft_i_cuda_barrier(&me->team, me->stream, 0, LONG_MS));
    RANK_OK(weft_i_cuda_stream_sync(me->stream, LONG_MS));
    RANK_OK(weft_i_cuda_team_check(&me->team));
    RANK(weft_i_cuda_team_waits_for(&me->team) < 0, "still waits");
}

TEST(test_cuda_still_waiting)
{
    scene_open(3, BYTES, &sizes);
    scene_run(still_waiting_body, NULL);
    scene_close();
}

/* A poisoned kernel touches no data. */
static void untouched_body(int rank, void *arg)
{
    scene_rank *me = &scene.rank[rank];
    uint32_t before = 7777, after = 0;
    (void)arg;
    RANK_OK(weft_i_cuda_copy(me->stream, me->data + 4096, &before, 4));
    RANK_OK(weft_i_cuda_stream_sync(me->stream, LONG_MS));
    weft_i_cuda_sum sum = {.dtype = WEFT_U32,
                           .count = 1,
                           .way = WEFT_I_CUDA_PACKETS,
                           .limit_ms = LONG_MS,
                           .in = me->data,
                           .out = me->data + 4096};
    if (rank == 0) {
        RANK(barrier_and_sync(rank, 3, SHORT_MS) == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
    }
    scene_meet();
    if (rank == 1) {
        RANK_OK(weft_i_cuda_all_reduce(&me->team, me->stream, &sum));
        RANK(weft_i_cuda_read(me->stream, &after, me->data + 4096, 4) == WEFT_ERR_TIMEOUT, "%s",
             weft_last_error()); /* told once; then the memory can be read */
        RANK_OK(weft_i_cuda_read(me->stream, &after, me->data + 4096, 4));
        RANK(after == before, "the result is %u", after);
        RANK(weft_i_cuda_team_check(&me->team) == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
    }
    after_reset(rank);
}

TEST(test_cuda_poison)
{
    scene_open(2, BYTES, &sizes);
    scene_run(untouched_body, NULL);
    scene_close();
}

TEST(test_cuda_signal_arguments)
{
    scene_open(2, BYTES, &sizes);
    scene_rank *me = &scene.rank[0];
    CHECK_STATUS(weft_i_cuda_barrier(&me->team, me->stream, 4, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_i_cuda_barrier(&me->team, me->stream, -1, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_i_cuda_put_signal(&me->team, me->stream, 2, 0, 0), WEFT_ERR_INVALID_ARG);
    weft_i_cuda_sum sum = {.dtype = WEFT_F32, .op = WEFT_I_FOLD_BAND, .count = 1};
    CHECK_STATUS(weft_i_cuda_all_reduce(&me->team, me->stream, &sum), WEFT_ERR_TYPE);
    sum = (weft_i_cuda_sum){.dtype = WEFT_F32, .count = 1, .way = WEFT_I_CUDA_TWO_SHOT};
    CHECK_STATUS(weft_i_cuda_all_reduce(&me->team, me->stream, &sum), WEFT_ERR_INVALID_ARG);
    scene_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
