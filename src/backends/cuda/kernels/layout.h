/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What host and kernels share: where things lie in a pad, and the parameter of every kernel.
 *
 * A pad is the memory of one rank in which the others leave word for it, so that a rank that waits
 * polls its own memory.  All pads of a group lie at a constant stride and have one layout:
 *
 *     head       the poison word, which of this rank's threads failed first, and the signature: what
 *                this rank called last, for ranks that called something else
 *     lines      one per block of a collective's grid: the block's epoch, which only this rank
 *                counts, rows that it shows (vdev.h), and for every source its arrival (epoch and
 *                digest) and two factors
 *     channels   the same per channel of barriers
 *     semaphores  a 32-bit word per channel and source, for put and wait
 *     p2p        channels of messages between two ranks, see p2p.h: per source and lane
 *     packets    two turns: per block and source, data with flags
 *     stage      two halves: copies of operands that are not symmetric memory
 *     slots      per source and lane, with the pieces of messages
 *
 * Epochs are counted on the device and never by the host, so that a captured graph can be replayed.
 * Each block counts its own: block b meets the blocks b of the other ranks and no others.
 */
#ifndef WEFT_CUDA_KERNELS_LAYOUT_H
#define WEFT_CUDA_KERNELS_LAYOUT_H

#include <stdint.h>

enum {
    WEFT_K_LINE = 128,
    WEFT_K_WORDS = 64,        /* of a line, before its arrivals */
    WEFT_K_ARRIVAL = 32,      /* an arrival word and two factors, by turns of the epoch */
    WEFT_K_SIGNATURE_AT = 16, /* of the signature, in a head */
    WEFT_K_SIGNATURE_WORDS = 3,
    WEFT_K_RANKS_MOST = 72,
    WEFT_K_P2P_CHANNEL = 128,    /* bytes: words that meet.h names */
    WEFT_K_P2P_SLOTS = 4,        /* of a lane, from one source */
    WEFT_K_P2P_PIECE = 32 << 10, /* bytes of a slot */
    WEFT_K_MESSAGES = 72,        /* of a batch: parameters have 4 KiB */
    WEFT_K_MESSAGES_FEW = 2,
    WEFT_K_THREADS = 512,      /* of a block, at most */
    WEFT_K_THREADS_HALF = 256, /* of kernels that need more registers */
    WEFT_K_THREADS_NARROW = 32 /* of kernels that run beside others */
};

/* The upper half of a signature's first word: whoever finds that it fits the other two has all
 * three. */
#define WEFT_K_SIGNATURE_SEAL(what_, count_) \
    ((((what_) ^ (count_) * (uint64_t)0x9e3779b97f4a7c15) * (uint64_t)0xff51afd7ed558ccd) >> 32)

/* Why a kernel gave up. */
enum {
    WEFT_K_FINE,
    WEFT_K_TIMEOUT,
    WEFT_K_MISMATCH,
    WEFT_K_POISONED, /* another rank gave up: `peer` is that rank, `theirs` the word's upper half */
    WEFT_K_VERDICT   /* the host said that `peer` will not come: `theirs` is its status */
};

/*
 * The poison word holds the rank that gave up, the reason, the rank it was waiting for, and, for a
 * verdict, the absolute value of its status.
 */
#define WEFT_K_POISON(why_, status_, lost_, rank_)                                 \
    ((uint64_t)(why_) << 56 | (uint64_t)(uint8_t)(0 - (uint32_t)(status_)) << 48 | \
     (uint64_t)(uint16_t)((lost_) + 1) << 32 | (uint32_t)((rank_) + 1))

/* What it refused: the rows that a rank sends do not lie in its input, those that it receives do not
 * fit its output. */
enum { WEFT_K_SENT = 1, WEFT_K_RECEIVED };

/* What it was doing. */
enum { WEFT_K_COLLECTIVE, WEFT_K_BARRIER, WEFT_K_PUT, WEFT_K_WAIT, WEFT_K_MESSAGE };

/*
 * The first failure of this rank, in host memory that the device writes.  `why` comes last, with
 * release; the host's acquire load of it is the partner.
 */
typedef struct weft_k_record {
    uint64_t why, what, peer, channel, epoch, mine, theirs, waited_ns;
    uint64_t waiting; /* rank + 1 that a kernel has been waiting for over 50 us; 0: none */
    /* What a kernel refused, alike on all ranks, who go on: `refused` comes last, with release. */
    uint64_t refused, refused_rank, refused_rows, refused_kind;
    /* Of ranks that called different things: the signatures of this one and of `peer`. */
    uint64_t my_signature[WEFT_K_SIGNATURE_WORDS], their_signature[WEFT_K_SIGNATURE_WORDS];
    uint64_t pad[5]; /* to whole lines */
} weft_k_record;

