/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/pass/bucket.c, graph/pass/gather.c, graph/emit/plan.c */
/*
 * Two-layer MLPs over four ranks, compiled: one whose weights are cut, so that parts are added up,
 * and one whose weights are sharded, so that they are gathered.  Results and gradients have eager's
 * bits, the text shows what became of the collectives, and the peak is not above eager's.
 */
#include "functional_jobs.h"
#include "harness_cache.h"
#include "memory_count.h"

enum { TEXT = 1 << 17, RANKS = 4, WIDE = 64, ROWS = 16 };

static _Thread_local char text[TEXT];

#define FUNCTION(name_)                                                               \
    static weft_status name_(weft_tensor *const *in, __attribute__((unused)) int ins, \
                             weft_tensor **out, __attribute__((unused)) int outs, void *world)

/* in: x, then for each of two layers the rank's columns of one weight and rows of the other. */
FUNCTION(cut_layers)
{
    weft_tensor *x = in[0];
    for (int layer = 0; layer < 2; layer++) {
        weft_tensor *up = weft_gelu(weft_linear(x, in[1 + 2 * layer], NULL));
        x = weft_all_reduce(weft_linear(up, in[2 + 2 * layer], NULL), WEFT_SUM, world);
    }
    out[0] = x;
    return WEFT_OK;
}

/* in: x, then for each of two layers the rank's shards of a weight and of a bias. */
FUNCTION(sharded_layers)
{
    weft_tensor *x = in[0];
    for (int layer = 0; layer < 2; layer++) {
        weft_tensor *weight = weft_all_gather_tensor(in[1 + 2 * layer], 0, world);
        weft_tensor *bias = weft_all_gather_tensor(in[2 + 2 * layer], 0, world);
        x = weft_gelu(weft_linear(x, weight, bias));
    }
    out[0] = x;
    return WEFT_OK;
}

typedef struct training {
    weft_graph_function function;
    weft_group *world;
    weft_compiled *compiled; /* NULL: as it is */
    weft_tensor *in[5];
    weft_tensor *result;
    weft_tensor *grads[5];
} training;

static void step(training *t)
{
    weft_tensor *y = NULL;
    CHECK_OK(t->compiled ? weft_compiled_call(t->compiled, t->in, 5, &y, 1)
                         : t->function(t->in, 5, &y, 1, t->world));
    CHECK(y != NULL);
    CHECK_OK(weft_backward(weft_div_scalar(weft_mean(weft_mul(y, y), NULL, 0, false), RANKS)));
    t->result = weft_keep(weft_clone(weft_detach(y)));
    for (int i = 0; i < 5; i++) {
        t->grads[i] =
            weft_requires_grad(t->in[i]) ? weft_keep(weft_clone(weft_grad(t->in[i]))) : NULL;
        if (t->grads[i])
            CHECK_OK(weft_set_grad(t->in[i], NULL));
    }
}

static void drop(training *t)
{
    weft_release(t->result);
    for (int i = 0; i < 5; i++)
        weft_release(t->grads[i]);
}

/* ---- memory ---- */

/* The most that the step has beyond what was there.  One step at a time goes through the table: no
 * other thread of the process allocates meanwhile but the helper, which frees what it was given. */
static size_t peak_of(training *t)
{
    count_begin();
    CHECK_OK(weft_scope_open());
    step(t);
    CHECK_OK(weft_scope_close());
    drop(t);
    count_end();
    return most - ((size_t)1 << 40);
}

/* ---- tests ---- */

static weft_tensor *leaf(weft_shape shape)
{
    weft_tensor *x = weft_mul_scalar(weft_randn(WEFT_F32, WEFT_CPU, shape), 0.2);
    CHECK_OK(weft_require_grad(x, true));
    return x;
}

