/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: collective allocation, and frees at agreed points; see block.h. */
#include "block.h"

#include "attempt.h"
#include "backends/cuda/device/retire.h"
#include "backends/cuda/device/stream.h"
#include "base/os/os.h"
#include "start.h"
#include "weft/symm.h"

#include <string.h>

enum { LISTED = 512 }; /* blocks that one meeting can free */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static weft_i_nvshmem_block *first;
static uint32_t serials;

/* What a rank shows: what it wants, and which of the blocks that live it has let go of. */
typedef struct note {
    uint64_t bytes, pad_bytes;
    int32_t status;
    uint32_t live, serial;
    uint64_t released[LISTED / 64];
} note;

int weft_i_nvshmem_live(bool released)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (const weft_i_nvshmem_block *b = first; b; b = b->after)
        /* Pairs with the release of let_go. */
        count += !released || atomic_load_explicit(&b->released, memory_order_acquire);
    pthread_mutex_unlock(&lock);
    return count;
}

weft_i_cuda_sizes weft_i_nvshmem_sizes(int ranks, size_t pad_bytes, int channels)
{
    size_t usual = pad_bytes / 4 / (size_t)ranks;
    return (weft_i_cuda_sizes){.lines = 1,
                               .channels = channels > 0 ? (uint32_t)channels : (uint32_t)usual,
                               .packet_units = 1,
                               .stage_bytes = 16,
                               .semaphore_bytes = pad_bytes};
}

static size_t round_up(size_t bytes)
{
    return (bytes + WEFT_I_NVSHMEM_LINE - 1) / WEFT_I_NVSHMEM_LINE * WEFT_I_NVSHMEM_LINE;
}

/* Room for the pads of any group of the world, and before them a table of its members. */
static size_t place_bytes_of(int ranks, size_t pad_bytes)
{
    size_t most = 0;
    for (int n = 1; n <= ranks && (size_t)n <= pad_bytes / 4; n++) {
        weft_i_cuda_sizes sizes = weft_i_nvshmem_sizes(n, pad_bytes, 0);
        weft_k_group layout = {0};
        size_t bytes = weft_i_cuda_team_layout(n, &sizes, &layout);
        most = bytes > most ? bytes : most;
    }
    most = most > 4 * pad_bytes ? most : 4 * pad_bytes; /* see remote.c */
    return round_up((size_t)ranks * sizeof(int64_t)) + round_up(most);
}

/* ---- what all ranks agree on ---- */

static void show(note *mine)
{
    uint32_t at = 0;
    pthread_mutex_lock(&lock);
    for (const weft_i_nvshmem_block *b = first; b; b = b->after, at++)
        /* Pairs with the release of let_go. */
        if (at < LISTED && atomic_load_explicit(&b->released, memory_order_acquire))
            mine->released[at / 64] |= (uint64_t)1 << at % 64;
    mine->live = at;
    mine->serial = serials;
    pthread_mutex_unlock(&lock);
}

static weft_status compare(const weft_i_circle *world, const note *all)
{
    for (int rank = 0; rank < world->size; rank++) {
        if (all[rank].status < 0)
            return rank == world->rank ? (weft_status)all[rank].status
                                       : weft_i_fail((weft_status)all[rank].status,
                                                     "%s: rank %d cannot (%s)", world->what, rank,
                                                     weft_strerror((weft_status)all[rank].status));
        if (all[rank].bytes != all[0].bytes || all[rank].pad_bytes != all[0].pad_bytes)
            return weft_i_fail(
                WEFT_ERR_MISMATCH,
                "%s: with NVSHMEM all ranks allocate together: rank 0 wants %llu "
                "bytes and a pad of %llu, rank %d %llu and %llu",
                world->what, (unsigned long long)all[0].bytes, (unsigned long long)all[0].pad_bytes,
                rank, (unsigned long long)all[rank].bytes, (unsigned long long)all[rank].pad_bytes);
        if (all[rank].live != all[0].live || all[rank].serial != all[0].serial)
            return weft_i_fail(WEFT_ERR_INTERNAL, "%s: rank %d has other blocks than rank 0",
                               world->what, rank);
    }
    return WEFT_OK;
}

