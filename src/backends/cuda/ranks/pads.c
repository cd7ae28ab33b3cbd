/* SPDX-License-Identifier: Apache-2.0 */
/* Pads in device memory: see pads.h. */
#include "pads.h"

#include "backends/cuda/device/multicast.h"
#include "backends/cuda/device/stream.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "turns.h"
#include "weft/symm.h"

#include <stdio.h>
#include <string.h>

/* ---- who may meet ---- */

void weft_i_cuda_card(const weft_i_cuda_device *device, weft_i_card *out)
{
    char reason[WEFT_I_CUDA_WHY_BYTES];
    *out = (weft_i_card){.ordinal = device->ordinal};
    memcpy(out->uuid, device->uuid.bytes, sizeof out->uuid);
    out->facts =
        (weft_symm_allows_overlap() ? WEFT_I_CARD_OVERLAPS : 0) |
        (weft_i_cuda_multicast_usable(device, reason, sizeof reason) ? WEFT_I_CARD_MULTICAST : 0) |
        (device->mps ? 0 : WEFT_I_CARD_SLICED);
}

static bool is_one_device(const weft_i_card *a, const weft_i_card *b)
{
    return !memcmp(a->uuid, b->uuid, sizeof a->uuid);
}

weft_status weft_i_cuda_compare(const weft_i_circle *circle, const weft_i_card *cards)
{
    for (int b = 1; b < circle->size && !weft_i_circle_is_fake(circle); b++)
        for (int a = 0; a < b; a++)
            if (is_one_device(&cards[a], &cards[b]) &&
                !(cards[a].facts & cards[b].facts & WEFT_I_CARD_OVERLAPS))
                return weft_i_fail(
                    WEFT_ERR_UNSUPPORTED,
                    "group \"%s\": ranks %d and %d are on one GPU (cuda:%d of rank %d, cuda:%d of "
                    "rank %d), which not both allow: a rank's kernels wait for the other's, so "
                    "give "
                    "each a GPU of its own, or allow it on all ranks with weft_symm_allow_overlap "
                    "or WEFT_ALLOW_OVERLAP=1",
                    circle->name, a, b, cards[a].ordinal, a, cards[b].ordinal, b);
    return WEFT_OK;
}

/* Members on this rank's device, itself included. */
static int count_sharing(const weft_i_circle *circle, const weft_i_card *cards)
{
    int sharing = 0;
    for (int rank = 0; rank < circle->size; rank++)
        sharing += is_one_device(&cards[rank], &cards[circle->rank]);
    return sharing;
}

/* The most members that any device has. */
static int most_sharing(const weft_i_circle *circle, const weft_i_card *cards)
{
    int most = 1;
    for (int a = 0; a < circle->size; a++) {
        int sharing = 0;
        for (int b = 0; b < circle->size; b++)
            sharing += is_one_device(&cards[a], &cards[b]);
        most = sharing > most ? sharing : most;
    }
    return most;
}

