/* SPDX-License-Identifier: Apache-2.0 */
/* Teams: where things lie in a pad, what a failed kernel left behind, reset, and signals. */
#include "team.h"

#include "base/os.h"
#include "base/signal.h"

#include <stdio.h>
#include <string.h>

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static void fill_sizes(int ranks, const weft_i_cuda_sizes *sizes, weft_k_group *group)
{
    static const weft_i_cuda_sizes usual = {64, 32, 1024, 4 << 20};
    const weft_i_cuda_sizes none = {0, 0, 0, 0};
    const weft_i_cuda_sizes *given = sizes ? sizes : &none;
    group->size = ranks;
    group->lines = given->lines ? given->lines : usual.lines;
    group->channels = given->channels ? given->channels : usual.channels;
    group->packet_units = given->packet_units ? given->packet_units : usual.packet_units;
    group->stage_bytes = round_up(given->stage_bytes ? given->stage_bytes : usual.stage_bytes, 16);
}

size_t weft_i_cuda_team_layout(int ranks, const weft_i_cuda_sizes *sizes, weft_k_group *group)
{
    fill_sizes(ranks, sizes, group);
    size_t line = round_up(WEFT_K_WORDS + WEFT_K_ARRIVAL * (size_t)ranks, WEFT_K_LINE);
    group->channels_at = WEFT_K_LINE + group->lines * line;
    group->semaphores_at = group->channels_at + group->channels * line;
    group->packets_at =
        round_up(group->semaphores_at + 4 * (size_t)group->channels * (size_t)ranks, WEFT_K_LINE);
    group->stage_at =
        group->packets_at + 2 * (size_t)group->lines * (size_t)ranks * group->packet_units * 16;
    return group->stage_at + 2 * group->stage_bytes;
}

weft_status weft_i_cuda_team_open(weft_i_cuda_device *device, int rank, int ranks, char *pads,
                                  size_t stride, int sharing, const weft_i_cuda_sizes *sizes,
                                  weft_i_cuda_team *out)
{
    *out = (weft_i_cuda_team){.device = device, .sharing = sharing};
    if (ranks < 1 || ranks > WEFT_K_RANKS_MOST || rank < 0 || rank >= ranks)
        return weft_i_fail(WEFT_ERR_LIMIT, "rank %d of a team of %d; %d are the most", rank, ranks,
                           WEFT_K_RANKS_MOST);
    size_t bytes = weft_i_cuda_team_layout(ranks, sizes, &out->group);
    if (bytes > stride)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "pads of %zu bytes in blocks of %zu", bytes,
                           stride);
    out->pad_bytes = out->group.stage_at;
    memcpy(out->resident, device->resident, sizeof out->resident);
    void *host;
    WEFT_TRY(weft_i_cuda_pinned(device, sizeof(weft_k_record) + WEFT_K_LINE, &host));
    weft_i_cu_ptr there = 0;
    weft_i_cu_result result = weft_i_cuda_driver()->cuMemHostGetDevicePointer(&there, host, 0);
    if (result != WEFT_I_CUDA_SUCCESS) {
        weft_i_cuda_unpin(host);
        return weft_i_cuda_fail(result, "host memory that cuda:%d reaches", device->ordinal);
    }
    out->record = host;
    out->verdict = (uint64_t *)(void *)((char *)host + sizeof(weft_k_record));
    out->group.record = (weft_k_record *)(uintptr_t)there;
    out->group.verdict = (uint64_t *)(uintptr_t)(there + sizeof(weft_k_record));
    out->group.pads = pads;
    out->group.stride = stride;
    out->group.rank = rank;
    return WEFT_OK;
}

void weft_i_cuda_team_close(weft_i_cuda_team *team)
{
    weft_i_cuda_unpin(team->record);
    *team = (weft_i_cuda_team){0};
}

/* "barrier on channel 3" */
static void tell_operation(const weft_k_record *record, char *out, size_t bytes)
{
    static const char *const names[] = {"a collective", "barrier", "put_signal", "wait_signal"};
    if (record->what == WEFT_K_COLLECTIVE)
        snprintf(out, bytes, "meeting %u of the collectives", (unsigned)record->epoch);
    else
        snprintf(out, bytes, "%s on channel %u", names[record->what & 3],
                 (unsigned)record->channel);
}

static weft_status tell_poison(const weft_i_cuda_team *team, const char *operation)
{
    const weft_k_record *record = team->record;
    int peer = (int)record->peer;
    switch (record->theirs) {
    case WEFT_K_TIMEOUT:
        return weft_i_fail(WEFT_ERR_TIMEOUT,
                           "cuda:%d: %s: rank %d gave up waiting; nothing works on this memory "
                           "until all ranks reset it",
                           team->device->ordinal, operation, peer);
    case WEFT_K_MISMATCH:
        return weft_i_fail(WEFT_ERR_MISMATCH,
                           "cuda:%d: %s: rank %d found that ranks called "
                           "different things",
                           team->device->ordinal, operation, peer);
    default:
        return weft_i_fail(WEFT_ERR_PEER_DEAD,
                           "cuda:%d: %s: rank %d gave up because a rank is gone",
                           team->device->ordinal, operation, peer);
    }
}

