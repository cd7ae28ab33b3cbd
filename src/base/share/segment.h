/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment: memory that several ranks map.  Between processes it is a sealed memory file without a
 * name, so nothing can leak and no peer can shrink it under our feet; between threads of one
 * process it is plain memory at one address (so that ThreadSanitizer sees every access).  All of it
 * is reserved and zero before anybody else can reach it.
 */
#ifndef WEFT_BASE_SEGMENT_H
#define WEFT_BASE_SEGMENT_H

#include "weft/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names a segment between ranks.  Random, so that a guess finds nothing; compared as bytes. */
typedef struct weft_i_key {
    uint64_t word[2];
} weft_i_key;

typedef struct weft_i_segment {
    atomic_int references; /* relaxed up, acq_rel down */
    char *base;
    size_t bytes; /* as asked for; the mapping is rounded up to pages */
    int fd;       /* the memory file, or -1 for memory of this process alone */
    weft_i_key key;
    bool huge; /* huge pages were granted */
    /* Gives back memory that is not a mapping of ours; NULL: unmaps it.  What it needs for that is
     * at `owner`. */
    void (*release)(struct weft_i_segment *segment);
    void *owner;
    struct weft_i_segment *next; /* among those mapped from peers */
    bool of_peer;
} weft_i_segment;

typedef enum weft_i_sharing { WEFT_I_BETWEEN_PROCESSES, WEFT_I_BETWEEN_THREADS } weft_i_sharing;

/* Makes a zeroed segment with a random key and one reference.  `what` appears in messages. */
weft_status weft_i_segment_new(size_t bytes, weft_i_sharing sharing, const char *what,
                               weft_i_segment **out);

/*
 * Maps a descriptor received from a peer, which the caller may close afterwards.  Refuses files
 * that are smaller than `bytes` or could still shrink.
 */
weft_status weft_i_segment_map(int fd, size_t bytes, weft_i_key key, weft_i_segment **out);
/* The same for memory of which little is touched: its pages come when they are. */
weft_status weft_i_segment_map_sparsely(int fd, size_t bytes, weft_i_key key, weft_i_segment **out);

/*
 * The record of memory that the caller has, which goes by `release` when its last reference does.
 * `base` is NULL, or an address of a device, where the host cannot reach it.  The descriptor stays
 * open until then (-1: none).  Its key is random.
 */
weft_status weft_i_segment_wrap(char *base, size_t bytes, int fd,
                                void (*release)(weft_i_segment *segment), void *owner,
                                weft_i_segment **out);

/* A segment with this key that this process has mapped from a peer, held; NULL if it has none. */
weft_i_segment *weft_i_segment_find(weft_i_key key);

weft_i_segment *weft_i_segment_hold(weft_i_segment *segment);
void weft_i_segment_drop(weft_i_segment *segment);

weft_status weft_i_key_new(weft_i_key *out);
static inline bool weft_i_key_equal(weft_i_key a, weft_i_key b)
{
    return a.word[0] == b.word[0] && a.word[1] == b.word[1];
}

/* A key that all ranks can compute from what they agree on, e.g. a group's name. */
weft_i_key weft_i_key_of(weft_i_key seed, const void *bytes, size_t count);

#endif
