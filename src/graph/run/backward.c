/* SPDX-License-Identifier: Apache-2.0 */
/* Backward as a program; see backward.h. */
#include "graph/run/backward.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "graph/capture/capture.h"
#include "graph/pass/passes.h"
#include "graph/run/agree.h"
#include "graph/run/program.h"
#include "graph/run/route.h"

#include <stdio.h>
#include <string.h>

enum { ENTRIES = 8 };

typedef struct entry {
    char *key;
    size_t bytes;
    weft_graph *graph; /* held */
    weft_i_guards guards;
    weft_i_program *program;
    weft_i_place *places; /* of each input that is no argument */
    weft_tensor **inputs; /* room for those of one run */
    uint64_t runs;
} entry;

struct weft_i_backward {
    weft_i_backward_how how;
    bool hopeless; /* cannot be captured */
    entry entries[ENTRIES];
    int count;
};

static void clear_entry(entry *e)
{
    weft_i_program_free(e->program);
    weft_i_guards_clear(&e->guards);
    weft_i_object_drop(e->graph);
    WEFT_OS->free(e->key);
    WEFT_OS->free(e->places);
    WEFT_OS->free(e->inputs);
    *e = (entry){0};
}

weft_i_backward *weft_i_backward_new(weft_i_backward_how how)
{
    weft_i_backward *backward = WEFT_OS->alloc(sizeof *backward);
    if (!backward)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a compiled backward");
    backward->how = how;
    return backward;
}

void weft_i_backward_free(weft_i_backward *backward)
{
    for (int i = 0; backward && i < backward->count; i++)
        clear_entry(&backward->entries[i]);
    WEFT_OS->free(backward);
}

/* One backward on its way. */
typedef struct walk {
    weft_i_backward *backward;
    weft_compiled_info *info;
    weft_i_backward_pass *run;
    const weft_i_edge *roots;
    weft_tensor *const *seeds;
    size_t count;
    weft_i_route route;
} walk;

/* ---- finding one ---- */

static weft_status take_inputs(const walk *w, entry *e)
{
    const weft_graph *graph = e->graph;
    for (int i = 0; i < graph->input_count; i++) {
        e->inputs[i] = graph->inputs[i].tensor;
        if (e->places[i].kind != WEFT_I_PLACE_FIXED &&
            !(e->inputs[i] = weft_i_route_tensor(&w->route, e->places[i])))
            return weft_last_status();
    }
    for (int i = 0; i < graph->argument_count; i++)
        e->inputs[graph->arguments[i]] = w->seeds[i];
    return WEFT_OK;
}

static weft_status fits(const walk *w, entry *e, bool *yes)
{
    char *why = w->info->miss;
    *yes = false;
    if (e->bytes != w->route.bytes || memcmp(e->key, w->route.key, e->bytes)) {
        snprintf(why, sizeof w->info->miss,
                 "backward goes another way, or a gradient is there now");
        return WEFT_OK;
    }
    WEFT_TRY(take_inputs(w, e));
    *yes = weft_i_guards_hold(&e->guards, e->graph, e->inputs, why, sizeof w->info->miss);
    return WEFT_OK;
}

static weft_status find_entry(const walk *w, entry **found)
{
    bool yes = false;
    *found = NULL;
    for (int i = w->backward->count - 1; i >= 0 && !yes; i--) {
        WEFT_TRY(fits(w, &w->backward->entries[i], &yes));
        *found = yes ? &w->backward->entries[i] : NULL;
    }
    return WEFT_OK;
}

/* ---- making one ---- */

/* The function that is captured: its arguments are the gradients to begin with. */
static weft_status run_engine(weft_tensor *const *in, int ins, weft_tensor **out, int outs,
                              void *user)
{
    const walk *w = user;
    weft_i_backward_pass run = {.retain = true};
    (void)out, (void)outs;
    return weft_i_engine_run(&run, w->roots, in, (size_t)ins);
}

/* Inputs that lie on the route are found there; the graph keeps the others. */
static weft_status note_places(const walk *w, entry *e)
{
    weft_graph *graph = e->graph;
    size_t count = (size_t)graph->input_count + 1;
    e->places = WEFT_OS->alloc(count * sizeof *e->places);
    e->inputs = WEFT_OS->alloc(count * sizeof *e->inputs);
    e->key = WEFT_OS->alloc(w->route.bytes + 1);
    if (!e->places || !e->inputs || !e->key)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu inputs", count);
    for (int i = 0; i < graph->input_count; i++) {
        weft_tensor *x = graph->inputs[i].tensor;
        e->places[i] =
            x ? weft_i_route_place(&w->route, x) : (weft_i_place){WEFT_I_PLACE_FIXED, 0, 0};
        if (!x || e->places[i].kind == WEFT_I_PLACE_FIXED)
            continue;
        graph->inputs[i].tensor = NULL;
        weft_i_object_drop(x);
    }
    memcpy(e->key, w->route.key, w->route.bytes);
    e->bytes = w->route.bytes;
    return WEFT_OK;
}

