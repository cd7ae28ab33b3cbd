/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: functional/rule.c, functional/functional.c */
/* Functional collectives: the shape of every result, and every argument that has none; and other
 * calls that a fake world of four can refuse as well as a real one. */
#include "harness.h"

#include <stdint.h>
#include <weft/dlpack.h>
#include <weft/weft.h>

enum { RANKS = 4, ME = 1 };

static weft_group *world_of(int rank, int size)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(rank, size);
    weft_group *world = weft_fake_init(&opts);
    if (!world)
        FAIL("%s", weft_last_error());
    return world;
}

static weft_tensor *floats(weft_shape shape)
{
    return weft_full(WEFT_F32, WEFT_CPU, shape, 1);
}

static void refused(const void *object, weft_status status, const char *word)
{
    CHECK(!object);
    if (weft_last_status() != status || !strstr(weft_last_error(), word))
        FAIL("\"%s\" (%d), not \"%s\" (%d)", weft_last_error(), weft_last_status(), word, status);
    weft_clear_error();
}

static void expect_shape(const weft_tensor *x, weft_shape shape)
{
    CHECK(x && weft_tensor_ndim(x) == shape.ndim);
    for (int i = 0; i < shape.ndim; i++)
        CHECK_INT(weft_tensor_size(x, i), shape.dim[i]);
}

TEST(test_functional_args_shapes)
{
    CHECK_OK(weft_scope_open());
    weft_group *world = world_of(ME, RANKS);
    weft_tensor *x = floats(WEFT_SHAPE(8, 12)), *scalar = floats((weft_shape){0});
    expect_shape(weft_all_reduce(x, WEFT_SUM, world), WEFT_SHAPE(8, 12));
    for (int dim = -3; dim < 3; dim++) {
        weft_tensor *all = weft_all_gather_tensor(x, dim, world);
        weft_tensor *part = weft_reduce_scatter_tensor(x, WEFT_SUM, dim, world);
        if (dim < -2 || dim > 1) {
            CHECK(!all && !part);
            CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
            continue;
        }
        bool rows = dim == 0 || dim == -2;
        expect_shape(all, rows ? WEFT_SHAPE(32, 12) : WEFT_SHAPE(8, 48));
        expect_shape(part, rows ? WEFT_SHAPE(2, 12) : WEFT_SHAPE(8, 3));
    }
    weft_clear_error();
    expect_shape(weft_all_gather_tensor(scalar, 0, world), WEFT_SHAPE(RANKS));
    refused(weft_reduce_scatter_tensor(scalar, WEFT_SUM, 0, world), WEFT_ERR_INVALID_ARG,
            "without dimensions cannot be divided");
    refused(weft_reduce_scatter_tensor(floats(WEFT_SHAPE(6, 12)), WEFT_SUM, 0, world),
            WEFT_ERR_INVALID_ARG, "has 6 entries, which do not divide among 4 ranks");
    refused(weft_all_to_all_single(scalar, NULL, NULL, world), WEFT_ERR_INVALID_ARG, "has no rows");
    refused(weft_all_to_all_single(floats(WEFT_SHAPE(6)), NULL, NULL, world), WEFT_ERR_INVALID_ARG,
            "6 rows do not divide among 4 ranks; give splits");
    expect_shape(weft_all_to_all_single(x, NULL, NULL, world), WEFT_SHAPE(8, 12));
    static const int64_t in[] = {2, 2, 2, 2}, out[] = {1, 0, 7, 2}, low[] = {2, 2, 2, 1},
                         minus[] = {2, -1, 5, 2}, huge[] = {INT64_MAX, 1, 0, 0};
    expect_shape(weft_all_to_all_single(x, out, in, world), WEFT_SHAPE(10, 12));
    refused(weft_all_to_all_single(x, out, NULL, world), WEFT_ERR_INVALID_ARG, "both splits");
    refused(weft_all_to_all_single(x, NULL, in, world), WEFT_ERR_INVALID_ARG, "both splits");
    refused(weft_all_to_all_single(x, out, low, world), WEFT_ERR_INVALID_ARG,
            "input splits add up to 7 rows of 8");
    refused(weft_all_to_all_single(x, minus, in, world), WEFT_ERR_INVALID_ARG,
            "output split -1 for rank 1");
    refused(weft_all_to_all_single(x, in, minus, world), WEFT_ERR_INVALID_ARG,
            "input split -1 for rank 1");
    refused(weft_all_to_all_single(x, huge, in, world), WEFT_ERR_INVALID_ARG, "output split 1");
    for (int src = -1; src <= RANKS; src += RANKS + 1)
        refused(weft_broadcast(x, src, world), WEFT_ERR_INVALID_ARG, "must be in [0, 4)");
    CHECK(weft_broadcast(x, 0, world) && weft_broadcast(x, RANKS - 1, world));
    CHECK_OK(weft_scope_close());
}

