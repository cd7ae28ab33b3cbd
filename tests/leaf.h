/* SPDX-License-Identifier: Apache-2.0 */
/* What nearly every test of gradients begins and ends with: a leaf, and a sum to start from. */
#ifndef WEFT_TESTS_LEAF_H
#define WEFT_TESTS_LEAF_H

#include "harness.h"

#include "weft/grad.h"
#include "weft/op.h"

static inline weft_tensor *leaf(weft_tensor *x)
{
    CHECK_OK(weft_require_grad(x, true));
    return x;
}

static inline weft_tensor *total(weft_tensor *x)
{
    return weft_sum(x, NULL, 0, false);
}

#endif
