/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of tensor operations on devices share: a device, and comparisons with the CPU. */
#ifndef WEFT_TESTS_CUDA_OP_SCENE_H
#define WEFT_TESTS_CUDA_OP_SCENE_H

#include "team_scene.h"

#include "backends/cuda/device/launch.h"
#include "kernels/number/convert.h"
#include "weft/weft.h"

#include <math.h>

#define GPU WEFT_CUDA(0)

/* `threads` of a block, on the software driver. */
static void begin_with(int threads)
{
    scene_driver();
    if (!scene.real) {
        weft_i_cuda_close_all();
        model.multiprocessors = 1;
        model.threads_most = threads;
        CHECK_OK(weft_i_cuda_open(0, &scene.device));
    }
    weft_scope_open();
}

/* Few threads of the system, and a number that divides nothing. */
static inline void begin(void)
{
    begin_with(3);
}

static void end(void)
{
    scene_end_scope();
}

static double number_at(const weft_tensor *x, int64_t i)
{
    double value;
    size_t size = weft_dtype_size(x->dtype);
    weft_i_convert(WEFT_F64, &value, x->dtype, weft_i_tensor_data(x) + (size_t)i * size, 1);
    return value;
}

/* Whether element i of two packed tensors on the CPU is the same: by its bits, or both are NaN; or
 * near, if `slack` is not 0. */
static bool is_same(const weft_tensor *a, const weft_tensor *b, int64_t i, double slack)
{
    size_t size = weft_dtype_size(a->dtype);
    if (!memcmp(weft_i_tensor_data(a) + (size_t)i * size, weft_i_tensor_data(b) + (size_t)i * size,
                size))
        return true;
    double x = number_at(a, i), y = number_at(b, i);
    if (weft_i_dtype_is_float(a->dtype) && x != x && y != y)
        return true;
    return slack > 0 && fabs(x - y) <= slack * (fabs(x) + 1e-30);
}

/* `there` is on the device, `here` the CPU's. */
static inline void check_near(const char *what, weft_tensor *there, weft_tensor *here, double slack)
{
    if (!there || !here)
        FAIL("%s on %s: %s", what, there ? "the CPU" : "the device", weft_last_error());
    CHECK_INT(weft_tensor_device(there), GPU);
    CHECK_INT(there->dtype, here->dtype);
    weft_tensor *a = weft_contiguous(weft_to(there, there->dtype, WEFT_CPU));
    weft_tensor *b = weft_contiguous(here);
    if (!a || !b)
        FAIL("%s: %s", what, weft_last_error());
    CHECK(weft_i_shape_equal(weft_i_tensor_shape(a), weft_i_tensor_shape(b)));
    for (int64_t i = 0; i < a->numel; i++)
        if (!is_same(a, b, i, slack))
            FAIL("%s: element %lld of %lld is %.17g on the device, %.17g on the CPU", what,
                 (long long)i, (long long)a->numel, number_at(a, i), number_at(b, i));
}

static inline void check_same(const char *what, weft_tensor *there, weft_tensor *here)
{
    check_near(what, there, here, 0);
}

static inline weft_tensor *there(weft_tensor *x)
{
    weft_tensor *copy = weft_empty_strided(x->dtype, GPU, weft_i_tensor_shape(x), x->stride);
    CHECK_OK(weft_copy(copy, x));
    return copy;
}

/* Values that do not overflow in products and whose sums depend on the order; ties and a NaN. */
static inline weft_tensor *bumpy(weft_dtype dtype, int64_t n, bool with_nan)
{
    weft_tensor *wide = weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(n));
    double *at = (double *)(void *)weft_i_tensor_data(wide);
    for (int64_t i = 0; i < n; i++) {
        uint64_t mixed = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        at[i] = with_nan && i == n / 2 ? NAN : (double)(int64_t)mixed * 0x1p-63 * 1.7;
        if (!weft_i_dtype_is_float(dtype))
            at[i] = floor(fabs(at[i]) * 30);
    }
    return weft_to_dtype(wide, dtype);
}

#endif
