/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/capture/capture.c, graph/ir/graph.c, graph/ir/text.c, graph/ir/lexer.c,
 * graph/ir/parse.c, graph/ir/term.c, graph/ir/trace.c, graph/ir/replay.c, graph/pass/dead.c */
/*
 * Capture, text, dead code and the interpreter: what a function does is written down without
 * running it, and the real tensors stay as they were.
 */
#include "fault.h"
#include "harness_ranks.h"

#include "graph/ir/graph.h"
#include "graph/pass/passes.h"
#include "tensor/object/tensor.h"

#include <weft/weft.h>

enum { TEXT = 1 << 14 };

/* The graph's text; a buffer that the next call overwrites. */
static const char *text_of(const weft_graph *graph)
{
    static _Thread_local char text[TEXT];
    int length = weft_graph_text(graph, text, sizeof text);
    if (length < 0 || length >= TEXT)
        FAIL("a text of %d bytes: %s", length, weft_last_error());
    return text;
}

#define CHECK_TEXT(graph_, expected_)                     \
    do {                                                  \
        const char *text_ = text_of(graph_);              \
        if (strcmp(text_, (expected_)))                   \
            FAIL("got\n%s\nnot\n%s", text_, (expected_)); \
    } while (0)

/* The text reads as a graph with the same text. */
static void check_round_trip(const weft_graph *graph)
{
    char *text = strdup(text_of(graph));
    weft_graph *again = weft_graph_parse(text);
    if (!again)
        FAIL("%s\n%s", weft_last_error(), text);
    CHECK_TEXT(again, text);
    free(text);
    weft_release(again);
}

static weft_tensor *vector(int n, double start)
{
    return weft_arange(WEFT_F32, WEFT_CPU, start, start + n, 1);
}

#define ARGS(...)     \
    (weft_tensor *[]) \
    {                 \
        __VA_ARGS__   \
    }
#define COUNT(...) (int)(sizeof(ARGS(__VA_ARGS__)) / sizeof(weft_tensor *))
#define FUNCTION(name_)                                                          \
    static weft_status name_(__attribute__((unused)) weft_tensor *const *in,     \
                             __attribute__((unused)) int ins, weft_tensor **out, \
                             __attribute__((unused)) int outs, __attribute__((unused)) void *user)

static weft_graph *capture(weft_graph_function function, void *user, weft_tensor *const *in,
                           int ins, int outs)
{
    weft_graph *graph = weft_graph_capture("f", function, user, in, ins, outs);
    if (!graph)
        FAIL("%s", weft_last_error());
    check_round_trip(graph);
    return graph;
}

/* ---- what is written down ---- */

FUNCTION(arithmetic)
{
    CHECK(weft_tracing());
    weft_tensor *y = weft_mul_scalar(weft_sin(in[0]), 2.5);
    out[0] = weft_sum(weft_add(y, in[1]), NULL, 0, false);
    return WEFT_OK;
}

TEST(test_graph_records_calls)
{
    weft_tensor *x = vector(4, 1), *y = vector(4, 10), *sum = NULL;
    CHECK(!weft_tracing());
    weft_graph *graph = capture(arithmetic, NULL, ARGS(x, y), 2, 1);
    CHECK_TEXT(graph, "graph \"f\" {\n"
                      "  %0 = input \"arg0\" f32[4]\n"
                      "  %1 = input \"arg1\" f32[4]\n"
                      "  %2 = sin %0\n"
                      "  %3 = mul %2 2.5\n"
                      "  %4 = add %3 %1\n"
                      "  %5 = sum %4 dims=[] keepdim=false\n"
                      "  output %5\n"
                      "}\n");
    CHECK(!weft_tracing());
    CHECK_OK(weft_graph_run(graph, ARGS(x, y), 2, &sum, 1));
    weft_tensor *expected =
        weft_sum(weft_add(weft_mul_scalar(weft_sin(x), 2.5), y), NULL, 0, false);
    CHECK(weft_equal(sum, expected));
    CHECK_STATUS(weft_graph_run(graph, ARGS(x, vector(5, 0)), 2, &sum, 1), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "\"arg1\" has another shape");
    weft_clear_error();
}

