/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of NCCL that most programs make, by their names, on weft.  In place of <nccl.h>:
 *
 *     #include <weft/shim/nccl.h>
 *
 * Buffers are memory of the CPU.  A call returns when it is done and takes a stream only to be
 * called with it; between ncclGroupStart and ncclGroupEnd calls are posted, and the end waits for
 * all of them.  ncclGetUniqueId makes a store on this host, to which the ranks come that have the
 * id: a communicator spans one host.  docs/from-nccl.md says what else differs.
 */
#ifndef WEFT_SHIM_NCCL_H
#define WEFT_SHIM_NCCL_H

#include "weft/comm.h"
#include "weft/scope.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef NCCL_MAJOR
#error "weft/shim/nccl.h stands in the place of nccl.h; include one of them"
#endif
#define NCCL_MAJOR             2
#define NCCL_UNIQUE_ID_BYTES   128
#define WEFT_SHIM_NCCL_PENDING 256

typedef weft_group *ncclComm_t;
typedef void *cudaStream_t; /* cast yours, or pass NULL */

typedef struct ncclUniqueId {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

// clang-format off
typedef enum ncclResult_t {
    ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument,
    ncclInvalidUsage, ncclRemoteError, ncclInProgress, ncclNumResults
} ncclResult_t;

typedef enum ncclDataType_t {
    ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32,
    ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2, ncclNumTypes, ncclChar = ncclInt8,
    ncclInt = ncclInt32, ncclHalf = ncclFloat16, ncclFloat = ncclFloat32, ncclDouble = ncclFloat64
} ncclDataType_t;
// clang-format on

typedef enum ncclRedOp_t { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps } ncclRedOp_t;

/* What the calling thread has posted since ncclGroupStart; one in the program. */
struct weft_shim_nccl {
    int depth, works, ops;
    ncclResult_t failed;
    weft_work *work[WEFT_SHIM_NCCL_PENDING];
    weft_p2p_op op[WEFT_SHIM_NCCL_PENDING];
};
__attribute__((weak)) __thread struct weft_shim_nccl weft_shim_nccl_here;
/* Where ranks with the newest id meet; the process that made it serves it. */
__attribute__((weak)) weft_store *weft_shim_nccl_store;
__attribute__((weak)) int weft_shim_nccl_ids; /* how many were made */

static inline ncclResult_t weft_shim_nccl_result(weft_status status)
{
    if (status >= 0)
        return ncclSuccess;
    if (status == WEFT_ERR_INVALID_ARG || status == WEFT_ERR_TYPE)
        return ncclInvalidArgument;
    if (status == WEFT_ERR_STATE || status == WEFT_ERR_UNSUPPORTED)
        return ncclInvalidUsage;
    if (weft_status_scope(status) == WEFT_SCOPE_GROUP ||
        weft_status_scope(status) == WEFT_SCOPE_START)
        return ncclRemoteError;
    return weft_status_scope(status) == WEFT_SCOPE_BUG ? ncclInternalError : ncclSystemError;
}

/* WEFT_DTYPE_COUNT and WEFT_REDUCTIONS, which no call accepts, for what is none. */
static inline weft_dtype weft_shim_nccl_dtype(ncclDataType_t type)
{
    static const weft_dtype of[] = {WEFT_I8,  WEFT_U8,   WEFT_I32,    WEFT_U32,
                                    WEFT_I64, WEFT_U64,  WEFT_F16,    WEFT_F32,
                                    WEFT_F64, WEFT_BF16, WEFT_F8E4M3, WEFT_F8E5M2};
    return WEFT_CAST(unsigned, type) < ncclNumTypes ? of[type] : WEFT_DTYPE_COUNT;
}

static inline weft_reduction weft_shim_nccl_op(ncclRedOp_t op)
{
    static const weft_reduction of[] = {WEFT_SUM, WEFT_PRODUCT, WEFT_MAX, WEFT_MIN, WEFT_AVG};
    return WEFT_CAST(unsigned, op) < ncclNumOps ? of[op] : WEFT_REDUCTIONS;
}

static inline weft_tensor *weft_shim_nccl_over(const void *data, size_t count, ncclDataType_t type)
{
    union {
        const void *given;
        void *data;
    } memory = {data};
    return weft_tensor_wrap(weft_shim_nccl_dtype(type), WEFT_CPU, WEFT_SHAPE(count), memory.data,
                            NULL, NULL);
}

/* The tensors over the operands of a call belong to a scope, which weft_shim_nccl_post closes. */
static inline void weft_shim_nccl_begin(cudaStream_t stream)
{
    (void)stream;
    weft_scope_open();
}

/* A call was posted: waits for it now, inside a group at the end of that. */
static inline ncclResult_t weft_shim_nccl_post(weft_work *work)
{
    struct weft_shim_nccl *here = &weft_shim_nccl_here;
    ncclResult_t result = work ? ncclSuccess : weft_shim_nccl_result(weft_last_status());
    if (work && here->depth && here->works < WEFT_SHIM_NCCL_PENDING)
        here->work[here->works++] = WEFT_CAST(weft_work *, weft_keep(work));
    else if (work)
        result = weft_shim_nccl_result(weft_work_wait(work, WEFT_DEFAULT));
    if (result != ncclSuccess && here->depth && here->failed == ncclSuccess)
        here->failed = result;
    weft_scope_close();
    return result;
}

static inline const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "the operation is in progress"};
    return WEFT_CAST(unsigned, result) < ncclNumResults ? text[result] : "unknown result code";
}

static inline const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return weft_last_error();
}

