/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2 with Hugging Face's names: wte, wpe, h.0.attn.c_attn ...  The rows of c_attn are ordered by head,
 * and in a head by query, key and value, so that a rank with some of the rows has whole heads.
 */
#ifndef GPT2_MODEL_H
#define GPT2_MODEL_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { PARAMS = 1024 };

typedef struct gpt2 {
    long layers, heads, width, time, symbols;
} gpt2;

static weft_tensor *call(weft_module *self, const char *name, weft_tensor *x)
{
    return weft_module_call(weft_module_child(self, name), x);
}

/* The numbers of the positions of x from `start` (NULL: 0) on. */
static weft_tensor *places(weft_tensor *x, weft_tensor *start)
{
    weft_tensor *at = weft_arange(WEFT_I64, WEFT_CPU, 0, (double)weft_tensor_size(x, 1), 1);
    return start ? weft_add(at, start) : at;
}

/* x; or x, the layer's cache [2, batch, heads, length, size] and a position -> x */
static weft_status block(weft_module *self, weft_tensor *const *in, int ins, weft_tensor **out,
                         int outs, void *user)
{
    (void)ins, (void)outs;
    const gpt2 *g = user;
    int64_t batch = weft_tensor_size(in[0], 0), time = weft_tensor_size(in[0], 1);
    weft_tensor *part[3], *wide = call(self, "attn.c_attn", call(self, "ln_1", in[0]));
    wide = weft_view(wide, WEFT_SHAPE(batch, time, -1, 3, g->width / g->heads));
    for (int i = 0; i < 3; i++) {
        part[i] = weft_transpose(weft_select(wide, 3, i), 1, 2);
        weft_tensor *past = i && in[1] ? weft_select(in[1], 0, i - 1) : NULL;
        if (past && weft_index_copy(past, 2, places(in[0], in[2]),
                                    weft_to_dtype(part[i], weft_tensor_dtype(past))) < 0)
            return weft_last_status();
        part[i] = past ? past : part[i];
    }
    weft_attention_opts opts = WEFT_ATTENTION_OPTS;
    opts.causal = true;
    opts.position = in[2];
    weft_tensor *h = weft_transpose(weft_attention(part[0], part[1], part[2], &opts), 1, 2);
    weft_tensor *x =
        weft_add(in[0], call(self, "attn.c_proj", weft_reshape(h, WEFT_SHAPE(batch, time, -1))));
    h = weft_gelu_tanh(call(self, "mlp.c_fc", call(self, "ln_2", x)));
    out[0] = weft_add(x, call(self, "mlp.c_proj", h));
    return out[0] ? WEFT_OK : weft_last_status();
}

/* Tokens and labels [batch, time] -> loss; tokens, cache and position -> logits (weft/generate.h) */
static weft_status forward(weft_module *self, weft_tensor *const *in, int ins, weft_tensor **out,
                           int outs, void *user)
{
    (void)outs;
    const gpt2 *g = user;
    weft_tensor *cache = ins == 3 ? in[1] : NULL, *position = ins == 3 ? in[2] : NULL;
    weft_tensor *x = weft_add(call(self, "wte", in[0]), call(self, "wpe", places(in[0], position)));
    weft_module *h = weft_module_child(self, "h");
    for (int i = 0; i < g->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        weft_tensor *with[] = {x, cache ? weft_select(cache, 0, i) : NULL, position};
        if (weft_module_call_list(weft_module_child(h, name), &x, 1, with, 3) < 0)
            return weft_last_status();
    }
    x = call(self, "ln_f", cache ? weft_narrow(x, 1, weft_tensor_size(x, 1) - 1, 1) : x);
    weft_tensor *weight = weft_module_param(self, "wte.weight");
    out[0] =
        cache ? weft_linear(x, weight, NULL) : weft_linear_cross_entropy(x, weight, in[1], NULL);
    return out[0] ? WEFT_OK : weft_last_status();
}

static weft_module *new_block(gpt2 *g)
{
    weft_module *self = weft_module_new_list(block, g), *attn = weft_module_new(NULL, NULL),
                *mlp = weft_module_new(NULL, NULL);
    weft_module_add(attn, "c_attn", weft_nn_linear(g->width, 3 * g->width));
    weft_module_add(attn, "c_proj", weft_nn_linear(g->width, g->width));
    weft_module_add(mlp, "c_fc", weft_nn_linear(g->width, 4 * g->width));
    weft_module_add(mlp, "c_proj", weft_nn_linear(4 * g->width, g->width));
    weft_module_add(self, "ln_1", weft_nn_layer_norm(g->width));
    weft_module_add(self, "attn", attn);
    weft_module_add(self, "ln_2", weft_nn_layer_norm(g->width));
    weft_module_add(self, "mlp", mlp);
    return self;
}

