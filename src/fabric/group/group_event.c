/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that tell of lost members; see group_event.h. */
#include "fabric/group/group_event.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/group.h"

#include <errno.h>

enum { LOOK_NS = 2000 * 1000 };

struct weft_i_event {
    weft_i_event *next;
    const weft_group *group; /* takes its event along when it goes */
    int fd;
    bool ended;           /* told */
    unsigned char told[]; /* one byte for each member */
};

/* Guards every world's sentinel, its events and the groups' pointers to them.  A group may go in
 * the helper thread of its queue while the world ends in another. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct weft_i_sentinel {
    weft_i_event *events;
    pthread_t thread;
    _Atomic uint32_t stop; /* 1: end.  Release, acquire by the thread */
};

/* How many things have happened that were not told before. */
static uint64_t count_news(weft_i_event *event)
{
    const weft_group *group = event->group;
    uint64_t news = 0;
    for (int rank = 0; rank < group->size; rank++)
        if (!event->told[rank] && rank != group->rank &&
            weft_i_group_member_fate(group, rank) < 0) {
            event->told[rank] = 1;
            news++;
        }
    if (!event->ended && weft_i_group_has_ended(group)) {
        event->ended = true;
        news++;
    }
    return news;
}

static void look(weft_i_sentinel *sentinel)
{
    pthread_mutex_lock(&lock);
    for (weft_i_event *event = sentinel->events; event; event = event->next) {
        uint64_t news = count_news(event);
        ssize_t written = news ? WEFT_OS->write(event->fd, &news, sizeof news) : 0;
        (void)written; /* an eventfd that cannot take more is readable already */
    }
    pthread_mutex_unlock(&lock);
}

static void *watch(void *arg)
{
    weft_i_sentinel *sentinel = arg;
    while (!atomic_load_explicit(&sentinel->stop, memory_order_acquire)) {
        look(sentinel);
        WEFT_OS->futex_wait(&sentinel->stop, 0, LOOK_NS);
    }
    return NULL;
}

static weft_status start(weft_i_sentinel **out)
{
    weft_i_sentinel *sentinel = WEFT_OS->alloc(sizeof *sentinel);
    if (!sentinel)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_group_event_fd: no memory for its thread");
    int error = WEFT_OS->thread_create(&sentinel->thread, watch, sentinel);
    if (error) {
        WEFT_OS->free(sentinel);
        return weft_i_fail_errno(error, "weft_group_event_fd: cannot start its thread");
    }
    *out = sentinel;
    return WEFT_OK;
}

static void free_event(weft_i_event *event)
{
    WEFT_OS->close(event->fd);
    WEFT_OS->free(event);
}

void weft_i_sentinel_stop(weft_i_world *world)
{
    weft_i_sentinel *sentinel = world->sentinel; /* set by this thread */
    if (!sentinel)
        return;
    /* Pairs with the acquire in `watch`. */
    atomic_store_explicit(&sentinel->stop, 1, memory_order_release);
    WEFT_OS->futex_wake(&sentinel->stop, 1);
    WEFT_OS->thread_join(sentinel->thread);
    pthread_mutex_lock(&lock);
    while (sentinel->events) {
        weft_i_event *event = sentinel->events;
        sentinel->events = event->next;
        WEFT_ASSERT(event->group->rest.event == event);
        ((weft_group *)(uintptr_t)event->group)->rest.event = NULL;
        free_event(event);
    }
    world->sentinel = NULL;
    pthread_mutex_unlock(&lock);
    WEFT_OS->free(sentinel);
}

void weft_i_event_close(weft_group *group)
{
    if (group->world->generation != weft_i_os_generation())
        return; /* a forked child: the thread, which is not here, may have held the lock */
    pthread_mutex_lock(&lock);
    weft_i_event *event = group->rest.event;
    weft_i_event **at = event ? &group->world->sentinel->events : NULL;
    while (event && *at != event)
        at = &(*at)->next;
    if (event)
        *at = event->next;
    group->rest.event = NULL;
    pthread_mutex_unlock(&lock);
    if (event)
        free_event(event);
}

static weft_status open_event(weft_group *group, weft_i_event **out)
{
    weft_i_event *event = WEFT_OS->alloc(sizeof *event + (size_t)group->size);
    if (!event)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_group_event_fd: no memory for %d ranks",
                           group->size);
    event->group = group;
    event->fd = WEFT_OS->eventfd(0);
    if (event->fd < 0) {
        int error = errno;
        WEFT_OS->free(event);
        return weft_i_fail_errno(error, "weft_group_event_fd: cannot make an eventfd");
    }
    *out = event;
    return WEFT_OK;
}

weft_status weft_group_event_fd(weft_group *group, int *out_fd)
{
    WEFT_TRY(weft_i_group_usable(group));
    if (!out_fd)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_group_event_fd: no place for the descriptor");
    weft_i_world *world = group->world;
    if (!group->rest.event) {
        weft_i_event *event = NULL;
        if (!world->sentinel)
            WEFT_TRY(start(&world->sentinel));
        WEFT_TRY(open_event(group, &event));
        pthread_mutex_lock(&lock);
        event->next = world->sentinel->events;
        world->sentinel->events = group->rest.event = event;
        pthread_mutex_unlock(&lock);
        look(world->sentinel); /* what has happened already is told at once */
    }
    *out_fd = group->rest.event->fd;
    return WEFT_OK;
}
