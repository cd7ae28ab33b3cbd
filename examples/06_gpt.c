/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small GPT that learns a text by heart, character by character, and then writes it down.
 * 06_gpt.py is the same in PyTorch.  Run: 06_gpt, or "06_gpt 20" for the losses of 20 steps, or
 * "06_gpt 20 cuda" for those of the same steps on a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { LAYERS = 2, WIDTH = 64, HEADS = 4, TIME = 32, BATCH = 8, STEPS = 200, SYMBOLS = 28 };
enum { PARAMS = 64 }; /* room for those of the model */

static const char text[] =
    "tyger tyger burning bright. in the forests of the night. what immortal hand or eye. could "
    "frame thy fearful symmetry. in what distant deeps or skies. burnt the fire of thine eyes. on "
    "what wings dare he aspire. what the hand dare seize the fire. ";

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

/* Symbols [batch, time] -> logits of what follows each [batch, time, SYMBOLS]. */
static weft_tensor *gpt(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    weft_device here = weft_tensor_device(x);
    weft_tensor *place = weft_arange(WEFT_I64, here, 0, (double)weft_tensor_size(x, 1), 1);
    weft_tensor *h = weft_add(weft_module_call(weft_module_child(self, "symbol"), x),
                              weft_module_call(weft_module_child(self, "place"), place));
    return weft_module_call(weft_module_child(self, "body"), h);
}

static weft_module *new_gpt(void)
{
    weft_module *module = weft_module_new(gpt, NULL);
    weft_module_add(module, "symbol", weft_nn_embedding(SYMBOLS, WIDTH));
    weft_module_add(module, "place", weft_nn_embedding(TIME, WIDTH));
    weft_module_add(module, "body",
                    weft_nn_sequential(new_block(), new_block(), weft_nn_layer_norm(WIDTH),
                                       weft_nn_linear(WIDTH, SYMBOLS)));
    return module;
}

static int64_t symbol(char c)
{
    return c == ' ' ? 26 : c == '.' ? 27 : c - 'a';
}

/* BATCH pieces of TIME + 1 symbols, from places drawn at random. */
static weft_tensor *draw_batch(void)
{
    int64_t pieces[BATCH][TIME + 1];
    int64_t last = (int64_t)strlen(text) - TIME;
    weft_tensor *start = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(BATCH), 0, last);
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t <= TIME; t++)
            pieces[b][t] = symbol(text[weft_item_int(start, b) + t]);
    return weft_tensor_from(WEFT_I64, WEFT_SHAPE(BATCH, TIME + 1), pieces);
}

/* Goes on from the first TIME / 2 characters of the text, always with the likeliest. */
static void write_down(weft_module *net)
{
    int64_t window[TIME];
    int n = TIME / 2;
    for (int t = 0; t < n; t++)
        window[t] = symbol(text[t]);
    printf("%.*s|", n, text);
    for (int i = 0; i < 60; i++) {
        weft_scope_open();
        weft_tensor *logits =
            weft_module_call(net, weft_tensor_from(WEFT_I64, WEFT_SHAPE(1, n), window));
        int64_t next = weft_item_int(weft_argmax(weft_select(logits, 1, -1), -1, false), 0);
        putchar("abcdefghijklmnopqrstuvwxyz ."[next]);
        if (n == TIME)
            memmove(window, window + 1, (TIME - 1) * sizeof *window);
        n -= n == TIME;
        window[n++] = next;
        weft_scope_close();
    }
    putchar('\n');
}

/* Matrices decay; biases and the numbers of norms do not. */
static weft_optim *new_optim(const weft_named *params, int count)
{
    weft_named wide[PARAMS], flat[PARAMS];
    int w = 0, f = 0;
    for (int i = 0; i < count; i++)
        if (weft_tensor_ndim(params[i].tensor) > 1)
            wide[w++] = params[i];
        else
            flat[f++] = params[i];
    weft_adamw_opts no_decay = WEFT_ADAMW_OPTS_INIT;
    no_decay.decay = 0;
    weft_optim *adam = weft_optim_adamw_of(wide, w, 6e-3, NULL);
    weft_optim_adamw_add(adam, flat, f, 6e-3, &no_decay);
    return adam;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : STEPS + 1;
    weft_device where = argc > 2 && !strcmp(argv[2], "cuda") ? WEFT_CUDA(0) : WEFT_CPU;
    weft_seed(42);
    weft_module *net = new_gpt(); /* its numbers are drawn on the CPU: the same wherever it runs */
    if (weft_module_to(net, where) < 0)
        return fprintf(stderr, "%s\n", weft_last_error()), 1;
    weft_named params[PARAMS];
    int count = weft_module_params(net, params, PARAMS);
    weft_optim *adam = new_optim(params, count);
    for (int step = 0; step < steps; step++) {
        weft_scope_open();
        weft_tensor *batch = weft_to(draw_batch(), WEFT_I64, where);
        weft_tensor *logits = weft_module_call(net, weft_narrow(batch, 1, 0, TIME));
        weft_tensor *loss = weft_cross_entropy(logits, weft_narrow(batch, 1, 1, TIME));
        weft_backward(loss);
        weft_clip_grad_norm(params, count, 1, NULL, NULL);
        weft_optim_set_rate(adam, weft_rate_cosine(step, 10, STEPS, 6e-3, 6e-4));
        weft_optim_step(adam);
        if (argc > 1)
            printf("step %d: loss %.7f\n", step, weft_item(loss, 0));
        else if (step % 20 == 0)
            printf("step %d: loss %.3f\n", step, weft_item(loss, 0));
        weft_scope_close();
    }
    WEFT_NO_GRAD
    {
        if (argc == 1)
            write_down(net);
    }
    if (weft_last_status() < 0)
        fprintf(stderr, "%s\n", weft_last_error());
    return weft_last_status() < 0;
}
