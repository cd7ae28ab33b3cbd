/* SPDX-License-Identifier: Apache-2.0 */
/* From kill -9 of a rank at any moment of any operation to the error at each of the others. */
#include "bench.h"

#include <weft/weft.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, KILLS = 1000, OPS = 8 };

typedef struct kills {
    bench_board *board;
    unsigned turn;
} kills;

/* The same on all ranks: which operation, how many elements, when. */
static unsigned pick(unsigned turn, unsigned number)
{
    uint64_t x = ((uint64_t)turn << 32 | number) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return (unsigned)((x * 0xbf58476d1ce4e5b9u) >> 33);
}

/* Kills its own process, which is in the middle of whatever it does. */
static void *kill_later(void *arg)
{
    const kills *bench = arg;
    struct timespec pause = {.tv_nsec = 1000 + pick(bench->turn, 1u << 20) % 3000000};
    nanosleep(&pause, NULL);
    atomic_store(&bench->board->when, bench_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

typedef struct stock {
    weft_group *world;
    weft_symm *mem;
    weft_tensor *x, *all;
    int rank;
} stock;

static weft_status run(const stock *s, unsigned op, int64_t count)
{
    weft_tensor *x = weft_narrow(s->x, 0, 0, count),
                *all = weft_narrow(s->all, 0, 0, RANKS * count);
    switch (op) {
    case 0:
        return weft_group_barrier(s->world, WEFT_DEFAULT);
    case 1:
        return weft_all_reduce_into(x, x, WEFT_SUM, s->world);
    case 2:
        return weft_all_gather_into(all, x, s->world);
    case 3:
        return weft_broadcast_in_place(x, (int)(count % RANKS), s->world);
    case 4:
        return weft_symm_barrier(s->mem, 0, WEFT_DEFAULT);
    case 5:
        return weft_send_recv(weft_narrow(s->all, 0, 0, count), (s->rank + RANKS - 1) % RANKS, x,
                              (s->rank + 1) % RANKS, s->world);
    case 6:
        return weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), s->world)
                   ? WEFT_OK
                   : weft_last_status();
    default:
        return weft_group_split(s->world, s->rank % 2, 0) ? WEFT_OK : weft_last_status();
    }
}

static int body(int rank, void *arg)
{
    enum { LARGE = 50000 };
    static const int64_t counts[] = {1, 100, 2000, LARGE};
    kills *bench = arg;
    pthread_t killer;
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(LARGE));
    stock s = {.world = world, .x = x, .rank = rank};
    s.all = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(RANKS * LARGE));
    s.mem = weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), world);
    weft_status status =
        s.mem && s.all ? weft_all_reduce_into(x, x, WEFT_SUM, world) : weft_last_status();
    if (status == WEFT_OK && rank == (int)(bench->turn % RANKS))
        pthread_create(&killer, NULL, kill_later, bench);
    for (unsigned i = 0; status == WEFT_OK; i++) {
        weft_scope_open();
        status = run(&s, pick(bench->turn, i) % OPS, counts[pick(bench->turn, i + 7777) % 4]);
        weft_scope_close();
    }
    bench->board->sample[rank][0] = (double)(bench_ns() - atomic_load(&bench->board->when)) * 1e-6;
    if ((status != WEFT_ERR_PEER_DEAD && status != WEFT_ERR_REVOKED) ||
        !atomic_load(&bench->board->when))
        atomic_store(&bench->board->failed, 1);
    weft_group_revoke(world); /* as programs do, so that nobody waits for us */
    return 0;
}

int bench_kill(bench_style *style)
{
    static double all[KILLS * RANKS];
    kills bench = {.board = bench_board_new()};
    int count = 0;
    if (!bench.board)
        return 1;
    setenv("WEFT_DEBUG", "NONE", 1); /* the survivors' warnings are what is measured, not news */
    for (bench.turn = 0; bench.turn < KILLS; bench.turn++) {
        atomic_store(&bench.board->when, 0);
        bench_ranks(RANKS, body, &bench);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != (int)(bench.turn % RANKS))
                all[count++] = bench.board->sample[rank][0];
    }
    unsetenv("WEFT_DEBUG");
    int failed = atomic_load(&bench.board->failed);
    if (failed)
        fprintf(stderr, "weft bench kill: a survivor did not see the death\n");
    bench_row(style, "kill in anything, median", RANKS, "ms", bench_quantile(all, count, 0.5), 0);
    bench_row(style, "kill in anything, p99", RANKS, "ms", bench_quantile(all, count, 0.99), 0);
    bench_row(style, "kill in anything, slowest", RANKS, "ms", bench_quantile(all, count, 1), 0);
    bench_board_free(bench.board);
    return failed;
}
