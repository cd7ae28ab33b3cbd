/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a mesh.  All ranks of the group it is made over meet twice, whatever the number of
 * dimensions: first they compare a hash of the mesh and tell which groups of earlier meshes they
 * still have, at the end whether every rank has its groups, so that all have the mesh or none.  In
 * between each rank makes, with the members of its lines only, the groups that are not there.
 */
#include "fabric/mesh/mesh.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/exchange.h"

#include <stdio.h>
#include <string.h>

static void destroy_root(weft_i_object *object)
{
    weft_i_mesh_root *root = (weft_i_mesh_root *)object;
    for (size_t i = 0; i < root->flattened_count; i++) {
        WEFT_OS->free(root->flattened[i].step);
        weft_i_object_drop(root->flattened[i].group);
    }
    WEFT_OS->free(root->flattened);
    WEFT_OS->free(root->ranks);
    weft_i_object_drop(root->over);
    weft_i_object_free(object);
}

/* What the caller asked for, checked. */
typedef struct wish {
    weft_group *over;
    weft_device device;
    weft_shape shape;
    const int *ranks; /* NULL: the first of `over` */
    int count;
    char names[WEFT_MAX_DIMS][WEFT_I_DIM_NAME];
} wish;

static weft_status check_device(weft_device device)
{
    char name[16];
    if (device == WEFT_CPU || device == WEFT_META || device == WEFT_CUDA(0))
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "a mesh is of a kind of device, without an index, not %s",
                       weft_device_name(device, name));
}

static weft_status check_shape(wish *w)
{
    int64_t count = 1;
    if (w->shape.ndim < 1 || w->shape.ndim > WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a mesh has 1 to %d dimensions, not %d",
                           WEFT_MAX_DIMS, w->shape.ndim);
    for (int dim = 0; dim < w->shape.ndim; dim++) {
        if (w->shape.dim[dim] < 1)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "dimension %d of a mesh is %lld", dim,
                               (long long)w->shape.dim[dim]);
        if (w->shape.dim[dim] > w->over->size || count * w->shape.dim[dim] > w->over->size)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "a mesh cannot have more entries than the %d ranks of group \"%s\"",
                               w->over->size, w->over->name);
        count *= w->shape.dim[dim];
    }
    w->count = (int)count;
    return WEFT_OK;
}

static int rank_at(const wish *w, int i)
{
    WEFT_ASSERT(i >= 0 && i < w->count);
    return w->ranks ? w->ranks[i] : w->over->members[i];
}

static weft_status check_ranks(const wish *w)
{
    for (int i = 0; i < w->count; i++) {
        if (weft_group_rank_of(w->over, rank_at(w, i)) < 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d of a mesh is not in group \"%s\"",
                               rank_at(w, i), w->over->name);
        for (int k = 0; k < i; k++)
            if (rank_at(w, k) == rank_at(w, i))
                return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d is twice in a mesh",
                                   rank_at(w, i));
    }
    return WEFT_OK;
}

static weft_status check_wish(wish *w, const char *names)
{
    WEFT_TRY(check_device(w->device));
    WEFT_TRY(check_shape(w));
    WEFT_TRY(weft_i_mesh_read_names(names, w->shape.ndim, w->names));
    return check_ranks(w);
}

/* ---- the object ---- */

static weft_i_mesh_root *new_root(const wish *w)
{
    weft_i_mesh_root *root = weft_i_object_new_unscoped(WEFT_I_MESH, sizeof *root, destroy_root);
    if (!root)
        return NULL;
    root->over = weft_i_object_hold(w->over);
    root->device = w->device;
    root->count = w->count;
    root->position = -1;
    memcpy(root->names, w->names, sizeof root->names);
    root->ranks = WEFT_OS->alloc((size_t)w->count * sizeof *root->ranks);
    if (!root->ranks) {
        weft_i_object_drop(root);
        return weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a mesh of %d ranks", w->count);
    }
    for (int i = 0; i < w->count; i++) {
        root->ranks[i] = rank_at(w, i);
        if (root->ranks[i] == w->over->world->rank)
            root->position = i;
    }
    return root;
}

