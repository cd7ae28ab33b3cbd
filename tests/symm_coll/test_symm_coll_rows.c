/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm_coll/row.c, symm_coll/traced.c */
/*
 * Operations on symmetric memory as rows of a graph (symm_coll/row.c, traced.c): captured with one
 * reduction and factor, run under another factor, on symmetric and on ordinary memory.  The results
 * are those of the plain collectives, and what was read is as it was.
 */
#include "coll/lane/request.h"
#include "fault.h"
#include "jobs.h"

#include <weft/weft.h>

enum { RANKS = 2, ROWS = 8, COLUMNS = 8 };

typedef struct deed {
    weft_group *group;
    weft_reduction op;
    bool split;
    double factor;
} deed;

typedef weft_tensor *captured(const deed *d, weft_tensor *x, weft_tensor *local);

static weft_tensor *when(weft_status status, weft_tensor *out)
{
    return status < 0 ? NULL : out;
}

static weft_tensor *blank(int64_t rows, int64_t columns)
{
    return weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows, columns));
}

static weft_tensor *one_shot(const deed *d, weft_tensor *x, weft_tensor *local)
{
    (void)local;
    return weft_symm_one_shot_all_reduce(x, d->op, d->group);
}

static weft_tensor *one_shot_out(const deed *d, weft_tensor *x, weft_tensor *local)
{
    (void)local;
    weft_tensor *out = blank(ROWS, COLUMNS);
    return when(weft_symm_one_shot_all_reduce_out(out, x, d->op, d->group), out);
}

static weft_tensor *copied(const deed *d, weft_tensor *x, weft_tensor *local)
{
    return weft_symm_one_shot_all_reduce_copy(x, local, d->op, d->group);
}

static weft_tensor *two_shot(const deed *d, weft_tensor *x, weft_tensor *local)
{
    (void)local;
    weft_tensor *own = weft_clone(x);
    return when(weft_symm_two_shot_all_reduce(own, d->op, d->group), own);
}

static weft_tensor *two_shot_out(const deed *d, weft_tensor *x, weft_tensor *local)
{
    (void)local;
    weft_tensor *out = blank(ROWS, COLUMNS);
    return when(weft_symm_two_shot_all_reduce_out(out, x, d->op, d->group), out);
}

static weft_tensor *multimem(const deed *d, weft_tensor *x, weft_tensor *local)
{
    (void)local;
    return weft_symm_multimem_one_shot_all_reduce(x, d->op, d->group);
}

static weft_tensor *multimem_out(const deed *d, weft_tensor *x, weft_tensor *local)
{
    (void)local;
    weft_tensor *out = blank(ROWS, COLUMNS);
    return when(weft_symm_multimem_one_shot_all_reduce_out(out, x, d->op, d->group), out);
}

static weft_tensor *scattered(const deed *d, weft_tensor *x, weft_tensor *local)
{
    (void)local;
    weft_tensor *out = d->split ? blank(ROWS, COLUMNS / RANKS) : blank(ROWS / RANKS, COLUMNS);
    return when(weft_symm_reduce_scatter_out(out, x, d->split, d->op, d->group), out);
}

/* Of a group of one rank. */
static weft_tensor *scattered_whole(const deed *d, weft_tensor *x, weft_tensor *local)
{
    (void)local;
    weft_tensor *out = blank(ROWS, COLUMNS);
    return when(weft_symm_reduce_scatter_out(out, x, d->split, d->op, d->group), out);
}

static const struct {
    const char *name;
    captured *run;
    bool scatters, of_local;
} kinds[] = {{"one_shot", one_shot, false, false},
             {"one_shot_out", one_shot_out, false, false},
             {"copy", copied, false, true},
             {"two_shot", two_shot, false, false},
             {"two_shot_out", two_shot_out, false, false},
             {"multimem", multimem, false, false},
             {"multimem_out", multimem_out, false, false},
             {"scatter", scattered, true, false}};

typedef struct job {
    deed d;
    captured *run;
} job;

