/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heart of tensor parallelism: each rank multiplies by its part of a matrix, and the partial
 * results are added up. The activations lie in symmetric memory, so nothing is copied to add them.
 * Run: weft run -n 4 02_all_reduce
 */
#include <stdio.h>
#include <weft/weft.h>

enum { TOKENS = 8, HIDDEN = 512 };

int main(void)
{
    weft_group *world = weft_init(NULL);
    int me = weft_rank(world), n = weft_size(world);
    int64_t part = HIDDEN / (n > 0 ? n : 1);

    weft_seed((uint64_t)me); /* every rank has a part of its own */
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(TOKENS, part));
    weft_tensor *w = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(part, HIDDEN));
    weft_tensor *y = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(TOKENS, HIDDEN));
    weft_symm_rendezvous(y, world);

    weft_copy(y, weft_mm(x, w));
    weft_all_reduce_into(y, y, WEFT_SUM, world); /* in place: every rank has the same bits now */

    printf("rank %d: y[0] = %.6f, y[last] = %.6f\n", me, weft_item(y, 0),
           weft_item(y, TOKENS * HIDDEN - 1));
    return weft_finish(world);
}
