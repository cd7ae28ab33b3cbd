/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/run/frame.c, graph/run/program.c, graph/capture/guard.c, graph/pass/pure.c, graph/run/frame_text.c,
 * graph/pass/pure_content.c, graph/pass/pure_end.c */
/*
 * Compiled functions: guards, entries, what runs as it is; the patterns of the reference's tests
 * that need no gradients; and what the pure form of a graph looks like.
 */
#include "fault.h"
#include "graph_pattern.h"
#include "harness_cache.h"
#include "harness_ranks.h"

#include "graph/ir/graph.h"
#include "graph/pass/passes.h"
#include "tensor/object/tensor.h"

#include <weft/weft.h>

#include <fcntl.h>
#include <unistd.h>

enum { TEXT = 1 << 14 };

static const char *const backends[] = {"eager", "aot_eager", "c"};
enum { BACKENDS = 3 };

/* ---- the reference's patterns ---- */

FUNCTION(free_input)
{
    weft_tensor *y = weft_sin(in[0]);
    WEFT_TRY(weft_storage_resize(weft_tensor_storage(in[0]), 0));
    out[0] = weft_cos(y);
    return WEFT_OK;
}

/* What is computed from the memory comes before it is freed. */
TEST(test_storage_resize_zero_cpu)
{
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *compiled = compile(free_input, NULL, backends[k]);
        for (int i = 0; i < 2; i++) {
            weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10)), *y = NULL;
            weft_tensor *expected = weft_cos(weft_sin(x));
            CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
            CHECK(weft_equal(y, expected));
            CHECK_INT(weft_storage_bytes(weft_tensor_storage(x)), 0);
            CHECK_INT(weft_tensor_version(x), 0);
        }
        CHECK_INT(info_of(compiled).frames, 1);
        weft_release(compiled);
    }
}

FUNCTION(fill_freed)
{
    weft_tensor *x = in[0], *result = in[1], *y = weft_sin(x);
    if (weft_storage_bytes(weft_tensor_storage(result)) != 0)
        return weft_i_fail(WEFT_ERR_STATE, "the target is not empty");
    WEFT_TRY(weft_storage_resize(weft_tensor_storage(result),
                                 weft_storage_bytes(weft_tensor_storage(x))));
    WEFT_TRY(weft_copy(result, weft_cos(y)));
    out[0] = result;
    return WEFT_OK;
}

TEST(test_storage_resize_nonzero_cpu)
{
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *compiled = compile(fill_freed, NULL, backends[k]);
        for (int i = 0; i < 2; i++) {
            weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10)), *y = NULL;
            weft_tensor *result = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10));
            CHECK_OK(weft_resize_storage(result, 0));
            CHECK_OK(weft_compiled_call(compiled, ARGS(x, result), 2, &y, 1));
            CHECK(y == result);
            CHECK_INT(weft_storage_bytes(weft_tensor_storage(result)), 40);
            CHECK(weft_equal(result, weft_cos(weft_sin(x))));
        }
        CHECK_INT(info_of(compiled).frames, 1);
        /* A size that was read is guarded: a target that is not empty is another matter. */
        weft_tensor *x = vector(10, 0), *full = vector(10, 0), *y = NULL;
        CHECK_STATUS(weft_compiled_call(compiled, ARGS(x, full), 2, &y, 1), WEFT_ERR_STATE);
        weft_clear_error();
        weft_release(compiled);
    }
}

FUNCTION(set_version)
{
    weft_tensor *x = weft_sin(in[0]), *w = in[1], *version = weft_tensor_read_version(w);
    WEFT_TRY(weft_copy(w, weft_add_scalar(x, 1)));
    WEFT_TRY(weft_tensor_write_version(w, version));
    out[0] = w;
    out[1] = version;
    return WEFT_OK;
}

