/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between two ranks: one kernel carries all that are posted together, so that a ring of
 * sends and receives cannot get stuck.  What a rank sends to itself is copied.
 */
#include "p2p.h"

#include "base/share/signal.h"

_Static_assert(sizeof(weft_k_p2p_many) <= 4096, "what the parameters of a kernel may have");

/* What is told of a message: kind, dtype, peer, tag; see weft_i_cuda_signature_text. */
static uint64_t signature_of(const weft_i_message *message)
{
    return (uint64_t)(message->sends ? WEFT_I_SEND : WEFT_I_RECV) | (uint64_t)message->dtype << 8 |
           (uint64_t)(uint32_t)message->peer << 25 | (uint64_t)(uint32_t)message->tag << 32 |
           (uint64_t)1 << 63;
}

/* Blocks that may be resident at once, as of every kernel that waits for other ranks. */
static int most_blocks(const weft_i_cuda_team *team)
{
    return team->resident[WEFT_I_CUDA_p2p_many] / (2 * team->sharing);
}

/*
 * Both ends must say the same, so only the bytes and what is equal on all ranks decide; and there
 * must be blocks for messages from and to all ranks at once.
 */
static int lanes_for(const weft_i_cuda_team *team, size_t bytes)
{
    enum { LANE = 64 << 10 };
    int routes = 2 * (team->group.size - 1), most = most_blocks(team) / routes;
    most = most < (int)team->group.p2p_lanes ? most : (int)team->group.p2p_lanes;
    size_t pay = bytes / LANE + 1;
    return most < 1 ? 1 : pay < (size_t)most ? (int)pay : most;
}

/* Sends to oneself, each to the receive that it meets: the k-th of the one is the k-th of the
 * other. */
static weft_status copy_own(const weft_i_cuda_team *team, const weft_i_request *request, bool check)
{
    const weft_i_message *all = request->messages, *end = all + request->messages_count;
    const weft_i_message *to = all;
    for (const weft_i_message *from = all; from < end; from++) {
        if (from->peer != team->group.rank || !from->sends)
            continue;
        while (to < end && (to->peer != team->group.rank || to->sends))
            to++;
        if (to == end || to->digest != from->digest || to->tag != from->tag)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: on a device what a rank sends to itself must meet its receive, "
                               "of the same count, dtype and tag, in the same batch",
                               request->op);
        if (!check && from->bytes)
            WEFT_TRY(weft_i_cuda_copy(request->stream, to->data, from->data, from->bytes));
        to++;
    }
    for (; to < end; to++)
        if (to->peer == team->group.rank && !to->sends)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: on a device what a rank receives from itself must meet its "
                               "send in the same batch",
                               request->op);
    return WEFT_OK;
}

/* The route of a message: that of those before with its peer and direction, or a new one. */
static uint16_t route_of(const weft_k_p2p_many *batch, const weft_k_message *x, int *routes)
{
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->messages[i].peer == x->peer && batch->messages[i].sends == x->sends)
            return batch->messages[i].route;
    return (uint16_t)(*routes)++;
}

static void add(const weft_i_cuda_team *team, const weft_i_message *message, weft_k_p2p_many *batch,
                int *routes)
{
    weft_k_message x = {
        .data = message->data,
        .bytes = message->bytes,
        .signature = {signature_of(message), message->bytes / weft_dtype_size(message->dtype)},
        .digest = weft_i_digest(message->digest, (uint64_t)message->tag),
        .peer = (int16_t)message->peer,
        .lanes = (uint16_t)lanes_for(team, message->bytes),
        .sends = message->sends,
        .dtype = (uint8_t)message->dtype,
    };
    x.route = route_of(batch, &x, routes);
    batch->lanes = x.lanes > batch->lanes ? x.lanes : batch->lanes;
    batch->messages[batch->count++] = x;
}

static weft_status launch(const weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                          const weft_k_p2p_many *batch, int blocks)
{
    int threads = team->device->kernel_threads[WEFT_I_CUDA_p2p];
    if (batch->count > WEFT_K_MESSAGES_FEW)
        return weft_i_cuda_launch(stream, WEFT_I_CUDA_p2p_many, blocks, threads, batch, true);
    weft_k_p2p few = {.call = batch->call, .count = batch->count, .lanes = batch->lanes};
    for (uint32_t i = 0; i < batch->count; i++)
        few.messages[i] = batch->messages[i];
    return weft_i_cuda_launch(stream, WEFT_I_CUDA_p2p, blocks, threads, &few, true);
}

static weft_status check(weft_i_cuda_team *team, const weft_i_request *request, size_t others)
{
    WEFT_TRY(copy_own(team, request, true));
    if (others > WEFT_K_MESSAGES)
        return weft_i_fail(WEFT_ERR_LIMIT, "%s: %zu messages at once on a device; %d are the most",
                           request->op, others, WEFT_K_MESSAGES);
    weft_i_cuda_front *none; /* the carrier keeps their order */
    return weft_i_cuda_team_enter(team, request->stream, WEFT_I_CUDA_ALONE, 0, 0, &none);
}

weft_status weft_i_cuda_exchange(weft_i_cuda_team *team, const weft_i_request *request)
{
    weft_k_p2p_many batch = {.call = {.group = team->group,
                                      .limit_ns = request->limit_ms < 0
                                                      ? 0
                                                      : (uint64_t)request->limit_ms * 1000000 + 1}};
    size_t others = 0;
    int routes = 0;
    for (size_t i = 0; i < request->messages_count; i++)
        others += request->messages[i].peer != team->group.rank;
    WEFT_TRY(check(team, request, others));
    for (size_t i = 0; i < request->messages_count; i++)
        if (request->messages[i].peer != team->group.rank)
            add(team, &request->messages[i], &batch, &routes);
    int blocks = routes * (int)batch.lanes;
    if (blocks > most_blocks(team))
        return weft_i_fail(WEFT_ERR_LIMIT,
                           "%s: messages with %d ranks and directions at once; %d fit cuda:%d",
                           request->op, routes, most_blocks(team), team->device->ordinal);
    WEFT_TRY(copy_own(team, request, false));
    return others ? launch(team, request->stream, &batch, blocks) : WEFT_OK;
}
