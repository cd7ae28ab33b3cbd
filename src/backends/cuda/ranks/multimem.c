/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives by multicast: from a request to its kernel.  They do as they are named or not at all:
 * where the memory has no multicast they are refused on all ranks alike, with the reason that the
 * rendezvous kept.  Untested on hardware: scripts/gpu-check peers.
 */
#include "backends/cuda/device/stream.h"
#include "staged.h"

/* The switch is what limits them, and it wants few requesters: as many threads as eight blocks of
 * 1024.  Not measured, for want of a machine with several GPUs. */
enum { BLOCKS_MOST = 16, UNITS_OF_A_THREAD = 4 };

static weft_status find_multicast(const weft_i_request *request, char **out)
{
    const weft_i_counterparts *of = &request->in_counterparts;
    const char *why_not = "this memory has no multicast";
    char *base = of->memory->multicast ? of->memory->multicast(of->joined, &why_not) : NULL;
    if (!base)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s: no hardware multicast, %s; the one_shot and two_shot forms and "
                           "all_gather do the same without",
                           request->op, why_not);
    *out = base + of->offset;
    return WEFT_OK;
}

/* What the switch can add. */
static weft_status check_sum(const weft_i_request *request)
{
    bool added =
        request->dtype == WEFT_F32 || request->dtype == WEFT_BF16 || request->dtype == WEFT_F16;
    if (added && request->reduction == WEFT_SUM)
        return WEFT_OK;
    return weft_i_fail(
        WEFT_ERR_UNSUPPORTED,
        "%s: multicast adds f32, bf16 and f16, and has no %s of %s; the one_shot and "
        "two_shot forms have",
        request->op, weft_reduction_name(request->reduction), weft_dtype_name(request->dtype));
}

static weft_i_cuda_kernel kernel_for(const weft_i_request *request)
{
    bool two = request->kind == WEFT_I_MULTIMEM_ALL_REDUCE;
    switch (request->dtype) {
    case WEFT_F32:
        return two ? WEFT_I_CUDA_multimem_f32 : WEFT_I_CUDA_multimem_one_f32;
    case WEFT_BF16:
        return two ? WEFT_I_CUDA_multimem_bf16 : WEFT_I_CUDA_multimem_one_bf16;
    default:
        return two ? WEFT_I_CUDA_multimem_f16 : WEFT_I_CUDA_multimem_one_f16;
    }
}

/* The same grid on all ranks: their operands lie at one offset, and have one size. */
static weft_status launch(const weft_i_cuda_team *team, const weft_i_request *request,
                          weft_i_cuda_kernel kernel, uint64_t bytes, const weft_k_call *call)
{
    int threads = team->device->kernel_threads[kernel];
    uint64_t units = bytes / 16 / UNITS_OF_A_THREAD + 1;
    int blocks = weft_i_cuda_blocks_for(team, kernel, units, threads);
    return weft_i_cuda_launch(request->stream, kernel, blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST,
                              threads, call, true);
}

static weft_status gather(const weft_i_cuda_team *team, const weft_i_request *request,
                          weft_k_call *call)
{
    uint64_t at = (uint64_t)request->rank * request->in_bytes;
    call->count = request->in_bytes;
    call->in = request->in;
    call->to += at;
    call->from += at;
    return launch(team, request, WEFT_I_CUDA_multimem_gather, call->count, call);
}

static weft_status run(weft_i_cuda_team *team, const weft_i_request *request,
                       weft_i_cuda_reach reach, char *multicast)
{
    bool gathers = request->kind == WEFT_I_MULTIMEM_ALL_GATHER ||
                   request->kind == WEFT_I_LOW_CONTENTION_ALL_GATHER_OUT;
    if (!gathers)
        WEFT_TRY(check_sum(request));
    weft_k_call call = weft_i_cuda_call_of(team, request);
    call.from = reach.base;
    call.from_step = reach.step;
    call.to = multicast;
    if (gathers)
        return gather(team, request, &call);
    call.count = request->count;
    call.out = request->kind == WEFT_I_MULTIMEM_ALL_REDUCE ? NULL : request->out;
    uint64_t bytes = request->count * request->item;
    uint64_t own =
        request->kind == WEFT_I_MULTIMEM_ALL_REDUCE ? bytes / (uint64_t)request->size : bytes;
    return launch(team, request, kernel_for(request), own, &call);
}

weft_status weft_i_cuda_multimem(weft_i_cuda_team *team, const weft_i_request *request,
                                 weft_i_cuda_reach reach)
{
    char *multicast = NULL;
    weft_i_cuda_front *front;
    WEFT_TRY(find_multicast(request, &multicast));
    WEFT_TRY(weft_i_cuda_team_meet(team, request->stream, &front));
    return weft_i_cuda_team_leave(front, request->stream, run(team, request, reach, multicast));
}
