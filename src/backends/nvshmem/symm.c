/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symmetric memory of NVSHMEM: what a rendezvous joins.  Where every member has addresses of all
 * the others' memory, weft's own kernels signal there, with deadlines and news of lost ranks as on
 * backend cuda: at one stride, or by a table in the slot.  Where one has not, all signal by calls of
 * NVSHMEM (remote.h).
 */
#include "symm.h"

#include "backends/cuda/device/nvlink.h"
#include "backends/cuda/device/stream.h"
#include "backends/cuda/ranks/pads.h"
#include "backends/cuda/ranks/site.h"
#include "backends/cuda/ranks/symm.h"
#include "base/os/os.h"
#include "block.h"
#include "remote.h"
#include "start.h"

#include <string.h>

enum { PE, SERIAL, SLOT }; /* what a card shows besides */

typedef struct joined {
    weft_i_nvshmem_block *block;
    weft_i_key group;
    int rank, size;
    size_t slot_at;                /* in the block */
    weft_i_cuda_pads pads;         /* where all members have addresses of all */
    weft_i_nvshmem_remote *remote; /* otherwise */
    bool strided;                  /* the blocks lie at one stride */
    char *first;                   /* the first member's block */
    int64_t *shifts;               /* of every member's from that; with pads */
    int *pes;
} joined;

static weft_status show(const weft_i_segment *segment, weft_i_card *out)
{
    weft_i_nvshmem_block *block = weft_i_nvshmem_block_of(segment);
    weft_i_cuda_card(block->device, out);
    out->own[PE] = (uint32_t)weft_i_nvshmem_pe();
    out->own[SERIAL] = block->serial;
    out->own[SLOT] = atomic_load_explicit(&block->next, memory_order_relaxed);
    return WEFT_OK;
}

static uint32_t slot_of(const weft_i_circle *circle, const weft_i_card *cards)
{
    uint32_t slot = 0;
    for (int rank = 0; rank < circle->size; rank++)
        slot = cards[rank].own[SLOT] > slot ? cards[rank].own[SLOT] : slot;
    return slot;
}

static weft_status compare(const weft_i_circle *circle, const weft_i_card *cards)
{
    WEFT_TRY(weft_i_cuda_compare(circle, cards));
    for (int rank = 1; rank < circle->size; rank++)
        if (cards[rank].own[SERIAL] != cards[0].own[SERIAL])
            return weft_i_fail(WEFT_ERR_MISMATCH,
                               "rendezvous in group \"%s\": rank 0 brings block %u of NVSHMEM, "
                               "rank %d block %u; they must be of one allocation",
                               circle->name, cards[0].own[SERIAL], rank, cards[rank].own[SERIAL]);
    if (slot_of(circle, cards) >= WEFT_I_NVSHMEM_SLOTS)
        return weft_i_fail(WEFT_ERR_LIMIT,
                           "rendezvous in group \"%s\": a block of NVSHMEM has pads for %d groups, "
                           "and this one has met in as many; allocate another",
                           circle->name, WEFT_I_NVSHMEM_SLOTS);
    if (circle->size > WEFT_K_RANKS_MOST)
        return weft_i_fail(WEFT_ERR_LIMIT, "rendezvous in group \"%s\": %d ranks are the most",
                           circle->name, WEFT_K_RANKS_MOST);
    return WEFT_OK;
}

/* ---- joining ---- */

/* A member's block is its own affair: nothing goes with what stands for it here. */
static void release_nothing(weft_i_segment *segment)
{
    (void)segment;
}

/* Addresses of all members' blocks; some may have none. */
static weft_status find_blocks(const weft_i_joining *with, const joined *all, char *const *at)
{
    for (int rank = 0; rank < all->size; rank++)
        if (rank != all->rank)
            WEFT_TRY(weft_i_segment_wrap(at[rank], with->bytes, -1, release_nothing, NULL,
                                         &with->blocks[rank]));
    return WEFT_OK;
}

/* Which addresses a member has for the blocks: not for all; for all; for all, and at one step, which
 * may be negative. */
enum { SOME_APART = 0, REACHED, STRIDED };

static int look_at(char *const *at, int size)
{
    uintptr_t step = size > 1 ? (uintptr_t)at[1] - (uintptr_t)at[0] : 1;
    bool strided = true;
    for (int rank = 0; rank < size; rank++) {
        if (!at[rank])
            return SOME_APART;
        strided &= (uintptr_t)at[rank] == (uintptr_t)at[0] + (uintptr_t)rank * step;
    }
    return strided ? STRIDED : REACHED;
}

/* The least of what all see: kernels that need one step run on all members or on none. */
static weft_status agree_on_reach(const weft_i_circle *circle, char *const *at, int *out)
{
    int32_t mine = look_at(at, circle->size), all[WEFT_K_RANKS_MOST];
    WEFT_TRY(circle->exchange(circle, &mine, sizeof mine, all));
    *out = STRIDED;
    for (int rank = 0; rank < circle->size; rank++)
        *out = all[rank] < *out ? all[rank] : *out;
    return WEFT_OK;
}

