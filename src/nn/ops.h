/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor (ops.def), their shape rules and run functions. */
#ifndef WEFT_NN_OPS_H
#define WEFT_NN_OPS_H

#include "grad/rule.h"
#include "tensor/op/ops.h"

extern const weft_i_gradient weft_i_recompute_gradient;

#define OP(name_, params_, flags_, shape_, run_)               \
    extern weft_i_op weft_i_op_##name_;                        \
    weft_status weft_i_##shape_##_shape(weft_i_op_call *call); \
    weft_status weft_i_##run_##_run(weft_i_op_call *call);
#include "nn/ops.def"
#undef OP

#endif
