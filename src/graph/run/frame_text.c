/* SPDX-License-Identifier: Apache-2.0 */
/* What a compiled function has to say of itself, for people. */
#include "graph/run/frame_state.h"

#include "base/os/os.h"
#include "base/report/text.h"
#include "weft/grad.h"

#include <string.h>

typedef weft_i_frame_entry entry;

static void put_guard(weft_i_text *s, const weft_i_guard *guard, const weft_graph *graph)
{
    const char *name = guard->input < 0 ? "" : graph->inputs[guard->input].name;
    switch (guard->kind) {
    case WEFT_I_GUARD_WATCH:
        weft_i_text_put(s, "  guard: %lld bytes at %p\n", (long long)guard->number, guard->memory);
        break;
    case WEFT_I_GUARD_VERSION:
        weft_i_text_put(s, "  guard: version of \"%s\" is %lld\n", name, (long long)guard->number);
        break;
    case WEFT_I_GUARD_BYTES:
        weft_i_text_put(s, "  guard: storage of \"%s\" has %lld bytes\n", name,
                        (long long)guard->number);
        break;
    case WEFT_I_GUARD_PREMUL:
        weft_i_text_put(s, "  guard: factor of premul_sum is %g\n", guard->factor);
        break;
    case WEFT_I_GUARD_GRAD:
        weft_i_text_put(s, "  guard: \"%s\" has %s gradient\n", name, guard->number ? "a" : "no");
        break;
    case WEFT_I_GUARD_OBJECT:
        weft_i_text_put(s, "  guard: module at %p, %s\n", guard->object, (const char *)guard->copy);
        break;
    }
}

static void put_graph(weft_i_text *s, const weft_graph *graph)
{
    size_t left = s->used < s->room ? s->room - s->used : 0;
    int length = weft_graph_text(graph, left ? s->out + s->used : NULL, left);
    s->used += length > 0 ? (size_t)length : 0;
    if (graph->notes)
        weft_i_text_put(s, "%s", graph->notes);
}

/* Without its graphs. */
static void put_short(weft_i_text *s, const entry *e)
{
    weft_i_program_work(e->program, s);
    if (e->device_graph)
        weft_i_device_graph_text(e->device_graph, s);
    if (!e->plan)
        return;
    const weft_i_halves *h = &e->plan->halves;
    weft_i_text_put(s, "backward: run %llu times; %d values are saved, %zu bytes\n",
                    (unsigned long long)e->plan->runs, h->saved, h->saved_bytes);
    weft_i_program_work(e->plan->program, s);
}

static void put_entry(weft_i_text *s, const entry *e, int number, bool whole)
{
    weft_i_text_put(s, "entry %d: %d nodes, run %llu times\n", number, e->graph->node_count,
                    (unsigned long long)e->runs);
    if (!whole) {
        put_short(s, e);
        return;
    }
    weft_i_text_put(s, "  guard: inputs are as below, gradients are %srecorded\n",
                    (e->guards.mode & 0xff) == (int)WEFT_GRAD_RECORDING ? "" : "not ");
    for (int i = 0; i < e->guards.count; i++)
        put_guard(s, &e->guards.at[i], e->graph);
    put_graph(s, e->graph);
    weft_i_program_text(e->program, s);
    weft_i_program_work(e->program, s);
    if (e->device_graph)
        weft_i_device_graph_text(e->device_graph, s);
    if (!e->plan)
        return;
    const weft_i_halves *h = &e->plan->halves;
    weft_i_text_put(s,
                    "backward: run %llu times; %d values are saved, %zu bytes; %zu would be "
                    "without the cut\n",
                    (unsigned long long)e->plan->runs, h->saved, h->saved_bytes, h->whole_bytes);
    put_graph(s, h->back);
    weft_i_program_text(e->plan->program, s);
    weft_i_program_work(e->plan->program, s);
}

/* The entry that ran most: of a text that must be short, the only one that is more than a line. */
static int main_entry(const weft_compiled *compiled)
{
    int best = 0;
    for (int i = 1; i < compiled->info.entries; i++)
        if (compiled->entries[i].runs > compiled->entries[best].runs)
            best = i;
    return best;
}

static void put_entries(weft_i_text *s, const weft_compiled *compiled, bool whole)
{
    if (compiled->backward)
        weft_i_backward_explain(compiled->backward, whole, s);
    for (int i = 0; !compiled->backward && i < compiled->info.entries; i++)
        if (whole || i == main_entry(compiled))
            put_entry(s, &compiled->entries[i], i, whole);
        else
            weft_i_text_put(s, "entry %d: %d nodes, run %llu times\n", i,
                            compiled->entries[i].graph->node_count,
                            (unsigned long long)compiled->entries[i].runs);
}

static int put_all(const weft_compiled *compiled, bool whole, char *out, size_t bytes)
{
    weft_i_text s = {.out = out, .room = bytes};
    if (bytes)
        out[0] = 0;
    const weft_compiled_info *info = &compiled->info;
    weft_i_text_put(&s, "\"%s\", backend %s: %llu calls, %llu of them plain; %d captures\n",
                    compiled->name, compiled->backend->name, (unsigned long long)info->calls,
                    (unsigned long long)info->plain, info->frames);
    if (info->miss[0])
        weft_i_text_put(&s, "%s: %s\n",
                        compiled->hopeless ? "not captured" : "last guard that failed", info->miss);
    put_entries(&s, compiled, whole);
    if (!whole)
        weft_i_text_put(&s, "weft_compiled_details has the graphs, guards, plans of memory and "
                            "generated code\n");
    return (int)s.used;
}

static weft_status check_text(const char *what, const weft_compiled *compiled, const char *out,
                              size_t bytes)
{
    return compiled && (!bytes || out) ? WEFT_OK
                                       : weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %s is NULL", what,
                                                     compiled ? "the text" : "the function");
}

int weft_compiled_details(const weft_compiled *compiled, char *out, size_t bytes)
{
    WEFT_TRY(check_text("weft_compiled_details", compiled, out, bytes));
    return put_all(compiled, true, out, bytes);
}

int weft_compiled_explain(const weft_compiled *compiled, char *out, size_t bytes)
{
    enum { LINES = 150 };
    WEFT_TRY(check_text("weft_compiled_explain", compiled, out, bytes));
    int length = put_all(compiled, true, NULL, 0), lines = 0;
    char *text = WEFT_OS->alloc((size_t)length + 1);
    if (!text)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "weft_compiled_explain: no memory for %d bytes",
                           length);
    put_all(compiled, true, text, (size_t)length + 1);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    WEFT_OS->free(text);
    return put_all(compiled, lines <= LINES, out, bytes);
}
