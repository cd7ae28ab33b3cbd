/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: nn/module.c, nn/call.c, nn/hook.c, nn/sequential.c, nn/state.c, nn/name.c */
/* Modules: names, state, calls, and hooks in both directions. */
#include "harness.h"
#include "leaf.h"

#include "base/os/os.h"

#include <weft/weft.h>

static char story[1024];

static void tell(const char *word)
{
    size_t used = strlen(story);
    snprintf(story + used, sizeof story - used, "%s%s", used ? " " : "", word);
}

#define CHECK_STORY(text_)                                    \
    do {                                                      \
        if (strcmp(story, (text_)))                           \
            FAIL("it went \"%s\", not \"%s\"", story, text_); \
        story[0] = 0;                                         \
    } while (0)

static weft_tensor *scaled(weft_module *self, weft_tensor *x, void *user)
{
    (void)user;
    return weft_mul(x, weft_module_param(self, "scale"));
}

static weft_module *new_scaled(double scale)
{
    weft_module *module = weft_module_new(scaled, NULL);
    weft_tensor *param = weft_parameter(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), scale), true);
    CHECK_OK(weft_module_add_param(module, "scale", param));
    return module;
}

/* -- names -- */

TEST(test_module_names)
{
    weft_scope_open();
    weft_module *inner = new_scaled(2), *outer = weft_nn_sequential(inner, weft_nn_linear(3, 4));
    weft_tensor *buffer = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SCALAR);
    CHECK_OK(weft_module_add_buffer(outer, "steps", buffer));
    CHECK(weft_module_param(outer, "0.scale") == weft_module_param(inner, "scale"));
    CHECK(weft_module_child(outer, "0") == inner);
    CHECK(weft_module_buffer(outer, "steps") == buffer);
    CHECK_INT(weft_tensor_size(weft_module_param(outer, "1.weight"), 0), 4);
    static const char *const wrong[] = {"0",         "0.scale.x", "1.",    ".weight",
                                        "",          "2.weight",  "steps", "1.weigh",
                                        "1.weights", "0..scale"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!weft_module_param(outer, wrong[i]));
        CHECK_INT(weft_last_status(), WEFT_ERR_NOT_FOUND);
    }
    CHECK(!weft_module_param(outer, "2.weight"));
    CHECK_CONTAINS(weft_last_error(),
                   "it has \"0\" (a child), \"1\" (a child), \"steps\" (a buffer)");
    weft_clear_error();
    weft_scope_close();
}

TEST(test_module_additions_are_checked)
{
    weft_scope_open();
    weft_module *a = new_scaled(1), *b = weft_nn_sequential(a);
    weft_tensor *plain = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    weft_tensor *param = weft_parameter(plain, true);
    int64_t generation = weft_module_generation(b);
    char longer[80];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    CHECK_STATUS(weft_module_add_param(a, "scale", param), WEFT_ERR_EXISTS);
    CHECK_STATUS(weft_module_add_param(a, "a.b", param), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_module_add_param(a, "", param), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_module_add_param(a, longer, param), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_module_add_param(a, "bias", plain), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "weft_parameter");
    CHECK_STATUS(weft_module_bind(a, "scale", plain), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_module_bind(b, "0", param), WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(weft_module_add(a, "self", b), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_module_add(a, "self", a), WEFT_ERR_INVALID_ARG);
    CHECK_INT(weft_module_generation(b), generation);
    CHECK_OK(weft_module_bind(b, "0.scale", param));
    CHECK(weft_module_param(a, "scale") == param);
    CHECK_INT(weft_module_generation(b), generation);
    weft_clear_error();
    weft_scope_close();
}

TEST(test_module_generation_counts_structure)
{
    weft_scope_open();
    weft_module *a = new_scaled(1), *b = weft_nn_sequential(a);
    int64_t before = weft_module_generation(b);
    CHECK_OK(weft_module_add_buffer(a, "seen", weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SCALAR)));
    CHECK(weft_module_generation(b) > before);
    before = weft_module_generation(b);
    CHECK_OK(weft_module_train(b, true)); /* as it was */
    CHECK_INT(weft_module_generation(b), before);
    CHECK_OK(weft_module_train(b, false));
    CHECK(weft_module_generation(b) > before && !weft_module_is_training(a));
    weft_scope_close();
}

