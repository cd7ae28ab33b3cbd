/* SPDX-License-Identifier: Apache-2.0 */
/* How a module becomes a unit: its parameters are found, compared over the ranks, and cut. */
#include "weft/shard.h"
#include "base/os/os.h"
#include "base/report/opts.h"
#include "grad/node.h"
#include "parallel/accord.h"
#include "parallel/cut.h"
#include "parallel/replicate.h"
#include "parallel/unit.h"
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

#include <stdio.h>
#include <string.h>

#define WHAT "weft_shard"

static void destroy(weft_i_object *object)
{
    weft_i_unit *unit = (weft_i_unit *)object;
    weft_i_schedule_leave(unit);
    weft_release(unit->gather);
    weft_release(unit->scatter);
    weft_release(unit->average);
    weft_release(unit->present);
    for (int i = 0; i < unit->count; i++) {
        weft_i_unit_piece *p = &unit->piece[i];
        if (p->hook > 0) {
            weft_unhook(p->whole, p->hook);
            weft_i_leaf_on_spent(p->whole, NULL, NULL);
        }
        weft_release(p->reduced);
        weft_i_object_drop(p->shard);
        weft_i_object_drop(p->own);
        weft_i_object_drop(p->whole);
        weft_i_object_drop(p->room);
    }
    WEFT_OS->free(unit->piece);
    WEFT_OS->free(unit->site);
    weft_i_object_drop(unit->schedule);
    weft_i_object_drop(unit->group);
    weft_i_object_drop(unit->copies);
    weft_i_object_free(object);
}

/* ---- what belongs to the unit ---- */

/* What lies below a module and in no unit; first it only counts. */
typedef struct find {
    weft_i_unit *unit;
    weft_named *state; /* parameters and buffers, each once; NULL: count */
    int states, sites;
} find;

static bool is_listed(const find *f, const weft_tensor *x)
{
    for (int i = 0; f->state && i < f->states; i++)
        if (f->state[i].tensor == x)
            return true;
    return false;
}

static weft_i_unit_piece *piece_of(weft_i_unit *unit, const weft_tensor *x)
{
    for (int i = 0; i < unit->count; i++)
        if (unit->piece[i].shard == x)
            return &unit->piece[i];
    return NULL;
}

static void take_param(find *f, weft_module *module, const weft_i_entry *entry, const char *name)
{
    weft_i_unit *unit = f->unit;
    weft_i_unit_piece *p = piece_of(unit, entry->tensor);
    if (!p) {
        p = &unit->piece[unit->count++];
        p->unit = unit;
        p->trains = weft_requires_grad(entry->tensor);
        p->shard = weft_i_object_hold(entry->tensor); /* until it is cut */
        unit->training += p->trains;
        snprintf(p->name, sizeof p->name, "%s", name);
    }
    weft_i_site *site = &unit->site[unit->sites++];
    site->module = module;
    memcpy(site->key, entry->name, sizeof site->key);
    site->piece = (int)(p - unit->piece);
}

static weft_status take_entry(find *f, weft_module *module, const weft_i_entry *entry,
                              const char *prefix)
{
    char name[WEFT_NAME_MAX];
    int n = snprintf(name, sizeof name, "%s%s", prefix, entry->name);
    if (n < 0 || n >= WEFT_NAME_MAX)
        return weft_i_fail(WEFT_ERR_LIMIT, "the name %s%s is too long", prefix, entry->name);
    if (!is_listed(f, entry->tensor)) {
        if (f->state) {
            memcpy(f->state[f->states].name, name, sizeof name);
            f->state[f->states].tensor = entry->tensor;
        }
        f->states++;
    }
    if (entry->kind == WEFT_I_ENTRY_PARAM) {
        if (f->state)
            take_param(f, module, entry, name);
        f->sites++;
    }
    return WEFT_OK;
}

