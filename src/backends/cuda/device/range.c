/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges: see range.h. */
#include "range.h"

#include "base/os/os.h"
#include "retire.h"

static void end(void *what)
{
    weft_i_cuda_span *span = what;
    weft_i_cuda_span_release(span);
    WEFT_OS->free(span);
}

static void release(weft_i_segment *segment)
{
    weft_i_cuda_retire(end, segment->owner);
}

static weft_status make(const weft_i_circle *circle, weft_i_cuda_device *device, size_t bytes,
                        weft_i_segment **out)
{
    weft_i_cuda_span *span = WEFT_OS->alloc(sizeof *span);
    if (!span)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the addresses of %d ranks",
                           circle->size);
    weft_status status = weft_i_cuda_span_new(device, circle->size, bytes, span);
    if (status == WEFT_OK)
        status =
            weft_i_segment_wrap(NULL, span->stride * (size_t)circle->size, -1, release, span, out);
    if (status < 0)
        end(span);
    return status;
}

/* The first thread rank makes it, the others get it from there. */
static weft_status share(const weft_i_circle *circle, weft_i_cuda_device *device, size_t bytes,
                         weft_i_cuda_range *out)
{
    if (circle->rank != 0 && !weft_i_circle_is_fake(circle)) {
        weft_i_fdpass_order order = weft_i_circle_order(circle, 0, out->key, 0);
        return weft_i_circle_fetched(circle, 0, weft_i_fdpass_fetch(&order, &out->shared));
    }
    weft_status made = make(circle, device, bytes, &out->shared);
    out->fdpass = weft_i_circle_server(circle);
    weft_status published = weft_i_fdpass_publish(out->fdpass, out->key, out->shared, made);
    return made < 0 ? made : published;
}

static weft_status map(const weft_i_circle *circle, weft_i_segment *const *blocks, bool all,
                       weft_i_cuda_range *range)
{
    for (int rank = 0; rank < circle->size; rank++) {
        if (!all && blocks[rank] != blocks[circle->rank])
            continue; /* its owner maps it */
        WEFT_TRY(
            weft_i_cuda_span_map(range->span, rank, weft_i_cuda_memory_of(blocks[rank])->handle));
        if (!blocks[rank]->base)
            blocks[rank]->base = weft_i_cuda_span_of(range->span, rank);
    }
    return WEFT_OK;
}

weft_status weft_i_cuda_range_open(const weft_i_circle *circle, weft_i_cuda_device *device,
                                   weft_i_key key, weft_i_segment *const *blocks,
                                   weft_i_cuda_range *out)
{
    *out = (weft_i_cuda_range){.key = weft_i_key_of(key, "range", 5)};
    size_t bytes = weft_i_cuda_memory_of(blocks[circle->rank])->span.stride;
    bool threads = weft_i_cuda_is_among_threads(weft_i_circle_server(circle));
    weft_status status =
        threads ? share(circle, device, bytes, out) : make(circle, device, bytes, &out->shared);
    if (status == WEFT_OK) {
        out->span = out->shared->owner;
        status = map(circle, blocks, !threads, out);
    }
    return status;
}

void weft_i_cuda_range_refuse(const weft_i_circle *circle, weft_i_key key, weft_status why,
                              weft_i_cuda_range *out)
{
    weft_i_fdpass *server = weft_i_circle_server(circle);
    if (out->shared || out->fdpass || circle->rank != 0 || !weft_i_cuda_is_among_threads(server))
        return; /* it has said so already, or nobody asks */
    out->key = weft_i_key_of(key, "range", 5);
    if (weft_i_fdpass_publish(server, out->key, NULL, why) == WEFT_OK)
        out->fdpass = server;
}

void weft_i_cuda_range_settle(weft_i_cuda_range *range)
{
    if (range->fdpass)
        weft_i_fdpass_withdraw(range->fdpass, range->key);
    range->fdpass = NULL;
}

void weft_i_cuda_range_close(weft_i_cuda_range *range)
{
    weft_i_cuda_range_settle(range);
    weft_i_segment_drop(range->shared);
    *range = (weft_i_cuda_range){0};
}
