/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/request.c, symm_coll/reach.c */
/* What collectives on symmetric memory refuse, one argument at a time, before anything happens. */
#include "jobs.h"

#include <stdint.h>
#include <weft/weft.h>

enum { SIZE = 2, COUNT = 8 };

typedef struct args {
    weft_tensor *out, *x, *local;
    weft_reduction op;
    int root;
    weft_group *group;
} args;

static weft_status of(const void *object)
{
    return object ? WEFT_OK : weft_last_status();
}

static weft_status one_shot(const args *a)
{
    return of(weft_symm_one_shot_all_reduce(a->x, a->op, a->group));
}

static weft_status one_shot_out(const args *a)
{
    return weft_symm_one_shot_all_reduce_out(a->out, a->x, a->op, a->group);
}

static weft_status one_shot_copy(const args *a)
{
    return weft_symm_one_shot_all_reduce_copy_out(a->out, a->x, a->local, a->op, a->group);
}

static weft_status two_shot(const args *a)
{
    return weft_symm_two_shot_all_reduce(a->x, a->op, a->group);
}

static weft_status two_shot_out(const args *a)
{
    return weft_symm_two_shot_all_reduce_out(a->out, a->x, a->op, a->group);
}

static weft_status multimem(const args *a)
{
    return weft_symm_multimem_all_reduce(a->x, a->op, a->group);
}

static weft_status multimem_out(const args *a)
{
    return weft_symm_multimem_one_shot_all_reduce_out(a->out, a->x, a->op, a->group);
}

static weft_status multimem_root(const args *a)
{
    return weft_symm_multimem_one_shot_reduce_out(a->out, a->x, a->op, a->root, a->group);
}

static const struct {
    const char *name;
    weft_status (*run)(const args *);
    bool has_out, has_local, has_root;
} rows[] = {
    {"one_shot", one_shot, false, false, false},    {"one_shot", one_shot_out, true, false, false},
    {"one_shot", one_shot_copy, true, true, false}, {"two_shot", two_shot, false, false, false},
    {"two_shot", two_shot_out, true, false, false}, {"multimem", multimem, false, false, false},
    {"multimem", multimem_out, true, false, false}, {"multimem", multimem_root, true, false, true}};
enum { ROWS = sizeof rows / sizeof *rows };

static weft_tensor *floats(int64_t count, double value)
{
    return weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(count), value);
}

static weft_tensor *symmetric(int64_t count, weft_dtype dtype)
{
    weft_tensor *x = weft_symm_empty(dtype, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x);
    return x;
}

static void refused(int row, const args *a, weft_status status, const char *what)
{
    weft_clear_error();
    weft_status got = rows[row].run(a);
    if (got != status)
        FAIL("row %d (%s), %s: %d, not %d: %s", row, rows[row].name, what, got, status,
             weft_last_error());
    CHECK(weft_last_status() == status && weft_last_error()[0]);
    weft_clear_error();
}

static args good_args(weft_tensor *x, int rank, weft_group *world)
{
    return (args){.out = floats(COUNT, -7),
                  .x = x,
                  .local = floats(COUNT, rank + 1),
                  .op = WEFT_SUM,
                  .root = rank,
                  .group = world};
}

static void refuse_inputs(int row, args good)
{
    args a = good;
    a.x = NULL;
    refused(row, &a, WEFT_ERR_INVALID_ARG, "NULL");
    a.x = floats(COUNT, 1);
    refused(row, &a, WEFT_ERR_TYPE, "ordinary memory");
    a.x = weft_slice(symmetric(2 * COUNT, WEFT_F32), 0, 0, 2 * COUNT, 2);
    refused(row, &a, WEFT_ERR_INVALID_ARG, "not contiguous");
    a = good;
    a.op = (weft_reduction)WEFT_REDUCTIONS;
    refused(row, &a, WEFT_ERR_INVALID_ARG, "no reduction");
    a.op = (weft_reduction)-1;
    refused(row, &a, WEFT_ERR_INVALID_ARG, "no reduction");
    a.op = WEFT_BXOR;
    refused(row, &a, WEFT_ERR_TYPE, "bits of floats");
}

static void refuse_outputs(int row, args a)
{
    a.out = NULL;
    refused(row, &a, WEFT_ERR_INVALID_ARG, "no output");
    a.out = floats(COUNT + 1, 0);
    refused(row, &a, WEFT_ERR_INVALID_ARG, "a longer output");
    a.out = floats(COUNT - 1, 0);
    refused(row, &a, WEFT_ERR_INVALID_ARG, "a shorter output");
    a.out = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT), 0);
    refused(row, &a, WEFT_ERR_TYPE, "integers");
    a.out = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(COUNT));
    refused(row, &a, WEFT_ERR_UNSUPPORTED, "on meta");
}

