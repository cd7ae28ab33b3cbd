/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: functional/functional.c, functional/run.c, functional/list.c */
/*
 * Functional collectives: the reference's tests of eager calls under their own names, with 2 and
 * with 4 ranks (TestTraceableCollectives, TestCollectivesWithDistributedBackend).  They are
 * compiled once for each kind of device.
 */
#include "functional_jobs.h"

SIZES_TEST(test_broadcast)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(4), rank == 0);
    CHECK_ALL(weft_broadcast(x, 0, group_of_mesh(world)), WEFT_SHAPE(4), 1);
    CHECK_ALL(x, WEFT_SHAPE(4), rank == 0);
    CHECK(!weft_broadcast(x, size, world) && !weft_broadcast(x, -1, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    leave(world);
}

SIZES_TEST(test_all_reduce_eager)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(4));
    CHECK_ALL(weft_all_reduce(x, WEFT_SUM, group_of_mesh(world)), WEFT_SHAPE(4), size);
    if (size == 4)
        CHECK_ALL(weft_all_reduce(x, WEFT_SUM, line_of_grid(world, 1)), WEFT_SHAPE(4), 2);
    CHECK_ALL(x, WEFT_SHAPE(4), 1);
    leave(world);
}

SIZES_TEST(test_all_reduce_coalesced_eager)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(4)),
                          weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(6), 3)},
                *out[2];
    CHECK_OK(weft_all_reduce_coalesced(out, in, 2, WEFT_SUM, world));
    CHECK_INT(weft_unwaited(world), DEVICE == WEFT_CPU ? 2 : 0); /* else streams order them */
    CHECK_ALL(out[0], WEFT_SHAPE(4), size);
    CHECK_ALL(out[1], WEFT_SHAPE(6), 3 * size);
    CHECK_ALL(in[1], WEFT_SHAPE(6), 3);
    CHECK_INT(weft_unwaited(world), 0);
    leave(world);
}

static void check_gather(weft_group *group, int n)
{
    weft_tensor *x = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(3, 3, 3));
    for (int dim = 0; dim < 3; dim++) {
        weft_shape shape = WEFT_SHAPE(3, 3, 3);
        shape.dim[dim] *= n;
        CHECK_ALL(weft_all_gather_tensor(x, dim, group), shape, 1);
    }
}

SIZES_TEST(test_all_gather_tensor)
{
    weft_group *world = join(30000);
    check_gather(group_of_mesh(world), size);
    if (size == 4)
        check_gather(line_of_grid(world, 0), 2);
    leave(world);
}

SIZES_TEST(test_all_gather_into_tensor_coalesced)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(4)),
                          weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(4), 2)},
                *out[2];
    CHECK_OK(weft_all_gather_into_tensor_coalesced(out, in, 2, world));
    CHECK_ALL(out[0], WEFT_SHAPE(4 * size), 1);
    CHECK_ALL(out[1], WEFT_SHAPE(4 * size), 2);
    leave(world);
}

static void check_reduce_scatter(weft_group *group, int n)
{
    for (int dim = 0; dim < 2; dim++) {
        weft_shape shape = dim ? WEFT_SHAPE(3, 3 * n) : WEFT_SHAPE(3 * n, 3);
        weft_tensor *x = weft_ones(WEFT_F32, DEVICE, shape);
        CHECK_ALL(weft_reduce_scatter_tensor(x, WEFT_SUM, dim, group), WEFT_SHAPE(3, 3), n);
    }
}

SIZES_TEST(test_reduce_scatter_tensor)
{
    weft_group *world = join(30000);
    check_reduce_scatter(group_of_mesh(world), size);
    if (size == 4)
        check_reduce_scatter(line_of_grid(world, 0), 2);
    weft_tensor *odd = weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(size, size + 1));
    CHECK(!weft_reduce_scatter_tensor(odd, WEFT_SUM, 1, world));
    CHECK_CONTAINS(weft_last_error(), "dimension 1");
    CHECK(!weft_reduce_scatter_tensor(odd, WEFT_BXOR, 0, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_TYPE);
    leave(world);
}

