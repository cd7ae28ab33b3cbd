/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective call from the inside: what was asked for, after all checks.  The public functions
 * fill it (coll.c), work runs it (work.c), the algorithms read it (reduce.c, move.c).
 */
#ifndef WEFT_COLL_CALL_H
#define WEFT_COLL_CALL_H

#include "base/os/assert.h"
#include "coll/lane/choose.h"
#include "coll/lane/lane.h"
#include "kernels/fold/fold.h"
#include "symm/request.h"
#include "weft/coll.h"

#include <string.h>

typedef struct weft_i_list weft_i_list; /* several tensors as one operand: list.h */

/* Where all ranks' counterparts of a symmetric operand lie: the same offset in each one's block. */
typedef struct weft_i_reach {
    weft_i_registration *registration; /* held */
    size_t offset;
} weft_i_reach;

/* A call: the request, what it holds, and the state of its run. */
typedef struct weft_i_coll {
    weft_i_request ask;
    weft_i_label label; /* for messages */
    weft_group *group;
    weft_tensor *in_tensor, *out_tensor; /* to find where operands lie; held while posted */
    weft_i_list *list;                   /* operands of the list forms, instead of in and out */
    const weft_i_reach *reach; /* operations on symmetric memory: of the operand others reach */
    const void *plan;          /* of one kind of operation: what else it needs to know */
    weft_i_fold fold;
    uint32_t digest; /* what the ranks must agree on */

    /* the run */
    weft_i_lane *lane;
    weft_i_algorithm algorithm;
    size_t cma_from; /* bytes of a transfer from which on the kernel copies */
    bool cma_fixed;  /* whatever is faster: somebody has set it */
    bool trial_by_table, trial_way;
    weft_i_trial *trial; /* NULL: it is not timed (trial.h) */
    int64_t trial_began;
    size_t shown_up_to; /* bytes of an ordinary input that is shown at the entry */
    bool is_short;      /* small and one way: in the short eager buffers (lane.h), or inline */
    bool flows;         /* the input goes chunk by chunk after the arrival: enter.h */
    bool own_done;      /* this rank's own part is where it belongs */
    const struct weft_i_locations *prefetch; /* others' parts may be copied before all have come */
    uint64_t number;                         /* in the flight record */
    uint64_t posted;                         /* ticks, for a trace; 0: not posted, or no trace */
} weft_i_coll;

/* A call is emptied and copied in two pieces, without what is for a backend alone: compilers store
 * those in line, up to 256 bytes on Arm64, and call a function for more, which takes longer. */
enum { WEFT_I_COLL_REST = sizeof(weft_i_coll) - sizeof(weft_i_request) };
_Static_assert(offsetof(weft_i_coll, ask) == 0 && WEFT_I_REQUEST_ASKED <= 256 &&
                   WEFT_I_COLL_REST <= 256,
               "both pieces are stored in line");

static inline void weft_i_coll_empty(weft_i_coll *coll)
{
    memset(coll, 0, WEFT_I_REQUEST_ASKED);
    memset((char *)coll + sizeof coll->ask, 0, WEFT_I_COLL_REST);
}

static inline void weft_i_coll_copy(weft_i_coll *to, const weft_i_coll *from)
{
    memcpy(to, from, WEFT_I_REQUEST_ASKED);
    memcpy((char *)to + sizeof to->ask, (const char *)from + sizeof from->ask, WEFT_I_COLL_REST);
}

/* An accepted call counts once; the agreement before a first use is no call of the user's. */
static inline void weft_i_coll_count(const weft_i_coll *coll)
{
    coll->group->sequence += coll->ask.kind != WEFT_I_FIRST_USE;
}

/* What the call is, to be compared and told. */
void weft_i_coll_put_signature(weft_i_signature *signature, const weft_i_coll *coll);

/* The algorithm of a kind: runs a call to its end. */
typedef weft_status weft_i_runner(weft_i_coll *coll);

/* ---- what the algorithms share ---- */

static inline size_t weft_i_coll_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copies, unless the bytes are where they belong already (in place), or there are none (and perhaps
 * no pointers). */
static inline void weft_i_coll_put(char *to, const char *from, size_t bytes)
{
    if (to != from && bytes)
        memcpy(to, from, bytes);
}

/* The same for this rank's own part of a result, unless that was done at the entry. */
static inline void weft_i_coll_put_own(const weft_i_coll *coll, char *to, const char *from,
                                       size_t bytes)
{
    if (!coll->own_done)
        weft_i_coll_put(to, from, bytes);
}

/* Copies `bytes` of each part but this rank's own; in the input they are `stride` bytes apart. */
static inline void weft_i_coll_put_parts(const weft_i_coll *coll, char *to, const char *from,
                                         size_t bytes, size_t stride)
{
    for (int part = 0; part < coll->lane->size; part++)
        if (part != coll->lane->me)
            memcpy(to + (size_t)part * bytes, from + (size_t)part * stride, bytes);
}

/* A range of elements. */
typedef struct weft_i_span {
    size_t first, count;
} weft_i_span;

/* Part `index` of `count` elements in `parts` nearly equal spans, each on lines of its own. */
static inline weft_i_span weft_i_coll_slice(size_t count, int parts, int index, size_t item)
{
    WEFT_ASSERT(parts > 0 && index >= 0 && index < parts && item && WEFT_I_LINE % item == 0);
    size_t unit = WEFT_I_LINE / item;
    size_t each = (count + (size_t)parts - 1) / (size_t)parts;
    each = (each + unit - 1) / unit * unit;
    size_t first = weft_i_coll_min(each * (size_t)index, count);
    return (weft_i_span){first, weft_i_coll_min(each, count - first)};
}

/* Folds `count` elements of lane->sources into lane->targets. */
static inline void weft_i_coll_fold(weft_i_coll *coll, int outputs, size_t count)
{
    weft_i_lane *lane = coll->lane;
    WEFT_ASSERT(coll->fold && outputs > 0 && outputs <= lane->size);
    if (count)
        coll->fold(lane->targets, outputs, lane->sources, lane->size, count, lane->factors);
}

static inline void weft_i_coll_fold_to(weft_i_coll *coll, void *out, size_t count)
{
    coll->lane->targets[0] = out;
    weft_i_coll_fold(coll, 1, count);
}

static inline weft_status weft_i_coll_sync(weft_i_coll *coll)
{
    return weft_i_lane_sync(coll->lane, &coll->label, coll->ask.limit_ms);
}

#endif
