/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the kernel, read whole; files that weft keeps for itself; and files that weft writes for
 * the user: logs, traces, debug output.  Their names are settings and often predictable, in folders
 * others can write to; so no link is followed, and what is no regular file is refused, without ever
 * waiting for the other end of a FIFO.
 */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The first `bytes` - 1 bytes of a file in /proc or /sys, as text; false and "" if that fails. */
bool weft_i_file_read(const char *path, char *text, size_t bytes);

/* The same of a file of weft's own, and how long the text is: 0 if it is no regular file of the user
 * that nobody else can write to, or does not fit. */
size_t weft_i_file_read_own(const char *path, char *text, size_t bytes);

/* Makes such a file; what had that name goes.  False and errno if not all could be written. */
bool weft_i_file_make_own(const char *path, const char *bytes, size_t count);
bool weft_i_file_write_all(int fd, const char *bytes, size_t count);

/* Opens `path` for writing, made with `mode` if it is not there; `append` keeps what is in it.
 * /dev/null is fine too.  A descriptor, or -1 and errno, and what was wrong with the file in `why`. */
int weft_i_file_try(const char *path, bool append, mode_t mode, char *why, size_t bytes);

#endif
