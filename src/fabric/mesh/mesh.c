/* SPDX-License-Identifier: Apache-2.0 */
/* The mesh object: its dimensions, its entries, and what can be asked of it; see mesh.h. */
#include "fabric/mesh/mesh.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"

#include <stdio.h>
#include <string.h>

static void clear_dim(weft_i_mesh_dim *dim)
{
    WEFT_OS->free(dim->step);
    weft_i_object_drop(dim->group);
}

static void destroy(weft_i_object *object)
{
    weft_mesh *mesh = (weft_mesh *)object;
    for (int dim = 0; dim < mesh->ndim; dim++)
        clear_dim(&mesh->dim[dim]);
    WEFT_OS->free(mesh->ranks);
    WEFT_OS->free(mesh->line);
    weft_i_object_drop(mesh->root);
    weft_i_object_free(object);
}

weft_status weft_i_mesh_given(const weft_mesh *mesh)
{
    if (mesh)
        return WEFT_OK;
    return weft_i_missing("the mesh is NULL");
}

weft_mesh *weft_i_mesh_on(weft_i_mesh_root *root)
{
    weft_mesh *mesh = weft_i_object_new(WEFT_I_MESH, sizeof *mesh, destroy);
    if (mesh)
        mesh->root = weft_i_object_hold(root);
    return mesh;
}

weft_status weft_i_mesh_add(weft_mesh *mesh, const char *name, int size, const int *step, int at,
                            weft_group *group)
{
    if (mesh->ndim == WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a mesh has at most %d dimensions", WEFT_MAX_DIMS);
    for (int dim = 0; dim < mesh->ndim; dim++)
        if (*name && !strcmp(mesh->dim[dim].name, name))
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "two dimensions overlap: \"%s\" is there twice", name);
    weft_i_mesh_dim *dim = &mesh->dim[mesh->ndim];
    WEFT_ASSERT(size > 0 && at >= 0 && at < size);
    dim->step = WEFT_OS->alloc((size_t)size * sizeof *dim->step);
    if (!dim->step)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a mesh dimension of %d", size);
    if (step)
        memcpy(dim->step, step, (size_t)size * sizeof *step);
    snprintf(dim->name, sizeof dim->name, "%s", name);
    dim->size = size;
    dim->at = at;
    dim->group = weft_i_object_hold(group);
    mesh->ndim++;
    return WEFT_OK;
}

/* Place in the root's array of entry `index` in row-major order; -1 if there is none. */
static int place_of(const weft_mesh *mesh, int index)
{
    WEFT_ASSERT(index >= 0 && index < mesh->count);
    int64_t place = mesh->base;
    for (int dim = mesh->ndim - 1; dim >= 0; dim--) {
        place += mesh->dim[dim].step[index % mesh->dim[dim].size];
        index /= mesh->dim[dim].size;
    }
    return place >= 0 && place < mesh->root->count ? (int)place : -1;
}

static weft_status fill_ranks(weft_mesh *mesh, unsigned char *used)
{
    for (int i = 0; i < mesh->count; i++) {
        int place = place_of(mesh, i);
        if (place < 0 || used[place])
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "dimensions of the mesh overlap: two of its entries are one");
        used[place] = 1;
        mesh->ranks[i] = mesh->root->ranks[place];
    }
    return WEFT_OK;
}

weft_status weft_i_mesh_complete(weft_mesh *mesh)
{
    WEFT_ASSERT(mesh->ndim > 0 && !mesh->ranks);
    int64_t count = 1, base = mesh->root->position;
    for (int dim = 0; dim < mesh->ndim; dim++) {
        count *= mesh->dim[dim].size;
        base -= mesh->dim[dim].step[mesh->dim[dim].at];
        if (count > mesh->root->count)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "dimensions of the mesh overlap: it has %d entries in all",
                               mesh->root->count);
    }
    mesh->base = mesh->root->position < 0 ? 0 : (int)base;
    mesh->count = (int)count;
    mesh->ranks = WEFT_OS->alloc((size_t)count * sizeof *mesh->ranks);
    mesh->line = WEFT_OS->alloc((size_t)count * sizeof *mesh->line);
    unsigned char *used = WEFT_OS->alloc((size_t)mesh->root->count);
    weft_status status =
        mesh->ranks && mesh->line && used
            ? fill_ranks(mesh, used)
            : weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a mesh of %d ranks", mesh->count);
    WEFT_OS->free(used);
    return status;
}

void weft_i_mesh_line(const weft_mesh *mesh, int dim, int *out)
{
    WEFT_ASSERT(dim >= 0 && dim < mesh->ndim && mesh->root->position >= 0);
    const weft_i_mesh_dim *along = &mesh->dim[dim];
    int start = mesh->root->position - along->step[along->at];
    for (int i = 0; i < along->size; i++)
        out[i] = mesh->root->ranks[start + along->step[i]];
}

/* ---- names ---- */

bool weft_i_mesh_next_name(const char **text, char out[WEFT_I_DIM_NAME], weft_status *status)
{
    if (!*text)
        return false;
    const char *comma = strchr(*text, ',');
    size_t length = comma ? (size_t)(comma - *text) : strlen(*text);
    if (length == 0 || length >= WEFT_I_DIM_NAME) {
        *status = weft_i_fail(WEFT_ERR_INVALID_ARG,
                              "a mesh dimension's name has 1 to %d characters, not %zu (\"%s\")",
                              WEFT_I_DIM_NAME - 1, length, *text);
        return false;
    }
    memcpy(out, *text, length);
    out[length] = 0;
    *text = comma ? comma + 1 : NULL;
    return true;
}