static weft_status make_entry(walk *w, entry *e)
{
    const weft_i_backward_how *how = &w->backward->how;
    weft_i_capture_how capture = {.guards = &e->guards, .blind = true};
    e->guards.mode = weft_i_guard_mode();
    WEFT_TRY(weft_i_route_unpack(&w->route));
    weft_graph *raw =
        weft_i_capture(how->name, run_engine, w, w->seeds, (int)w->count, 0, &capture);
    weft_graph *graph = raw ? weft_i_graph_pass_run(raw, how->stages) : NULL;
    if (!graph)
        return weft_last_status();
    e->graph = weft_i_object_hold(graph);
    weft_release(raw); /* it holds what was saved */
    WEFT_TRY(note_places(w, e));
    if (!(e->program = weft_i_program_new(e->graph)))
        return weft_last_status();
    return how->agree ? weft_i_agree((const weft_graph *[]){e->graph}, 1) : WEFT_OK;
}

/* In a scope of its own; `e` is cleared if it fails. */
static weft_status fill_entry(walk *w, entry *e)
{
    weft_status status = weft_scope_open();
    if (status >= 0) {
        status = make_entry(w, e);
        weft_i_route_pack(&w->route);
        weft_scope_close();
    }
    if (status < 0)
        clear_entry(e);
    return status;
}

/* A new entry; NULL: the engine itself must run, or `status` is the error. */
static entry *add_entry(walk *w, weft_status *status)
{
    weft_i_backward *b = w->backward;
    weft_i_errors before;
    if (b->hopeless || w->route.closed)
        return NULL;
    if (b->count)
        weft_i_log(WEFT_LOG_INFO, "\"%s\" is captured anew: %s", b->how.name, w->info->miss);
    if (b->count == ENTRIES) {
        if (b->how.fullgraph)
            *status = weft_i_fail(WEFT_ERR_UNSUPPORTED,
                                  "\"%s\": none of its %d captures fits; the last: %s", b->how.name,
                                  ENTRIES, w->info->miss);
        return NULL;
    }
    weft_i_errors_save(&before);
    entry *e = &b->entries[b->count];
    *status = fill_entry(w, e);
    if (*status >= 0) {
        b->count++;
        w->info->entries++;
        w->info->frames++;
        w->info->ops += e->graph->node_count;
        return e;
    }
    if (b->how.fullgraph || *status == WEFT_ERR_MISMATCH)
        return NULL;
    b->hopeless = *status != WEFT_ERR_NO_MEMORY;
    weft_i_log(WEFT_LOG_WARN, "\"%s\" runs as it is: %s", b->how.name, weft_last_error());
    snprintf(w->info->miss, sizeof w->info->miss, "%s", weft_last_error());
    weft_i_errors_restore(&before);
    *status = WEFT_OK;
    return NULL;
}

/* ---- running ---- */

static weft_status run_program(void *user)
{
    entry *e = user;
    e->runs++;
    return weft_i_program_run(e->program, e->inputs, NULL);
}

static weft_status run_entry(walk *w, entry *e)
{
    WEFT_TRY(weft_i_route_check(&w->route));
    weft_status status = weft_i_engine_run_by(w->run, run_program, e);
    if (status >= 0 && !w->run->retain)
        weft_i_route_release(&w->route);
    return status;
}

static weft_status run_route(walk *w)
{
    entry *e;
    weft_status status = WEFT_OK;
    WEFT_TRY(find_entry(w, &e));
    if (!e && (e = add_entry(w, &status)))
        WEFT_TRY(take_inputs(w, e));
    WEFT_TRY(status);
    if (e)
        return run_entry(w, e);
    w->info->plain++;
    return weft_i_engine_run(w->run, w->roots, w->seeds, w->count);
}

/* Second derivatives are the engine's: they record what a program does not. */
static weft_status engine(void *user, weft_i_backward_pass *run, const weft_i_edge *roots,
                          weft_tensor *const *seeds, size_t count)
{
    walk *w = user;
    w->run = run;
    w->roots = roots;
    w->seeds = seeds;
    w->count = count;
    w->info->calls++;
    if (run->create) {
        w->info->plain++;
        return weft_i_engine_run(run, roots, seeds, count);
    }
    weft_status status = weft_i_route_find(&w->route, roots, count);
    if (status >= 0)
        status = run_route(w);
    weft_i_route_clear(&w->route);
    return status;
}

weft_status weft_i_backward_run(weft_i_backward *backward, weft_tensor *const *outputs,
                                size_t count, const weft_backward_opts *opts,
                                weft_compiled_info *info)
{
    walk w = {.backward = backward, .info = info};
    return weft_i_backward_by(outputs, count, opts, engine, &w);
}

void weft_i_backward_explain(const weft_i_backward *backward, bool whole, weft_i_text *s)
{
    for (int i = 0; i < backward->count; i++) {
        const entry *e = &backward->entries[i];
        weft_i_text_put(s, "entry %d: %d nodes, run %llu times\n", i, e->graph->node_count,
                        (unsigned long long)e->runs);
        weft_i_program_work(e->program, s);
        if (!whole)
            continue;
        size_t left = s->used < s->room ? s->room - s->used : 0;
        int length = weft_graph_text(e->graph, left ? s->out + s->used : NULL, left);
        s->used += length > 0 ? (size_t)length : 0;
        weft_i_text_put(s, "%s", e->graph->notes ? e->graph->notes : "");
        weft_i_program_text(e->program, s);
    }
}