/* The root's own dimensions: row-major strides. */
static weft_status add_dims(weft_mesh *mesh, const wish *w)
{
    int inner = w->count, place = mesh->root->position < 0 ? 0 : mesh->root->position;
    for (int dim = 0; dim < w->shape.ndim; dim++) {
        int size = (int)w->shape.dim[dim];
        inner /= size;
        WEFT_TRY(weft_i_mesh_add(mesh, w->names[dim], size, NULL, place / inner % size, NULL));
        for (int i = 0; i < size; i++)
            mesh->dim[dim].step[i] = i * inner;
    }
    WEFT_ASSERT(inner == 1);
    return weft_i_mesh_complete(mesh);
}

static weft_mesh *new_mesh(const wish *w)
{
    weft_i_mesh_root *root = new_root(w);
    weft_mesh *mesh = root ? weft_i_mesh_on(root) : NULL;
    weft_i_object_drop(root);
    if (mesh && add_dims(mesh, w) < 0) {
        weft_release(mesh);
        return NULL;
    }
    return mesh;
}

/* ---- agreeing ---- */

/* What a rank shows the others. */
typedef struct note {
    uint64_t hash;
    int32_t failure;
    weft_i_key have[WEFT_MAX_DIMS]; /* its groups of earlier meshes, zero for none */
    char text[160];
} note;
_Static_assert(sizeof(note) <= WEFT_I_NOTE_BYTES, "a note fits the board");

static weft_status fail_different(const note *all, int other)
{
    return weft_i_fail(WEFT_ERR_MISMATCH,
                       "the ranks gave different meshes: rank 0 the %s, rank %d the %s",
                       all[0].text, other, all[other].text);
}

static weft_status compare(const weft_group *group, const note *all)
{
    for (int rank = 0; rank < group->size; rank++)
        if (all[rank].failure < 0)
            return weft_i_fail((weft_status)all[rank].failure,
                               "mesh: rank %d of group \"%s\" could not take part (%s)", rank,
                               group->name, weft_strerror((weft_status)all[rank].failure));
    for (int rank = 1; rank < group->size; rank++)
        if (all[rank].hash != all[0].hash)
            return fail_different(all, rank);
    return WEFT_OK;
}

static note note_of(const weft_mesh *mesh)
{
    note mine = {.hash = weft_mesh_hash(mesh)};
    weft_mesh_text(mesh, mine.text, sizeof mine.text);
    return mine;
}

/* Tells the others that this rank has no mesh; keeps the reason. */
static weft_mesh *show_failure(weft_group *group, const char *what)
{
    note mine = {.failure = weft_last_status()};
    weft_i_group_show(group, what, &mine, sizeof mine);
    return NULL;
}

/* Do all members of our line still have the group that we have? */
static bool all_have(const weft_mesh *mesh, int dim, const note *all, const int *line)
{
    const weft_group *over = mesh->root->over;
    const weft_i_key *ours = &all[over->rank].have[dim];
    if (!ours->word[0] && !ours->word[1])
        return false;
    for (int i = 0; i < mesh->dim[dim].size; i++)
        if (!weft_i_key_equal(all[weft_group_rank_of(over, line[i])].have[dim], *ours))
            return false;
    return true;
}

/* ---- groups ---- */

static bool is_whole(const weft_group *over, const int *line, int size)
{
    return over->size == size && !memcmp(over->members, line, (size_t)size * sizeof *line);
}

static weft_group *make_group(const weft_mesh *mesh, int dim, int *line)
{
    weft_group *over = mesh->root->over;
    char description[WEFT_I_GROUP_NAME];
    weft_i_making how = {.opts = WEFT_GROUP_OPTS_INIT, .for_mesh = true, .limit_ms = WEFT_DEFAULT};
    if (*mesh->dim[dim].name)
        snprintf(description, sizeof description, "mesh_%s", mesh->dim[dim].name);
    else
        snprintf(description, sizeof description, "mesh_dim_%d", dim);
    how.opts.description = description;
    for (int i = 0; i < mesh->dim[dim].size; i++)
        line[i] = weft_group_rank_of(over, line[i]);
    return weft_keep(weft_i_group_make(over, line, mesh->dim[dim].size, &how));
}

