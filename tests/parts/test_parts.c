/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: parts/parts.c, parts/gatherv.c */
/*
 * Collectives with a tensor per rank: equal and uneven parts, none at all, parts of several pieces,
 * in place and not, posted and not, every root, each element against what it should be.
 */
#include "coll_values.h"
#include "fault.h"
#include "jobs.h"

enum { MOST = 8, STEP = VALUES_SANITIZED ? 3 : 1 };

static const weft_dtype dtypes[] = {WEFT_F32, WEFT_U8, WEFT_BF16, WEFT_I64};

typedef struct round_plan {
    int64_t largest; /* count of a part */
    bool even;
} round_plan;

static const round_plan plans[] = {{0, true},     {1, true},      {13, false}, {1000, true},
                                   {9000, false}, {131072, true}, {3, false},  {50001, false}};
enum { PLANS = sizeof plans / sizeof *plans };

static int64_t count_of(const round_plan *p, int part)
{
    return p->even ? p->largest : (part * 7919 + 5) % (p->largest + 1);
}

/* Small whole numbers: sums of 8 of them are exact in every dtype. */
static double value(int rank, int part, int64_t i)
{
    return (double)((i * 5 + rank * 3 + part) % 11);
}

static double sum(int size, int part, int64_t i)
{
    double total = 0;
    for (int rank = 0; rank < size; rank++)
        total += value(rank, part, i);
    return total;
}

static weft_tensor *filled(weft_dtype dtype, int rank, int part, int64_t count)
{
    weft_tensor *wide = weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(count));
    double *data = weft_tensor_data(wide);
    for (int64_t i = 0; i < count; i++)
        data[i] = value(rank, part, i);
    return weft_to_dtype(wide, dtype);
}

#define CHECK_EACH(x_, expected_)                                                      \
    do {                                                                               \
        const double *data_ = weft_tensor_data(weft_to_dtype((x_), WEFT_F64));         \
        for (int64_t i = 0; i < weft_tensor_numel(x_); i++)                            \
            if (data_[i] != (expected_))                                               \
                FAIL("round %d: element %lld of %lld is %g, not %g", n, (long long)i,  \
                     (long long)weft_tensor_numel(x_), data_[i], (double)(expected_)); \
    } while (0)

