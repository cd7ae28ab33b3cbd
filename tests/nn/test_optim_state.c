/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/optim/optim_state.c, nn/optim/optim_rate.c, nn/optim/optim_params.c */
/* Optimizers that stop and go on, groups of parameters, and rates by the number of the step. */
#include "fault.h"
#include "harness.h"
#include "leaf.h"

#include <weft/weft.h>

#include <math.h>

enum { ENTRIES = 32, PARAMS = 16 };

static weft_tensor *leaf_of(weft_dtype dtype, int64_t n, double value)
{
    return leaf(weft_full(dtype, WEFT_CPU, WEFT_SHAPE(n), value));
}

/* ---- stopping and going on ---- */

/* Weights with decay, biases and norms without, at rates of their own. */
static weft_optim *new_optim(weft_module *net, bool adam)
{
    weft_named all[PARAMS], wide[PARAMS], flat[PARAMS];
    int count = weft_module_params(net, all, PARAMS), w = 0, f = 0;
    for (int i = 0; i < count; i++)
        if (weft_tensor_ndim(all[i].tensor) > 1)
            wide[w++] = all[i];
        else
            flat[f++] = all[i];
    weft_adamw_opts none = WEFT_ADAMW_OPTS_INIT;
    weft_sgd_opts momentum = WEFT_SGD_OPTS_INIT, decay = WEFT_SGD_OPTS_INIT;
    none.decay = 0;
    momentum.momentum = decay.momentum = 0.9;
    decay.decay = 0.1;
    weft_optim *optim =
        adam ? weft_optim_adamw_of(wide, w, 1e-2, NULL) : weft_optim_sgd_of(wide, w, 1e-2, &decay);
    CHECK_INT(adam ? weft_optim_adamw_add(optim, flat, f, 2e-2, &none)
                   : weft_optim_sgd_add(optim, flat, f, 2e-2, &momentum),
              1);
    return optim;
}

static weft_module *new_net(uint64_t seed)
{
    weft_seed(seed);
    return weft_nn_sequential(weft_nn_linear(5, 7), weft_nn_layer_norm(7), weft_nn_op(weft_tanh),
                              weft_nn_linear(7, 3));
}

static void train(weft_module *net, weft_optim *optim, int from, int to)
{
    for (int step = from; step < to; step++) {
        CHECK_OK(weft_scope_open());
        weft_seed(1000 + (uint64_t)step);
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 5)),
                    *y = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(4), 0, 3);
        CHECK_OK(weft_backward(weft_cross_entropy(weft_module_call(net, x), y)));
        CHECK_OK(weft_optim_set_group_rate(optim, 0, weft_rate_cosine(step, 2, 10, 1e-2, 1e-3)));
        CHECK_OK(weft_optim_step(optim));
        CHECK_OK(weft_scope_close());
    }
}

static void copy_all(weft_named *list, int count)
{
    for (int i = 0; i < count; i++)
        CHECK((list[i].tensor = weft_clone(weft_detach(list[i].tensor))) != NULL);
}

static void check_equal(const weft_named *a, const weft_named *b, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(a[i].name, b[i].name) || !weft_equal(a[i].tensor, b[i].tensor))
            FAIL("%s and %s differ", a[i].name, b[i].name);
}

/* 5 steps, new objects with the state, 5 more: the bits of 10 steps in one go. */
static void check_resume(bool adam)
{
    weft_named weights[PARAMS], state[ENTRIES], other[ENTRIES];
    CHECK_OK(weft_scope_open());
    weft_module *whole = new_net(3), *first = new_net(3), *second = new_net(4);
    weft_optim *in_one = new_optim(whole, adam), *before = new_optim(first, adam),
               *after = new_optim(second, adam);
    train(whole, in_one, 0, 10);
    train(first, before, 0, 5);
    int count = weft_module_state(first, weights, PARAMS),
        entries = weft_optim_state(before, state, ENTRIES);
    CHECK_INT(entries, 6 * (adam ? 3 : 2));
    copy_all(weights, count);
    copy_all(state, entries);
    train(first, before, 5, 7); /* what was saved is not what goes on */
    CHECK_OK(weft_module_load(second, weights, count));
    for (int i = 0; i < entries; i++) /* in any order */
        other[i] = state[entries - 1 - i];
    CHECK_OK(weft_optim_load(after, adam ? other : state, entries));
    train(second, after, 5, 10);
    CHECK_INT(weft_module_state(whole, weights, PARAMS), count);
    CHECK_INT(weft_module_state(second, other, PARAMS), count);
    check_equal(weights, other, count);
    CHECK_INT(weft_optim_state(in_one, state, ENTRIES), entries);
    CHECK_INT(weft_optim_state(after, other, ENTRIES), entries);
    check_equal(state, other, entries);
    CHECK_INT(weft_item_int(other[0].tensor, 0), 10);
    CHECK_OK(weft_scope_close());
}

