/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: grad/rule_coll.c, graph/capture/joint.c, graph/run/agree.c */
/*
 * The compiled halves of TestFunctionalAutograd: gradients through functional collectives in
 * compiled functions, by their own backward and by a compiled one.  And what ranks do whose graphs
 * do not have the same collectives.
 */
#include "functional_jobs.h"
#include "harness_cache.h"

enum { TEXT = 1 << 15 };

typedef struct job {
    weft_group *world;
    int dim, rank;
} job;

static const char *const backends[] = {"eager", "aot_eager", "c"};
enum { BACKENDS = 3 };

static weft_compiled *compile(weft_graph_function function, void *user, const char *backend)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    opts.agree = true;
    weft_compiled *compiled =
        function ? weft_compile(function, user, &opts) : weft_compile_backward(&opts);
    CHECK(compiled != NULL);
    return compiled;
}

#define FUNCTION(name_)                                                               \
    static weft_status name_(weft_tensor *const *in, __attribute__((unused)) int ins, \
                             weft_tensor **out, __attribute__((unused)) int outs, void *user)

FUNCTION(exchange)
{
    const job *j = user;
    const int64_t splits[] = {1, 1};
    weft_tensor *x = weft_mul_scalar(in[0], 2);
    out[0] = weft_add_scalar(weft_all_to_all_single(x, splits, splits, j->world), 0);
    return WEFT_OK;
}

FUNCTION(gather)
{
    const job *j = user;
    weft_tensor *x = weft_mul_scalar(in[0], 1);
    out[0] = weft_mul_scalar(weft_all_gather_tensor(x, j->dim, j->world), 1);
    return WEFT_OK;
}

FUNCTION(scatter)
{
    const job *j = user;
    weft_tensor *x = weft_mul_scalar(in[0], 1);
    out[0] = weft_mul_scalar(weft_reduce_scatter_tensor(x, WEFT_SUM, j->dim, j->world), 1);
    return WEFT_OK;
}

/* Through each backend, twice, with the engine and with a compiled backward. */
static void check_function(weft_graph_function function, job *j, weft_shape in, weft_shape out,
                           double value, double grad)
{
    for (int k = 0; k < 2 * BACKENDS; k++) {
        const char *backend = backends[k % BACKENDS];
        weft_compiled *fast = compile(function, j, backend);
        weft_compiled *back = k < BACKENDS ? NULL : compile(NULL, NULL, backend);
        for (int round = 0; round < 2; round++) {
            weft_tensor *t = weft_ones(WEFT_F32, WEFT_CPU, in), *y = NULL, *loss;
            CHECK_OK(weft_require_grad(t, true));
            CHECK_OK(weft_compiled_call(fast, &t, 1, &y, 1));
            CHECK(weft_requires_grad(y) && !weft_is_leaf(y));
            CHECK_ALL(weft_detach(y), out, value);
            loss = weft_sum(y, NULL, 0, false);
            CHECK_OK(back ? weft_compiled_backward(back, &loss, 1, NULL) : weft_backward(loss));
            CHECK_ALL(weft_grad(t), in, grad);
        }
        weft_release(fast);
        weft_release(back);
    }
}

RANKS_TEST(test_all_to_all_single, 2)
{
    job j = {.world = join(30000), .rank = rank};
    check_function(exchange, &j, WEFT_SHAPE(2, 2), WEFT_SHAPE(2, 2), 2, 2);
    leave(j.world);
}

RANKS_TEST(test_all_gather_tensor, 2)
{
    job j = {.world = join(30000), .rank = rank};
    for (j.dim = 0; j.dim < 3; j.dim++) {
        weft_shape shape = WEFT_SHAPE(3, 3, 3);
        shape.dim[j.dim] *= 2;
        check_function(gather, &j, WEFT_SHAPE(3, 3, 3), shape, 1, 2);
    }
    leave(j.world);
}

RANKS_TEST(test_reduce_scatter_tensor, 2)
{
    job j = {.world = join(30000), .rank = rank};
    for (j.dim = 0; j.dim < 2; j.dim++) {
        weft_shape shape = j.dim ? WEFT_SHAPE(3, 6) : WEFT_SHAPE(6, 3);
        check_function(scatter, &j, shape, WEFT_SHAPE(3, 3), 2, 1);
    }
    leave(j.world);
}

FUNCTION(exchange_and_sum)
{
    const job *j = user;
    const int64_t splits[] = {1, 1};
    weft_tensor *x = weft_all_to_all_single(weft_mul_scalar(in[0], 10), splits, splits, j->world);
    out[0] = weft_sum(weft_add_scalar(x, 2), NULL, 0, false);
    return WEFT_OK;
}

static int count_of(const char *text, const char *end, const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)) && at < end; at++)
        count++;
    return count;
}

/* Each of the two programs has one exchange and one wait. */
RANKS_TEST(test_all_to_all_single_inductor, 2)
{
    job j = {.world = join(30000), .rank = rank};
    static _Thread_local char text[TEXT];
    weft_compiled *fast = compile(exchange_and_sum, &j, "c");
    weft_tensor *t = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2)), *y = NULL;
    CHECK_OK(weft_require_grad(t, true));
    CHECK_OK(weft_compiled_call(fast, &t, 1, &y, 1));
    CHECK_OK(weft_backward(y));
    CHECK_ALL(weft_grad(t), WEFT_SHAPE(2, 2), 10);
    CHECK(weft_compiled_details(fast, text, sizeof text) > 0);
    const char *back = strstr(text, "backward:"), *end = text + strlen(text);
    CHECK(back != NULL);
    CHECK_INT(count_of(text, back, "all_to_all_single "), 1);
    CHECK_INT(count_of(text, back, "wait_tensor "), 1);
    CHECK_INT(count_of(back, end, "all_to_all_single "), 1);
    CHECK_INT(count_of(back, end, "wait_tensor "), 1);
    weft_release(fast);
    leave(j.world);
}

