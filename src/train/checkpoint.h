/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a checkpoint, and the steps of a save and a load. */
#ifndef WEFT_TRAIN_CHECKPOINT_H
#define WEFT_TRAIN_CHECKPOINT_H

#include "kernels/number/random.h"
#include "tensor/object/scope.h"
#include "train/disk.h"
#include "train/index.h"
#include "train/layout.h"
#include "train/portion.h"
#include "weft/checkpoint.h"

#include <pthread.h>

enum {
    WEFT_I_ADDED_NAME = 64,
    WEFT_I_ITEM_NAME = WEFT_I_ADDED_NAME + WEFT_NAME_MAX,
    WEFT_I_VALUE_MOST = 64 << 10
};

typedef enum weft_i_added_kind {
    WEFT_I_ADDED_MODULE,
    WEFT_I_ADDED_OPTIM,
    WEFT_I_ADDED_TENSOR,
    WEFT_I_ADDED_VALUE
} weft_i_added_kind;

/* What was added. */
typedef struct weft_i_added {
    weft_i_added_kind kind;
    char name[WEFT_I_ADDED_NAME];
    void *object; /* held; of a value the caller's bytes */
    size_t bytes; /* of a value */
} weft_i_added;

/* A tensor of what was added, as it is at one moment. */
typedef struct weft_i_item {
    char name[WEFT_I_ITEM_NAME];
    weft_tensor *tensor; /* borrowed */
    int saved;           /* of which it is */
    int own;             /* where the name without that of `saved` begins */
    bool steps;          /* an optimizer's number of steps, which is a tensor only in lists */
} weft_i_item;

typedef struct weft_i_items {
    weft_i_item *item;
    int count;
} weft_i_items;

/* What a save has copied, for its thread. */
typedef struct weft_i_copied {
    weft_i_file_layout layout; /* by its numbers: the texts of `place` */
    char (*name)[WEFT_I_ITEM_NAME];
    char (*place)[WEFT_I_PORTION_TEXT];
    char *bytes;
    size_t used, room;
    weft_i_generator generator;
} weft_i_copied;

struct weft_checkpoint {
    weft_i_object head;
    weft_group *group; /* its own: nobody else calls anything in it */
    weft_checkpoint_opts opts;
    char folder[WEFT_I_DISK_PATH];
    weft_i_added *saved;
    int count, room;
    /* the save that is under way, or was the last: its thread's, until it is joined */
    pthread_t thread;
    bool running; /* there is a thread to be joined */
    int lock;     /* of rank 0: the file that keeps other jobs away; -1 */
    int64_t step;
    weft_i_copied copied;
    weft_i_index index; /* values, as they were */
    weft_status outcome;
    char *message; /* of a failure */
    bool told;     /* the outcome, to the caller */
};

/* ---- items (checkpoint_items.c) ---- */

weft_status weft_i_items_list(const weft_checkpoint *c, weft_i_items *out);
void weft_i_items_clear(weft_i_items *items);

/* ---- saving ---- */

/* Which items this rank writes, of those that it has: `mine[i]` says so (checkpoint_plan.c).  All ranks get
 * the same error. */
weft_status weft_i_checkpoint_plan(weft_checkpoint *c, const weft_i_items *items, bool *mine);
/* Copies them (checkpoint_copy.c). */
weft_status weft_i_checkpoint_copy(weft_checkpoint *c, const weft_i_items *items, const bool *mine);
void weft_i_copied_clear(weft_i_copied *copied);
/* Writes what was copied, and makes a checkpoint of what all have written (checkpoint_write.c). */
weft_status weft_i_checkpoint_write(weft_checkpoint *c);

/* ---- the folder (checkpoint_folder.c) ---- */

/* Rank 0: makes room for a new checkpoint; nobody else may do so until it is ended. */
weft_status weft_i_folder_begin(weft_checkpoint *c);
/* The new checkpoint gets its name, and old ones go. */
weft_status weft_i_folder_commit(weft_checkpoint *c);
void weft_i_folder_end(weft_checkpoint *c);
/* Paths of the folder that is being written, and of one of a step. */
weft_status weft_i_folder_writing(const weft_checkpoint *c, char out[WEFT_I_DISK_PATH]);
weft_status weft_i_folder_of_step(const weft_checkpoint *c, int64_t step,
                                  char out[WEFT_I_DISK_PATH]);

/* The checkpoints that are there, the newest first: to be freed. */
typedef struct weft_i_found {
    int64_t step;
    uint64_t serial; /* counts the saves; 0: its index cannot be read */
} weft_i_found;
weft_status weft_i_folder_list(const weft_checkpoint *c, weft_i_found **out, int *count);

#endif
