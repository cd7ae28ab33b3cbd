/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: functional/traced_list.c, graph/capture/capture.c */
/*
 * Plain collectives of several tensors in captures: lists, calls that a group collects, a tensor for
 * each rank, broadcasts.  What they become, that every backend gives what the call gives, and that a
 * capture refuses what the call refuses.
 */
#include "fault.h"
#include "functional_jobs.h"
#include "graph/ir/graph.h"
#include "graph/pass/passes.h"
#include "harness_cache.h"

enum { TEXT = 1 << 16, INS = 7 };

static _Thread_local char text[TEXT];
static const char *const backends[] = {"eager", "aot_eager", "c"};

#define FUNCTION(name_)                                                                  \
    static weft_status name_(                                                            \
        __attribute__((unused)) weft_tensor *const *in, __attribute__((unused)) int ins, \
        __attribute__((unused)) weft_tensor **out, __attribute__((unused)) int outs, void *user)

static weft_group *fake(void)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 2);
    return weft_fake_init(&opts);
}

static int count_of(const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

/* Prints the graph to `text`; it must read as itself. */
static void print(const weft_graph *graph)
{
    static _Thread_local char again[TEXT];
    CHECK(graph && weft_graph_text(graph, text, TEXT) < TEXT);
    weft_graph *read = weft_graph_parse(text);
    if (!read)
        FAIL("%s in %s", weft_last_error(), text);
    CHECK(weft_graph_text(read, again, TEXT) < TEXT);
    if (strcmp(again, text) != 0)
        FAIL("the text reads as another graph: %s", text);
    weft_release(read);
}

/* ---- what they become ---- */

FUNCTION(reduce_list)
{
    weft_tensor *to[] = {in[0], in[1]};
    return weft_all_reduce_list_into(to, to, 2, WEFT_MAX, user);
}

FUNCTION(gather_list)
{
    weft_tensor *to[] = {weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 4)),
                         weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 2))};
    return weft_all_gather_list_into(to, in, 2, user);
}

/* Three rows do not divide, and six elements do. */
FUNCTION(scatter_list)
{
    weft_tensor *odd =
        weft_view(weft_cat((weft_tensor *[]){in[0], in[0], in[0]}, 3, 0), WEFT_SHAPE(3, 4));
    weft_tensor *to[] = {weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)),
                         weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(6))};
    return weft_reduce_scatter_list_into(to, (weft_tensor *[]){in[0], odd}, 2, WEFT_SUM, user);
}

FUNCTION(exchange_list)
{
    weft_tensor *to[] = {weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1, 4)),
                         weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2))};
    return weft_all_to_all_list_into(to, in, user);
}

FUNCTION(collected)
{
    CHECK_OK(weft_coalesce_open(user));
    CHECK_OK(weft_all_reduce_into(in[0], in[0], WEFT_SUM, user));
    CHECK_OK(weft_all_reduce_into(in[1], in[1], WEFT_SUM, user));
    return weft_work_wait(weft_coalesce_close(user), WEFT_DEFAULT);
}

FUNCTION(parts)
{
    weft_tensor *to[] = {weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)),
                         weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2))};
    CHECK_OK(weft_all_gather_parts_into(to, in[0], user));
    return weft_reduce_scatter_parts_into(in[0], to, WEFT_SUM, user);
}

FUNCTION(uneven_parts)
{
    weft_tensor *to[] = {weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)),
                         weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3))};
    CHECK_OK(weft_all_gather_parts_into(to, in[0], user));
    return weft_reduce_scatter_parts_into(in[0], to, WEFT_SUM, user);
}

FUNCTION(broadcast)
{
    return weft_broadcast_in_place(in[1], 1, user);
}

