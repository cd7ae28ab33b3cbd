/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that lines FUNCTION and CHECKED of rules.def name. */
#ifndef WEFT_GRAD_RULES_H
#define WEFT_GRAD_RULES_H

#include "grad/rule.h"

#define RULE(row_, save_, body_)
#define FUNCTION(row_, save_) weft_status weft_i_##row_##_back(weft_i_back *c);
#define CHECKED(row_, save_)                          \
    weft_status weft_i_##row_##_back(weft_i_back *c); \
    weft_status weft_i_##row_##_refuse(const weft_i_op_call *call);
#define NONE(row_, why_)
#define REFUSED(row_, why_)
#include "grad/rules.def"
#undef RULE
#undef FUNCTION
#undef CHECKED
#undef NONE
#undef REFUSED

/* g times the second derivatives of gelu, gelu_tanh and silu at x. */
weft_tensor *weft_i_gelu_bend(weft_tensor *g, weft_tensor *x);
weft_tensor *weft_i_gelu_tanh_bend(weft_tensor *g, weft_tensor *x);
weft_tensor *weft_i_silu_bend(weft_tensor *g, weft_tensor *x);

#endif
