/* SPDX-License-Identifier: Apache-2.0 */
/* Whether all gradients are finite: the largest and the smallest element of each, in one read for
 * each device. */
#include "base/os/os.h"
#include "nn/optim/optim.h"
#include "weft/op.h"
#include "weft/view.h"

#include <math.h>

/* The gradient of parameter `i`, if it has elements on the device. */
static weft_tensor *gradient_on(const weft_optim *optim, int i, weft_device device)
{
    weft_tensor *grad = weft_grad(optim->trained[i].param);
    return grad && weft_tensor_numel(grad) && weft_tensor_device(grad) == device ? grad : NULL;
}

static weft_tensor *as_row(weft_tensor *x)
{
    return weft_to_dtype(weft_view(x, WEFT_SHAPE(1)), WEFT_F64);
}

/* [max, min, max, min ...] of the gradients on the device, on the CPU.  NaN is both. */
static weft_tensor *read_extremes(const weft_optim *optim, weft_device device, weft_tensor **row)
{
    size_t n = 0;
    for (int i = 0; i < optim->count; i++) {
        weft_tensor *grad = gradient_on(optim, i, device);
        if (!grad)
            continue;
        row[n++] = as_row(weft_max(grad, NULL, 0, false));
        row[n++] = as_row(weft_min(grad, NULL, 0, false));
        if (!row[n - 2] || !row[n - 1])
            return NULL;
    }
    return weft_to(weft_cat(row, n, 0), WEFT_F64, WEFT_CPU);
}

/* The first parameter of the device whose gradient is not finite, or -1; an error is in *status. */
static int find_on(const weft_optim *optim, weft_device device, weft_tensor **row, double *value,
                   weft_status *status)
{
    weft_tensor *seen = read_extremes(optim, device, row);
    if (!seen)
        *status = weft_last_status();
    for (int i = 0, n = 0; seen && i < optim->count; i++) {
        if (!gradient_on(optim, i, device))
            continue;
        for (int end = n + 2; n < end; n++)
            if (!isfinite(*value = weft_item(seen, n)))
                return i;
    }
    return -1;
}

static weft_status find(const weft_optim *optim, weft_tensor **row, int *first, double *value)
{
    weft_device done[WEFT_I_OPTIM_DEVICES];
    weft_status status = WEFT_OK;
    int devices = 0;
    for (int i = 0; i < optim->count && status >= 0; i++) {
        weft_tensor *grad = weft_grad(optim->trained[i].param);
        weft_device device = grad ? weft_tensor_device(grad) : WEFT_META;
        int k = 0;
        while (k < devices && done[k] != device)
            k++;
        /* Meta has no values. */
        if (device == WEFT_META || k < devices || !weft_tensor_numel(grad))
            continue;
        if (devices < WEFT_I_OPTIM_DEVICES)
            done[devices++] = device;
        double met;
        int at = find_on(optim, device, row, &met, &status);
        if (at >= 0 && (*first < 0 || at < *first)) {
            *first = at;
            *value = met;
        }
    }
    return status;
}

static weft_status check(const weft_optim *optim, weft_tensor **row)
{
    char label[WEFT_I_OPTIM_LABEL];
    double value = 0;
    int first = -1;
    WEFT_TRY(find(optim, row, &first, &value));
    if (first < 0)
        return WEFT_OK;
    weft_tensor *grad = weft_grad(optim->trained[first].param);
    return weft_i_fail(WEFT_ERR_NUMERIC,
                       "weft_optim_step: the gradient of parameter %s is not finite: there is %g "
                       "among its %lld elements; nothing was updated, and all gradients are still "
                       "there",
                       weft_i_optim_label(optim->trained[first].name, first, label), value,
                       (long long)weft_tensor_numel(grad));
}

weft_status weft_i_optim_check_finite(const weft_optim *optim)
{
    weft_tensor **row = WEFT_OS->alloc((size_t)optim->count * 2 * sizeof *row);
    if (!row)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_optim_step: no memory to look at %d gradients",
                           optim->count);
    weft_status status = weft_scope_open();
    if (status >= 0) {
        status = check(optim, row);
        weft_scope_close();
    }
    WEFT_OS->free(row);
    return status;
}
