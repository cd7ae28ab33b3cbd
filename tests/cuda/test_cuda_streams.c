/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/device/queue.c, backends/cuda/ranks/turns.c */
/*
 * Operations of one group on several streams of a device run in the order of the calls: from one thread or
 * several, in captures, and beside replays.  The tests that bear the names of the reference assert what
 * it does.  On the software driver, or on a GPU with WEFT_TEST_CUDA=real.
 */
#define HARNESS_LABEL stream_label
static const char *stream_label(const char *backend);
#include "cuda/ranks_scene.h"

#include "backends/cuda/device/driver.h"
#include "cuda/model_parts.h"
#include "symm_info.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT = 20000, ROUNDS = 20 };

static const char *stream_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    if (is_real())
        return threads ? "cuda-threads" : "cuda";
    return threads ? "softcuda-threads" : "softcuda";
}

/* ---- scenes ---- */

typedef struct scene {
    weft_group *world;
    int rank, size;
    weft_stream *home, *a, *b;
    weft_tensor *tensor;
    weft_symm *mem;
} scene;

static weft_symm *make(weft_group *group, weft_tensor **out)
{
    *out = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    weft_symm *mem = weft_symm_rendezvous(*out, group);
    if (!mem)
        FAIL("rendezvous: %s", weft_last_error());
    return mem;
}

static scene begin(int rank, int size)
{
    scene s = {.world = join(60000), .rank = rank, .size = size};
    s.home = weft_stream_current(GPU);
    s.a = weft_stream_new(GPU, false);
    s.b = weft_stream_new(GPU, false);
    s.mem = make(s.world, &s.tensor);
    CHECK_OK(weft_stream_sync(s.home, LIMIT));
    return s;
}

static void use(weft_stream *stream)
{
    CHECK_OK(weft_stream_use(stream));
}

static void sync_all(const scene *s)
{
    weft_stream *all[] = {s->home, s->a, s->b};
    for (int i = 0; i < 3; i++)
        if (weft_stream_sync(all[i], 2 * LIMIT) < 0)
            FAIL("stream %d: %s", i, weft_last_error());
}

static double first_of(weft_tensor *x)
{
    return weft_item(weft_to(x, WEFT_F32, WEFT_CPU), 0);
}

static double of_peer(const scene *s)
{
    int peer = (s->rank + 1) % s->size;
    return first_of(weft_symm_buffer(s->mem, peer, WEFT_SHAPE(64), WEFT_F32, 0));
}

static void pads_are_clear(const scene *s)
{
    weft_tensor *pad = weft_symm_signal_pad(s->mem, s->rank, WEFT_SCALAR, WEFT_U32, 0);
    weft_tensor *here = weft_to(pad, WEFT_U32, WEFT_CPU);
    for (int64_t i = 0; i < weft_tensor_numel(here); i++)
        CHECK_INT(weft_item_int(here, i), 0);
    CHECK_OK(weft_group_barrier(s->world, LIMIT));
}

static void end(scene *s)
{
    use(s->home);
    finish(s->world);
}

/* ---- work that takes its time ---- */

/* On the software driver until somebody says so; on a GPU long enough. */
static atomic_int held;

static void hold_stream(void *unused)
{
    (void)unused;
    /* Pairs with the release in let_go; ends by itself, as a test that fails must. */
    for (int ms = 0; ms < 30000 && atomic_load_explicit(&held, memory_order_acquire); ms++)
        rest_us(1000);
}

static void pause_stream(void *us)
{
    rest_us(*(int *)us);
}

static void occupy(weft_stream *stream)
{
    for (int i = 0; is_real() && i < 400; i++) {
        static _Thread_local weft_tensor *large;
        if (!large)
            large = weft_keep(weft_zeros(WEFT_F32, GPU, WEFT_SHAPE(64 << 20)));
        CHECK(weft_exp(large));
    }
    if (!is_real())
        CHECK_INT(model_call(weft_stream_native(stream), hold_stream, NULL, 0), 0);
}

