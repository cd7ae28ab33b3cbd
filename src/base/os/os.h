/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call to the system goes through this one table, so that a test can make the n-th of them
 * fail and a simulator can replace time.  The entries behave as the calls of the same name (result
 * -1 and errno), except that all descriptors are close-on-exec and all calls restart after EINTR.
 */
#ifndef WEFT_BASE_OS_H
#define WEFT_BASE_OS_H

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

/* A child process: what is set up between its birth and its program. */
typedef struct weft_i_os_child {
    char *const *argv, *const *env;
    int in, out, err;     /* become its descriptors 0, 1 and 2; -1: as ours */
    int keep;             /* stays open in its program; -1: none */
    int core;             /* binds it to this one of our cores, counted round; -1: not bound */
    pid_t parent;         /* it ends when the thread of this process that made it ends */
    const sigset_t *mask; /* its blocked signals */
} weft_i_os_child;

typedef struct weft_i_os {
    /* private memory; alloc returns zeroed bytes, free takes NULL */
    void *(*alloc)(size_t bytes);
    void *(*alloc_aligned)(size_t alignment, size_t bytes); /* not zeroed; freed by `free` */
    void *(*resize)(void *old, size_t bytes); /* as realloc: new bytes are not zeroed */
    void (*free)(void *memory);

    /* mappings and memory files */
    void *(*mmap)(void *where, size_t bytes, int protection, int flags, int fd, off_t offset);
    int (*munmap)(void *memory, size_t bytes);
    size_t (*page_bytes)(
        void); /* 4 KiB on x86-64; 4, 16 or 64 KiB on Arm64, as the kernel is built */
    int (*madvise)(void *memory, size_t bytes, int advice);
    int (*memfd_create)(const char *name, unsigned flags);
    int (*fallocate)(int fd, int mode, off_t offset, off_t bytes);
    int (*ftruncate)(int fd, off_t bytes);
    int (*seal)(int fd, int seals); /* F_ADD_SEALS */

    /* files */
    int (*open)(const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*read)(int fd, void *bytes, size_t count);
    ssize_t (*write)(int fd, const void *bytes, size_t count);
    off_t (*lseek)(int fd, off_t offset, int whence);
    ssize_t (*pread)(int fd, void *bytes, size_t count, off_t offset);
    ssize_t (*pwrite)(int fd, const void *bytes, size_t count, off_t offset);
    int (*flock)(int fd, int operation);
    int (*mkdir)(const char *path, mode_t mode);
    /* An open-file-description lock of one byte (F_RDLCK, F_WRLCK or F_UNLCK); EAGAIN if another
     * holds it. */
    int (*lock_byte)(int fd, short kind, off_t byte);
    int (*fstat)(int fd, struct stat *out);
    int (*unlink)(const char *path);
    int (*rename)(const char *from, const char *to);
    int (*exchange)(const char *a, const char *b); /* two names, which both are there, at once */
    int (*rmdir)(const char *path);
    int (*fsync)(int fd); /* of a folder: its names */
    int (*pipe)(int fds[2]);
    int (*eventfd)(unsigned start); /* non-blocking */

    /* sockets */
    int (*socket)(int domain, int type, int protocol);
    int (*socketpair)(int domain, int type, int fds[2]);
    int (*bind)(int fd, const struct sockaddr *address, socklen_t length);
    int (*listen)(int fd, int backlog);
    int (*accept)(int fd, bool blocking); /* the new socket is non-blocking unless `blocking` */
    int (*connect)(int fd, const struct sockaddr *address, socklen_t length);
    ssize_t (*sendmsg)(int fd, const struct msghdr *message, int flags);
    ssize_t (*recvmsg)(int fd, struct msghdr *message, int flags);
    int (*getsockname)(int fd, struct sockaddr *address, socklen_t *length);
    int (*getsockopt)(int fd, int level, int option, void *value, socklen_t *length);
    int (*setsockopt)(int fd, int level, int option, const void *value, socklen_t length);
    int (*getaddrinfo)(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out); /* EAI_ value */
    void (*freeaddrinfo)(struct addrinfo *list);
    int (*epoll_create)(void);
    int (*epoll_ctl)(int epoll, int operation, int fd, struct epoll_event *event);
    int (*epoll_wait)(int epoll, struct epoll_event *events, int count,
                      int timeout_ms); /* 0 after EINTR */
    int (*poll)(struct pollfd *fds, nfds_t count,
                int timeout_ms); /* EINTR does not restart its clock */

    /* threads, processes, identity */
    int (*thread_create)(pthread_t *thread, void *(*body)(void *),
                         void *argument); /* errno value */
    void (*thread_join)(pthread_t thread);
    void (*thread_detach)(void); /* the calling thread: nobody will join it */
    pid_t (*fork)(void);
    int (*kill)(pid_t process, int signal);
    pid_t (*waitpid)(pid_t process, int *status, int options);
    /* Copies from the memory of another process; how many bytes, or -1 and errno. */
    ssize_t (*read_process)(pid_t process, void *to, uint64_t from, size_t bytes);
    int (*pidfd_open)(pid_t process);
    int (*signalfd)(const sigset_t *signals);     /* non-blocking */
    pid_t (*spawn)(const weft_i_os_child *child); /* -1 and errno also if its program cannot run */
    int (*wait_kept)(pid_t process,
                     int *status); /* as waitpid WNOHANG, but the zombie stays: 1 ended, 0 not */
    int (*random_bytes)(void *bytes, size_t count);

    /* libraries loaded at run time; never unloaded */
    void *(*dlopen)(const char *name);
    void *(*dlsym)(void *library, const char *symbol);

    /* time and waiting */
    int64_t (*clock_ns)(void); /* monotonic */
    void (*sleep_ns)(int64_t duration);
    void (*yield)(void);
    /* Sleeps while *word == expected, at most `duration` ns.  The word may lie in memory shared by
     * processes. */
    void (*futex_wait)(_Atomic uint32_t *word, uint32_t expected, int64_t duration);
    void (*futex_wake)(_Atomic uint32_t *word, int count);
} weft_i_os;

