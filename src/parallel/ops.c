/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor, added to the registry with their gradients when the library is loaded. */
#include "parallel/ops.h"

#define LIST   WEFT_I_OP_LIST
#define MEETS  WEFT_I_OP_MEETS
#define WITHIN WEFT_I_OP_WITHIN

#define WHY \
    "products of floats of 8 bits have no gradients here: differentiate the one in more bits"

static const weft_i_gradient all_gather_matmul_gradient = {.save = 1,
                                                           .back = weft_i_all_gather_matmul_back};
static const weft_i_gradient matmul_reduce_scatter_gradient = {
    .save = WEFT_I_SAVE_OTHER, .back = weft_i_matmul_reduce_scatter_back};
static const weft_i_gradient flow_gradient = {.back = weft_i_flow_back};
static const weft_i_gradient all_gather_scaled_matmul_gradient = {.why = WHY, .refused = true};
static const weft_i_gradient scaled_matmul_reduce_scatter_gradient = {.why = WHY, .refused = true};

#define OP(name_, params_, flags_)                                                                 \
    weft_i_op weft_i_op_##name_ = {                                                                \
        .name = #name_,                                                                            \
        .params = params_,                                                                         \
        .flags = flags_,                                                                           \
        .shape = weft_i_##name_##_shape,                                                           \
        .run =                                                                                     \
            {[WEFT_I_KIND_CPU] = weft_i_##name_##_run, [WEFT_I_KIND_CUDA] = weft_i_##name_##_run}, \
        .gradient = &name_##_gradient};
#include "parallel/ops.def"
#undef OP

#define OP(name_, params_, flags_) &weft_i_op_##name_,
static weft_i_op *const rows[] = {
#include "parallel/ops.def"
};
#undef OP

static weft_i_op_table table = {rows, sizeof rows / sizeof *rows, NULL};

__attribute__((constructor)) static void add_rows(void)
{
    weft_i_op_add_table(&table);
}
