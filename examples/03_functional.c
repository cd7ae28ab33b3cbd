/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computing while the ranks add up: the gradients of a layer are averaged over all ranks behind the
 * product that makes the next ones.  No handle is waited for: whatever uses a result waits by
 * itself. Run: weft run -n 4 03_functional
 */
#include <stdio.h>
#include <weft/weft.h>

enum { LAYERS = 3, WIDTH = 256 };

int main(void)
{
    weft_group *world = weft_init(NULL);
    weft_seed((uint64_t)weft_rank(world)); /* every rank has data of its own */
    weft_tensor *gradient = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(WIDTH, WIDTH));
    weft_tensor *averaged[LAYERS];

    for (int layer = 0; layer < LAYERS; layer++) {
        averaged[layer] = weft_all_reduce(gradient, WEFT_AVG, world);         /* returns at once */
        gradient = weft_mul_scalar(weft_mm(gradient, gradient), 1.0 / WIDTH); /* meanwhile */
    }
    for (int layer = 0; layer < LAYERS; layer++) /* the same on all ranks */
        printf("rank %d: mean gradient of layer %d: %.6f\n", weft_rank(world), layer,
               weft_item(weft_mean(averaged[layer], NULL, 0, false), 0));
    return weft_finish(world);
}
