/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/pass/schedule.c, graph/ir/order.c */
/* The order of collectives in a compiled graph: raised, waits sunk, never swapped, no higher peak. */
#include "harness.h"

#include "graph/ir/graph.h"
#include "graph/pass/passes.h"

#include <weft/weft.h>

enum { TEXT = 1 << 14, STAGES = WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE | WEFT_I_STAGE_SCHEDULE };

static char text[TEXT];

/* The scheduled graph of a function of two 4x4 tensors, as text in `text`; belongs to the scope. */
static weft_graph *schedule(weft_graph_function function, weft_group *world)
{
    weft_tensor *in[2] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4)),
                          weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4))};
    weft_graph *raw = weft_graph_capture("fn", function, world, in, 2, 1);
    weft_graph *graph = raw ? weft_i_graph_pass_run(raw, STAGES) : NULL;
    if (!graph || weft_graph_text(graph, text, sizeof text) >= TEXT)
        FAIL("%s", weft_last_error());
    return graph;
}

/* Where the n-th node of this row stands, from 0. */
static int place_of(const weft_graph *graph, const char *row, int n)
{
    for (int i = 0; i < graph->node_count; i++)
        if (!strcmp(graph->nodes[i].op->name, row) && n-- == 0)
            return i;
    FAIL("no %s: %s", row, text);
}

/* The reduction is of what is there at once; the products do not need it.  The last one is what needs
 * the most memory, in every order. */
static weft_status late(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *world)
{
    (void)ins, (void)outs;
    weft_tensor *product = weft_matmul(in[1], in[1]);
    weft_tensor *sum = weft_all_reduce(weft_neg(in[0]), WEFT_SUM, world);
    weft_tensor *square = weft_matmul(product, in[1]);
    weft_tensor *both = weft_add(sum, square);
    out[0] =
        weft_matmul(weft_reshape(both, WEFT_SHAPE(16, 1)), weft_reshape(both, WEFT_SHAPE(1, 16)));
    return WEFT_OK;
}

FAKE_TEST(test_schedule_raises_and_sinks, 2)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    weft_graph *graph = schedule(late, world);
    int start = place_of(graph, "all_reduce", 0), wait = place_of(graph, "wait_tensor", 0);
    CHECK(start < place_of(graph, "mm", 0));
    CHECK(wait > place_of(graph, "mm", 1));
    CHECK(wait < place_of(graph, "add", 0));
    CHECK_CONTAINS(graph->notes, "collectives raised, waits sunk");
    weft_finish(world);
}

/* The second collective's operand is there first. */
static weft_status two(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *world)
{
    (void)ins, (void)outs;
    weft_tensor *a =
        weft_all_reduce(weft_matmul(weft_matmul(in[0], in[1]), in[1]), WEFT_SUM, world);
    weft_tensor *b = weft_all_gather_tensor(in[1], 0, world);
    out[0] = weft_add(weft_matmul(b, a), b);
    return WEFT_OK;
}

FAKE_TEST(test_schedule_never_swaps_collectives, 2)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    weft_graph *graph = schedule(two, world);
    CHECK(place_of(graph, "all_reduce", 0) < place_of(graph, "all_gather_into_tensor", 0));
    for (int i = 0; i < 2; i++) /* and each wait comes before who needs it */
        CHECK(place_of(graph, "wait_tensor", i) < place_of(graph, "mm", 2));
    weft_finish(world);
}

/* Starting all gathers at once would keep all of their results. */
static weft_status many(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *world)
{
    (void)ins, (void)outs;
    weft_tensor *x = in[0];
    for (int i = 0; i < 4; i++) {
        weft_tensor *whole = weft_all_gather_tensor(weft_mul_scalar(in[1], i), 0, world);
        x = weft_matmul(x, weft_narrow(whole, 0, 0, 4));
    }
    out[0] = x;
    return WEFT_OK;
}

FAKE_TEST(test_schedule_peak_is_not_raised, 2)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    weft_group *world = weft_fake_init(&opts);
    weft_graph *graph = schedule(many, world);
    unsigned long after = 0, before = 0;
    const char *at = strstr(graph->notes, "at most ");
    CHECK(at && sscanf(at, "at most %lu bytes in use, were %lu", &after, &before) == 2);
    CHECK(before > 0 && after <= before);
    CHECK(!strstr(graph->notes, "collectives raised"));
    for (int i = 0; i < 3; i++)
        CHECK(place_of(graph, "mm", i) < place_of(graph, "all_gather_into_tensor", i + 1) ||
              place_of(graph, "all_gather_into_tensor", i) <
                  place_of(graph, "all_gather_into_tensor", i + 1));
    weft_finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
