/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: functional/functional.c, functional/run.c, functional/list.c, functional/traced.c,
 * functional/traced_list.c */
/*
 * Functional collectives: the companions of the reference tests, which are in test_functional_traceable.c.  What waits and what does not is in test_pending.c.
 */
#include "coll_values.h"
#include "fault.h"
#include "functional_jobs.h"
#include "memory_count.h"

#include "functional/ops.h"
#include "functional/traced.h"

/* ---- TestMetaCollectives ---- */

TEST(test_all_reduce)
{
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_META, WEFT_SHAPE(2, 3, 4));
    weft_tensor *y = weft_all_reduce(x, WEFT_SUM, weft_group_stand_in("0", 4));
    CHECK(y && weft_i_shape_equal(weft_tensor_shape(y), WEFT_SHAPE(2, 3, 4)));
    CHECK(weft_tensor_device(y) == WEFT_META && weft_tensor_dtype(y) == WEFT_F32);
    CHECK_INT(weft_last_status(), WEFT_OK);
}

/* One rank that pretends to be one of 8: what it sums up is its own input, in new memory. */
FAKE_TEST(test_tracing_with_fakepg, 8)
{
    weft_scope_open();
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 8);
    weft_group *world = weft_fake_init(&opts);
    CHECK(world && weft_size(world) == 8 && weft_rank(world) == 0);
    weft_tensor *x = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8)), *before = weft_clone(x);
    weft_tensor *y = weft_all_reduce(x, WEFT_SUM, world);
    CHECK(y && y != x && weft_tensor_storage(y) != weft_tensor_storage(x));
    CHECK(weft_wait_tensor(y) == y && weft_unwaited(world) == 0);
    CHECK(weft_i_shape_equal(weft_tensor_shape(y), WEFT_SHAPE(8)));
    CHECK(weft_tensor_dtype(y) == WEFT_F32 && weft_tensor_device(y) == WEFT_CPU);
    CHECK(weft_equal(y, before) && weft_equal(x, before));
    CHECK(weft_item(before, 0) != weft_item(before, 1)); /* not all the same */
    CHECK_OK(weft_fill(x, 5));                           /* the result is no view of the input */
    CHECK(weft_equal(y, before));
    CHECK_INT(weft_last_status(), WEFT_OK);
    CHECK_INT(weft_finish(world), 0);
    CHECK(!weft_all_reduce(x, WEFT_SUM, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    weft_clear_error();
    weft_scope_close();
}

/* The eager part of TestGradCollectives: the result takes part in further arithmetic. */
RANKS_TEST(test_functional_all_reduce_and_add, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *y = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *total = weft_sum(weft_add(weft_all_reduce(x, WEFT_SUM, world), y), NULL, 0, false);
    double wanted = 0;
    for (int i = 0; i < 4; i++)
        wanted += 2 * weft_item(x, i) + weft_item(y, i); /* every rank has the same seed */
    CHECK_NEAR(weft_item(total, 0), wanted, 1e-5);
    leave(world);
}

/* ---- companions ---- */

SIZES_TEST(test_functional_avg)
{
    weft_group *world = join(30000);
    double mean = (size - 1) / 2.0;
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10, 10), rank), *out[2];
    weft_tensor *rows = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2 * size, 10), rank);
    CHECK_ALL(weft_all_reduce(x, WEFT_AVG, world), WEFT_SHAPE(10, 10), mean);
    CHECK_ALL(weft_reduce_scatter_tensor(rows, WEFT_AVG, 0, world), WEFT_SHAPE(2, 10), mean);
    CHECK_OK(weft_all_reduce_coalesced(out, (weft_tensor *[]){x, rows}, 2, WEFT_AVG, world));
    CHECK_ALL(out[0], WEFT_SHAPE(10, 10), mean);
    CHECK_ALL(out[1], WEFT_SHAPE(2 * size, 10), mean);
    CHECK_OK(weft_reduce_scatter_tensor_coalesced(out, (weft_tensor *[]){rows, rows}, 2, WEFT_AVG,
                                                  NULL, world));
    CHECK_ALL(out[1], WEFT_SHAPE(2, 10), mean);
    /* premul_sum takes the factor the thread had when the call was made. */
    weft_set_premul(0.5);
    weft_tensor *half =
        weft_all_reduce(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3)), WEFT_PREMUL_SUM, world);
    weft_set_premul(1);
    CHECK_ALL(half, WEFT_SHAPE(3), size / 2.0);
    leave(world);
}

