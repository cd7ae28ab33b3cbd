/* SPDX-License-Identifier: Apache-2.0 */
/* How a token is drawn from logits. */
#include "base/report/opts.h"
#include "base/report/status.h"
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"
#include "tensor/op/ops.h"
#include "weft/generate.h"
#include "weft/op.h"
#include "weft/view.h"

static weft_status check(const weft_tensor *x, const weft_sample_opts *opts)
{
    int ndim = weft_tensor_ndim(x);
    if (ndim < 1 || ndim > 2 || !weft_i_dtype_is_float(weft_tensor_dtype(x)) ||
        weft_tensor_size(x, -1) < 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_sample: %s of %d dimensions; logits are floats [classes] or "
                           "[rows, classes]",
                           weft_dtype_name(weft_tensor_dtype(x)), ndim);
    if (opts->temperature >= 0 && opts->temperature < 1e30 && opts->top_k >= 0)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "weft_sample: temperature %g, %lld classes; neither is negative",
                       opts->temperature, (long long)opts->top_k);
}

/* Weights for the draw: those of the classes that may be drawn, and where these are (NULL: in place). */
static weft_tensor *weigh(weft_tensor *x, const weft_sample_opts *opts, weft_tensor **at)
{
    weft_tensor *pair[2];
    *at = NULL;
    if (opts->top_k && opts->top_k < weft_tensor_size(x, -1)) {
        if (weft_topk(x, opts->top_k, -1, true, pair) < 0)
            return NULL;
        x = pair[0];
        *at = pair[1];
    }
    return weft_softmax(weft_div_scalar(weft_to_dtype(x, WEFT_F64), opts->temperature), -1);
}

static weft_tensor *draw(weft_tensor *x, const weft_sample_opts *opts)
{
    weft_tensor *at, *weights, *drawn;
    if (opts->temperature == 0)
        return weft_argmax(x, -1, true);
    weights = weigh(x, opts, &at);
    drawn = weights ? weft_multinomial(weights, 1, true) : NULL;
    return at && drawn ? weft_take_along(at, weft_tensor_ndim(at) - 1, drawn) : drawn;
}

/* Devices have no topk: logits are small, and drawn from on the CPU. */
static weft_tensor *draw_here(weft_tensor *x, const weft_sample_opts *opts)
{
    weft_device device = weft_tensor_device(x);
    int kind = weft_i_device_kind(device);
    if (device == WEFT_META || kind <= 0 || kind >= WEFT_I_DEVICE_KINDS || weft_i_op_topk.run[kind])
        return draw(x, opts);
    weft_tensor *here = weft_to(x, weft_tensor_dtype(x), WEFT_CPU);
    return weft_to(here ? draw(here, opts) : NULL, WEFT_I64, device);
}

static bool has_nan(weft_tensor *x)
{
    weft_tensor *most = weft_max(x, NULL, 0, false);
    double value = most ? weft_item(most, 0) : 0;
    return value != value;
}

weft_tensor *weft_sample(weft_tensor *logits, const weft_sample_opts *given)
{
    weft_sample_opts opts = WEFT_SAMPLE_OPTS;
    weft_tensor *out = NULL;
    if (!logits)
        return weft_detach(NULL);
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_sample") < 0 || check(logits, &opts) < 0)
        return NULL;
    WEFT_NO_GRAD
    {
        bool looked = !weft_i_eye_open && weft_tensor_device(logits) != WEFT_META;
        if (looked && has_nan(logits))
            weft_i_fail(WEFT_ERR_NUMERIC, "weft_sample: the logits have a NaN");
        else
            out = draw_here(logits, &opts);
    }
    return out;
}
