/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a request to NCCL's calls.  Several operands are one operation of NCCL (a group); kinds that
 * it has no call for, as an all_to_all of unequal parts, are sends and receives in one.
 */
#include "carrier.h"

#include "backends/cuda/device/stream.h"
#include "base/os/place.h"
#include "base/report/status.h"
#include "base/share/dtype.h"

/* ---- what NCCL has ---- */

/* Of reductions; -1: it has no such type, or one that rounds after each step.  What is common needs no
 * table, here and below: that would be a line more to fetch. */
WEFT_I_FAST static int type_of(weft_dtype dtype)
{
    if (dtype == WEFT_F32 || dtype == WEFT_BF16)
        return dtype == WEFT_F32 ? WEFT_I_ncclFloat32 : WEFT_I_ncclBfloat16;
    switch (dtype) {
    case WEFT_F64:
        return WEFT_I_ncclFloat64;
    case WEFT_F16:
        return WEFT_I_ncclFloat16;
    case WEFT_I8:
        return WEFT_I_ncclInt8;
    case WEFT_I32:
        return WEFT_I_ncclInt32;
    case WEFT_I64:
        return WEFT_I_ncclInt64;
    case WEFT_U8:
        return WEFT_I_ncclUint8;
    case WEFT_U32:
        return WEFT_I_ncclUint32;
    case WEFT_U64:
        return WEFT_I_ncclUint64;
    default:
        return -1;
    }
}

/* -1: weft promises what NCCL's does not give: NaN wins in MIN and MAX, averages of integers are cut
 * towards zero, factors are not rounded. */
WEFT_I_FAST static int operation_of(weft_reduction reduction, weft_dtype dtype)
{
    bool is_float = weft_i_dtype_is_float(dtype);
    if (reduction == WEFT_SUM)
        return WEFT_I_ncclSum;
    switch (reduction) {
    case WEFT_PRODUCT:
        return WEFT_I_ncclProd;
    case WEFT_MIN:
        return is_float ? -1 : WEFT_I_ncclMin;
    case WEFT_MAX:
        return is_float ? -1 : WEFT_I_ncclMax;
    case WEFT_AVG:
        return is_float ? WEFT_I_ncclAvg : -1;
    case WEFT_PREMUL_SUM: /* made for each call */
        return dtype == WEFT_F32 || dtype == WEFT_F64 ? WEFT_I_ncclSum : -1;
    default:
        return -1;
    }
}

WEFT_I_HOT bool weft_i_nccl_has(const weft_i_request *request)
{
    /* Not parts: ranks that disagree about a size would hang, so the host compares them. */
    if (!weft_i_kind_is(request->kind, WEFT_I_LIBRARY))
        return false;
    if (!weft_i_kind_is(request->kind, WEFT_I_REDUCES))
        return true;
    bool listed = weft_i_kind_is(request->kind, WEFT_I_IS_LIST) && request->items;
    for (size_t i = 0; i < (listed ? request->items_count : 1); i++) {
        weft_dtype dtype = listed ? request->items[i].dtype : request->dtype;
        if (type_of(dtype) < 0 || operation_of(request->reduction, dtype) < 0)
            return false;
    }
    return true;
}

/* ---- calls ---- */

/* One pair of operands of a request, and what is the same for all. */
typedef struct call {
    const weft_i_nccl *nccl;
    weft_i_nccl_comm *comm;
    weft_i_cu_stream stream;
    const weft_i_request *request; /* NULL on the fast path */
    weft_i_coll_kind kind;         /* of the pair alone */
    int root;
    const char *in;
    char *out;
    size_t count, bytes; /* of one part */
    int dtype, op;
} call;

WEFT_I_FAST static weft_i_nccl_result reduce(const call *c)
{
    switch (c->kind) {
    case WEFT_I_ALL_REDUCE:
        return c->nccl->ncclAllReduce(c->in, c->out, c->count, c->dtype, c->op, c->comm->raw,
                                      c->stream);
    case WEFT_I_REDUCE:
        return c->nccl->ncclReduce(c->in, c->out, c->count, c->dtype, c->op, c->root, c->comm->raw,
                                   c->stream);
    default:
        return c->nccl->ncclReduceScatter(c->in, c->out, c->count, c->dtype, c->op, c->comm->raw,
                                          c->stream);
    }
}

