/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of CUDA tensors: a group's site, and requests that run there by kernels.  Requests
 * with several operands run one after the other; nothing of a call waits.
 */
#include "carrier.h"

#include "backends/cuda/device/stream.h"
#include "p2p.h"
#include "site.h"
#include "staged.h"

/* Two halves of 8 MiB: a place of 128 KiB for each of the blocks. */
static const weft_i_cuda_sizes sizes = {.stage_bytes = 8 << 20, .p2p = true};

weft_status weft_i_cuda_carrier_open(const weft_i_circle *circle, void **out)
{
    weft_i_cuda_site *site = NULL;
    weft_status status = weft_i_cuda_site_open(circle, &sizes, &site);
    *out = site;
    return status;
}

void weft_i_cuda_carrier_close(void *carrier)
{
    weft_i_cuda_site_close(carrier);
}

weft_status weft_i_cuda_carrier_check(void *carrier)
{
    return weft_i_cuda_team_check(weft_i_cuda_site_team(carrier));
}

/* The kind that each pair of operands is of; those of a list are plain calls. */
static weft_i_coll_kind kind_of_items(const weft_i_request *request)
{
    bool each = weft_i_kind_is(request->kind, WEFT_I_ITEMS_STAGED);
    return each ? weft_i_kinds[request->kind].as : request->kind;
}

/* A plain collective, with equal parts?  `kind` is that of its items. */
static bool is_plain(const weft_i_request *request, weft_i_coll_kind kind)
{
    return !request->in_splits && weft_i_kind_is(kind, WEFT_I_STAGED);
}

bool weft_i_cuda_carrier_takes(const weft_i_request *request)
{
    return is_plain(request, kind_of_items(request)) || request->messages ||
           weft_i_cuda_is_symmetric(request->kind);
}

/* The request for one pair of operands; one that is plain itself is that already. */
static weft_i_request request_of(const weft_i_request *request, const weft_i_operands *item)
{
    weft_i_request one = *request;
    one.kind = kind_of_items(request);
    one.items = NULL;
    one.items_count = 0;
    one.in = (char *)(uintptr_t)item->in;
    one.out = item->out;
    one.dtype = item->dtype;
    if (weft_i_kind_is(request->kind, WEFT_I_IS_LIST)) {
        size_t parts = weft_i_kind_is(one.kind, WEFT_I_HAS_PARTS) ? (size_t)request->size : 1;
        one.count = item->in_bytes / parts / weft_dtype_size(item->dtype);
        one.reduction = weft_i_kind_is(one.kind, WEFT_I_REDUCES) ? request->reduction : WEFT_SUM;
    }
    return one;
}

static weft_status stage_items(weft_i_cuda_team *team, const weft_i_request *request)
{
    for (size_t i = 0; i < request->items_count; i++) {
        weft_i_request one = request_of(request, &request->items[i]);
        WEFT_TRY(weft_i_cuda_stage(team, request->stream, &one));
    }
    return WEFT_OK;
}

weft_status weft_i_cuda_carrier_run(void *carrier, const weft_i_request *request)
{
    weft_i_cuda_team *team = weft_i_cuda_site_team(carrier);
    weft_i_cuda_device *device = weft_i_cuda_stream_device(request->stream);
    weft_i_coll_kind kind = kind_of_items(request);
    bool plain = is_plain(request, kind);
    if (!plain && !weft_i_cuda_carrier_takes(request))
        return WEFT_ERR_UNSUPPORTED;
    if (device != team->device)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: the operands are on cuda:%d; collectives of this group run on "
                           "cuda:%d, where this rank called the first",
                           request->op, device->ordinal, team->device->ordinal);
    if (request->messages)
        return weft_i_cuda_exchange(team, request);
    if (!plain)
        return weft_i_cuda_symmetric(team, request);
    if (weft_i_cuda_is_direct(request))
        return weft_i_cuda_direct(team, request);
    if (request->items_count != 1 || kind != request->kind)
        return stage_items(team, request);
    return weft_i_cuda_stage(team, request->stream, request);
}
