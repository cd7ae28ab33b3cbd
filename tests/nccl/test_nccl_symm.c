/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/nccl/symm.c, backends/nccl/window.c */
/*
 * Symmetric memory in NCCL's windows: the tests of test_cuda_symm.c, with the stand-in and a device
 * for each rank; and what is particular to windows.  With WEFT_TEST_CUDA=real and one GPU only what
 * one rank can do alone.
 */
#define SYMM_BACKEND "nccl"
#include "cuda/test_cuda_symm.c"

#include "backends/nccl/library.h"
#include "nccl/standin.h"

static weft_device gpu(void)
{
    static _Thread_local bool chosen;
    bool peers = is_real() && getenv("WEFT_TEST_PEERS"); /* scripts/gpu-check peers */
    weft_device device = WEFT_CUDA(is_real() && !peers ? 0 : harness_this_rank);
    if (is_real() && !peers && harness_current->ranks > 1)
        SKIP("NCCL's windows want a GPU for each rank");
    if (!chosen) {
        chosen = true;
        CHECK_OK(weft_symm_set_backend(device, "nccl"));
    }
    return device;
}

static void install_standin(void)
{
    standin_install();
    model.devices = 4;
}

/* Addresses by the host call, and from the window's own fields where there is none. */
static void check_reach(weft_group *world, int rank, int size)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    weft_symm *mem = weft_symm_rendezvous(x, world);
    if (!mem)
        FAIL("%s", weft_last_error());
    CHECK_OK(weft_fill(x, rank + 1));
    BARRIER(mem, 0);
    for (int peer = 0; peer < size; peer++)
        CHECK(all_equal(weft_symm_tensor(mem, peer), peer + 1));
    weft_tensor *sum = weft_symm_one_shot_all_reduce(x, WEFT_SUM, world);
    if (!sum)
        FAIL("one_shot: %s", weft_last_error());
    CHECK(all_equal(sum, size * (size + 1) / 2));
    BARRIER(mem, 1);
}

RANKS_TEST(test_nccl_window_reach, 3)
{
    if (is_real())
        SKIP("NCCL's windows want a GPU for each rank");
    standin.version = 22809;
    weft_group *world = join(30000);
    check_reach(world, rank, size);
    CHECK_OK(weft_group_barrier(world, 30000));
    CHECK_INT(standin_calls("ncclGetLsaDevicePointer"), 0);
    weft_i_nccl_forget();
    CHECK_OK(weft_group_barrier(world, 30000));
    standin.version = 23004;
    CHECK_OK(weft_group_barrier(world, 30000));
    check_reach(world, rank, size);
    CHECK(standin_calls("ncclGetLsaDevicePointer") > 0);
    finish(world);
}

/* What one GPU can show: a window of one rank, its signals and collectives. */
RANKS_TEST(test_nccl_window_alone, 1)
{
    weft_group *world = join(30000);
    check_reach(world, rank, size);
    weft_symm *mem = make(world, 1000);
    CHECK_OK(weft_symm_put_signal(mem, 0, 0, 5000));
    CHECK_OK(weft_symm_wait_signal(mem, 0, 0, 5000));
    CHECK_OK(sync_stream());
    CHECK_OK(weft_symm_wait_signal(mem, 0, 1, LIMIT));
    CHECK_STATUS(sync_stream(), WEFT_ERR_TIMEOUT);
    weft_clear_error();
    CHECK_OK(weft_symm_reset(mem, WEFT_DEFAULT));
    BARRIER(mem, 0);
    CHECK(all_equal(weft_symm_tensor(mem, 0), 0));
    finish(world);
}

/* Windows go where all members agree, in one order, and before their memory. */
RANKS_TEST(test_nccl_window_ends, 2)
{
    if (is_real())
        SKIP("NCCL's windows want a GPU for each rank");
    weft_group *world = join(30000);
    weft_symm *kept = weft_keep(make(world, 16)), *first = weft_keep(make(world, 16));
    BARRIER(kept, 0);
    int before = standin_calls("ncclCommWindowDeregister");
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == 0)
        weft_release(first); /* alone: nothing may happen */
    CHECK_OK(sync_stream());
    weft_symm *second = weft_keep(make(world, 16));
    BARRIER(second, 0);
    CHECK_OK(weft_group_barrier(world, 30000));
    CHECK_INT(standin_calls("ncclCommWindowDeregister"), before);
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == 1)
        weft_release(first);
    int ended = before;
    for (int i = 0; i < 200 && ended == before; i++) { /* until the streams have come that far */
        rest_us(5000);
        weft_scope_open();
        CHECK_OK(weft_group_barrier(world, 30000));
        BARRIER(make(world, 16), 0);
        ended = standin_calls("ncclCommWindowDeregister");
        CHECK_OK(weft_group_barrier(world, 30000));
        weft_scope_close();
        int go_on = ended == before, all[2];
        weft_tensor *mine = weft_full(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1), go_on);
        CHECK_OK(weft_all_reduce_into(mine, mine, WEFT_MAX, world));
        all[0] = (int)weft_item(mine, 0);
        ended = all[0] ? before : ended; /* both go on, or none */
    }
    CHECK(ended > before);
    CHECK_OK(weft_fill(weft_symm_tensor(kept, rank), 7)); /* those in use are as they were */
    BARRIER(kept, 0);
    CHECK(all_equal(weft_symm_tensor(kept, 1 - rank), 7));
    BARRIER(kept, 0);
    weft_release(kept);
    weft_release(second);
    finish(world);
}

/* Ranks that do not reach each other's memory are told so. */
RANKS_TEST(test_nccl_window_apart, 2)
{
    if (is_real())
        SKIP("NCCL's windows want a GPU for each rank");
    standin.apart = 1;
    weft_group *world = join(30000);
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
    CHECK(x && !weft_symm_rendezvous(x, world));
    CHECK_INT(weft_last_status(), WEFT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(weft_last_error(), "load and store");
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, 30000));
    finish(world);
}

/* NCCL fails in the middle: nobody has the memory, nothing hangs. */
RANKS_TEST(test_nccl_window_faults, 2)
{
    static const char *const calls[] = {"ncclMemAlloc", "ncclCommInitRankConfig",
                                        "ncclCommWindowRegister"};
    if (is_real())
        SKIP("needs the stand-in's faults");
    weft_group *world = join(30000);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(64));
        CHECK(x);
        CHECK_OK(weft_group_barrier(world, 30000));
        standin.fail = calls[i];
        standin.fail_with = WEFT_I_ncclSystemError;
        CHECK_OK(weft_group_barrier(world, 30000));
        long long began = harness_now();
        CHECK(!weft_symm_rendezvous(x, world));
        CHECK(weft_last_status() != WEFT_ERR_TIMEOUT);
        CHECK(harness_now() - began < 10 * 1000000000LL);
        weft_clear_error();
        CHECK_OK(weft_group_barrier(world, 30000));
        standin.fail = NULL;
        CHECK_OK(weft_group_barrier(world, 30000));
    }
    BARRIER(make(world, 16), 0);
    finish(world);
}