static weft_tensor *elsewhere;

FUNCTION(uses_composites)
{
    weft_tensor *wide = weft_matmul(in[0], elsewhere);
    CHECK_INT(weft_tensor_size(elsewhere, 0), 3);
    weft_tensor *flat = weft_reshape(weft_transpose(wide, 0, 1), WEFT_SHAPE(-1));
    weft_tensor *table = weft_tensor_from(WEFT_F32, WEFT_SHAPE(2), (float[]){1, -2});
    out[0] = weft_add(weft_narrow(flat, 0, 0, 2), table);
    out[1] = elsewhere;
    out[2] = weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(2), 0.1);
    return WEFT_OK;
}

TEST(test_graph_lifts_free_tensors_and_constants)
{
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3)), *out[3], *eager[3];
    elsewhere = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 2));
    weft_graph *graph = capture(uses_composites, NULL, ARGS(x), 1, 3);
    CHECK_TEXT(graph, "graph \"f\" {\n"
                      "  %0 = input \"arg0\" f32[2, 3]\n"
                      "  %1 = input \"free0\" f32[3, 2] free\n"
                      "  %2 = constant f32[2] 0x0000803f000000c0\n"
                      "  %3 = mm %0 %1\n"
                      "  %4 = permute %3 dims=[1, 0]\n"
                      "  %5 = contiguous %4\n"
                      "  %6 = view %5 shape=[-1]\n"
                      "  %7 = slice %6 dim=0 start=0 end=2 step=1\n"
                      "  %8 = add %7 %2\n"
                      "  %9 = full dtype=f64 device=cpu shape=[2] value=0.1\n"
                      "  output %8, %1, %9\n"
                      "}\n");
    CHECK_OK(weft_graph_run(graph, ARGS(x), 1, out, 3));
    CHECK(out[1] == elsewhere); /* the very tensor */
    weft_tensor *flat =
        weft_reshape(weft_transpose(weft_matmul(x, elsewhere), 0, 1), WEFT_SHAPE(-1));
    eager[0] = weft_add(weft_narrow(flat, 0, 0, 2),
                        weft_tensor_from(WEFT_F32, WEFT_SHAPE(2), (float[]){1, -2}));
    CHECK(weft_equal(out[0], eager[0]));
    /* Read from its text, the graph does not know where the free tensor was. */
    weft_graph *again = weft_graph_parse(text_of(graph));
    CHECK_STATUS(weft_graph_run(again, ARGS(x), 1, out, 3), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "\"free0\"");
    weft_clear_error();
}

/* Writes, resizes, set and versions are nodes in their order, and touch nothing now. */
FUNCTION(changes)
{
    weft_tensor *x = in[0], *w = in[1];
    weft_tensor *old = weft_tensor_read_version(w);
    CHECK_OK(weft_fill(x, 3));
    CHECK_INT(weft_tensor_version(x), 1);
    CHECK_OK(weft_add_into(w, w, x));
    CHECK_OK(weft_tensor_write_version(w, old));
    CHECK_INT(weft_tensor_version(w), 0);
    CHECK_OK(weft_storage_resize(weft_tensor_storage(x), 0));
    CHECK_INT(weft_storage_bytes(weft_tensor_storage(x)), 0);
    CHECK(!weft_sin(x)); /* freed, also for a capture */
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    weft_clear_error();
    CHECK_OK(weft_set(x, weft_cos(w)));
    out[0] = weft_neg(x);
    out[1] = w;
    return WEFT_OK;
}

