/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for descriptors: poll and epoll, level-triggered. */
#include "simulator/kernel.h"

#include <errno.h>
#include <stdlib.h>

enum { INTERRUPTS = 60 }; /* one epoll_wait in so many is interrupted by a signal */

unsigned sim_events(const object *one)
{
    switch (one->kind) {
    case EVENT:
        return POLLOUT | (one->count ? POLLIN : 0);
    case PIDFD:
        return sim_kernel.processes[one->of_process].ended ? POLLIN : 0;
    case NOTHING:
    case CONSOLE:
        return POLLIN | POLLOUT;
    case SOCKET:
    case PIPE_READ:
    case PIPE_WRITE:
        return sim_net_events(one);
    default:
        sim_unsupported("polling this kind of descriptor");
    }
}

static int64_t deadline_after(int timeout_ms)
{
    return timeout_ms < 0 ? WEFT_I_NEVER : weft_i_sim_now() + (int64_t)timeout_ms * 1000000;
}

/* ---- poll ---- */

typedef struct polling {
    struct pollfd *fds;
    object **objects; /* looked up before it slept: the descriptors are those of this moment */
    nfds_t count;
    const process *process; /* whose signals a signalfd shows */
} polling;

static unsigned events_for(const polling *all, nfds_t i)
{
    const object *one = all->objects[i];
    if (!one)
        return POLLNVAL;
    unsigned events =
        one->kind == SIGNALS ? (all->process->signals & one->mask ? POLLIN : 0) : sim_events(one);
    return events & ((unsigned)all->fds[i].events | POLLERR | POLLHUP);
}

static bool any_polled(void *arg)
{
    const polling *all = arg;
    for (nfds_t i = 0; i < all->count; i++)
        if (all->fds[i].fd >= 0 && events_for(all, i))
            return true;
    return false;
}

static int poll_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    sim_call();
    object *objects[128]; /* on the stack, for a caller that is killed while it waits */
    if (count > 128)
        sim_unsupported("polling so many descriptors");
    for (nfds_t i = 0; i < count; i++)
        objects[i] = fds[i].fd < 0 ? NULL : sim_object_of(fds[i].fd);
    polling all = {.fds = fds, .objects = objects, .count = count, .process = sim_here()};
    weft_i_sim_wait(any_polled, &all, deadline_after(timeout_ms));
    int ready = 0;
    for (nfds_t i = 0; i < count; i++) {
        fds[i].revents = fds[i].fd < 0 ? 0 : (short)events_for(&all, i);
        ready += fds[i].revents != 0;
    }
    return ready;
}

/* ---- epoll ---- */

static int poll_epoll_create(void)
{
    sim_call();
    object *made = sim_object_new(EPOLL);
    sim_list_add(sim_kernel.epolls, made);
    return sim_fd_new(made);
}

static int poll_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    sim_call();
    object *set = sim_object_of_kind(epoll, EPOLL), *of = set ? sim_object_of(fd) : NULL;
    if (!of)
        return -1;
    watch **at = &set->watches;
    while (*at && (*at)->of != of)
        at = &(*at)->next;
    if (operation == EPOLL_CTL_ADD ? *at != NULL : *at == NULL) {
        errno = *at ? EEXIST : ENOENT;
        return -1;
    }
    if (operation == EPOLL_CTL_DEL) {
        watch *gone = *at;
        *at = gone->next;
        free(gone);
        return 0;
    }
    if (operation == EPOLL_CTL_ADD && !(*at = calloc(1, sizeof **at)))
        sim_unsupported("running out of memory");
    (*at)->of = of;
    (*at)->fd = fd;
    (*at)->event = *event;
    return 0;
}

void sim_poll_closed(object *gone)
{
    for (int i = 0; i < NAMED; i++)
        for (watch **at = sim_kernel.epolls[i] ? &sim_kernel.epolls[i]->watches : NULL;
             at && *at;) {
            watch *one = *at;
            if (one->of == gone) {
                *at = one->next;
                free(one);
            } else {
                at = &one->next;
            }
        }
}

static unsigned events_of(const watch *one)
{
    return sim_events(one->of) & (one->event.events | POLLERR | POLLHUP);
}

static bool any_watched(void *arg)
{
    for (const watch *one = ((const object *)arg)->watches; one; one = one->next)
        if (events_of(one))
            return true;
    return false;
}

static int poll_epoll_wait(int epoll, struct epoll_event *events, int count, int timeout_ms)
{
    sim_call();
    object *set = sim_object_of_kind(epoll, EPOLL);
    if (!set)
        return -1;
    if (!weft_i_sim_below(INTERRUPTS))
        return 0;
    weft_i_sim_wait(any_watched, set, deadline_after(timeout_ms));
    int ready = 0, skip = (int)weft_i_sim_below(2); /* not always in the same order */
    for (int round = 0; round < 2; round++) {
        int place = 0;
        for (const watch *one = set->watches; one && ready < count; one = one->next, place++)
            if (place % 2 == (round ^ skip) && events_of(one)) {
                events[ready].events = events_of(one);
                events[ready++].data = one->event.data;
            }
    }
    return ready;
}

void sim_poll_fill(weft_i_os *table)
{
    table->poll = poll_poll;
    table->epoll_create = poll_epoll_create;
    table->epoll_ctl = poll_epoll_ctl;
    table->epoll_wait = poll_epoll_wait;
}
