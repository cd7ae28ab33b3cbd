/* SPDX-License-Identifier: Apache-2.0 */
/* Builds strided loops from tensors; the broadcasting rule. */
#include "tensor/op/loops.h"

#include "kernels/walk/copy.h"

weft_i_loop weft_i_loop_over(const weft_tensor *out)
{
    weft_i_loop loop = {.ndim = out->ndim};
    for (int i = 0; i < out->ndim; i++)
        loop.dim[i] = out->dim[i];
    weft_i_loop_add(&loop, out);
    return loop;
}

void weft_i_loop_add(weft_i_loop *loop, const weft_tensor *x)
{
    int k = loop->operands++, missing = loop->ndim - x->ndim;
    int64_t size = (int64_t)weft_dtype_size(x->dtype);
    loop->data[k] = weft_i_tensor_data(x);
    for (int i = 0; i < x->ndim; i++)
        loop->stride[k][missing + i] = x->dim[i] <= 1 ? 0 : x->stride[i] * size;
}

void weft_i_loop_add_value(weft_i_loop *loop, void *data)
{
    loop->data[loop->operands++] = data;
}

weft_status weft_i_shape_broadcast(const char *what, weft_shape a, weft_shape b, weft_shape *out)
{
    char text_a[WEFT_I_SHAPE_TEXT], text_b[WEFT_I_SHAPE_TEXT];
    weft_shape shape = {a.ndim > b.ndim ? a.ndim : b.ndim, {0}};
    for (int i = 1; i <= shape.ndim; i++) {
        int64_t x = i <= a.ndim ? a.dim[a.ndim - i] : 1, y = i <= b.ndim ? b.dim[b.ndim - i] : 1;
        if (x != y && x != 1 && y != 1)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: shapes %s and %s do not broadcast (dimension %d from the end)",
                               what, weft_i_shape_text(a, text_a), weft_i_shape_text(b, text_b), i);
        shape.dim[shape.ndim - i] = x == 1 ? y : x;
    }
    *out = shape;
    return WEFT_OK;
}

void weft_i_copy_tensor(const weft_tensor *to, const weft_tensor *from)
{
    weft_i_loop loop = weft_i_loop_over(to);
    weft_i_loop_add(&loop, from);
    weft_i_copy(&loop, to->dtype, from->dtype);
}
