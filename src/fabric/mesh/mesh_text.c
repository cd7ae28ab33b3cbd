/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes as text and number, and the thread's current mesh. */
#include "fabric/mesh/mesh.h"

#include "base/report/status.h"
#include "base/report/text.h"

#include <string.h>

/* ---- text ---- */

/* Entries from `first` on, which is where an index of dimension `dim` starts. */
static void put_ranks(weft_i_text *p, const weft_mesh *mesh, int dim, int first)
{
    int inner = 1;
    for (int k = dim + 1; k < mesh->ndim; k++)
        inner *= mesh->dim[k].size;
    weft_i_text_put(p, "[");
    for (int i = 0; i < mesh->dim[dim].size; i++) {
        weft_i_text_put(p, "%s", i ? ", " : "");
        if (dim + 1 < mesh->ndim)
            put_ranks(p, mesh, dim + 1, first + i * inner);
        else
            weft_i_text_put(p, "%d", mesh->ranks[first + i]);
    }
    weft_i_text_put(p, "]");
}

int weft_mesh_text(const weft_mesh *mesh, char *out, size_t bytes)
{
    char device[16];
    weft_i_text p = {out, bytes, 0};
    WEFT_TRY(weft_i_mesh_given(mesh));
    if (bytes && !out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_mesh_text: %zu bytes at NULL", bytes);
    weft_i_text_put(&p, "mesh of ");
    for (int dim = 0; dim < mesh->ndim; dim++)
        weft_i_text_put(&p, "%s%d", dim ? " x " : "", mesh->dim[dim].size);
    weft_i_text_put(&p, " on %.*s", (int)strcspn(weft_device_name(mesh->root->device, device), ":"),
                    device);
    for (int dim = 0; *mesh->dim[0].name && dim < mesh->ndim; dim++)
        weft_i_text_put(&p, "%s%s%s", dim ? ", " : " (", mesh->dim[dim].name,
                        dim + 1 == mesh->ndim ? ")" : "");
    weft_i_text_put(&p, ": ");
    put_ranks(&p, mesh, 0, 0);
    return (int)p.used;
}

static void print_ranks(FILE *file, const weft_mesh *mesh, int dim, int first)
{
    char text[16];
    int inner = 1;
    for (int k = dim + 1; k < mesh->ndim; k++)
        inner *= mesh->dim[k].size;
    fputs("[", file);
    for (int i = 0; i < mesh->dim[dim].size; i++) {
        snprintf(text, sizeof text, "%s%d", i ? ", " : "", mesh->ranks[first + i * inner]);
        if (dim + 1 == mesh->ndim) {
            fputs(text, file);
            continue;
        }
        fputs(i ? ", " : "", file);
        print_ranks(file, mesh, dim + 1, first + i * inner);
    }
    fputs("]", file);
}

weft_status weft_mesh_print(const weft_mesh *mesh, FILE *file)
{
    char head[WEFT_MAX_DIMS * (WEFT_I_DIM_NAME + 16) + 64];
    WEFT_TRY(weft_i_mesh_given(mesh));
    if (!file)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_mesh_print: the file is NULL");
    weft_mesh_text(mesh, head, sizeof head);
    char *ranks = strstr(head, ": [");
    if (ranks)
        ranks[2] = 0;
    fputs(head, file);
    print_ranks(file, mesh, 0, 0);
    fputs("\n", file);
    return ferror(file) ? weft_i_fail(WEFT_ERR_IO, "weft_mesh_print: cannot write") : WEFT_OK;
}

/* ---- equality ---- */

bool weft_mesh_equal(const weft_mesh *a, const weft_mesh *b)
{
    if (a == b || !a || !b)
        return a == b;
    if (a->ndim != b->ndim || a->count != b->count || a->root->device != b->root->device ||
        memcmp(a->ranks, b->ranks, (size_t)a->count * sizeof *a->ranks))
        return false;
    for (int dim = 0; dim < a->ndim; dim++)
        if (a->dim[dim].size != b->dim[dim].size || strcmp(a->dim[dim].name, b->dim[dim].name))
            return false;
    return true;
}

uint64_t weft_mesh_hash(const weft_mesh *mesh)
{
    weft_i_key key = {{0, 0}};
    if (!mesh)
        return 0;
    key = weft_i_key_of(key, &mesh->root->device, sizeof mesh->root->device);
    for (int dim = 0; dim < mesh->ndim; dim++) {
        key = weft_i_key_of(key, &mesh->dim[dim].size, sizeof mesh->dim[dim].size);
        key = weft_i_key_of(key, mesh->dim[dim].name, strlen(mesh->dim[dim].name) + 1);
    }
    key = weft_i_key_of(key, mesh->ranks, (size_t)mesh->count * sizeof *mesh->ranks);
    return key.word[0];
}

/* ---- the current mesh ---- */

static _Thread_local weft_mesh *entered[WEFT_MAX_MESHES]; /* each held */
static _Thread_local int depth;

weft_status weft_mesh_enter(weft_mesh *mesh)
{
    WEFT_TRY(weft_i_mesh_given(mesh));
    if (depth == WEFT_MAX_MESHES)
        return weft_i_fail(WEFT_ERR_LIMIT, "weft_mesh_enter: this thread is in %d meshes", depth);
    entered[depth++] = weft_i_object_hold(mesh);
    return WEFT_OK;
}

weft_status weft_mesh_leave(void)
{
    if (depth == 0)
        return weft_i_fail(WEFT_ERR_STATE, "weft_mesh_leave: this thread has entered no mesh");
    weft_i_object_drop(entered[--depth]);
    return WEFT_OK;
}

weft_mesh *weft_mesh_current(void)
{
    if (depth == 0)
        return weft_i_null(WEFT_ERR_STATE, "weft_mesh_current: this thread has entered no mesh");
    return entered[depth - 1];
}