TEST(test_optim_resumes)
{
    check_resume(true);
    check_resume(false);
}

/* ---- listing ---- */

TEST(test_optim_state_names)
{
    weft_scope_open();
    weft_named list[] = {{"w", leaf_of(WEFT_BF16, 3, 1)}, {"", leaf_of(WEFT_F64, 2, 1)}}, out[8];
    weft_optim *adam = weft_optim_adamw_of(list, 2, 0.1, NULL);
    static const char *const names[] = {"w.step", "w.exp_avg", "w.exp_avg_sq",
                                        "1.step", "1.exp_avg", "1.exp_avg_sq"};
    CHECK_INT(weft_optim_state(adam, NULL, 0), 6);
    CHECK_INT(weft_optim_state(adam, out, 8), 6); /* all zeros, with no step done */
    for (int i = 0; i < 6; i++) {
        weft_tensor *x = out[i].tensor;
        CHECK(!strcmp(out[i].name, names[i]));
        CHECK_INT(weft_tensor_dtype(x), i % 3 == 0 ? WEFT_I64 : i < 3 ? WEFT_BF16 : WEFT_F64);
        CHECK_INT(weft_tensor_ndim(x), i % 3 != 0);
        CHECK(weft_item(weft_sum(x, NULL, 0, false), 0) == 0 && !weft_requires_grad(x));
    }
    CHECK_OK(weft_set_grad(list[0].tensor, weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(3))));
    CHECK_OK(weft_optim_step(adam));
    out[3].name[0] = '?';
    CHECK_INT(weft_optim_state(adam, out, 3), 6); /* as far as there is room */
    CHECK(weft_item_int(out[0].tensor, 0) == 1 && weft_item(out[1].tensor, 2) != 0);
    CHECK(out[3].name[0] == '?' && weft_item_int(out[3].tensor, 0) == 0);
    weft_optim *sgd = weft_optim_sgd_of(list, 2, 0.1, NULL);
    CHECK_INT(weft_optim_state(sgd, out, 8), 0); /* nothing to remember */
    CHECK_OK(weft_optim_load(sgd, NULL, 0));
    weft_sgd_opts opts = WEFT_SGD_OPTS_INIT;
    opts.momentum = 0.9;
    CHECK_INT(
        weft_optim_sgd_add(sgd, &(weft_named){"later", leaf_of(WEFT_F32, 1, 1)}, 1, 0.1, &opts), 1);
    CHECK_INT(weft_optim_state(sgd, out, 8), 2);
    CHECK(!strcmp(out[0].name, "later.step") && !strcmp(out[1].name, "later.momentum_buffer"));
    weft_scope_close();
}

static void check_no_state(weft_optim *optim, weft_named *out, int room, weft_status status,
                           const char *text)
{
    weft_clear_error();
    CHECK_INT(weft_optim_state(optim, out, room), status);
    CHECK_CONTAINS(weft_last_error(), text);
    weft_clear_error();
}

TEST(test_optim_state_refused)
{
    weft_scope_open();
    weft_named list[] = {{"w", leaf_of(WEFT_F32, 3, 1)}, {"w", leaf_of(WEFT_F32, 3, 1)}}, out[8];
    check_no_state(weft_optim_adamw_of(list, 2, 0.1, NULL), out, 8, WEFT_ERR_INVALID_ARG,
                   "two parameters of this adamw have the name \"w\"");
    snprintf(list[0].name, sizeof list[0].name, "1");
    list[1].name[0] = 0;
    weft_optim *adam = weft_optim_adamw_of(list, 2, 0.1, NULL);
    check_no_state(adam, out, 8, WEFT_ERR_INVALID_ARG, "have the name \"1\"");
    CHECK_STATUS(weft_optim_load(adam, out, 0), WEFT_ERR_INVALID_ARG);
    memset(list[0].name, 'x', WEFT_NAME_MAX - 10);
    list[0].name[WEFT_NAME_MAX - 10] = 0;
    check_no_state(weft_optim_adamw_of(list, 2, 0.1, NULL), out, 8, WEFT_ERR_LIMIT,
                   ".exp_avg_sq has more than 127 characters");
    check_no_state(NULL, out, 8, WEFT_ERR_INVALID_ARG, "the optimizer is NULL");
    check_no_state((weft_optim *)(void *)list[1].tensor, out, 8, WEFT_ERR_TYPE, "no optimizer");
    check_no_state(adam, out, -1, WEFT_ERR_INVALID_ARG, "no room to write to");
    check_no_state(adam, NULL, 1, WEFT_ERR_INVALID_ARG, "no room to write to");
    weft_scope_close();
}

