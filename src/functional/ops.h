/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor (ops.def), their shape rules (rule.c) and run functions (run.c,
 * list.c). */
#ifndef WEFT_FUNCTIONAL_OPS_H
#define WEFT_FUNCTIONAL_OPS_H

#include "tensor/op/op.h"

#define OP(name_, params_, flags_, shape_, run_)                          \
    extern weft_i_op weft_i_op_##name_;                                   \
    weft_status weft_i_functional_##shape_##_shape(weft_i_op_call *call); \
    weft_status weft_i_functional_##run_##_run(weft_i_op_call *call);
#include "functional/ops.def"
#undef OP

#endif
