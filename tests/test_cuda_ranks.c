/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on CUDA tensors, ranks as processes and as threads, on the software driver.  No
 * backend of this build carries them, so they go through host memory.
 */
#include "harness_ranks.h"
#include "jobs.h"

#include "cuda/model.h"
#include "weft/weft.h"

#define GPU WEFT_CUDA(0)

/* Element i of rank r's operand. */
static weft_tensor *operand(weft_dtype dtype, int rank, weft_shape shape, weft_device device)
{
    weft_tensor *x = weft_empty(dtype, WEFT_CPU, shape);
    int64_t n = weft_tensor_numel(x);
    weft_tensor *flat = weft_view(x, WEFT_SHAPE(n));
    for (int64_t i = 0; i < n; i++)
        CHECK_OK(
            weft_fill(weft_slice(flat, 0, i, i + 1, 1), (double)((i * 7 + rank * 3) % 11 - 5)));
    return weft_to(x, dtype, device);
}

static void check_same(const char *what, weft_tensor *there, weft_tensor *here)
{
    if (!there || !here)
        FAIL("%s: %s", what, weft_last_error());
    if (weft_tensor_device(there) != GPU || !weft_equal(there, here))
        FAIL("%s differs: %s", what, weft_last_error());
}

/* The same calls on the CPU and on a device give the same bits. */
RANKS_TEST(test_cuda_ranks_collectives, 3)
{
    weft_group *world = join(30000);
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_I64};
    for (int d = 0; d < 3; d++) {
        weft_tensor *in[2], *out[2], *whole[2];
        weft_device devices[2] = {WEFT_CPU, GPU};
        weft_scope_open();
        for (int k = 0; k < 2; k++) {
            in[k] = operand(dtypes[d], rank, WEFT_SHAPE(size, 5), devices[k]);
            out[k] = operand(dtypes[d], 9, WEFT_SHAPE(size, 5), devices[k]);
            whole[k] = operand(dtypes[d], 9, WEFT_SHAPE(size * size, 5), devices[k]);
            weft_tensor *one = weft_slice(out[k], 0, 1, 2, 1);
            CHECK_OK(weft_all_reduce_into(out[k], in[k], WEFT_SUM, world));
            CHECK_OK(weft_all_gather_into(whole[k], in[k], world));
            CHECK_OK(weft_reduce_scatter_into(one, in[k], WEFT_MAX, world));
            CHECK_OK(weft_broadcast_into(weft_slice(whole[k], 0, 0, 2, 1), 1, world));
            CHECK_OK(weft_gather_into(rank == 2 ? whole[k] : NULL, in[k], 2, world));
            CHECK_OK(weft_scatter_into(in[k], rank == 0 ? whole[k] : NULL, 0, world));
            CHECK_OK(weft_reduce_into(rank == 1 ? out[k] : NULL, in[k], WEFT_SUM, 1, world));
            weft_clear_error();
        }
        check_same("all_reduce, reduce_scatter, reduce", out[1], out[0]);
        check_same("all_gather, broadcast, gather", whole[1], whole[0]);
        check_same("scatter", in[1], in[0]);
        weft_scope_close();
    }
    finish(world);
}