static const struct {
    weft_graph_function function;
    const char *lines[3];
    int waits, copies;
} forms[] = {
    {reduce_list,
     {"  %2, %3 = all_reduce_coalesced [%0, %1] op=max factor=1 group=\"0\"/2\n"},
     2,
     2},
    {gather_list, {"= all_gather_into_tensor_coalesced [%0, %1] group=\"0\"/2\n"}, 2, 2},
    {scatter_list,
     {"= reduce_scatter_tensor_coalesced [%0, %", "op=sum factor=1 dims=[0, 0] group=\"0\"/2\n"},
     2,
     2},
    {exchange_list, {"= all_to_all [%0, %1] shapes=[2, 1, 4, 1, 2] group=\"0\"/2\n"}, 2, 2},
    {collected, {"  %2, %3 = all_reduce_coalesced [%0, %1] op=sum factor=1 group=\"0\"/2\n"}, 2, 2},
    {parts,
     {"= all_gather_into_tensor %0 dim=0 group=\"0\"/2\n", "= cat [",
      "op=sum factor=1 dim=0 group=\"0\"/2\n"},
     2,
     3},
    {uneven_parts,
     {"= all_to_all [%0, %0] shapes=[1, 4, 1, 3] group=\"0\"/2\n", "= all_reduce_coalesced [",
      "] op=sum factor=1 group=\"0\"/2\n"},
     4,
     3},
    {broadcast, {"= broadcast %1 src=1 group=\"0\"/2\n"}, 1, 1},
};

/* One node for the list, a wait and a copy for each tensor; the waits keep it when nobody needs what
 * it writes; the tensors are as they were. */
FAKE_TEST(test_lists_in_a_graph, 2)
{
    weft_group *world = fake();
    weft_tensor *in[] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)),
                         weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2))};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        CHECK_OK(weft_scope_open());
        weft_graph *graph = weft_graph_capture("fn", forms[i].function, world, in, 2, 0);
        if (!graph)
            FAIL("form %zu: %s", i, weft_last_error());
        print(graph);
        for (int k = 0; k < 3 && forms[i].lines[k]; k++)
            CHECK_CONTAINS(text, forms[i].lines[k]);
        CHECK_INT(count_of("= wait_tensor %"), forms[i].waits);
        CHECK_INT(count_of("= copy %"), forms[i].copies);
        CHECK_INT(weft_tensor_version(in[0]), 0);
        CHECK_INT(weft_tensor_version(in[1]), 0);
        weft_graph *pure = weft_i_graph_pass_run(graph, WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE);
        print(pure);
        CHECK_INT(count_of("= wait_tensor %"), forms[i].waits);
        CHECK_INT(count_of(" group="), i >= 5 && i <= 6 ? 2 : 1);
        CHECK_OK(weft_graph_run(graph, in, 2, NULL, 0));
        CHECK_INT(weft_unwaited(world), 0);
        CHECK_OK(weft_scope_close());
        in[0] = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
        in[1] = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2));
    }
    weft_finish(world);
}

/* ---- what they give ---- */

typedef struct job {
    weft_group *world;
    int rank, size, what;
} job;

/* Inputs that differ between ranks, of several dtypes: [4, n], [6] f64, [2n] bf16, [] i64, [0],
 * [3, n], [size]. */
static void make_inputs(const job *j, weft_tensor **in)
{
    const weft_shape shapes[INS] = {
        WEFT_SHAPE(4, j->size), WEFT_SHAPE(6),          WEFT_SHAPE(2 * j->size), WEFT_SCALAR,
        WEFT_SHAPE(0),          WEFT_SHAPE(3, j->size), WEFT_SHAPE(j->size)};
    const weft_dtype dtypes[INS] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_I64,
                                    WEFT_F32, WEFT_F32, WEFT_F32};
    weft_seed(7 + (uint64_t)j->rank);
    for (int i = 0; i < INS; i++) {
        weft_tensor *x = weft_rand(WEFT_F32, DEVICE, shapes[i]);
        in[i] = weft_clone(weft_to_dtype(weft_mul_scalar(x, 100), dtypes[i]));
    }
}

static weft_tensor *like(weft_tensor *x, int64_t count)
{
    return weft_full(weft_tensor_dtype(x), DEVICE, WEFT_SHAPE(count), 9);
}

/* Some in place, some not. */
static weft_status run_reduces(weft_tensor *const *in, weft_tensor **made, const job *j)
{
    weft_tensor *to[INS];
    for (int i = 0; i < INS; i++)
        to[i] = i % 2 ? in[i] : like(in[i], weft_tensor_numel(in[i]));
    made[0] = to[0];
    return weft_all_reduce_list_into(to, in, INS, WEFT_SUM, j->world);
}

