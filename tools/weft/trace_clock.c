/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of several hosts on one clock.  Each trace says how the clock of its host stood to that of the
 * job's store, by one or two comparisons; all traces of a host together have more of them.  The most
 * exact one of the job's beginning and the most exact one of its end give a line, since two clocks
 * drift apart by some millionth.  Hosts whose clocks were not compared with the same one go by their
 * wall clocks, which may be seconds wrong.
 */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Less time than this between two comparisons tells of no drift; faster no clock drifts. */
#define LONG_NS    1000000000LL
#define DRIFT_MOST 1e-3

static int64_t integer_of(json_cursor object, const char *key)
{
    json_cursor value;
    char digits[32] = "";
    if (json_member(object, key, &value) == 1)
        json_copy(value, digits, sizeof digits);
    return strtoll(digits, NULL, 10);
}

static void read_points(trace *t, json_cursor list)
{
    json_cursor none, one, with;
    if (!json_enter(&list, '['))
        return;
    while (t->points < TRACE_POINTS && json_next(&list, &none, &one)) {
        trace_point *point = &t->point[t->points];
        if (json_member(one, "with", &with) != 1 || *with.at != '"')
            continue;
        json_copy(with, point->with, sizeof point->with);
        point->at = integer_of(one, "at_ns");
        point->ahead = integer_of(one, "ahead_ns");
        point->within = integer_of(one, "within_ns");
        t->points += point->within > 0;
    }
}

void trace_read_clock(trace *t, json_cursor whole)
{
    json_cursor other, value;
    if (json_member(whole, "otherData", &other) != 1)
        return;
    if (json_member(other, "host", &value) == 1 && *value.at == '"')
        json_copy(value, t->host, sizeof t->host);
    if (json_member(other, "wall_minus_monotonic_ns", &value) == 1) {
        t->wall_minus_monotonic = integer_of(other, "wall_minus_monotonic_ns");
        t->has_clock = 1;
    }
    if (json_member(other, "compared", &value) == 1)
        read_points(t, value);
}

/* All comparisons of the clock of a host with one other, and what is needed of them. */
typedef struct points {
    const trace_point *first, *last; /* in time */
    const trace_point *best, *early, *late;
} points;

static const trace_point *better(const trace_point *a, const trace_point *b)
{
    return a && a->within <= b->within ? a : b;
}

/* Calls `use` for each comparison of `host` with the clock `with`. */
static void each_point(const trace *traces, int count, const char *host, const char *with,
                       void (*use)(points *, const trace_point *), points *all)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < traces[i].points && !strcmp(traces[i].host, host); k++)
            if (!strcmp(traces[i].point[k].with, with))
                use(all, &traces[i].point[k]);
}

static void span(points *all, const trace_point *point)
{
    all->first = !all->first || point->at < all->first->at ? point : all->first;
    all->last = !all->last || point->at > all->last->at ? point : all->last;
    all->best = better(all->best, point);
}

static void part(points *all, const trace_point *point)
{
    if (point->at - all->first->at <= all->last->at - point->at)
        all->early = better(all->early, point);
    else
        all->late = better(all->late, point);
}

/* 0: they were not compared. */
static int find_line(const trace *traces, int count, const char *host, const char *with,
                     trace_line *out)
{
    points all = {0};
    each_point(traces, count, host, with, span, &all);
    if (!all.best)
        return 0;
    each_point(traces, count, host, with, part, &all);
    *out = (trace_line){all.best->at, all.best->ahead, 0};
    if (!all.late || all.late->at - all.early->at < LONG_NS)
        return 1;
    double rate =
        (double)(all.late->ahead - all.early->ahead) / (double)(all.late->at - all.early->at);
    if (rate < DRIFT_MOST && rate > -DRIFT_MOST)
        *out = (trace_line){all.early->at, all.early->ahead, rate};
    return 1;
}

/* Is there a clock that both hosts were compared with? */
static int find_both(const trace *traces, int count, const trace *base, trace *t)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < traces[i].points && !strcmp(traces[i].host, t->host); k++)
            if (find_line(traces, count, base->host, traces[i].point[k].with, &t->base))
                return find_line(traces, count, t->host, traces[i].point[k].with, &t->own);
    return 0;
}

void trace_align(trace *traces, int count)
{
    const trace *base = NULL, *told = NULL;
    for (int i = 0; i < count; i++) {
        trace *t = &traces[i];
        if (!t->has_clock) {
            fprintf(stderr, "weft trace: %s does not say whose clock it has; its times stay\n",
                    t->path);
            continue;
        }
        base = base ? base : t;
        t->moves = strcmp(t->host, base->host) != 0;
        if (!t->moves || find_both(traces, count, base, t))
            continue;
        t->own = (trace_line){.ahead = t->wall_minus_monotonic - base->wall_minus_monotonic};
        if (!told)
            fprintf(stderr,
                    "weft trace: the hosts of %s and %s did not compare their clocks; by their "
                    "wall clocks, which may be seconds wrong\n",
                    base->path, t->path);
        told = t;
    }
}

static int64_t ahead_at(const trace_line *line, int64_t ns)
{
    return line->ahead + (int64_t)(line->rate * (double)(ns - line->at));
}

int64_t trace_moved(const trace *t, int64_t ns)
{
    if (!t->moves)
        return ns;
    int64_t both = ns + ahead_at(&t->own, ns); /* on the clock that both were compared with */
    return both - ahead_at(&t->base, both - t->base.ahead);
}