TEST(test_graph_records_changes)
{
    weft_tensor *x = vector(4, 0), *w = vector(4, 5), *out[2];
    weft_graph *graph = capture(changes, NULL, ARGS(x, w), 2, 2);
    CHECK_TEXT(graph, "graph \"f\" {\n"
                      "  %0 = input \"arg0\" f32[4]\n"
                      "  %1 = input \"arg1\" f32[4]\n"
                      "  %2 = version %1\n"
                      "  %3 = fill %0 value=3\n"
                      "  %4 = add %1 %3 into=%1\n"
                      "  %5 = set_version %4 %2\n"
                      "  %6 = resize_storage %3 bytes=0\n"
                      "  %7 = cos %5\n"
                      "  %8 = set %3 %7\n"
                      "  %9 = neg %8\n"
                      "  output %9, %5\n"
                      "}\n");
    CHECK_INT(weft_tensor_version(x), 0);
    CHECK_INT(weft_tensor_version(w), 0);
    CHECK_NEAR(weft_item(x, 2), 2, 0);
    CHECK_NEAR(weft_item(w, 2), 7, 0);
    CHECK_OK(weft_graph_run(graph, ARGS(x, w), 2, out, 2));
    CHECK(out[1] == w);
    CHECK_NEAR(weft_item(w, 2), 10, 0);
    CHECK_NEAR(weft_item(x, 2), cos(10), 1e-6);
    CHECK_NEAR(weft_item(out[0], 2), -cos(10), 1e-6);
    CHECK_INT(weft_tensor_version(w), 0);
    CHECK_INT(weft_tensor_version(x), 2);
}

/* ---- what is refused ---- */

typedef struct asking {
    const char *name;
    weft_status (*ask)(weft_tensor *x);
} asking;

static weft_status ask_item(weft_tensor *x)
{
    return isnan(weft_item(x, 0)) ? -1 : 0;
}
static weft_status ask_data(weft_tensor *x)
{
    return weft_tensor_data(x) ? 0 : -1;
}
static weft_status ask_memory(weft_tensor *x)
{
    return weft_storage_data(weft_tensor_storage(x)) ? 0 : -1;
}
static weft_status ask_text(weft_tensor *x)
{
    char text[64];
    return weft_tensor_text(x, text, sizeof text) < 0 ? -1 : 0;
}
static weft_status ask_equal(weft_tensor *x)
{
    return weft_equal(x, x) ? 0 : -1;
}
static weft_status ask_dlpack(weft_tensor *x)
{
    return weft_dlpack_export(x) ? 0 : -1;
}
static weft_status ask_wrap(weft_tensor *x)
{
    static float memory[4];
    (void)x;
    return weft_tensor_wrap(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), memory, NULL, NULL) ? 0 : -1;
}
static weft_status ask_seed(weft_tensor *x)
{
    (void)x;
    weft_seed(1);
    return -1;
}

static const asking askings[] = {{"item", ask_item}, {"data", ask_data},   {"memory", ask_memory},
                                 {"text", ask_text}, {"equal", ask_equal}, {"dlpack", ask_dlpack},
                                 {"wrap", ask_wrap}, {"seed", ask_seed}};

static bool of_result;

FUNCTION(asks)
{
    const asking *how = user;
    weft_tensor *y = weft_sum(in[0], NULL, 0, false);
    out[0] = y;
    if (how->ask(of_result ? y : in[0]) == 0)
        FAIL("%s was answered", how->name);
    return WEFT_OK; /* as if nothing had happened */
}

TEST(test_graph_values_are_not_known)
{
    weft_tensor *x = vector(4, 1);
    weft_seed(3);
    weft_tensor *drawn = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_seed(3);
    for (size_t i = 0; i < sizeof askings / sizeof *askings; i++)
        for (of_result = false;; of_result = true) {
            CHECK(!weft_graph_capture("f", asks, (void *)&askings[i], ARGS(x), 1, 1));
            bool value = strcmp(askings[i].name, "wrap") && strcmp(askings[i].name, "seed");
            CHECK_INT(weft_last_status(), value ? WEFT_ERR_STATE : WEFT_ERR_UNSUPPORTED);
            CHECK_CONTAINS(weft_last_error(),
                           !value ? "cannot be captured"
                           : of_result
                               ? "the value of %1 (sum, f32 []) is not known while capturing"
                               : "the value of %0 (input, f32 [4]) is not known");
            weft_clear_error();
            if (of_result)
                break;
        }
    CHECK_NEAR(weft_item(x, 3), 4, 0);
    /* Nor has the refused seed been set. */
    CHECK(weft_equal(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), drawn));
}

