/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/opaque.c, nn/opaque.c, graph/run/backward.c */
/*
 * Opaque hooks: a compiled backward calls them at every run with the gradient of that run.  They may
 * branch on values; what they give is checked; they fail, go, and come back; no pass moves anything
 * across them; and ranks may have different ones.
 */
#include "fault.h"
#include "functional_jobs.h"
#include "harness_cache.h"

#include "tensor/object/tensor.h"

#include <weft/weft.h>

enum { TEXT = 1 << 17, WORLD_MS = 30000 };

static const char *const backends[] = {"eager", "aot_eager", "c"};
enum { BACKENDS = sizeof backends / sizeof *backends };

static _Thread_local char text[TEXT];

static weft_compiled *compile_back(const char *backend, bool agree)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    opts.agree = agree;
    opts.name = "back";
    weft_compiled *back = weft_compile_backward(&opts);
    if (!back)
        FAIL("%s", weft_last_error());
    return back;
}

static weft_compiled *compile(weft_graph_function function, void *user, const char *backend)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    weft_compiled *compiled = weft_compile(function, user, &opts);
    if (!compiled)
        FAIL("%s", weft_last_error());
    return compiled;
}

static const char *explain(const weft_compiled *compiled)
{
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
    return text;
}

static weft_compiled_info info_of(const weft_compiled *compiled)
{
    weft_compiled_info info;
    CHECK_OK(weft_compiled_describe(compiled, &info));
    return info;
}

static weft_tensor *leaf(int n, double start)
{
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, start, start + n, 1);
    CHECK_OK(weft_require_grad(x, true));
    return x;
}

static weft_tensor *sum_of(weft_tensor *x)
{
    return weft_sum(x, NULL, 0, false);
}

/* What a hook saw. */
typedef struct witness {
    int calls;
    double last;
    weft_status fails;   /* it returns this, if negative */
    weft_tensor *giving; /* and puts this there */
} witness;

static weft_status look(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    witness *w = user;
    (void)held;
    CHECK(!weft_tracing());
    w->calls++;
    w->last = weft_item(*grad, 0);
    if (w->giving)
        *grad = w->giving;
    return w->fails;
}

/* Flips and scales by what it finds: nothing that a capture could enter. */
static weft_status branch(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    witness *w = user;
    w->calls++;
    if (weft_item(*grad, 0) > 3)
        *grad = weft_mul(*grad, held[0]);
    else
        *grad = weft_neg(*grad);
    return WEFT_OK;
}

/* loss = sum(scale * x^2), with a hook on x^2; by the engine or by `back`. */
static weft_status step(weft_compiled *back, weft_tensor *x, double scale, weft_hook hook,
                        witness *w)
{
    weft_tensor *y = weft_mul(x, x);
    CHECK(weft_hook_opaque(y, weft_tensor_hook(y, hook, w, WEFT_HOLD(x))) > 0);
    weft_tensor *loss = sum_of(weft_mul(y, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), scale)));
    return back ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss);
}

/* ---- at every run ---- */

TEST(test_opaque_runs_each_time)
{
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *back = compile_back(backends[k], false);
        weft_tensor *x = leaf(4, 1), *plain = leaf(4, 1);
        witness w = {0}, v = {0};
        for (int i = 0; i < 4; i++) {
            CHECK_OK(step(back, x, i + 1, look, &w));
            CHECK_OK(step(NULL, plain, i + 1, look, &v));
            CHECK_INT(w.calls, i + 1);
            CHECK_NEAR(w.last, i + 1, 0);
        }
        CHECK(weft_equal(weft_grad(x), weft_grad(plain)));
        CHECK_INT(info_of(back).frames, 2); /* with a gradient in the leaf, and without */
        CHECK_INT(info_of(back).plain, 0);
        CHECK_CONTAINS(explain(back), "hook=\"hook of a gradient\"/1");
        CHECK_CONTAINS(text, "every run calls a hook of a gradient, which sees %");
        CHECK_CONTAINS(text, "no collective, gradient or effect passes it");
        weft_release(back);
    }
}

