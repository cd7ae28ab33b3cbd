/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room in memory.  Linux overcommits memory and kills a process that touches too much of it.  weft
 * touches every page of a segment when it creates it.  So it asks first: free memory of the machine
 * and the limits of the control group, version 1 or 2, and of the groups above it.
 */
#ifndef WEFT_BASE_ROOM_H
#define WEFT_BASE_ROOM_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

/* WEFT_ERR_NO_SPACE, with the numbers, if `bytes` more do not fit.  What cannot be read does not
 * count.  Cheap for small pieces: it looks again when a part of what it saw is used up, or a moment
 * has passed. */
weft_status weft_i_room_check(size_t bytes, const char *what);

/* How many bytes more would fit now; 0 where that cannot be read. */
int64_t weft_i_room_bytes(void);

/* Forgets what was seen, so that the next check looks again: for runs that must not depend on
 * earlier ones. */
void weft_i_room_forget(void);

/* How often the kernel has killed for want of memory, as far as this process can see; to be
 * compared with a later look. */
int64_t weft_i_room_kills(void);

#endif
