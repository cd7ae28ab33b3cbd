/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two tensors are equal or close, as an answer and not as a tensor. */
#include "kernels/walk/copy.h"
#include "kernels/walk/loop.h"
#include "tensor/object/eye.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 };

static bool can_compare(const char *what, const weft_tensor *a, const weft_tensor *b)
{
    a = weft_i_see(a);
    b = weft_i_see(b);
    if (!a || !b) {
        weft_i_missing("%s: a tensor is NULL", what);
        return false;
    }
    if (weft_i_tensor_device(a) == WEFT_META || weft_i_tensor_device(b) == WEFT_META) {
        weft_i_fail(WEFT_ERR_TYPE, "%s: a meta tensor has no elements", what);
        return false;
    }
    return weft_i_tensor_check_fits(what, a) >= 0 && weft_i_tensor_check_fits(what, b) >= 0;
}

/* Two elements are close, or, for whole numbers that f64 cannot hold, equal. */
struct compare {
    weft_dtype a, b;
    bool exact, equal_nan, same;
    double relative, absolute;
};

static bool is_close(const struct compare *how, double a, double b)
{
    if (isnan(a) || isnan(b))
        return how->equal_nan && isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= how->absolute + how->relative * fabs(b);
}

static void compare_run(void *state, size_t n, char *const *data, const int64_t *stride)
{
    struct compare *how = state;
    uint64_t buffer_a[BLOCK], buffer_b[BLOCK];
    weft_dtype wide = how->exact && !weft_i_dtype_is_float(how->a) ? how->a : WEFT_F64;
    for (size_t i = 0; i < n && how->same; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK, size = weft_dtype_size(wide);
        const char *a = weft_i_load_run(wide, buffer_a, how->a, data[0] + (int64_t)i * stride[0],
                                        stride[0], count);
        const char *b = weft_i_load_run(wide, buffer_b, how->b, data[1] + (int64_t)i * stride[1],
                                        stride[1], count);
        if (wide != WEFT_F64)
            how->same = memcmp(a, b, count * size) == 0;
        else
            for (size_t k = 0; k < count && how->same; k++)
                how->same = is_close(how, ((const double *)(const void *)a)[k],
                                     ((const double *)(const void *)b)[k]);
    }
}

/* On the host, whatever device they are on. */
static bool compare(const char *what, const weft_tensor *a, const weft_tensor *b,
                    struct compare how)
{
    if (!weft_i_shape_equal(weft_i_tensor_shape(a), weft_i_tensor_shape(b)))
        return false;
    weft_tensor *here = weft_i_tensor_here(what, a);
    weft_tensor *there = here ? weft_i_tensor_here(what, b) : NULL;
    how.same = there != NULL;
    if (there) {
        weft_i_loop loop = weft_i_loop_over(here);
        weft_i_loop_add(&loop, there);
        weft_i_loop_each(loop, compare_run, &how);
    }
    weft_i_object_drop(here);
    weft_i_object_drop(there);
    return how.same;
}

bool weft_equal(weft_tensor *a, weft_tensor *b)
{
    if (!can_compare("equal", a, b) || a->dtype != b->dtype)
        return false;
    return compare("equal", a, b, (struct compare){.a = a->dtype, .b = b->dtype, .exact = true});
}

bool weft_allclose(weft_tensor *a, weft_tensor *b, double relative, double absolute, bool equal_nan)
{
    if (!can_compare("allclose", a, b))
        return false;
    return compare("allclose", a, b,
                   (struct compare){.a = a->dtype,
                                    .b = b->dtype,
                                    .equal_nan = equal_nan,
                                    .relative = relative,
                                    .absolute = absolute});
}