SIZES_TEST(test_functional_in_place)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(10, 4));
    int64_t version = weft_tensor_version(x);
    CHECK(weft_all_reduce_(x, WEFT_SUM, world) == x);
    CHECK_INT(weft_tensor_version(x), version + 1);
    CHECK_ALL(x, WEFT_SHAPE(10, 4), size);
    weft_tensor *column = weft_select(x, 1, 2);
    CHECK(weft_all_reduce_(column, WEFT_SUM, world) == column); /* not contiguous */
    CHECK_ALL(weft_select(x, 1, 2), WEFT_SHAPE(10), size * size);
    CHECK_ALL(weft_narrow(x, 1, 0, 2), WEFT_SHAPE(10, 2), size);
    CHECK_OK(weft_fill(column, rank));
    CHECK(weft_broadcast_(column, size - 1, world) == column);
    CHECK_ALL(weft_select(x, 1, 2), WEFT_SHAPE(10), size - 1);
    weft_tensor *list[2] = {weft_select(x, 1, 0), weft_ones(WEFT_I32, WEFT_CPU, WEFT_SHAPE(3))};
    CHECK_OK(weft_all_reduce_coalesced_(list, 2, WEFT_MAX, world));
    CHECK_ALL(list[1], WEFT_SHAPE(3), 1);
    CHECK_ALL(list[0], WEFT_SHAPE(10), size);
    leave(world);
}

SIZES_TEST(test_functional_out)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 3), rank);
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2 * size, 3));
    CHECK(weft_all_gather_into_tensor_out(out, x, 0, world) == out);
    for (int i = 0; i < size; i++)
        CHECK(all_are(weft_narrow(out, 0, 2 * i, 2), i));
    /* Into a transposed target, along another dimension; and from the target's own part. */
    weft_tensor *wide =
        weft_transpose(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3 * size, 2)), 0, 1);
    CHECK(weft_all_gather_into_tensor_out(wide, x, 1, world) == wide);
    for (int i = 0; i < size; i++)
        CHECK(all_are(weft_narrow(wide, 1, 3 * i, 3), i));
    weft_tensor *own = weft_narrow(out, 0, 2 * rank, 2);
    CHECK_OK(weft_fill(own, 10 + rank));
    CHECK(weft_all_gather_into_tensor_out(out, own, 0, world) == out);
    for (int i = 0; i < size; i++)
        CHECK(all_are(weft_narrow(out, 0, 2 * i, 2), 10 + i));
    CHECK(weft_reduce_scatter_tensor_out(own, out, WEFT_MAX, 0, world) == own);
    CHECK(all_are(own, 10 + rank));
    /* From a part that is another rank's: it is read before it is overwritten. */
    weft_tensor *other = weft_narrow(out, 0, 2 * ((rank + 1) % size), 2);
    CHECK_OK(weft_fill(other, 20 + rank));
    CHECK(weft_all_gather_into_tensor_out(out, other, 0, world) == out);
    for (int i = 0; i < size; i++)
        CHECK(all_are(weft_narrow(out, 0, 2 * i, 2), 20 + i));
    CHECK(!weft_all_gather_into_tensor_out(x, x, 0, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    leave(world);
}

/* A matrix of splits below 20 from seed 42, the same on all ranks. */
SIZES_TEST(test_functional_random_splits)
{
    weft_group *world = join(30000);
    int64_t matrix[4][4], out_splits[4], in_rows = 0, out_rows = 0;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            matrix[from][to] = (int64_t)(values_random(42, (uint64_t)(from * size + to)) % 20);
    for (int i = 0; i < size; i++) {
        in_rows += matrix[rank][i];
        out_rows += out_splits[i] = matrix[i][rank];
    }
    weft_tensor *x = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(in_rows, 3), rank);
    weft_tensor *y = weft_all_to_all_single(x, out_splits, matrix[rank], world);
    CHECK(y && weft_tensor_size(y, 0) == out_rows);
    int64_t at = 0;
    for (int i = 0; i < size; at += out_splits[i++])
        CHECK(all_are(weft_narrow(y, 0, at, out_splits[i]), i));
    /* As lists, with the shapes that come. */
    weft_tensor *parts[4], *got[4];
    weft_shape shapes[4];
    at = 0;
    for (int i = 0; i < size; at += matrix[rank][i++]) {
        parts[i] = weft_narrow(x, 0, at, matrix[rank][i]);
        shapes[i] = WEFT_SHAPE(3, out_splits[i]);
    }
    CHECK_OK(weft_all_to_all(got, parts, shapes, world));
    for (int i = 0; i < size; i++)
        CHECK_ALL(got[i], shapes[i], i);
    leave(world);
}

