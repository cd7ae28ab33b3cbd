/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `weft info` about large copies: what earlier jobs have measured on this machine. */
#include "info_ways.h"

#include <weft/weft.h>

#include <inttypes.h>
#include <stdio.h>

static const int ranks_shown[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
enum { SHOWN = sizeof ranks_shown / sizeof *ranks_shown };

void info_ways_print(void)
{
    weft_tune_time time;
    int rows = 0;
    printf("\nlarge copies between ranks, measured by earlier jobs\n");
    for (int n = 0; n < SHOWN; n++)
        for (int i = 0, count = weft_tune_count(ranks_shown[n]); i < count; i++)
            if (weft_tune_describe(ranks_shown[n], i, &time) == WEFT_OK) {
                printf("  %-16s %5d ranks %10zu bytes: staged %9.1f us, cma %9.1f us\n", time.op,
                       ranks_shown[n], time.bytes, (double)time.staged_ns / 1e3,
                       (double)time.cma_ns / 1e3);
                rows++;
            }
    if (!rows)
        printf("  none yet: the first large calls of a job find out, and later jobs know\n");
}

static void json_row(weft_i_json *j, int ranks, const weft_tune_time *time)
{
    weft_i_json_open(j, NULL, '{');
    weft_i_json_text(j, "op", time->op);
    weft_i_json_integer(j, "ranks", ranks);
    weft_i_json_integer(j, "bytes", (int64_t)time->bytes);
    weft_i_json_integer(j, "staged_ns", time->staged_ns);
    weft_i_json_integer(j, "cma_ns", time->cma_ns);
    weft_i_json_close(j);
}

void info_ways_json(weft_i_json *j)
{
    weft_tune_time time;
    weft_i_json_open(j, "large_copies", '[');
    for (int n = 0; n < SHOWN; n++)
        for (int i = 0, count = weft_tune_count(ranks_shown[n]); i < count; i++)
            if (weft_tune_describe(ranks_shown[n], i, &time) == WEFT_OK)
                json_row(j, ranks_shown[n], &time);
    weft_i_json_close(j);
}
