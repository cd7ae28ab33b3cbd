/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/pass/bucket.c, graph/ir/order.c, graph/ir/pass.c, graph/pass/passes.c, graph/run/agree.c */
/*
 * Collectives of a compiled graph put together: which, in which order, and that it costs no memory;
 * what ranks do whose graphs put them together differently; and how functional collectives stand in
 * the text of a graph.
 */
#include "fault.h"
#include "functional_jobs.h"
#include "graph/ir/graph.h"
#include "graph/ir/order.h"
#include "graph/pass/passes.h"
#include "harness_cache.h"

enum {
    TEXT = 1 << 16,
    STAGES =
        WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE | WEFT_I_STAGE_COLLECTIVES | WEFT_I_STAGE_SCHEDULE
};

static _Thread_local char text[TEXT];

#define FUNCTION(name_)                                                               \
    static weft_status name_(weft_tensor *const *in, __attribute__((unused)) int ins, \
                             weft_tensor **out, __attribute__((unused)) int outs, void *world)

static int count_of(const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

/* The graph of a function of four tensors after the passes, as text; belongs to the scope. */
static weft_graph *rewrite(weft_graph_function function, weft_group *world, weft_dtype dtype)
{
    weft_tensor *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = weft_ones(dtype, WEFT_CPU, WEFT_SHAPE(4, 4));
    weft_graph *raw = weft_graph_capture("fn", function, world, in, 4, 1);
    weft_graph *graph = raw ? weft_i_graph_pass_run(raw, STAGES) : NULL;
    if (!graph || weft_graph_text(graph, text, sizeof text) >= TEXT)
        FAIL("%s", weft_last_error());
    return graph;
}

static weft_group *fake(void)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    return weft_fake_init(&opts);
}

/* ---- who goes together ---- */

FUNCTION(gathers)
{
    weft_tensor *sum = NULL;
    for (int i = 0; i < 4; i++) {
        weft_tensor *whole = weft_all_gather_tensor(in[i], 0, world);
        sum = sum ? weft_add(sum, whole) : whole;
    }
    /* What needs the most memory in every order. */
    out[0] =
        weft_matmul(weft_reshape(sum, WEFT_SHAPE(32, 1)), weft_reshape(sum, WEFT_SHAPE(1, 32)));
    return WEFT_OK;
}

FAKE_TEST(test_bucket_gathers, 2)
{
    weft_group *world = fake();
    weft_graph *graph = rewrite(gathers, world, WEFT_F32);
    CHECK_INT(count_of("all_gather_into_tensor_coalesced [%0, %1, %2, %3] group=\"0\"/2"), 1);
    CHECK_INT(count_of("= all_gather_into_tensor %"), 0);
    CHECK_INT(count_of("wait_tensor"), 4);
    CHECK_CONTAINS(graph->notes, "bucket: 4 all_gather_into_tensor, 512 bytes, of %0 %1 %2 %3");
    weft_finish(world);
}

/* One needs another's result, one has another dimension, one another kind. */
FUNCTION(apart)
{
    weft_tensor *a = weft_all_reduce(in[0], WEFT_SUM, world);
    weft_tensor *b = weft_all_reduce(weft_add(in[1], a), WEFT_SUM, world);
    weft_tensor *c = weft_all_reduce(in[2], WEFT_MAX, world);
    weft_tensor *d = weft_all_gather_tensor(in[3], 1, world);
    weft_tensor *e = weft_all_reduce(in[3], WEFT_MAX, world);
    weft_tensor *f = weft_all_reduce(weft_to(in[2], WEFT_F64, WEFT_CPU), WEFT_MAX, world);
    weft_tensor *sums = weft_add(weft_add(b, c), weft_add(e, f));
    out[0] = weft_add(sums, weft_narrow(d, 1, 0, 4));
    return WEFT_OK;
}

