/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of ordinary tensors on a device: from a request to the parts that go through the
 * stage.  Small all_reduces go as packets instead.
 */
#include "staged.h"

#include "base/share/dtype.h"
#include "kernels/fold/fold.h"
#include "weft/coll.h"

#include <stdio.h>

weft_i_cuda_signature weft_i_cuda_signature_of(const weft_i_request *request)
{
    return (weft_i_cuda_signature){(uint64_t)request->kind | (uint64_t)request->dtype << 8 |
                                       (uint64_t)request->reduction << 16 |
                                       (uint64_t)(uint32_t)request->root << 32 | (uint64_t)1 << 63,
                                   request->count};
}

char *weft_i_cuda_signature_text(weft_i_cuda_signature signature, char *out, size_t bytes)
{
    weft_i_coll_kind kind = (weft_i_coll_kind)(signature.what & 0xff);
    weft_reduction reduction = (weft_reduction)(signature.what >> 16 & 0xff);
    if (!(signature.what >> 63) || kind >= WEFT_I_COLL_KINDS) {
        snprintf(out, bytes, "something else");
        return out;
    }
    int used = snprintf(out, bytes, "%s of %llu %s", weft_i_coll_name(kind),
                        (unsigned long long)signature.count,
                        weft_dtype_name((weft_dtype)(signature.what >> 8 & 0xff)));
    size_t at = used < 0 ? 0 : (size_t)used < bytes ? (size_t)used : bytes;
    if (kind == WEFT_I_SEND || kind == WEFT_I_RECV) { /* see weft_i_cuda_exchange */
        snprintf(out + at, bytes - at, " %s rank %d, tag %d", kind == WEFT_I_SEND ? "to" : "from",
                 (int)(signature.what >> 25 & 0x7f), (int)(signature.what >> 32 & 0x7fffffff));
        return out;
    }
    const char *where = signature.what & WEFT_I_CUDA_SIGNATURE_DIRECT ? " in symmetric memory" : "";
    if (weft_i_kind_is(kind, WEFT_I_REDUCES))
        snprintf(out + at, bytes - at, ", %s%s", weft_reduction_name(reduction), where);
    else if (weft_i_kind_is(kind, WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT))
        snprintf(out + at, bytes - at, ", root %d%s", (int)(signature.what >> 32 & 0x7fffffff),
                 where);
    else
        snprintf(out + at, bytes - at, "%s", where);
    return out;
}

/* What does not depend on the kind. */
static weft_i_cuda_passage passage_of(const weft_i_request *request)
{
    size_t part = request->count * weft_i_dtype_size(request->dtype);
    return (weft_i_cuda_passage){
        .signature = weft_i_cuda_signature_of(request),
        .dtype = request->dtype,
        .op = weft_i_kind_is(request->kind, WEFT_I_REDUCES) ? (int)request->reduction : -1,
        .factor = request->factor,
        .count = request->count,
        .in = request->in,
        .in_step = part,
        .out = request->out,
        .out_step = part,
        .parts = weft_i_kind_is(request->kind, WEFT_I_HAS_PARTS) ? request->size : 1,
        .takes = weft_i_kind_is(request->kind, WEFT_I_HAS_PARTS) ? request->rank : 0,
        .limit_ms = request->limit_ms,
    };
}

/* Who gives, and who takes from whom: from the facts of the kind. */
static void deal_out(const weft_i_request *request, weft_i_cuda_passage *p)
{
    bool from_root = weft_i_kind_is(request->kind, WEFT_I_FROM_ROOT);
    bool to_root = weft_i_kind_is(request->kind, WEFT_I_TO_ROOT);
    bool is_root = request->rank == request->root;
    p->fills = from_root && !is_root ? 0 : p->parts;
    p->first = request->rank;
    p->peers = request->size;
    if (from_root) {
        p->first = request->root;
        p->peers = 1;
        p->out_step = 0;
        p->out = request->out;
    }
    if ((to_root && !is_root) || (from_root && is_root && p->parts == 1)) {
        p->out = NULL; /* the root of a broadcast has it */
        p->peers = 0;
    }
}

/* By packets, which need both operands where all_reduce has them anyway. */
static weft_status send_packets(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                const weft_i_request *request, bool *fit)
{
    weft_i_cuda_sum sum = {.signature = weft_i_cuda_signature_of(request),
                           .dtype = request->dtype,
                           .op = (int)request->reduction,
                           .count = request->count,
                           .in = request->in,
                           .out = request->out,
                           .way = WEFT_I_CUDA_PACKETS,
                           .limit_ms = request->limit_ms};
    return weft_i_cuda_packets(team, stream, &sum, fit);
}

weft_status weft_i_cuda_stage(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                              const weft_i_request *request)
{
    size_t bytes = request->count * weft_i_dtype_size(request->dtype);
    bool sums = request->kind == WEFT_I_ALL_REDUCE;
    if (sums && bytes && bytes <= request->packets_up_to) {
        bool fit = false;
        weft_status status = send_packets(team, stream, request, &fit);
        if (fit)
            return status;
    }
    weft_i_cuda_passage passage = passage_of(request);
    deal_out(request, &passage);
    passage.two_shot = sums && bytes > request->one_shot_up_to;
    return weft_i_cuda_pass(team, stream, &passage);
}
