/* SPDX-License-Identifier: Apache-2.0 */
/* The pass that replaces groups of nodes by rows of compiled code; see emit.h. */
#include "graph/emit/emit.h"

#include "base/os/os.h"
#include "graph/emit/emit_kernel.h"

#include <string.h>

typedef struct emitting {
    weft_graph *graph;
    weft_i_emit_groups groups;
    weft_i_graph_step *fused; /* of each group */
    weft_i_graph_step *steps;
    bool *outside; /* of each value: somebody outside of its group needs it */
    weft_i_emit_outline outline;
    int rows;
} emitting;

static void note_outside(emitting *e)
{
    const weft_graph *graph = e->graph;
    int value;
    for (int i = 0; i < graph->node_count; i++)
        for (size_t at = 0; weft_i_graph_node_next(&graph->nodes[i], &at, &value);) {
            int from = graph->values[value].node, g = e->groups.of[i];
            if (from >= 0 && (g < 0 || e->groups.of[from] != g))
                e->outside[value] = true;
        }
    for (int i = 0; i < graph->output_count; i++)
        e->outside[graph->outputs[i]] = true;
}

static weft_status make_step(emitting *e, weft_i_graph_step *step)
{
    const weft_i_emit_outline *o = &e->outline;
    *step = (weft_i_graph_step){.node = -1, .ins = o->ins, .outs = o->outs};
    step->op = weft_i_emit_row_make(o);
    step->in = weft_i_graph_copy(e->graph, o->in, (size_t)o->ins * sizeof *o->in);
    step->out = weft_i_graph_copy(e->graph, o->out, (size_t)o->outs * sizeof *o->out);
    return step->op && step->in && step->out ? WEFT_OK : weft_last_status();
}

/* A row for each group that can be one; others are dissolved. */
static weft_status make_rows(emitting *e)
{
    const char *why;
    for (int g = 0; g < e->groups.count; g++) {
        if (!e->groups.at[g].count)
            continue;
        if (weft_i_emit_outline_make(e->graph, &e->groups.at[g], e->outside, &e->outline, &why) &&
            (weft_i_emit_device(&e->outline) == WEFT_CPU ||
             weft_i_emit_kernel_fits(&e->outline, &why))) {
            WEFT_TRY(make_step(e, &e->fused[g]));
            e->rows++;
        } else
            weft_i_emit_groups_dissolve(&e->groups, g, why);
    }
    return WEFT_OK;
}

/* Groups without code are rows again.  Returns the device of the last of them, or -1. */
static int dissolve_broken(emitting *e)
{
    int broken = -1;
    for (int g = 0; g < e->groups.count; g++)
        if (e->groups.at[g].count && !weft_i_emit_row_ready(e->fused[g].op)) {
            broken = (int)weft_i_emit_row_device(e->fused[g].op);
            weft_i_emit_groups_dissolve(&e->groups, g, "nothing is compiled here");
        }
    return broken;
}

/* ---- what there is to say ---- */

/* Node `i` of the new graph stands for unit `i` of the old one. */
static void put_notes(weft_i_text *s, const emitting *e, const char *before, const weft_graph *to,
                      int broken)
{
    weft_i_text_put(s, "%s", before);
    for (int i = 0; i < e->groups.units; i++) {
        int old = -1 - e->groups.order[i];
        if (old >= 0 && e->groups.why[old])
            weft_i_text_put(s, "  not fused: %%%d = %s: %s\n", to->nodes[i].first,
                            to->nodes[i].op->name, e->groups.why[old]);
    }
    for (int g = 0; g < e->groups.count; g++)
        if (e->groups.at[g].count)
            weft_i_text_put(s, "  %s:\n%s", e->fused[g].op->name,
                            weft_i_emit_row_text(e->fused[g].op));
    if (broken >= 0) {
        char why[1100];
        weft_i_emit_describe((weft_device)broken, why, sizeof why);
        weft_i_text_put(s, "  not compiled: %s\n", why);
    }
}

static weft_status note(const emitting *e, weft_graph *to, int broken)
{
    weft_i_text s = {NULL, 0, 0};
    const char *before = to->notes ? to->notes : "";
    put_notes(&s, e, before, to, broken);
    s.room = s.used + 1;
    s.used = 0;
    if ((s.out = weft_i_graph_alloc(to, s.room))) {
        put_notes(&s, e, before, to, broken);
        to->notes = s.out;
    }
    return s.out ? WEFT_OK : weft_last_status();
}

/* ---- the pass ---- */

static weft_graph *rewrite(emitting *e)
{
    weft_i_emit_build();
    int broken = dissolve_broken(e); /* rows that stay alone need no order */
    if (weft_i_emit_groups_order(e->graph, &e->groups) < 0)
        return NULL;
    for (int i = 0; i < e->groups.units; i++) {
        int unit = e->groups.order[i];
        e->steps[i] = unit >= 0 ? e->fused[unit] : (weft_i_graph_step){.node = -1 - unit};
    }
    weft_graph *to = weft_i_graph_rebuild_steps(e->graph, e->steps, e->groups.units);
    if (!to)
        return NULL;
    to->planned = true;
    if (note(e, to, broken) >= 0)
        return to;
    weft_release(to);
    return NULL;
}

static weft_graph *emit(emitting *e)
{
    size_t nodes = (size_t)e->graph->node_count + 1;
    e->fused = WEFT_OS->alloc(nodes * sizeof *e->fused);
    e->steps = WEFT_OS->alloc(nodes * sizeof *e->steps);
    e->outside = WEFT_OS->alloc((size_t)e->graph->value_count + 1);
    if (!e->fused || !e->steps || !e->outside)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to emit %zu nodes", nodes - 1);
    if (weft_i_emit_groups_find(e->graph, &e->groups) < 0)
        return NULL;
    note_outside(e);
    return make_rows(e) < 0 ? NULL : rewrite(e);
}

weft_graph *weft_i_graph_pass_emit(weft_graph *graph)
{
    emitting *e = WEFT_OS->alloc(sizeof *e);
    if (!e)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory to emit a graph");
    e->graph = graph;
    weft_graph *to = emit(e);
    weft_i_emit_groups_clear(&e->groups);
    WEFT_OS->free(e->fused);
    WEFT_OS->free(e->steps);
    WEFT_OS->free(e->outside);
    WEFT_OS->free(e);
    return to;
}
