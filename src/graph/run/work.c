/* SPDX-License-Identifier: Apache-2.0 */
/* See work.h. */
#include "graph/run/work.h"

#include "base/os/os.h"
#include "graph/emit/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS_SHOWN = 10, NODES_SHOWN = 8, REASONS_SHOWN = 8, ABOUT = 48 };

weft_status weft_i_work_open(weft_i_work *work, const weft_graph *graph)
{
    *work = (weft_i_work){.graph = graph};
    work->ns = WEFT_OS->alloc(((size_t)graph->node_count + 1) * sizeof *work->ns);
    return work->ns ? WEFT_OK
                    : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the times of %d nodes",
                                  graph->node_count);
}

void weft_i_work_close(weft_i_work *work)
{
    WEFT_OS->free(work->ns);
    work->ns = NULL;
}

bool weft_i_work_begin(weft_i_work *work)
{
    enum { FIRST = 2, LAST = 5, EVERY = 64 };
    uint64_t run = ++work->runs;
    return (run >= FIRST && run <= LAST) || run % EVERY == 0;
}

/* ---- what a node is ---- */

static bool is_view(const weft_i_graph_node *node)
{
    return node->op->flags & WEFT_I_OP_VIEW;
}

static bool is_fused(const weft_i_graph_node *node)
{
    return weft_i_emit_row_is(node->op);
}

static uint64_t bytes_of(const weft_graph *graph, const weft_i_graph_node *node)
{
    uint64_t bytes = 0;
    int value;
    if (is_view(node))
        return 0;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        bytes += (uint64_t)weft_i_shape_numel(graph->values[value].shape) *
                 weft_dtype_size(graph->values[value].dtype);
    for (int k = 0; k < node->count; k++)
        if (!graph->values[node->first + k].absent && weft_i_graph_node_same(node, k) < 0)
            bytes += (uint64_t)weft_i_shape_numel(graph->values[node->first + k].shape) *
                     weft_dtype_size(graph->values[node->first + k].dtype);
    return bytes;
}

/* ---- numbers for people ---- */

static const char *bytes_text(uint64_t bytes, char out[24])
{
    double n = (double)bytes;
    if (n < 1e3)
        snprintf(out, 24, "%.0f B", n);
    else if (n < 1e6)
        snprintf(out, 24, "%.1f kB", n / 1e3);
    else
        snprintf(out, 24, n < 1e9 ? "%.1f MB" : "%.2f GB", n < 1e9 ? n / 1e6 : n / 1e9);
    return out;
}