/* Rank 0 is late on its stream. */
static void be_late(const scene *s, weft_stream *stream, int us)
{
    if (s->rank == 0 && !is_real()) {
        int *pause = malloc(sizeof *pause);
        *pause = us;
        CHECK_INT(model_call(weft_stream_native(stream), pause_stream, pause, sizeof *pause), 0);
    }
}

/* ---- the reference's ---- */

RANKS_TEST(test_stream_serialization_barrier_two_streams, 2)
{
    scene s = begin(rank, size);
    for (int round = 0; round < ROUNDS; round++) {
        use(s.a);
        be_late(&s, s.a, 2000);
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        use(s.b);
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        CHECK_OK(weft_fill(s.tensor, 100 * round + rank));
        use(s.home);
        sync_all(&s);
        CHECK_OK(weft_group_barrier(s.world, LIMIT));
        CHECK_NEAR(of_peer(&s), 100 * round + 1 - rank, 0);
        CHECK_OK(weft_group_barrier(s.world, LIMIT));
    }
    pads_are_clear(&s);
    end(&s);
}

/* Without an order, the wait of the second stream may take the first one's signal. */
RANKS_TEST(test_stream_serialization_put_wait_two_streams, 2)
{
    scene s = begin(rank, size);
    weft_stream *streams[] = {s.a, s.b};
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < 2; k++) {
            use(streams[k]);
            be_late(&s, streams[k], k ? 0 : 2000);
            if (rank == 0) {
                CHECK_OK(weft_fill(s.tensor, 10 * round + k));
                CHECK_OK(weft_symm_put_signal(s.mem, 1, 0, LIMIT));
            } else {
                CHECK_OK(weft_symm_wait_signal(s.mem, 0, 0, LIMIT));
            }
        }
        use(s.home);
        sync_all(&s);
        if (rank == 1)
            CHECK_NEAR(of_peer(&s), 10 * round + 1, 0);
        CHECK_OK(weft_group_barrier(s.world, LIMIT));
    }
    pads_are_clear(&s);
    end(&s);
}

RANKS_TEST(test_stream_serialization_waits_on_pad_kernel_only, 2)
{
    scene s = begin(rank, size);
    for (int round = 0; round < 3; round++) {
        atomic_store_explicit(&held, 1, memory_order_relaxed); /* before anything reads it */
        CHECK_OK(weft_group_barrier(s.world, LIMIT));          /* ranks may be threads */
        use(s.a);
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        occupy(s.a);
        use(s.b);
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        if (weft_stream_sync(s.b, LIMIT) < 0)
            FAIL("the second barrier waits for what followed the first: %s", weft_last_error());
        CHECK_INT(weft_stream_test(s.a), WEFT_IN_PROGRESS);
        CHECK_OK(weft_group_barrier(s.world, LIMIT));
        atomic_store_explicit(&held, 0, memory_order_release); /* pairs with hold_stream */
        use(s.home);
        sync_all(&s);
        CHECK_OK(weft_group_barrier(s.world, LIMIT));
    }
    end(&s);
}

typedef struct caller {
    const scene *s;
    int calls, value;
    weft_status status;
    char text[300];
} caller;

static void *call(void *argument)
{
    caller *c = argument;
    weft_stream *stream = weft_stream_new(GPU, false);
    c->status = weft_stream_use(stream);
    for (int i = 0; i < c->calls && c->status >= 0; i++) {
        c->status = weft_symm_barrier(c->s->mem, 0, LIMIT);
        if (c->status >= 0 && i % 4 == 3)
            c->status = weft_stream_sync(stream, LIMIT);
    }
    if (c->status >= 0)
        c->status = weft_stream_sync(stream, LIMIT);
    if (c->status < 0)
        snprintf(c->text, sizeof c->text, "%s", weft_last_error());
    weft_clear_error();
    return NULL;
}

