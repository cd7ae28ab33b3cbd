/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and windows; see window.h.  Windows of several ranks are untested on hardware: scripts/gpu-check
 * peers. */
#include "window.h"

#include "backends/cuda/device/retire.h"
#include "backends/cuda/device/stream.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wait.h"
#include "tensor/object/stream.h"

enum { END_MS = 5000 };

/* ---- memory ---- */

/* A block of ncclMemAlloc. */
typedef struct memory {
    weft_i_cuda_device *device;
    void *at;
    bool registered; /* once: then its windows have waited for the streams */
} memory;

static void end_memory(void *what)
{
    memory *m = what;
    if (m->at && weft_i_cuda_use(m->device) == WEFT_OK)
        weft_i_nccl_library()->ncclMemFree(m->at);
    WEFT_OS->free(m);
}

static void release(weft_i_segment *segment)
{
    memory *m = segment->owner;
    if (m->registered)
        end_memory(m);
    else
        weft_i_cuda_retire(end_memory, m);
}

/* NCCL does not clear it.  On a stream that nothing else is on. */
static weft_status clear(const memory *m, size_t bytes)
{
    weft_i_cuda_stream *stream = NULL;
    WEFT_TRY(weft_i_cuda_stream_new(m->device, false, &stream));
    weft_status status =
        weft_i_cuda_fail(weft_i_cuda_driver()->cuMemsetD8Async((weft_i_cu_ptr)(uintptr_t)m->at, 0,
                                                               bytes, stream->raw),
                         "clearing a block on cuda:%d", m->device->ordinal);
    weft_status released = weft_i_cuda_stream_release(stream);
    return status != WEFT_OK ? status : released;
}

static size_t round_up(size_t bytes)
{
    size_t to = WEFT_I_NCCL_WIN_REQUIRED_ALIGNMENT;
    return bytes ? (bytes + to - 1) / to * to : to;
}

weft_status weft_i_nccl_memory_allocate(weft_device device, size_t bytes, weft_i_segment **out)
{
    const weft_i_nccl *nccl;
    weft_i_cuda_device *opened;
    WEFT_TRY(weft_i_nccl_load(&nccl));
    if (!weft_i_stream_current(device)) /* opens the device, or says why it cannot */
        return weft_last_status();
    WEFT_TRY(weft_i_cuda_open(weft_i_device_index(device), &opened));
    WEFT_TRY(weft_i_cuda_use(opened));
    memory *m = WEFT_OS->alloc(sizeof *m);
    if (!m)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the record of a block on cuda:%d",
                           opened->ordinal);
    *m = (memory){.device = opened};
    weft_status status = weft_i_nccl_fail(nccl->ncclMemAlloc(&m->at, round_up(bytes)), NULL,
                                          "%zu bytes of cuda:%d", bytes, opened->ordinal);
    if (status == WEFT_OK)
        status = clear(m, round_up(bytes));
    if (status == WEFT_OK)
        status = weft_i_segment_wrap(m->at, bytes, -1, release, m, out);
    if (status < 0)
        end_memory(m);
    return status;
}

weft_i_cuda_device *weft_i_nccl_memory_device(const weft_i_segment *segment)
{
    return ((const memory *)segment->owner)->device;
}

/* ---- windows ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists and `idle` */

/* Is nothing of the communicator's in progress? */
static bool is_quiet(void *arg)
{
    weft_i_nccl_comm *comm = arg;
    weft_i_nccl_result result = WEFT_I_ncclSuccess;
    weft_i_latch_take(&comm->lock);
    if (comm->raw)
        weft_i_nccl_library()->ncclCommGetAsyncError(comm->raw, &result);
    weft_i_latch_give(&comm->lock);
    return result != WEFT_I_ncclInProgress;
}

