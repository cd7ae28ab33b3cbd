/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records on a wire or in a file: little-endian fields, one after the other, read and written
 * through a cursor.
 *
 * The error is sticky: after the first field that does not fit, every later call does nothing and
 * reads give zero, so that a record is decoded in straight lines and checked once, by
 * weft_i_wire_done() or `bad`.  Lengths are checked before they are used.  Decoding accepts exactly
 * what encoding writes: reserved bytes must be zero.
 */
#ifndef WEFT_BASE_WIRE_H
#define WEFT_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that belong to somebody else. */
typedef struct weft_i_view {
    const void *data;
    size_t bytes;
} weft_i_view;

typedef struct weft_i_wire_reader {
    const uint8_t *bytes;
    size_t count, at;
    bool bad;
} weft_i_wire_reader;

typedef struct weft_i_wire_writer {
    uint8_t *bytes;
    size_t capacity, at;
    bool bad;
} weft_i_wire_writer;

weft_i_wire_writer weft_i_wire_write(void *bytes, size_t capacity);
void weft_i_wire_put_u8(weft_i_wire_writer *to, uint8_t value);
void weft_i_wire_put_u16(weft_i_wire_writer *to, uint16_t value);
void weft_i_wire_put_u32(weft_i_wire_writer *to, uint32_t value);
void weft_i_wire_put_u64(weft_i_wire_writer *to, uint64_t value);
void weft_i_wire_put_zero(weft_i_wire_writer *to, size_t count);
/* Exactly `count` bytes, no length in front. */
void weft_i_wire_put_bytes(weft_i_wire_writer *to, const void *bytes, size_t count);
/* A 32-bit length and the bytes. */
void weft_i_wire_put_blob(weft_i_wire_writer *to, weft_i_view blob);
/* A text in a field of fixed width, padded with zeros; cut to width - 1 characters. */
void weft_i_wire_put_text(weft_i_wire_writer *to, const char *text, size_t width);
/* What every record that meets a stranger starts with. */
void weft_i_wire_put_head(weft_i_wire_writer *to, uint32_t magic, uint16_t version);

weft_i_wire_reader weft_i_wire_read(const void *bytes, size_t count);
uint8_t weft_i_wire_get_u8(weft_i_wire_reader *from);
uint16_t weft_i_wire_get_u16(weft_i_wire_reader *from);
uint32_t weft_i_wire_get_u32(weft_i_wire_reader *from);
uint64_t weft_i_wire_get_u64(weft_i_wire_reader *from);
/* Skips reserved bytes; one that is not zero makes the record bad. */
void weft_i_wire_get_zero(weft_i_wire_reader *from, size_t count);
void weft_i_wire_get_bytes(weft_i_wire_reader *from, void *out, size_t count);
/* A view into the record; longer than `limit` or than the record is bad and gives an empty view. */
weft_i_view weft_i_wire_get_blob(weft_i_wire_reader *from, size_t limit);
/* `out` has `width` bytes and is always terminated; a field without its zero padding is bad. */
void weft_i_wire_get_text(weft_i_wire_reader *from, char *out, size_t width);
/* The version of the head; another magic number is bad. */
uint16_t weft_i_wire_get_head(weft_i_wire_reader *from, uint32_t magic);

size_t weft_i_wire_left(const weft_i_wire_reader *from);
/* True if the record was good and nothing is left over. */
bool weft_i_wire_done(const weft_i_wire_reader *from);

/* Bytes of a blob on the wire. */
static inline size_t weft_i_wire_blob_bytes(size_t bytes)
{
    return bytes + 4;
}

#endif
