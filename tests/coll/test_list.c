/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/list.c */
/*
 * The list forms of the collectives: mixed dtypes and counts, lists that fit one slot of the bounce
 * buffer and lists of many pieces, in place and not, posted and not, each element against what it
 * should be.  Beside a sanitizer a third of the lists, by HARNESS_SEED.
 */
#include "jobs.h"
#include "symm/kind.h"
#include "values_seed.h"

#include <weft/weft.h>

enum { MOST = 40, ONE_OF = VALUES_SANITIZED ? 3 : 1 };

#define FINISH(world_)                 \
    do {                               \
        weft_clear_error();            \
        CHECK(!weft_finish((world_))); \
    } while (0)

/* Tensor k of a list: counts from 0 to `largest`, dtypes by turns. */
typedef struct plan {
    int count;
    int64_t largest;
} plan;

static const plan plans[] = {{0, 0}, {1, 1}, {3, 0}, {7, 13}, {MOST, 9}, {5, 40000}, {MOST, 3001}};
enum { PLANS = sizeof plans / sizeof *plans };

static weft_dtype dtype_of(int k)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_U8, WEFT_BF16, WEFT_I64, WEFT_F16};
    return dtypes[k % 5];
}

static int64_t count_of(const plan *p, int k)
{
    return p->largest ? (k * 7919 + 5) % (p->largest + 1) : 0;
}

/* Small whole numbers: sums of 8 of them are exact in every dtype of the list. */
static double value(int rank, int k, int64_t i)
{
    return (double)((i * 5 + rank * 3 + k) % 11);
}

static double sum(int size, int k, int64_t i)
{
    double total = 0;
    for (int rank = 0; rank < size; rank++)
        total += value(rank, k, i);
    return total;
}

static weft_tensor *filled(int k, int64_t count, int rank)
{
    weft_tensor *wide = weft_empty(WEFT_F64, WEFT_CPU, WEFT_SHAPE(count));
    double *data = weft_tensor_data(wide);
    for (int64_t i = 0; i < count; i++)
        data[i] = value(rank, k, i);
    return weft_to_dtype(wide, dtype_of(k));
}

static weft_tensor *blank(int k, int64_t count)
{
    return weft_full(dtype_of(k), WEFT_CPU, WEFT_SHAPE(count), 99);
}

#define CHECK_EACH(x_, expected_)                                                      \
    do {                                                                               \
        const double *data_ = weft_tensor_data(weft_to_dtype((x_), WEFT_F64));         \
        const int64_t numel_ = weft_tensor_numel(x_);                                  \
        for (int64_t i = 0; i < numel_; i++)                                           \
            if (data_[i] != (expected_))                                               \
                FAIL("tensor %d, element %lld of %lld is %g, not %g", k, (long long)i, \
                     (long long)numel_, data_[i], (double)(expected_));                \
    } while (0)

