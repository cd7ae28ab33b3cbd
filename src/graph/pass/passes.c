/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of this floor, in their order, and running them; see passes.h. */
#include "graph/pass/passes.h"

#include "base/report/log.h"
#include "graph/emit/emit.h"

/* Passes of one stage run in the order of this table. */
__attribute__((constructor)) static void add_passes(void)
{
    static weft_i_graph_pass own[] = {
        {"dead", WEFT_I_STAGE_CLEAN, weft_i_graph_pass_drop_dead, NULL},
        {"pure", WEFT_I_STAGE_PURE, weft_i_graph_pass_make_pure, NULL},
        {"dead", WEFT_I_STAGE_PURE, weft_i_graph_pass_drop_dead, NULL},
        {"once", WEFT_I_STAGE_REWRITE, weft_i_graph_pass_once, NULL},
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
    for (const weft_i_graph_pass *pass = weft_i_graph_pass_first(); pass; pass = pass->next) {
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
