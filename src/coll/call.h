/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective call from the inside: what was asked for, after all checks.  The public functions
 * fill it (coll.c), work runs it (work.c), the algorithms read it (reduce.c, gather.c, move.c).
 */
#ifndef WEFT_COLL_CALL_H
#define WEFT_COLL_CALL_H

#include "coll/choose.h"
#include "coll/lane.h"
#include "kernels/fold.h"
#include "weft/coll.h"

#include <string.h>

typedef struct weft_i_list weft_i_list; /* several tensors as one operand: list.h */

/* Where all ranks' counterparts of a symmetric operand lie: the same offset in each one's block. */
typedef struct weft_i_reach {
    weft_i_pairing *pairing; /* held */
    size_t offset;
} weft_i_reach;

typedef struct weft_i_coll {
    weft_i_call call; /* for messages */
    weft_group *group;
    weft_i_lane *lane;
    weft_i_coll_kind kind;
    weft_i_algorithm algorithm;        /* chosen when it runs */
    size_t single_from;                /* bytes of a transfer from which on the kernel copies */
    size_t shown_up_to;                /* bytes of an ordinary input that is shown at the entry */
    bool flows;                        /* it is shown while the arrival is on its way: show.h */
    bool own_done;                     /* this rank's own part is where it belongs */
    const struct weft_i_places *early; /* others' parts may be taken before all have come */
    weft_reduction reduction;
    weft_dtype dtype;
    int root; /* or the peer of a send or receive; 0 where there is none */
    char *in; /* NULL where this rank has none */
    char *out;
    size_t item;  /* bytes of an element */
    size_t count; /* elements of one part: what one rank gives another, or the whole of a reduction
                     or broadcast */
    size_t in_bytes, out_bytes;          /* of this rank's operands */
    weft_tensor *in_tensor, *out_tensor; /* to find where they lie; held while posted */
    weft_i_fold fold;
    double factor;
    const int64_t *in_splits, *out_splits; /* rows; NULL: equal parts */
    size_t row;                            /* bytes of a row */
    weft_i_list *list;                     /* operands of the list forms, instead of in and out */
    const weft_i_reach *reach; /* operations on symmetric memory: of the operand others reach */
    const void *plan;          /* of one kind of operation: what else it needs to know */
    uint32_t digest;
    int64_t limit_ms;
    uint64_t number; /* in the flight record */
} weft_i_coll;

/* What a rank shows of its operands at the entry: where they lie, and where in symmetric memory.
 * Serial 0: ordinary memory. */
struct weft_i_spot {
    uint32_t in_serial, out_serial;
    uint32_t shown;   /* 1: what others read of the input is in its show slot */
    uint32_t attempt; /* a number for each try to enter; not 0 */
    uint64_t in_offset, out_offset;
    uint64_t in_address, out_address; /* in its own memory */
    double factor;
};

_Static_assert(sizeof(weft_i_spot) <= WEFT_I_TINY, "a spot travels beside the arrival word");

/* What the call is, to be compared and told. */
void weft_i_coll_put_card(weft_i_card *card, const weft_i_coll *coll);

/* Runs a checked call to its end in the calling thread. */
weft_status weft_i_coll_run(weft_i_coll *coll);

/* Does the world's backend carry its collectives itself?  Then `run` hands it the call. */
static inline bool weft_i_native_has(const weft_group *group)
{
    return group->world->carrier != NULL;
}

weft_status weft_i_native_run(const weft_i_coll *coll);

/* The object collectives there: no backend carries them itself, but one without peers need not. */
weft_status weft_i_native_object(const weft_i_coll *coll);

/* The algorithms of kinds.def. */
weft_status weft_i_coll_barrier(weft_i_coll *coll);
weft_status weft_i_coll_all_reduce(weft_i_coll *coll);
weft_status weft_i_coll_reduce(weft_i_coll *coll);
weft_status weft_i_coll_reduce_scatter(weft_i_coll *coll);
weft_status weft_i_coll_broadcast(weft_i_coll *coll);
weft_status weft_i_coll_all_gather(weft_i_coll *coll);
weft_status weft_i_coll_gather(weft_i_coll *coll);
weft_status weft_i_coll_scatter(weft_i_coll *coll);
weft_status weft_i_coll_all_to_all(weft_i_coll *coll);

weft_status weft_i_list_all_reduce(weft_i_coll *coll);
weft_status weft_i_list_all_gather(weft_i_coll *coll);
weft_status weft_i_list_reduce_scatter(weft_i_coll *coll);
weft_status weft_i_coll_parts(weft_i_coll *coll);
weft_status weft_i_coll_object(weft_i_coll *coll);
weft_status weft_i_symm_one_shot(weft_i_coll *coll);
weft_status weft_i_symm_two_shot(weft_i_coll *coll);
weft_status weft_i_symm_two_shot_out(weft_i_coll *coll);
weft_status weft_i_symm_reduce_scatter(weft_i_coll *coll);
weft_status weft_i_symm_push(weft_i_coll *coll);
weft_status weft_i_symm_vdev(weft_i_coll *coll);
weft_status weft_i_symm_tiles(weft_i_coll *coll);

/* ---- what the algorithms share ---- */

/* Enters with `bytes` of the input beside the arrival word, and waits for all; or for one rank, or
 * nobody (lane.h). */
weft_status weft_i_coll_enter_with_data(weft_i_coll *coll, const void *data, size_t bytes);
weft_status weft_i_coll_enter_for(weft_i_coll *coll, int whom, const void *data, size_t bytes);

