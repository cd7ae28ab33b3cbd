/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job segment: what the ranks of one job on one host know of each other.  The launcher makes it
 * before it starts the ranks and they inherit its descriptor (WEFT_JOB_FD); without a launcher of
 * ours the first local rank makes it; weft_spawn makes one in plain memory.  One slot per local
 * rank holds how it can be reached, whether it lives, and its flight record, so that survivors can
 * read the last words of the dead.
 */
#ifndef WEFT_FABRIC_JOB_H
#define WEFT_FABRIC_JOB_H

#include "base/os/os.h"
#include "base/report/record.h"
#include "base/share/segment.h"
#include "fabric/world/board.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
    WEFT_I_JOB_LAYOUT = 9,
    WEFT_I_JOB_LINE = 128,
    WEFT_I_JOB_MAX_RANKS = WEFT_I_BOARD_RANKS,
    WEFT_I_JOB_REFUSALS = 4,
    WEFT_I_JOB_GROUPS = 32,
    WEFT_I_JOB_PAGE = 4096 /* the head, and each rank_record, begin at a page */
};

/*
 * Reads a plain field of a page that others can write to: once, so that what is checked is what is
 * used, however the page changes meanwhile.  Relaxed: it pairs with nothing, the fields are written
 * before the page, or the rank, is known.  scripts/check-shared-reads wants it.
 */
#define WEFT_I_READ_ONCE(field_) __atomic_load_n(&(field_), __ATOMIC_RELAXED)

/* A rank's course through the job.  Each store releases what the rank wrote to its record before.
 */
typedef enum weft_i_rank_state {
    WEFT_I_RANK_AWAITED,  /* not here yet */
    WEFT_I_RANK_HERE,     /* its record is filled, its life word held */
    WEFT_I_RANK_LEFT,     /* finished in order, or (threads) returned from its function */
    WEFT_I_RANK_ENTERING, /* is filling its record */
    WEFT_I_RANK_FAILED    /* could not enter, and will not */
} weft_i_rank_state;

/* How the launcher saw a rank's process end; bit 31 says that it did. */
#define WEFT_I_EXIT_SEEN 0x80000000u

/* A group its rank belongs to, for whoever looks at the job from outside. */
typedef struct weft_i_membership {
    _Atomic uint32_t
        id;       /* 0: free, 1: being written; release by the rank, acquire by whoever looks */
    int32_t rank; /* in the group */
    char name[56];
    unsigned char members[64]; /* a bit for each of the first 512 world ranks */
} weft_i_membership;

typedef struct weft_i_rank_record {
    /* The node of the kernel's robust-futex list and, right behind it, the word it marks when the
     * holder dies. */
    _Alignas(WEFT_I_JOB_LINE) struct {
        uint64_t next;         /* read by the kernel at the death of the holding thread */
        _Atomic uint32_t word; /* thread id of the holder; the kernel sets FUTEX_OWNER_DIED. Acquire
                                  loads in waits */
        _Atomic uint32_t state; /* weft_i_rank_state: release by the rank, acquire by its peers */
        _Atomic uint32_t
            exit; /* WEFT_I_EXIT_SEEN | wait status: release by the launcher, acquire by peers */
    } life;
    _Alignas(WEFT_I_JOB_LINE) struct {
        _Atomic uint64_t beats;  /* relaxed: counted up a few times a second by the watch thread */
        _Atomic int64_t beat_ns; /* relaxed: when it last was (monotonic clock of the host) */
    } heart;
    /* Written once before state becomes HERE. */
    _Alignas(WEFT_I_JOB_LINE) struct {
        int32_t process;
        int32_t world_rank;
        uint32_t layout;
        char version[20];
        char fdpass[64];                      /* name of the rank's descriptor server */
        uint64_t cores[WEFT_I_OS_CORE_WORDS]; /* those it may run on, a bit each */
    } address;
    /* Groups this rank could not take part in making, one word for each class of keys: 40 bits of
     * the key, 16 of a count, 8 of the status.  Release by the rank, acquire by its peers. */
    _Alignas(WEFT_I_JOB_LINE) _Atomic uint64_t refusals[WEFT_I_JOB_REFUSALS];
    /* Its groups, the world left out; those beyond the table are not shown. */
    _Alignas(WEFT_I_JOB_LINE) weft_i_membership groups[WEFT_I_JOB_GROUPS];
    _Alignas(WEFT_I_JOB_LINE) weft_i_record record;
} weft_i_rank_record;

