/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of one step of an optimizer, from a call of its row; for the columns of all devices.
 */
#ifndef WEFT_TENSOR_UPDATE_H
#define WEFT_TENSOR_UPDATE_H

#include "kernels/vector/update.h"
#include "tensor/op/op.h"

weft_i_sgd weft_i_sgd_of(const weft_i_op_call *call);
weft_i_adamw weft_i_adamw_of(const weft_i_op_call *call);

#endif
