/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shelf; see shelf.h.  Blocks of one size form a queue: the one that has lain longest is taken
 * first, and none before so many others lie behind it that a handle which was released is refused
 * for a while (WEFT_I_SHELF_REST).  More than that would cost time: each block that is taken had
 * better be in the first cache still.
 *
 * A table of system calls that is not the system's own (a test that counts, or lets calls fail)
 * sees every block: then nothing is kept.
 */
#include "tensor/object/shelf.h"

#include "base/os/os.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { KEPT_MOST = 64 << 10 }; /* bytes of one size */

unsigned weft_i_shelf_rest(unsigned units)
{
    return units ? WEFT_I_SHELF_REST / (WEFT_I_SHELF_UNIT * units) : 0;
}

typedef struct block {
    uint64_t over; /* 0: where a handle has its kind, which says that it was released */
    struct block *next;
} block;

typedef enum shelf_state { UNUSED, IN_USE, CLOSED } shelf_state;

/* Blocks of one size, the next to be taken first. */
typedef struct queue {
    block *first;
    block **end; /* where the next is noted */
    int ready;   /* how many may be taken; below 0: that many too few lie there */
    int most;    /* of those; 0 before the queue begins, and of no size */
} queue;

typedef struct shelf {
    queue of[WEFT_I_SHELF_UNITS + 1]; /* by units */
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

/* The queues begin, each with too few to take one. */
static void begin(shelf *s)
{
    for (unsigned units = 1; units <= WEFT_I_SHELF_UNITS; units++) {
        queue *q = &s->of[units];
        int rest = (int)weft_i_shelf_rest(units);
        q->end = &q->first;
        q->ready = -rest;
        q->most = KEPT_MOST / (WEFT_I_SHELF_UNIT * (int)units) - rest;
    }
}

static size_t empty(shelf *s)
{
    size_t blocks = 0;
    if (s->state != IN_USE)
        return 0;
    for (unsigned units = 1; units <= WEFT_I_SHELF_UNITS; units++) {
        block *at = s->of[units].first;
        for (int n = s->of[units].ready + (int)weft_i_shelf_rest(units); n; n--, blocks++) {
            block *next = n > 1 ? at->next : NULL;
            WEFT_OS->free(at);
            at = next;
        }
    }
    begin(s);
    return blocks;
}

/* Runs when a thread ends; handles that die later do not come back. */
static void close_shelf(void *argument)
{
    shelf *s = argument;
    empty(s);
    memset(s->of, 0, sizeof s->of); /* no room any more */
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
        if (mine.state == IN_USE)
            begin(&mine);
    }
    return mine.state == IN_USE;
}

void *weft_i_shelf_take(size_t bytes, size_t cleared, unsigned *units)
{
    size_t size = (bytes + WEFT_I_SHELF_UNIT - 1) / WEFT_I_SHELF_UNIT;
    if (!WEFT_I_HAS_SHELF || size > WEFT_I_SHELF_UNITS || is_watched()) {
        *units = 0;
        return WEFT_OS->alloc(bytes);
    }
    *units = (unsigned)size;
    queue *q = &mine.of[size];
    if (q->ready <= 0)
        return WEFT_OS->alloc(size * WEFT_I_SHELF_UNIT);
    block *at = q->first;
    q->first = at->next; /* there is one: some stay */
    q->ready--;
    return memset(at, 0, cleared);
}

void weft_i_shelf_give(void *memory, unsigned units)
{
    queue *q = &mine.of[units];
    /* The first time nothing has begun, and there seems to be no room. */
    if (is_watched() || (q->ready >= q->most && !(open_shelf() && q->ready < q->most))) {
        WEFT_OS->free(memory);
        return;
    }
    block *at = memory;
    at->over = 0;
    *q->end = at;
    q->end = &at->next; /* undefined: the number says where the queue ends */
    q->ready++;
}

size_t weft_i_shelf_clear(void)
{
    return empty(&mine);
}
