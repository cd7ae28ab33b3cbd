/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/device/through.c, coll/hosts/hosts.c */
/*
 * CUDA tensors in groups that span hosts, where nobody carries them: they go through the host.  Every call
 * gives what it gives on the CPU, bit for bit, since both have one order of sums.
 */
#include "cuda/ranks_scene.h"

#include "fabric/group/hosts.h"

/* The same body on 2 + 2 and on 3 + 1 ranks. */
#define SPREADS(name_)                            \
    static void name_##_body(int rank, int size); \
    HOSTS_TEST(name_##_2_2, 4, "2+2")             \
    {                                             \
        name_##_body(rank, size);                 \
    }                                             \
    HOSTS_TEST(name_##_3_1, 4, "3+1")             \
    {                                             \
        name_##_body(rank, size);                 \
    }                                             \
    static void name_##_body(__attribute__((unused)) int rank, __attribute__((unused)) int size)

/* Which GPU it is may depend on the rank. */
static weft_device device_of(int k)
{
    return k ? GPU : WEFT_CPU;
}

static weft_tensor *operand(weft_dtype dtype, int of, int64_t rows, int64_t columns, weft_device to)
{
    weft_tensor *x = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(rows, columns));
    float *at = weft_tensor_data(x);
    for (int64_t i = 0; i < rows * columns; i++)
        at[i] = (float)((i * 7 + of * 3) % 113 - 50) / 9;
    return weft_to(x, dtype, to);
}

static void check_kinds(weft_group *world, weft_dtype dtype, int64_t columns)
{
    int rank = weft_rank(world), size = weft_size(world);
    weft_tensor *sum[2], *part[2], *all[2], *given[2], *cast[2], *mine[2];
    for (int k = 0; k < 2; k++) {
        weft_tensor *in = operand(dtype, rank, size, columns, device_of(k));
        weft_tensor *row = operand(dtype, rank, 1, columns, device_of(k));
        sum[k] = operand(dtype, 9, size, columns, device_of(k));
        part[k] = operand(dtype, 9, 1, columns, device_of(k));
        all[k] = operand(dtype, 9, size, columns, device_of(k));
        given[k] = operand(dtype, 9, size, columns, device_of(k));
        cast[k] = operand(dtype, rank, 2, columns, device_of(k));
        mine[k] = operand(dtype, 9, 1, columns, device_of(k));
        CHECK_OK(weft_all_reduce_into(sum[k], in, WEFT_AVG, world));
        CHECK_OK(weft_reduce_scatter_into(part[k], in, WEFT_SUM, world));
        CHECK_OK(weft_all_gather_into(all[k], row, world));
        CHECK_OK(weft_all_to_all_into(given[k], in, NULL, NULL, world));
        CHECK_OK(weft_broadcast_in_place(cast[k], size - 1, world));
        CHECK_OK(weft_scatter_into(mine[k], rank == 1 ? in : NULL, 1, world));
        if (k)
            check_way(world, "host");
    }
    check_same("all_reduce", sum[1], sum[0]);
    check_same("reduce_scatter", part[1], part[0]);
    check_same("all_gather", all[1], all[0]);
    check_same("all_to_all", given[1], given[0]);
    check_same("broadcast", cast[1], cast[0]);
    check_same("scatter", mine[1], mine[0]);
}

SPREADS(test_cuda_hosts_kinds)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_I32};
    static const int64_t columns[] = {1, 9, 30000};
    weft_group *world = join(60000);
    CHECK(world->hosts);
    for (int i = 0; i < 9; i++) {
        weft_scope_open();
        check_kinds(world, dtypes[i / 3], columns[i % 3]);
        weft_scope_close();
    }
    finish(world);
}

/* Messages, parts of different sizes, and lists. */
SPREADS(test_cuda_hosts_others)
{
    weft_group *world = join(60000);
    weft_tensor *got[2], *all[2][4], *pair[2][2];
    for (int k = 0; k < 2; k++) {
        weft_tensor *in = operand(WEFT_F32, rank, 3, 9000, device_of(k));
        got[k] = operand(WEFT_F32, 9, 3, 9000, device_of(k));
        CHECK_OK(weft_send_recv(got[k], (rank + 1) % size, in, (rank + size - 1) % size, world));
        for (int from = 0; from < size; from++)
            all[k][from] = operand(WEFT_F32, 9, 10 + from, 1, device_of(k));
        CHECK_OK(weft_all_gather_parts_into(
            all[k], operand(WEFT_F32, rank, 10 + rank, 1, device_of(k)), world));
        for (int i = 0; i < 2; i++)
            pair[k][i] = operand(WEFT_F32, rank + i, 5, 100 + 9000 * i, device_of(k));
        CHECK_OK(weft_all_reduce_list_into(pair[k], pair[k], 2, WEFT_SUM, world));
    }
    check_same("send_recv", got[1], got[0]);
    for (int from = 0; from < size; from++)
        check_same("a part", all[1][from], all[0][from]);
    check_same("of a list", pair[1][0], pair[0][0]);
    check_same("of a list", pair[1][1], pair[0][1]);
    finish(world);
}

/* Memory of devices is not shared between hosts; on one host it is. */
SPREADS(test_cuda_hosts_symm)
{
    weft_group *world = join(60000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(16));
    CHECK(x);
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "spans hosts, and no backend shares memory between them");
    weft_clear_error();
    if (world->hosts->near->size > 1)
        CHECK(weft_symm_rendezvous(x, world->hosts->near));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    finish(world);
}

int main(int argc, char **argv)
{
    return scene_main(argc, argv);
}