/* -- state -- */

TEST(test_module_state_out_and_in)
{
    weft_scope_open();
    weft_seed(1);
    weft_module *a = weft_nn_sequential(weft_nn_linear(2, 3), weft_nn_layer_norm(3));
    weft_module *b = weft_nn_sequential(weft_nn_linear(2, 3), weft_nn_layer_norm(3));
    CHECK_OK(weft_module_add_buffer(a, "mean", weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), 5)));
    CHECK_OK(weft_module_add_buffer(b, "mean", weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2))));
    static const char *const names[] = {"mean", "0.weight", "0.bias", "1.weight", "1.bias"};
    weft_named state[8];
    CHECK_INT(weft_module_state(a, state, 2), 5); /* how many there are, whatever the room */
    CHECK_INT(weft_module_state(a, state, 8), 5);
    for (int i = 0; i < 5; i++)
        CHECK(!strcmp(state[i].name, names[i]));
    CHECK_INT(weft_module_params(a, state + 5, 3), 4);
    CHECK(!strcmp(state[5].name, "0.weight"));
    weft_tensor *weight = weft_module_param(b, "0.weight");
    CHECK(!weft_equal(weight, state[1].tensor));
    state[1].tensor = weft_to_dtype(weft_detach(state[1].tensor), WEFT_F64);
    CHECK_OK(weft_module_load(b, state, 5));
    CHECK(weft_module_param(b, "0.weight") == weight && weft_requires_grad(weight));
    CHECK(weft_equal(weight, weft_module_param(a, "0.weight")));
    CHECK(weft_item(weft_module_buffer(b, "mean"), 1) == 5);
    weft_scope_close();
}

/* -- calls -- */

static bool released;

static void release(void *user)
{
    released = true;
    tell(user);
}

/* A graph that still has to pass its hooks holds the module, with what that owns. */
static weft_status pass_by(weft_hook_event *event)
{
    tell(event->user ? event->user : "hook");
    return WEFT_OK;
}

TEST(test_module_lives_as_long_as_it_is_needed)
{
    weft_scope_open();
    story[0] = 0;
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)));
    weft_scope_open();
    weft_module *module = new_scaled(2);
    CHECK_OK(weft_module_own_user(module, release));
    CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD, 0, pass_by, "hook", WEFT_HOLD()) > 0);
    weft_tensor *y = weft_keep(weft_module_call(module, x));
    weft_scope_close();
    released = false;
    CHECK_OK(weft_backward(total(y)));
    CHECK(!released);
    weft_release(y);
    weft_scope_close();
    CHECK(released);
    story[0] = 0;
}

static weft_status swap(weft_module *self, weft_tensor *const *in, int ins, weft_tensor **out,
                        int outs, void *user)
{
    (void)self, (void)user;
    if (ins != 3 || outs != 2 || in[1])
        return WEFT_ERR_INTERNAL;
    out[0] = weft_mul_scalar(in[2], 2);
    out[1] = weft_mul_scalar(in[0], 3);
    return WEFT_OK;
}

TEST(test_module_of_several_values)
{
    weft_scope_open();
    weft_module *module = weft_module_new_list(swap, NULL);
    weft_tensor *a = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)),
                *in[] = {a, NULL, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 7)}, *out[2];
    CHECK_OK(weft_module_call_list(module, out, 2, in, 3));
    CHECK(weft_item(out[0], 0) == 14 && weft_item(out[1], 1) == 3);
    out[0] = a;
    CHECK_STATUS(weft_module_call_list(module, out, 1, in, 3), WEFT_ERR_INTERNAL);
    CHECK(out[0] == a); /* nothing is written by a call that failed */
    CHECK(weft_module_call_list(module, out, 2, in, 17) < 0);
    CHECK(weft_module_call_list(module, out, 0, in, 3) < 0);
    CHECK(weft_module_call_list(new_scaled(1), out, 2, in, 1) < 0);
    CHECK(!weft_module_call(module, NULL));
    weft_clear_error();
    weft_scope_close();
}