/* Splits that contradict each other are an error on all ranks, at the wait. */
RANKS_TEST(test_functional_wrong_splits, 2)
{
    weft_group *world = join(30000);
    int64_t in[2] = {1, 2}, out[2] = {1, rank ? 3 : 1}; /* rank 0 sends 2 rows, rank 1 expects 1 */
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    weft_tensor *y = weft_all_to_all_single(x, out, in, world);
    CHECK(y && !weft_wait_tensor(y));
    CHECK_INT(weft_last_status(), WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "expects");
    weft_clear_error(); /* the group is at its end, so nobody can meet in it */
    CHECK(!weft_finish(world));
}

/* ---- every layout, dimension and dtype, against arithmetic on this rank alone ---- */

/* Element i of rank r in the order of the shape. */
static weft_tensor *made_by(int rank, weft_dtype dtype, weft_shape shape)
{
    int64_t n = weft_i_shape_numel(shape);
    weft_tensor *flat = weft_arange(WEFT_F32, WEFT_CPU, 0, (double)n, 1);
    weft_tensor *mixed = weft_add_scalar(flat, 1000.0 * rank);
    return weft_to_dtype(weft_reshape(mixed, shape), dtype);
}

/* The same elements in another layout. */
static weft_tensor *laid_out(weft_tensor *x, int layout)
{
    int last = weft_tensor_ndim(x) - 1;
    if (layout == 1 && last > 0) /* transposed in memory */
        return weft_transpose(weft_contiguous(weft_transpose(x, 0, last)), 0, last);
    if (layout == 2) { /* every other element of a larger one */
        weft_shape shape = weft_tensor_shape(x);
        shape.dim[last] *= 2;
        weft_tensor *gaps = weft_zeros(weft_tensor_dtype(x), WEFT_CPU, shape);
        weft_tensor *view = weft_slice(gaps, last, 0, shape.dim[last], 2);
        CHECK_OK(weft_copy(view, x));
        return view;
    }
    return x;
}

static void check_dims(weft_group *world, int rank, int size, weft_shape shape, int layout)
{
    weft_tensor *all[4], *mine = laid_out(made_by(rank, WEFT_F32, shape), layout);
    for (int i = 0; i < size; i++)
        all[i] = made_by(i, WEFT_F32, shape);
    for (int dim = -1; dim < shape.ndim; dim++) {
        weft_tensor *gathered = weft_all_gather_tensor(mine, dim, world);
        CHECK(gathered && weft_tensor_is_contiguous(gathered));
        CHECK(weft_equal(gathered, weft_cat(all, (size_t)size, dim)));
        /* Scattering what was gathered, summed: my part, once for every rank. */
        weft_tensor *part =
            weft_reduce_scatter_tensor(laid_out(gathered, layout), WEFT_SUM, dim, world);
        CHECK(part && weft_tensor_is_contiguous(part));
        CHECK(weft_equal(part, weft_mul_scalar(all[rank], size)));
    }
}

