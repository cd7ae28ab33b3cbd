/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Framing over a non-blocking socket.  Invariant: in.bytes[in.start] is the first byte of a
 * greeting or frame; out holds whole ones, the first perhaps partly sent.
 */
#include "store/link.h"

#include "base/machine/nofork.h"
#include "base/os/assert.h"
#include "base/os/os.h"

#include <errno.h>
#include <string.h>

/* PIECE: read at a time while no large frame is under way; KEEP: an idle buffer above it is given
 * back. */
enum { PIECE = 4096, SMALL = 512, KEEP = 64 * 1024 };

void weft_i_store_transcript_set(weft_i_store_transcript *transcript,
                                 const weft_i_store_greeting *hello,
                                 const weft_i_store_greeting *challenge)
{
    weft_i_store_greeting bare = *challenge;
    memset(bare.proof, 0, sizeof bare.proof);
    weft_i_store_greeting_encode(hello, transcript->hello);
    weft_i_store_greeting_encode(&bare, transcript->challenge);
}

weft_status weft_i_store_link_derive(const uint8_t token[WEFT_I_KEYED_BYTES],
                                     weft_i_store_purpose purpose,
                                     const weft_i_store_transcript *transcript,
                                     uint8_t out[WEFT_I_KEYED_BYTES])
{
    uint8_t text[32 + sizeof *transcript];
    weft_i_wire_writer to = weft_i_wire_write(text, sizeof text);
    weft_i_wire_put_text(&to, "weft store handshake", 26);
    weft_i_wire_put_u32(&to, (uint32_t)purpose);
    weft_i_wire_put_u16(&to, WEFT_I_STORE_VERSION);
    weft_i_wire_put_bytes(&to, transcript, sizeof *transcript);
    return weft_i_keyed_sign(token, text, sizeof text, out);
}

weft_status weft_i_store_link_hello_proof(const uint8_t token[WEFT_I_KEYED_BYTES],
                                          const weft_i_store_greeting *hello,
                                          uint8_t out[WEFT_I_KEYED_BYTES])
{
    weft_i_store_transcript said = {0};
    weft_i_store_greeting bare = *hello;
    memset(bare.proof, 0, sizeof bare.proof);
    weft_i_store_greeting_encode(&bare, said.hello);
    return weft_i_store_link_derive(token, WEFT_I_STORE_HELLO_PROOF, &said, out);
}

void weft_i_store_link_open(weft_i_store_link *link, int fd)
{
    *link = (weft_i_store_link){.fd = fd};
}

void weft_i_store_link_close(weft_i_store_link *link, bool forked)
{
    if (link->fd >= 0 && !forked)
        weft_i_nofork_close(link->fd);
    WEFT_OS->free(link->in.bytes);
    WEFT_OS->free(link->out.bytes);
    weft_i_keyed_forget(link, sizeof *link);
    link->fd = -1;
}

/* ---- buffers ---- */