FAKE_TEST(test_bucket_keeps_apart, 2)
{
    weft_group *world = fake();
    weft_graph *graph = rewrite(apart, world, WEFT_F32);
    CHECK_INT(count_of("coalesced"), 0);
    CHECK_INT(count_of("= all_reduce %"), 5);
    CHECK_CONTAINS(graph->notes, "it needs the result of the one before it");
    CHECK_CONTAINS(graph->notes, "another kind, group, reduction or dtype");
    weft_finish(world);
}

FAKE_TEST(test_bucket_has_a_limit, 2)
{
    weft_group *world = fake();
    setenv("WEFT_BUCKET", "300", 1);
    weft_graph *graph = rewrite(gathers, world, WEFT_F32);
    CHECK_INT(count_of("all_gather_into_tensor_coalesced [%0, %1]"), 1);
    CHECK_INT(count_of("all_gather_into_tensor_coalesced [%2, %3]"), 1);
    CHECK_CONTAINS(graph->notes, "larger than WEFT_BUCKET");
    setenv("WEFT_BUCKET", "0", 1);
    rewrite(gathers, world, WEFT_F32);
    CHECK_INT(count_of("= all_gather_into_tensor %"), 4);
    unsetenv("WEFT_BUCKET");
    weft_finish(world);
}

/* Each whole tensor is used up before the next is gathered: together they need twice the memory. */
FUNCTION(one_by_one)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < 4; i++) {
        weft_tensor *whole = weft_all_gather_tensor(weft_mul_scalar(in[1], i), 0, world);
        x = weft_matmul(x, weft_narrow(whole, 0, 0, 4));
    }
    out[0] = x;
    return WEFT_OK;
}

FAKE_TEST(test_bucket_peak_is_not_raised, 2)
{
    weft_group *world = fake();
    weft_graph *graph = rewrite(one_by_one, world, WEFT_F32);
    CHECK_INT(count_of("= all_gather_into_tensor %"), 4);
    CHECK_CONTAINS(graph->notes, "together with those before it, it would need more memory");
    weft_finish(world);
}

/* Collectives of every kind, in random order and with random needs. */
static unsigned drawn;

static int draw(int below)
{
    drawn = drawn * 1103515245 + 12345;
    return (int)(drawn >> 16) % below;
}

FUNCTION(random_collectives)
{
    weft_tensor *values[40] = {in[0], in[1], in[2], in[3]};
    int count = 4;
    for (int i = 0; i < 24; i++) {
        weft_tensor *x = values[draw(count)], *y;
        int kind = draw(6);
        y = kind == 0   ? weft_all_reduce(x, draw(2) ? WEFT_SUM : WEFT_MAX, world)
            : kind == 1 ? weft_narrow(weft_all_gather_tensor(x, 0, world), 0, draw(4), 4)
            : kind == 2 ? weft_all_gather_tensor(weft_narrow(x, 0, draw(3), 2), 0, world)
            : kind == 3 ? weft_reduce_scatter_tensor(weft_cat((weft_tensor *[]){x, x}, 2, draw(2)),
                                                     WEFT_SUM, 0, world)
            : kind == 4 ? weft_add(x, values[draw(count)])
                        : weft_matmul(x, values[draw(count)]);
        values[count++] = weft_reshape(y, WEFT_SHAPE(4, 4));
    }
    weft_tensor *sum = values[4];
    for (int i = 5; i < count; i++)
        sum = weft_add(sum, values[i]);
    out[0] = sum;
    return WEFT_OK;
}

/* The group's collectives in their order, a letter each: those of a list as often as it has members.
 */
static void letters_of(const weft_graph *graph, char *out)
{
    for (int i = 0; i < graph->node_count; i++) {
        const weft_i_graph_node *node = &graph->nodes[i];
        if (!weft_i_graph_node_is_collective(node))
            continue;
        const char *name = node->op->name;
        char letter = !strncmp(name, "all_reduce", 10)   ? node->terms[1].integer ? 'm' : 's'
                      : !strncmp(name, "all_gather", 10) ? 'g'
                                                         : 'r';
        for (int k = 0; k < node->count; k++)
            *out++ = letter;
    }
    *out = 0;
}

