/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads that share one device: pads and operands in spans, a stream each.  The same
 * tests run on the software driver and on a GPU; WEFT_TEST_CUDA=real chooses the latter.
 *
 *     scene_run(4, body, arg);      body(rank, arg) on a thread each; a failure is a message
 */
#ifndef WEFT_TESTS_CUDA_SCENE_H
#define WEFT_TESTS_CUDA_SCENE_H

#include "harness.h"

#include "backends/cuda/device/span.h"
#include "backends/cuda/ranks/team.h"
#include "base/os/os.h"
#include "model.h"
#include "tensor/object/stream.h"
#include "weft/scope.h"

enum { SCENE_MOST = 8 };

typedef struct scene_rank {
    weft_i_cuda_stream *stream;
    weft_i_cuda_team team;
    char *data; /* this rank's block of the span of operands */
    char complaint[600];
} scene_rank;

static struct {
    int ranks;
    bool real;
    int threads; /* of a block at most, in the software driver; 0: 4 */
    weft_i_cuda_device *device;
    weft_i_cuda_span pads, data;
    weft_i_cu_handle blocks[2 * SCENE_MOST];
    scene_rank rank[SCENE_MOST];
    pthread_mutex_t lock; /* of what follows: ranks meet on the host */
    pthread_cond_t changed;
    int arrived, meetings;
    bool failed; /* a rank has left: nobody waits for it */
    void (*body)(int rank, void *arg);
    void *arg;
} scene;

__attribute__((unused)) static void scene_leave(void)
{
    pthread_mutex_lock(&scene.lock);
    scene.failed = true;
    pthread_cond_broadcast(&scene.changed);
    pthread_mutex_unlock(&scene.lock);
}

/* Complains and leaves the rank's body; the others are not left waiting: their waits have limits.
 */
