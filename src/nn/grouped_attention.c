/* SPDX-License-Identifier: Apache-2.0 */
/* Causal self-attention with fewer key heads than query heads, turned by position, with or without a
 * cache of keys and values that the caller owns. */
#include "base/os/os.h"
#include "base/report/opts.h"
#include "nn/layer.h"
#include "weft/nn.h"
#include "weft/op.h"
#include "weft/view.h"

typedef struct grouped {
    int64_t width, head_width;
    int heads, key_heads;
    double base, p;
} grouped;

enum { QUERY, KEY, VALUE, OUT, LAYERS };
enum { X, KEYS, VALUES, POSITION, INPUTS };
static const char *const names[LAYERS] = {"q_proj", "k_proj", "v_proj", "o_proj"};

/* [batch, time, heads * head width] -> [batch, heads, time, head width], a view */
static weft_tensor *split_heads(weft_tensor *x, const grouped *g, int heads)
{
    return weft_transpose(weft_view(x, WEFT_SHAPE(weft_tensor_size(x, 0), weft_tensor_size(x, 1),
                                                  heads, g->head_width)),
                          1, 2);
}

static weft_tensor *project(weft_module *self, int layer, weft_tensor *x, weft_tensor *positions)
{
    const grouped *g = self->user;
    weft_tensor *wide = weft_module_call(self->entries[layer].child, x);
    if (!wide)
        return NULL;
    weft_tensor *heads = split_heads(wide, g, layer == QUERY ? g->heads : g->key_heads);
    return g->base > 0 && layer != VALUE ? weft_rotary(heads, positions, g->base) : heads;
}

static weft_status check_inputs(const grouped *g, weft_tensor *const *in, int ins, int outs)
{
    if ((ins != 1 && ins != INPUTS) || outs != 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "grouped_attention: %d inputs and %d results; it takes x, or x, keys, "
                           "values and position, and gives one",
                           ins, outs);
    for (int i = 0; i < ins; i++)
        if (!in[i])
            return weft_i_missing("grouped_attention: input %d is NULL", i);
    if (weft_tensor_ndim(in[X]) == 3 && weft_tensor_size(in[X], 2) == g->width)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "grouped_attention: x has %d dimensions; it is [batch, time, %lld]",
                       weft_tensor_ndim(in[X]), (long long)g->width);
}

/* The new keys or values go to their positions in the cache, which stands for them then. */
static weft_tensor *remember(weft_tensor *cache, weft_tensor *positions, weft_tensor *fresh)
{
    weft_tensor *plain = weft_to_dtype(weft_detach(fresh), weft_tensor_dtype(cache));
    weft_status status = WEFT_OK;
    WEFT_NO_GRAD
    {
        status = weft_index_copy(cache, 2, positions, plain);
    }
    return status < 0 ? NULL : cache;
}

static weft_status forward(weft_module *self, weft_tensor *const *in, int ins, weft_tensor **out,
                           int outs, void *user)
{
    const grouped *g = user;
    weft_tensor *positions = NULL, *part[OUT];
    WEFT_TRY(check_inputs(g, in, ins, outs));
    int64_t batch = weft_tensor_size(in[X], 0), time = weft_tensor_size(in[X], 1);
    weft_device device = weft_tensor_device(in[X]);
    if (ins == INPUTS &&
        !(positions = weft_add(weft_arange(WEFT_I64, device, 0, (double)time, 1), in[POSITION])))
        return weft_last_status();
    for (int i = 0; i < OUT; i++)
        if (!(part[i] = project(self, i, in[X], positions)))
            return weft_last_status();
    for (int i = KEY; i <= VALUE && positions; i++)
        if (!(part[i] = remember(in[i == KEY ? KEYS : VALUES], positions, part[i])))
            return weft_last_status();
    weft_attention_opts opts = WEFT_ATTENTION_OPTS;
    opts.causal = true;
    opts.dropout = self->training ? g->p : 0;
    opts.position = positions ? in[POSITION] : NULL;
    weft_tensor *heads = weft_attention(part[QUERY], part[KEY], part[VALUE], &opts);
    weft_tensor *joined = heads ? weft_reshape(weft_transpose(heads, 1, 2),
                                               WEFT_SHAPE(batch, time, g->heads * g->head_width))
                                : NULL;
    out[0] = joined ? weft_module_call(self->entries[OUT].child, joined) : NULL;
    return out[0] ? WEFT_OK : weft_last_status();
}

static weft_status add_layers(weft_module *module, const grouped *g, bool bias)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < LAYERS && status >= 0; i++) {
        int64_t heads = (i == QUERY || i == OUT ? g->heads : g->key_heads) * g->head_width;
        int64_t from = i == OUT ? heads : g->width, to = i == OUT ? g->width : heads;
        weft_module *layer =
            bias && i != OUT ? weft_nn_linear(from, to) : weft_nn_linear_plain(from, to);
        status = weft_module_add(module, names[i], layer);
        weft_release(layer);
    }
    return status;
}

static weft_status check(int64_t width, int heads, int key_heads,
                         const weft_nn_attention_opts *opts)
{
    bool good = width > 0 && heads > 0 && key_heads > 0 && heads % key_heads == 0 &&
                (opts->head_width > 0 || (opts->head_width == 0 && width % heads == 0)) &&
                opts->dropout >= 0 && opts->dropout <= 1 && (opts->rotary == 0 || opts->rotary > 1);
    int64_t head_width = opts->head_width ? opts->head_width : width / (heads ? heads : 1);
    if (good && (opts->rotary == 0 || head_width % 2 == 0))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "weft_nn_grouped_attention: %lld features, %d heads, %d key heads, heads of "
                       "%lld, rotary base %g, dropout %g; key heads divide heads, heads the "
                       "features if their width is not given, and positions turn an even width",
                       (long long)width, heads, key_heads, (long long)opts->head_width,
                       opts->rotary, opts->dropout);
}

weft_module *weft_nn_grouped_attention(int64_t width, int heads, int key_heads,
                                       const weft_nn_attention_opts *given)
{
    weft_nn_attention_opts opts = WEFT_NN_ATTENTION_OPTS;
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_nn_grouped_attention") < 0 ||
        check(width, heads, key_heads, &opts) < 0)
        return NULL;
    grouped *g = WEFT_OS->alloc(sizeof *g);
    if (!g)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_nn_grouped_attention: no memory");
    *g = (grouped){width,       opts.head_width ? opts.head_width : width / heads,
                   heads,       key_heads,
                   opts.rotary, opts.dropout};
    weft_module *module = weft_i_module_new_kind_list("grouped_attention", forward, g);
    weft_status status = module ? add_layers(module, g, opts.bias) : weft_last_status();
    return weft_i_layer_made(module, status);
}