SIZES_TEST(test_functional_dims_and_layouts)
{
    weft_group *world = join(30000);
    const weft_shape shapes[] = {WEFT_SHAPE(5),
                                 WEFT_SHAPE(3, 7),
                                 WEFT_SHAPE(2, 3, 40),
                                 WEFT_SHAPE(5, 1, 2, 3),
                                 WEFT_SHAPE(2, 9, 700),
                                 WEFT_SHAPE(3, 2, 9000),
                                 WEFT_SHAPE(2, 1, 1, 2, 1, 1, 2, 3)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int layout = 0; layout < 3; layout++) {
            CHECK_OK(weft_scope_open());
            check_dims(world, rank, size, shapes[i], layout);
            CHECK_OK(weft_scope_close());
        }
    leave(world);
}

SIZES_TEST(test_functional_dtypes_and_reductions)
{
    weft_group *world = join(30000);
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int op = 0; op < WEFT_REDUCTIONS; op++) {
            CHECK_OK(weft_scope_open());
            weft_tensor *x = made_by(rank % 2, (weft_dtype)dtype, WEFT_SHAPE(2, 3, 5));
            weft_tensor *y = weft_all_reduce(weft_transpose(x, 0, 2), (weft_reduction)op, world);
            weft_tensor *wanted = weft_empty_like(x);
            weft_status plain = weft_all_reduce_into(wanted, x, (weft_reduction)op, world);
            CHECK((y != NULL) == (plain == WEFT_OK));
            if (y) /* bits: NaN too */
                CHECK(!memcmp(weft_tensor_data(weft_contiguous(weft_transpose(y, 0, 2))),
                              weft_tensor_data(wanted), weft_tensor_bytes(wanted)));
            CHECK_OK(weft_scope_close());
        }
    leave(world);
}

SIZES_TEST(test_functional_nothing_and_scalars)
{
    weft_group *world = join(30000);
    weft_tensor *none = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(0, 3)), *out[2];
    weft_tensor *one = weft_full(WEFT_F32, WEFT_CPU, WEFT_SCALAR, rank);
    CHECK_ALL(weft_all_reduce(none, WEFT_SUM, world), WEFT_SHAPE(0, 3), 0);
    CHECK_ALL(weft_broadcast(none, 0, world), WEFT_SHAPE(0, 3), 0);
    CHECK_ALL(weft_all_gather_tensor(none, 1, world), WEFT_SHAPE(0, 3 * size), 0);
    CHECK_ALL(weft_reduce_scatter_tensor(none, WEFT_SUM, 0, world), WEFT_SHAPE(0, 3), 0);
    CHECK_ALL(weft_all_to_all_single(none, NULL, NULL, world), WEFT_SHAPE(0, 3), 0);
    CHECK_ALL(weft_all_reduce(one, WEFT_MAX, world), WEFT_SCALAR, size - 1);
    CHECK_ALL(weft_broadcast(one, size - 1, world), WEFT_SCALAR, size - 1);
    weft_tensor *all = weft_all_gather_tensor(one, 0, world);
    CHECK(all && weft_tensor_numel(all) == size && weft_tensor_ndim(all) == 1);
    for (int i = 0; i < size; i++)
        CHECK(weft_item(all, i) == i);
    CHECK(!weft_reduce_scatter_tensor(one, WEFT_SUM, 0, world));
    CHECK(!weft_all_to_all_single(one, NULL, NULL, world));
    CHECK_OK(weft_all_reduce_coalesced(out, (weft_tensor *[]){none, one}, 2, WEFT_MAX, world));
    CHECK_ALL(out[1], WEFT_SCALAR, size - 1);
    CHECK_INT(weft_all_reduce_coalesced(out, out, 0, WEFT_MAX, world), WEFT_ERR_INVALID_ARG);
    leave(world);
}

/* ---- meta: the same answers and errors as the real thing ---- */

