/* SPDX-License-Identifier: Apache-2.0 */
/* Where tensors lie in the data of a file: side by side, the widest elements first, so that each lies
 * at a multiple of its elements' size. */
#ifndef WEFT_TRAIN_LAYOUT_H
#define WEFT_TRAIN_LAYOUT_H

#include "train/header.h"

typedef struct weft_i_file_layout {
    weft_i_header_tensor *tensor;
    int count, room;
} weft_i_file_layout;

/* Zeroed: empty.  The name is borrowed; `source` of the entry is the number of the call, from 0. */
weft_status weft_i_file_layout_add(weft_i_file_layout *layout, const char *name,
                                   const weft_tensor *x);
/* Puts them in their order and places; returns the bytes of all. */
uint64_t weft_i_file_layout_settle(weft_i_file_layout *layout);
void weft_i_file_layout_clear(weft_i_file_layout *layout);

#endif
