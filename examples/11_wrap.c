/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that a program has already: its own array becomes an operand without a copy, as a tensor
 * that is made once, or by a call that takes the pointer.  It computes by itself, so weft/comm.h is
 * all that it needs.
 * Run: weft run -n 4 11_wrap
 */
#include <stdio.h>
#include <weft/comm.h>

enum { COUNT = 1000 };

int main(void)
{
    static float gradients[COUNT];
    weft_group *world = weft_init(NULL);
    int me = weft_rank(world), n = weft_size(world);
    float wanted = (float)n * (float)(n + 1) / 2;
    for (int i = 0; i < COUNT; i++)
        gradients[i] = (float)(me + 1);

    /* A tensor over the array.  It owns nothing: the last two arguments would free the memory. */
    weft_tensor *x = weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT), gradients, NULL, NULL);
    weft_all_reduce_into(x, x, WEFT_SUM, world);
    printf("rank %d: the sum is %g\n", me, gradients[COUNT - 1]);
    int wrong = gradients[0] != wanted;

    /* The same without a tensor. */
    weft_all_reduce_ptr(gradients, gradients, COUNT, WEFT_F32, WEFT_MAX, world);
    wrong |= gradients[0] != wanted;

    int status = weft_finish(world);
    return status ? status : wrong;
}
