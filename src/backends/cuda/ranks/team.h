/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's part in a team: the pads of all ranks on one device or on several that reach each
 * other, and the operations whose kernels meet there.  All ranks make the same calls in the same
 * order.  A call is enqueued on a stream and returns; a failure inside a kernel is found by
 * weft_i_cuda_team_check, which every operation asks before it enqueues anything.
 */
#ifndef WEFT_CUDA_TEAM_H
#define WEFT_CUDA_TEAM_H

#include "backends/cuda/device/queue.h"
#include "weft/dtype.h"

typedef struct weft_i_cuda_team {
    weft_i_cuda_device *device;
    weft_k_group group;
    const int64_t *shifts;   /* those of the group, on the host */
    weft_k_record *record;   /* host's view of the record */
    uint64_t *verdict;       /* and of the verdict word */
    int sharing;             /* ranks of the team that run on this device */
    size_t meets_first_from; /* bytes from which a passage waits before it takes the device */
    bool narrow;             /* packets may go in blocks of one warp: WEFT_CUDA_NARROW */
    int resident
        [WEFT_I_CUDA_KERNELS];     /* blocks that fit the least of the members' devices at once */
    uint64_t pad_bytes;            /* to be zeroed by a reset */
    weft_status broken;            /* what check said last */
    atomic_uint_least64_t streams; /* a bit for each that carried its work; relaxed: see enter */
    atomic_bool told;              /* who waited for a stream knows already; relaxed */
    weft_i_cuda_queue *meetings;   /* of its group on the device, turns.h; NULL: it has no order */
    weft_i_cuda_queue *words;      /* of each semaphore of its own */
    struct weft_i_post *post;      /* who looks out for its ranks; NULL: nobody */
    struct weft_i_cuda_team *next; /* of the process */
} weft_i_cuda_team;

/* Sizes of a pad; 0 takes the usual. */
typedef struct weft_i_cuda_sizes {
    uint32_t lines, channels;
    uint64_t packet_units, stage_bytes;
    uint64_t semaphore_bytes; /* at least; 0: as the channels need */
    bool p2p;                 /* room for messages between two ranks */
} weft_i_cuda_sizes;

/* Bytes of one pad, the same on all ranks; fills the places in `group`. */
size_t weft_i_cuda_team_layout(int ranks, const weft_i_cuda_sizes *sizes, weft_k_group *group);

/* A rank's pad. */
static inline char *weft_i_cuda_team_pad(const weft_i_cuda_team *team, int rank)
{
    const weft_k_group *group = &team->group;
    return group->pads +
           (team->shifts ? team->shifts[rank] : (int64_t)((size_t)rank * group->stride));
}

/* `pads` is rank 0's, zeroed before any rank opens; `sharing` of the ranks run on this device.  The
 * team must not move until it is closed. */
weft_status weft_i_cuda_team_open(weft_i_cuda_device *device, int rank, int ranks, char *pads,
                                  size_t stride, int sharing, const weft_i_cuda_sizes *sizes,
                                  weft_i_cuda_team *out);
void weft_i_cuda_team_close(weft_i_cuda_team *team);

/* Who looks out for its ranks from now on; NULL: nobody. */
void weft_i_cuda_team_attend(weft_i_cuda_team *team, struct weft_i_post *post);

/*
 * Has a kernel given up?  WEFT_OK; or WEFT_ERR_TIMEOUT, WEFT_ERR_MISMATCH, WEFT_ERR_PEER_DEAD ...
 * with what, who, where and how long; the same again until a reset.
 */
weft_status weft_i_cuda_team_check(weft_i_cuda_team *team);

/* What an operation must not share with one on another stream: the words in which all meet, or one
 * semaphore, which puts and waits use apart. */
typedef enum weft_i_cuda_turn {
    WEFT_I_CUDA_ALONE,
    WEFT_I_CUDA_MEETS,
    WEFT_I_CUDA_PUTS,
    WEFT_I_CUDA_WAITS
} weft_i_cuda_turn;

/*
 * The check, before work of the team is enqueued on `stream`: whoever waits for that stream will be told
 * of a failure too.  And the stream is put behind the last operation with the same turn; weft_i_cuda_team_leave
 * follows success.  `channel` and `rank` are a semaphore's.
 */
weft_status weft_i_cuda_team_enter(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                   weft_i_cuda_turn turn, int channel, int rank,
                                   weft_i_cuda_front **out);
/* It has been enqueued, or not: `status` is returned, or what failed here. */
weft_status weft_i_cuda_team_leave(weft_i_cuda_front *front, weft_i_cuda_stream *stream,
                                   weft_status status);

static inline weft_status weft_i_cuda_team_meet(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                                weft_i_cuda_front **out)
{
    return weft_i_cuda_team_enter(team, stream, WEFT_I_CUDA_MEETS, 0, 0, out);
}

/* Tells waiting kernels of this rank that `rank` will not come: any thread may. */
void weft_i_cuda_team_condemn(weft_i_cuda_team *team, weft_status status, int rank);