/* One capture serves all versions: they are read and written when it runs. */
TEST(test_unsafe_set_version_counter1)
{
    static const int versions[] = {3, 0, 1};
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *compiled = compile(set_version, NULL, backends[k]);
        for (int i = 0; i < 3; i++) {
            weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), *out[2];
            weft_tensor *w = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
            for (int n = 0; n < versions[i]; n++)
                CHECK_OK(weft_fill(w, n));
            CHECK_OK(weft_compiled_call(compiled, ARGS(x, w), 2, out, 2));
            CHECK(out[0] == w);
            CHECK(weft_equal(w, weft_add_scalar(weft_sin(x), 1)));
            CHECK_INT(weft_item_int(out[1], 0), versions[i]);
            CHECK_INT(weft_tensor_version(w), versions[i]);
            CHECK_INT(info_of(compiled).frames, 1);
        }
        weft_release(compiled);
    }
}

typedef struct filling {
    weft_tensor *to, *from;
} filling;

static weft_status fill_hidden(void *argument)
{
    filling *f = argument;
    return weft_copy(f->to, weft_add_scalar(f->from, 1));
}

FUNCTION(preserve_version)
{
    filling f = {in[1], weft_sin(in[0])};
    WEFT_TRY(weft_tensor_preserve_version(&f.to, 1, fill_hidden, &f));
    out[0] = in[1];
    return WEFT_OK;
}

TEST(test_unsafe_preserve_version_counter1)
{
    for (int k = 0; k < BACKENDS; k++) {
        weft_compiled *compiled = compile(preserve_version, NULL, backends[k]);
        weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16)), *y = NULL;
        weft_tensor *w = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(16));
        CHECK_OK(weft_fill(w, 1));
        CHECK_OK(weft_fill(w, 2));
        CHECK_OK(weft_compiled_call(compiled, ARGS(x, w), 2, &y, 1));
        CHECK(y == w && weft_equal(w, weft_add_scalar(weft_sin(x), 1)));
        CHECK_INT(weft_tensor_version(w), 2);
        weft_release(compiled);
    }
}

/* ---- guards ---- */

static double factor = 2;
static int entered;

FUNCTION(scaled)
{
    entered++;
    WEFT_TRY(weft_watch(&factor, sizeof factor));
    out[0] = weft_mul_scalar(in[0], factor);
    if (ins > 1)
        WEFT_TRY(weft_fill(in[1], 7));
    return WEFT_OK;
}

/* Calls it; the guard that failed, or "" if one entry fits. */
static const char *miss(weft_compiled *compiled, weft_tensor *const *in, int ins)
{
    static weft_compiled_info after;
    weft_tensor *y = NULL;
    int before = info_of(compiled).frames;
    CHECK_OK(weft_compiled_call(compiled, in, ins, &y, 1));
    CHECK_NEAR(weft_item(y, 0), factor * weft_item(weft_clone(y), 0) / factor, 0);
    after = info_of(compiled);
    return after.frames == before ? "" : after.miss;
}

TEST(test_graph_guards)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.fullgraph = true;
    opts.check = WEFT_CHECK_NEVER; /* it counts how often it is entered */
    weft_compiled *compiled = weft_compile(scaled, NULL, &opts);
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
    factor = 2;
    entered = 0;
    miss(compiled, ARGS(x), 1);
    CHECK(!*miss(compiled, ARGS(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4))), 1));
    CHECK_INT(entered, 1);
    CHECK_CONTAINS(miss(compiled, ARGS(vector(4, 1)), 1), "\"arg0\" has another shape");
    CHECK_CONTAINS(miss(compiled, ARGS(weft_transpose(x, 0, 1)), 1), "other strides");
    CHECK_CONTAINS(miss(compiled, ARGS(weft_to_dtype(x, WEFT_F64)), 1), "another dtype");
    CHECK(!*miss(compiled, ARGS(vector(4, 1)), 1)); /* the second entry is still there */
    factor = 3;
    CHECK_CONTAINS(miss(compiled, ARGS(x), 1), "watched bytes");
    CHECK_INT(entered, 5);
    weft_release(compiled);
}

