/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled functions.  A call looks for an entry whose guards hold and runs its program; if there
 * is none the function is captured for these arguments.
 */
#include "graph/run/frame.h"

#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/opts.h"
#include "base/report/text.h"
#include "graph/run/agree.h"
#include "graph/run/frame_state.h"
#include "tensor/object/eye.h"
#include "weft/grad.h"

#include <stdio.h>
#include <string.h>

enum { NESTED = 64 };

typedef weft_i_frame_entry entry;

static weft_i_frame_backend *backends;

void weft_i_frame_add_backend(weft_i_frame_backend *backend)
{
    backend->next = backends;
    backends = backend;
}

__attribute__((constructor)) static void add_backends(void)
{
    static weft_i_frame_backend own[] = {
        {"eager", WEFT_I_STAGE_CLEAN, NULL},
        {"aot_eager", WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE, NULL},
        {"c",
         WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE | WEFT_I_STAGE_REWRITE | WEFT_I_STAGE_COLLECTIVES |
             WEFT_I_STAGE_SCHEDULE | WEFT_I_STAGE_LOWER,
         NULL}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        weft_i_frame_add_backend(&own[i]);
}

static const weft_i_frame_backend *find_backend(const char *name)
{
    for (const weft_i_frame_backend *backend = backends; backend; backend = backend->next)
        if (!strcmp(backend->name, name))
            return backend;
    return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_compile: there is no backend \"%s\"", name);
}

static void clear_entry(entry *e)
{
    weft_i_device_graph_free(e->device_graph);
    weft_i_program_free(e->program);
    weft_i_guards_clear(&e->guards);
    weft_i_object_drop(e->graph);
    weft_i_object_drop(e->plan);
    WEFT_OS->free(e->inputs);
    weft_i_seal_clear(&e->seal);
    *e = (entry){0};
}

static void destroy(weft_i_object *object)
{
    weft_compiled *compiled = (weft_compiled *)object;
    for (int i = 0; i < WEFT_I_FRAME_ENTRIES; i++)
        clear_entry(&compiled->entries[i]);
    weft_i_backward_free(compiled->backward);
    WEFT_OS->free(compiled->name);
    weft_i_object_free(object);
}

static weft_compiled *new_compiled(const weft_compile_opts *opts, const char *name)
{
    name = opts->name ? opts->name : name;
    if (strlen(name) > 200)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_compile: the name is too long");
    const weft_i_frame_backend *backend = find_backend(opts->backend ? opts->backend : "eager");
    if (!backend)
        return NULL;
    weft_compiled *compiled = weft_i_object_new(WEFT_I_COMPILED, sizeof *compiled, destroy);
    if (!compiled)
        return NULL;
    compiled->backend = backend;
    compiled->stages =
        backend->stages & ~(opts->as_captured ? (unsigned)WEFT_I_STAGE_COLLECTIVES : 0);
    compiled->fullgraph = opts->fullgraph;
    compiled->agree = opts->agree;
    compiled->check = opts->check;
    compiled->device_graph = opts->device_graph && compiled->stages & WEFT_I_STAGE_PURE;
    if (!(compiled->name = WEFT_OS->alloc(strlen(name) + 1))) {
        weft_release(compiled);
        return weft_i_null(WEFT_ERR_NO_MEMORY, "weft_compile: no memory for a name");
    }
    strcpy(compiled->name, name);
    return compiled;
}

weft_compiled *weft_compile(weft_graph_function function, void *user,
                            const weft_compile_opts *given)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    if (weft_i_opts_copy(&opts, sizeof opts, given, "weft_compile (start from WEFT_COMPILE_OPTS)") <
        0)
        return NULL;
    if (!function)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_compile: the function is NULL");
    weft_compiled *compiled = new_compiled(&opts, "function");
    if (!compiled)
        return NULL;
    compiled->function = function;
    compiled->user = user;
    return compiled;
}

weft_compiled *weft_compile_backward(const weft_compile_opts *given)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    if (weft_i_opts_copy(&opts, sizeof opts, given,
                         "weft_compile_backward (start from WEFT_COMPILE_OPTS)") < 0)
        return NULL;
    weft_compiled *compiled = new_compiled(&opts, "backward");
    if (!compiled)
        return NULL;
    weft_i_backward_how how = {compiled->name, compiled->stages, compiled->fullgraph,
                               compiled->agree};
    if (!(compiled->backward = weft_i_backward_new(how))) {
        weft_release(compiled);
        return NULL;
    }
    return compiled;
}