FAKE_TEST(test_bucket_never_swaps, 2)
{
    weft_group *world = fake();
    int together = 0;
    for (unsigned seed = 1; seed <= 60; seed++) {
        char before[64], after[64];
        weft_tensor *in[4];
        size_t peak, was;
        CHECK_OK(weft_scope_open());
        for (int i = 0; i < 4; i++)
            in[i] = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
        drawn = seed;
        weft_graph *raw = weft_graph_capture("fn", random_collectives, world, in, 4, 1);
        weft_graph *pure = weft_i_graph_pass_run(raw, WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE);
        weft_graph *graph = weft_i_graph_pass_run(pure, STAGES);
        if (!graph || weft_graph_text(graph, text, sizeof text) >= TEXT)
            FAIL("seed %u: %s", seed, weft_last_error());
        letters_of(pure, before);
        letters_of(graph, after);
        if (strcmp(before, after))
            FAIL("seed %u: %s has become %s", seed, before, after);
        CHECK_OK(weft_i_graph_order_peak(pure, NULL, &was));
        CHECK_OK(weft_i_graph_order_peak(graph, NULL, &peak));
        if (peak > was)
            FAIL("seed %u: %zu bytes, %zu before", seed, peak, was);
        weft_graph *again = weft_graph_parse(text); /* every use comes after its maker */
        if (!again)
            FAIL("seed %u: %s", seed, weft_last_error());
        together += count_of("coalesced") > 0;
        CHECK_OK(weft_scope_close());
    }
    CHECK(together > 10);
    weft_finish(world);
}

/* ---- how long it takes ---- */

FUNCTION(long_chain)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < 600; i++) {
        weft_tensor *sum = weft_all_reduce(in[i % 4], WEFT_SUM, world);
        x = weft_add(weft_mul(x, in[1]), weft_add_scalar(sum, i));
    }
    out[0] = x;
    return WEFT_OK;
}

/* By looking at all nodes for each pair of them this would take minutes. */
FAKE_TEST(test_bucket_of_thousands_of_nodes, 2)
{
    weft_group *world = fake();
    weft_tensor *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
    weft_graph *raw = weft_graph_capture("fn", long_chain, world, in, 4, 1);
    CHECK(raw && raw->node_count > 2900);
    CHECK(weft_i_graph_pass_run(raw, STAGES) != NULL);
    weft_finish(world);
}

/* ---- the n-th call to the system fails ---- */

FUNCTION(everything)
{
    weft_tensor *own = weft_symm_one_shot_all_reduce(in[0], WEFT_SUM, world);
    weft_tensor *a = weft_all_gather_tensor(in[1], 0, world);
    weft_tensor *b = weft_all_gather_tensor(in[2], 0, world);
    weft_tensor *sum = weft_all_reduce(weft_neg(in[3]), WEFT_SUM, world);
    weft_tensor *all = weft_add(weft_add(a, b), weft_add(own, sum));
    weft_work *work;
    weft_tensor *named = weft_symm_low_contention_all_gather(weft_neg(all), world, &work);
    weft_release(work);
    if (!named)
        return weft_last_status();
    all = weft_sub(all, named);
    weft_status status = weft_all_gather_into(in[4], in[1], world);
    if (status < 0)
        return status;
    out[0] =
        weft_matmul(weft_reshape(all, WEFT_SHAPE(16, 1)), weft_reshape(all, WEFT_SHAPE(1, 16)));
    return WEFT_OK;
}

/* Alone, as what fails in one of several ranks ends the group. */
RANKS_TEST(test_bucket_shortage, 1)
{
    weft_group *world = join(30000);
    weft_tensor *in[5], *own, *out;
    bool fired = true;
    for (int i = 0; i < 5; i++)
        in[i] = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
    setenv("WEFT_CC", "/nowhere", 1);
    for (int n = 1; fired; n += 1 + n / 60) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        opts.backend = "c";
        opts.fullgraph = true;
        CHECK_OK(weft_scope_open());
        weft_compiled *compiled = weft_compile(everything, world, &opts);
        fault_arm(n);
        weft_status status = weft_compiled_call(compiled, in, 5, &out, 1);
        fired = fault_disarm();
        if (status < 0 && !fired)
            FAIL("%s", weft_last_error());
        weft_clear_error();
        if (weft_compiled_call(compiled, in, 5, &own, 1) < 0)
            FAIL("after call %d failed: %s", n, weft_last_error());
        CHECK(status < 0 || weft_equal(own, out));
        weft_release(compiled);
        CHECK_OK(weft_scope_close());
        CHECK(n < 20000);
    }
    unsetenv("WEFT_CC");
    leave(world);
}

