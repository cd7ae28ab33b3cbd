/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers, back to back.  The floor is the barest barrier there is: each rank stores a number into
 * a line of its own and reads those of all; no checks, no deadline, no deaths.  Both are measured in
 * turns in the same ranks.
 */
#include "bench.h"

#include <weft/weft.h>

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

enum { TURNS = 15 };

typedef struct barriers {
    bench_board *board;
    int ranks, rounds;
    int crowded;
} barriers;

static void pause_a_moment(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* One bare barrier; `epoch` counts them. */
static void bare_barrier(const barriers *bench, int rank, uint64_t epoch)
{
    atomic_store_explicit(&bench->board->flag[rank].epoch, epoch, memory_order_release);
    for (int peer = 0; peer < bench->ranks; peer++)
        for (int looks = 0;
             atomic_load_explicit(&bench->board->flag[peer].epoch, memory_order_acquire) < epoch;
             looks++) {
            if (bench->crowded && looks > 8)
                sched_yield();
            else
                pause_a_moment();
        }
}

static double measure_bare(const barriers *bench, int rank, uint64_t *epoch)
{
    int64_t start = bench_ns();
    for (int i = 0; i < bench->rounds; i++)
        bare_barrier(bench, rank, ++*epoch);
    return (double)(bench_ns() - start) / bench->rounds * 1e-3;
}

static double measure_weft(const barriers *bench, weft_symm *mem)
{
    int64_t start = bench_ns();
    for (int i = 0; i < bench->rounds; i++)
        if (weft_symm_barrier(mem, 0, WEFT_DEFAULT) < 0)
            return -1;
    return (double)(bench_ns() - start) / bench->rounds * 1e-3;
}

static int body(int rank, void *arg)
{
    const barriers *bench = arg;
    weft_group *world = weft_init(NULL);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), world);
    uint64_t epoch = 0;
    for (int turn = 0; mem && turn < TURNS; turn++) {
        double bare = measure_bare(bench, rank, &epoch), ours = measure_weft(bench, mem);
        if (rank == 0) {
            bench->board->sample[0][turn] = ours;
            bench->board->sample[1][turn] = bare;
        }
    }
    return weft_finish(world);
}

int bench_barrier(bench_style *style)
{
    static const int counts[] = {2, 4, 8, 16};
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), failed = 0;
    for (int i = 0; i < 4; i++) {
        if (counts[i] > 8 && counts[i] > cores)
            continue;
        barriers bench = {bench_board_new(), counts[i], counts[i] > cores ? 4000 : 50000,
                          counts[i] > cores};
        if (!bench.board)
            return 1;
        if (bench_ranks(counts[i], body, &bench)) {
            fprintf(stderr, "weft bench barrier: a rank of %d failed\n", counts[i]);
            failed = 1;
        } else {
            bench_row(style, counts[i] > cores ? "barrier, ranks share cores" : "barrier",
                      counts[i], "us", bench_quantile(bench.board->sample[0], TURNS, 0.5),
                      bench_quantile(bench.board->sample[1], TURNS, 0.5));
        }
        bench_board_free(bench.board);
    }
    return failed;
}