static weft_status walk(find *f, weft_module *module, const char *prefix)
{
    char deeper[WEFT_NAME_MAX + WEFT_I_NAME_PART + 1];
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind != WEFT_I_ENTRY_CHILD)
            WEFT_TRY(take_entry(f, module, &module->entries[i], prefix));
    for (int i = 0; i < module->count; i++) {
        weft_i_entry *entry = &module->entries[i];
        if (entry->kind != WEFT_I_ENTRY_CHILD || weft_i_unit_of(entry->child))
            continue;
        int n = snprintf(deeper, sizeof deeper, "%s%s.", prefix, entry->name);
        if (n < 0 || n >= WEFT_NAME_MAX)
            return weft_i_fail(WEFT_ERR_LIMIT, "names below %s%s are too long", prefix,
                               entry->name);
        WEFT_TRY(walk(f, entry->child, deeper));
    }
    return WEFT_OK;
}

static weft_status find_all(weft_i_unit *unit, find *f)
{
    *f = (find){.unit = unit};
    WEFT_TRY(walk(f, unit->module, ""));
    size_t states = (size_t)f->states + 1, sites = (size_t)f->sites + 1;
    weft_named *state = WEFT_OS->alloc(states * sizeof *state);
    unit->piece = WEFT_OS->alloc(sites * sizeof *unit->piece);
    unit->site = WEFT_OS->alloc(sites * sizeof *unit->site);
    f->state = state;
    if (!state || !unit->piece || !unit->site)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for %d parameters", f->sites);
    memset(unit->piece, 0, sites * sizeof *unit->piece);
    f->states = f->sites = 0;
    return walk(f, unit->module, "");
}

/* ---- checks ---- */

static weft_status check_piece(const weft_i_unit_piece *p)
{
    if (weft_tensor_ndim(p->shard) < 1)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "parameter \"%s\" has no dimension that could be cut; make it one of "
                           "one element",
                           p->name);
    if (!weft_tensor_is_contiguous(p->shard))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "parameter \"%s\" is not contiguous", p->name);
    if (weft_grad(p->shard))
        return weft_i_fail(WEFT_ERR_STATE,
                           "parameter \"%s\" has a gradient; shard before the first backward, or "
                           "clear it",
                           p->name);
    return WEFT_OK;
}

/* A tensor of another unit of the same tree, by a second name. */
static weft_status check_tied(const weft_i_unit *unit, const weft_module *module)
{
    const weft_i_unit *other = weft_i_unit_of(module);
    for (int k = 0; other && k < unit->count; k++)
        for (int i = 0; i < other->count; i++)
            if (other->piece[i].shard == unit->piece[k].shard)
                return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                                   "parameter \"%s\" is also \"%s\" of %s, which is sharded: what "
                                   "is tied must be in one unit",
                                   unit->piece[k].name, other->piece[i].name, other->name);
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD)
            WEFT_TRY(check_tied(unit, module->entries[i].child));
    return WEFT_OK;
}

static weft_status check_module(weft_module *module)
{
    char at[WEFT_NAME_MAX];
    if (weft_i_unit_of(module))
        return weft_i_fail(WEFT_ERR_EXISTS, "this %s is a sharded unit already", module->kind);
    if (!module->forward && !module->forward_list)
        return weft_i_fail(WEFT_ERR_STATE,
                           "this module is a container, which is never called: shard its children");
    if (weft_i_module_find_part(module, WEFT_I_PART_REPLICA, "", at, sizeof at) < 0)
        return weft_i_fail(WEFT_ERR_EXISTS,
                           "the module%s%s%s is replicated: give weft_shard a mesh of two "
                           "dimensions, copies and shards, instead",
                           *at ? " \"" : "", at, *at ? "\"" : "");
    return WEFT_OK;
}

static weft_status check_opts(const weft_shard_opts *opts)
{
    if (opts->start != WEFT_START_COPY && opts->start != WEFT_START_CHECK)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "there is no such start");
    if (opts->prefetch < 0 || opts->prefetch > 64)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a prefetch of %d units; 0 to 64", opts->prefetch);
    return WEFT_OK;
}

/* ---- cutting ---- */

