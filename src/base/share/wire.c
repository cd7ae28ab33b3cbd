/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cursors over little-endian records.  Every access goes through take() or room(), the only two
 * places that compare a length with what is there; both compare by subtraction, so that a length
 * near SIZE_MAX cannot wrap.
 */
#include "base/share/wire.h"

#include "base/os/assert.h"

#include <string.h>

weft_i_wire_writer weft_i_wire_write(void *bytes, size_t capacity)
{
    return (weft_i_wire_writer){.bytes = bytes, .capacity = capacity};
}

weft_i_wire_reader weft_i_wire_read(const void *bytes, size_t count)
{
    return (weft_i_wire_reader){.bytes = bytes, .count = count};
}

static uint8_t *room(weft_i_wire_writer *to, size_t count)
{
    WEFT_ASSERT(to->at <= to->capacity);
    if (to->bad || count > to->capacity - to->at) {
        to->bad = true;
        return NULL;
    }
    to->at += count;
    return to->bytes + to->at - count;
}

static const uint8_t *take(weft_i_wire_reader *from, size_t count)
{
    WEFT_ASSERT(from->at <= from->count);
    if (from->bad || count > from->count - from->at) {
        from->bad = true;
        return NULL;
    }
    from->at += count;
    return from->bytes + from->at - count;
}

static void put_number(weft_i_wire_writer *to, uint64_t value, size_t width)
{
    uint8_t *at = room(to, width);
    for (size_t i = 0; at && i < width; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_number(weft_i_wire_reader *from, size_t width)
{
    const uint8_t *at = take(from, width);
    uint64_t value = 0;
    for (size_t i = 0; at && i < width; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void weft_i_wire_put_u8(weft_i_wire_writer *to, uint8_t value)
{
    put_number(to, value, 1);
}

void weft_i_wire_put_u16(weft_i_wire_writer *to, uint16_t value)
{
    put_number(to, value, 2);
}

void weft_i_wire_put_u32(weft_i_wire_writer *to, uint32_t value)
{
    put_number(to, value, 4);
}

void weft_i_wire_put_u64(weft_i_wire_writer *to, uint64_t value)
{
    put_number(to, value, 8);
}

void weft_i_wire_put_zero(weft_i_wire_writer *to, size_t count)
{
    uint8_t *at = room(to, count);
    if (at)
        memset(at, 0, count);
}

void weft_i_wire_put_bytes(weft_i_wire_writer *to, const void *bytes, size_t count)
{
    uint8_t *at = room(to, count);
    if (at && count)
        memcpy(at, bytes, count);
}

void weft_i_wire_put_blob(weft_i_wire_writer *to, weft_i_view blob)
{
    if (blob.bytes > UINT32_MAX) {
        to->bad = true;
        return;
    }
    weft_i_wire_put_u32(to, (uint32_t)blob.bytes);
    weft_i_wire_put_bytes(to, blob.data, blob.bytes);
}

void weft_i_wire_put_text(weft_i_wire_writer *to, const char *text, size_t width)
{
    if (!width)
        return;
    size_t length = strnlen(text, width - 1);
    weft_i_wire_put_bytes(to, text, length);
    weft_i_wire_put_zero(to, width - length);
}

void weft_i_wire_put_head(weft_i_wire_writer *to, uint32_t magic, uint16_t version)
{
    weft_i_wire_put_u32(to, magic);
    weft_i_wire_put_u16(to, version);
}

uint8_t weft_i_wire_get_u8(weft_i_wire_reader *from)
{
    return (uint8_t)get_number(from, 1);
}

uint16_t weft_i_wire_get_u16(weft_i_wire_reader *from)
{
    return (uint16_t)get_number(from, 2);
}

uint32_t weft_i_wire_get_u32(weft_i_wire_reader *from)
{
    return (uint32_t)get_number(from, 4);
}

uint64_t weft_i_wire_get_u64(weft_i_wire_reader *from)
{
    return get_number(from, 8);
}

void weft_i_wire_get_zero(weft_i_wire_reader *from, size_t count)
{
    const uint8_t *at = take(from, count);
    for (size_t i = 0; at && i < count; i++)
        if (at[i])
            from->bad = true;
}

void weft_i_wire_get_bytes(weft_i_wire_reader *from, void *out, size_t count)
{
    const uint8_t *at = take(from, count);
    if (at && count)
        memcpy(out, at, count);
    else if (count)
        memset(out, 0, count);
}

weft_i_view weft_i_wire_get_blob(weft_i_wire_reader *from, size_t limit)
{
    size_t bytes = weft_i_wire_get_u32(from);
    if (bytes > limit)
        from->bad = true;
    const uint8_t *at = take(from, bytes);
    return at ? (weft_i_view){at, bytes} : (weft_i_view){"", 0};
}

void weft_i_wire_get_text(weft_i_wire_reader *from, char *out, size_t width)
{
    if (!width)
        return;
    weft_i_wire_get_bytes(from, out, width);
    for (size_t i = strnlen(out, width); i < width; i++)
        if (out[i])
            from->bad = true;
    if (out[width - 1])
        from->bad = true;
    out[width - 1] = 0;
}

uint16_t weft_i_wire_get_head(weft_i_wire_reader *from, uint32_t magic)
{
    if (weft_i_wire_get_u32(from) != magic)
        from->bad = true;
    return weft_i_wire_get_u16(from);
}

size_t weft_i_wire_left(const weft_i_wire_reader *from)
{
    return from->bad ? 0 : from->count - from->at;
}

bool weft_i_wire_done(const weft_i_wire_reader *from)
{
    return !from->bad && from->at == from->count;
}
