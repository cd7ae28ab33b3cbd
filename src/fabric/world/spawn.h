/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a thread rank: what weft_init finds when its thread was started by weft_spawn. */
#ifndef WEFT_FABRIC_SPAWN_H
#define WEFT_FABRIC_SPAWN_H

#include "base/share/fdpass.h"
#include "fabric/world/job.h"

typedef struct weft_i_seat {
    weft_i_segment *job;
    weft_i_fdpass *fdpass;
    int rank, size;
    void (*at_end)(
        const void *place); /* clears what another floor keeps for this place; NULL: nothing */
} weft_i_seat;

/* The calling thread's place, or NULL if weft_spawn did not start it. */
const weft_i_seat *weft_i_spawn_seat(void);

/* Has `clear(place)` called when the calling thread rank's function has returned.  There is one
 * such function. */
void weft_i_spawn_at_end(void (*clear)(const void *place));

#endif
