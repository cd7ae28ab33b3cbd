/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams as the other floors see them.  Every thread has a current stream for each device; the
 * first is made when it is asked for and goes with the thread.  The CPU has one for all, which is
 * always done.
 */
#ifndef WEFT_TENSOR_STREAM_H
#define WEFT_TENSOR_STREAM_H

#include "tensor/object/device.h"
#include "tensor/object/scope.h"
#include "weft/stream.h"

struct weft_stream {
    weft_i_object head;
    weft_device device;
    const weft_i_device *table;
    void *own;     /* the device's part; NULL on the CPU */
    bool named;    /* made or wrapped by the program */
    bool captures; /* between weft_capture_begin and weft_capture_end */
};

/* The thread's current stream of the device, borrowed; NULL and an error if there can be none. */
weft_stream *weft_i_stream_current(weft_device device);

/* Is it one of those? */
bool weft_i_stream_is_current(const weft_stream *stream);

/* Another one of the thread, which nothing is given to by itself: for what is to run beside the
 * current one, as copies beside products.  Urgent, borrowed; NULL and an error as above. */
weft_stream *weft_i_stream_beside(weft_device device);

/* May the program give work to more than one stream of the device from this thread?  The thread's first
 * one counts, and all that the program has made or wrapped; not the one beside, which is weft's. */
bool weft_i_stream_has_others(weft_device device);

/* Is what it is given noted instead of run?  Never on the CPU. */
static inline bool weft_i_stream_is_captured(const weft_stream *stream)
{
    return stream->own && stream->table->stream_captured &&
           stream->table->stream_captured(stream->own);
}

/* Work given to `stream` from now on waits for what `other` was given so far; see weft_i_device. */
weft_status weft_i_stream_after(weft_stream *stream, weft_stream *other, bool join);

/* Drops the calling thread's current streams, as its end does. */
void weft_i_stream_forget(void);

#endif
