/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device meshes: world ranks arranged in up to 8 dimensions.  Every rank has one group along each
 * dimension.  In the mesh [[0, 1], [2, 3]] with dimensions dp and tp, the groups of rank 2 are {0,
 * 2} along dp and {2, 3} along tp.  A mesh belongs to the scope that was current when it was made,
 * like other objects, and holds its groups.  Slices share the groups of their mesh.
 *
 * The names of the dimensions are one string with commas: "dp,tp".  Ranks outside a mesh get a
 * handle too.  It has the shape, but no groups and no coordinates.
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

/* As a dimension: the only one.  It is an error if the mesh has several. */
#define WEFT_MESH_ONLY (-1)

/*
 * Arranges the first ranks of `over` in row-major order.  `device` says what the ranks compute on:
 * WEFT_CPU, or WEFT_CUDA(0) for GPUs, one per rank.  `names` may be NULL.  Collective over `over`;
 * blocks.  If the ranks describe different meshes, all get WEFT_ERR_MISMATCH.  WEFT_ERR_INVALID_ARG
 * if the shape is empty or has more entries than there are ranks; if the names are empty, too long
 * (more than 31 characters), not distinct, or not as many as the dimensions; or if the device has
 * an index.
 */
WEFT_API weft_mesh *weft_mesh_init(weft_group *over, weft_device device, weft_shape shape,
                                   const char *names);

/* The same with given world ranks in row-major order.  All of them must be in `over`, and none may
 * appear twice. */
WEFT_API weft_mesh *weft_mesh_new(weft_group *over, weft_device device, weft_shape shape,
                                  const int *ranks, const char *names);

/*
 * A mesh of existing groups; makes none.  With one group, the mesh has one dimension with the ranks
 * of the group.  `ranks` may then be NULL and `shape` is not read; if given, `ranks` must be those
 * of the group and `shape` must have one dimension.  With several groups, there is one for each
 * dimension, and ranks and names are required; each group must be this rank's line of the mesh.
 * Collective over the groups, whose members must describe the same mesh.
 */
WEFT_API weft_mesh *weft_mesh_from_groups(weft_group *const *groups, int count, weft_device device,
                                          weft_shape shape, const int *ranks, const char *names);

/* ---- asking: all local ---- */

WEFT_API int weft_mesh_ndim(const weft_mesh *mesh); /* -1 for NULL */
WEFT_API weft_shape weft_mesh_shape(const weft_mesh *mesh);

/* Returns the number of entries along `dim`, or of the whole mesh for WEFT_MESH_ONLY.  -1 and an
 * error if there is no such dimension. */
WEFT_API int weft_mesh_size(const weft_mesh *mesh, int dim);

/* Returns the world ranks in row-major order, valid as long as the mesh.  Of a slice, those of the
 * part that this rank is in. */
WEFT_API const int *weft_mesh_ranks(const weft_mesh *mesh);

/* Returns the device that this rank computes on: the mesh's device; for GPUs, the index is this
 * rank's position on its host. */
WEFT_API weft_device weft_mesh_device(const weft_mesh *mesh);

/* The name of a dimension, or "" if it has none; and the number of the dimension with a name, or -1
 * and WEFT_ERR_NOT_FOUND if there is none. */
WEFT_API const char *weft_mesh_dim_name(const weft_mesh *mesh, int dim);
WEFT_API int weft_mesh_dim(const weft_mesh *mesh, const char *name);

/* This rank's world rank; whether it is in the mesh; and its coordinates, one per dimension, in
 * `out`.  WEFT_ERR_STATE if it is not in the mesh. */
WEFT_API int weft_mesh_rank(const weft_mesh *mesh);
WEFT_API bool weft_mesh_contains(const weft_mesh *mesh);
WEFT_API weft_status weft_mesh_coordinate(const weft_mesh *mesh, int *out);

/* Returns this rank's position along one dimension, or -1 and an error as for weft_mesh_group. */
WEFT_API int weft_mesh_local_rank(const weft_mesh *mesh, int dim);

/*
 * Returns the group along a dimension, given by number or name.  The whole mesh also knows the
 * names of flattened dimensions.  The mesh owns the group; weft_keep it if you need it for longer.
 * On failure returns NULL: WEFT_ERR_INVALID_ARG for a number out of range, or for WEFT_MESH_ONLY if
 * there are several dimensions; WEFT_ERR_NOT_FOUND for an unknown name; WEFT_ERR_STATE on a rank
 * outside the mesh.
 */
WEFT_API weft_group *weft_mesh_group(weft_mesh *mesh, int dim);
WEFT_API weft_group *weft_mesh_group_named(weft_mesh *mesh, const char *name);

/* Whether two meshes have the same ranks in the same arrangement, the same device and the same
 * names; and a hash, which is the same on all ranks and for equal meshes. */
WEFT_API bool weft_mesh_equal(const weft_mesh *a, const weft_mesh *b);
WEFT_API uint64_t weft_mesh_hash(const weft_mesh *mesh);

/* The mesh as text: "mesh of 2 x 2 on cpu (dp, tp): [[0, 1], [2, 3]]".  The second form works like
 * snprintf. */
WEFT_API weft_status weft_mesh_print(const weft_mesh *mesh, FILE *file);
WEFT_API int weft_mesh_text(const weft_mesh *mesh, char *out, size_t bytes);

/* ---- meshes from a mesh; each returns a new handle ---- */

/*
 * The dimensions "a,b", in the order in which they are named, with their groups.  Makes none.
 * Local.  WEFT_ERR_STATE if the mesh has no names, WEFT_ERR_NOT_FOUND for an unknown name,
 * WEFT_ERR_INVALID_ARG for dimensions that overlap.
 */
WEFT_API weft_mesh *weft_mesh_slice(weft_mesh *mesh, const char *names);

/*
 * All entries as one dimension, in row-major order.  If `name` is NULL, it is the names joined by
 * "_".  Makes a group unless there is one; the call is then collective over the ranks of `mesh`.  A
 * second call returns the same group.  WEFT_ERR_EXISTS if the whole mesh has a dimension of that
 * name, or if other dimensions were flattened under it.
 */
WEFT_API weft_mesh *weft_mesh_flatten(weft_mesh *mesh, const char *name);

/*
 * Splits one dimension into several, with the given sizes and names (NULL if the mesh has none).
 * Makes their groups; collective over the ranks of `mesh`.  WEFT_ERR_INVALID_ARG if the product of
 * the sizes is not the size of the dimension, or if there are not as many names as sizes.
 */
WEFT_API weft_mesh *weft_mesh_unflatten(weft_mesh *mesh, int dim, weft_shape sizes,
                                        const char *names);

/* The dimensions of several slices of one mesh, one after the other.  Local.  WEFT_ERR_INVALID_ARG
 * for slices of different meshes or with dimensions in common. */
WEFT_API weft_mesh *weft_mesh_concatenate(weft_mesh *const *meshes, int count);

/* ---- the thread's current mesh ---- */

enum { WEFT_MAX_MESHES = 16 };

/* Makes a mesh the current one of this thread, until weft_mesh_leave().  Calls nest.  The thread
 * holds the mesh meanwhile. */
WEFT_API weft_status weft_mesh_enter(weft_mesh *mesh);
WEFT_API weft_status weft_mesh_leave(void); /* WEFT_ERR_STATE if none was entered */

/* Returns the innermost mesh that this thread has entered, or NULL and WEFT_ERR_STATE if there is
 * none. */
WEFT_API weft_mesh *weft_mesh_current(void);

#ifdef __cplusplus
}
#endif

#endif
