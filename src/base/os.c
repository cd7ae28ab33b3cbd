/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls; those that only look at processes and names are in os_look.c.  See os.h for the
 * contract. */
#include "base/os.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RESTART(result_, call_) \
    do {                        \
        (result_) = (call_);    \
    } while ((result_) == -1 && errno == EINTR)

/*
 * A full disk, a limit on the size of files (RLIMIT_FSIZE) and a reader that has gone are errors of
 * the call, not signals that end the program: SIGXFSZ and SIGPIPE, which the kernel sends to the
 * calling thread, are held back and forgotten, unless the program has blocked them itself.
 */
static void hold_signals(sigset_t *before)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGPIPE);
    sigaddset(&held, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

static void forget_signal(const sigset_t *before, int signal)
{
    struct timespec at_once = {.tv_sec = 0};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    if (!sigismember(before, signal))
        sigtimedwait(&one, NULL, &at_once);
}

static void release_signals(const sigset_t *before, bool failed)
{
    int error = errno;
    if (failed && error == EPIPE)
        forget_signal(before, SIGPIPE);
    if (failed && error == EFBIG)
        forget_signal(before, SIGXFSZ);
    pthread_sigmask(SIG_SETMASK, before, NULL);
    errno = error;
}

#define QUIETLY(result_, call_)                     \
    do {                                            \
        sigset_t before_;                           \
        hold_signals(&before_);                     \
        RESTART(result_, call_);                    \
        release_signals(&before_, (result_) == -1); \
    } while (0)

/* Small blocks by malloc: the C library keeps freed ones at hand for each thread, but not for
 * calloc. */
static void *os_alloc(size_t bytes)
{
    enum { AT_HAND = 1024 };
    if (bytes > AT_HAND)
        return calloc(1, bytes);
    void *memory = malloc(bytes ? bytes : 1);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static void *os_alloc_aligned(size_t alignment, size_t bytes)
{
    void *memory = NULL;
    int error = posix_memalign(&memory, alignment, bytes ? bytes : 1);
    if (error)
        errno = error;
    return error ? NULL : memory;
}

static void *os_resize(void *old, size_t bytes)
{
    return realloc(old, bytes ? bytes : 1);
}

static int os_memfd_create(const char *name, unsigned flags)
{
    return memfd_create(name, flags | MFD_CLOEXEC);
}

static int os_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    int result;
    QUIETLY(result, fallocate(fd, mode, offset, bytes));
    return result;
}

static int os_ftruncate(int fd, off_t bytes)
{
    int result;
    QUIETLY(result, ftruncate(fd, bytes));
    return result;
}

static int os_seal(int fd, int seals)
{
    return fcntl(fd, F_ADD_SEALS, seals);
}

static int os_open(const char *path, int flags, mode_t mode)
{
    int result;
    RESTART(result, open(path, flags | O_CLOEXEC, mode));
    return result;
}

static ssize_t os_read(int fd, void *bytes, size_t count)
{
    ssize_t result;
    RESTART(result, read(fd, bytes, count));
    return result;
}

static ssize_t os_pread(int fd, void *bytes, size_t count, off_t offset)
{
    ssize_t result;
    RESTART(result, pread(fd, bytes, count, offset));
    return result;
}

static ssize_t os_pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    ssize_t result;
    QUIETLY(result, pwrite(fd, bytes, count, offset));
    return result;
}

static ssize_t os_write(int fd, const void *bytes, size_t count)
{
    ssize_t result;
    QUIETLY(result, write(fd, bytes, count));
    return result;
}

static int os_flock(int fd, int operation)
{
    int result;
    RESTART(result, flock(fd, operation));
    return result;
}

static int os_lock_byte(int fd, short kind, off_t byte)
{
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    RESTART(result, fcntl(fd, F_OFD_SETLK, &lock));
    return result;
}

static int os_pipe(int fds[2])
{
    return pipe2(fds, O_CLOEXEC);
}

static int os_eventfd(unsigned start)
{
    return eventfd(start, EFD_CLOEXEC | EFD_NONBLOCK);
}

static int os_socket(int domain, int type, int protocol)
{
    return socket(domain, type | SOCK_CLOEXEC, protocol);
}

static int os_socketpair(int domain, int type, int fds[2])
{
    return socketpair(domain, type | SOCK_CLOEXEC, 0, fds);
}

static int os_accept(int fd, bool blocking)
{
    int result;
    RESTART(result, accept4(fd, NULL, NULL, SOCK_CLOEXEC | (blocking ? 0 : SOCK_NONBLOCK)));
    return result;
}

