/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to name a group without holding a handle to it.  A weft_ranks describes a set of ranks in
 * one of six ways.  It is a plain value that owns nothing; it points to what the caller passed in.
 *
 *     weft_ranks_list(list, 4)          world ranks
 *     weft_ranks_rows(lists, 2)         several groups of equal size; each rank means its own
 *     weft_ranks_group(group)           a group
 *     weft_ranks_mesh(mesh)             the only dimension of a 1-d mesh
 *     weft_ranks_mesh_dim(mesh, 1)      one dimension of a mesh
 *     weft_ranks_name("0/0-3")          the name of a group
 *
 *     weft_group *tp = weft_group_of(world, weft_ranks_mesh(mesh), "");
 *     weft_tensor *y = weft_all_reduce(x, WEFT_SUM, tp);
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

/* Use the functions below to make one.  Do not set the fields yourself. */
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

/* What a weft_ranks stands for: a tag, world ranks, and how many of these ranks form one group. */
typedef struct weft_expansion {
    char tag[WEFT_TAG_BYTES];
    int *ranks; /* owned; weft_expansion_clear frees it */
    int count;
    int size;
} weft_expansion;

/*
 * Expands `what`.  A tag that is not empty overrides the tag of a group or mesh; an empty one
 * leaves it as it is.  `any` is any group of the job; it may be NULL unless `what` is a name.
 * Local; never blocks.  It is an error if `what` is empty, a list is empty, rows differ in length,
 * a mesh has several dimensions or does not contain this rank, or a dimension or name does not
 * exist.
 */
WEFT_API weft_status weft_ranks_expand(weft_group *any, weft_ranks what, const char *tag,
                                       weft_expansion *out);
WEFT_API void weft_expansion_clear(weft_expansion *expansion);

/*
 * Returns the group that `what` means on this rank: the given group, the mesh's, the named one, or,
 * for lists, the one found by tag and ranks (weft_group_find).  It never makes a group.  On failure
 * it returns NULL with one of the errors above, or with WEFT_ERR_NOT_FOUND.  A NULL inside `what`
 * gives NULL.  Local; never blocks.  The group still belongs to its owner.
 */
WEFT_API weft_group *weft_group_of(weft_group *any, weft_ranks what, const char *tag);

#ifdef __cplusplus
}
#endif

#endif