TEST(test_graph_guards_of_two_inputs)
{
    weft_compiled *compiled = compile(scaled, NULL, "eager");
    weft_tensor *x = vector(4, 1), *y = vector(4, 2), *both = vector(8, 1);
    weft_tensor *low = weft_narrow(both, 0, 0, 4);
    miss(compiled, ARGS(x, y), 2);
    CHECK(!*miss(compiled, ARGS(vector(4, 3), y), 2));
    CHECK_CONTAINS(miss(compiled, ARGS(x, x), 2), "share a storage now");
    CHECK_CONTAINS(miss(compiled, ARGS(low, weft_detach(low)), 2), "share a storage now");
    CHECK(!*miss(compiled, ARGS(low, weft_detach(low)), 2));
    CHECK_NEAR(weft_item(both, 0), 7, 0); /* an alias was written */
    CHECK_NEAR(weft_item(both, 4), 5, 0);
    weft_tensor *freed = vector(4, 0), *z = NULL;
    CHECK_OK(weft_resize_storage(freed, 0));
    CHECK_STATUS(weft_compiled_call(compiled, ARGS(freed, y), 2, &z, 1), WEFT_ERR_STATE);
    CHECK_CONTAINS(info_of(compiled).miss, "is freed now");
    /* Two storages over one piece of memory cannot be told apart by what is captured. */
    float memory[4] = {1, 2, 3, 4};
    weft_tensor *a = weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), memory, NULL, NULL);
    weft_tensor *b = weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), memory, NULL, NULL);
    CHECK_STATUS(weft_compiled_call(compiled, ARGS(a, b), 2, &z, 1), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(info_of(compiled).miss, "same memory");
    CHECK_NEAR(memory[0], 1, 0);
    weft_clear_error();
    weft_release(compiled);
}

FUNCTION(by_version)
{
    out[0] = weft_mul_scalar(in[0], (double)weft_tensor_version(in[0]));
    return WEFT_OK;
}

/* A version that is read as a plain number is part of what was captured. */
TEST(test_graph_guards_versions_that_were_read)
{
    weft_compiled *compiled = compile(by_version, NULL, "eager");
    weft_tensor *x = vector(4, 1), *y = NULL;
    CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
    CHECK_NEAR(weft_item(y, 3), 0, 0);
    CHECK_OK(weft_fill(x, 5));
    CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
    CHECK_NEAR(weft_item(y, 3), 5, 0);
    CHECK_CONTAINS(info_of(compiled).miss, "version of input \"arg0\"");
    char text[TEXT];
    CHECK(weft_compiled_details(compiled, text, sizeof text) > 0);
    CHECK_CONTAINS(text, "guard: inputs are as below, gradients are recorded\n");
    CHECK_CONTAINS(text, "guard: version of \"arg0\" is 1");
    CHECK_CONTAINS(text, "last guard that failed");
    CHECK_CONTAINS(text, "mul %0 1");
    weft_release(compiled);
}

/* Beyond eight entries the function runs itself; with `fullgraph` that is an error. */
TEST(test_graph_keeps_eight_entries)
{
    for (int whole = 0; whole < 2; whole++) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        opts.fullgraph = whole;
        weft_compiled *compiled = weft_compile(scaled, NULL, &opts);
        for (int n = 1; n <= 10; n++) {
            weft_tensor *x = vector(n, 1), *y = NULL;
            weft_status status = weft_compiled_call(compiled, ARGS(x), 1, &y, 1);
            CHECK_INT(status, whole && n > 8 ? WEFT_ERR_UNSUPPORTED : WEFT_OK);
            CHECK(status < 0 || weft_item(y, n - 1) == factor * n);
        }
        CHECK_INT(info_of(compiled).entries, 8);
        CHECK_INT(info_of(compiled).plain, whole ? 0 : 2);
        weft_clear_error();
        weft_release(compiled);
    }
}

/* ---- what cannot be captured ---- */