/* Those that all have let go of leave the list; they are freed in its order. */
static void take_released(const weft_i_circle *world, const note *all,
                          weft_i_nvshmem_attempt *attempt)
{
    uint32_t at = 0;
    pthread_mutex_lock(&lock);
    for (weft_i_nvshmem_block **b = &first; *b && at < LISTED; at++) {
        uint64_t everybody = ~(uint64_t)0;
        weft_i_nvshmem_block *gone = *b;
        for (int rank = 0; rank < world->size; rank++)
            everybody &= all[rank].released[at / 64];
        if (!(everybody >> at % 64 & 1)) {
            b = &gone->after;
            continue;
        }
        *b = gone->after;
        attempt->memory[attempt->count++] = gone->base;
        WEFT_OS->free(gone);
    }
    pthread_mutex_unlock(&lock);
}

static void run_change(weft_i_nvshmem_attempt *a)
{
    const weft_i_nvshmem *nv = weft_i_nvshmem_functions();
    for (int i = 0; i < a->count; i++)
        nv->nvshmem_free(a->memory[i]);
    a->made = a->bytes ? nv->nvshmem_malloc(a->bytes) : NULL;
}

/* What a meeting needs: the notes of all, and the call. */
typedef struct meeting {
    const weft_i_circle *world;
    weft_i_cuda_device *device;
    note *all;
    weft_i_nvshmem_attempt *attempt;
} meeting;

/* Whoever has no memory for it tells the others. */
static weft_status open_meeting(const weft_i_circle *world, weft_i_cuda_device *device,
                                meeting *out)
{
    *out = (meeting){.world = world, .device = device};
    out->all = WEFT_OS->alloc((size_t)world->size * sizeof *out->all);
    out->attempt = out->all ? weft_i_nvshmem_attempt_new(world->what) : NULL;
    if (out->attempt)
        return WEFT_OK;
    note mine = {.status = WEFT_ERR_NO_MEMORY};
    weft_i_circle_decline(world, &mine, sizeof mine);
    WEFT_OS->free(out->all);
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %d ranks", world->what, world->size);
}

static void close_meeting(const meeting *m)
{
    weft_i_nvshmem_attempt_drop(m->attempt);
    WEFT_OS->free(m->all);
}

/* Frees what can go, and allocates `total` bytes (0: none) with all ranks. */
static weft_status change(const meeting *m, const note *mine, size_t total, void **out)
{
    weft_i_nvshmem_attempt *attempt = m->attempt;
    WEFT_TRY(m->world->exchange(m->world, mine, sizeof *mine, m->all));
    WEFT_TRY(compare(m->world, m->all));
    attempt->run = run_change;
    attempt->bytes = total;
    take_released(m->world, m->all, attempt);
    if (!attempt->count && !total)
        return WEFT_OK;
    weft_status status = weft_i_nvshmem_try(m->world, m->device, attempt);
    if (status < 0)
        weft_i_nvshmem_break(status);
    else
        *out = attempt->made;
    return status;
}

/* ---- allocating ---- */

static void let_go(void *what)
{
    weft_i_nvshmem_block *block = what;
    /* Pairs with the acquire in show. */
    atomic_store_explicit(&block->released, true, memory_order_release);
}

/* Never frees: that is done by all ranks at once, when all have let go. */
static void release(weft_i_segment *segment)
{
    weft_i_cuda_retire(let_go, segment->owner);
}

/* Zero before anybody can reach it: all agree afterwards, and only then is it anybody's. */
static weft_status clear(weft_i_cuda_device *device, char *base, size_t bytes)
{
    weft_i_cuda_stream *stream = NULL;
    WEFT_TRY(weft_i_cuda_stream_new(device, false, &stream));
    weft_status status = weft_i_cuda_fail(
        weft_i_cuda_driver()->cuMemsetD8Async((weft_i_cu_ptr)(uintptr_t)base, 0, bytes,
                                              weft_i_cuda_stream_raw(stream)),
        "clearing memory of NVSHMEM on cuda:%d", device->ordinal);
    weft_status released = weft_i_cuda_stream_release(stream);
    return status != WEFT_OK ? status : released;
}