/* WEFT_DEBUG=TRACE: all that is known of the function, at each new capture. */
static void log_captures(const weft_compiled *compiled, int before)
{
    if (compiled->info.frames == before || !weft_i_log_wants(WEFT_LOG_TRACE))
        return;
    int length = weft_compiled_details(compiled, NULL, 0);
    char *text = length < 0 ? NULL : WEFT_OS->alloc((size_t)length + 1);
    if (!text)
        return; /* a log is no reason to fail */
    weft_compiled_details(compiled, text, (size_t)length + 1);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        weft_i_log(WEFT_LOG_TRACE, "\"%s\": %.*s", compiled->name, (int)(end - line), line);
    WEFT_OS->free(text);
}

weft_status weft_compiled_backward(weft_compiled *compiled, weft_tensor *const *outputs,
                                   size_t count, const weft_backward_opts *opts)
{
    if (!compiled)
        return weft_i_missing("weft_compiled_backward: NULL is called");
    if (!compiled->backward)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_compiled_backward: \"%s\" is a function; call it with "
                           "weft_compiled_call",
                           compiled->name);
    int before = compiled->info.frames;
    weft_status status =
        weft_i_backward_run(compiled->backward, outputs, count, opts, &compiled->info);
    log_captures(compiled, before);
    return status;
}

/* Sorts the arguments into the inputs of the entry; false if that cannot be. */
static bool take_inputs(entry *e, weft_tensor *const *in, int ins, char *why, size_t bytes)
{
    const weft_graph *graph = e->graph;
    if (ins != graph->argument_count) {
        snprintf(why, bytes, "it had %d arguments, not %d", graph->argument_count, ins);
        return false;
    }
    for (int i = 0; i < graph->input_count; i++)
        e->inputs[i] = graph->inputs[i].tensor;
    for (int i = 0; i < ins; i++) {
        weft_tensor **at = &e->inputs[graph->arguments[i]];
        if (*at && *at != in[i]) {
            snprintf(why, bytes, "argument %d was the same tensor as another", i);
            return false;
        }
        *at = in[i];
    }
    return true;
}

static bool fits(entry *e, weft_tensor *const *in, int ins, int outs, char *why, size_t bytes)
{
    if (outs != e->outs) {
        snprintf(why, bytes, "it had %d results, not %d", e->outs, outs);
        return false;
    }
    return take_inputs(e, in, ins, why, bytes) &&
           weft_i_guards_hold(&e->guards, e->graph, e->inputs, why, bytes);
}

static entry *find_entry(weft_compiled *compiled, weft_tensor *const *in, int ins, int outs)
{
    for (int i = compiled->info.entries - 1; i >= 0; i--)
        if (fits(&compiled->entries[i], in, ins, outs, compiled->info.miss,
                 sizeof compiled->info.miss))
            return &compiled->entries[i];
    return NULL;
}

enum { FIRST_STAGES = WEFT_I_STAGE_CLEAN | WEFT_I_STAGE_PURE };

/* Both halves of a joint graph; the forward half is the entry's graph. */
static weft_graph *split_entry(const weft_compiled *compiled, entry *e, const weft_graph *joint,
                               const weft_i_capture_how *how)
{
    weft_i_halves halves;
    unsigned later = compiled->stages & ~(unsigned)FIRST_STAGES;
    if (weft_i_joint_split(joint, how, FIRST_STAGES, &halves) < 0)
        return NULL;
    weft_graph *forward = halves.forward, *back = halves.back;
    if (later && (!(halves.forward = weft_i_graph_pass_run(forward, later)) ||
                  !(halves.back = weft_i_graph_pass_run(back, later)))) {
        weft_i_halves_clear(&halves);
        return NULL;
    }
    e->plan = weft_i_frame_plan_new(&halves);
    return e->plan ? e->plan->halves.forward : NULL;
}

/* Captures the function for these arguments.  Where gradients are recorded, a backend of pure
 * graphs, and one whose function puts hooks on what it computes, has two halves. */
