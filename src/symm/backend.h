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

enum {
    WEFT_I_SERVES_PROCESSES = 1 << WEFT_I_BETWEEN_PROCESSES,
    WEFT_I_SERVES_THREADS = 1 << WEFT_I_BETWEEN_THREADS
};

/* The members of a group, for a backend that is to carry its collectives. */
typedef struct weft_i_circle {
    const char *name;
    int rank, size;
    weft_device device; /* of this rank's operands */
    int64_t limit_ms;
    /* Shows `bytes` bytes to all and gets theirs, by rank.  All members call it. */
    weft_status (*exchange)(const struct weft_i_circle *circle, const void *mine, size_t bytes,
                            void *all);
    void *group; /* a weft_group; for `exchange`, weft_i_circle_order and symm/sentry.h alone */
} weft_i_circle;

typedef struct weft_i_backend {
    const char *name;
    int device_kind;  /* weft_i_device_kind of the memory it makes */
    unsigned sharing; /* who the ranks are that it serves: WEFT_I_SERVES_... */

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
     * Carries a collective: runs it to its end, or gives it to the request's stream.  Returns
     * WEFT_ERR_UNSUPPORTED without a message for one that it does not carry; that goes through host
     * memory and the lanes of src/coll.  NULL: it carries none.
     */
    weft_status (*collective)(void *carrier, const weft_i_request *request);

    /*
     * What it needs for the collectives of one group on devices of its kind.  All members open it,
     * at their first collective there; one that cannot is told to all, and nobody has it then.
     * Closed when the group goes, or at once in that case.  NULL: it needs nothing.
     */
    weft_status (*open)(const weft_i_circle *circle, void **carrier);
    void (*close)(void *carrier);
} weft_i_backend;

/* An order for what member `rank` publishes under `key`; it ends when a member is lost.  `label`
 * must live as long. */
struct weft_i_label;
weft_i_fdpass_order weft_i_circle_order(const weft_i_circle *circle, struct weft_i_label *label,
                                        int rank, weft_i_key key, size_t bytes);
/* Where this rank publishes. */
weft_i_fdpass *weft_i_circle_server(const weft_i_circle *circle);

/* NULL if there is no such name. */
const weft_i_backend *weft_i_backend_named(const char *name);

/* The backend this thread uses for a kind of device; NULL and an error if none is usable. */
const weft_i_backend *weft_i_backend_for(weft_device device);

/* Notes that this thread has allocated there: from now on its choice for the kind is fixed. */
void weft_i_backend_used(weft_device device);

/* The usable one of the highest score that carries collectives on such devices; NULL: none does. */
const weft_i_backend *weft_i_backend_carrier(weft_device device, weft_i_sharing sharing);

/* Puts another table in the place of one; returns that.  For tests. */
const weft_i_backend *weft_i_backend_replace(const char *name, const weft_i_backend *table);

#endif
