/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/generate.c, nn/sample.c, parallel/quantize_layers.c */
/* Tokens drawn from logits, and a small GPT-2 that writes what plain loops write: whole, cut over ranks,
 * with weights of 8 and 4 bits. */
#include "harness_ranks.h"
#include "plain_gpt.h"

#include <weft/weft.h>

/* ---- the model: GPT-2, its attention's rows by heads, so that they can be cut over ranks ---- */

enum { LAYERS = 2, WIDTH = 64, HEADS = 4, TIME = 48, SYMBOLS = 61, SIZE = WIDTH / HEADS };

/* x, cache of a layer [2, batch, heads, time, size], position */
static weft_status attend(weft_module *self, weft_tensor *const *in, int ins, weft_tensor **out,
                          int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    weft_tensor *wide = weft_module_call(weft_module_child(self, "c_attn"), in[0]), *part[3];
    int64_t batch = weft_tensor_size(wide, 0), time = weft_tensor_size(wide, 1);
    int64_t heads = weft_tensor_size(wide, 2) / (3 * SIZE);
    weft_tensor *split = weft_view(wide, WEFT_SHAPE(batch, time, heads, 3, SIZE));
    weft_tensor *places = weft_add(weft_arange(WEFT_I64, WEFT_CPU, 0, (double)time, 1), in[2]);
    for (int i = 0; i < 3; i++)
        part[i] = weft_transpose(weft_select(split, 3, i), 1, 2);
    for (int i = 1; i < 3; i++) {
        weft_tensor *past = weft_select(in[1], 0, i - 1);
        if (weft_index_copy(past, 2, places, part[i]) < 0)
            return weft_last_status();
        part[i] = past;
    }
    weft_attention_opts opts = WEFT_ATTENTION_OPTS;
    opts.causal = true;
    opts.position = in[2];
    weft_tensor *seen = weft_attention(part[0], part[1], part[2], &opts);
    out[0] = weft_module_call(
        weft_module_child(self, "c_proj"),
        weft_reshape(weft_transpose(seen, 1, 2), WEFT_SHAPE(batch, time, heads * SIZE)));
    return out[0] ? WEFT_OK : weft_last_status();
}

static weft_tensor *call(weft_module *self, const char *name, weft_tensor *x)
{
    return weft_module_call(weft_module_child(self, name), x);
}

/* tokens, cache [layers, ...], position */
static weft_status gpt(weft_module *self, weft_tensor *const *in, int ins, weft_tensor **out,
                       int outs, void *user)
{
    (void)ins, (void)outs, (void)user;
    char name[16];
    weft_tensor *places =
        weft_add(weft_arange(WEFT_I64, WEFT_CPU, 0, (double)weft_tensor_size(in[0], 1), 1), in[2]);
    weft_tensor *x = weft_add(call(self, "wte", in[0]), call(self, "wpe", places));
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "h%d", i);
        weft_module *block = weft_module_child(self, name);
        weft_tensor *h, *with[] = {call(block, "ln_1", x), weft_select(in[1], 0, i), in[2]};
        if (weft_module_call_list(weft_module_child(block, "attn"), &h, 1, with, 3) < 0)
            return weft_last_status();
        x = weft_add(x, h);
        h = weft_gelu_tanh(call(block, "c_fc", call(block, "ln_2", x)));
        x = weft_add(x, call(block, "c_proj", h));
    }
    out[0] = weft_linear(call(self, "ln_f", x), weft_module_param(self, "wte.weight"), NULL);
    return out[0] ? WEFT_OK : weft_last_status();
}

static weft_module *new_gpt(void)
{
    char name[16];
    weft_named list[64];
    weft_module *net = weft_module_new_list(gpt, NULL);
    weft_seed(11);
    CHECK_OK(weft_module_add(net, "wte", weft_nn_embedding(SYMBOLS, WIDTH)));
    CHECK_OK(weft_module_add(net, "wpe", weft_nn_embedding(TIME, WIDTH)));
    for (int i = 0; i < LAYERS; i++) {
        weft_module *block = weft_module_new(NULL, NULL),
                    *attn = weft_module_new_list(attend, NULL);
        CHECK_OK(weft_module_add(attn, "c_attn", weft_nn_linear(WIDTH, 3 * WIDTH)));
        CHECK_OK(weft_module_add(attn, "c_proj", weft_nn_linear(WIDTH, WIDTH)));
        CHECK_OK(weft_module_add(block, "ln_1", weft_nn_layer_norm(WIDTH)));
        CHECK_OK(weft_module_add(block, "attn", attn));
        CHECK_OK(weft_module_add(block, "ln_2", weft_nn_layer_norm(WIDTH)));
        CHECK_OK(weft_module_add(block, "c_fc", weft_nn_linear(WIDTH, 4 * WIDTH)));
        CHECK_OK(weft_module_add(block, "c_proj", weft_nn_linear(4 * WIDTH, WIDTH)));
        snprintf(name, sizeof name, "h%d", i);
        CHECK_OK(weft_module_add(net, name, block));
    }
    CHECK_OK(weft_module_add(net, "ln_f", weft_nn_layer_norm(WIDTH)));
    int count = weft_module_params(net, list, 64);
    for (int i = 0; i < count; i++) /* larger than usual, so that text does not repeat itself */
        CHECK_OK(weft_nn_init(list[i].tensor, "normal", 0.3, (uint64_t)i));
    return net;
}