static weft_status function(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                            void *user)
{
    const job *j = user;
    (void)ins;
    (void)outs;
    out[0] = j->run(&j->d, in[0], in[1]);
    return out[0] ? WEFT_OK : weft_last_status();
}

static void fill(weft_tensor *x, int rank, int more)
{
    float *data = weft_tensor_data(x);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (float)((i * 7 + rank * 3 + more) % 11 - 5);
}

/* The part of this rank, or all of it, of what the plain collective gives. */
static weft_tensor *wanted(const deed *d, weft_tensor *x, bool scatters, int rank)
{
    weft_tensor *sum = weft_clone(x);
    CHECK_OK(weft_all_reduce_into(sum, sum, d->op, d->group));
    int dim = d->split, part = d->split ? COLUMNS / RANKS : ROWS / RANKS;
    return scatters ? weft_contiguous(weft_narrow(sum, dim, rank * part, part)) : sum;
}

static void check_kind(size_t k, const deed *d, weft_tensor *x, weft_tensor *local, int rank)
{
    job j = {*d, kinds[k].run};
    weft_tensor *in[2] = {x, local}, *out = NULL;
    weft_tensor *before = weft_clone(x), *own = weft_clone(local);
    weft_set_premul(d->factor);
    weft_tensor *want = wanted(d, kinds[k].of_local ? local : x, kinds[k].scatters, rank);
    weft_graph *graph = weft_graph_capture(kinds[k].name, function, &j, in, 2, 1);
    if (!graph)
        FAIL("%s, %s: %s", kinds[k].name, weft_reduction_name(d->op), weft_last_error());
    weft_set_premul(7);
    if (d->split &&
        !weft_symm_is(x)) { /* a split of the last dimension there is no plain one for */
        CHECK_STATUS(weft_graph_run(graph, in, 2, &out, 1), WEFT_ERR_TYPE);
        weft_clear_error();
        CHECK(weft_i_request_premul() == 7);
    }
    for (int round = 0; round < 2 && (!d->split || weft_symm_is(x)); round++) {
        CHECK_OK(weft_graph_run(graph, in, 2, &out, 1));
        if (!weft_equal(out, want))
            FAIL("%s, %s, split %d, round %d: a wrong result", kinds[k].name,
                 weft_reduction_name(d->op), d->split, round);
        if (!kinds[k].of_local && !weft_equal(x, before)) /* which is there for copies */
            FAIL("%s, %s: the input has changed", kinds[k].name, weft_reduction_name(d->op));
        CHECK(weft_equal(local, own));
        CHECK(weft_i_request_premul() == 7);
        fill(x, rank, 0);
    }
    weft_set_premul(1);
    weft_release(graph);
}

static void check_all(weft_group *world, weft_tensor *x, int rank)
{
    static const weft_reduction ops[] = {WEFT_SUM, WEFT_MAX, WEFT_PREMUL_SUM, WEFT_PREMUL_SUM};
    weft_tensor *local = blank(ROWS, COLUMNS);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (int split = 0; split <= kinds[k].scatters; split++) {
                CHECK_OK(weft_scope_open());
                fill(x, rank, 0);
                fill(local, rank, 2);
                /* The last once more by nothing: a factor of 0 is no less a factor. */
                check_kind(k, &(deed){world, ops[o], split, o == 3 ? 0 : 3}, x, local, rank);
                CHECK_OK(weft_scope_close());
            }
}

/* ---- gathers: fresh, into memory that is given, and into a view of it ---- */

enum { FRESH, GIVEN, VIEWED, GATHERS };

static int how;

static weft_status gathers(weft_tensor *const *in, int ins, weft_tensor **out, int outs, void *user)
{
    (void)ins, (void)outs;
    weft_work *work = NULL;
    if (how == FRESH) {
        out[0] = weft_symm_low_contention_all_gather(in[0], user, &work);
        weft_status status = out[0] ? weft_work_wait(work, WEFT_DEFAULT) : weft_last_status();
        weft_release(work);
        return status;
    }
    out[0] = how == GIVEN ? blank(RANKS * ROWS, COLUMNS)
                          : weft_transpose(blank(COLUMNS, RANKS * ROWS), 0, 1);
    return weft_symm_multimem_all_gather_out(out[0], in[0], user);
}