static size_t table_bytes(int size)
{
    size_t bytes = (size_t)size * sizeof(int64_t);
    return (bytes + WEFT_I_NVSHMEM_LINE - 1) / WEFT_I_NVSHMEM_LINE * WEFT_I_NVSHMEM_LINE;
}

static weft_status upload(weft_i_cuda_device *device, void *to, const void *from, size_t bytes)
{
    weft_i_cuda_stream *stream = NULL;
    WEFT_TRY(weft_i_cuda_stream_new(device, false, &stream));
    weft_status status = weft_i_cuda_copy(stream, to, from, bytes);
    weft_status released = weft_i_cuda_stream_release(stream);
    return status != WEFT_OK ? status : released;
}

static weft_status open_pads(const weft_i_circle *circle, const weft_i_joining *with,
                             char *const *at, joined *all)
{
    const weft_i_nvshmem_block *block = all->block;
    size_t size = (size_t)circle->size;
    size_t table_at = all->slot_at, pad_at = all->slot_at + table_bytes(circle->size);
    weft_i_cuda_sizes sizes = weft_i_nvshmem_sizes(circle->size, with->pad_bytes, with->channels);
    all->shifts = WEFT_OS->alloc(size * sizeof *all->shifts);
    if (!all->shifts)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", circle->size);
    for (int rank = 0; rank < circle->size; rank++)
        all->shifts[rank] = (int64_t)((uintptr_t)at[rank] - (uintptr_t)at[0]);
    all->first = at[0];
    weft_i_cuda_mapped mapped = {
        all->first + pad_at, all->strided && circle->size > 1 ? (size_t)all->shifts[1] : SIZE_MAX,
        all->shifts, (const int64_t *)(void *)(block->base + table_at)};
    if (all->strided)
        mapped.shifts = mapped.shifts_there = NULL;
    else
        WEFT_TRY(
            upload(block->device, block->base + table_at, all->shifts, size * sizeof *all->shifts));
    return weft_i_cuda_pads_over(circle, block->device, with->cards, &sizes, &mapped, &all->pads);
}

static weft_status join_all(const weft_i_circle *circle, const weft_i_joining *with, joined *all)
{
    const weft_i_nvshmem *nv = weft_i_nvshmem_functions();
    char *at[WEFT_K_RANKS_MOST];
    int reach = SOME_APART;
    for (int rank = 0; rank < circle->size; rank++)
        at[rank] = rank == circle->rank
                       ? all->block->base
                       : nv->nvshmem_ptr(all->block->base, (int)with->cards[rank].own[PE]);
    WEFT_TRY(agree_on_reach(circle, at, &reach));
    all->pes = WEFT_OS->alloc((size_t)circle->size * sizeof *all->pes);
    if (!all->pes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", circle->size);
    for (int rank = 0; rank < circle->size; rank++)
        all->pes[rank] = (int)with->cards[rank].own[PE];
    WEFT_TRY(find_blocks(with, all, at));
    all->strided = reach == STRIDED;
    if (reach > SOME_APART)
        return open_pads(circle, with, at, all);
    return weft_i_nvshmem_remote_open(circle, all->block->device, all->block->base + all->slot_at,
                                      with->channels, all->pes, &all->remote);
}

static weft_status join(const weft_i_circle *circle, const weft_i_joining *with, void **out)
{
    weft_i_circle named = *circle;
    named.what = "rendezvous of NVSHMEM";
    joined *all = WEFT_OS->alloc(sizeof *all);
    if (!all) {
        int32_t mine = -1;
        weft_i_circle_decline(&named, &mine, sizeof mine);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", circle->size);
    }
    weft_i_nvshmem_block *block = weft_i_nvshmem_block_of(with->blocks[circle->rank]);
    uint32_t slot = slot_of(circle, with->cards);
    *all = (joined){.block = block,
                    .group = weft_i_circle_key(circle),
                    .rank = circle->rank,
                    .size = circle->size,
                    .slot_at = block->places_at + slot * block->place_bytes};
    atomic_store_explicit(&block->next, slot + 1, memory_order_relaxed); /* see `next` */
    *out = all; /* also if it failed: it is parted with when all know */
    return join_all(&named, with, all);
}

static void settle(void *what)
{
    weft_i_cuda_pads_settle(&((joined *)what)->pads);
}

static void part(void *what)
{
    joined *all = what;
    weft_i_cuda_pads_close(&all->pads);
    weft_i_nvshmem_remote_close(all->remote);
    WEFT_OS->free(all->shifts);
    WEFT_OS->free(all->pes);
    WEFT_OS->free(all);
}

/* ---- using ---- */

static char *pad(const void *what, int rank)
{
    const joined *all = what;
    if (all->remote)
        return NULL;
    return weft_i_cuda_team_pad(&all->pads.team, rank) + all->pads.team.group.semaphores_at;
}

static weft_status enqueue(void *what, void *stream, weft_i_signal_kind kind, int rank, int channel,
                           int64_t limit_ms)
{
    joined *all = what;
    weft_i_cuda_team *team = &all->pads.team;
    if (all->remote)
        return weft_i_nvshmem_remote_signal(all->remote, stream, kind, rank, channel, limit_ms);
    switch (kind) {
    case WEFT_I_SIGNAL_BARRIER:
        return weft_i_cuda_barrier(team, stream, channel, limit_ms);
    case WEFT_I_SIGNAL_PUT:
        return weft_i_cuda_put_signal(team, stream, rank, channel, limit_ms);
    default:
        return weft_i_cuda_wait_signal(team, stream, rank, channel, limit_ms);
    }
}

static weft_status await(void *what, int64_t limit_ms)
{
    joined *all = what;
    WEFT_TRY(all->remote ? weft_i_nvshmem_remote_await(all->remote, limit_ms)
                         : weft_i_cuda_team_await(&all->pads.team, limit_ms));
    return weft_i_cuda_site_await_all(all->group, all->rank, limit_ms);
}

static weft_status reset(void *what)
{
    joined *all = what;
    WEFT_TRY(all->remote ? weft_i_nvshmem_remote_reset(all->remote)
                         : weft_i_cuda_pads_reset(&all->pads));
    return weft_i_cuda_site_reset_all(all->group, all->rank);
}

static weft_status reach(const void *what, size_t offset, weft_i_device_reach *out)
{
    const joined *all = what;
    if (all->remote)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "a member's memory has no address on another (NVSHMEM reaches it by a "
                           "network): only put, get and signals go there");
    *out = (weft_i_device_reach){all->first + offset,
                                 all->strided && all->size > 1 ? (size_t)all->shifts[1] : 0,
                                 all->strided ? NULL : all->pads.team.group.shifts};
    return WEFT_OK;
}

