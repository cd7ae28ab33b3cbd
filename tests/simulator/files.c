/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors and what lies behind them: memory files, which are real ones so that they can be
 * mapped, eventfds, pipes; and words that sleep, found by the memory they lie in. */
#include "simulator/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>

kernel sim_kernel;

void sim_unsupported(const char *what)
{
    fprintf(stderr, "simulator: %s is not simulated\n", what);
    abort();
}

process *sim_here(void)
{
    int rank = weft_i_sim_rank();
    if (rank < 0)
        sim_unsupported("a system call of the test itself");
    return &sim_kernel.processes[rank];
}

bool sim_trace;

void sim_call_named(const char *name)
{
    if (sim_trace)
        fprintf(stderr, "%12.3f ms  process %d, thread %d: %s\n",
                (double)(weft_i_sim_now() - 1000000000) * 1e-6, weft_i_sim_rank(),
                weft_i_sim_thread(), name);
    weft_i_sim_spend(CALL_NS);
    weft_i_sim_point();
}

/* ---- objects ---- */

object *sim_object_new(object_kind kind)
{
    object *made = calloc(1, sizeof *made);
    if (!made)
        sim_unsupported("running out of memory");
    made->kind = kind;
    made->references = 1;
    made->number = ++sim_kernel.made;
    made->real = -1;
    made->last = &made->first;
    made->next = sim_kernel.all;
    made->link = &sim_kernel.all;
    if (made->next)
        made->next->link = &made->next;
    sim_kernel.all = made;
    return made;
}

void sim_list_add(object **list, object *one)
{
    for (int i = 0; i < NAMED; i++)
        if (!list[i]) {
            list[i] = one;
            return;
        }
    sim_unsupported("so many names");
}

void sim_list_remove(object **list, const object *one)
{
    for (int i = 0; i < NAMED; i++)
        if (list[i] == one)
            list[i] = NULL;
}

object *sim_object_hold(object *one)
{
    one->references++;
    return one;
}

static bool forgetting; /* the run is over: all go, in any order */

static void free_object(object *one)
{
    for (packet *next; one->first; one->first = next) {
        next = one->first->next;
        if (one->first->passed && !forgetting)
            sim_object_drop(one->first->passed);
        free(one->first);
    }
    for (watch *next; one->watches; one->watches = next) {
        next = one->watches->next;
        free(one->watches);
    }
    if (one->real >= 0)
        weft_i_os_linux.close(one->real);
    *one->link = one->next;
    if (one->next)
        one->next->link = one->link;
    if (forgetting) {
        free(one);
        return;
    }
    one->real = -1;
    one->count = 0;
    one->state = BROKEN;
    one->next = sim_kernel.buried;
    sim_kernel.buried = one;
}

void sim_object_drop(object *one)
{
    if (--one->references)
        return;
    sim_poll_closed(one);
    if (one->kind == SOCKET && (one->state == BOUND || one->state == LISTENING))
        sim_list_remove(sim_kernel.named, one);
    if (one->kind == EPOLL)
        sim_list_remove(sim_kernel.epolls, one);
    if (one->kind == SOCKET || one->kind == PIPE_READ || one->kind == PIPE_WRITE)
        sim_net_last_closed(one);
    free_object(one);
}

/* ---- descriptors ---- */

static object **place_of(int fd)
{
    process *here = sim_here();
    int at = fd - FIRST_NUMBER;
    if (fd >= 0 && fd < 3)
        return &here->standard[fd];
    if (here->kept && fd == here->kept_number)
        return &here->kept;
    if (at < 0 || at >= NUMBERS || !sim_kernel.numbers[at].object)
        return NULL;
    if (sim_kernel.numbers[at].process != weft_i_sim_rank()) {
        weft_i_sim_complain("process %d uses descriptor %d, which is process %d's",
                            weft_i_sim_rank(), fd, sim_kernel.numbers[at].process);
        return NULL;
    }
    return &sim_kernel.numbers[at].object;
}

object *sim_object_of(int fd)
{
    object **place = place_of(fd);
    if (!place || !*place) {
        errno = EBADF;
        return NULL;
    }
    return *place;
}

object *sim_object_of_kind(int fd, object_kind kind)
{
    object *found = sim_object_of(fd);
    if (found && found->kind != kind) {
        errno = kind == SOCKET ? ENOTSOCK : EINVAL;
        return NULL;
    }
    return found;
}

bool sim_fd_room(void)
{
    return sim_here()->open < sim_here()->room;
}

/* A number that nobody has; used again as late as possible, so that a wrong close is noticed. */
static int next_free(void)
{
    for (int tries = 0; tries < NUMBERS; tries++) {
        int at = sim_kernel.next_number++ % NUMBERS;
        if (!sim_kernel.numbers[at].object)
            return at;
    }
    sim_unsupported("a run with so many descriptors");
}

