/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums in symmetric memory that is not mapped at one stride, as NVSHMEM's is: it maps each peer where
 * it finds room.  The kernels of sums know strides alone, which saves them registers.  Those of tiles
 * read a table, so here every sum is the reduction of a tile, of which each rank is the root:
 *
 *     all_reduce       everything, as one row
 *     reduce_scatter   this rank's part: one row, or its columns of each row
 *
 * A sum in place goes by way of memory of this call.  The kernel ends when all ranks have read, and
 * what is behind it on the stream may overwrite the operand.
 */
#include "backends/cuda/device/stream.h"
#include "base/share/signal.h"
#include "site.h"
#include "staged.h"

/* Ranks whose operands lie at different offsets find that out as they meet. */
static weft_k_tile tile_of(const weft_i_cuda_team *team, const weft_i_request *request,
                           const weft_i_cuda_reach *reach)
{
    weft_i_request placed = *request;
    placed.digest = weft_i_digest(request->digest, weft_i_cuda_place_of(&request->in_counterparts));
    weft_k_tile t = {.call = weft_i_cuda_call_of(team, &placed),
                     .length = {1, request->count},
                     .from_stride = {0, request->item},
                     .out_stride = {0, request->item}};
    t.call.from = reach->base;
    t.call.from_shifts = reach->shifts;
    t.call.out = request->out;
    return t;
}

/* Rows of the operand lie `request->row` bytes apart, and this rank has a part of each. */
static weft_status scatter(const weft_i_cuda_team *team, const weft_i_request *request,
                           const weft_i_cuda_reach *reach)
{
    weft_k_tile t = tile_of(team, request, reach);
    size_t rows = request->row ? request->in_bytes / request->row : 1;
    size_t part = rows ? request->count * request->item / rows : 0;
    t.length[0] = rows;
    t.length[1] = part / request->item;
    t.from_stride[0] = request->row;
    t.out_stride[0] = part;
    t.call.from += (size_t)request->rank * part;
    return weft_i_cuda_tile_launch(team, request, &t, request->count);
}

static weft_status reduce(const weft_i_cuda_team *team, const weft_i_request *request,
                          const weft_i_cuda_reach *reach)
{
    weft_k_tile t = tile_of(team, request, reach);
    return weft_i_cuda_tile_launch(team, request, &t, request->count);
}

static weft_status reduce_in_place(const weft_i_cuda_team *team, const weft_i_request *request,
                                   const weft_i_cuda_reach *reach)
{
    size_t bytes = request->count * request->item;
    weft_i_cu_ptr memory;
    WEFT_TRY(weft_i_cuda_alloc(request->stream, bytes, &memory));
    weft_k_tile t = tile_of(team, request, reach);
    t.call.out = (char *)(uintptr_t)memory;
    weft_status status = weft_i_cuda_tile_launch(team, request, &t, request->count);
    if (status >= 0)
        status = weft_i_cuda_copy(request->stream, request->in, t.call.out, bytes);
    weft_status freed = weft_i_cuda_free(request->stream, memory, bytes, NULL);
    return status < 0 ? status : freed;
}

/* The operand is copied to its place first, unless it lies there. */
static weft_status copy_and_reduce(const weft_i_cuda_team *team, const weft_i_request *request,
                                   const weft_i_cuda_reach *reach)
{
    if (request->in != request->local)
        WEFT_TRY(weft_i_cuda_copy(request->stream, request->in, request->local, request->in_bytes));
    return reduce(team, request, reach);
}

static weft_status run(const weft_i_cuda_team *team, const weft_i_request *request,
                       const weft_i_cuda_reach *reach)
{
    switch (request->kind) {
    case WEFT_I_ONE_SHOT_ALL_REDUCE_COPY:
        return copy_and_reduce(team, request, reach);
    case WEFT_I_TWO_SHOT_ALL_REDUCE:
        return reduce_in_place(team, request, reach);
    case WEFT_I_TWO_SHOT_ALL_REDUCE_OUT:
        return request->out == request->in ? reduce_in_place(team, request, reach)
                                           : reduce(team, request, reach);
    case WEFT_I_REDUCE_SCATTER_OUT:
        return scatter(team, request, reach);
    default:
        return reduce(team, request, reach);
    }
}

weft_status weft_i_cuda_scattered(weft_i_cuda_team *team, const weft_i_request *request,
                                  const weft_i_cuda_reach *reach)
{
    weft_i_cuda_front *front;
    switch (request->kind) {
    case WEFT_I_ONE_SHOT_ALL_REDUCE:
    case WEFT_I_ONE_SHOT_ALL_REDUCE_COPY:
    case WEFT_I_TWO_SHOT_ALL_REDUCE:
    case WEFT_I_TWO_SHOT_ALL_REDUCE_OUT:
    case WEFT_I_REDUCE_SCATTER_OUT:
        WEFT_TRY(weft_i_cuda_team_meet(team, request->stream, &front));
        return weft_i_cuda_team_leave(front, request->stream, run(team, request, reach));
    default:
        return weft_i_cuda_multimem(team, request, *reach);
    }
}
