/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor-parallel MLP whose ranks share the rows of a batch: each has its columns of the first
 * weight and its rows of the second.  The gather in front of the first product and the scatter
 * behind the second are fused with them, forward and backward, so that communication hides behind
 * the products; then the same one after the other.  WEFT_TRACE=fused.json shows the chunks.
 * Run: weft run -n 2 10_fused
 */
#include <stdio.h>
#include <weft/weft.h>

enum { ROWS = 64, WIDTH = 128, HIDDEN = 256 };

static weft_tensor *forward(weft_tensor *x, weft_tensor *w1, weft_tensor *w2, weft_group *tp)
{
    weft_tensor *y = NULL;
    weft_all_gather_matmul(NULL, &y, x, &w1, 1, 0, tp); /* y is NULL if it fails, as are the rest */
    return weft_matmul_reduce_scatter(weft_gelu(y), w2, WEFT_SUM, 0, tp);
}

static weft_tensor *parameter(int64_t rows, int64_t columns)
{
    weft_tensor *w = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows, columns));
    return weft_parameter(weft_mul_scalar(w, 0.05), true);
}

int main(void)
{
    weft_group *tp = weft_init(NULL);
    int rank = weft_rank(tp), size = weft_size(tp);
    double loss[2];
    weft_seed(1 + (uint64_t)rank);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS / size, WIDTH));
    weft_tensor *w1 = parameter(WIDTH, HIDDEN / size), *w2 = parameter(HIDDEN / size, WIDTH);
    for (int i = 0; i < 2; i++) {
        /* Left to itself weft takes the pair for operands as small as these. */
        weft_fused_use(i ? WEFT_FUSED_PAIR : WEFT_FUSED_PIPELINE);
        weft_tensor *y = forward(x, w1, w2, tp);
        weft_tensor *mine = weft_mean(weft_mul(y, y), NULL, 0, false);
        weft_backward(mine);
        loss[i] = weft_item(weft_all_reduce(weft_detach(mine), WEFT_AVG, tp), 0);
    }
    double drift = loss[0] - loss[1];
    printf("rank %d: loss %.6f, fused or not: %s; gradient of w1 has %lld numbers\n", rank, loss[0],
           drift < 1e-6 && drift > -1e-6 ? "the same" : "different",
           (long long)weft_tensor_numel(weft_grad(w1)));
    return weft_finish(tp);
}
