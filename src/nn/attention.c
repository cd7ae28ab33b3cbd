/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal self-attention.  Queries, keys and values come from three linear layers rather than from a
 * wide one that is cut in three: the gradient of a cut is a copy of the whole.
 */
#include "base/os.h"
#include "nn/dropout.h"
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"
#include "weft/view.h"

#include <math.h>

typedef struct attention {
    int64_t width;
    int heads;
    double p;
} attention;

enum { QUERY, KEY, VALUE, OUT, LAYERS };
static const char *const names[LAYERS] = {"query", "key", "value", "out"};

/* [batch, time, width] -> [batch * heads, time, width / heads] */
static weft_tensor *split_heads(const attention *a, weft_tensor *x, int64_t batch, int64_t time)
{
    weft_tensor *apart = weft_view(x, WEFT_SHAPE(batch, time, a->heads, a->width / a->heads));
    return weft_reshape(weft_transpose(apart, 1, 2),
                        WEFT_SHAPE(batch * a->heads, time, a->width / a->heads));
}

static weft_tensor *join_heads(const attention *a, weft_tensor *x, int64_t batch, int64_t time)
{
    weft_tensor *apart = weft_view(x, WEFT_SHAPE(batch, a->heads, time, a->width / a->heads));
    return weft_reshape(weft_transpose(apart, 1, 2), WEFT_SHAPE(batch, time, a->width));
}

/* What is added to the scores: minus infinity where the key is later than the query. */
static weft_tensor *mask_of(weft_tensor *x, int64_t time)
{
    weft_device device = weft_tensor_device(x);
    weft_tensor *at = weft_arange(WEFT_I64, device, 0, (double)time, 1);
    weft_tensor *later =
        weft_gt(weft_view(at, WEFT_SHAPE(1, time)), weft_view(at, WEFT_SHAPE(time, 1)));
    return weft_where(later, weft_full(weft_tensor_dtype(x), device, WEFT_SCALAR, -INFINITY),
                      weft_zeros(weft_tensor_dtype(x), device, WEFT_SCALAR));
}

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    const attention *a = user;
    if (weft_tensor_ndim(x) != 3 || weft_tensor_size(x, 2) != a->width)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "attention: x has %d dimensions; it is [batch, time, %lld]",
                           weft_tensor_ndim(x), (long long)a->width);
    int64_t batch = weft_tensor_size(x, 0), time = weft_tensor_size(x, 1);
    weft_tensor *part[OUT];
    for (int i = 0; i < OUT; i++)
        part[i] = split_heads(a, weft_module_call(self->entries[i].child, x), batch, time);
    weft_tensor *query = weft_mul_scalar(part[QUERY], 1 / sqrt((double)(a->width / a->heads)));
    weft_tensor *scores = weft_bmm(query, weft_transpose(part[KEY], 1, 2));
    weft_tensor *weights = weft_softmax(weft_add(scores, mask_of(x, time)), -1);
    if (self->training && a->p > 0)
        weights = weft_i_dropout(weights, a->p);
    weft_tensor *seen = join_heads(a, weft_bmm(weights, part[VALUE]), batch, time);
    return seen ? weft_module_call(self->entries[OUT].child, seen) : NULL;
}

weft_module *weft_nn_attention(int64_t width, int heads, double p)
{
    if (width < 1 || heads < 1 || width % heads || !(p >= 0 && p <= 1))
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "weft_nn_attention: %lld features, %d heads, dropout %g; the heads "
                           "divide the features",
                           (long long)width, heads, p);
    attention *a = WEFT_OS->alloc(sizeof *a);
    if (!a)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_nn_attention: no memory");
    *a = (attention){width, heads, p};
    weft_module *module = weft_i_module_new_kind("attention", forward, a);
    weft_status status = module ? WEFT_OK : weft_last_status();
    for (int i = 0; i < LAYERS && status >= 0; i++) {
        weft_module *layer = weft_nn_linear(width, width);
        status = weft_module_add(module, names[i], layer);
        weft_release(layer);
    }
    return weft_i_layer_made(module, status);
}