TEST(test_opaque_branches_on_values)
{
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *back = compile_back(backends[k], false);
        weft_tensor *x = leaf(4, 1), *plain = leaf(4, 1);
        witness w = {0};
        for (int i = 0; i < 6; i++) {
            CHECK_OK(step(back, x, i + 1, branch, &w)); /* 3 times one way, 3 times the other */
            CHECK_OK(step(NULL, plain, i + 1, branch, &w));
            CHECK(weft_equal(weft_grad(x), weft_grad(plain)));
        }
        CHECK_INT(info_of(back).frames, 2);
        weft_release(back);
    }
}

/* The same hook, not opaque: the error says what would help. */
TEST(test_opaque_is_what_helps)
{
    weft_compiled *back = compile_back("aot_eager", false);
    weft_tensor *x = leaf(4, 1), *y = weft_mul(x, x);
    witness w = {0};
    CHECK(weft_tensor_hook(y, branch, &w, WEFT_HOLD(x)) > 0);
    weft_tensor *loss = sum_of(y);
    CHECK(weft_compiled_backward(back, &loss, 1, NULL) < 0);
    CHECK_CONTAINS(weft_last_error(), "not known while capturing");
    CHECK_CONTAINS(weft_last_error(), "weft_hook_opaque");
    CHECK(!weft_grad(x));
    weft_clear_error();
    weft_release(back);
}

TEST(test_opaque_needs_a_hook)
{
    weft_tensor *x = leaf(2, 1);
    witness w = {0};
    CHECK_STATUS(weft_hook_opaque(x, 12345), WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(weft_hook_opaque(x, WEFT_ERR_STATE), WEFT_ERR_STATE); /* passes through */
    weft_clear_error();
    CHECK(weft_hook_opaque(NULL, 1) < 0);
    weft_clear_error();
    int64_t number = weft_accumulated_hook(x, look, &w, WEFT_HOLD());
    CHECK_INT(weft_hook_opaque(x, number), number);
    CHECK_OK(weft_unhook(x, number));
    CHECK_STATUS(weft_hook_opaque(x, number), WEFT_ERR_NOT_FOUND);
    weft_clear_error();
}

/* ---- in a frame ---- */

typedef struct inside {
    witness hook, nested;
} inside;

static weft_status function(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                            void *user)
{
    inside *s = user;
    (void)ins, (void)outs;
    weft_tensor *y = weft_exp(in[0]), *side = weft_add_scalar(y, 1);
    WEFT_TRY(weft_hook_opaque(y, weft_tensor_hook(y, branch, &s->hook, WEFT_HOLD(side))));
    out[0] = weft_mul(y, in[1]);
    return WEFT_OK;
}

TEST(test_opaque_in_a_frame)
{
    for (int k = 0; k < BACKENDS; k++) {
        inside s = {{0}, {0}}, p = {{0}, {0}};
        weft_compiled *fast = compile(function, &s, backends[k]);
        weft_compiled *back = compile_back(backends[k], false);
        weft_tensor *x = leaf(4, 0), *plain = leaf(4, 0), *z;
        for (int i = 0; i < 6; i++) {
            weft_tensor *scale = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), i + 1);
            CHECK_OK(weft_compiled_call(fast, (weft_tensor *[]){x, scale}, 2, &z, 1));
            weft_tensor *loss = sum_of(z); /* by the engine, and taken apart by a compiled one */
            CHECK_OK(i % 2 ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss));
            CHECK_OK(function((weft_tensor *[]){plain, scale}, 2, &z, 1, &p));
            CHECK_OK(weft_backward(sum_of(z)));
            CHECK(weft_equal(weft_grad(x), weft_grad(plain)));
            CHECK_INT(s.hook.calls, i + 1);
        }
        CHECK_INT(info_of(fast).frames, 1);
        CHECK_INT(info_of(fast).plain, 0);
        CHECK_INT(info_of(back).frames, 1);
        CHECK_CONTAINS(explain(fast), " = opaque [%");
        weft_release(fast);
        weft_release(back);
    }
}

/* ---- behind the addition to a leaf ---- */

