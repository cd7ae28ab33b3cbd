/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/hook.c, grad/pass.c */
/* Hooks of gradients: when they run, what they see and hold, what they may do, and how they fail.
 */
#include "harness.h"
#include "leaf.h"

#include "grad/node.h"
#include "weft/grad.h"
#include "weft/op.h"
#include "weft/view.h"

static char events[256];

static void note(const char *event)
{
    strncat(events, event, sizeof events - strlen(events) - 1);
    strncat(events, " ", sizeof events - strlen(events) - 1);
}

static weft_tensor *ones(int n)
{
    return weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(n));
}

static void check_all(weft_tensor *x, double value, double tolerance)
{
    CHECK(x != NULL);
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        CHECK_NEAR(weft_item(x, i), value, tolerance);
}

/* ---- section 3.6 of the patterns: values that a hook closes over ---- */

typedef struct object {
    weft_tensor *val; /* an integer without dimensions */
} object;

static weft_status add_values(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    *grad = weft_add(weft_add(*grad, held[0]), held[1]);
    return WEFT_OK;
}

/* sin(sin x), and a hook between that adds val and a tensor computed from what it is on. */
static weft_tensor *with_closure(weft_tensor *x, const object *obj)
{
    weft_tensor *y = weft_sin(x), *closure = weft_add_scalar(y, 1);
    CHECK(weft_tensor_hook(y, add_values, NULL, WEFT_HOLD(obj->val, closure)) > 0);
    return weft_sin(y);
}

static void check_closure(double val, double expected)
{
    object obj = {weft_full(WEFT_I64, WEFT_CPU, WEFT_SCALAR, val)};
    weft_tensor *x = leaf(ones(4));
    CHECK_OK(weft_backward(total(with_closure(x, &obj))));
    check_all(weft_grad(x), expected, 1e-5);
    check_all(weft_grad(x), (cos(sin(1)) + val + sin(1) + 1) * cos(1), 1e-5);
}

TEST(test_intermediate_hook_with_closure_numbers)
{
    check_closure(88, 48.901593);
    check_closure(99, 54.844919);
}

/* The hook outlives the scope of what it uses. */
TEST(test_held_tensors_live)
{
    weft_tensor *x = leaf(ones(4));
    CHECK_OK(weft_scope_open());
    object obj = {weft_full(WEFT_I64, WEFT_CPU, WEFT_SCALAR, 88)};
    weft_tensor *loss = weft_keep(total(with_closure(x, &obj)));
    CHECK_OK(weft_scope_close());
    CHECK_OK(weft_backward(loss));
    weft_release(loss);
    check_all(weft_grad(x), 48.901593, 1e-5);
}

static int live;

static void count_down(void *argument)
{
    (void)argument;
    live--;
}

/* Hooks that hold what was computed from their own tensor, or that tensor itself, keep no graph. */
TEST(test_hooks_make_no_cycles)
{
    float memory[2][4] = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    CHECK_OK(weft_scope_open());
    weft_tensor *x =
        weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), memory[0], count_down, NULL);
    weft_tensor *z =
        weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), memory[1], count_down, NULL);
    live = 2;
    weft_tensor *y = weft_mul(leaf(x), z), *later = weft_sin(weft_sin(y));
    CHECK(weft_tensor_hook(y, add_values, NULL, WEFT_HOLD(y, later)) > 0);
    CHECK(weft_tensor_hook(x, add_values, NULL, WEFT_HOLD(x, later)) > 0);
    CHECK(weft_accumulated_hook(x, add_values, NULL, WEFT_HOLD(x, y)) > 0);
    CHECK_OK(weft_backward(total(later)));
    CHECK_OK(weft_scope_close());
    CHECK_INT(live, 0);
}

/* ---- order ---- */

static weft_status log_hook(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held;
    note(user);
    return WEFT_OK;
}

/* Section 3.5: tensor hooks in their order, then the retained gradient, then the node; on a leaf
 * before the addition, and after it. */
static weft_status retained_yet(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad;
    note(weft_grad(user) ? "retained" : held ? "not-yet" : "");
    return WEFT_OK;
}

static weft_status added_yet(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held;
    note(weft_grad(user) ? "added" : "before");
    CHECK(*grad != NULL);
    return WEFT_OK;
}

