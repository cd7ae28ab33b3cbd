/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting.  A wait passes through three phases: spin (only if every rank has a core), yield, sleep.
 * The figures are measured on 2 cores: a hop is 0.1 us spinning, 0.7 us by sched_yield on one
 * core, 1.4 to 3.7 us by futex.
 */
#include "base/wait.h"
#include "base/assert.h"

#include "base/env.h"
#include "base/os.h"

#include <stddef.h>
#include <strings.h>

enum {
    SPIN_NS = 50 * 1000,    /* longer than any hop, shorter than a time slice */
    YIELD_NS = 1000 * 1000, /* by then the peer is not merely busy on our core */
    SLICE_NS = 1000 * 1000, /* a sleeper looks at its peers' lives this often at first ... */
    SLICE_MAX_NS =
        4000 * 1000, /* ... and at least this often, so that a death shows within milliseconds */
    LIVES_NS = 20 * 1000, /* until the first look at them, and between two: each takes as long as a
                             hop, and most waits are shorter */
    LOOKS = 64,           /* looks at the value between looks at the clock */
    FEW_LOOKS = 8         /* the same when the peer may need our core */
};

static bool look(const weft_i_wait *wait, int times)
{
    for (int i = 0; i < times; i++) {
        if (wait->ready(wait->arg))
            return true;
        weft_i_os_pause();
    }
    return false;
}

/* The peer may have done its part and left between our look at the value and our look at the peer:
 * look again. */
static weft_status check(const weft_i_wait *wait, int64_t now, bool lives)
{
    weft_status lost = lives && wait->lost ? wait->lost(wait->arg) : WEFT_OK;
    if (lost < 0)
        return wait->ready(wait->arg) ? WEFT_OK : lost;
    if (now < wait->deadline)
        return WEFT_IN_PROGRESS;
    return wait->ready(wait->arg) ? WEFT_OK : WEFT_ERR_TIMEOUT;
}

static void sleep_at_door(const weft_i_wait *wait, int64_t slice)
{
    struct pollfd door = {.fd = wait->door ? *wait->door : -1, .events = POLLIN};
    /* A descriptor that the program has closed would not let us sleep at all. */
    if (door.fd < 0 || WEFT_OS->poll(&door, 1, (int)((slice + 999999) / 1000000)) < 0 ||
        (door.revents & POLLNVAL))
        WEFT_OS->sleep_ns(slice);
}

/* True if it became ready before we slept.  `ready` may act (take a signal), so its word counts. */
static bool sleep_until_rung(const weft_i_wait *wait, int64_t slice)
{
    if (!wait->bell) {
        sleep_at_door(wait, slice);
        return false;
    }
    /* Relaxed: the fence orders it. */
    atomic_store_explicit(wait->bell, 1, memory_order_relaxed);
    /* Pairs with the fence in weft_i_signal_ring: our store and look, the ringer's store and look,
     * cannot both miss. */
    atomic_thread_fence(memory_order_seq_cst);
    bool ready = wait->ready(wait->arg);
    if (!ready)
        WEFT_OS->futex_wait(wait->bell, 1, slice);
    /* Relaxed: a ringer that still sees the bell set wakes nobody, for nothing. */
    atomic_store_explicit(wait->bell, 0, memory_order_relaxed);
    return ready;
}

weft_status weft_i_wait_for(const weft_i_wait *wait)
{
    WEFT_ASSERT(wait->ready);
    int looks = wait->mode == WEFT_I_WAIT_SPIN ? LOOKS : FEW_LOOKS;
    if (look(wait, looks))
        return WEFT_OK;
    int64_t start = WEFT_OS->clock_ns(), now = start;
    if (wait->began && !*wait->began)
        *wait->began = start;
    int64_t spin_ns = wait->spin_ns ? wait->spin_ns : SPIN_NS;
    int64_t spin_end = start + (wait->mode == WEFT_I_WAIT_SPIN ? spin_ns : 0);
    int64_t yield_end = spin_end + (wait->mode == WEFT_I_WAIT_SLEEP ? 0 : YIELD_NS);
    int64_t lives_at = wait->mode == WEFT_I_WAIT_SLEEP ? start : start + LIVES_NS;
    for (int64_t slice = SLICE_NS;; now = WEFT_OS->clock_ns()) {
        bool lives = now >= lives_at || now >= wait->deadline;
        weft_status status = check(wait, now, lives);
        lives_at = lives ? now + LIVES_NS : lives_at;
        if (status != WEFT_IN_PROGRESS)
            return status;
        if (now >= yield_end) {
            int64_t left = wait->deadline - now;
            if (sleep_until_rung(wait, left < slice ? left : slice))
                return WEFT_OK;
            slice = slice * 2 < SLICE_MAX_NS ? slice * 2 : SLICE_MAX_NS;
        } else if (now >= spin_end) {
            WEFT_OS->yield();
        }
        if (look(wait, looks))
            return WEFT_OK;
    }
}

weft_i_wait_mode weft_i_wait_mode_for(int ranks, int cores)
{
    static const char *const names[] = {"spin", "yield", "sleep"};
    _Static_assert(sizeof names / sizeof *names == WEFT_I_WAIT_SLEEP + 1, "a name for each mode");
    const char *text = weft_i_env_text(WEFT_I_ENV_WAIT);
    for (int mode = 0; mode < 3; mode++)
        if (!strcasecmp(text, names[mode]))
            return (weft_i_wait_mode)mode;
    return ranks <= cores ? WEFT_I_WAIT_SPIN : WEFT_I_WAIT_YIELD;
}

void weft_i_wait_wake(_Atomic uint32_t *bell)
{
    /* Relaxed: the wake-up follows, a system call. */
    atomic_store_explicit(bell, 0, memory_order_relaxed);
    WEFT_OS->futex_wake(bell, INT32_MAX);
}
