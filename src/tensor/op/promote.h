/* SPDX-License-Identifier: Apache-2.0 */
/* In which dtype, shape and layout the operands of a call meet. */
#ifndef WEFT_TENSOR_PROMOTE_H
#define WEFT_TENSOR_PROMOTE_H

#include "tensor/op/op.h"

/*
 * The dtype of a result of arguments `first` ... `last`: tensors with dimensions decide; then 0-d
 * tensors and at last numbers change it only if their class (bool, integer, float) is higher.
 */
weft_status weft_i_promote_dtypes(const weft_i_op_call *call, int first, int last, weft_dtype *out);

/*
 * Sets the result's shape, to which arguments `first` ... `last` broadcast, and its strides: those
 * the operands of that shape agree on if their memory has no gaps, else row-major.
 */
weft_status weft_i_promote_shapes(weft_i_op_call *call, int first, int last);

#endif
