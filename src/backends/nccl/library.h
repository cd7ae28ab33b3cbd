/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL as weft sees it: what we declare of its interface, and how the library is loaded.  Nothing
 * of it is needed to build.  tests/nccl/test_nccl_abi.c compares all of this with nccl.h where there is
 * one.
 */
#ifndef WEFT_NCCL_LIBRARY_H
#define WEFT_NCCL_LIBRARY_H

#include "backends/cuda/device/driver.h"
#include "weft/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int weft_i_nccl_result;
typedef struct weft_i_nccl_raw_ *weft_i_nccl_raw;       /* ncclComm_t */
typedef struct weft_i_nccl_window_ *weft_i_nccl_window; /* ncclWindow_t: an address of the device */

enum { WEFT_I_NCCL_ID_BYTES = 128 };
typedef struct weft_i_nccl_id {
    char bytes[WEFT_I_NCCL_ID_BYTES];
} weft_i_nccl_id;

/* As NCCL 2.28 has it.  Its size and version tell a later library how much of it there is. */
typedef struct weft_i_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, least_blocks, most_blocks;
    const char *network;
    int split_share, traffic_class;
    const char *name;
    int collnet, policy, shrink_share, nvls_blocks, channels_per_peer, nvlink_centric;
} weft_i_nccl_config;

/* The beginning of what a window's address points to, in memory of the device; the same since 2.28.
 */
typedef struct weft_i_nccl_window_head {
    void *host;
    char *flat; /* the window of the first rank that is reached by load and store */
    int lsa_rank, world_rank;
    uint32_t stride_4g; /* from rank to rank, in units of 4 GiB */
} weft_i_nccl_window_head;

// clang-format off
#define WEFT_I_NCCL_CONSTANTS(X_)        \
    X_(ncclSuccess, 0)                   \
    X_(ncclUnhandledCudaError, 1)        \
    X_(ncclSystemError, 2)               \
    X_(ncclInternalError, 3)             \
    X_(ncclInvalidArgument, 4)           \
    X_(ncclInvalidUsage, 5)              \
    X_(ncclRemoteError, 6)               \
    X_(ncclInProgress, 7)                \
    X_(ncclSum, 0)                       \
    X_(ncclProd, 1)                      \
    X_(ncclMax, 2)                       \
    X_(ncclMin, 3)                       \
    X_(ncclAvg, 4)                       \
    X_(ncclInt8, 0)                      \
    X_(ncclUint8, 1)                     \
    X_(ncclInt32, 2)                     \
    X_(ncclUint32, 3)                    \
    X_(ncclInt64, 4)                     \
    X_(ncclUint64, 5)                    \
    X_(ncclFloat16, 6)                   \
    X_(ncclFloat32, 7)                   \
    X_(ncclFloat64, 8)                   \
    X_(ncclBfloat16, 9)                  \
    X_(ncclScalarHostImmediate, 1)       \
    X_(NCCL_WIN_COLL_SYMMETRIC, 1)       \
    X_(NCCL_WIN_REQUIRED_ALIGNMENT, 4096)
// clang-format on

enum {
#define CONSTANT(name_, value_) WEFT_I_##name_ = value_,
    WEFT_I_NCCL_CONSTANTS(CONSTANT)
#undef CONSTANT
};

#define WEFT_I_NCCL_MAGIC 0xcafebeefu
#define WEFT_I_NCCL_UNDEF INT_MIN /* of a number in the config */

/* 2.28: the first with all that is not optional.  Nothing is known of what begins with a 3. */
enum { WEFT_I_NCCL_OLDEST = 22800, WEFT_I_NCCL_BEYOND = 30000 };

typedef struct weft_i_nccl {
#define FN(name_, parameters_)       weft_i_nccl_result(*name_) parameters_;
#define OPTIONAL(name_, parameters_) weft_i_nccl_result(*name_) parameters_;
#include "library.def"
#undef FN
#undef OPTIONAL
    const char *(*ncclGetErrorString)(weft_i_nccl_result result);
    const char *(*ncclGetLastError)(weft_i_nccl_raw comm);
    int version; /* 22809 for 2.28.9 */
} weft_i_nccl;

/*
 * Loads the library that WEFT_NCCL_LIBRARY names and finds every function; starts nothing.
 * WEFT_ERR_UNSUPPORTED with the reason: WEFT_NCCL is off, no library, a version that will not do, a
 * missing function.
 */
weft_status weft_i_nccl_load(const weft_i_nccl **out);

/* WEFT_NCCL=always */
bool weft_i_nccl_is_always(void);

/* After weft_i_nccl_load has succeeded once. */
const weft_i_nccl *weft_i_nccl_library(void);

/* "2.28.9" */
const char *weft_i_nccl_version_text(int version, char *out, size_t bytes);

/*
 * Turns a result of NCCL into a status with a message: what was tried, NCCL's sentence for the
 * result, and its last error, which says more.  `comm` may be NULL.
 */
weft_status weft_i_nccl_fail(weft_i_nccl_result result, weft_i_nccl_raw comm, const char *format,
                             ...) __attribute__((format(printf, 3, 4)));
weft_status weft_i_nccl_status_of(weft_i_nccl_result result);

/* A call of a non-blocking communicator that is under way has not failed. */
static inline bool weft_i_nccl_is_fine(weft_i_nccl_result result)
{
    return result == WEFT_I_ncclSuccess || result == WEFT_I_ncclInProgress;
}

/* Forgets the library, so that the next load looks again.  For tests. */
void weft_i_nccl_forget(void);

#endif