static weft_status run_gathers(weft_tensor *const *in, weft_tensor **made, const job *j)
{
    weft_tensor *to[INS], *from[INS];
    for (int i = 0; i < INS; i++) {
        int64_t count = weft_tensor_numel(in[i]);
        to[i] = like(in[i], j->size * count);
        from[i] = in[i];
        if (i == 1) { /* in place: the part of this rank lies where it belongs */
            from[i] = weft_narrow(to[i], 0, j->rank * count, count);
            WEFT_TRY(weft_copy(from[i], in[i]));
        }
    }
    made[0] = weft_to_dtype(to[1], WEFT_F32); /* as it was */
    WEFT_TRY(weft_all_gather_list_into(to, from, INS, j->world));
    made[0] = weft_sub(weft_to_dtype(to[1], WEFT_F32), made[0]);
    return WEFT_OK;
}

static weft_status run_scatters(weft_tensor *const *in, weft_tensor **made, const job *j)
{
    static const int of[] = {0, 2, 4, 5, 6};
    weft_tensor *to[5], *from[5];
    for (int i = 0; i < 5; i++) {
        from[i] = in[of[i]];
        int64_t part = weft_tensor_numel(from[i]) / j->size;
        to[i] = i == 3 ? weft_narrow(weft_reshape(from[i], WEFT_SHAPE(-1)), 0, j->rank * part, part)
                       : like(from[i], part);
    }
    made[0] = to[0];
    return weft_reduce_scatter_list_into(to, from, 5, WEFT_AVG, j->world);
}

/* Each rank sends 1 + q elements to rank q, and gets 1 + its own number from each. */
static weft_status run_exchange(weft_tensor *const *in, weft_tensor **made, const job *j)
{
    weft_tensor *from[HARNESS_RANKS_MAX], *into[HARNESS_RANKS_MAX];
    for (int q = 0; q < j->size; q++) {
        from[q] = weft_add_scalar(like(in[0], 1 + q), 10 * j->rank + q);
        into[q] = like(in[0], 1 + j->rank);
    }
    made[0] = into[j->size - 1];
    return weft_all_to_all_list_into(into, from, j->world);
}

static weft_status run_collected(weft_tensor *const *in, weft_tensor **made, const job *j)
{
    CHECK_OK(weft_coalesce_open(j->world));
    for (int i = 0; i < INS; i++) {
        int64_t count = weft_tensor_numel(in[i]);
        if (j->what == 4) {
            weft_set_premul(0.5 + j->rank); /* of each call, not of the close */
            if (i < 3)
                CHECK_OK(weft_all_reduce_into(in[i], in[i], WEFT_PREMUL_SUM, j->world));
            weft_set_premul(1);
        } else {
            weft_tensor *to = like(in[i], j->size * count);
            CHECK_OK(weft_all_gather_into(to, in[i], j->world));
            made[0] = i ? made[0] : to;
        }
    }
    weft_work *work = weft_coalesce_close(j->world);
    if (!work)
        return weft_last_status();
    WEFT_TRY(weft_work_wait(work, WEFT_DEFAULT));
    made[0] = j->what == 4 ? weft_neg(in[0]) : made[0];
    return WEFT_OK;
}

/* Equal parts, and parts of 1, 2, ... elements. */
static weft_status run_parts(weft_tensor *const *in, weft_tensor **made, const job *j)
{
    weft_tensor *to[HARNESS_RANKS_MAX], *mine = weft_reshape(in[0], WEFT_SHAPE(-1));
    bool even = j->what == 6;
    int64_t count = even ? 4 : 1 + j->rank;
    mine = weft_clone(weft_narrow(mine, 0, 0, count));
    for (int q = 0; q < j->size; q++)
        to[q] = q == j->rank && even ? mine : like(in[0], even ? 4 : 1 + q);
    WEFT_TRY(weft_all_gather_parts_into(to, mine, j->world));
    weft_tensor *sum = like(in[0], count);
    WEFT_TRY(weft_reduce_scatter_parts_into(sum, to, WEFT_SUM, j->world));
    made[0] = weft_sub(sum, weft_add_scalar(to[0], 0.5));
    made[0] = even ? made[0] : weft_sum(made[0], NULL, 0, false);
    return weft_broadcast_in_place(in[1], j->size - 1, j->world);
}

