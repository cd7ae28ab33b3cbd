/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shards: a tensor that is one rank's part of a larger one.  A place says which part.  What cuts a
 * tensor writes the place down on the part, and what saves it, loads it or takes its norm can read
 * it there:
 *
 *     weft_shard_place place = WEFT_SHARD_PLACE_INIT;
 *     place.full = WEFT_SHAPE(1024, 768);
 *     place.offset[0] = 256 * rank;
 *     weft_shard_mark(part, &place);
 *
 * A place says nothing to operations: what they make of a part has no place.
 */
#ifndef WEFT_SHARD_H
#define WEFT_SHARD_H

#include "weft/mesh.h"
#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Where a part lies.  Ranks with the same place have copies of the same part.  If `stripes` is above
 * 1, the full dimension `stripe_dim` is that many equal pieces side by side, such as the queries,
 * keys and values of one matrix, and the part has its share of each: piece s of the part begins at
 * offset[stripe_dim] + s * full.dim[stripe_dim] / stripes.
 */
typedef struct weft_shard_place {
    size_t size;                   /* of this struct */
    weft_shape full;               /* of the whole tensor */
    int64_t offset[WEFT_MAX_DIMS]; /* where the part begins in it */
    int stripe_dim, stripes;
    weft_mesh *mesh; /* whose ranks have the other parts; may be NULL */
} weft_shard_place;
#define WEFT_SHARD_PLACE_INIT                                           \
    {                                                                   \
        sizeof(weft_shard_place), {0, {0}}, {0}, 0, 0 /*stripes*/, NULL \
    }

/*
 * Notes the place of a part, and holds its mesh.  NULL forgets it.  If the part does not lie in the
 * full shape, WEFT_ERR_INVALID_ARG, and nothing has changed.  A parameter that weft_parameter makes
 * of a part is another tensor: mark the parameter.
 */
WEFT_API weft_status weft_shard_mark(weft_tensor *part, const weft_shard_place *place);

/* Returns true and the place of a part, with a borrowed mesh; or false, and the place of a whole
 * tensor.  `out` may be NULL. */
WEFT_API bool weft_shard_place_of(const weft_tensor *x, weft_shard_place *out);

#ifdef __cplusplus
}
#endif

#endif
