/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard input of rank 0.  A file or pipe is simply inherited.  A terminal is not: the rank is in
 * a process group of its own, which a terminal stops when it reads; so we read for it, while we are
 * in the foreground.
 */
#ifndef WEFT_LAUNCH_STDIN_H
#define WEFT_LAUNCH_STDIN_H

#include "base/os/os.h"
#include "weft/status.h"

enum { WEFT_I_STDIN_PIECE = 4096 };

typedef struct weft_i_stdin {
    int fd;         /* writing end of the pipe to rank 0; -1: nothing (more) to input */
    bool fed, ends; /* by a launcher on another host, not from our own input; its end came */
    size_t start, used;
    char bytes[WEFT_I_STDIN_PIECE];
} weft_i_stdin;

/* `child_in` is the descriptor rank 0 gets as its input and belongs to the caller; -1: it inherits
 * ours. */
weft_status weft_i_stdin_open(weft_i_stdin *input, int *child_in);
/* The same for a rank whose input comes from another host, a piece at a time: the next one may be
 * fed when none is left (weft_i_stdin_hungry).  No bytes: the end. */
weft_status weft_i_stdin_open_fed(weft_i_stdin *input, int *child_in);
void weft_i_stdin_feed(weft_i_stdin *input, const void *bytes, size_t count);
static inline bool weft_i_stdin_hungry(const weft_i_stdin *input)
{
    return input->fd >= 0 && input->fed && !input->used && !input->ends;
}

void weft_i_stdin_close(weft_i_stdin *input);

/* At most 2 entries, as for weft_i_lines_poll. */
size_t weft_i_stdin_poll(const weft_i_stdin *input, struct pollfd *fds);
void weft_i_stdin_take(weft_i_stdin *input, const struct pollfd *fds, size_t count);

#endif
