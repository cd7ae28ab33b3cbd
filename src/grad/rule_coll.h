/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules of collectives of one tensor and of lists share. */
#ifndef WEFT_GRAD_RULE_COLL_H
#define WEFT_GRAD_RULE_COLL_H

#include "grad/rules.h"

/* Fails if the reduction, argument `arg`, has no gradient. */
weft_status weft_i_refuse_reduction(const weft_i_op_call *call, int arg);
/* x times this rank's factor, if the reduction is premul_sum; else x. */
weft_tensor *weft_i_times_factor(weft_tensor *x, const weft_i_arg *op, const weft_i_arg *factor);

#endif