static weft_graph *capture_entry(const weft_compiled *compiled, entry *e, weft_tensor *const *in,
                                 int ins, int outs)
{
    bool pure = compiled->stages & WEFT_I_STAGE_PURE;
    bool recording = weft_grad_mode_now() == WEFT_GRAD_RECORDING;
    weft_i_capture_how how = {.guards = &e->guards,
                              .seal = &e->seal,
                              .joint = !recording ? WEFT_I_JOINT_NEVER
                                       : pure     ? WEFT_I_JOINT_ALWAYS
                                                  : WEFT_I_JOINT_IF_HOOKED};
    weft_graph *raw =
        weft_i_capture(compiled->name, compiled->function, compiled->user, in, ins, outs, &how);
    weft_graph *graph = !raw             ? NULL
                        : how.split >= 0 ? split_entry(compiled, e, raw, &how)
                                         : weft_i_graph_pass_run(raw, compiled->stages);
    e->graph = weft_i_object_hold(graph);
    return graph;
}

/* In a scope of its own; `e` is cleared if that fails. */
static weft_status try_entry(weft_compiled *compiled, entry *e, weft_tensor *const *in, int ins,
                             int outs)
{
    WEFT_TRY(weft_scope_open());
    e->guards.mode = weft_i_guard_mode();
    weft_graph *graph = capture_entry(compiled, e, in, ins, outs);
    e->outs = outs;
    if (graph)
        e->inputs = WEFT_OS->alloc(((size_t)graph->input_count + 1) * sizeof *e->inputs);
    if (graph && !e->inputs)
        weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d inputs", graph->input_count);
    if (e->inputs)
        e->program = weft_i_program_new(graph);
    if (e->program && compiled->device_graph)
        e->device_graph = weft_i_device_graph_new(graph);
    weft_status status =
        e->program && (e->device_graph || !compiled->device_graph) ? WEFT_OK : weft_last_status();
    if (status >= 0 && compiled->agree)
        status = weft_i_agree(
            (const weft_graph *[]){e->graph, e->plan ? e->plan->halves.back : NULL}, 2);
    weft_scope_close();
    return status;
}

/* Whether all collectives of the entry are of one group, whose members have all heard the same. */
static bool has_one_group(const entry *e)
{
    const weft_graph *graphs[] = {e->graph, e->plan ? e->plan->halves.back : NULL};
    const weft_i_graph_term *group = NULL, *other;
    for (int i = 0; i < 2; i++)
        for (int k = 0; graphs[i] && k < graphs[i]->node_count; k++)
            if ((other = weft_i_graph_node_group(&graphs[i]->nodes[k]))) {
                if (group && group->group.handle != other->group.handle)
                    return false;
                group = other;
            }
    return group != NULL;
}

/* Ranks may compute different things between the same collectives, and then put them together
 * differently: if they do not agree, collectives stay as captured from now on. */
static weft_status fill_entry(weft_compiled *compiled, entry *e, weft_tensor *const *in, int ins,
                              int outs)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = try_entry(compiled, e, in, ins, outs);
    bool again = status == WEFT_ERR_MISMATCH && compiled->stages & WEFT_I_STAGE_COLLECTIVES &&
                 has_one_group(e);
    if (status < 0)
        clear_entry(e);
    if (!again)
        return status;
    weft_i_log(WEFT_LOG_INFO, "\"%s\": collectives stay as captured: %s", compiled->name,
               weft_last_error());
    compiled->stages &= ~(unsigned)WEFT_I_STAGE_COLLECTIVES;
    weft_i_errors_restore(&before);
    status = try_entry(compiled, e, in, ins, outs);
    if (status < 0)
        clear_entry(e);
    return status;
}

