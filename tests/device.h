/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of tests that are compiled once for each kind: DEVICE is the CPU, or the GPU in the
 * program that weft_cuda_twin makes of the same source.  There the software driver of tests/cuda
 * stands for a GPU unless WEFT_TEST_CUDA=real, and the results bear names of their own: softcuda
 * or cuda, with "-threads" where ranks are threads.  It comes before the harness.
 *
 * The program of weft_nccl_twin has the same devices, but NCCL carries its collectives: the stand-in
 * of tests/nccl, with a device for each rank, or NCCL itself on one GPU.  There each rank needs an
 * NCCL_HOSTID before its first collective.  The results are those of softnccl or nccl.
 */
#ifndef WEFT_TESTS_DEVICE_H
#define WEFT_TESTS_DEVICE_H

#include <weft/storage.h>

#include <stdbool.h>

#ifdef WEFT_TEST_ON_CUDA

#include "cuda/model.h"
#include <weft/symm.h>

#include <stdlib.h>
#include <string.h>

#define HARNESS_LABEL(backend_) device_label(backend_)

static inline bool device_is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

#ifdef WEFT_TEST_ON_NCCL

#include "backends/nccl/comm.h"
#include "nccl/standin.h"

#include <stdio.h>

#define DEVICE device_of(harness_this_rank)

static inline weft_device device_of(int rank)
{
    char id[16];
    if (!device_is_real())
        return WEFT_CUDA(rank);
    snprintf(id, sizeof id, "rank-%d", rank);
    setenv("NCCL_HOSTID", id, 0);
    return WEFT_CUDA(0);
}

static inline const char *device_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    return device_is_real() ? "nccl" : threads ? "softnccl-threads" : "softnccl";
}

/* Was it NCCL that carried this process's collectives so far? */
static inline bool device_was_used(void)
{
    return weft_i_nccl_given() > 0;
}

static inline void device_install(void)
{
    setenv("WEFT_NCCL", "always", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0); /* of ranks that share a GPU */
    if (device_is_real())
        return;
    model_install();
    standin_install();
    model.devices = 4;
}

#else

#define DEVICE WEFT_CUDA(0)

static inline const char *device_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    if (device_is_real())
        return threads ? "cuda-threads" : "cuda";
    return threads ? "softcuda-threads" : "softcuda";
}

static inline bool device_was_used(void)
{
    return true;
}

/* All ranks share the one device. */
static inline void device_install(void)
{
    if (!device_is_real())
        model_install();
    weft_symm_allow_overlap(true);
}

#endif

/* A software device of few threads, so that a launch costs little. */
static inline void device_shrink(void)
{
    model.multiprocessors = 1;
    model.threads_most = 3;
}

#else

#define DEVICE WEFT_CPU

static inline bool device_was_used(void)
{
    return true;
}

static inline void device_install(void)
{
}

static inline void device_shrink(void)
{
}

#endif
#endif
