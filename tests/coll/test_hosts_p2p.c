/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/p2p/p2p_remote.c */
/*
 * Sends and receives between hosts, and beside them inside one: every size, tags, any source, batches,
 * posted ones, messages of the wrong size, limits and deaths.
 */
#include "fabric/crew.h"
#include "fabric/hosts.h"

#include "base/report/status.h"
#include "fabric/group/hosts.h"

#include <signal.h>

enum { LIMIT_MS = 60000 };

typedef struct scene {
    int port, size, per_host;
} scene;

#define OK(call_) CREW((call_) == WEFT_OK, "%s", weft_last_error())

static weft_group *join(int rank, const scene *s)
{
    hosts_use_ucx();
    setenv("WEFT_DEBUG", "NONE", 1);
    weft_group *world = hosts_join(rank, s->size, s->per_host, s->port);
    if (world)
        weft_group_set_timeout(world, LIMIT_MS);
    return world;
}

#define RUN(what_, size_, per_host_, dying_, body_)                      \
    do {                                                                 \
        char reason_[192];                                               \
        scene scene_ = {free_port(), size_, per_host_};                  \
        hosts_use_ucx();                                                 \
        if (!scene_.port)                                                \
            SKIP("no port is free here");                                \
        if (weft_i_remote_engine()->probe(reason_, sizeof reason_) <= 0) \
            SKIP("%s", reason_);                                         \
        crew_run(what_, size_, body_, &scene_, dying_);                  \
    } while (0)

static int leave(int rank, weft_group *world)
{
    weft_clear_error();
    CREW(!weft_finish(world), "%s", weft_last_error());
    crew->rank[rank].done = 1;
    return 0;
}

/* Element i of what `from` sends to `to` at a step. */
static int value_of(int from, int to, int step, int i)
{
    return (from * 31 + to * 17 + step * 7 + i) % 251;
}

static weft_tensor *filled(int from, int to, int step, int count)
{
    weft_tensor *x = weft_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count));
    int *at = weft_tensor_data(x);
    for (int i = 0; i < count; i++)
        at[i] = value_of(from, to, step, i);
    return x;
}

static bool is_filled(weft_tensor *x, int from, int to, int step, int count)
{
    const int *at = weft_tensor_data(x);
    for (int i = 0; i < count; i++)
        if (at[i] != value_of(from, to, step, i))
            return false;
    return true;
}

/* ---- every size, around the ring and with each other ---- */

static int sizes(int rank, void *arg)
{
    static const int counts[] = {0, 1, 3, 28, 29, 1000, 8192, 8193, 40000, 600000};
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    int next = (rank + 1) % s->size, before = (rank + s->size - 1) % s->size;
    for (int step = 0; step < (int)(sizeof counts / sizeof *counts); step++) {
        OK(weft_scope_open());
        weft_tensor *out = filled(rank, next, step, counts[step]);
        weft_tensor *in = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(counts[step]));
        OK(weft_send_recv(in, before, out, next, world));
        CREW(is_filled(in, before, rank, step, counts[step]), "step %d", step);
        OK(weft_scope_close());
    }
    for (int step = 0; step < 200; step++) {
        OK(weft_scope_open());
        int peer = (rank + s->size / 2) % s->size, count = 1 + step % 40;
        weft_tensor *x = filled(rank, peer, step, count);
        weft_tensor *y = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(count));
        if (rank < peer) {
            OK(weft_send(x, peer, world));
            OK(weft_recv(y, peer, world));
        } else {
            OK(weft_recv(y, peer, world));
            OK(weft_send(x, peer, world));
        }
        CREW(is_filled(y, peer, rank, step, count), "step %d", step);
        OK(weft_scope_close());
    }
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    return leave(rank, world);
}

TEST(test_hosts_p2p_sizes)
{
    RUN("2 hosts of 1", 2, 1, -1, sizes);
    RUN("2 hosts of 2", 4, 2, -1, sizes);
}

/* ---- tags, any source, batches, posted ---- */