static weft_tensor *failing(weft_module *self, weft_tensor *x, void *user)
{
    (void)self, (void)user;
    return weft_matmul(x, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(100, 100)));
}

TEST(test_module_failed_forward_says_where)
{
    weft_scope_open();
    weft_module *net = weft_nn_sequential(weft_nn_op(weft_relu), weft_module_new(failing, NULL));
    CHECK(!weft_module_call(net, weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2))));
    CHECK_CONTAINS(weft_last_error(), "in a sequential: in a module: mm: shapes");
    weft_clear_error();
    weft_scope_close();
}

/* -- forward hooks -- */

static weft_status double_in(weft_hook_event *event)
{
    tell("double_in");
    event->in[0] = weft_mul_scalar(event->in[0], 2);
    return event->outs ? WEFT_OK : WEFT_ERR_INTERNAL;
}

static weft_status add_held(weft_hook_event *event)
{
    tell("add_held");
    event->out[0] = weft_add(event->out[0], event->held[0]);
    return WEFT_OK;
}

static weft_status outcome(weft_hook_event *event)
{
    tell(event->status < 0 ? "failed" : "fine");
    if (event->status < 0 && event->out[0])
        return WEFT_ERR_INTERNAL;
    return event->status < 0 ? WEFT_ERR_TIMEOUT : WEFT_OK; /* that one is not heard */
}

TEST(test_module_forward_hooks)
{
    weft_scope_open();
    story[0] = 0;
    weft_module *module = new_scaled(10);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)),
                *held = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3), 0.5);
    int64_t in =
        weft_module_hook_add(module, WEFT_HOOK_FORWARD_PRE, 0, double_in, NULL, WEFT_HOLD());
    int64_t out =
        weft_module_hook_add(module, WEFT_HOOK_FORWARD, 0, add_held, NULL, WEFT_HOLD(held));
    CHECK(weft_module_hook_add(module, WEFT_HOOK_FORWARD, WEFT_HOOK_PREPEND, pass_by, "first",
                               WEFT_HOLD()) > 0);
    CHECK(weft_module_hook_add(module, WEFT_HOOK_FORWARD_PRE, WEFT_HOOK_PREPEND, pass_by, "zeroth",
                               WEFT_HOLD()) > 0);
    CHECK(weft_item(weft_module_call(module, x), 2) == 20.5);
    CHECK_STORY("zeroth double_in first add_held");
    CHECK(weft_item(x, 0) == 1);
    CHECK_OK(weft_module_hook_remove(module, in));
    CHECK_STATUS(weft_module_hook_remove(module, in), WEFT_ERR_NOT_FOUND);
    CHECK_OK(weft_module_hook_remove(module, out));
    CHECK(weft_item(weft_module_call(module, x), 2) == 10);
    CHECK_STORY("zeroth first");
    weft_clear_error();
    weft_scope_close();
}

TEST(test_module_always_called_hooks)
{
    weft_scope_open();
    story[0] = 0;
    weft_module *module = weft_module_new(failing, NULL);
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2)),
                *fits = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 100));
    CHECK(weft_module_hook_add(module, WEFT_HOOK_FORWARD, WEFT_HOOK_ALWAYS, outcome, NULL,
                               WEFT_HOLD()) > 0);
    CHECK(weft_module_hook_add(module, WEFT_HOOK_FORWARD, 0, pass_by, "not", WEFT_HOLD()) > 0);
    CHECK(weft_module_call(module, fits));
    CHECK_STORY("fine not");
    CHECK(!weft_module_call(module, x));
    CHECK_STORY("failed");
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG); /* of forward, not of the hook */
    CHECK_CONTAINS(weft_last_error(), "mm: shapes");
    CHECK(weft_module_hook_add(module, WEFT_HOOK_FORWARD_PRE, WEFT_HOOK_ALWAYS, outcome, NULL,
                               WEFT_HOLD()) < 0);
    weft_clear_error();
    weft_scope_close();
}