/* Processes on one GPU without MPS run by turns, so that each wait costs a time slice. */
static void warn_of_slices(const weft_i_circle *circle, const weft_i_card *cards)
{
    static atomic_bool warned; /* relaxed: once is enough, twice does no harm */
    if (weft_i_cuda_is_among_threads(weft_i_circle_server(circle)) ||
        count_sharing(circle, cards) < 2 || !(cards[circle->rank].facts & WEFT_I_CARD_SLICED) ||
        atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return;
    weft_i_log(WEFT_LOG_WARN,
               "group \"%s\": %d ranks on one GPU without MPS take turns of milliseconds; start "
               "nvidia-cuda-mps-control, or give each a GPU",
               circle->name, count_sharing(circle, cards));
}

/* Somebody started CUDA before the ranks were there, or wants it so; see want_code of driver.c. */
static void warn_of_late_code(const weft_i_circle *circle, const weft_i_card *cards)
{
    static atomic_bool warned; /* relaxed: once is enough, twice does no harm */
    if (!weft_i_cuda_is_among_threads(weft_i_circle_server(circle)) ||
        count_sharing(circle, cards) < 2 || !weft_i_cuda_loads_late() ||
        atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return;
    weft_i_log(WEFT_LOG_WARN,
               "group \"%s\": %d ranks are threads on one GPU, and CUDA loads code at its first "
               "use, which may wait for a kernel that waits for that rank; set "
               "CUDA_MODULE_LOADING=EAGER before CUDA starts",
               circle->name, count_sharing(circle, cards));
}

/* ---- lost members ---- */

/* The dead rank's kernels may still run and wait on its own pad: they end, and the device is free.
 */
static void poison_dead(const weft_i_cuda_pads *pads, int rank)
{
    weft_i_cu_ptr word = (weft_i_cu_ptr)(uintptr_t)weft_i_cuda_team_pad(&pads->team, rank);
    uint64_t value = WEFT_K_POISON(WEFT_K_VERDICT, WEFT_ERR_PEER_DEAD, rank, pads->team.group.rank);
    if (weft_i_cuda_use(pads->team.device) == WEFT_OK) /* pairs with weft_k_look_for_poison */
        weft_i_cuda_driver()->cuStreamWriteValue64(pads->spare->raw, word, value, 0);
}

static void condemn(void *arg, weft_status status, int rank)
{
    weft_i_cuda_pads *pads = arg;
    weft_i_cuda_team_condemn(&pads->team, status, rank);
    if (status == WEFT_ERR_PEER_DEAD)
        poison_dead(pads, rank);
}

static bool is_waiting(void *arg)
{
    const weft_i_cuda_pads *pads = arg;
    return weft_i_cuda_team_waits_for(&pads->team) >= 0;
}

/* Blocks that wait for different ranks say so by turns. */
static bool awaits(void *arg, int rank)
{
    const weft_i_cuda_pads *pads = arg;
    return weft_i_cuda_team_waits_for(&pads->team) == rank;
}

/* ---- opening and closing ---- */

/* Made in advance: a stream cannot be made while a kernel that waits for the dead holds things up.
 */
static weft_status find_spare(weft_i_cuda_device *device, weft_i_cuda_stream **out)
{
    weft_i_cuda_stream *made = NULL;
    pthread_mutex_lock(&device->lock);
    *out = device->spare;
    pthread_mutex_unlock(&device->lock);
    if (*out)
        return WEFT_OK;
    WEFT_TRY(weft_i_cuda_stream_new(device, true, &made));
    pthread_mutex_lock(&device->lock);
    if (!device->spare) {
        device->spare = made;
        made = NULL;
    }
    *out = device->spare;
    pthread_mutex_unlock(&device->lock);
    if (made) /* another thread was first */
        weft_i_cuda_stream_drop(made);
    return WEFT_OK;
}

static weft_status make_own(const weft_i_circle *circle, size_t bytes, weft_i_cuda_pads *pads)
{
    weft_i_segment **own = &pads->blocks[circle->rank];
    weft_i_fdpass *server = weft_i_circle_server(circle);
    weft_status made = weft_i_cuda_memory_allocate(circle->device, bytes, own);
    if (made == WEFT_OK)
        made = weft_i_cuda_memory_publish_as(server, pads->key, *own);
    else
        weft_i_fdpass_publish(server, pads->key, NULL, made); /* the others need not wait */
    pads->fdpass = server;
    return made;
}

static weft_status fetch_others(const weft_i_circle *circle, const weft_i_key *keys, size_t bytes,
                                weft_i_cuda_pads *pads)
{
    for (int rank = 0; rank < circle->size; rank++) {
        if (rank == circle->rank)
            continue;
        weft_i_fdpass_order order = weft_i_circle_order(circle, rank, keys[rank], bytes);
        WEFT_TRY(weft_i_circle_fetched(
            circle, rank,
            weft_i_cuda_memory_import(pads->team.device, &order, &pads->blocks[rank])));
    }
    return WEFT_OK;
}

static weft_status map(const weft_i_circle *circle, const weft_i_key *keys,
                       const weft_i_cuda_sizes *sizes, weft_i_cuda_pads *pads)
{
    weft_k_group layout = {0};
    size_t bytes = weft_i_cuda_team_layout(circle->size, sizes, &layout);
    WEFT_TRY(make_own(circle, bytes, pads));
    WEFT_TRY(fetch_others(circle, keys, bytes, pads));
    return weft_i_cuda_range_open(circle, pads->team.device, keys[0], pads->blocks, &pads->range);
}

static weft_status open_team(const weft_i_circle *circle, weft_i_cuda_device *device,
                             const weft_i_card *cards, const weft_i_cuda_sizes *sizes,
                             const weft_i_cuda_mapped *mapped, weft_i_cuda_pads *out)
{
    WEFT_TRY(weft_i_cuda_team_open(device, circle->rank, circle->size, mapped->first,
                                   mapped->stride, most_sharing(circle, cards), sizes, &out->team));
    WEFT_TRY(weft_i_cuda_queue_new(&out->team.words));
    WEFT_TRY(weft_i_cuda_turns_open(circle, device, &out->team.meetings));
    out->team.shifts = mapped->shifts;
    out->team.group.shifts = mapped->shifts_there;
    weft_i_post_duty duty = {condemn, is_waiting, out, NULL, awaits};
    weft_i_post *post = NULL;
    WEFT_TRY(weft_i_post_open(circle, &duty, &post));
    weft_i_cuda_team_attend(&out->team, post);
    warn_of_slices(circle, cards);
    warn_of_late_code(circle, cards);
    return WEFT_OK;
}

static weft_status fill(const weft_i_circle *circle, weft_i_cuda_device *device,
                        const weft_i_key *keys, const weft_i_card *cards,
                        const weft_i_cuda_sizes *sizes, weft_i_cuda_pads *out)
{
    out->blocks = WEFT_OS->alloc((size_t)circle->size * sizeof *out->blocks);
    if (!out->blocks)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the pads of %d ranks", circle->size);
    WEFT_TRY(find_spare(device, &out->spare));
    WEFT_TRY(map(circle, keys, sizes, out));
    weft_i_cuda_mapped mapped = {weft_i_cuda_span_of(out->range.span, 0), out->range.span->stride,
                                 NULL, NULL};
    return open_team(circle, device, cards, sizes, &mapped, out);
}

weft_status weft_i_cuda_pads_over(const weft_i_circle *circle, weft_i_cuda_device *device,
                                  const weft_i_card *cards, const weft_i_cuda_sizes *sizes,
                                  const weft_i_cuda_mapped *mapped, weft_i_cuda_pads *out)
{
    *out = (weft_i_cuda_pads){.size = circle->size};
    WEFT_TRY(find_spare(device, &out->spare));
    return open_team(circle, device, cards, sizes, mapped, out);
}

weft_status weft_i_cuda_pads_open(const weft_i_circle *circle, weft_i_cuda_device *device,
                                  const weft_i_key *keys, const weft_i_card *cards,
                                  const weft_i_cuda_sizes *sizes, weft_i_cuda_pads *out)
{
    *out = (weft_i_cuda_pads){.size = circle->size, .key = keys[circle->rank]};
    out->team.device = device;
    weft_status status = fill(circle, device, keys, cards, sizes, out);
    if (status < 0) { /* the others are not to wait for what will not come */
        weft_i_fdpass *server = weft_i_circle_server(circle);
        if (!out->fdpass && weft_i_fdpass_publish(server, out->key, NULL, status) == WEFT_OK)
            out->fdpass = server;
        weft_i_cuda_range_refuse(circle, keys[0], status, &out->range);
    }
    return status;
}

void weft_i_cuda_pads_settle(weft_i_cuda_pads *pads)
{
    if (pads->fdpass)
        weft_i_fdpass_withdraw(pads->fdpass, pads->key);
    pads->fdpass = NULL;
    weft_i_cuda_range_settle(&pads->range);
}

void weft_i_cuda_pads_close(weft_i_cuda_pads *pads)
{
    weft_i_cuda_pads_settle(pads);
    weft_i_post *post = pads->team.post;
    weft_i_cuda_team_attend(&pads->team, NULL); /* other ranks' threads look at it */
    weft_i_post_close(post);
    weft_i_cuda_queue_drop(pads->team.words);
    weft_i_cuda_turns_close(pads->team.meetings);
    weft_i_cuda_team_close(&pads->team);
    weft_i_cuda_range_close(&pads->range);
    for (int rank = 0; pads->blocks && rank < pads->size; rank++)
        weft_i_segment_drop(pads->blocks[rank]);
    WEFT_OS->free(pads->blocks);
    *pads = (weft_i_cuda_pads){0};
}

weft_status weft_i_cuda_pads_reset(weft_i_cuda_pads *pads)
{
    weft_i_cuda_stream *stream = NULL;
    weft_i_cuda_device *device = pads->team.device;
    WEFT_TRY(weft_i_cuda_stream_new(device, false, &stream));
    weft_status status = weft_i_cuda_team_reset(&pads->team, stream);
    weft_status released = weft_i_cuda_stream_release(stream);
    weft_i_post_renew(pads->team.post);
    return status != WEFT_OK ? status : released;
}