static int tags(int rank, void *arg)
{
    enum { MANY = 40, LARGE = 30000 };
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    if (rank != 0) {
        weft_tensor *first = filled(rank, 0, 1, 5), *second = filled(rank, 0, 2, LARGE);
        OK(weft_send_tag(first, 0, 1, world));
        weft_work *late = weft_send_tag_start(second, 0, 2, world);
        CREW(late, "%s", weft_last_error());
        for (int i = 0; i < MANY; i++)
            OK(weft_send_tag(filled(rank, 0, i, 9), 0, 3, world));
        OK(weft_work_wait(late, WEFT_DEFAULT));
    }
    for (int other = s->size - 1; rank == 0 && other > 0; other--) {
        weft_tensor *in = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(LARGE));
        OK(weft_recv_tag(in, other, 2, world)); /* what came before it is kept */
        CREW(is_filled(in, other, 0, 2, LARGE), "of %d", other);
    }
    int seen[CREW_MAX] = {0};
    for (int i = 0; rank == 0 && i < s->size - 1; i++) {
        int source = -1;
        weft_tensor *in = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(5));
        OK(weft_recv_any(in, 1, world, &source));
        CREW(source > 0 && source < s->size && !seen[source]++, "source %d", source);
        CREW(is_filled(in, source, 0, 1, 5), "of %d", source);
    }
    for (int other = 1; rank == 0 && other < s->size; other++)
        for (int i = 0; i < MANY; i++) {
            weft_tensor *in = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(9));
            OK(weft_recv_tag(in, other, 3, world));
            CREW(is_filled(in, other, 0, i, 9), "%d of %d", i, other);
        }
    /* All with all, at once. */
    weft_p2p_op ops[2 * CREW_MAX];
    weft_tensor *in[CREW_MAX] = {NULL};
    int count = 0;
    for (int other = 0; other < s->size; other++) {
        if (other == rank)
            continue;
        in[other] = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(LARGE));
        ops[count++] = (weft_p2p_op){WEFT_P2P_SEND, filled(rank, other, 4, LARGE), other, 0, world};
        ops[count++] = (weft_p2p_op){WEFT_P2P_RECV, in[other], other, 0, world};
    }
    weft_work *all = weft_batch_start(ops, count);
    CREW(all, "%s", weft_last_error());
    OK(weft_work_wait(all, WEFT_DEFAULT));
    for (int other = 0; other < s->size; other++)
        CREW(other == rank || is_filled(in[other], other, rank, 4, LARGE), "of %d", other);
    OK(weft_group_barrier(world, WEFT_DEFAULT));
    return leave(rank, world);
}

TEST(test_hosts_p2p_tags)
{
    RUN("2 hosts of 1", 2, 1, -1, tags);
    RUN("2 hosts of 2", 4, 2, -1, tags);
}

/* ---- what goes wrong ---- */

static int wrong(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    int last = s->size - 1;
    weft_tensor *x = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(rank == 0 ? 9000 : 9001));
    if (rank == 0) {
        weft_group_set_timeout(world, 200);
        CREW(weft_recv(x, last, world) == WEFT_ERR_TIMEOUT, "%s", weft_last_error());
        weft_group_set_timeout(world, LIMIT_MS);
        crew->go++;
        CREW(weft_recv(x, last, world) == WEFT_ERR_MISMATCH, "%s", weft_last_error());
        CREW(strstr(weft_last_error(), "sends 36004 bytes"), "%s", weft_last_error());
    } else if (rank == last) {
        while (!crew->go)
            crew_rest(1);
        weft_status status = weft_send(x, 0, world);
        for (int i = 0; status == WEFT_OK && i < 100; i++)
            status = weft_send(x, 0, world);
        CREW(status == WEFT_ERR_MISMATCH, "%d, %s", (int)status, weft_last_error());
    }
    CREW(weft_group_barrier(world, WEFT_DEFAULT) == WEFT_ERR_MISMATCH, "%s", weft_last_error());
    return leave(rank, world);
}

TEST(test_hosts_p2p_wrong_size)
{
    RUN("2 hosts of 1", 2, 1, -1, wrong);
    RUN("2 hosts of 2", 4, 2, -1, wrong);
}

static int death(int rank, void *arg)
{
    const scene *s = arg;
    weft_group *world = join(rank, s);
    CREW(world, "%s", weft_last_error());
    int last = s->size - 1;
    weft_tensor *x = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(100));
    if (rank == last) {
        OK(weft_send(x, 0, world));
        while (!crew->go) /* what has not left a process dies with it */
            crew_rest(1);
        raise(SIGKILL);
    }
    if (rank == 0) {
        OK(weft_recv(x, last, world));
        crew->go++;
        CREW(weft_recv(x, last, world) == WEFT_ERR_PEER_DEAD, "%s", weft_last_error());
    }
    crew->given_up++;
    while (crew->given_up < last)
        crew_rest(1);
    return leave(rank, world);
}

TEST(test_hosts_p2p_death)
{
    RUN("2 hosts of 1", 2, 1, 1, death);
    RUN("2 hosts of 2", 4, 2, 3, death);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
