/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of one process.  They run the same code as process ranks, in one address
 * space. */
#ifndef WEFT_SPAWN_H
#define WEFT_SPAWN_H

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Runs `fn(arg)` in `ranks` threads.  Each thread is a rank of a new job; weft_init() returns the
 * world of that job inside `fn`.  Blocks until all have returned.  Returns 0, or the result of the
 * rank that failed first, or a negative weft_status if the ranks could not be started; both are
 * logged.  A rank that only reports the failure of another, for example with WEFT_ERR_PEER_LEFT, is
 * not taken as the first unless no other failed.  When a rank returns early, or ends its thread by
 * pthread_exit (its result is then 0), the waits of the others end.
 */
WEFT_API int weft_spawn(int ranks, int (*fn)(void *arg), void *arg);

#ifdef __cplusplus
}
#endif

#endif