weft_status weft_i_mesh_read_names(const char *text, int count,
                                   char out[WEFT_MAX_DIMS][WEFT_I_DIM_NAME])
{
    char name[WEFT_I_DIM_NAME];
    weft_status status = WEFT_OK;
    int found = 0;
    for (const char *rest = text; weft_i_mesh_next_name(&rest, name, &status); found++) {
        for (int i = 0; i < found && i < count; i++)
            if (!strcmp(out[i], name))
                return weft_i_fail(WEFT_ERR_INVALID_ARG,
                                   "dimensions of a mesh have different names, not \"%s\" twice",
                                   name);
        if (found < count)
            memcpy(out[found], name, sizeof name);
    }
    if (status < 0)
        return status;
    return !text || found == count
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "%d names for %d dimensions of a mesh: \"%s\"",
                             found, count, text);
}

/* ---- asking ---- */

int weft_mesh_ndim(const weft_mesh *mesh)
{
    return mesh ? mesh->ndim : -1;
}

weft_shape weft_mesh_shape(const weft_mesh *mesh)
{
    weft_shape shape = {0};
    for (int dim = 0; mesh && dim < mesh->ndim; dim++)
        shape.dim[shape.ndim++] = mesh->dim[dim].size;
    return shape;
}

/* WEFT_OK and the dimension's number. */
static weft_status find_dim(const weft_mesh *mesh, int dim, int *out)
{
    WEFT_TRY(weft_i_mesh_given(mesh));
    if (dim == WEFT_MESH_ONLY && mesh->ndim != 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "the mesh has %d dimensions: say which one is meant", mesh->ndim);
    if (dim < WEFT_MESH_ONLY || dim >= mesh->ndim)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "dimension %d of a mesh must be in [0, %d)", dim,
                           mesh->ndim);
    *out = dim == WEFT_MESH_ONLY ? 0 : dim;
    return WEFT_OK;
}

int weft_mesh_size(const weft_mesh *mesh, int dim)
{
    int at = 0;
    if (mesh && dim == WEFT_MESH_ONLY)
        return mesh->count;
    return find_dim(mesh, dim, &at) < 0 ? -1 : mesh->dim[at].size;
}

const int *weft_mesh_ranks(const weft_mesh *mesh)
{
    return mesh ? mesh->ranks : NULL;
}

weft_device weft_mesh_device(const weft_mesh *mesh)
{
    if (!mesh || mesh->root->device != WEFT_CUDA(0))
        return mesh ? mesh->root->device : WEFT_CPU;
    return WEFT_CUDA(mesh->root->over->world->local_rank);
}

const char *weft_mesh_dim_name(const weft_mesh *mesh, int dim)
{
    return mesh && dim >= 0 && dim < mesh->ndim ? mesh->dim[dim].name : "";
}

int weft_mesh_dim(const weft_mesh *mesh, const char *name)
{
    if (weft_i_mesh_given(mesh) < 0)
        return -1;
    for (int dim = 0; name && *name && dim < mesh->ndim; dim++)
        if (!strcmp(mesh->dim[dim].name, name))
            return dim;
    char text[256];
    weft_mesh_text(mesh, text, sizeof text);
    weft_i_fail(WEFT_ERR_NOT_FOUND, "there is no dimension \"%s\" in the %s", name ? name : "",
                text);
    return -1;
}

int weft_mesh_rank(const weft_mesh *mesh)
{
    return mesh ? mesh->root->over->world->rank : -1;
}

bool weft_mesh_contains(const weft_mesh *mesh)
{
    return mesh && mesh->root->position >= 0;
}

/* Is this rank, which asks for what only members have, one of them? */
static weft_status check_inside(const weft_mesh *mesh)
{
    char text[256];
    if (weft_mesh_contains(mesh))
        return WEFT_OK;
    weft_mesh_text(mesh, text, sizeof text);
    return weft_i_fail(WEFT_ERR_STATE, "rank %d is not in the %s", weft_mesh_rank(mesh), text);
}

weft_status weft_mesh_coordinate(const weft_mesh *mesh, int *out)
{
    WEFT_TRY(weft_i_mesh_given(mesh));
    WEFT_TRY(check_inside(mesh));
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_mesh_coordinate: nowhere to write to");
    for (int dim = 0; dim < mesh->ndim; dim++)
        out[dim] = mesh->dim[dim].at;
    return WEFT_OK;
}

int weft_mesh_local_rank(const weft_mesh *mesh, int dim)
{
    int at = 0;
    return find_dim(mesh, dim, &at) < 0 || check_inside(mesh) < 0 ? -1 : mesh->dim[at].at;
}

weft_group *weft_mesh_group(weft_mesh *mesh, int dim)
{
    int at = 0;
    return find_dim(mesh, dim, &at) < 0 || check_inside(mesh) < 0 ? NULL : mesh->dim[at].group;
}

weft_group *weft_mesh_group_named(weft_mesh *mesh, const char *name)
{
    if (weft_i_mesh_given(mesh) < 0)
        return NULL;
    const weft_i_mesh_root *root = mesh->root;
    for (size_t i = 0; name && mesh->count == root->count && i < root->flattened_count; i++)
        if (!strcmp(root->flattened[i].name, name))
            return check_inside(mesh) < 0 ? NULL : root->flattened[i].group;
    int dim = weft_mesh_dim(mesh, name);
    return dim < 0 ? NULL : weft_mesh_group(mesh, dim);
}