static int os_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    int result = connect(fd, address, length);
    if (result == 0 || errno != EINTR)
        return result;
    /* An interrupted connect goes on by itself: wait for it and read its outcome. */
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    while (poll(&wait, 1, -1) < 0 && errno == EINTR)
        ;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    return error ? -1 : 0;
}

static ssize_t os_sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t result;
    RESTART(result, sendmsg(fd, message, flags | MSG_NOSIGNAL));
    return result;
}

static ssize_t os_recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t result;
    RESTART(result, recvmsg(fd, message, flags | MSG_CMSG_CLOEXEC));
    return result;
}

static int os_epoll_create(void)
{
    return epoll_create1(EPOLL_CLOEXEC);
}

static int os_epoll_wait(int epoll, struct epoll_event *events, int count, int timeout_ms)
{
    int result = epoll_wait(epoll, events, count, timeout_ms);
    return result < 0 && errno == EINTR ? 0 : result;
}

static void *os_dlopen(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static int64_t os_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int os_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    int64_t end = timeout_ms < 0 ? WEFT_I_NEVER : os_clock_ns() + (int64_t)timeout_ms * 1000000;
    for (;;) {
        int result = poll(fds, count, timeout_ms);
        if (result >= 0 || errno != EINTR)
            return result;
        if (timeout_ms >= 0) {
            int64_t left = end - os_clock_ns();
            timeout_ms = left <= 0 ? 0 : (int)((left + 999999) / 1000000);
        }
    }
}

/* Library threads must not take the program's signals: they start with all of them blocked. */
static int os_thread_create(pthread_t *thread, void *(*body)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void os_thread_join(pthread_t thread)
{
    pthread_join(thread, NULL);
}

static void os_thread_detach(void)
{
    pthread_detach(pthread_self());
}

static pid_t os_waitpid(pid_t process, int *status, int options)
{
    pid_t result;
    RESTART(result, waitpid(process, status, options));
    return result;
}

static int os_pidfd_open(pid_t process)
{
    return (int)syscall(SYS_pidfd_open, process, 0);
}

static int os_signalfd(const sigset_t *signals)
{
    return signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int os_wait_kept(pid_t process, int *status)
{
    siginfo_t info = {.si_pid = 0};
    int result;
    RESTART(result, waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT));
    if (result || !info.si_pid)
        return result;
    /* In the form of waitpid, which WIFEXITED and its kin read. */
    *status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8
                                         : info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0);
    return 1;
}

/* Runs in memory borrowed from the parent: only system calls, and no way back. */
__attribute__((noreturn)) static void spawn_child(const weft_i_os_child *child, atomic_int *error)
{
    struct sigaction action;
    /* A handler of the parent's program must not run here; ignored signals stay ignored. */
    for (int signal = 1; signal < NSIG; signal++)
        if (!sigaction(signal, NULL, &action) && action.sa_handler != SIG_DFL &&
            action.sa_handler != SIG_IGN) {
            action = (struct sigaction){.sa_handler = SIG_DFL};
            sigaction(signal, &action, NULL);
        }
    int why = weft_i_os_child_settle(child);
    if (!why) {
        execvpe(child->argv[0], child->argv, child->env);
        why = errno;
    }
    /* Relaxed: the parent runs again only after we are gone. */
    atomic_store_explicit(error, why, memory_order_relaxed);
    _exit(127);
}

/* vfork: no page table is copied, so that starting costs the same however large the caller is. */
static pid_t os_spawn(const weft_i_os_child *child)
{
    /* Atomic, or the compiler concludes that the parent's path never sees what the child writes. */
    atomic_int error = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t process = vfork();
    if (process == 0)
        spawn_child(child, &error);
    int why = process < 0 ? errno : atomic_load_explicit(&error, memory_order_relaxed);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (process > 0 && why) {
        os_waitpid(process, NULL, 0);
        process = -1;
    }
    errno = why;
    return process;
}

static int os_random_bytes(void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t n = getrandom((char *)bytes + done, count - done, 0);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0)
            done += (size_t)n;
    }
    return 0;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static void os_sleep_ns(int64_t duration)
{
    struct timespec left = timespec_of(duration > 0 ? duration : 0);
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

static ssize_t os_read_process(pid_t process, void *to, uint64_t from, size_t bytes)
{
    struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};
    return process_vm_readv(process, &here, 1, &there, 1, 0);
}

static void os_yield(void)
{
    sched_yield();
}