/*
 * The table in use.  Only tests replace it, also while threads of the library read it: the load is
 * relaxed, because a table is whole before any thread starts and does not change while it is used.
 */
extern _Atomic(const weft_i_os *) weft_i_os_now;
extern const weft_i_os weft_i_os_linux;
#define WEFT_OS (atomic_load_explicit(&weft_i_os_now, memory_order_relaxed))

/* Not worth replacing: no resource is taken. */
int weft_i_os_process(void);     /* getpid */
int weft_i_os_thread(void);      /* gettid */
int weft_i_os_parent(void);      /* getppid */
int weft_i_os_user(void);        /* geteuid */
int weft_i_os_cores(void);       /* cores this process may run on */
int64_t weft_i_os_wall_ns(void); /* since 1970; only for showing, never for deadlines */

/* Leave to use the registers of AMX, for the whole process; false if the system does not give it. */
bool weft_i_os_allow_tiles(void);

/* The child's side: descriptors, process group, signals, core.  Its program or function follows.
 * errno value. */
int weft_i_os_child_settle(const weft_i_os_child *child);
__attribute__((noreturn)) void weft_i_os_child_end(
    int code); /* _exit: nothing of the parent's runs again */

/*
 * Blocks `signals` in the calling thread, except those the process ignores, and SIGPIPE; says
 * which, and what was blocked before.  The second forgets a SIGPIPE of our own and restores.
 */
void weft_i_os_signals_hold(const int *signals, size_t count, sigset_t *held, sigset_t *before);
void weft_i_os_signals_restore(const sigset_t *before);

