/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/gradcheck.c, grad/back.c, grad/rules.c, grad/ops.c, grad/rule_copy.c,
 * grad/rule_index.c, grad/rule_linear.c, grad/rule_network.c, grad/rule_pointwise.c,
 * grad/rule_reduce.c, grad/rule_view.c */
/*
 * Every row of the registry has a gradient or a reason why it has none, and every gradient agrees
 * with differences, first and second order.  Collectives are checked in test_functional_grad.c.
 */
#include "fault.h"
#include "op_samples.h"

#include "functional/ops.h"
#include "grad/ops.h"
#include "grad/rule.h"
#include "nn/ops.h"
#include "parallel/ops.h"
#include "symm_coll/ops.h"

/* ---- one row ---- */

static bool has_rule(const weft_i_op *op)
{
    return op->gradient && !op->gradient->why;
}

static bool is_float(const weft_tensor *x)
{
    return weft_i_dtype_is_float(x->dtype);
}

/* Of several results, and of lists, all: joined. */
static weft_tensor *join_all(weft_tensor *const *outs, size_t count)
{
    weft_tensor *flat[8];
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (outs[i])
            flat[n++] = weft_reshape(outs[i], WEFT_SHAPE(-1));
    return weft_cat(flat, n, 0);
}

/* What is written is a clone: a leaf cannot be. */
static weft_tensor *call_row(weft_tensor *const *x, void *user)
{
    const sample *s = user;
    const weft_i_op *op = weft_i_op_find(s->op);
    weft_i_arg args[WEFT_I_OP_ARGS] = {{0}};
    weft_tensor *outs[4] = {NULL};
    inputs in = {0};
    if (*s->inputs == 'L')
        memcpy(in.list, x, sizeof in.list);
    else
        for (in.count = 0; s->inputs[in.count]; in.count++)
            in.at[in.count] = in.count == 0 && op->changes ? weft_clone(x[0]) : x[in.count];
    fill_args(s, &in, WEFT_CPU, args);
    for (int i = 0; i < op->arity; i++)
        if (op->kinds[i] == 'd' && weft_i_dtype_is_float((weft_dtype)args[i].integer))
            args[i].integer = WEFT_F64;
    if (op->flags & WEFT_I_OP_LIST)
        return weft_i_op_apply_list(op, outs, args) < 0 ? NULL : join_all(outs, 2);
    if (op->results > 1)
        return weft_i_op_apply_list(op, outs, args) < 0 ? NULL : join_all(outs, 3);
    return weft_i_op_apply(op, NULL, args);
}

/* Floats as f64 of moderate size, which require gradients; `shift` keeps arguments apart. */
static weft_tensor *checked_input(char letter, double shift)
{
    weft_tensor *x = make_input(letter);
    if (!is_float(x))
        return x;
    x = weft_mul_scalar(weft_to_dtype(x, WEFT_F64), 0.21);
    x = weft_clone(weft_add_scalar(x, 0.13 + shift));
    CHECK_OK(weft_require_grad(x, true));
    return x;
}

/* Returns whether there was something to check. */
static bool check_sample(const sample *s)
{
    if (!strcmp(s->op, "quantized_linear"))
        return true; /* codes are of f32 weights: test_quantize compares its gradients */
    weft_tensor *x[SAMPLE_TENSORS];
    size_t count = 0;
    bool any = false;
    const char *letters = *s->inputs == 'L' ? "ft" : s->inputs;
    for (; letters[count]; count++) {
        x[count] = checked_input(letters[count], 0.017 * (double)count);
        any |= is_float(x[count]);
    }
    weft_tensor *y = any ? call_row(x, (void *)s) : NULL;
    if (any && !y)
        FAIL("%s: %s", s->op, weft_last_error());
    if (!any || y->dtype != WEFT_F64)
        return false;
    weft_gradcheck_opts opts = WEFT_GRADCHECK_OPTS;
    opts.second = true;
    if (weft_gradcheck(call_row, (void *)s, x, count, &opts) < 0)
        FAIL("%s of %s: %s", s->op, s->inputs, weft_last_error());
    return true;
}

/* Rows of the floor of gradients itself. */
static const sample own_samples[] = {{"pass", "L", {{0}}}};

static bool is_sampled(const char *name)
{
    for (int k = 0; k < SAMPLES; k++)
        if (!strcmp(samples[k].op, name))
            return true;
    return !strcmp(own_samples[0].op, name) && check_sample(&own_samples[0]);
}

