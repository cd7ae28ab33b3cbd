/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm a collective takes, by operation, number of ranks and bytes:
 *   tiny    up to WEFT_TUNE_INLINE bytes travel beside the arrival word, of which 56 in its line;
 *   staged  the whole operand goes through one slot of shared memory: one sync;
 *   large   symmetric operands are used in place (between threads all); ordinary ones still go
 *           through a slot where all fit theirs, else they are copied once by the kernel where it
 *           allows that, or go through the bounce buffer in pieces.
 * The thresholds depend on whether each rank has a core for itself; what is told here is what a
 * world of that many ranks takes on this machine.  They are compiled in, may be replaced by a file
 * (WEFT_TUNE, written by `weft bench --tune`), or set here.  All ranks must use the same: where
 * they would take different algorithms, the call is WEFT_ERR_MISMATCH.
 */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include "weft/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_TUNE_INLINE = 632 };

/* "inline", "eager" or "rendezvous" for an operand of `bytes` (a rank's whole input); NULL for an
 * unknown operation. */
WEFT_API const char *weft_tune_choice(const char *op, int ranks, size_t bytes);

/* The largest ordinary operand that is staged whole; 0 and an error for an unknown operation.  The
 * second for symmetric ones: beyond that they are used in place. */
WEFT_API size_t weft_tune_eager(const char *op, int ranks);
WEFT_API size_t weft_tune_zero_copy(const char *op, int ranks);

/* Sets both, or the second, in this process for groups of about as many ranks (2, 3-4, 5-8, more).
 * At most the size of a slot, 64 KiB. */
WEFT_API weft_status weft_tune_set(const char *op, int ranks, size_t eager_up_to);
WEFT_API weft_status weft_tune_set_zero_copy(const char *op, int ranks, size_t beyond);

/* The same for copies by CMA: from how many bytes from one rank to another large ordinary operands
 * are copied by the kernel, where it allows that, instead of pipelined in pieces. */
WEFT_API size_t weft_tune_cma(const char *op, int ranks);
WEFT_API weft_status weft_tune_set_cma(const char *op, int ranks, size_t from);

/* Reads lines "<op> <ranks> <staged up to> [<direct beyond> [<copies by CMA from>]]"; '#' starts a
 * comment.  Nothing changes if a line is wrong. */
WEFT_API weft_status weft_tune_load(const char *path);

#ifdef __cplusplus
}
#endif

#endif