#define RANK(condition_, ...)                                                                    \
    do {                                                                                         \
        if (!(condition_)) {                                                                     \
            char *out_ = scene.rank[rank].complaint;                                             \
            int n_ = snprintf(out_, 300, "rank %d, line %d, %s: ", rank, __LINE__, #condition_); \
            snprintf(out_ + n_, sizeof scene.rank[rank].complaint - (size_t)n_, __VA_ARGS__);    \
            scene_leave();                                                                       \
            return;                                                                              \
        }                                                                                        \
    } while (0)
#define RANK_OK(call_) RANK((call_) == WEFT_OK, "%s", weft_last_error())

static bool scene_is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

/* Installs the software driver, or skips where a GPU is wanted and there is none. */
__attribute__((unused)) static void scene_driver(void)
{
    static bool installed;
    scene.real = scene_is_real();
    model = (model_wishes){.threads_most = scene.threads ? scene.threads : 4};
    if (!installed && !scene.real)
        model_install();
    installed = true;
    if (scene.real && weft_i_cuda_open(0, &scene.device) != WEFT_OK)
        FAIL("WEFT_TEST_CUDA=real: %s", weft_last_error());
    CHECK_OK(weft_i_cuda_open(0, &scene.device));
}

static void scene_map(weft_i_cuda_span *span, int ranks, size_t bytes, weft_i_cu_handle *blocks)
{
    CHECK_OK(weft_i_cuda_span_new(scene.device, ranks, bytes, span));
    for (int r = 0; r < ranks; r++) {
        size_t rounded = span->stride;
        CHECK_OK(weft_i_cuda_block_new(scene.device, &rounded, &blocks[r]));
        CHECK_OK(weft_i_cuda_span_map(span, r, blocks[r]));
    }
}

/* `bytes` of operands per rank. */
__attribute__((unused)) static void scene_open(int ranks, size_t bytes,
                                               const weft_i_cuda_sizes *sizes)
{
    scene_driver();
    scene.ranks = ranks;
    weft_k_group group;
    memset(&group, 0, sizeof group);
    size_t pad = weft_i_cuda_team_layout(ranks, sizes, &group);
    scene_map(&scene.pads, ranks, pad, scene.blocks);
    scene_map(&scene.data, ranks, bytes, scene.blocks + SCENE_MOST);
    for (int r = 0; r < ranks; r++) {
        scene_rank *rank = &scene.rank[r];
        rank->complaint[0] = 0;
        CHECK_OK(weft_i_cuda_stream_new(scene.device, false, &rank->stream));
        CHECK_OK(weft_i_cuda_team_open(scene.device, r, ranks, weft_i_cuda_span_of(&scene.pads, 0),
                                       scene.pads.stride, ranks, sizes, &rank->team));
        CHECK_OK(weft_i_cuda_team_reset(&rank->team, rank->stream));
        rank->data = weft_i_cuda_span_of(&scene.data, r);
    }
    pthread_mutex_init(&scene.lock, NULL);
    pthread_cond_init(&scene.changed, NULL);
}

/* After operations on tensors: their scope goes, the thread's streams go, and nothing of the driver
 * is left. */
__attribute__((unused)) static void scene_end_scope(void)
{
    weft_scope_close();
    weft_i_stream_forget();
    weft_clear_error();
    if (scene.real)
        return;
    weft_i_cuda_close_all();
    CHECK_INT(model_live(), 0);
}

/* Ranks whose bit is set get urgent streams, on which packets may go in narrow blocks. */
__attribute__((unused)) static void scene_hurry(unsigned ranks)
{
    for (int r = 0; r < scene.ranks; r++)
        if (ranks >> r & 1) {
            CHECK_OK(weft_i_cuda_stream_release(scene.rank[r].stream));
            CHECK_OK(weft_i_cuda_stream_new(scene.device, true, &scene.rank[r].stream));
            scene.rank[r].team.narrow = true;
        }
}

__attribute__((unused)) static void scene_close(void)
{
    for (int r = 0; r < scene.ranks; r++) {
        CHECK_OK(weft_i_cuda_stream_release(scene.rank[r].stream));
        weft_i_cuda_team_close(&scene.rank[r].team);
    }
    weft_i_cuda_span_release(&scene.pads);
    weft_i_cuda_span_release(&scene.data);
    for (int r = 0; r < scene.ranks; r++) {
        weft_i_cuda_block_release(scene.blocks[r]);
        weft_i_cuda_block_release(scene.blocks[SCENE_MOST + r]);
    }
    pthread_mutex_destroy(&scene.lock);
    pthread_cond_destroy(&scene.changed);
    if (!scene.real)
        weft_i_cuda_close_all();
    if (!scene.real && model_live() != 0)
        FAIL("%d objects of the driver are left", model_live());
}

/* All ranks, on the host; returns too if one has left with a complaint. */
__attribute__((unused)) static void scene_meet(void)
{
    pthread_mutex_lock(&scene.lock);
    int meeting = scene.meetings;
    if (++scene.arrived == scene.ranks) {
        scene.arrived = 0;
        scene.meetings++;
        pthread_cond_broadcast(&scene.changed);
    }
    while (meeting == scene.meetings && !scene.failed)
        pthread_cond_wait(&scene.changed, &scene.lock);
    pthread_mutex_unlock(&scene.lock);
}

static void *scene_thread(void *arg)
{
    scene.body((int)(intptr_t)arg, scene.arg);
    return NULL;
}

/* Runs the ranks; the first complaint, or NULL. */
__attribute__((unused)) static const char *scene_try(void (*body)(int rank, void *arg), void *arg)
{
    pthread_t threads[SCENE_MOST];
    scene.body = body;
    scene.arg = arg;
    scene.arrived = 0;
    scene.failed = false;
    for (int r = 0; r < scene.ranks; r++) {
        scene.rank[r].complaint[0] = 0;
        CHECK(pthread_create(&threads[r], NULL, scene_thread, (void *)(intptr_t)r) == 0);
    }
    for (int r = 0; r < scene.ranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < scene.ranks; r++)
        if (scene.rank[r].complaint[0])
            return scene.rank[r].complaint;
    return NULL;
}

__attribute__((unused)) static void scene_run(void (*body)(int rank, void *arg), void *arg)
{
    const char *complaint = scene_try(body, arg);
    if (complaint)
        FAIL("%s", complaint);
}

/* Memory of all ranks at `offset` of the operands. */
__attribute__((unused)) static weft_i_cuda_reach scene_reach(size_t offset)
{
    return (weft_i_cuda_reach){weft_i_cuda_span_of(&scene.data, 0) + offset, scene.data.stride,
                               NULL};
}

/* After a failure: all work ends, all reset, all meet. */
__attribute__((unused)) static weft_status scene_reset(int rank)
{
    scene_rank *r = &scene.rank[rank];
    WEFT_TRY(weft_i_cuda_stream_sync(r->stream, 20000));
    scene_meet();
    WEFT_TRY(weft_i_cuda_team_reset(&r->team, r->stream));
    scene_meet();
    return WEFT_OK;
}

#endif
