/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor, added to the registry when the library is loaded; and what their rules
 * share. */
#include "tensor/op/ops.h"

#include "kernels/vector/normalize.h"
#include "kernels/vector/pointwise.h"
#include "kernels/vector/reduce.h"

#include <string.h>

#define VIEW        WEFT_I_OP_VIEW
#define WITHIN      WEFT_I_OP_WITHIN
#define LAYOUT      WEFT_I_OP_LAYOUT
#define STRIDED     WEFT_I_OP_STRIDED
#define ELEMENTWISE WEFT_I_OP_ELEMENTWISE
#define RANDOM      WEFT_I_OP_RANDOM
#define EFFECT      WEFT_I_OP_EFFECT
#define MIXED       WEFT_I_OP_MIXED
#define LIST        WEFT_I_OP_LIST

#define OP(name_, params_, flags_, shape_, run_, kernel_)            \
    weft_i_op weft_i_op_##name_ = {.name = #name_,                   \
                                   .params = params_,                \
                                   .flags = flags_,                  \
                                   .shape = weft_i_##shape_##_shape, \
                                   .run = {weft_i_##run_##_run},     \
                                   .kernel = kernel_};
#define OP_SEVERAL(name_, params_, results_, shape_, run_)           \
    weft_i_op weft_i_op_##name_ = {.name = #name_,                   \
                                   .params = params_,                \
                                   .shape = weft_i_##shape_##_shape, \
                                   .run = {weft_i_##run_##_run},     \
                                   .results = results_};
#include "tensor/op/ops.def"
#undef OP
#undef OP_SEVERAL

#define OP_SEVERAL(name_, params_, results_, shape_, run_) &weft_i_op_##name_,
#define OP(name_, params_, flags_, shape_, run_, kernel_)  &weft_i_op_##name_,
static weft_i_op *const rows[] = {
#include "tensor/op/ops.def"
};
#undef OP

static weft_i_op_table table = {rows, sizeof rows / sizeof *rows, NULL};

__attribute__((constructor)) static void add_rows(void)
{
    for (size_t i = 0; i < table.count; i++)
        if (rows[i]->shape == weft_i_arithmetic_shape)
            rows[i]->quick = weft_i_pointwise_quick;
    weft_i_op_view.quick = weft_i_view_quick;
    weft_i_op_add_table(&table);
}

weft_status weft_i_none_run(weft_i_op_call *call)
{
    return weft_i_fail(WEFT_ERR_INTERNAL, "%s: views do not run", call->op->name);
}

weft_status weft_i_shape_argument(const weft_i_op_call *call, int i, weft_shape *out)
{
    const weft_i_arg *arg = &call->args[i];
    if (arg->count > WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: a tensor has 0 to %d dimensions",
                           call->op->name, WEFT_MAX_DIMS);
    out->ndim = (int)arg->count;
    for (size_t k = 0; k < arg->count; k++)
        out->dim[k] = arg->integers[k];
    return WEFT_OK;
}

weft_tensor *weft_i_untouched(weft_tensor *x)
{
    if (x && x->storage->fake)
        WEFT_I_ACT(set_version, WEFT_I_TENSOR_ARG(x), WEFT_I_NUMBER_ARG(0));
    else if (x)
        atomic_store_explicit(&x->version->count, 0, memory_order_relaxed);
    return x;
}