TEST(test_gradcheck_every_row)
{
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
        for (size_t i = 0; i < table->count; i++)
            if (has_rule(table->rows[i]) && !strchr(table->rows[i]->kinds, 'g') &&
                !is_sampled(table->rows[i]->name))
                FAIL("%s has a rule but no sample", table->rows[i]->name);
    for (int k = 0; k < SAMPLES; k++) {
        const weft_i_op *op = weft_i_op_find(samples[k].op);
        CHECK_OK(weft_scope_open());
        bool checked = has_rule(op) && check_sample(&samples[k]);
        for (int other = 0; has_rule(op) && !checked && other < SAMPLES; other++)
            checked =
                !strcmp(samples[other].op, op->name) && other != k && check_sample(&samples[other]);
        if (has_rule(op) && !checked)
            FAIL("%s has a rule but no sample with floats", op->name);
        CHECK_OK(weft_scope_close());
    }
}

/* A row of every floor: a static link leaves out floors that nobody names. */
static weft_i_op *const floors[] = {&weft_i_op_add,      &weft_i_op_all_reduce,
                                    &weft_i_op_bind,     &weft_i_op_one_shot_all_reduce,
                                    &weft_i_op_set_grad, &weft_i_op_all_gather_matmul};

/* A row with neither a rule nor a reason could not be recorded, and nobody would know why. */
static const char *find_row_without(void)
{
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            const weft_i_gradient *gradient = table->rows[i]->gradient;
            if (!gradient || (!gradient->back && (!gradient->why || strlen(gradient->why) < 10)))
                return table->rows[i]->name;
        }
    return NULL;
}

TEST(test_gradcheck_every_row_has_a_rule_or_a_reason)
{
    for (size_t i = 0; i < sizeof floors / sizeof *floors; i++)
        CHECK(weft_i_op_find(floors[i]->name) == floors[i]);
    if (find_row_without())
        FAIL("%s has neither a gradient nor a reason", find_row_without());
    weft_i_op *sine = weft_i_op_find("sin");
    const weft_i_gradient *rule = sine->gradient;
    sine->gradient = NULL;
    const char *found = find_row_without();
    sine->gradient = rule;
    CHECK(found && !strcmp(found, "sin"));
}

/* ---- what the check finds ---- */

static weft_tensor *first_input(void)
{
    return checked_input('f', 0);
}

static weft_status times_exp(weft_i_back *c)
{
    return GIVE(0, weft_mul(c->g[0], weft_exp(c->arg[0].tensor)));
}

/* Right in value, but its own gradient is lost. */
static weft_status detached_cos(weft_i_back *c)
{
    return GIVE(0, weft_mul(c->g[0], weft_detach(weft_cos(c->arg[0].tensor))));
}

static weft_tensor *sine_of(weft_tensor *const *x, void *user)
{
    (void)user;
    return weft_sin(x[0]);
}

static weft_status check_planted(weft_status (*back)(weft_i_back *c), bool second)
{
    weft_i_gradient planted = {.save = 1, .back = back};
    weft_i_op *sine = weft_i_op_find("sin");
    const weft_i_gradient *rule = sine->gradient;
    weft_gradcheck_opts opts = WEFT_GRADCHECK_OPTS;
    opts.second = second;
    weft_tensor *x = first_input();
    sine->gradient = &planted;
    weft_status status = weft_gradcheck(sine_of, NULL, &x, 1, &opts);
    sine->gradient = rule;
    return status;
}

TEST(test_gradcheck_finds_a_planted_rule)
{
    CHECK_STATUS(check_planted(times_exp, false), WEFT_ERR_NUMERIC);
    CHECK_CONTAINS(weft_last_error(), "first order, element 0 of input 0");
    CHECK_OK(check_planted(detached_cos, false));
    CHECK_STATUS(check_planted(detached_cos, true), WEFT_ERR_NUMERIC);
    CHECK_CONTAINS(weft_last_error(), "second order");
    weft_clear_error();
}

static weft_tensor *detached(weft_tensor *const *x, void *user)
{
    (void)user;
    return weft_sin(weft_detach(x[0]));
}

static weft_tensor *rounded(weft_tensor *const *x, void *user)
{
    (void)user;
    return weft_to_dtype(x[0], WEFT_F32);
}