FUNCTION(run)
{
    const job *j = user;
    weft_tensor *made[1] = {NULL};
    switch (j->what) {
    case 0:
        WEFT_TRY(run_reduces(in, made, j));
        break;
    case 1:
        WEFT_TRY(run_gathers(in, made, j));
        break;
    case 2:
        WEFT_TRY(run_scatters(in, made, j));
        break;
    case 3:
        WEFT_TRY(run_exchange(in, made, j));
        break;
    default:
        WEFT_TRY(j->what < 6 ? run_collected(in, made, j) : run_parts(in, made, j));
    }
    out[0] =
        weft_mul_scalar(made[0], 2); /* compute around it, so that there is something to emit */
    return WEFT_OK;
}

static void check_bits(const char *backend, int what, weft_tensor *a, weft_tensor *b)
{
    weft_tensor *x = weft_contiguous(weft_to(a, weft_tensor_dtype(a), WEFT_CPU));
    weft_tensor *y = weft_contiguous(weft_to(b, weft_tensor_dtype(b), WEFT_CPU));
    if (weft_tensor_numel(x) != weft_tensor_numel(y) ||
        (weft_tensor_numel(x) &&
         memcmp(weft_tensor_data(x), weft_tensor_data(y), weft_tensor_bytes(x))))
        FAIL("backend %s gives other bits for form %d", backend, what);
}

static void check_form(job *j, const char *backend)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    opts.agree = true; /* ranks have parts and factors of their own */
    weft_compiled *compiled = weft_compile(run, j, &opts);
    for (int round = 0; round < 2; round++) {
        weft_tensor *plain[INS], *here[INS], *expected, *got;
        make_inputs(j, plain);
        make_inputs(j, here);
        CHECK_OK(run(plain, INS, &expected, 1, j));
        if (weft_compiled_call(compiled, here, INS, &got, 1) < 0)
            FAIL("form %d by %s: %s", j->what, backend, weft_last_error());
        check_bits(backend, j->what, expected, got);
        for (int i = 0; i < INS; i++)
            check_bits(backend, j->what, plain[i], here[i]);
    }
    weft_compiled_info info;
    CHECK_OK(weft_compiled_describe(compiled, &info));
    CHECK_INT(info.frames, 1);
    CHECK(weft_compiled_details(compiled, text, sizeof text) > 0);
    CHECK_INT(weft_unwaited(j->world), 0);
    weft_release(compiled);
}

SIZES_TEST(test_lists_by_every_backend)
{
    job j = {.world = join(60000), .rank = rank, .size = size};
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++)
        for (j.what = 0; j.what < 8; j.what++) {
            CHECK_OK(weft_scope_open());
            check_form(&j, backends[k]);
            CHECK_OK(weft_scope_close());
        }
    leave(j.world);
}

/* ---- gradients pass them, as they pass the functional forms ---- */

FUNCTION(loss_of_list)
{
    const job *j = user;
    weft_tensor *x[] = {weft_mul_scalar(in[0], 3), weft_neg(in[1])}, *to[2];
    for (int i = 0; i < 2; i++)
        to[i] = weft_zeros(WEFT_F32, DEVICE, weft_tensor_shape(x[i]));
    WEFT_TRY(weft_all_reduce_list_into(to, x, 2, WEFT_SUM, j->world));
    out[0] = weft_add(weft_sum(to[0], NULL, 0, false), weft_sum(to[1], NULL, 0, false));
    return WEFT_OK;
}