FUNCTION(branches)
{
    entered++;
    out[0] = weft_item(in[0], 0) > 0 ? weft_neg(in[0]) : weft_clone(in[0]);
    return WEFT_OK;
}

TEST(test_graph_runs_as_it_is)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    weft_compiled *compiled = weft_compile(branches, NULL, &opts);
    weft_tensor *x = vector(4, 1), *y = NULL;
    weft_clear_error();
    entered = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
        CHECK_NEAR(weft_item(y, 0), -1, 0);
    }
    CHECK_INT(entered, 4); /* one of them was the capture */
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK_INT(info_of(compiled).plain, 3);
    CHECK_CONTAINS(info_of(compiled).miss, "the value of %0");
    weft_release(compiled);
    CHECK_STATUS(weft_compiled_call(compile(branches, NULL, "eager"), ARGS(x), 1, &y, 1),
                 WEFT_ERR_STATE);
    weft_clear_error();
}

FUNCTION(nested)
{
    return weft_compiled_call(user, in, ins, out, outs);
}

/* A compiled function inside another is part of it. */
TEST(test_graph_nested_functions)
{
    weft_compiled *inner = compile(scaled, NULL, "eager"), *outer = compile(nested, inner, "eager");
    weft_tensor *x = vector(4, 1), *y = NULL;
    CHECK_OK(weft_compiled_call(outer, ARGS(x), 1, &y, 1));
    CHECK_NEAR(weft_item(y, 3), 4 * factor, 0);
    CHECK_INT(info_of(inner).calls, 0);
    CHECK_INT(info_of(outer).ops, 1);
    weft_release(outer);
    weft_release(inner);
}

/* ---- functions that fail without saying so ---- */

static const char *const each_backend[] = {"eager", "aot_eager", "c"};

FUNCTION(adds_what_cannot_be)
{
    out[0] = weft_add(in[0], in[1]);
    return WEFT_OK;
}

FUNCTION(sets_nothing)
{
    (void)out;
    return WEFT_OK;
}

FUNCTION(sets_one_of_two)
{
    if (weft_item(in[0], 0) > 0) /* never captured */
        out[0] = weft_neg(in[0]);
    return WEFT_OK;
}

/* A result that is not there is an error of the call, and the caller's pointers stay. */
TEST(test_graph_results_that_are_not_there)
{
    weft_tensor *x = vector(3, 1), *longer = vector(4, 1), *y[2] = {x, x};
    for (int i = 0; i < 3; i++) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        opts.backend = each_backend[i];
        weft_clear_error();
        weft_compiled *adds = weft_compile(adds_what_cannot_be, NULL, &opts);
        for (int k = 0; k < 2; k++) {
            CHECK_STATUS(weft_compiled_call(adds, ARGS(x, longer), 2, y, 1), WEFT_ERR_INVALID_ARG);
            CHECK_CONTAINS(weft_last_error(), "add");
        }
        weft_clear_error();
        CHECK_STATUS(weft_compiled_call(weft_compile(sets_nothing, NULL, &opts), ARGS(x), 1, y, 1),
                     WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "result 0 is NULL");
        weft_clear_error();
        CHECK_STATUS(
            weft_compiled_call(weft_compile(sets_one_of_two, NULL, &opts), ARGS(x), 1, y, 2),
            WEFT_ERR_INVALID_ARG);
        CHECK_CONTAINS(weft_last_error(), "result 1 is NULL");
        CHECK(y[0] == x && y[1] == x);
    }
    weft_clear_error();
}

FUNCTION(asks_for_data)
{
    *(bool *)user &= !weft_tensor_data(in[0]) && weft_last_status() == WEFT_ERR_STATE;
    *(bool *)user &= !weft_tensor_data(in[1]);
    out[0] = weft_neg(in[0]);
    return WEFT_OK;
}

