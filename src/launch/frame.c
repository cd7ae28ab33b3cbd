/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between launchers.  See frame.h. */
#include "launch/frame.h"

#include "base/os/os.h"
#include "base/report/status.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum { HEAD = 8, MAGIC = 0x57, FIRST_ROOM = 64 * 1024 };

/* ---- in ---- */

static weft_status make_room(weft_i_frame_in *in)
{
    if (in->start) {
        memmove(in->bytes, in->bytes + in->start, in->end - in->start);
        in->end -= in->start;
        in->start = 0;
    }
    if (in->end < in->room)
        return WEFT_OK;
    size_t room = in->room ? 2 * in->room : FIRST_ROOM;
    uint8_t *grown = WEFT_OS->resize(in->bytes, room);
    if (!grown)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for what a host says");
    in->bytes = grown;
    in->room = room;
    return WEFT_OK;
}

weft_status weft_i_frame_fill(weft_i_frame_in *in, int fd)
{
    WEFT_TRY(make_room(in));
    ssize_t n = WEFT_OS->read(fd, in->bytes + in->end, in->room - in->end);
    if (n < 0 && errno == EAGAIN)
        return WEFT_OK;
    if (n <= 0)
        return WEFT_ERR_UNREACHABLE;
    in->end += (size_t)n;
    return WEFT_OK;
}

int weft_i_frame_next(weft_i_frame_in *in, weft_i_frame *out)
{
    if (in->end - in->start < HEAD)
        return 0;
    weft_i_wire_reader from = weft_i_wire_read(in->bytes + in->start, HEAD);
    uint8_t magic = weft_i_wire_get_u8(&from), kind = weft_i_wire_get_u8(&from);
    weft_i_wire_get_zero(&from, 2);
    uint32_t count = weft_i_wire_get_u32(&from);
    if (!weft_i_wire_done(&from) || magic != MAGIC || !kind || kind >= WEFT_I_FRAME_KINDS ||
        count > WEFT_I_FRAME_MOST)
        return WEFT_ERR_PROTOCOL;
    if (in->end - in->start - HEAD < count)
        return 0;
    *out = (weft_i_frame){(weft_i_frame_kind)kind, in->bytes + in->start + HEAD, count};
    in->start += HEAD + count;
    return 1;
}

void weft_i_frame_in_free(weft_i_frame_in *in)
{
    WEFT_OS->free(in->bytes);
    *in = (weft_i_frame_in){.bytes = NULL};
}

/* ---- out ---- */

static bool reserve(weft_i_frame_out *out, size_t more)
{
    if (out->broken || out->fd < 0)
        return false;
    if (out->start) {
        memmove(out->bytes, out->bytes + out->start, out->end - out->start);
        out->end -= out->start;
        out->start = 0;
    }
    if (out->end + more <= out->room)
        return true;
    size_t room = out->room ? out->room : FIRST_ROOM;
    while (room < out->end + more)
        room *= 2;
    uint8_t *grown = WEFT_OS->resize(out->bytes, room);
    out->broken = !grown;
    if (!grown)
        return false;
    out->bytes = grown;
    out->room = room;
    return true;
}

static void put_head(uint8_t at[HEAD], weft_i_frame_kind kind, size_t count)
{
    weft_i_wire_writer to = weft_i_wire_write(at, HEAD);
    weft_i_wire_put_u8(&to, MAGIC);
    weft_i_wire_put_u8(&to, (uint8_t)kind);
    weft_i_wire_put_zero(&to, 2);
    weft_i_wire_put_u32(&to, (uint32_t)count);
}

weft_i_wire_writer weft_i_frame_begin(weft_i_frame_out *out, weft_i_frame_kind kind, size_t most)
{
    if (!reserve(out, HEAD + most))
        return weft_i_wire_write(NULL, 0);
    put_head(out->bytes + out->end, kind, 0);
    return weft_i_wire_write(out->bytes + out->end + HEAD, most);
}

void weft_i_frame_end(weft_i_frame_out *out, const weft_i_wire_writer *written)
{
    if (!written->bytes || written->bad) {
        out->broken = true;
        return;
    }
    put_head(out->bytes + out->end, (weft_i_frame_kind)out->bytes[out->end + 1], written->at);
    out->end += HEAD + written->at;
}

void weft_i_frame_put(weft_i_frame_out *out, weft_i_frame_kind kind, const void *bytes,
                      size_t count)
{
    if (!reserve(out, HEAD + count))
        return;
    put_head(out->bytes + out->end, kind, count);
    if (count)
        memcpy(out->bytes + out->end + HEAD, bytes, count);
    out->end += HEAD + count;
}

void weft_i_frame_plain(weft_i_frame_out *out, const void *bytes, size_t count)
{
    if (!reserve(out, count))
        return;
    memcpy(out->bytes + out->end, bytes, count);
    out->end += count;
}

void weft_i_frame_flush(weft_i_frame_out *out)
{
    size_t count = weft_i_frame_waiting(out);
    if (!count)
        return;
    /* A pipe that poll calls writable takes PIPE_BUF bytes without making us wait. */
    ssize_t n =
        WEFT_OS->write(out->fd, out->bytes + out->start, count < PIPE_BUF ? count : PIPE_BUF);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        out->broken = true;
    else
        out->start += (size_t)n;
    if (out->start == out->end)
        out->start = out->end = 0;
}

void weft_i_frame_push(weft_i_frame_out *out, int ms)
{
    int64_t until = weft_i_os_deadline(ms);
    while (weft_i_frame_waiting(out) && WEFT_OS->clock_ns() < until) {
        struct pollfd look = {.fd = out->fd, .events = POLLOUT};
        if (WEFT_OS->poll(&look, 1, (int)weft_i_os_ms_until(until)) > 0)
            weft_i_frame_flush(out);
    }
}

void weft_i_frame_out_free(weft_i_frame_out *out)
{
    WEFT_OS->free(out->bytes);
    out->bytes = NULL;
    out->start = out->end = out->room = 0;
}