TEST(test_functional_args_reductions)
{
    CHECK_OK(weft_scope_open());
    weft_group *world = world_of(ME, RANKS);
    weft_tensor *x = floats(WEFT_SHAPE(8)), *ints = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(8), 1);
    for (int op = -1; op <= WEFT_REDUCTIONS; op++) {
        bool there = op >= 0 && op < WEFT_REDUCTIONS;
        bool bits = op == WEFT_BAND || op == WEFT_BOR || op == WEFT_BXOR;
        weft_tensor *got = weft_all_reduce(x, (weft_reduction)op, world);
        if (!there)
            refused(got, WEFT_ERR_INVALID_ARG, "is not a reduction");
        else if (bits)
            refused(got, WEFT_ERR_TYPE, "has no meaning for f32");
        else
            CHECK(got);
        got = weft_reduce_scatter_tensor(ints, (weft_reduction)op, 0, world);
        if (!there)
            refused(got, WEFT_ERR_INVALID_ARG, "is not a reduction");
        else if (bits || op == WEFT_SUM || op == WEFT_MIN || op == WEFT_MAX)
            CHECK(got);
        weft_clear_error();
    }
    CHECK_OK(weft_scope_close());
}

/* More than can be counted. */
TEST(test_functional_args_uncountable)
{
    CHECK_OK(weft_scope_open());
    weft_group *world = world_of(ME, RANKS);
    weft_tensor *long_one = weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(INT64_MAX / 4 + 1));
    weft_tensor *fits = weft_empty(WEFT_U8, WEFT_META, WEFT_SHAPE(INT64_MAX / 4));
    weft_tensor *wide = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(INT64_MAX / 8));
    CHECK(long_one && fits && wide);
    refused(weft_all_gather_tensor(long_one, 0, world), WEFT_ERR_INVALID_ARG, "counted");
    CHECK(weft_all_gather_tensor(fits, 0, world));
    refused(weft_all_gather_tensor(wide, 0, world), WEFT_ERR_INVALID_ARG, "");
    CHECK_OK(weft_scope_close());
}

TEST(test_functional_args_outputs)
{
    CHECK_OK(weft_scope_open());
    weft_group *world = world_of(ME, RANKS);
    weft_tensor *x = floats(WEFT_SHAPE(4, 4));
    CHECK(weft_all_gather_into_tensor_out(floats(WEFT_SHAPE(16, 4)), x, 0, world));
    CHECK(weft_reduce_scatter_tensor_out(floats(WEFT_SHAPE(4, 1)), x, WEFT_SUM, 1, world));
    refused(weft_all_gather_into_tensor_out(floats(WEFT_SHAPE(4, 16)), x, 0, world),
            WEFT_ERR_INVALID_ARG, "the result is f32[16, 4], the output f32[4, 16]");
    refused(weft_all_gather_into_tensor_out(weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(16, 4), 0), x,
                                            0, world),
            WEFT_ERR_INVALID_ARG, "the result is f32[16, 4], the output i32[16, 4]");
    refused(weft_reduce_scatter_tensor_out(floats(WEFT_SHAPE(4, 2)), x, WEFT_SUM, 1, world),
            WEFT_ERR_INVALID_ARG, "the result is f32[4, 1]");
    refused(weft_all_gather_into_tensor_out(NULL, x, 0, world), WEFT_ERR_INVALID_ARG, "");
    CHECK_OK(weft_scope_close());
}

