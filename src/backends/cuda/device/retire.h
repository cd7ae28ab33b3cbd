/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retiring memory: what work under way may still use goes when that has run.  Nothing here waits,
 * so that a rank whose kernel waits for us is not kept from its end.
 */
#ifndef WEFT_CUDA_RETIRE_H
#define WEFT_CUDA_RETIRE_H

#include "device.h"

/* Calls end(what), after those of earlier calls, when all that the streams of this process have been given so far is done: now, or
 * by the sentry's thread. */
void weft_i_cuda_retire(void (*end)(void *what), void *what);

/* Ends what can end. */
void weft_i_cuda_reap(void);

#endif
