/* SPDX-License-Identifier: Apache-2.0 */
/* The signals of a launcher, which it reads from a descriptor and passes on to the ranks. */
#ifndef WEFT_LAUNCH_CAUGHT_H
#define WEFT_LAUNCH_CAUGHT_H

#include "base/os/os.h"
#include "weft/status.h"

typedef struct weft_i_caught {
    int fd;          /* -1: not ours to pass on */
    sigset_t before; /* what was blocked: restored afterwards, and given to the ranks */
} weft_i_caught;

weft_status weft_i_caught_take(weft_i_caught *taken, bool pass_on);
void weft_i_caught_give_back(const weft_i_caught *taken);

#endif
