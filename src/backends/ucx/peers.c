/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: where they are, their endpoints, what goes wrong with them, and how they are dropped. */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wire.h"
#include "wire.h"

#include <string.h>

enum { MAGIC = 0x41544657 /* "WFTA" */, DROP_MS = 5000 };

static void on_error(void *arg, weft_i_ucp_ep ep, weft_i_ucs_status status)
{
    weft_i_ucx_peer *peer = arg;
    (void)ep;
    if (peer->life != WEFT_I_UCX_USED)
        return;
    peer->life = WEFT_I_UCX_FAULTY;
    peer->fault = status;
    peer->wire->faults = true;
}

static weft_status make_endpoint(weft_i_ucx_wire *wire, int rank)
{
    weft_i_ucx_peer *peer = &wire->peers[rank];
    WEFT_ASSERT(peer->life == WEFT_I_UCX_KNOWN && peer->address);
    const weft_i_ucp_ep_params params = {.mask = WEFT_I_UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                 WEFT_I_UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                 WEFT_I_UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                         .address = peer->address,
                                         .error_mode = WEFT_I_UCP_ERR_HANDLING_MODE_PEER,
                                         .on_error = on_error,
                                         .on_error_arg = peer};
    peer->wire = wire;
    peer->told = false;
    weft_i_ucs_status status = wire->ucx->ucp_ep_create(wire->worker, &params, &peer->ep);
    if (status)
        return weft_i_ucx_fail(status, "an endpoint for rank %d", rank);
    peer->life = WEFT_I_UCX_USED;
    return WEFT_OK;
}

static weft_status check_rank(const weft_i_ucx_wire *wire, int rank)
{
    if (rank < 0 || rank >= wire->opts.ranks || rank == wire->opts.rank)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d of %d has no peer %d", wire->opts.rank,
                           wire->opts.ranks, rank);
    return WEFT_OK;
}

weft_status weft_i_ucx_peer_of(weft_i_ucx_wire *wire, int rank, weft_i_ucx_peer **out)
{
    WEFT_TRY(check_rank(wire, rank));
    weft_i_ucx_peer *peer = *out = &wire->peers[rank];
    if (peer->life == WEFT_I_UCX_UNKNOWN)
        return weft_i_fail(WEFT_ERR_UNREACHABLE, "rank %d has not been connected to rank %d", rank,
                           wire->opts.rank);
    if (peer->life == WEFT_I_UCX_FAULTY)
        return weft_i_ucx_fail(peer->fault, "the connection to rank %d", rank);
    return peer->life == WEFT_I_UCX_KNOWN ? make_endpoint(wire, rank) : WEFT_OK;
}

size_t weft_i_ucx_address(void *of, void *out, size_t bytes)
{
    weft_i_ucx_wire *wire = of;
    size_t whole = WEFT_I_UCX_ADDRESS_HEAD + wire->mine_bytes;
    if (whole > bytes)
        return whole;
    weft_i_wire_writer to = weft_i_wire_write(out, whole);
    wire->shown = true;
    weft_i_wire_put_u32(&to, MAGIC);
    weft_i_wire_put_u8(&to, (uint8_t)wire->ucx->major);
    weft_i_wire_put_u8(&to, (uint8_t)wire->ucx->minor);
    weft_i_wire_put_zero(&to, 2);
    weft_i_wire_put_bytes(&to, wire->mine, wire->mine_bytes);
    WEFT_ASSERT(to.at == whole && !to.bad);
    return whole;
}

/* What follows the head is for UCX alone, which believes it: addresses come from members of the job. */
static weft_status check_address(int rank, const void *address, size_t bytes)
{
    weft_i_wire_reader from = weft_i_wire_read(address, bytes);
    bool ours = weft_i_wire_get_u32(&from) == MAGIC;
    uint8_t major = weft_i_wire_get_u8(&from), minor = weft_i_wire_get_u8(&from);
    weft_i_wire_get_zero(&from, 2);
    if (!ours || from.bad || bytes <= WEFT_I_UCX_ADDRESS_HEAD ||
        bytes > WEFT_I_TRANSPORT_ADDRESS_BYTES)
        return weft_i_fail(WEFT_ERR_PROTOCOL,
                           "what rank %d shows (%zu bytes) is no address of backend ucx", rank,
                           bytes);
    if (major != WEFT_I_UCX_MAJOR || minor < WEFT_I_UCX_MINOR)
        return weft_i_fail(WEFT_ERR_VERSION, "rank %d has UCX %u.%u; 1.13 and later 1.x will do",
                           rank, major, minor);
    return WEFT_OK;
}

