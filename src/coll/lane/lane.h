/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: the shared memory on which a group's collectives meet.  It is a symmetric block of its
 * own.  Each rank has a head in the signal pad and bounce buffers in its block:
 *
 *     head of a rank                            bounce buffers of a rank
 *     +--------------------------------------+    0 KiB  +----------------+----------------+
 *     | entry 0: arrival word, 632 bytes     |           | eager buffer 0 |                |
 *     | entry 1                              |   64 KiB  +----------------+ input chunk 0  |
 *     | ...            16, by turns          |           | eager buffer 1 |                |
 *     | entry 15                             |  128 KiB  +----------------+----------------+
 *     +--------------------------------------+           | eager buffer 2 |                |
 *     | step word: syncs in an operation     |  192 KiB  +----------------+ input chunk 1  |
 *     | filled, drained: counts of the fifo  |           | eager buffer 3 |                |
 *     +--------------------------------------+  256 KiB  +----------------+----------------+
 *     | pass words, bells                    |           | result chunk 0                  |
 *     | signature 0 ... 15: what was called  |  384 KiB  +---------------------------------+
 *     +--------------------------------------+           | result chunk 1                  |
 *     | tables of splits 0 ... 15            |  512 KiB  +---------------------------------+
 *     +--------------------------------------+           | short eager buffer 0 ... 15     |
 *                                               768 KiB  +---------------------------------+
 *                                                        | a p2p ring for each rank        |
 *                                                        +---------------------------------+
 *
 * An operand that is sent eagerly lies in an eager buffer before its owner arrives.  An operand that
 * is pipelined goes through input and result chunks after the entry.  Both use the same memory; an
 * operation uses one or the other.  A peer reads an entry as one cache line, or as a few adjacent
 * lines, which cores fetch together.
 *
 * By turns: what a rank wrote for entry e is overwritten for entry e + 16, and an eager buffer for
 * entry e + 4.  By then every rank has entered e + 1, which it does only after it has left e.  Where
 * all ranks wait for all, that is so anyway.  A rank that went on without waiting makes sure of it
 * first (weft_i_lane_make_room).  Small data that goes one way has the short buffers to itself, so
 * that its giver and its takers get as far ahead of a slow rank as there are entries: where ranks
 * share cores, every wait is a switch to another one.
 *
 * Digests are chained: two ranks that agree at an entry agree about all entries before it.
 */
#ifndef WEFT_COLL_LANE_H
#define WEFT_COLL_LANE_H

#include "base/os/assert.h"
#include "coll/lane/p2p_ring.h"
#include "coll/lane/signature.h"
#include "coll/lane/trial_file.h"
#include "fabric/group/quarrel.h"
#include "symm/registration.h"
#include "weft/tune.h"

enum {
    WEFT_I_INLINE = WEFT_TUNE_INLINE, /* bytes that travel with the arrival word */
    WEFT_I_CHUNK =
        128 << 10, /* bytes of an input or result chunk: two and a result fit a core's own cache */
    WEFT_I_EAGER = WEFT_I_CHUNK / 2, /* bytes of an eager buffer */
    WEFT_I_EAGERS = 4,               /* of them, by turns */
    WEFT_I_SHORT = 16 << 10,         /* bytes of a short eager buffer; one for each entry */
    WEFT_I_TURNS = 16,               /* entries */
    WEFT_I_LOOKS = 128,              /* at an entry before a core that is shared is yielded */
    /* in a rank's block */
    WEFT_I_SHORTS_AT = 4 * WEFT_I_CHUNK,
    WEFT_I_RINGS_AT = WEFT_I_SHORTS_AT + WEFT_I_TURNS * WEFT_I_SHORT
};

typedef struct weft_i_lane_entry {
    _Alignas(WEFT_I_LINE) _Atomic uint64_t arrival; /* see base/share/signal.h */
    unsigned char payload[WEFT_I_INLINE];
} weft_i_lane_entry;

