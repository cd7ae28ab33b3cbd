/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the n-th call to the system fail.  Only calls that take something are counted: giving back
 * (close, free, munmap, kill, waitpid) cannot fail for want of anything.
 *
 *     fault_arm(3);  ...  bool fired = fault_disarm();
 */
#ifndef WEFT_TESTS_FAULT_H
#define WEFT_TESTS_FAULT_H

#include "base/os/os.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Whose calls are counted: all of the process, or with _Thread_local those of the thread that arms. */
#ifndef FAULT_OF
#define FAULT_OF
#endif

static weft_i_os fault_table;
static FAULT_OF atomic_int fault_left; /* relaxed: counts calls, orders nothing */

static _Atomic(const char *) fault_name; /* the call that was made to fail */

/* True if this call is the one to fail. */
static bool fault_now(const char *name, int error)
{
    if (atomic_fetch_sub_explicit(&fault_left, 1, memory_order_relaxed) != 1)
        return false;
    fault_name = name;
    errno = error;
    return true;
}

/* One replaced entry: FAULT(pipe, int, -1, EMFILE, (int fds[2]), (fds)) */
#define FAULT(name_, type_, failure_, errno_, parameters_, arguments_)                  \
    static type_ fault_##name_ parameters_                                              \
    {                                                                                   \
        return fault_now(#name_, errno_) ? failure_ : weft_i_os_linux.name_ arguments_; \
    }

FAULT(alloc, void *, NULL, ENOMEM, (size_t bytes), (bytes))
FAULT(alloc_aligned, void *, NULL, ENOMEM, (size_t alignment, size_t bytes), (alignment, bytes))
FAULT(resize, void *, NULL, ENOMEM, (void *old, size_t bytes), (old, bytes))
FAULT(mmap, void *, MAP_FAILED, ENOMEM,
      (void *at, size_t bytes, int prot, int flags, int fd, off_t offset),
      (at, bytes, prot, flags, fd, offset))
FAULT(memfd_create, int, -1, EMFILE, (const char *name, unsigned flags), (name, flags))
FAULT(fallocate, int, -1, ENOSPC, (int fd, int mode, off_t offset, off_t bytes),
      (fd, mode, offset, bytes))
FAULT(ftruncate, int, -1, ENOSPC, (int fd, off_t bytes), (fd, bytes))
FAULT(seal, int, -1, EPERM, (int fd, int seals), (fd, seals))
/* base/machine/room.c looks how much memory is free when a moment has passed since the last look, so whether
 * an operation makes these calls is a matter of time.  They are not counted; who cannot read the
 * files goes on without (test_room). */
static _Thread_local int fault_look = -1;

static int fault_open(const char *path, int flags, mode_t mode)
{
    bool looks = !strcmp(path, "/proc/meminfo") || !strcmp(path, "/proc/self/cgroup") ||
                 !strncmp(path, "/sys/fs/cgroup", 14);
    if (!looks && fault_now("open", EMFILE))
        return -1;
    int fd = weft_i_os_linux.open(path, flags, mode);
    fault_look = looks ? fd : fault_look;
    return fd;
}

static ssize_t fault_read(int fd, void *bytes, size_t count)
{
    return fd != fault_look && fault_now("read", EIO) ? -1 : weft_i_os_linux.read(fd, bytes, count);
}

static int fault_close(int fd)
{
    fault_look = fd == fault_look ? -1 : fault_look;
    return weft_i_os_linux.close(fd);
}

FAULT(write, ssize_t, -1, ENOSPC, (int fd, const void *bytes, size_t count), (fd, bytes, count))
FAULT(mkdir, int, -1, ENOSPC, (const char *path, mode_t mode), (path, mode))
#ifdef FAULT_FILES /* also those of names and disks */
FAULT(rename, int, -1, ENOSPC, (const char *from, const char *to), (from, to))
FAULT(exchange, int, -1, EINVAL, (const char *a, const char *b), (a, b))
FAULT(fsync, int, -1, EIO, (int fd), (fd))
#endif
FAULT(pipe, int, -1, EMFILE, (int fds[2]), (fds))
FAULT(eventfd, int, -1, EMFILE, (unsigned start), (start))
FAULT(socket, int, -1, EMFILE, (int domain, int type, int protocol), (domain, type, protocol))
FAULT(socketpair, int, -1, EMFILE, (int domain, int type, int fds[2]), (domain, type, fds))
FAULT(bind, int, -1, EADDRINUSE, (int fd, const struct sockaddr *to, socklen_t length),
      (fd, to, length))
FAULT(listen, int, -1, EADDRINUSE, (int fd, int backlog), (fd, backlog))
FAULT(accept, int, -1, EMFILE, (int fd, bool blocking), (fd, blocking))
FAULT(connect, int, -1, ECONNREFUSED, (int fd, const struct sockaddr *to, socklen_t length),
      (fd, to, length))
FAULT(sendmsg, ssize_t, -1, ENOBUFS, (int fd, const struct msghdr *message, int flags),
      (fd, message, flags))
FAULT(recvmsg, ssize_t, -1, ENOBUFS, (int fd, struct msghdr *message, int flags),
      (fd, message, flags))
FAULT(poll, int, -1, ENOMEM, (struct pollfd * fds, nfds_t count, int timeout_ms),
      (fds, count, timeout_ms))
FAULT(thread_create, int, EAGAIN, EAGAIN,
      (pthread_t * thread, void *(*body)(void *), void *argument), (thread, body, argument))
FAULT(fork, pid_t, -1, EAGAIN, (void), ())
FAULT(pidfd_open, int, -1, EMFILE, (pid_t process), (process))
FAULT(signalfd, int, -1, EMFILE, (const sigset_t *signals), (signals))
FAULT(spawn, pid_t, -1, EAGAIN, (const weft_i_os_child *child), (child))
FAULT(wait_kept, int, -1, EINVAL, (pid_t process, int *status), (process, status))
FAULT(random_bytes, int, -1, EIO, (void *bytes, size_t count), (bytes, count))

/* Filled before there are threads, which may read it at any time.  A test without threads may change
 * entries and fill it again. */
__attribute__((constructor)) static void fault_fill(void)
{
    fault_table = weft_i_os_linux;
#define FAULT_PUT(name_) fault_table.name_ = fault_##name_
    FAULT_PUT(alloc);
    FAULT_PUT(alloc_aligned);
    FAULT_PUT(resize);
    FAULT_PUT(mmap);
    FAULT_PUT(memfd_create);
    FAULT_PUT(fallocate);
    FAULT_PUT(ftruncate);
    FAULT_PUT(seal);
    FAULT_PUT(open);
    FAULT_PUT(read);
    FAULT_PUT(close);
    FAULT_PUT(write);
    FAULT_PUT(mkdir);
#ifdef FAULT_FILES
    FAULT_PUT(rename);
    FAULT_PUT(exchange);
    FAULT_PUT(fsync);
#endif
    FAULT_PUT(pipe);
    FAULT_PUT(eventfd);
    FAULT_PUT(socket);
    FAULT_PUT(socketpair);
    FAULT_PUT(bind);
    FAULT_PUT(listen);
    FAULT_PUT(accept);
    FAULT_PUT(connect);
    FAULT_PUT(sendmsg);
    FAULT_PUT(recvmsg);
    FAULT_PUT(poll);
    FAULT_PUT(thread_create);
    FAULT_PUT(fork);
    FAULT_PUT(pidfd_open);
    FAULT_PUT(signalfd);
    FAULT_PUT(spawn);
    FAULT_PUT(wait_kept);
    FAULT_PUT(random_bytes);
#undef FAULT_PUT
}

/* From now on the n-th call (from 1) fails, once. */
__attribute__((unused)) static void fault_arm(int n)
{
    atomic_store_explicit(&fault_left, n, memory_order_relaxed);
    weft_i_os_now = &fault_table;
}

/* Back to the system itself; true if a call was made to fail. */
__attribute__((unused)) static bool fault_disarm(void)
{
    weft_i_os_now = &weft_i_os_linux;
    return atomic_load_explicit(&fault_left, memory_order_relaxed) <= 0;
}

#endif
