/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of tests that are compiled once for each kind: DEVICE is the CPU, or the GPU in the
 * program that weft_cuda_twin makes of the same source.  There the software driver of tests/cuda
 * stands for a GPU unless WEFT_TEST_CUDA=real, and the results bear names of their own: softcuda
 * or cuda, with "-threads" where ranks are threads.  It comes before the harness.
 *
 * The program of weft_nccl_twin has the same devices, but NCCL carries its collectives: the stand-in
 * of tests/nccl, with a device for each rank, or NCCL itself on one GPU.  There each rank needs an
 * NCCL_HOSTID before its first collective.  The results are those of softnccl or nccl.  With
 * WEFT_TEST_NCCL_MEMORY symmetric memory is in NCCL's windows too.
 *
 * The program of weft_nvshmem_twin has its symmetric memory from NVSHMEM: the stand-in of
 * tests/nvshmem, or with WEFT_TEST_NVSHMEM=real the library, and ranks that are processes.  A test
 * names DEVICE on all ranks, after it has joined the world: that starts NVSHMEM.
 */
#ifndef WEFT_TESTS_DEVICE_H
#define WEFT_TESTS_DEVICE_H

#include <weft/storage.h>

#include <stdbool.h>

#ifdef WEFT_TEST_ON_CUDA

#include "backends/cuda/device/device.h"
#include "cuda/model.h"
#include <weft/symm.h>

#include <stdlib.h>
#include <string.h>

#define HARNESS_LABEL device_label
static inline const char *device_label(const char *backend);
#include "harness_ranks.h"

#ifdef WEFT_TEST_ON_NVSHMEM
#define DEVICE_REAL "WEFT_TEST_NVSHMEM"
#else
#define DEVICE_REAL "WEFT_TEST_CUDA"
#endif

static inline bool device_is_real(void)
{
    const char *wanted = getenv(DEVICE_REAL);
    return wanted && !strcmp(wanted, "real");
}

/* Where each rank has a GPU of its own: scripts/gpu-check peers. */
static inline bool device_has_peers(void)
{
    return getenv("WEFT_TEST_PEERS") && device_is_real();
}

/* This rank's then. */
static inline weft_device device_of_peer(void)
{
    int count = 0;
    if (weft_i_cuda_count(&count) < 0 || count < harness_current->ranks)
        SKIP("there is no GPU for each rank");
    return WEFT_CUDA(harness_this_rank);
}

/* The device, with its symmetric memory from that backend from now on; one that is not there if that
 * cannot be, so that whatever is done with it fails. */
static inline weft_device device_with(weft_device device, const char *backend)
{
    static _Thread_local weft_device chosen, given;
    if (chosen != device) {
        chosen = device;
        given = weft_symm_set_backend(device, backend) < 0 ? WEFT_CUDA(63) : device;
    }
    return given;
}

static inline bool device_has(weft_device device, const char *backend)
{
    const char *name = weft_symm_backend(device);
    return name && !strcmp(name, backend);
}

#if defined WEFT_TEST_ON_NVSHMEM

#include "nvshmem/model.h"

#define DEVICE device_with(device_has_peers() ? device_of_peer() : WEFT_CUDA(0), "nvshmem")

static inline const char *device_label(const char *backend)
{
    (void)backend;
    return device_is_real() ? "nvshmem" : "softnvshmem";
}

static inline bool device_was_used(void)
{
    return device_has(WEFT_CUDA(0), "nvshmem");
}

static inline void device_install(void)
{
    setenv("WEFT_TEST_BACKENDS", "shm", 1); /* one rank in a process */
    weft_symm_allow_overlap(true);
    if (device_is_real())
        return;
    model_install();
    nvshmem_model.scattered = true; /* as the library maps more than two ranks */
    nvshmem_install();
}

#elif defined WEFT_TEST_ON_NCCL

#include "backends/nccl/comm.h"
#include "nccl/standin.h"

#include <stdio.h>

#ifdef WEFT_TEST_NCCL_MEMORY
/* Where ranks share a GPU there are no windows of several. */
#define DEVICE                                                                     \
    ({                                                                             \
        if (device_is_real() && !device_has_peers() && harness_current->ranks > 1) \
            SKIP("NCCL's windows want a GPU for each rank");                       \
        device_with(device_of(harness_this_rank), "nccl");                         \
    })
#else
#define DEVICE device_of(harness_this_rank)
#endif

static inline weft_device device_of(int rank)
{
    char id[16];
    if (!device_is_real())
        return WEFT_CUDA(rank);
    if (device_has_peers())
        return device_of_peer();
    snprintf(id, sizeof id, "rank-%d", rank);
    setenv("NCCL_HOSTID", id, 0);
    return WEFT_CUDA(0);
}

static inline const char *device_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    return device_is_real() ? "nccl" : threads ? "softnccl-threads" : "softnccl";
}

/* Was it NCCL that carried this process's collectives so far, or has its memory? */
#ifdef WEFT_TEST_NCCL_MEMORY
#define device_was_used() device_has(DEVICE, "nccl")
#else
static inline bool device_was_used(void)
{
    return weft_i_nccl_given() > 0;
}
#endif

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

#define DEVICE         device_of_mine()
#define DEVICE_SPREADS /* a rank can have a device of its own */

static _Thread_local weft_device device_mine = WEFT_CUDA(0);

static inline weft_device device_of_mine(void)
{
    return device_has_peers() ? device_of_peer() : device_mine;
}

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

/* All ranks share the one device, unless they spread. */
static inline void device_install(void)
{
    if (!device_is_real()) {
        model_install();
        model.devices = 4;
        model.multicast = 1;
    }
    weft_symm_allow_overlap(true);
}

#endif

/* From here on this rank has a device of its own, which multicast needs; NULL, or why it has not. */
static inline const char *device_spread(int rank, int size)
{
#ifdef DEVICE_SPREADS
    int count = 0;
    if (!weft_symm_has_multicast(WEFT_CUDA(0)))
        return "the device has no hardware multicast";
    if (weft_i_cuda_count(&count) < 0 || count < size)
        return "hardware multicast wants a GPU for each rank";
    device_mine = WEFT_CUDA(rank);
    return NULL;
#else
    (void)rank, (void)size;
    return "the device has no hardware multicast";
#endif
}

/* A software device of few threads, so that a launch costs little. */
static inline void device_shrink(void)
{
    model.multiprocessors = 1;
    model.threads_most = 3;
}

#else

#define DEVICE WEFT_CPU

/* CPUs emulate multicast. */
static inline const char *device_spread(int rank, int size)
{
    (void)rank, (void)size;
    return NULL;
}

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
