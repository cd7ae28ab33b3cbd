/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a peer's buffer by a plain copy.  The floor is copying from memory of one's own, of the
 * same size. */
#include "bench.h"

#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 15 };

typedef struct reads {
    bench_board *board;
    size_t bytes;
} reads;

static double gbs(char *to, const char *from, size_t bytes)
{
    int rounds = bytes > 4 << 20 ? 4 : (int)((16 << 20) / bytes);
    int64_t start = bench_ns();
    for (int i = 0; i < rounds; i++)
        memcpy(to, from, bytes);
    return (double)bytes * rounds / (double)(bench_ns() - start);
}

/* Rank 1 rewrites its buffer before each turn, so that rank 0 does not read its own cache. */
static int body(int rank, void *arg)
{
    const reads *bench = arg;
    size_t bytes = bench->bytes;
    weft_group *world = weft_init(NULL);
    weft_symm *mem =
        weft_symm_rendezvous(weft_symm_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE(bytes)), world);
    char *mine = calloc(1, bytes), *to = calloc(1, bytes);
    for (int turn = 0; mem && mine && to && turn < TURNS; turn++) {
        if (rank == 1)
            memset(weft_symm_buffer_ptr(mem, 1), turn + 1, bytes);
        weft_symm_barrier(mem, 0, WEFT_DEFAULT);
        if (rank == 0) {
            memset(mine, turn + 2, bytes);
            bench->board->sample[1][turn] = gbs(to, mine, bytes);
            bench->board->sample[0][turn] = gbs(to, weft_symm_buffer_ptr(mem, 1), bytes);
            if (to[bytes - 1] != turn + 1)
                atomic_store(&bench->board->failed, 1);
        }
        weft_symm_barrier(mem, 0, WEFT_DEFAULT);
    }
    free(mine);
    free(to);
    return weft_finish(world);
}

int bench_read(bench_style *style)
{
    static const size_t sizes[] = {64 << 10, 1 << 20, 64 << 20};
    static const char *const names[] = {"read peer, 64 KiB", "read peer, 1 MiB",
                                        "read peer, 64 MiB"};
    for (int i = 0; i < 3; i++) {
        reads bench = {bench_board_new(), sizes[i]};
        if (!bench.board || bench_ranks(2, body, &bench) || atomic_load(&bench.board->failed)) {
            fprintf(stderr, "weft bench read: failed at %zu bytes\n", sizes[i]);
            return 1;
        }
        bench_row(style, names[i], 2, "GB/s", bench_quantile(bench.board->sample[0], TURNS, 0.5),
                  bench_quantile(bench.board->sample[1], TURNS, 0.5));
        bench_board_free(bench.board);
    }
    return 0;
}