static weft_tensor *new_cache(int64_t batch, int64_t heads)
{
    return weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(LAYERS, 2, batch, heads, TIME, SIZE));
}

/* ---- the same in plain loops ---- */

static const float *data_of(weft_module *net, const char *format, int layer)
{
    char name[64];
    snprintf(name, sizeof name, format, layer);
    return weft_tensor_data(weft_detach(weft_module_param(net, name)));
}

/* Rows by (head, part) become rows by (part, head). */
static const float *by_parts(weft_module *net, const char *format, int layer, int64_t columns)
{
    char name[64];
    snprintf(name, sizeof name, format, layer);
    weft_tensor *x =
        weft_view(weft_detach(weft_module_param(net, name)), WEFT_SHAPE(HEADS, 3, SIZE, columns));
    return weft_tensor_data(weft_contiguous(weft_transpose(x, 0, 1)));
}

static plain_gpt plain_of(weft_module *net)
{
    plain_gpt g = {
        .layers = LAYERS, .heads = HEADS, .width = WIDTH, .time = TIME, .symbols = SYMBOLS};
    g.symbol = data_of(net, "wte.weight", 0);
    g.place = data_of(net, "wpe.weight", 0);
    g.norm_w = data_of(net, "ln_f.weight", 0);
    g.norm_b = data_of(net, "ln_f.bias", 0);
    for (int i = 0; i < LAYERS; i++)
        g.layer[i] = (plain_layer){data_of(net, "h%d.ln_1.weight", i),
                                   data_of(net, "h%d.ln_1.bias", i),
                                   by_parts(net, "h%d.attn.c_attn.weight", i, WIDTH),
                                   by_parts(net, "h%d.attn.c_attn.bias", i, 1),
                                   data_of(net, "h%d.attn.c_proj.weight", i),
                                   data_of(net, "h%d.attn.c_proj.bias", i),
                                   data_of(net, "h%d.ln_2.weight", i),
                                   data_of(net, "h%d.ln_2.bias", i),
                                   data_of(net, "h%d.c_fc.weight", i),
                                   data_of(net, "h%d.c_fc.bias", i),
                                   data_of(net, "h%d.c_proj.weight", i),
                                   data_of(net, "h%d.c_proj.bias", i)};
    return g;
}

/* ---- generation ---- */

enum { GIVEN = 5, MADE = TIME - GIVEN };
static const int64_t prompt[GIVEN] = {7, 60, 0, 33, 2};

static weft_tensor *greedy(weft_module *net, int64_t heads)
{
    weft_generate_opts opts = WEFT_GENERATE_OPTS;
    opts.sample.temperature = 0;
    return weft_generate(net, new_cache(1, heads),
                         weft_tensor_from(WEFT_I64, WEFT_SHAPE(1, GIVEN), prompt), MADE, &opts);
}

static void check_tokens(weft_tensor *made, const int *right, const char *what)
{
    CHECK(made != NULL);
    CHECK_INT(weft_tensor_numel(made), MADE);
    for (int i = 0; i < MADE; i++)
        if (weft_item_int(made, i) != right[i])
            FAIL("%s: token %d is %lld, not %d", what, i, (long long)weft_item_int(made, i),
                 right[i]);
}

static void plain_tokens(weft_module *net, int made[MADE])
{
    int all[TIME];
    plain_gpt g = plain_of(net);
    for (int i = 0; i < GIVEN; i++)
        all[i] = (int)prompt[i];
    plain_generate(&g, all, GIVEN, TIME);
    free(g.keys);
    free(g.values);
    memcpy(made, all + GIVEN, MADE * sizeof *made);
}

TEST(test_generate_plain)
{
    int right[MADE], kinds = 0;
    weft_scope_open();
    weft_module *net = new_gpt();
    plain_tokens(net, right);
    check_tokens(greedy(net, HEADS), right, "greedy");
    for (int i = 1; i < MADE; i++)
        kinds += right[i] != right[i - 1];
    CHECK(kinds > MADE / 2); /* text that repeats itself would show little */
    CHECK(weft_module_is_training(net));
    weft_scope_close();
}