static void enlist(weft_i_nvshmem_block *block)
{
    pthread_mutex_lock(&lock);
    block->serial = ++serials;
    weft_i_nvshmem_block **last = &first;
    while (*last)
        last = &(*last)->after;
    *last = block;
    pthread_mutex_unlock(&lock);
}

static weft_status check_made(const weft_i_circle *world, const void *made, size_t total)
{
    return made ? WEFT_OK
                : weft_i_fail(WEFT_ERR_NO_MEMORY,
                              "%s: NVSHMEM has no %zu bytes left; NVSHMEM_SYMMETRIC_SIZE is what "
                              "it may have",
                              world->what, total);
}

static weft_status make(const meeting *m, size_t bytes, weft_i_nvshmem_block *block)
{
    const weft_i_circle *world = m->world;
    note mine = {.bytes = bytes, .pad_bytes = weft_symm_signal_pad_size()};
    block->bytes = bytes;
    block->device = m->device;
    block->places_at = round_up(bytes);
    block->place_bytes = place_bytes_of(world->size, mine.pad_bytes);
    size_t total = block->places_at + WEFT_I_NVSHMEM_SLOTS * block->place_bytes;
    if (bytes > SIZE_MAX / 2)
        mine.status = weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: %zu bytes", world->what, bytes);
    show(&mine);
    void *made = NULL;
    WEFT_TRY(change(m, &mine, total, &made));
    weft_status status = check_made(world, made, total);
    if (status == WEFT_OK)
        status = clear(m->device, made, total);
    block->base = made;
    if (made) /* it is the same on all ranks also if somebody failed: then all let go of it */
        enlist(block);
    status = weft_i_circle_agree(world, status, "could not allocate memory of NVSHMEM", m->all);
    if (status < 0 && made)
        let_go(block);
    return status;
}

static weft_status allocate_with(const weft_i_circle *world, weft_i_cuda_device *device,
                                 size_t bytes, weft_i_nvshmem_block **out)
{
    meeting m;
    weft_i_nvshmem_block *block = WEFT_OS->alloc(sizeof *block);
    if (!block) {
        note mine = {.status = WEFT_ERR_NO_MEMORY};
        weft_i_circle_decline(world, &mine, sizeof mine);
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for its record", world->what);
    }
    *block = (weft_i_nvshmem_block){0};
    weft_status status = open_meeting(world, device, &m);
    if (status == WEFT_OK) {
        status = make(&m, bytes, block);
        close_meeting(&m);
    }
    if (status < 0 && !block->base)
        WEFT_OS->free(block);
    *out = block;
    return status;
}

weft_status weft_i_nvshmem_allocate(weft_device device, size_t bytes, weft_i_segment **out)
{
    weft_i_circle world;
    weft_i_cuda_device *opened = NULL;
    WEFT_TRY(weft_i_nvshmem_world(device, "allocating symmetric memory", &world, &opened));
    weft_i_cuda_reap();
    weft_i_nvshmem_block *block = NULL;
    weft_status status = allocate_with(&world, opened, bytes, &block);
    WEFT_TRY(status);
    status = weft_i_segment_wrap(block->base, bytes, -1, release, block, out);
    if (status < 0)
        let_go(block);
    return status;
}

weft_status weft_i_nvshmem_collect(const weft_i_circle *world, weft_i_cuda_device *device)
{
    note mine = {.bytes = 0};
    meeting m;
    void *none = NULL;
    weft_i_cuda_reap();
    WEFT_TRY(open_meeting(world, device, &m));
    show(&mine);
    weft_status status = change(&m, &mine, 0, &none);
    close_meeting(&m);
    return status;
}