TEST(test_functional_args_lists)
{
    CHECK_OK(weft_scope_open());
    weft_group *world = world_of(ME, RANKS);
    weft_tensor *x = floats(WEFT_SHAPE(4)), *ints = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4), 1);
    weft_tensor *in[] = {x, x, x, x}, *mixed[] = {x, x, ints, x}, *out[RANKS] = {NULL};
    CHECK_OK(weft_all_to_all(out, in, NULL, world));
    for (int i = 0; i < RANKS; i++)
        expect_shape(out[i], WEFT_SHAPE(4));
    weft_shape shapes[] = {WEFT_SHAPE(1), WEFT_SHAPE(2, 3), WEFT_SHAPE(4), {0}};
    CHECK_OK(weft_all_to_all(out, in, shapes, world));
    for (int i = 0; i < RANKS; i++)
        if (i != ME)
            expect_shape(out[i], shapes[i]);
    CHECK_STATUS(weft_all_to_all(out, mixed, NULL, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "f32 for rank 0, i32 for rank 2");
    shapes[2].ndim = WEFT_MAX_DIMS + 1;
    CHECK(weft_all_to_all(out, in, shapes, world) < 0);
    shapes[2].ndim = -1;
    CHECK(weft_all_to_all(out, in, shapes, world) < 0);
    weft_clear_error();
    CHECK(weft_all_reduce_coalesced(out, in, 4, (weft_reduction)99, world) < 0);
    CHECK(weft_all_reduce_coalesced(out, in, -1, WEFT_SUM, world) < 0);
    CHECK(weft_all_reduce_coalesced(NULL, in, 4, WEFT_SUM, world) < 0);
    CHECK(weft_all_reduce_coalesced(out, NULL, 4, WEFT_SUM, world) < 0);
    CHECK(weft_reduce_scatter_tensor_coalesced(out, in, 4, WEFT_SUM, (int[]){0, 0, 1, 0}, world) <
          0);
    weft_clear_error();
    CHECK_OK(
        weft_reduce_scatter_tensor_coalesced(out, in, 4, WEFT_SUM, (int[]){0, 0, -1, 0}, world));
    expect_shape(out[2], WEFT_SHAPE(1));
    CHECK_OK(weft_scope_close());
}

TEST(test_functional_args_permutation)
{
    CHECK_OK(weft_scope_open());
    weft_group *world = world_of(ME, RANKS);
    weft_tensor *x = floats(WEFT_SHAPE(4));
    CHECK(weft_permute_tensor(x, (int[]){1, 2, 3, 0}, world));
    CHECK(weft_permute_tensor(x, (int[]){0, 1, 2, 3}, world));
    refused(weft_permute_tensor(x, (int[]){1, 2, 3, 3}, world), WEFT_ERR_INVALID_ARG, "");
    refused(weft_permute_tensor(x, (int[]){1, 2, 3, 4}, world), WEFT_ERR_INVALID_ARG, "");
    refused(weft_permute_tensor(x, (int[]){1, 2, 3, -1}, world), WEFT_ERR_INVALID_ARG, "");
    refused(weft_permute_tensor(x, NULL, world), WEFT_ERR_INVALID_ARG, "");
    CHECK_OK(weft_scope_close());
}

/* ---- other calls ---- */

TEST(test_functional_args_fake_world)
{
    for (int me = 0; me < RANKS; me++) {
        CHECK_OK(weft_scope_open());
        weft_group *world = world_of(me, RANKS);
        weft_connectivity found;
        CHECK_OK(weft_symm_detect_connectivity(world, WEFT_CPU, "shm", &found));
        for (int i = 0; i < RANKS * RANKS; i++) /* all on one host that is none */
            CHECK_INT(found.links[i], i / RANKS != i % RANKS);
        CHECK(!strcmp(found.connection, "shm") && found.size == RANKS);
        weft_symm_free_connectivity(&found);
        CHECK(!found.links);
        weft_symm_free_connectivity(NULL);
        CHECK_STATUS(weft_symm_detect_connectivity(world, WEFT_CPU, NULL, &found),
                     WEFT_ERR_NOT_FOUND);
        CHECK_STATUS(weft_symm_detect_connectivity(world, WEFT_CPU, "shm", NULL),
                     WEFT_ERR_NOT_FOUND);
        weft_clear_error();
        CHECK_STATUS(weft_symm_detect_connectivity(NULL, WEFT_CPU, "shm", &found),
                     WEFT_ERR_INVALID_ARG);
        weft_clear_error();
        CHECK_OK(weft_scope_close());
    }
}

