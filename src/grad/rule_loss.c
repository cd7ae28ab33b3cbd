/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of linear_cross_entropy: what the call computed with the loss; or, where it is
 * recorded to be differentiated again, products and softmax. */
#include "grad/rules.h"

enum { X, WEIGHT, LABELS, IGNORE, SMOOTHING, Z };

/* The gradients of the logits of the loss, times g: [rows, classes]. */
static weft_tensor *slopes(const weft_i_back *c, weft_tensor *x, weft_tensor *weight,
                           weft_tensor *labels)
{
    int64_t classes = weft_tensor_size(weight, 0);
    double smoothing = ARG(SMOOTHING)->number, z = ARG(Z)->number;
    weft_dtype compute = weft_tensor_dtype(weight) == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    weft_tensor *logits = weft_to_dtype(weft_linear(x, weight, NULL), compute);
    weft_tensor *counts = weft_ne_scalar(labels, (double)ARG(IGNORE)->integer);
    weft_tensor *number = weft_maximum_scalar(weft_sum(counts, NULL, 0, false), 1);
    weft_tensor *safe = weft_where(counts, labels, weft_zeros_like(labels));
    weft_tensor *wanted = weft_to_dtype(weft_one_hot(safe, classes), compute);
    wanted = weft_add_scalar(weft_mul_scalar(wanted, 1 - smoothing), smoothing / (double)classes);
    weft_tensor *p = weft_softmax(logits, -1);
    if (z != 0) {
        weft_tensor *lse = weft_sub(weft_narrow(logits, 1, 0, 1),
                                    weft_narrow(weft_log_softmax(logits, -1), 1, 0, 1));
        p = weft_mul(p, weft_add_scalar(weft_mul_scalar(lse, 2 * z), 1));
    }
    weft_tensor *rows = WHERE(weft_unsqueeze(counts, -1), weft_sub(p, wanted));
    return weft_mul(weft_div(rows, number), weft_i_back_g(c, 0));
}

static weft_status by_parts(weft_i_back *c)
{
    weft_tensor *x = ARG(X)->tensor, *weight = ARG(WEIGHT)->tensor, *labels = ARG(LABELS)->tensor;
    weft_shape shape = weft_tensor_shape(x);
    int64_t rows = weft_tensor_numel(labels);
    weft_tensor *flat = weft_reshape(x, WEFT_SHAPE(rows, weft_tensor_size(weight, 1)));
    weft_tensor *slope = slopes(c, flat, weight, weft_reshape(labels, WEFT_SHAPE(rows)));
    slope = weft_to_dtype(slope, weft_tensor_dtype(x));
    if (!slope)
        return weft_last_status();
    if (NEEDS(X))
        WEFT_TRY(GIVE(X, weft_reshape(weft_mm(slope, weight), shape)));
    return NEEDS(WEIGHT) ? GIVE(WEIGHT, weft_mm(weft_transpose(slope, 0, 1), flat)) : WEFT_OK;
}

weft_status weft_i_linear_cross_entropy_back(weft_i_back *c)
{
    bool ready = (!NEEDS(X) || c->y[1]) && (!NEEDS(WEIGHT) || c->y[2]);
    if (c->g[1] || c->g[2])
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "linear_cross_entropy: its gradients are not differentiated");
    if (weft_grad_mode_now() == WEFT_GRAD_RECORDING || !ready)
        return by_parts(c);
    for (int i = X; i <= WEIGHT; i++)
        if (NEEDS(i))
            WEFT_TRY(GIVE(i, weft_mul(c->y[i + 1], c->g[0])));
    return WEFT_OK;
}