/* Needs no memory before the others are told that there is none. */
weft_status weft_i_mesh_give_group(weft_mesh *mesh, int dim, weft_group *have)
{
    WEFT_ASSERT(!mesh->dim[dim].group);
    weft_i_mesh_dim *along = &mesh->dim[dim];
    weft_i_mesh_line(mesh, dim, mesh->line);
    if (is_whole(mesh->root->over, mesh->line, along->size))
        along->group = weft_i_object_hold(mesh->root->over);
    else
        along->group = have ? weft_i_object_hold(have) : make_group(mesh, dim, mesh->line);
    return along->group ? WEFT_OK : weft_last_status();
}

/* Groups of earlier meshes that this rank still has for its lines. */
static void find_groups(weft_mesh *mesh, note *mine, weft_group **have)
{
    for (int dim = 0; weft_mesh_contains(mesh) && dim < mesh->ndim; dim++) {
        weft_i_mesh_line(mesh, dim, mesh->line);
        weft_group *found = weft_i_registry_find_for_mesh(&mesh->root->over->world->registry,
                                                          mesh->line, mesh->dim[dim].size);
        if (!found || weft_i_group_has_ended(found))
            continue; /* if one of us sees it and another does not, a new one is made */
        have[dim] = found;
        mine->have[dim] = found->key;
    }
}

/* Goes on after a failure: the members of the other lines must not wait for us. */
static weft_status give_groups(weft_mesh *mesh, const note *all, weft_group *const *have)
{
    weft_status first = WEFT_OK;
    for (int dim = 0; weft_mesh_contains(mesh) && dim < mesh->ndim; dim++) {
        weft_i_mesh_line(mesh, dim, mesh->line);
        bool reuse = all_have(mesh, dim, all, mesh->line);
        weft_status status = weft_i_mesh_give_group(mesh, dim, reuse ? have[dim] : NULL);
        first = first < 0 ? first : status;
    }
    return first;
}

/* The second meeting: all have their groups, or nobody has the mesh. */
static weft_status confirm(weft_group *over, weft_status status, note *all)
{
    note mine = {.failure = status < 0 ? status : 0};
    weft_i_errors reason;
    weft_i_errors_save(&reason);
    weft_status met =
        weft_i_group_exchange_later(over, "mesh_groups", &mine, sizeof mine, all, WEFT_DEFAULT);
    if (status < 0) { /* the others know now; the reason is ours */
        weft_i_errors_restore(&reason);
        return status;
    }
    return met < 0 ? met : compare(over, all);
}

static weft_status meet(weft_mesh *mesh, note *all)
{
    weft_group *over = mesh->root->over, *have[WEFT_MAX_DIMS] = {0};
    note mine = note_of(mesh);
    find_groups(mesh, &mine, have);
    WEFT_TRY(weft_i_group_exchange(over, "mesh_new", &mine, sizeof mine, all, WEFT_DEFAULT));
    WEFT_TRY(compare(over, all));
    return confirm(over, give_groups(mesh, all, have), all);
}

static weft_mesh *make(const wish *w)
{
    note *all = WEFT_OS->alloc((size_t)w->over->size * sizeof *all);
    weft_mesh *mesh =
        all ? new_mesh(w)
            : weft_i_null(WEFT_ERR_NO_MEMORY, "no memory for a mesh of %d ranks", w->count);
    if (!mesh) {
        show_failure(w->over, "mesh_new");
    } else if (meet(mesh, all) < 0) {
        weft_release(mesh);
        mesh = NULL;
    }
    WEFT_OS->free(all);
    return mesh;
}

