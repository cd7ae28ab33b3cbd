/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of this floor, added to the registry with their gradients when the library is loaded. */
#include "grad/ops.h"

#include "grad/rule.h"

#define LIST   WEFT_I_OP_LIST
#define VIEW   WEFT_I_OP_VIEW
#define LAYOUT WEFT_I_OP_LAYOUT
#define EFFECT WEFT_I_OP_EFFECT
#define MIXED  WEFT_I_OP_MIXED

static weft_status pass_back(weft_i_back *c)
{
    for (size_t i = 0; i < ARG(0)->count; i++)
        c->list[i] = c->g[i];
    return WEFT_OK;
}

static const weft_i_gradient pass_gradient = {.back = pass_back};
static const weft_i_gradient accumulate_gradient = {.why = "it is what gradients end in"};
static const weft_i_gradient grad_gradient = {.why = "it is what gradients end in"};
static const weft_i_gradient hand_out_gradient = {.why = "it is what gradients end in"};
static const weft_i_gradient opaque_gradient = {.why = "nobody knows what it computes"};
static const weft_i_gradient set_grad_gradient = {.why = "it is what gradients end in"};

#define OP(name_, params_, flags_)                                  \
    weft_i_op weft_i_op_##name_ = {.name = #name_,                  \
                                   .params = params_,               \
                                   .flags = flags_,                 \
                                   .shape = weft_i_##name_##_shape, \
                                   .run = {weft_i_##name_##_run},   \
                                   .gradient = &name_##_gradient};
#include "grad/ops.def"
#undef OP

#define OP(name_, params_, flags_) &weft_i_op_##name_,
static weft_i_op *const rows[] = {
#include "grad/ops.def"
};
#undef OP

static weft_i_op_table table = {rows, sizeof rows / sizeof *rows, NULL};

__attribute__((constructor)) static void add_rows(void)
{
    weft_i_op_add_table(&table);
}
