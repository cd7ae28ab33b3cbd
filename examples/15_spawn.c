/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads of one process: the same code, without a launcher, in one address space.
 * Run: ./15_spawn
 */
#include <stdio.h>
#include <weft/weft.h>

enum { RANKS = 4 };

static int rank_main(void *arg)
{
    double *sums = arg; /* threads share the program's memory */
    weft_group *world = weft_init(NULL);
    int me = weft_rank(world);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8), me);
    sums[me] = weft_item(weft_all_reduce(x, WEFT_SUM, world), 0);
    return weft_finish(world);
}

int main(void)
{
    double sums[RANKS] = {0};
    int status = weft_spawn(RANKS, rank_main, sums); /* 0, or the result of the rank that failed */
    for (int rank = 0; rank < RANKS; rank++) {
        printf("rank %d: the sum is %g\n", rank, sums[rank]);
        status |= !status && sums[rank] != 6;
    }
    return status;
}