/* Operands for every row. */
typedef struct row_operands {
    weft_group *group;
    int n;
    weft_tensor *x, *t, *whole, *big, *list[4]; /* t: x transposed */
    int64_t rows[4], few[4];
} row_operands;

/*
 * Every row with plain arguments, right and wrong: name, status, number of results, call.  MAKES
 * returns its result, FILLS puts them into `out`.
 */
#define FUNCTIONAL_ROWS(MAKES, FILLS)                                                              \
    MAKES(all_reduce, WEFT_OK, weft_all_reduce(o->t, WEFT_SUM, o->group))                          \
    MAKES(bits_of_floats, WEFT_ERR_TYPE, weft_all_reduce(o->x, WEFT_BAND, o->group))               \
    MAKES(all_gather, WEFT_OK, weft_all_gather_tensor(o->t, -1, o->group))                         \
    MAKES(no_dimension, WEFT_ERR_INVALID_ARG, weft_all_gather_tensor(o->x, 2, o->group))           \
    MAKES(reduce_scatter, WEFT_OK, weft_reduce_scatter_tensor(o->t, WEFT_MAX, 1, o->group))        \
    MAKES(indivisible, WEFT_ERR_INVALID_ARG,                                                       \
          weft_reduce_scatter_tensor(o->x, WEFT_SUM, 1, o->group))                                 \
    MAKES(all_to_all, WEFT_OK, weft_all_to_all_single(o->x, NULL, NULL, o->group))                 \
    MAKES(splits, WEFT_OK, weft_all_to_all_single(o->x, o->rows, o->rows, o->group))               \
    MAKES(few_rows, WEFT_ERR_INVALID_ARG, weft_all_to_all_single(o->x, o->rows, o->few, o->group)) \
    MAKES(one_split, WEFT_ERR_INVALID_ARG, weft_all_to_all_single(o->x, o->rows, NULL, o->group))  \
    MAKES(broadcast, WEFT_OK, weft_broadcast(o->t, o->n - 1, o->group))                            \
    MAKES(no_root, WEFT_ERR_INVALID_ARG, weft_broadcast(o->x, o->n, o->group))                     \
    FILLS(all_reduces, WEFT_OK, 2, weft_all_reduce_coalesced(out, o->list, 2, WEFT_AVG, o->group)) \
    FILLS(all_gathers, WEFT_OK, 2,                                                                 \
          weft_all_gather_into_tensor_coalesced(out, o->list, 2, o->group))                        \
    FILLS(                                                                                         \
        reduce_scatters, WEFT_OK, 2,                                                               \
        weft_reduce_scatter_tensor_coalesced(out, o->list, 2, WEFT_SUM, (int[]){0, 1}, o->group))  \
    FILLS(                                                                                         \
        second_is_wrong, WEFT_ERR_INVALID_ARG, 2,                                                  \
        weft_reduce_scatter_tensor_coalesced(out, o->list, 2, WEFT_SUM, (int[]){0, 2}, o->group))  \
    MAKES(in_place, WEFT_OK, weft_all_reduce_(o->t, WEFT_SUM, o->group))                           \
    MAKES(broadcast_in_place, WEFT_OK, weft_broadcast_(o->x, 0, o->group))                         \
    MAKES(gather_out, WEFT_OK, weft_all_gather_into_tensor_out(o->big, o->x, 0, o->group))         \
    MAKES(gather_out_small, WEFT_ERR_INVALID_ARG,                                                  \
          weft_all_gather_into_tensor_out(o->x, o->big, 0, o->group))                              \
    MAKES(scatter_out, WEFT_OK,                                                                    \
          weft_reduce_scatter_tensor_out(o->x, o->big, WEFT_SUM, 0, o->group))                     \
    MAKES(scatter_out_large, WEFT_ERR_INVALID_ARG,                                                 \
          weft_reduce_scatter_tensor_out(o->x, o->x, WEFT_SUM, 0, o->group))                       \
    MAKES(wait, WEFT_OK, weft_wait_tensor(o->t))                                                   \
    MAKES(premul_of_integers, WEFT_ERR_TYPE, weft_all_reduce(o->whole, WEFT_PREMUL_SUM, o->group)) \
    MAKES(no_reduction, WEFT_ERR_INVALID_ARG,                                                      \
          weft_all_reduce(o->whole, (weft_reduction)77, o->group))                                 \
    MAKES(expanded, WEFT_OK,                                                                       \
          weft_all_reduce(weft_expand(o->whole, WEFT_SHAPE(5, o->n)), WEFT_BOR, o->group))         \
    MAKES(expanded_in_place, WEFT_ERR_INVALID_ARG,                                                 \
          weft_all_reduce_(weft_expand(o->whole, WEFT_SHAPE(5, o->n)), WEFT_BOR, o->group))        \
    FILLS(all_to_all_list, WEFT_OK, 2, weft_all_to_all(out, o->list, NULL, o->group))              \
    FILLS(list_in_place, WEFT_OK, 1,                                                               \
          weft_all_reduce_coalesced_((out[0] = o->x, o->list), 2, WEFT_SUM, o->group))

