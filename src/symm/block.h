/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block: one allocation of symmetric memory of this rank.  Tensors reach it through leases (their
 * storage's release argument), handles hold it directly; it goes with the last of them.  Its
 * registrations, one per group it was rendezvoused in, are cached here.
 */
#ifndef WEFT_SYMM_BLOCK_H
#define WEFT_SYMM_BLOCK_H

#include "fabric/group/group.h"
#include "symm/backend.h"
#include "tensor/object/tensor.h"

#include <pthread.h>

typedef struct weft_i_registration weft_i_registration;

typedef struct weft_i_block {
    atomic_int references; /* relaxed up, acq_rel down */
    const weft_i_backend *backend;
    weft_device device;
    weft_i_segment *segment;
    size_t bytes;         /* as asked for */
    size_t pad_bytes;     /* of each signal pad */
    weft_group *group;    /* default for rendezvous, held; NULL: none */
    atomic_int leases;    /* tensors' storages alive, but those lent; relaxed up, acq_rel down */
    pthread_mutex_t lock; /* guards what follows */
    /* Only grows while the block is there: read without the lock.  Release, pairs with the acquire
     * in weft_i_registration_find. */
    _Atomic(weft_i_registration *) registrations;
    int published; /* rendezvous under way */
} weft_i_block;

/* A tensor's claim on a part of a block. */
typedef struct weft_i_lease {
    weft_i_block *block;
    size_t offset, bytes;
    void (*ended)(struct weft_i_lease
                      *lease); /* gives the part back to its pool; NULL: it is the whole block */
    void *pool;
    weft_storage *storage; /* that has it: not held, it lives longer; NULL: none yet */
    bool lent; /* by a handle: as what it gives of peers, it does not keep the allocation in use */
} weft_i_lease;

weft_status weft_i_block_new(weft_device device, size_t bytes, weft_group *group,
                             weft_i_block **out);

/* By that backend, not by the thread's; NULL: the error of looking for it. */
weft_status weft_i_block_new_by(const weft_i_backend *backend, weft_device device, size_t bytes,
                                weft_group *group, weft_i_block **out);
weft_i_block *weft_i_block_hold(weft_i_block *block);
void weft_i_block_drop(weft_i_block *block);

/*
 * A tensor over [lease->offset, + lease->bytes) of its block; holds the block.  Copies the lease,
 * so it may lie on the stack; `ended` runs when the last tensor goes, and also if this call fails.
 */
weft_tensor *weft_i_block_tensor(const weft_i_lease *lease, weft_dtype dtype, weft_shape shape,
                                 const int64_t *strides);

/* Gives a storage without memory the lease's, instead of a tensor; takes the lease over. */
void weft_i_block_lend(weft_i_lease *lease, weft_storage *storage);

/* Runs when the storage of a lease goes; also marks a storage as symmetric. */
void weft_i_block_end_lease(void *lease);

/* The lease under a tensor, or NULL if it is not symmetric. */
static inline const weft_i_lease *weft_i_block_lease_of(const weft_tensor *tensor)
{
    bool symmetric = tensor && tensor->storage->release == weft_i_block_end_lease;
    return symmetric ? tensor->storage->release_argument : NULL;
}

/* Lets peers fetch the block while a rendezvous is under way. */
weft_status weft_i_block_publish(weft_i_block *block, weft_i_fdpass *fdpass);
void weft_i_block_withdraw(weft_i_block *block, weft_i_fdpass *fdpass);

#endif