SIZES_TEST(test_reduce_scatter_into_tensor_coalesced)
{
    weft_group *world = join(30000);
    weft_tensor *in[2] = {weft_ones(WEFT_I64, DEVICE, WEFT_SHAPE(4)),
                          weft_full(WEFT_I64, DEVICE, WEFT_SHAPE(4), 2)},
                *out[2];
    CHECK_OK(weft_reduce_scatter_tensor_coalesced(out, in, 2, WEFT_SUM, (int[]){0, 0}, world));
    CHECK_ALL(out[0], WEFT_SHAPE(4 / size), size);
    CHECK_ALL(out[1], WEFT_SHAPE(4 / size), 2 * size);
    /* Along other dimensions, and the caller's list stays as it is. */
    weft_tensor *wide[2] = {weft_ones(WEFT_F32, DEVICE, WEFT_SHAPE(3, size)),
                            weft_ones(WEFT_BF16, DEVICE, WEFT_SHAPE(2, 3, 2 * size))};
    weft_tensor *const before[2] = {wide[0], wide[1]};
    CHECK_OK(weft_reduce_scatter_tensor_coalesced(out, wide, 2, WEFT_AVG, (int[]){1, -1}, world));
    CHECK_ALL(out[0], WEFT_SHAPE(3, 1), 1);
    CHECK_ALL(out[1], WEFT_SHAPE(2, 3, 2), 1);
    CHECK(wide[0] == before[0] && wide[1] == before[1]);
    leave(world);
}

/* Block i of the result has (i + 1)(rank + 1) rows of i + 1. */
static void check_uneven(int rank, int size, int columns)
{
    weft_group *world = join(30000);
    int64_t splits[4], rows = 0;
    for (int i = 0; i < size; i++)
        rows += splits[i] = (int64_t)(i + 1) * (rank + 1);
    weft_shape shape = columns ? WEFT_SHAPE(rows, columns) : WEFT_SHAPE(rows);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, shape, rank + 1);
    weft_tensor *y = weft_all_to_all_single(x, splits, splits, world);
    CHECK(y && weft_i_shape_equal(weft_tensor_shape(y), shape));
    int64_t at = 0;
    for (int i = 0; i < size; at += splits[i++])
        CHECK(all_are(weft_narrow(y, 0, at, splits[i]), i + 1));
    leave(world);
}

SIZES_TEST(test_all_to_all_single)
{
    check_uneven(rank, size, 5);
}

SIZES_TEST(test_all_to_all_single_1d_input)
{
    check_uneven(rank, size, 0);
}

SIZES_TEST(test_all_to_all_single_split_sizes_none)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_full(WEFT_F32, DEVICE, WEFT_SHAPE(size, size), rank + 1);
    weft_tensor *y = weft_all_to_all_single(x, NULL, NULL, world);
    for (int i = 0; i < size; i++)
        CHECK_ALL(weft_select(y, 0, i), WEFT_SHAPE(size), i + 1);
    CHECK(!weft_all_to_all_single(weft_rand(WEFT_F32, DEVICE, WEFT_SHAPE(size + 1)), NULL, NULL,
                                  world));
    CHECK_INT(weft_last_status(), WEFT_ERR_INVALID_ARG);
    leave(world);
}

RANKS_TEST(test_permute_tensor_with_sub_group, 4)
{
    weft_group *world = join(30000);
    for (int dim = 0; dim < 2; dim++) {
        weft_group *line = line_of_grid(world, dim);
        int me = weft_rank(line), other = 1 - me;
        weft_tensor *x = weft_add_scalar(weft_arange(WEFT_F32, DEVICE, 0, 2, 1), 2.0 * me);
        weft_tensor *y = weft_permute_tensor(x, (int[]){1, 0}, line);
        CHECK(y && weft_tensor_numel(y) == 2);
        CHECK(weft_item(y, 0) == 2 * other && weft_item(y, 1) == 2 * other + 1);
    }
    /* Any number of dimensions, any layout; what is no permutation is refused. */
    weft_tensor *x = weft_full(WEFT_F16, DEVICE, WEFT_SHAPE(2, 3, 1), rank);
    weft_tensor *y = weft_permute_tensor(weft_transpose(x, 0, 1), (int[]){1, 2, 3, 0}, world);
    CHECK_ALL(y, WEFT_SHAPE(3, 2, 1), (rank + 3) % 4);
    CHECK_ALL(weft_permute_tensor(weft_full(WEFT_I32, DEVICE, WEFT_SCALAR, rank),
                                  (int[]){0, 2, 1, 3}, world),
              WEFT_SCALAR, rank == 1 || rank == 2 ? 3 - rank : rank);
    CHECK(!weft_permute_tensor(x, (int[]){1, 1, 3, 0}, world));
    CHECK_CONTAINS(weft_last_error(), "two ranks send to rank 1");
    CHECK(!weft_permute_tensor(x, (int[]){1, 4, 3, 0}, world));
    leave(world);
}

int main(int argc, char **argv)
{
    device_install();
    return harness_main(argc, argv);
}
