/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/layer/attention.c, tensor/layer/attention_composed.c, grad/rule_attention.c, kernels/product/attention.c,
 * kernels/product/attention_block.c, kernels/product/attention_grad.c */
/*
 * Attention against its definition in f64, over shapes that take every way through the blocks;
 * gradients against differences; and what is refused.
 */
#include "harness.h"

#include "kernels/vector/vector.h"
#include "tensor/layer/attention.h"
#include "tensor/op/ops.h"
#include "weft/weft.h"

#include <math.h>

enum { NONE, BOOLS, BIAS, BIAS_INF, MASKS };

typedef struct scene {
    int64_t batch, heads, key_heads, queries, keys, width, value_width;
    bool causal;
    int64_t offset;
    int mask;
} scene;

typedef struct operands {
    weft_tensor *q, *k, *v;
    weft_attention_opts opts;
} operands;

static weft_tensor *draw(weft_dtype dtype, weft_shape shape)
{
    return weft_to_dtype(weft_randn(WEFT_F64, WEFT_CPU, shape), dtype);
}

static weft_tensor *make_mask(const scene *s, weft_dtype dtype)
{
    weft_shape shape = WEFT_SHAPE(s->batch, 1, s->queries, s->keys);
    if (s->mask == NONE)
        return NULL;
    weft_tensor *drawn = draw(dtype, shape), *seen = weft_gt_scalar(drawn, -0.5);
    if (s->mask == BOOLS)
        return seen;
    return s->mask == BIAS
               ? drawn
               : weft_where(seen, drawn, weft_full(dtype, WEFT_CPU, WEFT_SCALAR, -INFINITY));
}

static operands make_operands(const scene *s, weft_dtype dtype)
{
    weft_seed(11);
    operands x = {.q = draw(dtype, WEFT_SHAPE(s->batch, s->heads, s->queries, s->width)),
                  .k = draw(dtype, WEFT_SHAPE(s->batch, s->key_heads, s->keys, s->width)),
                  .v = draw(dtype, WEFT_SHAPE(s->batch, s->key_heads, s->keys, s->value_width)),
                  .opts = WEFT_ATTENTION_OPTS};
    x.opts.causal = s->causal;
    x.opts.offset = s->offset;
    x.opts.mask = make_mask(s, dtype);
    return x;
}

/* One row of scores as the definition has it; how many are seen. */
static int score_row(const scene *s, const operands *x, int64_t b, int64_t h, int64_t i,
                     double *row)
{
    int64_t shared = s->heads / s->key_heads, at = (b * s->heads + h) * s->queries + i;
    int seen = 0;
    for (int64_t j = 0; j < s->keys; j++) {
        double sum = 0;
        int64_t key = (b * s->key_heads + h / shared) * s->keys + j;
        for (int64_t d = 0; d < s->width; d++)
            sum += weft_item(x->q, at * s->width + d) * weft_item(x->k, key * s->width + d);
        row[j] = sum / sqrt((double)s->width);
        double mask = s->mask ? weft_item(x->opts.mask, (b * s->queries + i) * s->keys + j) : 0;
        bool hidden = (s->causal && j > i + s->offset) || (s->mask == BOOLS && mask == 0) ||
                      mask == -INFINITY;
        row[j] = hidden ? -INFINITY : s->mask == BOOLS ? row[j] : row[j] + mask;
        seen += !hidden;
    }
    return seen;
}

static void check_row(const scene *s, const operands *x, int64_t b, int64_t h, int64_t i,
                      weft_tensor *out, double slack)
{
    double row[600], most = -INFINITY, total = 0;
    int64_t shared = s->heads / s->key_heads;
    int seen = score_row(s, x, b, h, i, row);
    for (int64_t j = 0; j < s->keys; j++)
        most = fmax(most, row[j]);
    for (int64_t j = 0; j < s->keys; j++)
        total += row[j] = seen ? exp(row[j] - most) : 0;
    for (int64_t d = 0; d < s->value_width; d++) {
        double sum = 0;
        for (int64_t j = 0; j < s->keys; j++)
            sum += row[j] *
                   weft_item(x->v,
                             ((b * s->key_heads + h / shared) * s->keys + j) * s->value_width + d);
        double got = weft_item(out, ((b * s->heads + h) * s->queries + i) * s->value_width + d);
        CHECK_NEAR(got, seen ? sum / total : 0, slack);
    }
}

