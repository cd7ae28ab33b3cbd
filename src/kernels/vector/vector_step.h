/* SPDX-License-Identifier: Apache-2.0 */
/* How a loop over a long expression is written so that it becomes vectors; compiled graphs contain
 * this text as well (graph/emit/emit_expression.c). */
#ifndef WEFT_KERNELS_VECTOR_STEP_H
#define WEFT_KERNELS_VECTOR_STEP_H

#include "kernels/number/convert.h"

/*
 * out[i] = expression for i < n, for long expressions; `out` may be an array that they read.  gcc
 * makes vectors of such a loop one after the other, and an Arm64 core does not look far enough
 * ahead to overlap them: there it gets eight elements at a time, which takes a sixth less time.
 * gcc unrolls shorter steps before it looks for vectors, and then finds none.  Where it knows that
 * `n` is a number of whole steps, it must see that nothing is left, or it warns of a loop without end.
 */
#if defined(__aarch64__) && !defined(__clang__)
#define VECTOR_LOOP_OF(type_, expression_)           \
    {                                                \
        enum { STEP = 8 };                           \
        size_t even = n - n % STEP;                  \
        for (size_t at = 0; at < even; at += STEP) { \
            type_ next[STEP];                        \
            WEFT_I_VECTOR_LOOP                       \
            for (size_t k = 0; k < STEP; k++) {      \
                size_t i = at + k;                   \
                next[k] = (expression_);             \
            }                                        \
            memcpy(out + at, next, sizeof next);     \
        }                                            \
        for (size_t i = even; i < n; i++)            \
            out[i] = (expression_);                  \
    }
#else
#define VECTOR_LOOP_OF(type_, expression_) \
    WEFT_I_VECTOR_LOOP                     \
    for (size_t i = 0; i < n; i++)         \
        out[i] = (expression_);
#endif

#endif
