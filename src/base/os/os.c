/* SPDX-License-Identifier: Apache-2.0 */
/* The table of system calls.  Those that need not fail on demand stand beside it: os_clock.c,
 * os_descriptor.c, os_look.c, os_process.c.  See os.h for the contract. */
#include "base/os/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
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

static size_t os_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
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

static int os_exchange(const char *a, const char *b)
{
    return (int)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 2u /* RENAME_EXCHANGE */);
}

static int os_fsync(int fd)
{
    int result;
    RESTART(result, fsync(fd));
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
    .page_bytes = os_page_bytes,
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
    .rename = rename,
    .exchange = os_exchange,
    .rmdir = rmdir,
    .fsync = os_fsync,
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