/* ---- putting back ---- */

typedef struct fixture {
    weft_optim *optim;
    weft_named good[6], kept[6]; /* another state that fits; the optimizer's own */
} fixture;

static fixture new_fixture(void)
{
    weft_named list[] = {{"a", leaf_of(WEFT_F32, 3, 1)}, {"b", leaf_of(WEFT_F32, 2, 1)}};
    fixture f = {.optim = weft_optim_adamw_of(list, 2, 0.1, NULL)};
    for (int k = 0; k < 2; k++)
        CHECK_OK(weft_set_grad(list[k].tensor, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3 - k))));
    CHECK_OK(weft_optim_step(f.optim));
    CHECK_INT(weft_optim_state(f.optim, f.kept, 6), 6);
    copy_all(f.kept, 6);
    memcpy(f.good, f.kept, sizeof f.good);
    copy_all(f.good, 6);
    for (int i = 0; i < 6; i++)
        CHECK_OK(weft_fill(f.good[i].tensor, 7));
    return f;
}

static void check_refused(const fixture *f, const weft_named *in, int count, weft_status status,
                          const char *text)
{
    weft_named now[6];
    weft_clear_error();
    CHECK_INT(weft_optim_load(f->optim, in, count), status);
    CHECK_CONTAINS(weft_last_error(), text);
    weft_clear_error();
    CHECK_INT(weft_optim_state(f->optim, now, 6), 6);
    check_equal(now, f->kept, 6);
}

/* The fixture's good state with `x` in place of entry 5. */
static void check_last(const fixture *f, weft_tensor *x, weft_status status, const char *text)
{
    weft_named in[6];
    memcpy(in, f->good, sizeof in);
    in[5].tensor = x;
    check_refused(f, in, 6, status, text);
}

TEST(test_optim_load_refused)
{
    weft_scope_open();
    fixture f = new_fixture();
    weft_named in[7];
    check_refused(&f, f.good, 5, WEFT_ERR_INVALID_ARG, "\"b.exp_avg_sq\" is missing");
    memcpy(in, f.good, sizeof f.good);
    in[6] = f.good[2];
    check_refused(&f, in, 7, WEFT_ERR_INVALID_ARG, "\"a.exp_avg_sq\" is given twice");
    snprintf(in[6].name, sizeof in[6].name, "c.exp_avg");
    check_refused(&f, in, 7, WEFT_ERR_INVALID_ARG, "the adamw has no \"c.exp_avg\"");
    check_last(&f, NULL, WEFT_ERR_INVALID_ARG, "\"b.exp_avg_sq\" is NULL");
    check_last(&f, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)), WEFT_ERR_INVALID_ARG,
               "\"b.exp_avg_sq\" is f32 [3], the optimizer's is f32 [2]");
    check_last(&f, weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2)), WEFT_ERR_INVALID_ARG,
               "\"b.exp_avg_sq\" is f64 [2], the optimizer's is f32 [2]");
    check_last(&f, weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(2)), WEFT_ERR_TYPE,
               "\"b.exp_avg_sq\": it is on meta, the optimizer's on cpu");
    weft_tensor *freed = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_OK(weft_resize_storage(freed, 0));
    check_last(&f, freed, WEFT_ERR_STATE, "\"b.exp_avg_sq\"");
    memcpy(in, f.good, sizeof f.good);
    in[3].tensor = weft_full(WEFT_I64, WEFT_CPU, WEFT_SCALAR, -1);
    check_refused(&f, in, 6, WEFT_ERR_INVALID_ARG, "\"b.step\" is -1; it counts steps");
    in[3].tensor = weft_full(WEFT_I64, WEFT_CPU, WEFT_SCALAR, 1e17);
    check_refused(&f, in, 6, WEFT_ERR_INVALID_ARG, "\"b.step\" is 100000000000000000");
    in[3].tensor = weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, 1);
    check_refused(&f, in, 6, WEFT_ERR_INVALID_ARG, "\"b.step\" is f32 [], the optimizer's is i64");
    check_refused(&f, f.good, -1, WEFT_ERR_INVALID_ARG, "no state");
    check_refused(&f, NULL, 6, WEFT_ERR_INVALID_ARG, "no state");
    CHECK_OK(weft_optim_load(f.optim, f.good, 6));
    CHECK_INT(weft_optim_state(f.optim, in, 6), 6);
    check_equal(in, f.good, 6);
    CHECK_OK(weft_optim_load(f.optim, in, 6)); /* its own, as listed */
    CHECK_INT(weft_optim_state(f.optim, in, 6), 6);
    check_equal(in, f.good, 6);
    weft_scope_close();
}