weft_status weft_i_cuda_team_check(weft_i_cuda_team *team)
{
    const weft_k_record *record = team->record;
    /* Pairs with the release in weft_k_give_up: who sees why sees the rest. */
    uint64_t why = __atomic_load_n(&record->why, __ATOMIC_ACQUIRE);
    if (__builtin_expect(why == WEFT_K_FINE, 1))
        return WEFT_OK;
    char operation[64];
    tell_operation(record, operation, sizeof operation);
    int peer = (int)record->peer, ordinal = team->device->ordinal;
    switch (why) {
    case WEFT_K_TIMEOUT:
        return team->broken =
                   weft_i_fail(WEFT_ERR_TIMEOUT, "cuda:%d: %s: rank %d did not come within %.1f ms",
                               ordinal, operation, peer, (double)record->waited_ns / 1e6);
    case WEFT_K_MISMATCH:
        return team->broken = weft_i_fail(
                   WEFT_ERR_MISMATCH,
                   "cuda:%d: %s: rank %d called something else (digest %08x, ours is %08x)",
                   ordinal, operation, peer, (unsigned)record->theirs, (unsigned)record->mine);
    case WEFT_K_POISONED:
        return team->broken = tell_poison(team, operation);
    default:
        return team->broken =
                   weft_i_fail((weft_status)(int32_t)record->theirs,
                               "cuda:%d: %s: rank %d will not come; waited %.1f ms", ordinal,
                               operation, peer, (double)record->waited_ns / 1e6);
    }
}

weft_status weft_i_cuda_team_enter(weft_i_cuda_team *team, weft_i_cuda_stream *stream)
{
    (void)stream;
    return weft_i_cuda_team_check(team);
}

void weft_i_cuda_team_condemn(weft_i_cuda_team *team, weft_status status, int rank)
{
    /* Relaxed: the word is all there is to see.  Pairs with the load in weft_k_look_around. */
    __atomic_store_n(team->verdict, (uint64_t)(uint32_t)status << 32 | (uint32_t)(rank + 1),
                     __ATOMIC_RELAXED);
}

int weft_i_cuda_team_waits_for(const weft_i_cuda_team *team)
{
    /* Relaxed: only shown.  Pairs with the stores in weft_k_look_around and weft_k_waited. */
    return (int)__atomic_load_n(&team->record->waiting, __ATOMIC_RELAXED) - 1;
}

weft_status weft_i_cuda_team_reset(weft_i_cuda_team *team, weft_i_cuda_stream *stream)
{
    WEFT_TRY(weft_i_cuda_use(team->device));
    char *pad = team->group.pads + (size_t)team->group.rank * team->group.stride;
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemsetD8Async((weft_i_cu_ptr)(uintptr_t)pad, 0,
                                                        team->pad_bytes,
                                                        weft_i_cuda_stream_raw(stream)),
                  "resetting signals on cuda:%d", team->device->ordinal);
    WEFT_TRY(weft_i_cuda_stream_sync(stream, WEFT_FOREVER));
    memset(team->record, 0, sizeof *team->record);
    __atomic_store_n(team->verdict, 0, __ATOMIC_RELAXED); /* no kernel runs */
    team->broken = WEFT_OK;
    return WEFT_OK;
}

static weft_status check_channel(const weft_i_cuda_team *team, int channel, int rank)
{
    if (channel < 0 || (uint32_t)channel >= team->group.channels)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "channel %d; there are 0 to %u", channel,
                           team->group.channels - 1);
    if (rank < 0 || rank >= team->group.size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d; there are 0 to %d", rank,
                           team->group.size - 1);
    return WEFT_OK;
}

static weft_status signal_call(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                               weft_i_cuda_kernel kernel, int rank, int channel, int64_t limit_ms)
{
    WEFT_TRY(weft_i_cuda_team_enter(team, stream));
    WEFT_TRY(check_channel(team, channel, rank));
    weft_k_call call = {
        .group = team->group,
        .limit_ns = limit_ms < 0 ? 0 : (uint64_t)limit_ms * 1000000 + 1,
        .digest = weft_i_digest((uint32_t)kernel + 1, (uint64_t)channel),
        .peer = rank,
        .channel = (uint32_t)channel,
    };
    return weft_i_cuda_launch(stream, kernel, 1, team->device->kernel_threads[kernel], &call, true);
}

weft_status weft_i_cuda_barrier(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int channel,
                                int64_t limit_ms)
{
    return signal_call(team, stream, WEFT_I_CUDA_barrier, 0, channel, limit_ms);
}

weft_status weft_i_cuda_put_signal(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int rank,
                                   int channel, int64_t limit_ms)
{
    return signal_call(team, stream, WEFT_I_CUDA_put_signal, rank, channel, limit_ms);
}

weft_status weft_i_cuda_wait_signal(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int rank,
                                    int channel, int64_t limit_ms)
{
    return signal_call(team, stream, WEFT_I_CUDA_wait_signal, rank, channel, limit_ms);
}