typedef struct weft_k_group {
    char *pads;      /* of rank 0 */
    uint64_t stride; /* to the next rank's */
    /* NULL, or for every rank how far from rank 0's memory its own is: for memory that is not mapped
     * at one stride. */
    const int64_t *shifts;
    int32_t rank, size;
    uint32_t lines, channels;
    uint64_t channels_at, semaphores_at, packets_at, stage_at; /* in a pad */
    uint64_t packet_units; /* of 8 bytes of data, per block, source and turn */
    uint64_t stage_bytes;  /* of a half */
    uint64_t p2p_channels_at, p2p_slots_at;
    uint64_t p2p_lanes; /* of each source; 0: no messages */
    uint64_t near;      /* all ranks run on one device: their meetings are ordered at its scope */
    uint64_t *verdict;  /* host memory: 0, or status << 32 | rank + 1 */
    weft_k_record *record;
} weft_k_group;

/* The parameter of signals and collectives; what a kernel does not need is 0. */
typedef struct weft_k_call {
    weft_k_group group;
    uint64_t limit_ns; /* 0: none */
    uint32_t digest;
    int32_t dtype, op, peer;   /* op is a weft_i_fold_op */
    uint32_t channel, release; /* release: data went to peers before the last meeting */
    double factor;             /* of this rank, for PREMUL_SUM */
    uint64_t count;            /* elements of the result, or bytes of a part that moves */
    const char *in;            /* operand in plain memory; NULL: symmetric, see `from` */
    char *out;
    const char *from; /* rank 0's, and the step to the next rank's */
    uint64_t from_step;
    const int64_t *from_shifts; /* or, of vdev and tiles, a table instead; see weft_k_group */
    char *to;
    uint64_t to_step;
    uint64_t rows,
        pitch; /* reduce_scatter: rows of `count` / `rows` elements, `pitch` bytes apart */
    int32_t first, peers; /* of those that a move serves; peers is 0, 1 or the size */
    /* Through the stage: parts of a place, those that this rank puts there, `in_step` bytes apart
     * in its operand, and the one that it takes from others' places. */
    int32_t parts, fills, takes;
    uint64_t in_step;
    uint64_t place, room, each; /* bytes of a block's place, of a part in it, and of a part that a
                                   block moves in a round */
    uint32_t width, pad;        /* of narrow.h: threads whose work a block does */
    uint64_t signature
        [WEFT_K_SIGNATURE_WORDS]; /* seal and digest; kind, dtype, operation, root; count */
} weft_k_call;

/* A message that this rank sends or receives; see p2p.h. */
typedef struct weft_k_message {
    char *data;
    uint64_t bytes;
    uint64_t signature[2]; /* as that of a call, without the seal */
    uint32_t digest;       /* the same at both ends */
    int16_t peer;
    uint16_t route; /* of this call: a peer and a direction */
    uint16_t lanes; /* among which it is cut: the same at both ends */
    uint8_t sends, dtype;
} weft_k_message;

/* Messages that go at the same time, those of a route in their order. */
typedef struct weft_k_p2p {
    weft_k_call call;
    uint32_t count, lanes; /* lanes of a route in this grid */
    weft_k_message messages[WEFT_K_MESSAGES_FEW];
} weft_k_p2p;

typedef struct weft_k_p2p_many {
    weft_k_call call;
    uint32_t count, lanes;
    weft_k_message messages[WEFT_K_MESSAGES];
} weft_k_p2p_many;

/* all_to_all with sizes in memory; see vdev.h.  `call.from` is rank 0's input, `call.count` the bytes
 * of a row. */
typedef struct weft_k_vdev {
    weft_k_call call;
    const char *splits; /* rank 0's table, and the step to the next rank's */
    uint64_t splits_step;
    const int64_t *splits_shifts;
    int64_t *table; /* of this rank: what it received, and where that lies */
    int64_t in_rows, out_rows;
    int64_t align; /* of experts in the output; 0: packed */
    int32_t experts;
    int32_t by_expert; /* the input comes by experts, with offsets; the output by ranks */
    uint64_t scratch;  /* bytes of a block, in the stage */
} weft_k_vdev;

/* The tile of which this rank is the root, rows first; without one its lengths are 0. */
typedef struct weft_k_tile {
    weft_k_call call;
    uint64_t length[2], from_stride[2], out_stride[2]; /* strides in bytes */
} weft_k_tile;

/* A copy of strided elements, with a change of dtype. */
enum { WEFT_K_DIMS = 8 };
typedef struct weft_k_copy {
    char *to;
    const char *from;
    uint64_t count;
    int32_t ndim, to_dtype, from_dtype, size; /* size: bytes of an element, if the dtypes are one */
    uint64_t dim[WEFT_K_DIMS];
    int64_t to_stride[WEFT_K_DIMS], from_stride[WEFT_K_DIMS]; /* in bytes */
} weft_k_copy;

#endif
