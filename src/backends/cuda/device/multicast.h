/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multicast: one address for the blocks of all members, whose loads a switch adds up and whose
 * stores it brings to all.  It is made at a rendezvous, in stages on which all members agree: the
 * first makes the object, all add their devices, all bind their blocks, all map it.  One failure
 * undoes it on all, which is no error: the handle then has no multicast address, but the reason.
 * Untested on hardware: scripts/gpu-check peers.
 */
#ifndef WEFT_CUDA_MULTICAST_H
#define WEFT_CUDA_MULTICAST_H

#include "memory.h"

typedef struct weft_i_cuda_multicast weft_i_cuda_multicast;

enum { WEFT_I_CUDA_WHY_BYTES = 200 };

/* Can the device take part in multicast?  `reason` says why not. */
bool weft_i_cuda_multicast_usable(const weft_i_cuda_device *device, char *reason, size_t bytes);

/*
 * Collective: also by a member whose rendezvous has failed before, with that status, so that the
 * others do not wait.  Blocks are `block` and those of the peers.  *out is NULL, and `why` says why, if
 * there is no multicast.  An error is one of the meeting itself: a member is lost.
 */
weft_status weft_i_cuda_multicast_open(const weft_i_circle *circle, weft_i_segment *block,
                                       const weft_i_card *cards, weft_i_key key, weft_status before,
                                       weft_i_cuda_multicast **out,
                                       char why[WEFT_I_CUDA_WHY_BYTES]);

/* The address for byte 0 of everybody's block. */
char *weft_i_cuda_multicast_base(const weft_i_cuda_multicast *multicast);

/* It goes when what was enqueued before has run, and before memory that is given up later. */
void weft_i_cuda_multicast_close(weft_i_cuda_multicast *multicast);

#endif
