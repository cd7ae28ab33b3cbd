/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the kernel, read whole, and files that weft writes for the user: logs, traces, debug output.  Their names are settings and
 * often predictable, in folders others can write to; so no link is followed, and what is no regular
 * file is refused, without ever waiting for the other end of a FIFO.
 */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The first `bytes` - 1 bytes of a file in /proc or /sys, as text; false and "" if that fails. */
bool weft_i_file_read(const char *path, char *text, size_t bytes);

/* Opens `path` for writing, made with `mode` if it is not there; `append` keeps what is in it.
 * /dev/null is fine too.  `*out` is the descriptor; on failure the message names the file. */
weft_status weft_i_file_open(const char *path, bool append, mode_t mode, int *out);

/* The same for the log itself, which cannot report errors: a descriptor, or -1 and errno, and what
 * was wrong with the file in `why`. */
int weft_i_file_try(const char *path, bool append, mode_t mode, char *why, size_t bytes);

#endif