/* Plain or posted, by turns. */
#define CALL(posted_, name_, ...)                                                      \
    do {                                                                               \
        if (posted_)                                                                   \
            CHECK_OK(weft_work_wait(weft_##name_##_start(__VA_ARGS__), WEFT_DEFAULT)); \
        else                                                                           \
            CHECK_OK(weft_##name_##_into(__VA_ARGS__));                                \
    } while (0)

#define FOR_PLANS(...)                                        \
    for (int n = 0; n < 2 * PLANS; n++) {                     \
        const plan *p = &plans[n / 2];                        \
        int posted = n & 1;                                   \
        if (!values_takes((uint64_t)(n * 16 + size), ONE_OF)) \
            continue;                                         \
        weft_tensor *in[MOST], *out[MOST];                    \
        weft_scope_open();                                    \
        __VA_ARGS__                                           \
        weft_scope_close();                                   \
    }

static void all_reduce(int rank, int size)
{
    weft_group *world = join(0);
    FOR_PLANS({
        for (int k = 0; k < p->count; k++) {
            in[k] = filled(k, count_of(p, k), rank);
            out[k] = k % 3 ? blank(k, count_of(p, k)) : in[k];
        }
        CALL(posted, all_reduce_list, out, in, p->count, WEFT_SUM, world);
        for (int k = 0; k < p->count; k++) {
            CHECK_EACH(out[k], sum(size, k, i));
            if (out[k] != in[k])
                CHECK_EACH(in[k], value(rank, k, i));
        }
    })
    FINISH(world);
}

static void all_gather(int rank, int size)
{
    weft_group *world = join(0);
    FOR_PLANS({
        for (int k = 0; k < p->count; k++) {
            int64_t count = count_of(p, k);
            in[k] = filled(k, count, rank);
            out[k] = blank(k, count * size);
            if (k % 3 == 0) { /* in place */
                weft_tensor *part = weft_narrow(out[k], 0, rank * count, count);
                CHECK_OK(weft_copy(part, in[k]));
                in[k] = part;
            }
        }
        CALL(posted, all_gather_list, out, in, p->count, world);
        for (int k = 0; k < p->count; k++) {
            int64_t count = count_of(p, k);
            CHECK_EACH(out[k], value((int)(i / count), k, i % count));
        }
    })
    FINISH(world);
}

static void reduce_scatter(int rank, int size)
{
    weft_group *world = join(0);
    FOR_PLANS({
        for (int k = 0; k < p->count; k++) {
            int64_t count = count_of(p, k);
            in[k] = filled(k, count * size, rank);
            out[k] = k % 3 ? blank(k, count) : weft_narrow(in[k], 0, rank * count, count);
        }
        CALL(posted, reduce_scatter_list, out, in, p->count, WEFT_SUM, world);
        for (int k = 0; k < p->count; k++)
            CHECK_EACH(out[k], sum(size, k, rank * count_of(p, k) + i));
    })
    FINISH(world);
}

static void all_to_all(int rank, int size)
{
    weft_group *world = join(0);
    FOR_PLANS({
        for (int k = 0; k < size; k++) { /* dtypes may not be mixed: all are as tensor 0's */
            in[k] = weft_to_dtype(
                filled(5 * (rank * size + k), (rank + 2 * k) * p->largest / 4, rank), WEFT_F32);
            out[k] = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE((k + 2 * rank) * p->largest / 4), 99);
        }
        CALL(posted, all_to_all_list, out, in, world);
        for (int k = 0; k < size; k++)
            CHECK_EACH(out[k], value(k, 5 * (k * size + rank), i));
    })
    FINISH(world);
}

/* Which collectives have a list form. */
TEST(test_list_kinds)
{
    static const int forms[][2] = {{WEFT_I_ALL_REDUCE, WEFT_I_ALL_REDUCE_LIST},
                                   {WEFT_I_ALL_GATHER, WEFT_I_ALL_GATHER_LIST},
                                   {WEFT_I_REDUCE_SCATTER, WEFT_I_REDUCE_SCATTER_LIST}};
    for (int kind = 0; kind < WEFT_I_COLL_KINDS; kind++) {
        int wanted = -1;
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
            wanted = forms[i][0] == kind ? forms[i][1] : wanted;
        CHECK_INT(weft_i_kind_list_of((weft_i_coll_kind)kind), wanted);
    }
}

#define WITH(ranks_)                                      \
    RANKS_TEST(test_list_all_reduce_##ranks_, ranks_)     \
    {                                                     \
        all_reduce(rank, size);                           \
    }                                                     \
    RANKS_TEST(test_list_all_gather_##ranks_, ranks_)     \
    {                                                     \
        all_gather(rank, size);                           \
    }                                                     \
    RANKS_TEST(test_list_reduce_scatter_##ranks_, ranks_) \
    {                                                     \
        reduce_scatter(rank, size);                       \
    }                                                     \
    RANKS_TEST(test_list_all_to_all_##ranks_, ranks_)     \
    {                                                     \
        all_to_all(rank, size);                           \
    }

WITH(1)
WITH(2)
WITH(3)
WITH(8)

/* Lists under way together, and the lists themselves gone at once. */
RANKS_TEST(test_list_posted_together, 4)
{
    weft_group *world = join(0);
    weft_tensor *x[4][3];
    weft_work *work[4];
    for (int w = 0; w < 4; w++) {
        weft_tensor *list[3];
        for (int k = 0; k < 3; k++)
            list[k] = x[w][k] = filled(k, w % 2 ? 50000 : 10, rank);
        work[w] = weft_all_reduce_list_start(list, list, 3, WEFT_SUM, world);
        memset(list, 0, sizeof list);
        CHECK(work[w]);
    }
    for (int w = 3; w >= 0; w--)
        CHECK_OK(weft_work_wait(work[w], WEFT_DEFAULT));
    for (int w = 0; w < 4; w++)
        for (int k = 0; k < 3; k++)
            CHECK_EACH(x[w][k], sum(size, k, i));
    FINISH(world);
}

RANKS_TEST(test_list_reductions, 3)
{
    weft_group *world = join(0);
    weft_tensor *x[2] = {filled(0, 20, rank), filled(5, 30000, rank)};
    weft_tensor *out[2] = {blank(0, 20), blank(0, 30000)};
    weft_set_premul(rank + 1);
    CHECK_OK(weft_all_reduce_list_into(out, x, 1, WEFT_PREMUL_SUM, world));
    for (int64_t i = 0; i < 20; i++)
        CHECK(weft_item(out[0], i) == value(0, 0, i) + 2 * value(1, 0, i) + 3 * value(2, 0, i));
    CHECK_OK(weft_all_reduce_list_into(out, x, 2, WEFT_PREMUL_SUM, world));
    for (int64_t i = 0; i < 30000; i += 77)
        CHECK(weft_item(out[1], i) == value(0, 5, i) + 2 * value(1, 5, i) + 3 * value(2, 5, i));
    weft_set_premul(1);
    CHECK_OK(weft_all_reduce_list_into(out, x, 2, WEFT_AVG, world));
    CHECK_NEAR(weft_item(out[1], 9), sum(3, 5, 9) / 3, 1e-6);
    FINISH(world);
}

RANKS_TEST(test_list_refused, 2)
{
    weft_group *world = join(0);
    weft_tensor *a = filled(0, 20, rank), *b = filled(0, 20, rank), *c = filled(3, 20, rank);
    weft_tensor *in[2] = {a, b}, *out[2] = {blank(0, 20), blank(0, 20)};
    weft_tensor *crossed[2] = {b, blank(0, 20)}; /* the first output is the second input */
    CHECK_STATUS(weft_all_reduce_list_into(crossed, in, 2, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "overlaps");
    weft_tensor *twice[2] = {out[0], weft_narrow(out[0], 0, 0, 20)};
    CHECK_STATUS(weft_all_reduce_list_into(twice, in, 2, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    weft_tensor *same[2] = {a, a}; /* inputs may be shared */
    CHECK_OK(weft_all_reduce_list_into(out, same, 2, WEFT_SUM, world));
    weft_tensor *mixed[2] = {a, c};
    CHECK_STATUS(weft_all_reduce_list_into(out, mixed, 2, WEFT_SUM, world), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_all_reduce_list_into(out, in, -1, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(weft_all_reduce_list_into(NULL, in, 2, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_all_reduce_list_into(mixed, mixed, 2, WEFT_BAND, world), WEFT_ERR_TYPE);
    CHECK_STATUS(weft_all_to_all_list_into(out, mixed, world), WEFT_ERR_TYPE);
    CHECK(!weft_all_reduce_list_start(crossed, in, 2, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_list_into(out, in, 2, WEFT_SUM, world));
    FINISH(world);
}

/* ---- overlap ---- */

enum { ITEMS = 3, SLOTS = 12, LAYOUTS = 150 };

typedef struct layout {
    int in[ITEMS], out[ITEMS], length[ITEMS]; /* in slots of one memory */
} layout;

static bool meet(int a, int a_length, int b, int b_length)
{
    return a < b + b_length && b < a + a_length;
}

/* Each item works in place or apart; across items anything may be. */
static layout layout_of(unsigned seed)
{
    layout l;
    for (int i = 0; i < ITEMS; i++) {
        seed = seed * 1103515245u + 12345u;
        l.length[i] = 1 + (int)(seed >> 16) % 3;
        l.out[i] = (int)(seed >> 18) % (SLOTS - 3);
        l.in[i] = (int)(seed >> 24) % (SLOTS - 3);
        if (meet(l.in[i], l.length[i], l.out[i], l.length[i]))
            l.in[i] = l.out[i];
    }
    return l;
}

static bool clashes(const layout *l)
{
    for (int i = 0; i < ITEMS; i++)
        for (int k = 0; k < ITEMS; k++)
            if (i != k && (meet(l->out[i], l->length[i], l->in[k], l->length[k]) ||
                           meet(l->out[i], l->length[i], l->out[k], l->length[k])))
                return true;
    return false;
}

/* An output may lie where another item's operand is not: each layout against counting. */
RANKS_TEST(test_list_overlap, 2)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *memory = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(SLOTS), rank);
    int refused = 0;
    for (unsigned seed = 1; seed <= LAYOUTS; seed++) {
        weft_scope_open();
        layout l = layout_of(seed * 2654435761u);
        weft_tensor *in[ITEMS], *out[ITEMS];
        for (int i = 0; i < ITEMS; i++) {
            in[i] = weft_narrow(memory, 0, l.in[i], l.length[i]);
            out[i] = weft_narrow(memory, 0, l.out[i], l.length[i]);
        }
        weft_status status = weft_all_reduce_list_into(out, in, ITEMS, WEFT_MAX, world);
        if (status != (clashes(&l) ? WEFT_ERR_INVALID_ARG : WEFT_OK))
            FAIL("layout %u gives %d: %s", seed, (int)status, weft_last_error());
        if (status < 0)
            CHECK_CONTAINS(weft_last_error(), "overlaps an operand of another tensor");
        refused += status < 0;
        weft_clear_error();
        weft_scope_close();
    }
    CHECK(refused > LAYOUTS / 4 && refused < LAYOUTS && weft_size(world) == size);
    FINISH(world);
}

/* The digest covers the whole list. */
static void mismatch(int what, int rank, weft_group *world)
{
    static const int both[] = {0, 1};
    weft_group *group = weft_group_new(world, both, 2, NULL);
    weft_tensor *x[3] = {filled(0, 20, rank), filled(1, 32, rank), filled(2, 20, rank)};
    int count = what == 0 && rank ? 2 : 3;
    if (what == 1 && rank) { /* as many bytes, but other tensors */
        x[0] = filled(1, 32, rank);
        x[1] = filled(0, 20, rank);
    }
    CHECK_STATUS(what == 2 && rank ? weft_reduce_scatter_list_into(x, x, 0, WEFT_SUM, group)
                                   : weft_all_reduce_list_into(x, x, count, WEFT_SUM, group),
                 WEFT_ERR_MISMATCH);
    weft_clear_error();
}

RANKS_TEST(test_list_mismatch, 2)
{
    weft_group *world = join(0);
    for (int what = 0; what < 3; what++)
        mismatch(what, rank, world);
    FINISH(world);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}
