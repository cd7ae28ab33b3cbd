/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of a wait for another thread of a device.  Threads share few cores: the first steps let
 * others have their turn.  One of many sleeps, or waits of milliseconds would keep the cores from
 * the programs that are tested beside this one.  The sleep is the kernel's own call:
 * ThreadSanitizer looks through all threads after one of the C library's.
 */
#ifndef WEFT_TESTS_CUDA_TWIN_PAUSE_H
#define WEFT_TESTS_CUDA_TWIN_PAUSE_H

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline void twin_pause(void)
{
    static _Thread_local unsigned steps;
    if (++steps % 8)
        sched_yield();
    else
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &(struct timespec){0, 50000}, NULL);
}

#endif