/* Whatever allocation fails, the state is the old one or the new one, and a later try succeeds. */
TEST(test_optim_load_without_memory)
{
    weft_scope_open();
    fixture f = new_fixture();
    int failed = 0;
    for (int n = 1;; n++) {
        weft_named now[6], more = {"more", leaf_of(WEFT_F32, 1, 1)};
        weft_optim *adam = weft_optim_adamw_of(&more, 1, 0.1, NULL);
        weft_named other = {"other", leaf_of(WEFT_F32, 1, 1)};
        fault_arm(n);
        weft_status loaded = weft_optim_load(f.optim, f.good, 6);
        int group = loaded < 0 ? -1 : weft_optim_adamw_add(adam, &other, 1, 0.1, NULL);
        int listed = group < 0 ? -1 : weft_optim_state(adam, now, 6);
        bool fired = fault_disarm();
        if (!fired) {
            CHECK(loaded == WEFT_OK && group == 1 && listed == 6);
            break;
        }
        failed++;
        weft_clear_error();
        CHECK_INT(weft_optim_state(f.optim, now, 6), 6);
        check_equal(now, loaded < 0 ? f.kept : f.good, 6);
        CHECK_INT(weft_optim_state(adam, now, 6), group < 0 ? 3 : 6);
        CHECK_OK(weft_optim_load(f.optim, f.kept, 6));
    }
    CHECK(failed >= 5);
    weft_scope_close();
}

/* ---- groups ---- */

enum { N = 37, STEPS = 4 };

static float gradient(int k, int i)
{
    return 0.3f * (float)(i % 11 - 5) - 0.07f * (float)k;
}

/* A step of AdamW on one float, in the order of operations of kernels/vector/update_step.h. */
static void plain_step(float *x, float *m, float *v, float g, double rate, double decay, int step)
{
    float shrink = (float)(1 - rate * decay), take = (float)(1 - 0.9), take2 = (float)(1 - 0.999);
    float far = (float)(rate / (1 - pow(0.9, step))), root = (float)sqrt(1 - pow(0.999, step));
    *m = 0.9f * *m + take * g;
    *v = 0.999f * *v + take2 * (g * g);
    *x = shrink * *x - far * (*m / (sqrtf(*v) / root + 1e-8f));
}

/* Two groups with a rate and a decay each, against a plain loop, bit by bit; the rate of one changes
 * on the way. */
TEST(test_optim_groups)
{
    weft_scope_open();
    weft_tensor *p[2] = {leaf_of(WEFT_F32, N, 1.5), leaf_of(WEFT_F32, N, 1.5)};
    weft_adamw_opts opts = WEFT_ADAMW_OPTS_INIT;
    float x[2][N], m[2][N] = {{0}}, v[2][N] = {{0}}, g[N];
    opts.decay = 0.1;
    weft_optim *adam = weft_optim_adamw_of(&(weft_named){"w", p[0]}, 1, 0.1, &opts);
    opts.decay = 0;
    CHECK_INT(weft_optim_adamw_add(adam, &(weft_named){"b", p[1]}, 1, 0.03, &opts), 1);
    for (int k = 0; k < STEPS; k++) {
        double rate[2] = {0.1, k < 2 ? 0.03 : 0.5};
        CHECK_OK(weft_optim_set_group_rate(adam, 1, rate[1]));
        for (int i = 0; i < N; i++)
            g[i] = gradient(k, i);
        for (int q = 0; q < 2; q++) {
            CHECK_OK(weft_set_grad(p[q], weft_tensor_from(WEFT_F32, WEFT_SHAPE(N), g)));
            for (int i = 0; i < N; i++) {
                x[q][i] = k ? x[q][i] : 1.5f;
                plain_step(&x[q][i], &m[q][i], &v[q][i], g[i], rate[q], q ? 0 : 0.1, k + 1);
            }
        }
        CHECK_OK(weft_optim_step(adam));
    }
    for (int q = 0; q < 2; q++)
        CHECK(!memcmp(weft_tensor_data(p[q]), x[q], sizeof x[q]));
    CHECK_OK(weft_optim_set_rate(adam, 0)); /* of both */
    for (int q = 0; q < 2; q++)
        CHECK_OK(weft_set_grad(p[q], weft_tensor_from(WEFT_F32, WEFT_SHAPE(N), g)));
    CHECK_OK(weft_optim_step(adam));
    for (int q = 0; q < 2; q++)
        CHECK(!memcmp(weft_tensor_data(p[q]), x[q], sizeof x[q]));
    weft_scope_close();
}