static inline ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "weft-nccl-%d-%d", WEFT_CAST(int, getpid()),
             weft_shim_nccl_ids++);
    weft_store *store = weft_store_unix_serve(id->internal);
    if (!store)
        return weft_shim_nccl_result(weft_last_status());
    weft_release(weft_shim_nccl_store);
    weft_shim_nccl_store = WEFT_CAST(weft_store *, weft_keep(store));
    return ncclSuccess;
}

static inline ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    weft_init_opts opts = WEFT_INIT_OPTS;
    id.internal[NCCL_UNIQUE_ID_BYTES - 1] = 0;
    opts.store = weft_store_unix_connect(id.internal, 60000);
    opts.rank = rank;
    opts.world_size = ranks;
    *comm = opts.store ? weft_init(&opts) : NULL;
    return *comm ? ncclSuccess : weft_shim_nccl_result(weft_last_status());
}

static inline ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return weft_finish(comm) ? ncclSystemError : ncclSuccess;
}

static inline ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = weft_size(comm);
    return comm ? ncclSuccess : ncclInvalidArgument;
}

static inline ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = weft_rank(comm);
    return comm ? ncclSuccess : ncclInvalidArgument;
}

static inline ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                                         ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                         cudaStream_t stream)
{
    weft_shim_nccl_begin(stream);
    return weft_shim_nccl_post(weft_all_reduce_start(weft_shim_nccl_over(out, count, type),
                                                     weft_shim_nccl_over(in, count, type),
                                                     weft_shim_nccl_op(op), comm));
}

static inline ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                                      ncclRedOp_t op, int root, ncclComm_t comm,
                                      cudaStream_t stream)
{
    weft_shim_nccl_begin(stream);
    weft_tensor *result = weft_rank(comm) == root ? weft_shim_nccl_over(out, count, type) : NULL;
    return weft_shim_nccl_post(weft_reduce_start(result, weft_shim_nccl_over(in, count, type),
                                                 weft_shim_nccl_op(op), root, comm));
}

static inline ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                                         ncclDataType_t type, int root, ncclComm_t comm,
                                         cudaStream_t stream)
{
    weft_shim_nccl_begin(stream);
    if (weft_rank(comm) == root && in != out && count)
        memcpy(out, in, count * weft_dtype_size(weft_shim_nccl_dtype(type)));
    return weft_shim_nccl_post(
        weft_broadcast_start(weft_shim_nccl_over(out, count, type), root, comm));
}

static inline ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                                         ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    weft_shim_nccl_begin(stream);
    size_t all = count * WEFT_CAST(size_t, comm ? weft_size(comm) : 0);
    return weft_shim_nccl_post(weft_all_gather_start(weft_shim_nccl_over(out, all, type),
                                                     weft_shim_nccl_over(in, count, type), comm));
}

static inline ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                                             ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                             cudaStream_t stream)
{
    weft_shim_nccl_begin(stream);
    size_t all = count * WEFT_CAST(size_t, comm ? weft_size(comm) : 0);
    return weft_shim_nccl_post(weft_reduce_scatter_start(weft_shim_nccl_over(out, count, type),
                                                         weft_shim_nccl_over(in, all, type),
                                                         weft_shim_nccl_op(op), comm));
}

/* Messages of a group go as one batch at its end, so that no order of them can deadlock. */
static inline ncclResult_t weft_shim_nccl_message(weft_p2p_kind kind, const void *data,
                                                  size_t count, ncclDataType_t type, int peer,
                                                  ncclComm_t comm)
{
    struct weft_shim_nccl *here = &weft_shim_nccl_here;
    weft_tensor *x = weft_shim_nccl_over(data, count, type);
    weft_p2p_op op = {kind, x, peer, 0, comm};
    if (!here->depth || !x || !comm || here->ops == WEFT_SHIM_NCCL_PENDING)
        return weft_shim_nccl_post(x ? weft_batch_start(&op, 1) : NULL);
    weft_keep(x);
    here->op[here->ops++] = op;
    weft_scope_close();
    return ncclSuccess;
}

static inline ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                                    ncclComm_t comm, cudaStream_t stream)
{
    weft_shim_nccl_begin(stream);
    return weft_shim_nccl_message(WEFT_P2P_SEND, data, count, type, peer, comm);
}

static inline ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                                    ncclComm_t comm, cudaStream_t stream)
{
    weft_shim_nccl_begin(stream);
    return weft_shim_nccl_message(WEFT_P2P_RECV, data, count, type, peer, comm);
}

static inline ncclResult_t ncclGroupStart(void)
{
    if (!weft_shim_nccl_here.depth++)
        weft_shim_nccl_here.failed = ncclSuccess;
    return ncclSuccess;
}

static inline ncclResult_t ncclGroupEnd(void)
{
    struct weft_shim_nccl *here = &weft_shim_nccl_here;
    if (!here->depth)
        return ncclInvalidUsage;
    if (here->depth > 1) {
        here->depth--;
        return ncclSuccess;
    }
    if (here->ops && here->failed == ncclSuccess) {
        weft_shim_nccl_begin(NULL);
        weft_shim_nccl_post(weft_batch_start(here->op, here->ops));
    }
    here->depth = 0;
    for (int i = 0; i < here->works; i++) {
        ncclResult_t result = weft_shim_nccl_result(weft_work_wait(here->work[i], WEFT_DEFAULT));
        here->failed = here->failed == ncclSuccess ? result : here->failed;
        weft_release(here->work[i]);
    }
    for (int i = 0; i < here->ops; i++)
        weft_release(here->op[i].x);
    here->works = here->ops = 0;
    return here->failed;
}

#endif
