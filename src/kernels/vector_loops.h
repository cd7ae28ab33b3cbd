/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of one table.  Included once by each vector_<instruction set>.c, which is compiled for
 * that set and defines TABLE, NAME_OF_TABLE and VECTOR_BYTES, the size of its registers.
 */
#include "kernels/vector.h"

#include "kernels/convert.h"

#include <string.h>

/*
 * out[i] = expression for i < n, for long expressions; `out` may be an array that they read.  gcc
 * makes vectors of such a loop one after the other, and an Arm64 core does not look far enough
 * ahead to overlap them: there it gets eight elements at a time, which takes a sixth less time.
 * gcc unrolls shorter steps before it looks for vectors, and then finds none.
 */
#if defined(__aarch64__) && !defined(__clang__)
#define VECTOR_LOOP_OF(type_, expression_)       \
    {                                            \
        enum { STEP = 8 };                       \
        size_t at = 0;                           \
        for (; at + STEP <= n; at += STEP) {     \
            type_ next[STEP];                    \
            WEFT_I_VECTOR_LOOP                   \
            for (size_t k = 0; k < STEP; k++) {  \
                size_t i = at + k;               \
                next[k] = (expression_);         \
            }                                    \
            memcpy(out + at, next, sizeof next); \
        }                                        \
        for (size_t i = at; i < n; i++)          \
            out[i] = (expression_);              \
    }
#else
#define VECTOR_LOOP_OF(type_, expression_) \
    WEFT_I_VECTOR_LOOP                     \
    for (size_t i = 0; i < n; i++)         \
        out[i] = (expression_);
#endif

#include "kernels/pointwise_loops.h"
#include "kernels/reduce_loops.h"

#include "kernels/normalize_loops.h"

const weft_i_vector_table TABLE = {
    .name = NAME_OF_TABLE,
    .pointwise = pointwise,
    .reduce = reduce,
    .normalize = {[WEFT_F32] = &normalize_float, [WEFT_F64] = &normalize_double}};
