/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/rule_coll.c */
/* Gradients through functional collectives on the backends of processes: the reference's test. */
#include "functional_jobs.h"

/* ---- TestFunctionalAutogradWithDistributedBackend ---- */

SIZES_TEST(test_all_to_all_single)
{
    weft_group *world = join(30000);
    int64_t splits[4] = {1, 1, 1, 1};
    weft_tensor *t = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(size, 2));
    CHECK_OK(weft_require_grad(t, true));
    weft_tensor *out =
        weft_add_scalar(weft_all_to_all_single(weft_mul_scalar(t, 2), splits, splits, world), 0);
    CHECK(weft_requires_grad(out) && !weft_is_leaf(out));
    CHECK_ALL(weft_detach(out), WEFT_SHAPE(size, 2), 2);
    CHECK_OK(weft_backward(weft_sum(out, NULL, 0, false)));
    CHECK_ALL(weft_grad(t), WEFT_SHAPE(size, 2), 2);
    CHECK(device_was_used());
    leave(world);
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