/* Enters with this rank's factor and reads everybody's into lane->factors. */
weft_status weft_i_coll_enter_with_factor(weft_i_coll *coll);

/* Enters showing where the operands lie. */
typedef struct weft_i_places {
    weft_i_pairing *in, *out; /* this rank's; NULL: ordinary memory */
    bool all_in, all_out;     /* every rank's input (output) can be touched by all: it lies in the
                                 same pairing as ours, or the ranks are threads */
    bool all_shown;           /* every rank has shown its input: show.h */
    bool peek;                /* otherwise the kernel may copy */
} weft_i_places;

/* Bytes of a part; see below. */
#if defined(__aarch64__)
enum { WEFT_I_PUSH_FROM = 4 << 10 };
#else
enum { WEFT_I_PUSH_FROM = 1 << 20 };
#endif

/*
 * Is a part of so many bytes written into a symmetric output by who gives it, instead of read from
 * a symmetric input by who takes it?  Stores wait for nobody; but where cores fetch ahead well,
 * what was read is at hand afterwards, as long as it fits a core's own cache.
 */
static inline bool weft_i_coll_pushes(const weft_i_places *places, size_t part)
{
    return places->all_out && (!places->all_in || part >= WEFT_I_PUSH_FROM);
}

/* What others read of this rank's input, should the inputs be shown. */
typedef enum weft_i_gift { WEFT_I_GIVES_NOTHING, WEFT_I_GIVES, WEFT_I_NEVER_SHOWN } weft_i_gift;

/* `transfer`: bytes that go from one rank to another at once, or 0: kernel copies do not help. */
weft_status weft_i_coll_enter_with_places(weft_i_coll *coll, weft_i_places *places, size_t transfer,
                                          weft_i_gift gift);

static inline const weft_i_spot *weft_i_coll_spot(const weft_i_coll *coll, int rank)
{
    return (const weft_i_spot *)(const void *)weft_i_lane_payload(coll->lane, rank);
}

/* Where a rank's input (output) is for us to touch, if it lies in `pairing`; NULL: out of reach. */
static inline char *weft_i_coll_touch_in(const weft_i_coll *coll, const weft_i_pairing *pairing,
                                         int rank)
{
    const weft_i_spot *spot = weft_i_coll_spot(coll, rank);
    if (coll->lane->peek == WEFT_I_PEEK_THREADS)
        return (char *)(uintptr_t)spot->in_address;
    return pairing && pairing->serial == spot->in_serial
               ? pairing->blocks[rank]->base + spot->in_offset
               : NULL;
}

static inline char *weft_i_coll_touch_out(const weft_i_coll *coll, const weft_i_pairing *pairing,
                                          int rank)
{
    const weft_i_spot *spot = weft_i_coll_spot(coll, rank);
    if (coll->lane->peek == WEFT_I_PEEK_THREADS)
        return (char *)(uintptr_t)spot->out_address;
    return pairing && pairing->serial == spot->out_serial
               ? pairing->blocks[rank]->base + spot->out_offset
               : NULL;
}

/* A rank's input if all_in, its output if all_out. */
static inline char *weft_i_coll_in_of(const weft_i_coll *coll, const weft_i_places *places,
                                      int rank)
{
    return weft_i_coll_touch_in(coll, places->in, rank);
}

static inline char *weft_i_coll_out_of(const weft_i_coll *coll, const weft_i_places *places,
                                       int rank)
{
    return weft_i_coll_touch_out(coll, places->out, rank);
}

/* Copies `bytes` at byte `at` of `rank`'s input to here (needs all_in or peek); of its output
 * (needs peek); of what is here into its output (needs all_out). */
weft_status weft_i_coll_fetch(const weft_i_coll *coll, const weft_i_places *places, int rank,
                              size_t at, char *to, size_t bytes);
weft_status weft_i_coll_fetch_result(const weft_i_coll *coll, int rank, size_t at, char *to,
                                     size_t bytes);
void weft_i_coll_deliver(const weft_i_coll *coll, const weft_i_places *places, int rank, size_t at,
                         const char *from, size_t bytes);

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

/* A range of elements. */
typedef struct weft_i_span {
    size_t first, count;
} weft_i_span;

/* Part `index` of `count` elements in `parts` nearly equal spans that start on lines of their own.
 */
static inline weft_i_span weft_i_coll_slice(size_t count, int parts, int index, size_t item)
{
    size_t unit = WEFT_I_LINE / item;
    size_t each = (count + (size_t)parts - 1) / (size_t)parts;
    each = (each + unit - 1) / unit * unit;
    size_t first = weft_i_coll_min(each * (size_t)index, count);
    return (weft_i_span){first, weft_i_coll_min(each, count - first)};
}

static inline void weft_i_coll_read_factors(weft_i_coll *coll)
{
    if (coll->reduction == WEFT_PREMUL_SUM)
        for (int rank = 0; rank < coll->lane->size; rank++)
            coll->lane->factors[rank] = weft_i_coll_spot(coll, rank)->factor;
}

/* Folds `count` elements of lane->sources into lane->targets. */
static inline void weft_i_coll_fold(weft_i_coll *coll, int outputs, size_t count)
{
    weft_i_lane *lane = coll->lane;
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
    return weft_i_lane_sync(coll->lane, &coll->call, coll->limit_ms);
}

#endif
