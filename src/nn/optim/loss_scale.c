/* SPDX-License-Identifier: Apache-2.0 */
/* Loss scaling: gradients are divided by the scale, and a step that met an infinity is left out. */
#include "nn/optim/optim.h"

#include "base/report/opts.h"
#include "tensor/object/eye.h"
#include "weft/op.h"

#include <math.h>

static weft_status check(const weft_loss_scale *scale)
{
    weft_loss_scale own = WEFT_LOSS_SCALE;
    if (!scale)
        return weft_i_missing("weft_loss_scale_step: the scale is NULL");
    if (scale->size != sizeof own)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_loss_scale_step: a scale with a size of %zu, not %zu; start from "
                           "WEFT_LOSS_SCALE",
                           scale->size, sizeof own);
    bool good = scale->scale > 0 && isfinite(scale->scale) && scale->growth >= 1 &&
                isfinite(scale->growth) && scale->backoff > 0 && scale->backoff <= 1 &&
                scale->interval > 0;
    return good
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG,
                             "weft_loss_scale_step: scale %g, growth %g, backoff %g, interval %lld",
                             scale->scale, scale->growth, scale->backoff,
                             (long long)scale->interval);
}

/* All gradients, divided in place; or dropped. */
static weft_status each_gradient(const weft_optim *optim, double factor, bool drop)
{
    for (int i = 0; i < optim->count; i++) {
        weft_tensor *param = optim->trained[i].param, *grad = weft_grad(param);
        if (grad)
            WEFT_TRY(drop ? weft_set_grad(param, NULL) : weft_mul_scalar_into(grad, grad, factor));
    }
    return WEFT_OK;
}

/* Looked at before they are divided: a division by a large scale could hide nothing, but an infinity
 * stays one, and after a failed step the gradients are dropped anyway. */
static weft_status step(weft_loss_scale *scale, weft_optim *optim, bool *skipped)
{
    weft_status status = weft_i_optim_check_finite(optim);
    *skipped = status == WEFT_ERR_NUMERIC;
    if (*skipped) {
        weft_clear_error();
        return each_gradient(optim, 0, true);
    }
    WEFT_TRY(status);
    WEFT_TRY(each_gradient(optim, 1 / scale->scale, false));
    return weft_optim_step(optim);
}

weft_status weft_loss_scale_step(weft_loss_scale *scale, weft_optim *optim)
{
    bool skipped = false;
    weft_status status = WEFT_OK;
    WEFT_TRY(check(scale));
    WEFT_TRY(weft_i_optim_check("weft_loss_scale_step", optim));
    WEFT_TRY(weft_i_not_captured("weft_loss_scale_step"));
    WEFT_NO_GRAD
    {
        status = step(scale, optim, &skipped);
    }
    if (status < 0)
        return status;
    if (skipped) {
        double less = scale->scale * scale->backoff;
        scale->scale = less > 0 ? less : scale->scale;
        scale->good = 0;
        scale->skipped++;
    } else if (++scale->good >= scale->interval) {
        double more = scale->scale * scale->growth;
        scale->scale = isfinite(more) ? more : scale->scale;
        scale->good = 0;
    }
    return WEFT_OK;
}
