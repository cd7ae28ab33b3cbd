/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: the shared memory on which a group's collectives meet.  It is a symmetric block of its
 * own.  Its signal pad holds, for each rank,
 *   - two entry lines by turns: arrival word and up to 56 bytes beside it, one cache line to read
 * for a peer;
 *   - a step word for the phases inside an operation, and a bell;
 *   - a table of splits, by turns;
 * and each rank's block is its stage: two input slots and two result slots by turns, for operands
 * that are not symmetric. By turns: what was written for entry e is overwritten for entry e + 2,
 * and by then everybody has entered e + 1, which they do only after leaving e.
 */
#ifndef WEFT_COLL_LANE_H
#define WEFT_COLL_LANE_H

#include "symm/pairing.h"

enum {
    WEFT_I_TINY = 56, /* bytes that travel with the arrival word */
    WEFT_I_SLOT =
        128 << 10 /* bytes of a stage slot: two of them and a result fit a core's own cache */
};

/* What a call is: read by others only to tell two calls apart that should be one. */
typedef struct weft_i_card {
    uint32_t kind, dtype, reduction, root;
    uint64_t count;
    uint64_t offset; /* of the operand in its block */
    uint32_t block; /* serial of the operand's pairing; 0: ordinary memory, or it does not matter */
} weft_i_card;

typedef struct weft_i_entry_line {
    _Alignas(WEFT_I_LINE) _Atomic uint64_t arrival; /* see base/signal.h */
    unsigned char payload[WEFT_I_TINY];
} weft_i_entry_line;

typedef struct weft_i_lane_head {
    weft_i_entry_line entry[2];
    _Alignas(
        WEFT_I_LINE) _Atomic uint64_t step; /* as an arrival word, for phases after the entry */
    /* What nobody else reads as long as all goes well; far from lines that they do read. */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t entry_pass, step_pass; /* see base/signal.h */
    weft_i_card card[2];                                          /* by turns, as the entries */
    _Alignas(WEFT_I_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t letter_bell; /* of who waits for sends and receives */
} weft_i_lane_head;

/*
 * A box: messages of its owner for one other rank, in pieces, two by turns.  `sent` and `taken`
 * count pieces; the sender writes a piece when fewer than two wait, the receiver reads one when
 * there is one.
 */
enum { WEFT_I_PIECE = 16 << 10 };

typedef struct weft_i_box {
    _Alignas(WEFT_I_LINE) _Atomic uint64_t
        sent; /* by the owner: release, pairs with the receiver's acquire */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t
        taken;                /* by the receiver: release, pairs with the owner's acquire */
    _Atomic uint64_t refused; /* 1 + bytes the receiver expected instead; 0: none refused */
    struct {
        uint64_t bytes; /* of the whole message */
        uint32_t digest;
    } head[2];
    _Alignas(WEFT_I_LINE) char data[2][WEFT_I_PIECE];
} weft_i_box;

typedef struct weft_i_queue weft_i_queue;   /* posted work: work.c */
typedef struct weft_i_letter weft_i_letter; /* a send or receive under way: pair.c */

/* What the ranks may do with each other's ordinary memory: peek.h. */
typedef enum weft_i_peek_way {
    WEFT_I_PEEK_NONE,
    WEFT_I_PEEK_THREADS, /* one address space */
    WEFT_I_PEEK_KERNEL
} weft_i_peek_way;

typedef struct weft_i_sample {
    uint64_t address, value;
    int process;
    bool can;
} weft_i_sample;

typedef struct weft_i_lane {
    weft_i_object object;
    weft_i_block *block;     /* held; the pairing's own entry */
    weft_i_pairing *pairing; /* held */
    int me, size;
    uint32_t epoch; /* entries so far */
    weft_i_wait_mode mode;
    char *heads; /* rank 0's; the others' follow */
    size_t head_stride;
    size_t splits_at, splits_stride; /* in a head */
    const void **sources;            /* room for one pointer per rank, for folds */
    void **targets;
    double *factors;
    weft_i_peek_way peek;
    weft_i_sample *samples;       /* of memory, by rank: whose process is which */
    weft_i_queue *queue;          /* NULL until something is posted */
    pthread_mutex_t letters_lock; /* guards the next three */
    weft_i_letter *letters;       /* oldest first */
    weft_i_letter *orphans;       /* over, and their owners held by nobody else */
    int letter_waiters;           /* threads that wait for one of them */
} weft_i_lane;

/* The group's lane, made at first use.  Collective then, because every collective begins with it.
 */
weft_status weft_i_lane_of(weft_group *group, weft_i_lane **out);

static inline weft_i_lane_head *weft_i_lane_head_of(const weft_i_lane *lane, int rank)
{
    return (weft_i_lane_head *)(void *)(lane->heads + (size_t)rank * lane->head_stride);
}

/* What `rank` wrote beside its arrival at the current entry. */
static inline unsigned char *weft_i_lane_payload(const weft_i_lane *lane, int rank)
{
    return weft_i_lane_head_of(lane, rank)->entry[lane->epoch & 1].payload;
}

/* This rank's payload for the next entry: fill it, then enter. */
static inline unsigned char *weft_i_lane_next_payload(const weft_i_lane *lane)
{
    return weft_i_lane_head_of(lane, lane->me)->entry[(lane->epoch + 1) & 1].payload;
}

/* Table of 2 * size numbers of `rank`, for entry number `epoch`. */
static inline uint64_t *weft_i_lane_splits(const weft_i_lane *lane, int rank, uint32_t epoch)
{
    return (uint64_t *)(void *)((char *)weft_i_lane_head_of(lane, rank) + lane->splits_at +
                                (epoch & 1) * lane->splits_stride);
}

/* Input slot `turn` & 1 of a rank's stage; result slots follow. */
static inline char *weft_i_lane_slot(const weft_i_lane *lane, int rank, uint64_t turn)
{
    return lane->pairing->blocks[rank]->base + (turn & 1) * WEFT_I_SLOT;
}

static inline char *weft_i_lane_result(const weft_i_lane *lane, int rank, uint64_t turn)
{
    return weft_i_lane_slot(lane, rank, turn) + 2 * WEFT_I_SLOT;
}

/* The box of `from` for `to`. */
static inline weft_i_box *weft_i_lane_box(const weft_i_lane *lane, int from, int to)
{
    char *boxes = lane->pairing->blocks[from]->base + 4 * WEFT_I_SLOT;
    return (weft_i_box *)(void *)(boxes + (size_t)to * sizeof(weft_i_box));
}

/* Enters the next operation: shows the payload and waits until all have entered.  On a timeout
 * nothing has happened. */
weft_status weft_i_lane_enter(weft_i_lane *lane, const weft_i_call *call, const weft_i_card *card,
                              uint32_t digest, int64_t timeout_ms);

/* A barrier inside an operation.  A failure here leaves the others in the middle: the group is
 * revoked. */
weft_status weft_i_lane_sync(weft_i_lane *lane, const weft_i_call *call, int64_t timeout_ms);

/* Ends the helper thread of a lane's queue and frees it. */
void weft_i_queue_free(weft_i_queue *queue);

#endif
