/* SPDX-License-Identifier: Apache-2.0 */
/* Chrome traces as the command reads them. */
#ifndef WEFT_TOOLS_TRACE_H
#define WEFT_TOOLS_TRACE_H

#include "json.h"

#include <stdint.h>

typedef struct trace {
    const char *path;
    char *text;
    size_t bytes;
    json_cursor events; /* inside the brackets of the array */
    char host[96];
    int has_clock;
    int64_t wall_minus_monotonic; /* ns */
    int64_t shift;                /* ns to add to its time stamps */
} trace;

/* Microseconds with decimals as ns; exact where a double would not be. */
int64_t trace_ns(json_cursor value);

/* Prints what the operations of all traces cost; an exit status.  `unused` may be NULL. */
int trace_summarize(const char *unused, const trace *traces, int count);

#endif