TEST(test_opaque_accumulated)
{
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *back = compile_back(backends[k], false);
        weft_tensor *x = leaf(2, 1), *loss;
        witness w = {0};
        int64_t number = weft_accumulated_hook(x, look, &w, WEFT_HOLD());
        CHECK(weft_hook_opaque(x, number) == number);
        loss = sum_of(x);
        CHECK_OK(weft_compiled_backward(back, &loss, 1, NULL));
        weft_tensor *first = weft_grad(x);
        for (int i = 1; i < 3; i++) {
            loss = sum_of(x);
            CHECK_OK(weft_compiled_backward(back, &loss, 1, NULL));
            CHECK_INT(w.calls, i + 1);
            CHECK_NEAR(w.last, i + 1, 0);
            CHECK(weft_grad(x) == first); /* what it leaves alone stays itself */
        }
        w.giving = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), 7);
        loss = sum_of(x);
        CHECK_OK(weft_compiled_backward(back, &loss, 1, NULL));
        CHECK_NEAR(weft_item(weft_grad(x), 1), 7, 0);
        weft_release(back);
    }
}

/* ---- what it gives ---- */

/* The same status and, where there is one, the same message, compiled and not. */
static void check_refused(witness w, weft_hook hook, weft_status status, const char *part)
{
    for (int k = -1; k < BACKENDS; k++) {
        weft_compiled *back = k < 0 ? NULL : compile_back(backends[k], false);
        weft_tensor *x = leaf(4, 1);
        witness good = {0};
        CHECK_OK(step(back, x, 1, look, &good)); /* the program is there, and good */
        CHECK_STATUS(step(back, x, 1, hook, &w), status);
        CHECK_CONTAINS(weft_last_error(), part);
        weft_clear_error();
        CHECK_NEAR(weft_item(weft_grad(x), 3), 8, 0); /* nothing was added */
        CHECK_OK(step(back, x, 1, look, &good));
        CHECK_NEAR(weft_item(weft_grad(x), 3), 16, 0);
        weft_release(back);
    }
}

static weft_status write_gradient(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    *grad = weft_clone(*grad); /* a clone may be written; what was given may not */
    WEFT_TRY(weft_mul_scalar_into(*grad, *grad, 2));
    return WEFT_OK;
}

static weft_status write_given(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    return weft_mul_scalar_into(*grad, *grad, 2);
}

static weft_status write_held(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)user;
    return weft_fill(weft_detach(held[0]), weft_item(held[0], 0));
}

static weft_status give_null(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    *grad = NULL;
    return WEFT_OK;
}

static weft_status fail_itself(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    return weft_matmul(*grad, *grad) &&
                   weft_add(*grad, weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)))
               ? WEFT_OK
               : weft_last_status();
}

TEST(test_opaque_results_are_checked)
{
    witness w = {.giving = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2))};
    check_refused(w, look, WEFT_ERR_INVALID_ARG, "shape [4] by one of shape [2, 2]");
    check_refused((witness){.fails = WEFT_ERR_NUMERIC}, look, WEFT_ERR_NUMERIC,
                  "a hook of a gradient returned");
    check_refused((witness){0}, give_null, WEFT_ERR_INVALID_ARG, "left NULL for the gradient");
    check_refused((witness){0}, write_given, WEFT_ERR_STATE, "wrote to what it was given in place");
    check_refused((witness){0}, fail_itself, WEFT_ERR_INVALID_ARG, "a hook of a gradient");
}

TEST(test_opaque_held_are_not_written)
{
    for (int k = -1; k < BACKENDS; k++) {
        weft_compiled *back = k < 0 ? NULL : compile_back(backends[k], false);
        weft_tensor *x = leaf(4, 1);
        CHECK_STATUS(step(back, x, 1, write_held, NULL), WEFT_ERR_STATE);
        CHECK_CONTAINS(weft_last_error(), "wrote to a tensor that it holds in place");
        weft_clear_error();
        CHECK(!weft_grad(x));
        CHECK_OK(step(back, x, 1, write_gradient, NULL));
        CHECK_NEAR(weft_item(weft_grad(x), 1), 4, 0); /* x is what the hook made of it: all ones */
        weft_release(back);
    }
}

