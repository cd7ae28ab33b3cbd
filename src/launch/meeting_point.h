/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the address at which the other hosts reach the first one.  That listens at a port that
 * the kernel chose, and proves to its callers that it knows the job's secret; the others try all
 * its addresses.  So a firewall, or an address that is another machine's as well, shows before a
 * rank is started.  The port is given up again, and rank 0 listens there.
 */
#ifndef WEFT_LAUNCH_MEETING_POINT_H
#define WEFT_LAUNCH_MEETING_POINT_H

#include "base/machine/net.h"
#include "base/os/os.h"
#include "base/share/keyed.h"

enum { WEFT_I_MEETING_CALLERS = 64, WEFT_I_MEETING_NONCE = 32, WEFT_I_MEETING_WHY = 256 };

/* The first host's side. */
typedef struct weft_i_meeting_point {
    int listener; /* -1: closed */
    int port;
    struct weft_i_meeting_caller {
        int fd; /* -1: free */
        size_t used;
        uint8_t nonce[WEFT_I_MEETING_NONCE];
    } callers[WEFT_I_MEETING_CALLERS];
} weft_i_meeting_point;

weft_status weft_i_meeting_point_open(weft_i_meeting_point *point);
/* At most WEFT_I_MEETING_CALLERS + 1 entries, and what poll said of them. */
size_t weft_i_meeting_point_poll(const weft_i_meeting_point *point, struct pollfd *fds);
void weft_i_meeting_point_take(weft_i_meeting_point *point, const uint8_t *secret,
                               const struct pollfd *fds, size_t count);
void weft_i_meeting_point_close(weft_i_meeting_point *point);

/* A port that nobody listens at now, on any interface; 0: none. */
int weft_i_meeting_free_port(void);

/* The others' side: a bit for each address at which the first host answered within `ms`; `why` says
 * what became of the others. */
uint32_t weft_i_meeting_reach(const uint8_t *secret, char (*addresses)[WEFT_I_NET_TEXT], int count,
                              int port, int ms, char why[WEFT_I_MEETING_WHY]);

#endif
