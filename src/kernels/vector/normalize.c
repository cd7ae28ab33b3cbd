/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and layer normalisation of one row. */
#include "kernels/vector/normalize.h"

#include "kernels/vector/vector.h"

void weft_i_normalize_softmax(int which, weft_dtype compute, void *out, const void *row, size_t n)
{
    const weft_i_normalize_loops *loops = weft_i_vector()->normalize[compute];
    (which == WEFT_I_NORMALIZE_SOFTMAX ? loops->softmax : loops->log_softmax)(out, row, n);
}

void weft_i_normalize_layer(weft_dtype compute, void *out, const void *row, size_t n,
                            const void *weight, const void *bias, double epsilon)
{
    weft_i_vector()->normalize[compute]->layer(out, row, n, weight, bias, epsilon);
}
