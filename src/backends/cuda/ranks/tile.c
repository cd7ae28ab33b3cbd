/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction of tiles in symmetric memory of devices: from a request to its kernel. */
#include "kernels/fold/fold.h"
#include "site.h"
#include "staged.h"

/* Rows are what the outer dimension counts: elements should follow each other in a row. */
static void lay_out(const weft_i_tiles *tiles, size_t item, weft_k_tile *t)
{
    bool by_columns = tiles->in_stride[1] != item && tiles->in_stride[0] == item;
    for (int d = 0; d < 2; d++) {
        int from = by_columns ? 1 - d : d;
        t->length[d] = tiles->length[from];
        t->from_stride[d] = tiles->in_stride[from];
        t->out_stride[d] = tiles->out_stride[from];
    }
}

/* Can it be summed by words of 16 bytes? */
static bool is_aligned(const weft_k_tile *t, size_t item)
{
    /* Tables have steps of whole blocks, which begin at multiples of more than 16. */
    uint64_t bits = (uint64_t)(uintptr_t)t->call.from | (uint64_t)(uintptr_t)t->call.out |
                    t->call.from_step | t->from_stride[0] | t->out_stride[0] | t->length[1] * item;
    return t->from_stride[1] == item && t->out_stride[1] == item && (bits & 15) == 0;
}

static weft_i_cuda_kernel kernel_for(const weft_i_request *request, const weft_k_tile *t)
{
    bool sums = request->reduction == WEFT_SUM || request->reduction == WEFT_AVG;
    if (!sums || request->size < 2 || !is_aligned(t, request->item))
        return WEFT_I_CUDA_tile;
    switch (request->dtype) {
    case WEFT_F32:
        return WEFT_I_CUDA_tile_f32;
    case WEFT_BF16:
        return WEFT_I_CUDA_tile_bf16;
    case WEFT_F16:
        return WEFT_I_CUDA_tile_f16;
    default:
        return WEFT_I_CUDA_tile;
    }
}

/* The grid is the same on all ranks, whichever of the kernels they take. */
static int blocks_for(const weft_i_cuda_team *team, uint64_t elements, int threads)
{
    static const weft_i_cuda_kernel kernels[] = {WEFT_I_CUDA_tile, WEFT_I_CUDA_tile_f32,
                                                 WEFT_I_CUDA_tile_bf16, WEFT_I_CUDA_tile_f16};
    int least = 0;
    for (int i = 0; i < 4; i++) {
        int blocks = weft_i_cuda_blocks_for(team, kernels[i], (elements + 3) / 4, threads);
        least = i == 0 || blocks < least ? blocks : least;
    }
    return least;
}

weft_status weft_i_cuda_tile_launch(const weft_i_cuda_team *team, const weft_i_request *request,
                                    const weft_k_tile *t, uint64_t most)
{
    int threads = team->device->kernel_threads[WEFT_I_CUDA_tile];
    return weft_i_cuda_launch(request->stream, kernel_for(request, t),
                              blocks_for(team, most, threads), threads, t, true);
}

static weft_status launch(const weft_i_cuda_team *team, const weft_i_request *request)
{
    const weft_i_tiles *tiles = request->tiles;
    weft_k_tile t = {.call = weft_i_cuda_call_of(team, request)};
    if (tiles->mine.joined) {
        weft_i_cuda_reach reach;
        WEFT_TRY(weft_i_cuda_reach_of(&tiles->mine, &reach));
        t.call.from = reach.base;
        t.call.from_step = reach.step;
        t.call.from_shifts = reach.shifts;
        t.call.out = request->out;
        lay_out(tiles, request->item, &t);
    }
    return weft_i_cuda_tile_launch(team, request, &t, tiles->most);
}

weft_status weft_i_cuda_tile(weft_i_cuda_team *team, const weft_i_request *request)
{
    weft_i_cuda_front *front;
    WEFT_TRY(weft_i_cuda_team_meet(team, request->stream, &front));
    return weft_i_cuda_team_leave(front, request->stream, launch(team, request));
}
