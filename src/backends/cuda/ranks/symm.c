/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symmetric memory on CUDA devices: what a rendezvous joins, and its signals.  The blocks of all
 * members are mapped at one stride, and so are the pads of this (block, group), which lie in
 * memory of their own.
 */
#include "symm.h"
#include "backends/cuda/device/nvlink.h"

#include "backends/cuda/device/multicast.h"
#include "backends/cuda/device/stream.h"
#include "base/os/os.h"
#include "pads.h"
#include "site.h"
#include "tensor/object/device.h"

#include <stdio.h>
#include <string.h>

typedef struct joined {
    weft_i_cuda_joined first;
    weft_i_cuda_range range;          /* of the blocks */
    weft_i_cuda_multicast *multicast; /* NULL: there is none, because ... */
    char why_not[WEFT_I_CUDA_WHY_BYTES];
} joined;

static weft_status show(const weft_i_segment *block, weft_i_card *out)
{
    weft_i_cuda_card(weft_i_cuda_memory_of(block)->device, out);
    return WEFT_OK;
}

/* Keys of the pads: all know them from the blocks' and the group's. */
static weft_i_key *make_keys(const weft_i_circle *circle, const weft_i_joining *with)
{
    weft_i_key group = weft_i_circle_key(circle);
    weft_i_key *keys = WEFT_OS->alloc((size_t)circle->size * sizeof *keys);
    for (int rank = 0; keys && rank < circle->size; rank++)
        keys[rank] = weft_i_key_of(with->keys[rank], &group, sizeof group);
    return keys;
}

static weft_status fetch_blocks(const weft_i_circle *circle, weft_i_cuda_device *device,
                                const weft_i_joining *with)
{
    for (int rank = 0; rank < circle->size; rank++) {
        if (rank == circle->rank)
            continue;
        weft_i_fdpass_order order =
            weft_i_circle_order(circle, rank, with->keys[rank], with->bytes);
        WEFT_TRY(weft_i_circle_fetched(
            circle, rank, weft_i_cuda_memory_import(device, &order, &with->blocks[rank])));
    }
    return WEFT_OK;
}

static weft_status join_all(const weft_i_circle *circle, const weft_i_joining *with,
                            const weft_i_key *keys, joined *out)
{
    weft_i_cuda_device *device = weft_i_cuda_memory_of(with->blocks[circle->rank])->device;
    const weft_i_cuda_sizes sizes = {.lines = 1,
                                     .channels = (uint32_t)with->channels,
                                     .packet_units = 1,
                                     .stage_bytes = 16,
                                     .semaphore_bytes = with->pad_bytes};
    weft_i_key key = weft_i_key_of(keys[0], "blocks", 6);
    weft_status status =
        weft_i_cuda_pads_open(circle, device, keys, with->cards, &sizes, &out->first.pads);
    if (status == WEFT_OK)
        status = fetch_blocks(circle, device, with);
    if (status == WEFT_OK) {
        WEFT_TRY(weft_i_cuda_range_open(circle, device, key, with->blocks, &out->range));
        const weft_i_cuda_span *span = out->range.span;
        out->first.blocks = (weft_i_cuda_reach){weft_i_cuda_span_of(span, 0), span->stride, NULL};
        return WEFT_OK;
    }
    weft_i_cuda_range_refuse(circle, key, status, &out->range);
    return status;
}

static void settle(void *what)
{
    joined *all = what;
    weft_i_cuda_pads_settle(&all->first.pads);
    weft_i_cuda_range_settle(&all->range);
}

static void part(void *what)
{
    joined *all = what;
    weft_i_cuda_multicast_close(all->multicast);
    weft_i_cuda_pads_close(&all->first.pads);
    weft_i_cuda_range_close(&all->range);
    WEFT_OS->free(all);
}

/* Also by whoever has failed before: the others are told there.  The first reason stays. */
static weft_status join_multicast(const weft_i_circle *circle, const weft_i_joining *with,
                                  const weft_i_key *keys, weft_status before, joined *all)
{
    weft_i_cuda_multicast *multicast = NULL;
    weft_i_errors reason;
    char why_not[WEFT_I_CUDA_WHY_BYTES] = "";
    weft_i_errors_save(&reason);
    weft_status status = weft_i_cuda_multicast_open(circle, with->blocks[circle->rank], with->cards,
                                                    keys ? keys[0] : (weft_i_key){{0, 0}}, before,
                                                    &multicast, why_not);
    if (all) {
        all->multicast = multicast;
        memcpy(all->why_not, why_not, sizeof why_not);
    }
    if (before < 0)
        weft_i_errors_restore(&reason);
    return before < 0 ? before : status;
}

static weft_status join(const weft_i_circle *circle, const weft_i_joining *with, void **out)
{
    joined *all = WEFT_OS->alloc(sizeof *all);
    weft_i_key *keys = make_keys(circle, with);
    weft_status status = WEFT_OK;
    if (!all || !keys)
        status =
            weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", circle->size);
    if (status == WEFT_OK) {
        all->first.group = weft_i_circle_key(circle);
        status = join_all(circle, with, keys, all);
    }
    status = join_multicast(circle, with, keys, status, all);
    WEFT_OS->free(keys);
    *out = all; /* also if it failed: what was published is withdrawn when all know */
    return status;
}

char *weft_i_cuda_joined_pad(const void *what, int rank)
{
    const weft_i_cuda_team *team = &((const weft_i_cuda_joined *)what)->pads.team;
    return weft_i_cuda_team_pad(team, rank) + team->group.semaphores_at;
}

