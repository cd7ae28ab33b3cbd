/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meshes from a mesh: some of its dimensions, all of them as one, one as several.  They share the
 * root.  Names are free to the caller's order: a dimension is a table of steps, so a slice in
 * another order is as good as any.
 */
#include "fabric/mesh/mesh.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <stdio.h>
#include <string.h>

static weft_mesh *drop(weft_mesh *mesh)
{
    weft_release(mesh);
    return NULL;
}

/* A dimension of the mesh by name, or one that was flattened from the whole mesh. */
static const weft_i_mesh_dim *find(const weft_mesh *mesh, const char *name)
{
    const weft_i_mesh_root *root = mesh->root;
    for (int dim = 0; dim < mesh->ndim; dim++)
        if (!strcmp(mesh->dim[dim].name, name))
            return &mesh->dim[dim];
    for (size_t i = 0; mesh->count == root->count && i < root->flattened_count; i++)
        if (!strcmp(root->flattened[i].name, name))
            return &root->flattened[i];
    weft_mesh_dim(mesh, name); /* has the message */
    return NULL;
}

static weft_status add_copy(weft_mesh *mesh, const weft_i_mesh_dim *dim)
{
    return weft_i_mesh_add(mesh, dim->name, dim->size, dim->step, dim->at, dim->group);
}

static weft_status select_dims(weft_mesh *slice, const weft_mesh *mesh, const char *names)
{
    char name[WEFT_I_DIM_NAME];
    weft_status status = WEFT_OK;
    for (const char *rest = names; weft_i_mesh_next_name(&rest, name, &status);) {
        const weft_i_mesh_dim *dim = find(mesh, name);
        if (!dim)
            return weft_last_status();
        WEFT_TRY(add_copy(slice, dim));
    }
    return status < 0 ? status : weft_i_mesh_complete(slice);
}

weft_mesh *weft_mesh_slice(weft_mesh *mesh, const char *names)
{
    if (weft_i_mesh_given(mesh) < 0)
        return NULL;
    if (!names)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_mesh_slice: the names are NULL");
    if (!*mesh->dim[0].name)
        return weft_i_null(WEFT_ERR_STATE,
                           "weft_mesh_slice: the mesh was made without names of its dimensions");
    weft_mesh *slice = weft_i_mesh_on(mesh->root);
    return slice && select_dims(slice, mesh, names) < 0 ? drop(slice) : slice;
}

/* ---- flattening ---- */

/* The name to flatten to: as given, or all names joined. */
static weft_status name_flat(const weft_mesh *mesh, const char *given, char out[WEFT_I_DIM_NAME])
{
    char joined[WEFT_MAX_DIMS * WEFT_I_DIM_NAME] = "";
    weft_i_text text = {joined, sizeof joined, 0};
    for (int dim = 0; !given && dim < mesh->ndim; dim++) {
        if (!*mesh->dim[dim].name)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "weft_mesh_flatten: a mesh without names needs one");
        weft_i_text_put(&text, "%s%s", dim ? "_" : "", mesh->dim[dim].name);
    }
    const char *name = given ? given : joined;
    if (!*name || strlen(name) >= WEFT_I_DIM_NAME || strchr(name, ','))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "\"%s\" cannot be a mesh dimension's name: it has 1 to %d characters, "
                           "without commas",
                           name, WEFT_I_DIM_NAME - 1);
    snprintf(out, WEFT_I_DIM_NAME, "%s", name);
    return WEFT_OK;
}

/* Steps of all entries in row-major order, and this rank's place among them. */
static void join_steps(const weft_mesh *mesh, weft_i_mesh_dim *flat)
{
    WEFT_ASSERT(flat->size == mesh->count);
    flat->at = 0;
    for (int dim = 0; dim < mesh->ndim; dim++)
        flat->at = flat->at * mesh->dim[dim].size + mesh->dim[dim].at;
    for (int i = 0; i < flat->size; i++) {
        int step = 0;
        for (int dim = mesh->ndim - 1, index = i; dim >= 0; index /= mesh->dim[dim--].size)
            step += mesh->dim[dim].step[index % mesh->dim[dim].size];
        flat->step[i] = step;
    }
}

static bool same_steps(const weft_i_mesh_dim *a, const weft_i_mesh_dim *b)
{
    return a->size == b->size && !memcmp(a->step, b->step, (size_t)a->size * sizeof *a->step);
}

/* Looks among what was flattened before: by name, which must then be the same; `*group` is that of
 * the same entries under whatever name. */
