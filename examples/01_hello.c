/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank shows its neighbour a number.  Run it with: weft run -n 4 01_hello */
#include <stdio.h>
#include <weft/weft.h>

int main(void)
{
    weft_group *world = weft_init(NULL); /* finds its peers; NULL and a message if it cannot */
    int me = weft_rank(world), n = weft_size(world);
    int next = (me + 1) % n, last = (me + n - 1) % n;

    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1024));
    weft_symm *mem = weft_symm_rendezvous(x, world); /* now every rank can touch every x */
    weft_fill(x, me);
    weft_symm_barrier(mem, 0, WEFT_FOREVER);

    weft_tensor *theirs = weft_symm_tensor(mem, next); /* the neighbour's memory, no copy */
    printf("rank %d: rank %d holds %g\n", me, next, weft_item(theirs, 0));

    weft_symm_put_signal(mem, last, 0, WEFT_FOREVER); /* "I have read yours" */
    weft_symm_wait_signal(mem, next, 0, WEFT_FOREVER);
    return weft_finish(world); /* 0, or the first error of this rank, printed */
}