bool weft_i_os_is_open(int fd);
bool weft_i_os_is_terminal(int fd);
bool weft_i_os_in_foreground(int fd); /* of the terminal `fd` */
bool weft_i_os_is_file(int fd);       /* a regular file: never makes a writer wait */
bool weft_i_os_is_pipe(int fd);       /* or a FIFO */
bool weft_i_os_same_file(int a, int b);
int weft_i_os_port_of(int fd); /* the port a socket is bound to, 0 if none */

/* The cores this thread may run on, a bit each; the first 1,024. */
enum { WEFT_I_OS_CORE_WORDS = 16 };
void weft_i_os_core_mask(uint64_t mask[WEFT_I_OS_CORE_WORDS]);

/*
 * A full memory barrier on every core that runs a thread of any rank: the heavy half of an
 * asymmetric fence.  Ranks join first, which makes it a matter of microseconds; where the kernel
 * cannot do that, all threads of the machine are covered, in some ten milliseconds.
 */
void weft_i_os_barrier_join(void);
void weft_i_os_barrier_everywhere(void);

/* Is the other end of a connected Unix socket a process of our user? */
bool weft_i_os_same_user(int socket_fd);

/* Bytes of a memory file that can no longer shrink; -1 for any other descriptor. */
int64_t weft_i_os_sealed_bytes(int fd);

/* Counts the forks between the first process and this one: what was made in another generation is
 * not ours to use. */
unsigned weft_i_os_generation(void);

extern atomic_uint weft_i_os_forks; /* what that returns: only os.c writes it */

/* Is this still the generation `made`, as it once told?  Costs a load. */
static inline bool weft_i_os_is_generation(unsigned made)
{
    return atomic_load_explicit(&weft_i_os_forks, memory_order_relaxed) == made;
}

/* `body` runs when the process exits, or the library is unloaded, before whatever was registered
 * earlier.  False if memory ran out. */
static inline bool weft_i_os_at_exit(void (*body)(void))
{
    return atexit(body) == 0;
}

/* Puts the calling thread's robust-futex list head in place: the kernel marks the listed words when
 * it dies. */
int weft_i_os_set_robust_list(void *head, size_t bytes);

/* A cheap clock for the flight recorder: a counter of the processor, converted by
 * weft_i_os_ticks_to_ns. */
static inline uint64_t weft_i_os_ticks(void)
{
#if defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#elif defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
#else
    return (uint64_t)WEFT_OS->clock_ns();
#endif
}

/* Nanoseconds of the monotonic clock at which the counter showed `ticks`; calibrated on first use.
 */
int64_t weft_i_os_ticks_to_ns(uint64_t ticks);

/* One round of a spin loop. */
static inline void weft_i_os_pause(void)
{
#if defined(__aarch64__)
    __asm__ volatile(
        "isb" ::
            : "memory"); /* "yield" is a no-op on server cores; isb gives the pipeline a rest */
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/*
 * Fetches a cache line that this core will write, away from others that have read it.  Compilers
 * fetch it for reading only, unless told of a newer processor than x86-64 begins with; older ones
 * take the instruction for a no-op.
 */
static inline void weft_i_os_own_line(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" ::"m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* Deadlines: absolute monotonic nanoseconds. */
#define WEFT_I_NEVER INT64_MAX
static inline int64_t weft_i_os_deadline(int64_t timeout_ms)
{
    int64_t now = WEFT_OS->clock_ns();
    return timeout_ms < 0 || timeout_ms > (WEFT_I_NEVER - now) / 1000000
               ? WEFT_I_NEVER
               : now + timeout_ms * 1000000;
}

/* How much of a limit is left: ms, 0 once it has passed, or -1 (for ever). */
static inline int64_t weft_i_os_ms_until(int64_t deadline)
{
    int64_t left = deadline == WEFT_I_NEVER ? 0 : deadline - WEFT_OS->clock_ns();
    return deadline == WEFT_I_NEVER ? -1 : left > 0 ? left / 1000000 : 0;
}

#endif
