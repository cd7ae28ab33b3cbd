/* SPDX-License-Identifier: Apache-2.0 */
/* What weft_compiled_explain says of values is said of the graph that it prints. */
#ifndef WEFT_TESTS_GRAPH_NOTES_H
#define WEFT_TESTS_GRAPH_NOTES_H

#include "harness.h"

#include <stdio.h>
#include <string.h>

/* Whether a node of this operation makes the value, in the graph that begins at `graph`. */
static inline bool graph_notes_has(const char *graph, int value, const char *op)
{
    char number[16], made[80];
    snprintf(number, sizeof number, "  %%%d", value);
    snprintf(made, sizeof made, " = %s ", op);
    for (const char *line = graph; line && *line != '}'; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line, '\n'), *at = strstr(line, made);
        size_t length = strlen(number);
        if (!strncmp(line, number, length) && strchr(" ,", line[length]) && at && at < end)
            return true;
    }
    return false;
}

/* Each "not fused: %5 = max" names a node of the graph before it; how many there are. */
static inline int graph_notes_check(const char *said)
{
    const char *graph = NULL;
    int count = 0;
    for (const char *line = said; *line; line += strcspn(line, "\n") + 1) {
        int value;
        char op[64];
        if (!strncmp(line, "graph \"", 7))
            graph = line;
        else if (sscanf(line, "  not fused: %%%d = %63[a-z0-9_]", &value, op) == 2) {
            if (!graph || !graph_notes_has(graph, value, op))
                FAIL("%%%d is no %s:\n%s", value, op, said);
            count++;
        }
        if (!strchr(line, '\n'))
            break;
    }
    return count;
}

#endif