static const weft_plan plan[] = {
    {"*.attn.c_attn", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"*.attn.c_proj", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"*.c_fc", WEFT_PLAN_COLUMN, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
    {"*.c_proj", WEFT_PLAN_ROW, WEFT_FLOW_USUAL, WEFT_FLOW_USUAL},
};

/* Encodes what the layers have, and takes what the codes stand for as the weights of plain loops. */
static void round_weights(weft_module *net, int bits)
{
    weft_named list[64];
    weft_tensor *made[2];
    int count = weft_module_params(net, list, 64);
    for (int i = 0; i < count; i++)
        if (strstr(list[i].name, ".c_") && strstr(list[i].name, ".weight")) {
            weft_tensor *weight = weft_detach(list[i].tensor);
            CHECK_OK(weft_quantize(weight, bits, 32, made));
            CHECK_OK(weft_copy(weight, weft_dequantize(made[0], made[1], WEFT_F32)));
        }
}

static void check_cut(weft_group *world, int bits)
{
    int right[MADE];
    weft_scope_open();
    weft_module *net = new_gpt();
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(weft_size(world)), "model");
    if (bits)
        round_weights(net, bits);
    plain_tokens(net, right);
    CHECK_OK(weft_parallelize(net, mesh, plan, 4, NULL));
    if (bits)
        CHECK_OK(weft_quantize_module(net, bits, 32));
    check_tokens(greedy(net, HEADS / weft_size(world)), right,
                 bits == 8 ? "8 bits"
                 : bits    ? "4 bits"
                           : "cut");
    weft_scope_close();
}

/* Cut over two ranks, with all bits or few, the tokens are those of plain loops with these weights. */
RANKS_TEST(test_generate_tensor_parallel, 2)
{
    weft_group *world = weft_init(NULL);
    CHECK(world != NULL);
    check_cut(world, 0);
    check_cut(world, 8);
    check_cut(world, 4);
    CHECK_OK(weft_finish(world));
}

TEST(test_generate_few_bits)
{
    weft_group *world = weft_init(NULL);
    check_cut(world, 8);
    check_cut(world, 4);
    CHECK_OK(weft_finish(world));
}

/* ---- stopping, looking on, refusing ---- */

typedef struct seen {
    int count, until;
    int64_t token[TIME][2];
} seen;

static weft_status look(weft_tensor *tokens, void *user)
{
    seen *s = user;
    s->token[s->count][0] = weft_item_int(tokens, 0);
    s->token[s->count][1] = weft_item_int(tokens, 1);
    return ++s->count == s->until ? WEFT_ERR_CANCELLED : WEFT_OK;
}

TEST(test_generate_stop)
{
    static const int64_t two[2][3] = {{1, 2, 3}, {9, 8, 7}};
    weft_scope_open();
    weft_module *net = new_gpt();
    weft_tensor *given = weft_tensor_from(WEFT_I64, WEFT_SHAPE(2, 3), two);
    weft_generate_opts opts = WEFT_GENERATE_OPTS;
    seen s = {0};
    opts.seed = 5;
    opts.each = look;
    opts.user = &s;
    weft_seed(1);
    weft_tensor *free_run = weft_generate(net, new_cache(2, HEADS), given, 40, &opts);
    CHECK(free_run && s.count == 40);
    double next = weft_item(weft_rand(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1)), 0);
    weft_seed(1); /* the generator of the thread was not touched */
    CHECK(weft_item(weft_rand(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1)), 0) == next);
    /* Row 1's third token stops it; row 0 goes on until it meets the token, or to the end. */
    opts.stop = s.token[2][1];
    opts.each = NULL;
    weft_tensor *made = weft_generate(net, new_cache(2, HEADS), given, 40, &opts);
    CHECK(made != NULL);
    int64_t first[2] = {40, 40}, n = weft_tensor_size(made, 1);
    for (int row = 0; row < 2; row++)
        for (int64_t i = 0; i < n; i++) {
            int64_t token = weft_item_int(made, row * n + i);
            CHECK_INT(token, first[row] < i ? opts.stop : s.token[i][row]);
            if (token == opts.stop && first[row] == 40)
                first[row] = i;
        }
    CHECK(first[1] <= 2);
    CHECK_INT(n, first[0] < 40 && first[1] < 40 ? (first[0] > first[1] ? first[0] : first[1]) + 1
                                                : 40);
    s = (seen){.until = 4};
    opts = (weft_generate_opts)WEFT_GENERATE_OPTS;
    opts.each = look;
    opts.user = &s;
    CHECK(!weft_generate(net, new_cache(2, HEADS), given, 40, &opts));
    CHECK_INT(s.count, 4);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_generate_refused)
{
    weft_scope_open();
    weft_module *net = new_gpt();
    weft_tensor *given = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1, 9)), *cache = new_cache(1, 4);
    weft_generate_opts opts = WEFT_GENERATE_OPTS;
    CHECK(weft_generate(net, cache, given, TIME - 8, NULL) != NULL);
    CHECK(!weft_generate(net, cache, given, TIME - 7, NULL));
    CHECK_CONTAINS(weft_last_error(), "need 49 places");
    CHECK_INT(weft_tensor_size(weft_generate(net, cache, given, 0, NULL), 1), 0);
    CHECK(!weft_generate(net, cache, given, -1, NULL) && !weft_generate(net, NULL, given, 1, NULL));
    CHECK(!weft_generate(NULL, cache, given, 1, NULL) && !weft_generate(net, cache, NULL, 1, NULL));
    CHECK(!weft_generate(net, cache, weft_to_dtype(given, WEFT_F32), 1, NULL));
    CHECK(!weft_generate(net, cache, weft_select(given, 0, 0), 1, NULL));
    CHECK(!weft_generate(weft_nn_layer_norm(4), cache, given, 1, NULL));
    opts.sample.temperature = -1;
    CHECK(!weft_generate(net, cache, given, 1, &opts));
    weft_clear_error();
    weft_scope_close();
}

