/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT over several ranks; see bench_shard.h. */
#include "bench_shard.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 256, HEADS = 8, TIME = 64, BATCH = 4, SYMBOLS = 64, HEAD = WIDTH / HEADS };
enum { PARAMS = 16 * BENCH_SHARD_LAYERS };

/* ---- forward ---- */

static weft_tensor *call(weft_module *self, const char *child, weft_tensor *x)
{
    return weft_module_call(weft_module_child(self, child), x);
}

/* [batch, time, part] -> [batch * heads, time, head]; a rank has as many heads as its part holds. */
static weft_tensor *split_heads(weft_tensor *x)
{
    int64_t heads = weft_tensor_size(x, 2) / HEAD;
    weft_tensor *apart = weft_view(x, WEFT_SHAPE(BATCH, TIME, heads, HEAD));
    return weft_reshape(weft_transpose(apart, 1, 2), WEFT_SHAPE(BATCH * heads, TIME, HEAD));
}

static weft_tensor *join_heads(weft_tensor *x)
{
    int64_t heads = weft_tensor_size(x, 0) / BATCH;
    weft_tensor *apart = weft_view(x, WEFT_SHAPE(BATCH, heads, TIME, HEAD));
    return weft_reshape(weft_transpose(apart, 1, 2), WEFT_SHAPE(BATCH, TIME, heads * HEAD));
}

/* What is added to the scores: minus infinity where the key is later than the query. */
static weft_tensor *mask(void)
{
    weft_tensor *at = weft_arange(WEFT_I64, WEFT_CPU, 0, TIME, 1);
    weft_tensor *later =
        weft_gt(weft_view(at, WEFT_SHAPE(1, TIME)), weft_view(at, WEFT_SHAPE(TIME, 1)));
    return weft_where(later, weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, -INFINITY),
                      weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SCALAR));
}

/* This rank's heads, or hidden units; the ranks' results are added up. */
static weft_tensor *attend(weft_module *self, weft_tensor *x)
{
    weft_tensor *query = split_heads(call(self, "query", x)),
                *key = split_heads(call(self, "key", x));
    weft_tensor *value = split_heads(call(self, "value", x));
    weft_tensor *scores =
        weft_bmm(weft_mul_scalar(query, 1 / sqrt(HEAD)), weft_transpose(key, 1, 2));
    weft_tensor *seen = weft_bmm(weft_softmax(weft_add(scores, mask()), -1), value);
    return call(self, "out", join_heads(seen));
}

static weft_tensor *block(weft_module *self, weft_tensor *x, void *user)
{
    const bench_shard *s = user;
    weft_tensor *part = attend(self, call(self, "norm1", x));
    x = weft_add(x, weft_all_reduce(part, WEFT_SUM, s->world));
    part = call(self, "down", weft_gelu(call(self, "up", call(self, "norm2", x))));
    return weft_add(x, weft_all_reduce(part, WEFT_SUM, s->world));
}

static weft_status loss_of(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    const bench_shard *s = user;
    (void)ins, (void)outs;
    weft_tensor *loss = weft_cross_entropy(weft_module_call(s->net, in[0]), in[1]);
    out[0] = weft_div_scalar(loss, weft_size(s->world));
    return WEFT_OK;
}

/* ---- the network ---- */

static weft_module *new_block(bench_shard *s)
{
    int part = WIDTH / weft_size(s->world);
    weft_module *module = weft_module_new(block, s);
    weft_module_add(module, "norm1", weft_nn_layer_norm(WIDTH));
    weft_module_add(module, "query", weft_nn_linear_plain(WIDTH, part));
    weft_module_add(module, "key", weft_nn_linear_plain(WIDTH, part));
    weft_module_add(module, "value", weft_nn_linear_plain(WIDTH, part));
    weft_module_add(module, "out", weft_nn_linear_plain(part, WIDTH));
    weft_module_add(module, "norm2", weft_nn_layer_norm(WIDTH));
    weft_module_add(module, "up", weft_nn_linear_plain(WIDTH, 4 * part));
    weft_module_add(module, "down", weft_nn_linear_plain(4 * part, WIDTH));
    return module;
}

