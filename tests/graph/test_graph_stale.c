/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/capture/seal.c */
/*
 * A captured function that depends on a plain C value which nobody watches: its results are those of the value of
 * now, or the call says that those before may not have been.
 */
#include "graph_both.h"
#include "harness_cache.h"

typedef struct plain {
    double rate;
    int64_t position;
    int branch;
    weft_tensor *other;
} plain;

FUNCTION(depends)
{
    const plain *p = user;
    weft_tensor *x = weft_mul_scalar(in[0], p->rate);
    x = weft_add(x, weft_slice(in[0], 0, p->position, p->position + 1, 1));
    if (p->branch)
        x = weft_neg(x);
    out[0] = p->other ? weft_add(x, p->other) : x;
    return WEFT_OK;
}

static weft_compiled *compiled_by(const char *backend, weft_check check,
                                  weft_graph_function function, void *user)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    opts.check = check;
    opts.name = "fn";
    return weft_compile(function, user, &opts);
}

static void check_call(weft_compiled *compiled, weft_graph_function function, weft_tensor *x,
                       void *user)
{
    weft_tensor *fast, *slow;
    CHECK_OK(weft_compiled_call(compiled, &x, 1, &fast, 1));
    CHECK_OK(function(&x, 1, &slow, 1, user));
    check_bits("result", slow, fast);
}

/* One that changes at each call, as the position of a cache does, is found at the second. */
TEST(test_stale_position)
{
    static const char *const backends[] = {"eager", "aot_eager", "c"};
    for (int i = 0; i < 3; i++) {
        plain p = {.rate = 2};
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 3));
        weft_compiled *compiled = compiled_by(backends[i], WEFT_CHECK_SOMETIMES, depends, &p);
        for (; p.position < 6; p.position++)
            check_call(compiled, depends, x, &p);
        weft_compiled_info info;
        CHECK_OK(weft_compiled_describe(compiled, &info));
        CHECK_INT(info.frames, 6);
        CHECK_CONTAINS(info.miss, "plain value");
        CHECK_CONTAINS(info.miss, "call 2 of");
        for (p.position = 0; p.position < 6; p.position++) /* all are there */
            check_call(compiled, depends, x, &p);
        CHECK_OK(weft_compiled_describe(compiled, &info));
        CHECK_INT(info.frames, 6);
    }
}

/* Each kind of thing that a function may depend on. */
TEST(test_stale_values_of_all_kinds)
{
    plain p = {.rate = 2};
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 3));
    weft_tensor *others[2] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)),
                              weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3))};
    weft_compiled *compiled = compiled_by("c", WEFT_CHECK_ALWAYS, depends, &p);
    check_call(compiled, depends, x, &p);
    p.rate = -2;
    check_call(compiled, depends, x, &p);
    p.branch = 1;
    check_call(compiled, depends, x, &p);
    p.other = others[0];
    check_call(compiled, depends, x, &p);
    CHECK_OK(weft_fill(others[1], 3));
    p.other = others[1];
    check_call(compiled, depends, x, &p);
    weft_compiled_info info;
    CHECK_OK(weft_compiled_describe(compiled, &info));
    CHECK_INT(info.frames, 5);
}

FUNCTION(constant)
{
    out[0] = weft_add(in[0], weft_tensor_from(WEFT_F32, WEFT_SHAPE(3), user));
    return WEFT_OK;
}

TEST(test_stale_constant)
{
    float values[3] = {1, 2, 3};
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    weft_compiled *compiled = compiled_by("c", WEFT_CHECK_ALWAYS, constant, values);
    check_call(compiled, constant, x, values);
    values[1] = 5;
    check_call(compiled, constant, x, values);
}

/* One that changes later: the call that finds it fails, the next is right. */
TEST(test_stale_results_are_told)
{
    plain p = {.rate = 1};
    weft_tensor *out, *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 3));
    weft_compiled *compiled = compiled_by("c", WEFT_CHECK_SOMETIMES, depends, &p);
    for (int i = 0; i < 20; i++)
        check_call(compiled, depends, x, &p);
    p.rate = 3;
    weft_status status = WEFT_OK;
    int calls = 0;
    for (; status >= 0 && calls < 64; calls++)
        status = weft_compiled_call(compiled, &x, 1, &out, 1);
    CHECK_INT(status, WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "calls may be those of older values");
    weft_clear_error();
    check_call(compiled, depends, x, &p);
    p.rate = 4; /* from now on at once */
    check_call(compiled, depends, x, &p);
}

/* What does not change is captured once, with gradients too, and a check costs less and less. */
static int called;
FUNCTION(counted)
{
    called += weft_tracing();
    out[0] = weft_sum(weft_exp(in[0]), NULL, 0, false);
    return WEFT_OK;
}

TEST(test_stale_checks_become_rare)
{
    static const int expected[] = {12, 301, 1}; /* of 300 calls */
    for (int i = 0; i < 3; i++) {
        weft_tensor *out, *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(9));
        CHECK_OK(weft_require_grad(x, true));
        weft_compiled *compiled = compiled_by("c", (weft_check)i, counted, NULL);
        called = 0;
        for (int k = 0; k < 300; k++)
            CHECK_OK(weft_compiled_call(compiled, &x, 1, &out, 1));
        weft_compiled_info info;
        CHECK_OK(weft_compiled_describe(compiled, &info));
        CHECK_INT(info.frames, 1);
        CHECK(called <= expected[i] && called >= expected[i] / 2);
    }
}

/* Watched bytes are guards, and need no check. */
FUNCTION(watches)
{
    weft_watch(user, sizeof(plain));
    return depends(in, ins, out, outs, user);
}

TEST(test_stale_watched)
{
    plain p = {.rate = 1};
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, 3));
    weft_compiled *compiled = compiled_by("c", WEFT_CHECK_NEVER, watches, &p);
    for (int i = 0; i < 6; i++) {
        p.rate = i;
        check_call(compiled, watches, x, &p);
    }
}

int main(int argc, char **argv)
{
    harness_cache_share();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
