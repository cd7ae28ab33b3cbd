/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal self-attention.  Queries, keys and values come from three linear layers rather than from a
 * wide one that is cut in three: the gradient of a cut is a copy of the whole.
 */
#include "base/os/os.h"
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"
#include "weft/view.h"

typedef struct attention {
    int64_t width;
    int heads;
    double p;
} attention;

enum { QUERY, KEY, VALUE, OUT, LAYERS };
static const char *const names[LAYERS] = {"query", "key", "value", "out"};

/* [batch, time, heads * size] -> [batch, heads, time, size], a view.  A layer that is cut over ranks
 * gives the heads of this one. */
static weft_tensor *split_heads(const attention *a, weft_tensor *x)
{
    int64_t size = a->width / a->heads;
    if (!x)
        return NULL;
    return weft_transpose(weft_view(x, WEFT_SHAPE(weft_tensor_size(x, 0), weft_tensor_size(x, 1),
                                                  weft_tensor_size(x, -1) / size, size)),
                          1, 2);
}

static weft_tensor *join_heads(weft_tensor *x)
{
    if (!x)
        return NULL;
    weft_shape s = weft_tensor_shape(x);
    return weft_reshape(weft_transpose(x, 1, 2),
                        WEFT_SHAPE(s.dim[0], s.dim[2], s.dim[1] * s.dim[3]));
}

static weft_tensor *forward(weft_module *self, weft_tensor *x, void *user)
{
    const attention *a = user;
    if (weft_tensor_ndim(x) != 3 || weft_tensor_size(x, 2) != a->width)
        return weft_i_null(WEFT_ERR_INVALID_ARG,
                           "attention: x has %d dimensions; it is [batch, time, %lld]",
                           weft_tensor_ndim(x), (long long)a->width);
    weft_tensor *part[OUT];
    for (int i = 0; i < OUT; i++)
        part[i] = split_heads(a, weft_module_call(self->entries[i].child, x));
    weft_attention_opts opts = WEFT_ATTENTION_OPTS;
    opts.causal = true;
    opts.dropout = self->training ? a->p : 0;
    weft_tensor *seen = join_heads(weft_attention(part[QUERY], part[KEY], part[VALUE], &opts));
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

int weft_i_attention_heads(const weft_module *module)
{
    return ((const attention *)module->user)->heads;
}
