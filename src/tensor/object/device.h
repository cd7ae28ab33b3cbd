/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of devices.  One table per kind says how memory is made, moved and ordered there.  The
 * CPU's and meta's are in device.c, others in the backend that brings the device; devices.def lists
 * them.  An entry that is NULL has nothing to do: work on the CPU is over when its call returns, so
 * its streams order by themselves.
 *
 * A device's own streams, events and replays travel as `void *`; only its table looks inside.
 */
#ifndef WEFT_TENSOR_DEVICE_H
#define WEFT_TENSOR_DEVICE_H

#include "tensor/object/code.h"
#include "weft/storage.h"

#include <stdbool.h>

enum { WEFT_I_DEVICE_KINDS = 3 };
enum { WEFT_I_KIND_CPU, WEFT_I_KIND_META, WEFT_I_KIND_CUDA };

struct weft_tensor;

typedef struct weft_i_device {
    const char *name; /* of the kind */
    int count;        /* how many there may be at most; 1: its name has no number */
    bool host;        /* the host may touch its memory */

    /*
     * Memory that work on `stream` may use from now on; never 0 bytes.  Fails with a status and
     * its own message, or with WEFT_ERR_NO_MEMORY without one.
     */
    weft_status (*alloc)(weft_device device, void *stream, size_t bytes, void **out);
    /* Work that was given to `stream` before may still use it.  Never blocks. */
    void (*free)(weft_device device, void *stream, void *memory, size_t bytes);

    /*
     * In the order of `stream`, between any two of the device's memory, other devices' of the kind,
     * and the host's.  Host memory may be used again, and holds what was copied to it, when the
     * call returns.  `to_host` and `from_host` say which is the host's.
     */
    weft_status (*copy)(weft_device device, void *stream, void *to, bool to_host, const void *from,
                        bool from_host, size_t bytes);
    weft_status (*fill)(weft_device device, void *stream, void *to, unsigned char value,
                        size_t bytes);

    /* Is this memory the device's?  For memory of others that is brought in. */
    weft_status (*check)(weft_device device, const void *memory, size_t bytes);

    /* Streams; `wrap` is over one of others, which stays theirs, `raw` tells it. */
    weft_status (*stream_new)(weft_device device, bool urgent, void **out);
    weft_status (*stream_wrap)(weft_device device, void *raw, void **out);
    void *(*stream_raw)(void *stream);
    void (*stream_free)(void *stream); /* what it was given still runs; never blocks */
    weft_status (*stream_sync)(void *stream, int64_t timeout_ms);
    weft_status (*stream_query)(void *stream); /* WEFT_OK, WEFT_IN_PROGRESS, or an error */
    /* Is what it is given noted instead of run?  Asks nothing of the device: no error is told. */
    bool (*stream_captured)(void *stream);
    /* The same as far as this library did it, without asking the driver where it can do without. */
    bool (*stream_noted)(void *stream);
    /*
     * What is given to `stream` from now on waits for what `other` was given before.  `join`: if
     * `other` is being captured the capture goes on in both; else that is WEFT_ERR_STATE.
     */
    weft_status (*stream_after)(void *stream, void *other, bool join);

    /* Events; `*event` NULL: makes one. */
    weft_status (*event_record)(void **event, void *stream);
    weft_status (*event_wait)(void *stream, void *event); /* the stream waits, not the host */
    weft_status (*event_query)(void *event);
    weft_status (*event_sync)(void *event, int64_t timeout_ms);
    void (*event_free)(void *event);

    /* Capture: what is given to the stream is noted instead of run. */
    weft_status (*capture_begin)(void *stream);
    weft_status (*capture_end)(void *stream, void **replay); /* `replay` NULL: throws it away */
    weft_status (*replay_run)(void *replay, void *stream);
    void (*replay_free)(void *replay);

    /*
     * A part of a product that ranks share the work of, for matrices that are ready: out = factor
     * (a b + c), rounded once; c is packed as out is, NULL: none.  `scale_a` and `scale_b` NULL:
     * without scales.  Others multiply on the device meanwhile.  WEFT_ERR_UNSUPPORTED without a
     * message: not of these operands.
     */
    weft_status (*multiply_part)(struct weft_tensor *out, struct weft_tensor *a,
                                 struct weft_tensor *b, struct weft_tensor *scale_a,
                                 struct weft_tensor *scale_b, const struct weft_tensor *c,
                                 double factor);

    const weft_i_code *code; /* NULL: nothing is compiled for it while the program runs */
} weft_i_device;

extern const weft_i_device weft_i_device_cpu, weft_i_device_meta;

/* Puts another table in the place of a kind's; it stays the caller's.  For tests. */
void weft_i_device_add(int kind, const weft_i_device *table);

/* NULL if there is no such device: a kind without table, a number beyond its count. */
const weft_i_device *weft_i_device_find(weft_device device);

/* The same with WEFT_ERR_UNSUPPORTED and a message. */
const weft_i_device *weft_i_device_of(const char *what, weft_device device);

static inline int weft_i_device_kind(weft_device device)
{
    return device >> 16;
}

static inline int weft_i_device_index(weft_device device)
{
    return device & 0xffff;
}

/* May the host touch memory of this device? */
static inline bool weft_i_device_is_host(weft_device device)
{
    return device == WEFT_CPU;
}

/*
 * Bytes from anywhere to anywhere, in the order of the current stream of the device that is not the
 * CPU.  What is under way on the memory was settled by the caller.
 */
weft_status weft_i_device_copy(weft_device to_device, void *to, weft_device from_device,
                               const void *from, size_t bytes);
weft_status weft_i_device_fill(weft_device device, void *to, unsigned char value, size_t bytes);

#endif
