/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-sided transfers: each rank writes into the memory of the next one and signals that the data
 * is there.  Nobody calls a receive; the reader waits for the signal alone.  A second channel says
 * that the memory may be written again, so that no barrier is needed.
 * Run: weft run -n 4 13_signals
 */
#include <stdio.h>
#include <weft/weft.h>

enum { COUNT = 256, TURNS = 100, FULL = 0, FREE = 1 };

int main(void)
{
    weft_group *world = weft_init(NULL);
    int me = weft_rank(world), n = weft_size(world);
    if (n < 1)
        return weft_finish(world);
    int next = (me + 1) % n, last = (me + n - 1) % n;
    weft_tensor *box = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT));
    weft_symm *mem = weft_symm_rendezvous(box, world);
    weft_tensor *token = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT), me);

    int wrong = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn > 0) /* the next rank has taken what was there */
            weft_symm_wait_signal(mem, next, FREE, WEFT_DEFAULT);
        weft_symm_put_with_signal(mem, next, token, 0, FULL, WEFT_DEFAULT);
        if (weft_symm_wait_for_signal(mem, last, FULL, WEFT_DEFAULT) != WEFT_OK)
            break;             /* weft_finish prints the error */
        weft_copy(token, box); /* what comes now goes on to the next rank in the next turn */
        if (turn + 1 < TURNS)
            weft_symm_put_signal(mem, last, FREE, WEFT_DEFAULT);
        wrong |= weft_item(token, COUNT - 1) != ((me - turn - 1) % n + n) % n;
    }
    printf("rank %d: after %d turns it holds the token of rank %g\n", me, TURNS,
           weft_item(token, 0));
    int status = weft_finish(world);
    return status ? status : wrong;
}