static void refuse_local(int row, args good)
{
    args a = good;
    a.local = NULL;
    refused(row, &a, WEFT_ERR_INVALID_ARG, "no local input");
    a.local = floats(COUNT + 1, 0);
    a.out = floats(COUNT + 1, 0);
    refused(row, &a, WEFT_ERR_INVALID_ARG, "more than the buffer holds");
    a.local = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT), 0);
    a.out = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(COUNT), 0);
    refused(row, &a, WEFT_ERR_TYPE, "of another dtype than the buffer");
    a.local = weft_narrow(a.x, 0, 1, COUNT - 1);
    a.out = floats(COUNT - 1, 0);
    refused(row, &a, WEFT_ERR_INVALID_ARG, "a part of the buffer");
}

/* A call that is right; what its results are is known. */
static void check_right(int row, weft_tensor *x, int rank, weft_group *world)
{
    weft_fill(x, rank + 1);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    args good = good_args(x, rank, world);
    good.root = 1;
    CHECK_OK(rows[row].run(&good));
    weft_tensor *result = rows[row].has_out ? good.out : x;
    bool told = row != 0 && (!rows[row].has_root || rank == 1);
    for (int64_t i = 0; told && i < COUNT; i++)
        CHECK(weft_item(result, i) == 3);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
}

RANKS_TEST(test_symm_args_refused, SIZE)
{
    weft_group *world = join(0);
    weft_tensor *x = symmetric(COUNT, WEFT_F32);
    CHECK(weft_symm_rendezvous(x, world));
    weft_fill(x, rank + 1);
    for (int row = 0; row < ROWS; row++) {
        CHECK_OK(weft_scope_open());
        args good = good_args(x, rank, world);
        refuse_inputs(row, good);
        if (rows[row].has_out)
            refuse_outputs(row, good);
        if (rows[row].has_local)
            refuse_local(row, good);
        for (int root = -1; rows[row].has_root && root <= SIZE; root += SIZE + 1) {
            args a = good;
            a.root = root;
            refused(row, &a, WEFT_ERR_INVALID_ARG, "no such rank");
        }
        CHECK(weft_item(good.out, 0) == -7 && weft_item(x, 0) == rank + 1);
        CHECK_OK(weft_scope_close());
    }
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* nothing has left a mark */
    for (int row = 0; row < ROWS; row++)
        check_right(row, x, rank, world);
    CHECK(!weft_finish(world));
}

