/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor. */
#ifndef WEFT_GRAD_OPS_H
#define WEFT_GRAD_OPS_H

#include "tensor/op/op.h"

#define OP(name_, params_, flags_)                            \
    extern weft_i_op weft_i_op_##name_;                       \
    weft_status weft_i_##name_##_shape(weft_i_op_call *call); \
    weft_status weft_i_##name_##_run(weft_i_op_call *call);
#include "grad/ops.def"
#undef OP

#endif