/* The dimension over which a weight is cut; -1: all ranks have it. */
static int cut_dim(const char *name)
{
    static const struct {
        const char *part;
        int dim;
    } cuts[] = {{".query.", 0}, {".key.", 0}, {".value.", 0},
                {".up.", 0},    {".out.", 1}, {".down.", 1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (strstr(name, cuts[i].part))
            return cuts[i].dim;
    return -1;
}

/* All ranks draw the whole and take their part.  Norms stay as they begin. */
static weft_status fill(const bench_shard *s, const weft_named *named)
{
    int dim = cut_dim(named->name), ranks = weft_size(s->world), rank = weft_rank(s->world);
    if (weft_tensor_ndim(named->tensor) < 2)
        return WEFT_OK;
    int64_t sizes[2] = {weft_tensor_size(named->tensor, 0), weft_tensor_size(named->tensor, 1)};
    int64_t own = dim < 0 ? 0 : sizes[dim];
    if (dim >= 0)
        sizes[dim] *= ranks;
    weft_tensor *whole =
        weft_mul_scalar(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(sizes[0], sizes[1])), 0.05);
    return weft_copy(named->tensor, dim < 0 ? whole : weft_narrow(whole, dim, rank * own, own));
}

int bench_shard_make(bench_shard *s)
{
    weft_module *parts[BENCH_SHARD_LAYERS + 3] = {weft_nn_embedding(SYMBOLS, WIDTH)};
    weft_named named[PARAMS];
    weft_status status = WEFT_OK;
    if (weft_size(s->world) < 1 || HEADS % weft_size(s->world))
        return -1;
    for (int i = 0; i < BENCH_SHARD_LAYERS; i++)
        parts[i + 1] = new_block(s);
    parts[BENCH_SHARD_LAYERS + 1] = weft_nn_layer_norm(WIDTH);
    parts[BENCH_SHARD_LAYERS + 2] = weft_nn_linear_plain(WIDTH, SYMBOLS);
    s->fast = NULL;
    s->net = weft_nn_sequential_of(parts, BENCH_SHARD_LAYERS + 3);
    s->adam = weft_optim_adamw(s->net, 1e-4, NULL);
    weft_seed(7);
    int count = weft_module_params(s->net, named, PARAMS);
    WEFT_NO_GRAD
    {
        for (int i = 0; i < count && status >= 0; i++)
            status = fill(s, &named[i]);
    }
    s->in = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(BATCH, TIME), 0, SYMBOLS);
    s->out = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(BATCH, TIME), 0, SYMBOLS);
    return s->adam && s->out && count > 0 && count <= PARAMS && status >= 0 ? 0 : -1;
}

int bench_shard_compile(bench_shard *s)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = opts.agree = true;
    s->fast = weft_compile(loss_of, s, &opts);
    return s->fast ? 0 : -1;
}

/* ---- a step ---- */

/* What all ranks have got only its own rank's part of the gradient. */
static weft_status share_gradients(const bench_shard *s)
{
    weft_named named[PARAMS];
    weft_tensor *grads[PARAMS];
    int shared = 0, count = weft_module_params(s->net, named, PARAMS);
    for (int i = 0; i < count && i < PARAMS; i++)
        if (cut_dim(named[i].name) < 0 && !(grads[shared++] = weft_grad(named[i].tensor)))
            return weft_last_status();
    return weft_all_reduce_coalesced_(grads, shared, WEFT_SUM, s->world);
}

int bench_shard_step(bench_shard *s, double *loss)
{
    weft_tensor *const in[2] = {s->in, s->out};
    weft_tensor *out = NULL;
    if (weft_scope_open() < 0)
        return -1;
    weft_status status =
        s->fast ? weft_compiled_call(s->fast, in, 2, &out, 1) : loss_of(in, 2, &out, 1, s);
    int failed = status < 0 || !out || weft_backward(out) < 0 || share_gradients(s) < 0 ||
                 weft_optim_step(s->adam) < 0;
    *loss = failed ? 0 : weft_item(out, 0) * weft_size(s->world);
    weft_scope_close();
    return failed ? -1 : 0;
}
