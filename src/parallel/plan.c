/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan: which layers are cut, and how.  All of it is looked at before the first layer changes, and
 * the ranks compare what they found.
 */
#include "base/os/os.h"
#include "base/report/opts.h"
#include "nn/layer.h"
#include "parallel/accord.h"
#include "parallel/cut.h"
#include "parallel/replicate.h"
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/shard.h"
#include "weft/view.h"

#include <stdio.h>
#include <string.h>

#define WHAT "weft_parallelize"

enum { DEPTH = 2 * WEFT_NAME_MAX };

/* A layer that changes. */
typedef struct job {
    weft_module *module;
    weft_plan plan; /* with the flows that it has */
    char name[WEFT_NAME_MAX];
} job;

/* A parameter that is cut; tied ones are cut once. */
typedef struct cutting {
    weft_tensor *old, *made; /* `made` in the scope of the call */
    int dim;
    int uses;
} cutting;

typedef struct plans {
    weft_module *root;
    weft_group *group;
    int ranks, rank, sequence;
    const weft_plan *plan;
    int lines;
    int *fits; /* of each line: how many layers */
    job *jobs;
    int count, room;
    cutting *cuttings;
    int cuts;
} plans;

/* ---- names ---- */

/* Whether "body.*.mlp" fits "body.0.mlp". */
static bool fits(const char *pattern, const char *name)
{
    for (;;) {
        size_t p = strcspn(pattern, "."), n = strcspn(name, ".");
        bool any = p == 1 && *pattern == '*';
        if (any ? n == 0 : p != n || memcmp(pattern, name, p) != 0)
            return false;
        if (!pattern[p] || !name[n])
            return !pattern[p] && !name[n];
        pattern += p + 1;
        name += n + 1;
    }
}

static weft_status add_job(plans *p, weft_module *module, const char *name, const weft_plan *line)
{
    if (p->count == p->room) {
        int room = p->room ? 2 * p->room : 16;
        job *jobs = WEFT_OS->resize(p->jobs, (size_t)room * sizeof *jobs);
        if (!jobs)
            return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d layers", room);
        p->jobs = jobs;
        p->room = room;
    }
    job *j = &p->jobs[p->count++];
    *j = (job){.module = module, .plan = *line};
    snprintf(j->name, sizeof j->name, "%s", name);
    return WEFT_OK;
}

static weft_status find_lines(plans *p, weft_module *module, const char *name)
{
    const weft_plan *found = NULL;
    for (int i = 0; i < p->lines; i++) {
        if (!fits(p->plan[i].layer, name))
            continue;
        p->fits[i]++;
        if (found)
            return weft_i_fail(WEFT_ERR_EXISTS, "the lines \"%s\" and \"%s\" both fit layer \"%s\"",
                               found->layer, p->plan[i].layer, name);
        found = &p->plan[i];
        WEFT_TRY(add_job(p, module, name, found));
    }
    for (int i = 0; i < module->count; i++) {
        char deeper[DEPTH];
        if (module->entries[i].kind != WEFT_I_ENTRY_CHILD)
            continue;
        int n = snprintf(deeper, sizeof deeper, "%s%s%s", name, *name ? "." : "",
                         module->entries[i].name);
        if (n < 0 || n >= WEFT_NAME_MAX)
            return weft_i_fail(WEFT_ERR_LIMIT, "names below \"%s\" are too long", name);
        WEFT_TRY(find_lines(p, module->entries[i].child, deeper));
    }
    return WEFT_OK;
}

/* ---- styles ---- */

typedef struct style {
    const char *word, *kind; /* of the layer; NULL: any */
    weft_flow in, out;       /* the usual ones */
    unsigned ins, outs;      /* bit for each flow that it may have */
} style;

#define FLOW(flow_) (1u << WEFT_FLOW_##flow_)

static const style styles[] = {
    [WEFT_PLAN_COLUMN] = {"COLUMN", "linear", WEFT_FLOW_WHOLE, WEFT_FLOW_FEATURES,
                          FLOW(WHOLE) | FLOW(SEQUENCE) | FLOW(ENTERED),
                          FLOW(FEATURES) | FLOW(WHOLE)},
    [WEFT_PLAN_ROW] = {"ROW", "linear", WEFT_FLOW_FEATURES, WEFT_FLOW_WHOLE,
                       FLOW(FEATURES) | FLOW(WHOLE), FLOW(WHOLE) | FLOW(SEQUENCE)},
    [WEFT_PLAN_VOCABULARY] = {"VOCABULARY", "embedding", WEFT_FLOW_WHOLE, WEFT_FLOW_WHOLE,
                              FLOW(WHOLE), FLOW(WHOLE) | FLOW(SEQUENCE)},
    [WEFT_PLAN_ATTENTION] = {"ATTENTION", "attention", WEFT_FLOW_WHOLE, WEFT_FLOW_WHOLE,
                             FLOW(WHOLE) | FLOW(SEQUENCE), FLOW(WHOLE) | FLOW(SEQUENCE)},
    [WEFT_PLAN_SEQUENCE] = {"SEQUENCE", NULL, WEFT_FLOW_SEQUENCE, WEFT_FLOW_SEQUENCE,
                            FLOW(SEQUENCE) | FLOW(WHOLE), FLOW(SEQUENCE) | FLOW(WHOLE)},
    [WEFT_PLAN_ENTER] = {"ENTER", NULL, WEFT_FLOW_WHOLE, WEFT_FLOW_USUAL,
                         FLOW(WHOLE) | FLOW(SEQUENCE), FLOW(USUAL)},
};

