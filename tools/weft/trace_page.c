/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft trace html`: time lines of all ranks as a page, which trace_page.html draws.  Operations that
 * ranks did together have one key, so that the page can draw the rank that came last and those that waited for it; so
 * has a message, which is the n-th from one rank to another.
 */
#include "page.h"
#include "trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char page[] = {
#include "trace_page.inc"
};

static int by_call(const void *a, const void *b)
{
    const trace_event *x = *(const trace_event *const *)a, *y = *(const trace_event *const *)b;
    int order = strcmp(x->name, y->name);
    order = order ? order : strcmp(x->group, y->group);
    order = order ? order : x->on_device - y->on_device;
    return order ? order : (x->turn > y->turn) - (x->turn < y->turn);
}

static int by_rank_and_time(const void *a, const void *b)
{
    const trace_event *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Which operations are one call of several ranks: a number for each event, 0 for none.  And which
 * names there are: their numbers in `name`.  Writes the names as an array. */
static void number_calls(FILE *out, const trace_events *all, const trace_event **order,
                         size_t *call, size_t *name)
{
    size_t calls = 0, names = 0;
    for (size_t i = 0; i < all->count; i++)
        order[i] = &all->list[i];
    qsort(order, all->count, sizeof *order, by_call);
    for (size_t i = 0; i < all->count; i++) {
        size_t at = (size_t)(order[i] - all->list);
        if (!i || strcmp(order[i]->name, order[i - 1]->name) != 0) {
            fputs(names++ ? "," : "", out);
            page_text(out, order[i]->name);
        }
        calls += !i || by_call(&order[i], &order[i - 1]) != 0;
        name[at] = names - 1;
        call[at] = order[i]->turn ? calls : 0;
    }
}

/* The world ranks that occur, and how many events are in each. */
static void put_events(FILE *out, const trace_events *all, const size_t *call, const size_t *name)
{
    int64_t origin = INT64_MAX;
    for (size_t i = 0; i < all->count; i++)
        origin = all->list[i].begin < origin ? all->list[i].begin : origin;
    for (size_t i = 0; i < all->count; i++) {
        const trace_event *e = &all->list[i];
        if (!i || e->rank != e[-1].rank)
            fprintf(out, "%s{\"rank\":%" PRId64 ",\"events\":[", i ? "]},\n" : "", e->rank);
        else
            fputs(",\n", out);
        fprintf(out, "[%" PRId64 ",%" PRId64 ",%zu,%" PRId64 ",%zu,%" PRId64 ",%d,%" PRId64 ",",
                e->begin - origin, e->took, name[i], e->bytes, call[i], e->peer, e->step, e->turn);
        page_text(out, e->group);
        fputc(']', out);
    }
    fputs(all->count ? "]}" : "", out);
}

static int write_page(const char *path, trace_events *all)
{
    const trace_event **order = malloc((all->count + 1) * sizeof *order);
    size_t *call = malloc((all->count + 1) * sizeof *call);
    size_t *name = malloc((all->count + 1) * sizeof *name);
    FILE *out = order && call && name ? page_open("trace", path, page, sizeof page) : NULL;
    if (out) {
        qsort(all->list, all->count, sizeof *all->list, by_rank_and_time);
        fputs("{\"names\":[", out);
        number_calls(out, all, order, call, name);
        fputs("],\"ranks\":[", out);
        put_events(out, all, call, name);
        fprintf(out, "],\"dropped\":%" PRId64 "}", all->dropped);
    } else if (!order || !call || !name) {
        fprintf(stderr, "weft trace: no memory for the page\n");
    }
    free(order);
    free(call);
    free(name);
    return out ? page_close("trace", path, out, page, sizeof page) : 1;
}

int trace_page(const char *path, const trace *traces, int count)
{
    trace_events all = {0};
    int failed = trace_read_events(&all, traces, count) || write_page(path, &all);
    free(all.list);
    return failed;
}