/* A new entry, or NULL: then the function must run itself, or `*status` is the error. */
static entry *add_entry(weft_compiled *compiled, weft_tensor *const *in, int ins, int outs,
                        weft_status *status)
{
    weft_compiled_info *info = &compiled->info;
    weft_i_errors before;
    if (compiled->hopeless)
        return NULL;
    if (info->entries)
        weft_i_log(WEFT_LOG_INFO, "\"%s\" is captured anew: %s", compiled->name, info->miss);
    if (info->entries == WEFT_I_FRAME_ENTRIES) {
        if (compiled->fullgraph)
            *status = weft_i_fail(WEFT_ERR_UNSUPPORTED,
                                  "\"%s\": none of its %d captures fits; the last: %s",
                                  compiled->name, WEFT_I_FRAME_ENTRIES, info->miss);
        return NULL;
    }
    weft_i_errors_save(&before);
    entry *e = &compiled->entries[info->entries];
    *status = fill_entry(compiled, e, in, ins, outs);
    if (*status >= 0) {
        info->entries++;
        info->frames++;
        info->ops += e->graph->node_count + (e->plan ? e->plan->halves.back->node_count : 0);
        return e;
    }
    if (compiled->fullgraph || *status == WEFT_ERR_MISMATCH)
        return NULL;
    compiled->hopeless = *status != WEFT_ERR_NO_MEMORY;
    weft_i_log(WEFT_LOG_WARN, "\"%s\" runs as it is: %s", compiled->name, weft_last_error());
    snprintf(info->miss, sizeof info->miss, "%s", weft_last_error());
    weft_i_errors_restore(&before);
    *status = WEFT_OK;
    return NULL;
}

static weft_status check_call(const weft_compiled *compiled, weft_tensor *const *in, int ins,
                              weft_tensor **out, int outs)
{
    if (!compiled)
        return weft_i_missing("weft_compiled_call: NULL is called");
    if (compiled->backward)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_compiled_call: \"%s\" is a backward; run it with "
                           "weft_compiled_backward",
                           compiled->name);
    if (ins < 0 || outs < 0 || (ins && !in) || (outs && !out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "\"%s\": %d arguments at %p, %d results at %p",
                           compiled->name, ins, (const void *)in, outs, (const void *)out);
    for (int i = 0; i < ins; i++)
        if (!in[i])
            return weft_i_missing("\"%s\": argument %d is NULL", compiled->name, i);
    return WEFT_OK;
}

/* ---- numbers that went into the calls ---- */

/*
 * A function may depend on a plain C value that nobody watches: the position of a cache, a rate.  So its seal is
 * compared: at its second call, then after 1, 2, 4 ... 512 runs, and at each one once a seal was
 * another one.
 */
enum { PAUSE_MOST = 512 };

static bool is_due(const weft_compiled *compiled, const entry *e)
{
    return compiled->check != WEFT_CHECK_NEVER &&
           (compiled->check == WEFT_CHECK_ALWAYS || e->unchecked >= e->pause);
}

/* What the function calls now, if that can be found out. */
static weft_status seal_now(weft_compiled *compiled, weft_tensor *const *in, int ins, int outs,
                            weft_i_seal *seal)
{
    weft_i_capture_how how = {.seal = seal};
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = weft_scope_open();
    bool opened = status >= 0;
    if (opened &&
        !weft_i_capture(compiled->name, compiled->function, compiled->user, in, ins, outs, &how))
        status = weft_last_status();
    if (opened)
        weft_scope_close();
    if (status < 0) {
        weft_i_seal_clear(seal);
        weft_i_errors_restore(&before);
    }
    return status;
}

/* The entry whose guards hold, and that was captured with the same numbers. */
static entry *find_sealed(weft_compiled *compiled, const weft_i_seal *seal, weft_tensor *const *in,
                          int ins, int outs)
{
    int call;
    for (int i = compiled->info.entries - 1; i >= 0; i--)
        if (weft_i_seal_equal(&compiled->entries[i].seal, seal, &call) &&
            fits(&compiled->entries[i], in, ins, outs, compiled->info.miss,
                 sizeof compiled->info.miss))
            return &compiled->entries[i];
    return NULL;
}

static void say_call(weft_compiled *compiled, const entry *e, int call)
{
    char what[64] = "its results, a constant or a tensor that is no argument";
    if (call >= 0)
        snprintf(what, sizeof what, "call %d of %d", call + 1, e->seal.count);
    snprintf(compiled->info.miss, sizeof compiled->info.miss,
             "it depends on a plain value that has changed and is not watched (weft_watch): %s is "
             "not as it was captured",
             what);
}

/*
 * The entry for the numbers of now: `e`, another one, or NULL, and the function is captured anew.  If runs
 * before this one were not compared, their results may have been those of older numbers: an
 * error, since it is too late to give others.
 */
