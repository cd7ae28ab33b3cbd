/* SPDX-License-Identifier: Apache-2.0 */
/* From tensors to the strided loops of kernels/: broadcasting happens here, by strides of 0. */
#ifndef WEFT_TENSOR_LOOPS_H
#define WEFT_TENSOR_LOOPS_H

#include "kernels/walk/loop.h"
#include "tensor/object/tensor.h"

/* A loop over `out` with no inputs yet. */
weft_i_loop weft_i_loop_over(const weft_tensor *out);
/* Adds `x`, broadcast to the loop's shape (which must have been checked), as the next operand. */
void weft_i_loop_add(weft_i_loop *loop, const weft_tensor *x);
/* Adds one value at `data`, repeated for every element. */
void weft_i_loop_add_value(weft_i_loop *loop, void *data);

/* The shape to which all of `shapes` broadcast: sizes are equal or 1.  WEFT_ERR_INVALID_ARG names
 * both if not. */
weft_status weft_i_shape_broadcast(const char *what, weft_shape a, weft_shape b, weft_shape *out);

/* Copies elements, converting and broadcasting.  Both on the CPU, checked, and not overlapping. */
void weft_i_copy_tensor(const weft_tensor *to, const weft_tensor *from);

/*
 * The same between any devices, checked for size alone, in the order of the current stream, for
 * which the host may not have waited.  What is under way on them was settled by the caller: who
 * runs an operation that claims them must not wait for itself.
 */
weft_status weft_i_tensor_copy(weft_tensor *to, weft_tensor *from);

/*
 * The elements where the host can read them: `x` itself if it is on the CPU, else a copy, for which
 * the host waits.  With a reference of the caller; NULL and an error.
 */
weft_tensor *weft_i_tensor_here(const char *what, const weft_tensor *x);

#endif
