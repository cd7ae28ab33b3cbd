/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Checkpoints: what a training run needs to go on after it has ended, in files.
 *
 *     weft_checkpoint *checkpoint = weft_checkpoint_new("run", world, NULL);
 *     weft_checkpoint_add_module(checkpoint, "model", net);
 *     weft_checkpoint_add_optim(checkpoint, "adam", adam);
 *     weft_checkpoint_add_value(checkpoint, "position", &position, sizeof position);
 *
 *     int64_t step = 0;
 *     weft_status status = weft_checkpoint_load(checkpoint, &step);     // the newest that is whole
 *     if (status < 0 && status != WEFT_ERR_NOT_FOUND) ...
 *     for (; step < steps; step++) {
 *         if (step % 100 == 0) weft_checkpoint_save(checkpoint, step);  // returns when it is copied
 *         ...
 *     }
 *
 * Every rank writes the parts that it has, each part once, to a file of its own (weft/safetensors.h), all
 * at the same time.  Parts know where they lie in the whole (weft/shard.h): what was saved by weft_shard on
 * 8 ranks can be loaded by weft_parallelize on 4, or without either.  The page docs/checkpoint.md has the
 * files.
 *
 * A checkpoint has its name only when all of it is on the disk, so a rank that dies meanwhile, or
 * a write that fails, leaves the last one as it is.  What is loaded is compared first: with checksums, and with
 * the names, shapes and dtypes of what it is to be loaded into.  If anything is wrong, all ranks get the
 * same error, and nothing has changed.  Only a rank that dies, or runs out of memory, while the copies
 * are made leaves some of them made: load again.
 *
 * All functions but the add ones are collective: all ranks of the group call them in the same order.
 */
// clang-format on
#ifndef WEFT_CHECKPOINT_H
#define WEFT_CHECKPOINT_H

#include "weft/group.h"
#include "weft/module.h"
#include "weft/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_checkpoint weft_checkpoint;

typedef struct weft_checkpoint_opts {
    size_t size;    /* of this struct */
    int keep;       /* how many of the newest stay, or 0 for all */
    bool wait;      /* weft_checkpoint_save returns when all is on the disk */
    bool check;     /* weft_checkpoint_load compares checksums */
    bool generator; /* each rank's random numbers go on too (weft_seed) */
} weft_checkpoint_opts;
#define WEFT_CHECKPOINT_OPTS_INIT                                    \
    {                                                                \
        sizeof(weft_checkpoint_opts), 2 /*keep*/, false, true, true, \
    }

/*
 * Makes a checkpoint, a handle in the current scope.  The folder, which all ranks reach by this path, is
 * made by the first save.  The checkpoint holds what is added to it.  Releasing it waits for a save
 * that is under way, as weft_finish does.
 */
WEFT_API weft_checkpoint *weft_checkpoint_new(const char *folder, weft_group *group,
                                              const weft_checkpoint_opts *opts);

/*
 * Adds what is saved and loaded, under a name of 1 to 63 characters that is not taken: the parameters
 * and buffers of a module, as "name.weight"; what an optimizer remembers, as "name.weight.exp_avg"; a
 * tensor; or `bytes` bytes of the caller's, at most 64 KiB, which live as long as the checkpoint and are the
 * same on all ranks.  A tensor that has several names in a module is saved once.  All ranks add the
 * same.  Local.
 */
WEFT_API weft_status weft_checkpoint_add_module(weft_checkpoint *checkpoint, const char *name,
                                                weft_module *module);
WEFT_API weft_status weft_checkpoint_add_optim(weft_checkpoint *checkpoint, const char *name,
                                               weft_optim *optim);
WEFT_API weft_status weft_checkpoint_add_tensor(weft_checkpoint *checkpoint, const char *name,
                                                weft_tensor *tensor);
WEFT_API weft_status weft_checkpoint_add_value(weft_checkpoint *checkpoint, const char *name,
                                               void *value, size_t bytes);

/*
 * Saves everything as it is now, as the checkpoint of this step.  Returns when it is copied; a thread
 * writes it, while training goes on.  The copy takes as much memory as the rank writes.  Waits for the
 * save before; if that failed and its error was not asked for, it returns the error and begins nothing.
 *
 * A checkpoint of the same step is replaced.  When the new one is there, older ones than opts.keep
 * are removed.  WEFT_ERR_STATE if another job saves into the folder at this moment;
 * WEFT_ERR_MISMATCH if the ranks have different values, or parts that do not make up the whole.
 */
WEFT_API weft_status weft_checkpoint_save(weft_checkpoint *checkpoint, int64_t step);

/* Waits until the last save is on the disk, and returns what became of it: the same on all ranks. */
WEFT_API weft_status weft_checkpoint_wait(weft_checkpoint *checkpoint);

/*
 * Loads the newest checkpoint that is whole, and stores its step in `step` unless that is NULL.  One
 * that is damaged is left out with a warning in the log.  What a checkpoint has beside the names that were
 * added stays there.
 *
 * WEFT_ERR_NOT_FOUND, which is no error of the rank, if there is no checkpoint.  WEFT_ERR_IO if there are
 * only damaged ones.  WEFT_ERR_INVALID_ARG, with the names, if it is of something else.
 */
WEFT_API weft_status weft_checkpoint_load(weft_checkpoint *checkpoint, int64_t *step);

/* Loads the checkpoint of this step; WEFT_ERR_IO if it is damaged. */
WEFT_API weft_status weft_checkpoint_load_step(weft_checkpoint *checkpoint, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
