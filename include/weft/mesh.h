/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device meshes: world ranks arranged in up to 8 dimensions, with one group for each dimension and
 * rank.  In the mesh [[0, 1], [2, 3]] of dimensions dp and tp, rank 2 has {0, 2} along dp and
 * {2, 3} along tp.  A mesh belongs to the scope that was open when it was made, as other objects
 * do, and holds its groups.  Slices share the groups of their mesh.
 *
 * Names of dimensions are given in one text with commas: "dp,tp".  Ranks outside a mesh get one
 * too, with its shape but without groups and coordinates.
 */
#ifndef WEFT_MESH_H
#define WEFT_MESH_H

#include "weft/group.h"
#include "weft/ranks.h"
#include "weft/storage.h"
#include "weft/tensor.h"

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As a dimension: the only one.  Refused where there are several. */
#define WEFT_MESH_ONLY (-1)

/*
 * Arranges the first ranks of `over`, in row-major order.  `device` says what the ranks compute on:
 * WEFT_CPU, or WEFT_CUDA(0) for GPUs, each rank its own.  `names` may be NULL.  Collective over
 * `over`; blocks.  Ranks that give different meshes all get WEFT_ERR_MISMATCH.  Errors:
 * WEFT_ERR_INVALID_ARG for a shape that is empty or has more entries than ranks, names that are
 * not as many as dimensions, empty, too long (31 characters) or not different, or a device with an
 * index.
 */
WEFT_API weft_mesh *weft_mesh_init(weft_group *over, weft_device device, weft_shape shape,
                                   const char *names);

/* The same with given world ranks, all of them in `over` and none twice, in row-major order. */
WEFT_API weft_mesh *weft_mesh_new(weft_group *over, weft_device device, weft_shape shape,
                                  const int *ranks, const char *names);

/*
 * A mesh of groups that exist; makes none.  One group: its ranks in one dimension; `ranks` may be
 * NULL, and must be the group's if not (`shape` is not read then or has one dimension).  Several:
 * one for each dimension, and ranks and names are needed; each group must be this rank's line of
 * the mesh.  Collective over the groups, whose members must give the same mesh.
 */
WEFT_API weft_mesh *weft_mesh_from_groups(weft_group *const *groups, int count, weft_device device,
                                          weft_shape shape, const int *ranks, const char *names);

/* ---- asking: all local ---- */

WEFT_API int weft_mesh_ndim(const weft_mesh *mesh); /* -1 for NULL */
WEFT_API weft_shape weft_mesh_shape(const weft_mesh *mesh);

/* Entries along `dim`; WEFT_MESH_ONLY: of the whole mesh.  -1 and an error for a dimension that is
 * not there. */
WEFT_API int weft_mesh_size(const weft_mesh *mesh, int dim);

/* World ranks in row-major order, valid as long as the mesh; of a slice, the one that this rank is
 * in. */
WEFT_API const int *weft_mesh_ranks(const weft_mesh *mesh);

/* Where this rank computes: the mesh's device, for GPUs with this rank's place on its host. */
WEFT_API weft_device weft_mesh_device(const weft_mesh *mesh);

/* Name of a dimension, "" if it has none; and its number, -1 and WEFT_ERR_NOT_FOUND for a name that
 * is not there. */
WEFT_API const char *weft_mesh_dim_name(const weft_mesh *mesh, int dim);
WEFT_API int weft_mesh_dim(const weft_mesh *mesh, const char *name);

/* This rank's world rank; whether it is in the mesh; and where: one number for each dimension into
 * `out`.  WEFT_ERR_STATE if it is not. */
WEFT_API int weft_mesh_rank(const weft_mesh *mesh);
WEFT_API bool weft_mesh_contains(const weft_mesh *mesh);
WEFT_API weft_status weft_mesh_coordinate(const weft_mesh *mesh, int *out);

/* This rank's place along one dimension, or -1 and an error as for weft_mesh_group. */
WEFT_API int weft_mesh_local_rank(const weft_mesh *mesh, int dim);

/*
 * The group along a dimension, by number or name (also that of a flattened one, at the whole mesh).
 * It stays the mesh's; weft_keep it to have it longer.  NULL and WEFT_ERR_INVALID_ARG for a number
 * that is not there or WEFT_MESH_ONLY where there are several, WEFT_ERR_NOT_FOUND for a name,
 * WEFT_ERR_STATE on a rank outside the mesh.
 */
WEFT_API weft_group *weft_mesh_group(weft_mesh *mesh, int dim);
WEFT_API weft_group *weft_mesh_group_named(weft_mesh *mesh, const char *name);

/* Same ranks in the same arrangement, device and names?  And a number that is equal for equal
 * meshes, on all ranks. */
WEFT_API bool weft_mesh_equal(const weft_mesh *a, const weft_mesh *b);
WEFT_API uint64_t weft_mesh_hash(const weft_mesh *mesh);

/* "mesh of 2 x 2 on cpu (dp, tp): [[0, 1], [2, 3]]"; the second as snprintf does. */
WEFT_API weft_status weft_mesh_print(const weft_mesh *mesh, FILE *file);
WEFT_API int weft_mesh_text(const weft_mesh *mesh, char *out, size_t bytes);

/* ---- meshes from a mesh; each returns a new handle ---- */

/*
 * The dimensions "a,b" in the order in which they are named, with their groups; makes none.  Local.
 * WEFT_ERR_STATE for a mesh without names, WEFT_ERR_NOT_FOUND for a name that is not there,
 * WEFT_ERR_INVALID_ARG for dimensions that overlap.
 */
WEFT_API weft_mesh *weft_mesh_slice(weft_mesh *mesh, const char *names);

/*
 * One dimension of all entries, in row-major order; NULL name: the names joined by "_".  Makes a
 * group unless there is one: collective over the ranks of `mesh` then.  Done again it gives the
 * same group.  WEFT_ERR_EXISTS if the whole mesh has a dimension of that name, or one was flattened
 * to it otherwise.
 */
WEFT_API weft_mesh *weft_mesh_flatten(weft_mesh *mesh, const char *name);

/*
 * One dimension made several, of the given sizes and names (NULL if the mesh has none).  Makes
 * their groups: collective over the ranks of `mesh`.  WEFT_ERR_INVALID_ARG for sizes whose product
 * is not the dimension's, and names that are not as many as sizes.
 */
WEFT_API weft_mesh *weft_mesh_unflatten(weft_mesh *mesh, int dim, weft_shape sizes,
                                        const char *names);

/* The dimensions of several slices of one mesh, one after the other.  Local.  WEFT_ERR_INVALID_ARG
 * for slices of different meshes or with dimensions in common. */
WEFT_API weft_mesh *weft_mesh_concatenate(weft_mesh *const *meshes, int count);

/* ---- the thread's current mesh ---- */

enum { WEFT_MAX_MESHES = 16 };

/* Makes a mesh the current one of this thread until weft_mesh_leave(); nests.  Holds it. */
WEFT_API weft_status weft_mesh_enter(weft_mesh *mesh);
WEFT_API weft_status weft_mesh_leave(void); /* WEFT_ERR_STATE if none was entered */

/* The innermost mesh this thread has entered; NULL and WEFT_ERR_STATE if there is none. */
WEFT_API weft_mesh *weft_mesh_current(void);

#ifdef __cplusplus
}
#endif

#endif
