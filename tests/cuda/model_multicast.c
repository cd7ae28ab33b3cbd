/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multicast of the software driver.  An object is a memory file of one page that processes share:
 * which devices were added, and where the memory of each lies that was bound.  At a multicast
 * address nothing can be read or written but by the kernels' multimem functions (twin.h), which ask
 * here for the memory of every device.  The driver is stricter than a real one: memory is bound
 * only when all devices were added, and mapped only when all have bound theirs, since a real
 * driver waits there for who may never come.
 */
#include "model_parts.h"
#include "twin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEVICES_MOST = 16, MAPPINGS_MOST = 1024, PAGE = 4096 };

typedef struct model_page {
    int taken; /* a lock of few instructions: acquire and release in lock_page, unlock_page */
    int devices, added, device[DEVICES_MOST];
    struct {
        int process, fd;
    } bound[DEVICES_MOST]; /* by the order in which devices were added */
} model_page;

/* Where an object is mapped: the memory behind it, by device. */
typedef struct mapping {
    uintptr_t at; /* 0: free.  Released when the rest is there; twin_multi acquires it */
    size_t bytes;
    int count;
    char *memory[DEVICES_MOST];
    bool own[DEVICES_MOST]; /* mapped for this alone */
} mapping;
static mapping mappings[MAPPINGS_MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards changes, and what follows */

/* Where blocks that this process made are mapped: the first place of each is what a tensor has, and
 * stays until the block goes. */
typedef struct place {
    ino_t file;
    char *at;
    struct place *next;
} place;
static place *places;

static void lock_page(model_page *page)
{
    while (__atomic_exchange_n(&page->taken, 1, __ATOMIC_ACQUIRE)) /* pairs with unlock_page */
        sched_yield();
}

static void unlock_page(model_page *page)
{
    __atomic_store_n(&page->taken, 0, __ATOMIC_RELEASE); /* pairs with lock_page */
}

static model_page *map_page(int fd)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

weft_i_cu_result model_multicast_import(model_block *block)
{
    if (block->bytes != PAGE)
        return 0; /* memory */
    block->page = map_page(block->fd);
    return block->page ? 0 : WEFT_I_CUDA_ERROR_OUT_OF_MEMORY;
}

void model_multicast_release(model_block *block)
{
    if (block->page)
        munmap(block->page, PAGE);
}

/* ---- the driver's functions ---- */

weft_i_cu_result model_cuMulticastGetGranularity(size_t *out, const weft_i_cu_multicast *prop,
                                                 int option)
{
    MODEL_ENTER(cuMulticastGetGranularity, MODEL_STARTED);
    (void)prop, (void)option;
    *out = MODEL_GRANULARITY;
    return model.multicast ? 0 : WEFT_I_CUDA_ERROR_NOT_SUPPORTED;
}

weft_i_cu_result model_cuMulticastCreate(weft_i_cu_handle *out, const weft_i_cu_multicast *prop)
{
    MODEL_ENTER(cuMulticastCreate, MODEL_CURRENT);
    if (!model.multicast)
        return WEFT_I_CUDA_ERROR_NOT_SUPPORTED;
    if (!prop->numDevices || prop->numDevices > DEVICES_MOST || prop->flags || !prop->size ||
        prop->size % MODEL_GRANULARITY ||
        prop->handleTypes != WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    model_block *made = calloc(1, sizeof *made);
    made->fd = memfd_create("software-multicast", MFD_CLOEXEC);
    made->bytes = PAGE;
    if (made->fd < 0 || ftruncate(made->fd, PAGE) != 0 || !(made->page = map_page(made->fd)))
        return WEFT_I_CUDA_ERROR_OUT_OF_MEMORY;
    made->page->devices = (int)prop->numDevices;
    *out = (weft_i_cu_handle)(uintptr_t)made;
    model_mapped_born();
    return 0;
}

static int index_of(const model_page *page, int device)
{
    for (int i = 0; i < page->added; i++)
        if (page->device[i] == device)
            return i;
    return -1;
}

weft_i_cu_result model_cuMulticastAddDevice(weft_i_cu_handle handle, weft_i_cu_device device)
{
    MODEL_ENTER(cuMulticastAddDevice, MODEL_CURRENT);
    model_page *page = ((model_block *)(uintptr_t)handle)->page;
    if (!page)
        return WEFT_I_CUDA_ERROR_INVALID_HANDLE;
    lock_page(page);
    bool fits = page->added < page->devices && index_of(page, device) < 0;
    if (fits)
        page->device[page->added++] = device;
    unlock_page(page);
    return fits ? 0 : WEFT_I_CUDA_ERROR_INVALID_VALUE;
}

weft_i_cu_result model_cuMulticastBindMem(weft_i_cu_handle handle, size_t offset,
                                          weft_i_cu_handle memory, size_t memory_offset,
                                          size_t bytes, unsigned long long flags)
{
    MODEL_ENTER(cuMulticastBindMem, MODEL_CURRENT);
    model_page *page = ((model_block *)(uintptr_t)handle)->page;
    const model_block *block = (model_block *)(uintptr_t)memory;
    if (!page || block->page || !block->device)
        return WEFT_I_CUDA_ERROR_INVALID_HANDLE;
    lock_page(page);
    int i = index_of(page, block->device);
    bool fits = !offset && !memory_offset && !flags && bytes == block->bytes &&
                page->added == page->devices && i >= 0 && !page->bound[i].process;
    if (fits) {
        page->bound[i].process = getpid();
        page->bound[i].fd = block->fd;
    }
    unlock_page(page);
    if (!fits)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    model_mapped_born();
    return 0;
}

weft_i_cu_result model_cuMulticastUnbind(weft_i_cu_handle handle, weft_i_cu_device device,
                                         size_t offset, size_t bytes)
{
    MODEL_ENTER(cuMulticastUnbind, MODEL_CURRENT);
    model_page *page = ((model_block *)(uintptr_t)handle)->page;
    if (!page || offset || !bytes)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    lock_page(page);
    int i = index_of(page, device);
    bool was = i >= 0 && page->bound[i].process == getpid();
    if (was)
        page->bound[i].process = 0;
    unlock_page(page);
    if (!was)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    model_mapped_gone();
    return 0;
}

/* ---- mapping ---- */

void model_multicast_note(const model_block *block, void *at)
{
    struct stat of;
    if (!block->device)
        return; /* imported: it may be mapped for less long than multicast */
    place *made = calloc(1, sizeof *made);
    fstat(block->fd, &of);
    *made = (place){of.st_ino, at, NULL};
    pthread_mutex_lock(&lock);
    place **end = &places;
    while (*end)
        end = &(*end)->next;
    *end = made;
    pthread_mutex_unlock(&lock);
}

static void forget(const void *at)
{
    for (place **p = &places; *p; p = &(*p)->next)
        if ((*p)->at == at) {
            place *old = *p;
            *p = old->next;
            free(old);
            return;
        }
}

/* Memory that was bound, at the address its tensor has if that is in this process: then
 * ThreadSanitizer sees both. */
static char *find_memory(int process, int fd, size_t bytes, bool *own)
{
    char path[64];
    struct stat of;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", process, fd);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || fstat(file, &of) != 0)
        return NULL;
    char *found = NULL;
    for (const place *p = places; p && !found; p = p->next)
        found = p->file == of.st_ino ? p->at : NULL;
    *own = !found;
    if (!found) {
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        found = at == MAP_FAILED ? NULL : at;
    }
    close(file);
    return found;
}

static void drop_memory(mapping *m)
{
    for (int i = 0; i < m->count; i++)
        if (m->own[i])
            munmap(m->memory[i], m->bytes);
}

static bool fill(const model_page *page, mapping *m)
{
    for (m->count = 0; m->count < page->devices; m->count++) {
        int i = m->count;
        m->memory[i] = page->bound[i].process ? find_memory(page->bound[i].process,
                                                            page->bound[i].fd, m->bytes, &m->own[i])
                                              : NULL;
        if (!m->memory[i])
            return false;
    }
    return true;
}

weft_i_cu_result model_multicast_map(const model_block *block, uintptr_t at, size_t bytes)
{
    mapping *m = mappings;
    pthread_mutex_lock(&lock);
    lock_page(block->page);
    while (m < mappings + MAPPINGS_MOST && __atomic_load_n(&m->at, __ATOMIC_RELAXED))
        m++; /* relaxed: changed under this lock */
    bool fits = m < mappings + MAPPINGS_MOST;
    if (fits) {
        m->bytes = bytes;
        fits = fill(block->page, m);
        if (fits)
            __atomic_store_n(&m->at, at, __ATOMIC_RELEASE); /* pairs with twin_multi */
        else
            drop_memory(m);
    }
    unlock_page(block->page);
    pthread_mutex_unlock(&lock);
    return fits ? 0 : WEFT_I_CUDA_ERROR_INVALID_VALUE;
}

static mapping *find(uintptr_t at)
{
    for (int i = 0; i < MAPPINGS_MOST; i++) {
        uintptr_t first = __atomic_load_n(&mappings[i].at, __ATOMIC_ACQUIRE); /* see map */
        if (first && at >= first && at < first + mappings[i].bytes)
            return &mappings[i];
    }
    return NULL;
}

bool model_multicast_is(uintptr_t at)
{
    return find(at) != NULL;
}

void model_multicast_unmap(uintptr_t at)
{
    pthread_mutex_lock(&lock);
    mapping *m = find(at);
    if (m) {
        drop_memory(m);
        __atomic_store_n(&m->at, 0, __ATOMIC_RELEASE); /* pairs with the load in find */
    }
    forget((const void *)at);
    pthread_mutex_unlock(&lock);
}

void *twin_multi(const void *at, int which)
{
    const mapping *m = find((uintptr_t)at);
    if (!m)
        abort(); /* on a device the kernel faults, and the context with it */
    return which < m->count ? m->memory[which] + ((uintptr_t)at - m->at) : NULL;
}