static weft_tensor *leaked;

FUNCTION(leaks)
{
    out[0] = weft_sin(in[0]);
    leaked = weft_keep(out[0]);
    return WEFT_OK;
}

FUNCTION(uses_leaked)
{
    out[0] = weft_add(in[0], leaked);
    return out[0] ? WEFT_OK : weft_last_status();
}

TEST(test_graph_stand_ins_end_with_their_capture)
{
    weft_tensor *x = vector(4, 1);
    CHECK(weft_graph_capture("f", leaks, NULL, ARGS(x), 1, 1));
    CHECK(!weft_sin(leaked));
    CHECK_CONTAINS(weft_last_error(), "%1 (sin, f32 [4])");
    CHECK_STATUS(weft_resize_storage(leaked, 0), WEFT_ERR_STATE);
    CHECK_STATUS(weft_storage_resize(weft_tensor_storage(leaked), 0), WEFT_ERR_STATE);
    CHECK(!weft_graph_capture("f", uses_leaked, NULL, ARGS(x), 1, 1));
    CHECK_CONTAINS(weft_last_error(), "another capture");
    CHECK(!weft_graph_capture("f", leaks, NULL, ARGS(leaked), 1, 1));
    weft_release(leaked);
    weft_clear_error();
}

FUNCTION(nests)
{
    out[0] = weft_sin(in[0]);
    return weft_graph_capture("g", leaks, NULL, in, 1, 1) ? WEFT_OK : weft_last_status();
}

FUNCTION(fails)
{
    out[0] = NULL;
    return weft_i_fail(WEFT_ERR_PEER_LEFT, "on purpose");
}

FUNCTION(forgets)
{
    out[0] = NULL;
    return WEFT_OK;
}

TEST(test_graph_bad_captures)
{
    weft_tensor *x = vector(4, 1);
    weft_clear_error();
    CHECK(!weft_graph_capture("f", forgets, NULL, ARGS(x), 1, 1));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK(!weft_graph_capture("f", fails, NULL, ARGS(x), 1, 1));
    CHECK_INT(weft_last_status(), WEFT_ERR_PEER_LEFT);
    CHECK(!weft_graph_capture("f", nests, NULL, ARGS(x), 1, 1));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK(!weft_graph_capture(NULL, leaks, NULL, ARGS(x), 1, 1));
    CHECK(!weft_graph_capture("f", NULL, NULL, ARGS(x), 1, 1));
    CHECK(!weft_graph_capture("f", leaks, NULL, NULL, 1, 1));
    CHECK(!weft_graph_capture("f", leaks, NULL, ARGS(NULL), 1, 1));
    CHECK(!weft_graph_parse(NULL));
    CHECK(weft_graph_text(NULL, NULL, 0) < 0);
    CHECK(!weft_tracing());
    weft_clear_error();
}

/* ---- collectives ---- */

FUNCTION(allred)
{
    out[0] = weft_add_scalar(weft_all_reduce(in[0], WEFT_SUM, user), 1);
    return WEFT_OK;
}

FUNCTION(waits_twice)
{
    weft_tensor *y = weft_wait_tensor(weft_all_reduce(in[0], WEFT_SUM, user));
    out[0] = weft_add_scalar(weft_wait_tensor(y), 1);
    return WEFT_OK;
}

/* The reference's test: an all_reduce, behind it its wait, and no constants or lifted tensors for
 * the mesh. */