weft_status weft_i_ucx_connect(void *of, int rank, const void *address, size_t bytes)
{
    weft_i_ucx_wire *wire = of;
    WEFT_TRY(check_rank(wire, rank));
    WEFT_TRY(check_address(rank, address, bytes));
    void *copy = WEFT_OS->alloc(bytes - WEFT_I_UCX_ADDRESS_HEAD);
    if (!copy)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the address of rank %d", rank);
    memcpy(copy, (const char *)address + WEFT_I_UCX_ADDRESS_HEAD, bytes - WEFT_I_UCX_ADDRESS_HEAD);
    weft_i_ucx_enter(wire);
    weft_i_ucx_peer *peer = &wire->peers[rank];
    bool fresh = peer->life == WEFT_I_UCX_UNKNOWN;
    if (fresh) {
        peer->address = copy;
        peer->life = WEFT_I_UCX_KNOWN;
    }
    weft_i_ucx_leave(wire);
    if (!fresh)
        WEFT_OS->free(copy);
    return fresh
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_EXISTS, "rank %d is connected already; drop it first", rank);
}

weft_i_ucp_request_params weft_i_ucx_told(void (*call)(void *, weft_i_ucs_status, void *),
                                          void *user)
{
    return (weft_i_ucp_request_params){.mask = WEFT_I_UCP_OP_ATTR_FIELD_CALLBACK |
                                               WEFT_I_UCP_OP_ATTR_FIELD_USER_DATA |
                                               WEFT_I_UCP_OP_ATTR_FIELD_FLAGS,
                                       .call = call,
                                       .user = user};
}

weft_status weft_i_ucx_begun(weft_i_ucx_wire *wire, int rank, const void *result, const char *what)
{
    if (!result)
        return WEFT_OK;
    if (weft_i_ucx_is_error(result))
        return weft_i_ucx_fail(weft_i_ucx_error_of(result), "%s to rank %d", what, rank);
    wire->peers[rank].under_way++;
    return WEFT_IN_PROGRESS;
}

void weft_i_ucx_ended(void *request, weft_i_ucs_status status, void *of)
{
    weft_i_sent *sent = of;
    weft_i_ucx_wire *wire = sent->wire;
    WEFT_ASSERT(wire->peers[sent->peer].under_way > 0);
    wire->ucx->ucp_request_free(request);
    wire->peers[sent->peer].under_way--;
    weft_i_sent_end(sent, weft_i_ucx_status_of(status));
}

int weft_i_ucx_tell_faults(weft_i_ucx_wire *wire)
{
    int told = 0;
    if (!wire->faults)
        return 0;
    wire->faults = false;
    for (int rank = 0; rank < wire->opts.ranks; rank++) {
        weft_i_ucx_peer *peer = &wire->peers[rank];
        if (peer->life != WEFT_I_UCX_FAULTY || peer->told)
            continue;
        peer->told = true;
        told++;
        wire->opts.on_fault(wire->opts.arg, rank, weft_i_ucx_status_of(peer->fault),
                            wire->ucx->ucs_status_string(peer->fault));
    }
    return told;
}

static void closed(void *request, weft_i_ucs_status status, void *of)
{
    weft_i_ucx_wire *wire = of;
    WEFT_ASSERT(wire->closing > 0);
    (void)status;
    wire->ucx->ucp_request_free(request);
    wire->closing--;
}

static void close_endpoint(weft_i_ucx_wire *wire, weft_i_ucx_peer *peer)
{
    if (peer->life != WEFT_I_UCX_USED && peer->life != WEFT_I_UCX_FAULTY)
        return;
    weft_i_ucp_request_params params = weft_i_ucx_told(closed, wire);
    params.flags = WEFT_I_UCP_EP_CLOSE_FLAG_FORCE;
    peer->life = WEFT_I_UCX_UNKNOWN; /* what UCX reports from now on is no news */
    const void *result = wire->ucx->ucp_ep_close_nbx(peer->ep, &params);
    wire->closing += result && !weft_i_ucx_is_error(result);
    peer->ep = NULL;
}

void weft_i_ucx_drop(void *of, int rank)
{
    weft_i_ucx_wire *wire = of;
    if (rank < 0 || rank >= wire->opts.ranks)
        return;
    weft_i_ucx_enter(wire);
    weft_i_ucx_peer *peer = &wire->peers[rank];
    close_endpoint(wire, peer);
    weft_i_ucx_abandon(wire, rank);
    int64_t deadline = weft_i_os_deadline(DROP_MS);
    while (peer->under_way && WEFT_OS->clock_ns() < deadline)
        wire->ucx->ucp_worker_progress(wire->worker);
    if (peer->under_way)
        weft_i_log(WEFT_LOG_WARN,
                   "ucx: %d operations with rank %d have not ended %d ms after it was "
                   "dropped",
                   peer->under_way, rank, DROP_MS);
    weft_i_ucx_far_forget(wire, rank);
    WEFT_OS->free(peer->address);
    peer->address = NULL;
    peer->life = WEFT_I_UCX_UNKNOWN;
    weft_i_ucx_leave(wire);
}
