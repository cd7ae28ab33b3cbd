/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in's memory and windows.  Memory is a memory file; a window maps the files of all ranks
 * side by side, 4 GiB apart, as NCCL does.
 */
#include "standin_window.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct memory {
    char *base;
    size_t bytes;
    int fd, windows;
    struct memory *next;
} memory;

/* Begins as NCCL's does, in what weft takes for memory of the device. */
typedef struct window {
    weft_i_nccl_window_head head;
    memory *of;
    int size;
    standin_comm *comm;
    struct window *next; /* of all */
} window;

static const size_t stride = (size_t)4 << 30;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static memory *first;
static window *windows;

weft_i_nccl_result standin_ncclMemAlloc(void **out, size_t bytes)
{
    STANDIN_ENTER(ncclMemAlloc);
    memory *m = calloc(1, sizeof *m);
    m->bytes = (bytes + 4095) / 4096 * 4096;
    m->fd = memfd_create("standin", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)m->bytes) != 0)
        return WEFT_I_ncclSystemError;
    m->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->base == MAP_FAILED)
        return WEFT_I_ncclSystemError;
    if (m->bytes <=
        (size_t)16 << 20) /* NCCL does not clear it; a large one is not to take memory */
        memset(m->base, 0xcd, m->bytes);
    pthread_mutex_lock(&lock);
    m->next = first;
    first = m;
    pthread_mutex_unlock(&lock);
    standin_born(1);
    *out = m->base;
    return 0;
}

static memory *find(const void *at)
{
    memory *m = first;
    while (m && m->base != at)
        m = m->next;
    return m;
}

weft_i_nccl_result standin_ncclMemFree(void *at)
{
    STANDIN_ENTER(ncclMemFree);
    pthread_mutex_lock(&lock);
    memory *m = find(at), **of = &first;
    if (!m || m->windows) { /* deregister first */
        pthread_mutex_unlock(&lock);
        return WEFT_I_ncclInvalidUsage;
    }
    while (*of != m)
        of = &(*of)->next;
    *of = m->next;
    pthread_mutex_unlock(&lock);
    munmap(m->base, m->bytes);
    close(m->fd);
    free(m);
    standin_born(-1);
    return 0;
}

/* Have all ranks of the communicator come so far? */
static bool met(const standin_comm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (atomic_load_explicit(&comm->with->rank[rank].met, memory_order_acquire) < comm->met)
            return false;
    return true;
}

static void come(standin_comm *comm)
{
    comm->met++;
    atomic_store_explicit(&comm->with->rank[comm->rank].met, comm->met, memory_order_release);
}

static bool map_all(standin_comm *comm, char *flat, uint64_t bytes)
{
    for (int rank = 0; rank < comm->size; rank++) {
        char path[64];
        const standin_place *of = &comm->with->rank[rank];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", of->pid, of->fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || of->size != bytes ||
            mmap(flat + (size_t)rank * stride, bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            return false;
        close(fd);
    }
    return true;
}

weft_i_nccl_result standin_ncclCommWindowRegister(weft_i_nccl_raw raw, void *at, size_t bytes,
                                                  weft_i_nccl_window *out, int flags)
{
    standin_comm *comm = (standin_comm *)(void *)raw;
    STANDIN_ENTER(ncclCommWindowRegister);
    pthread_mutex_lock(&lock);
    memory *m = find(at);
    if (m)
        m->windows++;
    pthread_mutex_unlock(&lock);
    if (!m || bytes > m->bytes || flags != WEFT_I_NCCL_WIN_COLL_SYMMETRIC)
        return WEFT_I_ncclInvalidArgument;
    standin_place *mine = &comm->with->rank[comm->rank];
    mine->pid = (int)getpid();
    mine->fd = m->fd;
    mine->size = m->bytes;
    window *w = calloc(1, sizeof *w);
    w->of = m;
    w->size = comm->size;
    w->comm = comm;
    char *flat = mmap(NULL, stride * (size_t)comm->size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (flat == MAP_FAILED)
        return WEFT_I_ncclSystemError;
    w->head = (weft_i_nccl_window_head){w, flat, standin.apart ? 0 : comm->rank, comm->rank, 1};
    standin_born(1);
    pthread_mutex_lock(&lock);
    w->next = windows;
    windows = w;
    pthread_mutex_unlock(&lock);
    *out = (weft_i_nccl_window)(void *)w;
    comm->window = w;
    come(comm);
    return WEFT_I_ncclInProgress;
}

/* All have come, then all have mapped. */
int standin_poll_window(standin_comm *comm)
{
    window *w = comm->window;
    if (!met(comm))
        return WEFT_I_ncclInProgress;
    if (comm->met % 2 == 0) {
        comm->window = NULL;
        return 0;
    }
    if (!map_all(comm, w->head.flat, w->of->bytes))
        return WEFT_I_ncclSystemError;
    come(comm);
    return WEFT_I_ncclInProgress;
}

/* Under the lock. */
static void unlist(window *w)
{
    window **at = &windows;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    w->of->windows--;
    munmap(w->head.flat, stride * (size_t)w->size);
    free(w);
    standin_born(-1);
}

weft_i_nccl_result standin_ncclCommWindowDeregister(weft_i_nccl_raw comm, weft_i_nccl_window raw)
{
    window *w = (window *)(void *)raw;
    STANDIN_ENTER(ncclCommWindowDeregister);
    if (w->comm != (standin_comm *)(void *)comm)
        return WEFT_I_ncclInvalidUsage;
    pthread_mutex_lock(&lock);
    unlist(w);
    pthread_mutex_unlock(&lock);
    return 0;
}

void standin_end_windows(const standin_comm *comm)
{
    pthread_mutex_lock(&lock);
    for (window *w = windows, *next; w; w = next) {
        next = w->next;
        if (w->comm == comm)
            unlist(w);
    }
    pthread_mutex_unlock(&lock);
}

weft_i_nccl_result standin_ncclGetLsaDevicePointer(weft_i_nccl_window raw, size_t offset, int peer,
                                                   void **out)
{
    const window *w = (const window *)(const void *)raw;
    STANDIN_ENTER(ncclGetLsaDevicePointer);
    if (peer < 0 || peer >= (standin.apart ? 1 : w->size))
        return WEFT_I_ncclInvalidArgument;
    *out = w->head.flat + (size_t)peer * stride + offset;
    return 0;
}