static weft_status refuse(weft_hook_event *event)
{
    (void)event;
    return WEFT_ERR_CANCELLED;
}

static weft_status put_null(weft_hook_event *event)
{
    event->out[0] = NULL;
    return WEFT_OK;
}

TEST(test_module_failing_hooks)
{
    weft_scope_open();
    weft_clear_error();
    weft_module *module = new_scaled(1);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    int64_t hook =
        weft_module_hook_add(module, WEFT_HOOK_FORWARD_PRE, 0, refuse, NULL, WEFT_HOLD());
    CHECK(!weft_module_call(module, x));
    CHECK_INT(weft_last_status(), WEFT_ERR_CANCELLED);
    CHECK_CONTAINS(weft_last_error(),
                   "in a module: forward_pre hook 1 of a module: returned WEFT_ERR_CANCELLED");
    CHECK_OK(weft_module_hook_remove(module, hook));
    weft_clear_error();
    CHECK(weft_module_hook_add(module, WEFT_HOOK_FORWARD, 0, put_null, NULL, WEFT_HOLD()) == 2);
    CHECK(!weft_module_call(module, x));
    CHECK_CONTAINS(weft_last_error(), "forward hook 2 of a module: replaces value 0 by NULL");
    weft_clear_error();
    weft_scope_close();
}

static weft_status remove_next(weft_hook_event *event)
{
    tell("remover");
    return weft_module_hook_remove(event->module, *(int64_t *)event->user);
}

/* A hook may remove hooks, itself too, and add some: those run from the next call on. */
TEST(test_module_hooks_change_while_they_run)
{
    weft_scope_open();
    story[0] = 0;
    weft_module *module = new_scaled(1);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    int64_t next, self;
    self = weft_module_hook_add(module, WEFT_HOOK_FORWARD, 0, remove_next, &next, WEFT_HOLD());
    next = weft_module_hook_add(module, WEFT_HOOK_FORWARD, 0, pass_by, "removed", WEFT_HOLD());
    CHECK(weft_module_hook_add(module, WEFT_HOOK_FORWARD, 0, pass_by, "last", WEFT_HOLD()) > 0);
    CHECK(weft_module_call(module, x));
    CHECK_STORY("remover last");
    next = self;
    CHECK(weft_module_call(module, x));
    CHECK(weft_module_call(module, x));
    CHECK_STORY("remover last last");
    weft_scope_close();
}

/* -- backward hooks -- */

typedef struct counts {
    weft_tensor *pre, *post;
} counts;

static weft_status bw_pre_hook(weft_hook_event *event)
{
    weft_tensor *weight = weft_module_param(event->module, "weight");
    if (weft_tensor_size(weight, 0) != 10 || weft_tensor_size(weight, 1) != 10)
        return WEFT_ERR_INTERNAL;
    event->out[0] = weft_sin(weft_add_scalar(event->out[0], 1.2));
    return weft_add_scalar_into(event->held[0], event->held[0], 1);
}

static weft_status bw_post_hook(weft_hook_event *event)
{
    event->in[0] = weft_sin(weft_add_scalar(event->in[0], 3.4));
    return weft_add_scalar_into(event->held[0], event->held[0], 1);
}

static weft_module *init_module_bw_hooks(counts *c)
{
    weft_seed(1234);
    weft_module *module = weft_nn_linear(10, 10);
    c->pre = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SCALAR);
    c->post = weft_zeros(WEFT_I64, WEFT_CPU, WEFT_SCALAR);
    CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD_PRE, 0, bw_pre_hook, NULL,
                               WEFT_HOLD(c->pre)) > 0);
    CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD, 0, bw_post_hook, NULL,
                               WEFT_HOLD(c->post)) > 0);
    return module;
}

