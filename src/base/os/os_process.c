/* SPDX-License-Identifier: Apache-2.0 */
/* This process: its number and user, its cores and signals, its forks, its children.  See os.h. */
#include "base/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int weft_i_os_process(void)
{
    return getpid();
}

int weft_i_os_thread(void)
{
    return (int)syscall(SYS_gettid);
}

int weft_i_os_parent(void)
{
    return getppid();
}

int weft_i_os_user(void)
{
    return (int)geteuid();
}

int weft_i_os_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    if (cores <= 0)
        cores = (int)sysconf(
            _SC_NPROCESSORS_ONLN); /* more than 1,024 cores: the plain set is too small */
    return cores > 0 ? cores : 1;
}

static int move_to(int from, int to)
{
    if (from < 0)
        return 0;
    if (from == to) /* dup2 would leave it close-on-exec */
        return fcntl(to, F_SETFD, 0);
    return dup2(from, to) < 0 ? -1 : 0;
}

static int bind_to(int core)
{
    cpu_set_t mine, one;
    if (core < 0)
        return 0;
    if (sched_getaffinity(0, sizeof mine, &mine))
        return -1;
    int left = core % CPU_COUNT(&mine), cpu = 0;
    while (!CPU_ISSET(cpu, &mine) || left-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one);
}

int weft_i_os_child_settle(const weft_i_os_child *child)
{
    /* Its own process group: a signal to the group reaches what the rank itself starts. */
    if (setpgid(0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
        return errno;
    if (getppid() != child->parent)
        _exit(127); /* the parent died before the line above */
    if (move_to(child->in, 0) || move_to(child->out, 1) || move_to(child->err, 2) ||
        bind_to(child->core))
        return errno;
    if (child->keep >= 0 && fcntl(child->keep, F_SETFD, 0))
        return errno;
    return pthread_sigmask(SIG_SETMASK, child->mask, NULL);
}

void weft_i_os_child_end(int code)
{
    _exit(code);
}

void weft_i_os_signals_hold(const int *signals, size_t count, sigset_t *held, sigset_t *before)
{
    sigset_t blocked;
    sigemptyset(held);
    for (size_t i = 0; i < count; i++) {
        struct sigaction action;
        if (!sigaction(signals[i], NULL, &action) && action.sa_handler != SIG_IGN)
            sigaddset(held, signals[i]);
    }
    blocked = *held;
    sigaddset(&blocked, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

void weft_i_os_signals_restore(const sigset_t *before)
{
    struct timespec at_once = {.tv_sec = 0};
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    if (!sigismember(before, SIGPIPE))
        while (sigtimedwait(&pipe_only, NULL, &at_once) > 0)
            ;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

void weft_i_os_core_mask(uint64_t mask[WEFT_I_OS_CORE_WORDS])
{
    cpu_set_t set;
    memset(mask, 0, WEFT_I_OS_CORE_WORDS * sizeof *mask);
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set))
        return;
    for (int core = 0; core < WEFT_I_OS_CORE_WORDS * 64 && core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set))
            mask[core / 64] |= UINT64_C(1) << core % 64;
}

static atomic_bool barriers_joined; /* relaxed: set before the process has ranks to order */

void weft_i_os_barrier_join(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0)
        atomic_store_explicit(&barriers_joined, true, memory_order_relaxed);
}

void weft_i_os_barrier_everywhere(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    bool joined = atomic_load_explicit(&barriers_joined, memory_order_relaxed);
    if (!joined || syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
        if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0)
            weft_i_os_linux.sleep_ns(
                2000000); /* store buffers drain within microseconds; two milliseconds are ample */
    atomic_thread_fence(memory_order_seq_cst);
}

/* Tiles are 8 KiB of registers: Linux wants to be asked before a process uses them, and refuses if
 * a thread has a signal stack that they do not fit on. */
bool weft_i_os_allow_tiles(void)
{
#if defined(__x86_64__)
    enum { ASK = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, which not all headers have */
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
    return false;
#endif
}

static pthread_once_t generation_once = PTHREAD_ONCE_INIT;
atomic_uint weft_i_os_forks; /* relaxed: changes only in a child, before it has threads */

static void count_fork(void)
{
    atomic_fetch_add_explicit(&weft_i_os_forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

unsigned weft_i_os_generation(void)
{
    pthread_once(&generation_once, watch_forks);
    return atomic_load_explicit(&weft_i_os_forks, memory_order_relaxed);
}

int weft_i_os_set_robust_list(void *head, size_t bytes)
{
    return (int)syscall(SYS_set_robust_list, head, bytes);
}
