/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one checkpoint, open, and the parts that are in them. */
#ifndef WEFT_TRAIN_CHECKPOINT_FILES_H
#define WEFT_TRAIN_CHECKPOINT_FILES_H

#include "train/index.h"
#include "train/portion.h"
#include "train/safetensors.h"

typedef struct weft_i_stored {
    weft_i_index index;
    weft_i_tensor_file *file;
    int files;
    weft_i_portion *part; /* sorted; owner: the file, item: the tensor of it */
    int parts;
} weft_i_stored;

/* Opens all files of a checkpoint, and sees that its parts make up whole tensors.  Clear it also after
 * an error. */
weft_status weft_i_stored_open(weft_i_stored *stored, const char *folder);
void weft_i_stored_clear(weft_i_stored *stored);

/* Reads this rank's share of the data, and compares its checksums. */
weft_status weft_i_stored_check(const weft_i_stored *stored, int rank, int ranks);

/* The first part of that name, and how many there are; 0: none. */
int weft_i_stored_find(const weft_i_stored *stored, const char *name, const weft_i_portion **out);
/* The tensor of a part, in the current scope. */
weft_tensor *weft_i_stored_get(const weft_i_stored *stored, const weft_i_portion *part);

#endif
