/* SPDX-License-Identifier: Apache-2.0 */
/* Chrome traces as the command reads them. */
#ifndef WEFT_TOOLS_TRACE_H
#define WEFT_TOOLS_TRACE_H

#include "json.h"

#include <stdint.h>

/* A comparison of the trace's clock with another one, as base/report/clock_note.h has them. */
typedef struct trace_point {
    char with[20];
    int64_t at, ahead, within;
} trace_point;

enum { TRACE_POINTS = 2 };

/* By how much another clock is ahead of one, at any time of that one. */
typedef struct trace_line {
    int64_t at, ahead;
    double rate; /* ns for each ns since `at` */
} trace_line;

typedef struct trace {
    const char *path;
    char *text;
    size_t bytes;
    json_cursor events; /* inside the brackets of the array */
    char host[96];
    int has_clock;
    int64_t wall_minus_monotonic; /* ns */
    trace_point point[TRACE_POINTS];
    int points;
    int moves; /* its times are not those of the first trace */
    trace_line own,
        base; /* to the clock that both were compared with, from its own and from the first
                             trace's */
} trace;

/* Reads whose clock a trace is of; `whole` is the trace. */
void trace_read_clock(trace *t, json_cursor whole);
/* The clock of the first trace that has one is everybody's from now on. */
void trace_align(trace *traces, int count);
/* A time of the trace, in ns, on everybody's clock. */
int64_t trace_moved(const trace *t, int64_t ns);

/* Microseconds with decimals as ns; exact where a double would not be. */
int64_t trace_ns(json_cursor value);

/* An operation of a rank, in ns on everybody's clock. */
typedef struct trace_event {
    char name[24], group[64];
    int64_t rank, number, turn, bytes, begin, took, peer; /* turn 0, peer -1: none */
    int on_device;                                        /* whose operations are counted apart */
    int step;                                             /* of weft's own, within another one */
    int posted;                                           /* whose caller went on */
    int on_tensors;                                       /* of a profile */
} trace_event;

typedef struct trace_events {
    trace_event *list;
    size_t count, room;
    int64_t dropped;
} trace_events;

/* Adds the operations of all traces; 0, or 1 after a message.  The caller frees the list. */
int trace_read_events(trace_events *all, const trace *traces, int count);

/* Prints what the operations of all traces cost; an exit status.  `unused` may be NULL. */
int trace_summarize(const char *unused, const trace *traces, int count);

/* Prints how much of the posted operations ran beside operations on tensors; an exit status. */
int trace_overlap(const char *unused, const trace *traces, int count);

/* Writes them as a page with a time line for each rank; an exit status. */
int trace_page(const char *path, const trace *traces, int count);

#endif
