/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the link puts in the simulator's hands (ld --wrap): locks and conditions, the environment,
 * exit handlers, libcrypto, and the functions of base/os/os.h that are not in the table.  A thread
 * that is not simulated gets the real ones.
 */
#include "base/report/os_look.h"
#include "simulator/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRAP(type_, name_, ...)        \
    type_ __real_##name_(__VA_ARGS__); \
    type_ __wrap_##name_(__VA_ARGS__); \
    type_ __wrap_##name_(__VA_ARGS__)

int sim_plant;
extern bool points_exchange_blindly;
bool points_exchange_blindly; /* planted by another test: see points.h */

enum { SPURIOUS = 40 }; /* one wait for a condition in so many ends for nothing */

static bool is_simulated(void)
{
    return weft_i_sim_rank() >= 0;
}

/* ---- locks and conditions ---- */

WRAP(int, pthread_mutex_lock, pthread_mutex_t *mutex)
{
    return weft_i_sim_lock(mutex, __real_pthread_mutex_lock);
}

WRAP(int, pthread_mutex_unlock, pthread_mutex_t *mutex)
{
    return weft_i_sim_unlock(mutex, __real_pthread_mutex_unlock);
}

typedef struct waiter {
    struct waiter *next;
    const pthread_cond_t *condition;
    int process;
    bool woken;
} waiter;
static waiter *waiters; /* those of the dead are left in: nobody wakes them */

static bool is_woken(void *arg)
{
    return ((const waiter *)arg)->woken;
}

static int wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t deadline)
{
    waiter me = {.next = waiters, .condition = condition, .process = weft_i_sim_rank()};
    me.woken = !weft_i_sim_below(SPURIOUS);
    waiters = &me;
    __wrap_pthread_mutex_unlock(mutex);
    bool woken = weft_i_sim_wait(is_woken, &me, deadline);
    waiter **at = &waiters;
    while (*at && *at != &me)
        at = &(*at)->next;
    if (*at)
        *at = me.next;
    __wrap_pthread_mutex_lock(mutex);
    return woken ? 0 : ETIMEDOUT;
}

static int wake(const pthread_cond_t *condition, int count)
{
    for (waiter *one = waiters; one && count > 0; one = one->next)
        if (one->condition == condition && one->process == weft_i_sim_rank() && !one->woken) {
            one->woken = true;
            count--;
        }
    weft_i_sim_point();
    return 0;
}

void sim_links_forget(void)
{
    waiters = NULL;
}

WRAP(int, pthread_cond_wait, pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    return is_simulated() ? wait_for(condition, mutex, WEFT_I_NEVER)
                          : __real_pthread_cond_wait(condition, mutex);
}

WRAP(int, pthread_cond_timedwait, pthread_cond_t *condition, pthread_mutex_t *mutex,
     const struct timespec *end)
{
    return is_simulated()
               ? wait_for(condition, mutex, end->tv_sec * INT64_C(1000000000) + end->tv_nsec)
               : __real_pthread_cond_timedwait(condition, mutex, end);
}

WRAP(int, pthread_cond_signal, pthread_cond_t *condition)
{
    return is_simulated() ? wake(condition, 1) : __real_pthread_cond_signal(condition);
}

WRAP(int, pthread_cond_broadcast, pthread_cond_t *condition)
{
    return is_simulated() ? wake(condition, INT32_MAX) : __real_pthread_cond_broadcast(condition);
}

/* ---- environment, exit, libcrypto ---- */

WRAP(char *, getenv, const char *name)
{
    return is_simulated() ? sim_process_getenv(name) : __real_getenv(name);
}

static void push_handler(void (*handler)(void))
{
    process *here = sim_here();
    if (here->atexits == ATEXITS)
        sim_unsupported("so many exit handlers");
    here->atexit[here->atexits++] = handler;
}

WRAP(int, atexit, void (*handler)(void))
{
    if (!is_simulated())
        return __real_atexit(handler);
    push_handler(handler);
    return 0;
}

/* Nobody forks here, and a list that the real process keeps would grow with every simulated one. */
WRAP(int, pthread_atfork, void (*before)(void), void (*parent)(void), void (*child)(void))
{
    return is_simulated() ? 0 : __real_pthread_atfork(before, parent, child);
}

/*
 * libcrypto.  As if the program had used it before the library did: its exit handler is there
 * first, and so runs after the library's.
 */
static unsigned char *(*real_hmac)(const void *digest, const void *key, int key_bytes,
                                   const unsigned char *data, size_t bytes, unsigned char *out,
                                   unsigned *out_bytes);

static unsigned char *checked_hmac(const void *digest, const void *key, int key_bytes,
                                   const unsigned char *data, size_t bytes, unsigned char *out,
                                   unsigned *out_bytes)
{
    if (is_simulated() && sim_here()->crypto_gone)
        weft_i_sim_complain("process %d signs after libcrypto's exit handlers have run: it crashes",
                            weft_i_sim_rank());
    return real_hmac(digest, key, key_bytes, data, bytes, out, out_bytes);
}

