/* SPDX-License-Identifier: Apache-2.0 */
/* The cache; see cache.h. */
#include "tensor/object/cache.h"

#include "base/machine/room.h"
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/env.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

enum {
    PLACES = 256,
    FEW_PLACES = 16,
    WARM_UP_TO = 32 << 20,
    WARM_MOST = 64 << 20,
    MOST = 512 << 20, /* where the setting is "auto": of the cold ones at first, of others ever */
    GRAIN = 16 << 10
};

typedef struct board {
    void *memory;
    size_t bytes;
} board;

/*
 * Boards of up to WARM_UP_TO bytes stay mapped.  Those smaller than a huge page have a rack of their
 * own, with more places.  Larger ones are kept cold: the kernel may take their pages when it is short
 * of memory, and until then they need not be cleared again.
 */
typedef struct rack {
    int places;
    board kept[PLACES]; /* the oldest first */
    int count;
    size_t total;
    /* What a step needs again and again is learned: where a board is missing after others had to go, there is
     * room for it from then on. */
    size_t more;       /* bytes beyond what is kept at first */
    size_t lost_bytes; /* of boards that went for lack of bytes, and were not missed yet */
    int lost_places;   /* the same of places */
} rack;

/* Guards what follows.  Nobody waits for it: without the cache memory is mapped and unmapped, also
 * in a child that was forked while somebody had it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rack small = {.places = PLACES}, warm = {.places = FEW_PLACES},
            cold = {.places = FEW_PLACES};
static rack *const racks[] = {&small, &warm, &cold};
enum { RACKS = sizeof racks / sizeof *racks };
enum { NOT_READ = -2, AUTO = -1 };
static int64_t limit = NOT_READ; /* as the setting was when first read */

/* Whole huge pages, or grains, so that tensors of about the same size can follow each other. */
static size_t mapped_bytes(size_t bytes)
{
    size_t unit = bytes < WEFT_I_HUGE_PAGE ? GRAIN : WEFT_I_HUGE_PAGE;
    return (bytes + unit - 1) / unit * unit;
}

static rack *rack_of(size_t bytes)
{
    return bytes > WARM_UP_TO ? &cold : bytes >= WEFT_I_HUGE_PAGE ? &warm : &small;
}

static size_t most_of(const rack *r)
{
    size_t first = r == &cold ? MOST : WARM_MOST, ever = r == &cold ? SIZE_MAX : MOST;
    if (limit == NOT_READ)
        limit = weft_i_env_number_or_default(WEFT_I_ENV_TENSOR_CACHE);
    if (limit != AUTO)
        first = r == &cold ? (size_t)limit : first, ever = (size_t)limit;
    return first + r->more < ever ? first + r->more : ever;
}

/* Cold boards are lent by the kernel, so to speak, but it has to look for them when it wants them back: they
 * may grow while there is as much room beside them. */
static bool may_learn(const rack *r, size_t bytes)
{
    return r != &cold || (limit == AUTO && weft_i_room_bytes() / 2 > (int64_t)bytes);
}

/* A board was missing. */
static void learn(rack *r, size_t bytes)
{
    size_t more = bytes < r->lost_bytes ? bytes : r->lost_bytes;
    if ((!more && !r->lost_places) || !may_learn(r, bytes))
        return;
    r->more += more;
    r->lost_bytes -= more;
    if (r->lost_places && r->places < PLACES) {
        r->lost_places--;
        r->places++;
    }
}

static board take_out(rack *r, int index)
{
    WEFT_ASSERT(index >= 0 && index < r->count && r->total >= r->kept[index].bytes);
    board out = r->kept[index];
    r->total -= out.bytes;
    r->count--;
    for (int i = index; i < r->count; i++)
        r->kept[i] = r->kept[i + 1];
    return out;
}

/* The newest of that size: most of it may still be in a cache. */
static void *find(size_t bytes)
{
    rack *r = rack_of(bytes);
    if (pthread_mutex_trylock(&lock))
        return NULL;
    int index = r->count - 1;
    while (index >= 0 && r->kept[index].bytes != bytes)
        index--;
    if (index < 0)
        learn(r, bytes);
    void *memory = index < 0 ? NULL : take_out(r, index).memory;
    pthread_mutex_unlock(&lock);
    return memory;
}

static void unmap(board out)
{
    WEFT_OS->munmap(out.memory, out.bytes);
}

static size_t drop_all(void)
{
    size_t bytes = 0;
    for (int i = 0; i < RACKS; i++) {
        bytes += racks[i]->total;
        while (racks[i]->count)
            unmap(take_out(racks[i], racks[i]->count - 1));
        racks[i]->places = racks[i] == &small ? PLACES : FEW_PLACES;
        racks[i]->more = racks[i]->lost_bytes = 0;
        racks[i]->lost_places = 0;
    }
    return bytes;
}

/* Where there is no room for another mapping, those that are kept go first. */
static char *map_pages(size_t bytes)
{
    char *memory = weft_i_pages_map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (memory != MAP_FAILED || pthread_mutex_trylock(&lock))
        return memory;
    size_t dropped = drop_all();
    pthread_mutex_unlock(&lock);
    return dropped ? weft_i_pages_map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1) : memory;
}

static void *map(size_t bytes)
{
    char *memory = map_pages(mapped_bytes(bytes));
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

/* Whether it is kept; what had to make room for it is unmapped. */
static bool keep(board given)
{
    rack *r = rack_of(given.bytes);
    size_t most = most_of(r);
    if (given.bytes > most)
        r->lost_bytes += given.bytes;
    if (given.bytes > most ||
        (r == &cold && WEFT_OS->madvise(given.memory, given.bytes, MADV_FREE) != 0))
        return false;
    while (r->count == r->places || r->total + given.bytes > most) {
        bool places = r->count == r->places;
        board out = take_out(r, 0);
        r->lost_places += places;
        r->lost_bytes += places ? 0 : out.bytes;
        unmap(out);
    }
    WEFT_ASSERT(r->count < r->places && r->total + given.bytes <= most);
    r->kept[r->count++] = given;
    r->total += given.bytes;
    return true;
}

void weft_i_cache_give(void *memory, size_t bytes)
{
    board given = {memory, mapped_bytes(bytes)};
    bool kept = false;
    if (!pthread_mutex_trylock(&lock)) {
        kept = keep(given);
        pthread_mutex_unlock(&lock);
    }
    if (!kept)
        unmap(given);
}

size_t weft_i_cache_clear(void)
{
    pthread_mutex_lock(&lock);
    size_t bytes = drop_all();
    limit = NOT_READ;
    pthread_mutex_unlock(&lock);
    return bytes;
}
