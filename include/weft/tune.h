/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm a collective uses, by operation, number of ranks and bytes:
 *
 *     inline      Up to WEFT_TUNE_INLINE bytes travel beside the arrival word, 56 in its line.
 *     eager       The whole operand goes through one eager buffer in shared memory: one sync.
 *     rendezvous  Symmetric operands, and between threads all operands, are used where they lie
 *                 (zero-copy).  Ordinary ones still go through eager buffers if all ranks' fit.
 *                 Otherwise the kernel copies them once (CMA) where it may, or they go through
 *                 the bounce buffers in chunks (pipelined).
 *
 * The thresholds depend on whether each rank has a core of its own.  The functions below answer for
 * a world of the given number of ranks on this machine.  Thresholds are compiled in, read from a
 * file (WEFT_TUNE, written by `weft bench --tune`), or set here.  All ranks must use the same ones:
 * if ranks would use different algorithms, the call fails with WEFT_ERR_MISMATCH.
 */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_TUNE_INLINE = 632 };

/* Returns "inline", "eager" or "rendezvous" for an operand of `bytes` (a rank's whole input), or
 * NULL for an unknown operation. */
WEFT_API const char *weft_tune_choice(const char *op, int ranks, size_t bytes);

/* The thresholds of an operation, in bytes. */
typedef enum weft_threshold {
    WEFT_TUNE_EAGER,     /* the largest ordinary operand that is sent eagerly, at most 64 KiB */
    WEFT_TUNE_ZERO_COPY, /* the same for symmetric operands: larger ones are used where they lie */
    WEFT_TUNE_CMA,       /* from this size, from one rank to another, the kernel copies (CMA) */
    /* CUDA tensors, all parts of the larger operand: from this size NCCL carries them if it can, and
     * weft's own kernels carry smaller ones. */
    WEFT_TUNE_NCCL
} weft_threshold;

/* Returns a threshold in a world of `ranks` ranks, or 0 and an error for an unknown operation. */
WEFT_API size_t weft_tune_get(weft_threshold which, const char *op, int ranks);

/*
 * Sets a threshold in this process, for groups with a similar number of ranks (2, 3-4, 5-8, more).
 * WEFT_TUNE_EAGER sets WEFT_TUNE_ZERO_COPY too.  Unless WEFT_TUNE_CMA is set, a group starts with
 * the built-in value and finds out by itself, call by call, whether CMA or chunks are faster on
 * this machine.
 */
WEFT_API weft_status weft_tune_set(weft_threshold which, const char *op, int ranks, size_t bytes);

/* Reads a file with lines "<op> <ranks> <eager up to> [<zero-copy beyond> [<CMA from>]]".  '#'
 * starts a comment.  "<op> <ranks> nccl <bytes>" sets WEFT_TUNE_NCCL.  If a line is invalid, or
 * the file has more than 64 KiB, nothing changes. */
WEFT_API weft_status weft_tune_load(const char *path);

/* How long a large call took on this machine in earlier jobs: through bounce buffers, and by
 * CMA. */
typedef struct weft_tune_time {
    const char *op;
    size_t bytes; /* from one rank to another: this many, up to twice as many */
    int64_t staged_ns, cma_ns;
} weft_tune_time;

/*
 * Measurements for groups of `ranks` ranks: the number of rows, and row `index`.  Groups start from
 * these.  They are in the cache folder (WEFT_CACHE_DIR), where the first large calls of a job leave
 * them.  Local; reads a file.  WEFT_ERR_INVALID_ARG if there is no such row or `out` is NULL.
 */
WEFT_API int weft_tune_count(int ranks);
WEFT_API weft_status weft_tune_describe(int ranks, int index, weft_tune_time *out);

#ifdef __cplusplus
}
#endif

#endif
