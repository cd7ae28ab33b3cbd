/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a GPT-2 (forward, backward, AdamW) of a size that --model chooses, on all threads of this rank:
 * eagerly, compiled, and in PyTorch where Python has it (bench/peers/torch_model.py).  They take turns, round
 * after round, so that what else the machine does meets all of them.  A step's floor is its matrix
 * products at the rate of this machine's best product.  Then one compiled step under a profile.
 */
#include "bench.h"
#include "bench_options.h"
#include "bench_tree.h"

#include <weft/weft.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, STEPS = 3, MOST = ROUNDS * STEPS, SYMBOLS = 50304, HEAD = 64, LAYERS_MOST = 96 };
static const double MIDDLE = 0.5;
enum { EAGER, COMPILED, WAYS };

typedef struct model {
    bench_model size;
    weft_dtype dtype; /* of products; what is trained is f32 */
    weft_module *net;
    weft_tensor *in, *labels;
} model;

typedef struct way {
    model m;
    weft_optim *adam;
    weft_compiled *fast; /* NULL: eagerly */
    double ms[MOST], loss;
    int count;
} way;

/* ---- the network ---- */

static weft_tensor *block(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    x = weft_add(x, weft_module_call(weft_module_child(self, "attention"), x));
    return weft_add(x, weft_module_call(weft_module_child(self, "mlp"), x));
}

static weft_module *new_block(int width)
{
    weft_module *module = weft_module_new(block, NULL);
    weft_module_add(
        module, "attention",
        weft_nn_sequential(weft_nn_layer_norm(width), weft_nn_attention(width, width / HEAD, 0)));
    weft_module_add(module, "mlp",
                    weft_nn_sequential(weft_nn_layer_norm(width), weft_nn_linear(width, 4 * width),
                                       weft_nn_op(weft_gelu), weft_nn_linear(4 * width, width)));
    return module;
}

/* Tokens and positions, blocks, a normalisation; the weight of the tokens is that of the loss, too. */
static weft_tensor *hidden(weft_module *self, weft_tensor *tokens, void *user)
{
    (void)user;
    weft_tensor *x = weft_add(weft_module_call(weft_module_child(self, "tokens"), tokens),
                              weft_module_param(self, "positions"));
    return weft_module_call(weft_module_child(self, "blocks"), x);
}

static weft_module *new_net(const bench_model *size)
{
    weft_module *parts[LAYERS_MOST + 1], *net = weft_module_new(hidden, NULL);
    for (int i = 0; i < size->layers; i++)
        parts[i] = new_block(size->width);
    parts[size->layers] = weft_nn_layer_norm(size->width);
    weft_module_add(net, "tokens", weft_nn_embedding(SYMBOLS, size->width));
    weft_module_add(net, "blocks", weft_nn_sequential_of(parts, size->layers + 1));
    weft_tensor *at =
        weft_mul_scalar(weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(size->time, size->width)), 0.02);
    weft_module_add_param(net, "positions", weft_parameter(at, true));
    return net;
}

static weft_status loss_of(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    const model *m = user;
    (void)ins, (void)outs;
    weft_tensor *x = weft_module_call(m->net, in[0]);
    out[0] = weft_linear_cross_entropy(weft_reshape(x, WEFT_SHAPE(-1, m->size.width)),
                                       weft_module_param(m->net, "tokens.weight"),
                                       weft_reshape(in[1], WEFT_SHAPE(-1)), NULL);
    return WEFT_OK;
}

static weft_status loss_in_dtype(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                                 void *user)
{
    const model *m = user;
    weft_status status = WEFT_OK;
    if (m->dtype == WEFT_F32)
        return loss_of(in, ins, out, outs, user);
    WEFT_AUTOCAST(m->dtype)
    {
        status = loss_of(in, ins, out, outs, user);
    }
    return status;
}

/* ---- steps ---- */

static int make_way(way *w, const bench_model *size, weft_dtype dtype, int compiled)
{
    weft_seed(1);
    w->m = (model){.size = *size, .dtype = dtype, .net = new_net(size)};
    w->m.in = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(size->batch, size->time), 0, SYMBOLS);
    w->m.labels = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(size->batch, size->time), 0, SYMBOLS);
    w->adam = weft_optim_adamw(w->m.net, 1e-4, NULL);
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = true;
    w->fast = compiled ? weft_compile(loss_in_dtype, &w->m, &opts) : NULL;
    return w->adam && w->m.labels && (w->fast || !compiled) ? 0 : -1;
}

static int step(way *w)
{
    weft_tensor *loss = NULL, *in[2] = {w->m.in, w->m.labels};
    if (weft_scope_open() < 0)
        return -1;
    weft_status status = w->fast ? weft_compiled_call(w->fast, in, 2, &loss, 1)
                                 : loss_in_dtype(in, 2, &loss, 1, &w->m);
    int failed = status < 0 || weft_backward(loss) < 0 || weft_optim_step(w->adam) < 0;
    w->loss = failed ? 0 : weft_item(loss, 0);
    weft_scope_close();
    return failed ? -1 : 0;
}

