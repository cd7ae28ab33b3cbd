/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shelf; see shelf.h.  Blocks of one size form a list.  A table of system calls that is not the
 * system's own (a test that counts, or lets calls fail) sees every block: then nothing is kept.
 */
#include "tensor/shelf.h"

#include "base/os.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { KEPT_MOST = 64 << 10 }; /* bytes of one size */

/* The same in blocks, by their units; none of those that are none for the shelf. */
static unsigned most_of(unsigned units)
{
    static const unsigned short most[WEFT_I_SHELF_UNITS + 1] = {
#define OF(units_) KEPT_MOST / (WEFT_I_SHELF_UNIT * (units_))
        0,     OF(1),  OF(2),  OF(3),  OF(4),  OF(5),  OF(6),  OF(7), OF(8),
        OF(9), OF(10), OF(11), OF(12), OF(13), OF(14), OF(15), OF(16)};
#undef OF
    return most[units];
}

typedef struct block {
    uint64_t over; /* 0: where a handle has its kind, which says that it was released */
    struct block *next;
} block;

typedef enum shelf_state { UNUSED, IN_USE, CLOSED } shelf_state;

typedef struct shelf {
    block *first[WEFT_I_SHELF_UNITS + 1];
    unsigned count[WEFT_I_SHELF_UNITS + 1];
    shelf_state state; /* CLOSED: the thread is ending, nobody would empty it again */
} shelf;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key; /* written once, before `key_once` lets anybody pass */
static _Thread_local shelf mine;

static bool is_watched(void)
{
    return WEFT_OS != &weft_i_os_linux;
}

static size_t empty(shelf *s)
{
    size_t blocks = 0;
    for (int i = 0; i <= WEFT_I_SHELF_UNITS; i++) {
        for (block *next, *at = s->first[i]; at; at = next, blocks++) {
            next = at->next;
            WEFT_OS->free(at);
        }
        s->first[i] = NULL;
        s->count[i] = 0;
    }
    return blocks;
}

/* Runs when a thread ends; handles that die later do not come back. */
static void close_shelf(void *argument)
{
    shelf *s = argument;
    empty(s);
    s->state = CLOSED;
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, close_shelf) == 0;
}

static bool open_shelf(void)
{
    if (mine.state == UNUSED) {
        pthread_once(&key_once, make_key);
        mine.state = has_key && pthread_setspecific(key, &mine) == 0 ? IN_USE : CLOSED;
    }
    return mine.state == IN_USE;
}

void *weft_i_shelf_take(size_t bytes, size_t cleared, unsigned *units)
{
    size_t size = (bytes + WEFT_I_SHELF_UNIT - 1) / WEFT_I_SHELF_UNIT;
    *units = 0;
    if (!WEFT_I_HAS_SHELF || size > WEFT_I_SHELF_UNITS || is_watched())
        return WEFT_OS->alloc(bytes);
    *units = (unsigned)size;
    shelf *s = &mine;
    block *at = s->first[size];
    if (!at)
        return WEFT_OS->alloc(size * WEFT_I_SHELF_UNIT);
    s->first[size] = at->next;
    s->count[size]--;
    return memset(at, 0, cleared);
}

void weft_i_shelf_give(void *memory, unsigned units)
{
    shelf *s = &mine;
    bool full = s->count[units] >= most_of(units);
    if (full || is_watched() || (s->state != IN_USE && !open_shelf())) {
        WEFT_OS->free(memory);
        return;
    }
    block *at = memory;
    at->over = 0;
    at->next = s->first[units];
    s->first[units] = at;
    s->count[units]++;
}

size_t weft_i_shelf_clear(void)
{
    return empty(&mine);
}