static weft_status transposed(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held, (void)user;
    weft_tensor *wide = weft_to(weft_mul_scalar(*grad, 2), WEFT_F64, WEFT_CPU);
    *grad = weft_transpose(weft_contiguous(weft_transpose(wide, 0, 1)), 0, 1);
    return WEFT_OK;
}

static weft_status shifted(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    *grad = weft_narrow(held[0], 0, 1, 3); /* not even the beginning of a storage */
    return WEFT_OK;
}

/* Another dtype and other strides come back to what the program was made for. */
TEST(test_opaque_results_may_lie_elsewhere)
{
    static const weft_hook hooks[] = {transposed, shifted};
    for (int k = 0; k < BACKENDS; k++)
        for (int h = 0; h < 2; h++) {
            weft_compiled *back = compile_back(backends[k], false);
            weft_tensor *x[2], *base = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 5));
            for (int i = 0; i < 4; i++) {
                if (i < 2) {
                    x[i] = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 5), 0.5);
                    CHECK_OK(weft_require_grad(x[i], true));
                }
                weft_tensor *y = weft_sin(x[i % 2]);
                CHECK(weft_hook_opaque(y, weft_tensor_hook(y, hooks[h], NULL, WEFT_HOLD(base))) >
                      0);
                weft_tensor *loss = sum_of(weft_exp(y)); /* the gradient is a fused one */
                CHECK_OK(i % 2 ? weft_compiled_backward(back, &loss, 1, NULL)
                               : weft_backward(loss));
            }
            CHECK(weft_equal(weft_grad(x[0]), weft_grad(x[1])));
            weft_release(back);
        }
}

/* ---- hooks that come and go ---- */

typedef struct once {
    weft_tensor *x;
    int64_t number;
    int calls;
} once;

static weft_status remove_itself(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    once *o = user;
    o->calls++;
    WEFT_TRY(weft_unhook(o->x, o->number));
    *grad = weft_mul(*grad, held[0]); /* what it holds is there till the end */
    return WEFT_OK;
}

TEST(test_opaque_hooks_come_and_go)
{
    for (int k = -1; k < BACKENDS; k++) {
        weft_compiled *back = k < 0 ? NULL : compile_back(backends[k], false);
        weft_tensor *x = leaf(2, 1);
        weft_scope_open(); /* nobody but the hook has it */
        once o = {.x = x};
        o.number = weft_tensor_hook(x, remove_itself, &o,
                                    WEFT_HOLD(weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2), 3)));
        CHECK(weft_hook_opaque(x, o.number) > 0);
        weft_scope_close();
        for (int i = 0; i < 3; i++) {
            weft_tensor *loss = sum_of(x);
            CHECK_OK(back ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss));
        }
        CHECK_INT(o.calls, 1);
        CHECK_NEAR(weft_item(weft_grad(x), 0), 3 + 1 + 1, 0);
        if (back)
            CHECK_INT(info_of(back).frames, 2); /* with it, and without */
        weft_release(back);
    }
}

/* Another function, another pointer, and a hook that becomes opaque are other backwards. */
TEST(test_opaque_guards)
{
    weft_compiled *back = compile_back("aot_eager", false);
    weft_tensor *x = leaf(2, 1), *loss;
    witness a = {0}, b = {0};
    CHECK_OK(step(back, x, 1, look, &a));
    CHECK_OK(step(back, x, 1, look, &a));
    CHECK_INT(info_of(back).frames, 2);
    CHECK_OK(step(back, x, 1, look, &b));
    CHECK_INT(info_of(back).frames, 3);
    CHECK_INT(b.calls, 1);
    CHECK_OK(step(back, x, 1, look, &a));
    CHECK_INT(info_of(back).frames, 3); /* it is still there */
    CHECK_OK(step(back, x, 1, branch, &a));
    CHECK_INT(info_of(back).frames, 4);
    int64_t number = weft_tensor_hook(x, write_gradient, NULL, WEFT_HOLD());
    loss = sum_of(x);
    CHECK_OK(weft_compiled_backward(back, &loss, 1, NULL));
    CHECK_INT(info_of(back).frames, 5);
    CHECK(weft_hook_opaque(x, number) > 0);
    loss = sum_of(x);
    CHECK_OK(weft_compiled_backward(back, &loss, 1, NULL));
    CHECK_INT(info_of(back).frames, 6);
    weft_release(back);
}

