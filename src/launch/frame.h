/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `weft run` and the `weft run --join` that it starts on each host say to each other, through
 * the standard input and output of a remote shell.  A frame is a kind, a length and bytes.  Nothing
 * here waits.
 */
#ifndef WEFT_LAUNCH_FRAME_H
#define WEFT_LAUNCH_FRAME_H

#include "base/share/wire.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum weft_i_frame_kind {
    /* to a host */
    WEFT_I_FRAME_JOB = 1, /* what to start there */
    WEFT_I_FRAME_PROBE,   /* can it reach these addresses? */
    WEFT_I_FRAME_START,   /* where the ranks meet: start them */
    WEFT_I_FRAME_SIGNAL,
    WEFT_I_FRAME_PRESS,  /* end the ranks: weft_i_press */
    WEFT_I_FRAME_STATES, /* say what the ranks are doing */
    WEFT_I_FRAME_INPUT,  /* of rank 0; no bytes: its end */
    WEFT_I_FRAME_PING,   /* our clock */
    /* from a host */
    WEFT_I_FRAME_HELLO,   /* who it is, where it listens */
    WEFT_I_FRAME_REACHED, /* the answer to a probe */
    WEFT_I_FRAME_OUTPUT,  /* of a rank */
    WEFT_I_FRAME_SAY,     /* a line for the user */
    WEFT_I_FRAME_ENDED,   /* a rank's end */
    WEFT_I_FRAME_MORE,    /* the last input was taken */
    WEFT_I_FRAME_PONG,    /* the clock of a ping, and its own */
    WEFT_I_FRAME_FAILED,  /* the ranks could not be started or watched */
    WEFT_I_FRAME_OVER,    /* no rank is left */
    WEFT_I_FRAME_KINDS
} weft_i_frame_kind;

/* A remote shell may print before the command runs: frames begin behind this line. */
#define WEFT_I_FRAME_BEGIN "weft-join-1\n"

enum { WEFT_I_FRAME_MOST = 8 << 20, WEFT_I_FRAME_FULL = 64 * 1024, WEFT_I_FRAME_PIECE = 16 * 1024 };

typedef struct weft_i_frame {
    weft_i_frame_kind kind;
    const uint8_t *bytes; /* until the next fill */
    size_t count;
} weft_i_frame;

/* What came and is not understood yet: bytes[start..end). */
typedef struct weft_i_frame_in {
    uint8_t *bytes;
    size_t start, end, room;
} weft_i_frame_in;

/* What waits to be written. */
typedef struct weft_i_frame_out {
    int fd; /* -1: closed, what is put is lost */
    uint8_t *bytes;
    size_t start, end, room;
    bool broken; /* its reader is gone, or memory ran out */
} weft_i_frame_out;

/* Reads once; poll said it does not block.  UNREACHABLE: the other side closed it. */
weft_status weft_i_frame_fill(weft_i_frame_in *in, int fd);
/* 1: `out` is the next frame; 0: not all of it is here; PROTOCOL: these bytes are none. */
int weft_i_frame_next(weft_i_frame_in *in, weft_i_frame *out);
void weft_i_frame_in_free(weft_i_frame_in *in);

void weft_i_frame_put(weft_i_frame_out *out, weft_i_frame_kind kind, const void *bytes,
                      size_t count);
/* The same with room for the writer: `begin` gives a cursor over `most` bytes, `end` sends what it
 * wrote. */
weft_i_wire_writer weft_i_frame_begin(weft_i_frame_out *out, weft_i_frame_kind kind, size_t most);
void weft_i_frame_end(weft_i_frame_out *out, const weft_i_wire_writer *written);
/* Bytes without a frame, for what comes before all frames. */
void weft_i_frame_plain(weft_i_frame_out *out, const void *bytes, size_t count);
/* Writes a piece; poll said there is room. */
void weft_i_frame_flush(weft_i_frame_out *out);
/* Writes all that waits, for at most `ms` milliseconds. */
void weft_i_frame_push(weft_i_frame_out *out, int ms);
static inline size_t weft_i_frame_waiting(const weft_i_frame_out *out)
{
    return out->broken || out->fd < 0 ? 0 : out->end - out->start;
}
void weft_i_frame_out_free(weft_i_frame_out *out);

#endif
