/* SPDX-License-Identifier: Apache-2.0 */
/* Namings of groups: what they expand to, and which group they mean; see weft/ranks.h. */
#include "fabric/group/rank_list.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/group.h"
#include "weft/mesh.h"
#include "weft/ranks.h"

#include <stdio.h>
#include <string.h>

weft_ranks weft_ranks_list(const int *ranks, int count)
{
    return (weft_ranks){.kind = WEFT_RANKS_LIST, .list = {ranks, count}};
}

weft_ranks weft_ranks_rows(const weft_rank_list *rows, int count)
{
    return (weft_ranks){.kind = WEFT_RANKS_ROWS, .rows = rows, .row_count = count};
}

weft_ranks weft_ranks_group(weft_group *group)
{
    return (weft_ranks){.kind = WEFT_RANKS_GROUP, .group = group};
}

weft_ranks weft_ranks_mesh(weft_mesh *mesh)
{
    return (weft_ranks){.kind = WEFT_RANKS_MESH, .mesh = mesh};
}

weft_ranks weft_ranks_mesh_dim(weft_mesh *mesh, int dim)
{
    return (weft_ranks){.kind = WEFT_RANKS_MESH_DIM, .mesh = mesh, .dim = dim};
}

weft_ranks weft_ranks_name(const char *name)
{
    return (weft_ranks){.kind = WEFT_RANKS_NAME, .name = name};
}

/* ---- checks ---- */

static weft_status fail_nothing(void)
{
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "these ranks name nothing: make them with one of the weft_ranks_ functions");
}

static weft_status check_rows(const weft_ranks *what)
{
    if (!what->rows || what->row_count < 1)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "the list of rows of ranks is empty");
    for (int i = 0; i < what->row_count; i++) {
        const weft_rank_list *row = &what->rows[i];
        if (!row->ranks || row->count < 1)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "row %d of ranks is empty", i);
        if (row->count != what->rows[0].count)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "group sizes must be identical: row 0 has %d ranks, row %d has %d",
                               what->rows[0].count, i, row->count);
    }
    return WEFT_OK;
}

static weft_status check_list(const weft_rank_list *list)
{
    return list->ranks && list->count > 0
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_INVALID_ARG, "the list of ranks is empty");
}

/* The group of a naming that is not a list; WEFT_OK with NULL for lists. */
static weft_status find_named(weft_group *any, const weft_ranks *what, weft_group **out)
{
    *out = NULL;
    switch (what->kind) {
    case WEFT_RANKS_LIST:
        return check_list(&what->list);
    case WEFT_RANKS_ROWS:
        return check_rows(what);
    case WEFT_RANKS_GROUP:
        *out = what->group;
        return *out ? WEFT_OK : weft_i_missing("the group is NULL");
    case WEFT_RANKS_MESH:
        if (!what->mesh)
            return weft_i_missing("the mesh is NULL");
        if (weft_mesh_ndim(what->mesh) != 1)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "Only 1D mesh is a group: this one has %d dimensions; name one of "
                               "them, or flatten it",
                               weft_mesh_ndim(what->mesh));
        *out = weft_mesh_group(what->mesh, 0);
        return *out ? WEFT_OK : weft_last_status();
    case WEFT_RANKS_MESH_DIM:
        *out = what->mesh ? weft_mesh_group(what->mesh, what->dim) : NULL;
        return *out ? WEFT_OK : weft_i_missing("the mesh is NULL");
    case WEFT_RANKS_NAME:
        *out = weft_group_named(any, what->name);
        return *out ? WEFT_OK : weft_last_status();
    default:
        return fail_nothing();
    }
}

/* ---- expanding ---- */

static weft_status copy_ranks(weft_expansion *out, const weft_rank_list *rows, int count)
{
    WEFT_ASSERT(count > 0 && !out->ranks);
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += (size_t)rows[i].count;
    if (total > INT32_MAX || !(out->ranks = WEFT_OS->alloc(total * sizeof *out->ranks)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a list of %zu ranks", total);
    for (int i = 0; i < count; i++) {
        memcpy(out->ranks + out->count, rows[i].ranks, (size_t)rows[i].count * sizeof *out->ranks);
        out->count += rows[i].count;
    }
    out->size = rows[0].count;
    return WEFT_OK;
}

weft_status weft_ranks_expand(weft_group *any, weft_ranks what, const char *tag,
                              weft_expansion *out)
{
    weft_group *group = NULL;
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_ranks_expand: nowhere to expand to");
    *out = (weft_expansion){{0}, NULL, 0, 0};
    if (tag && strlen(tag) >= WEFT_TAG_BYTES)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a tag has at most %d characters",
                           WEFT_I_GROUP_NAME - 1);
    WEFT_TRY(find_named(any, &what, &group));
    if (group && !group->members)
        return weft_i_fail(
            WEFT_ERR_STATE,
            "weft_ranks_expand: group \"%s\" is a stand-in, whose ranks are not known",
            group->name);
    weft_rank_list own = {group ? group->members : NULL, group ? group->size : 0};
    if (tag && *tag)
        snprintf(out->tag, sizeof out->tag, "%s", tag);
    else if (group)
        snprintf(out->tag, sizeof out->tag, "%s", weft_group_tag(group));
    if (group)
        return copy_ranks(out, &own, 1);
    return what.kind == WEFT_RANKS_ROWS ? copy_ranks(out, what.rows, what.row_count)
                                        : copy_ranks(out, &what.list, 1);
}

void weft_expansion_clear(weft_expansion *expansion)
{
    if (!expansion)
        return;
    WEFT_OS->free(expansion->ranks);
    *expansion = (weft_expansion){{0}, NULL, 0, 0};
}

/* ---- the group that is meant ---- */

/* The row this rank is in. */
static const weft_rank_list *own_row(const weft_group *any, const weft_ranks *what)
{
    for (int i = 0; i < what->row_count; i++)
        for (int k = 0; k < what->rows[i].count; k++)
            if (what->rows[i].ranks[k] == any->world->rank)
                return &what->rows[i];
    return weft_i_null(WEFT_ERR_INVALID_ARG, "rank %d is in none of the %d rows of ranks",
                       any->world->rank, what->row_count);
}

static weft_group *find_listed(weft_group *any, const weft_rank_list *list, const char *tag)
{
    char text[200], stored[WEFT_I_GROUP_TAG];
    if (weft_i_group_store_tag(tag, stored) < 0)
        return NULL;
    weft_i_rank_view view = {NULL, list->ranks, 0, list->count};
    weft_group *group = weft_i_registry_find(&any->world->registry, stored, &view);
    if (group)
        return group;
    weft_i_rank_list_text(list->ranks, list->count, text, sizeof text);
    return weft_i_null(WEFT_ERR_NOT_FOUND,
                       "rank %d is in no group of ranks %s with %s%s; a list names a group, it "
                       "does not make one",
                       any->world->rank, text, *stored ? "tag " : "no tag", *stored ? tag : "");
}

weft_group *weft_group_of(weft_group *any, weft_ranks what, const char *tag)
{
    weft_group *group = NULL;
    bool listed = what.kind == WEFT_RANKS_LIST || what.kind == WEFT_RANKS_ROWS;
    if (listed && weft_i_group_usable(any) < 0)
        return NULL;
    if (find_named(any, &what, &group) < 0)
        return NULL;
    if (!listed)
        return group;
    const weft_rank_list *list = what.kind == WEFT_RANKS_ROWS ? own_row(any, &what) : &what.list;
    return list ? find_listed(any, list, tag) : NULL;
}
