/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise kernels.  A kernel sees adjacent elements of one compute type; the driver here
 * brings operands of any dtype and stride into that form, a block at a time, and takes the result
 * back.
 */
#ifndef WEFT_KERNELS_POINTWISE_H
#define WEFT_KERNELS_POINTWISE_H

#include "base/share/dtype.h"
#include "kernels/walk/loop.h"

enum {
#define UNARY(name_, float_, integer_)   WEFT_I_POINTWISE_##name_,
#define UNARY_F(name_, float_)           WEFT_I_POINTWISE_##name_,
#define UNARY_ANGLE(name_, float_, any_) WEFT_I_POINTWISE_##name_,
#define BINARY(name_, float_, integer_)  WEFT_I_POINTWISE_##name_,
#define BINARY_F(name_, float_)          WEFT_I_POINTWISE_##name_,
#define COMPARE(name_, any_)             WEFT_I_POINTWISE_##name_,
#define LOGICAL1(name_, bool_)           WEFT_I_POINTWISE_##name_,
#define LOGICAL2(name_, bool_)           WEFT_I_POINTWISE_##name_,
#include "kernels/vector/pointwise.def"
    WEFT_I_POINTWISE_where,
    WEFT_I_POINTWISE_COUNT
};

enum { WEFT_I_POINTWISE_INPUTS = 3 };

/* `out` may be one of the inputs. */
typedef void weft_i_pointwise_kernel(size_t n, void *out, const void *const *in);

typedef struct weft_i_pointwise {
    weft_i_pointwise_kernel *kernel;
    weft_dtype made, out; /* what the kernel gives; what operand 0 of the loop has */
    weft_dtype taken[WEFT_I_POINTWISE_INPUTS]; /* what the kernel takes */
    weft_dtype in[WEFT_I_POINTWISE_INPUTS];    /* what operands 1 ... of the loop have */
} weft_i_pointwise;

/* The type in which values of `dtype` are computed: f32 for the small floats, u8 for bool, else
 * itself. */
weft_dtype weft_i_pointwise_compute(weft_dtype dtype);

/* The kernel for a compute type; NULL if there is none (sine of integers). */
weft_i_pointwise_kernel *weft_i_pointwise_find(int which, weft_dtype compute);

/* One run of `n` elements: operand 0 is the output, `inputs` follow; strides in bytes. */
void weft_i_pointwise_run_one(const weft_i_pointwise *what, int inputs, size_t n, char *const *data,
                              const int64_t *stride);

/* Runs over a loop whose operand 0 is the output. */
void weft_i_pointwise_each(const weft_i_loop *loop, const weft_i_pointwise *what);

#endif