RANKS_TEST(test_symm_coll_rows_of_gathers, RANKS)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, COLUMNS));
    weft_tensor *want = blank(RANKS * ROWS, COLUMNS), *out = NULL, *before = blank(ROWS, COLUMNS);
    CHECK(x && weft_symm_rendezvous(x, world));
    fill(x, rank, 0);
    fill(before, rank, 0);
    for (int other = 0; other < size; other++)
        fill(weft_narrow(want, 0, other * ROWS, ROWS), other, 0);
    for (int kind = 0; kind < GATHERS; kind++) {
        CHECK_OK(weft_group_barrier(world, 30000));
        if (rank == 0 || !harness_in_threads)
            how = kind; /* threads share it */
        CHECK_OK(weft_group_barrier(world, 30000));
        weft_graph *graph = weft_graph_capture("gather", gathers, world, &x, 1, 1);
        CHECK(graph != NULL);
        for (int round = 0; round < 2; round++) {
            CHECK_OK(weft_graph_run(graph, &x, 1, &out, 1));
            CHECK(weft_equal(out, want) && weft_equal(x, before));
        }
        weft_release(graph);
    }
    finish(world);
}

RANKS_TEST(test_symm_coll_rows_of_symmetric_memory, RANKS)
{
    (void)size;
    weft_group *world = join(30000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, COLUMNS));
    CHECK(x && weft_symm_rendezvous(x, world));
    check_all(world, x, rank);
    finish(world);
}

RANKS_TEST(test_symm_coll_rows_of_ordinary_memory, RANKS)
{
    (void)size;
    weft_group *world = join(30000);
    check_all(world, blank(ROWS, COLUMNS), rank);
    finish(world);
}

/* ---- rows that fail ---- */

/* The graph was captured; `how_it_fails`: the ranks differ, or the group was revoked. */
static void run_failing(const char *name, weft_graph *graph, weft_tensor *const *in, int ins,
                        weft_status how_it_fails)
{
    weft_tensor *out = NULL;
    if (!graph)
        FAIL("%s: %s", name, weft_last_error());
    weft_set_premul(7);
    weft_status status = weft_graph_run(graph, in, ins, &out, 1);
    if (status != how_it_fails)
        FAIL("%s: %d, not %d: %s", name, (int)status, (int)how_it_fails, weft_last_error());
    CHECK(!out);
    CHECK(weft_i_request_premul() == 7);
    weft_clear_error();
    weft_set_premul(1);
    weft_release(graph);
}

/* A group of its own for each, because an error spoils it. */
static weft_group *group_for(weft_group *world, weft_tensor *x)
{
    static const int both[RANKS] = {0, 1};
    weft_group *group = weft_group_new(world, both, RANKS, NULL);
    CHECK(group);
    if (weft_symm_is(x))
        CHECK(weft_symm_rendezvous(x, group));
    return group;
}

static void fail_kind(size_t k, weft_tensor *x, bool revoked, int rank, weft_group *world)
{
    weft_group *group = group_for(world, x);
    weft_reduction op = rank && !revoked ? WEFT_MAX : WEFT_SUM;
    job j = {{group, op, false, 1}, kinds[k].run};
    weft_tensor *in[2] = {x, blank(ROWS, COLUMNS)}, *before = weft_clone(x);
    weft_graph *graph = weft_graph_capture(kinds[k].name, function, &j, in, 2, 1);
    if (revoked)
        CHECK_OK(weft_group_revoke(group));
    run_failing(kinds[k].name, graph, in, 2, revoked ? WEFT_ERR_REVOKED : WEFT_ERR_MISMATCH);
    if (!kinds[k].of_local)
        CHECK(weft_equal(x, before));
}

