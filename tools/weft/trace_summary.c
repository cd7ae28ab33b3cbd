/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft trace summary`: what each kind of operation cost, over all ranks of the given traces, and
 * for whom the longest calls waited.  The rank that came last to an operation of a group is the one that the others
 * waited for; in a send or receive it is the peer.  Steps that the library takes within a call of
 * the program have rows of their own, since the call's time has theirs in it.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 3 };

static int by_name_and_time(const void *a, const void *b)
{
    const trace_event *x = a, *y = b;
    int names = x->step != y->step ? x->step - y->step : strcmp(x->name, y->name);
    return names ? names : (x->took > y->took) - (x->took < y->took);
}

/* A time with three digits and its unit. */
static const char *time_text(int64_t ns, char out[16])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double value = (double)ns;
    int unit = 0;
    for (; value >= 1000 && unit < 3; unit++)
        value /= 1000;
    snprintf(out, 16, "%.*f %s",
             value < 10 && unit    ? 2
             : value < 100 && unit ? 1
                                   : 0,
             value, units[unit]);
    return out;
}

static void print_row(const trace_event *first, size_t count)
{
    int64_t bytes = 0, total = 0;
    char times[4][16];
    for (size_t i = 0; i < count; i++) {
        bytes += first[i].bytes;
        total += first[i].took;
    }
    printf("%-16s %9zu %15" PRId64 " %10s %10s %10s %10s\n", first->name, count, bytes,
           time_text(total, times[0]), time_text(first[count / 2].took, times[1]),
           time_text(first[(count * 99) / 100 < count ? (count * 99) / 100 : count - 1].took,
                     times[2]),
           time_text(first[count - 1].took, times[3]));
}

/* Who came last to the operation of the group that this call was part of; NULL: nobody later. */
static const trace_event *last_to_come(const trace_events *all, const trace_event *call)
{
    const trace_event *last = NULL;
    for (size_t i = 0; call->turn && i < all->count; i++) {
        const trace_event *other = &all->list[i];
        if (other->turn == call->turn && other->on_device == call->on_device &&
            other->rank != call->rank && !strcmp(other->group, call->group) &&
            !strcmp(other->name, call->name) && other->begin > (last ? last->begin : call->begin))
            last = other;
    }
    return last;
}

static void print_wait(const trace_events *all, const trace_event *call)
{
    char took[16], later[16];
    const trace_event *last = last_to_come(all, call);
    printf("  %s #%" PRId64 " of rank %" PRId64 " in group %s took %s", call->name, call->number,
           call->rank, call->group, time_text(call->took, took));
    if (last)
        printf("; rank %" PRId64 " came last, %s later\n", last->rank,
               time_text(last->begin - call->begin, later));
    else if (call->peer >= 0)
        printf("; its peer is rank %" PRId64 "\n", call->peer);
    else
        printf("; nobody in these traces came later\n");
}

static int by_time(const void *a, const void *b)
{
    const trace_event *x = a, *y = b;
    return x->step != y->step ? x->step - y->step : (x->took < y->took) - (x->took > y->took);
}

static void print(trace_events *all)
{
    size_t begin = 0;
    qsort(all->list, all->count, sizeof *all->list, by_name_and_time);
    printf("%-16s %9s %15s %10s %10s %10s %10s\n", "operation", "calls", "bytes", "time", "p50",
           "p99", "longest");
    for (size_t i = 1; i <= all->count; i++) {
        const trace_event *first = &all->list[begin];
        if (i < all->count && all->list[i].step == first->step &&
            !strcmp(all->list[i].name, first->name))
            continue;
        print_row(first, i - begin);
        if (i < all->count && all->list[i].step && !first->step)
            printf("steps of weft's own, within these calls:\n");
        begin = i;
    }
    qsort(all->list, all->count, sizeof *all->list, by_time);
    if (all->count)
        printf("\nThe longest calls:\n");
    for (size_t i = 0; i < all->count && i < LONGEST && !all->list[i].step; i++)
        print_wait(all, &all->list[i]);
    if (all->dropped)
        printf("\n%" PRId64 " earlier operations are not in these traces.\n", all->dropped);
}

int trace_summarize(const char *unused, const trace *traces, int count)
{
    trace_events all = {0};
    (void)unused;
    int failed = trace_read_events(&all, traces, count);
    if (!failed)
        print(&all);
    free(all.list);
    return failed || fflush(stdout) != 0;
}