static void run_steps(weft_module *net, weft_tensor *inp)
{
    for (int k = 0; k < 4; k++) {
        weft_scope_open();
        CHECK_OK(weft_backward(total(weft_module_call(net, inp))));
        weft_scope_close();
    }
}

static double column(weft_tensor *x, int j, int width)
{
    double sum = 0;
    for (int64_t i = 0; i < weft_tensor_size(x, 0); i++)
        sum += weft_item(x, i * width + j);
    return sum;
}

TEST(test_module_backward_hooks_one_layer)
{
    counts c;
    double q = sin(2.2);
    weft_scope_open();
    weft_module *net = init_module_bw_hooks(&c);
    weft_tensor *inp = leaf(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 10)));
    run_steps(net, inp);
    weft_tensor *weight = weft_module_param(net, "weight"), *bias = weft_module_param(net, "bias");
    CHECK_NEAR(q, 0.8084964, 1e-7);
    for (int j = 0; j < 10; j++) {
        double expected = 4 * sin(q * column(weight, j, 10) + 3.4);
        CHECK_NEAR(weft_item(weft_grad(bias), j), 6.4679712, 2e-6);
        for (int i = 0; i < 10; i++)
            CHECK_NEAR(weft_item(weft_grad(weight), i * 10 + j), 4 * q * column(inp, j, 10), 1e-5);
        for (int i = 0; i < 2; i++)
            CHECK_NEAR(weft_item(weft_grad(inp), i * 10 + j), expected, 1e-5);
    }
    CHECK_INT(weft_item_int(c.pre, 0), 4);
    CHECK_INT(weft_item_int(c.post, 0), 4);
    weft_scope_close();
}

/* Two such layers of equal weights: the second's replaced gradient is what the first begins with.
 */
TEST(test_module_backward_hooks_multi_layers)
{
    counts c[2];
    double q = sin(2.2), a[10];
    weft_scope_open();
    weft_module *first = init_module_bw_hooks(&c[0]), *second = init_module_bw_hooks(&c[1]);
    weft_module *net = weft_nn_sequential(first, second);
    weft_tensor *inp = leaf(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 10)));
    run_steps(net, inp);
    weft_tensor *w = weft_module_param(net, "1.weight"), *middle = weft_module_call(first, inp);
    CHECK(weft_equal(w, weft_module_param(net, "0.weight")));
    for (int j = 0; j < 10; j++)
        a[j] = sin(sin(q * column(w, j, 10) + 3.4) + 1.2); /* at the first layer's product */
    for (int j = 0; j < 10; j++) {
        double back = 0;
        for (int k = 0; k < 10; k++)
            back += a[k] * weft_item(w, k * 10 + j);
        for (int i = 0; i < 2; i++)
            CHECK_NEAR(weft_item(weft_grad(inp), i * 10 + j), 4 * sin(back + 3.4), 2e-5);
        CHECK_NEAR(weft_item(weft_grad(weft_module_param(net, "1.bias")), j), 8 * q, 1e-5);
        CHECK_NEAR(weft_item(weft_grad(weft_module_param(net, "0.bias")), j), 8 * a[j], 2e-5);
        for (int k = 0; k < 10; k++) {
            CHECK_NEAR(weft_item(weft_grad(w), k * 10 + j), 4 * q * column(middle, j, 10), 2e-5);
            CHECK_NEAR(weft_item(weft_grad(weft_module_param(net, "0.weight")), k * 10 + j),
                       4 * a[k] * column(inp, j, 10), 2e-5);
        }
    }
    for (int i = 0; i < 2; i++)
        CHECK(weft_item_int(c[i].pre, 0) == 4 && weft_item_int(c[i].post, 0) == 4);
    weft_scope_close();
}

static void hook_both(weft_module *module, char *pre, char *post)
{
    CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD_PRE, 0, pass_by, pre, WEFT_HOLD()) > 0);
    CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD, 0, pass_by, post, WEFT_HOLD()) > 0);
}

