/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a pool, for those that use one as the source of results and meet in it. */
#ifndef WEFT_SYMM_POOL_H
#define WEFT_SYMM_POOL_H

#include "symm/block.h"
#include "tensor/object/stream.h"
#include "weft/symm.h"

typedef struct gap {
    size_t at, bytes;
    weft_stream *by; /* it was used last by this stream, held; NULL: the host, or nobody */
} gap;

typedef struct weft_i_pool_block {
    weft_i_block *block; /* held */
    gap *gaps;           /* by address */
    size_t count, room, tensors;
    struct weft_i_pool_block *next; /* in the order in which they were made */
} weft_i_pool_block;

struct weft_symm_pool {
    weft_i_object object;
    weft_device device;
    bool grows;
    pthread_mutex_t lock; /* guards what follows: tensors may be released by any thread */
    weft_i_pool_block *first;
    size_t blocks, used, most;
    uint64_t takes;
    bool told; /* that it was full */
    atomic_bool
        passed; /* and that collectives of a group in which it has not met passed it over; relaxed, for the log */
};

/* Cuts `bytes` for work of `stream` (NULL: of the host); what it returns is not cleared.
 * WEFT_ERR_NOT_FOUND without a message: no gap is large enough. */
weft_status weft_i_pool_take(weft_symm_pool *pool, size_t bytes, weft_stream *stream,
                             weft_i_lease *out);

/* Logs once that the symmetric way is not open to a pool's tensor, which has met in other groups only. */
void weft_i_pool_tell_passed(const weft_i_lease *lease, const weft_group *group);

/* A plain collective has found no registration of the operand in its group. */
static inline void weft_i_pool_pass_over(const weft_i_lease *lease, const weft_group *group)
{
    /* Relaxed: only whether there are any. */
    if (lease->pool && atomic_load_explicit(&lease->block->registrations, memory_order_relaxed))
        weft_i_pool_tell_passed(lease, group);
}

#endif
