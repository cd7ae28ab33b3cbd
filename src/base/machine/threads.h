/* SPDX-License-Identifier: Apache-2.0 */
/* On how many threads a rank computes, and why. */
#ifndef WEFT_BASE_THREADS_H
#define WEFT_BASE_THREADS_H

#include <stddef.h>

enum { WEFT_I_THREADS_MOST = 256 };

/*
 * WEFT_THREADS; otherwise OMP_NUM_THREADS; otherwise the cores that this thread may run on, divided
 * by the `sharers`, ranks of the job that may run on some of them, and no more than its part of the
 * processor time that the control group leaves the `local` ranks of this host.  At least 1.  `why` says in
 * words which of them it was; NULL: nobody asks.
 */
int weft_i_threads_decide(int sharers, int local, char *why, size_t bytes);

#endif
