/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of traces, on the clocks of all ranks, for whatever is told about them. */
#include "trace.h"

#include "base/report/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static int read_event(const trace *t, json_cursor from, trace_event *to)
{
    json_cursor value, args;
    char phase[4], kinds[32];
    text_of(from, "ph", phase, sizeof phase);
    text_of(from, "cat", kinds, sizeof kinds);
    if (strcmp(phase, "X") != 0 || json_member(from, "args", &args) != 1)
        return 0;
    *to = (trace_event){.rank = integer_of(from, "pid", 0),
                        .number = integer_of(args, "number", 0),
                        .turn = integer_of(args, "operation", 0),
                        .bytes = integer_of(args, "bytes", 0),
                        .peer = integer_of(args, "peer", -1)};
    to->on_device = json_member(args, "on_device", &value) == 1;
    to->step = strstr(kinds, "step") != NULL;
    to->posted = json_member(args, "posted", &value) == 1;
    to->on_tensors = !strcmp(kinds, "operation");
    text_of(from, "name", to->name, sizeof to->name);
    text_of(args, "group_name", to->group, sizeof to->group);
    if (!*to->group)
        text_of(args, "group", to->group, sizeof to->group);
    to->begin = json_member(from, "ts", &value) == 1 ? trace_moved(t, trace_ns(value)) : 0;
    to->took = json_member(from, "dur", &value) == 1 ? trace_ns(value) : 0;
    return 1;
}

static int add(trace_events *all, const trace_event *one)
{
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 1024;
        trace_event *list = realloc(all->list, room * sizeof *list);
        if (!list)
            return 0;
        all->list = list;
        all->room = room;
    }
    all->list[all->count++] = *one;
    return 1;
}

static int read_all(trace_events *all, const trace *t)
{
    json_cursor members = t->events, none, one, whole, other;
    trace_event found;
    while (json_next(&members, &none, &one))
        if (read_event(t, one, &found) && !add(all, &found))
            return 0;
    if (json_value((json_cursor){t->text, t->text + t->bytes}, &whole) && *whole.at == '{' &&
        json_member(whole, "otherData", &other) == 1)
        all->dropped += integer_of(other, "dropped", 0);
    return 1;
}

int trace_read_events(trace_events *all, const trace *traces, int count)
{
    int failed = 0;
    for (int i = 0; i < count && !failed; i++)
        failed = !read_all(all, &traces[i]);
    if (failed)
        fprintf(stderr, "weft trace: no memory for the events\n");
    return failed;
}