RANKS_TEST(test_stream_serialization_concurrent_threads, 2)
{
    scene s = begin(rank, size);
    caller callers[] = {{.s = &s, .calls = 40}, {.s = &s, .calls = 40}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, call, &callers[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (callers[i].status < 0)
            FAIL("thread %d: %s", i, callers[i].text);
    pads_are_clear(&s);
    end(&s);
}

static void capture_pair(const scene *s, weft_symm *first, weft_symm *second, bool ordered)
{
    use(s->a);
    CHECK_OK(weft_capture_begin(s->a));
    CHECK_OK(weft_stream_after(s->b, s->a)); /* it joins before anything is given */
    CHECK_OK(weft_symm_barrier(first, 0, LIMIT));
    use(s->b);
    CHECK_OK(weft_symm_barrier(second, 0, LIMIT));
    CHECK_OK(weft_stream_after(s->a, s->b));
    use(s->a);
    weft_replay *replay = weft_capture_end(s->a);
    CHECK(replay);
    CHECK_INT(model_graph_kernels(), 2);
    CHECK_INT(model_graph_is_behind(1, 0), ordered);
    CHECK_INT(model_graph_is_behind(0, 1), 0);
    CHECK_OK(weft_replay_run(replay));
    CHECK_OK(weft_stream_sync(s->a, LIMIT));
    weft_release(replay);
    use(s->home);
}

RANKS_TEST(test_stream_serialization_graph_dependency, 2)
{
    if (is_real())
        SKIP("the edges of a graph are told by the software driver");
    scene s = begin(rank, size);
    weft_group *other = fresh_group(s.world);
    weft_tensor *x, *y;
    weft_symm *same = make(s.world, &x), *elsewhere = make(other, &y);
    capture_pair(&s, s.mem, same, true);
    capture_pair(&s, s.mem, s.mem, true);
    capture_pair(&s, s.mem, elsewhere, false);
    weft_release(other);
    end(&s);
}

RANKS_TEST(test_stream_serialization_one_shot_all_reduce, 2)
{
    scene s = begin(rank, size);
    weft_stream *streams[] = {s.a, s.b};
    for (int round = 0; round < ROUNDS; round++) {
        weft_tensor *sums[2];
        for (int k = 0; k < 2; k++) {
            use(streams[k]);
            be_late(&s, streams[k], k ? 0 : 2000);
            CHECK_OK(weft_fill(s.tensor, round + k));
            sums[k] = weft_symm_one_shot_all_reduce(s.tensor, WEFT_SUM, s.world);
            CHECK(sums[k]);
        }
        use(s.home);
        sync_all(&s);
        for (int k = 0; k < 2; k++)
            CHECK_NEAR(first_of(sums[k]), 2 * (round + k), 0);
    }
    end(&s);
}

RANKS_TEST(test_stream_serialization_cuda_graph_capture, 2)
{
    scene s = begin(rank, size);
    use(s.a);
    CHECK_OK(weft_fill(s.tensor, rank + 1));
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    CHECK_OK(weft_stream_sync(s.a, LIMIT));
    CHECK_OK(weft_capture_begin(s.a));
    CHECK_OK(weft_fill(s.tensor, rank + 200));
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    weft_replay *replay = weft_capture_end(s.a);
    CHECK(replay);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_replay_run(replay));
        CHECK_OK(weft_stream_sync(s.a, LIMIT));
        CHECK_NEAR(of_peer(&s), 1 - rank + 200, 0);
        CHECK_OK(weft_group_barrier(s.world, LIMIT)); /* both have read */
    }
    weft_release(replay);
    pads_are_clear(&s);
    end(&s);
}

RANKS_TEST(test_stream_serialization_capture_without_replay, 2)
{
    scene s = begin(rank, size);
    use(s.a);
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    CHECK_OK(weft_stream_sync(s.a, LIMIT));
    CHECK_OK(weft_capture_begin(s.a));
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    weft_replay *replay = weft_capture_end(s.a);
    CHECK(replay);
    use(s.b);
    CHECK_OK(weft_fill(s.tensor, rank + 7));
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    CHECK_OK(weft_stream_sync(s.b, LIMIT));
    CHECK_NEAR(of_peer(&s), 1 - rank + 7, 0);
    weft_release(replay);
    pads_are_clear(&s);
    end(&s);
}