static void fail_gather(weft_tensor *x, bool revoked, int rank, weft_group *world)
{
    weft_group *group = group_for(world, x);
    weft_tensor *in = rank && !revoked ? weft_narrow(x, 0, 0, ROWS / 2) : x;
    weft_graph *graph = weft_graph_capture("gather", gathers, group, &in, 1, 1);
    if (revoked)
        CHECK_OK(weft_group_revoke(group));
    run_failing("gather", graph, &in, 1, revoked ? WEFT_ERR_REVOKED : WEFT_ERR_MISMATCH);
}

RANKS_TEST(test_symm_coll_rows_fail, RANKS)
{
    (void)size;
    weft_group *world = join(30000);
    weft_tensor *memory[] = {weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, COLUMNS)),
                             blank(ROWS, COLUMNS)};
    for (int m = 0; m < 4; m++) {
        bool revoked = m > 1;
        fill(memory[m % 2], rank, 0);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            CHECK_OK(weft_scope_open());
            fail_kind(k, memory[m % 2], revoked, rank, world);
            CHECK_OK(weft_scope_close());
        }
        CHECK_OK(weft_scope_open());
        if (rank == 0 || !harness_in_threads)
            how = FRESH;
        CHECK_OK(weft_group_barrier(world, 30000));
        fail_gather(memory[m % 2], revoked, rank, world);
        CHECK_OK(weft_scope_close());
    }
    finish(world);
}

/* ---- what is refused while it is captured ---- */

#define REFUSED(call_, status_)           \
    do {                                  \
        CHECK_STATUS((call_), (status_)); \
        weft_clear_error();               \
    } while (0)

static weft_status of(const void *object)
{
    return object ? WEFT_OK : weft_last_status();
}

static weft_status refusing(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                            void *user)
{
    weft_group *group = user;
    weft_tensor *x = in[0], *local = in[1], *none = NULL;
    weft_tensor *wrong = blank(ROWS, COLUMNS + 1), *all = blank(RANKS * ROWS, COLUMNS);
    weft_work *work = NULL;
    (void)ins, (void)outs;
    REFUSED(weft_symm_one_shot_all_reduce_out(none, x, WEFT_SUM, group), WEFT_ERR_INVALID_ARG);
    REFUSED(weft_symm_two_shot_all_reduce_out(none, x, WEFT_SUM, group), WEFT_ERR_INVALID_ARG);
    REFUSED(weft_symm_multimem_one_shot_all_reduce_out(none, x, WEFT_SUM, group),
            WEFT_ERR_INVALID_ARG);
    REFUSED(weft_symm_one_shot_all_reduce_copy_out(none, x, local, WEFT_SUM, group),
            WEFT_ERR_INVALID_ARG);
    REFUSED(weft_symm_reduce_scatter_out(none, x, false, WEFT_SUM, group), WEFT_ERR_INVALID_ARG);
    REFUSED(weft_symm_multimem_all_gather_out(none, x, group), WEFT_ERR_INVALID_ARG);
    REFUSED(weft_symm_one_shot_all_reduce_out(wrong, x, WEFT_SUM, group), WEFT_ERR_INVALID_ARG);
    REFUSED(weft_symm_multimem_all_gather_out(wrong, x, group), WEFT_ERR_INVALID_ARG);
    REFUSED(weft_symm_multimem_all_gather_out(all, none, group), WEFT_ERR_INVALID_ARG);
    REFUSED(of(weft_symm_one_shot_all_reduce(none, WEFT_SUM, group)), WEFT_ERR_INVALID_ARG);
    REFUSED(of(weft_symm_one_shot_all_reduce_copy(x, none, WEFT_SUM, group)), WEFT_ERR_INVALID_ARG);
    REFUSED(of(weft_symm_one_shot_all_reduce_copy(none, local, WEFT_SUM, group)),
            WEFT_ERR_INVALID_ARG);
    REFUSED(of(weft_symm_low_contention_all_gather(none, group, &work)), WEFT_ERR_INVALID_ARG);
    REFUSED(of(weft_symm_one_shot_all_reduce_copy(x, all, WEFT_SUM, group)), WEFT_ERR_INVALID_ARG);
    for (int op = 0; op < 2; op++) { /* no meaning for floats, and none at all */
        weft_reduction bad = op ? (weft_reduction)WEFT_REDUCTIONS : WEFT_BXOR;
        weft_status how_refused = op ? WEFT_ERR_INVALID_ARG : WEFT_ERR_TYPE;
        REFUSED(of(weft_symm_one_shot_all_reduce(x, bad, group)), how_refused);
        REFUSED(of(weft_symm_multimem_one_shot_all_reduce(x, bad, group)), how_refused);
        REFUSED(of(weft_symm_one_shot_all_reduce_copy(x, local, bad, group)), how_refused);
        REFUSED(weft_symm_two_shot_all_reduce(weft_clone(x), bad, group), how_refused);
        REFUSED(weft_symm_reduce_scatter_out(blank(ROWS / RANKS, COLUMNS), x, false, bad, group),
                how_refused);
    }
    out[0] = weft_symm_one_shot_all_reduce(x, WEFT_SUM, group);
    return of(out[0]);
}