static weft_tensor *failing(weft_tensor *const *x, void *user)
{
    (void)user;
    return weft_view(x[0], WEFT_SHAPE(7));
}

TEST(test_gradcheck_refuses_what_it_cannot_check)
{
    weft_tensor *x = first_input(), *plain = weft_detach(x);
    CHECK_STATUS(weft_gradcheck(detached, NULL, &x, 1, NULL), WEFT_ERR_NUMERIC);
    CHECK_STATUS(weft_gradcheck(sine_of, NULL, &plain, 1, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_gradcheck(rounded, NULL, &x, 1, NULL), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_gradcheck(failing, NULL, &x, 1, NULL), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_gradcheck(NULL, NULL, &x, 1, NULL), WEFT_ERR_INVALID_ARG);
    weft_tensor *half = weft_to_dtype(plain, WEFT_F32);
    CHECK_OK(weft_require_grad(half, true));
    CHECK_STATUS(weft_gradcheck(sine_of, NULL, &half, 1, NULL), WEFT_ERR_TYPE);
    weft_clear_error();
}

/* Inputs are as they were, versions and gradients included. */
TEST(test_gradcheck_leaves_no_trace)
{
    weft_tensor *x = first_input(), *before = weft_clone(weft_detach(x));
    int64_t version = weft_tensor_version(x);
    weft_gradcheck_opts opts = WEFT_GRADCHECK_OPTS;
    opts.second = true;
    CHECK_OK(weft_gradcheck(sine_of, NULL, &x, 1, &opts));
    CHECK(weft_equal(before, weft_detach(x)));
    CHECK_INT(weft_tensor_version(x), version);
    CHECK(!weft_grad(x));
}

/* ---- edges that samples do not have ---- */

static weft_tensor *product_of(weft_tensor *const *x, void *user)
{
    (void)user;
    return weft_prod(x[0], (int[]){1}, 1, false);
}

TEST(test_gradcheck_prod_with_zeros)
{
    weft_tensor *x = weft_tensor_from(WEFT_F64, WEFT_SHAPE(3, 5),
                                      (double[]){1, 2, 3, 4, 5, 0, 2, 3, 4, 5, 0, 2, 0, 4, 5});
    CHECK_OK(weft_require_grad(x, true));
    weft_gradcheck_opts opts = WEFT_GRADCHECK_OPTS;
    opts.second = true;
    opts.absolute = 1e-6;
    opts.relative = 1e-6;
    CHECK_OK(weft_gradcheck(product_of, NULL, &x, 1, &opts));
}

static weft_tensor *gradient_of(weft_tensor *y, weft_tensor *x)
{
    weft_tensor *grad = NULL, *loss = weft_sum(y, NULL, 0, false);
    return weft_gradients(&grad, &x, 1, &loss, 1, NULL) < 0 ? NULL : grad;
}

static weft_tensor *leaf_of(weft_shape shape, const double *values)
{
    weft_tensor *x = weft_tensor_from(WEFT_F64, shape, values);
    CHECK_OK(weft_require_grad(x, true));
    return x;
}

static void check_values(weft_tensor *x, const double *values)
{
    if (!x)
        FAIL("%s", weft_last_error());
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        CHECK_NEAR(weft_item(x, i), values[i], 1e-12);
}

/* As PyTorch: equal elements share the gradient; a kink has gradient 0 or half. */
TEST(test_gradcheck_ties)
{
    weft_tensor *x = leaf_of(WEFT_SHAPE(2, 3), (double[]){1, 3, 3, 2, 2, 2});
    check_values(gradient_of(weft_max(x, (int[]){1}, 1, false), x),
                 (double[]){0, .5, .5, 1 / 3., 1 / 3., 1 / 3.});
    check_values(gradient_of(weft_min(x, NULL, 0, false), x), (double[]){1, 0, 0, 0, 0, 0});
    weft_tensor *a = leaf_of(WEFT_SHAPE(3), (double[]){1, 2, 3}),
                *b = leaf_of(WEFT_SHAPE(3), (double[]){2, 2, 2});
    check_values(gradient_of(weft_maximum(a, b), a), (double[]){0, .5, 1});
    check_values(gradient_of(weft_minimum(a, b), b), (double[]){0, .5, 1});
    weft_tensor *zero = leaf_of(WEFT_SHAPE(3), (double[]){-1, 0, 1});
    check_values(gradient_of(weft_abs(zero), zero), (double[]){-1, 0, 1});
    check_values(gradient_of(weft_relu(zero), zero), (double[]){0, 0, 1});
    check_values(gradient_of(weft_pow_scalar(zero, 0), zero), (double[]){0, 0, 0});
    check_values(gradient_of(weft_pow_scalar(zero, 1), zero), (double[]){1, 1, 1});
    check_values(gradient_of(weft_scalar_pow(0, b), b), (double[]){0, 0, 0});
}

TEST(test_gradcheck_without_elements)
{
    weft_tensor *x = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2, 0));
    CHECK_OK(weft_require_grad(x, true));
    weft_tensor *y[] = {weft_prod(x, (int[]){1}, 1, false), weft_sum(x, NULL, 0, false),
                        weft_slice(x, 1, 0, 0, 1), weft_softmax(x, 1), weft_gelu(x)};
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) {
        weft_tensor *grad = gradient_of(y[i], x);
        if (!grad)
            FAIL("%zu: %s", i, weft_last_error());
        CHECK(weft_i_shape_equal(weft_tensor_shape(grad), WEFT_SHAPE(2, 0)));
    }
}

