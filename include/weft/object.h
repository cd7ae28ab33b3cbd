/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object collectives: byte strings of any length, 0 too, different on every rank.  What the bytes
 * mean is the caller's business; nothing is serialised and nothing is executed.  All of them are
 * collective and block, for the group's time limit at most; their results belong to the current
 * scope (weft/scope.h).  Up to 64 KiB of each rank cost one entry, no more.
 *
 * No rank receives more than WEFT_OBJECT_LIMIT bytes (1 GiB, the least of all ranks counts): if a
 * call would need more, all ranks get WEFT_ERR_LIMIT, which names the rank that brings the most,
 * before anything is allocated, and the group goes on.  A rank that
 * has no memory for what it receives gets WEFT_ERR_CANCELLED; the others succeed.
 */
#ifndef WEFT_OBJECT_H
#define WEFT_OBJECT_H

#include "weft/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes somewhere.  `data` may be NULL if there are none. */
typedef struct weft_bytes {
    const void *data;
    size_t length;
} weft_bytes;

/* Received strings: a list that owns its bytes. */
typedef struct weft_blobs weft_blobs;

/* How many; 0 for NULL. */
WEFT_API int weft_blobs_count(const weft_blobs *blobs);

/* String `index`, valid as long as the list; {NULL, 0} for an index outside it. */
WEFT_API weft_bytes weft_blobs_get(const weft_blobs *blobs, int index);

/* The strings of all ranks, in rank order. */
WEFT_API weft_blobs *weft_all_gather_object(weft_bytes mine, weft_group *group);

/* The same at `root`; an empty list elsewhere. */
WEFT_API weft_blobs *weft_gather_object(weft_bytes mine, int root, weft_group *group);

/* The `count` strings of `root`, on every rank.  Elsewhere `list` must be NULL. */
WEFT_API weft_blobs *weft_broadcast_object(const weft_bytes *list, int count, int root,
                                           weft_group *group);

/* One string: number `rank` of root's list, which has one for each rank of the group.  Elsewhere
 * `list` must be NULL. */
WEFT_API weft_blobs *weft_scatter_object(const weft_bytes *list, int root, weft_group *group);

#ifdef __cplusplus
}
#endif

#endif