#define ROW_MAKES(name_, status_, call_)                                     \
    static weft_status row_##name_(const row_operands *o, weft_tensor **out) \
    {                                                                        \
        return (out[0] = (call_)) ? WEFT_OK : weft_last_status();            \
    }
#define ROW_FILLS(name_, status_, count_, call_)                             \
    static weft_status row_##name_(const row_operands *o, weft_tensor **out) \
    {                                                                        \
        return (call_);                                                      \
    }
FUNCTIONAL_ROWS(ROW_MAKES, ROW_FILLS)

#define ROW_OF_ONE(name_, status_, call_)             {#name_, row_##name_, status_, 1},
#define ROW_OF_SEVERAL(name_, status_, count_, call_) {#name_, row_##name_, status_, count_},
static const struct row {
    const char *name;
    weft_status (*call)(const row_operands *, weft_tensor **);
    weft_status status;
    int results;
} rows[] = {FUNCTIONAL_ROWS(ROW_OF_ONE, ROW_OF_SEVERAL)};
enum { ROWS = sizeof rows / sizeof *rows };

/* Calls a row: it ends as it should, and leaves all its results or none. */
static void call_row(const struct row *row, weft_device device, weft_group *group,
                     weft_tensor **out)
{
    int n = weft_size(group);
    row_operands o = {.group = group, .n = n, .few = {1}};
    o.x = weft_zeros(WEFT_F32, device, WEFT_SHAPE(2 * n, 3));
    o.t = weft_transpose(o.x, 0, 1);
    o.whole = weft_zeros(WEFT_I32, device, WEFT_SHAPE(n));
    o.big = weft_zeros(WEFT_F32, device, WEFT_SHAPE(2 * n * n, 3));
    o.list[0] = o.x;
    o.list[1] = o.t;
    for (int i = 0; i < n; i++)
        o.rows[i] = 2;
    out[0] = out[1] = NULL;
    weft_clear_error();
    weft_status status = row->call(&o, out);
    if (status != row->status || weft_last_status() != row->status)
        FAIL("%s gives %d, not %d: %s", row->name, (int)status, (int)row->status,
             weft_last_error());
    for (int k = 0; k < 2; k++)
        if ((out[k] != NULL) != (status == WEFT_OK && k < row->results))
            FAIL("%s gives %d, and result %d is %p", row->name, (int)status, k, (void *)out[k]);
}

