/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request: what was asked of a collective, after all checks, as plain data.  The algorithms of
 * src/coll read it, and so does a backend that carries collectives itself.
 */
#ifndef WEFT_SYMM_REQUEST_H
#define WEFT_SYMM_REQUEST_H

#include "symm/kind.h"
#include "weft/coll.h"

#include <stddef.h>
#include <stdint.h>

/* One pair of operands of a request with several. */
typedef struct weft_i_operands {
    const char *in; /* NULL where this rank has none, or no bytes */
    char *out;      /* may be `in`, or hold it at this rank's part */
    size_t in_bytes, out_bytes;
    weft_dtype dtype;
} weft_i_operands;

/* Where the counterparts of an operand lie that is symmetric memory of a device. */
struct weft_i_device_memory;
typedef struct weft_i_counterparts {
    const struct weft_i_device_memory *memory; /* whose `joined` is */
    const void *joined; /* what the members have joined there; NULL: it is ordinary memory */
    uint32_t serial;    /* of the registration, the same on all ranks */
    size_t offset;      /* of the operand in everybody's block */
} weft_i_counterparts;

/* all_to_all_vdev: what distinguishes its three forms. */
typedef struct weft_i_vdev {
    weft_i_coll_kind kind;
    int experts;    /* of each rank; 1: plain vdev */
    bool by_expert; /* the input comes by experts, with offsets; the output by ranks */
    int64_t align;  /* of experts in the output; 0: packed */
    int64_t *table; /* out_splits_offsets */
    int64_t in_rows, out_rows;
    weft_i_counterparts splits; /* the table of splits, beside that of the input */
    size_t most_bytes;          /* what the input may have at most: the same on all ranks */
} weft_i_vdev;

/* tile_reduce: the tile of which this rank is root; lengths in elements, strides in bytes. */
typedef struct weft_i_tiles {
    weft_i_counterparts mine;
    size_t length[2], in_stride[2], out_stride[2];
    size_t most; /* elements of the largest tile: the same on all ranks */
} weft_i_tiles;

/* A send or a receive of a tensor. */
typedef struct weft_i_message {
    bool sends;
    int peer, tag; /* of the group; 0 or more */
    weft_dtype dtype;
    char *data;
    size_t bytes;
    uint32_t digest; /* of dtype and bytes */
} weft_i_message;

typedef struct weft_i_request {
    const char *op; /* its name in messages */
    weft_i_coll_kind kind;
    int rank, size; /* of the group */
    int root;       /* or the peer of a send or receive; 0 where there is none */
    weft_reduction reduction;
    double factor; /* of this rank, for WEFT_PREMUL_SUM */
    weft_dtype dtype;
    weft_device device; /* of all operands of this rank */
    char *in;           /* NULL where this rank has none */
    char *out;
    size_t in_bytes, out_bytes; /* of this rank's operands */
    size_t item;                /* bytes of an element */
    size_t count; /* elements of one part: what one rank gives another, or the whole of a reduction
                     or broadcast */
    const int64_t *in_splits, *out_splits; /* rows for each rank; NULL: equal parts */
    size_t row;                            /* bytes of a row */
    int64_t limit_ms;
    const char *local;         /* of operations on symmetric memory: copied to the buffer first */
    const weft_i_vdev *vdev;   /* of all_to_all_vdev */
    const weft_i_tiles *tiles; /* of tile_reduce */
    uint32_t digest;           /* of those two: all that the ranks must agree on */
    /*
     * Several operands, as one operation; only while a backend has the request.  Of kinds with a
     * tensor per rank there is one pair for each rank: the input of a gather is this rank's, and so
     * is the output of a scatter.
     */
    const weft_i_operands *items;
    size_t items_count;
    /* Sends and receives that are posted together, on a device; NULL: it is no such call. */
    const weft_i_message *messages;
    size_t messages_count;

    /* The rest is for a backend alone.  Whoever hands the request to one sets it (coll/device/carrier.c);
     * until then nobody reads it, and it holds anything. */
    void *stream; /* the device's own, in whose order it is to run; NULL on the CPU */
    /* With several ways: bytes of an all_reduce up to which each pays. */
    size_t packets_up_to, one_shot_up_to;
    /* With a library beside its own kernels: bytes from which that is to carry it. */
    size_t library_from;
    weft_i_counterparts in_counterparts, out_counterparts;
} weft_i_request;

enum { WEFT_I_REQUEST_ASKED = offsetof(weft_i_request, stream) }; /* bytes before that rest */

#endif