static int count_of(const char *all, const char *word)
{
    int count = 0;
    for (const char *at = all; (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

/* Two steps each way, bit for bit. */
static void compare(training *own, training *fast)
{
    for (int round = 0; round < 2; round++) {
        step(own);
        step(fast);
        CHECK(weft_equal(own->result, fast->result));
        for (int i = 0; i < 5; i++) {
            CHECK(!own->grads[i] == !fast->grads[i]);
            if (own->grads[i] && !weft_equal(own->grads[i], fast->grads[i]))
                FAIL("gradient %d differs in round %d", i, round);
        }
        drop(own);
        drop(fast);
    }
}

/* `text` is that of the forward half up to the returned place, then of the backward half. */
static const char *check_training(weft_graph_function function, weft_group *world,
                                  weft_tensor *const *in)
{
    training own = {.function = function, .world = world}, fast;
    memcpy(own.in, in, sizeof own.in);
    fast = own;
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = "c";
    opts.fullgraph = opts.agree = true;
    fast.compiled = weft_compile(function, world, &opts);
    compare(&own, &fast);
    if (!harness_in_threads) {
        mallopt(M_MMAP_THRESHOLD, 1 << 30);
        size_t eager = peak_of(&own), compiled = peak_of(&fast);
        if (compiled > eager)
            FAIL("%zu bytes compiled, %zu eagerly", compiled, eager);
    }
    CHECK(weft_compiled_details(fast.compiled, text, sizeof text) < TEXT);
    const char *back = strstr(text, "backward: run");
    CHECK(back != NULL);
    weft_release(fast.compiled);
    return back;
}

static char *part_of(const char *from, const char *to)
{
    static _Thread_local char part[TEXT];
    snprintf(part, sizeof part, "%.*s", (int)(to ? to - from : (long)strlen(from)), from);
    return part;
}

RANKS_TEST(test_parallel_cut_layers, RANKS)
{
    weft_group *world = join(30000);
    weft_seed(7);
    weft_tensor *x = leaf(WEFT_SHAPE(ROWS, WIDE)); /* the same everywhere */
    weft_seed((uint64_t)(100 + rank));
    weft_tensor *in[5] = {
        x, leaf(WEFT_SHAPE(2 * WIDE / RANKS, WIDE)), leaf(WEFT_SHAPE(WIDE, 2 * WIDE / RANKS)),
        leaf(WEFT_SHAPE(2 * WIDE / RANKS, WIDE)), leaf(WEFT_SHAPE(WIDE, 2 * WIDE / RANKS))};
    const char *back = check_training(cut_layers, world, in);
    {
        char *forward = part_of(text, back);
        CHECK_INT(count_of(forward, "= one_shot_all_reduce %"), 2);
        CHECK_INT(count_of(forward, "= all_reduce %"), 0);
        CHECK_CONTAINS(forward, "symmetric buffer 0:");
        CHECK(!strstr(forward, "symmetric buffer 1:")); /* the second layer uses it again */
        CHECK(count_of(back, "= one_shot_all_reduce %") >= 1);
    }
    leave(world);
}

RANKS_TEST(test_parallel_sharded_layers, RANKS)
{
    weft_group *world = join(30000);
    weft_seed((uint64_t)(100 + rank));
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, WIDE));
    weft_tensor *in[5] = {x, leaf(WEFT_SHAPE(WIDE / RANKS, WIDE)), leaf(WEFT_SHAPE(WIDE / RANKS)),
                          leaf(WEFT_SHAPE(WIDE / RANKS, WIDE)), leaf(WEFT_SHAPE(WIDE / RANKS))};
    const char *back = check_training(sharded_layers, world, in);
    {
        char *forward = part_of(text, back);
        CHECK(count_of(forward, "= all_gather_into_tensor_coalesced [") >= 1);
        CHECK_CONTAINS(forward, "bucket: ");
        CHECK(count_of(back, "= reduce_scatter_tensor_coalesced [") >= 1);
    }
    leave(world);
}

int main(int argc, char **argv)
{
    setenv("WEFT_TENSOR_CACHE", "0", 1); /* what goes is gone, and counted */
    harness_cache_share();
    int failed = harness_main(argc, argv);
    harness_cache_close();
    return failed;
}