/* Plain or posted, by turns. */
#define CALL(name_, ...)                                                                     \
    do {                                                                                     \
        if (n & 1)                                                                           \
            CHECK_OK(weft_work_wait(weft_##name_##_parts_start(__VA_ARGS__), WEFT_DEFAULT)); \
        else                                                                                 \
            CHECK_OK(weft_##name_##_parts_into(__VA_ARGS__));                                \
    } while (0)

static void gathers(int rank, int size)
{
    weft_group *world = join(20000);
    for (int n = 0; n < 2 * PLANS; n += STEP) {
        const round_plan *p = &plans[n / 2];
        weft_dtype dtype = dtypes[n % 4];
        int root = n % size;
        weft_tensor *out[MOST], *again[MOST];
        weft_scope_open();
        for (int part = 0; part < size; part++) {
            out[part] = weft_full(dtype, WEFT_CPU, WEFT_SHAPE(count_of(p, part)), 99);
            again[part] = weft_full(dtype, WEFT_CPU, WEFT_SHAPE(count_of(p, part)), 99);
        }
        weft_tensor *in = filled(dtype, rank, 0, count_of(p, rank));
        if (n % 3 == 0) { /* in place */
            CHECK_OK(weft_copy(out[rank], in));
            in = out[rank];
        }
        CALL(all_gather, out, in, world);
        CALL(gather, rank == root ? again : NULL, in, root, world);
        for (int part = 0; part < size; part++) {
            CHECK_EACH(out[part], value(part, 0, i));
            if (rank == root)
                CHECK_EACH(again[part], value(part, 0, i));
        }
        weft_scope_close();
    }
    finish(world);
}

static void scatters(int rank, int size)
{
    weft_group *world = join(20000);
    for (int n = 0; n < 2 * PLANS; n += STEP) {
        const round_plan *p = &plans[n / 2];
        weft_dtype dtype = dtypes[n % 4];
        int root = n % size;
        weft_tensor *in[MOST];
        weft_scope_open();
        for (int part = 0; part < size; part++)
            in[part] = filled(dtype, rank, part, count_of(p, part));
        weft_tensor *out = weft_full(dtype, WEFT_CPU, WEFT_SHAPE(count_of(p, rank)), 99);
        CALL(scatter, n % 3 == 0 && rank == root ? in[rank] : out, rank == root ? in : NULL, root,
             world);
        CHECK_EACH(n % 3 == 0 && rank == root ? in[rank] : out, value(root, rank, i));
        weft_tensor *to = n % 3 ? out : in[rank];
        CALL(reduce_scatter, to, in, WEFT_SUM, world);
        CHECK_EACH(to, sum(size, rank, i));
        for (int part = 0; part < size; part++)
            if (in[part] != to)
                CHECK_EACH(in[part], value(rank, part, i)); /* inputs are not touched */
        weft_scope_close();
    }
    finish(world);
}

#define WITH(ranks_)                                \
    RANKS_TEST(test_parts_gather_##ranks_, ranks_)  \
    {                                               \
        gathers(rank, size);                        \
    }                                               \
    RANKS_TEST(test_parts_scatter_##ranks_, ranks_) \
    {                                               \
        scatters(rank, size);                       \
    }

WITH(1)
WITH(2)
WITH(5)

RANKS_TEST(test_parts_reductions, 3)
{
    weft_group *world = join(20000);
    weft_tensor *in[3], *out = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(50));
    for (int part = 0; part < size; part++)
        in[part] = filled(WEFT_F32, rank, part, 50);
    weft_set_premul(rank + 1);
    CHECK_OK(weft_reduce_scatter_parts_into(out, in, WEFT_PREMUL_SUM, world));
    for (int64_t i = 0; i < 50; i++)
        CHECK(weft_item(out, i) ==
              value(0, rank, i) + 2 * value(1, rank, i) + 3 * value(2, rank, i));
    CHECK_OK(weft_reduce_scatter_parts_into(out, in, WEFT_MAX, world));
    CHECK(weft_item(out, 7) == fmax(fmax(value(0, rank, 7), value(1, rank, 7)), value(2, rank, 7)));
    finish(world);
}

RANKS_TEST(test_parts_refused, 2)
{
    weft_group *world = join(20000);
    weft_tensor *a = filled(WEFT_F32, rank, 0, 20), *b = filled(WEFT_F32, rank, 1, 20);
    weft_tensor *other = filled(WEFT_I64, rank, 0, 20), *small = filled(WEFT_F32, rank, 0, 19);
    weft_tensor *pair[2] = {a, b}, *mixed[2] = {a, other}, *twice[2] = {a, a}, *gap[2] = {a, NULL};
    weft_tensor *out = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(20));
    int root = rank, elsewhere = 1 - rank;
    CHECK_STATUS(weft_all_gather_parts_into(NULL, out, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "no list");
    CHECK_STATUS(weft_gather_parts_into(pair, out, elsewhere, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "only the root");
    CHECK_STATUS(weft_gather_parts_into(NULL, out, root, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_scatter_parts_into(out, pair, elsewhere, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_scatter_parts_into(out, NULL, root, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_scatter_parts_into(out, pair, 2, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "must be in [0, 2)");
    CHECK_STATUS(weft_all_gather_parts_into(mixed, out, world), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_all_gather_parts_into(twice, out, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "overlaps");
    CHECK_STATUS(weft_all_gather_parts_into(pair, pair[1 - rank], world), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_all_gather_parts_into(gap, out, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_all_gather_parts_into(pair, small, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_reduce_scatter_parts_into(out, pair, WEFT_BAND, world), WEFT_ERR_TYPE);
    CHECK(!weft_all_gather_parts_start(twice, out, world));
    CHECK_OK(
        weft_reduce_scatter_parts_into(out, twice, WEFT_SUM, world)); /* inputs may be shared */
    CHECK_OK(weft_all_gather_parts_into(pair, out, world));
    finish(world);
}

/* Whatever the system refuses, plain and posted: an error, and nothing is lost. */
RANKS_TEST(test_parts_shortage, 1)
{
    if (harness_in_threads)
        SKIP("threads of one process share their calls to the system");
    weft_group *world = join(20000);
    weft_tensor *x = filled(WEFT_F32, 0, 0, 10), *out[1] = {filled(WEFT_F32, 0, 0, 10)};
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT)); /* makes what it shares */
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_clear_error();
        weft_scope_open();
        fault_arm(n);
        weft_status status = weft_all_gather_parts_into(out, x, world);
        weft_work *work = weft_reduce_scatter_parts_start(x, out, WEFT_SUM, world);
        fired = fault_disarm();
        if (work)
            CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        if (status < 0 || !work)
            CHECK_STATUS(weft_last_status(), WEFT_ERR_NO_MEMORY);
        CHECK_INT(fired, status < 0 || !work);
        weft_scope_close();
        CHECK(n < 100);
    }
    (void)rank;
    (void)size;
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