static void check_no_group(weft_optim *optim, const weft_named *list, int count, double rate,
                           weft_status status, const char *text)
{
    weft_clear_error();
    CHECK_INT(weft_optim_sgd_add(optim, list, count, rate, NULL), status);
    CHECK_CONTAINS(weft_last_error(), text);
    weft_clear_error();
    CHECK_STATUS(weft_optim_set_group_rate(optim, 1, 0.1), WEFT_ERR_INVALID_ARG); /* still one */
    weft_clear_error();
}

TEST(test_optim_groups_refused)
{
    weft_scope_open();
    weft_tensor *a = leaf_of(WEFT_F32, 3, 1), *b = leaf_of(WEFT_F32, 3, 1);
    weft_named list[] = {{"a", a}, {"b", b}, {"c", b}};
    weft_optim *sgd = weft_optim_sgd_of(list, 1, 0.1, NULL),
               *adam = weft_optim_adamw_of(list, 1, 0.1, NULL);
    check_no_group(sgd, list, 2, 0.1, WEFT_ERR_INVALID_ARG,
                   "parameter \"a\" is parameter \"a\" of group 0 already");
    check_no_group(sgd, list + 1, 2, 0.1, WEFT_ERR_INVALID_ARG,
                   "\"b\" and \"c\" are the same tensor");
    check_no_group(sgd, list + 1, 0, 0.1, WEFT_ERR_INVALID_ARG, "a list of 0 parameters");
    check_no_group(sgd, list + 1, 1, -1, WEFT_ERR_INVALID_ARG, "a rate of -1");
    check_no_group(adam, list + 1, 1, 0.1, WEFT_ERR_TYPE, "is of the kind adamw, not sgd");
    CHECK_STATUS(weft_optim_sgd_add(NULL, list, 1, 0.1, NULL), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_optim_set_group_rate(sgd, 0, NAN), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_optim_set_group_rate(sgd, 1, 0.1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "group 1 of an optimizer with 1");
    weft_clear_error();
    CHECK_STATUS(weft_optim_set_group_rate(sgd, -1, 0.1), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_sgd_opts finite = WEFT_SGD_OPTS_INIT; /* of one group, for all */
    finite.finite = true;
    CHECK_INT(weft_optim_sgd_add(sgd, list + 1, 1, 0.1, &finite), 1);
    CHECK_OK(weft_set_grad(a, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), NAN)));
    CHECK_STATUS(weft_optim_step(sgd), WEFT_ERR_NUMERIC);
    weft_clear_error();
    weft_scope_close();
}

/* ---- captures ---- */

static weft_status list_in_capture(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                                   void *user)
{
    weft_named state[ENTRIES];
    (void)ins, (void)outs;
    out[0] = weft_neg(in[0]);
    int count = weft_optim_state(user, state, ENTRIES);
    return count < 0 ? (weft_status)count : WEFT_OK;
}

TEST(test_optim_state_is_not_captured)
{
    weft_scope_open();
    weft_tensor *x = leaf_of(WEFT_F32, 3, 1);
    weft_optim *adam = weft_optim_adamw_of(&(weft_named){"x", x}, 1, 0.1, NULL);
    CHECK(!weft_graph_capture("f", list_in_capture, adam, &x, 1, 1));
    CHECK_CONTAINS(weft_last_error(), "weft_optim_state: cannot be captured");
    weft_clear_error();
    weft_scope_close();
}

static weft_status step_in_capture(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                                   void *user)
{
    (void)ins, (void)outs;
    out[0] = weft_neg(in[0]);
    return weft_optim_step(user);
}