static weft_status check(joined *all, weft_i_cuda_stream *stream)
{
    weft_i_cuda_front *none;
    WEFT_TRY(all->remote
                 ? weft_i_nvshmem_remote_check(all->remote)
                 : weft_i_cuda_team_enter(&all->pads.team, stream, WEFT_I_CUDA_ALONE, 0, 0, &none));
    return weft_i_cuda_use(all->block->device);
}

/*
 * The word that counts up with the data.  A semaphore of weft's has 32 bits; the library adds to
 * 64: to the pair in which the semaphore lies, what counts its half up by one.
 */
static uint64_t *signal_word(const joined *all, int channel, uint64_t *add)
{
    const weft_k_group *group = &all->pads.team.group;
    *add = 1;
    if (all->remote)
        return weft_i_nvshmem_remote_word(all->remote, channel);
    size_t word = (size_t)channel * (size_t)all->size + (size_t)all->rank;
    if (word % 2)
        *add = (uint64_t)1 << 32;
    char *mine = weft_i_cuda_team_pad(&all->pads.team, all->rank) + group->semaphores_at;
    return (uint64_t *)(void *)mine + word / 2;
}

static weft_status put(void *what, void *on, int rank, size_t offset, const void *from,
                       size_t bytes, int channel, int64_t limit_ms)
{
    const weft_i_nvshmem *nv = weft_i_nvshmem_functions();
    joined *all = what;
    char *to = all->block->base + offset;
    void *raw = weft_i_cuda_stream_raw(on);
    WEFT_TRY(check(all, on));
    if (channel >= 0 && bytes) {
        uint64_t add, *word = signal_word(all, channel, &add);
        nv->nvshmemx_putmem_signal_on_stream(to, from, bytes, word, add, WEFT_I_NVSHMEM_SIGNAL_ADD,
                                             all->pes[rank], raw);
        return WEFT_OK;
    }
    if (bytes)
        nv->nvshmemx_putmem_on_stream(to, from, bytes, all->pes[rank], raw);
    return channel < 0 ? WEFT_OK : enqueue(what, on, WEFT_I_SIGNAL_PUT, rank, channel, limit_ms);
}

static weft_status get(void *what, void *on, int rank, size_t offset, void *to, size_t bytes)
{
    joined *all = what;
    WEFT_TRY(check(all, on));
    if (bytes)
        weft_i_nvshmem_functions()->nvshmemx_getmem_on_stream(
            to, all->block->base + offset, bytes, all->pes[rank], weft_i_cuda_stream_raw(on));
    return WEFT_OK;
}

const weft_i_device_memory weft_i_nvshmem_device_memory = {
    .show = show,
    .compare = compare,
    .join = join,
    .settle = settle,
    .part = part,
    .pad = pad,
    .signal = enqueue,
    .await = await,
    .reset = reset,
    .reach = reach,
    .put = put,
    .get = get,
    .write = weft_i_cuda_write_words,
    .has_multicast = weft_i_cuda_has_multicast,
    .connection = "nvlink",
    .count_links = weft_i_cuda_nvlink,
};
