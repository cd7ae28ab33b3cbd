/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/nvshmem/symm.c, backends/nvshmem/start.c */
/*
 * Symmetric memory of NVSHMEM: the tests of test_cuda_symm.c, with the stand-in of tests/nvshmem, or
 * with the library and a GPU where WEFT_TEST_NVSHMEM=real.  What is particular to NVSHMEM is in
 * test_nvshmem.c.
 */
#define SYMM_BACKEND "nvshmem"
#define SYMM_ALONE   2 /* it has no world of one rank */
#define SYMM_REAL    "WEFT_TEST_NVSHMEM"
#include "cuda/test_cuda_symm.c"

#include "nvshmem/model.h"

/* The start of NVSHMEM is a call of all ranks: every test asks for its device on all of them, after
 * it has joined the world. */
static weft_device gpu(void)
{
    static bool started;
    if (!started) {
        started = true;
        CHECK_OK(weft_symm_set_backend(WEFT_CUDA(0), "nvshmem"));
    }
    return WEFT_CUDA(0);
}

static void install_standin(void)
{
    nvshmem_install();
}

/* One rank in a process. */
__attribute__((constructor)) static void take_processes(void)
{
    setenv("WEFT_TEST_BACKENDS", "shm", 1);
}