RANKS_TEST(test_cuda_ranks_uneven, 2)
{
    weft_group *world = join(30000);
    weft_tensor *out[2];
    const int64_t in_splits[] = {1 + rank, 3 - rank}, out_splits[] = {1 + 2 * rank, 2};
    for (int k = 0; k < 2; k++) {
        weft_tensor *in = operand(WEFT_F32, rank, WEFT_SHAPE(4, 3), k ? GPU : WEFT_CPU);
        out[k] = operand(WEFT_F32, 5, WEFT_SHAPE(3 + 2 * rank, 3), k ? GPU : WEFT_CPU);
        CHECK_OK(weft_all_to_all_into(out[k], in, out_splits, in_splits, world));
    }
    check_same("all_to_all", out[1], out[0]);
    weft_tensor *list_in[2], *list_out[2], *host_in[2], *host_out[2];
    for (int i = 0; i < 2; i++) {
        host_in[i] = operand(WEFT_F16, rank + i, WEFT_SHAPE(4 + i), WEFT_CPU);
        host_out[i] = operand(WEFT_F16, 7, WEFT_SHAPE(4 + i), WEFT_CPU);
        list_in[i] = weft_to(host_in[i], WEFT_F16, GPU);
        list_out[i] = weft_to(host_out[i], WEFT_F16, GPU);
    }
    CHECK_OK(weft_all_reduce_list_into(list_out, list_in, 2, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_list_into(host_out, host_in, 2, WEFT_SUM, world));
    check_same("first of a list", list_out[0], host_out[0]);
    check_same("second of a list", list_out[1], host_out[1]);
    weft_tensor *parts[2] = {weft_empty(WEFT_F16, GPU, WEFT_SHAPE(4)),
                             weft_empty(WEFT_F16, GPU, WEFT_SHAPE(5))};
    CHECK_OK(weft_all_gather_parts_into(parts, list_in[rank], world));
    check_same("own part", parts[rank], host_in[rank]);
    list_out[1] = host_out[1];
    CHECK_STATUS(weft_all_reduce_list_into(list_out, list_out, 2, WEFT_SUM, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "tensor 1 is on cpu, those before it on cuda:0");
    weft_clear_error();
    finish(world);
}

/* Functional collectives: results on the device, claimed until they are there. */
RANKS_TEST(test_cuda_ranks_functional, 2)
{
    weft_group *world = join(30000);
    static const int64_t sizes[] = {6, 40000};
    for (int s = 0; s < 2; s++) {
        weft_scope_open();
        weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(4, 6), WEFT_CPU);
        weft_tensor *here = weft_contiguous(
            weft_expand(weft_view(x, WEFT_SHAPE(4, 6, 1)), WEFT_SHAPE(4, 6, sizes[s] / 6 + 1)));
        weft_tensor *there = weft_to(here, WEFT_F32, GPU);
        weft_tensor *turned = weft_transpose(there, 0, 1);
        check_same("all_reduce", weft_all_reduce(there, WEFT_SUM, world),
                   weft_all_reduce(here, WEFT_SUM, world));
        check_same("all_reduce, strided", weft_all_reduce(turned, WEFT_SUM, world),
                   weft_all_reduce(weft_transpose(here, 0, 1), WEFT_SUM, world));
        for (int dim = 0; dim < 2; dim++) {
            check_same("all_gather", weft_all_gather_tensor(there, dim, world),
                       weft_all_gather_tensor(here, dim, world));
            check_same("reduce_scatter", weft_reduce_scatter_tensor(there, WEFT_SUM, dim, world),
                       weft_reduce_scatter_tensor(here, WEFT_SUM, dim, world));
        }
        check_same("broadcast", weft_broadcast(there, 1, world), weft_broadcast(here, 1, world));
        check_same("all_to_all", weft_all_to_all_single(there, NULL, NULL, world),
                   weft_all_to_all_single(here, NULL, NULL, world));
        weft_tensor *y = weft_all_reduce(there, WEFT_SUM, world);
        check_same("waited for", weft_wait_tensor(y), weft_all_reduce(here, WEFT_SUM, world));
        CHECK(weft_all_reduce_(turned, WEFT_SUM, world));
        check_same("in place", there, weft_all_reduce(here, WEFT_SUM, world));
        CHECK_INT(weft_unwaited(world), 0);
        weft_scope_close();
    }
    finish(world);
}

RANKS_TEST(test_cuda_ranks_work, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = operand(WEFT_F32, rank, WEFT_SHAPE(50000), GPU), *out = weft_empty_like(x);
    weft_tensor *host = weft_to(x, WEFT_F32, WEFT_CPU), *host_out = weft_empty_like(host);
    weft_work *work = weft_all_reduce_start(out, x, WEFT_SUM, world);
    CHECK(work);
    CHECK_OK(weft_all_reduce_into(host_out, host, WEFT_SUM, world));
    CHECK_OK(weft_work_wait(work, 30000));
    check_same("posted", out, host_out);
    finish(world);
}

RANKS_TEST(test_cuda_ranks_refuses, 2)
{
    weft_group *world = join(30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4)),
                *y = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK_STATUS(weft_all_reduce_into(x, y, WEFT_SUM, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "the input is on cpu, the output on cuda:0");
    CHECK_STATUS(weft_send(x, 1 - rank, world), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_all_reduce_into(weft_to(x, WEFT_F32, WEFT_META), x, WEFT_SUM, world),
                 WEFT_ERR_UNSUPPORTED);
    weft_tensor *symmetric = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    CHECK(weft_symm_rendezvous(symmetric, world));
    CHECK_STATUS(weft_symm_one_shot_all_reduce_copy_out(y, symmetric, x, WEFT_SUM, world),
                 WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "not on the CPU");
    CHECK(!weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(4)));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    weft_clear_error();
    /* A mismatch is one there too, and the group goes on without a device. */
    CHECK_STATUS(weft_all_reduce_into(x, x, rank ? WEFT_SUM : WEFT_MAX, world), WEFT_ERR_MISMATCH);
    CHECK(weft_item(x, 0) == 1);
    weft_clear_error();
    weft_finish(world);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    if (!wanted || strcmp(wanted, "real"))
        model_install();
    return harness_main(argc, argv);
}
