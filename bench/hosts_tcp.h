/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor of two ranks on two hosts: each operation as a loop over one TCP socket, which sends and
 * receives what there is room for, and folds what has come.  It checks nothing, promises nothing, and
 * sums f32 only.
 */
#ifndef WEFT_BENCH_HOSTS_TCP_H
#define WEFT_BENCH_HOSTS_TCP_H

#include "meter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

typedef struct tcp_floor {
    int fd, rank;
    plan_case what;
    char *in, *out, *room;
} tcp_floor;

enum { TCP_FLOOR_PORT = 29600 };

/* Rank 0 listens, rank 1 dials; 0, or -1. */
static inline int tcp_floor_open(tcp_floor *f, int rank)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(TCP_FLOOR_PORT)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, "10.77.0.1", &at.sin_addr);
    f->rank = rank;
    f->fd = fd;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (rank == 0) {
        if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1))
            return -1;
        f->fd = accept(fd, NULL, NULL);
        close(fd);
    } else {
        for (int tries = 0; connect(fd, (struct sockaddr *)&at, sizeof at); tries++) {
            if (tries == 500)
                return -1;
            usleep(20000);
        }
    }
    return f->fd < 0 || setsockopt(f->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) ? -1 : 0;
}

static inline int tcp_floor_again(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Sends `out` and receives `in` at the same time; adds what has come to `base`, into `sum`. */
static inline int tcp_floor_swap(tcp_floor *f, const char *out, size_t out_bytes, char *in,
                                 size_t in_bytes, const float *base, float *sum)
{
    size_t sent = 0, got = 0, folded = 0, before = 1;
    while (sent < out_bytes || got < in_bytes) {
        if (before == sent + got) /* nothing moved: it may be another's core too */
            sched_yield();
        before = sent + got;
        if (sent < out_bytes) {
            ssize_t n = send(f->fd, out + sent, out_bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n <= 0 && !tcp_floor_again(n))
                return -1;
            sent += n > 0 ? (size_t)n : 0;
        }
        if (got < in_bytes) {
            ssize_t n = recv(f->fd, in + got, in_bytes - got, MSG_DONTWAIT);
            if (n <= 0 && !tcp_floor_again(n))
                return -1;
            got += n > 0 ? (size_t)n : 0;
        }
        for (; sum && folded < got / sizeof *sum; folded++)
            sum[folded] = base[folded] + ((const float *)(const void *)in)[folded];
    }
    return 0;
}

static inline int tcp_floor_prepare(void *self, const plan_case *what, void **in, void **out)
{
    tcp_floor *f = self;
    f->what = *what;
    *in = f->in = malloc(what->in_bytes + 1);
    *out = f->out = what->in_place ? f->in : malloc(what->out_bytes + 1);
    f->room = malloc(what->bytes + 1);
    return what->dtype != WEFT_F32 || what->ranks != 2 || !f->in || !f->out || !f->room;
}

static inline void tcp_floor_finish(void *self)
{
    tcp_floor *f = self;
    if (f->out != f->in)
        free(f->out);
    free(f->in);
    free(f->room);
}

static inline int tcp_floor_call(void *self, void *in, void *out, int root)
{
    tcp_floor *f = self;
    size_t part = f->what.part, all = f->what.bytes, mine = (size_t)f->rank * part;
    size_t theirs = part - mine;
    switch (f->what.op) {
    case PLAN_ALL_REDUCE:
        return tcp_floor_swap(f, in, all, f->room, all, in, out);
    case PLAN_REDUCE_SCATTER:
        return tcp_floor_swap(f, (char *)in + theirs, part, f->room, part,
                              (const float *)(const void *)((char *)in + mine), out);
    case PLAN_ALL_GATHER:
        memcpy((char *)out + mine, in, part);
        return tcp_floor_swap(f, in, part, (char *)out + theirs, part, NULL, NULL);
    case PLAN_ALL_TO_ALL:
        memcpy((char *)out + mine, (char *)in + mine, part);
        return tcp_floor_swap(f, (char *)in + theirs, part, (char *)out + theirs, part, NULL, NULL);
    case PLAN_BROADCAST:
        return root == f->rank ? tcp_floor_swap(f, in, all, NULL, 0, NULL, NULL)
                               : tcp_floor_swap(f, NULL, 0, in, all, NULL, NULL);
    default: {
        char byte;
        return tcp_floor_swap(f, "x", 1, &byte, 1, NULL, NULL);
    }
    }
}

#endif
