/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor (ops.def), their shape rules and run functions, and what those share. */
#ifndef WEFT_TENSOR_OPS_H
#define WEFT_TENSOR_OPS_H

#include "kernels/number/random.h"
#include "kernels/vector/reduce.h"
#include "tensor/op/op.h"

#define OP(name_, params_, flags_, shape_, run_, kernel_)      \
    extern weft_i_op weft_i_op_##name_;                        \
    weft_status weft_i_##shape_##_shape(weft_i_op_call *call); \
    weft_status weft_i_##run_##_run(weft_i_op_call *call);
#define OP_SEVERAL(name_, params_, results_, shape_, run_) OP(name_, params_, 0, shape_, run_, 0)
#include "tensor/op/ops.def"
#undef OP
#undef OP_SEVERAL

/* `quick` of the rows of arithmetic, and of view (op.h). */
bool weft_i_pointwise_quick(weft_i_op_call *call);
bool weft_i_view_quick(weft_i_op_call *call);

/* A result with the dtype and shape of `x`, laid out as `x` is where its memory has no gaps and no
 * element twice, else row-major. */
void weft_i_result_like(weft_i_result *result, const weft_tensor *x);

/* Reads an argument of sizes; the sizes themselves are not checked. */
weft_status weft_i_shape_argument(const weft_i_op_call *call, int i, weft_shape *out);

/* A call of a reduction: its dimensions split into kept and reduced ones, those of size 1 left out.
 */
weft_i_reduce weft_i_reduce_describe(const weft_i_op_call *call);

/* Of draws: the thread's generator, which moves on by `steps`, as it was before. */
weft_i_generator weft_i_random_take(uint64_t steps);
/* The thread's generator becomes `next`; returns what it was. */
weft_i_generator weft_i_random_swap(weft_i_generator next);
/* Bits of a uniform draw of a float dtype. */
int weft_i_random_bits(weft_dtype dtype);

/* Whether weft_view would succeed, or fail for a reason that a copy does not mend.  Sets no error
 * of its own. */
bool weft_i_view_is_possible(const weft_tensor *x, weft_shape shape);

/* Resets the version counter of a tensor that was filled by its maker: nobody saw it before. */
weft_tensor *weft_i_untouched(weft_tensor *x);

#endif
