/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which the members of a group meet on a device: one for all its memory, as the number of
 * blocks that may wait at once is bounded for one meeting and its successor.
 */
#ifndef WEFT_CUDA_TURNS_H
#define WEFT_CUDA_TURNS_H

#include "backends/cuda/device/queue.h"
#include "base/os/place.h"
#include "symm/backend.h"

/* That of this rank in the circle's group; closed as often as it was opened. */
weft_status weft_i_cuda_turns_open(const weft_i_circle *circle, const weft_i_cuda_device *device,
                                   weft_i_cuda_queue **out);
void weft_i_cuda_turns_close(weft_i_cuda_queue *queue); /* NULL: nothing */

#endif
