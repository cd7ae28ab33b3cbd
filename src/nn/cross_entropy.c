/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of classifiers. */
#include "tensor/tensor.h"
#include "weft/nn.h"
#include "weft/op.h"
#include "weft/view.h"

weft_tensor *weft_cross_entropy(weft_tensor *logits, weft_tensor *labels)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    if (!logits || !labels)
        return weft_gather(logits, -1, labels); /* the error of the NULL */
    weft_shape shape = weft_tensor_shape(logits), rows = shape;
    rows.ndim -= rows.ndim > 0;
    if (shape.ndim < 1 || !weft_i_shape_equal(rows, weft_tensor_shape(labels)))
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "cross_entropy: logits of shape %s, labels of shape %s; there is a "
                           "label for each row",
                           weft_i_shape_text(shape, a),
                           weft_i_shape_text(weft_tensor_shape(labels), b));
    weft_tensor *picked = weft_gather(weft_log_softmax(logits, -1), -1, weft_unsqueeze(labels, -1));
    return weft_neg(weft_mean(picked, NULL, 0, false));
}
