/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds a terminal's input to rank 0.  See stdin.h. */
#include "launch/stdin.h"

#include "base/status.h"

#include <errno.h>

weft_status weft_i_stdin_open(weft_i_stdin *input, int *child_in)
{
    int ends[2];
    input->fd = *child_in = -1;
    input->start = input->used = 0;
    if (!weft_i_os_is_terminal(0))
        return WEFT_OK;
    if (WEFT_OS->pipe(ends))
        return weft_i_fail_errno(errno, "launch: making a pipe for the input of rank 0");
    *child_in = ends[0];
    input->fd = ends[1];
    return WEFT_OK;
}

void weft_i_stdin_close(weft_i_stdin *input)
{
    if (input->fd >= 0)
        WEFT_OS->close(input->fd);
    input->fd = -1;
}

size_t weft_i_stdin_poll(const weft_i_stdin *input, struct pollfd *fds)
{
    if (input->fd < 0)
        return 0;
    /* Even with nothing to write: poll reports when the rank has closed its end. */
    fds[0] = (struct pollfd){.fd = input->fd, .events = input->used ? POLLOUT : 0};
    if (input->used || !weft_i_os_in_foreground(0))
        return 1;
    fds[1] = (struct pollfd){.fd = 0, .events = POLLIN};
    return 2;
}

void weft_i_stdin_take(weft_i_stdin *input, const struct pollfd *fds, size_t count)
{
    if (count > 1 && fds[1].revents) {
        ssize_t n = WEFT_OS->read(0, input->bytes, sizeof input->bytes);
        input->start = 0;
        input->used = n > 0 ? (size_t)n : 0;
        if (n <= 0)
            weft_i_stdin_close(input);
    }
    if (!count || input->fd < 0 || !fds[0].revents)
        return;
    ssize_t n = fds[0].revents & POLLERR
                    ? -1
                    : WEFT_OS->write(input->fd, input->bytes + input->start, input->used);
    if (n < 0) {
        weft_i_stdin_close(input);
        return;
    }
    input->start += (size_t)n;
    input->used -= (size_t)n;
}
