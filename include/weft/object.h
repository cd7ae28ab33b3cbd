/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object collectives: byte strings of any length, including 0, which may differ on every rank.  The
 * bytes mean whatever the caller wants; nothing is serialised and nothing is executed.  All
 * functions are collective and block, for the group's time limit at most.  Their results belong to
 * the current scope (weft/scope.h).  If each rank has at most 64 KiB, a call costs a single entry.
 *
 * No rank receives more than WEFT_OBJECT_LIMIT bytes (1 GiB by default; the smallest limit of all
 * ranks applies).  If a call would need more, all ranks get WEFT_ERR_LIMIT before anything is
 * allocated.  The message names the rank with the most bytes, and the group stays usable.  A rank
 * that has no memory for what it receives gets WEFT_ERR_CANCELLED; the others succeed.
 */
#ifndef WEFT_OBJECT_H
#define WEFT_OBJECT_H

#include "weft/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A byte string.  `data` may be NULL if the length is 0. */
typedef struct weft_bytes {
    const void *data;
    size_t length;
} weft_bytes;

/* Received strings: a list that owns its bytes. */
typedef struct weft_blobs weft_blobs;

/* Returns the number of strings, 0 for NULL. */
WEFT_API int weft_blobs_count(const weft_blobs *blobs);

/* Returns string `index`, valid as long as the list, or {NULL, 0} if the index is out of range. */
WEFT_API weft_bytes weft_blobs_get(const weft_blobs *blobs, int index);

/* The strings of all ranks, in rank order. */
WEFT_API weft_blobs *weft_all_gather_object(weft_bytes mine, weft_group *group);

/* The same on `root`; an empty list on other ranks. */
WEFT_API weft_blobs *weft_gather_object(weft_bytes mine, int root, weft_group *group);

/* The `count` strings of `root`, on every rank.  On other ranks `list` must be NULL. */
WEFT_API weft_blobs *weft_broadcast_object(const weft_bytes *list, int count, int root,
                                           weft_group *group);

/* One string: rank r gets string r of root's list, which has one for each rank of the group.  On
 * other ranks `list` must be NULL. */
WEFT_API weft_blobs *weft_scatter_object(const weft_bytes *list, int root, weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
