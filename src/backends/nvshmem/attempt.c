/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that may never come back; see attempt.h. */
#include "attempt.h"

#include "base/os.h"

#include <stdatomic.h>

enum { LOOK_NS = 20 * 1000 * 1000 };

/* Held by the thread and by the caller: whoever is last frees it. */
typedef struct job {
    weft_i_nvshmem_attempt attempt;
    weft_i_cuda_device *device;
    weft_status ready;     /* whether the thread could use the device */
    _Atomic uint32_t done; /* release by the thread, acquire by the caller */
    atomic_int holders;    /* acq_rel: the last one sees all that was written */
} job;

static void let_go(job *j)
{
    if (atomic_fetch_sub_explicit(&j->holders, 1, memory_order_acq_rel) == 1)
        WEFT_OS->free(j);
}

static void *body(void *arg)
{
    job *j = arg;
    WEFT_OS->thread_detach();
    j->ready = weft_i_cuda_use(j->device);
    if (j->ready == WEFT_OK)
        j->attempt.run(&j->attempt);
    atomic_store_explicit(&j->done, 1, memory_order_release); /* pairs with the wait */
    WEFT_OS->futex_wake(&j->done, 1);
    let_go(j);
    return NULL;
}

static weft_status await(const weft_i_circle *circle, job *j)
{
    while (!atomic_load_explicit(&j->done, memory_order_acquire)) { /* pairs with the thread */
        WEFT_TRY(weft_i_circle_lost(circle));
        if (weft_i_os_ms_until(circle->deadline) <= 0)
            return weft_i_fail(WEFT_ERR_TIMEOUT,
                               "%s: rank %d of %d waited %lld ms inside NVSHMEM, where all ranks "
                               "meet: one of them has not come; nothing of NVSHMEM works from now "
                               "on",
                               j->attempt.what, circle->rank, circle->size,
                               (long long)circle->limit_ms);
        WEFT_OS->futex_wait(&j->done, 0, LOOK_NS);
    }
    return j->ready;
}

weft_status weft_i_nvshmem_try(const weft_i_circle *circle, weft_i_cuda_device *device,
                               weft_i_nvshmem_attempt *attempt)
{
    pthread_t thread;
    job *j = WEFT_OS->alloc(sizeof *j);
    if (!j)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for a call", attempt->what);
    j->attempt = *attempt;
    j->device = device;
    atomic_init(&j->holders, 2);
    int error = WEFT_OS->thread_create(&thread, body, j);
    if (error) {
        WEFT_OS->free(j);
        return weft_i_fail(WEFT_ERR_LIMIT, "%s: no thread for a call (errno %d)", attempt->what,
                           error);
    }
    weft_status status = await(circle, j);
    if (status == WEFT_OK)
        *attempt = j->attempt;
    let_go(j);
    return status;
}
