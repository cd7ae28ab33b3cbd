/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided transfers: plain copies to and from a peer's memory, with every bound checked. */
#include "weft/symm_coll.h"

#include "base/os/assert.h"
#include "base/report/status.h"
#include "symm/remote_moves.h"
#include "tensor/object/stream.h"

#include <string.h>

/* Bytes from the first to the last element of the handle's tensor. */
static size_t extent(const weft_symm *mem)
{
    size_t last = 0;
    for (int d = 0; d < mem->shape.ndim; d++) {
        if (!mem->shape.dim[d])
            return 0;
        last += (size_t)(mem->shape.dim[d] - 1) * (size_t)mem->strides[d];
    }
    return (last + 1) * weft_dtype_size(mem->dtype);
}

static weft_status check_handle(const char *op, const weft_symm *mem, int peer)
{
    if (!mem)
        return weft_i_missing("%s: the handle is NULL", op);
    if (peer < 0 || peer >= mem->group->size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: invalid peer: rank %d must be in [0, %d)", op,
                           peer, mem->group->size);
    return weft_i_group_usable(mem->group);
}

/* Finds the peer's memory for `x`: as many bytes, `offset` elements from the handle's tensor on. */
static weft_status find(const char *op, const weft_symm *mem, int peer, const weft_tensor *x,
                        int64_t offset, size_t *at, size_t *bytes)
{
    WEFT_TRY(check_handle(op, mem, peer));
    if (!x)
        return weft_i_missing("%s: the tensor is NULL", op);
    char here[16], theirs[16];
    if (weft_i_tensor_device(x) != mem->block->device)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the tensor is on %s, the symmetric memory on %s", op,
                           weft_device_name(weft_i_tensor_device(x), here),
                           weft_device_name(mem->block->device, theirs));
    if (!weft_i_tensor_is_contiguous(x))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the tensor must be contiguous", op);
    WEFT_TRY(weft_i_tensor_check_fits(op, x));
    if (offset < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the offset %lld must be non-negative", op,
                           (long long)offset);
    size_t item = weft_dtype_size(x->dtype), count = (size_t)weft_i_tensor_numel(x);
    size_t room = extent(mem) / item;
    if ((size_t)offset > room || count > room - (size_t)offset)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: %zu elements of %s at offset %lld: that exceeds the %zu there are",
                           op, count, weft_dtype_name(x->dtype), (long long)offset, room);
    *at = mem->offset + (size_t)offset * item;
    *bytes = count * item;
    return WEFT_OK;
}

/* Where the host reaches it. */
static char *place_of(const weft_symm *mem, int peer, size_t at)
{
    WEFT_ASSERT(mem->registration->blocks[peer]);
    return mem->registration->blocks[peer]->base + at;
}

static void move(char *to, const char *from, size_t bytes)
{
    if (bytes)
        memmove(to, from, bytes); /* peer and we may be the same, and the ranges overlap */
}

/* On a device: given to the current stream, with a signal behind it unless `channel` is -1. */
static weft_status put_there(const weft_symm *mem, int peer, weft_tensor *from, size_t at,
                             size_t bytes, int channel, int64_t limit_ms)
{
    WEFT_ASSERT(mem->registration->joined);
    weft_i_registration *registration = mem->registration;
    weft_stream *stream = weft_i_stream_current(mem->block->device);
    if (!stream)
        return weft_last_status();
    WEFT_TRY(weft_i_storage_ready(from->storage, false));
    return registration->memory->put(registration->joined, stream->own, peer, at,
                                     weft_i_tensor_data(from), bytes, channel, limit_ms);
}

static weft_status put(const char *op, weft_symm *mem, int peer, weft_tensor *from, int64_t offset,
                       int channel, int64_t limit_ms)
{
    size_t at = 0, bytes = 0;
    weft_status status = WEFT_OK;
    WEFT_TRY(find(op, mem, peer, from, offset, &at, &bytes));
    weft_i_record *record = weft_i_group_record(mem->group);
    uint64_t number = weft_i_record_begin(record, op, mem->group->id, bytes, peer, channel);
    if (mem->registration->memory)
        status = put_there(mem, peer, from, at, bytes, channel, limit_ms);
    else if (weft_i_far_is(mem, peer))
        status = weft_i_far_put(&(weft_i_label){mem->group, op, -1}, mem, peer, at,
                                weft_i_tensor_data(from), bytes, false,
                                weft_i_group_limit(mem->group, WEFT_DEFAULT));
    else
        move(place_of(mem, peer, at), weft_i_tensor_data(from), bytes);
    weft_i_record_end(record, number, status);
    return status;
}

weft_status weft_symm_put(weft_symm *mem, int peer, weft_tensor *from, int64_t offset)
{
    return put("put", mem, peer, from, offset, -1, WEFT_DEFAULT);
}

static weft_status get_there(const weft_symm *mem, int peer, weft_tensor *to, size_t at,
                             size_t bytes)
{
    WEFT_ASSERT(mem->registration->joined);
    weft_i_registration *registration = mem->registration;
    weft_stream *stream = weft_i_stream_current(mem->block->device);
    return stream ? registration->memory->get(registration->joined, stream->own, peer, at,
                                              weft_i_tensor_data(to), bytes)
                  : weft_last_status();
}

weft_status weft_symm_get(weft_tensor *to, weft_symm *mem, int peer, int64_t offset)
{
    size_t at = 0, bytes = 0;
    weft_status status = WEFT_OK;
    WEFT_TRY(find("get", mem, peer, to, offset, &at, &bytes));
    if (to->storage->read_only)
        return weft_i_fail(WEFT_ERR_STATE, "get: the tensor is read-only memory");
    WEFT_TRY(weft_i_storage_ready(to->storage, true));
    weft_i_record *record = weft_i_group_record(mem->group);
    uint64_t number = weft_i_record_begin(record, "get", mem->group->id, bytes, peer, -1);
    if (mem->registration->memory)
        status = get_there(mem, peer, to, at, bytes);
    else if (weft_i_far_is(mem, peer))
        status = weft_i_far_fetch(&(weft_i_label){mem->group, "get", -1}, mem, peer, at,
                                  weft_i_tensor_data(to), bytes,
                                  weft_i_group_limit(mem->group, WEFT_DEFAULT));
    else
        move(weft_i_tensor_data(to), place_of(mem, peer, at), bytes);
    weft_i_record_end(record, number, status);
    return status;
}

weft_status weft_symm_put_with_signal(weft_symm *mem, int peer, weft_tensor *from, int64_t offset,
                                      int channel, int64_t timeout_ms)
{
    WEFT_TRY(check_handle("put_with_signal", mem, peer));
    if (channel < 0 || channel >= mem->registration->pads.channels)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "put_with_signal: channel %d must be in [0, %d)",
                           channel, mem->registration->pads.channels);
    WEFT_TRY(weft_i_group_check_limit("put_with_signal", timeout_ms));
    if (mem->registration->memory)
        return put("put_with_signal", mem, peer, from, offset, channel,
                   weft_i_group_limit(mem->group, timeout_ms));
    size_t at = 0, bytes = 0;
    WEFT_TRY(find("put_with_signal", mem, peer, from, offset, &at, &bytes));
    weft_i_copy copy = {weft_i_far_is(mem, peer) ? NULL : place_of(mem, peer, at),
                        weft_i_tensor_data(from), bytes, at};
    return weft_i_symm_copy_and_signal(mem, peer, channel, &copy, timeout_ms);
}