/* The window is off its list; its communicator may be gone, and its part of NCCL with it. */
static void deregister(weft_i_nccl_comm *comm, weft_i_nccl_window_of *window)
{
    weft_i_nccl_result result = WEFT_I_ncclSuccess;
    bool ours = weft_i_cuda_use(comm->device) == WEFT_OK;
    weft_i_latch_take(&comm->lock);
    if (ours && comm->raw && window->raw)
        result = weft_i_nccl_library()->ncclCommWindowDeregister(comm->raw, window->raw);
    weft_i_latch_give(&comm->lock);
    if (result == WEFT_I_ncclInProgress)
        weft_i_wait_until(is_quiet, comm, weft_i_os_deadline(END_MS));
    weft_i_segment_drop(window->memory);
    WEFT_OS->free(window);
}

/* Takes the window of that number off the list; 0: any that is there. */
static weft_i_nccl_window_of *take(weft_i_nccl_comm *comm, uint32_t number)
{
    pthread_mutex_lock(&lock);
    weft_i_nccl_window_of **at = &comm->windows;
    while (*at && number && (*at)->number != number)
        at = &(*at)->next;
    weft_i_nccl_window_of *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

static bool has_aborted(void *arg)
{
    (void)arg;
    return weft_i_nccl_aborting() == 0;
}

void weft_i_nccl_window_end_all(weft_i_nccl_comm *comm)
{
    if (comm->windows && !comm->raw) /* an abort unmaps them, and the memory must not go before */
        weft_i_wait_until(has_aborted, NULL, weft_i_os_deadline(END_MS));
    for (weft_i_nccl_window_of *window = take(comm, 0); window; window = take(comm, 0))
        deregister(comm, window);
}

weft_status weft_i_nccl_window_new(const weft_i_circle *circle, weft_i_nccl_comm *comm,
                                   weft_i_segment *segment, weft_i_nccl_window_of **out)
{
    weft_i_nccl_window_of *window = WEFT_OS->alloc(sizeof *window);
    if (!window) /* the others wait for this rank inside NCCL, until their limit */
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the record of a window");
    *window = (weft_i_nccl_window_of){.comm = comm, .memory = weft_i_segment_hold(segment)};
    ((memory *)segment->owner)->registered = true;
    weft_i_nccl_comm_hold(comm);
    pthread_mutex_lock(&lock);
    window->number = ++comm->registered;
    window->next = comm->windows;
    comm->windows = window;
    pthread_mutex_unlock(&lock);
    *out = window; /* also if it fails: NCCL may still write to it */
    WEFT_TRY(weft_i_nccl_comm_enter(comm, NULL, "registering a window"));
    weft_i_nccl_result result = weft_i_nccl_library()->ncclCommWindowRegister(
        comm->raw, segment->base, round_up(segment->bytes), &window->raw,
        WEFT_I_NCCL_WIN_COLL_SYMMETRIC);
    /* NCCL may say that it is well while its thread is still at it: the communicator knows. */
    if (result == WEFT_I_ncclSuccess)
        result = WEFT_I_ncclInProgress;
    return weft_i_nccl_comm_leave(comm, result, weft_i_os_ms_until(circle->deadline));
}

/* ---- where they lie ---- */

static weft_status fail_apart(const weft_i_nccl_comm *comm)
{
    return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                       "rank %d of %d: NCCL's window is not reached by load and store from all "
                       "ranks: they are on GPUs without access to each other's memory",
                       comm->rank, comm->size);
}

/* By the host call of 2.29.2 and later. */
static weft_status ask_reach(const weft_i_nccl_window_of *window, weft_i_cuda_reach *out)
{
    const weft_i_nccl *nccl = weft_i_nccl_library();
    char *before = NULL;
    for (int rank = 0; rank < window->comm->size; rank++) {
        void *at = NULL;
        if (nccl->ncclGetLsaDevicePointer(window->raw, 0, rank, &at) != WEFT_I_ncclSuccess || !at)
            return fail_apart(window->comm);
        if (rank == 0)
            *out = (weft_i_cuda_reach){at, 0, NULL};
        else if (rank == 1)
            out->step = (size_t)((char *)at - before);
        else if ((char *)at != before + out->step)
            return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                               "NCCL's window is not at one stride on all ranks");
        before = at;
    }
    return WEFT_OK;
}

