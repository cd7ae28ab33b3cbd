/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a linear layer's classes without its logits. */
#include "base/report/opts.h"
#include "tensor/object/eye.h"
#include "tensor/op/ops.h"
#include "weft/grad.h"
#include "weft/nn.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stdatomic.h>

#define T(x_) WEFT_I_TENSOR_ARG(x_)
#define N(x_) WEFT_I_NUMBER_ARG(x_)

static void tell(weft_device device)
{
    static atomic_bool told; /* relaxed: at worst it is said twice */
    char name[16];
    if (!atomic_exchange_explicit(&told, true, memory_order_relaxed))
        weft_i_log(WEFT_LOG_INFO,
                   "linear_cross_entropy: no kernel of its own on %s; it is put together from a "
                   "product and log_softmax, with all logits (said once)",
                   weft_device_name(device, name));
}

/* For devices on which the row does not run. */
static weft_tensor *composed(weft_tensor *x, weft_tensor *weight, weft_tensor *labels,
                             const weft_linear_cross_entropy_opts *opts)
{
    double classes = (double)weft_tensor_size(weight, 0);
    tell(weft_tensor_device(x));
    weft_tensor *logits = weft_linear(x, weight, NULL);
    if (weft_i_dtype_is_small_float(weft_tensor_dtype(x)))
        logits = weft_to_dtype(logits, WEFT_F32);
    weft_tensor *all = weft_log_softmax(logits, -1);
    weft_tensor *counts = weft_ne_scalar(labels, (double)opts->ignore);
    weft_tensor *safe = WEFT_I_APPLY(where, T(counts), T(labels), N(0));
    weft_tensor *hit = weft_take_along(all, -1, weft_unsqueeze(safe, -1));
    weft_tensor *loss = weft_mul_scalar(hit ? weft_squeeze(hit, -1) : NULL, opts->smoothing - 1);
    if (opts->smoothing > 0)
        loss = weft_sub(
            loss, weft_mul_scalar(weft_sum(all, (int[]){-1}, 1, false), opts->smoothing / classes));
    if (opts->z_loss != 0) {
        weft_tensor *lse = weft_select(weft_sub(logits, all), -1, 0);
        loss = weft_add(loss, weft_mul_scalar(weft_mul(lse, lse), opts->z_loss));
    }
    weft_tensor *counted = WEFT_I_APPLY(where, T(counts), T(loss), N(0));
    return weft_div(weft_sum(counted, NULL, 0, false),
                    weft_maximum_scalar(weft_sum(counts, NULL, 0, false), 1));
}

static bool runs_on(weft_device device)
{
    int kind = weft_i_device_kind(device);
    return device == WEFT_META || kind <= 0 || kind >= WEFT_I_DEVICE_KINDS ||
           weft_i_op_linear_cross_entropy.run[kind];
}

static bool is_wanted(weft_tensor *x)
{
    return weft_grad_mode_now() == WEFT_GRAD_RECORDING && weft_requires_grad(x);
}

weft_tensor *weft_linear_cross_entropy(weft_tensor *x, weft_tensor *weight, weft_tensor *labels,
                                       const weft_linear_cross_entropy_opts *given)
{
    weft_linear_cross_entropy_opts opts = WEFT_LINEAR_CROSS_ENTROPY_OPTS;
    weft_tensor *outs[3] = {NULL};
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_linear_cross_entropy") < 0)
        return NULL;
    const weft_tensor *seen = x && weight && labels ? weft_i_see(x) : NULL;
    bool live = seen && weft_i_tensor_check_live("linear_cross_entropy", seen) >= 0 &&
                weft_i_tensor_check_live("linear_cross_entropy", weight) >= 0 &&
                weft_i_tensor_check_live("linear_cross_entropy", labels) >= 0;
    if (!(opts.smoothing >= 0 && opts.smoothing <= 1))
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "linear_cross_entropy: smoothing %g; it is in [0, 1]", opts.smoothing);
    if (live && !runs_on(weft_i_tensor_device(seen)))
        return composed(x, weight, labels, &opts);
    weft_i_arg args[] = {T(x),
                         T(weight),
                         T(labels),
                         WEFT_I_INTEGER_ARG(opts.ignore),
                         N(opts.smoothing),
                         N(opts.z_loss),
                         WEFT_I_INTEGER_ARG(live && is_wanted(x)),
                         WEFT_I_INTEGER_ARG(live && is_wanted(weight))};
    weft_status status = weft_i_op_apply_list(&weft_i_op_linear_cross_entropy, outs, args);
    weft_release(outs[1]);
    weft_release(outs[2]);
    return status < 0 ? NULL : outs[0];
}
