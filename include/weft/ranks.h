/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Naming a group without holding it.  A weft_ranks says "these ranks" in one of six ways; it is a
 * plain value that owns nothing and points to what the caller gave.
 *
 *     weft_ranks_list(list, 4)          world ranks
 *     weft_ranks_rows(lists, 2)         several groups of one size; each rank means its own
 *     weft_ranks_group(group)           a group
 *     weft_ranks_mesh(mesh)             the only dimension of a 1-d mesh
 *     weft_ranks_mesh_dim(mesh, 1)      one dimension of a mesh
 *     weft_ranks_name("0/0-3")          a group's name
 *
 *     weft_tensor *y = weft_all_reduce(x, WEFT_SUM, weft_group_of(world, weft_ranks_mesh(mesh),
 * ""));
 */
#ifndef WEFT_RANKS_H
#define WEFT_RANKS_H

#include "weft/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_mesh weft_mesh;

typedef enum weft_ranks_kind {
    WEFT_RANKS_NONE,
    WEFT_RANKS_LIST,
    WEFT_RANKS_ROWS,
    WEFT_RANKS_GROUP,
    WEFT_RANKS_MESH,
    WEFT_RANKS_MESH_DIM,
    WEFT_RANKS_NAME
} weft_ranks_kind;

/* Made by the functions below; the fields are not the caller's to set. */
typedef struct weft_ranks {
    weft_ranks_kind kind;
    weft_rank_list list;
    const weft_rank_list *rows;
    int row_count;
    weft_group *group;
    weft_mesh *mesh;
    int dim;
    const char *name;
} weft_ranks;

WEFT_API weft_ranks weft_ranks_list(const int *ranks, int count);
WEFT_API weft_ranks weft_ranks_rows(const weft_rank_list *rows, int count);
WEFT_API weft_ranks weft_ranks_group(weft_group *group);
WEFT_API weft_ranks weft_ranks_mesh(weft_mesh *mesh);
WEFT_API weft_ranks weft_ranks_mesh_dim(weft_mesh *mesh, int dim);
WEFT_API weft_ranks weft_ranks_name(const char *name);

enum { WEFT_TAG_BYTES = 72 };

/* What a naming stands for: a tag, world ranks, and how many of them make one group. */
typedef struct weft_expansion {
    char tag[WEFT_TAG_BYTES];
    int *ranks; /* owned; weft_expansion_clear frees it */
    int count;
    int size;
} weft_expansion;

/*
 * Expands a naming.  A tag that is not empty overrides that of a group or mesh; an empty one cannot
 * erase it.  `any` is any group of the job and may be NULL except for names.  Local, never blocks.
 * Errors: an empty list, rows of different length, a mesh of several dimensions or one that this
 * rank is not in, a dimension or name that is not there, a naming of nothing.
 */
WEFT_API weft_status weft_ranks_expand(weft_group *any, weft_ranks what, const char *tag,
                                       weft_expansion *out);
WEFT_API void weft_expansion_clear(weft_expansion *expansion);

/*
 * The group that a naming means on this rank: a group, a mesh's, a named one, or for lists the one
 * found by tag and ranks (weft_group_find; never made).  NULL and the errors above, or
 * WEFT_ERR_NOT_FOUND; NULL in `what` passes through.  Local, never blocks; the group stays with its
 * owner.
 */
WEFT_API weft_group *weft_group_of(weft_group *any, weft_ranks what, const char *tag);

#ifdef __cplusplus
}
#endif

#endif