RANKS_TEST(test_symm_args_scatter, SIZE)
{
    weft_group *world = join(0);
    weft_tensor *x = weft_view(symmetric(4 * 16, WEFT_F32), WEFT_SHAPE(4, 16));
    weft_tensor *scalar = weft_view(symmetric(1, WEFT_F32), (weft_shape){0});
    CHECK(weft_symm_rendezvous(x, world));
    weft_fill(x, rank + 1);
    weft_clear_error();
#define SCATTER(out_, x_, last_) \
    weft_symm_reduce_scatter_out((out_), (x_), (last_), WEFT_SUM, world)
    CHECK_STATUS(SCATTER(floats(32, 0), x, true), WEFT_ERR_INVALID_ARG); /* of another shape */
    CHECK_STATUS(SCATTER(floats(31, 0), x, false), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(SCATTER(floats(33, 0), x, false), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(SCATTER(floats(1, 0), scalar, true), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "no last one to split");
    CHECK_STATUS(SCATTER(NULL, x, false), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_STATUS(SCATTER(floats(32, 0), floats(64, 0), false), WEFT_ERR_TYPE);
    weft_tensor *odd = weft_view(symmetric(4 * 5, WEFT_F32), WEFT_SHAPE(4, 5));
    CHECK_STATUS(SCATTER(weft_view(floats(8, 0), WEFT_SHAPE(4, 2)), odd, true),
                 WEFT_ERR_INVALID_ARG);
    for (int64_t at = 0; at <= 32; at += 2) { /* an output within the input */
        weft_tensor *flat = weft_view(x, WEFT_SHAPE(64)), *out = weft_narrow(flat, 0, at, 32);
        weft_clear_error();
        if (at != 32 * rank)
            CHECK_STATUS(SCATTER(out, x, false), WEFT_ERR_INVALID_ARG);
    }
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_tensor *out = weft_view(floats(32, -7), WEFT_SHAPE(4, 8));
    CHECK_OK(SCATTER(out, x, true));
    CHECK(weft_item(out, 0) == 3 && weft_item(out, 31) == 3);
    CHECK_OK(SCATTER(weft_view(out, WEFT_SHAPE(32)), x, false));
    CHECK_STATUS(weft_symm_multimem_all_gather_out(floats(128, 0), x, world), WEFT_ERR_TYPE);
    weft_clear_error();
    CHECK_STATUS(weft_symm_multimem_all_gather_out(NULL, x, world), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(!weft_finish(world));
}

/* Copies to and from others: every offset that fits, and the first that does not. */
RANKS_TEST(test_symm_args_put_get, SIZE)
{
    weft_group *world = join(0);
    weft_tensor *x = symmetric(COUNT, WEFT_F32);
    weft_symm *mem = weft_symm_rendezvous(x, world);
    CHECK(mem);
    int peer = 1 - rank;
    for (int64_t count = 0; count <= COUNT + 1; count++)
        for (int64_t offset = -1; offset <= COUNT + 1; offset++) {
            CHECK_OK(weft_scope_open());
            weft_fill(x, 0);
            CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
            bool right = offset >= 0 && offset + count <= COUNT;
            weft_tensor *from = floats(count, rank + 5), *to = floats(count, -7);
            weft_clear_error();
            CHECK_INT(weft_symm_put(mem, peer, from, offset),
                      right ? WEFT_OK : WEFT_ERR_INVALID_ARG);
            CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
            for (int64_t i = 0; i < COUNT; i++)
                CHECK(weft_item(x, i) ==
                      (right && i >= offset && i < offset + count ? peer + 5 : 0));
            CHECK_INT(weft_symm_get(to, mem, peer, offset), right ? WEFT_OK : WEFT_ERR_INVALID_ARG);
            for (int64_t i = 0; i < count; i++)
                CHECK(weft_item(to, i) == (right ? rank + 5 : -7));
            CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
            CHECK_OK(weft_scope_close());
        }
    weft_clear_error();
    CHECK_STATUS(weft_symm_put(mem, SIZE, floats(1, 0), 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_put(mem, -1, floats(1, 0), 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_put(mem, peer, NULL, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_put(NULL, peer, floats(1, 0), 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_get(floats(1, 0), mem, SIZE, 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_get(NULL, mem, peer, 0), WEFT_ERR_INVALID_ARG);
    weft_symm *none = weft_symm_rendezvous(weft_view(weft_narrow(x, 0, 0, 0), WEFT_SHAPE(3, 0)),
                                           world); /* of no elements: there is no place in it */
    CHECK(none);
    CHECK_OK(weft_symm_put(none, peer, floats(0, 0), 0));
    weft_clear_error();
    CHECK_STATUS(weft_symm_put(none, peer, floats(1, 0), 0), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_symm_get(floats(1, 0), none, peer, 0), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK(!weft_finish(world));
}

/* A tensor without elements whose gathered shape is too long for a number of 64 bits. */
RANKS_TEST(test_symm_args_gathered_too_long, SIZE)
{
    (void)rank, (void)size;
    weft_group *world = join(0);
    weft_tensor *x = weft_empty(WEFT_U8, WEFT_CPU, WEFT_SHAPE((int64_t)1 << 62, 0));
    CHECK(x && !weft_symm_low_contention_all_gather(x, world, NULL));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "shape [-1, 0] has a negative size");
    finish(world);
}

/* A tensor whose storage has shrunk is not written to. */
TEST(test_symm_args_words_of_less_memory)
{
    weft_tensor *x = weft_zeros(WEFT_U32, WEFT_CPU, WEFT_SHAPE(8));
    CHECK_OK(weft_symm_memset32(x, 7, 5, 1));
    CHECK_INT(weft_item_int(x, 7), 5);
    int64_t version = weft_tensor_version(x);
    CHECK_OK(weft_storage_resize(weft_tensor_storage(x), 16));
    CHECK_STATUS(weft_symm_memset32(x, 7, 5, 1), WEFT_ERR_STATE);
    CHECK_STATUS(weft_symm_stream_write_value32(x, 7, 5), WEFT_ERR_STATE);
    CHECK_INT(weft_tensor_version(x), version);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* refusals are the point here */
    return harness_main(argc, argv);
}
