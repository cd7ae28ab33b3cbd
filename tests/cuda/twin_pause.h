/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of a wait for another thread of a device.  Threads share few cores: the first steps let
 * others have their turn.  One of many sleeps, or waits of milliseconds would keep the cores from
 * the programs that are tested beside this one.
 */
#ifndef WEFT_TESTS_CUDA_TWIN_PAUSE_H
#define WEFT_TESTS_CUDA_TWIN_PAUSE_H

#include <sched.h>
#include <time.h>

static inline void twin_pause(void)
{
    static _Thread_local unsigned steps;
    if (++steps % 8)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, 50000}, NULL);
}

#endif