/* Factors differ by rank, so each has an operation of its own. */
WEFT_I_APART static weft_i_nccl_result reduce_scaled(call *c)
{
    double factor = c->request->factor;
    float small = (float)factor;
    weft_i_nccl_result made = c->nccl->ncclRedOpCreatePreMulSum(
        &c->op, c->dtype == WEFT_I_ncclFloat32 ? (void *)&small : (void *)&factor, c->dtype,
        WEFT_I_ncclScalarHostImmediate, c->comm->raw);
    if (made != WEFT_I_ncclSuccess)
        return made;
    weft_i_nccl_result result = reduce(c);
    made = c->nccl->ncclRedOpDestroy(c->op, c->comm->raw);
    return weft_i_nccl_is_fine(result) && made != WEFT_I_ncclSuccess ? made : result;
}

WEFT_I_APART static weft_i_nccl_result move(const call *c)
{
    const char *in = c->in ? c->in : c->out;
    char *out = c->out ? c->out : (char *)(uintptr_t)c->in;
    int root = c->root;
    switch (c->kind) {
    case WEFT_I_BROADCAST:
        return c->nccl->ncclBroadcast(in, out, c->bytes, WEFT_I_ncclUint8, root, c->comm->raw,
                                      c->stream);
    case WEFT_I_ALL_GATHER:
        return c->nccl->ncclAllGather(in, out, c->bytes, WEFT_I_ncclUint8, c->comm->raw, c->stream);
    case WEFT_I_GATHER:
        return c->nccl->ncclGather(in, c->out, c->bytes, WEFT_I_ncclUint8, root, c->comm->raw,
                                   c->stream);
    case WEFT_I_SCATTER:
        return c->nccl->ncclScatter(c->in, out, c->bytes, WEFT_I_ncclUint8, root, c->comm->raw,
                                    c->stream);
    default:
        return c->nccl->ncclAlltoAll(in, out, c->bytes, WEFT_I_ncclUint8, c->comm->raw, c->stream);
    }
}

/* The first error, or what the last call gave. */
static weft_i_nccl_result both(weft_i_nccl_result first, weft_i_nccl_result then)
{
    return weft_i_nccl_is_fine(first) ? then : first;
}

static weft_i_nccl_result exchange(const call *c, int peer, const char *in, size_t in_bytes,
                                   char *out, size_t out_bytes)
{
    weft_i_nccl_result result = WEFT_I_ncclSuccess;
    if (in_bytes)
        result = c->nccl->ncclSend(in, in_bytes, WEFT_I_ncclUint8, peer, c->comm->raw, c->stream);
    if (out_bytes)
        result = both(result, c->nccl->ncclRecv(out, out_bytes, WEFT_I_ncclUint8, peer,
                                                c->comm->raw, c->stream));
    return result;
}

/* Rows for each rank, one after the other. */
static weft_i_nccl_result exchange_splits(const call *c)
{
    const weft_i_request *request = c->request;
    const char *in = request->in;
    char *out = request->out;
    weft_i_nccl_result result = WEFT_I_ncclSuccess;
    for (int peer = 0; peer < request->size && weft_i_nccl_is_fine(result); peer++) {
        size_t gives = (size_t)request->in_splits[peer] * request->row;
        size_t takes = (size_t)request->out_splits[peer] * request->row;
        result = exchange(c, peer, in, gives, out, takes);
        in += gives;
        out += takes;
    }
    return result;
}

static call call_of(weft_i_nccl_comm *comm, const weft_i_request *request)
{
    weft_i_cuda_stream *stream = request->stream;
    return (call){.nccl = weft_i_nccl_library(),
                  .comm = comm,
                  .stream = stream->raw,
                  .request = request,
                  .kind = weft_i_kinds[request->kind].as,
                  .root = request->root};
}

