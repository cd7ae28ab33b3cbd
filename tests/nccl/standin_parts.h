/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the stand-in share. */
#ifndef WEFT_TESTS_NCCL_STANDIN_PARTS_H
#define WEFT_TESTS_NCCL_STANDIN_PARTS_H

#include "standin.h"

#include "backends/nccl/library.h"
#include "cuda/model_parts.h"

#include <stdbool.h>

enum { RANKS_MOST = 8, CHUNK = 64 << 10, LETTER = 16 << 10 };

/* A rank's line in the file that all have mapped. */
typedef struct standin_place {
    _Atomic uint64_t shown, taken; /* how many chunks it has put into its slot, and has read */
    _Atomic int here, left;
    _Atomic uint64_t met; /* host meetings */
    int device, host_id, pid, fd;
    double factor;
    uint64_t size;
    char slot[CHUNK];
} standin_place;

typedef struct letter {
    _Atomic uint32_t bytes; /* 0: empty */
    char data[LETTER];
} letter;

typedef struct shared {
    standin_place rank[RANKS_MOST];
    letter box[RANKS_MOST][RANKS_MOST]; /* from, to */
} shared;

typedef struct standin_comm {
    shared *with;
    int rank, size;
    char path[WEFT_I_NCCL_ID_BYTES];
    _Atomic int aborted, failed, jobs; /* jobs: that a stream has; the end waits for them */
    uint64_t shown;                    /* chunks so far; by the stream's thread */
    uint64_t met;
    bool made, finalized;
    int polls; /* until what was given is enqueued */
    struct standin_job *pending;
    void *window;            /* that is being registered */
    weft_i_cu_stream stream; /* it goes to */
} standin_comm;

typedef enum standin_kind {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    SEND,
    RECV
} standin_kind;

typedef struct standin_op {
    standin_kind kind;
    const char *in;
    char *out;
    size_t count;
    int dtype, op, peer; /* peer: or the root */
    double factor;
    size_t done; /* bytes of a send or receive */
} standin_op;

/* What a group has: one task of a stream. */
typedef struct standin_job {
    standin_comm *comm;
    int count, room;
    standin_op ops[];
} standin_job;

enum { PREMUL = 100 }; /* an operation with a factor */

size_t standin_type_size(int dtype);
void standin_run(void *job);

#endif