static void check_scene(const scene *s, weft_dtype dtype, double slack)
{
    CHECK_OK(weft_scope_open());
    operands x = make_operands(s, dtype);
    weft_tensor *out = weft_attention(x.q, x.k, x.v, &x.opts);
    if (!out)
        FAIL("%s", weft_last_error());
    CHECK(weft_i_shape_equal(weft_tensor_shape(out),
                             WEFT_SHAPE(s->batch, s->heads, s->queries, s->value_width)));
    CHECK_INT(weft_tensor_dtype(out), dtype);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->queries; i += 1 + s->queries / 9)
                check_row(s, &x, b, h, i, out, slack);
    CHECK_OK(weft_scope_close());
}

static const scene scenes[] = {
    {1, 1, 1, 1, 1, 1, 1, false, 0, NONE},
    {2, 2, 2, 5, 7, 3, 2, false, 0, NONE},
    {1, 2, 1, 5, 5, 8, 8, true, 0, NONE},
    {2, 6, 2, 1, 300, 16, 16, true, 299, NONE}, /* one new token behind a cache */
    {1, 6, 2, 3, 20, 8, 5, true, 12, BOOLS},
    {1, 1, 1, 130, 130, 16, 16, true, 0, NONE}, /* more than two blocks of queries */
    {1, 2, 1, 70, 520, 8, 8, false, 0, BIAS},   /* more than two blocks of keys */
    {1, 2, 2, 65, 257, 4, 4, true, 192, BIAS_INF},
    {2, 1, 1, 4, 6, 4, 4, true, -2, NONE}, /* the first two queries see nothing */
    {2, 4, 4, 9, 11, 5, 3, false, 0, BOOLS},
    {1, 3, 3, 4, 0, 4, 4, false, 0, NONE}, /* no keys at all */
    {2, 4, 2, 0, 3, 4, 4, false, 0, NONE},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

TEST(test_attention_is_its_definition)
{
    for (int k = 0; k < SCENES; k++) {
        check_scene(&scenes[k], WEFT_F64, 1e-12);
        check_scene(&scenes[k], WEFT_F32, 1e-5);
        check_scene(&scenes[k], WEFT_BF16, 0.03);
        check_scene(&scenes[k], WEFT_F16, 0.004);
    }
}

/* ---- gradients ---- */

TEST(test_attention_shares_that_are_nothing)
{
    const weft_i_attend_loops *loops = weft_i_vector()->attend[WEFT_F32];
    float row[12], most = 3;
    for (int i = 0; i < 12; i++)
        row[i] = most - 12 * (float)i; /* the fifth is e^-48, 2^-69; the sixth e^-60 */
    double sum = loops->grow(row, 12, most);
    CHECK_NEAR(sum, 1 / (1 - exp(-12)), 1e-6);
    for (int i = 0; i < 12; i++)
        CHECK_NEAR((double)row[i], i < 5 ? exp(-12 * i) : 0, 1e-6 * exp(-12 * i));
    double far[3] = {0, -600, -700};
    weft_i_vector()->attend[WEFT_F64]->grow(far, 3, 0);
    CHECK(far[0] == 1 && far[1] > 0 && far[2] == 0);
    float none[2] = {NAN, 0};
    CHECK(isnan(loops->grow(none, 2, 0)) && isnan(none[0]));
}

static weft_tensor *attend(weft_tensor *const *x, void *user)
{
    weft_attention_opts opts = *(weft_attention_opts *)user;
    if (opts.mask && weft_tensor_dtype(opts.mask) == WEFT_F64)
        opts.mask = x[3];
    return weft_attention(x[0], x[1], x[2], &opts);
}

TEST(test_attention_gradients)
{
    static const scene small[] = {{1, 4, 2, 3, 5, 3, 2, true, 2, NONE},
                                  {2, 2, 1, 2, 3, 2, 2, false, 0, BIAS},
                                  {1, 2, 2, 3, 3, 2, 2, true, -1, BOOLS},
                                  {1, 2, 1, 70, 3, 1, 1, true, -60, NONE}};
    for (size_t k = 0; k < sizeof small / sizeof *small; k++) {
        CHECK_OK(weft_scope_open());
        operands x = make_operands(&small[k], WEFT_F64);
        weft_tensor *in[] = {x.q, x.k, x.v, x.opts.mask};
        size_t count = small[k].mask == BIAS ? 4 : 3;
        for (size_t i = 0; i < count; i++)
            CHECK_OK(weft_require_grad(in[i], true));
        weft_gradcheck_opts opts = WEFT_GRADCHECK_OPTS;
        opts.second = small[k].queries < 10;
        if (weft_gradcheck(attend, &x.opts, in, count, &opts) < 0)
            FAIL("scene %zu: %s", k, weft_last_error());
        CHECK_OK(weft_scope_close());
    }
}

/* The gradients of q, k, v and of the mask; by the row, or by products and softmax. */
static void gradients(const operands *x, bool composed, weft_tensor *grads[4], weft_tensor **out)
{
    weft_tensor *leaf[4];
    size_t count = x->opts.mask && weft_tensor_dtype(x->opts.mask) != WEFT_BOOL ? 4 : 3;
    weft_attention_opts opts = x->opts;
    weft_tensor *from[] = {x->q, x->k, x->v, x->opts.mask};
    for (size_t i = 0; i < count; i++) {
        leaf[i] = weft_clone(from[i]);
        CHECK_OK(weft_require_grad(leaf[i], true));
    }
    opts.mask = count == 4 ? leaf[3] : opts.mask;
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(leaf[0]),
                         WEFT_I_TENSOR_ARG(leaf[1]),
                         WEFT_I_TENSOR_ARG(leaf[2]),
                         WEFT_I_OPTIONAL_ARG(opts.mask),
                         WEFT_I_NUMBER_ARG((double)opts.offset),
                         {0},
                         WEFT_I_INTEGER_ARG(opts.causal),
                         WEFT_I_NUMBER_ARG(0.25),
                         WEFT_I_NUMBER_ARG(0)};
    opts.scale = 0.25;
    *out = composed ? weft_i_attention_composed(args)
                    : weft_attention(leaf[0], leaf[1], leaf[2], &opts);
    weft_tensor *slope = weft_cos(weft_detach(*out));
    weft_tensor *loss = weft_sum(weft_mul(*out, slope), NULL, 0, false);
    CHECK_OK(weft_gradients(grads, leaf, count, &loss, 1, NULL));
}