weft_mesh *weft_mesh_new(weft_group *over, weft_device device, weft_shape shape, const int *ranks,
                         const char *names)
{
    wish w = {.over = over, .device = device, .shape = shape, .ranks = ranks};
    if (weft_i_group_usable(over) < 0)
        return NULL;
    if (!ranks)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_mesh_new: the ranks are NULL");
    return check_wish(&w, names) < 0 ? NULL : make(&w);
}

weft_mesh *weft_mesh_init(weft_group *over, weft_device device, weft_shape shape, const char *names)
{
    wish w = {.over = over, .device = device, .shape = shape};
    if (weft_i_group_usable(over) < 0)
        return NULL;
    return check_wish(&w, names) < 0 ? NULL : make(&w);
}

/* ---- of groups that exist ---- */

static weft_status check_groups(weft_group *const *groups, int count, wish *w, const char *names)
{
    if (!groups || count < 1 || count > WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a mesh is made from 1 to %d groups, not %d",
                           WEFT_MAX_DIMS, groups ? count : 0);
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_i_group_usable(groups[i]));
    for (int i = 1; i < count; i++)
        if (groups[i]->world != groups[0]->world)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "groups 0 and %d are of different jobs", i);
    if (count > 1 && (!w->ranks || !names))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "a mesh from %d groups needs ranks and names of its dimensions", count);
    if (!w->ranks) {
        w->ranks = groups[0]->members;
        w->shape = WEFT_SHAPE(groups[0]->size);
    }
    if (w->shape.ndim != count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%d groups for a mesh of %d dimensions", count,
                           w->shape.ndim);
    w->over = weft_group_world(groups[0]);
    return w->over ? check_wish(w, names) : weft_last_status();
}

/* Each group must be this rank's line along its dimension. */
static weft_status take_groups(weft_mesh *mesh, weft_group *const *groups)
{
    if (!weft_mesh_contains(mesh))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "rank %d is in the groups but not in the mesh",
                           weft_mesh_rank(mesh));
    for (int dim = 0; dim < mesh->ndim; dim++) {
        const weft_group *group = groups[dim];
        bool fits = group->size == mesh->dim[dim].size;
        int start = mesh->root->position - mesh->dim[dim].step[mesh->dim[dim].at];
        for (int i = 0; fits && i < group->size; i++)
            fits = group->members[i] == mesh->root->ranks[start + mesh->dim[dim].step[i]];
        if (!fits)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "group \"%s\" is not this rank's line along dimension %d of the "
                               "mesh",
                               group->name, dim);
        mesh->dim[dim].group = weft_i_object_hold(groups[dim]);
    }
    return WEFT_OK;
}

/* The mesh is the same along every line, so it is the same everywhere. */
static weft_status compare_along(weft_mesh *mesh, int dim)
{
    weft_group *group = mesh->dim[dim].group;
    note mine = note_of(mesh);
    note *all = WEFT_OS->alloc((size_t)group->size * sizeof *all);
    if (!all) {
        weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to compare a mesh among %d ranks", group->size);
        show_failure(group, "mesh_from");
        return WEFT_ERR_NO_MEMORY;
    }
    weft_status status =
        weft_i_group_exchange(group, "mesh_from", &mine, sizeof mine, all, WEFT_DEFAULT);
    if (status == WEFT_OK)
        status = compare(group, all);
    WEFT_OS->free(all);
    return status;
}

weft_mesh *weft_mesh_from_groups(weft_group *const *groups, int count, weft_device device,
                                 weft_shape shape, const int *ranks, const char *names)
{
    wish w = {.device = device, .shape = shape, .ranks = ranks};
    if (check_groups(groups, count, &w, names) < 0)
        return NULL;
    weft_mesh *mesh = new_mesh(&w);
    if (!mesh)
        return NULL;
    weft_status status = take_groups(mesh, groups);
    for (int dim = 0; dim < mesh->ndim && status == WEFT_OK; dim++)
        status = compare_along(mesh, dim);
    if (status < 0) {
        weft_release(mesh);
        return NULL;
    }
    return mesh;
}
