/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT that bench train and bench compile step; see bench_gpt.h. */
#include "bench_gpt.h"

enum { LAYERS = 4, WIDTH = 256, HEADS = 8, TIME = 64, BATCH = 4, SYMBOLS = 64 };
enum { TOKENS = BATCH * TIME, HEAD = WIDTH / HEADS };

/* -- the network -- */

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

int bench_gpt_make(bench_gpt *n)
{
    weft_module *parts[LAYERS + 3] = {weft_nn_embedding(SYMBOLS, WIDTH)};
    for (int i = 0; i < LAYERS; i++)
        parts[i + 1] = new_block();
    parts[LAYERS + 1] = weft_nn_layer_norm(WIDTH);
    parts[LAYERS + 2] = weft_nn_linear(WIDTH, SYMBOLS);
    n->fast = NULL;
    n->net = weft_nn_sequential_of(parts, LAYERS + 3);
    n->adam = weft_optim_adamw(n->net, 1e-4, NULL);
    n->in = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(BATCH, TIME), 0, SYMBOLS);
    n->out = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(BATCH, TIME), 0, SYMBOLS);
    return n->adam && n->out ? 0 : -1;
}

static weft_status loss_of(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs;
    out[0] = weft_cross_entropy(weft_module_call(user, in[0]), in[1]);
    return WEFT_OK;
}

int bench_gpt_compile(bench_gpt *n)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = true;
    n->fast = weft_compile(loss_of, n->net, &opts);
    return n->fast ? 0 : -1;
}

int bench_gpt_step(const bench_gpt *n)
{
    weft_tensor *const in[2] = {n->in, n->out};
    weft_tensor *loss = NULL;
    if (weft_scope_open() < 0)
        return -1;
    weft_status status =
        n->fast ? weft_compiled_call(n->fast, in, 2, &loss, 1) : loss_of(in, 2, &loss, 1, n->net);
    int failed = status < 0 || !loss || weft_backward(loss) < 0 || weft_optim_step(n->adam) < 0;
    weft_scope_close();
    return failed ? -1 : 0;
}

/* -- its products -- */

/* Forward, and both gradients: the same work in three shapes. */
static const bench_product forward_products[] = {
    {1, TOKENS, WIDTH, WIDTH, 4 * LAYERS, NULL, NULL, NULL},
    {1, TOKENS, WIDTH, 4 * WIDTH, LAYERS, NULL, NULL, NULL},
    {1, TOKENS, 4 * WIDTH, WIDTH, LAYERS, NULL, NULL, NULL},
    {BATCH * HEADS, TIME, HEAD, TIME, LAYERS, NULL, NULL, NULL},
    {BATCH * HEADS, TIME, TIME, HEAD, LAYERS, NULL, NULL, NULL},
    {1, TOKENS, WIDTH, SYMBOLS, 1, NULL, NULL, NULL},
};
_Static_assert(3 * (sizeof forward_products / sizeof *forward_products) == BENCH_GPT_PRODUCTS,
               "room for all products");

int bench_gpt_make_products(bench_product *out)
{
    for (int i = 0; i < BENCH_GPT_PRODUCTS; i++) {
        bench_product p = forward_products[i / 3];
        int m = p.m, k = p.k, n = p.n;
        if (i % 3 == 1) /* of the left operand: [m, n] by [n, k] */
            p.k = n, p.n = k;
        if (i % 3 == 2) /* of the right one: [k, m] by [m, n] */
            p.m = k, p.k = m;
        p.a = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(p.batch, p.m, p.k));
        p.b = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(p.batch, p.k, p.n));
        p.out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(p.batch, p.m, p.n));
        if (!p.a || !p.b || !p.out)
            return -1;
        out[i] = p;
    }
    return 0;
}

int bench_gpt_multiply(const bench_product *products)
{
    for (int i = 0; i < BENCH_GPT_PRODUCTS; i++)
        for (int k = 0; k < products[i].times; k++)
            if (weft_bmm_into(products[i].out, products[i].a, products[i].b) < 0)
                return -1;
    return 0;
}

/* -- its bytes -- */

int bench_gpt_make_moved(const bench_gpt *n, bench_moved *out)
{
    enum { ROOM = 256, PASSES = 4 + 3 };
    weft_named named[ROOM];
    int count = weft_module_params(n->net, named, ROOM);
    int64_t elements = 0;
    if (count < 0 || count > ROOM)
        return -1;
    for (int i = 0; i < count; i++)
        elements += weft_tensor_numel(named[i].tensor);
    weft_shape shape = WEFT_SHAPE(elements * PASSES / 2); /* a copy reads as much as it writes */
    out->from = weft_rand(WEFT_F32, WEFT_CPU, shape);
    out->to = weft_zeros(WEFT_F32, WEFT_CPU, shape);
    return out->from && out->to ? 0 : -1;
}

int bench_gpt_move(const bench_moved *moved)
{
    return weft_copy(moved->to, moved->from) < 0 ? -1 : 0;
}
