/* SPDX-License-Identifier: Apache-2.0 */
/* How many threads: see threads.h. */
#include "base/machine/threads.h"

#include "base/machine/control_group.h"
#include "base/os/os.h"
#include "base/report/env.h"

#include <inttypes.h>
#include <stdio.h>

static int bounded(int64_t count)
{
    return count < 1 ? 1 : count > WEFT_I_THREADS_MOST ? WEFT_I_THREADS_MOST : (int)count;
}

/* The first number of "4,2", which has one for each depth of nesting; 0: not set, or no number. */
static int64_t of_openmp(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    long long count = text ? strtoll(text, NULL, 10) : 0;
    return count > 0 ? (int64_t)count : 0;
}

static int of_cores(int sharers, int local, char *why, size_t bytes)
{
    int cores = weft_i_os_cores();
    int64_t quota = weft_i_control_group_cores(), mine = quota / 1000 / (local > 1 ? local : 1);
    int count = bounded(cores / (sharers > 1 ? sharers : 1));
    if (quota && mine < count) {
        count = bounded(mine);
        snprintf(why, bytes, "the control group may use %" PRId64 ".%" PRId64 " cores, %d rank%s",
                 quota / 1000, quota % 1000 / 100, local, local == 1 ? "" : "s");
    } else if (sharers > 1) {
        snprintf(why, bytes, "%d core%s, shared by %d ranks", cores, cores == 1 ? "" : "s",
                 sharers);
    } else {
        snprintf(why, bytes, "the cores this process may run on");
    }
    return count;
}

int weft_i_threads_decide(int sharers, int local, char *why, size_t bytes)
{
    char nobody[1];
    int64_t chosen = weft_i_env_number_or_default(WEFT_I_ENV_THREADS), openmp = of_openmp();
    if (!why) {
        why = nobody;
        bytes = sizeof nobody;
    }
    if (chosen > 0) {
        snprintf(why, bytes, "WEFT_THREADS");
        return bounded(chosen);
    }
    if (openmp) {
        snprintf(why, bytes, "OMP_NUM_THREADS");
        return bounded(openmp);
    }
    return of_cores(sharers, local, why, bytes);
}