/* Many blocks; the row and its parts agree, and the row gives the same bits again. */
TEST(test_attention_row_and_parts_agree)
{
    for (int k = 0; k < SCENES; k++) {
        if (!scenes[k].queries || !scenes[k].keys)
            continue;
        CHECK_OK(weft_scope_open());
        operands x = make_operands(&scenes[k], WEFT_F64);
        weft_tensor *a[4] = {0}, *b[4] = {0}, *c[4] = {0}, *out[3];
        gradients(&x, false, a, &out[0]);
        gradients(&x, true, b, &out[1]);
        gradients(&x, false, c, &out[2]);
        CHECK(weft_allclose(out[0], out[1], 1e-10, 1e-12, false));
        CHECK(weft_equal(out[0], out[2]));
        for (int i = 0; i < 4 && a[i]; i++) {
            if (!weft_allclose(a[i], b[i], 1e-9, 1e-11, false))
                FAIL("scene %d: gradient %d differs", k, i);
            CHECK(weft_equal(a[i], c[i]));
        }
        CHECK_OK(weft_scope_close());
    }
}

/* ---- layouts, positions, dropout ---- */

/* Heads that were split off a wide row: the result lies as the row, and joining copies nothing. */
TEST(test_attention_lies_as_the_queries)
{
    weft_seed(3);
    weft_tensor *wide = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 5, 24)), *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = weft_transpose(
            weft_reshape(weft_narrow(wide, 2, 8 * i, 8), WEFT_SHAPE(2, 5, 2, 4)), 1, 2);
    weft_tensor *out = weft_attention(part[0], part[1], part[2], NULL);
    weft_tensor *back = weft_transpose(out, 1, 2);
    CHECK(weft_i_tensor_is_contiguous(back));
    weft_tensor *same = weft_attention(weft_contiguous(part[0]), weft_contiguous(part[1]),
                                       weft_contiguous(part[2]), NULL);
    CHECK(weft_equal(out, same));
}

TEST(test_attention_position_is_read_when_it_runs)
{
    scene s = {1, 2, 2, 1, 9, 4, 4, true, 0, NONE};
    operands x = make_operands(&s, WEFT_F32);
    x.opts.offset = 3;
    weft_tensor *by_number = weft_attention(x.q, x.k, x.v, &x.opts);
    x.opts.position = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(1), 3);
    weft_tensor *by_tensor = weft_attention(x.q, x.k, x.v, &x.opts);
    CHECK(weft_equal(by_number, by_tensor));
    CHECK_OK(weft_fill(x.opts.position, 8));
    CHECK(!weft_equal(by_number, weft_attention(x.q, x.k, x.v, &x.opts)));
}

