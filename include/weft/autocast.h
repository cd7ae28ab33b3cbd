/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision: inside WEFT_AUTOCAST(WEFT_BF16) { ... } operations choose their own dtype, by
 * PyTorch's lists.
 *
 *     WEFT_AUTOCAST(WEFT_BF16)
 *     {
 *         loss = weft_cross_entropy(weft_module_call(net, x), labels);
 *     }
 *     weft_backward(loss);                 // outside: gradients have the dtypes of the forward
 *
 * | operands become | operations |
 * |---|---|
 * | the dtype of the block | mm, bmm, matmul, linear, einsum, attention, linear_cross_entropy |
 * | f32 | exp, log, pow, rsqrt, sum, prod, cumsum, softmax, log_softmax, layer_norm |
 * | the widest dtype among them | cat, scatter_add |
 *
 * Everything else takes what it gets.  f64 and integers are never converted.  The conversions are
 * operations as all others: they are recorded and captured, so gradients of f32 parameters are f32.
 * A parameter is converted once in a block, not once a use: put the whole forward of a step into one
 * block.  The mode belongs to the thread, and a compiled function is captured again in another mode.
 */
#ifndef WEFT_AUTOCAST_H
#define WEFT_AUTOCAST_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks nest; WEFT_AUTOCAST(WEFT_F32) switches it off inside.  Another dtype than WEFT_BF16,
 * WEFT_F16 and WEFT_F32 is an error, and nothing is converted.  You may leave a block by return,
 * break or goto; a `break` or `continue` inside leaves the block, not a loop around it. */
#define WEFT_AUTOCAST(dtype_) WEFT_AUTOCAST_IN(dtype_, __LINE__)

/* The dtype of the innermost block; WEFT_F32 outside of all. */
WEFT_API weft_dtype weft_autocast_now(void);

/* What the blocks are made of. */
typedef struct weft_autocast_block {
    weft_dtype before;
    bool open, outermost;
} weft_autocast_block;

WEFT_API weft_autocast_block weft_autocast_block_enter(weft_dtype dtype);
WEFT_API void weft_autocast_block_leave(weft_autocast_block *block);

#define WEFT_AUTOCAST_IN(dtype_, line_) WEFT_AUTOCAST_AT(dtype_, line_)
#define WEFT_AUTOCAST_AT(dtype_, line_) WEFT_AUTOCAST_OF(dtype_, weft_autocast_block_##line_)
#define WEFT_AUTOCAST_OF(dtype_, block_)                                                          \
    for (weft_autocast_block block_                                                               \
         __attribute__((cleanup(weft_autocast_block_leave))) = weft_autocast_block_enter(dtype_); \
         block_.open; block_.open = false)

#ifdef __cplusplus
}
#endif

#endif