int sim_fd_new(object *one)
{
    if (!sim_fd_room()) {
        sim_object_drop(one);
        errno = EMFILE;
        return -1;
    }
    int at = next_free();
    sim_here()->open++;
    sim_kernel.numbers[at].object = one;
    sim_kernel.numbers[at].process = weft_i_sim_rank();
    return FIRST_NUMBER + at;
}

int sim_close(int fd)
{
    if (weft_i_sim_is_ending())
        return 0;
    object **place = place_of(fd);
    if (!place || !*place) {
        weft_i_sim_complain("process %d closes descriptor %d, which it does not have",
                            weft_i_sim_rank(), fd);
        errno = EBADF;
        return -1;
    }
    object *one = *place;
    *place = NULL;
    if (fd >= FIRST_NUMBER && place != &sim_here()->kept)
        sim_here()->open--;
    sim_object_drop(one);
    return 0;
}

static int files_close(int fd)
{
    sim_call();
    return sim_close(fd);
}

/* A process has ended. */
void sim_files_close_all(int number)
{
    process *its = &sim_kernel.processes[number];
    for (int i = 0; i < 3; i++)
        if (its->standard[i])
            sim_object_drop(its->standard[i]);
    memset(its->standard, 0, sizeof its->standard);
    if (its->kept)
        sim_object_drop(its->kept);
    its->kept = NULL;
    for (int i = 0; i < NUMBERS && i < sim_kernel.next_number; i++)
        if (sim_kernel.numbers[i].object && sim_kernel.numbers[i].process == number) {
            object *one = sim_kernel.numbers[i].object;
            sim_kernel.numbers[i].object = NULL;
            sim_object_drop(one);
        }
    its->open = 0;
}

/* ---- memory ---- */

typedef struct mapping {
    char *base;
    size_t bytes;
    uint64_t file;
    off_t offset;
} mapping;
static mapping *mappings;
static size_t mapped, mappings_room;
static weft_i_os below; /* the table under ours, which notes what is taken */

static void note_mapping(char *base, size_t bytes, const object *file, off_t offset)
{
    if (mapped == mappings_room) {
        mappings_room = mappings_room ? 2 * mappings_room : 64;
        mappings = realloc(mappings, mappings_room * sizeof *mappings);
        if (!mappings)
            sim_unsupported("running out of memory");
    }
    mappings[mapped++] = (mapping){base, bytes, file->number, offset};
}

static void *files_mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    sim_call();
    if (fd < 0)
        return below.mmap(where, bytes, protection, flags, fd, offset);
    object *file = sim_object_of_kind(fd, MEMORY);
    if (!file)
        return MAP_FAILED;
    char *base = below.mmap(where, bytes, protection, flags, file->real, offset);
    if (base != MAP_FAILED)
        note_mapping(base, bytes, file, offset);
    return base;
}

static int files_munmap(void *memory, size_t bytes)
{
    for (size_t i = 0; i < mapped; i++)
        if (mappings[i].base == (char *)memory)
            mappings[i] = mappings[--mapped];
    return below.munmap(memory, bytes);
}

static int files_memfd_create(const char *name, unsigned flags)
{
    sim_call();
    if (!sim_fd_room()) {
        errno = EMFILE;
        return -1;
    }
    object *made = sim_object_new(MEMORY);
    made->real = weft_i_os_linux.memfd_create(name, flags);
    if (made->real < 0)
        sim_unsupported("running out of memory");
    return sim_fd_new(made);
}

static int real_of(int fd)
{
    sim_call();
    const object *file = sim_object_of_kind(fd, MEMORY);
    return file ? file->real : -1;
}

static int files_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    int real = real_of(fd);
    return real < 0 ? -1 : weft_i_os_linux.fallocate(real, mode, offset, bytes);
}

static int files_ftruncate(int fd, off_t bytes)
{
    int real = real_of(fd);
    return real < 0 ? -1 : weft_i_os_linux.ftruncate(real, bytes);
}

static int files_seal(int fd, int seals)
{
    int real = real_of(fd);
    return real < 0 ? -1 : weft_i_os_linux.seal(real, seals);
}

/* Eventfds and their kin have no type, because they have no place in a file system. */
static int files_fstat(int fd, struct stat *out)
{
    sim_call();
    const object *file = sim_object_of(fd);
    if (!file)
        return -1;
    if (file->kind == MEMORY)
        return weft_i_os_linux.fstat(file->real, out);
    memset(out, 0, sizeof *out);
    out->st_mode = 0600;
    if (file->kind == SOCKET)
        out->st_mode |= S_IFSOCK;
    else if (file->kind == PIPE_READ || file->kind == PIPE_WRITE)
        out->st_mode |= S_IFIFO;
    else if (file->kind == NOTHING || file->kind == CONSOLE)
        out->st_mode |= S_IFCHR;
    return 0;
}

