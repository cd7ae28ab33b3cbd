/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds a terminal's input, or that of another host, to rank 0.  See stdin.h. */
#include "launch/stdin.h"

#include "base/report/status.h"

#include <errno.h>
#include <string.h>

static weft_status open_pipe(weft_i_stdin *input, int *child_in)
{
    int ends[2];
    if (WEFT_OS->pipe(ends))
        return weft_i_fail_errno(errno, "launch: making a pipe for the input of rank 0");
    *child_in = ends[0];
    input->fd = ends[1];
    return WEFT_OK;
}

weft_status weft_i_stdin_open(weft_i_stdin *input, int *child_in)
{
    input->fd = *child_in = -1;
    input->start = input->used = 0;
    return weft_i_os_is_terminal(0) ? open_pipe(input, child_in) : WEFT_OK;
}

weft_status weft_i_stdin_open_fed(weft_i_stdin *input, int *child_in)
{
    *input = (weft_i_stdin){.fd = -1, .fed = true};
    *child_in = -1;
    return open_pipe(input, child_in);
}

void weft_i_stdin_feed(weft_i_stdin *input, const void *bytes, size_t count)
{
    if (!weft_i_stdin_hungry(input))
        return;
    input->start = 0;
    input->used = count < sizeof input->bytes ? count : sizeof input->bytes;
    memcpy(input->bytes, bytes, input->used);
    input->ends = !count;
    if (!count)
        weft_i_stdin_close(input);
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
    if (input->used || input->fed || !weft_i_os_in_foreground(0))
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