RANKS_TEST(test_gradients_of_a_list, 2)
{
    job j = {.world = join(60000), .rank = rank, .size = size};
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++) {
        weft_compile_opts opts = WEFT_COMPILE_OPTS;
        opts.backend = backends[k];
        opts.fullgraph = opts.agree = true;
        weft_compiled *compiled = weft_compile(loss_of_list, &j, &opts);
        weft_tensor *x[] = {weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(3)),
                            weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(2, 2))},
                    *y;
        CHECK_OK(weft_require_grad(x[0], true));
        CHECK_OK(weft_require_grad(x[1], true));
        CHECK_OK(weft_compiled_call(compiled, x, 2, &y, 1));
        CHECK_NEAR(weft_item(weft_detach(y), 0), 2 * (9 - 4), 0);
        CHECK_OK(weft_backward(y));
        CHECK_ALL(weft_grad(x[0]), WEFT_SHAPE(3), 6);
        CHECK_ALL(weft_grad(x[1]), WEFT_SHAPE(2, 2), -2);
        weft_release(compiled);
    }
    leave(j.world);
}

/* ---- what is refused ---- */

typedef weft_status bad_call(weft_tensor *const *x, weft_group *world);

static weft_status bad_overlap(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *to[] = {x[1], x[0]};
    return weft_all_reduce_list_into(to, x, 2, WEFT_SUM, world);
}
static weft_status bad_twice(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *to[] = {x[2], x[2]};
    return weft_all_reduce_list_into(to, x, 2, WEFT_SUM, world);
}
static weft_status bad_part(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *to = weft_narrow(x[0], 0, 1, 2), *from = weft_narrow(x[0], 0, 0, 2);
    return weft_all_reduce_list_into(&to, &from, 1, WEFT_SUM, world);
}
static weft_status bad_layout(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *across = weft_transpose(x[3], 0, 1);
    return weft_all_reduce_list_into(&across, &across, 1, WEFT_SUM, world);
}
static weft_status bad_counts(weft_tensor *const *x, weft_group *world)
{
    return weft_all_gather_list_into(x + 1, x, 1, world);
}
static weft_status bad_null(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *holes[] = {x[0], NULL};
    return weft_all_reduce_list_into(holes, holes, 2, WEFT_SUM, world);
}
static weft_status bad_dtype(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *to = weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(4));
    return weft_all_reduce_list_into(&to, x, 1, WEFT_SUM, world);
}
static weft_status bad_reduction(weft_tensor *const *x, weft_group *world)
{
    return weft_all_reduce_list_into(x, x, 2, WEFT_BAND, world);
}
static weft_status bad_list(weft_tensor *const *x, weft_group *world)
{
    return weft_all_reduce_list_into(NULL, x, 2, WEFT_SUM, world);
}
static weft_status bad_length(weft_tensor *const *x, weft_group *world)
{
    return weft_all_reduce_list_into(x, x, -1, WEFT_SUM, world);
}
static weft_status bad_exchange(weft_tensor *const *x, weft_group *world)
{
    return weft_all_to_all_list_into(x, x, world);
}
static weft_status bad_own_part(weft_tensor *const *x, weft_group *world)
{
    return weft_all_gather_parts_into(x, x[3], world);
}
static weft_status bad_other_part(weft_tensor *const *x, weft_group *world)
{
    return weft_all_gather_parts_into(x, x[1], world); /* rank 0: x[1] is rank 1's */
}
static weft_status bad_root(weft_tensor *const *x, weft_group *world)
{
    return weft_broadcast_in_place(x[0], 2, world);
}
static weft_status bad_single(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *across = weft_transpose(x[3], 0, 1);
    return weft_all_reduce_into(across, across, WEFT_SUM, world);
}
static weft_status bad_freed(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *freed = weft_clone(x[0]), *to[] = {freed, x[1]};
    CHECK_OK(weft_resize_storage(freed, 0));
    return weft_all_reduce_list_into(to, x, 2, WEFT_SUM, world);
}
static weft_status bad_scope(weft_tensor *const *x, weft_group *world)
{
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x[0], x[0], WEFT_SUM, world));
    CHECK_STATUS(weft_all_gather_into(x[0], x[1], world), WEFT_ERR_INVALID_ARG); /* counts */
    CHECK_STATUS(weft_coalesce_open(world), WEFT_ERR_STATE);
    CHECK(!weft_coalesce_close(world));
    return weft_last_status();
}
static weft_status bad_kinds(weft_tensor *const *x, weft_group *world)
{
    weft_tensor *wide = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8));
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x[0], x[0], WEFT_SUM, world));
    CHECK_STATUS(weft_all_gather_into(wide, x[1], world), WEFT_ERR_STATE);
    CHECK_STATUS(weft_all_reduce_list_into(x, x, 2, WEFT_SUM, world), WEFT_ERR_STATE);
    CHECK_STATUS(weft_broadcast_in_place(x[0], 0, world), WEFT_ERR_STATE);
    CHECK(!weft_coalesce_close(world));
    return weft_last_status();
}
static weft_status bad_crossed_scope(weft_tensor *const *x, weft_group *world)
{
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x[0], x[1], WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_into(x[1], x[0], WEFT_SUM, world));
    CHECK(!weft_coalesce_close(world));
    return weft_last_status();
}
static weft_status bad_close(__attribute__((unused)) weft_tensor *const *x, weft_group *world)
{
    CHECK(!weft_coalesce_close(world));
    return weft_last_status();
}