static entry *compare(weft_compiled *compiled, entry *e, weft_tensor *const *in, int ins, int outs,
                      weft_status *status)
{
    weft_i_seal now = {0};
    int call = -1;
    weft_status seen = seal_now(compiled, in, ins, outs, &now);
    bool known = seen >= 0;
    if (!known && (!e->failed || seen == WEFT_ERR_NO_MEMORY)) { /* the next call tries again */
        e->failed = true;
        e->unchecked = e->pause > e->unchecked + 1 ? e->pause : e->unchecked + 1;
        return e;
    }
    if (known && weft_i_seal_equal(&e->seal, &now, &call)) {
        weft_i_seal_clear(&now);
        e->pause = !e->pause ? 1 : e->pause < PAUSE_MOST ? 2 * e->pause : PAUSE_MOST;
        e->unchecked = 0;
        e->failed = false;
        return e;
    }
    uint64_t late = e->unchecked;
    e->unchecked = 0;
    say_call(compiled, e, known ? call : -1);
    compiled->check = WEFT_CHECK_ALWAYS;
    entry *other = known && !late ? find_sealed(compiled, &now, in, ins, outs) : NULL;
    weft_i_seal_clear(&now);
    if (late)
        *status = weft_i_fail(WEFT_ERR_STATE,
                              "\"%s\": %s; results of the last %llu calls may be those of older "
                              "values (opts.check = WEFT_CHECK_ALWAYS finds it at once)",
                              compiled->name, compiled->info.miss, (unsigned long long)late);
    return other;
}

static weft_status run_program(entry *e, weft_tensor **out)
{
    return e->device_graph ? weft_i_device_graph_run(e->device_graph, e->program, e->inputs, out)
                           : weft_i_program_run(e->program, e->inputs, out);
}

/* Runs the forward half; its results get a history, whose one node holds what is saved. */
static weft_status run_forward(entry *e, weft_i_frame_call *call, weft_tensor **all)
{
    weft_grad_block block = weft_grad_block_enter(WEFT_GRAD_OFF);
    weft_status status = run_program(e, all);
    weft_grad_block_leave(&block);
    return status < 0 ? status : weft_i_frame_attach(call, all);
}

static weft_status run_halves(entry *e, weft_tensor **out)
{
    weft_i_frame_call call = {.plan = e->plan, .inputs = e->inputs};
    size_t count = (size_t)e->graph->output_count;
    weft_tensor **all = WEFT_OS->alloc((count + 1) * sizeof *all);
    weft_status status = all ? weft_i_frame_prepare(&call)
                             : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %zu results", count);
    if (status >= 0)
        status = run_forward(e, &call, all);
    for (int i = 0; status >= 0 && i < e->outs; i++)
        out[i] = all[i];
    if (status >= 0)
        weft_i_frame_release(e->plan, e->inputs, all);
    weft_i_frame_finish(&call);
    WEFT_OS->free(all);
    return status;
}

/* What it leaves in `out`, which may be the caller's `in`.  A result that is not there fails the
 * call, as it fails a capture: with the error behind it, if there is one. */
static weft_status take_results(weft_compiled *compiled, weft_tensor *const *in, int ins,
                                weft_tensor **out, int outs)
{
    weft_tensor **made = WEFT_OS->alloc(((size_t)outs + 1) * sizeof *made);
    if (!made)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "\"%s\": no memory for %d results", compiled->name,
                           outs);
    weft_status status = compiled->function(in, ins, made, outs, compiled->user);
    for (int i = 0; status >= 0 && i < outs; i++)
        if (!made[i])
            status = weft_i_missing("\"%s\": the function returned WEFT_OK, but result %d is NULL",
                                    compiled->name, i);
    if (status >= 0 && outs)
        memcpy(out, made, (size_t)outs * sizeof *out);
    WEFT_OS->free(made);
    return status;
}

/* Runs the function itself.  One that calls itself would do so until the stack ends; once it went
 * too deep all its calls fail, or one that calls itself twice would never end. */
static weft_status run_function(weft_compiled *compiled, weft_tensor *const *in, int ins,
                                weft_tensor **out, int outs)
{
    compiled->too_deep |= compiled->nested == NESTED;
    if (compiled->too_deep)
        return weft_i_fail(WEFT_ERR_LIMIT,
                           "\"%s\" calls itself, %d calls deep: a compiled function must not",
                           compiled->name, NESTED);
    compiled->nested++;
    weft_status status = take_results(compiled, in, ins, out, outs);
    compiled->too_deep &= --compiled->nested > 0;
    return status;
}