/* Room for `more` bytes behind the end, moving or growing as needed. */
static bool buffer_reserve(weft_i_store_buffer *buffer, size_t more)
{
    size_t held = buffer->end - buffer->start;
    if (buffer->capacity - buffer->end >= more)
        return true;
    if (buffer->capacity - held >= more && buffer->start) {
        memmove(buffer->bytes, buffer->bytes + buffer->start, held);
    } else {
        size_t capacity = held + more < SMALL ? SMALL : held + more;
        if (buffer->capacity >= SMALL && capacity < 2 * buffer->capacity)
            capacity =
                2 * buffer->capacity; /* many small frames in a row are not copied each time */
        uint8_t *bytes = WEFT_OS->alloc(capacity);
        if (!bytes)
            return false;
        if (held)
            memcpy(bytes, buffer->bytes + buffer->start, held);
        WEFT_OS->free(buffer->bytes);
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    buffer->start = 0;
    buffer->end = held;
    return true;
}

static void buffer_consume(weft_i_store_buffer *buffer, size_t bytes)
{
    WEFT_ASSERT(bytes <= buffer->end - buffer->start && buffer->end <= buffer->capacity);
    buffer->start += bytes;
    if (buffer->start != buffer->end)
        return;
    buffer->start = buffer->end = 0;
}

/* One large value must not hold memory for ever. */
static void buffer_trim(weft_i_store_buffer *buffer)
{
    if (buffer->start != buffer->end || buffer->capacity <= KEEP)
        return;
    WEFT_OS->free(buffer->bytes);
    *buffer = (weft_i_store_buffer){0};
}

/* ---- greetings ---- */

weft_status weft_i_store_link_greet(weft_i_store_link *link, const weft_i_store_greeting *greeting)
{
    if (!buffer_reserve(&link->out, WEFT_I_STORE_GREETING_BYTES))
        return WEFT_ERR_NO_MEMORY;
    weft_i_store_greeting_encode(greeting, link->out.bytes + link->out.end);
    link->out.end += WEFT_I_STORE_GREETING_BYTES;
    return WEFT_OK;
}

int weft_i_store_link_greeting(weft_i_store_link *link, weft_i_store_greeting *out)
{
    const uint8_t *bytes = link->in.bytes + link->in.start;
    size_t held = link->in.end - link->in.start;
    /* Something else on the port is told from its first bytes, even if it never sends as many as we
     * do. */
    if (held && memcmp(bytes, "WEFT", held < 4 ? held : 4) != 0)
        return WEFT_ERR_PROTOCOL;
    if (held < WEFT_I_STORE_GREETING_BYTES)
        return 0;
    if (!weft_i_store_greeting_decode(bytes, out))
        return WEFT_ERR_PROTOCOL;
    buffer_consume(&link->in, WEFT_I_STORE_GREETING_BYTES);
    return 1;
}

/* ---- frames ---- */

static size_t tag_bytes(const weft_i_store_link *link)
{
    return link->is_signed ? WEFT_I_KEYED_BYTES : 0;
}

uint8_t *weft_i_store_link_begin(weft_i_store_link *link, uint64_t id, size_t payload_bytes)
{
    if (!buffer_reserve(&link->out, WEFT_I_STORE_HEAD_BYTES + payload_bytes + tag_bytes(link)))
        return NULL;
    weft_i_store_head head = {
        .payload_bytes = (uint32_t)payload_bytes, .sequence = link->sent, .id = id};
    weft_i_store_head_encode(&head, link->out.bytes + link->out.end);
    return link->out.bytes + link->out.end + WEFT_I_STORE_HEAD_BYTES;
}

weft_status weft_i_store_link_commit(weft_i_store_link *link, size_t payload_bytes)
{
    uint8_t *frame = link->out.bytes + link->out.end;
    size_t bytes = WEFT_I_STORE_HEAD_BYTES + payload_bytes;
    if (link->is_signed && weft_i_keyed_sign(link->send_key, frame, bytes, frame + bytes) < 0)
        return WEFT_ERR_NO_MEMORY;
    link->out.end += bytes + tag_bytes(link);
    link->sent++;
    return WEFT_OK;
}

weft_status weft_i_store_link_flush(weft_i_store_link *link)
{
    while (weft_i_store_link_unsent(link)) {
        struct iovec piece = {link->out.bytes + link->out.start, weft_i_store_link_unsent(link)};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        ssize_t sent = WEFT_OS->sendmsg(link->fd, &message, 0);
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM
                       ? WEFT_OK
                       : WEFT_ERR_UNREACHABLE;
        link->flushed += (uint64_t)sent;
        buffer_consume(&link->out, (size_t)sent);
    }
    buffer_trim(&link->out);
    return WEFT_OK;
}

size_t weft_i_store_link_wants(const weft_i_store_link *link)
{
    weft_i_store_head head;
    if (link->in.end - link->in.start < WEFT_I_STORE_HEAD_BYTES ||
        !weft_i_store_head_decode(link->in.bytes + link->in.start, &head))
        return 0;
    return WEFT_I_STORE_HEAD_BYTES + head.payload_bytes + tag_bytes(link);
}

weft_status weft_i_store_link_fill(weft_i_store_link *link, size_t limit)
{
    size_t held = link->in.end - link->in.start, wants = weft_i_store_link_wants(link);
    size_t room = wants > held + PIECE ? wants - held : PIECE;
    WEFT_ASSERT(held <= limit);
    if (room > limit - held)
        room = limit - held;
    if (!room)
        return WEFT_OK; /* full: what is held has to be consumed first */
    buffer_trim(&link->in);
    if (!buffer_reserve(&link->in, room))
        return WEFT_ERR_NO_MEMORY;
    struct iovec piece = {link->in.bytes + link->in.end, room};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    ssize_t got = WEFT_OS->recvmsg(link->fd, &message, 0);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? WEFT_OK : WEFT_ERR_UNREACHABLE;
    link->in.end += (size_t)got;
    return got ? WEFT_OK : WEFT_ERR_UNREACHABLE;
}

int weft_i_store_link_next(weft_i_store_link *link, weft_i_store_frame *out)
{
    size_t held = link->in.end - link->in.start;
    if (held < WEFT_I_STORE_HEAD_BYTES)
        return 0;
    const uint8_t *frame = link->in.bytes + link->in.start;
    weft_i_store_head head;
    if (!weft_i_store_head_decode(frame, &head) || head.sequence != link->received)
        return WEFT_ERR_PROTOCOL;
    size_t bytes = WEFT_I_STORE_HEAD_BYTES + head.payload_bytes;
    if (held < bytes + tag_bytes(link))
        return 0;
    uint8_t tag[WEFT_I_KEYED_BYTES];
    if (link->is_signed && (weft_i_keyed_sign(link->receive_key, frame, bytes, tag) < 0 ||
                            !weft_i_keyed_equal(tag, frame + bytes)))
        return WEFT_ERR_AUTH;
    link->received++;
    *out = (weft_i_store_frame){head.id, frame + WEFT_I_STORE_HEAD_BYTES, head.payload_bytes};
    buffer_consume(&link->in, bytes + tag_bytes(link));
    return 1;
}