static const char *flow_name(weft_flow flow)
{
    static const char *const names[] = {"USUAL", "WHOLE", "SEQUENCE", "FEATURES", "ENTERED"};
    return (unsigned)flow < sizeof names / sizeof *names ? names[flow] : "of no such number";
}

static weft_status check_flow(const job *j, const char *which, weft_flow flow, unsigned allowed)
{
    if ((unsigned)flow <= WEFT_FLOW_ENTERED && (allowed >> flow & 1))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "layer \"%s\": %s cannot be %s with style %s", j->name,
                       which, flow_name(flow), styles[j->plan.style].word);
}

static weft_status check_style(job *j)
{
    if ((unsigned)j->plan.style >= sizeof styles / sizeof *styles)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "layer \"%s\": there is no style %d", j->name,
                           (int)j->plan.style);
    const style *s = &styles[j->plan.style];
    if (s->kind && strcmp(j->module->kind, s->kind) != 0)
        return weft_i_fail(WEFT_ERR_TYPE, "layer \"%s\" is a %s; style %s is for a %s", j->name,
                           j->module->kind, s->word, s->kind);
    if (j->module->part[WEFT_I_PART_CUT])
        return weft_i_fail(WEFT_ERR_EXISTS, "layer \"%s\" is in a plan already", j->name);
    if (!j->module->forward && !j->module->forward_list)
        return weft_i_fail(WEFT_ERR_TYPE, "layer \"%s\" is a container, which is never called",
                           j->name);
    j->plan.in = j->plan.in == WEFT_FLOW_USUAL ? s->in : j->plan.in;
    j->plan.out = j->plan.out == WEFT_FLOW_USUAL ? s->out : j->plan.out;
    WEFT_TRY(check_flow(j, "`in`", j->plan.in, s->ins));
    return check_flow(j, "`out`", j->plan.out, s->outs);
}

/* ---- attention: its four layers by one line ---- */

static weft_status expand_attention(plans *p, int at)
{
    static const char *const names[] = {"query", "key", "value", "out"};
    job j = p->jobs[at];
    int heads = weft_i_attention_heads(j.module);
    if (heads % p->ranks)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "layer \"%s\": %d heads, which %d ranks do not divide", j.name, heads,
                           p->ranks);
    for (int i = 0; i < 4; i++) {
        char name[DEPTH];
        weft_module *layer = weft_module_child(j.module, names[i]);
        weft_plan line = {.style = i < 3 ? WEFT_PLAN_COLUMN : WEFT_PLAN_ROW,
                          .in = i < 3 ? WEFT_FLOW_ENTERED : WEFT_FLOW_FEATURES,
                          .out = i < 3 ? WEFT_FLOW_FEATURES : j.plan.out};
        int n = snprintf(name, sizeof name, "%s%s%s", j.name, *j.name ? "." : "", names[i]);
        if (n < 0 || n >= WEFT_NAME_MAX || !layer)
            return weft_i_fail(WEFT_ERR_LIMIT, "names below \"%s\" are too long", j.name);
        WEFT_TRY(add_job(p, layer, name, &line));
        WEFT_TRY(check_style(&p->jobs[p->count - 1]));
    }
    return WEFT_OK;
}

/* ---- what is cut ---- */

/* The dimension of entry `i` that the style cuts; -1: none. */
static int dim_cut(const job *j, int i)
{
    weft_plan_style how = j->plan.style;
    if (j->module->entries[i].kind != WEFT_I_ENTRY_PARAM)
        return -1;
    if (how == WEFT_PLAN_COLUMN)
        return 0;
    if (how == WEFT_PLAN_ROW)
        return i == 0 ? 1 : -1;
    return how == WEFT_PLAN_VOCABULARY ? 0 : -1;
}

static cutting *find_cutting(const plans *p, const weft_tensor *x)
{
    for (int i = 0; i < p->cuts; i++)
        if (p->cuttings[i].old == x)
            return &p->cuttings[i];
    return NULL;
}

