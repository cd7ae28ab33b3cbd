/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a part in a larger tensor, noted on the part. */
#include "weft/shard.h"

#include "base/report/opts.h"
#include "tensor/object/tensor.h"

/* What a part holds. */
typedef struct shard {
    weft_i_object head;
    weft_shard_place place; /* holds its mesh */
} shard;

static void destroy(weft_i_object *object)
{
    weft_i_object_drop(((shard *)object)->place.mesh);
    weft_i_object_free(object);
}

static weft_status refuse(const weft_tensor *part, const weft_shard_place *place, const char *why)
{
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "weft_shard_mark: a part of shape %s in a tensor of shape %s: %s",
                       weft_i_shape_text(weft_i_tensor_shape(part), a),
                       place->full.ndim >= 0 && place->full.ndim <= WEFT_MAX_DIMS
                           ? weft_i_shape_text(place->full, b)
                           : "?",
                       why);
}

static weft_status check_stripes(const weft_tensor *part, const weft_shard_place *place)
{
    if (place->stripes < 0)
        return refuse(part, place, "a negative number of stripes");
    if (place->stripes <= 1)
        return WEFT_OK;
    if (place->stripe_dim < 0 || place->stripe_dim >= part->ndim)
        return refuse(part, place, "there is no such dimension to have stripes");
    int64_t full = place->full.dim[place->stripe_dim], own = part->dim[place->stripe_dim];
    if (full % place->stripes || own % place->stripes)
        return refuse(part, place, "its dimension is no multiple of the stripes");
    return WEFT_OK;
}

/* A stripe lies in its piece of the whole; a part without stripes is one. */
static weft_status check_place(const weft_tensor *part, const weft_shard_place *place)
{
    if (place->full.ndim != part->ndim)
        return refuse(part, place, "they differ in dimensions");
    WEFT_TRY(check_stripes(part, place));
    for (int i = 0; i < part->ndim; i++) {
        int stripes = place->stripes > 1 && i == place->stripe_dim ? place->stripes : 1;
        int64_t full = place->full.dim[i] / stripes, own = part->dim[i] / stripes;
        if (full < 0 || place->offset[i] < 0 || own > full || place->offset[i] > full - own)
            return refuse(part, place, "it does not lie inside");
    }
    return weft_i_shape_check("weft_shard_mark", part->dtype, place->full, NULL);
}

weft_status weft_shard_mark(weft_tensor *part, const weft_shard_place *place)
{
    weft_shard_place own = WEFT_SHARD_PLACE_INIT;
    if (!part)
        return weft_i_missing("weft_shard_mark: the part is NULL");
    WEFT_TRY(weft_i_tensor_check_live("weft_shard_mark", part));
    shard *made = NULL;
    if (place) {
        WEFT_TRY(weft_i_opts_copy(&own, sizeof own, place, "weft_shard_mark"));
        WEFT_TRY(check_place(part, &own));
        if (!(made = weft_i_object_new_unscoped(WEFT_I_SHARD, sizeof *made, destroy)))
            return weft_last_status();
        made->place = own;
        made->place.size = sizeof own;
        weft_i_object_hold(own.mesh);
    }
    weft_i_object_drop(part->place);
    part->place = (weft_i_object *)made;
    return WEFT_OK;
}

bool weft_shard_place_of(const weft_tensor *x, weft_shard_place *out)
{
    weft_shard_place place = WEFT_SHARD_PLACE_INIT;
    bool marked = x && x->head.kind == WEFT_I_TENSOR && x->place;
    if (marked)
        place = ((const shard *)x->place)->place;
    else if (x && x->head.kind == WEFT_I_TENSOR)
        place.full = weft_i_tensor_shape(x);
    if (out)
        *out = place;
    return marked;
}
