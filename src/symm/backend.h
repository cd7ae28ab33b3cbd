/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend table: all that symmetric memory asks of a kind of memory.  A backend is a folder in
 * src/backends that fills one of these; adding one is that folder and a row in backends.def.
 */
#ifndef WEFT_SYMM_BACKEND_H
#define WEFT_SYMM_BACKEND_H

#include "base/fdpass.h"
#include "base/segment.h"
#include "symm/request.h"
#include "weft/backend.h"
#include "weft/dtype.h"
#include "weft/storage.h"

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
    weft_status (*publish)(weft_i_fdpass *fdpass, weft_i_segment *block);

    /* Maps a peer's block.  WEFT_ERR_TIMEOUT without a message at the order's deadline. */
    weft_status (*import)(const weft_i_fdpass_order *order, weft_i_segment **out);

    bool multicast; /* stores to all peers in hardware */

    /*
     * Runs a collective to its end, in worlds that name this backend as their carrier.  Returns
     * WEFT_ERR_UNSUPPORTED without a message for a kind it does not carry.  NULL: it carries none,
     * the lanes of src/coll do.
     */
    weft_status (*collective)(const weft_i_request *request);
} weft_i_backend;

/* NULL if there is no such name. */
const weft_i_backend *weft_i_backend_named(const char *name);

/* The backend this thread uses for a kind of device; NULL and an error if none is usable. */
const weft_i_backend *weft_i_backend_for(weft_device device);

/* Notes that this thread has allocated: from now on its choice is fixed. */
void weft_i_backend_used(void);

#endif
