/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor server: how a rank gets hold of a segment that another rank made.  The owner
 * publishes it under its key; a peer that knows the key fetches it.  Between processes the memory
 * file travels over a Unix socket in the abstract namespace (nothing in the file system, gone with
 * the process) to callers of the same user only; between threads of one process the segment itself
 * is handed over, so that all ranks see it at one address.
 */
#ifndef WEFT_BASE_FDPASS_H
#define WEFT_BASE_FDPASS_H

#include "base/share/segment.h"
#include "base/share/wait.h"

typedef struct weft_i_fdpass weft_i_fdpass;

/* Opens a server.  One per process rank; one for all threads of a weft_spawn. */
weft_status weft_i_fdpass_open(weft_i_sharing sharing, weft_i_fdpass **out);
weft_i_fdpass *weft_i_fdpass_hold(weft_i_fdpass *fdpass);
void weft_i_fdpass_drop(weft_i_fdpass *fdpass);

/* Its address between processes: at most 63 characters; empty between threads. */
const char *weft_i_fdpass_name(const weft_i_fdpass *fdpass);

/* Does somebody of our user listen at the server of this name?  True if that cannot be found out.
 */
bool weft_i_fdpass_is_open(const char *name);

/* Publishes a segment under `key` (holding it), or, with NULL, the news that it could not be made
 * and why. */
weft_status weft_i_fdpass_publish(weft_i_fdpass *fdpass, weft_i_key key, weft_i_segment *segment,
                                  weft_status failure);
void weft_i_fdpass_withdraw(weft_i_fdpass *fdpass, weft_i_key key);

/* Answers callers for at most `timeout_ms`, or until `stop` becomes readable.  Called by one
 * thread. */
void weft_i_fdpass_serve(weft_i_fdpass *fdpass, int stop, int timeout_ms);

typedef struct weft_i_fdpass_order {
    weft_i_fdpass *own; /* the caller's own server */
    const char *peer;   /* name of the server that has it; ignored between threads */
    weft_i_key key;
    size_t bytes; /* size it must have */
    bool keep;    /* the segment keeps its descriptor open */
    int64_t deadline;
    weft_status (*lost)(void *arg); /* can the owner still publish it? */
    void *arg;
} weft_i_fdpass_order;

/* Waits until the owner publishes the segment and maps it.  WEFT_ERR_TIMEOUT comes without a
 * message.
 */
weft_status weft_i_fdpass_fetch(const weft_i_fdpass_order *order, weft_i_segment **out);

/*
 * The same between processes, but gives the descriptor, whatever it is, to the caller, who closes
 * it: for memory that the host does not map.  Between threads the segment itself is to be fetched.
 */
weft_status weft_i_fdpass_fetch_fd(const weft_i_fdpass_order *order, int *out);

#endif
