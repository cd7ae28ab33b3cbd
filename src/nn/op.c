/* SPDX-License-Identifier: Apache-2.0 */
/* Operations as modules. */
#include "base/os/os.h"
#include "nn/module.h"
#include "weft/nn.h"

/* C has no pointer that holds both data and functions. */
struct op {
    weft_tensor *(*function)(weft_tensor *x);
};

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    (void)self;
    return ((const struct op *)user)->function(x);
}

weft_module *weft_nn_op(weft_tensor *(*function)(weft_tensor *x))
{
    if (!function)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_nn_op: no operation");
    struct op *op = WEFT_OS->alloc(sizeof *op);
    if (!op)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_nn_op: no memory");
    op->function = function;
    return weft_i_module_new_kind("op", forward, op);
}
