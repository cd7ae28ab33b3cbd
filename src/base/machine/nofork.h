/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that a forked child must not keep.  A child that holds a copy of a socket hides its
 * parent's death from the peer, and a copy of a listening socket keeps the port; close-on-exec does
 * not help a child that never execs.
 */
#ifndef WEFT_BASE_NOFORK_H
#define WEFT_BASE_NOFORK_H

#include "weft/status.h"

/* From now on a forked child closes `fd` at once.  WEFT_ERR_NO_MEMORY; then the descriptor is still
 * open. */
weft_status weft_i_nofork_add(int fd);

/* Takes `fd` off the list and closes it.  Not for the child: there it is closed already. */
void weft_i_nofork_close(int fd);

#endif
