/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor (ops.def), their shape rules (fused_rule.c), run functions
 * (gather_matmul.c, matmul_scatter.c) and gradients (fused_grad.c); flow.c has those of `flow`. */
#ifndef WEFT_PARALLEL_OPS_H
#define WEFT_PARALLEL_OPS_H

#include "grad/rule.h"
#include "tensor/op/op.h"

#define OP(name_, params_, flags_)                            \
    extern weft_i_op weft_i_op_##name_;                       \
    weft_status weft_i_##name_##_shape(weft_i_op_call *call); \
    weft_status weft_i_##name_##_run(weft_i_op_call *call);
#include "parallel/ops.def"
#undef OP

weft_status weft_i_all_gather_matmul_back(weft_i_back *c);
weft_status weft_i_matmul_reduce_scatter_back(weft_i_back *c);
weft_status weft_i_flow_back(weft_i_back *c);

#endif
