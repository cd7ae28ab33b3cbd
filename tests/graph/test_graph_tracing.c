/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/run/frame.c, functional/traced.c */
/*
 * Compiled functions with collectives: the reference's tests of ranks, under their own names
 * (TestCollectivesWithDistributedBackend).  They are compiled once for each kind of device.
 */
#include "device.h"

#include "harness_cache.h"
#include "harness_ranks.h"

#include <weft/weft.h>

enum { TEXT = 1 << 14 };

/* Compiled whole, with the group as an argument, and run. */
static weft_status allreduce(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                             void *user)
{
    (void)ins, (void)outs;
    out[0] = weft_all_reduce(in[0], WEFT_SUM, user);
    return WEFT_OK;
}

RANKS_TEST(test_tracing, 2)
{
    weft_group *world = weft_init(NULL);
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.fullgraph = true;
    weft_compiled *compiled = weft_compile(allreduce, world, &opts);
    weft_compiled_info info;
    for (int i = 0; i < 3; i++) {
        weft_tensor *x = weft_arange(WEFT_F32, DEVICE, rank + i, rank + i + 8, 1), *y = NULL;
        CHECK_OK(weft_compiled_call(compiled, &x, 1, &y, 1));
        CHECK_NEAR(weft_item(y, 0), 2 * i + 1, 0);
        CHECK_NEAR(weft_item(x, 0), rank + i, 0);
    }
    CHECK_OK(weft_compiled_describe(compiled, &info));
    CHECK_INT(info.frames, 1);
    CHECK_INT(info.ops, 2);
    CHECK_INT(info.plain, 0);
    weft_release(compiled);
    CHECK(device_was_used());
    CHECK_INT(weft_finish(world), 0);
}

/* Rank 1's program does not use what it receives; rank 0's does.  Both must take part. */
static weft_status func(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs;
    weft_group *world = user;
    weft_tensor *got = weft_wait_tensor(weft_permute_tensor(in[0], (int[]){1, 0}, world));
    out[0] = weft_rank(world) == 0 ? got : weft_mul_scalar(in[0], 5);
    return WEFT_OK;
}

RANKS_TEST(test_tracing_with_dce_code, 2)
{
    weft_group *world = weft_init(NULL);
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.fullgraph = true;
    static const char *const backends[] = {"eager", "aot_eager", "c"};
    for (int k = 0; k < 3; k++) {
        opts.backend = backends[k];
        weft_compiled *compiled = weft_compile(func, world, &opts);
        weft_tensor *batch = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(100)), *y = NULL;
        CHECK_OK(weft_compiled_call(compiled, &batch, 1, &y, 1));
        CHECK_NEAR(weft_item(y, 99), rank == 0 ? 1 : 5, 0);
        char text[TEXT];
        CHECK(weft_compiled_details(compiled, text, sizeof text) > 0);
        CHECK_CONTAINS(text, "all_to_all_single");
        CHECK_CONTAINS(text, "wait_tensor");
        weft_release(compiled);
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(device_was_used());
    CHECK_INT(weft_finish(world), 0);
}

int main(int argc, char **argv)
{
    harness_cache_share();
    device_install();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