/* ---- callbacks ---- */

static char order[16];

static weft_status write_letter(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held;
    size_t length = strlen(order);
    CHECK(length + 1 < sizeof order);
    order[length] = *(const char *)user;
    order[length + 1] = 0;
    return WEFT_OK;
}

static weft_status queue(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)user;
    WEFT_TRY(write_letter(grad, held, "h"));
    return weft_backward_then(write_letter, "c", WEFT_HOLD());
}

TEST(test_opaque_hooks_queue_callbacks)
{
    for (int k = -1; k < BACKENDS; k++) {
        weft_compiled *back = k < 0 ? NULL : compile_back(backends[k], false);
        weft_tensor *x = leaf(2, 1);
        int64_t number = weft_accumulated_hook(x, write_letter, "a", WEFT_HOLD());
        CHECK(weft_hook_opaque(x, number) > 0);
        order[0] = 0;
        CHECK_OK(step(back, x, 1, queue, NULL));
        CHECK_OK(step(back, x, 1, queue, NULL));
        CHECK(!strcmp(order, "hachac"));
        weft_release(back);
    }
    CHECK_STATUS(weft_backward_then(write_letter, "c", WEFT_HOLD()), WEFT_ERR_STATE);
    weft_clear_error();
}

/* ---- modules ---- */

typedef struct watched {
    int count[4];
    double seen[4];
    bool replaces;
} watched;

static weft_status watch(weft_hook_event *event, weft_hook_point point)
{
    watched *w = event->user;
    bool in = point == WEFT_HOOK_FORWARD_PRE || point == WEFT_HOOK_BACKWARD;
    weft_tensor **x = in ? event->in : event->out;
    CHECK(!weft_tracing());
    CHECK(event->module && event->ins == 1 && event->outs == 1);
    w->count[point]++;
    w->seen[point] += weft_item(sum_of(weft_mul(x[0], event->held[0])), 0);
    if (w->replaces && w->seen[point] > 0)
        x[0] = weft_mul_scalar(x[0], 2);
    return WEFT_OK;
}

static weft_status forward_pre(weft_hook_event *event)
{
    return watch(event, WEFT_HOOK_FORWARD_PRE);
}

static weft_status forward(weft_hook_event *event)
{
    return watch(event, WEFT_HOOK_FORWARD);
}

static weft_status backward_pre(weft_hook_event *event)
{
    return watch(event, WEFT_HOOK_BACKWARD_PRE);
}

static weft_status backward(weft_hook_event *event)
{
    CHECK(event->out[0]); /* the gradient of the result is seen too */
    return watch(event, WEFT_HOOK_BACKWARD);
}

static weft_status call_module(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                               void *user)
{
    (void)ins, (void)outs;
    out[0] = weft_module_call(user, weft_sin(in[0]));
    return WEFT_OK;
}

static weft_module *watched_module(watched *look_w, watched *change_w)
{
    weft_seed(3);
    weft_module *net = weft_nn_linear(4, 4);
    weft_tensor *two = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 2);
    unsigned flags = WEFT_HOOK_OPAQUE;
    CHECK(weft_module_hook_add(net, WEFT_HOOK_FORWARD_PRE, flags, forward_pre, look_w,
                               WEFT_HOLD(two)) > 0);
    CHECK(weft_module_hook_add(net, WEFT_HOOK_FORWARD, flags, forward, look_w, WEFT_HOLD(two)) > 0);
    CHECK(weft_module_hook_add(net, WEFT_HOOK_BACKWARD_PRE, flags, backward_pre, change_w,
                               WEFT_HOLD(two)) > 0);
    CHECK(weft_module_hook_add(net, WEFT_HOOK_BACKWARD, flags, backward, change_w, WEFT_HOLD(two)) >
          0);
    return net;
}