static weft_status find_flattened(const weft_i_mesh_root *root, const weft_i_mesh_dim *flat,
                                  const weft_i_mesh_dim **same, weft_group **group)
{
    for (int dim = 0; dim < WEFT_MAX_DIMS; dim++)
        if (!strcmp(root->names[dim], flat->name))
            return weft_i_fail(WEFT_ERR_EXISTS,
                               "weft_mesh_flatten: the mesh has a dimension \"%s\" already",
                               flat->name);
    for (size_t i = 0; i < root->flattened_count; i++) {
        const weft_i_mesh_dim *old = &root->flattened[i];
        if (!strcmp(old->name, flat->name) && !same_steps(old, flat))
            return weft_i_fail(WEFT_ERR_EXISTS,
                               "weft_mesh_flatten: \"%s\" is already the name of another "
                               "flattened part of the mesh",
                               flat->name);
        if (!strcmp(old->name, flat->name))
            *same = old;
        if (same_steps(old, flat))
            *group = old->group;
    }
    return WEFT_OK;
}

/* Room for one more, taken before anybody is met. */
static weft_status reserve(weft_i_mesh_root *root, int size, int **step)
{
    weft_i_mesh_dim *wider =
        WEFT_OS->resize(root->flattened, (root->flattened_count + 1) * sizeof *wider);
    if (wider)
        root->flattened = wider;
    *step = WEFT_OS->alloc((size_t)size * sizeof **step);
    if (wider && *step)
        return WEFT_OK;
    WEFT_OS->free(*step);
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to flatten a mesh of %d", size);
}

/* Gives the flat mesh its group and remembers both in the root. */
static weft_status settle(weft_mesh *flat, weft_group *have)
{
    WEFT_ASSERT(flat->ndim == 1);
    int *step = NULL;
    weft_i_mesh_root *root = flat->root;
    WEFT_TRY(reserve(root, flat->count, &step));
    weft_status status = weft_mesh_contains(flat) ? weft_i_mesh_give_group(flat, 0, have) : WEFT_OK;
    if (status < 0) {
        WEFT_OS->free(step);
        return status;
    }
    weft_i_mesh_dim *entry = &root->flattened[root->flattened_count++];
    *entry = flat->dim[0];
    entry->step = step;
    memcpy(step, flat->dim[0].step, (size_t)flat->count * sizeof *step);
    weft_i_object_hold(entry->group);
    return WEFT_OK;
}

static weft_status flatten(weft_mesh *flat, const weft_mesh *mesh, const char *name)
{
    weft_i_mesh_root *root = mesh->root;
    const weft_i_mesh_dim *same = NULL;
    weft_group *have = mesh->ndim == 1 ? mesh->dim[0].group : NULL;
    WEFT_TRY(weft_i_mesh_add(flat, name, mesh->count, NULL, 0, NULL));
    join_steps(mesh, &flat->dim[0]);
    WEFT_TRY(weft_i_mesh_complete(flat));
    if (mesh->ndim == 1 && !strcmp(mesh->dim[0].name, name)) { /* is that already */
        flat->dim[0].group = weft_i_object_hold(have);
        return WEFT_OK;
    }
    WEFT_TRY(find_flattened(root, &flat->dim[0], &same, &have));
    if (!same)
        return settle(flat, have);
    flat->dim[0].group = weft_i_object_hold(same->group);
    return WEFT_OK;
}

weft_mesh *weft_mesh_flatten(weft_mesh *mesh, const char *given)
{
    char name[WEFT_I_DIM_NAME];
    if (weft_i_mesh_given(mesh) < 0 || weft_i_group_usable(mesh->root->over) < 0 ||
        name_flat(mesh, given, name) < 0)
        return NULL;
    weft_mesh *flat = weft_i_mesh_on(mesh->root);
    return flat && flatten(flat, mesh, name) < 0 ? drop(flat) : flat;
}

/* ---- unflattening ---- */

typedef struct parts {
    weft_shape sizes;
    char names[WEFT_MAX_DIMS][WEFT_I_DIM_NAME];
} parts;

static weft_status check_parts(const weft_mesh *mesh, int dim, const char *names, parts *p)
{
    WEFT_TRY(weft_i_mesh_given(mesh));
    WEFT_TRY(weft_i_group_usable(mesh->root->over));
    if (dim < 0 || dim >= mesh->ndim)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_mesh_unflatten: dimension %d must be in [0, %d)", dim, mesh->ndim);
    int ndim = p->sizes.ndim;
    if (ndim < 1 || ndim > WEFT_MAX_DIMS || mesh->ndim - 1 + ndim > WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_mesh_unflatten: %d dimensions in place of one of %d; a mesh has "
                           "at most %d",
                           ndim, mesh->ndim, WEFT_MAX_DIMS);
    int64_t product = 1; /* at most the square of the size, which fits */
    for (int i = 0; i < ndim; i++)
        product = p->sizes.dim[i] < 1 || p->sizes.dim[i] > mesh->dim[dim].size ||
                          product > mesh->dim[dim].size
                      ? 0
                      : product * p->sizes.dim[i];
    if (product != mesh->dim[dim].size)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_mesh_unflatten: the product of the sizes must be %d, the size of "
                           "dimension %d",
                           mesh->dim[dim].size, dim);
    if (!names != !*mesh->dim[dim].name)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft_mesh_unflatten: the dimensions need names if and only if the mesh "
                           "has them");
    return weft_i_mesh_read_names(names, ndim, p->names);
}

