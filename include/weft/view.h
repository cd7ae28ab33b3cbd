/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: tensors that share the storage and the version counter of another tensor, with a different
 * shape, strides or offset.  No elements are copied, except by weft_reshape and weft_flatten where
 * a view is impossible.  Names and rules are PyTorch's.  `dim` may count from the end.  Every
 * function returns a new tensor in the current scope, or NULL on failure; NULL inputs give NULL.
 */
#ifndef WEFT_VIEW_H
#define WEFT_VIEW_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The same elements in another shape.  One size may be -1.  Fails if the strides would require a
 * copy. */
WEFT_API weft_tensor *weft_view(weft_tensor *x, weft_shape shape);
/* Like weft_view, but copies if it has to. */
WEFT_API weft_tensor *weft_reshape(weft_tensor *x, weft_shape shape);
/* Joins the dimensions from `start` to `end`, both included.  Copies if it has to. */
WEFT_API weft_tensor *weft_flatten(weft_tensor *x, int start, int end);
/* The same bytes, read as another dtype.  The last dimension grows or shrinks with the element
 * size. */
WEFT_API weft_tensor *weft_view_dtype(weft_tensor *x, weft_dtype dtype);

/* Drops dimension `dim` if its size is 1.  Otherwise the shape stays the same. */
WEFT_API weft_tensor *weft_squeeze(weft_tensor *x, int dim);
WEFT_API weft_tensor *weft_unsqueeze(weft_tensor *x, int dim);
WEFT_API weft_tensor *weft_transpose(weft_tensor *x, int a, int b);
/* Moves dimension `from` to position `to`.  The others keep their order. */
WEFT_API weft_tensor *weft_movedim(weft_tensor *x, int from, int to);
/* Dimension i of the result is dimension dims[i] of `x`.  `dims` has one entry per dimension of
 * `x`. */
WEFT_API weft_tensor *weft_permute(weft_tensor *x, const int *dims);
/* Repeats dimensions of size 1 without using memory, and adds new ones in front.  -1 keeps a
 * size. */
WEFT_API weft_tensor *weft_expand(weft_tensor *x, weft_shape shape);

/* The elements start, start + step ... below `end` along `dim`.  Negative bounds count from the
 * end.  Bounds outside the dimension are clamped. */
WEFT_API weft_tensor *weft_slice(weft_tensor *x, int dim, int64_t start, int64_t end, int64_t step);
/* The `length` elements from `start` on.  All of them must exist. */
WEFT_API weft_tensor *weft_narrow(weft_tensor *x, int dim, int64_t start, int64_t length);
/* Element `index` along `dim`.  That dimension is dropped. */
WEFT_API weft_tensor *weft_select(weft_tensor *x, int dim, int64_t index);
/*
 * weft_split cuts `x` along `dim` into pieces of `size`; the last one may be smaller.  weft_chunk
 * cuts it into `chunks` pieces of equal size, rounded up.  On entry *count is the capacity of
 * `out`; on return it is the number of pieces.  If there is not enough room, fails without making
 * any.
 */
WEFT_API weft_status weft_split(weft_tensor *x, int64_t size, int dim, weft_tensor **out,
                                size_t *count);
WEFT_API weft_status weft_chunk(weft_tensor *x, int64_t chunks, int dim, weft_tensor **out,
                                size_t *count);

/* A view with any shape, strides and offset (in elements of the storage) that stay inside the
 * storage. */
WEFT_API weft_tensor *weft_as_strided(weft_tensor *x, weft_shape shape, const int64_t *strides,
                                      int64_t offset);

/* An alias that gradients do not flow through.  It shares storage and version counter. */
WEFT_API weft_tensor *weft_detach(weft_tensor *x);
/* An alias with its own version counter: writes through it do not change the version of `x`. */
WEFT_API weft_tensor *weft_data(weft_tensor *x);

#ifdef __cplusplus
}
#endif

#endif