/* ---- agreement ---- */

FUNCTION(divided)
{
    const job *j = user;
    weft_tensor *x = weft_all_reduce(in[0], WEFT_SUM, j->world);
    out[0] =
        j->rank ? weft_all_reduce(x, WEFT_MAX, j->world) : weft_all_gather_tensor(x, 0, j->world);
    return WEFT_OK;
}

/* No rank runs anything; all know which lines differ. */
RANKS_TEST(test_agreement_of_graphs, 2)
{
    job j = {.world = join(30000), .rank = rank};
    weft_tensor *t = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), *y = NULL;
    for (int k = 0; k < 2; k++) {
        weft_compiled *fast = compile(divided, &j, backends[k]);
        CHECK_STATUS(weft_compiled_call(fast, &t, 1, &y, 1), WEFT_ERR_MISMATCH);
        CHECK_CONTAINS(weft_last_error(), "all_gather_into_tensor");
        CHECK_CONTAINS(weft_last_error(), "op=max");
        CHECK_CONTAINS(weft_last_error(), "rank 0");
        weft_clear_error();
        weft_release(fast);
    }
    CHECK_ALL(weft_all_reduce(t, WEFT_SUM, j.world), WEFT_SHAPE(4), 2); /* the group works */
    leave(j.world);
}

FUNCTION(own_parts)
{
    const job *j = user; /* rank 0 keeps 1 row and gives 3, rank 1 keeps 2 and gives 2 */
    const int64_t sent[2][2] = {{1, 3}, {2, 2}}, got[2][2] = {{1, 2}, {3, 2}};
    out[0] = weft_all_to_all_single(in[0], got[j->rank], sent[j->rank], j->world);
    weft_set_premul(1 + j->rank);
    out[1] = weft_all_reduce(in[0], WEFT_PREMUL_SUM, j->world);
    weft_set_premul(1);
    return WEFT_OK;
}

FUNCTION(splits_of_one)
{
    const job *j = user;
    const int64_t halves[] = {2, 2}, *splits = j->rank ? halves : NULL;
    out[0] = weft_all_to_all_single(in[0], splits, splits, j->world);
    return WEFT_OK;
}

/* Parts and factors of a rank's own are no difference; parts where others have none are one.  A
 * factor that the function sets is not that of its caller: one capture serves all calls. */
RANKS_TEST(test_agreement_leaves_out_what_is_a_ranks_own, 2)
{
    job j = {.world = join(30000), .rank = rank};
    weft_tensor *t = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), *y[2] = {NULL};
    for (int k = 0; k < 2; k++) {
        weft_compiled *fast = compile(own_parts, &j, backends[k]);
        weft_compiled_info info;
        for (int round = 0; round < 2; round++) {
            CHECK_OK(weft_compiled_call(fast, &t, 1, y, 2));
            CHECK_ALL(y[0], WEFT_SHAPE(rank ? 5 : 3), 1);
            CHECK_ALL(y[1], WEFT_SHAPE(4), 3);
        }
        CHECK_OK(weft_compiled_describe(fast, &info));
        CHECK_INT(info.frames, 1);
        weft_release(fast);
        fast = compile(splits_of_one, &j, backends[k]);
        CHECK_STATUS(weft_compiled_call(fast, &t, 1, y, 1), WEFT_ERR_MISMATCH);
        CHECK_CONTAINS(weft_last_error(), "out_splits=[]");
        weft_clear_error();
        weft_release(fast);
    }
    leave(j.world);
}

FUNCTION(doubled_sum)
{
    const job *j = user;
    weft_tensor *x = in[0];
    if (weft_mul_scalar_into(x, x, 2) < 0)
        return weft_last_status();
    out[0] = weft_all_reduce(x, WEFT_SUM, j->world);
    return WEFT_OK;
}

/* A rank goes, or leaves, before the others agree: they are told, long before the time is up, and
 * nothing has run. */
RANKS_TEST(test_agreement_with_a_dead_rank, 3)
{
    job j = {.world = join(30000), .rank = rank};
    weft_tensor *t = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)), *y = NULL;
    weft_compiled *fast = compile(doubled_sum, &j, "c");
    if (rank == 2) {
        for (int i = 0; i < 2; i++)
            CHECK(harness_await(i, 1));
        if (!harness_in_threads) {
            harness_rank_dies();
            raise(SIGKILL);
        }
        weft_release(fast);
        weft_finish(j.world);
        return;
    }
    harness_mark();
    long long begin = harness_now();
    CHECK(weft_compiled_call(fast, &t, 1, &y, 1) < 0);
    CHECK(harness_now() - begin < 20000000000LL);
    CHECK_CONTAINS(weft_last_error(), "group \"0\""); /* who learned of it first has gone, too */
    weft_clear_error();
    CHECK_ALL(t, WEFT_SHAPE(4), 1);
    CHECK_INT(weft_tensor_version(t), 0);
    weft_release(fast);
    weft_finish(j.world);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    harness_cache_share();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