FAKE_TEST(test_all_reduce_tracing, 2)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    CHECK(world);
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2), NULL);
    weft_group *groups[] = {world, weft_mesh_group(mesh, 0)};
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), *y;
    for (int i = 0; i < 2; i++) {
        char expected[512];
        CHECK(groups[i]);
        snprintf(expected, sizeof expected,
                 "graph \"f\" {\n"
                 "  %%0 = input \"arg0\" f32[4]\n"
                 "  %%1 = all_reduce %%0 op=sum factor=1 group=\"%s\"/2\n"
                 "  %%2 = wait_tensor %%1\n"
                 "  %%3 = add %%2 1\n"
                 "  output %%3\n"
                 "}\n",
                 weft_group_name(groups[i]));
        CHECK_TEXT(capture(allred, groups[i], ARGS(x), 1, 1), expected);
        CHECK_TEXT(capture(waits_twice, groups[i], ARGS(x), 1, 1), expected);
    }
    CHECK_OK(weft_graph_run(capture(allred, world, ARGS(x), 1, 1), ARGS(x), 1, &y, 1));
    CHECK_NEAR(weft_item(y, 0), weft_item(x, 0) + 1, 1e-6); /* a fake world has one input */
    CHECK_INT(weft_unwaited(world), 0);
    weft_finish(world);
}

FUNCTION(plain_collectives)
{
    weft_tensor *wide = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4)),
                *narrow = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)),
                *swapped = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_OK(weft_all_reduce_into(in[0], in[0], WEFT_SUM, user));
    CHECK_OK(weft_all_gather_into(wide, in[0], user));
    CHECK_OK(weft_reduce_scatter_into(narrow, in[0], WEFT_MAX, user));
    CHECK_OK(weft_all_to_all_into(swapped, in[0], NULL, NULL, user));
    out[0] = wide;
    out[1] = narrow;
    out[2] = swapped;
    return WEFT_OK;
}

FUNCTION(plain_reduce)
{
    out[0] = in[0];
    weft_reduce_into(in[0], in[0], WEFT_SUM, 0, user);
    return WEFT_OK;
}
FUNCTION(plain_start)
{
    out[0] = in[0];
    CHECK(!weft_all_reduce_start(in[0], in[0], WEFT_SUM, user));
    return WEFT_OK;
}
FUNCTION(plain_barrier)
{
    out[0] = in[0];
    weft_group_barrier(user, WEFT_DEFAULT);
    return WEFT_OK;
}
FUNCTION(plain_send)
{
    out[0] = in[0];
    weft_send(in[0], 1, user);
    return WEFT_OK;
}
FUNCTION(symmetric)
{
    out[0] = in[0];
    CHECK(!weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)));
    return WEFT_OK;
}

FAKE_TEST(test_graph_plain_collectives, 2)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    weft_tensor *x = vector(4, 1), *out[3];
    weft_graph *graph = capture(plain_collectives, world, ARGS(x), 1, 3);
    const char *text = text_of(graph);
    CHECK_CONTAINS(text, " = all_reduce %0 op=sum");
    CHECK_CONTAINS(text, " = all_gather_into_tensor ");
    CHECK_CONTAINS(text, " = reduce_scatter_tensor ");
    CHECK_CONTAINS(text, " = all_to_all_single ");
    int waits = 0, copies = 0;
    for (const char *at = text; (at = strstr(at, "= wait_tensor")); at++)
        waits++;
    for (const char *at = text; (at = strstr(at, "= copy")); at++)
        copies++;
    CHECK_INT(waits, 4);
    CHECK_INT(copies, 4);
    CHECK_INT(weft_tensor_version(x), 0); /* not run */
    CHECK_OK(weft_graph_run(graph, ARGS(x), 1, out, 3));
    CHECK_INT(weft_tensor_version(x), 1);
    CHECK_NEAR(weft_item(out[0], 7), 4, 0);
    CHECK_NEAR(weft_item(out[1], 1), 2, 0);
    CHECK_NEAR(weft_item(out[2], 2), 3, 0);
    weft_graph_function refused[] = {plain_reduce, plain_start, plain_barrier, plain_send,
                                     symmetric};
    for (int i = 0; i < 5; i++) {
        if (weft_graph_capture("f", refused[i], world, ARGS(x), 1, 1))
            FAIL("function %d was captured", i);
        CHECK_CONTAINS(weft_last_error(), "cannot be captured");
        weft_clear_error();
    }
    weft_finish(world);
}