/* Where a value is not known, callers get NULL and tend not to look: they are told before they die. */
TEST(test_graph_data_in_a_capture)
{
    char path[64], text[2048], command[80];
    weft_tensor *x = vector(3, 1), *other = vector(4, 1);
    bool null = true;
    snprintf(path, sizeof path, "/tmp/weft-test-frame-%d", (int)getpid());
    fflush(stderr);
    int kept = dup(2), file = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(kept >= 0 && file >= 0 && dup2(file, 2) == 2);
    for (int i = 0; i < 2; i++) {
        weft_graph_capture("f", asks_for_data, &null, ARGS(x, other), 2, 1);
        CHECK_CONTAINS(weft_last_error(), "weft_tracing");
        weft_clear_error();
    }
    CHECK_INT(dup2(kept, 2), 2);
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    close(kept);
    close(file);
    snprintf(command, sizeof command, "rm %s", path);
    CHECK_INT(system(command), 0);
    CHECK(null && length > 0);
    text[length] = 0;
    CHECK_CONTAINS(text, "WARN");
    CHECK_CONTAINS(text, "weft_tensor_data: NULL: the value of %0 (input, f32 [3]) is not known");
    CHECK_CONTAINS(text, "weft_custom_new");
    CHECK(!strstr(text, "the value of %1")); /* one a capture */
    CHECK(strchr(text, '\n') != strrchr(text, '\n'));
}

static int depth;

FUNCTION(calls_itself)
{
    depth++;
    weft_status status = weft_compiled_call(*(weft_compiled **)user, in, ins, out, outs);
    depth--;
    return status;
}

/* Does not care, and tries again. */
FUNCTION(calls_itself_twice)
{
    weft_compiled *own = *(weft_compiled **)user;
    weft_compiled_call(own, in, ins, out, outs);
    return weft_compiled_call(own, in, ins, out, outs);
}

FUNCTION(calls_itself_a_few_times)
{
    if (depth == 5) {
        out[0] = weft_neg(in[0]);
        return WEFT_OK;
    }
    return calls_itself(in, ins, out, outs, user);
}

TEST(test_graph_function_that_calls_itself)
{
    static weft_compiled *own;
    static const weft_graph_function functions[] = {calls_itself, calls_itself_twice};
    weft_tensor *x = vector(4, 1), *y = NULL;
    for (int i = 0; i < 12; i++) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        opts.backend = each_backend[i % 3];
        opts.fullgraph = i >= 6;
        own = weft_compile(functions[i / 3 % 2], &own, &opts);
        CHECK_STATUS(weft_compiled_call(own, ARGS(x), 1, &y, 1), WEFT_ERR_LIMIT);
        CHECK_CONTAINS(weft_last_error(), "calls itself");
        CHECK_STATUS(weft_compiled_call(own, ARGS(x), 1, &y, 1), WEFT_ERR_LIMIT);
        weft_clear_error();
    }
    depth = 0;
    own = compile(calls_itself_a_few_times, &own, "eager"); /* one that ends may */
    CHECK_OK(weft_compiled_call(own, ARGS(x), 1, &y, 1));
    CHECK_NEAR(weft_item(y, 0), -1, 0);
}