/* ---- values ---- */

typedef struct job {
    weft_group *world;
    int rank;
} job;

static weft_compiled *compile(weft_graph_function function, void *user, bool agree)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = true;
    opts.agree = agree;
    weft_compiled *compiled = weft_compile(function, user, &opts);
    CHECK(compiled != NULL);
    return compiled;
}

static void check_same(weft_compiled *compiled, weft_graph_function function, void *user,
                       weft_tensor *const *in, int ins)
{
    weft_tensor *own, *out;
    CHECK_OK(function(in, ins, &own, 1, user));
    for (int round = 0; round < 2; round++) {
        CHECK_OK(weft_compiled_call(compiled, in, ins, &out, 1));
        CHECK(weft_equal(out, own));
    }
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
}

FUNCTION(all_kinds)
{
    weft_tensor *a = weft_all_gather_tensor(in[0], 0, world);
    weft_tensor *b = weft_all_gather_tensor(in[1], 0, world);
    weft_tensor *c = weft_all_reduce(in[2], WEFT_SUM, world);
    weft_tensor *d = weft_all_reduce(in[3], WEFT_SUM, world);
    weft_tensor *e = weft_reduce_scatter_tensor(weft_add(a, b), WEFT_SUM, 0, world);
    weft_tensor *f =
        weft_reduce_scatter_tensor(weft_cat((weft_tensor *[]){c, d}, 2, 1), WEFT_SUM, 1, world);
    out[0] = weft_add(e, f);
    return WEFT_OK;
}

RANKS_TEST(test_bucket_values, 2)
{
    weft_group *world = join(30000);
    weft_tensor *in[4];
    weft_seed((uint64_t)(5 + rank));
    for (int i = 0; i < 4; i++)
        in[i] = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
    weft_compiled *compiled = compile(all_kinds, world, true);
    check_same(compiled, all_kinds, world, in, 4);
    CHECK_INT(count_of("= all_gather_into_tensor_coalesced ["), 1);
    CHECK_INT(count_of("= all_reduce_coalesced ["), 1);
    CHECK_INT(count_of("= reduce_scatter_tensor_coalesced ["), 1);
    weft_release(compiled);
    leave(world);
}

/* The same collectives on all ranks; on one of them the second needs the first. */
static weft_status uneven(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    const job *j = user;
    (void)ins, (void)outs;
    weft_tensor *a = weft_all_reduce(in[0], WEFT_SUM, j->world), *y = in[1];
    if (j->rank)
        y = weft_add(y, weft_mul_scalar(a, 0));
    out[0] = weft_add(a, weft_all_reduce(y, WEFT_SUM, j->world));
    return WEFT_OK;
}

RANKS_TEST(test_bucket_disagreement_keeps_the_capture, 2)
{
    job j = {join(30000), rank};
    weft_tensor *in[2] = {weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)),
                          weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))};
    weft_compiled *compiled = compile(uneven, &j, true);
    check_same(compiled, uneven, &j, in, 2);
    CHECK_INT(count_of("= all_reduce %"), 2);
    CHECK_INT(count_of("coalesced ["), 0);
    weft_release(compiled);
    /* Said beforehand, nobody need ask. */
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.as_captured = true;
    compiled = weft_compile(uneven, &j, &opts);
    check_same(compiled, uneven, &j, in, 2);
    CHECK_INT(count_of("= all_reduce %"), 2);
    weft_release(compiled);
    leave(j.world);
}

/* ---- the text of functional collectives ---- */

