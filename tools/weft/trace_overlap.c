/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft trace overlap`: how much of what ranks posted ran beside their own operations on tensors.  The
 * flight record has the posted operations, with the time in which they ran; a profile has those on
 * tensors (docs/profile.md).  What the record has from before and behind the profile does not count.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What one rank did. */
typedef struct overlap {
    int64_t rank, calls, time, hidden; /* ns */
} overlap;

/* By rank; what is on tensors first; in the order of time. */
static int in_order(const void *a, const void *b)
{
    const trace_event *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->on_tensors != y->on_tensors)
        return y->on_tensors - x->on_tensors;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int64_t end_of(const trace_event *e)
{
    return e->begin + e->took;
}

/* Operations may lie inside others: the list becomes one of spans that do not touch; how many. */
static size_t merge(trace_event *list, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        trace_event *last = kept ? &list[kept - 1] : NULL;
        if (last && list[i].begin <= end_of(last))
            last->took =
                end_of(&list[i]) > end_of(last) ? end_of(&list[i]) - last->begin : last->took;
        else
            list[kept++] = list[i];
    }
    return kept;
}

static int64_t common(const trace_event *a, const trace_event *b)
{
    int64_t begin = a->begin > b->begin ? a->begin : b->begin;
    int64_t end = end_of(a) < end_of(b) ? end_of(a) : end_of(b);
    return end > begin ? end - begin : 0;
}

/* Of `computing` operations on tensors, and those of the record behind them. */
static overlap find(trace_event *list, size_t computing, size_t count)
{
    overlap found = {.rank = list->rank};
    size_t spans = merge(list, computing);
    for (size_t i = computing; i < count && spans; i++) {
        const trace_event *e = &list[i];
        if (!e->posted || e->step || e->begin < list[0].begin ||
            e->begin > end_of(&list[spans - 1]))
            continue;
        found.calls++;
        found.time += e->took;
        for (size_t k = 0; k < spans; k++)
            found.hidden += common(e, &list[k]);
    }
    return found;
}

static void print_row(const char *name, const overlap *o)
{
    printf("%-8s %9" PRId64 " %12.3f %12.3f %7.1f %%\n", name, o->calls, (double)o->time * 1e-6,
           (double)o->hidden * 1e-6, o->time ? 100 * (double)o->hidden / (double)o->time : 0);
}

static int print(trace_events *all)
{
    overlap sum = {0};
    char name[24];
    qsort(all->list, all->count, sizeof *all->list, in_order);
    for (size_t begin = 0, end, computing; begin < all->count; begin = end) {
        const trace_event *first = &all->list[begin];
        for (end = begin; end < all->count && all->list[end].rank == first->rank; end++)
            ;
        for (computing = begin; computing < end && all->list[computing].on_tensors; computing++)
            ;
        overlap one = find(&all->list[begin], computing - begin, end - begin);
        if (!one.calls)
            continue;
        if (!sum.calls)
            printf("%-8s %9s %12s %12s %9s\n", "rank", "posted", "ran, ms", "hidden, ms", "share");
        snprintf(name, sizeof name, "%" PRId64, one.rank);
        print_row(name, &one);
        sum.calls += one.calls, sum.time += one.time, sum.hidden += one.hidden;
    }
    if (sum.calls)
        print_row("all", &sum);
    else
        fprintf(stderr, "weft trace: no posted operation lies in a profile of its rank; it takes "
                        "files of WEFT_TRACE and of weft_profile_opts.trace\n");
    return sum.calls ? 0 : 1;
}

int trace_overlap(const char *unused, const trace *traces, int count)
{
    trace_events all = {0};
    (void)unused;
    int failed = trace_read_events(&all, traces, count) || print(&all);
    free(all.list);
    return failed;
}