static const char *time_text(double ns, char out[24])
{
    if (ns < 1e6)
        snprintf(out, 24, "%.1f us", ns / 1e3);
    else
        snprintf(out, 24, "%.2f ms", ns / 1e6);
    return out;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* ---- sums ---- */

typedef struct kind {
    const weft_i_op *op; /* NULL: all groups; views are one kind as well, by any of them */
    bool view;
    int nodes;
    int64_t ns;
    uint64_t bytes;
} kind;

static int find_kind(kind *kinds, int *count, const weft_i_graph_node *node)
{
    const weft_i_op *op = is_fused(node) || is_view(node) ? NULL : node->op;
    for (int i = 0; i < *count; i++)
        if (kinds[i].op == op && kinds[i].view == is_view(node))
            return i;
    kinds[*count] = (kind){.op = op, .view = is_view(node)};
    return (*count)++;
}

static int longest_first(const void *a, const void *b)
{
    const kind *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? 1 : -1;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static void put_kinds(const weft_i_work *work, const kind *kinds, int count, weft_i_text *s)
{
    char bytes[24], time[24];
    double runs = work->measured ? (double)work->measured : 1;
    weft_i_text_put(s, "    %10s %6s %10s %6s  operation\n", "time", "%", "bytes", "nodes");
    for (int i = 0; i < count && i < KINDS_SHOWN; i++)
        weft_i_text_put(s, "    %10s %6.1f %10s %6d  %s\n",
                        time_text((double)kinds[i].ns / runs, time),
                        percent((double)kinds[i].ns, (double)work->whole),
                        bytes_text(kinds[i].bytes, bytes), kinds[i].nodes,
                        kinds[i].view ? "views"
                        : kinds[i].op ? kinds[i].op->name
                                      : "fused groups");
    int rest = 0;
    int64_t ns = 0;
    for (int i = KINDS_SHOWN; i < count; i++) {
        rest += kinds[i].nodes;
        ns += kinds[i].ns;
    }
    if (rest)
        weft_i_text_put(s, "    %10s %6.1f %10s %6d  others\n", time_text((double)ns / runs, time),
                        percent((double)ns, (double)work->whole), "", rest);
}

/* What is in groups: of the nodes that compute, of the time, of the bytes. */
static void put_fused(const weft_i_work *work, const kind *kinds, int count, weft_i_text *s)
{
    char bytes[24];
    kind all = {0}, fused = {0};
    int members = 0, groups = 0;
    for (int i = 0; i < work->graph->node_count; i++)
        if (is_fused(&work->graph->nodes[i])) {
            members += weft_i_emit_row_members(work->graph->nodes[i].op);
            groups++;
        }
    for (int i = 0; i < count; i++) {
        all.nodes += kinds[i].view ? 0 : kinds[i].nodes;
        all.ns += kinds[i].ns;
        all.bytes += kinds[i].bytes;
        if (!kinds[i].op && !kinds[i].view)
            fused = kinds[i];
    }
    int computing = all.nodes - groups + members;
    weft_i_text_put(s, "    fused: %d of %d nodes that compute, in %d groups; ", members, computing,
                    groups);
    if (work->measured)
        weft_i_text_put(s, "%.0f %% of the time, ", percent((double)fused.ns, (double)all.ns));
    weft_i_text_put(s, "%.0f %% of %s\n", percent((double)fused.bytes, (double)all.bytes),
                    bytes_text(all.bytes, bytes));
}

/* ---- single nodes ---- */

static void put_longest(const weft_i_work *work, weft_i_text *s)
{
    char bytes[24], time[24];
    int64_t below = INT64_MAX;
    int after = -1;
    for (int shown = 0; shown < NODES_SHOWN; shown++) {
        int best = -1;
        for (int i = 0; i < work->graph->node_count; i++) {
            bool open = work->ns[i] < below || (work->ns[i] == below && i > after);
            if (open && work->ns[i] > 0 && (best < 0 || work->ns[i] > work->ns[best]))
                best = i;
        }
        if (best < 0)
            return;
        const weft_i_graph_node *node = &work->graph->nodes[best];
        weft_i_text_put(s, "    %10s %6.1f %10s  %%%d %s",
                        time_text((double)work->ns[best] / (double)work->measured, time),
                        percent((double)work->ns[best], (double)work->whole),
                        bytes_text(bytes_of(work->graph, node), bytes), node->first,
                        node->op->name);
        if (node->op->about)
            weft_i_text_put(s, ": %.*s%s", ABOUT, node->op->about,
                            strlen(node->op->about) > ABOUT ? " ..." : "");
        weft_i_text_put(s, "\n");
        below = work->ns[best];
        after = best;
    }
}

/* ---- why not ---- */

/* Notes of the emitter, "  not fused: %4 = mm: why": the ones that say the same as one. */
static const char *reason_of(const char *line)
{
    static const char start[] = "  not fused: ";
    if (strncmp(line, start, sizeof start - 1))
        return NULL;
    const char *equals = strstr(line, " = "), *end = strchr(line, '\n');
    if (!equals || !end || equals > end)
        return NULL;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(equals + 3, ":"), equals + 3);
    const weft_i_op *op = weft_i_op_find(name);
    return op && op->flags & WEFT_I_OP_VIEW ? NULL
                                            : equals + 3; /* views have a line of their own */
}

static bool same_line(const char *a, const char *b)
{
    size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && !memcmp(a, b, n);
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static bool was_before(const char *notes, const char *line, const char *reason)
{
    for (const char *at = notes; at < line; at = next_line(at)) {
        const char *other = reason_of(at);
        if (other && same_line(other, reason))
            return true;
    }
    return false;
}

static void put_reasons(const weft_graph *graph, weft_i_text *s)
{
    int shown = 0, more = 0;
    for (const char *line = graph->notes; line && *line; line = next_line(line)) {
        const char *reason = reason_of(line);
        int count = 0;
        if (!reason || was_before(graph->notes, line, reason))
            continue;
        for (const char *at = line; *at; at = next_line(at)) {
            const char *other = reason_of(at);
            count += other && same_line(other, reason);
        }
        if (shown++ < REASONS_SHOWN)
            weft_i_text_put(s, "    not fused: %d x %.*s\n", count, (int)strcspn(reason, "\n"),
                            reason);
        else
            more += count;
    }
    if (more)
        weft_i_text_put(s, "    not fused: %d others\n", more);
}

void weft_i_work_text(const weft_i_work *work, weft_i_text *s)
{
    const weft_graph *graph = work->graph;
    char time[24];
    int count = 0;
    kind *kinds = WEFT_OS->alloc(((size_t)graph->node_count + 1) * sizeof *kinds);
    if (!kinds)
        return; /* the rest of the text is there */
    for (int i = 0; i < graph->node_count; i++) {
        kind *k = &kinds[find_kind(kinds, &count, &graph->nodes[i])];
        k->nodes++;
        k->ns += work->ns[i];
        k->bytes += bytes_of(graph, &graph->nodes[i]);
    }
    qsort(kinds, (size_t)count, sizeof *kinds, longest_first);
    if (work->measured)
        weft_i_text_put(s, "  work: %s a run, in %llu measured of %llu\n",
                        time_text((double)work->whole / (double)work->measured, time),
                        (unsigned long long)work->measured, (unsigned long long)work->runs);
    else
        weft_i_text_put(s, "  work: not measured yet; the second run is\n");
    put_kinds(work, kinds, count, s);
    put_fused(work, kinds, count, s);
    put_longest(work, s);
    put_reasons(graph, s);
    WEFT_OS->free(kinds);
}
