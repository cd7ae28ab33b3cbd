/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds a terminal's input to rank 0.  See feed.h. */
#include "fabric/feed.h"

#include "base/status.h"

#include <errno.h>

weft_status weft_i_feed_open(weft_i_feed *feed, int *child_in)
{
    int ends[2];
    feed->fd = *child_in = -1;
    feed->start = feed->used = 0;
    if (!weft_i_os_is_terminal(0))
        return WEFT_OK;
    if (WEFT_OS->pipe(ends))
        return weft_i_fail_errno(errno, "launch: making a pipe for the input of rank 0");
    *child_in = ends[0];
    feed->fd = ends[1];
    return WEFT_OK;
}

void weft_i_feed_close(weft_i_feed *feed)
{
    if (feed->fd >= 0)
        WEFT_OS->close(feed->fd);
    feed->fd = -1;
}

size_t weft_i_feed_poll(const weft_i_feed *feed, struct pollfd *fds)
{
    if (feed->fd < 0)
        return 0;
    /* Even with nothing to write: poll reports when the rank has closed its end. */
    fds[0] = (struct pollfd){.fd = feed->fd, .events = feed->used ? POLLOUT : 0};
    if (feed->used || !weft_i_os_in_foreground(0))
        return 1;
    fds[1] = (struct pollfd){.fd = 0, .events = POLLIN};
    return 2;
}

void weft_i_feed_take(weft_i_feed *feed, const struct pollfd *fds, size_t count)
{
    if (count > 1 && fds[1].revents) {
        ssize_t n = WEFT_OS->read(0, feed->bytes, sizeof feed->bytes);
        feed->start = 0;
        feed->used = n > 0 ? (size_t)n : 0;
        if (n <= 0)
            weft_i_feed_close(feed);
    }
    if (!count || feed->fd < 0 || !fds[0].revents)
        return;
    ssize_t n = fds[0].revents & POLLERR
                    ? -1
                    : WEFT_OS->write(feed->fd, feed->bytes + feed->start, feed->used);
    if (n < 0) {
        weft_i_feed_close(feed);
        return;
    }
    feed->start += (size_t)n;
    feed->used -= (size_t)n;
}