/* The rank a kernel has been waiting for over 50 us, -1 if none. */
int weft_i_cuda_team_waits_for(const weft_i_cuda_team *team);

/* Waits for all that this rank has enqueued on streams that carried work of the team. */
weft_status weft_i_cuda_team_await(weft_i_cuda_team *team, int64_t limit_ms);

/*
 * Makes the pads usable again: every rank calls it when all work of all ranks on them has ended,
 * and nobody enqueues more before all have returned.
 */
weft_status weft_i_cuda_team_reset(weft_i_cuda_team *team, weft_i_cuda_stream *stream);

/* Memory of all ranks: rank 0's address and the step to the next rank's; or a table instead of the
 * step, which the kernels of vdev and of tiles take. */
typedef struct weft_i_cuda_reach {
    char *base;
    size_t step;
    const int64_t *shifts; /* device memory; NULL: at one step */
} weft_i_cuda_reach;

/* What all ranks of a call agree on, and the limit of its waits (WEFT_FOREVER: none). */
typedef enum weft_i_cuda_way {
    WEFT_I_CUDA_PACKETS = 1,
    WEFT_I_CUDA_ONE_SHOT,
    WEFT_I_CUDA_TWO_SHOT
} weft_i_cuda_way;

/* What a call is, for those who called something else; see staged.c.  All ranks agree on it. */
typedef struct weft_i_cuda_signature {
    uint64_t what, count;
} weft_i_cuda_signature;

typedef struct weft_i_cuda_sum {
    weft_i_cuda_signature signature;
    weft_dtype dtype;
    int op; /* weft_i_fold_op */
    double factor;
    size_t count;   /* elements of the result */
    const void *in; /* this rank's operand, anywhere; or NULL and `from` */
    void *out;      /* may be `in`; two-shot writes to `to` instead */
    weft_i_cuda_reach from, to;
    uint64_t place;     /* names the symmetric operand: all ranks mean the same */
    size_t rows, pitch; /* reduce_scatter by columns: rows, and bytes from row to row */
    weft_i_cuda_way way;
    int blocks, threads; /* 0: as many as pay */
    bool late;           /* it starts when what is before it on the stream has ended */
    int64_t limit_ms;
} weft_i_cuda_sum;

weft_status weft_i_cuda_all_reduce(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                   const weft_i_cuda_sum *sum);

/* By packets, if those of the call fit the pad; else nothing happens, and `*fit` says so.  The caller
 * knows that the reduction has a meaning for the dtype. */
weft_status weft_i_cuda_packets(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                const weft_i_cuda_sum *sum, bool *fit);

/* out = this rank's part of the reduction; `from` is rank 0's whole operand. */
weft_status weft_i_cuda_reduce_scatter(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                       const weft_i_cuda_sum *sum);

typedef struct weft_i_cuda_move {
    weft_i_cuda_signature signature;
    size_t bytes;           /* of one rank's part */
    const void *in;         /* this rank's */
    weft_i_cuda_reach from; /* or everybody's, to pull from */
    void *out;
    weft_i_cuda_reach to; /* or everybody's, to push to */
    uint64_t place;       /* names the symmetric operand: all ranks mean the same */
    int root;
    int blocks;
    int64_t limit_ms;
} weft_i_cuda_move;

/* Either `in` and `to` (push) or `from` and `out` (pull), the same on all ranks. */
weft_status weft_i_cuda_all_gather(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                   const weft_i_cuda_move *move);
weft_status weft_i_cuda_all_to_all(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                   const weft_i_cuda_move *move);
weft_status weft_i_cuda_broadcast(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                                  const weft_i_cuda_move *move);

/*
 * Any collective of operands in plain memory, through the stage; see kernels/staged.h.  A place has
 * `parts` parts (1, or one for each rank); this rank puts the first `fills` there, and takes part
 * `takes` of others' places: folded, or as they are from `peers` ranks beginning with `first`.
 */
typedef struct weft_i_cuda_passage {
    weft_i_cuda_signature signature;
    weft_dtype dtype;
    int op; /* weft_i_fold_op; below 0: it only moves */
    bool two_shot;
    double factor;
    size_t count; /* elements of a part */
    const char *in;
    size_t in_step; /* bytes from part to part */
    char *out;      /* NULL: this rank takes nothing */
    size_t out_step;
    int parts, fills, takes, first, peers;
    int blocks;
    int64_t limit_ms;
} weft_i_cuda_passage;

weft_status weft_i_cuda_pass(weft_i_cuda_team *team, weft_i_cuda_stream *stream,
                             const weft_i_cuda_passage *passage);

weft_status weft_i_cuda_barrier(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int channel,
                                int64_t limit_ms);
weft_status weft_i_cuda_put_signal(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int rank,
                                   int channel, int64_t limit_ms);
weft_status weft_i_cuda_wait_signal(weft_i_cuda_team *team, weft_i_cuda_stream *stream, int rank,
                                    int channel, int64_t limit_ms);

#endif