TEST(test_order_of_hooks)
{
    weft_tensor *x = leaf(ones(4)), *y = weft_sin(x);
    events[0] = 0;
    CHECK_OK(weft_retain_grad(y));
    CHECK(weft_accumulated_hook(x, added_yet, x, WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(x, added_yet, x, WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(x, retained_yet, y, WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(y, log_hook, "first", WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(y, log_hook, "second", WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(y, retained_yet, y, WEFT_HOLD(x)) > 0);
    CHECK_OK(weft_backward(total(y)));
    CHECK_CONTAINS(events, "first second not-yet before retained added ");
    check_all(weft_grad(y), 1, 0);
}

/* A leaf's gradient is added up as soon as it is complete: before older nodes run. */
TEST(test_leaves_come_first)
{
    weft_tensor *input = leaf(ones(3)), *weight = leaf(ones(3));
    weft_tensor *early = weft_mul_scalar(input, 2), *y = weft_mul(early, weight);
    events[0] = 0;
    CHECK(weft_accumulated_hook(weight, log_hook, "weight", WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(early, log_hook, "early", WEFT_HOLD()) > 0);
    CHECK(weft_accumulated_hook(input, log_hook, "input", WEFT_HOLD()) > 0);
    CHECK_OK(weft_backward(total(y)));
    CHECK_CONTAINS(events, "weight early input ");
}

/* Only what leads to a chosen tensor runs, and nothing behind it. */
TEST(test_chosen_inputs_run_no_more)
{
    weft_tensor *a = leaf(ones(3)), *b = leaf(ones(3)), *first = weft_mul_scalar(a, 2), *out;
    weft_tensor *second = weft_sin(first), *other = weft_sin(b);
    weft_tensor *loss = total(weft_mul(second, other));
    events[0] = 0;
    CHECK(weft_tensor_hook(second, log_hook, "second", WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(first, log_hook, "first", WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(a, log_hook, "a", WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(other, log_hook, "other", WEFT_HOLD()) > 0);
    CHECK(weft_tensor_hook(b, log_hook, "b", WEFT_HOLD()) > 0);
    CHECK_OK(weft_gradients(&out, &first, 1, &loss, 1, NULL));
    CHECK(!strcmp(events, "second first "));
    check_all(out, sin(1) * cos(2), 1e-6);
    CHECK(weft_grad(a) == NULL && weft_grad(b) == NULL);
}

/* A hook sees the whole gradient once, though it comes over two paths. */
TEST(test_hook_sees_the_whole_gradient)
{
    weft_tensor *x = leaf(ones(3)), *y = weft_mul_scalar(x, 2);
    events[0] = 0;
    CHECK(weft_tensor_hook(y, log_hook, "once", WEFT_HOLD()) > 0);
    CHECK_OK(weft_backward(total(weft_add(weft_sin(y), weft_cos(y)))));
    CHECK(!strcmp(events, "once "));
}

static weft_status doubled(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    *grad = weft_mul_scalar(*grad, 2);
    return WEFT_OK;
}

TEST(test_accumulated_hook_replaces_the_gradient)
{
    weft_tensor *x = leaf(ones(3));
    CHECK(weft_accumulated_hook(x, doubled, NULL, WEFT_HOLD()) > 0);
    CHECK_OK(weft_backward(total(weft_mul_scalar(x, 3))));
    check_all(weft_grad(x), 6, 0);
    CHECK_OK(weft_backward(total(weft_mul_scalar(x, 3))));
    check_all(weft_grad(x), 18, 0); /* (6 + 3) * 2 */
}

/* ---- removal ---- */

static int64_t own_number;

static weft_status remove_itself(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad;
    note("ran");
    CHECK_OK(weft_unhook(user, own_number));
    CHECK(held[0] != NULL && weft_item(held[0], 0) == 1); /* still there */
    return WEFT_OK;
}

TEST(test_unhook)
{
    weft_tensor *x = leaf(ones(3));
    events[0] = 0;
    int64_t number = weft_tensor_hook(x, doubled, NULL, WEFT_HOLD());
    own_number = weft_tensor_hook(x, remove_itself, x, WEFT_HOLD(ones(3)));
    CHECK(number > 0 && own_number > number);
    CHECK_OK(weft_unhook(x, number));
    CHECK_STATUS(weft_unhook(x, number), WEFT_ERR_NOT_FOUND);
    CHECK_OK(weft_backward(total(x)));
    CHECK_OK(weft_backward(total(x)));
    CHECK(!strcmp(events, "ran "));
    check_all(weft_grad(x), 2, 0);
    weft_tensor *y = weft_sin(x);
    number = weft_tensor_hook(y, doubled, NULL, WEFT_HOLD());
    CHECK_OK(weft_unhook(y, number));
    CHECK_STATUS(weft_unhook(ones(3), 1), WEFT_ERR_NOT_FOUND);
}

/* ---- failures ---- */

static weft_status fail(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held, (void)user;
    return WEFT_ERR_CANCELLED;
}

static weft_status wrong_shape(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    *grad = ones(7);
    return WEFT_OK;
}

static weft_status broken(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    *grad = weft_mm(*grad, held[0]); /* vectors: fails, and leaves NULL */
    return WEFT_OK;
}

TEST(test_failing_hooks)
{
    weft_tensor *x = leaf(ones(3)), *y = weft_sin(x);
    int64_t number = weft_tensor_hook(y, fail, NULL, WEFT_HOLD());
    weft_tensor *loss = total(y);
    CHECK_STATUS(weft_backward(loss), WEFT_ERR_CANCELLED);
    CHECK_CONTAINS(weft_last_error(), "a hook of a gradient");
    CHECK(weft_grad(x) == NULL);
    CHECK_OK(weft_unhook(y, number));
    number = weft_tensor_hook(y, wrong_shape, NULL, WEFT_HOLD());
    CHECK_STATUS(weft_backward(loss), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "[3]");
    CHECK_CONTAINS(weft_last_error(), "[7]");
    CHECK_OK(weft_unhook(y, number));
    number = weft_tensor_hook(y, broken, NULL, WEFT_HOLD(ones(3)));
    CHECK(weft_backward(loss) < 0);
    CHECK_CONTAINS(weft_last_error(), "mm");
    CHECK_OK(weft_unhook(y, number));
    CHECK_OK(weft_backward(loss)); /* nothing was let go of */
    check_all(weft_grad(x), cos(1), 1e-6);
}

TEST(test_misused_hooks)
{
    weft_tensor *x = leaf(ones(3)), *y = weft_sin(x), *none = NULL;
    CHECK_STATUS(weft_tensor_hook(ones(3), doubled, NULL, WEFT_HOLD()), WEFT_ERR_STATE);
    CHECK_STATUS(weft_tensor_hook(x, NULL, NULL, WEFT_HOLD()), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_accumulated_hook(y, doubled, NULL, WEFT_HOLD()), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "made by sin");
    weft_clear_error();
    CHECK_STATUS(weft_tensor_hook(x, doubled, NULL, WEFT_HOLD(y, none)), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_backward_then(log_hook, "x", WEFT_HOLD()), WEFT_ERR_STATE);
    CHECK_STATUS(weft_retain_grad(ones(3)), WEFT_ERR_STATE);
}

/* ---- final callbacks, nested backward ---- */

static weft_status last(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    CHECK(grad == NULL);
    CHECK(weft_grad(user) != NULL); /* all leaves are done */
    note(weft_item(held[0], 0) == 1 ? "last" : "wrong");
    return WEFT_OK;
}

static weft_status queue_more(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad;
    note("more");
    return weft_backward_then(last, user, WEFT_HOLD(held[0]));
}

static weft_status queue(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held;
    note("hook");
    CHECK_OK(weft_backward_then(queue_more, user, WEFT_HOLD(ones(3))));
    return WEFT_OK;
}

TEST(test_final_callbacks)
{
    weft_tensor *x = leaf(ones(3)), *y = weft_sin(x);
    events[0] = 0;
    CHECK(weft_tensor_hook(y, queue, x, WEFT_HOLD()) > 0);
    CHECK(weft_accumulated_hook(x, log_hook, "leaf", WEFT_HOLD()) > 0);
    CHECK_OK(weft_backward(total(y)));
    CHECK(!strcmp(events, "hook leaf more last "));
}

/* A backward inside a hook, through nodes that the outer one is in the middle of. */
static weft_status backward_inside(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    weft_tensor *inner = NULL, *x = user, *out;
    (void)grad, (void)held;
    WEFT_ENABLE_GRAD
    {
        inner = total(weft_mul_scalar(weft_sin(x), 10));
        CHECK_OK(weft_gradients(&out, &x, 1, &inner, 1, NULL));
    }
    check_all(out, 10 * cos(1), 1e-5);
    weft_backward_opts opts = WEFT_BACKWARD_OPTS;
    opts.retain_graph = true;
    CHECK_OK(weft_gradients(&out, &x, 1, (weft_tensor **)&held[0], 1, &opts));
    check_all(out, -sin(sin(1)) * cos(1), 1e-5);
    return WEFT_OK;
}

TEST(test_nested_backward)
{
    weft_tensor *x = leaf(ones(3)), *y = weft_sin(x), *other = total(weft_cos(y));
    weft_tensor *z = weft_mul_scalar(y, 3);
    CHECK(weft_tensor_hook(z, backward_inside, x, WEFT_HOLD(other)) > 0);
    CHECK_OK(weft_backward(total(z)));
    check_all(weft_grad(x), 3 * cos(1), 1e-5);
}

/* ---- retained gradients ---- */

TEST(test_retained_gradients)
{
    weft_tensor *x = leaf(ones(3)), *y = weft_mul_scalar(x, 2);
    CHECK_OK(weft_retain_grad(y));
    CHECK_OK(weft_mul_scalar_into(y, y, 5)); /* belongs to the new value */
    CHECK_OK(weft_backward(total(weft_mul_scalar(y, 7))));
    check_all(weft_grad(y), 7, 0);
    check_all(weft_grad(x), 70, 0);
    CHECK_OK(weft_set_grad(y, NULL));
    CHECK(weft_grad(y) == NULL);
    CHECK_OK(weft_retain_grad(x)); /* a leaf keeps its own */
}

/* ---- the list identity around a module ---- */

static weft_status on_pass(weft_tensor **g, size_t count, void *user)
{
    (void)user;
    note(count == 3 && g[0] && g[1] && !g[2] ? "pass" : "wrong");
    g[0] = weft_mul_scalar(g[0], 100);
    return WEFT_OK;
}

static void on_pass_done(void *user)
{
    note(user);
}

TEST(test_pass_sees_all_gradients)
{
    bool made = false;
    CHECK_OK(weft_scope_open());
    weft_tensor *a = leaf(ones(3)), *b = leaf(ones(3)), *in[] = {a, b, ones(3)}, *out[3];
    events[0] = 0;
    CHECK_OK(weft_i_pass(out, in, 3, on_pass, NULL, "done", on_pass_done, &made));
    CHECK(made && weft_tensor_data(out[0]) == weft_tensor_data(a));
    CHECK(weft_requires_grad(out[1]) && !weft_requires_grad(out[2]));
    CHECK_OK(weft_backward(total(weft_add(out[0], weft_mul_scalar(out[1], 2)))));
    check_all(weft_grad(a), 100, 0);
    check_all(weft_grad(b), 2, 0);
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_i_pass(out, in, 3, on_pass, NULL, "never", on_pass_done, &made));
        CHECK(!made && out[0] == a);
    }
    CHECK_OK(weft_scope_close());
    CHECK(!strcmp(events, "pass done "));
}

/* The very tensor that a hook was given may be kept: the leaf has a gradient of its own. */
static weft_status keep(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held;
    *(weft_tensor **)user = weft_keep(*grad);
    return WEFT_OK;
}

TEST(test_grad_hook_keeps_its_gradient)
{
    weft_tensor *x = leaf(ones(5)), *kept = NULL, *first;
    CHECK(weft_tensor_hook(x, keep, &kept, WEFT_HOLD()) > 0);
    CHECK_OK(weft_backward(total(weft_mul_scalar(x, 3))));
    first = kept;
    CHECK(first && weft_tensor_data(first) != weft_tensor_data(weft_grad(x)));
    CHECK_OK(weft_backward(total(weft_mul_scalar(x, 4))));
    check_all(weft_grad(x), 7, 0);
    check_all(first, 3, 0);
    weft_release(first);
    weft_release(kept);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
