/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on symmetric memory of devices: from a request to the kernels that reach it. */
#include "backends/cuda/device/stream.h"
#include "kernels/fold/fold.h"
#include "site.h"
#include "staged.h"

bool weft_i_cuda_is_symmetric(weft_i_coll_kind kind)
{
    switch (kind) {
    case WEFT_I_ONE_SHOT_ALL_REDUCE:
    case WEFT_I_ONE_SHOT_ALL_REDUCE_COPY:
    case WEFT_I_TWO_SHOT_ALL_REDUCE:
    case WEFT_I_TWO_SHOT_ALL_REDUCE_OUT:
    case WEFT_I_REDUCE_SCATTER_OUT:
    case WEFT_I_MULTIMEM_ALL_REDUCE:
    case WEFT_I_MULTIMEM_ONE_SHOT_ALL_REDUCE:
    case WEFT_I_MULTIMEM_ONE_SHOT_REDUCE:
    case WEFT_I_MULTIMEM_ALL_GATHER:
    case WEFT_I_LOW_CONTENTION_ALL_GATHER_OUT:
    case WEFT_I_ALL_TO_ALL_VDEV:
    case WEFT_I_ALL_TO_ALL_VDEV_2D:
    case WEFT_I_ALL_TO_ALL_VDEV_2D_OFFSET:
    case WEFT_I_TILE_REDUCE:
    case WEFT_I_MULTI_ROOT_TILE_REDUCE:
        return true;
    default:
        return false;
    }
}

weft_status weft_i_cuda_reach_of(const weft_i_counterparts *of, weft_i_cuda_reach *out)
{
    weft_i_device_reach reach = {0};
    WEFT_TRY(of->memory->reach(of->joined, of->offset, &reach));
    *out = (weft_i_cuda_reach){reach.base, reach.step, reach.shifts};
    return WEFT_OK;
}

uint64_t weft_i_cuda_place_of(const weft_i_counterparts *of)
{
    return (uint64_t)of->serial << 40 ^ of->offset;
}

static weft_i_cuda_sum sum_of(const weft_i_request *request, weft_i_cuda_reach reach)
{
    return (weft_i_cuda_sum){.signature = weft_i_cuda_signature_of(request),
                             .dtype = request->dtype,
                             .op = (int)request->reduction,
                             .factor = request->factor,
                             .count = request->count,
                             .out = request->out,
                             .from = reach,
                             .place = weft_i_cuda_place_of(&request->in_counterparts),
                             .way = WEFT_I_CUDA_ONE_SHOT,
                             .limit_ms = request->limit_ms};
}

/* By rows of the last dimension, or as one row. */
static weft_status scatter(weft_i_cuda_team *team, const weft_i_request *request,
                           weft_i_cuda_sum *sum)
{
    sum->rows = request->row ? request->in_bytes / request->row : 1;
    sum->pitch = request->row;
    return weft_i_cuda_reduce_scatter(team, request->stream, sum);
}

/* By multicast where all members have it; else each rank writes to everybody's output. */
static weft_status gather(weft_i_cuda_team *team, const weft_i_request *request,
                          weft_i_cuda_reach reach)
{
    const weft_i_counterparts *of = &request->in_counterparts;
    const char *why_not;
    if (of->memory->multicast && of->memory->multicast(of->joined, &why_not))
        return weft_i_cuda_multimem(team, request, reach);
    weft_i_cuda_move move = {.signature = weft_i_cuda_signature_of(request),
                             .bytes = request->in_bytes,
                             .in = request->in,
                             .to = reach,
                             .place = weft_i_cuda_place_of(of),
                             .limit_ms = request->limit_ms};
    return weft_i_cuda_all_gather(team, request->stream, &move);
}

weft_status weft_i_cuda_symmetric(weft_i_cuda_team *team, const weft_i_request *request)
{
    if (request->vdev)
        return weft_i_cuda_vdev(team, request);
    if (request->tiles)
        return weft_i_cuda_tile(team, request);
    weft_i_cuda_reach reach;
    WEFT_TRY(weft_i_cuda_reach_of(&request->in_counterparts, &reach));
    if (reach.shifts)
        return weft_i_cuda_scattered(team, request, &reach);
    weft_i_cuda_sum sum = sum_of(request, reach);
    switch (request->kind) {
    case WEFT_I_ONE_SHOT_ALL_REDUCE_COPY:
        WEFT_TRY(weft_i_cuda_team_check(team)); /* else the buffer stays as it is */
        WEFT_TRY(weft_i_cuda_copy(request->stream, request->in, request->local,
                                  request->in == request->local ? 0 : request->in_bytes));
        return weft_i_cuda_all_reduce(team, request->stream, &sum);
    case WEFT_I_TWO_SHOT_ALL_REDUCE_OUT:
        if (request->out != request->in) /* in one shot: its own slice need not travel twice */
            return weft_i_cuda_all_reduce(team, request->stream, &sum);
        /* fall through */
    case WEFT_I_TWO_SHOT_ALL_REDUCE:
        sum.to = reach;
        sum.way = WEFT_I_CUDA_TWO_SHOT;
        return weft_i_cuda_all_reduce(team, request->stream, &sum);
    case WEFT_I_ONE_SHOT_ALL_REDUCE:
        return weft_i_cuda_all_reduce(team, request->stream, &sum);
    case WEFT_I_REDUCE_SCATTER_OUT:
        return scatter(team, request, &sum);
    case WEFT_I_LOW_CONTENTION_ALL_GATHER_OUT:
        return gather(team, request, reach);
    default:
        return weft_i_cuda_multimem(team, request, reach);
    }
}
