/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tiny GPT, trained by one rank alone as the truth: losses, norms, and the gradients of every step.
 * A rank of a job computes the same by any mixture and compares its parts with that.
 */
#ifndef WEFT_TESTS_TINY_GPT_H
#define WEFT_TESTS_TINY_GPT_H

#include "device.h"
#include "jobs.h"
#include "values_seed.h"

#include "tensor/object/tensor.h"

enum { LAYERS = 2, WIDTH = 16, HEADS = 8, TIME = 8, BATCH = 8, SYMBOLS = 16, PARAMS = 64 };
/* What a sanitizer looks for is in the first steps as in the last. */
#ifdef WEFT_TEST_ON_CUDA
enum { TINY_SLOW = 1 }; /* a GPU that is a program */
#else
enum { TINY_SLOW = 0 };
#endif
enum { STEPS_MOST = 20, STEPS_TRAINED = TINY_SLOW ? 2 : VALUES_SANITIZED ? 3 : STEPS_MOST };

static const double LIMIT = 0.5, RATE = 0.1; /* of the norm, which is above it at first */

/* A block adds what its two parts say to what comes in. */
static weft_tensor *block(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    x = weft_add(x, weft_module_call(weft_module_child(self, "attention"), x));
    return weft_add(x, weft_module_call(weft_module_child(self, "mlp"), x));
}

static weft_module *new_block(void)
{
    weft_module *module = weft_module_new(block, NULL);
    weft_module_add(
        module, "attention",
        weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_attention(WIDTH, HEADS, 0)));
    weft_module_add(module, "mlp",
                    weft_nn_sequential(weft_nn_layer_norm(WIDTH), weft_nn_linear(WIDTH, 4 * WIDTH),
                                       weft_nn_op(weft_gelu), weft_nn_linear(4 * WIDTH, WIDTH)));
    return module;
}

static weft_tensor *embed(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    weft_tensor *place = weft_arange(WEFT_I64, DEVICE, 0, (double)weft_tensor_size(x, 1), 1);
    return weft_add(weft_module_call(weft_module_child(self, "symbol"), x),
                    weft_module_call(weft_module_child(self, "place"), place));
}

static weft_module *new_embed(void)
{
    weft_module *module = weft_module_new(embed, NULL);
    weft_module_add(module, "symbol", weft_nn_embedding(SYMBOLS, WIDTH));
    weft_module_add(module, "place", weft_nn_embedding(TIME, WIDTH));
    return module;
}

/* Symbols [batch, time] -> logits [batch, time, SYMBOLS]. */
static weft_tensor *gpt(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    weft_tensor *h = weft_module_call(weft_module_child(self, "embed"), x);
    return weft_module_call(weft_module_child(self, "body"), h);
}

static weft_module *new_gpt(void)
{
    weft_seed(42);
    weft_module *module = weft_module_new(gpt, NULL);
    weft_module_add(module, "embed", new_embed());
    weft_module_add(module, "body",
                    weft_nn_sequential(new_block(), new_block(), weft_nn_layer_norm(WIDTH),
                                       weft_nn_linear(WIDTH, SYMBOLS)));
    if (!module || weft_module_to(module, DEVICE) < 0)
        FAIL("%s", weft_last_error());
    return module;
}

/* The symbols of a step, with those that follow: [BATCH, TIME + 1]. */
static weft_tensor *batch_of(int step)
{
    weft_seed(1000 + (uint64_t)step);
    weft_tensor *x = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(BATCH, TIME + 1), 0, SYMBOLS / 2);
    x = weft_to(x, WEFT_I64, DEVICE);
    return weft_add(x, weft_mul_scalar(x, 1)); /* only every other symbol: it can be learned */
}

static weft_tensor *inputs_of(weft_tensor *batch)
{
    return weft_narrow(batch, 1, 0, TIME);
}

static weft_tensor *labels_of(weft_tensor *batch)
{
    return weft_contiguous(weft_narrow(batch, 1, 1, TIME));
}

/* ---- what one rank computes ---- */

typedef struct truth {
    int steps, count;
    double loss[STEPS_MOST], norm[STEPS_MOST];
    weft_named param[PARAMS];
    weft_tensor *grad[STEPS_MOST][PARAMS]; /* before clipping */
} truth;

__attribute__((unused)) static void find_truth(truth *t, int steps)
{
    weft_module *net = new_gpt();
    t->steps = steps;
    t->count = weft_module_params(net, t->param, PARAMS);
    CHECK(t->count > 0 && t->count <= PARAMS);
    weft_sgd_opts opts = WEFT_SGD_OPTS_INIT;
    opts.momentum = 0.9;
    weft_optim *sgd = weft_optim_sgd(net, RATE, &opts);
    for (int s = 0; s < steps; s++) {
        weft_tensor *batch = batch_of(s);
        weft_tensor *loss =
            weft_cross_entropy(weft_module_call(net, inputs_of(batch)), labels_of(batch));
        CHECK_OK(weft_backward(loss));
        t->loss[s] = weft_item(loss, 0);
        for (int i = 0; i < t->count; i++)
            t->grad[s][i] = weft_clone(weft_grad(t->param[i].tensor));
        CHECK_OK(weft_clip_grad_norm(t->param, t->count, LIMIT, NULL, &t->norm[s]));
        CHECK_OK(weft_optim_step(sgd));
    }
}

/* The part of a tensor that a rank has. */
__attribute__((unused)) static weft_tensor *part_of(weft_tensor *whole, const weft_tensor *mine,
                                                    const int64_t *offset)
{
    for (int d = 0; d < weft_tensor_ndim(whole); d++)
        whole = weft_narrow(whole, d, offset[d], weft_tensor_size(mine, d));
    return whole;
}

__attribute__((unused)) static double distance(weft_tensor *a, weft_tensor *b)
{
    if (!weft_tensor_numel(a))
        return 0;
    return weft_item(weft_max(weft_abs(weft_sub(weft_detach(a), weft_detach(b))), NULL, 0, false),
                     0);
}

__attribute__((unused)) static int find_param(const truth *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (!strcmp(t->param[i].name, name))
            return i;
    FAIL("there is no parameter %s", name);
}

#endif