static int take_turn(way *w)
{
    for (int i = 0; i < STEPS; i++) {
        int64_t start = bench_ns();
        if (step(w) < 0)
            return -1;
        w->ms[w->count++] = (double)(bench_ns() - start) * 1e-6;
    }
    return 0;
}

/* ---- beside them ---- */

/* Operations of a step's products: two for each weight and token forward, four backward; the same for the
 * scores of attention and what they weigh, half of them masked. */
static double flops_of(const bench_model *size)
{
    double tokens = (double)size->batch * size->time, width = size->width;
    double weights = 12.0 * size->layers * width * width + SYMBOLS * width;
    return 6 * tokens * weights + 6 * tokens * size->layers * width * size->time;
}

/* Operations a second that a large product reaches here, in the dtype and on all threads. */
static double best_rate(weft_dtype dtype)
{
    enum { N = 1024, TIMES = 5 };
    double best = 0;
    weft_tensor *a = weft_to_dtype(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(N, N)), dtype),
                *out = weft_empty_like(a);
    for (int i = 0; i < TIMES; i++) {
        int64_t start = bench_ns();
        if (weft_mm_into(out, a, a) < 0)
            return 0;
        double rate = 2.0 * N * N * N / (double)(bench_ns() - start) * 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Milliseconds of a step in PyTorch, eagerly and compiled; 0: there are none. */
static void ask_torch(const bench_model *size, weft_dtype dtype, double ms[WAYS])
{
    char line[128];
    FILE *from;
    snprintf(line, sizeof line, "%dx%dx%dx%d", size->layers, size->width, size->batch, size->time);
    if (setenv("WEFT_BENCH_MODEL", line, 1) ||
        setenv("WEFT_BENCH_DTYPE", weft_dtype_name(dtype), 1) ||
        !(from = bench_tree_python("torch_model.py", 1200)))
        return;
    for (int w = 0; w < WAYS && fgets(line, sizeof line, from); w++)
        ms[w] = strtod(line, NULL);
    pclose(from);
}

static int show_profile(way *w)
{
    weft_profile *profile = weft_profile_open(NULL);
    int failed = step(w) < 0 || weft_profile_close(profile) < 0;
    printf("\n");
    return failed || weft_profile_print(profile, stdout) < 0 ? -1 : 0;
}

static void put_rows(bench_style *style, way *ways, double torch[WAYS][MOST], int turns,
                     double floor)
{
    static const char *const names[WAYS] = {"model step, eager", "model step, compiled"};
    static const char *const others[WAYS] = {"  in PyTorch", "  in PyTorch, compiled"};
    for (int w = 0; w < WAYS; w++) {
        bench_row(style, names[w], 1, "ms", bench_quantile(ways[w].ms, ways[w].count, MIDDLE),
                  floor);
        double ms = bench_quantile(torch[w], turns, MIDDLE);
        if (ms > 0)
            bench_row(style, others[w], 1, "ms", ms, floor);
    }
}

static int measure(bench_style *style, const bench_model *size, weft_dtype dtype)
{
    way *ways = calloc(WAYS, sizeof *ways);
    double torch[WAYS][MOST] = {{0}}, rate = best_rate(dtype);
    int turns = bench_turns(style, ROUNDS), failed = !ways || rate <= 0;
    for (int w = 0; !failed && w < WAYS; w++)
        failed = make_way(&ways[w], size, dtype, w == COMPILED) || step(&ways[w]);
    for (int turn = 0; !failed && turn < turns; turn++) {
        double ms[WAYS] = {0};
        for (int w = 0; !failed && w < WAYS; w++)
            failed = take_turn(&ways[w]);
        ask_torch(size, dtype, ms);
        for (int w = 0; w < WAYS; w++)
            torch[w][turn] = ms[w];
    }
    if (!failed && dtype == WEFT_F32 && ways[EAGER].loss != ways[COMPILED].loss) {
        fprintf(stderr, "weft bench model: the loss is %.9g compiled, and %.9g eagerly\n",
                ways[COMPILED].loss, ways[EAGER].loss);
        failed = 1;
    }
    if (!failed)
        put_rows(style, ways, torch, turns, flops_of(size) / rate * 1e3);
    if (!failed && !style->is_json)
        failed = show_profile(&ways[COMPILED]);
    free(ways);
    return failed ? -1 : 0;
}

int bench_model_run(bench_style *style)
{
    const bench_options *o = style->options;
    bench_model size = o->model.layers ? o->model : (bench_model){4, 256, 4, 64};
    weft_dtype dtype = o->typed ? (weft_dtype)o->dtype : WEFT_F32;
    if (size.layers > LAYERS_MOST || size.width % HEAD ||
        (dtype != WEFT_F32 && dtype != WEFT_BF16 && dtype != WEFT_F16)) {
        fprintf(stderr,
                "weft bench model: at most %d layers, a width that is a multiple of %d, and "
                "f32, bf16 or f16\n",
                LAYERS_MOST, HEAD);
        return 1;
    }
    weft_scope_open();
    int failed = measure(style, &size, dtype);
    if (failed && weft_last_status() < 0)
        fprintf(stderr, "weft bench model: %s\n", weft_last_error());
    weft_scope_close();
    return failed ? 1 : 0;
}
