/* SPDX-License-Identifier: Apache-2.0 */
/* A module with branches that a rank may leave out: their parameters have no gradient there. */
#ifndef WEFT_TESTS_FORK_H
#define WEFT_TESTS_FORK_H

#include "device.h"
#include "jobs.h"

typedef struct fork_state {
    bool left, right;
} fork_state;

static weft_tensor *fork_forward(weft_module *self, weft_tensor *x, void *user)
{
    const fork_state *f = user;
    weft_tensor *y = weft_module_call(weft_module_child(self, "both"), x);
    if (f->left)
        y = weft_module_call(weft_module_child(self, "left"), y);
    if (f->right)
        y = weft_module_call(weft_module_child(self, "right"), y);
    return y;
}

static weft_module *new_fork(fork_state *f)
{
    weft_seed(3);
    weft_module *module = weft_module_new(fork_forward, f);
    weft_module_add(module, "both", weft_nn_linear(4, 4));
    weft_module_add(module, "left", weft_nn_linear_plain(4, 4));
    weft_module_add(module, "right", weft_nn_linear_plain(4, 4));
    CHECK_OK(weft_module_to(module, DEVICE));
    return module;
}

static weft_status backward_of(weft_module *net)
{
    weft_tensor *x = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(2, 4));
    return weft_backward(weft_sum(weft_module_call(net, x), NULL, 0, false));
}

#endif
