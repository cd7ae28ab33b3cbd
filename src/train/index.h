/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.json: what makes files of tensors a checkpoint.  It is the header of a safetensors file without
 * tensors and without its length, so that one reader does for both:
 *
 *     {"__metadata__":{"file.1":"part-00001-of-00002.safetensors 4711 0123456789abcdef", "step":"300", ...}}
 *
 * A file is named with its bytes and the checksum of its header, which has the checksums of the data.
 */
#ifndef WEFT_TRAIN_INDEX_H
#define WEFT_TRAIN_INDEX_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_FILES_MOST = 100000, WEFT_I_INDEX_NAME = 64 };

typedef struct weft_i_index_file {
    uint64_t bytes, sum;
} weft_i_index_file;

typedef struct weft_i_index_value {
    char name[WEFT_I_INDEX_NAME];
    uint8_t *data; /* owned */
    size_t bytes;
} weft_i_index_value;

typedef struct weft_i_index {
    int64_t step;
    uint64_t serial;
    weft_i_index_file *file;
    int files;
    weft_i_index_value *value;
    int values;
} weft_i_index;

weft_status weft_i_index_write(const weft_i_index *index, const char *folder);
/* WEFT_ERR_NOT_FOUND if there is none, WEFT_ERR_INVALID_ARG if it is damaged.  Clear it also then. */
weft_status weft_i_index_read(weft_i_index *index, const char *folder);
void weft_i_index_clear(weft_i_index *index);
weft_status weft_i_index_add_value(weft_i_index *index, const char *name, const void *data,
                                   size_t bytes);
weft_status weft_i_index_set_files(weft_i_index *index, int files);

/* 16 hexadecimal digits; false if they are none. */
bool weft_i_index_read_sum(const char *text, uint64_t *out);

/* The name of file `i` of `files`. */
const char *weft_i_index_file_name(int i, int files, char out[64]);

#endif