static weft_status mark(weft_i_unit_piece *p, weft_tensor *shard, int64_t first)
{
    weft_shard_place place = WEFT_SHARD_PLACE_INIT;
    weft_shard_place_of(p->shard, &place);
    if (place.stripes > 1 && place.stripe_dim == 0)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "parameter \"%s\" has stripes of rows", p->name);
    place.size = sizeof place;
    place.offset[0] += first;
    place.mesh = NULL;
    return weft_shard_mark(shard, &place);
}

static weft_tensor *part_of(const weft_i_unit *unit, weft_i_unit_piece *p, int64_t *first,
                            int64_t *own)
{
    int64_t all = weft_tensor_size(p->shard, 0);
    int64_t from = p->rows * unit->rank;
    *first = from < all ? from : all;
    *own = all - *first < p->rows ? all - *first : p->rows;
    return weft_narrow(p->shard, 0, *first, *own);
}

static weft_tensor *kept(weft_tensor *x)
{
    return x ? weft_i_object_hold(x) : NULL;
}

static weft_status cut(weft_i_unit *unit, weft_i_unit_piece *p)
{
    int64_t first, rows, all = weft_tensor_size(p->shard, 0);
    weft_dtype dtype = weft_tensor_dtype(p->shard);
    weft_device device = weft_tensor_device(p->shard);
    weft_shape shape = weft_tensor_shape(p->shard);
    p->rows = (all + unit->ranks - 1) / unit->ranks;
    weft_tensor *mine = part_of(unit, p, &first, &rows);
    shape.dim[0] = p->rows;
    p->own = kept(weft_zeros(dtype, device, shape));
    weft_tensor *used = weft_narrow(p->own, 0, 0, rows);
    WEFT_TRY(used && mine ? weft_copy(used, mine) : weft_last_status());
    weft_tensor *shard = weft_parameter(used, p->trains);
    shape.dim[0] = p->rows * unit->ranks;
    weft_tensor *base = weft_empty(dtype, device, shape);
    p->whole = kept(weft_parameter(weft_narrow(base, 0, 0, all), p->trains));
    p->room = kept(weft_data(base));
    if (!shard || !p->whole || !p->room)
        return weft_last_status();
    WEFT_TRY(weft_resize_storage(p->room, 0));
    WEFT_TRY(mark(p, shard, first));
    weft_i_object_hold(shard);
    weft_i_object_drop(p->shard);
    p->shard = shard;
    return WEFT_OK;
}

/* A plan that adds up gradients of the parameter does so for what takes its place. */
static weft_status follow_plans(weft_i_unit *unit)
{
    for (int i = 0; i < unit->sites; i++)
        WEFT_TRY(weft_i_cut_replace(unit->site[i].module, unit->site[i].key,
                                    unit->piece[unit->site[i].piece].whole));
    return WEFT_OK;
}

static weft_status cut_all(weft_i_unit *unit)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < unit->count && status >= 0; i++) {
        WEFT_TRY(weft_scope_open());
        WEFT_NO_GRAD
        {
            status = cut(unit, &unit->piece[i]);
        }
        weft_scope_close();
        if (status < 0)
            return weft_i_explain(status, "parameter \"%s\"", unit->piece[i].name);
    }
    return status;
}

/* All units below get the schedule of this one. */
static void share_schedule(weft_i_unit *unit, weft_module *module)
{
    weft_i_unit *other = weft_i_unit_of(module);
    if (other && other->schedule != unit->schedule) {
        weft_i_schedule_leave(other);
        weft_i_object_drop(other->schedule);
        other->schedule = weft_i_object_hold(unit->schedule);
    }
    for (int i = 0; i < module->count; i++)
        if (module->entries[i].kind == WEFT_I_ENTRY_CHILD)
            share_schedule(unit, module->entries[i].child);
}

/* ---- making ---- */