TEST(test_module_backward_order)
{
    weft_scope_open();
    story[0] = 0;
    weft_module *a = new_scaled(2), *b = new_scaled(3), *net = weft_nn_sequential(a, b);
    hook_both(a, "a.pre", "a.post");
    hook_both(b, "b.pre", "b.post");
    hook_both(net, "net.pre", "net.post");
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)));
    CHECK_OK(weft_backward(total(weft_module_call(net, x))));
    CHECK_STORY("net.pre b.pre b.post a.pre a.post net.post");
    CHECK(weft_item(weft_grad(x), 0) == 6);
    /* The input requires nothing: the hook comes right after the pre hook. */
    CHECK_OK(weft_backward(total(weft_module_call(a, weft_detach(x)))));
    CHECK_STORY("a.pre a.post");
    /* Nothing is recorded, or nothing that requires gradients: no nodes, no hooks. */
    WEFT_NO_GRAD
    {
        weft_module_call(net, x);
    }
    CHECK_STORY("");
    weft_scope_close();
}

static weft_status look_at_three(weft_hook_event *event)
{
    bool backward = event->user != NULL;
    if (event->ins != 3 || event->outs != 2 || event->in[1])
        return WEFT_ERR_INTERNAL;
    if (!event->out[0] || event->out[1])
        return WEFT_ERR_MISMATCH; /* nothing depends on result 1 */
    if (backward && (!event->in[2] || event->in[0]))
        return WEFT_ERR_MISMATCH;
    tell(backward ? "post" : "pre");
    return WEFT_OK;
}

/* One node sees the gradients of all values; where there is none stands NULL. */
TEST(test_module_backward_sees_all_values)
{
    weft_scope_open();
    story[0] = 0;
    weft_module *module = weft_module_new_list(swap, NULL);
    weft_tensor *in[] = {leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2))), NULL,
                         leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)))},
                *out[2];
    CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD_PRE, 0, look_at_three, NULL,
                               WEFT_HOLD()) > 0);
    CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD, 0, look_at_three, "x", WEFT_HOLD()) > 0);
    CHECK_OK(weft_module_call_list(module, out, 2, in, 3));
    CHECK_OK(weft_backward(total(out[0])));
    CHECK_STORY("pre post");
    CHECK(weft_item(weft_grad(in[2]), 3) == 2 && !weft_grad(in[0]));
    weft_scope_close();
}

static weft_status times_ten(weft_hook_event *event)
{
    event->in[0] = weft_mul_scalar(event->in[0], 10);
    return weft_item(event->out[0], 0) == 100 ? WEFT_OK : WEFT_ERR_INTERNAL;
}

static weft_status times_ten_out(weft_hook_event *event)
{
    event->out[0] = weft_mul_scalar(event->out[0], 10);
    return WEFT_OK;
}

/* Hooks chain, each sees what its predecessor left; backward hooks see the replaced gradients of
 * the results. */
TEST(test_module_backward_hooks_chain)
{
    weft_scope_open();
    weft_module *module = new_scaled(2);
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)));
    for (int i = 0; i < 2; i++) {
        CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD_PRE, 0, times_ten_out, NULL,
                                   WEFT_HOLD()) > 0);
        CHECK(weft_module_hook_add(module, WEFT_HOOK_BACKWARD, 0, times_ten, NULL, WEFT_HOLD()) >
              0);
    }
    CHECK_OK(weft_backward(total(weft_module_call(module, x))));
    CHECK(weft_item(weft_grad(x), 0) == 2 * 100 * 100);
    CHECK(weft_item(weft_grad(weft_module_param(module, "scale")), 0) == 100);
    weft_scope_close();
}

static weft_status wrong_shape(weft_hook_event *event)
{
    event->out[0] = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    return WEFT_OK;
}

static weft_status unasked(weft_hook_event *event)
{
    event->in[0] = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    return WEFT_OK;
}