weft_status weft_compiled_call(weft_compiled *compiled, weft_tensor *const *in, int ins,
                               weft_tensor **out, int outs)
{
    weft_status status = WEFT_OK;
    WEFT_TRY(check_call(compiled, in, ins, out, outs));
    if (weft_tracing()) /* becomes part of what is captured */
        return run_function(compiled, in, ins, out, outs);
    compiled->info.calls++;
    entry *e = find_entry(compiled, in, ins, outs);
    if (e && is_due(compiled, e))
        e = compare(compiled, e, in, ins, outs, &status);
    else if (e)
        e->unchecked++;
    WEFT_TRY(status);
    int before = compiled->info.frames;
    if (!e && (e = add_entry(compiled, in, ins, outs, &status)))
        if (!take_inputs(e, in, ins, compiled->info.miss, sizeof compiled->info.miss))
            return weft_i_fail(WEFT_ERR_INTERNAL, "\"%s\": %s", compiled->name,
                               compiled->info.miss);
    WEFT_TRY(status);
    if (!e) {
        compiled->info.plain++;
        return run_function(compiled, in, ins, out, outs);
    }
    log_captures(compiled, before);
    e->runs++;
    if (e->plan || !(compiled->backend->stages & WEFT_I_STAGE_PURE))
        return e->plan ? run_halves(e, out) : weft_i_program_run(e->program, e->inputs, out);
    /* No result requires a gradient; the recorder would take the writes at the end for its own. */
    weft_grad_block block = weft_grad_block_enter(WEFT_GRAD_OFF);
    status = run_program(e, out);
    weft_grad_block_leave(&block);
    return status;
}

weft_status weft_compiled_describe(const weft_compiled *compiled, weft_compiled_info *out)
{
    if (!compiled || !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_compiled_describe: %s is NULL",
                           compiled ? "the result" : "the function");
    *out = compiled->info;
    return WEFT_OK;
}

/* ---- graphs by themselves ---- */

static weft_status bind_inputs(weft_graph *graph, weft_tensor *const *in, weft_tensor **inputs)
{
    char why[256];
    for (int i = 0; i < graph->input_count; i++)
        inputs[i] = graph->inputs[i].tensor;
    for (int i = 0; i < graph->argument_count; i++) {
        weft_tensor **at = &inputs[graph->arguments[i]];
        if (!in[i] || (*at && *at != in[i]))
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "graph \"%s\": argument %d is %s", graph->name,
                               i, in[i] ? "not the one that it was" : "NULL");
        *at = in[i];
    }
    for (int i = 0; i < graph->input_count; i++)
        if (!inputs[i])
            return weft_i_fail(WEFT_ERR_STATE,
                               "graph \"%s\": nobody knows the tensor of input \"%s\", which was "
                               "no argument",
                               graph->name, graph->inputs[i].name);
    if (!weft_i_guards_hold(NULL, graph, inputs, why, sizeof why))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "graph \"%s\": %s", graph->name, why);
    return WEFT_OK;
}

weft_status weft_graph_run(weft_graph *graph, weft_tensor *const *in, int ins, weft_tensor **out,
                           int outs)
{
    if (!graph)
        return weft_i_missing("weft_graph_run: the graph is NULL");
    if (ins != graph->argument_count || outs != graph->output_count || (ins && !in) ||
        (outs && !out))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "graph \"%s\" has %d arguments and %d results, not %d and %d",
                           graph->name, graph->argument_count, graph->output_count, ins, outs);
    weft_tensor **inputs = WEFT_OS->alloc(((size_t)graph->input_count + 1) * sizeof *inputs);
    weft_i_program *program = inputs ? weft_i_program_new(graph) : NULL;
    weft_status status =
        program   ? bind_inputs(graph, in, inputs)
        : !inputs ? weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d inputs", graph->input_count)
                  : weft_last_status();
    if (status >= 0)
        status = weft_i_program_run(program, inputs, out);
    weft_i_program_free(program);
    WEFT_OS->free(inputs);
    return status;
}