TEST(test_opaque_hooks_of_modules)
{
    for (int k = 0; k < 2 * BACKENDS; k++) {
        watched seen[2] = {{.replaces = false}},
                change[2] = {{.replaces = true}, {.replaces = true}};
        weft_module *net[2] = {watched_module(&seen[0], &change[0]),
                               watched_module(&seen[1], &change[1])};
        weft_compiled *fast = compile(call_module, net[1], backends[k / 2]);
        weft_compiled *back = k % 2 ? compile_back(backends[k / 2], false) : NULL;
        weft_tensor *x[2] = {leaf(4, 1), leaf(4, 1)}, *y;
        for (int i = 0; i < 3; i++) {
            CHECK_OK(call_module(&x[0], 1, &y, 1, net[0]));
            CHECK_OK(weft_backward(sum_of(weft_mul_scalar(y, i + 1))));
            CHECK_OK(weft_compiled_call(fast, &x[1], 1, &y, 1));
            weft_tensor *loss = sum_of(weft_mul_scalar(y, i + 1));
            CHECK_OK(back ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss));
        }
        CHECK(weft_equal(weft_grad(x[0]), weft_grad(x[1])));
        for (int p = 0; p < 4; p++) {
            watched *a = p < 2 ? &seen[0] : &change[0], *b = p < 2 ? &seen[1] : &change[1];
            CHECK_INT(b->count[p], 3);
            CHECK_INT(a->count[p], 3);
            CHECK_NEAR(a->seen[p], b->seen[p], 0);
        }
        CHECK_INT(info_of(fast).frames, 1);
        CHECK_CONTAINS(explain(fast), "forward hook of a linear");
        weft_release(back);
        weft_release(fast);
    }
}

TEST(test_opaque_forward_hooks_only_look)
{
    for (int k = -1; k < BACKENDS; k++) {
        watched w = {.replaces = true};
        weft_module *net = watched_module(&w, &w);
        weft_compiled *fast = k < 0 ? NULL : compile(call_module, net, backends[k]);
        weft_tensor *x = leaf(4, 1), *y = NULL;
        weft_status status =
            fast ? weft_compiled_call(fast, &x, 1, &y, 1) : call_module(&x, 1, &y, 1, net);
        CHECK(fast ? status == WEFT_ERR_UNSUPPORTED : !y);
        CHECK_STATUS(weft_last_status(), WEFT_ERR_UNSUPPORTED);
        CHECK_CONTAINS(weft_last_error(), "replaces a value of forward");
        weft_clear_error();
        weft_release(fast);
    }
}

/* ---- text ---- */

TEST(test_opaque_text)
{
    static char again[TEXT];
    watched w = {.replaces = false};
    weft_module *net = watched_module(&w, &w);
    weft_tensor *x = weft_arange(WEFT_F32, WEFT_CPU, 0, 4, 1), *y = NULL;
    weft_graph *graph = weft_graph_capture("fn", call_module, net, &x, 1, 1);
    CHECK(graph && weft_graph_text(graph, text, sizeof text) < TEXT);
    CHECK_CONTAINS(text, "%5 = opaque [%4] [%1] hook=\"forward_pre hook of a linear\"/1");
    CHECK_CONTAINS(text, "%7, %8 = opaque [%4, %6] [%1] hook=\"forward hook of a linear\"/1");
    CHECK_INT(w.count[0], 0);
    CHECK_OK(weft_graph_run(graph, &x, 1, &y, 1));
    CHECK_INT(w.count[0], 1);
    CHECK_INT(w.count[1], 1);
    weft_graph *parsed = weft_graph_parse(text);
    if (!parsed)
        FAIL("%s", weft_last_error());
    CHECK(weft_graph_text(parsed, again, sizeof again) < TEXT);
    CHECK(!strcmp(text, again));
    CHECK(weft_graph_run(parsed, &x, 1, &y, 1) <
          0); /* its parameters are names, as its hooks are */
    weft_clear_error();
}

/* ---- collectives ---- */

static weft_status sum_up(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)held;
    weft_tensor *total = weft_all_reduce(sum_of(*grad), WEFT_SUM, user); /* one of its own */
    if (weft_item(total, 0) > 0)
        *grad = weft_add(*grad, total);
    return weft_last_status();
}

