/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a file that is written, with an error in words. */
#ifndef WEFT_BASE_FILE_OPEN_H
#define WEFT_BASE_FILE_OPEN_H

#include "weft/status.h"

#include <stdbool.h>
#include <sys/types.h>

/* weft_i_file_try; `*out` is the descriptor, and on failure the message names the file. */
weft_status weft_i_file_open(const char *path, bool append, mode_t mode, int *out);

#endif
