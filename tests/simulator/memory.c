/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of what was taken, by address: open addressing, used by one thread at a time (whoever has
 * the turn).  Memory that was there before the run is passed through.
 */
#include "simulator/memory.h"

#include "simulator/turns.h"

#include <string.h>
#include <sys/mman.h>

enum { FIRST_ROOM = 1024 };

typedef struct piece {
    void *address; /* NULL: free; &gone: was taken */
    size_t bytes;
    bool mapped;
    int owner; /* rank */
} piece;

static char gone;
static piece *pieces;
static size_t room, used; /* used: also those that are gone */

static size_t place_of(const void *address)
{
    uint64_t mixed = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 20) & (room - 1);
}

static piece *find(const void *address)
{
    if (!room)
        return NULL;
    for (size_t at = place_of(address);; at = (at + 1) & (room - 1)) {
        if (!pieces[at].address)
            return NULL;
        if (pieces[at].address == address)
            return &pieces[at];
    }
}

static void insert(piece one)
{
    size_t at = place_of(one.address);
    while (pieces[at].address && pieces[at].address != &gone)
        at = (at + 1) & (room - 1);
    used += pieces[at].address == NULL;
    pieces[at] = one;
}

/* Room for one more; false if the system has none. */
static bool grow(void)
{
    if (2 * (used + 1) <= room)
        return true;
    piece *before = pieces;
    size_t count = room, wider = room ? 2 * room : FIRST_ROOM;
    piece *made = weft_i_os_linux.alloc(wider * sizeof *made);
    if (!made)
        return false;
    pieces = made;
    room = wider;
    used = 0;
    for (size_t i = 0; i < count; i++)
        if (before[i].address && before[i].address != &gone)
            insert(before[i]);
    weft_i_os_linux.free(before);
    return true;
}

static void *noted(void *address, size_t bytes, bool mapped)
{
    if (address)
        insert((piece){address, bytes, mapped, weft_i_sim_rank()});
    return address;
}

static void forget(void *address)
{
    piece *one = address ? find(address) : NULL;
    if (one)
        one->address = &gone;
}

static void *note_alloc(size_t bytes)
{
    return grow() ? noted(weft_i_os_linux.alloc(bytes), bytes, false) : NULL;
}

static void *note_alloc_aligned(size_t alignment, size_t bytes)
{
    return grow() ? noted(weft_i_os_linux.alloc_aligned(alignment, bytes), bytes, false) : NULL;
}

static void *note_resize(void *old, size_t bytes)
{
    if (!grow())
        return NULL;
    piece *before = old ? find(old) : NULL;
    void *made = weft_i_os_linux.resize(old, bytes);
    if (made && before)
        before->address = &gone;
    return noted(made, bytes, false);
}

static void note_free(void *memory)
{
    forget(memory);
    weft_i_os_linux.free(memory);
}

/* A reservation, in which others are placed, is given back by those. */
static void *note_mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    void *made =
        grow() ? weft_i_os_linux.mmap(where, bytes, protection, flags, fd, offset) : MAP_FAILED;
    if (made != MAP_FAILED && protection != PROT_NONE)
        noted(made, bytes, true);
    return made;
}

static int note_munmap(void *memory, size_t bytes)
{
    forget(memory);
    return weft_i_os_linux.munmap(memory, bytes);
}

void weft_i_sim_memory_watch(weft_i_os *table)
{
    table->alloc = note_alloc;
    table->alloc_aligned = note_alloc_aligned;
    table->resize = note_resize;
    table->free = note_free;
    table->mmap = note_mmap;
    table->munmap = note_munmap;
}

size_t weft_i_sim_memory_held(int rank)
{
    size_t bytes = 0;
    for (size_t i = 0; i < room; i++)
        if (pieces[i].address && pieces[i].address != &gone && pieces[i].owner == rank)
            bytes += pieces[i].bytes;
    return bytes;
}

size_t weft_i_sim_memory_reclaim(void)
{
    size_t bytes = 0;
    for (size_t i = 0; i < room; i++) {
        piece one = pieces[i];
        if (!one.address || one.address == &gone)
            continue;
        bytes += one.bytes;
        if (one.mapped)
            weft_i_os_linux.munmap(one.address, one.bytes);
        else
            weft_i_os_linux.free(one.address);
    }
    weft_i_os_linux.free(pieces);
    pieces = NULL;
    room = used = 0;
    return bytes;
}