/* ---- sampling ---- */

static weft_sample_opts sampling(double temperature, int64_t top_k)
{
    weft_sample_opts opts = WEFT_SAMPLE_OPTS;
    opts.temperature = temperature;
    opts.top_k = top_k;
    return opts;
}

/* How often each class is drawn, against softmax of the logits over the temperature. */
static void check_shares(double temperature, int64_t top_k)
{
    enum { CLASSES = 6, DRAWS = 20000 };
    static const float logits[CLASSES] = {0.5f, -1, 2, 1.5f, -3, 0};
    double weight[CLASSES], sum = 0;
    int count[CLASSES] = {0};
    weft_sample_opts opts = sampling(temperature, top_k);
    weft_tensor *row = weft_tensor_from(WEFT_F32, WEFT_SHAPE(1, CLASSES), logits);
    weft_tensor *drawn = weft_sample(weft_expand(row, WEFT_SHAPE(DRAWS, CLASSES)), &opts);
    CHECK(drawn != NULL);
    CHECK(weft_tensor_dtype(drawn) == WEFT_I64 && weft_tensor_numel(drawn) == DRAWS);
    for (int i = 0; i < DRAWS; i++)
        count[weft_item_int(drawn, i)]++;
    for (int i = 0; i < CLASSES; i++) {
        int above = 0;
        for (int k = 0; k < CLASSES; k++)
            above += logits[k] > logits[i];
        sum += weight[i] = top_k && above >= top_k ? 0 : exp((double)logits[i] / temperature);
    }
    for (int i = 0; i < CLASSES; i++) {
        double share = weight[i] / sum, off = 5 * sqrt(share * (1 - share) / DRAWS);
        CHECK_NEAR((double)count[i] / DRAWS, share, off);
    }
}

TEST(test_sample_shares)
{
    weft_scope_open();
    weft_seed(21);
    check_shares(1, 0);
    check_shares(0.5, 0);
    check_shares(2, 3);
    check_shares(1, 1);
    check_shares(0.01, 100); /* the largest alone */
    weft_scope_close();
}

TEST(test_sample_forms)
{
    static const float logits[2][3] = {{1, 5, 5}, {7, -2, 3}};
    weft_scope_open();
    weft_sample_opts opts = sampling(0, 0), some = sampling(1, 2);
    weft_tensor *x = weft_tensor_from(WEFT_F32, WEFT_SHAPE(2, 3), logits);
    weft_tensor *all = weft_sample(x, &opts), *one = weft_sample(weft_select(x, 0, 1), &opts);
    CHECK(weft_item_int(all, 0) == 1 && weft_item_int(all, 1) == 0);
    CHECK(weft_tensor_ndim(all) == 2 && weft_tensor_ndim(one) == 1 && weft_item_int(one, 0) == 0);
    weft_seed(3);
    weft_tensor *a = weft_sample(x, &some), *b = weft_sample(x, &some);
    weft_seed(3);
    CHECK(weft_equal(a, weft_sample(x, &some)) && weft_equal(b, weft_sample(x, &some)));
    CHECK(weft_require_grad(x, true) >= 0 && !weft_requires_grad(weft_sample(x, NULL)));
    CHECK(weft_sample(weft_to_dtype(weft_detach(x), WEFT_BF16), &some) != NULL);
    some.top_k = -1;
    CHECK(!weft_sample(x, &some));
    some = sampling(NAN, 0);
    CHECK(!weft_sample(x, &some) && !weft_sample(NULL, NULL) && !weft_sample(all, NULL));
    CHECK(!weft_sample(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 0), 0), NULL));
    CHECK(!weft_sample(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4), NAN), NULL));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_NUMERIC);
    weft_clear_error();
    weft_scope_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
