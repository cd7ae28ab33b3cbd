/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long after kill -9 of one rank the others' calls return their error: in a barrier, in
 * rendezvous, while meeting.  A survivor that a busy machine brings to its call only after the kill
 * is timed from its coming: before that, it was not weft that kept it waiting.
 */
#include "bench.h"

#include <weft/weft.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 2, KILLS = 25 };

typedef enum scene { IN_BARRIER, IN_RENDEZVOUS, IN_MEETING } scene;

typedef struct deaths {
    bench_board *board;
    scene where;
    int turn;
} deaths;

static void die(bench_board *board)
{
    struct timespec while_the_others_wait = {.tv_nsec = 5000000};
    nanosleep(&while_the_others_wait, NULL);
    atomic_store(&board->when, bench_ns());
    kill(getpid(), SIGKILL);
}

/* The call that the survivors are in when the victim dies; its status. */
static weft_status wait_for_victim(const deaths *bench, weft_group *world, weft_symm *mem)
{
    if (bench->where == IN_BARRIER)
        return weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), world);
    return weft_last_status();
}

static double ms_since(int64_t entered, const bench_board *board)
{
    int64_t now = bench_ns(), killed = atomic_load(&board->when);
    return (double)(now - (killed > entered ? killed : entered)) * 1e-6;
}

static int body(int rank, void *arg)
{
    const deaths *bench = arg;
    bench_board *board = bench->board;
    if (rank == VICTIM && bench->where == IN_MEETING)
        die(board);
    int64_t entered = bench_ns();
    weft_group *world = weft_init(NULL);
    weft_status status = weft_last_status();
    if (bench->where != IN_MEETING) {
        weft_symm *mem =
            weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), world);
        if (rank == VICTIM)
            die(board);
        entered = bench_ns();
        status = mem ? wait_for_victim(bench, world, mem) : WEFT_OK;
    }
    board->sample[rank][bench->turn] = ms_since(entered, board);
    if (status != WEFT_ERR_PEER_DEAD)
        atomic_store(&board->failed, 1);
    return 0;
}

static int measure(bench_style *style, scene where, const char *name)
{
    deaths bench = {bench_board_new(), where, 0};
    double all[KILLS * RANKS];
    int count = 0;
    if (!bench.board)
        return 1;
    for (bench.turn = 0; bench.turn < KILLS; bench.turn++) {
        bench_ranks(RANKS, body, &bench);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != VICTIM)
                all[count++] = bench.board->sample[rank][bench.turn];
    }
    int failed = atomic_load(&bench.board->failed);
    if (failed)
        fprintf(stderr, "weft bench death: a survivor did not see the death (%s)\n", name);
    char label[64];
    snprintf(label, sizeof label, "%s, median", name);
    bench_row(style, label, RANKS, "ms", bench_quantile(all, count, 0.5), 0);
    snprintf(label, sizeof label, "%s, p99", name);
    bench_row(style, label, RANKS, "ms", bench_quantile(all, count, 0.99), 0);
    bench_board_free(bench.board);
    return failed;
}

int bench_death(bench_style *style)
{
    /* The survivors' warnings are what is being measured, not news. */
    setenv("WEFT_DEBUG", "NONE", 1);
    int failed = measure(style, IN_BARRIER, "death in a barrier");
    failed |= measure(style, IN_RENDEZVOUS, "death in rendezvous");
    failed |= measure(style, IN_MEETING, "death while meeting");
    unsetenv("WEFT_DEBUG");
    return failed;
}
