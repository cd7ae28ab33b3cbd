/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that run plainly and compiled by backend `c`, on any device, and must give the same
 * bits both ways.  `text` has what explains one.
 */
#ifndef WEFT_TESTS_GRAPH_BOTH_H
#define WEFT_TESTS_GRAPH_BOTH_H

#include "harness.h"

#include "tensor/object/tensor.h"

#include <weft/weft.h>

enum { TEXT = 1 << 18 };

#define FUNCTION(name_)                                                                  \
    __attribute__((unused)) static weft_status name_(                                    \
        __attribute__((unused)) weft_tensor *const *in, __attribute__((unused)) int ins, \
        weft_tensor **out, __attribute__((unused)) int outs, __attribute__((unused)) void *user)

static char text[TEXT];

__attribute__((unused)) static weft_compiled *compile(weft_graph_function function, void *user)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = true;
    opts.name = "fn";
    weft_compiled *compiled = weft_compile(function, user, &opts);
    if (!compiled)
        FAIL("%s", weft_last_error());
    return compiled;
}

static void check_bits(const char *what, weft_tensor *a, weft_tensor *b)
{
    if (!a || !b)
        FAIL("%s: %s", what, weft_last_error());
    CHECK_INT(a->dtype, b->dtype);
    CHECK_INT(weft_tensor_device(a), weft_tensor_device(b));
    CHECK(weft_i_shape_equal(weft_i_tensor_shape(a), weft_i_tensor_shape(b)));
    for (int i = 0; i < a->ndim; i++)
        CHECK(a->dim[i] == 1 || a->stride[i] == b->stride[i]);
    weft_tensor *x = weft_contiguous(weft_to(a, a->dtype, WEFT_CPU));
    weft_tensor *y = weft_contiguous(weft_to(b, b->dtype, WEFT_CPU));
    const unsigned char *p = weft_tensor_data(x), *q = weft_tensor_data(y);
    size_t size = weft_dtype_size(a->dtype);
    for (size_t i = 0; i < (size_t)a->numel * size; i++)
        if (p[i] != q[i])
            FAIL("%s: element %zu of %lld differs in byte %zu", what, i / size, (long long)a->numel,
                 i % size);
}

__attribute__((unused)) static int count_of(const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

/* Element by element; sums and their users; rows. */
FUNCTION(chain)
{
    weft_tensor *x = weft_mul(weft_add(in[0], in[1]), in[0]);
    x = weft_gelu(weft_sub_scalar(weft_relu(x), 0.25));
    out[0] = weft_tanh(weft_div(x, weft_add_scalar(weft_abs(in[1]), 1)));
    return WEFT_OK;
}

FUNCTION(by_hand)
{
    int last = -1;
    weft_tensor *largest = weft_max(in[0], &last, 1, true);
    weft_tensor *e = weft_exp(weft_sub(in[0], largest));
    out[0] = weft_div(e, weft_sum(e, &last, 1, true));
    out[1] = weft_mean(weft_mul(in[0], in[0]), &last, 1, false);
    return WEFT_OK;
}

FUNCTION(block)
{
    weft_tensor *x = weft_add(in[0], in[1]);
    weft_tensor *n = weft_layer_norm(x, 1, in[2], in[3], 1e-5);
    out[0] = weft_softmax(weft_mul_scalar(n, 0.5), -1);
    out[1] = weft_log_softmax(weft_neg(x), 1);
    return WEFT_OK;
}

#endif
