/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor, added to the registry when the library is loaded. */
#include "symm_coll/ops.h"

#include "functional/ops.h"

#define EFFECT  WEFT_I_OP_EFFECT
#define PLACED  WEFT_I_OP_PLACED
#define STRIDED WEFT_I_OP_STRIDED

#define OP(name_, params_, flags_, shape_, run_)      \
    weft_i_op weft_i_op_##name_ = {.name = #name_,    \
                                   .params = params_, \
                                   .flags = flags_,   \
                                   .shape = shape_,   \
                                   .run = {[WEFT_I_KIND_CPU] = run_, [WEFT_I_KIND_CUDA] = run_}};
#include "symm_coll/ops.def"
#undef OP

#define OP(name_, params_, flags_, shape_, run_) &weft_i_op_##name_,
static weft_i_op *const rows[] = {
#include "symm_coll/ops.def"
};
#undef OP

static weft_i_op_table table = {rows, sizeof rows / sizeof *rows, NULL};

__attribute__((constructor)) static void add_rows(void)
{
    weft_i_op_add_table(&table);
}
