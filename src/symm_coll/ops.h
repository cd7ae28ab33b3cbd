/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor (ops.def). */
#ifndef WEFT_SYMM_COLL_OPS_H
#define WEFT_SYMM_COLL_OPS_H

#include "tensor/op/op.h"

#define OP(name_, params_, flags_, shape_, run_) \
    extern weft_i_op weft_i_op_##name_;          \
    weft_status shape_(weft_i_op_call *call);    \
    weft_status run_(weft_i_op_call *call);
#include "symm_coll/ops.def"
#undef OP

#endif