static weft_status note_cut(plans *p, const job *j, const weft_i_entry *entry, int dim)
{
    weft_tensor *x = entry->tensor;
    cutting *c = find_cutting(p, x);
    if (weft_tensor_ndim(x) <= dim)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "layer \"%s\": its %s has no dimension %d",
                           j->name, entry->name, dim);
    int64_t size = weft_tensor_size(x, dim);
    if (size % p->ranks)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "layer \"%s\": dimension %d of its %s has %lld entries, which %d ranks "
                           "do not divide",
                           j->name, dim, entry->name, (long long)size, p->ranks);
    if (weft_grad(x))
        return weft_i_fail(WEFT_ERR_STATE, "layer \"%s\": its %s has a gradient; clear it before",
                           j->name, entry->name);
    if (weft_shard_place_of(x, NULL))
        return weft_i_fail(WEFT_ERR_EXISTS,
                           "layer \"%s\": its %s is a part of a larger one already", j->name,
                           entry->name);
    if (c && c->dim != dim)
        return weft_i_fail(
            WEFT_ERR_INVALID_ARG,
            "layer \"%s\": its %s is tied to one that is cut along another dimension", j->name,
            entry->name);
    if (!c) {
        c = &p->cuttings[p->cuts++];
        *c = (cutting){.old = x, .dim = dim};
    }
    c->uses++;
    return WEFT_OK;
}

static int count_uses(const weft_module *module, const weft_tensor *x)
{
    int n = 0;
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD)
            n += count_uses(module->entries[i].child, x);
        else
            n += module->entries[i].tensor == x;
    return n;
}

static weft_status note_cuts(plans *p)
{
    p->cuttings = WEFT_OS->alloc((size_t)(2 * p->count + 1) * sizeof *p->cuttings);
    if (!p->cuttings)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d layers", p->count);
    for (int k = 0; k < p->count; k++) {
        const job *j = &p->jobs[k];
        if (j->plan.style > WEFT_PLAN_VOCABULARY) /* those are whole on every rank */
            continue;
        for (int i = 0; i < j->module->count && i < 2; i++) {
            int dim = dim_cut(j, i);
            if (dim >= 0)
                WEFT_TRY(note_cut(p, j, &j->module->entries[i], dim));
        }
    }
    for (int k = 0; k < p->count; k++)
        for (int i = 0; i < p->jobs[k].module->count; i++) {
            const weft_i_entry *entry = &p->jobs[k].module->entries[i];
            cutting *c = entry->kind == WEFT_I_ENTRY_PARAM ? find_cutting(p, entry->tensor) : NULL;
            if (c && c->uses != count_uses(p->root, c->old))
                return weft_i_fail(WEFT_ERR_INVALID_ARG,
                                   "layer \"%s\": its %s is tied to one that the plan leaves whole",
                                   p->jobs[k].name, entry->name);
        }
    return WEFT_OK;
}

/* ---- checks ---- */

static weft_status check_root(const plans *p)
{
    char at[WEFT_NAME_MAX];
    const weft_i_module_part late[] = {WEFT_I_PART_REPLICA, WEFT_I_PART_UNIT};
    for (int i = 0; i < 2; i++)
        if (weft_i_module_find_part(p->root, late[i], "", at, sizeof at) < 0)
            return weft_i_fail(WEFT_ERR_STATE,
                               "the module%s%s%s is %s already; weft_parallelize comes before that",
                               *at ? " \"" : "", at, *at ? "\"" : "", i ? "sharded" : "replicated");
    return WEFT_OK;
}

static weft_status read_plan(plans *p)
{
    WEFT_TRY(check_root(p));
    for (int i = 0; i < p->lines; i++)
        if (!p->plan[i].layer)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "line %d of the plan names no layer", i);
    p->fits = WEFT_OS->alloc((size_t)(p->lines + 1) * sizeof *p->fits);
    if (!p->fits)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d lines", p->lines);
    memset(p->fits, 0, (size_t)(p->lines + 1) * sizeof *p->fits);
    WEFT_TRY(find_lines(p, p->root, ""));
    for (int i = 0; i < p->lines; i++)
        if (!p->fits[i])
            return weft_i_fail(WEFT_ERR_NOT_FOUND, "line \"%s\" fits no layer", p->plan[i].layer);
    int lines = p->count;
    for (int i = 0; i < lines; i++) {
        WEFT_TRY(check_style(&p->jobs[i]));
        if (p->jobs[i].plan.style == WEFT_PLAN_ATTENTION)
            WEFT_TRY(expand_attention(p, i));
    }
    return note_cuts(p);
}

/* ---- cutting ---- */