static void os_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t duration)
{
    struct timespec limit = timespec_of(duration > 0 ? duration : 0);
    syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, NULL, 0);
}

static void os_futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

const weft_i_os weft_i_os_linux = {
    .alloc = os_alloc,
    .alloc_aligned = os_alloc_aligned,
    .resize = os_resize,
    .free = free,
    .mmap = mmap,
    .munmap = munmap,
    .madvise = madvise,
    .memfd_create = os_memfd_create,
    .fallocate = os_fallocate,
    .ftruncate = os_ftruncate,
    .seal = os_seal,
    .open = os_open,
    .close = close,
    .read = os_read,
    .write = os_write,
    .lseek = lseek,
    .pread = os_pread,
    .pwrite = os_pwrite,
    .flock = os_flock,
    .mkdir = mkdir,
    .lock_byte = os_lock_byte,
    .fstat = fstat,
    .unlink = unlink,
    .pipe = os_pipe,
    .eventfd = os_eventfd,
    .socket = os_socket,
    .socketpair = os_socketpair,
    .bind = bind,
    .listen = listen,
    .accept = os_accept,
    .connect = os_connect,
    .sendmsg = os_sendmsg,
    .recvmsg = os_recvmsg,
    .getsockname = getsockname,
    .getsockopt = getsockopt,
    .setsockopt = setsockopt,
    .getaddrinfo = getaddrinfo,
    .freeaddrinfo = freeaddrinfo,
    .epoll_create = os_epoll_create,
    .epoll_ctl = epoll_ctl,
    .epoll_wait = os_epoll_wait,
    .poll = os_poll,
    .thread_create = os_thread_create,
    .thread_join = os_thread_join,
    .thread_detach = os_thread_detach,
    .fork = fork,
    .kill = kill,
    .waitpid = os_waitpid,
    .read_process = os_read_process,
    .pidfd_open = os_pidfd_open,
    .signalfd = os_signalfd,
    .spawn = os_spawn,
    .wait_kept = os_wait_kept,
    .random_bytes = os_random_bytes,
    .dlopen = os_dlopen,
    .dlsym = dlsym,
    .clock_ns = os_clock_ns,
    .sleep_ns = os_sleep_ns,
    .yield = os_yield,
    .futex_wait = os_futex_wait,
    .futex_wake = os_futex_wake,
};

_Atomic(const weft_i_os *) weft_i_os_now = &weft_i_os_linux;

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

bool weft_i_os_is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

bool weft_i_os_is_terminal(int fd)
{
    return isatty(fd) == 1;
}

bool weft_i_os_in_foreground(int fd)
{
    return tcgetpgrp(fd) == getpgrp();
}

bool weft_i_os_is_file(int fd)
{
    struct stat status;
    return !fstat(fd, &status) && S_ISREG(status.st_mode);
}

bool weft_i_os_is_pipe(int fd)
{
    struct stat status;
    return !fstat(fd, &status) && S_ISFIFO(status.st_mode);
}

bool weft_i_os_same_file(int a, int b)
{
    struct stat of_a, of_b;
    return !fstat(a, &of_a) && !fstat(b, &of_b) && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

int weft_i_os_port_of(int fd)
{
    struct sockaddr_in address = {.sin_port = 0};
    socklen_t size = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &size) ? 0 : ntohs(address.sin_port);
}

int64_t weft_i_os_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
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
            os_sleep_ns(
                2000000); /* store buffers drain within microseconds; two milliseconds are ample */
    atomic_thread_fence(memory_order_seq_cst);
}

bool weft_i_os_same_user(int socket_fd)
{
    struct ucred who;
    socklen_t size = sizeof who;
    return getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

int64_t weft_i_os_sealed_bytes(int fd)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &file) == 0 ? (int64_t)file.st_size
                                                                          : -1;
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
    ns_origin = os_clock_ns();
    ns_per_tick = 1e9 / (double)frequency;
#else
    uint64_t first_tick = weft_i_os_ticks();
    int64_t first_ns = os_clock_ns();
    os_sleep_ns(5000000);
    tick_origin = weft_i_os_ticks();
    ns_origin = os_clock_ns();
    ns_per_tick = (double)(ns_origin - first_ns) / (double)(tick_origin - first_tick);
#endif
}

int64_t weft_i_os_ticks_to_ns(uint64_t ticks)
{
    pthread_once(&calibrate_once, calibrate);
    return ns_origin + (int64_t)((double)(int64_t)(ticks - tick_origin) * ns_per_tick);
}
