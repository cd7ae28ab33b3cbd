/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of operations on symmetric memory share: how ranks come and go, and memory. */
#ifndef WEFT_TESTS_SYMM_JOBS_H
#define WEFT_TESTS_SYMM_JOBS_H

#include "device.h"

#include "harness_ranks.h"

#include <weft/weft.h>

static weft_group *join(int rank)
{
    weft_group *world = weft_init(NULL);
    if (!world)
        FAIL("weft_init: %s", weft_last_error());
    weft_seed(42 + (uint64_t)rank);
    return world;
}

#define FINISH(world_)                 \
    do {                               \
        weft_clear_error();            \
        CHECK(device_was_used());      \
        CHECK(!weft_finish((world_))); \
    } while (0)

static weft_tensor *symmetric(weft_dtype dtype, int64_t count)
{
    weft_tensor *x = weft_symm_empty(dtype, DEVICE, WEFT_SHAPE(count));
    if (!x)
        FAIL("weft_symm_empty: %s", weft_last_error());
    return x;
}

#endif