RANKS_TEST(test_functional_meta_agrees, 2)
{
    weft_group *world = join(30000), *name = weft_group_stand_in("0", size);
    weft_tensor *real[4], *meta[4];
    for (int i = 0; i < ROWS; i++) {
        CHECK_OK(weft_scope_open());
        call_row(&rows[i], WEFT_CPU, world, real);
        char message[512];
        snprintf(message, sizeof message, "%s", weft_last_error());
        call_row(&rows[i], WEFT_META, name, meta);
        if (rows[i].status < 0 && strcmp(message, weft_last_error()))
            FAIL("%s: %s, but on meta %s", rows[i].name, message, weft_last_error());
        for (int k = 0; k < 2 && real[k]; k++) {
            if (!weft_i_shape_equal(weft_tensor_shape(real[k]), weft_tensor_shape(meta[k])) ||
                weft_tensor_dtype(real[k]) != weft_tensor_dtype(meta[k]))
                FAIL("%s: meta and real differ", rows[i].name);
            for (int dim = 0; dim < weft_tensor_ndim(real[k]); dim++)
                CHECK(weft_tensor_stride(real[k], dim) == weft_tensor_stride(meta[k], dim));
            CHECK(weft_tensor_device(meta[k]) == WEFT_META);
            CHECK(weft_wait_tensor(real[k]) == real[k]);
        }
        CHECK_OK(weft_scope_close());
    }
    leave(world);
}

TEST(test_functional_stand_in)
{
    weft_group *name = weft_group_stand_in("dp", 3);
    CHECK_INT(weft_size(name), 3);
    CHECK_INT(weft_rank(name), -1);
    CHECK(!strcmp(weft_group_name(name), "dp"));
    CHECK_INT(weft_group_world_rank(name, 0), -1);
    CHECK_INT(weft_group_barrier(name, 10), WEFT_ERR_STATE);
    weft_clear_error();
    CHECK(!weft_all_reduce(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2)), WEFT_SUM, name));
    CHECK_INT(weft_last_status(), WEFT_ERR_STATE);
    CHECK_CONTAINS(weft_last_error(), "stand-in");
    weft_clear_error();
    CHECK(!weft_group_stand_in("", 3) && !weft_group_stand_in("x", 0));
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(2, 2));
    weft_clear_error();
    CHECK(weft_permute_tensor(x, (int[]){1, 2, 0}, name));
    CHECK(!weft_all_reduce(x, WEFT_SUM, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK(!weft_all_reduce(NULL, WEFT_SUM, name)); /* the earlier error stays */
    CHECK_CONTAINS(weft_last_error(), "group is NULL");
    weft_clear_error();
}

/* ---- modes see one call, with the group's name and all its results ---- */

typedef struct logging {
    weft_i_mode mode;
    char text[512];
} logging;

static weft_tensor *note(weft_i_mode *mode, const weft_i_op_call *call)
{
    logging *log = (logging *)mode;
    weft_tensor *first = weft_i_op_pass_on(call);
    size_t used = strlen(log->text);
    int last = weft_i_op_param_count(call->op) - 1;
    const weft_i_arg *group = &call->args[last];
    snprintf(log->text + used, sizeof log->text - used, "%s(%s%zu)%s ", call->op->name,
             group->kind == WEFT_I_ARG_GROUP ? group->group.name : "-",
             group->kind == WEFT_I_ARG_GROUP ? group->count : 0,
             call->outs && call->outs[0] == first && call->outs[1] ? "+" : "");
    return first;
}

TEST(test_functional_modes)
{
    logging log = {{note, NULL}, ""};
    weft_group *name = weft_group_stand_in("tp", 2);
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_META, WEFT_SHAPE(4, 4)), *list[2] = {x, x}, *out[2];
    weft_i_mode_push(&log.mode);
    weft_wait_tensor(weft_all_reduce(x, WEFT_SUM, name));
    weft_status status = weft_all_reduce_coalesced(out, list, 2, WEFT_SUM, name);
    weft_all_gather_tensor(x, 1, name);
    weft_i_mode_pop(&log.mode);
    CHECK_OK(status);
    CHECK(out[0] && out[1] && out[0] != out[1]);
    if (strcmp(log.text, "all_reduce(tp2) wait_tensor(-0) all_reduce_coalesced(tp2)+ "
                         "all_gather_into_tensor(tp2) "))
        FAIL("%s", log.text);
    CHECK(weft_i_op_find("wait_tensor")->flags & WEFT_I_OP_EFFECT);
    CHECK(!(weft_i_op_find("all_reduce")->flags & WEFT_I_OP_EFFECT));
    /* A recorded name can be bound to another group, or to none. */
    weft_i_arg args[] = {WEFT_I_TENSOR_ARG(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1))),
                         WEFT_I_INTEGER_ARG(0), WEFT_I_GROUP_ARG(NULL, "tp", 2)};
    CHECK(!weft_i_op_apply(&weft_i_op_broadcast, NULL, args));
    CHECK_CONTAINS(weft_last_error(), "not bound");
    weft_clear_error();
}

