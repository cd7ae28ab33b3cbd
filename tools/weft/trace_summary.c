/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft trace summary`: what each kind of operation cost, over all ranks of the given traces, and
 * for whom the longest calls waited.  Who came last to an operation of a group is who the others
 * waited for; in a send or receive it is the peer.  Steps that the library takes within a call of
 * the program have rows of their own, since the call's time has theirs in it.
 */
#include "trace.h"

#include "base/report/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 3 };

typedef struct event {
    char name[24], group[64];
    int64_t rank, number, turn, bytes, begin, took, peer; /* turn 0, peer -1: none */
    int on_device;                                        /* whose operations are counted apart */
    int step;                                             /* of weft's own, within another one */
} event;

typedef struct events {
    event *list;
    size_t count, room;
    int64_t dropped;
} events;

static int64_t integer_of(json_cursor object, const char *key, int64_t fallback)
{
    json_cursor value;
    char digits[32];
    if (json_member(object, key, &value) != 1)
        return fallback;
    json_copy(value, digits, sizeof digits);
    return strtoll(digits, NULL, 10);
}

static void text_of(json_cursor object, const char *key, char *out, size_t room)
{
    json_cursor value;
    *out = 0;
    if (json_member(object, key, &value) == 1)
        json_copy(value, out, room);
    weft_i_text_tame(out, false); /* it is told on terminals, and the file may be anybody's */
}

/* Operations only: traces hold names of ranks, too.  "cat" lists kinds. */
static int read_event(const trace *t, json_cursor from, event *to)
{
    json_cursor value, args;
    char phase[4], kinds[32];
    text_of(from, "ph", phase, sizeof phase);
    text_of(from, "cat", kinds, sizeof kinds);
    if (strcmp(phase, "X") != 0 || json_member(from, "args", &args) != 1)
        return 0;
    *to = (event){.rank = integer_of(from, "pid", 0),
                  .number = integer_of(args, "number", 0),
                  .turn = integer_of(args, "operation", 0),
                  .bytes = integer_of(args, "bytes", 0),
                  .peer = integer_of(args, "peer", -1)};
    to->on_device = json_member(args, "on_device", &value) == 1;
    to->step = strstr(kinds, "step") != NULL;
    text_of(from, "name", to->name, sizeof to->name);
    text_of(args, "group_name", to->group, sizeof to->group);
    if (!*to->group)
        text_of(args, "group", to->group, sizeof to->group);
    to->begin = json_member(from, "ts", &value) == 1 ? trace_moved(t, trace_ns(value)) : 0;
    to->took = json_member(from, "dur", &value) == 1 ? trace_ns(value) : 0;
    return 1;
}

static int add(events *all, const event *one)
{
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 1024;
        event *list = realloc(all->list, room * sizeof *list);
        if (!list)
            return 0;
        all->list = list;
        all->room = room;
    }
    all->list[all->count++] = *one;
    return 1;
}

static int read_all(events *all, const trace *t)
{
    json_cursor members = t->events, none, one, whole, other;
    event found;
    while (json_next(&members, &none, &one))
        if (read_event(t, one, &found) && !add(all, &found))
            return 0;
    if (json_value((json_cursor){t->text, t->text + t->bytes}, &whole) && *whole.at == '{' &&
        json_member(whole, "otherData", &other) == 1)
        all->dropped += integer_of(other, "dropped", 0);
    return 1;
}

static int by_name_and_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
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

static void print_row(const event *first, size_t count)
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
static const event *last_to_come(const events *all, const event *call)
{
    const event *last = NULL;
    for (size_t i = 0; call->turn && i < all->count; i++) {
        const event *other = &all->list[i];
        if (other->turn == call->turn && other->on_device == call->on_device &&
            other->rank != call->rank && !strcmp(other->group, call->group) &&
            !strcmp(other->name, call->name) && other->begin > (last ? last->begin : call->begin))
            last = other;
    }
    return last;
}

static void print_wait(const events *all, const event *call)
{
    char took[16], later[16];
    const event *last = last_to_come(all, call);
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
    const event *x = a, *y = b;
    return x->step != y->step ? x->step - y->step : (x->took < y->took) - (x->took > y->took);
}

static void print(events *all)
{
    size_t begin = 0;
    qsort(all->list, all->count, sizeof *all->list, by_name_and_time);
    printf("%-16s %9s %15s %10s %10s %10s %10s\n", "operation", "calls", "bytes", "time", "p50",
           "p99", "longest");
    for (size_t i = 1; i <= all->count; i++) {
        const event *first = &all->list[begin];
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
    events all = {0};
    int failed = 0;
    (void)unused;
    for (int i = 0; i < count && !failed; i++)
        failed = !read_all(&all, &traces[i]);
    if (failed)
        fprintf(stderr, "weft trace: no memory for the events\n");
    else
        print(&all);
    free(all.list);
    return failed || fflush(stdout) != 0;
}
