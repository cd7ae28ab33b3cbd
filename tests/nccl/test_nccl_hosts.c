/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/nccl/carrier.c, backends/cuda/ranks/site.c, coll/device/carrier.c */
/*
 * Groups whose members are on several hosts, with NCCL: it carries calls of every size, since kernels of one
 * host do not reach memory of another, and what it lacks goes through the host.
 */
#include "scene.h"

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

/* Each call on the CPU and on devices gives the same; NCCL is given nine. */
static void check_kinds(weft_group *world, int rank, int size, int64_t columns)
{
    weft_tensor *in[2], *out[2], *whole[2];
    weft_device devices[2] = {WEFT_CPU, GPU};
    for (int k = 0; k < 2; k++) {
        uint64_t before = given(world);
        in[k] = weft_to(weft_expand(operand(WEFT_F32, rank, WEFT_SHAPE(size, 1), WEFT_CPU),
                                    WEFT_SHAPE(size, columns)),
                        WEFT_F32, devices[k]);
        in[k] = weft_contiguous(in[k]);
        out[k] = weft_zeros(WEFT_F32, devices[k], WEFT_SHAPE(size, columns));
        whole[k] = weft_zeros(WEFT_F32, devices[k], WEFT_SHAPE(size * size, columns));
        weft_tensor *one = weft_slice(out[k], 0, 1, 2, 1);
        CHECK_OK(weft_all_reduce_into(out[k], in[k], WEFT_SUM, world));
        CHECK_OK(weft_all_gather_into(whole[k], in[k], world));
        CHECK_OK(weft_reduce_scatter_into(one, in[k], WEFT_SUM, world));
        CHECK_OK(weft_broadcast_in_place(weft_slice(whole[k], 0, 0, 2, 1), 1, world));
        CHECK_OK(weft_gather_into(rank == 1 ? whole[k] : NULL, in[k], 1, world));
        CHECK_OK(weft_all_to_all_into(out[k], in[k], NULL, NULL, world));
        CHECK_OK(weft_scatter_into(in[k], rank == 0 ? whole[k] : NULL, 0, world));
        CHECK_OK(weft_reduce_into(rank == 1 ? out[k] : NULL, in[k], WEFT_SUM, 1, world));
        CHECK_OK(weft_all_reduce_into(in[k], in[k], WEFT_SUM, world));
        weft_clear_error();
        if (k)
            CHECK_GIVEN(world, before, 9);
    }
    check_same("all_to_all, reduce_scatter, reduce", out[1], out[0]);
    check_same("all_gather, broadcast, gather", whole[1], whole[0]);
    check_same("scatter, in place", in[1], in[0]);
}

SPREADS(test_nccl_hosts_kinds)
{
    static const int64_t columns[] = {1, 5, 4000};
    setenv("WEFT_NCCL", "auto", 1); /* small ones go there too */
    weft_group *world = begin(rank, 60000);
    CHECK(world->hosts && !world->local);
    for (int i = 0; i < 3; i++) {
        weft_scope_open();
        check_kinds(world, rank, size, columns[i]);
        weft_scope_close();
    }
    end(world);
}

/* What NCCL lacks, or weft does not hand to it. */
SPREADS(test_nccl_hosts_through_host)
{
    weft_group *world = begin(rank, 60000);
    uint64_t before = 0;
    weft_tensor *least[2], *got[2], *all[2][4];
    weft_device devices[2] = {WEFT_CPU, GPU};
    CHECK_OK(weft_all_reduce_into(operand(WEFT_F32, rank, WEFT_SHAPE(3), GPU),
                                  operand(WEFT_F32, rank, WEFT_SHAPE(3), GPU), WEFT_SUM, world));
    before = given(world);
    CHECK_INT(before, 1);
    for (int k = 0; k < 2; k++) {
        weft_tensor *in = operand(WEFT_F32, rank, WEFT_SHAPE(700), devices[k]);
        least[k] = operand(WEFT_F32, 9, WEFT_SHAPE(700), devices[k]);
        got[k] = operand(WEFT_F32, 9, WEFT_SHAPE(700), devices[k]);
        CHECK_OK(weft_all_reduce_into(least[k], in, WEFT_MIN, world));
        CHECK_OK(weft_send_recv(got[k], (rank + 1) % size, in, (rank + size - 1) % size, world));
        for (int from = 0; from < size; from++)
            all[k][from] = operand(WEFT_F32, 9, WEFT_SHAPE(10 + from), devices[k]);
        CHECK_OK(weft_all_gather_parts_into(
            all[k], operand(WEFT_F32, rank, WEFT_SHAPE(10 + rank), devices[k]), world));
    }
    CHECK_GIVEN(world, before, 0);
    check_same("MIN", least[1], least[0]);
    check_same("send_recv", got[1], got[0]);
    for (int from = 0; from < size; from++)
        check_same("a part", all[1][from], all[0][from]);
    end(world);
}

/* Groups of one host beside it have kernels of their own; memory of devices is not shared between hosts. */
SPREADS(test_nccl_hosts_groups)
{
    setenv("WEFT_NCCL", "auto", 1);
    weft_group *world = begin(rank, 60000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(16));
    CHECK(x);
    CHECK(!weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNREACHABLE);
    CHECK_CONTAINS(weft_last_error(), "spans hosts");
    weft_clear_error();
    weft_tensor *one = operand(WEFT_F32, 1, WEFT_SHAPE(1), GPU);
    CHECK_OK(weft_all_reduce_into(one, one, WEFT_SUM, world));
    CHECK_INT(given(world), 1);
    if (world->hosts->near->size > 1) {
        weft_group *near = world->hosts->near;
        CHECK_OK(weft_all_reduce_into(one, one, WEFT_SUM, near));
        CHECK_INT(given(near), 0);
    }
    end(world);
}

/* A rank dies while the others' kernels wait for it, on both hosts. */
SPREADS(test_nccl_hosts_kill)
{
    int last = size - 1;
    weft_group *world = begin(rank, 60000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(1000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(weft_item(x, 9) == 4 && comm_of(world));
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == last) {
        harness_rank_dies();
        for (int i = 0; i < last; i++)
            CHECK(harness_await(i, 1));
        rest_us(20000); /* their kernels wait by now; if not, they will */
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    harness_mark();
    CHECK_STATUS(weft_group_barrier(world, 40000), WEFT_ERR_PEER_DEAD);
    CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), 40000), WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    weft_scope_close();
    weft_finish(world);
    weft_clear_error();
    weft_release(world);
}

int main(int argc, char **argv)
{
    return scene_main(argc, argv);
}