/* ---- shortage: the n-th allocation of a call fails; the call can be made again ---- */

static weft_status call_any(int which, weft_tensor *x, weft_group *world)
{
    weft_tensor *out[2], *list[2] = {x, x};
    switch (which) {
    case 0:
        return weft_wait_tensor(weft_all_reduce(x, WEFT_SUM, world)) ? WEFT_OK : -1;
    case 1:
        return weft_wait_tensor(weft_all_gather_tensor(x, 1, world)) ? WEFT_OK : -1;
    case 2:
        return weft_wait_tensor(
                   weft_reduce_scatter_tensor(weft_transpose(x, 0, 1), WEFT_SUM, 1, world))
                   ? WEFT_OK
                   : -1;
    case 3:
        return weft_reduce_scatter_tensor_coalesced(out, list, 2, WEFT_SUM, (int[]){0, 1}, world) <
                           0 ||
                       !weft_wait_tensor(out[0]) || !weft_wait_tensor(out[1])
                   ? -1
                   : WEFT_OK;
    default:
        return weft_wait_tensor(weft_permute_tensor(x, (int[]){1, 0}, world)) ? WEFT_OK : -1;
    }
}

/* Rank 0 lacks the n-th thing it asks the system for; does it ask that often?  All ranks learn it.
 */
static bool run_short(int which, int n, weft_tensor *x, weft_group *world)
{
    int rank = weft_rank(world);
    weft_tensor *told = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    if (rank == 0)
        fault_arm(n);
    weft_status status = call_any(which, x, world);
    bool fired = rank == 0 && fault_disarm();
    if (fired && status < 0) {
        CHECK_INT(weft_last_status(), WEFT_ERR_NO_MEMORY);
        CHECK_OK(call_any(which, x, world));
    } else {
        CHECK_OK(status);
    }
    weft_clear_error();
    weft_fill(told, fired && status < 0 ? 2 : fired);
    CHECK_OK(weft_all_reduce_into(told, told, WEFT_MAX, world));
    if (weft_item(told, 0) > 1)
        harness_mark();
    return weft_item(told, 0) > 0;
}

RANKS_TEST(test_functional_shortage, 2)
{
    if (harness_hosts)
        SKIP("between hosts a lack of memory in the middle of a call ends the group");
    if (harness_in_threads)
        SKIP("ranks that are threads share their calls to the system");
    weft_group *world = join(30000);
    weft_tensor *x = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 6));
    CHECK(weft_wait_tensor(weft_all_reduce(x, WEFT_SUM, world))); /* the lane and its helper */
    for (int which = 0; which < 5; which++) {
        int before = harness_marks(), n = 1;
        bool fired = true;
        for (; fired; n++) {
            CHECK(n < 200);
            CHECK_OK(weft_scope_open());
            fired = run_short(which, n, x, world);
            CHECK_OK(weft_scope_close());
        }
        CHECK(n > 3);                    /* something was asked for, */
        CHECK(harness_marks() > before); /* and its want told */
    }
    leave(world);
}

/* A result that is put into a tensor of another shape goes, and so does the view of it. */
TEST(test_functional_put_keeps_nothing)
{
    weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2, 2));
    for (int i = 0; i < 11; i++) {
        if (i == 1) /* what is made once is made */
            count_begin();
        CHECK_OK(weft_i_traced_put(out, weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4), i)));
        CHECK(weft_item(out, 3) == i);
    }
    CHECK_INT(count_end(), 0);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}
