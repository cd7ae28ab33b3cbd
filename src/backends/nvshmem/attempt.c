/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that may never come back; see attempt.h. */
#include "attempt.h"

#include "base/os/os.h"

#include <stdatomic.h>

enum { LOOK_NS = 20 * 1000 * 1000 };

weft_i_nvshmem_attempt *weft_i_nvshmem_attempt_new(const char *what)
{
    weft_i_nvshmem_attempt *attempt = WEFT_OS->alloc(sizeof *attempt);
    if (!attempt)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "%s: no memory for a call", what);
    *attempt = (weft_i_nvshmem_attempt){.what = what};
    atomic_init(&attempt->holders, 1);
    return attempt;
}

void weft_i_nvshmem_attempt_drop(weft_i_nvshmem_attempt *attempt)
{
    if (attempt && atomic_fetch_sub_explicit(&attempt->holders, 1, memory_order_acq_rel) == 1)
        WEFT_OS->free(attempt);
}

static void *body(void *arg)
{
    weft_i_nvshmem_attempt *attempt = arg;
    WEFT_OS->thread_detach();
    attempt->ready = weft_i_cuda_use(attempt->device);
    if (attempt->ready == WEFT_OK)
        attempt->run(attempt);
    atomic_store_explicit(&attempt->done, 1, memory_order_release); /* pairs with the wait */
    WEFT_OS->futex_wake(&attempt->done, 1);
    weft_i_nvshmem_attempt_drop(attempt);
    return NULL;
}

static weft_status await(const weft_i_circle *circle, weft_i_nvshmem_attempt *attempt)
{
    while (
        !atomic_load_explicit(&attempt->done, memory_order_acquire)) { /* pairs with the thread */
        WEFT_TRY(weft_i_circle_lost(circle));
        if (weft_i_os_ms_until(circle->deadline) <= 0)
            return weft_i_fail(WEFT_ERR_TIMEOUT,
                               "%s: rank %d of %d waited %lld ms inside NVSHMEM, where all ranks "
                               "meet: one of them has not come; nothing of NVSHMEM works from now "
                               "on",
                               attempt->what, circle->rank, circle->size,
                               (long long)circle->limit_ms);
        WEFT_OS->futex_wait(&attempt->done, 0, LOOK_NS);
    }
    return attempt->ready;
}

weft_status weft_i_nvshmem_try(const weft_i_circle *circle, weft_i_cuda_device *device,
                               weft_i_nvshmem_attempt *attempt)
{
    pthread_t thread;
    attempt->device = device;
    atomic_store_explicit(&attempt->holders, 2, memory_order_relaxed); /* no thread yet */
    int error = WEFT_OS->thread_create(&thread, body, attempt);
    if (error) {
        weft_i_nvshmem_attempt_drop(attempt);
        return weft_i_fail(WEFT_ERR_LIMIT, "%s: no thread for a call (errno %d)", attempt->what,
                           error);
    }
    return await(circle, attempt);
}