static bad_call *const bad_calls[] = {bad_overlap,    bad_twice,  bad_part,          bad_layout,
                                      bad_counts,     bad_null,   bad_dtype,         bad_reduction,
                                      bad_list,       bad_length, bad_exchange,      bad_own_part,
                                      bad_other_part, bad_root,   bad_single,        bad_freed,
                                      bad_scope,      bad_kinds,  bad_crossed_scope, bad_close};

static bad_call *bad;
static weft_status bad_status;

FUNCTION(makes_it)
{
    bad_status = bad(in, user);
    weft_clear_error();
    return WEFT_OK;
}

/* With the status that the call itself gives, and nothing is written down. */
FAKE_TEST(test_captures_refuse_what_calls_refuse, 2)
{
    weft_group *world = fake();
    weft_tensor *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = i < 3 ? weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))
                      : weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3));
    for (size_t i = 0; i < sizeof bad_calls / sizeof *bad_calls; i++) {
        bad = bad_calls[i];
        weft_status plain = bad(in, world);
        weft_clear_error();
        weft_graph *graph = weft_graph_capture("fn", makes_it, world, in, 4, 0);
        if (!graph)
            FAIL("call %zu: %s", i, weft_last_error());
        if (bad_status != plain || plain >= 0)
            FAIL("call %zu gives %s, in a capture %s", i, weft_status_name(plain),
                 weft_status_name(bad_status));
        print(graph);
        CHECK_INT(count_of(" group="), 0);
        CHECK_INT(count_of("= copy"), 0);
    }
    weft_finish(world);
}

FUNCTION(no_tensors)
{
    return weft_all_reduce_list_into(NULL, NULL, 0, WEFT_SUM, user);
}

FUNCTION(posted)
{
    CHECK(!weft_all_reduce_list_start(in, in, 2, WEFT_SUM, user));
    return WEFT_OK;
}

FUNCTION(to_root)
{
    weft_tensor *to[] = {in[0], in[1]};
    return weft_gather_parts_into(to, in[0], 0, user);
}

FUNCTION(left_open)
{
    CHECK_OK(weft_coalesce_open(user));
    return weft_all_reduce_into(in[0], in[0], WEFT_SUM, user);
}

FUNCTION(fails_open)
{
    CHECK_OK(weft_coalesce_open(user));
    CHECK_OK(weft_all_reduce_into(in[0], in[0], WEFT_SUM, user));
    return WEFT_ERR_STATE;
}

static weft_status called; /* how the call went */

FUNCTION(only_calls)
{
    called = weft_all_reduce_into(in[0], in[0], WEFT_SUM, user);
    return WEFT_OK;
}

FUNCTION(only_closes)
{
    weft_coalesce_close(user);
    return WEFT_OK;
}

/* A barrier of the group is no operation of a program: it would meet once, at the capture. */
FUNCTION(meets)
{
    called = weft_group_barrier(user, WEFT_DEFAULT);
    return WEFT_OK;
}

static void check_refused(weft_graph_function function, weft_group *world, const char *message)
{
    weft_tensor *in[] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)),
                         weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4))};
    if (weft_graph_capture("fn", function, world, in, 2, 0))
        FAIL("captured: %s", message);
    if (message)
        CHECK_CONTAINS(weft_last_error(), message);
    weft_clear_error();
}

/* No form in a graph: the capture fails, and says why.  A scope of the capture ends with it; one that
 * was there before has what it had. */
