/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing the collectives of ranks' programs; see agree.h. */
#include "graph/run/agree.h"

#include "base/os/os.h"
#include "base/report/text.h"
#include "weft/fake.h"
#include "weft/object.h"

#include <ctype.h>
#include <string.h>

/* ---- what a rank says ---- */

/* The length of an argument in which ranks may differ, and 0 of others: each rank has its own factor
 * of premul_sum and, in an exchange that is not of equal parts, its own parts. */
static size_t own_length(const char *text, size_t length, bool *parts)
{
    static const char *const own[] = {" factor=", " out_splits=", " in_splits=", " shapes="};
    for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
        size_t at = strlen(own[k]);
        if (length <= at + 1 || strncmp(text, own[k], at) != 0)
            continue;
        bool list = text[at] == '[', equal = text[at + 1] == ']' && strstr(own[k], "splits");
        if (list && equal)
            return 0;
        *parts |= list;
        while (at < length && text[at] != (list ? ']' : ' '))
            at++;
        return list ? at + 1 : at;
    }
    return 0;
}

/* A line of the graph's text without the numbers of values, which are the rank's own.  Whether its
 * operands have parts of the rank's own sizes. */
static bool put_line(weft_i_text *s, const char *line, size_t length)
{
    bool parts = false;
    for (size_t i = 0; i < length; i++) {
        for (size_t own; (own = own_length(line + i, length - i, &parts));)
            i += own;
        if (i >= length)
            break;
        if (line[i] == '%') {
            while (i + 1 < length && isdigit((unsigned char)line[i + 1]))
                i++;
            continue;
        }
        weft_i_text_put(s, "%c", line[i]);
    }
    return parts;
}

static void put_operands(weft_i_text *s, const weft_graph *graph, const weft_i_graph_node *node,
                         bool parts)
{
    char text[WEFT_I_SHAPE_TEXT];
    int value;
    for (size_t at = 0; weft_i_graph_node_next(node, &at, &value);)
        weft_i_text_put(s, " %s%s", weft_dtype_name(graph->values[value].dtype),
                        parts ? "" : weft_i_shape_text(graph->values[value].shape, text));
    int symmetric = weft_i_graph_node_symmetric(node, 0); /* ranks read each other's buffers */
    if (symmetric >= 0) {
        const weft_i_graph_value *v = &graph->values[node->terms[symmetric].value];
        weft_i_text_put(s, " at %lld of %zu bytes", (long long)v->offset, v->bytes);
    }
    weft_i_text_put(s, "\n");
}

/* The text of the graph has a line for each node, in their order; those with a group among their
 * arguments are found by it. */
static void put_graph(weft_i_text *s, const weft_graph *graph, const char *all, const char *name)
{
    char mark[160];
    int node = 0;
    snprintf(mark, sizeof mark, " group=\"%.120s\"/", name);
    for (const char *line = all, *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *found = strstr(line, mark), *equals = strstr(line, " = ");
        if (!found || found > end || !equals || equals > end)
            continue;
        while (node < graph->node_count &&
               (!weft_i_graph_node_group(&graph->nodes[node]) ||
                strcmp(weft_i_graph_node_group(&graph->nodes[node])->group.name, name)))
            node++;
        if (node == graph->node_count)
            return;
        bool parts = put_line(s, equals + 3, (size_t)(end - equals - 3));
        put_operands(s, graph, &graph->nodes[node++], parts);
    }
}

static weft_status describe(const weft_graph *const *graphs, int count, const char *name,
                            weft_i_text *s)
{
    for (int i = 0; i < count; i++) {
        int length = graphs[i] ? weft_graph_text(graphs[i], NULL, 0) : 0;
        char *all = WEFT_OS->alloc((size_t)(length < 0 ? 0 : length) + 1);
        if (!all)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the text of a graph");
        if (graphs[i] && weft_graph_text(graphs[i], all, (size_t)length + 1) >= 0)
            put_graph(s, graphs[i], all, name);
        WEFT_OS->free(all);
    }
    return WEFT_OK;
}

/* ---- what all of them say ---- */

/* The first line in which two texts differ. */
static void find_difference(weft_bytes a, weft_bytes b, weft_bytes *x, weft_bytes *y)
{
    const char *one = a.data, *two = b.data;
    size_t least = a.length < b.length ? a.length : b.length, begin = 0;
    for (size_t i = 0; i < least && one[i] == two[i]; i++)
        begin = one[i] == '\n' ? i + 1 : begin;
    size_t p = begin, q = begin;
    while (p < a.length && one[p] != '\n')
        p++;
    while (q < b.length && two[q] != '\n')
        q++;
    *x = (weft_bytes){one + begin, p - begin};
    *y = (weft_bytes){two + begin, q - begin};
}

static weft_status compare(const weft_blobs *all, const char *graph, const char *group)
{
    weft_bytes first = weft_blobs_get(all, 0), x, y;
    for (int i = 1; i < weft_blobs_count(all); i++) {
        weft_bytes other = weft_blobs_get(all, i);
        if (first.length == other.length && !memcmp(first.data, other.data, first.length))
            continue;
        find_difference(first, other, &x, &y);
        return weft_i_fail(
            WEFT_ERR_MISMATCH,
            "\"%s\" does not have the same collectives on all ranks of group "
            "\"%s\": rank 0 has \"%.*s\", where rank %d has \"%.*s\"",
            graph, group, x.length ? (int)x.length : 7, x.length ? (const char *)x.data : "nothing",
            i, y.length ? (int)y.length : 7, y.length ? (const char *)y.data : "nothing");
    }
    return WEFT_OK;
}

static weft_status agree_in(const weft_graph *const *graphs, int count,
                            const weft_i_graph_term *group)
{
    weft_i_text s = {0};
    WEFT_TRY(describe(graphs, count, group->group.name, &s));
    size_t length = s.used;
    s = (weft_i_text){.out = WEFT_OS->alloc(length + 1), .room = length + 1};
    if (!s.out)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of collectives", length);
    weft_status status = describe(graphs, count, group->group.name, &s);
    weft_blobs *all =
        status < 0 ? NULL
                   : weft_all_gather_object((weft_bytes){s.out, length}, group->group.handle);
    if (status >= 0)
        status = all ? compare(all, graphs[0]->name, group->group.name) : weft_last_status();
    weft_release(all);
    WEFT_OS->free(s.out);
    return status;
}

/* Whether an earlier node has the same group. */
static bool is_first(const weft_graph *const *graphs, int graph, int node,
                     const weft_i_graph_term *group)
{
    for (int i = 0; i <= graph; i++)
        for (int k = 0; graphs[i] && k < (i < graph ? graphs[i]->node_count : node); k++) {
            const weft_i_graph_term *other = weft_i_graph_node_group(&graphs[i]->nodes[k]);
            if (other && other->group.handle == group->group.handle)
                return false;
        }
    return true;
}

weft_status weft_i_agree(const weft_graph *const *graphs, int count)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; graphs[i] && k < graphs[i]->node_count; k++) {
            const weft_i_graph_term *group = weft_i_graph_node_group(&graphs[i]->nodes[k]);
            if (group && group->group.handle && !weft_fake_is(group->group.handle) &&
                is_first(graphs, i, k, group))
                WEFT_TRY(agree_in(graphs, count, group));
        }
    return WEFT_OK;
}