/* Part number `i` steps as every `inner`-th index of the whole does. */
static weft_status add_part(weft_mesh *mesh, const weft_i_mesh_dim *whole, const parts *p, int i)
{
    int inner = 1, size = (int)p->sizes.dim[i];
    for (int k = i + 1; k < p->sizes.ndim; k++)
        inner *= (int)p->sizes.dim[k];
    WEFT_TRY(weft_i_mesh_add(mesh, p->names[i], size, NULL, whole->at / inner % size, NULL));
    for (int k = 0; k < size; k++)
        mesh->dim[mesh->ndim - 1].step[k] = whole->step[k * inner] - whole->step[0];
    return WEFT_OK;
}

/* Do the parts' steps add up to the whole's?  Not if the whole was flattened from dimensions that
 * are not neighbours and is cut across them. */
static weft_status check_sums(const weft_mesh *mesh, const weft_i_mesh_dim *whole, int dim,
                              const parts *p)
{
    for (int i = 0; i < whole->size; i++) {
        int sum = whole->step[0];
        for (int k = p->sizes.ndim - 1, index = i; k >= 0; index /= (int)p->sizes.dim[k--])
            sum += mesh->dim[dim + k].step[index % (int)p->sizes.dim[k]];
        if (sum != whole->step[i])
            return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                               "weft_mesh_unflatten: dimension \"%s\" was flattened from others "
                               "and cannot be cut across them",
                               whole->name);
    }
    return WEFT_OK;
}

static weft_status unflatten(weft_mesh *made, const weft_mesh *mesh, int dim, const parts *p)
{
    const weft_i_mesh_dim *whole = &mesh->dim[dim];
    for (int i = 0; i < mesh->ndim; i++) {
        if (i != dim)
            WEFT_TRY(add_copy(made, &mesh->dim[i]));
        for (int k = 0; i == dim && k < p->sizes.ndim; k++)
            WEFT_TRY(add_part(made, whole, p, k));
    }
    WEFT_TRY(check_sums(made, whole, dim, p));
    WEFT_TRY(weft_i_mesh_complete(made));
    weft_status first = WEFT_OK; /* the members of the other lines must not wait for us */
    for (int k = dim; weft_mesh_contains(made) && k < dim + p->sizes.ndim; k++) {
        bool whole_line = made->dim[k].size == whole->size;
        weft_status status = weft_i_mesh_give_group(made, k, whole_line ? whole->group : NULL);
        first = first < 0 ? first : status;
    }
    return first;
}

weft_mesh *weft_mesh_unflatten(weft_mesh *mesh, int dim, weft_shape sizes, const char *names)
{
    parts p = {.sizes = sizes};
    if (check_parts(mesh, dim, names, &p) < 0)
        return NULL;
    weft_mesh *made = weft_i_mesh_on(mesh->root);
    return made && unflatten(made, mesh, dim, &p) < 0 ? drop(made) : made;
}

/* ---- joining ---- */

static weft_status add_all(weft_mesh *joined, weft_mesh *const *meshes, int count)
{
    for (int i = 0; i < count; i++)
        for (int dim = 0; dim < meshes[i]->ndim; dim++)
            WEFT_TRY(add_copy(joined, &meshes[i]->dim[dim]));
    return weft_i_mesh_complete(joined);
}

weft_mesh *weft_mesh_concatenate(weft_mesh *const *meshes, int count)
{
    if (!meshes || count < 1)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_mesh_concatenate: no meshes");
    for (int i = 0; i < count; i++) {
        if (weft_i_mesh_given(meshes[i]) < 0)
            return NULL;
        if (meshes[i]->root != meshes[0]->root)
            return weft_i_null(WEFT_ERR_INVALID_ARG,
                               "weft_mesh_concatenate: meshes 0 and %d are not slices of one mesh",
                               i);
    }
    weft_mesh *joined = weft_i_mesh_on(meshes[0]->root);
    return joined && add_all(joined, meshes, count) < 0 ? drop(joined) : joined;
}
