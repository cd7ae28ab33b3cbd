/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a safetensors file: eight bytes with its length, and JSON that says of each tensor
 * dtype, shape and the bytes where it lies behind the header.
 *
 *     {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
 *
 * Whatever a reader relies on is checked once, when the header is read.
 */
#ifndef WEFT_TRAIN_HEADER_H
#define WEFT_TRAIN_HEADER_H

#include "weft/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_I_HEADER_ALIGN = 64, WEFT_I_HEADER_MOST = 100000000 /* bytes, as the format says */ };

/* A tensor of a file: its bytes from where the data begin. */
typedef struct weft_i_header_tensor {
    const char *name;
    weft_dtype dtype;
    weft_shape shape;
    uint64_t begin, end;
    int source; /* of one that is written: the number of its tensor (layout.h) */
} weft_i_header_tensor;

/* The number of the tensor of a name. */
typedef struct weft_i_header_name {
    const char *name;
    int number;
} weft_i_header_name;

typedef struct weft_i_header {
    char *pool; /* all names, keys and values */
    size_t used, room;
    weft_i_header_tensor *tensor; /* by where they lie */
    int count, tensors_room;
    weft_i_header_name *by_name; /* sorted, as the notes are by their keys */
    weft_safetensors_note *note;
    int notes, notes_room;
    uint64_t data; /* where the data begin */
} weft_i_header;

/*
 * Reads the header of a file of `file_bytes`, of which the first `count` are at `bytes`; what is
 * wrong is WEFT_ERR_INVALID_ARG, or WEFT_ERR_UNSUPPORTED for dtypes and shapes that weft has not.  Clear it
 * also after an error.
 */
weft_status weft_i_header_read(weft_i_header *header, const void *bytes, size_t count,
                               uint64_t file_bytes);
void weft_i_header_clear(weft_i_header *header);

const weft_i_header_tensor *weft_i_header_find(const weft_i_header *header, const char *name);
const char *weft_i_header_note_of(const weft_i_header *header, const char *key);

/*
 * The header that says this, with its length, to be freed with WEFT_OS->free: `*bytes` is a multiple
 * of WEFT_I_HEADER_ALIGN.  The tensors lie side by side from 0 on.  NULL and an error for names that
 * are not UTF-8, or come twice.
 */
char *weft_i_header_write(const weft_i_header_tensor *tensors, int count,
                          const weft_safetensors_note *notes, int note_count, size_t *bytes);

/* What safetensors calls a dtype. */
const char *weft_i_header_dtype_name(weft_dtype dtype);
/* WEFT_ERR_INVALID_ARG unless it is UTF-8 that a header can have. */
weft_status weft_i_header_check_text(const char *what, const char *text);

#endif
