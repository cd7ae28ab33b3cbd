/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what the library allocates, through a table of its own; one thread at a time. */
#ifndef WEFT_TESTS_MEMORY_COUNT_H
#define WEFT_TESTS_MEMORY_COUNT_H

#include "base/os/os.h"

#include <malloc.h>
#include <sys/mman.h>

/* Bytes in use and the most there were, of what the library allocates. */
static size_t in_use, most;

static void *counted(void *memory)
{
    in_use += memory ? malloc_usable_size(memory) : 0;
    most = in_use > most ? in_use : most;
    return memory;
}

static void *count_alloc(size_t bytes)
{
    return counted(weft_i_os_linux.alloc(bytes));
}

static void *count_aligned(size_t alignment, size_t bytes)
{
    return counted(weft_i_os_linux.alloc_aligned(alignment, bytes));
}

static void *count_resize(void *old, size_t bytes)
{
    in_use -= old ? malloc_usable_size(old) : 0;
    return counted(weft_i_os_linux.resize(old, bytes));
}

static void count_free(void *memory)
{
    in_use -= memory ? malloc_usable_size(memory) : 0;
    weft_i_os_linux.free(memory);
}

/* Memory of the cache, which keeps none: the program sets WEFT_TENSOR_CACHE to 0. */
static void *count_map(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    void *memory = weft_i_os_linux.mmap(at, bytes, protection, flags, file, offset);
    bool own = memory != MAP_FAILED && file < 0 && protection != PROT_NONE;
    in_use += own ? bytes : 0;
    most = in_use > most ? in_use : most;
    return memory;
}

static int count_unmap(void *memory, size_t bytes)
{
    in_use -= bytes;
    return weft_i_os_linux.munmap(memory, bytes);
}

/* From now on all that is taken counts.  What was there before may go, so 0 is far away; the table
 * stays, for another thread may still be in it afterwards. */
static void count_begin(void)
{
    static weft_i_os table;
    table = weft_i_os_linux;
    table.alloc = count_alloc;
    table.alloc_aligned = count_aligned;
    table.resize = count_resize;
    table.free = count_free;
    table.mmap = count_map;
    table.munmap = count_unmap;
    in_use = most = (size_t)1 << 40;
    weft_i_os_now = &table;
}

/* What has been taken since and not given back, in bytes. */
static long long count_end(void)
{
    weft_i_os_now = &weft_i_os_linux;
    return (long long)(in_use - ((size_t)1 << 40));
}

#endif
