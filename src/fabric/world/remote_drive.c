/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What drives a rank's wire.  Callers that wait do, at each of their looks.  The rank's thread `remote`
 * does when they have not for a millisecond, or when all that wait sleep at their bells: then it sleeps at
 * the wire's door.
 */
#include "remote_wire.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

#include <errno.h>
#include <poll.h>

enum { NAP_NS = 1000 * 1000, DOOR_MS = 100, REFUSALS = 200 };

void weft_i_remote_enter(weft_i_remote *remote)
{
    pthread_mutex_lock(&remote->lock);
}

void weft_i_remote_give(weft_i_remote *remote)
{
    pthread_mutex_unlock(&remote->lock);
}

static int turn(weft_i_remote *remote)
{
    int moved = 0;
    if (pthread_mutex_trylock(&remote->lock))
        return 0;
    if (remote->wire && !remote->shut)
        moved = remote->table->progress(remote->wire);
    pthread_mutex_unlock(&remote->lock);
    return moved;
}

int weft_i_remote_drive(weft_i_remote *remote)
{
    atomic_fetch_add_explicit(&remote->turns, 1, memory_order_relaxed);
    return turn(remote);
}

static int turn_wheel(void *of)
{
    return weft_i_remote_drive(of);
}

static bool arm(void *of)
{
    weft_i_remote *remote = of;
    if (pthread_mutex_trylock(&remote->lock))
        return false;
    bool armed = remote->wire && !remote->shut && remote->table->arm(remote->wire);
    pthread_mutex_unlock(&remote->lock);
    return armed;
}

/* The thread is not to rest while nobody else looks at the wire. */
static void rest(void *of, bool resting)
{
    weft_i_remote *remote = of;
    int before =
        atomic_fetch_add_explicit(&remote->resting, resting ? 1 : -1, memory_order_relaxed);
    WEFT_ASSERT(resting || before > 0);
    if (!resting || before)
        return;
    atomic_fetch_add_explicit(&remote->nap, 1, memory_order_relaxed);
    WEFT_OS->futex_wake(&remote->nap, 1);
}

const weft_i_wheel *weft_i_remote_wheel(const weft_i_remote *remote)
{
    return &remote->wheel;
}

void weft_i_remote_make_lock(weft_i_remote *remote)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&remote->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    remote->wake = -1;
    remote->wheel = (weft_i_wheel){
        .turn = turn_wheel, .arm = arm, .rest = rest, .door = &remote->door, .of = remote};
}

bool weft_i_remote_is_shut(weft_i_remote *remote)
{
    struct pollfd door = {.fd = remote->door};
    weft_i_remote_enter(remote);
    if (remote->door >= 0 && WEFT_OS->poll(&door, 1, 0) > 0 && door.revents & POLLNVAL)
        remote->shut = true;
    bool shut = remote->shut;
    weft_i_remote_give(remote);
    return shut;
}

/* `*refusals`: how often in a row the door could not be armed.  There is something to do then, or the
 * program has closed the descriptors under us, which must not keep a core busy. */
static void sleep_at_door(weft_i_remote *remote, unsigned *refusals)
{
    struct pollfd doors[2] = {{.fd = remote->wake, .events = POLLIN},
                              {.fd = remote->door, .events = POLLIN}};
    if (remote->door < 0) {
        WEFT_OS->sleep_ns(NAP_NS);
    } else if (!arm(remote)) {
        if (++*refusals < REFUSALS)
            WEFT_OS->yield();
        else
            WEFT_OS->sleep_ns(NAP_NS);
    } else {
        *refusals = 0;
        WEFT_OS->poll(doors, 2, DOOR_MS);
    }
}

static void *drive(void *arg)
{
    weft_i_remote *remote = arg;
    unsigned seen = 0, refusals = 0;
    while (!atomic_load_explicit(&remote->stop, memory_order_acquire)) {
        uint32_t nap = atomic_load_explicit(&remote->nap, memory_order_relaxed);
        unsigned turns = atomic_load_explicit(&remote->turns, memory_order_relaxed);
        bool driven =
            turns != seen && atomic_load_explicit(&remote->resting, memory_order_relaxed) == 0;
        seen = turns;
        if (driven)
            WEFT_OS->futex_wait(&remote->nap, nap, NAP_NS);
        else if (weft_i_remote_is_shut(remote)) /* the library would end the process */
            WEFT_OS->sleep_ns(NAP_NS);
        else if (!turn(remote))
            sleep_at_door(remote, &refusals);
    }
    return NULL;
}

weft_status weft_i_remote_start_thread(weft_i_remote *remote)
{
    remote->wake = WEFT_OS->eventfd(0);
    if (remote->wake < 0)
        return weft_i_fail_errno(errno, "cannot make an eventfd for messages of other hosts");
    int error = WEFT_OS->thread_create(&remote->thread, drive, remote);
    if (error)
        return weft_i_fail_errno(error, "cannot start a thread for messages of other hosts");
    remote->has_thread = true;
    return WEFT_OK;
}

void weft_i_remote_stop_thread(weft_i_remote *remote)
{
    uint64_t one = 1;
    if (remote->has_thread) {
        /* Pairs with the acquire in `drive`. */
        atomic_store_explicit(&remote->stop, true, memory_order_release);
        ssize_t ignored = WEFT_OS->write(remote->wake, &one, sizeof one);
        (void)ignored; /* without it the thread looks a moment later */
        rest(remote, true);
        WEFT_OS->thread_join(remote->thread);
        remote->has_thread = false;
    }
    if (remote->wake >= 0)
        WEFT_OS->close(remote->wake);
    remote->wake = -1;
}
