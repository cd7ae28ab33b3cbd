/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft top` knows of a job, and how it shows it: top_sample.c, top_screen.c, top_page.c. */
#ifndef WEFT_TOOLS_TOP_H
#define WEFT_TOOLS_TOP_H

#include <weft/weft.h>

#include <stdint.h>
#include <stdio.h>

/* A rank over the last interval. */
typedef struct top_rank {
    weft_job_rank is;        /* as it was at the last look */
    int waits, waits_for[8]; /* ranks of the world; at most 8 are told */
    int looks, busy;         /* how often it was looked at, and found in an operation */
    uint64_t begun;          /* operations, at the beginning of the interval */
    double calls, bytes;     /* a second */
    double share;            /* of its time in communication, 0 to 1 */
    uint64_t resident;       /* bytes of memory of its process */
} top_rank;

typedef struct top_job {
    weft_job_info info;
    char host[64];
    top_rank *rank;
    int64_t from_ns, to_ns; /* of the interval */
} top_job;

typedef enum top_order {
    TOP_BY_RANK,
    TOP_BY_WAIT,
    TOP_BY_BYTES,
    TOP_BY_CALLS,
    TOP_BY_SHARE,
    TOP_BY_MEMORY,
    TOP_ORDERS
} top_order;

typedef struct top_view {
    top_order order;
    int selected;      /* rank of the world */
    int alone;         /* show the selected rank alone */
    int rows, columns; /* of the terminal */
    int escapes;       /* 0: plain text, for pipes */
} top_view;

/* Watches a job for an interval: looks every 50 ms, and calls `pause` between, which returns 0 to end
 * early.  0 if the job is over, or cannot be looked at: weft_last_error(). */
int top_watch(top_job *job, int process, int64_t interval_ms, int (*pause)(void *, int64_t ms),
              void *argument);
void top_free(top_job *job);

/* How long the rank has been in its operation while others have not come; 0: it waits for nobody. */
int64_t top_wait_ns(const top_rank *rank);

/* One frame; and the places of the ranks in the order of the view. */
void top_draw(FILE *out, const top_job *job, const top_view *view);
void top_sort(const top_job *job, top_order order, int *places);
const char *top_order_name(top_order order);

/* "all_reduce #17 of group "0"", cut to the room. */
void top_operation(const weft_job_op *op, char *out, size_t room);
/* "12.3 MB" */
void top_bytes(double bytes, char *out, size_t room);

/* A page that needs nothing else: what each rank did in each of `count` intervals. */
int top_page(const char *path, const top_job *jobs, int count);

#endif
