/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting.  A wait passes through three phases: spin (only if every rank has a core), yield, sleep.
 * The figures are measured on 2 cores: a hop is 0.1 us spinning, 0.7 us by sched_yield on one
 * core, 1.4 to 3.7 us by futex.
 */
#include "base/share/wait.h"
#include "base/os/assert.h"

#include "base/os/os.h"
#include "base/report/env.h"

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
    TURNS_NS = 30 * 1000, /* of yielding, where a wheel has a door: sleeping there is quicker */
    LOOKS = 64,           /* looks at the value between looks at the clock */
    FEW_LOOKS = 8,        /* the same when the peer may need our core */
    MANY = 128,           /* peers: with more, looks at their lives are rarer, see crowd_of */
    ASK_NS = 50 * 1000 * 1000 /* between questions to the program whether to go on */
};

_Thread_local weft_i_interrupt weft_i_wait_interrupt;

static bool look_turning(const weft_i_wait *wait, int times)
{
    for (int i = 0; i < times; i++) {
        if (wait->ready(wait->arg))
            return true;
        if (!wait->wheel->turn(wait->wheel->of))
            weft_i_os_pause();
    }
    return wait->ready(wait->arg);
}

static bool look(const weft_i_wait *wait, int times)
{
    if (__builtin_expect(wait->wheel != NULL, 0))
        return look_turning(wait, times);
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
    const int *fd = wait->wheel ? wait->wheel->door : wait->door;
    struct pollfd door = {.fd = fd ? *fd : -1, .events = POLLIN};
    if (wait->wheel && door.fd >= 0 && !wait->wheel->arm(wait->wheel->of))
        return;
    /* A descriptor that the program has closed would not let us sleep at all. */
    if (door.fd < 0 || WEFT_OS->poll(&door, 1, (int)((slice + 999999) / 1000000)) < 0 ||
        (door.revents & POLLNVAL))
        WEFT_OS->sleep_ns(slice);
}

/*
 * Every rank looks at all of its peers: that is quadratic, and ranks that are so many share cores.
 * Beyond MANY the looks become rarer by the square, so that all of them together take no larger part
 * of the machine: with 1,024 ranks a death shows within a quarter of a second.
 */
static int64_t crowd_of(const weft_i_wait *wait)
{
    WEFT_ASSERT(wait->peers >= 0);
    int64_t times = wait->peers / MANY;
    return times > 1 ? times * times : 1;
}

/* Sets the bell for whom we wait; true if it has become ready meanwhile. */
static bool set_bell(const weft_i_wait *wait, uint32_t *awaited)
{
    bool ready;
    do {
        *awaited = wait->awaits ? wait->awaits(wait->arg) : (uint32_t)WEFT_I_WAIT_ANYBODY;
        /* Relaxed: the fence orders it. */
        atomic_store_explicit(wait->bell, *awaited, memory_order_relaxed);
        /* Pairs with the fence in fence_for_bells: our store and look, the ringer's store and look, cannot
         * both miss. */
        atomic_thread_fence(memory_order_seq_cst);
        ready = wait->ready(wait->arg);
    } while (!ready && wait->awaits && wait->awaits(wait->arg) != *awaited);
    WEFT_ASSERT(*awaited);
    return ready;
}

/* True if it became ready before we slept.  `ready` may act (take a signal), so its word counts. */
static bool sleep_until_rung(const weft_i_wait *wait, int64_t slice)
{
    WEFT_ASSERT(slice > 0);
    if (!wait->bell) {
        sleep_at_door(wait, slice);
        return false;
    }
    uint32_t awaited;
    if (wait->wheel)
        wait->wheel->rest(wait->wheel->of, true);
    bool ready = set_bell(wait, &awaited);
    if (!ready)
        WEFT_OS->futex_wait(wait->bell, awaited, slice);
    if (wait->wheel)
        wait->wheel->rest(wait->wheel->of, false);
    /* Relaxed: a ringer that still sees the bell set wakes nobody, for nothing. */
    atomic_store_explicit(wait->bell, 0, memory_order_relaxed);
    return ready;
}

/* Does the program want its thread back?  A wait for a lock of this process is never cut short. */
static bool is_cut_short(const weft_i_wait *wait, int64_t now, int64_t *ask_at)
{
    const weft_i_interrupt *interrupt = &weft_i_wait_interrupt;
    if (!interrupt->asked || now < *ask_at || (!wait->lost && !wait->hasty))
        return false;
    *ask_at = now + ASK_NS;
    return interrupt->asked(interrupt->argument);
}

weft_status weft_i_wait_for(const weft_i_wait *wait)
{
    WEFT_ASSERT(!wait->wheel || wait->wheel->turn);
    WEFT_ASSERT(wait->ready);
    int looks = wait->mode == WEFT_I_WAIT_SPIN ? LOOKS : FEW_LOOKS;
    if (look(wait, looks))
        return WEFT_OK;
    int64_t start = WEFT_OS->clock_ns(), now = start;
    if (wait->began && !*wait->began)
        *wait->began = start;
    int64_t spin_ns = wait->spin_ns ? wait->spin_ns : SPIN_NS;
    int64_t spin_end = start + (wait->mode == WEFT_I_WAIT_SPIN ? spin_ns : 0);
    bool at_door = wait->wheel && !wait->bell && *wait->wheel->door >= 0;
    int64_t yield_ns = at_door ? TURNS_NS : YIELD_NS;
    int64_t yield_end = spin_end + (wait->mode == WEFT_I_WAIT_SLEEP ? 0 : yield_ns);
    int64_t crowd = crowd_of(wait), lives_ns = LIVES_NS * crowd;
    int64_t lives_at = wait->mode == WEFT_I_WAIT_SLEEP ? start : start + lives_ns;
    for (int64_t slice = SLICE_NS, ask_at = 0;; now = WEFT_OS->clock_ns()) {
        bool lives = now >= lives_at || now >= wait->deadline;
        weft_status status = check(wait, now, lives);
        lives_at = lives ? now + lives_ns : lives_at;
        if (status != WEFT_IN_PROGRESS)
            return status;
        if (now >= yield_end) {
            int64_t left = wait->deadline - now;
            if (is_cut_short(wait, now, &ask_at))
                return wait->ready(wait->arg) ? WEFT_OK : WEFT_ERR_TIMEOUT;
            if (sleep_until_rung(wait, left < slice ? left : slice))
                return WEFT_OK;
            slice = slice * 2 < SLICE_MAX_NS * crowd ? slice * 2 : SLICE_MAX_NS * crowd;
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