RANKS_TEST(test_symm_coll_rows_refused, RANKS)
{
    (void)size;
    weft_group *world = join(30000);
    weft_tensor *in[2] = {weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, COLUMNS)),
                          blank(ROWS, COLUMNS)};
    CHECK(in[0] && weft_symm_rendezvous(in[0], world));
    fill(in[0], rank, 0);
    weft_tensor *sum = weft_clone(in[0]), *out = NULL;
    CHECK_OK(weft_all_reduce_into(sum, sum, WEFT_SUM, world));
    weft_graph *graph = weft_graph_capture("refusing", refusing, world, in, 2, 1);
    if (!graph)
        FAIL("%s", weft_last_error());
    CHECK_OK(weft_graph_run(graph, in, 2, &out, 1)); /* nothing else has come into it */
    CHECK(weft_equal(out, sum));
    weft_release(graph);
    finish(world);
}

/* ---- what runs out ---- */

static void run_short(const char *name, weft_graph *graph, weft_tensor *const *in, int ins,
                      weft_tensor *want)
{
    bool fired = true;
    if (!graph)
        FAIL("%s: %s", name, weft_last_error());
    weft_set_premul(7);
    for (int n = 1; fired; n++) {
        weft_tensor *out = NULL;
        CHECK(n < 200);
        fault_arm(n);
        weft_status status = weft_graph_run(graph, in, ins, &out, 1);
        fired = fault_disarm();
        if (status < 0 ? !fired || !weft_last_error()[0] : weft_last_status() != WEFT_OK)
            FAIL("%s, call %d: %d: %s", name, n, (int)status, weft_last_error());
        CHECK(status < 0 || weft_equal(out, want));
        CHECK(weft_i_request_premul() == 7);
        weft_clear_error();
        weft_release(out);
    }
    weft_set_premul(1);
    weft_release(graph);
}

/* Alone, so that nobody else waits: the result is the input. */
RANKS_TEST(test_symm_coll_rows_shortage, 1)
{
    if (harness_in_threads)
        SKIP("the table of system calls belongs to the whole process");
    (void)size;
    weft_group *world = join(30000);
    weft_tensor *memory[] = {weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(ROWS, COLUMNS)),
                             blank(ROWS, COLUMNS)};
    CHECK(weft_symm_rendezvous(memory[0], world));
    for (int m = 0; m < 2; m++) {
        weft_tensor *in[2] = {memory[m], blank(ROWS, COLUMNS)};
        fill(in[0], rank, 0);
        fill(in[1], rank, 0);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            job j = {{world, WEFT_SUM, false, 1},
                     kinds[k].scatters ? scattered_whole : kinds[k].run};
            run_short(kinds[k].name, weft_graph_capture(kinds[k].name, function, &j, in, 2, 1), in,
                      2, in[0]);
        }
        how = FRESH;
        run_short("gather", weft_graph_capture("gather", gathers, world, in, 1, 1), in, 1, in[0]);
    }
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
