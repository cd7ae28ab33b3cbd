/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused operations on a CUDA device that the ranks share, as processes and as threads: AsyncTPTest of
 * the reference on the software driver, or on a GPU with WEFT_TEST_CUDA=real.
 */
#define HARNESS_LABEL(backend_) cuda_label(backend_)
static const char *cuda_label(const char *backend);

#define FUSED_DEVICE      WEFT_CUDA(0)
#define FUSED_ROWS        (is_real() ? 4096 : 64) /* the software driver multiplies slowly */
#define FUSED_INNER       (is_real() ? 1024 : 16)
#define FUSED_TEST(name_) RANKS_TEST(name_, 2)

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

#include "fused_jobs.h"

#include "cuda/model.h"

/* Results on the software driver are told from those on a GPU. */
static const char *cuda_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    return is_real() ? threads ? "cuda-threads" : "cuda"
           : threads ? "softcuda-threads"
                     : "softcuda";
}

int main(int argc, char **argv)
{
    if (!is_real())
        model_install();
    weft_symm_allow_overlap(true);
    return harness_main(argc, argv);
}
