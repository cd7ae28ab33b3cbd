/* SPDX-License-Identifier: Apache-2.0 */
/* A file in memory, to be read. */
#ifndef WEFT_TRAIN_FILE_MAP_H
#define WEFT_TRAIN_FILE_MAP_H

#include "tensor/object/scope.h"
#include "weft/status.h"

typedef struct weft_i_file_map {
    weft_i_object head;
    const char *bytes; /* NULL: an empty file */
    size_t count;
    char path[];
} weft_i_file_map;

/* One reference, in no scope.  WEFT_ERR_NOT_FOUND if there is no file of this name. */
weft_i_file_map *weft_i_file_map_open(const char *path);

/* Reads all of it once, so that a disk that cannot is an error and no signal; sums it up.  `from` is
 * where to begin. */
weft_status weft_i_file_map_sum(const weft_i_file_map *map, size_t from, size_t count,
                                uint64_t *sum);

#endif
