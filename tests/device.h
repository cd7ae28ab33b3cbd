/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of tests that are compiled once for each kind: DEVICE is the CPU, or the GPU in the
 * program that weft_cuda_twin makes of the same source.  There the software driver of tests/cuda
 * stands for a GPU unless WEFT_TEST_CUDA=real, and the results bear names of their own: softcuda
 * or cuda, with "-threads" where ranks are threads.  It comes before the harness.
 */
#ifndef WEFT_TESTS_DEVICE_H
#define WEFT_TESTS_DEVICE_H

#include <weft/storage.h>

#ifdef WEFT_TEST_ON_CUDA

#include "cuda/model.h"
#include <weft/symm.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE                  WEFT_CUDA(0)
#define HARNESS_LABEL(backend_) device_label(backend_)

static inline bool device_is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

static inline const char *device_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    if (device_is_real())
        return threads ? "cuda-threads" : "cuda";
    return threads ? "softcuda-threads" : "softcuda";
}

/* All ranks share the one device. */
static inline void device_install(void)
{
    if (!device_is_real())
        model_install();
    weft_symm_allow_overlap(true);
}

#else

#define DEVICE WEFT_CPU

static inline void device_install(void)
{
}

#endif
#endif