typedef struct weft_i_lane_head {
    weft_i_lane_entry entry[WEFT_I_TURNS];
    _Alignas(
        WEFT_I_LINE) _Atomic uint64_t step; /* as an arrival word, for phases after the entry */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t filled;  /* chunks that are there: see fifo.h */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t drained; /* chunks that this rank has taken */
    /* What nobody else reads as long as all goes well; far from lines that they do read. */
    _Alignas(WEFT_I_LINE) _Atomic uint64_t entry_pass, step_pass; /* see base/share/signal.h */
    weft_i_signature signature[WEFT_I_TURNS];                     /* by turns, as the entries */
    _Alignas(WEFT_I_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t p2p_bell; /* of who waits for sends and receives */
    _Atomic uint64_t gave_up;  /* when it last took an entry back; see weft_i_stamp */
    /* Syncs that this rank has come to: then it touches nobody's memory any more.  Threads only;
     * release, pairs with the acquire in `are_out`. */
    _Atomic uint32_t syncs;
} weft_i_lane_head;

typedef struct weft_i_queue weft_i_queue;             /* posted work: work.c */
typedef struct weft_i_p2p_request weft_i_p2p_request; /* a send or receive under way: p2p.h */
typedef struct weft_i_p2p weft_i_p2p;                 /* all of them: p2p.h */
typedef struct weft_i_ferry weft_i_ferry;             /* towards other hosts: ferry.h */

/* What the ranks may do with each other's ordinary memory: cma.h. */
typedef enum weft_i_cma_way {
    WEFT_I_CMA_NONE,
    WEFT_I_CMA_THREADS, /* one address space */
    WEFT_I_CMA_KERNEL
} weft_i_cma_way;

typedef struct weft_i_sample {
    uint64_t address, value;
    int process;
    int mode; /* how it waits */
    bool can;
} weft_i_sample;

/* Nanoseconds of large calls through bounce buffers and by CMA; 0: not known (trial.h). */
typedef struct weft_i_times {
    uint32_t of[2];
} weft_i_times;

/* Where a rank's operands lie, as it shows beside its arrival (locations.h).  Serial 0 is ordinary
 * memory. */
typedef struct weft_i_location {
    uint32_t in_serial, out_serial;
    uint32_t shown;   /* 1: what others read of the input is in its eager buffer */
    uint32_t attempt; /* a number for each try to enter; not 0 */
    uint64_t in_offset, out_offset;
    uint64_t in_address, out_address; /* in its own memory */
    union {
        double factor;      /* WEFT_PREMUL_SUM */
        weft_i_times times; /* any other: trial.h */
    };
} weft_i_location;

_Static_assert(sizeof(weft_i_location) <= WEFT_I_INLINE,
               "a location travels beside the arrival word");

typedef struct weft_i_lane {
    weft_i_object object;
    weft_i_block *block;               /* held; the registration's own entry */
    weft_i_registration *registration; /* held */
    int me, size;
    uint32_t epoch;                 /* entries so far */
    _Atomic uint32_t *entered;      /* the same, in the group, for its other floors */
    uint32_t settled;               /* the last entry that all are known to have reached */
    bool quarrelled;                /* a call of this rank has failed as a mismatch */
    uint32_t chain;                 /* digest of all entries so far */
    uint32_t syncs;                 /* so far */
    int looked_at;                  /* the last rank whose life was looked at in passing */
    weft_i_wait_mode mode;          /* the same on all ranks */
    weft_i_point entry, steps;      /* where ranks meet to enter an operation, and inside it */
    weft_i_stay at_entry, for_room; /* how it waits at an entry, and for room to write for one */
    char *heads;                    /* rank 0's; the others' follow */
    size_t head_stride;
    size_t splits_at, splits_stride; /* in a head */
    uint64_t *splits;                /* everybody's, in private memory */
    const void **sources;            /* room for one pointer per rank, for folds */
    void **targets;
    double *factors;
    weft_i_cma_way cma;
    weft_i_sample *samples;             /* of memory, by rank: whose process is which */
    weft_i_location *prefetched;        /* by rank: what was used before the entry (prefetch.h) */
    size_t fold_whole_up_to, push_from; /* of the present call: its digest has them (calls/run.c) */
    uint32_t attempts;                  /* entries with locations that were tried so far */
    bool remembers, learned; /* has read what earlier jobs learned; knows more (trial_file.h) */
    weft_i_queue *queue;     /* NULL until something is posted */
    atomic_bool aside; /* the helper runs beside who needs its core: it sleeps instead of spinning.
                          Relaxed: a hint */
    weft_i_p2p *p2p;   /* requests under way */
    atomic_bool p2p_lock; /* guards them: see p2p.h */
    weft_i_ferry *ferry;  /* of a group that spans hosts, instead of the shared memory; else NULL */
    weft_i_trials trials; /* trial.h; last, because it is large */
} weft_i_lane;

/* The group's lane, made at first use.  Collective then, because every collective begins with it.
 * `op` is what the user called: it stands in messages, not the steps of the making.  `enters`: it is
 * a collective, and no message of some members. */
weft_status weft_i_lane_open(weft_group *group, const char *op, bool enters);

static inline weft_status weft_i_lane_of(weft_group *group, const char *op, bool enters,
                                         weft_i_lane **out)
{
    weft_status status = group->lane ? WEFT_OK : weft_i_lane_open(group, op, enters);
    *out = group->lane;
    return status;
}

static inline weft_i_lane_head *weft_i_lane_head_of(const weft_i_lane *lane, int rank)
{
    WEFT_ASSERT(rank >= 0 && rank < lane->size);
    return (weft_i_lane_head *)(void *)(lane->heads + (size_t)rank * lane->head_stride);
}

/* How this rank waits: the helper thread may have to leave the core to others. */
static inline weft_i_wait_mode weft_i_lane_mode(const weft_i_lane *lane)
{
    bool aside = atomic_load_explicit(&lane->aside, memory_order_relaxed);
    return aside ? WEFT_I_WAIT_SLEEP : lane->mode;
}

/* What `rank` calls at entry `epoch`. */
static inline weft_i_signature *weft_i_lane_signature(const weft_i_lane *lane, int rank,
                                                      uint32_t epoch)
{
    return &weft_i_lane_head_of(lane, rank)->signature[epoch % WEFT_I_TURNS];
}

/* What `rank` wrote beside its arrival at the current entry. */
static inline unsigned char *weft_i_lane_payload(const weft_i_lane *lane, int rank)
{
    return weft_i_lane_head_of(lane, rank)->entry[lane->epoch % WEFT_I_TURNS].payload;
}

/* While this rank enters: has `rank` come to the same entry, with the same call?  Then its payload
 * is there, until it takes the arrival back. */
bool weft_i_lane_has_come(const weft_i_lane *lane, int rank);

/* The payload of the next entry.  A rank fills its own, then enters. */
static inline unsigned char *weft_i_lane_next_payload(const weft_i_lane *lane, int rank)
{
    return weft_i_lane_head_of(lane, rank)->entry[(lane->epoch + 1) % WEFT_I_TURNS].payload;
}

/*
 * Tables of 2 * size numbers, one for each rank.  A rank fills its own and shows it with its next
 * arrival.  After the entry it copies the tables of the others, once: what is checked is then what
 * is used, even if another process writes to the shared ones meanwhile.
 */
static inline uint64_t *weft_i_lane_splits(const weft_i_lane *lane, int rank)
{
    return lane->splits + (size_t)rank * 2 * (size_t)lane->size;
}

/* Where `rank` shows its table at entry number `epoch`. */
static inline uint64_t *weft_i_lane_shown_splits(const weft_i_lane *lane, int rank, uint32_t epoch)
{
    return (uint64_t *)(void *)((char *)weft_i_lane_head_of(lane, rank) + lane->splits_at +
                                (epoch % WEFT_I_TURNS) * lane->splits_stride);
}

void weft_i_lane_show_splits(weft_i_lane *lane);
void weft_i_lane_read_splits(weft_i_lane *lane);

/* What `rank` shows, or shall show, whole at entry `epoch`. */
static inline char *weft_i_lane_eager(const weft_i_lane *lane, int rank, uint32_t epoch)
{
    WEFT_ASSERT(rank >= 0 && rank < lane->size);
    return lane->registration->blocks[rank]->base + (epoch % WEFT_I_EAGERS) * (size_t)WEFT_I_EAGER;
}

/* The same of small data that goes one way. */
static inline char *weft_i_lane_short(const weft_i_lane *lane, int rank, uint32_t epoch)
{
    WEFT_ASSERT(rank >= 0 && rank < lane->size);
    return lane->registration->blocks[rank]->base + WEFT_I_SHORTS_AT +
           (epoch % WEFT_I_TURNS) * (size_t)WEFT_I_SHORT;
}

/* Input chunk `turn` & 1 of a rank's bounce buffer; result chunks follow. */
static inline char *weft_i_lane_chunk(const weft_i_lane *lane, int rank, uint64_t turn)
{
    WEFT_ASSERT(rank >= 0 && rank < lane->size);
    return lane->registration->blocks[rank]->base + (turn & 1) * WEFT_I_CHUNK;
}

static inline char *weft_i_lane_result(const weft_i_lane *lane, int rank, uint64_t turn)
{
    return weft_i_lane_chunk(lane, rank, turn) + 2 * WEFT_I_CHUNK;
}

/* The ring of `from` for `to`. */
static inline weft_i_ring *weft_i_lane_ring(const weft_i_lane *lane, int from, int to)
{
    WEFT_ASSERT(from >= 0 && from < lane->size && to >= 0 && to < lane->size);
    char *rings = lane->registration->blocks[from]->base + WEFT_I_RINGS_AT;
    return (weft_i_ring *)(void *)(rings + (size_t)to * weft_i_ring_bytes(lane->size));
}

/* May something be written for the next entry where there is room for `turns` of them?  Otherwise
 * the second waits until nobody needs what was there. */
static inline bool weft_i_lane_has_room(const weft_i_lane *lane, uint32_t turns)
{
    WEFT_ASSERT(lane->epoch - lane->settled <= WEFT_I_TURNS && turns <= WEFT_I_TURNS);
    return lane->epoch - lane->settled < turns - 1;
}

weft_status weft_i_lane_make_room(weft_i_lane *lane, const weft_i_label *label, uint32_t turns,
                                  int64_t timeout_ms);

/* For whom an entry waits: all; nobody; or, if not negative, one rank. */
enum { WEFT_I_FOR_ALL = -1, WEFT_I_FOR_NOBODY = -2 };

/* A rank between its arrival at an operation and the end of its waiting. */
typedef struct weft_i_arrival {
    weft_i_signature *signature; /* to be filled by the caller before it waits */
    bool came;                   /* the arrival is out: others may act on it */
    int whom;
    uint32_t digest;
    weft_status status;
    weft_i_meeting meeting;
    weft_i_point *point;
    weft_i_signature unshown; /* the signature, where no arrival was made */
} weft_i_arrival;

/*
 * Arrives at the next operation, with the payload that was filled before.  The caller then fills
 * the signature and does what can be done while the arrival travels.
 */
void weft_i_lane_arrive(weft_i_lane *lane, const weft_i_label *label, int whom, uint32_t digest,
                        weft_i_arrival *out);

/* Shows the signature and waits until those have arrived too.  A timeout changes nothing. */
weft_status weft_i_lane_await(weft_i_lane *lane, const weft_i_label *label, weft_i_arrival *arrival,
                              int64_t timeout_ms);

/* A barrier inside an operation.  A failure here leaves the others in the middle: the group is
 * revoked. */
weft_status weft_i_lane_sync(weft_i_lane *lane, const weft_i_label *label, int64_t timeout_ms);

/* Does the call that this thread is in keep the rank itself?  Not if it is the helper thread, and
 * nobody waits. */
bool weft_i_queue_keeps_rank(const weft_i_lane *lane);

/* Names the ranks for which this one waits in an operation: "rank 2 (...), rank 3 (...)"; false:
 * for none.  Any thread of the rank may ask. */
bool weft_i_lane_name_missing(const weft_i_lane *lane, const weft_group *group, char *out,
                              size_t bytes);

/* The lane of a group that spans hosts, which meets nobody to be made: ferry.c. */
weft_status weft_i_ferry_open(weft_group *group);
void weft_i_ferry_free(weft_i_ferry *ferry);

/* A lane without its memory; and the ways in which its rank waits.  For ferry.c. */
weft_i_lane *weft_i_lane_allocate(const weft_group *group);
void weft_i_lane_make_stays(weft_i_lane *lane);

/* Ends the helper thread of a lane's queue and frees it. */
void weft_i_queue_free(weft_i_queue *queue);

/* The p2p of a lane with `size` ranks; its rings are there once the ranks have met. */
weft_i_p2p *weft_i_p2p_new(int size);
void weft_i_p2p_open(weft_i_lane *lane);
void weft_i_p2p_free(weft_i_p2p *p2p, int size);

#endif
