/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of one process: the same code as process ranks, one address space. */
#ifndef WEFT_SPAWN_H
#define WEFT_SPAWN_H

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Runs `fn(arg)` in `ranks` threads, each a rank of a job of its own: weft_init() inside returns
 * that job's world. Blocks until all have returned.  Returns 0, or the result of the rank
 * that failed first (one that only reports another's end, as WEFT_ERR_PEER_LEFT does, counts last),
 * which is logged, or a negative weft_status if the ranks could not be started.  A rank that
 * returns early ends the waits of the others.
 */
WEFT_API int weft_spawn(int ranks, int (*fn)(void *arg), void *arg);

#ifdef __cplusplus
}
#endif

#endif
