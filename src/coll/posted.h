/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that is posted, in all groups.  Nobody looks there as long as tensors keep their memory: who
 * would give one other memory, or resize a storage, asks first (weft_i_storage_check_posted).
 * Posted operations know where the bytes of their operands lie, and nothing tells them of a move.
 */
#ifndef WEFT_COLL_POSTED_H
#define WEFT_COLL_POSTED_H

#include "tensor/storage.h"
#include "tensor/tensor.h"

typedef struct weft_i_queue weft_i_queue;

/* A place in the list of all queues. */
typedef struct weft_i_posted {
    const weft_i_queue *queue;
    struct weft_i_posted *before, *after;
} weft_i_posted;

void weft_i_posted_add(weft_i_posted *posted, const weft_i_queue *queue);
void weft_i_posted_remove(weft_i_posted *posted);

/* Empties the list.  For the simulator, which takes the memory of thread ranks that it lets die. */
void weft_i_posted_forget(void);

/* Is this operand the tensor, or if that is NULL, in the storage? */
static inline bool weft_i_posted_is(const weft_tensor *operand, const weft_storage *storage,
                                    const weft_tensor *tensor)
{
    return operand && (tensor ? operand == tensor : operand->storage == storage);
}

/* Is the storage, or just that tensor unless it is NULL, an operand of something in the queue that
 * is not over?  See work.c. */
bool weft_i_queue_uses(const weft_i_queue *queue, const weft_storage *storage,
                       const weft_tensor *tensor);

#endif