TEST(test_graph_bad_compiles)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    weft_tensor *x = vector(4, 1), *y = NULL;
    CHECK(!weft_compile(NULL, NULL, NULL));
    opts.backend = "magic";
    CHECK(!weft_compile(scaled, NULL, &opts));
    CHECK_CONTAINS(weft_last_error(), "no backend \"magic\"");
    opts.size = 3;
    CHECK(!weft_compile(scaled, NULL, &opts));
    weft_clear_error();
    CHECK_STATUS(weft_compiled_call(NULL, ARGS(x), 1, &y, 1), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    weft_compiled *compiled = compile(scaled, NULL, NULL);
    CHECK_STATUS(weft_compiled_call(compiled, ARGS(NULL), 1, &y, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_compiled_call(compiled, NULL, 1, &y, 1), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_compiled_describe(compiled, NULL), WEFT_ERR_INVALID_ARG);
    CHECK(weft_compiled_explain(NULL, NULL, 0) < 0);
    weft_release(compiled);
    weft_clear_error();
}

/* ---- gradients ---- */

FUNCTION(half_recorded)
{
    weft_tensor *y = weft_sin(in[0]), *z = NULL;
    WEFT_NO_GRAD
    {
        z = weft_cos(in[0]);
    }
    out[0] = weft_sum(weft_mul(y, z), NULL, 0, false);
    return WEFT_OK;
}

FUNCTION(goes_backward)
{
    out[0] = weft_sum(in[0], NULL, 0, false);
    (void)weft_backward(out[0]);
    return WEFT_OK;
}

/* The interpreter's calls are recorded as the function's own would be. */
TEST(test_graph_records_gradients)
{
    weft_compiled *compiled = compile(half_recorded, NULL, "eager");
    weft_tensor *x = vector(4, 1), *y = NULL;
    CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
    CHECK(!weft_requires_grad(y));
    CHECK_OK(weft_require_grad(x, true));
    CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
    CHECK_CONTAINS(info_of(compiled).miss, "\"arg0\" requires a gradient");
    CHECK(weft_requires_grad(y));
    CHECK(!weft_grad(x));
    CHECK_OK(weft_backward(y));
    CHECK_NEAR(weft_item(weft_grad(x), 2), cos(3) * cos(3), 1e-6);
    WEFT_NO_GRAD
    {
        CHECK_OK(weft_compiled_call(compiled, ARGS(x), 1, &y, 1));
    }
    CHECK_CONTAINS(info_of(compiled).miss, "recorded otherwise");
    CHECK(!weft_requires_grad(y));
    CHECK_INT(info_of(compiled).frames, 3);
    weft_release(compiled);
    /* Backward is no part of a function. */
    CHECK_STATUS(weft_compiled_call(compile(goes_backward, NULL, "eager"), ARGS(x), 1, &y, 1),
                 WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "weft_backward_all: cannot be captured");
    weft_clear_error();
}

/* ---- pure graphs ---- */

static weft_graph *pure_of(const char *text)
{
    weft_graph *graph = weft_graph_parse(text);
    if (!graph)
        FAIL("%s", weft_last_error());
    return weft_i_graph_pass_run(graph, WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE);
}

static void check_pure(const char *before, const char *after)
{
    char text[TEXT];
    weft_graph *pure = pure_of(before);
    if (!pure || weft_graph_text(pure, text, sizeof text) < 0)
        FAIL("%s", weft_last_error());
    if (strcmp(text, after))
        FAIL("got\n%s\nnot\n%s", text, after);
}

TEST(test_graph_pure_writes)
{
    check_pure("graph \"p\" {\n"
               "  %0 = input \"x\" f32[4]\n"
               "  %1 = fill %0 value=2\n"
               "  %2 = slice %1 dim=0 start=1 end=3 step=1\n"
               "  %3 = sin %2 into=%2\n"
               "  %4 = neg %1\n"
               "  output %4\n"
               "}\n",
               "graph \"p\" {\n"
               "  %0 = input \"x\" f32[4]\n"
               "  %1 = version %0\n"
               "  %2 = full dtype=f32 device=cpu shape=[4] value=2\n"
               "  %3 = slice %2 dim=0 start=1 end=3 step=1\n"
               "  %4 = sin %3\n"
               "  %5 = view_scatter %2 %4 shape=[2] strides=[1] offset=1\n"
               "  %6 = neg %5\n"
               "  %7 = copy %0 %5\n"
               "  %8 = add %1 2\n" /* there were two writes */
               "  %9 = set_version %7 %8\n"
               "  output %6\n"
               "}\n");
}

/* A parameter that is gathered, used and freed is a temporary: nothing is written to it. */
TEST(test_graph_pure_gathered_parameter)
{
    check_pure("graph \"p\" {\n"
               "  %0 = input \"shard\" f32[2]\n"
               "  %1 = input \"whole\" f32[4] bytes=0\n"
               "  %2 = resize_storage %1 bytes=16\n"
               "  %3 = version %1\n"
               "  %4 = all_gather_into_tensor %0 dim=0 group=\"0\"/2\n"
               "  %5 = wait_tensor %4\n"
               "  %6 = copy %2 %5\n"
               "  %7 = set_version %6 %3\n"
               "  %8 = sin %7\n"
               "  %9 = resize_storage %7 bytes=0\n"
               "  output %8\n"
               "}\n",
               "graph \"p\" {\n"
               "  %0 = input \"shard\" f32[2]\n"
               "  %1 = input \"whole\" f32[4] bytes=0\n"
               "  %2 = all_gather_into_tensor %0 dim=0 group=\"0\"/2\n"
               "  %3 = wait_tensor %2\n"
               "  %4 = clone %3\n"
               "  %5 = sin %4\n"
               "  output %5\n"
               "}\n");
}

static void check_refused(const char *body, const char *message)
{
    char text[2048];
    snprintf(text, sizeof text,
             "graph \"r\" {\n"
             "  %%0 = input \"x\" f32[4] grad\n"
             "  %%1 = input \"y\" f32[4]\n%s}\n",
             body);
    if (pure_of(text))
        FAIL("\"%s\" was made pure", body);
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), message);
    weft_clear_error();
}

