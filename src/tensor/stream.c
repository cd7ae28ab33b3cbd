/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: making them, and the current ones of a thread. */
#include "tensor/stream.h"

#include "base/os.h"
#include "base/status.h"

#include <pthread.h>

enum { PLACES = 16 }; /* devices that have a current stream in one thread */

/* Guarded by being the thread's own. */
static _Thread_local struct {
    weft_stream *stream[PLACES]; /* held */
    int count;
    unsigned generation; /* of the process that made them */
} mine;

static weft_stream cpu_stream = {
    .head = {.kind = WEFT_I_STREAM, .references = 1},
    .device = WEFT_CPU,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor drops the streams of a thread that ends */

void weft_i_stream_forget(void)
{
    while (mine.count)
        weft_i_object_drop(mine.stream[--mine.count]);
}

static void at_thread_end(void *unused)
{
    (void)unused;
    weft_i_stream_forget();
}

static void make_key(void)
{
    pthread_key_create(&key, at_thread_end);
}

static void destroy(weft_i_object *object)
{
    weft_stream *stream = (weft_stream *)object;
    if (stream->own)
        stream->table->stream_free(stream->own);
    weft_i_object_free(object);
}

/* Of nobody's scope; takes over `own` when it succeeds. */
static weft_stream *make(weft_device device, const weft_i_device *table, void *own)
{
    weft_stream *stream = weft_i_object_new_unscoped(WEFT_I_STREAM, sizeof *stream, destroy);
    if (!stream)
        return NULL;
    stream->device = device;
    stream->table = table;
    stream->own = own;
    return stream;
}

/* The thread's first on the device. */
static weft_stream *make_first(weft_device device)
{
    const weft_i_device *table = weft_i_device_of("stream", device);
    void *own = NULL;
    if (!table)
        return NULL;
    if (!table->stream_new || mine.count == PLACES)
        return weft_i_null(WEFT_ERR_UNSUPPORTED, "a device of kind %s has no streams", table->name);
    if (table->stream_new(device, false, &own) < 0)
        return NULL;
    weft_stream *stream = make(device, table, own);
    if (!stream) {
        table->stream_free(own);
        return NULL;
    }
    pthread_once(&once, make_key);
    pthread_setspecific(key, &mine);
    mine.generation = weft_i_os_generation();
    return mine.stream[mine.count++] = stream;
}

weft_stream *weft_i_stream_current(weft_device device)
{
    if (device == WEFT_CPU)
        return &cpu_stream;
    for (int i = 0; i < mine.count; i++)
        if (mine.stream[i]->device == device)
            return mine.stream[i];
    return make_first(device);
}

weft_status weft_i_stream_after(weft_stream *stream, weft_stream *other, bool join)
{
    if (stream == other || !stream->own || !other->own)
        return WEFT_OK;
    return stream->table->stream_after(stream->own, other->own, join);
}
