/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross entropy of logits whose classes are cut over ranks: the largest logit, and the sum of
 * exponentials with the label's logit, are what goes over them.
 */
#include "base/report/status.h"
#include "parallel/flow.h"
#include "tensor/object/tensor.h"
#include "weft/functional.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/parallel.h"
#include "weft/view.h"

#define WHAT "weft_parallel_cross_entropy"

static weft_status check(weft_tensor *logits, weft_tensor *labels, weft_group *group)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    if (!logits || !labels || !group)
        return weft_i_missing(WHAT ": the %s NULL", group ? "logits or labels are" : "group is");
    weft_shape shape = weft_tensor_shape(logits), rows = shape;
    rows.ndim -= rows.ndim > 0;
    if (shape.ndim < 1 || !weft_i_shape_equal(rows, weft_tensor_shape(labels)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           WHAT ": logits of shape %s, labels of shape %s; there is a label for "
                                "each row",
                           weft_i_shape_text(shape, a),
                           weft_i_shape_text(weft_tensor_shape(labels), b));
    if (weft_i_dtype_is_float(weft_tensor_dtype(labels)) ||
        !weft_i_dtype_is_float(weft_tensor_dtype(logits)))
        return weft_i_fail(WEFT_ERR_TYPE, WHAT ": logits are floats, and labels are integers");
    return WEFT_OK;
}

/* Of each row, over all ranks: no gradient goes through it. */
static weft_tensor *largest(weft_tensor *logits, weft_group *group)
{
    static const int last[] = {-1};
    weft_tensor *most = NULL;
    WEFT_NO_GRAD
    {
        most = weft_all_reduce(weft_max(weft_detach(logits), last, 1, true), WEFT_MAX, group);
    }
    return most;
}

weft_tensor *weft_parallel_cross_entropy(weft_tensor *logits, weft_tensor *labels,
                                         weft_group *group)
{
    static const int last[] = {-1};
    weft_tensor *inside;
    if (check(logits, labels, group) < 0)
        return NULL;
    weft_tensor *own =
        weft_i_flow_own_indices(WHAT, labels, weft_tensor_size(logits, -1), group, &inside);
    weft_tensor *x = weft_sub(logits, largest(logits, group));
    weft_tensor *both[] = {weft_sum(weft_exp(x), last, 1, true),
                           weft_i_flow_only(weft_unsqueeze(inside, -1),
                                            weft_take_along(x, -1, weft_unsqueeze(own, -1)))};
    if (!both[0] || !both[1])
        return NULL;
    weft_tensor *all = weft_i_flow_sum(weft_cat(both, 2, -1), group);
    weft_tensor *loss = weft_sub(weft_log(weft_select(all, -1, 0)), weft_select(all, -1, 1));
    return weft_mean(loss, NULL, 0, false);
}