/* ---- dead code ---- */

static void check_dead(const char *before, const char *after)
{
    weft_graph *graph = weft_graph_parse(before);
    if (!graph)
        FAIL("%s", weft_last_error());
    weft_graph *rest = weft_i_graph_pass_drop_dead(graph);
    if (!rest)
        FAIL("%s", weft_last_error());
    CHECK_TEXT(rest, after);
    check_round_trip(rest);
}

TEST(test_graph_dead_code)
{
    check_dead("graph \"d\" {\n"
               "  %0 = input \"x\" f32[4]\n"
               "  %1 = constant f32[] 0x00000000\n"
               "  %2 = sin %0\n"
               "  %3 = all_reduce %2 op=sum factor=1 group=\"0\"/2 # nobody waits for it\n"
               "  %4 = all_reduce %0 op=max factor=1 group=\"0\"/2\n"
               "  %5 = wait_tensor %4\n"
               "  %6 = add %0 %1\n"
               "  %7 = cos %0\n"
               "  output %7\n"
               "}\n",
               "graph \"d\" {\n"
               "  %0 = input \"x\" f32[4]\n"
               "  %1 = all_reduce %0 op=max factor=1 group=\"0\"/2\n"
               "  %2 = wait_tensor %1\n"
               "  %3 = cos %0\n"
               "  output %3\n"
               "}\n");
    check_dead("graph \"d\" {\n" /* writes to a temporary, read and unread; to an input; a draw */
               "  %0 = input \"x\" f32[4]\n"
               "  %1 = empty dtype=f32 device=cpu shape=[4]\n"
               "  %2 = fill %1 value=1\n"
               "  %3 = empty dtype=f32 device=cpu shape=[4]\n"
               "  %4 = fill %3 value=2\n"
               "  %5 = slice %0 dim=0 start=0 end=2 step=1\n"
               "  %6 = fill %5 value=7\n"
               "  %7 = empty dtype=f32 device=cpu shape=[4]\n"
               "  %8 = uniform %7 low=0 high=1\n"
               "  %9 = set_version %8 0\n"
               "  %10 = version %0\n"
               "  %11 = neg %2\n"
               "  output %11\n"
               "}\n",
               "graph \"d\" {\n"
               "  %0 = input \"x\" f32[4]\n"
               "  %1 = empty dtype=f32 device=cpu shape=[4]\n"
               "  %2 = fill %1 value=1\n"
               "  %3 = slice %0 dim=0 start=0 end=2 step=1\n"
               "  %4 = fill %3 value=7\n"
               "  %5 = empty dtype=f32 device=cpu shape=[4]\n"
               "  %6 = uniform %5 low=0 high=1\n"
               "  %7 = neg %2\n"
               "  output %7\n"
               "}\n");
}

/* ---- text ---- */

