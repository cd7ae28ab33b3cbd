/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain collectives without the stage, where the operand that others reach is symmetric memory.
 * Whether it is must be the same on all ranks, and so must its place: both are in the digest, and
 * in what a mismatch shows.
 */
#include "backends/cuda/device/stream.h"
#include "base/share/dtype.h"
#include "kernels/fold/fold.h"
#include "site.h"
#include "staged.h"

/* In one shot every rank reads everybody's operand; in two it needs everybody's result as well. */
static bool reduces_directly(const weft_i_request *request)
{
    size_t bytes = request->count * weft_i_dtype_size(request->dtype);
    if (!request->in_counterparts.joined || bytes <= request->packets_up_to)
        return false;
    return request->out_counterparts.joined || bytes <= request->one_shot_up_to;
}

bool weft_i_cuda_is_direct(const weft_i_request *request)
{
    bool joined = request->in_counterparts.joined || request->out_counterparts.joined;
    if (!joined || request->in_splits || !request->count)
        return false;
    switch (request->kind) {
    case WEFT_I_ALL_REDUCE:
        return reduces_directly(request);
    case WEFT_I_REDUCE_SCATTER:
    case WEFT_I_BROADCAST:
        return request->in_counterparts.joined;
    case WEFT_I_ALL_GATHER:
    case WEFT_I_ALL_TO_ALL:
    case WEFT_I_ALL_TO_ALL_ND:
        return request->out_counterparts.joined;
    default:
        return false;
    }
}

static weft_status reduce(weft_i_cuda_team *team, const weft_i_request *request,
                          weft_i_cuda_signature signature)
{
    size_t bytes = request->count * weft_i_dtype_size(request->dtype);
    bool two = request->kind == WEFT_I_ALL_REDUCE && bytes > request->one_shot_up_to;
    /* What is in place cannot be read by others while one shot writes it. */
    two |= request->kind == WEFT_I_ALL_REDUCE && request->in == request->out;
    weft_i_cuda_sum sum = {.signature = signature,
                           .dtype = request->dtype,
                           .op = (int)request->reduction,
                           .factor = request->factor,
                           .count = request->count,
                           .out = request->out,
                           .place = weft_i_cuda_place_of(&request->in_counterparts),
                           .way = two ? WEFT_I_CUDA_TWO_SHOT : WEFT_I_CUDA_ONE_SHOT,
                           .limit_ms = request->limit_ms};
    WEFT_TRY(weft_i_cuda_reach_of(&request->in_counterparts, &sum.from));
    if (request->kind == WEFT_I_REDUCE_SCATTER)
        return weft_i_cuda_reduce_scatter(team, request->stream, &sum);
    if (two) {
        WEFT_TRY(weft_i_cuda_reach_of(&request->out_counterparts, &sum.to));
        sum.place += 31 * weft_i_cuda_place_of(&request->out_counterparts);
    }
    return weft_i_cuda_all_reduce(team, request->stream, &sum);
}

/* Each rank writes its parts to everybody's output, or reads the root's. */
static weft_status move(weft_i_cuda_team *team, const weft_i_request *request,
                        weft_i_cuda_signature signature)
{
    bool pulls = request->kind == WEFT_I_BROADCAST;
    const weft_i_counterparts *of = pulls ? &request->in_counterparts : &request->out_counterparts;
    weft_i_cuda_move move = {.signature = signature,
                             .bytes = request->count * weft_i_dtype_size(request->dtype),
                             .place = weft_i_cuda_place_of(of),
                             .limit_ms = request->limit_ms};
    WEFT_TRY(weft_i_cuda_reach_of(of, pulls ? &move.from : &move.to));
    if (pulls) {
        move.out = request->out;
        move.root = request->root;
        return weft_i_cuda_broadcast(team, request->stream, &move);
    }
    move.in = request->in;
    return request->kind == WEFT_I_ALL_GATHER
               ? weft_i_cuda_all_gather(team, request->stream, &move)
               : weft_i_cuda_all_to_all(team, request->stream, &move);
}

weft_status weft_i_cuda_direct(weft_i_cuda_team *team, const weft_i_request *request)
{
    weft_i_cuda_signature signature = weft_i_cuda_signature_of(request);
    signature.what |= WEFT_I_CUDA_SIGNATURE_DIRECT;
    return weft_i_kind_is(request->kind, WEFT_I_REDUCES) ? reduce(team, request, signature)
                                                         : move(team, request, signature);
}