/* All weights are 1/keys and all values 1: a row is the share that was kept, divided by 1 - p. */
TEST(test_attention_dropout)
{
    enum { ROWS = 40, KEYS = 500 };
    weft_attention_opts opts = WEFT_ATTENTION_OPTS;
    opts.dropout = 0.25;
    weft_tensor *q = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, ROWS, 4));
    weft_tensor *k = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, KEYS, 4));
    weft_tensor *v = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, KEYS, 1));
    CHECK_OK(weft_require_grad(v, true));
    weft_seed(5);
    weft_tensor *a = weft_attention(q, k, v, &opts), *b = weft_attention(q, k, v, &opts);
    weft_seed(5);
    weft_tensor *again = weft_attention(q, k, v, &opts);
    CHECK(weft_equal(a, again) && !weft_equal(a, b));
    CHECK_NEAR(weft_item(weft_mean(a, NULL, 0, false), 0), 1, 0.03);
    weft_tensor *loss = weft_sum(a, NULL, 0, false), *grad = NULL;
    CHECK_OK(weft_gradients(&grad, &v, 1, &loss, 1, NULL));
    /* v is 1: its gradients add up to the loss, which they do only with the same draws. */
    CHECK_NEAR(weft_item(weft_sum(grad, NULL, 0, false), 0), weft_item(loss, 0), 1e-3);
    opts.dropout = 1;
    CHECK_NEAR(weft_item(weft_sum(weft_attention(q, k, v, &opts), NULL, 0, false), 0), 0, 0);
}

/* ---- captured and compiled ---- */

static weft_status step(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    weft_attention_opts opts = WEFT_ATTENTION_OPTS;
    (void)ins, (void)outs, (void)user;
    opts.causal = true;
    out[0] = weft_attention(in[0], in[1], in[2], &opts);
    return WEFT_OK;
}

TEST(test_attention_compiled)
{
    static const char *const backends[] = {"eager", "aot_eager", "c"};
    scene s = {1, 4, 2, 6, 6, 8, 8, true, 0, NONE};
    operands x = make_operands(&s, WEFT_F32);
    weft_tensor *in[] = {x.q, x.k, x.v}, *plain, *first[3], *loss;
    for (int i = 0; i < 3; i++)
        CHECK_OK(weft_require_grad(in[i], true));
    CHECK_OK(step(in, 3, &plain, 1, NULL));
    loss = weft_sum(plain, NULL, 0, false);
    CHECK_OK(weft_gradients(first, in, 3, &loss, 1, NULL));
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        weft_tensor *out, *grads[3];
        opts.backend = backends[k];
        opts.fullgraph = true;
        weft_compiled *fast = weft_compile(step, NULL, &opts);
        for (int call = 0; call < 2; call++) {
            CHECK_OK(weft_compiled_call(fast, in, 3, &out, 1));
            CHECK(weft_equal(out, plain));
            loss = weft_sum(out, NULL, 0, false);
            CHECK_OK(weft_gradients(grads, in, 3, &loss, 1, NULL));
            for (int i = 0; i < 3; i++)
                CHECK(weft_equal(grads[i], first[i]));
        }
    }
}

/* ---- what is refused ---- */

static void check_refused(const operands *x, weft_status status, const char *text)
{
    CHECK(!weft_attention(x->q, x->k, x->v, &x->opts));
    CHECK_INT(weft_last_status(), status);
    CHECK_CONTAINS(weft_last_error(), text);
    weft_clear_error();
}

TEST(test_attention_refusals)
{
    scene s = {1, 4, 2, 3, 5, 4, 4, false, 0, NONE};
    operands good = make_operands(&s, WEFT_F32), x = good;
    x.q = weft_narrow(good.q, 1, 0, 3);
    check_refused(&x, WEFT_ERR_INVALID_ARG, "3 query heads cannot share 2 key heads");
    x = good;
    x.k = weft_to_dtype(good.k, WEFT_BF16);
    check_refused(&x, WEFT_ERR_TYPE, "queries are f32, the keys bf16");
    x = good;
    x.opts.mask = weft_zeros(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(3, 4));
    check_refused(&x, WEFT_ERR_INVALID_ARG, "broadcast to [1, 4, 3, 5]");
    x.opts.mask = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3, 5));
    check_refused(&x, WEFT_ERR_TYPE, "the mask is f64");
    x = good;
    x.v = weft_narrow(good.v, 2, 0, 4);
    check_refused(&x, WEFT_ERR_INVALID_ARG, "key heads, keys, any width");
    x = good;
    x.opts.dropout = 1.5;
    check_refused(&x, WEFT_ERR_INVALID_ARG, "dropout with probability 1.5");
    x = good;
    x.opts.position = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    check_refused(&x, WEFT_ERR_INVALID_ARG, "one element of integers");
    x = good;
    x.q = weft_to_dtype(good.q, WEFT_I32);
    check_refused(&x, WEFT_ERR_TYPE, "i32");
    x = good;
    x.k = NULL;
    CHECK(!weft_attention(x.q, x.k, x.v, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