static void fail_in_backward(weft_hook_point point, weft_module_hook hook, bool required,
                             weft_status expected, const char *text)
{
    weft_scope_open();
    weft_clear_error();
    weft_module *module = new_scaled(2);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    CHECK_OK(weft_require_grad(x, required));
    CHECK(weft_module_hook_add(module, point, 0, hook, NULL, WEFT_HOLD()) == 1);
    CHECK_STATUS(weft_backward(total(weft_module_call(module, x))), expected);
    CHECK_CONTAINS(weft_last_error(), text);
    CHECK(!weft_grad(x));
    weft_clear_error();
    weft_scope_close();
}

TEST(test_module_failing_backward_hooks)
{
    fail_in_backward(WEFT_HOOK_BACKWARD_PRE, refuse, true, WEFT_ERR_CANCELLED,
                     "backward_pre hook 1 of a module: returned WEFT_ERR_CANCELLED");
    fail_in_backward(WEFT_HOOK_BACKWARD_PRE, wrong_shape, true, WEFT_ERR_INVALID_ARG,
                     "replaces gradient 0, f32 [3], by one of f32 [2]");
    fail_in_backward(WEFT_HOOK_BACKWARD_PRE, put_null, true, WEFT_ERR_INVALID_ARG,
                     "replaces value 0 by NULL");
    fail_in_backward(WEFT_HOOK_BACKWARD, unasked, false, WEFT_ERR_INVALID_ARG,
                     "backward hook 1 of a module: gives value 0 a gradient, where none is asked");
}

static weft_tensor *double_in_place(weft_module *self, weft_tensor *x, void *user)
{
    (void)self, (void)user;
    return weft_mul_scalar_into(x, x, 2) < 0 ? NULL : weft_mul_scalar(x, 1);
}

/* What hooks lie behind is not written: the write would go round them. */
TEST(test_module_hooked_values_are_not_written)
{
    weft_scope_open();
    weft_clear_error();
    story[0] = 0;
    weft_module *module = new_scaled(2), *writer = weft_module_new(double_in_place, NULL);
    hook_both(module, "pre", "post");
    hook_both(writer, "pre", "post");
    weft_tensor *x = leaf(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)));
    weft_tensor *y = weft_module_call(module, x), *first = weft_narrow(y, 0, 0, 1);
    CHECK_STATUS(weft_mul_scalar_into(y, y, 2), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "is an input or a result of a module with backward hooks");
    CHECK_CONTAINS(weft_last_error(), "write to a clone");
    CHECK_STATUS(weft_copy(first, x), WEFT_ERR_STATE);
    CHECK_STATUS(weft_fill(y, 1), WEFT_ERR_STATE);
    CHECK_NEAR(weft_item(y, 0), 2, 0); /* nothing was written */
    CHECK(!weft_module_call(writer, weft_mul_scalar(x, 1)));
    CHECK_CONTAINS(weft_last_error(), "with backward hooks");
    weft_clear_error();
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_fill(y, 5)); /* not recorded: the history stays */
    }
    weft_tensor *copy = weft_clone(y);
    CHECK_OK(weft_mul_scalar_into(copy, copy, 3));
    CHECK_OK(weft_backward(total(copy)));
    CHECK_STORY("pre post");
    CHECK_NEAR(weft_item(weft_grad(x), 0), 6, 0);
    CHECK_OK(weft_set_grad(x, NULL));
    weft_tensor *plain =
        weft_module_call(weft_module_new(double_in_place, NULL), weft_mul_scalar(x, 1));
    CHECK_OK(weft_mul_scalar_into(plain, plain, 2)); /* without hooks all is as usual */
    CHECK_OK(weft_backward(total(plain)));
    CHECK_NEAR(weft_item(weft_grad(x), 0), 4, 0);
    weft_scope_close();
}

static weft_tensor *square(weft_module *self, weft_tensor *x, void *user)
{
    (void)self, (void)user;
    return weft_mul(x, x);
}

