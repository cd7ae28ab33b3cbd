/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline: an operand that goes through the bounce buffers piece by piece.  Each rank has two
 * buffers and fills them in turn, so piece k + 1 is copied in while piece k is copied out, and one
 * sync per piece orders everything:
 *
 *     put 0 | sync | take 0, put 1 | sync | collect 0, take 1, put 2 | sync | ...
 *
 * A buffer is filled again two pieces later.  By then every rank has passed the sync that follows
 * the last use of what was in it.
 */
#ifndef WEFT_COLL_PIPELINE_H
#define WEFT_COLL_PIPELINE_H

#include "coll/lane/call.h"

/* What is done with a piece; `turn` counts them. */
typedef void weft_i_pipeline_step(weft_i_coll *coll, const void *arg, uint64_t turn,
                                  weft_i_span piece);

typedef struct weft_i_pipeline {
    size_t total, piece; /* of what goes through it: bytes or elements, whichever the steps count */
    /* Copies a piece into this rank's buffer.  NULL where this rank gives nothing. */
    weft_i_pipeline_step *put;
    /* Uses a piece of every rank's buffer.  NULL where this rank takes nothing. */
    weft_i_pipeline_step *take;
    /* Uses what other ranks made of a piece when they took it.  NULL where there is nothing. */
    weft_i_pipeline_step *collect;
    /* Pieces are taken from where the operands lie.  Nothing is put, so nobody waits for it. */
    bool direct;
    /*
     * What is read last lies in result buffers.  Those are written only after an entry, which waits
     * for the readers, so the last sync is not needed.
     */
    bool in_results;
    const void *arg; /* of the steps */
} weft_i_pipeline;

/* Runs the pipeline, after the entry.  Every rank runs one with the same pieces. */
weft_status weft_i_pipeline_run(weft_i_coll *coll, const weft_i_pipeline *line);

#endif