FAKE_TEST(test_what_no_graph_has, 2)
{
    weft_group *world = fake();
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    uint64_t before = weft_group_sequence(world);
    check_refused(meets, world, "weft_group_barrier");
    CHECK(called < 0 && weft_group_sequence(world) == before);
    check_refused(no_tensors, world, "all_reduce_list of no tensors: cannot be captured");
    check_refused(posted, world, "all_reduce_list: cannot be captured");
    check_refused(to_root, world, "gather_parts: cannot be captured");
    check_refused(left_open, world, "a group still collects calls where the function ends");
    CHECK(!weft_coalesce_close(world)); /* nothing is open */
    weft_clear_error();
    check_refused(fails_open, world, NULL);
    CHECK(!weft_coalesce_close(world));
    weft_clear_error();
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    check_refused(only_calls, world, "has collected calls since before the capture");
    CHECK_INT(called, WEFT_ERR_UNSUPPORTED);
    check_refused(only_closes, world, "has collected calls since before the capture");
    CHECK_OK(weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT));
    weft_finish(world);
}

/* ---- ranks that differ ---- */

FUNCTION(lists_that_differ)
{
    const job *j = user;
    return weft_all_reduce_list_into(in, in, j->rank ? 2 : 1, WEFT_SUM, j->world);
}

/* They are told before anything runs. */
RANKS_TEST(test_agreement_of_lists, 2)
{
    job j = {.world = join(60000), .rank = rank, .size = size};
    weft_tensor *in[] = {weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(4)),
                         weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(4))};
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.fullgraph = opts.agree = true;
    for (size_t k = 0; k < sizeof backends / sizeof *backends; k++) {
        opts.backend = backends[k];
        weft_compiled *compiled = weft_compile(lists_that_differ, &j, &opts);
        CHECK_STATUS(weft_compiled_call(compiled, in, 2, NULL, 0), WEFT_ERR_MISMATCH);
        CHECK_CONTAINS(weft_last_error(), "rank 0 has \"all_reduce_coalesced [] op=sum");
        CHECK_CONTAINS(weft_last_error(), "rank 1 has \"all_reduce_coalesced [, ] op=sum");
        weft_clear_error();
        CHECK_ALL(in[0], WEFT_SHAPE(4), 1);
        weft_release(compiled);
    }
    leave(j.world);
}

/* ---- the n-th call to the system fails ---- */

FUNCTION(many_forms)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        weft_status status = WEFT_OK;
        if (forms[i].function == collected) {
            weft_work *work = NULL;
            status = weft_coalesce_open(user);
            for (int k = 0; status >= 0 && k < 2; k++)
                weft_all_reduce_into(in[k], in[k], WEFT_SUM, user);
            if (status >= 0 && !(work = weft_coalesce_close(user)))
                status = weft_last_status();
        } else if (forms[i].function != parts && forms[i].function != uneven_parts) {
            forms[i].function(in, ins, out, outs, user); /* even if nobody looks at its status */
        }
        (void)status;
    }
    return WEFT_OK;
}

/* The capture fails, or has all of it; the tensors and the group are as they were. */
FAKE_TEST(test_lists_in_a_shortage, 2)
{
    weft_group *world = fake();
    weft_tensor *in[] = {weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4)),
                         weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2))};
    bool fired = true;
    for (int n = 1; fired; n++) {
        CHECK_OK(weft_scope_open());
        fault_arm(n);
        weft_graph *graph = weft_graph_capture("fn", many_forms, world, in, 2, 0);
        fired = fault_disarm();
        weft_clear_error();
        CHECK(fired || graph);
        CHECK(!weft_tracing());
        CHECK(!weft_coalesce_close(world));
        weft_clear_error();
        CHECK_INT(weft_tensor_version(in[0]), 0);
        if (graph) {
            print(graph);
            CHECK_INT(count_of(" group="), 6);
            CHECK_INT(count_of("= copy"), 11);
        }
        CHECK_OK(weft_scope_close());
        CHECK(n < 5000);
    }
    weft_finish(world);
}

int main(int argc, char **argv)
{
    harness_cache_share();
    device_install();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