static weft_module *new_gpt2(gpt2 *g)
{
    weft_module *net = weft_module_new_list(forward, g), *h = weft_module_new(NULL, NULL);
    weft_named p[PARAMS];
    weft_module_add(net, "wte", weft_nn_embedding(g->symbols, g->width));
    weft_module_add(net, "wpe", weft_nn_embedding(g->time, g->width));
    for (int i = 0; i < g->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        weft_module_add(h, name, new_block(g));
    }
    weft_module_add(net, "h", h);
    weft_module_add(net, "ln_f", weft_nn_layer_norm(g->width));
    for (int i = 0, n = weft_module_params(net, p, PARAMS); i < n; i++) {
        double scale = strstr(p[i].name, "c_proj") ? 0.02 / sqrt(2.0 * (double)g->layers) : 0.02;
        if (weft_tensor_ndim(p[i].tensor) > 1)
            weft_nn_init(p[i].tensor, "normal", scale, (uint64_t)i);
        else if (strstr(p[i].name, "bias"))
            weft_nn_init(p[i].tensor, "constant", 0, 0);
    }
    return weft_last_status() < 0 ? NULL : net;
}

/* ---- files: matrices of linear layers are [in, out] there, c_attn by query, key and value ---- */

/* A tensor of a file as the module has it, or (`out`) the other way. */
static weft_tensor *turn(const gpt2 *g, const char *name, weft_tensor *x, bool out)
{
    bool matrix = strstr(name, ".c_") && weft_tensor_ndim(x) == 2;
    if (matrix && !out)
        x = weft_transpose(x, 0, 1);
    if (strstr(name, ".c_attn.")) {
        x = weft_reshape(x, WEFT_SHAPE(out ? g->heads : 3, out ? 3 : g->heads, g->width / g->heads,
                                       matrix ? g->width : 1));
        x = weft_reshape(weft_transpose(x, 0, 1), WEFT_SHAPE(3 * g->width, matrix ? g->width : 1));
        x = matrix ? x : weft_flatten(x, 0, 1);
    }
    return matrix && out ? weft_transpose(x, 0, 1) : x;
}

/* A tensor by the module's name for it, which may have another name in front. */
static weft_tensor *find(weft_safetensors *file, const char *name)
{
    char longer[WEFT_NAME_MAX + 16];
    snprintf(longer, sizeof longer, "transformer.%.127s", name);
    return weft_safetensors_get(file, weft_safetensors_has(file, longer) ? longer : name);
}

static weft_status read_sizes(gpt2 *g, weft_safetensors *file)
{
    const char *heads = file ? weft_safetensors_metadata(file, "heads") : NULL;
    weft_tensor *wte = file ? find(file, "wte.weight") : NULL,
                *wpe = wte ? find(file, "wpe.weight") : NULL;
    if (!wpe || weft_tensor_ndim(wte) != 2)
        return weft_last_status() < 0 ? weft_last_status() : WEFT_ERR_INVALID_ARG;
    g->symbols = weft_tensor_size(wte, 0);
    g->width = weft_tensor_size(wte, 1);
    g->time = weft_tensor_size(wpe, 0);
    g->heads = heads ? atol(heads) : g->width / 64; /* as all of OpenAI's */
    g->layers = 0;
    for (int i = 0; i < weft_safetensors_count(file); i++) {
        weft_safetensors_entry e;
        weft_safetensors_about(file, i, &e);
        g->layers += strstr(e.name, ".ln_1.weight") != NULL;
    }
    return WEFT_OK;
}

static weft_status read_values(gpt2 *g, weft_module *net, weft_safetensors *file)
{
    weft_named list[PARAMS];
    int n = weft_module_state(net, list, PARAMS);
    for (int i = 0; i < n; i++) {
        weft_tensor *x = find(file, list[i].name);
        if (!(list[i].tensor = x ? turn(g, list[i].name, x, false) : NULL))
            return weft_last_status();
    }
    return weft_module_load(net, list, n);
}

static weft_status write_values(gpt2 *g, weft_module *net, const char *path, weft_dtype dtype)
{
    char heads[16];
    weft_named list[PARAMS];
    weft_safetensors_note note = {"heads", heads};
    int n = weft_module_state(net, list, PARAMS);
    snprintf(heads, sizeof heads, "%ld", g->heads);
    for (int i = 0; i < n; i++)
        list[i].tensor =
            weft_to_dtype(turn(g, list[i].name, weft_detach(list[i].tensor), true), dtype);
    return weft_safetensors_save(path, list, n, &note, 1);
}

#endif