static void *links_dlopen(const char *name)
{
    if (is_simulated() && !strncmp(name, "libcrypto", 9) && !sim_here()->crypto_loaded) {
        sim_here()->crypto_loaded = true;
        push_handler(NULL);
    }
    return weft_i_os_linux.dlopen(name);
}

static void *links_dlsym(void *library, const char *symbol)
{
    void *found = weft_i_os_linux.dlsym(library, symbol);
    unsigned char *(*mine)(const void *, const void *, int, const unsigned char *, size_t,
                           unsigned char *, unsigned *) = checked_hmac;
    if (strcmp(symbol, "HMAC") != 0)
        return found;
    memcpy(&real_hmac, &found, sizeof found);
    memcpy(&found, &mine, sizeof found);
    return found;
}

void sim_links_fill(weft_i_os *table)
{
    table->dlopen = links_dlopen;
    table->dlsym = links_dlsym;
}

/* ---- base/os/os.h beside the table ---- */

WRAP(int, weft_i_os_process, void)
{
    return is_simulated() ? FIRST_PID + weft_i_sim_rank() : __real_weft_i_os_process();
}

WRAP(int, weft_i_os_thread, void)
{
    return is_simulated() ? FIRST_TID + weft_i_sim_thread() : __real_weft_i_os_thread();
}

WRAP(int, weft_i_os_parent, void)
{
    if (!is_simulated())
        return __real_weft_i_os_parent();
    return sim_here()->parent < 0 ? 1 : FIRST_PID + sim_here()->parent;
}

WRAP(int, weft_i_os_user, void)
{
    return is_simulated() ? sim_user_id(sim_here()->own.user) : __real_weft_i_os_user();
}

WRAP(int, weft_i_os_cores, void)
{
    return is_simulated() ? 4 : __real_weft_i_os_cores();
}

WRAP(void, weft_i_os_core_mask, uint64_t mask[WEFT_I_OS_CORE_WORDS])
{
    memset(mask, 0, WEFT_I_OS_CORE_WORDS * sizeof *mask);
    mask[0] = 0xf;
}

WRAP(int64_t, weft_i_os_wall_ns, void)
{
    return is_simulated() ? weft_i_sim_now() : __real_weft_i_os_wall_ns();
}

WRAP(void, weft_i_os_barrier_join, void)
{
}

WRAP(void, weft_i_os_barrier_everywhere, void)
{
    weft_i_sim_point(); /* one thread runs at a time: memory is in order */
}

WRAP(bool, weft_i_os_same_user, int fd)
{
    return sim_net_same_user(fd);
}

WRAP(int, weft_i_os_port_of, int fd)
{
    return sim_net_port(fd);
}

WRAP(int64_t, weft_i_os_sealed_bytes, int fd)
{
    const object *file = sim_object_of_kind(fd, MEMORY);
    return file ? __real_weft_i_os_sealed_bytes(file->real) : -1;
}

WRAP(int, weft_i_os_set_robust_list, void *head, size_t bytes)
{
    (void)bytes;
    sim_kernel.robust[weft_i_sim_thread()] = head;
    return 0;
}

WRAP(char, weft_i_os_process_state, int pid)
{
    int number = pid - FIRST_PID;
    if (number < 0 || number >= sim_kernel.count)
        return 0;
    return sim_kernel.processes[number].ended ? 'Z' : weft_i_sim_is_held(number) ? 'T' : 'S';
}

WRAP(void, weft_i_os_host_id, char out[65])
{
    snprintf(out, 65, "simulated-%d", sim_here()->own.host);
}

WRAP(bool, weft_i_os_is_open, int fd)
{
    return sim_object_of(fd) != NULL;
}

WRAP(bool, weft_i_os_is_terminal, int fd)
{
    (void)fd;
    return false;
}

WRAP(bool, weft_i_os_in_foreground, int fd)
{
    (void)fd;
    return false;
}

WRAP(bool, weft_i_os_is_file, int fd)
{
    (void)fd;
    return false;
}

WRAP(bool, weft_i_os_is_pipe, int fd)
{
    const object *one = sim_object_of(fd);
    return one && (one->kind == PIPE_READ || one->kind == PIPE_WRITE);
}

WRAP(bool, weft_i_os_same_file, int a, int b)
{
    return sim_object_of(a) == sim_object_of(b);
}

WRAP(void, weft_i_os_signals_hold, const int *signals, size_t count, sigset_t *held,
     sigset_t *before)
{
    sigemptyset(before);
    sigemptyset(held);
    for (size_t i = 0; i < count; i++)
        sigaddset(held, signals[i]);
}

WRAP(void, weft_i_os_signals_restore, const sigset_t *before)
{
    (void)before;
}

WRAP(int, weft_i_os_process_user, int pid)
{
    (void)pid;
    sim_unsupported("the user of a process");
}

WRAP(bool, weft_i_os_each_number, const char *folder, bool (*each)(void *arg, int number),
     void *arg)
{
    (void)each, (void)arg;
    sim_unsupported(folder);
}

WRAP(int, weft_i_os_child_settle, const weft_i_os_child *child)
{
    (void)child;
    sim_unsupported("a child that is a function");
}
