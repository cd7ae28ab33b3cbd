/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends communicators: by an abort, or in order by a destruction.  Each has a thread of its own, since
 * NCCL's calls may take a while, and a destruction as long as a peer does not read what it was sent.
 */
#include "comm.h"

#include "base/os/os.h"
#include "base/share/wait.h"

typedef struct ending {
    weft_i_nccl_raw raw;
    weft_i_cuda_device *device;
    bool aborts;
    atomic_bool over; /* release by the thread when NCCL has returned, acquire by whoever waits */
    atomic_int users; /* the thread and who waits; acq_rel: the last frees it */
} ending;

static atomic_int aborting; /* relaxed: a count that is only told */

static void drop(ending *what)
{
    /* Acq_rel pairs with the other user's: what it did with it comes before the end. */
    if (atomic_fetch_sub_explicit(&what->users, 1, memory_order_acq_rel) == 1)
        WEFT_OS->free(what);
}

static void call(weft_i_cuda_device *device, weft_i_nccl_raw raw, bool aborts)
{
    const weft_i_nccl *nccl = weft_i_nccl_library();
    if (weft_i_cuda_use(device) == WEFT_OK)
        (void)(aborts ? nccl->ncclCommAbort(raw) : nccl->ncclCommDestroy(raw));
    if (aborts)
        atomic_fetch_sub_explicit(&aborting, 1, memory_order_relaxed);
}

static void *run(void *arg)
{
    ending *what = arg;
    WEFT_OS->thread_detach();
    call(what->device, what->raw, what->aborts);
    /* Pairs with the acquire in is_over. */
    atomic_store_explicit(&what->over, true, memory_order_release);
    drop(what);
    return NULL;
}

/* NULL: it has been done already, since there was no memory or no thread for it. */
static ending *start(weft_i_cuda_device *device, weft_i_nccl_raw raw, bool aborts)
{
    pthread_t thread;
    ending *what = WEFT_OS->alloc(sizeof *what);
    if (what) {
        *what = (ending){.raw = raw, .device = device, .aborts = aborts, .users = 2};
        if (WEFT_OS->thread_create(&thread, run, what) == 0)
            return what;
    }
    WEFT_OS->free(what);
    call(device, raw, aborts);
    return NULL;
}

int weft_i_nccl_aborting(void)
{
    return atomic_load_explicit(&aborting, memory_order_relaxed);
}

void weft_i_nccl_abort(weft_i_nccl_comm *comm, weft_i_nccl_raw raw)
{
    atomic_fetch_add_explicit(&aborting, 1, memory_order_relaxed);
    ending *what = start(comm->device, raw, true);
    if (what)
        drop(what);
}

static bool is_over(void *arg)
{
    ending *what = arg;
    /* Pairs with the release in run. */
    return atomic_load_explicit(&what->over, memory_order_acquire);
}

void weft_i_nccl_destroy(weft_i_nccl_comm *comm, weft_i_nccl_raw raw, int64_t deadline)
{
    ending *what = start(comm->device, raw, false);
    if (!what)
        return;
    weft_i_wait_until(is_over, what, deadline);
    drop(what);
}
