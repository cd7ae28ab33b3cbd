/* SPDX-License-Identifier: Apache-2.0 */
/* The cache; see cache.h. */
#include "tensor/cache.h"

#include "base/assert.h"
#include "base/os.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PLACES = 16, LARGEST = 32 << 20, KEPT_MOST = 64 << 20 };

typedef struct board {
    void *memory;
    size_t bytes;
} board;

/* Guards what follows.  Nobody waits for it: without the cache memory is mapped and unmapped, also
 * in a child that was forked while somebody had it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static board kept[PLACES]; /* the oldest first */
static int count;
static size_t total;

/* Whole huge pages, so that tensors of about the same size can follow each other. */
static size_t mapped_bytes(size_t bytes)
{
    return (bytes + WEFT_I_HUGE_PAGE - 1) / WEFT_I_HUGE_PAGE * WEFT_I_HUGE_PAGE;
}

static board take_out(int index)
{
    WEFT_ASSERT(index >= 0 && index < count && total >= kept[index].bytes);
    board out = kept[index];
    total -= out.bytes;
    count--;
    for (int i = index; i < count; i++)
        kept[i] = kept[i + 1];
    return out;
}

/* The newest of that size: most of it may still be in a cache. */
static void *find(size_t bytes)
{
    if (pthread_mutex_trylock(&lock))
        return NULL;
    int index = count - 1;
    while (index >= 0 && kept[index].bytes != bytes)
        index--;
    void *memory = index < 0 ? NULL : take_out(index).memory;
    pthread_mutex_unlock(&lock);
    return memory;
}

static void *map(size_t bytes)
{
    char *memory = weft_i_pages_map(mapped_bytes(bytes), MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (memory == MAP_FAILED)
        return NULL;
    if (weft_i_pages_want_huge(bytes)) /* but for the rest at the end */
        weft_i_pages_make_huge(memory, bytes - bytes % WEFT_I_HUGE_PAGE);
    return memory;
}

void *weft_i_cache_take(size_t bytes)
{
    if (bytes > PTRDIFF_MAX - 2 * (size_t)WEFT_I_HUGE_PAGE)
        return NULL;
    void *memory = find(mapped_bytes(bytes));
    return memory ? memory : map(bytes);
}

static void unmap(board out)
{
    WEFT_OS->munmap(out.memory, out.bytes);
}

void weft_i_cache_give(void *memory, size_t bytes)
{
    board given = {memory, mapped_bytes(bytes)};
    if (given.bytes > LARGEST || pthread_mutex_trylock(&lock)) {
        unmap(given);
        return;
    }
    while (count == PLACES || total + given.bytes > KEPT_MOST)
        unmap(take_out(0));
    WEFT_ASSERT(count < PLACES && total + given.bytes <= KEPT_MOST);
    kept[count++] = given;
    total += given.bytes;
    pthread_mutex_unlock(&lock);
}

size_t weft_i_cache_clear(void)
{
    pthread_mutex_lock(&lock);
    size_t bytes = total;
    while (count)
        unmap(take_out(0));
    pthread_mutex_unlock(&lock);
    return bytes;
}