static ssize_t files_pread(int fd, void *bytes, size_t count, off_t offset)
{
    int real = real_of(fd);
    return real < 0 ? -1 : weft_i_os_linux.pread(real, bytes, count, offset);
}

static ssize_t files_pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    int real = real_of(fd);
    return real < 0 ? -1 : weft_i_os_linux.pwrite(real, bytes, count, offset);
}

/* ---- words that sleep ---- */

typedef struct word {
    uint64_t file; /* 0: private to a process */
    uint64_t place;
    int process;
} word;

typedef struct sleeper {
    struct sleeper *next;
    word on;
    int process;
    bool woken;
} sleeper;
static sleeper *sleepers;

static word word_at(const void *address)
{
    const char *at = address;
    for (size_t i = 0; i < mapped; i++)
        if (at >= mappings[i].base && at < mappings[i].base + mappings[i].bytes)
            return (word){mappings[i].file, (uint64_t)(at - mappings[i].base + mappings[i].offset),
                          -1};
    return (word){0, (uint64_t)(uintptr_t)address, weft_i_sim_rank()};
}

static bool is_woken(void *arg)
{
    return ((const sleeper *)arg)->woken;
}

static void take_off(const sleeper *one)
{
    sleeper **at = &sleepers;
    while (*at && *at != one)
        at = &(*at)->next;
    if (*at)
        *at = one->next;
}

static void files_futex_wait(_Atomic uint32_t *address, uint32_t expected, int64_t duration)
{
    sim_call();
    /* As the kernel does: looks and goes to sleep in one step. */
    if (weft_i_sim_is_ending() || atomic_load_explicit(address, memory_order_seq_cst) != expected)
        return;
    int64_t now = weft_i_sim_now();
    sleeper me = {.next = sleepers, .on = word_at(address), .process = weft_i_sim_rank()};
    sleepers = &me;
    weft_i_sim_wait(is_woken, &me, duration > WEFT_I_NEVER - now ? WEFT_I_NEVER : now + duration);
    take_off(&me);
}

void sim_futex_wake_key(void *address, int count)
{
    word wanted = word_at(address);
    for (sleeper *one = sleepers; one && count > 0; one = one->next)
        if (!one->woken && one->on.file == wanted.file && one->on.place == wanted.place &&
            one->on.process == wanted.process && !weft_i_sim_is_dead(one->process)) {
            one->woken = true;
            count--;
        }
}

static void files_futex_wake(_Atomic uint32_t *address, int count)
{
    sim_futex_wake_key(address, count);
    sim_call();
}

/* ---- eventfds, pipes, consoles ---- */

static int files_eventfd(unsigned start)
{
    sim_call();
    object *made = sim_object_new(EVENT);
    made->count = start;
    made->nonblocking = true;
    return sim_fd_new(made);
}

static int files_pipe(int fds[2])
{
    sim_call();
    if (sim_here()->open + 2 > sim_here()->room) {
        errno = EMFILE;
        return -1;
    }
    object *from = sim_object_new(PIPE_READ), *to = sim_object_new(PIPE_WRITE);
    from->state = to->state = CONNECTED;
    from->peer = to;
    to->peer = from;
    from->limit = 65536;
    from->domain = to->domain = AF_UNIX;
    from->type = to->type = SOCK_STREAM;
    fds[0] = sim_fd_new(from);
    fds[1] = sim_fd_new(to);
    return 0;
}

/* What the kernel tells; the rest of /proc and /sys is not there, as in a small container. */
static int open_text(const char *path)
{
    if (strcmp(path, "/proc/meminfo") != 0) {
        errno = ENOENT;
        return -1;
    }
    object *made = sim_object_new(TEXT);
    made->text = "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\nSwapFree: 0 kB\n";
    return sim_fd_new(made);
}

static int files_open(const char *path, int flags, mode_t mode)
{
    (void)flags, (void)mode;
    sim_call();
    int fd = -1;
    if (!strcmp(path, "/dev/null"))
        return sim_fd_new(sim_object_new(NOTHING));
    if (sscanf(path, "/proc/self/fd/%d", &fd) == 1) {
        object *same = sim_object_of(fd);
        return same ? sim_fd_new(sim_object_hold(same)) : -1;
    }
    if (!strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5))
        return open_text(path);
    sim_unsupported(path);
}

