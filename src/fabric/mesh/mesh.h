/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mesh from the inside.  All meshes made from one share its root: the rank array and what was
 * flattened.  A dimension is a table of steps: how far each of its indices lies from index 0 in the
 * root's array.  So an entry's place is the mesh's base plus one step of each dimension, whether a
 * dimension is one of the root's, several of them flattened, or a part of one.
 */
#ifndef WEFT_FABRIC_MESH_H
#define WEFT_FABRIC_MESH_H

#include "fabric/group/group.h"
#include "weft/mesh.h"

enum { WEFT_I_DIM_NAME = 32 };

typedef struct weft_i_mesh_dim {
    char name[WEFT_I_DIM_NAME]; /* "": none */
    int size;
    int at;            /* this rank's index; 0 on a rank outside */
    int *step;         /* owned */
    weft_group *group; /* held; NULL on a rank outside */
} weft_i_mesh_dim;

typedef struct weft_i_mesh_root {
    weft_i_object object;
    weft_group *over; /* held: the group it was made over, parent of its groups */
    weft_device device;
    int *ranks;
    int count;
    int position; /* of this rank among them; -1: outside */
    char names[WEFT_MAX_DIMS][WEFT_I_DIM_NAME];
    weft_i_mesh_dim *flattened;
    size_t flattened_count;
} weft_i_mesh_root;

struct weft_mesh {
    weft_i_object object;
    weft_i_mesh_root *root; /* held */
    int ndim;
    weft_i_mesh_dim dim[WEFT_MAX_DIMS];
    int base;   /* place of its first entry in the root's array */
    int *ranks; /* its entries in row-major order */
    int *line;  /* room for as many */
    int count;
};

/* WEFT_OK, or what is wrong with a NULL. */
weft_status weft_i_mesh_given(const weft_mesh *mesh);

/* A handle on a root, without dimensions. */
weft_mesh *weft_i_mesh_on(weft_i_mesh_root *root);

/* Adds a dimension; its steps are copied, its group held.  NULL step: room for them only. */
weft_status weft_i_mesh_add(weft_mesh *mesh, const char *name, int size, const int *step, int at,
                            weft_group *group);

/* When all dimensions are there: finds base and ranks.  WEFT_ERR_INVALID_ARG if two of them
 * overlap.
 */
weft_status weft_i_mesh_complete(weft_mesh *mesh);

/* This rank's line along a dimension, as world ranks; `out` has room for its size. */
void weft_i_mesh_line(const weft_mesh *mesh, int dim, int *out);

/* Cuts the next name from a text with commas; false at its end.  WEFT_ERR_INVALID_ARG in `*status`
 * for one that is empty or too long. */
bool weft_i_mesh_next_name(const char **text, char out[WEFT_I_DIM_NAME], weft_status *status);

/* Checks that a text has exactly `count` names, all different, and copies them.  NULL: none. */
weft_status weft_i_mesh_read_names(const char *text, int count,
                                   char out[WEFT_MAX_DIMS][WEFT_I_DIM_NAME]);

/*
 * The group of this rank's line along a dimension, given to it: `over` itself if that is the line,
 * `have` if it is not NULL, else a new one.  Collective over the line.
 */
weft_status weft_i_mesh_give_group(weft_mesh *mesh, int dim, weft_group *have);

#endif