/* Two gradients are all_reduced, with an opaque hook between. */
static weft_status both_sides(weft_compiled *back, weft_tensor *x, weft_tensor *y, weft_hook hook,
                              void *user, weft_group *world)
{
    weft_tensor *a = weft_all_reduce(weft_sin(x), WEFT_SUM, world);
    weft_tensor *b = weft_mul_scalar(weft_exp(a), 0.01);
    if (hook)
        CHECK(weft_hook_opaque(b, weft_tensor_hook(b, hook, user, WEFT_HOLD())) > 0);
    weft_tensor *c = weft_all_reduce(weft_mul(weft_sin(b), y), WEFT_SUM, world);
    weft_tensor *loss = sum_of(c);
    return back ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss);
}

RANKS_TEST(test_opaque_among_ranks, 2)
{
    weft_group *world = join(WORLD_MS);
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *back = compile_back(backends[k], true);
        weft_tensor *x[2] = {leaf(4, rank), leaf(4, rank)}, *y[2] = {leaf(4, 1), leaf(4, 1)};
        for (int i = 0; i < 3; i++) {
            CHECK_OK(both_sides(NULL, x[0], y[0], sum_up, world, world));
            CHECK_OK(both_sides(back, x[1], y[1], sum_up, world, world));
        }
        CHECK(weft_equal(weft_grad(x[0]), weft_grad(x[1])));
        CHECK(weft_equal(weft_grad(y[0]), weft_grad(y[1])));
        CHECK_INT(info_of(back).plain, 0);
        weft_release(back);
    }
    leave(world);
}

/* One rank looks, the other does not: their collectives are the same all the same. */
RANKS_TEST(test_opaque_on_one_rank, 2)
{
    weft_group *world = join(WORLD_MS);
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *back = compile_back(backends[k], true);
        weft_tensor *x[2] = {leaf(4, rank), leaf(4, rank)}, *y[2] = {leaf(4, 1), leaf(4, 1)};
        witness w = {0};
        for (int i = 0; i < 3; i++) {
            CHECK_OK(both_sides(NULL, x[0], y[0], NULL, NULL, world));
            CHECK_OK(both_sides(back, x[1], y[1], rank ? NULL : look, &w, world));
        }
        CHECK(weft_equal(weft_grad(x[0]), weft_grad(x[1])));
        CHECK_INT(w.calls, rank ? 0 : 3);
        weft_release(back);
    }
    leave(world);
}

static weft_status sum_or_max(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    weft_group *world = user;
    (void)held;
    weft_tensor *x = weft_all_reduce(*grad, weft_rank(world) ? WEFT_MAX : WEFT_SUM, world);
    weft_item(x, 0);
    return weft_last_status();
}

/* What hooks do on their own nobody can compare beforehand; the collectives do. */
RANKS_TEST(test_opaque_hooks_that_differ, 2)
{
    weft_group *world = join(WORLD_MS);
    weft_compiled *back = compile_back("c", true);
    weft_tensor *x = leaf(4, rank), *y = leaf(4, 1);
    CHECK_STATUS(both_sides(back, x, y, sum_or_max, world, world), WEFT_ERR_MISMATCH);
    CHECK(!weft_grad(x));
    weft_clear_error();
    weft_release(back);
    weft_finish(world);
    weft_clear_error();
}

static weft_status die(weft_tensor **grad, weft_tensor *const *held, void *user)
{
    (void)grad, (void)held;
    weft_group *world = user;
    if (weft_rank(world) == 1 && !harness_in_threads) {
        harness_rank_dies();
        raise(SIGKILL);
    }
    return weft_rank(world) == 1 ? WEFT_ERR_NUMERIC : WEFT_OK;
}

/* A rank dies in its hook (of threads: the hook fails, and the rank leaves): the others are told. */
RANKS_TEST(test_opaque_hook_that_kills, 2)
{
    weft_group *world = join(WORLD_MS);
    weft_compiled *back = compile_back("c", true);
    weft_tensor *x = leaf(4, rank), *y = leaf(4, 1);
    long long begin = harness_now();
    CHECK(both_sides(back, x, y, die, world, world) < 0);
    CHECK(harness_now() - begin < 20000000000LL);
    CHECK(!weft_grad(x));
    weft_clear_error();
    weft_release(back);
    weft_finish(world);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    harness_cache_open();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
