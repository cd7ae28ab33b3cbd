/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of classifiers. */
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"
#include "tensor/op/loops.h"
#include "weft/nn.h"
#include "weft/op.h"
#include "weft/view.h"

/* Of a label that is no class: which row, as the caller counts rows. */
static weft_status refuse_label(const weft_tensor *labels, int64_t at, int64_t label,
                                int64_t classes)
{
    char text[WEFT_I_SHAPE_TEXT];
    weft_shape row = weft_i_tensor_shape(labels);
    int64_t rest = at;
    for (int d = row.ndim - 1; d >= 0; d--) {
        int64_t size = row.dim[d];
        row.dim[d] = rest % size;
        rest /= size;
    }
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "cross_entropy: the label of row %s is %lld; there are %lld classes, "
                       "numbered from 0%s",
                       weft_i_shape_text(row, text), (long long)label, (long long)classes,
                       label < 0 ? ", and no label says that its row is to be left out" : "");
}

/* The labels as packed i64, another reference to them or a copy; NULL and an error. */
static weft_tensor *packed_labels(weft_tensor *labels)
{
    if (labels->packed && labels->dtype == WEFT_I64)
        return weft_i_object_hold(labels);
    weft_tensor *copy = weft_i_tensor_new(WEFT_I64, WEFT_CPU, weft_i_tensor_shape(labels), NULL);
    if (copy)
        weft_i_copy_tensor(copy, labels);
    return weft_keep(copy);
}

static weft_status check_values(weft_tensor *labels, int64_t classes)
{
    WEFT_TRY(weft_i_tensor_check_fits("cross_entropy", labels));
    weft_tensor *copy = packed_labels(labels);
    if (!copy)
        return weft_last_status();
    const int64_t *label = (const int64_t *)(const void *)weft_i_tensor_data(copy);
    int64_t i = 0;
    while (i < labels->numel && label[i] >= 0 && label[i] < classes)
        i++;
    weft_status status = i < labels->numel ? refuse_label(labels, i, label[i], classes) : WEFT_OK;
    weft_i_object_drop(copy);
    return status;
}

/* The values too, where the host has them: a device says later which index its kernel met. */
static weft_status check(const weft_tensor *logits, weft_tensor *labels)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    weft_shape shape = weft_i_tensor_shape(logits), rows = shape;
    rows.ndim -= rows.ndim > 0;
    if (shape.ndim < 1 || !weft_i_shape_equal(rows, weft_i_tensor_shape(labels)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "cross_entropy: logits of shape %s, labels of shape %s; there is a "
                           "label for each row",
                           weft_i_shape_text(shape, a),
                           weft_i_shape_text(weft_i_tensor_shape(labels), b));
    if (weft_i_dtype_class(labels->dtype) != 1)
        return weft_i_fail(WEFT_ERR_TYPE,
                           "cross_entropy: the labels are %s; they are the numbers of classes, "
                           "integers",
                           weft_dtype_name(labels->dtype));
    bool seen = weft_i_tensor_device(labels) == WEFT_CPU && !labels->storage->fake;
    return seen ? check_values(labels, shape.dim[shape.ndim - 1]) : WEFT_OK;
}

weft_tensor *weft_cross_entropy(weft_tensor *logits, weft_tensor *labels)
{
    if (!logits || !labels)
        return weft_take_along(logits, -1, labels); /* the error of the NULL */
    weft_tensor *scores = weft_i_see(logits), *classes = weft_i_see(labels);
    if (!scores || !classes || weft_i_tensor_check_live("cross_entropy", scores) < 0 ||
        weft_i_tensor_check_live("cross_entropy", classes) < 0 || check(scores, classes) < 0)
        return NULL;
    weft_tensor *picked =
        weft_take_along(weft_log_softmax(logits, -1), -1, weft_unsqueeze(labels, -1));
    return weft_neg(weft_mean(picked, NULL, 0, false));
}