TEST(test_graph_pure_refuses)
{
    check_refused("  %2 = resize_storage %0 bytes=0\n  output\n",
                  "input \"x\" requires a gradient and its storage is resized");
    check_refused("  %2 = sin %1\n  %3 = set %0 %2\n  output\n",
                  "input \"x\" requires a gradient and its storage is replaced");
    check_refused("  %2 = resize_storage %1 bytes=64\n  output\n", "must start or end at 0");
    check_refused("  %2 = resize_storage %1 bytes=0\n  %3 = cos %0\n  %4 = set %2 %3\n  output\n",
                  "only the reverse");
    CHECK(pure_of("graph \"q\" {\n" /* where gradients are not recorded */
                  "  %0 = input \"x\" f32[4] grad\n"
                  "  %1 = resize_storage %0 bytes=0 quiet\n"
                  "  output\n"
                  "}\n"));
}

/* ---- the n-th allocation fails ---- */

FUNCTION(several)
{
    WEFT_TRY(weft_fill(in[0], 3));
    weft_tensor *part = weft_narrow(in[1], 0, 1, 2);
    WEFT_TRY(weft_copy(part, weft_narrow(in[0], 0, 0, 2)));
    out[0] = weft_add(in[0], in[1]);
    return out[0] ? WEFT_OK : weft_last_status();
}

/* Until the program runs, nothing is changed; and the next call does what it should. */
TEST(test_graph_shortage_of_compiling)
{
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_tensor *x = vector(4, 0), *w = vector(4, 5), *y = NULL;
        CHECK_OK(weft_scope_open());
        weft_compiled *compiled = compile(several, NULL, "aot_eager");
        fault_arm(n);
        weft_status status = weft_compiled_call(compiled, ARGS(x, w), 2, &y, 1);
        fired = fault_disarm();
        CHECK(status >= 0 || status == WEFT_ERR_NO_MEMORY);
        if (status < 0 && info_of(compiled).frames == 0) {
            CHECK_INT(weft_tensor_version(x), 0);
            CHECK_NEAR(weft_item(x, 2), 2, 0);
            CHECK_NEAR(weft_item(w, 2), 7, 0);
        }
        weft_clear_error();
        CHECK_OK(weft_copy(x, vector(4, 0)));
        CHECK_OK(weft_copy(w, vector(4, 5)));
        CHECK_OK(weft_compiled_call(compiled, ARGS(x, w), 2, &y, 1));
        CHECK_NEAR(weft_item(y, 2), 6, 0);
        CHECK_NEAR(weft_item(y, 3), 11, 0);
        weft_release(compiled);
        CHECK_OK(weft_scope_close());
        CHECK(n < 2000);
    }
}

int main(int argc, char **argv)
{
    harness_cache_share();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
