/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symmetric memory in NCCL's windows: a rendezvous registers the blocks of all members, and their
 * pads, as two windows.  From there on the kernels and signals of backend cuda do everything.
 * Between several ranks untested on hardware: scripts/gpu-check peers.
 */
#include "symm.h"

#include "backends/cuda/device/nvlink.h"
#include "backends/cuda/ranks/symm.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "window.h"

typedef struct joined {
    weft_i_cuda_joined first;
    weft_i_nccl_comm *comm;
    weft_i_nccl_window_of *blocks, *pads;
} joined;

/* NCCL exchanges what peers need. */
weft_status weft_i_nccl_publish(weft_i_fdpass *fdpass, weft_i_segment *block)
{
    (void)fdpass;
    (void)block;
    return WEFT_OK;
}

static weft_status show(const weft_i_segment *block, weft_i_card *out)
{
    weft_i_cuda_card(weft_i_nccl_memory_device(block), out);
    return WEFT_OK;
}

/* Members meet once before anybody registers: all can, and those windows go that nobody uses. */
static weft_status prepare(const weft_i_circle *circle, weft_i_nccl_comm *comm, weft_status mine,
                           weft_i_nccl_idle *all)
{
    weft_i_nccl_idle shown = {.status = mine};
    weft_i_errors reason;
    weft_i_nccl_idle_show(comm, &shown);
    weft_i_errors_save(&reason);
    weft_status status = circle->exchange(circle, &shown, sizeof shown, all);
    if (mine < 0) {
        weft_i_errors_restore(&reason);
        return mine;
    }
    WEFT_TRY(status);
    for (int rank = 0; rank < circle->size; rank++)
        if (all[rank].status < 0)
            return weft_i_fail((weft_status)all[rank].status,
                               "group \"%s\": rank %d has no memory for pads (%s)", circle->name,
                               rank, weft_strerror((weft_status)all[rank].status));
    weft_i_nccl_idle_end(comm, all);
    return WEFT_OK;
}

static void keep(weft_i_segment *segment)
{
    (void)segment; /* the window has it */
}

/* What tensors of peers' memory stand on. */
static weft_status wrap_peers(const weft_i_circle *circle, const weft_i_joining *with,
                              weft_i_cuda_reach at)
{
    for (int rank = 0; rank < circle->size; rank++)
        if (rank != circle->rank)
            WEFT_TRY(weft_i_segment_wrap(at.base + (size_t)rank * at.step, with->bytes, -1, keep,
                                         NULL, &with->blocks[rank]));
    return WEFT_OK;
}

static weft_status map(const weft_i_circle *circle, const weft_i_joining *with,
                       const weft_i_cuda_sizes *sizes, weft_i_segment *pads, joined *out)
{
    weft_i_cuda_reach at = {0};
    WEFT_TRY(weft_i_nccl_window_new(circle, out->comm, with->blocks[circle->rank], &out->blocks));
    WEFT_TRY(weft_i_nccl_window_new(circle, out->comm, pads, &out->pads));
    WEFT_TRY(weft_i_nccl_window_reach(out->blocks, &out->first.blocks));
    WEFT_TRY(weft_i_nccl_window_reach(out->pads, &at));
    if (circle->size == 1) /* there is no step, but pads must fit it */
        at.step = pads->bytes;
    WEFT_TRY(wrap_peers(circle, with, out->first.blocks));
    weft_i_cuda_mapped mapped = {at.base, at.step, NULL, NULL};
    return weft_i_cuda_pads_over(circle, out->comm->device, with->cards, sizes, &mapped,
                                 &out->first.pads);
}

static weft_status join_all(const weft_i_circle *circle, const weft_i_joining *with, joined *out)
{
    weft_k_group layout = {0};
    weft_i_segment *pads = NULL;
    const weft_i_cuda_sizes sizes = {.lines = 1,
                                     .channels = (uint32_t)with->channels,
                                     .packet_units = 1,
                                     .stage_bytes = 16,
                                     .semaphore_bytes = with->pad_bytes};
    size_t bytes = weft_i_cuda_team_layout(circle->size, &sizes, &layout);
    weft_i_nccl_idle *all = WEFT_OS->alloc((size_t)circle->size * sizeof *all), mine = {0};
    weft_status status = weft_i_nccl_memory_allocate(circle->device, bytes, &pads);
    if (all) {
        status = prepare(circle, out->comm, status, all);
    } else {
        status =
            weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the windows of %d ranks", circle->size);
        mine.status = status;
        weft_i_circle_decline(circle, &mine, sizeof mine);
    }
    WEFT_OS->free(all);
    if (status == WEFT_OK)
        status = map(circle, with, &sizes, pads, out);
    weft_i_segment_drop(pads); /* its window has it */
    return status;
}

static weft_status join(const weft_i_circle *circle, const weft_i_joining *with, void **out)
{
    joined made = {0};
    weft_status status = weft_i_nccl_comm_open(circle, WEFT_I_NCCL_WINDOWS, &made.comm);
    joined *all = status == WEFT_OK ? WEFT_OS->alloc(sizeof *all) : NULL;
    if (status == WEFT_OK && !all) {
        weft_i_nccl_idle mine = {.status = WEFT_ERR_NO_MEMORY};
        weft_i_circle_decline(circle, &mine, sizeof mine);
        weft_i_nccl_comm_close(made.comm);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", circle->size);
    }
    WEFT_TRY(status);
    *all = made;
    all->first.group = weft_i_circle_key(circle);
    *out = all; /* also if it failed: windows go where all agree */
    return join_all(circle, with, all);
}

/* Nothing was published. */
static void settle(void *what)
{
    weft_i_cuda_pads_settle(&((joined *)what)->first.pads);
}

static void part(void *what)
{
    joined *all = what;
    weft_i_cuda_pads_close(&all->first.pads);
    weft_i_nccl_window_drop(all->blocks);
    weft_i_nccl_window_drop(all->pads);
    weft_i_nccl_comm_close(all->comm);
    WEFT_OS->free(all);
}

const weft_i_device_memory weft_i_nccl_device_memory = {
    .show = show,
    .compare = weft_i_cuda_compare,
    .join = join,
    .settle = settle,
    .part = part,
    .pad = weft_i_cuda_joined_pad,
    .signal = weft_i_cuda_joined_signal,
    .await = weft_i_cuda_joined_await,
    .reset = weft_i_cuda_joined_reset,
    .strided = true,
    .reach = weft_i_cuda_joined_reach,
    .put = weft_i_cuda_joined_put,
    .get = weft_i_cuda_joined_get,
    .write = weft_i_cuda_write_words,
    .has_multicast = weft_i_cuda_has_multicast,
    .connection = "nvlink",
    .count_links = weft_i_cuda_nvlink,
};