static ssize_t read_event(object *event, void *bytes, size_t count)
{
    if (count < sizeof event->count || !event->count) {
        errno = count < sizeof event->count ? EINVAL : EAGAIN;
        return -1;
    }
    memcpy(bytes, &event->count, sizeof event->count);
    event->count = 0;
    return sizeof event->count;
}

static ssize_t read_signal(const object *from, void *bytes, size_t count)
{
    process *here = sim_here();
    uint64_t pending = here->signals & from->mask;
    if (!pending || count < sizeof(struct signalfd_siginfo)) {
        errno = EAGAIN;
        return -1;
    }
    int number = __builtin_ctzll(pending);
    here->signals &= ~(UINT64_C(1) << number);
    struct signalfd_siginfo info = {.ssi_signo = (uint32_t)number};
    memcpy(bytes, &info, sizeof info);
    return sizeof info;
}

static ssize_t read_text(object *file, void *bytes, size_t count)
{
    size_t left = strlen(file->text) - file->count;
    size_t some = left < count ? left : count;
    memcpy(bytes, file->text + file->count, some);
    file->count += some;
    return (ssize_t)some;
}

static ssize_t files_read(int fd, void *bytes, size_t count)
{
    sim_call();
    object *from = sim_object_of(fd);
    if (!from)
        return -1;
    struct iovec piece = {bytes, count};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    switch (from->kind) {
    case EVENT:
        return read_event(from, bytes, count);
    case SIGNALS:
        return read_signal(from, bytes, count);
    case PIPE_READ:
    case SOCKET:
        return sim_net_receive(from, &message, 0);
    case TEXT:
        return read_text(from, bytes, count);
    case NOTHING:
        return 0;
    default:
        sim_unsupported("reading from this kind of descriptor");
    }
}

static ssize_t write_console(const void *bytes, size_t count)
{
    size_t room = sizeof sim_kernel.console - 1 - sim_kernel.console_bytes;
    size_t some = count < room ? count : room;
    memcpy(sim_kernel.console + sim_kernel.console_bytes, bytes, some);
    sim_kernel.console_bytes += some;
    return (ssize_t)count;
}

static ssize_t files_write(int fd, const void *bytes, size_t count)
{
    sim_call();
    object *to = sim_object_of(fd);
    if (!to)
        return -1;
    struct iovec piece = {(void *)(uintptr_t)bytes, count};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    uint64_t more;
    switch (to->kind) {
    case EVENT:
        memcpy(&more, bytes, sizeof more);
        to->count += more;
        return sizeof more;
    case PIPE_WRITE:
    case SOCKET:
        return sim_net_send(to, &message, 0);
    case NOTHING:
        return (ssize_t)count;
    case CONSOLE:
        return write_console(bytes, count);
    default:
        sim_unsupported("writing to this kind of descriptor");
    }
}

/* ---- what is not simulated ---- */

static off_t no_lseek(int fd, off_t offset, int whence)
{
    (void)fd, (void)offset, (void)whence;
    sim_unsupported("lseek");
}

static int no_flock(int fd, int operation)
{
    (void)fd, (void)operation;
    sim_unsupported("flock");
}

static int no_lock_byte(int fd, short kind, off_t byte)
{
    (void)fd, (void)kind, (void)byte;
    sim_unsupported("lock_byte");
}

static int no_mkdir(const char *path, mode_t mode)
{
    (void)path, (void)mode;
    sim_unsupported("mkdir");
}

static int no_unlink(const char *path)
{
    (void)path;
    sim_unsupported("unlink");
}

void sim_files_fill(weft_i_os *table)
{
    below = *table;
    table->mmap = files_mmap;
    table->munmap = files_munmap;
    table->memfd_create = files_memfd_create;
    table->fallocate = files_fallocate;
    table->ftruncate = files_ftruncate;
    table->seal = files_seal;
    table->open = files_open;
    table->close = files_close;
    table->read = files_read;
    table->write = files_write;
    table->pread = files_pread;
    table->pwrite = files_pwrite;
    table->fstat = files_fstat;
    table->pipe = files_pipe;
    table->eventfd = files_eventfd;
    table->futex_wait = files_futex_wait;
    table->futex_wake = files_futex_wake;
    table->lseek = no_lseek;
    table->flock = no_flock;
    table->lock_byte = no_lock_byte;
    table->mkdir = no_mkdir;
    table->unlink = no_unlink;
}

void sim_files_forget(void)
{
    forgetting = true;
    while (sim_kernel.all)
        free_object(sim_kernel.all);
    for (object *next; sim_kernel.buried; sim_kernel.buried = next) {
        next = sim_kernel.buried->next;
        free(sim_kernel.buried);
    }
    forgetting = false;
    free(mappings);
    mappings = NULL;
    mapped = mappings_room = 0;
    sleepers = NULL;
}