weft_status weft_i_cuda_joined_signal(void *what, void *stream, weft_i_signal_kind kind, int rank,
                                      int channel, int64_t limit_ms)
{
    weft_i_cuda_team *team = &((weft_i_cuda_joined *)what)->pads.team;
    switch (kind) {
    case WEFT_I_SIGNAL_BARRIER:
        return weft_i_cuda_barrier(team, stream, channel, limit_ms);
    case WEFT_I_SIGNAL_PUT:
        return weft_i_cuda_put_signal(team, stream, rank, channel, limit_ms);
    default:
        return weft_i_cuda_wait_signal(team, stream, rank, channel, limit_ms);
    }
}

weft_status weft_i_cuda_joined_await(void *what, int64_t limit_ms)
{
    weft_i_cuda_joined *all = what;
    WEFT_TRY(weft_i_cuda_team_await(&all->pads.team, limit_ms));
    return weft_i_cuda_site_await_all(all->group, all->pads.team.group.rank, limit_ms);
}

weft_status weft_i_cuda_joined_reset(void *what)
{
    weft_i_cuda_joined *all = what;
    int rank = all->pads.team.group.rank;
    WEFT_TRY(weft_i_cuda_pads_reset(&all->pads));
    return weft_i_cuda_site_reset_all(all->group, rank);
}

weft_status weft_i_cuda_write_words(void *on, uint32_t *words, uint32_t value, size_t count,
                                    bool ordered)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cuda_stream *stream = on;
    weft_i_cu_ptr at = (weft_i_cu_ptr)(uintptr_t)words;
    WEFT_TRY(weft_i_cuda_use(stream->device));
    if (ordered)
        WEFT_CUDA_TRY(cu->cuStreamWriteValue32(stream->raw, at, value, 0),
                      "writing a word on cuda:%d", stream->device->ordinal);
    else
        WEFT_CUDA_TRY(cu->cuMemsetD32Async(at, value, count, stream->raw),
                      "writing %zu words on cuda:%d", count, stream->device->ordinal);
    return WEFT_OK;
}

bool weft_i_cuda_has_multicast(weft_device device, char *reason, size_t bytes)
{
    weft_i_cuda_device *opened;
    if (weft_i_cuda_open(weft_i_device_index(device), &opened) < 0) {
        snprintf(reason, bytes, "%s", weft_last_error());
        return false;
    }
    return weft_i_cuda_multicast_usable(opened, reason, bytes);
}

static char *multicast_of(const void *what, const char **why_not)
{
    const joined *all = what;
    *why_not = all->multicast ? NULL : all->why_not;
    return all->multicast ? weft_i_cuda_multicast_base(all->multicast) : NULL;
}

weft_status weft_i_cuda_joined_reach(const void *what, size_t offset, weft_i_device_reach *out)
{
    weft_i_cuda_reach blocks = ((const weft_i_cuda_joined *)what)->blocks;
    *out = (weft_i_device_reach){blocks.base + offset, blocks.step, NULL};
    return WEFT_OK;
}

static char *place_of(const weft_i_cuda_joined *all, int rank, size_t offset)
{
    return all->blocks.base + (size_t)rank * all->blocks.step + offset;
}

weft_status weft_i_cuda_joined_put(void *what, void *stream, int rank, size_t offset,
                                   const void *from, size_t bytes, int channel, int64_t limit_ms)
{
    weft_i_cuda_joined *all = what;
    weft_i_cuda_front *none;
    WEFT_TRY(weft_i_cuda_team_enter(&all->pads.team, stream, WEFT_I_CUDA_ALONE, 0, 0, &none));
    WEFT_TRY(weft_i_cuda_copy(stream, place_of(all, rank, offset), from, bytes));
    return channel < 0 ? WEFT_OK
                       : weft_i_cuda_put_signal(&all->pads.team, stream, rank, channel, limit_ms);
}

weft_status weft_i_cuda_joined_get(void *what, void *stream, int rank, size_t offset, void *to,
                                   size_t bytes)
{
    weft_i_cuda_joined *all = what;
    weft_i_cuda_front *none;
    WEFT_TRY(weft_i_cuda_team_enter(&all->pads.team, stream, WEFT_I_CUDA_ALONE, 0, 0, &none));
    return weft_i_cuda_copy(stream, to, place_of(all, rank, offset), bytes);
}

static bool is_near(const void *what)
{
    const weft_i_cuda_team *team = &((const weft_i_cuda_joined *)what)->pads.team;
    return team->sharing == team->group.size;
}

const weft_i_device_memory weft_i_cuda_device_memory = {
    .show = show,
    .compare = weft_i_cuda_compare,
    .join = join,
    .settle = settle,
    .part = part,
    .pad = weft_i_cuda_joined_pad,
    .signal = weft_i_cuda_joined_signal,
    .await = weft_i_cuda_joined_await,
    .reset = weft_i_cuda_joined_reset,
    .is_near = is_near,
    .strided = true,
    .reach = weft_i_cuda_joined_reach,
    .put = weft_i_cuda_joined_put,
    .get = weft_i_cuda_joined_get,
    .write = weft_i_cuda_write_words,
    .has_multicast = weft_i_cuda_has_multicast,
    .multicast = multicast_of,
    .connection = "nvlink",
    .count_links = weft_i_cuda_nvlink,
};
