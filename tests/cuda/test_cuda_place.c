/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/os/place.h, coll/lane/lines.c */
/* Where functions lie that a collective on a device runs through, and when they are fetched. */
#include "cuda/ranks_scene.h"

#include "backends/nccl/comm.h"
#include "base/os/place.h"
#include "coll/calls/run.h"
#include "coll/device/fast.h"
#include "coll/lane/request.h"

static size_t hot_bytes(void)
{
    return (uintptr_t)__stop_weft_hot - (uintptr_t)__start_weft_hot;
}

/* Of the fast path until NCCL has the call. */
static size_t fast_bytes(void)
{
    return (uintptr_t)__stop_weft_fast - (uintptr_t)__start_weft_fast;
}

static bool is_hot(const void *code)
{
    return (uintptr_t)code - (uintptr_t)__start_weft_hot < hot_bytes();
}

/* What is fetched before a call on a device: the functions on its way, which are few, and only where
 * the last call was NCCL's, whose threads may have moved the data through the caches. */
RANKS_TEST(test_cuda_place_fetched, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(100));
    weft_tensor *host = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100));
    CHECK(is_hot((const void *)(uintptr_t)weft_i_request_begin));
    CHECK(is_hot((const void *)(uintptr_t)weft_i_coll_run));
    CHECK(is_hot((const void *)(uintptr_t)weft_i_nccl_comm_enter));
    CHECK(!is_hot((const void *)(uintptr_t)weft_i_fail));
    CHECK(!is_hot((const void *)(uintptr_t)weft_i_nccl_comm_open));
    CHECK((uintptr_t)weft_i_fast_run - (uintptr_t)__start_weft_fast < fast_bytes());
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && defined __OPTIMIZE__
    CHECK(hot_bytes() <= 16 << 10);
    CHECK(fast_bytes() <= 4 << 10);
#endif
    CHECK(!world->fast);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(!world->fast); /* by weft's own kernels */
    CHECK_OK(weft_all_reduce_into(host, host, WEFT_SUM, world));
    CHECK(!world->fast);
    weft_group *group = weft_group_new(world, (int[]){0, 1}, 2, "ended");
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(weft_group_destroy(group));
    CHECK(weft_all_reduce_into(x, x, WEFT_SUM, group) == WEFT_ERR_STATE);
    finish(world);
}

int main(int argc, char **argv)
{
    return scene_main(argc, argv);
}