/* The head.  Offsets are the same in all pages of a layout and are told only so that a page that
 * has others is refused: nothing is found by them. */
typedef struct weft_i_job {
    uint64_t magic;
    uint32_t layout;
    uint32_t ranks; /* local ranks: the number of slots */
    uint32_t slot_bytes;
    weft_i_key key;              /* random identity of the job */
    unsigned char token[32];     /* the job's secret for stores over TCP */
    uint64_t slots_at, board_at; /* offsets from the start of the segment */
    uint64_t bytes;
    int32_t maker;    /* the process that made it */
    uint32_t threads; /* 1: its ranks are threads of that process */
} weft_i_job;

/* Size of the segment for `ranks` local ranks. */
size_t weft_i_job_bytes(int ranks);

/* Makes the segment for `ranks` local ranks.  It is a memory file also between threads, so
 * that `weft info --job` finds it. */
weft_status weft_i_job_new(int ranks, weft_i_sharing sharing, weft_i_segment **out);

/* Checks that a mapped segment is a job of this layout, and says of how many ranks. */
weft_status weft_i_job_check(const weft_i_segment *segment, int *ranks);

/* How many local ranks it says it has, but no more than the mapping has slots for. */
int weft_i_job_ranks(const weft_i_segment *segment);

/* The version of the layout of the job page behind a descriptor; 0: it is none.  No error. */
uint32_t weft_i_job_layout_of(int fd);

static inline weft_i_job *weft_i_job_of(weft_i_segment *segment)
{
    return (weft_i_job *)segment->base;
}

/* `local_rank` is below weft_i_job_ranks. */
weft_i_rank_record *weft_i_job_rank(weft_i_job *job, int local_rank);

/* The board of the group of all `ranks` local ranks, as the caller knows them. */
weft_i_board *weft_i_job_board(weft_i_job *job, int ranks);

/*
 * A rank that cannot take part in making the group of `key` says so in its rank_record, which takes
 * no memory and no descriptors; `weft_i_job_refusal` is its word for that key, or 0; and what it
 * says: the status, and the word's number, which grows with every refusal.
 */
void weft_i_job_refuse(weft_i_rank_record *mine, weft_i_key key, weft_status why);
void weft_i_job_allow(weft_i_rank_record *mine, weft_i_key key);
uint64_t weft_i_job_refusal(const weft_i_rank_record *rank_record, weft_i_key key);
static inline int weft_i_job_refusal_class(weft_i_key key)
{
    return (int)(key.word[1] % WEFT_I_JOB_REFUSALS);
}

static inline weft_status weft_i_job_refusal_status(uint64_t refusal)
{
    return (weft_status) - (int)(refusal & 0xff);
}

static inline uint16_t weft_i_job_refusal_number(uint64_t refusal)
{
    return (uint16_t)(refusal >> 8);
}

/* Keeps a descriptor of a mapped page open, by which weft_job_open finds it.  Best effort. */
void weft_i_job_keep_open(weft_i_segment *page, int fd);

/* Closes it while the page is still held: the job is over, though work that nobody waits for may
 * keep the memory a moment longer. */
void weft_i_job_close(weft_i_segment *page);

/* Enters a group into the rank's table, or changes its name there; takes it out. */
void weft_i_job_join(weft_i_rank_record *mine, uint32_t id, const char *name, const int *members,
                     int count);
void weft_i_job_quit(weft_i_rank_record *mine, uint32_t id);

/* Writes the rank's record as a trace (WEFT_TRACE), also when the rank is dead. */
weft_status weft_i_job_write_trace(const weft_i_rank_record *rank_record, int rank,
                                   const char *path);

/* A rank that could not even map the page says so through its descriptor.  Best effort. */
void weft_i_job_note_failed(int fd, int local_rank);

/* The launcher notes the end of a child, so that ranks still waiting for it learn of it at once. */
void weft_i_job_note_exit(weft_i_job *job, int local_rank, int wait_status);

#endif