/* What remembers is refused, and steps afterwards as ever; what does not is captured. */
TEST(test_optim_step_is_not_captured)
{
    weft_scope_open();
    weft_tensor *x = leaf_of(WEFT_F32, 3, 1), *y = leaf_of(WEFT_F32, 3, 1),
                *one = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)), *out = NULL;
    weft_optim *adam = weft_optim_adamw_of(&(weft_named){"x", x}, 1, 0.5, NULL),
               *sgd = weft_optim_sgd_of(&(weft_named){"y", y}, 1, 0.5, NULL);
    CHECK_OK(weft_set_grad(x, one));
    CHECK_OK(weft_set_grad(y, one));
    CHECK(!weft_graph_capture("f", step_in_capture, adam, &one, 1, 1));
    CHECK_CONTAINS(weft_last_error(), "weft_optim_step of adamw, which counts its steps: cannot");
    weft_clear_error();
    CHECK_OK(weft_optim_step(adam));
    CHECK(weft_item(x, 0) < 1 && !weft_grad(x));
    weft_graph *graph = weft_graph_capture("f", step_in_capture, sgd, &one, 1, 1);
    CHECK(graph && weft_item(y, 0) == 1 && weft_grad(y));
    CHECK_OK(weft_graph_run(graph, &one, 1, &out, 1));
    CHECK(weft_item(y, 0) == 0.5 && !weft_grad(y));
    weft_scope_close();
}

/* ---- rates ---- */

TEST(test_optim_rates)
{
    for (int step = 0; step < 4; step++) {
        CHECK_NEAR(weft_rate_constant(step, 4, 10), 2 * (step + 1), 1e-14);
        CHECK(weft_rate_linear(step, 4, 9, 10, 1) == weft_rate_constant(step, 4, 10));
        CHECK(weft_rate_cosine(step, 4, 9, 10, 1) == weft_rate_constant(step, 4, 10));
    }
    CHECK(weft_rate_constant(4, 4, 0.3) == 0.3 && weft_rate_constant(INT64_MAX, 4, 0.3) == 0.3);
    CHECK(weft_rate_linear(4, 4, 8, 0.3, 0.1) == 0.3 && weft_rate_cosine(4, 4, 8, 0.3, 0.1) == 0.3);
    for (int step = 4; step <= 8; step++) {
        double t = (step - 4) / 4.0;
        CHECK_NEAR(weft_rate_linear(step, 4, 8, 0.3, 0.1), 0.3 - 0.2 * t, 1e-15);
        CHECK_NEAR(weft_rate_cosine(step, 4, 8, 0.3, 0.1),
                   0.1 + 0.2 * (1 + cos(3.14159265358979323846 * t)) / 2, 1e-15);
    }
    CHECK(weft_rate_linear(8, 4, 8, 0.3, 0.1) == 0.1 && weft_rate_cosine(8, 4, 8, 0.3, 0.1) == 0.1);
    CHECK(weft_rate_linear(INT64_MAX, 4, 8, 0.3, 0.1) == 0.1 &&
          weft_rate_cosine(INT64_MAX, 4, 8, 0.3, 0.1) == 0.1);
}

TEST(test_optim_rates_of_any_numbers)
{
    CHECK(weft_rate_cosine(0, 0, 10, 2, 0) == 2 && weft_rate_linear(0, -5, 10, 2, 0) == 2);
    CHECK(weft_rate_cosine(-7, 3, 10, 2, 0) == 0.5 &&
          weft_rate_cosine(INT64_MIN, 0, 10, 2, 0) == 2);
    CHECK(weft_rate_linear(INT64_MIN, INT64_MIN, 10, 2, 0) == 2);
    CHECK(weft_rate_linear(3, 3, 3, 2, 1) == 1 && weft_rate_cosine(3, 3, -1, 2, 1) == 1);
    CHECK(weft_rate_cosine(2, 3, -1, 2, 1) == 1.5 && weft_rate_cosine(0, 0, 0, 2, 1) == 1);
    CHECK(weft_rate_cosine(5, 0, 10, 1, 3) > 1.9 && weft_rate_linear(5, 0, 10, 1, 3) == 2); /* up */
    CHECK(isnan(weft_rate_constant(5, 0, NAN)) &&
          weft_rate_constant(0, INT64_MAX, 1) > 0); /* and no division by 0 */
    CHECK(isfinite(weft_rate_linear(INT64_MAX - 1, 0, INT64_MAX, 1, 0)));
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
