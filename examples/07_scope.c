/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power iteration: the largest eigenvalue of a matrix whose rows are spread over the ranks.  Every
 * turn makes five tensors.  A scope for each turn lets them go; only the new vector is kept.
 * Run: weft run -n 4 07_scope
 */
#include <math.h>
#include <stdio.h>
#include <weft/weft.h>

enum { SIZE = 64, TURNS = 200 };

/* This rank's rows of a matrix with 2 on its diagonal and -1 beside it. */
static weft_tensor *rows_of(int first, int count)
{
    static float values[SIZE * SIZE];
    for (int row = first; row < first + count; row++)
        for (int column = 0; column < SIZE; column++)
            values[(row - first) * SIZE + column] = row == column                            ? 2
                                                    : row == column + 1 || row + 1 == column ? -1
                                                                                             : 0;
    return weft_tensor_from(WEFT_F32, WEFT_SHAPE(count, SIZE), values);
}

int main(void)
{
    weft_group *world = weft_init(NULL);
    int me = weft_rank(world), n = weft_size(world);
    int count = n > 0 ? SIZE / n : SIZE;
    if (count * n != SIZE && world) {
        if (me == 0)
            fprintf(stderr, "07_scope divides %d rows evenly: 1, 2, 4 ... ranks, not %d\n", SIZE,
                    n);
        weft_finish(world);
        return 2;
    }
    weft_tensor *rows = rows_of(me * count, count);

    weft_seed(1); /* the same vector on all ranks */
    weft_tensor *x = weft_keep(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(SIZE, 1)));
    double value = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        weft_scope_open();
        weft_tensor *y = weft_all_gather_tensor(weft_mm(rows, x), 0, world);
        value = sqrt(weft_item(weft_sum(weft_mul(y, y), NULL, 0, false), 0));
        weft_tensor *next = weft_keep(weft_mul_scalar(y, 1 / value)); /* outlives this turn */
        weft_scope_close();                                           /* all others go here */
        weft_release(x);
        x = next;
    }
    if (me == 0)
        printf("largest eigenvalue: %.4f\n", value);
    weft_release(x);
    return weft_finish(world);
}
