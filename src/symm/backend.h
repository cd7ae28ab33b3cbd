/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend table: all that symmetric memory asks of a kind of memory.  A backend is a folder in
 * src/backends that fills one of these; adding one is that folder and a row in backends.def.
 */
#ifndef WEFT_SYMM_BACKEND_H
#define WEFT_SYMM_BACKEND_H

#include "base/post.h"
#include "base/segment.h"
#include "weft/backend.h"
#include "weft/dtype.h"
#include "weft/storage.h"

/* ---- collectives as a backend sees them, if it has its own: plain data, after all checks ---- */

typedef enum weft_i_native_kind {
    WEFT_I_NATIVE_BARRIER,
    WEFT_I_NATIVE_ALL_REDUCE,
    WEFT_I_NATIVE_REDUCE,
    WEFT_I_NATIVE_BROADCAST,
    WEFT_I_NATIVE_ALL_GATHER,
    WEFT_I_NATIVE_GATHER,
    WEFT_I_NATIVE_SCATTER,
    WEFT_I_NATIVE_REDUCE_SCATTER,
    WEFT_I_NATIVE_ALL_TO_ALL,      /* one item; equal parts, or by splits */
    WEFT_I_NATIVE_ALL_TO_ALL_LIST, /* item q goes to, and comes from, rank q */
    /* One item for each rank, sizes may differ; the input of a gather is this rank's item's, the
     * output of a scatter too. */
    WEFT_I_NATIVE_ALL_GATHER_PARTS,
    WEFT_I_NATIVE_GATHER_PARTS,
    WEFT_I_NATIVE_SCATTER_PARTS,
    WEFT_I_NATIVE_REDUCE_SCATTER_PARTS,
    WEFT_I_NATIVE_SEND,
    WEFT_I_NATIVE_RECV
} weft_i_native_kind;

/* One pair of operands. */
typedef struct weft_i_native_item {
    const char *in; /* NULL where this rank has none, or no bytes */
    char *out;      /* may be `in`, or hold it at this rank's part */
    size_t in_bytes, out_bytes;
    weft_dtype dtype;
} weft_i_native_item;

typedef struct weft_i_native {
    const char *op; /* its name in messages */
    weft_i_native_kind kind;
    int rank, size;
    int root;      /* or the peer of a send or receive */
    int reduction; /* weft_reduction */
    double factor; /* of this rank, for WEFT_PREMUL_SUM */
    const weft_i_native_item *items;
    size_t count;                          /* of items: several are one operation */
    const int64_t *in_splits, *out_splits; /* rows for each rank; NULL: equal parts */
    size_t row;                            /* bytes of a row */
    int64_t limit_ms;
} weft_i_native;

typedef struct weft_i_backend {
    const char *name;
    int device_kind;        /* weft_i_device_kind of the memory it makes */
    weft_i_sharing sharing; /* who the ranks are that it serves */

    /* 0: cannot be used here, `reason` says why.  Otherwise a score; `reason` may say what it
     * offers. */
    int (*probe)(char *reason, size_t bytes);

    /* A zeroed, reserved block of this rank.  NULL: it makes no memory, nor the next two. */
    weft_status (*allocate)(weft_device device, size_t bytes, weft_i_segment **out);

    /* Lets peers fetch the block by its key; may be called again. */
    weft_status (*publish)(weft_i_post *post, weft_i_segment *block);

    /* Maps a peer's block.  WEFT_ERR_TIMEOUT without a message at the order's deadline. */
    weft_status (*import)(const weft_i_post_order *order, weft_i_segment **out);

    bool multicast; /* stores to all peers in hardware */

    /* Runs a collective to its end, for worlds that name this backend as their carrier.  NULL: it
     * has none of its own, and the lanes of src/coll carry them. */
    weft_status (*collective)(const weft_i_native *call);
} weft_i_backend;

/* NULL if there is no such name. */
const weft_i_backend *weft_i_backend_named(const char *name);

/* The backend this thread uses for a kind of device; NULL and an error if none is usable. */
const weft_i_backend *weft_i_backend_for(weft_device device);

/* Notes that this thread has allocated: from now on its choice is fixed. */
void weft_i_backend_used(void);

#endif
