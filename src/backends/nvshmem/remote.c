/* SPDX-License-Identifier: Apache-2.0 */
/* Signals by calls of NVSHMEM on a stream; see remote.h. */
#include "remote.h"

#include "backends/cuda/device/capture.h"
#include "backends/cuda/device/stream.h"
#include "base/os/os.h"
#include "library.h"
#include "symm/sentry.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LIFTED = 0x3f }; /* in every byte of a word: more than any count */

/* A wait under way. */
typedef struct wait {
    weft_i_cuda_mark mark;
    int64_t deadline;
    int rank, channel; /* rank -1: all of them */
    const char *what;
    struct wait *next;
} wait;

struct weft_i_nvshmem_remote {
    weft_i_cuda_device *device;
    uint64_t *words; /* barriers, then signals: size for each channel */
    int rank, size, channels;
    int *pes;
    uint64_t *barriers; /* by channel: how many this rank has entered */
    uint64_t *taken;    /* by channel and source: how many signals it has waited for */
    weft_i_post *post;
    weft_i_cuda_stream *spare; /* for lifting, while others are held up */
    pthread_mutex_t lock;      /* guards the rest */
    wait *waits;
    uint64_t streams; /* a bit for each that carried its work */
    weft_status broken;
    bool told;
    char reason[256];
    weft_i_nvshmem_remote *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static weft_i_nvshmem_remote *first;

static size_t words_of(const weft_i_nvshmem_remote *remote)
{
    return 2 * (size_t)remote->channels * (size_t)remote->size;
}

/* The word of (channel, source), by its address in this rank's memory. */
static uint64_t *word_at(const weft_i_nvshmem_remote *remote, bool signals, int channel, int source)
{
    size_t half = signals ? (size_t)remote->channels * (size_t)remote->size : 0;
    return remote->words + half + (size_t)channel * (size_t)remote->size + (size_t)source;
}

uint64_t *weft_i_nvshmem_remote_word(const weft_i_nvshmem_remote *remote, int channel)
{
    return word_at(remote, true, channel, remote->rank);
}

/* ---- giving up ---- */

static void lift(const weft_i_nvshmem_remote *remote)
{
    if (weft_i_cuda_use(remote->device) == WEFT_OK)
        weft_i_cuda_driver()->cuMemsetD8Async((weft_i_cu_ptr)(uintptr_t)remote->words, LIFTED,
                                              words_of(remote) * sizeof *remote->words,
                                              weft_i_cuda_stream_raw(remote->spare));
}

/* Under the lock. */
static void give_up(weft_i_nvshmem_remote *remote, weft_status status, const char *why)
{
    if (remote->broken < 0)
        return;
    remote->broken = status;
    snprintf(remote->reason, sizeof remote->reason, "%s", why);
    lift(remote);
}

static void condemn(void *arg, weft_status status, int rank)
{
    weft_i_nvshmem_remote *remote = arg;
    char who[128], why[256];
    weft_i_post_describe(remote->post, rank, who, sizeof who);
    snprintf(why, sizeof why, "rank %d of %d: %s will not come", remote->rank, remote->size, who);
    pthread_mutex_lock(&remote->lock);
    give_up(remote, status, why);
    pthread_mutex_unlock(&remote->lock);
}

static void expire(weft_i_nvshmem_remote *remote, const wait *late)
{
    char why[256], whom[32] = "the others";
    if (late->rank >= 0)
        snprintf(whom, sizeof whom, "rank %d", late->rank);
    snprintf(why, sizeof why, "rank %d of %d, %s on channel %d: waited in vain for %s",
             remote->rank, remote->size, late->what, late->channel, whom);
    give_up(remote, WEFT_ERR_TIMEOUT, why);
}

/* Asked by the sentry's thread: forgets waits that are over, and ends those that last too long. */
static bool is_waiting(void *arg)
{
    weft_i_nvshmem_remote *remote = arg;
    bool usable = weft_i_cuda_use(remote->device) == WEFT_OK;
    pthread_mutex_lock(&remote->lock);
    for (wait **at = &remote->waits; usable && *at;) {
        wait *w = *at;
        if (weft_i_cuda_reached(&w->mark) == WEFT_IN_PROGRESS) {
            if (weft_i_os_ms_until(w->deadline) <= 0)
                expire(remote, w);
            at = &w->next;
            continue;
        }
        *at = w->next;
        weft_i_cuda_mark_release(&w->mark);
        WEFT_OS->free(w);
    }
    bool waits = remote->waits;
    pthread_mutex_unlock(&remote->lock);
    return waits;
}

/* A barrier waits for all. */
static bool awaits(void *arg, int rank)
{
    weft_i_nvshmem_remote *remote = arg;
    pthread_mutex_lock(&remote->lock);
    const wait *w = remote->waits;
    while (w && w->rank >= 0 && w->rank != rank)
        w = w->next;
    pthread_mutex_unlock(&remote->lock);
    return w;
}

/* Under the lock. */
static weft_status tell(weft_i_nvshmem_remote *remote)
{
    remote->told = true;
    return weft_i_fail(remote->broken,
                       "%s; nothing works on this memory until all ranks call weft_symm_reset",
                       remote->reason);
}

weft_status weft_i_nvshmem_remote_check(weft_i_nvshmem_remote *remote)
{
    pthread_mutex_lock(&remote->lock);
    weft_status status = remote->broken < 0 ? tell(remote) : WEFT_OK;
    pthread_mutex_unlock(&remote->lock);
    return status;
}

/* Whoever has waited for a stream is told once. */
static weft_status check_stream(const weft_i_cuda_stream *stream)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&lock);
    for (weft_i_nvshmem_remote *r = first; r && status == WEFT_OK; r = r->next) {
        pthread_mutex_lock(&r->lock);
        if (r->broken < 0 && !r->told && r->device == stream->device &&
            r->streams >> stream->number % 64 & 1)
            status = tell(r);
        pthread_mutex_unlock(&r->lock);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

__attribute__((constructor)) static void register_check(void)
{
    weft_i_cuda_after_sync(check_stream);
}

/* ---- opening and closing ---- */

static weft_status fill(const weft_i_circle *circle, const int *pes, weft_i_nvshmem_remote *remote)
{
    size_t size = (size_t)circle->size, channels = (size_t)remote->channels;
    remote->pes = WEFT_OS->alloc(size * sizeof *remote->pes);
    remote->barriers = WEFT_OS->alloc(channels * sizeof *remote->barriers);
    remote->taken = WEFT_OS->alloc(channels * size * sizeof *remote->taken);
    if (!remote->pes || !remote->barriers || !remote->taken)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for %zu channels", channels);
    memcpy(remote->pes, pes, size * sizeof *pes);
    memset(remote->barriers, 0, channels * sizeof *remote->barriers);
    memset(remote->taken, 0, channels * size * sizeof *remote->taken);
    WEFT_TRY(weft_i_cuda_stream_new(remote->device, true, &remote->spare));
    weft_i_post_duty duty = {condemn, is_waiting, remote, NULL, awaits};
    return weft_i_post_open(circle, &duty, &remote->post);
}

weft_status weft_i_nvshmem_remote_open(const weft_i_circle *circle, weft_i_cuda_device *device,
                                       char *words, int channels, const int *pes,
                                       weft_i_nvshmem_remote **out)
{
    weft_i_nvshmem_remote *remote = WEFT_OS->alloc(sizeof *remote);
    if (!remote)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for its signals");
    *remote = (weft_i_nvshmem_remote){.device = device,
                                      .words = (uint64_t *)(void *)words,
                                      .rank = circle->rank,
                                      .size = circle->size,
                                      .channels = channels};
    pthread_mutex_init(&remote->lock, NULL);
    pthread_mutex_lock(&lock);
    remote->next = first;
    first = remote;
    pthread_mutex_unlock(&lock);
    weft_status status = fill(circle, pes, remote);
    if (status < 0)
        weft_i_nvshmem_remote_close(remote);
    *out = status < 0 ? NULL : remote;
    return status;
}

static void forget(weft_i_nvshmem_remote *remote)
{
    pthread_mutex_lock(&lock);
    weft_i_nvshmem_remote **at = &first;
    while (*at != remote)
        at = &(*at)->next;
    *at = remote->next;
    pthread_mutex_unlock(&lock);
}

void weft_i_nvshmem_remote_close(weft_i_nvshmem_remote *remote)
{
    if (!remote)
        return;
    forget(remote);
    if (remote->post)
        weft_i_post_close(remote->post); /* nobody asks or condemns from now on */
    while (remote->waits) {
        wait *w = remote->waits;
        remote->waits = w->next;
        weft_i_cuda_mark_release(&w->mark);
        WEFT_OS->free(w);
    }
    if (remote->spare)
        weft_i_cuda_stream_drop(remote->spare);
    pthread_mutex_destroy(&remote->lock);
    WEFT_OS->free(remote->pes);
    WEFT_OS->free(remote->barriers);
    WEFT_OS->free(remote->taken);
    WEFT_OS->free(remote);
}

/* ---- signals ---- */

/* The stream waits from here on: `w` is looked after, or the wait is let through at once.  Under the
 * lock. */
static weft_status look_after(weft_i_nvshmem_remote *remote, weft_i_cuda_stream *stream, wait *w)
{
    weft_status status = weft_i_cuda_mark_set(&w->mark, stream);
    if (status < 0) {
        give_up(remote, status, weft_last_error());
        WEFT_OS->free(w);
        return status;
    }
    w->next = remote->waits;
    remote->waits = w;
    return WEFT_OK;
}

static void enqueue_barrier(weft_i_nvshmem_remote *remote, void *raw, int channel)
{
    const weft_i_nvshmem *nv = weft_i_nvshmem_functions();
    uint64_t count = ++remote->barriers[channel];
    uint64_t *mine = word_at(remote, false, channel, remote->rank);
    for (int r = 0; r < remote->size; r++)
        if (r != remote->rank)
            nv->nvshmemx_signal_op_on_stream(mine, 1, WEFT_I_NVSHMEM_SIGNAL_ADD, remote->pes[r],
                                             raw);
    for (int r = 0; r < remote->size; r++)
        if (r != remote->rank)
            nv->nvshmemx_signal_wait_until_on_stream(word_at(remote, false, channel, r),
                                                     WEFT_I_NVSHMEM_GE, count, raw);
}

static const char *enqueue(weft_i_nvshmem_remote *remote, void *raw, weft_i_signal_kind kind,
                           int rank, int channel)
{
    const weft_i_nvshmem *nv = weft_i_nvshmem_functions();
    if (kind == WEFT_I_SIGNAL_BARRIER) {
        enqueue_barrier(remote, raw, channel);
        return "barrier";
    }
    if (kind == WEFT_I_SIGNAL_PUT) {
        nv->nvshmemx_signal_op_on_stream(weft_i_nvshmem_remote_word(remote, channel), 1,
                                         WEFT_I_NVSHMEM_SIGNAL_ADD, remote->pes[rank], raw);
        return NULL; /* waits for nobody */
    }
    uint64_t *taken = &remote->taken[(size_t)channel * (size_t)remote->size + (size_t)rank];
    nv->nvshmemx_signal_wait_until_on_stream(word_at(remote, true, channel, rank),
                                             WEFT_I_NVSHMEM_GE, ++*taken, raw);
    return "wait_signal";
}

weft_status weft_i_nvshmem_remote_signal(weft_i_nvshmem_remote *remote, weft_i_cuda_stream *stream,
                                         weft_i_signal_kind kind, int rank, int channel,
                                         int64_t limit_ms)
{
    WEFT_TRY(weft_i_nvshmem_remote_check(remote));
    WEFT_TRY(weft_i_cuda_refuse_capture(stream, "a signal of NVSHMEM, which the host counts,"));
    WEFT_TRY(weft_i_cuda_use(remote->device));
    wait *w = WEFT_OS->alloc(sizeof *w); /* before anything waits: what waits is looked after */
    if (!w)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to look after a signal");
    *w = (wait){.deadline = weft_i_os_deadline(limit_ms),
                .rank = kind == WEFT_I_SIGNAL_BARRIER ? -1 : rank,
                .channel = channel};
    pthread_mutex_lock(&remote->lock);
    remote->streams |= (uint64_t)1 << stream->number % 64;
    w->what = enqueue(remote, weft_i_cuda_stream_raw(stream), kind, rank, channel);
    weft_status status = WEFT_OK;
    if (w->what)
        status = look_after(remote, stream, w);
    else
        WEFT_OS->free(w);
    pthread_mutex_unlock(&remote->lock);
    weft_i_post_note_work(remote->post);
    return status;
}

/* ---- reset ---- */

weft_status weft_i_nvshmem_remote_await(weft_i_nvshmem_remote *remote, int64_t limit_ms)
{
    int64_t deadline = weft_i_os_deadline(limit_ms);
    while (is_waiting(remote)) {
        if (limit_ms >= 0 && weft_i_os_ms_until(deadline) <= 0)
            return weft_i_fail(WEFT_ERR_TIMEOUT, "weft_symm_reset: waits on this memory go on");
        WEFT_OS->sleep_ns(1000 * 1000);
    }
    return WEFT_OK;
}

weft_status weft_i_nvshmem_remote_reset(weft_i_nvshmem_remote *remote)
{
    weft_i_cuda_stream *stream = NULL;
    WEFT_TRY(weft_i_cuda_stream_new(remote->device, false, &stream));
    weft_status status = weft_i_cuda_fail(
        weft_i_cuda_driver()->cuMemsetD8Async((weft_i_cu_ptr)(uintptr_t)remote->words, 0,
                                              words_of(remote) * sizeof *remote->words,
                                              weft_i_cuda_stream_raw(stream)),
        "resetting signals on cuda:%d", remote->device->ordinal);
    weft_status released = weft_i_cuda_stream_release(stream);
    size_t channels = (size_t)remote->channels;
    pthread_mutex_lock(&remote->lock);
    memset(remote->barriers, 0, channels * sizeof *remote->barriers);
    memset(remote->taken, 0, channels * (size_t)remote->size * sizeof *remote->taken);
    remote->broken = WEFT_OK;
    remote->told = false;
    pthread_mutex_unlock(&remote->lock);
    weft_i_post_renew(remote->post);
    return status != WEFT_OK ? status : released;
}
