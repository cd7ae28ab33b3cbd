/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor and their gradients, added when the library is loaded. */
#include "nn/ops.h"

#include "grad/rule.h"

#define EFFECT WEFT_I_OP_EFFECT
#define WITHIN WEFT_I_OP_WITHIN
#define LAYOUT WEFT_I_OP_LAYOUT

#define OP(name_, params_, flags_, shape_, run_)                     \
    weft_i_op weft_i_op_##name_ = {.name = #name_,                   \
                                   .params = params_,                \
                                   .flags = flags_,                  \
                                   .shape = weft_i_##shape_##_shape, \
                                   .run = {weft_i_##run_##_run}};
#include "nn/ops.def"
#undef OP

#define OP(name_, params_, flags_, shape_, run_) &weft_i_op_##name_,
static weft_i_op *const rows[] = {
#include "nn/ops.def"
};
#undef OP

static weft_i_op_table table = {rows, sizeof rows / sizeof *rows, NULL};

static const weft_i_gradient leaf = {.why = "a parameter is a leaf"};
static const weft_i_gradient binding = {.why = "it computes nothing"};

__attribute__((constructor)) static void add_rows(void)
{
    weft_i_op_add_table(&table);
    weft_i_rule_set(&weft_i_op_parameter, &leaf);
    weft_i_rule_set(&weft_i_op_bind, &binding);
    weft_i_rule_set(&weft_i_op_recompute, &weft_i_recompute_gradient);
}