static weft_status make_part(const plans *p, cutting *c)
{
    int64_t size = weft_tensor_size(c->old, c->dim) / p->ranks;
    weft_shard_place place = WEFT_SHARD_PLACE_INIT;
    place.full = weft_tensor_shape(c->old);
    place.offset[c->dim] = size * p->rank;
    weft_tensor *part = weft_narrow(c->old, c->dim, size * p->rank, size);
    weft_tensor *own =
        weft_empty(weft_tensor_dtype(c->old), weft_tensor_device(c->old), weft_tensor_shape(part));
    WEFT_TRY(part && own ? weft_copy(own, part) : weft_last_status());
    c->made = weft_parameter(own, weft_requires_grad(c->old));
    return c->made ? weft_shard_mark(c->made, &place) : weft_last_status();
}

static weft_status bind_parts(const plans *p, const job *j, weft_i_cut_layer *cut)
{
    for (int i = 0; i < j->module->count && i < 2; i++) {
        if (dim_cut(j, i) < 0)
            continue;
        const cutting *c = find_cutting(p, j->module->entries[i].tensor);
        if (c)
            WEFT_TRY(weft_module_bind(j->module, j->module->entries[i].name, c->made));
        cut->pieces |= 1ull << i;
    }
    return WEFT_OK;
}

static weft_status apply(const plans *p, const job *j)
{
    weft_i_cut_layer *cut = weft_i_cut_new(p->group, j->name);
    if (!cut)
        return weft_last_status();
    cut->style = j->plan.style;
    cut->in = j->plan.in;
    cut->out = j->plan.out;
    cut->sequence = p->sequence;
    weft_status status = j->plan.style <= WEFT_PLAN_VOCABULARY ? bind_parts(p, j, cut) : WEFT_OK;
    return status < 0 ? (weft_i_object_drop(cut), status) : weft_i_cut_apply(j->module, cut);
}

static weft_status apply_all(const plans *p)
{
    for (int i = 0; i < p->cuts; i++)
        WEFT_TRY(make_part(p, &p->cuttings[i]));
    for (int i = 0; i < p->count; i++) {
        weft_status status = apply(p, &p->jobs[i]);
        if (status < 0)
            return weft_i_explain(status, WHAT ": layer \"%s\"", p->jobs[i].name);
    }
    return WEFT_OK;
}

static weft_status describe(const plans *p, weft_i_deed *deed)
{
    for (int i = 0; i < p->count; i++)
        WEFT_TRY(weft_i_deed_add(deed, "layer \"%s\": style %s, in %s, out %s", p->jobs[i].name,
                                 styles[p->jobs[i].plan.style].word, flow_name(p->jobs[i].plan.in),
                                 flow_name(p->jobs[i].plan.out)));
    return WEFT_OK;
}

static weft_status meet(plans *p, const weft_parallelize_opts *opts)
{
    int count;
    weft_i_deed deed = {0};
    bool copies = opts->start == WEFT_START_COPY;
    weft_status found = read_plan(p);
    weft_named *list = weft_i_list_params(WHAT, p->root, true, &count);
    if (found >= 0)
        found = describe(p, &deed);
    if (found >= 0)
        found = list ? weft_i_deed_add_list(&deed, list, count, !copies) : weft_last_status();
    weft_status status = weft_i_accord(p->group, WHAT, found, &deed);
    if (status >= 0 && copies)
        status = weft_i_start_list(list, count, p->group);
    weft_i_deed_clear(&deed);
    WEFT_OS->free(list);
    return status;
}

weft_status weft_parallelize(weft_module *module, weft_mesh *mesh, const weft_plan *plan, int count,
                             const weft_parallelize_opts *given)
{
    weft_parallelize_opts opts = WEFT_PARALLELIZE_OPTS_INIT;
    WEFT_TRY(weft_i_module_check(WHAT, module));
    WEFT_TRY(weft_i_not_captured(WHAT));
    WEFT_TRY(weft_i_opts_copy(&opts, sizeof opts, given, WHAT));
    if (count < 0 || (count && !plan))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, WHAT ": a plan of %d lines", plan ? count : 0);
    plans p = {.root = module, .plan = plan, .lines = count, .sequence = opts.sequence};
    p.group = mesh ? weft_mesh_group(mesh, WEFT_MESH_ONLY) : NULL;
    if (!p.group)
        return mesh ? weft_last_status() : weft_i_missing(WHAT ": the mesh is NULL");
    p.ranks = weft_size(p.group);
    p.rank = weft_rank(p.group);
    WEFT_TRY(weft_scope_open());
    weft_status status = meet(&p, &opts);
    WEFT_NO_GRAD
    {
        if (status >= 0)
            status = apply_all(&p);
    }
    weft_scope_close();
    WEFT_OS->free(p.fits);
    WEFT_OS->free(p.jobs);
    WEFT_OS->free(p.cuttings);
    return status;
}