/* What has no gradient is refused by the call. */
TEST(test_gradcheck_refused_calls)
{
    weft_tensor *x = leaf_of(WEFT_SHAPE(2), (double[]){1, 2}), *y = weft_mul_scalar(x, 2);
    CHECK(!weft_view_dtype(x, WEFT_F32));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK(!weft_to(x, WEFT_F64, WEFT_META));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_set(y, x), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    for (int no = -1; no <= WEFT_DTYPE_COUNT;
         no += WEFT_DTYPE_COUNT + 1) { /* before it looks for a rule */
        CHECK(!weft_view_dtype(x, (weft_dtype)no));
        CHECK_CONTAINS(weft_last_error(), "view_dtype");
        CHECK(weft_last_status() != WEFT_ERR_UNSUPPORTED);
        weft_clear_error();
    }
    weft_tensor *bits = weft_view_dtype(x, WEFT_I64); /* integers need none */
    CHECK(bits && !weft_requires_grad(bits));
}

/* ---- meta ---- */

/* Rules on meta tensors give the shapes that they give on the CPU. */
static weft_shape meta_gradient(const sample *s, weft_tensor *x)
{
    weft_tensor *like = weft_empty_strided(x->dtype, WEFT_META, weft_tensor_shape(x), x->stride);
    CHECK_OK(weft_require_grad(like, true));
    weft_tensor *y = call_row(&like, (void *)s);
    weft_tensor *grad = y ? gradient_of(y, like) : NULL;
    if (!grad)
        FAIL("%s on meta: %s", s->op, weft_last_error());
    CHECK_INT(weft_tensor_device(grad), WEFT_META);
    return weft_tensor_shape(grad);
}

/* Arguments of the right kinds, whose tensors are `x`. */
static void made_up(const weft_i_op *op, weft_tensor **x, weft_i_arg *args)
{
    static const int64_t none[1];
    for (int i = 0; i < op->arity; i++)
        switch (op->kinds[i]) {
        case 't':
        case 'y':
        case 'w':
        case 'r':
            args[i] = WEFT_I_TENSOR_ARG(*x);
            break;
        case 'm':
        case 'l':
        case 'L':
            args[i] = WEFT_I_TENSORS_ARG(x, 1);
            break;
        case 'o':
            args[i] = WEFT_I_OPTIONAL_ARG(NULL);
            break;
        case 's':
        case 'n':
            args[i] = WEFT_I_NUMBER_ARG(0);
            break;
        case 'I':
            args[i] = WEFT_I_INTEGERS_ARG(none, 0);
            break;
        case 'g':
            args[i] = WEFT_I_GROUP_ARG(NULL, "nobody", 1);
            break;
        default:
            args[i] = WEFT_I_INTEGER_ARG(0);
        }
}

