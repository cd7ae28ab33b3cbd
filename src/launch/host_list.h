/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a job and how many ranks each gets, as `weft run --hosts` and --hosts-file say it. */
#ifndef WEFT_LAUNCH_HOST_LIST_H
#define WEFT_LAUNCH_HOST_LIST_H

#include "weft/status.h"

enum { WEFT_I_HOST_NAME = 256, WEFT_I_HOSTS_MAX = 1024, WEFT_I_HOSTS_RANKS_MAX = 16384 };

typedef struct weft_i_named_host {
    char name[WEFT_I_HOST_NAME];
    int ranks, first; /* how many, and the world rank of the first */
} weft_i_named_host;

typedef struct weft_i_host_list {
    weft_i_named_host *hosts;
    int count, ranks; /* ranks of all hosts together */
} weft_i_host_list;

/*
 * Reads "a:4,b:4", or the lines of a file: "a:4", "a slots=4", # and what follows is a comment.  A
 * host without a number gets `each` ranks.  An IPv6 address with a number stands in brackets.
 */
weft_status weft_i_host_list_read(const char *text, int each, weft_i_host_list *out);
void weft_i_host_list_free(weft_i_host_list *list);

#endif
