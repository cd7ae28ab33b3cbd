/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A portion: what a rank, or a file, has of a tensor.  Portions of one tensor that lie side by side make
 * up the whole; a rank that wants another portion of it takes from each what the two have in common.
 */
#ifndef WEFT_TRAIN_PORTION_H
#define WEFT_TRAIN_PORTION_H

#include "weft/shard.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_i_portion {
    const char *name;
    weft_dtype dtype;
    weft_shape shape, full;
    int64_t offset[WEFT_MAX_DIMS];
    int stripe_dim, stripes; /* 1: none; see weft_shard_place */
    int owner, item;         /* whose it is, and its number there */
} weft_i_portion;

/* The portion that a tensor is. */
weft_i_portion weft_i_portion_of(const char *name, const weft_tensor *x, int owner, int item);
/* WEFT_ERR_INVALID_ARG unless it lies in the whole. */
weft_status weft_i_portion_check(const weft_i_portion *portion);

uint64_t weft_i_portion_elements(const weft_i_portion *portion);
uint64_t weft_i_portion_bytes(const weft_i_portion *portion);

/* By name, place and owner: copies of one portion stand side by side. */
void weft_i_portion_sort(weft_i_portion *list, int count);
/* Whether two, perhaps of different owners, are the same part of one tensor. */
bool weft_i_portion_same(const weft_i_portion *a, const weft_i_portion *b);
/* How many of the sorted list, from its first on, have the name of the first. */
int weft_i_portion_group(const weft_i_portion *list, int count);

/* The portions of one name, each once, are of one tensor, do not overlap and make up the whole. */
weft_status weft_i_portion_check_whole(const weft_i_portion *list, int count);

/* Copies what two portions of a tensor have in common. */
weft_status weft_i_portion_copy(weft_tensor *to, const weft_i_portion *to_part, weft_tensor *from,
                                const weft_i_portion *from_part);

/* "of 8,4 at 2,0 in 1,3", or "whole"; and back. */
enum { WEFT_I_PORTION_TEXT = 420 };
void weft_i_portion_write(const weft_i_portion *portion, char out[WEFT_I_PORTION_TEXT]);
/* Of a portion whose shape is known; `*end` is where the text goes on.  False if it is none. */
bool weft_i_portion_read(weft_i_portion *portion, const char *text, const char **end);

#endif
