/* SPDX-License-Identifier: Apache-2.0 */
/* Rates by the number of the step.  The cosine is weft's own, not the C library's: ranks on other
 * machines get the same bits, and so keep the same parameters. */
#include "kernels/number/math.h"
#include "weft/optim.h"

static const double pi = 3.14159265358979323846;

/* In doubles: the largest int64_t has a successor there. */
static double rise(int64_t step, int64_t warmup, double peak)
{
    return peak * (((double)(step > 0 ? step : 0) + 1) / ((double)warmup + 1));
}

/* How much of the way from `warmup` to `total` is done: 0 to 1. */
static double way_down(int64_t step, int64_t warmup, int64_t total)
{
    int64_t at = step > 0 ? step : 0, from = warmup > 0 ? warmup : 0;
    return at >= total ? 1 : (double)(at - from) / (double)(total - from);
}

/* Exactly `peak` for a share of 1, and `least` for 0. */
static double between(double least, double peak, double share)
{
    return peak * share + least * (1 - share);
}

double weft_rate_constant(int64_t step, int64_t warmup, double peak)
{
    return step < warmup ? rise(step, warmup, peak) : peak;
}

double weft_rate_linear(int64_t step, int64_t warmup, int64_t total, double peak, double least)
{
    if (step < warmup)
        return rise(step, warmup, peak);
    return between(least, peak, 1 - way_down(step, warmup, total));
}

double weft_rate_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double least)
{
    if (step < warmup)
        return rise(step, warmup, peak);
    return between(least, peak, (1 + weft_i_cos_f64(pi * way_down(step, warmup, total))) / 2);
}