RANKS_TEST(test_stream_serialization_cuda_graph_forked_streams, 2)
{
    scene s = begin(rank, size);
    use(s.a);
    CHECK_OK(weft_fill(s.tensor, 0)); /* the memory is the capture's stream's before */
    CHECK_OK(weft_stream_sync(s.a, LIMIT));
    CHECK_OK(weft_capture_begin(s.a));
    CHECK_OK(weft_stream_after(s.b, s.a));
    CHECK_OK(weft_fill(s.tensor, rank + 10));
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    use(s.b);
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    CHECK_OK(weft_fill(s.tensor, rank + 20));
    CHECK_OK(weft_stream_after(s.a, s.b));
    use(s.a);
    weft_replay *replay = weft_capture_end(s.a);
    CHECK(replay);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_replay_run(replay));
        CHECK_OK(weft_stream_sync(s.a, LIMIT));
        CHECK_OK(weft_group_barrier(s.world, LIMIT));
        CHECK_NEAR(of_peer(&s), 1 - rank + 20, 0);
        CHECK_OK(weft_group_barrier(s.world, LIMIT));
    }
    weft_release(replay);
    pads_are_clear(&s);
    end(&s);
}

/* ---- weft's own ---- */

RANKS_TEST(test_streams_replay_beside_eager, 2)
{
    scene s = begin(rank, size);
    use(s.a);
    CHECK_OK(weft_capture_begin(s.a));
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
    weft_replay *replay = weft_capture_end(s.a);
    CHECK(replay);
    for (int round = 0; round < ROUNDS; round++) {
        use(s.a);
        be_late(&s, s.a, 1000);
        CHECK_OK(weft_replay_run(replay));
        use(s.b);
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        use(s.home);
        CHECK_OK(weft_replay_run(replay));
    }
    use(s.home);
    sync_all(&s);
    weft_release(replay);
    pads_are_clear(&s);
    end(&s);
}

/* A thread with one stream sets no marks, and its first operation elsewhere is behind all of it. */
RANKS_TEST(test_streams_one_costs_nothing, 2)
{
    if (is_real())
        SKIP("the software driver counts calls");
    if (harness_in_threads)
        SKIP("the calls of other ranks would be counted too");
    weft_group *world = join(60000);
    weft_tensor *x;
    weft_symm *mem = make(world, &x);
    CHECK_OK(weft_symm_barrier(mem, 0, LIMIT));
    int records = model_calls("cuEventRecord"), waits = model_calls("cuStreamWaitEvent");
    for (int i = 0; i < 10; i++) {
        CHECK_OK(weft_symm_barrier(mem, 0, LIMIT));
        CHECK_OK(weft_symm_put_signal(mem, 1 - rank, 1, LIMIT));
        CHECK_OK(weft_symm_wait_signal(mem, 1 - rank, 1, LIMIT));
    }
    CHECK_INT(model_calls("cuEventRecord"), records);
    CHECK_INT(model_calls("cuStreamWaitEvent"), waits);
    weft_stream *home = weft_stream_current(GPU), *other = weft_stream_new(GPU, false);
    use(other);
    CHECK_OK(weft_symm_barrier(mem, 0, LIMIT));
    CHECK_INT(model_calls("cuStreamWaitEvent"), waits + 1);
    CHECK_OK(weft_symm_barrier(mem, 0, LIMIT));
    CHECK_INT(model_calls("cuStreamWaitEvent"), waits + 1); /* it follows itself */
    use(home);
    CHECK_OK(weft_stream_sync(other, LIMIT));
    finish(world);
}

