/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-sided transfers by UCX.  A key is ours around UCX's own: 24 bytes, little-endian, with where the
 * memory begins and how much there is, and then what ucp_rkey_pack gave.  Keys go to members of the job
 * alone: a process that has one can read and write the memory.
 */
#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/share/wire.h"
#include "wire.h"

#include <string.h>

enum { MAGIC = 0x4b544657 /* "WFTK" */, KEY_HEAD = 24 };

static weft_status pack(weft_i_ucx_wire *wire, weft_i_ucp_mem mem, void *base, size_t bytes,
                        void *key, size_t *key_bytes)
{
    void *own;
    size_t own_bytes, room = *key_bytes;
    weft_i_ucs_status status = wire->ucx->ucp_rkey_pack(wire->library, mem, &own, &own_bytes);
    if (status)
        return weft_i_ucx_fail(status, "a key for %zu bytes", bytes);
    *key_bytes = KEY_HEAD + own_bytes;
    weft_i_wire_writer to = weft_i_wire_write(key, room);
    weft_i_wire_put_u32(&to, MAGIC);
    weft_i_wire_put_u32(&to, (uint32_t)own_bytes);
    weft_i_wire_put_u64(&to, (uint64_t)(uintptr_t)base);
    weft_i_wire_put_u64(&to, bytes);
    weft_i_wire_put_bytes(&to, own, own_bytes);
    wire->ucx->ucp_rkey_buffer_release(own);
    return to.bad ? weft_i_fail(WEFT_ERR_INVALID_ARG,
                                "a key has %zu bytes, and there is room for %zu", *key_bytes, room)
                  : WEFT_OK;
}

weft_status weft_i_ucx_map(void *of, void *base, size_t bytes, void *key, size_t *key_bytes,
                           void **mapped)
{
    weft_i_ucx_wire *wire = of;
    const weft_i_ucp_map_params params = {.mask = WEFT_I_UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                  WEFT_I_UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                          .address = base,
                                          .bytes = bytes};
    weft_i_ucp_mem mem;
    *mapped = NULL;
    if (!base || !bytes)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "there is no memory to map");
    weft_i_ucx_enter(wire);
    weft_i_ucs_status status = wire->ucx->ucp_mem_map(wire->library, &params, &mem);
    weft_status result = status ? weft_i_ucx_fail(status, "mapping %zu bytes", bytes)
                                : pack(wire, mem, base, bytes, key, key_bytes);
    if (!status && result < 0)
        wire->ucx->ucp_mem_unmap(wire->library, mem);
    else if (!status)
        *mapped = mem;
    weft_i_ucx_leave(wire);
    return result;
}

void weft_i_ucx_unmap(void *of, void *mapped)
{
    weft_i_ucx_wire *wire = of;
    if (!mapped)
        return;
    weft_i_ucx_enter(wire);
    wire->ucx->ucp_mem_unmap(wire->library, mapped);
    weft_i_ucx_leave(wire);
}

/* UCX believes its part; that there is as much of it as the key says is checked here. */
static weft_status read_key(const void *key, size_t key_bytes, int rank, weft_i_ucx_far *out)
{
    weft_i_wire_reader from = weft_i_wire_read(key, key_bytes);
    bool ours = weft_i_wire_get_u32(&from) == MAGIC;
    uint32_t own = weft_i_wire_get_u32(&from);
    out->base = weft_i_wire_get_u64(&from);
    out->bytes = weft_i_wire_get_u64(&from);
    if (!ours || from.bad || !own || own != weft_i_wire_left(&from) || !out->bytes ||
        out->base > UINT64_MAX - out->bytes)
        return weft_i_fail(WEFT_ERR_PROTOCOL,
                           "what rank %d shows (%zu bytes) is no key of backend ucx", rank,
                           key_bytes);
    return WEFT_OK;
}

static weft_status open_key(weft_i_ucx_wire *wire, int rank, const void *key, size_t key_bytes,
                            weft_i_ucx_far *far)
{
    weft_i_ucx_peer *peer;
    WEFT_TRY(read_key(key, key_bytes, rank, far));
    WEFT_TRY(weft_i_ucx_peer_of(wire, rank, &peer));
    weft_i_ucs_status status =
        wire->ucx->ucp_ep_rkey_unpack(peer->ep, (const char *)key + KEY_HEAD, &far->key);
    if (status)
        return weft_i_ucx_fail(status, "the key of rank %d", rank);
    far->peer = rank;
    far->next = wire->far;
    far->before = &wire->far;
    if (far->next)
        far->next->before = &far->next;
    wire->far = far;
    WEFT_ASSERT(far->key && *far->before == far);
    return WEFT_OK;
}

