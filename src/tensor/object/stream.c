/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, the current ones of a thread, events and replays.  Each is an object around what the
 * device's table made; on the CPU there is nothing inside, and nothing to wait for.
 */
#include "tensor/object/stream.h"

#include "base/os/place.h"
#include "base/report/status.h"

#include <pthread.h>

enum { PLACES = 16 }; /* devices that have a current stream in one thread */

typedef struct streams {
    int count;
    weft_stream *stream[PLACES]; /* held */
} streams;

/* Guarded by being the thread's own. */
static _Thread_local streams mine; /* the current ones */
static _Thread_local streams beside;
/* Those that were made for `mine`: borrowed by callers, who may come back to them. */
static _Thread_local streams born;

static void stay(weft_i_object *object)
{
    (void)object;
}

static weft_stream cpu_stream = {
    .head = {.kind = WEFT_I_STREAM, .references = 1, .destroy = stay},
    .device = WEFT_CPU,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor drops the streams of a thread that ends */

static void drop_all(streams *list)
{
    while (list->count)
        weft_i_object_drop(list->stream[--list->count]);
}

void weft_i_stream_forget(void)
{
    drop_all(&mine);
    drop_all(&beside);
    drop_all(&born);
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

/* ---- the object ---- */

/* Streams of each device that the program has made or wrapped.  Relaxed: whoever makes one and gives it
 * to another thread orders the two. */
static atomic_int named[PLACES];

static atomic_int *named_on(weft_device device)
{
    return &named[weft_i_device_index(device) % PLACES];
}

static weft_stream *name(weft_stream *stream)
{
    if (stream && stream->own) {
        stream->named = true;
        atomic_fetch_add_explicit(named_on(stream->device), 1, memory_order_relaxed);
    }
    return stream;
}

static void destroy(weft_i_object *object)
{
    weft_stream *stream = (weft_stream *)object;
    if (stream->named)
        atomic_fetch_sub_explicit(named_on(stream->device), 1, memory_order_relaxed);
    if (stream->own)
        stream->table->stream_free(stream->own);
    weft_i_object_free(object);
}

typedef weft_status maker(const weft_i_device *table, weft_device device, void *argument,
                          void **own);

static weft_status make_own(const weft_i_device *table, weft_device device, void *urgent,
                            void **own)
{
    return table->stream_new(device, *(bool *)urgent, own);
}

static weft_status wrap_own(const weft_i_device *table, weft_device device, void *native,
                            void **own)
{
    return table->stream_wrap(device, native, own);
}

/* In the current scope.  The object comes first: what the device makes then has an owner. */
static weft_stream *make(weft_device device, maker *how, void *argument)
{
    const weft_i_device *table = weft_i_device_of("stream", device);
    if (!table || (!table->stream_new && !table->host))
        return table ? weft_i_null(WEFT_ERR_UNSUPPORTED, "%s has no streams", table->name) : NULL;
    weft_stream *stream = weft_i_object_new(WEFT_I_STREAM, sizeof *stream, destroy);
    if (!stream)
        return NULL;
    stream->device = device;
    stream->table = table;
    if (table->stream_new && how(table, device, argument, &stream->own) < 0) {
        weft_release(stream);
        return NULL;
    }
    return stream;
}

weft_stream *weft_stream_new(weft_device device, bool urgent)
{
    return name(make(device, make_own, &urgent));
}

weft_stream *weft_stream_wrap(weft_device device, void *native)
{
    return name(make(device, wrap_own, native));
}

/* NULL comes from an earlier failure, whose error stays; without one it is the caller's mistake. */
static weft_status check(const char *what, const void *object, weft_i_kind kind)
{
    const weft_i_object *head = object;
    if (head && head->kind == kind)
        return WEFT_OK;
    if (!head && weft_last_status() < 0)
        return weft_last_status();
    return weft_i_fail(head ? WEFT_ERR_TYPE : WEFT_ERR_INVALID_ARG, "%s: the %s is %s", what,
                       kind == WEFT_I_STREAM  ? "stream"
                       : kind == WEFT_I_EVENT ? "event"
                                              : "replay",
                       head ? "something else" : "NULL");
}

void *weft_stream_native(const weft_stream *stream)
{
    if (check(__func__, stream, WEFT_I_STREAM) < 0 || !stream->own)
        return NULL;
    return stream->table->stream_raw(stream->own);
}

weft_device weft_stream_device(const weft_stream *stream)
{
    return check(__func__, stream, WEFT_I_STREAM) < 0 ? WEFT_CPU : stream->device;
}

/* ---- the current ones ---- */

/* In a list of the thread's, in the place of an older one. */
static weft_status put(streams *list, weft_stream *stream)
{
    int i = 0;
    while (i < list->count && list->stream[i]->device != stream->device)
        i++;
    if (i == PLACES)
        return weft_i_fail(WEFT_ERR_LIMIT, "a thread uses streams of %d devices at most", PLACES);
    pthread_once(&once, make_key);
    pthread_setspecific(key, &mine);
    weft_stream *old = i < list->count ? list->stream[i] : NULL;
    list->stream[i] = weft_i_object_hold(stream);
    list->count += !old;
    weft_i_object_drop(old);
    return WEFT_OK;
}

WEFT_I_COLD static weft_stream *add(streams *list, weft_device device, bool urgent)
{
    weft_stream *stream = make(device, make_own, &urgent);
    weft_status status = stream ? put(list, stream) : weft_last_status();
    if (status >= 0 && list == &mine)
        status = put(&born, stream); /* has room: its devices are among those of `mine` */
    weft_release(stream);            /* the lists hold it, or nobody */
    return status < 0 ? NULL : stream;
}

/* The list's stream of the device, made when it is first asked for. */
WEFT_I_HOT static weft_stream *find_or_make(streams *list, weft_device device, bool urgent)
{
    if (device == WEFT_CPU)
        return &cpu_stream;
    for (int i = 0; i < list->count; i++)
        if (list->stream[i]->device == device)
            return list->stream[i];
    return add(list, device, urgent);
}

WEFT_I_HOT weft_stream *weft_i_stream_current(weft_device device)
{
    return find_or_make(&mine, device, false);
}

WEFT_I_FAST bool weft_i_stream_is_current(const weft_stream *stream)
{
    int i = 0;
    while (i < mine.count && mine.stream[i] != stream)
        i++;
    return i < mine.count;
}

static int count_own(const streams *list, weft_device device)
{
    for (int i = 0; i < list->count; i++)
        if (list->stream[i]->device == device)
            return 1;
    return 0;
}

bool weft_i_stream_has_others(weft_device device)
{
    return atomic_load_explicit(named_on(device), memory_order_relaxed) + count_own(&born, device) >
           1;
}

weft_stream *weft_i_stream_beside(weft_device device)
{
    return find_or_make(&beside, device, true);
}

weft_stream *weft_stream_current(weft_device device)
{
    return weft_i_stream_current(device);
}

weft_status weft_stream_use(weft_stream *stream)
{
    WEFT_TRY(check(__func__, stream, WEFT_I_STREAM));
    return stream->own ? put(&mine, stream) : WEFT_OK;
}

/* ---- waiting and order ---- */

weft_status weft_stream_sync(weft_stream *stream, int64_t timeout_ms)
{
    WEFT_TRY(check(__func__, stream, WEFT_I_STREAM));
    return stream->own ? stream->table->stream_sync(stream->own, timeout_ms) : WEFT_OK;
}

weft_status weft_stream_test(weft_stream *stream)
{
    WEFT_TRY(check(__func__, stream, WEFT_I_STREAM));
    return stream->own ? stream->table->stream_query(stream->own) : WEFT_OK;
}

/* Streams of different kinds of devices cannot see each other: then the host would have to wait. */
static weft_status check_kinds(const char *what, const weft_stream *stream, weft_device other)
{
    char a[16], b[16];
    if (weft_i_device_kind(stream->device) == weft_i_device_kind(other))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: a stream of %s cannot be ordered behind %s", what,
                       weft_device_name(stream->device, a), weft_device_name(other, b));
}

weft_status weft_i_stream_after(weft_stream *stream, weft_stream *other, bool join)
{
    if (stream == other || !stream->own || !other->own)
        return WEFT_OK;
    return stream->table->stream_after(stream->own, other->own, join);
}

weft_status weft_stream_after(weft_stream *stream, weft_stream *other)
{
    WEFT_TRY(check(__func__, stream, WEFT_I_STREAM));
    WEFT_TRY(check(__func__, other, WEFT_I_STREAM));
    if (!other->own) /* what the CPU was given is done */
        return WEFT_OK;
    WEFT_TRY(check_kinds(__func__, stream, other->device));
    return weft_i_stream_after(stream, other, true);
}

/* ---- events ---- */

struct weft_event {
    weft_i_object head;
    weft_device device;
    const weft_i_device *table;
    void *own; /* NULL on the CPU */
};

static void destroy_event(weft_i_object *object)
{
    weft_event *event = (weft_event *)object;
    if (event->own)
        event->table->event_free(event->own);
    weft_i_object_free(object);
}

weft_event *weft_event_record(weft_stream *stream)
{
    if (check(__func__, stream, WEFT_I_STREAM) < 0)
        return NULL;
    weft_event *event = weft_i_object_new(WEFT_I_EVENT, sizeof *event, destroy_event);
    if (!event)
        return NULL;
    event->device = stream->device;
    event->table = stream->table;
    if (!stream->own || stream->table->event_record(&event->own, stream->own) >= 0)
        return event;
    weft_release(event);
    return NULL;
}

weft_status weft_stream_after_event(weft_stream *stream, const weft_event *event)
{
    WEFT_TRY(check(__func__, stream, WEFT_I_STREAM));
    WEFT_TRY(check(__func__, event, WEFT_I_EVENT));
    if (!event->own)
        return WEFT_OK;
    WEFT_TRY(check_kinds(__func__, stream, event->device));
    return stream->table->event_wait(stream->own, event->own);
}

weft_status weft_event_sync(const weft_event *event, int64_t timeout_ms)
{
    WEFT_TRY(check(__func__, event, WEFT_I_EVENT));
    return event->own ? event->table->event_sync(event->own, timeout_ms) : WEFT_OK;
}

weft_status weft_event_test(const weft_event *event)
{
    WEFT_TRY(check(__func__, event, WEFT_I_EVENT));
    return event->own ? event->table->event_query(event->own) : WEFT_OK;
}

/* ---- capture ---- */

struct weft_replay {
    weft_i_object head;
    weft_stream *stream; /* that was captured, held */
    void *own;
};

static void destroy_replay(weft_i_object *object)
{
    weft_replay *replay = (weft_replay *)object;
    if (replay->own)
        replay->stream->table->replay_free(replay->own);
    weft_i_object_drop(replay->stream);
    weft_i_object_free(object);
}

weft_status weft_capture_begin(weft_stream *stream)
{
    char name[16];
    WEFT_TRY(check(__func__, stream, WEFT_I_STREAM));
    if (!stream->own)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: work on %s runs at once", __func__,
                           weft_device_name(stream->device, name));
    WEFT_TRY(stream->table->capture_begin(stream->own));
    stream->captures = true;
    return WEFT_OK;
}

