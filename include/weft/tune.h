/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm a collective takes, by operation, number of ranks and bytes:
 *
 *   inline      Up to WEFT_TUNE_INLINE bytes travel beside the arrival word, 56 of them in its line.
 *   eager       The whole operand goes through one eager buffer in shared memory: one sync.
 *   rendezvous  Symmetric operands, and between threads all operands, are used where they lie
 *               (zero-copy).  Ordinary ones still go through eager buffers if all ranks' fit.
 *               Otherwise the kernel copies them once (CMA) where it may, or they go through the
 *               bounce buffers in chunks (pipelined).
 *
 * The thresholds depend on whether each rank has a core of its own.  The functions below answer for
 * a world of that many ranks on this machine.  Thresholds are compiled in, read from a file
 * (WEFT_TUNE, written by `weft bench --tune`), or set here.  All ranks must use the same ones: if
 * ranks would take different algorithms, the call is WEFT_ERR_MISMATCH.
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

/* The largest ordinary operand that is sent eagerly; 0 and an error for an unknown operation. */
WEFT_API size_t weft_tune_eager(const char *op, int ranks);

/* The same for symmetric operands.  Larger ones are used where they lie. */
WEFT_API size_t weft_tune_zero_copy(const char *op, int ranks);

/* Sets both thresholds in this process, for groups of about as many ranks (2, 3-4, 5-8, more).  At
 * most 64 KiB, the size of an eager buffer. */
WEFT_API weft_status weft_tune_set(const char *op, int ranks, size_t eager_up_to);

/* Sets only the threshold of symmetric operands. */
WEFT_API weft_status weft_tune_set_zero_copy(const char *op, int ranks, size_t beyond);

/* From how many bytes, from one rank to another, the kernel copies ordinary operands (CMA) where it
 * may, instead of weft in chunks.  Unless it is set, a group begins with this and finds out by
 * itself, call by call, which of the two is faster here. */
WEFT_API size_t weft_tune_cma(const char *op, int ranks);
WEFT_API weft_status weft_tune_set_cma(const char *op, int ranks, size_t from);

/* Reads lines "<op> <ranks> <eager up to> [<zero-copy beyond> [<CMA from>]]"; '#' starts a
 * comment.  Nothing changes if a line is wrong. */
WEFT_API weft_status weft_tune_load(const char *path);

#ifdef __cplusplus
}
#endif

#endif
