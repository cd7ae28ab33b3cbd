/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values by the names of PyTorch's torch.nn.init, from a seed of their own. */
#include "tensor/object/eye.h"
#include "tensor/op/ops.h"
#include "weft/nn.h"
#include "weft/op.h"

#include <math.h>
#include <string.h>

/* Bound of a uniform, or deviation of a normal, distribution; of "constant" the value. */
typedef struct init_rule {
    const char *name;
    enum { CONSTANT, UNIFORM, NORMAL } draw;
    double factor; /* sqrt(factor / fan); 0: the scale as it is */
    enum { NO_FAN, FAN_IN, FAN_BOTH } fan;
} init_rule;

static const init_rule rules[] = {
    {"constant", CONSTANT, 0, NO_FAN},      {"uniform", UNIFORM, 0, NO_FAN},
    {"normal", NORMAL, 0, NO_FAN},          {"xavier_uniform", UNIFORM, 6, FAN_BOTH},
    {"xavier_normal", NORMAL, 2, FAN_BOTH}, {"kaiming_uniform", UNIFORM, 3, FAN_IN},
    {"kaiming_normal", NORMAL, 1, FAN_IN}};
enum { RULES = sizeof rules / sizeof *rules };

/* A weight is [out, in, ...]; what stands behind belongs to both. */
static double spread_of(const init_rule *rule, const weft_tensor *x, double scale)
{
    double behind = 1;
    for (int i = 2; i < x->ndim; i++)
        behind *= (double)x->dim[i];
    double in = rule->fan ? (double)x->dim[1] * behind : 0;
    double out = rule->fan == FAN_BOTH ? (double)x->dim[0] * behind : 0;
    return rule->fan ? scale * sqrt(rule->factor / (in + out)) : scale;
}

static weft_status fill(const init_rule *rule, weft_tensor *x, double spread)
{
    return rule->draw == CONSTANT  ? weft_fill(x, spread)
           : rule->draw == UNIFORM ? weft_uniform(x, -spread, spread)
                                   : weft_normal(x, 0, spread);
}

weft_status weft_nn_init(weft_tensor *x, const char *name, double scale, uint64_t seed)
{
    const init_rule *rule = NULL;
    weft_status status = WEFT_OK;
    for (int i = 0; name && i < RULES; i++)
        rule = strcmp(rules[i].name, name) ? rule : &rules[i];
    if (!x)
        return weft_i_missing("weft_nn_init: the tensor is NULL");
    WEFT_TRY(weft_i_tensor_check_live("weft_nn_init", x));
    WEFT_TRY(weft_i_not_captured("weft_nn_init"));
    if (!rule)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_nn_init: \"%s\" is none of constant, uniform, normal, "
                           "xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal",
                           name ? name : "");
    if ((rule->fan && (x->ndim < 2 || !x->numel)) || !weft_i_dtype_is_float(x->dtype))
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            "weft_nn_init: %s of a tensor of %s with %d dimensions; it takes floats%s", name,
            weft_dtype_name(x->dtype), x->ndim, rule->fan ? " [out, in, ...]" : "");
    weft_i_generator before = weft_i_random_swap((weft_i_generator){seed, 0});
    WEFT_NO_GRAD
    {
        status = fill(rule, x, spread_of(rule, x, scale));
    }
    weft_i_random_swap(before);
    return status;
}