/* Every row that is refused is refused when it is called, before anything is looked at or done. */
TEST(test_gradcheck_every_refused_row_is_refused)
{
    int refused = 0;
    weft_tensor *x = leaf_of(WEFT_SHAPE(2), (double[]){1, 2}), *y = weft_mul_scalar(x, 2), *outs[1];
    int64_t version = weft_tensor_version(y);
    for (weft_i_op_table *table = weft_i_op_tables(); table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            const weft_i_op *op = table->rows[i];
            if (!op->gradient->refused)
                continue;
            weft_i_arg args[WEFT_I_OP_ARGS];
            made_up(op, &y, args);
            bool list = op->flags & WEFT_I_OP_LIST;
            weft_status status = list ? weft_i_op_apply_list(op, outs, args) : WEFT_OK;
            if (list ? status >= 0 : weft_i_op_apply(op, NULL, args) != NULL)
                FAIL("%s was not refused", op->name);
            CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
            CHECK_CONTAINS(weft_last_error(), op->name);
            CHECK_CONTAINS(weft_last_error(), op->gradient->why);
            CHECK_CONTAINS(weft_last_error(), "weft_detach");
            weft_clear_error();
            refused++;
        }
    CHECK_INT(refused, 16);
    CHECK(weft_tensor_version(y) == version && weft_item(y, 1) == 4);
}

TEST(test_gradcheck_meta)
{
    int checked = 0;
    for (int k = 0; k < SAMPLES; k++) {
        const sample *s = &samples[k];
        const weft_i_op *op = weft_i_op_find(s->op);
        if (!has_rule(op) || strlen(s->inputs) != 1 || *s->inputs == 'L' || op->changes ||
            !strcmp(s->op, "to") || !strcmp(s->op, "view_dtype"))
            continue;
        CHECK_OK(weft_scope_open());
        weft_tensor *x = checked_input(*s->inputs, 0);
        if (is_float(x)) {
            CHECK(weft_i_shape_equal(meta_gradient(s, x), weft_tensor_shape(x)));
            checked++;
        }
        CHECK_OK(weft_scope_close());
    }
    CHECK(checked > 30);
}

/* ---- memory that runs out ---- */

/* Forward, back, and back again, of the first input that has a gradient. */
static weft_status both_orders(const sample *s, weft_tensor *const *x, weft_tensor *leaf)
{
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.create_graph = opts.allow_unused = true;
    weft_tensor *y = call_row(x, (void *)s), *grad = NULL, *again = NULL;
    weft_tensor *loss = y ? weft_sum(weft_mul(y, y), NULL, 0, false) : NULL;
    if (!loss)
        return weft_last_status();
    WEFT_TRY(weft_gradients(&grad, &leaf, 1, &loss, 1, &opts));
    weft_tensor *second = grad ? weft_sum(grad, NULL, 0, false) : NULL;
    if (grad && !second)
        return weft_last_status();
    opts.create_graph = false;
    return second && weft_requires_grad(second)
               ? weft_gradients(&again, &leaf, 1, &second, 1, &opts)
               : WEFT_OK;
}

static void run_out(const sample *s, weft_tensor *const *x, weft_tensor *leaf)
{
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_clear_error();
        fault_arm(n);
        weft_status status = weft_scope_open();
        if (status >= 0) {
            status = both_orders(s, x, leaf);
            weft_scope_close();
        }
        fired = fault_disarm();
        if (status != (fired ? WEFT_ERR_NO_MEMORY : WEFT_OK))
            FAIL("%s, call %d (%s) failed: %s: %s", s->op, n, fault_name, weft_status_name(status),
                 weft_last_error());
    }
    weft_clear_error();
}

/* The failure comes out as what it is; what leaks, the sanitizer's build sees. */
TEST(test_gradcheck_every_allocation_of_a_rule_may_fail)
{
    for (int k = 0; k < SAMPLES; k++) {
        const sample *s = &samples[k];
        if (!has_rule(weft_i_op_find(s->op)))
            continue;
        CHECK_OK(weft_scope_open());
        weft_tensor *x[SAMPLE_TENSORS], *leaf = NULL;
        const char *letters = *s->inputs == 'L' ? "ft" : s->inputs;
        for (size_t i = 0; letters[i]; i++) {
            x[i] = checked_input(letters[i], 0.017 * (double)i);
            leaf = leaf || !is_float(x[i]) ? leaf : x[i];
        }
        weft_tensor *y = leaf ? call_row(x, (void *)s) : NULL;
        if (y && y->dtype == WEFT_F64 && weft_requires_grad(y))
            run_out(s, x, leaf);
        CHECK_OK(weft_scope_close());
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
