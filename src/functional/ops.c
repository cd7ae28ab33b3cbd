/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor, added to the registry when the library is loaded. */
#include "functional/ops.h"

#define LAYOUT WEFT_I_OP_LAYOUT
#define LIST   WEFT_I_OP_LIST
#define EFFECT WEFT_I_OP_EFFECT

#define OP(name_, params_, flags_, shape_, run_)                                               \
    weft_i_op weft_i_op_##name_ = {.name = #name_,                                             \
                                   .params = params_,                                          \
                                   .flags = flags_,                                            \
                                   .shape = weft_i_functional_##shape_##_shape,                \
                                   .run = {[WEFT_I_KIND_CPU] = weft_i_functional_##run_##_run, \
                                           [WEFT_I_KIND_CUDA] = weft_i_functional_##run_##_run}};
#include "functional/ops.def"
#undef OP

#define OP(name_, params_, flags_, shape_, run_) &weft_i_op_##name_,
static weft_i_op *const rows[] = {
#include "functional/ops.def"
};
#undef OP

static weft_i_op_table table = {rows, sizeof rows / sizeof *rows, NULL};

__attribute__((constructor)) static void add_rows(void)
{
    weft_i_op_add_table(&table);
}
