/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on symmetric memory of devices: from a request to the kernels that reach it. */
#include "kernels/fold.h"
#include "site.h"
#include "staged.h"
#include "stream.h"

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
        return true;
    default:
        return false;
    }
}

/* What only hardware multicast does as it is named is refused: the other forms give the same. */
static weft_status refuse_multimem(const weft_i_cuda_team *team, const weft_i_request *request)
{
    return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s: %s; the one_shot and two_shot forms do the same",
                       request->op,
                       team->device->multicast ? "weft has no kernels for hardware multicast yet"
                                               : "the device has no hardware multicast");
}

static weft_i_cuda_sum sum_of(const weft_i_request *request, weft_i_cuda_reach reach)
{
    return (weft_i_cuda_sum){.card = weft_i_cuda_label_of(request),
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

weft_status weft_i_cuda_symmetric(weft_i_cuda_team *team, const weft_i_request *request)
{
    weft_i_cuda_reach reach = weft_i_cuda_reach_of(&request->in_counterparts);
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
    default:
        return refuse_multimem(team, request);
    }
}
