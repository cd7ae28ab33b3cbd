/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a file of tensors that is open. */
#ifndef WEFT_TRAIN_SAFETENSORS_H
#define WEFT_TRAIN_SAFETENSORS_H

#include "train/file_map.h"
#include "train/header.h"

/* One file. */
typedef struct weft_i_tensor_file {
    weft_i_file_map *map; /* held */
    weft_i_header header;
} weft_i_tensor_file;

/* Clear it also after an error. */
weft_status weft_i_tensor_file_open(weft_i_tensor_file *file, const char *path);
void weft_i_tensor_file_clear(weft_i_tensor_file *file);

/* A tensor of it, in the current scope. */
weft_tensor *weft_i_tensor_file_get(const weft_i_tensor_file *file, const weft_i_header_tensor *t);

#endif