/* Nor does the stream beside, on which weft runs posted calls: it is none of the program's. */
RANKS_TEST(test_streams_posted_costs_nothing, 2)
{
    if (is_real())
        SKIP("the software driver counts calls");
    if (harness_in_threads)
        SKIP("the calls of other ranks would be counted too");
    weft_group *world = join(60000);
    weft_tensor *x, *y = weft_full(WEFT_F32, GPU, WEFT_SHAPE(64), rank);
    weft_symm *mem = make(world, &x);
    weft_work *work = weft_all_reduce_start(y, y, WEFT_SUM, world);
    CHECK_OK(weft_work_wait(work, LIMIT));
    weft_release(work);
    for (int i = 0; i < 10; i++) /* then they are taken to stay on this stream */
        CHECK_OK(weft_symm_barrier(mem, 0, LIMIT));
    int records = model_calls("cuEventRecord");
    for (int i = 0; i < 10; i++) {
        CHECK_OK(weft_symm_barrier(mem, 0, LIMIT));
        CHECK_OK(weft_symm_put_signal(mem, 1 - rank, 1, LIMIT));
        CHECK_OK(weft_symm_wait_signal(mem, 1 - rank, 1, LIMIT));
    }
    CHECK_INT(model_calls("cuEventRecord"), records);
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), LIMIT));
    finish(world);
}

/* A stream goes while what it was given last has yet to run. */
RANKS_TEST(test_streams_gone, 2)
{
    scene s = begin(rank, size);
    for (int round = 0; round < ROUNDS; round++) {
        weft_stream *passing = weft_stream_new(GPU, false);
        use(passing);
        be_late(&s, passing, 2000);
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        use(s.home);
        weft_release(passing);
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        if (weft_stream_sync(s.home, LIMIT) < 0)
            FAIL("round %d: %s", round, weft_last_error());
    }
    pads_are_clear(&s);
    end(&s);
}

static void *call_late(void *argument)
{
    const scene *s = argument;
    be_late(s, weft_stream_current(GPU), 20000);
    if (weft_symm_barrier(s->mem, 0, LIMIT) < 0)
        return "the barrier of the thread that ends";
    return NULL;
}

/* The same of a thread's own, and nothing was marked: it had no other. */
RANKS_TEST(test_streams_gone_with_thread, 2)
{
    scene s = {.world = join(60000), .rank = rank, .size = size};
    s.mem = make(s.world, &s.tensor);
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), LIMIT));
    for (int round = 0; round < 8; round++) {
        pthread_t thread;
        void *failed = NULL;
        pthread_create(&thread, NULL, call_late, &s);
        pthread_join(thread, &failed);
        if (failed)
            FAIL("%s: %s", (char *)failed, weft_last_error());
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        if (weft_stream_sync(weft_stream_current(GPU), LIMIT) < 0)
            FAIL("round %d: %s", round, weft_last_error());
    }
    pads_are_clear(&s);
    finish(s.world);
}

/* A wait that is not answered yet holds up neither a put nor another word's wait on other streams. */
RANKS_TEST(test_streams_words_apart, 2)
{
    scene s = begin(rank, size);
    for (int round = 0; round < ROUNDS; round++) {
        use(s.a);
        CHECK_OK(weft_symm_wait_signal(s.mem, 1 - rank, 0, LIMIT));
        use(s.b);
        CHECK_OK(weft_symm_put_signal(s.mem, 1 - rank, 0, LIMIT));
        use(s.home);
        sync_all(&s);
    }
    pads_are_clear(&s);
    end(&s);
}

