/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communication behind computation: the gradients of a layer are added up while those of the layer
 * below are computed.  A posted operation returns at once; its tensors are left alone until the
 * work is done.
 * Run: weft run -n 2 12_start_wait
 */
#include <stdio.h>
#include <weft/weft.h>

enum { LAYERS = 4, SIZE = 128 };

int main(void)
{
    weft_group *world = weft_init(NULL);
    int me = weft_rank(world), n = weft_size(world);
    weft_tensor *gradient[LAYERS];
    weft_work *work[LAYERS];

    weft_tensor *ones = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(SIZE, SIZE), 1);
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        gradient[layer] = weft_mul_scalar(weft_mm(ones, ones), layer + 1); /* some computation */
        work[layer] = weft_all_reduce_start(gradient[layer], gradient[layer], WEFT_AVG, world);
    }

    int wrong = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        /* The group's own limit of time; a rank that dies meanwhile ends the wait with its name. */
        if (weft_work_wait(work[layer], WEFT_DEFAULT) != WEFT_OK)
            break; /* weft_finish prints the error */
        wrong |= weft_item(gradient[layer], 0) != SIZE * (layer + 1);
    }
    printf("rank %d of %d: %s\n", me, n, wrong ? "wrong" : "averages are right");
    int status = weft_finish(world);
    return status ? status : wrong;
}