FUNCTION(reduce_input)
{
    out[0] = weft_all_reduce(in[0], WEFT_SUM, world);
    return WEFT_OK;
}

FUNCTION(gather_input)
{
    out[0] = weft_all_gather_tensor(in[0], 0, world);
    return WEFT_OK;
}

FUNCTION(scatter_input)
{
    out[0] = weft_reduce_scatter_tensor(in[0], WEFT_SUM, 0, world);
    return WEFT_OK;
}

FUNCTION(list_of_inputs)
{
    weft_tensor *all[2];
    WEFT_TRY(weft_all_gather_into_tensor_coalesced(all, in, 2, world));
    out[0] = weft_add(all[0], all[1]);
    return WEFT_OK;
}

FUNCTION(exchange_input)
{
    const int64_t splits[] = {1, 3};
    out[0] = weft_all_to_all_single(in[0], splits, splits, world);
    return WEFT_OK;
}

FUNCTION(slice_of_own)
{
    out[0] = weft_all_reduce(weft_slice(weft_neg(in[0]), 0, 2, 4, 1), WEFT_SUM, world);
    return WEFT_OK;
}

/* One collective and one wait, in that order; nothing is copied; the name of the group, and nothing
 * of its ranks. */
FAKE_TEST(test_text_of_collectives, 2)
{
    static const struct {
        weft_graph_function function;
        const char *node, *end;
    } cases[] = {{reduce_input,
                  "  %4 = all_reduce %0 op=sum factor=1 group=\"0\"/2\n  %5 = wait_tensor %4\n",
                  "  output %5\n"},
                 {gather_input,
                  "  %4 = all_gather_into_tensor %0 dim=0 group=\"0\"/2\n  %5 = wait_tensor %4\n",
                  "  output %5\n"},
                 {scatter_input,
                  "  %4 = reduce_scatter_tensor %0 op=sum factor=1 dim=0 group=\"0\"/2\n"
                  "  %5 = wait_tensor %4\n",
                  "  output %5\n"},
                 {list_of_inputs,
                  "  %4, %5 = all_gather_into_tensor_coalesced [%0, %1] group=\"0\"/2\n"
                  "  %6 = wait_tensor %4\n  %7 = wait_tensor %5\n",
                  "  output %8\n"},
                 {exchange_input,
                  "  %4 = all_to_all_single %0 out_splits=[1, 3] in_splits=[1, 3] group=\"0\"/2\n"
                  "  %5 = wait_tensor %4\n",
                  "  output %5\n"},
                 {slice_of_own,
                  "= all_reduce %5 op=sum factor=1 group=\"0\"/2\n  %7 = wait_tensor %6\n",
                  "  output %7\n"}};
    weft_group *world = fake();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rewrite(cases[i].function, world, WEFT_F32);
        CHECK_CONTAINS(text, cases[i].node);
        CHECK_CONTAINS(text, cases[i].end);
        CHECK_INT(count_of("clone") + count_of("copy") + count_of("contiguous"), 0);
        CHECK_INT(count_of("group="), 1);
    }
    weft_finish(world);
}

/* Operands of a collective that is under way have memory of their own until its wait, and nobody
 * writes over them; after it, what it gave is ordinary. */
FUNCTION(under_way)
{
    weft_tensor *x = weft_mul(in[0], in[1]), *most = weft_all_reduce(x, WEFT_MAX, world);
    weft_tensor *y = weft_neg(weft_matmul(in[1], in[0]));
    out[0] = weft_matmul(weft_add(most, y), most);
    return WEFT_OK;
}

RANKS_TEST(test_text_operands_live_until_the_wait, 2)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64, 64)),
                          weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(64, 64))};
    weft_compiled *compiled = compile(under_way, world, false);
    for (int round = 0; round < 10; round++)
        check_same(compiled, under_way, world, in, 2);
    CHECK_CONTAINS(text, "not lowered: all_reduce of %2: it is not a sum");
    weft_release(compiled);
    leave(world);
}

int main(int argc, char **argv)
{
    harness_cache_share();
    int failed = harness_main(argc, argv);
    harness_cache_close();
    return failed;
}