TEST(test_graph_text_of_everything)
{
    const char *text = "graph \"a \\x22name\\x22\" {\n"
                       "  %0 = input \"x\" f32[2, 3] grad parameter\n"
                       "  %1 = input \"t\" f32[3, 2] strides=[1, 3] storage=%0\n"
                       "  %2 = input \"part\" f64[2] offset=3 bytes=80\n"
                       "  %3 = input \"freed\" bf16[4] bytes=0\n"
                       "  %4 = input \"data\" f32[6] storage=%0 counter=own\n"
                       "  %5 = input \"meta\" i64[]@meta free\n"
                       "  arguments %0, %0, %1, %2, %3, %4\n"
                       "  %6 = constant i16[2] 0x0100ffff\n"
                       "  %7, _, _ = layer_norm_grad %0 %0 none dims=1 epsilon=1e-05 bias=false\n"
                       "  %10 = cat [%0, %0] dim=-1\n"
                       "  %11 = add %0 -0 into=%0 quiet\n"
                       "  %12 = full dtype=f32 device=cpu shape=[] value=inf\n"
                       "  %13 = maximum %10 nan\n"
                       "  %14, %15 = all_reduce_coalesced [%10, %0] op=avg factor=1 group=\"g\"/4\n"
                       "  output %13, %0, %13\n"
                       "}\n";
    weft_graph *graph = weft_graph_parse(text);
    if (!graph)
        FAIL("%s", weft_last_error());
    /* layer_norm_grad without a weight has one result. */
    CHECK_TEXT(graph, text);
}

static void check_bad(const char *body, const char *message)
{
    char text[2048];
    snprintf(text, sizeof text, "graph \"b\" {\n  %%0 = input \"x\" f32[4]\n%s}\n", body);
    if (weft_graph_parse(text))
        FAIL("\"%s\" was read", body);
    CHECK_CONTAINS(weft_last_error(), message);
    weft_clear_error();
}

TEST(test_graph_text_errors_name_the_line)
{
    check_bad("  %1 = sin %0\n  %2 = tan %1\n  output %2\n",
              "line 4: there is no operation \"tan\"");
    check_bad("  %1 = sin %7\n  output\n", "line 3: %7 is not known here");
    check_bad("  %2 = sin %0\n  output\n", "line 3: %2 is made where %1 comes next");
    check_bad("  %1 = sum %0 dims=[4] keepdim=false\n  output\n", "line 3");
    check_bad("  %1 = sum %0 dims=[]\n  output\n", "line 3: sum: argument keepdim is missing");
    check_bad("  %1 = sum %0 dims=[] dims=[] keepdim=true\n  output\n", "given twice");
    check_bad("  %1 = sum %0 dims=[] keepdim=true x=1\n  output\n", "none of its own");
    check_bad("  %1, %2 = sin %0\n  output\n", "gives 1 results, not 2");
    check_bad("  %1 = sin %0 %0\n  output\n", "line 3: expected a word");
    check_bad("  %1 = sin none\n  output\n", "line 3: sin: argument x has the wrong kind");
    check_bad("  %1 = wait_tensor none\n  output %1\n",
              "wait_tensor: argument x has the wrong kind");
    check_bad("  %1 = sin %0\n", "line 4");
    check_bad("  %1 = sin %0\n  %2 = input \"y\" f32[1]\n  output\n", "inputs come first");
    check_bad("  %1 = input \"y\" f99[1]\n  output\n", "\"f99\" is not a dtype");
    check_bad("  %1 = input \"y\" f32[-1]\n  output\n", "negative");
    check_bad("  %1 = input \"y\" f32[1] bytes=-1\n  output\n", "line 3: a storage of -1 bytes");
    check_bad("  %1 = input \"y\" f32[9, 9223372036854775807]\n  output\n", "line 3");
    check_bad("  %1 = input \"y\" f32[2]@moon\n  output\n", "\"moon\" is not a device");
    check_bad("  %1 = input \"y f32[2]\n  output\n", "a string does not end");
    check_bad("  %1 = constant f32[2] 0x00\n  output\n", "8 bytes");
    check_bad("  %1 = sin %0\n  %2 = set %0 %1\n  %3 = neg %0\n  output\n",
              "line 5: %0 was given another storage");
    check_bad("  %1 = all_reduce %0 op=sun factor=1 group=\"0\"/2\n  output\n",
              "\"sun\" is not a reduction");
    check_bad("  output\n}\nmore\n", "something stands behind the graph");
    CHECK(!weft_graph_parse(""));
    CHECK_CONTAINS(weft_last_error(), "line 1");
    weft_clear_error();
}