/* The gradient of a gradient reaches the input without passing the result: no hook. */
TEST(test_module_double_backward_skips_hooks)
{
    weft_scope_open();
    story[0] = 0;
    weft_module *module = weft_module_new(square, NULL);
    hook_both(module, "pre", "post");
    weft_tensor *x = leaf(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 3));
    weft_tensor *y = weft_module_call(module, x), *g;
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.create_graph = true;
    CHECK_OK(weft_gradients(&g, &x, 1, &y, 1, &opts));
    CHECK_STORY("pre post");
    CHECK(weft_item(g, 0) == 6);
    CHECK_OK(weft_backward(g));
    CHECK_STORY("");
    CHECK(weft_item(weft_grad(x), 0) == 2);
    weft_scope_close();
}

/* -- memory that runs out -- */

static weft_i_os counting;
static long live, allocations, fail_at;

static void *account(void *memory)
{
    live += memory != NULL;
    return memory;
}

static void *failing_alloc(size_t bytes)
{
    return ++allocations == fail_at ? NULL : account(weft_i_os_linux.alloc(bytes));
}

static void *failing_aligned(size_t alignment, size_t bytes)
{
    return ++allocations == fail_at ? NULL
                                    : account(weft_i_os_linux.alloc_aligned(alignment, bytes));
}

static void *failing_resize(void *old, size_t bytes)
{
    void *memory = ++allocations == fail_at ? NULL : weft_i_os_linux.resize(old, bytes);
    live += memory && !old;
    return memory;
}

static void counting_free(void *memory)
{
    live -= memory != NULL;
    weft_i_os_linux.free(memory);
}

/* Makes a network, trains it for a step, and lets it go. */
static weft_status train_once(void)
{
    if (weft_scope_open() < 0)
        return weft_last_status();
    weft_module *attention =
        weft_nn_sequential(weft_nn_layer_norm(4), weft_nn_attention(4, 2, 0.5));
    weft_module *net = weft_nn_sequential(weft_nn_embedding(5, 4), attention, weft_nn_op(weft_gelu),
                                          weft_nn_linear(4, 5));
    weft_tensor *x = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2, 3), 0, 5);
    weft_optim *adam = weft_optim_adamw(net, 1e-2, NULL);
    weft_status status = adam ? WEFT_OK : weft_last_status();
    for (int i = 0; i < WEFT_HOOK_BACKWARD + 1 && status >= 0; i++)
        if (weft_module_hook_add(attention, (weft_hook_point)i, 0, pass_by, "", WEFT_HOLD(x)) < 0)
            status = weft_last_status();
    if (status >= 0)
        status = weft_backward(weft_cross_entropy(weft_module_call(net, x), x));
    if (status >= 0)
        status = weft_optim_step(adam);
    weft_scope_close();
    return status;
}

TEST(test_module_every_allocation_of_a_step_may_fail)
{
    counting = weft_i_os_linux;
    counting.alloc = failing_alloc;
    counting.alloc_aligned = failing_aligned;
    counting.resize = failing_resize;
    counting.free = counting_free;
    fail_at = 0;
    weft_i_os_now = &counting;
    weft_status first = train_once(); /* fills caches that stay */
    live = allocations = 0;
    weft_status again = train_once();
    long total_allocations = allocations, left = live, failed = 0, leaked = 0;
    for (long n = 1; n <= total_allocations; n++) {
        weft_clear_error();
        live = allocations = 0;
        fail_at = n;
        weft_status status = train_once();
        failed += status == WEFT_ERR_NO_MEMORY && weft_last_status() == WEFT_ERR_NO_MEMORY;
        leaked += live != 0;
    }
    fail_at = 0;
    weft_status last = train_once();
    weft_i_os_now = &weft_i_os_linux;
    weft_clear_error();
    story[0] = 0;
    CHECK_OK(first);
    CHECK_OK(again);
    CHECK_OK(last);
    CHECK(total_allocations > 100);
    CHECK_INT(left, 0);
    CHECK_INT(leaked, 0);
    CHECK_INT(failed, total_allocations);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