weft_replay *weft_capture_end(weft_stream *stream)
{
    if (check(__func__, stream, WEFT_I_STREAM) < 0)
        return NULL;
    if (!stream->own)
        return weft_i_null(WEFT_ERR_STATE, "%s: nothing is being captured", __func__);
    stream->captures = false;
    weft_replay *replay = weft_i_object_new(WEFT_I_REPLAY, sizeof *replay, destroy_replay);
    if (!replay) { /* the stream must not stay as it is */
        stream->table->capture_end(stream->own, NULL);
        return NULL;
    }
    replay->stream = weft_i_object_hold(stream);
    if (stream->table->capture_end(stream->own, &replay->own) >= 0)
        return replay;
    weft_release(replay);
    return NULL;
}

/* What it wrote counts as used on the captured stream, which is therefore ordered on both sides. */
weft_status weft_replay_run(weft_replay *replay)
{
    WEFT_TRY(check(__func__, replay, WEFT_I_REPLAY));
    weft_stream *stream = weft_i_stream_current(replay->stream->device);
    if (!stream)
        return weft_last_status();
    WEFT_TRY(weft_i_stream_after(stream, replay->stream, false));
    WEFT_TRY(stream->table->replay_run(replay->own, stream->own));
    return weft_i_stream_after(replay->stream, stream, false);
}
