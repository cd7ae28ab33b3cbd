/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of rules.def, given to their rows by the recorder when the library is loaded. */
#include "grad/rules.h"
#include "functional/ops.h"
#include "symm_coll/ops.h"
#include "tensor/op/ops.h"

#include <math.h>

#define SAVE_NONE                         0
#define SAVE_RESULT                       WEFT_I_SAVE_RESULT
#define SAVE_OTHER                        WEFT_I_SAVE_OTHER
#define SAVE(...)                         SAVE_PICK(__VA_ARGS__, SAVE_3, SAVE_2, SAVE_1, )(__VA_ARGS__)
#define SAVE_PICK(a_, b_, c_, name_, ...) name_
#define SAVE_1(a_)                        (1u << (a_))
#define SAVE_2(a_, b_)                    (1u << (a_) | 1u << (b_))
#define SAVE_3(a_, b_, c_)                (1u << (a_) | 1u << (b_) | 1u << (c_))

/* An expression is the gradient of one argument; it is computed only if that needs one. */
#define GRAD(i_, expression_)                        \
    if (NEEDS(i_) && !(c->grad[i_] = (expression_))) \
        return weft_last_status();

#define FUNCTION(row_, save_)
#define CHECKED(row_, save_)
#define NONE(row_, why_)
#define REFUSED(row_, why_)
#define RULE(row_, save_, body_)                                           \
    static weft_status back_##row_(weft_i_back *c)                         \
    {                                                                      \
        weft_tensor *g = c->g[0], *y = c->y[0], *x0 = weft_i_back_x(c, 0), \
                    *x1 = weft_i_back_x(c, 1), *x2 = weft_i_back_x(c, 2),  \
                    *x3 = weft_i_back_x(c, 3);                             \
        (void)g, (void)y, (void)x0, (void)x1, (void)x2, (void)x3;          \
        body_ return WEFT_OK;                                              \
    }
#include "grad/rules.def"
#undef RULE
#undef FUNCTION
#undef CHECKED
#undef NONE
#undef REFUSED

#define RULE(row_, save_, body_) \
    static const weft_i_gradient gradient_##row_ = {.save = (save_), .back = back_##row_};
#define FUNCTION(row_, save_) \
    static const weft_i_gradient gradient_##row_ = {.save = (save_), .back = weft_i_##row_##_back};
#define CHECKED(row_, save_)                         \
    static const weft_i_gradient gradient_##row_ = { \
        .save = (save_), .back = weft_i_##row_##_back, .refuse = weft_i_##row_##_refuse};
#define NONE(row_, why_) static const weft_i_gradient gradient_##row_ = {.why = (why_)};
#define REFUSED(row_, why_) \
    static const weft_i_gradient gradient_##row_ = {.why = (why_), .refused = true};
#include "grad/rules.def"
#undef RULE
#undef FUNCTION
#undef CHECKED
#undef NONE
#undef REFUSED

#define RULE(row_, save_, body_) weft_i_rule_set(&weft_i_op_##row_, &gradient_##row_);
#define FUNCTION(row_, save_)    RULE(row_, save_, )
#define CHECKED(row_, save_)     RULE(row_, save_, )
#define NONE(row_, why_)         RULE(row_, 0, )
#define REFUSED(row_, why_)      RULE(row_, 0, )
void weft_i_rules_give(void)
{
#include "grad/rules.def"
}
