/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The post office: how a rank gets hold of a segment that another rank made.  The owner offers it
 * under its key; a peer who knows the key fetches it.  Between processes the memory file travels
 * over a Unix socket in the abstract namespace (nothing in the file system, gone with the process)
 * to callers of the same user only; between threads of one process the segment itself is handed
 * over, so that all ranks see it at one address.
 */
#ifndef WEFT_BASE_POST_H
#define WEFT_BASE_POST_H

#include "base/segment.h"
#include "base/wait.h"

typedef struct weft_i_post weft_i_post;

/* Opens an office.  One per process rank; one for all threads of a weft_spawn. */
weft_status weft_i_post_open(weft_i_sharing sharing, weft_i_post **out);
weft_i_post *weft_i_post_hold(weft_i_post *post);
void weft_i_post_drop(weft_i_post *post);

/* Its address between processes: at most 63 characters; empty between threads. */
const char *weft_i_post_name(const weft_i_post *post);

/* Does somebody of our user listen at the office of this name?  True if that cannot be found out.
 */
bool weft_i_post_is_open(const char *name);

/* Offers a segment under `key` (holding it), or, with NULL, the news that it could not be made and
 * why. */
weft_status weft_i_post_offer(weft_i_post *post, weft_i_key key, weft_i_segment *segment,
                              weft_status failure);
void weft_i_post_withdraw(weft_i_post *post, weft_i_key key);

/* Answers callers for at most `timeout_ms`, or until `stop` becomes readable.  Called by one
 * thread. */
void weft_i_post_serve(weft_i_post *post, int stop, int timeout_ms);

typedef struct weft_i_post_order {
    weft_i_post *own; /* the caller's own office */
    const char *peer; /* name of the office that has it; ignored between threads */
    weft_i_key key;
    size_t bytes; /* size it must have */
    bool keep;    /* the segment keeps its descriptor open */
    int64_t deadline;
    weft_status (*lost)(void *arg); /* can the owner still offer it? */
    void *arg;
} weft_i_post_order;

/* Waits until the owner offers the segment and maps it.  WEFT_ERR_TIMEOUT comes without a message.
 */
weft_status weft_i_post_fetch(const weft_i_post_order *order, weft_i_segment **out);

#endif
