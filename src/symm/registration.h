/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A registration: the outcome of one rendezvous of a block in a group.  It holds every member's
 * block mapped into this process and the pads through which the members signal.  Handles are light
 * views of it.
 */
#ifndef WEFT_SYMM_REGISTRATION_H
#define WEFT_SYMM_REGISTRATION_H

#include "symm/block.h"
#include "symm/pads.h"
#include "weft/symm.h"

struct weft_i_far_memory;

struct weft_i_registration {
    atomic_int references;     /* relaxed up, acq_rel down */
    weft_i_registration *next; /* in the block's cache */
    weft_i_key group;
    uint32_t serial; /* from 1, counted per group: equal on all members, so it names the
                        registration between them */
    int size;
    weft_i_segment **blocks;            /* by rank; each held.  One on another host has no base */
    weft_i_pads pads;                   /* of a device: the sizes alone, the rest is in `joined` */
    const weft_i_device_memory *memory; /* NULL: the host reaches the blocks */
    void *joined;                       /* its part */
    struct weft_i_far_memory *far; /* members on other hosts (remote.h); NULL: there are none */
};

struct weft_symm {
    weft_i_object object;
    weft_group *group;                 /* held */
    weft_i_block *block;               /* held */
    weft_i_registration *registration; /* held */
    size_t offset;                     /* of the tensor in the block */
    weft_dtype dtype;
    weft_shape shape;
    int64_t strides[WEFT_MAX_DIMS];
};

/*
 * Makes the registration with all members of the group.  Collective.  A rank that cannot take part
 * says so with a negative `can` (and a NULL block), so that the others learn it at once.
 */
weft_status weft_i_registration_new(weft_i_block *block, size_t offset, weft_group *group,
                                    weft_status can, weft_i_registration **out);
weft_i_registration *weft_i_registration_hold(weft_i_registration *registration);
void weft_i_registration_drop(weft_i_registration *registration);
void weft_i_registration_drop_all(weft_i_registration *first);

/* The cached registration of a block in a group, NULL if they have not met: there as long as the
 * block is; and held for the caller. */
weft_i_registration *weft_i_registration_find(const weft_i_block *block, const weft_group *group);
weft_i_registration *weft_i_registration_of(weft_i_block *block, const weft_group *group);

/* What is copied to a peer before it is signalled. */
typedef struct weft_i_copy {
    char *to; /* NULL on another host */
    const char *from;
    size_t bytes;
    size_t at; /* in the peer's block */
} weft_i_copy;

/* Copies and signals as one operation (signals.c).  Memory of the host; everything is checked. */
weft_status weft_i_symm_copy_and_signal(weft_symm *mem, int peer, int channel,
                                        const weft_i_copy *copy, int64_t timeout_ms);

/* The users' pad of a member, wherever it lies. */
static inline char *weft_i_registration_pad(const weft_i_registration *registration, int rank)
{
    return registration->memory ? registration->memory->pad(registration->joined, rank)
                                : weft_i_pads_of(&registration->pads, rank);
}

#endif
