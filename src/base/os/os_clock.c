/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock, a thread's processor time, and the processor's own counter in nanoseconds.  See
 * os.h and os_busy.h. */
#include "base/os/os.h"
#include "base/os/os_busy.h"

#include <pthread.h>
#include <time.h>

int64_t weft_i_os_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t weft_i_os_busy_ns(void)
{
    struct timespec busy;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &busy);
    return (int64_t)busy.tv_sec * 1000000000 + busy.tv_nsec;
}

static pthread_once_t calibrate_once = PTHREAD_ONCE_INIT;
static uint64_t tick_origin;
static int64_t ns_origin;
static double ns_per_tick;

static void calibrate(void)
{
#if defined(__aarch64__)
    uint64_t frequency;
    __asm__("mrs %0, cntfrq_el0" : "=r"(frequency));
    tick_origin = weft_i_os_ticks();
    ns_origin = weft_i_os_linux.clock_ns();
    ns_per_tick = 1e9 / (double)frequency;
#else
    uint64_t first_tick = weft_i_os_ticks();
    int64_t first_ns = weft_i_os_linux.clock_ns();
    weft_i_os_linux.sleep_ns(5000000);
    tick_origin = weft_i_os_ticks();
    ns_origin = weft_i_os_linux.clock_ns();
    ns_per_tick = (double)(ns_origin - first_ns) / (double)(tick_origin - first_tick);
#endif
}

int64_t weft_i_os_ticks_to_ns(uint64_t ticks)
{
    pthread_once(&calibrate_once, calibrate);
    return ns_origin + (int64_t)((double)(int64_t)(ticks - tick_origin) * ns_per_tick);
}
