/* SPDX-License-Identifier: Apache-2.0 */
/* all_to_all with sizes in symmetric memory of devices: from a request to its kernel. */
#include "site.h"
#include "staged.h"

/* Words of scratch memory that a block needs: see weft_k_lay_out_parts. */
static uint64_t scratch_of(const weft_i_cuda_team *team, const weft_i_vdev *ex)
{
    uint64_t size = (uint64_t)team->group.size, entries = size * (uint64_t)ex->experts;
    return size * entries * (ex->by_expert ? 2 : 1) + 3 * size + 3 * entries;
}

/*
 * The grid follows from what all ranks know before any has seen the sizes: the bytes that the input
 * can have at most.  Every block needs scratch memory, and all of it lies in the stage.
 */
static weft_status plan(const weft_i_cuda_team *team, const weft_i_vdev *ex, weft_k_vdev *v,
                        int *threads, int *blocks)
{
    uint64_t room = 2 * team->group.stage_bytes, words = scratch_of(team, ex);
    v->scratch = (8 * words + 127) / 128 * 128;
    if (v->scratch > room)
        return weft_i_fail(WEFT_ERR_LIMIT,
                           "%s: tables of %d experts for each of %d ranks are too large",
                           weft_i_coll_name(ex->kind), ex->experts, team->group.size);
    *threads = team->device->kernel_threads[WEFT_I_CUDA_vdev];
    *blocks = weft_i_cuda_blocks_for(team, WEFT_I_CUDA_vdev, (ex->most_bytes + 63) / 64, *threads);
    *blocks = (uint64_t)*blocks * v->scratch > room ? (int)(room / v->scratch) : *blocks;
    return WEFT_OK;
}

static weft_status launch(weft_i_cuda_team *team, const weft_i_request *request)
{
    const weft_i_vdev *ex = request->vdev;
    int threads = 0, blocks = 0;
    weft_k_vdev v = {.call = weft_i_cuda_call_of(team, request),
                     .table = ex->table,
                     .in_rows = ex->in_rows,
                     .out_rows = ex->out_rows,
                     .align = ex->align,
                     .experts = ex->experts,
                     .by_expert = ex->by_expert};
    weft_i_cuda_reach in, splits;
    WEFT_TRY(weft_i_cuda_reach_of(&request->in_counterparts, &in));
    WEFT_TRY(weft_i_cuda_reach_of(&ex->splits, &splits));
    WEFT_TRY(plan(team, ex, &v, &threads, &blocks));
    v.call.from = in.base;
    v.call.from_step = in.step;
    v.call.from_shifts = in.shifts;
    v.call.count = request->row;
    v.call.out = request->out;
    v.splits = splits.base;
    v.splits_step = splits.step;
    v.splits_shifts = splits.shifts;
    return weft_i_cuda_launch(request->stream, WEFT_I_CUDA_vdev, blocks, threads, &v, true);
}

weft_status weft_i_cuda_vdev(weft_i_cuda_team *team, const weft_i_request *request)
{
    weft_i_cuda_front *front;
    WEFT_TRY(weft_i_cuda_team_meet(team, request->stream, &front));
    return weft_i_cuda_team_leave(front, request->stream, launch(team, request));
}