/* From the first fields of the window, in memory of the device. */
static weft_status read_reach(const weft_i_nccl_window_of *window, weft_i_cuda_reach *out)
{
    weft_i_nccl_window_head head;
    weft_i_cuda_stream *stream = NULL;
    const weft_i_nccl_comm *comm = window->comm;
    WEFT_TRY(weft_i_cuda_stream_new(comm->device, false, &stream));
    weft_status status = weft_i_cuda_read(stream, &head, window->raw, sizeof head);
    weft_status released = weft_i_cuda_stream_release(stream);
    WEFT_TRY(status != WEFT_OK ? status : released);
    if (head.world_rank != comm->rank)
        return weft_i_fail(
            WEFT_ERR_UNSUPPORTED,
            "NCCL's window says rank %d on rank %d: its fields are not what 2.28 has",
            head.world_rank, comm->rank);
    if (head.lsa_rank != comm->rank)
        return fail_apart(comm);
    *out = (weft_i_cuda_reach){head.flat, (size_t)head.stride_4g << 32, NULL};
    return WEFT_OK;
}

weft_status weft_i_nccl_window_reach(const weft_i_nccl_window_of *window, weft_i_cuda_reach *out)
{
    if (!window->raw) /* NCCL says so where it has no symmetric memory at all */
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "NCCL has registered no window: cuda:%d, or NCCL's settings, have no "
                           "symmetric memory",
                           window->comm->device->ordinal);
    WEFT_TRY(weft_i_cuda_use(window->comm->device));
    return weft_i_nccl_library()->ncclGetLsaDevicePointer ? ask_reach(window, out)
                                                          : read_reach(window, out);
}

/* ---- idle ones ---- */

static void set_idle(void *what)
{
    weft_i_nccl_window_of *window = what;
    weft_i_nccl_comm *comm = window->comm;
    pthread_mutex_lock(&lock);
    window->idle = true;
    pthread_mutex_unlock(&lock);
    weft_i_nccl_comm_close(comm); /* may be the last: then the window goes too */
}

void weft_i_nccl_window_drop(weft_i_nccl_window_of *window)
{
    if (window)
        weft_i_cuda_retire(set_idle, window);
}

/* The oldest first: all members come to the same ones sooner or later. */
void weft_i_nccl_idle_show(weft_i_nccl_comm *comm, weft_i_nccl_idle *out)
{
    out->count = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t last = 0; out->count < WEFT_I_NCCL_IDLE_MOST;) {
        uint32_t next = UINT32_MAX;
        for (const weft_i_nccl_window_of *w = comm->windows; w; w = w->next)
            if (w->idle && w->number > last && w->number < next)
                next = w->number;
        if (next == UINT32_MAX)
            break;
        out->number[out->count++] = last = next;
    }
    pthread_mutex_unlock(&lock);
}

static bool has(const weft_i_nccl_idle *idle, uint32_t number)
{
    for (uint32_t i = 0; i < idle->count && i < WEFT_I_NCCL_IDLE_MOST; i++)
        if (idle->number[i] == number)
            return true;
    return false;
}

void weft_i_nccl_idle_end(weft_i_nccl_comm *comm, const weft_i_nccl_idle *all)
{
    for (uint32_t i = 0; i < all->count && i < WEFT_I_NCCL_IDLE_MOST; i++) {
        bool everybody = true;
        for (int rank = 1; rank < comm->size; rank++)
            everybody &= has(&all[rank], all->number[i]);
        weft_i_nccl_window_of *window = everybody ? take(comm, all->number[i]) : NULL;
        if (window)
            deregister(comm, window);
    }
}
