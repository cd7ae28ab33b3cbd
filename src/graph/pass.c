/* SPDX-License-Identifier: Apache-2.0 */
/* The list of passes; see pass.h. */
#include "graph/pass.h"

#include "base/log.h"

static weft_i_graph_pass *passes;

void weft_i_graph_pass_add(weft_i_graph_pass *pass)
{
    weft_i_graph_pass **at = &passes;
    while (*at && (*at)->stage <= pass->stage)
        at = &(*at)->next;
    pass->next = *at;
    *at = pass;
}

__attribute__((constructor)) static void add_passes(void)
{
    static weft_i_graph_pass own[] = {
        {"dead", WEFT_I_STAGE_CLEAN, weft_i_graph_pass_drop_dead, NULL},
        {"pure", WEFT_I_STAGE_PURE, weft_i_graph_pass_make_pure, NULL},
        {"dead", WEFT_I_STAGE_PURE, weft_i_graph_pass_drop_dead, NULL},
        {"lower", WEFT_I_STAGE_COLLECTIVES, weft_i_graph_pass_lower, NULL},
        {"bucket", WEFT_I_STAGE_COLLECTIVES, weft_i_graph_pass_bucket, NULL},
        {"gather", WEFT_I_STAGE_COLLECTIVES, weft_i_graph_pass_gather, NULL},
        {"schedule", WEFT_I_STAGE_SCHEDULE, weft_i_graph_pass_schedule, NULL},
        {"emit", WEFT_I_STAGE_LOWER, weft_i_graph_pass_emit, NULL}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        weft_i_graph_pass_add(&own[i]);
}

weft_graph *weft_i_graph_pass_run(weft_graph *graph, unsigned stages)
{
    weft_graph *now = graph;
    for (weft_i_graph_pass *pass = passes; pass; pass = pass->next) {
        if (!(pass->stage & stages))
            continue;
        weft_graph *next = pass->run(now);
        if (!next)
            weft_i_explain(weft_last_status(), "pass \"%s\" of graph \"%s\"", pass->name,
                           graph->name);
        weft_i_log(WEFT_LOG_TRACE, "graph \"%s\": pass \"%s\": %d nodes, were %d", graph->name,
                   pass->name, next ? next->node_count : -1, now->node_count);
        if (next != now && now != graph)
            weft_release(now);
        if (!next)
            return NULL;
        now = next;
    }
    return now == graph ? weft_i_graph_rebuild(graph, NULL) : now;
}
