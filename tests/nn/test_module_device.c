/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/module.c */
/* Modules that move to another device; on GPUs see test_cuda_graph.c. */
#include "harness.h"

#include <weft/weft.h>

/* The tensors stay the same ones, with their gradients; what cannot move leaves all as it was. */
TEST(test_module_to_another_device)
{
    weft_scope_open();
    weft_seed(1);
    weft_module *a = weft_nn_sequential(weft_nn_linear(2, 3), weft_nn_layer_norm(3));
    CHECK_OK(weft_module_add_buffer(a, "mean", weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), 5)));
    weft_tensor *weight = weft_module_param(a, "0.weight");
    weft_tensor *before = weft_clone(weft_detach(weight));
    int64_t generation = weft_module_generation(a);
    CHECK_OK(weft_backward(weft_sum(
        weft_module_call(a, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 2))), NULL, 0, false)));
    CHECK_OK(weft_module_to(a, WEFT_CPU)); /* where it is */
    CHECK(weft_equal(weight, before));
    CHECK_STATUS(weft_module_to(a, (weft_device)12345), weft_last_status());
    CHECK(weft_last_status() < 0 && weft_tensor_device(weight) == WEFT_CPU);
    CHECK(weft_equal(weight, before));
    weft_clear_error();
    CHECK_OK(weft_module_to(a, WEFT_META));
    CHECK(weft_module_param(a, "0.weight") == weight && weft_requires_grad(weight));
    CHECK_INT(weft_tensor_device(weight), WEFT_META);
    CHECK_INT(weft_tensor_device(weft_grad(weight)), WEFT_META);
    CHECK_INT(weft_tensor_device(weft_module_buffer(a, "mean")), WEFT_META);
    CHECK_INT(weft_module_generation(a), generation);
    weft_tensor *y = weft_module_call(a, weft_ones(WEFT_F32, WEFT_META, WEFT_SHAPE(4, 2)));
    CHECK_INT(weft_tensor_device(y), WEFT_META);
    CHECK(weft_module_to(a, WEFT_CPU) < 0); /* there is nothing to bring back */
    CHECK_CONTAINS(weft_last_error(), "\"mean\"");
    CHECK_INT(weft_tensor_device(weight), WEFT_META);
    weft_clear_error();
    CHECK_STATUS(weft_module_to(NULL, WEFT_CPU), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_scope_close();
}

/* A capture cannot move what it has read already. */
static weft_status mover(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs;
    out[0] = weft_module_call(user, in[0]);
    return weft_module_to(user, WEFT_META);
}

TEST(test_module_to_is_not_captured)
{
    weft_scope_open();
    weft_module *net = weft_nn_linear(2, 3);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 2));
    CHECK(!weft_graph_capture("mover", mover, net, &x, 1, 1));
    CHECK_CONTAINS(weft_last_error(), "cannot move while a function");
    CHECK_INT(weft_tensor_device(weft_module_param(net, "weight")), WEFT_CPU);
    weft_clear_error();
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
