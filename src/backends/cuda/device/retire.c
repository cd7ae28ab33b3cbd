/* SPDX-License-Identifier: Apache-2.0 */
/* What waits for streams before it goes; see retire.h. */
#include "retire.h"

#include "base/os/os.h"
#include "stream.h"
#include "symm/sentry.h"

/* Something to end, with a mark on every stream that might use it. */
typedef struct retired {
    void (*end)(void *what);
    void *what;
    struct retired *next;
    size_t count;
    struct {
        weft_i_cuda_device *device;
        weft_i_cuda_mark mark;
    } marks[];
} retired;

/* Guards the list, and is held while something ends: a device that closes waits for that. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static retired *first, **end_of_list = &first;

static bool is_done(const retired *old)
{
    for (size_t i = 0; i < old->count; i++)
        if (weft_i_cuda_use(old->marks[i].device) == WEFT_OK &&
            weft_i_cuda_reached(&old->marks[i].mark) == WEFT_IN_PROGRESS)
            return false; /* an error is an end too: nothing runs after one */
    return true;
}

static void finish(retired *old)
{
    for (size_t i = 0; i < old->count; i++)
        weft_i_cuda_mark_release(&old->marks[i].mark);
    old->end(old->what);
    WEFT_OS->free(old);
}

/* Those that are done, or all, in the order in which they came: memory that something else is bound
 * to goes after it.  Is nothing left? */
static bool finish_some(bool all)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    pthread_mutex_lock(&lock);
    while (first && (all || is_done(first))) {
        retired *old = first;
        first = old->next;
        end_of_list = first ? end_of_list : &first;
        finish(old);
    }
    bool empty = !first;
    pthread_mutex_unlock(&lock);
    weft_i_errors_restore(&before);
    return empty;
}

static bool reap(void)
{
    return finish_some(false);
}

void weft_i_cuda_reap(void)
{
    if (!reap())
        weft_i_sentry_run(reap);
}

/* A stream that is being captured has run nothing, and a mark there would become part of the
 * capture. */
static void mark_streams(weft_i_cuda_device *device, retired *into, size_t room)
{
    pthread_mutex_lock(&device->lock);
    for (weft_i_cuda_stream *s = device->streams; s && into->count < room; s = s->next)
        if (!weft_i_cuda_is_captured(s) &&
            weft_i_cuda_mark_set(&into->marks[into->count].mark, s) == WEFT_OK)
            into->marks[into->count++].device = device;
    pthread_mutex_unlock(&device->lock);
}

static size_t count_streams(void)
{
    size_t count = 0;
    for (int i = 0; i < WEFT_I_CUDA_DEVICES; i++) {
        weft_i_cuda_device *device = weft_i_cuda_opened(i);
        if (!device)
            continue;
        pthread_mutex_lock(&device->lock);
        for (const weft_i_cuda_stream *s = device->streams; s; s = s->next)
            count++;
        pthread_mutex_unlock(&device->lock);
    }
    return count;
}

void weft_i_cuda_retire(void (*end)(void *what), void *what)
{
    weft_i_errors before;
    if (weft_i_cuda_check_process() < 0)
        return; /* a child of the process that has it */
    weft_i_errors_save(&before);
    /* More than there are: those that others make meanwhile stand first in the list, and none that
     * is older may be left out. */
    size_t room = 2 * count_streams() + 256;
    retired *old = WEFT_OS->alloc(sizeof *old + room * sizeof *old->marks);
    if (old) {
        *old = (retired){.end = end, .what = what};
        for (int i = 0; i < WEFT_I_CUDA_DEVICES; i++)
            if (weft_i_cuda_opened(i))
                mark_streams(weft_i_cuda_opened(i), old, room);
        pthread_mutex_lock(&lock);
        *end_of_list = old;
        end_of_list = &old->next;
        pthread_mutex_unlock(&lock);
        weft_i_cuda_reap();
    } /* without memory for the note the memory stays: better than under a running kernel's feet */
    weft_i_errors_restore(&before);
}

static void finish_at_close(weft_i_cuda_device *device)
{
    (void)device;
    finish_some(true); /* no stream is left */
}

__attribute__((constructor)) static void register_end(void)
{
    weft_i_cuda_at_close(finish_at_close);
}