WEFT_I_HOT static weft_i_nccl_result run_item(call *c, const weft_i_operands *item)
{
    size_t size = weft_i_dtype_size(item->dtype);
    bool parts = weft_i_kind_is(c->kind, WEFT_I_HAS_PARTS);
    c->in = item->in;
    c->out = item->out;
    c->count = weft_i_kind_is(c->request->kind, WEFT_I_IS_LIST)
                   ? item->in_bytes / (parts ? (size_t)c->request->size : 1) / size
                   : c->request->count;
    c->bytes = c->count * size;
    if (!c->count)
        return WEFT_I_ncclSuccess;
    if (!weft_i_kind_is(c->kind, WEFT_I_REDUCES))
        return move(c);
    c->dtype = type_of(item->dtype);
    c->op = operation_of(c->request->reduction, item->dtype);
    return c->request->reduction == WEFT_PREMUL_SUM ? reduce_scaled(c) : reduce(c);
}

/* A tensor for each rank, and one from each. */
static weft_i_nccl_result exchange_list(const call *c)
{
    const weft_i_request *request = c->request;
    weft_i_nccl_result result = WEFT_I_ncclSuccess;
    for (int peer = 0; peer < (int)request->items_count && weft_i_nccl_is_fine(result); peer++) {
        const weft_i_operands *item = &request->items[peer];
        result = exchange(c, peer, item->in, item->in_bytes, item->out, item->out_bytes);
    }
    return result;
}

static weft_i_nccl_result run_all(call *c)
{
    const weft_i_request *request = c->request;
    if (request->in_splits)
        return exchange_splits(c);
    if (request->kind == WEFT_I_ALL_TO_ALL_LIST)
        return exchange_list(c);
    weft_i_nccl_result result = WEFT_I_ncclSuccess;
    for (size_t i = 0; i < request->items_count && weft_i_nccl_is_fine(result); i++)
        result = run_item(c, &request->items[i]);
    return result;
}

/* Several calls are one operation; what began must end. */
WEFT_I_APART static weft_i_nccl_result run_grouped(call *c)
{
    weft_i_nccl_result result = c->nccl->ncclGroupStart();
    if (!weft_i_nccl_is_fine(result))
        return result;
    result = run_all(c);
    weft_i_nccl_result ended = c->nccl->ncclGroupEnd();
    return weft_i_nccl_is_fine(result) ? ended : result;
}

/* One call, or several as one operation. */
WEFT_I_HOT static weft_i_nccl_result run(call *c)
{
    const weft_i_request *request = c->request;
    bool alone =
        request->items_count == 1 && !request->in_splits && request->kind != WEFT_I_ALL_TO_ALL_LIST;
    return __builtin_expect(alone, 1) ? run_item(c, request->items) : run_grouped(c);
}

WEFT_I_HOT weft_status weft_i_nccl_run(weft_i_nccl_comm *comm, const weft_i_request *request)
{
    call c = call_of(comm, request);
    const weft_i_cuda_stream *stream = request->stream;
    if (stream->device != comm->device)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the operands are on cuda:%d; collectives of this group run on "
                           "cuda:%d, where this rank called the first",
                           request->op, stream->device->ordinal, comm->device->ordinal);
    WEFT_TRY(weft_i_nccl_comm_enter(comm, request->stream, request->op));
    return weft_i_nccl_comm_leave(comm, run(&c), request->limit_ms);
}

WEFT_I_FAST weft_status weft_i_nccl_start(weft_i_nccl_comm *comm, const weft_i_plain *plain,
                                          weft_i_nccl_result *result)
{
    const weft_i_cuda_stream *stream = plain->stream;
    bool reduces = plain->kind == WEFT_I_ALL_REDUCE || plain->kind == WEFT_I_REDUCE_SCATTER;
    call c = {.nccl = weft_i_nccl_library(),
              .comm = comm,
              .stream = stream->raw,
              .kind = plain->kind,
              .root = plain->root,
              .in = plain->in,
              .out = plain->out,
              .count = plain->count,
              .bytes = plain->count * weft_i_dtype_size(plain->dtype),
              .dtype = reduces ? type_of(plain->dtype) : 0,
              .op = reduces ? operation_of(plain->reduction, plain->dtype) : 0};
    if (c.dtype < 0 || c.op < 0 || (reduces && plain->reduction == WEFT_PREMUL_SUM))
        return WEFT_ERR_UNSUPPORTED;
    WEFT_TRY(weft_i_nccl_comm_take(comm, plain->stream, plain->op));
    *result = reduces ? reduce(&c) : move(&c);
    return WEFT_OK;
}
