/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a load: files, comparison, copies. */
#ifndef WEFT_TRAIN_CHECKPOINT_LOAD_H
#define WEFT_TRAIN_CHECKPOINT_LOAD_H

#include "train/checkpoint.h"
#include "train/checkpoint_files.h"

/* The names of the tensors of all ranks, sorted; they lie in what was received. */
typedef struct weft_i_names {
    const char **name;
    int count;
} weft_i_names;

bool weft_i_names_have(const weft_i_names *names, const char *name);

/* Whether all that was added is in the checkpoint, in the same form, and nothing beside it. */
weft_status weft_i_checkpoint_match(const weft_checkpoint *c, const weft_i_items *items,
                                    const weft_i_stored *stored, const weft_i_names *all);
const weft_i_index_value *weft_i_stored_value(const weft_i_stored *stored, const char *name);

/* Copies everything, after they match. */
weft_status weft_i_checkpoint_restore(weft_checkpoint *c, const weft_i_items *items,
                                      const weft_i_stored *stored);

#endif
