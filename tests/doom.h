/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills or stops this process at its n-th call to the system, as if from outside: between any two
 * steps of the library.  Waiting is not a step.
 *
 *     doom_arm(17);              ...  the process may not come back from any call
 *     doom_arm_with(17, SIGSTOP) ...  nor from this, unless somebody lets it go on
 */
#ifndef WEFT_TESTS_DOOM_H
#define WEFT_TESTS_DOOM_H

#include "base/os/os.h"

#include <signal.h>
#include <unistd.h>

static weft_i_os doom_table;
static atomic_int doom_left, doom_steps; /* relaxed: count, order nothing */
static int doom_signal;

static void doom_step(void)
{
    atomic_fetch_add_explicit(&doom_steps, 1, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&doom_left, 1, memory_order_relaxed) == 1)
        kill(getpid(), doom_signal);
}

#define DOOM(name_, type_, parameters_, arguments_) \
    static type_ doom_##name_ parameters_           \
    {                                               \
        doom_step();                                \
        return weft_i_os_linux.name_ arguments_;    \
    }

DOOM(alloc, void *, (size_t bytes), (bytes))
DOOM(resize, void *, (void *old, size_t bytes), (old, bytes))
DOOM(mmap, void *, (void *at, size_t bytes, int prot, int flags, int fd, off_t offset),
     (at, bytes, prot, flags, fd, offset))
DOOM(munmap, int, (void *at, size_t bytes), (at, bytes))
DOOM(madvise, int, (void *at, size_t bytes, int advice), (at, bytes, advice))
DOOM(memfd_create, int, (const char *name, unsigned flags), (name, flags))
DOOM(fallocate, int, (int fd, int mode, off_t offset, off_t bytes), (fd, mode, offset, bytes))
DOOM(ftruncate, int, (int fd, off_t bytes), (fd, bytes))
DOOM(seal, int, (int fd, int seals), (fd, seals))
DOOM(close, int, (int fd), (fd))
DOOM(write, ssize_t, (int fd, const void *bytes, size_t count), (fd, bytes, count))
#ifdef DOOM_FILES /* also between two names of files */
DOOM(open, int, (const char *path, int flags, mode_t mode), (path, flags, mode))
DOOM(mkdir, int, (const char *path, mode_t mode), (path, mode))
DOOM(unlink, int, (const char *path), (path))
DOOM(rename, int, (const char *from, const char *to), (from, to))
DOOM(exchange, int, (const char *a, const char *b), (a, b))
DOOM(rmdir, int, (const char *path), (path))
DOOM(fsync, int, (int fd), (fd))
#endif
DOOM(eventfd, int, (unsigned start), (start))
DOOM(socket, int, (int domain, int type, int protocol), (domain, type, protocol))
DOOM(bind, int, (int fd, const struct sockaddr *to, socklen_t length), (fd, to, length))
DOOM(listen, int, (int fd, int backlog), (fd, backlog))
DOOM(accept, int, (int fd, bool blocking), (fd, blocking))
DOOM(connect, int, (int fd, const struct sockaddr *to, socklen_t length), (fd, to, length))
DOOM(sendmsg, ssize_t, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
DOOM(recvmsg, ssize_t, (int fd, struct msghdr *message, int flags), (fd, message, flags))
DOOM(thread_create, int, (pthread_t * thread, void *(*body)(void *), void *argument),
     (thread, body, argument))
DOOM(random_bytes, int, (void *bytes, size_t count), (bytes, count))

/* From now on the process gets `signal` at the n-th call (from 1). */
static void doom_arm_with(int n, int signal)
{
    doom_table = weft_i_os_linux;
    doom_signal = signal;
#define DOOM_PUT(name_) doom_table.name_ = doom_##name_
    DOOM_PUT(alloc);
    DOOM_PUT(resize);
    DOOM_PUT(mmap);
    DOOM_PUT(munmap);
    DOOM_PUT(madvise);
    DOOM_PUT(memfd_create);
    DOOM_PUT(fallocate);
    DOOM_PUT(ftruncate);
    DOOM_PUT(seal);
    DOOM_PUT(close);
    DOOM_PUT(write);
#ifdef DOOM_FILES
    DOOM_PUT(open);
    DOOM_PUT(mkdir);
    DOOM_PUT(unlink);
    DOOM_PUT(rename);
    DOOM_PUT(exchange);
    DOOM_PUT(rmdir);
    DOOM_PUT(fsync);
#endif
    DOOM_PUT(eventfd);
    DOOM_PUT(socket);
    DOOM_PUT(bind);
    DOOM_PUT(listen);
    DOOM_PUT(accept);
    DOOM_PUT(connect);
    DOOM_PUT(sendmsg);
    DOOM_PUT(recvmsg);
    DOOM_PUT(thread_create);
    DOOM_PUT(random_bytes);
#undef DOOM_PUT
    atomic_store_explicit(&doom_left, n, memory_order_relaxed);
    weft_i_os_now = &doom_table;
}

/* From now on the n-th call (from 1) is the last thing this process does. */
__attribute__((unused)) static void doom_arm(int n)
{
    doom_arm_with(n, SIGKILL);
}

#endif