static weft_status prepare(weft_module *module, const weft_shard_opts *opts, find *f,
                           weft_i_unit **out)
{
    WEFT_TRY(check_opts(opts));
    WEFT_TRY(check_module(module));
    weft_i_unit *unit = *out = weft_i_object_new_unscoped(WEFT_I_UNIT, sizeof *unit, destroy);
    if (!unit || !(unit->schedule = weft_i_schedule_new()))
        return weft_last_status();
    unit->module = module;
    unit->keep = opts->keep;
    unit->unused = opts->unused;
    unit->prefetch = opts->prefetch;
    unit->sync = true;
    WEFT_TRY(find_all(unit, f));
    snprintf(unit->name, sizeof unit->name, "the %s with \"%.80s\"", module->kind,
             unit->count ? unit->piece[0].name : "no parameters of its own");
    for (int i = 0; i < unit->count; i++)
        WEFT_TRY(check_piece(&unit->piece[i]));
    return check_tied(unit, module);
}

/* The ranks of the shards meet, and those of the copies: what one found wrong all know then. */
static weft_status meet(const find *f, const weft_shard_opts *opts, weft_group *group,
                        weft_group *copies, weft_status found)
{
    weft_i_deed deed = {0};
    bool copy = opts->start == WEFT_START_COPY;
    if (found >= 0)
        found = weft_i_deed_add_list(&deed, f->state, f->states, !copy);
    weft_status status = weft_i_accord(group, WHAT, found, &deed);
    if (copies)
        status = weft_i_accord(copies, WHAT, status, &deed);
    if (status >= 0 && copy && copies)
        status = weft_i_start_list(f->state, f->states, copies);
    if (status >= 0 && copy)
        status = weft_i_start_list(f->state, f->states, group);
    weft_i_deed_clear(&deed);
    return status;
}

static weft_status shard(weft_module *module, weft_group *group, weft_group *copies,
                         const weft_shard_opts *opts, weft_i_unit **out)
{
    find f = {0};
    weft_status found = prepare(module, opts, &f, out);
    weft_status status = meet(&f, opts, group, copies, found);
    WEFT_OS->free(f.state);
    WEFT_TRY(status);
    weft_i_unit *unit = *out;
    unit->group = weft_i_object_hold(group);
    unit->copies = weft_i_object_hold(copies);
    unit->ranks = weft_size(group);
    unit->rank = weft_rank(group);
    WEFT_TRY(cut_all(unit));
    WEFT_TRY(follow_plans(unit));
    WEFT_TRY(weft_i_unit_add_hooks(unit));
    return weft_i_unit_bind(unit, false);
}

static weft_status groups_of(weft_mesh *mesh, weft_group **group, weft_group **copies)
{
    int ndim = weft_mesh_ndim(mesh);
    if (!mesh)
        return weft_i_missing(WHAT ": the mesh is NULL");
    if (ndim != 1 && ndim != 2)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           WHAT
                           ": a mesh of %d dimensions; it is one, of shards, or two, of copies "
                           "and shards (weft_mesh_slice takes those of a larger one)",
                           ndim);
    *group = weft_mesh_group(mesh, ndim - 1);
    *copies = ndim == 2 ? weft_mesh_group(mesh, 0) : NULL;
    return *group && (ndim == 1 || *copies) ? WEFT_OK : weft_last_status();
}

weft_status weft_shard(weft_module *module, weft_mesh *mesh, const weft_shard_opts *given)
{
    weft_shard_opts opts = WEFT_SHARD_OPTS_INIT;
    weft_group *group = NULL, *copies = NULL;
    weft_i_unit *unit = NULL;
    WEFT_TRY(weft_i_module_check(WHAT, module));
    WEFT_TRY(weft_i_not_captured(WHAT));
    WEFT_TRY(weft_i_opts_copy(&opts, sizeof opts, given, WHAT));
    WEFT_TRY(groups_of(mesh, &group, &copies));
    WEFT_TRY(weft_scope_open());
    weft_status status = shard(module, group, copies, &opts, &unit);
    weft_scope_close();
    if (status < 0) {
        if (unit)
            weft_i_unit_drop_hooks(unit);
        weft_i_object_drop(unit);
        return status;
    }
    module->part[WEFT_I_PART_UNIT] = (weft_i_object *)unit;
    share_schedule(unit, module);
    return WEFT_OK;
}