/* Texts with bytes changed, cut and doubled are read or refused, and what is read prints as itself
 * in the end. */
TEST(test_graph_text_of_garbage)
{
    const char *seed_text = "graph \"g\" {\n"
                            "  %0 = input \"x\" f32[2, 3]\n"
                            "  %1 = input \"t\" f32[3] offset=1 storage=%0\n"
                            "  %2 = constant i16[2] 0x0100ffff\n"
                            "  %3 = mul %0 2.5\n"
                            "  %4 = sum %3 dims=[0, 1] keepdim=true\n"
                            "  %5 = cat [%0, %3] dim=0\n"
                            "  %6 = fill %5 value=1e+30\n"
                            "  %7 = all_gather_into_tensor %6 dim=0 group=\"0\"/2\n"
                            "  output %7, %0\n"
                            "}\n";
    uint64_t state = 12345;
    size_t length = strlen(seed_text);
    int read = 0;
    for (int round = 0; round < 4000; round++) {
        char text[1024];
        strcpy(text, seed_text);
        for (int k = 0; k < 1 + round % 3; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(state >> 33) % length;
            int what = (int)(state >> 20) % 4;
            if (what == 0)
                text[at] = (char)(1 + (state >> 40) % 126);
            else if (what == 1)
                memmove(text + at, text + at + 1, strlen(text + at));
            else if (what == 2)
                text[at] = "0123456789%,=[]_ \n"[(state >> 40) % 18];
            else
                text[at] = 0;
            if (strlen(text) < 4)
                break;
            length = strlen(text);
        }
        length = strlen(seed_text);
        CHECK_OK(weft_scope_open());
        weft_graph *graph = weft_graph_parse(text);
        if (graph) {
            check_round_trip(graph);
            read++;
        }
        CHECK_OK(weft_scope_close());
    }
    CHECK(read > 20);
    weft_clear_error();
}

/* ---- the n-th allocation fails ---- */

/* As `changes`, and more, but it may fail anywhere. */
FUNCTION(changes_or_fails)
{
    weft_tensor *x = in[0], *w = in[1], *table;
    WEFT_TRY(weft_fill(x, 3));
    WEFT_TRY(weft_add_into(w, w, x));
    WEFT_TRY(weft_storage_resize(weft_tensor_storage(x), 0));
    if (!(table = weft_tensor_from(WEFT_F32, WEFT_SHAPE(4), (float[4]){1, 2, 3, 4})))
        return weft_last_status();
    WEFT_TRY(weft_watch(&of_result, sizeof of_result));
    WEFT_TRY(weft_set(x, weft_cos(weft_add(w, table))));
    out[0] = weft_stack((weft_tensor *[]){x, elsewhere}, 2, 0);
    out[1] = w;
    return out[0] ? WEFT_OK : weft_last_status();
}

TEST(test_graph_shortage_leaves_everything)
{
    weft_tensor *x = vector(4, 0), *w = vector(4, 5), *out[2];
    bool fired = true;
    elsewhere = vector(4, 8);
    for (int n = 1; fired; n++) {
        CHECK_OK(weft_scope_open());
        fault_arm(n);
        weft_graph *graph = weft_graph_capture("f", changes_or_fails, NULL, ARGS(x, w), 2, 2);
        fired = fault_disarm();
        CHECK(!weft_tracing());
        CHECK_INT(weft_tensor_version(x), 0);
        CHECK_INT(weft_tensor_version(w), 0);
        CHECK_NEAR(weft_item(x, 2), 2, 0);
        CHECK_NEAR(weft_item(w, 2), 7, 0);
        CHECK(fired || graph);
        if (!fired)
            CHECK_OK(weft_graph_run(graph, ARGS(x, w), 2, out, 2));
        CHECK_OK(weft_scope_close());
        CHECK(n < 2000);
    }
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