TEST(test_functional_args_find)
{
    CHECK_OK(weft_scope_open());
    weft_group *world = world_of(ME, RANKS);
    static const int ranks[] = {1, 2};
    weft_group *pair = weft_group_new(world, ranks, 2, "pair");
    CHECK(pair && weft_group_named(world, "pair") == pair);
    CHECK(weft_group_find(world, NULL, ranks, 2) == pair || !weft_last_status());
    weft_clear_error();
    refused(weft_group_find(world, NULL, ranks, 0), WEFT_ERR_INVALID_ARG, "empty");
    refused(weft_group_find(world, NULL, ranks, -1), WEFT_ERR_INVALID_ARG, "empty");
    refused(weft_group_find(world, NULL, NULL, 2), WEFT_ERR_INVALID_ARG, "empty");
    refused(weft_group_named(world, NULL), WEFT_ERR_INVALID_ARG, "NULL");
    CHECK(!weft_group_named(world, "nobody"));
    CHECK(weft_group_count(world) >= 2 && weft_group_count(NULL) == 0);
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

TEST(test_functional_args_tensors)
{
    CHECK_OK(weft_scope_open());
    weft_tensor *x = floats(WEFT_SHAPE(4, 3)),
                *meta = weft_empty(WEFT_F32, WEFT_META, WEFT_SHAPE(4));
    weft_tensor *ints = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2), 1);
    refused(weft_dlpack_export(meta), WEFT_ERR_UNSUPPORTED, "has no memory");
    refused(weft_dlpack_export_versioned(meta), WEFT_ERR_UNSUPPORTED, "has no memory");
    refused(weft_dlpack_export(NULL), WEFT_ERR_INVALID_ARG, "NULL");
    refused(weft_tensor_data(meta), WEFT_ERR_TYPE, "a meta tensor has no data");
    weft_tensor *freed = floats(WEFT_SHAPE(4));
    CHECK_OK(weft_storage_resize(weft_tensor_storage(freed), 0));
    refused(weft_tensor_data(freed), WEFT_ERR_STATE, "");
    refused(weft_dlpack_export(freed), WEFT_ERR_STATE, "");
    CHECK(!weft_tensor_data(floats(WEFT_SHAPE(0))) && !weft_last_status());
    CHECK(weft_embedding(x, ints));
    refused(weft_embedding(x, floats(WEFT_SHAPE(2))), WEFT_ERR_TYPE, "not integers");
    refused(weft_embedding(x, weft_full(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(2), 1)), WEFT_ERR_TYPE,
            "not integers");
    refused(weft_embedding(ints, ints), WEFT_ERR_INVALID_ARG, "1 dimensions, not 2");
    refused(weft_embedding(x, weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2), 4)),
            WEFT_ERR_INVALID_ARG, "index 4 at 0; the weight has 4 rows");
    refused(weft_embedding(x, weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(2), -1)),
            WEFT_ERR_INVALID_ARG, "index -1");
    weft_shape deep = {WEFT_MAX_DIMS, {1, 1, 1, 1, 1, 1, 1, 1}};
    refused(weft_embedding(x, weft_full(WEFT_I64, WEFT_CPU, deep, 0)), WEFT_ERR_INVALID_ARG,
            "dimensions");
    deep.ndim--;
    CHECK(weft_embedding(x, weft_full(WEFT_I64, WEFT_CPU, deep, 0)));
    CHECK_OK(weft_scope_close());
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* refusals are the point here */
    return harness_main(argc, argv);
}