weft_status weft_i_ucx_far_reach(void *of, int rank, const void *key, size_t key_bytes, void **out)
{
    weft_i_ucx_wire *wire = of;
    weft_i_ucx_far *far = WEFT_OS->alloc(sizeof *far);
    *out = NULL;
    if (!far)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a key of rank %d", rank);
    weft_i_ucx_enter(wire);
    weft_status status = open_key(wire, rank, key, key_bytes, far);
    weft_i_ucx_leave(wire);
    if (status < 0)
        WEFT_OS->free(far);
    else
        *out = far;
    return status;
}

static void close_key(weft_i_ucx_wire *wire, weft_i_ucx_far *far)
{
    if (far->key)
        wire->ucx->ucp_rkey_destroy(far->key);
    far->key = NULL;
}

void weft_i_ucx_far_leave(void *of, void *mine)
{
    weft_i_ucx_wire *wire = of;
    weft_i_ucx_far *far = mine;
    if (!far)
        return;
    weft_i_ucx_enter(wire);
    WEFT_ASSERT(*far->before == far);
    close_key(wire, far);
    *far->before = far->next;
    if (far->next)
        far->next->before = far->before;
    weft_i_ucx_leave(wire);
    WEFT_OS->free(far);
}

void weft_i_ucx_far_forget(weft_i_ucx_wire *wire, int rank)
{
    for (weft_i_ucx_far *far = wire->far; far; far = far->next)
        if (far->peer == rank)
            close_key(wire, far);
}

/* May these bytes be moved?  With the lock. */
static weft_status check(weft_i_ucx_wire *wire, const weft_i_ucx_far *far, size_t at, size_t bytes,
                         weft_i_ucx_peer **peer)
{
    if (at > far->bytes || bytes > far->bytes - at)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%zu bytes at %zu are outside of the %zu that rank %d has mapped", bytes,
                           at, far->bytes, far->peer);
    if (!far->key)
        return weft_i_fail(WEFT_ERR_UNREACHABLE, "rank %d was dropped, and its key with it",
                           far->peer);
    return weft_i_ucx_peer_of(wire, far->peer, peer);
}

static weft_i_ucp_request_params begin(weft_i_ucx_wire *wire, int rank, weft_i_sent *sent)
{
    sent->wire = wire;
    sent->peer = rank;
    return weft_i_ucx_told(weft_i_ucx_ended, sent);
}

weft_status weft_i_ucx_put(void *of, void *mine, size_t at, const void *from, size_t bytes,
                           weft_i_sent *sent)
{
    weft_i_ucx_wire *wire = of;
    weft_i_ucx_far *far = mine;
    weft_i_ucx_peer *peer;
    weft_i_ucx_enter(wire);
    weft_status status = check(wire, far, at, bytes, &peer);
    if (status == WEFT_OK && bytes) {
        weft_i_ucp_request_params params = begin(wire, far->peer, sent);
        const void *result =
            wire->ucx->ucp_put_nbx(peer->ep, from, bytes, far->base + at, far->key, &params);
        status = weft_i_ucx_begun(wire, far->peer, result, "a put");
    }
    weft_i_ucx_leave(wire);
    return status;
}

weft_status weft_i_ucx_get(void *of, void *mine, size_t at, void *to, size_t bytes,
                           weft_i_sent *sent)
{
    weft_i_ucx_wire *wire = of;
    weft_i_ucx_far *far = mine;
    weft_i_ucx_peer *peer;
    weft_i_ucx_enter(wire);
    weft_status status = check(wire, far, at, bytes, &peer);
    if (status == WEFT_OK && bytes) {
        weft_i_ucp_request_params params = begin(wire, far->peer, sent);
        const void *result =
            wire->ucx->ucp_get_nbx(peer->ep, to, bytes, far->base + at, far->key, &params);
        status = weft_i_ucx_begun(wire, far->peer, result, "a get");
    }
    weft_i_ucx_leave(wire);
    return status;
}

weft_status weft_i_ucx_flush(void *of, int rank, weft_i_sent *sent)
{
    weft_i_ucx_wire *wire = of;
    weft_i_ucx_peer *peer;
    weft_i_ucx_enter(wire);
    weft_status status = weft_i_ucx_peer_of(wire, rank, &peer);
    if (status == WEFT_OK) {
        weft_i_ucp_request_params params = begin(wire, rank, sent);
        status =
            weft_i_ucx_begun(wire, rank, wire->ucx->ucp_ep_flush_nbx(peer->ep, &params), "a flush");
    }
    weft_i_ucx_leave(wire);
    return status;
}
