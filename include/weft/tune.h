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
 * These and all other decisions by size are in one table: `weft info --tune` shows it, and what has
 * set a value and where it was measured.  Values depend on whether each rank has a core of its own;
 * the functions below answer for a world of the given number of ranks on this machine.  They are
 * compiled in, read from a file (WEFT_TUNE, written by `weft bench --tune`), or set here.  All ranks
 * must use the same ones: if ranks would use different algorithms, the call fails with
 * WEFT_ERR_MISMATCH.
 */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_TUNE_INLINE = 632 };

/* Returns "inline", "eager" or "rendezvous" for an operand of `bytes` (a rank's whole input), or
 * NULL for an unknown operation. */
WEFT_API const char *weft_tune_choice(const char *op, int ranks, size_t bytes);

/* What is decided by size.  Values are bytes. */
typedef enum weft_threshold {
    /* of each operation */
    WEFT_TUNE_EAGER,     /* the largest ordinary operand that is sent eagerly, at most 64 KiB */
    WEFT_TUNE_ZERO_COPY, /* the same for symmetric operands: larger ones are used where they lie */
    WEFT_TUNE_CMA,       /* from this size, from one rank to another, the kernel copies (CMA) */
    /* CUDA tensors, all parts of the larger operand: from this size NCCL carries them if it can, and
     * weft's own kernels carry smaller ones. */
    WEFT_TUNE_NCCL,
    /* Of "all_reduce" with symmetric operands: up to this size, times the square of the number of
     * ranks, every rank folds all of the vector. */
    WEFT_TUNE_FOLD_WHOLE,
    WEFT_TUNE_PUSH, /* parts from this size are pushed to symmetric outputs, others are pulled */
    /* Data that goes one way flows in chunks beyond the first size, up to the second.  These two
     * cannot be set. */
    WEFT_TUNE_FIFO_BEYOND,
    WEFT_TUNE_FIFO_UP_TO,
    /* Of "all_reduce" in compiled graphs (also WEFT_ONE_SHOT, WEFT_TWO_SHOT, WEFT_BUCKET). */
    WEFT_TUNE_ONE_SHOT, /* sums up to this size become one-shot operations on symmetric memory */
    WEFT_TUNE_TWO_SHOT, /* larger ones up to this size two-shot ones */
    WEFT_TUNE_BUCKET,   /* consecutive collectives are combined up to this size */
    WEFT_TUNE_COPY,     /* inputs of functional collectives are copied up to this size */
    WEFT_TUNE_WAKE,     /* posted work from this size, input and output, wakes the helper thread */
    /* Of "all_gather_matmul" and "matmul_reduce_scatter", also of the scaled forms: from this size
     * they are pipelines; on the CPU, and on GPUs. */
    WEFT_TUNE_FUSED,
    WEFT_TUNE_FUSED_CUDA,
    /* Of "all_reduce" on GPUs by weft's own kernels: the largest operand that goes as packets, and
     * the largest that goes one-shot; the same if input and output are symmetric. */
    WEFT_TUNE_CUDA_PACKETS,
    WEFT_TUNE_CUDA_PACKETS_SYMM,
    WEFT_TUNE_CUDA_ONE_SHOT,
    WEFT_TUNE_CUDA_ONE_SHOT_SYMM,
    WEFT_TUNE_CUDA_MEET_FIRST /* from this size ranks that share a GPU meet before they take it */
} weft_threshold;

/*
 * Returns a value in a world of `ranks` ranks, or 0 and an error for an operation that has none.
 * `op` and `ranks` are checked, but mean nothing to decisions that have one value: they take "*".
 */
WEFT_API size_t weft_tune_get(weft_threshold which, const char *op, int ranks);

/*
 * Sets a value in this process, for groups with a similar number of ranks (2, 3-4, 5-8, more).
 * WEFT_TUNE_EAGER sets WEFT_TUNE_ZERO_COPY too.  Unless WEFT_TUNE_CMA is set, a group starts with
 * the built-in value and finds out by itself, call by call, whether CMA or chunks are faster on
 * this machine.  What is for GPUs counts in groups that make their first call there afterwards.
 */
WEFT_API weft_status weft_tune_set(weft_threshold which, const char *op, int ranks, size_t bytes);

/*
 * Reads a file of lines "<op> <ranks> <decision> <bytes>", as in "all_reduce 8 nccl 1048576": the
 * decision as `weft info --tune` names it, "*" where a decision is for all operations or any number
 * of ranks, "never" or "always" instead of bytes.  A line "<op> <ranks> <eager> [<zero_copy>
 * [<cma>]]" sets three of them.  '#' starts a comment.  If a line is invalid, or the file has more
 * than 64 KiB, nothing changes.
 */
WEFT_API weft_status weft_tune_load(const char *path);

/* How a value is meant: whether what the decision says holds up to, beyond or from that size. */
typedef enum weft_tune_sense { WEFT_TUNE_UP_TO, WEFT_TUNE_BEYOND, WEFT_TUNE_FROM } weft_tune_sense;

/* Where a value comes from. */
typedef enum weft_tune_source {
    WEFT_TUNE_COMPILED,
    WEFT_TUNE_FILE,     /* WEFT_TUNE, weft_tune_load */
    WEFT_TUNE_PROGRAM,  /* weft_tune_set */
    WEFT_TUNE_VARIABLE, /* an environment variable of its own */
    WEFT_TUNE_LEARNED   /* compiled in, but jobs have timed calls on this machine and go by that */
} weft_tune_source;

/* A decision for one operation and number of ranks. */
typedef struct weft_tune_decision {
    weft_threshold which;
    const char *name, *op; /* as in files; op "*": for all */
    const char *meaning;   /* what holds up to, beyond or from that size */
    const char *unit;      /* "bytes", or what is multiplied with them */
    weft_tune_sense sense;
    size_t value; /* or SIZE_MAX, for no limit */
    weft_tune_source source;
    const char *variable; /* the one that has set it, or NULL */
    const char *measured; /* where the value that is compiled in was measured */
    bool any_ranks;       /* the same for any number of ranks */
    bool can_be_set;
} weft_tune_decision;

/* The decisions, each with every operation that has one: how many, and number `index` in a world of
 * `ranks` ranks.  WEFT_ERR_INVALID_ARG if there is none. */
WEFT_API int weft_tune_decision_count(void);
WEFT_API weft_status weft_tune_decision_describe(int index, int ranks, weft_tune_decision *out);

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