/* Any operations on any stream, in captures or not, leave what one stream would. */
RANKS_TEST(test_streams_property, 2)
{
    enum { STREAMS = 4, STEPS = 60 };
    scene s = begin(rank, size);
    weft_stream *streams[STREAMS] = {s.home, s.a, s.b, weft_stream_new(GPU, true)};
    weft_replay *replays[2] = {NULL, NULL};
    double expected = rank + 1, other = 2 - rank;
    uint32_t dice = 12345; /* the same on both ranks */
    use(s.home);
    CHECK_OK(weft_fill(s.tensor, rank + 1));
    weft_tensor *value = weft_clone(s.tensor);
    for (int i = 0; i < 2; i++) {
        use(streams[i]);
        CHECK_OK(weft_capture_begin(streams[i]));
        CHECK_OK(weft_symm_barrier(s.mem, i, LIMIT));
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        CHECK((replays[i] = weft_capture_end(streams[i])));
    }
    for (int step = 0; step < STEPS; step++) {
        dice = dice * 1664525 + 1013904223;
        use(streams[dice >> 16 & 3]);
        be_late(&s, streams[dice >> 16 & 3], (int)(dice >> 8 & 255));
        switch (dice >> 24 & 3) {
        case 0:
            CHECK_OK(weft_symm_barrier(s.mem, (int)(dice >> 20 & 1), LIMIT));
            break;
        case 1:
            CHECK_OK(weft_all_reduce_into(value, value, WEFT_SUM, s.world));
            expected = other = expected + other;
            break;
        case 2:
            CHECK_OK(weft_replay_run(replays[dice >> 20 & 1]));
            break;
        default:
            CHECK_OK(weft_symm_put_signal(s.mem, 1 - rank, 3, LIMIT));
            CHECK_OK(weft_symm_wait_signal(s.mem, 1 - rank, 3, LIMIT));
        }
        if (expected > 1e6) {
            CHECK_OK(weft_fill(value, rank + 1));
            expected = rank + 1;
            other = 2 - rank;
        }
    }
    for (int i = 0; i < STREAMS; i++)
        if (weft_stream_sync(streams[i], 2 * LIMIT) < 0)
            FAIL("stream %d: %s", i, weft_last_error());
    use(s.home);
    CHECK_NEAR(first_of(value), expected, 0);
    for (int i = 0; i < 2; i++)
        weft_release(replays[i]);
    pads_are_clear(&s);
    end(&s);
}

/* A rank dies, or stops for a while, while the others meet it on two streams. */
RANKS_TEST(test_streams_kill, 3)
{
    if (harness_in_threads)
        SKIP("a thread cannot be killed alone");
    scene s = begin(rank, size);
    CHECK_OK(weft_group_barrier(s.world, LIMIT));
    if (rank == 2) {
        harness_rank_dies();
        kill(getpid(), SIGKILL);
    }
    weft_stream *streams[] = {s.a, s.b};
    int failed = 0;
    for (int i = 0; i < 2; i++) { /* the second may know of it already */
        use(streams[i]);
        weft_status status = weft_symm_barrier(s.mem, 0, LIMIT);
        failed += status == WEFT_ERR_PEER_DEAD;
        if (status < 0)
            CHECK_INT(status, WEFT_ERR_PEER_DEAD);
    }
    for (int i = 0; i < 2; i++) {
        weft_status status = weft_stream_sync(streams[i], 2 * LIMIT);
        failed += status == WEFT_ERR_PEER_DEAD;
        if (status < 0)
            CHECK_CONTAINS(weft_last_error(), "rank 2");
    }
    CHECK(failed > 0);
    use(s.home);
    weft_clear_error();
    weft_finish(s.world);
    weft_clear_error();
}

RANKS_TEST(test_streams_stop, 2)
{
    if (harness_in_threads)
        SKIP("a thread cannot be stopped alone");
    scene s = begin(rank, size);
    pid_t child = rank == 1 ? arrange_stop(2000, 200000, 0) : 0;
    weft_stream *streams[] = {s.a, s.b};
    for (int i = 0; i < 200; i++) {
        use(streams[i % 2]);
        CHECK_OK(weft_symm_barrier(s.mem, 0, LIMIT));
        if (i % 16 == 15)
            CHECK_OK(weft_stream_sync(streams[i % 2], 2 * LIMIT));
    }
    use(s.home);
    sync_all(&s);
    if (child)
        waitpid(child, NULL, 0);
    pads_are_clear(&s);
    end(&s);
}

int main(int argc, char **argv)
{
    return scene_main(argc, argv);
}
