/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements by index: take_along takes them, scatter_add adds to them, view_scatter replaces a strided
 * region.  All indices are checked before the first element is moved; sums are in the order of the
 * index.
 */
#include "base/team/team.h"
#include "kernels/number/convert.h"
#include "tensor/op/loops.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <string.h>

enum { X, DIM, INDEX, SOURCE }; /* positions of the arguments */

/* The index has the dimensions of `other`, none of them larger; `except`: the one that may be. */
static weft_status check_within(const weft_i_op_call *call, const weft_tensor *other, int except)
{
    const weft_tensor *index = call->args[INDEX].tensor;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    bool fits = index->ndim == other->ndim;
    for (int i = 0; fits && i < index->ndim; i++)
        fits = i == except || index->dim[i] <= other->dim[i];
    if (!fits)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: an index of shape %s for a tensor of shape %s", call->op->name,
                           weft_i_shape_text(weft_i_tensor_shape(index), a),
                           weft_i_shape_text(weft_i_tensor_shape(other), b));
    return WEFT_OK;
}

static weft_status check_index(const weft_i_op_call *call, int *dim)
{
    const weft_tensor *x = call->args[X].tensor, *index = call->args[INDEX].tensor;
    if (weft_i_dtype_class(index->dtype) != 1)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: the index is %s, not integers", call->op->name,
                           weft_dtype_name(index->dtype));
    *dim = weft_i_dim_wrap(call->op->name, call->args[DIM].integer, x->ndim ? x->ndim : 1);
    return *dim < 0 ? weft_last_status() : check_within(call, x, *dim);
}

static void take_shape(weft_i_op_call *call, const weft_tensor *like, weft_dtype dtype)
{
    call->result.dtype = dtype;
    call->result.shape = weft_i_tensor_shape(like);
    weft_i_shape_strides(call->result.shape, call->result.stride);
}

weft_status weft_i_take_along_shape(weft_i_op_call *call)
{
    int dim;
    WEFT_TRY(check_index(call, &dim));
    take_shape(call, call->args[INDEX].tensor, call->args[X].tensor->dtype);
    return WEFT_OK;
}

weft_status weft_i_scatter_add_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor, *source = call->args[SOURCE].tensor;
    int dim;
    WEFT_TRY(check_index(call, &dim));
    WEFT_TRY(check_within(call, source, -1));
    if (x->dtype != source->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "scatter_add: %s is to be added to %s",
                           weft_dtype_name(source->dtype), weft_dtype_name(x->dtype));
    take_shape(call, x, x->dtype);
    return WEFT_OK;
}

/* x as packed elements of `dtype`: a copy, or itself with another reference; NULL and an error. */
static weft_tensor *packed(weft_tensor *x, weft_dtype dtype)
{
    if (x->packed && x->dtype == dtype)
        return weft_i_object_hold(x);
    weft_tensor *copy = weft_i_tensor_new(dtype, WEFT_CPU, weft_i_tensor_shape(x), NULL);
    if (copy)
        weft_i_copy_tensor(copy, x);
    return weft_keep(copy);
}

static weft_status check_values(const weft_i_op_call *call, const int64_t *index, int64_t count,
                                int64_t size)
{
    for (int64_t i = 0; i < count; i++)
        if (index[i] < 0 || index[i] >= size)
            return weft_i_fail(WEFT_ERR_INVALID_ARG,
                               "%s: index %lld at %lld; the dimension has %lld elements",
                               call->op->name, (long long)index[i], (long long)i, (long long)size);
    return WEFT_OK;
}

/*
 * Walks the index in row-major order: `indexed` is the place in a tensor of strides `by_index`,
 * whose dimension `dim` the index decides, `plain` the place with the same coordinates in one of
 * strides `straight`.
 */
struct walk {
    const int64_t *values, *by_index, *straight;
    int dim, ndim;
    int64_t size[WEFT_MAX_DIMS], at[WEFT_MAX_DIMS], indexed, plain;
};

static void place(struct walk *walk, int64_t i)
{
    walk->indexed = walk->plain = 0;
    for (int d = 0; d < walk->ndim; d++) {
        walk->indexed += (d == walk->dim ? walk->values[i] : walk->at[d]) * walk->by_index[d];
        walk->plain += walk->at[d] * walk->straight[d];
    }
    for (int d = walk->ndim - 1; d >= 0 && ++walk->at[d] == walk->size[d]; d--)
        walk->at[d] = 0;
}

static struct walk walk_over(const weft_tensor *index, const int64_t *by_index,
                             const int64_t *straight, int dim)
{
    struct walk walk = {.values = (const int64_t *)(const void *)weft_i_tensor_data(index),
                        .by_index = by_index,
                        .straight = straight,
                        .dim = dim,
                        .ndim = index->ndim};
    memcpy(walk.size, index->dim, sizeof walk.size);
    return walk;
}

/* On to element `i` of the index. */
static void seek(struct walk *walk, int64_t i)
{
    for (int d = walk->ndim - 1; d >= 0; d--) {
        walk->at[d] = i % walk->size[d];
        i /= walk->size[d];
    }
}

/* A walk that the team shares; elements [from, to) are a part. */
struct shared {
    struct walk walk;
    int64_t count, grain, parts;
    weft_dtype dtype;
    void *to;
    const void *from;
};

static void bounds(const struct shared *s, int64_t part, int64_t *from, int64_t *to)
{
    *from = weft_i_team_bound_at(s->count, s->grain, s->parts, part);
    *to = weft_i_team_bound_at(s->count, s->grain, s->parts, part + 1);
}

static void take_part(void *state, int64_t part)
{
    const struct shared *s = state;
    struct walk walk = s->walk;
    size_t size = weft_i_dtype_size(s->dtype);
    int64_t from, to;
    bounds(s, part, &from, &to);
    if (from < to)
        seek(&walk, from);
    for (int64_t i = from; i < to; i++) {
        place(&walk, i);
        memcpy((char *)s->to + (size_t)walk.plain * size,
               (const char *)s->from + (size_t)walk.indexed * size, size);
    }
}

/* An element of the index costs about as much as so many bytes. */
enum { WORK = 64, GRAIN = 512 };

static void take_along(const weft_i_op_call *call, const weft_tensor *index, int dim)
{
    const weft_tensor *x = call->args[X].tensor;
    struct shared s = {.walk = walk_over(index, x->stride, call->out->stride, dim),
                       .count = index->numel,
                       .grain = GRAIN,
                       .parts = weft_i_team_parts(index->numel * WORK),
                       .dtype = x->dtype,
                       .to = weft_i_tensor_data(call->out),
                       .from = weft_i_tensor_data(x)};
    weft_i_team_run(s.parts, take_part, &s);
}

static int dim_of(const weft_i_op_call *call)
{
    int ndim = call->args[X].tensor->ndim;
    return ndim ? weft_i_dim_wrap(call->op->name, call->args[DIM].integer, ndim) : 0;
}

weft_status weft_i_take_along_run(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[X].tensor;
    int dim = dim_of(call);
    weft_tensor *index = packed(call->args[INDEX].tensor, WEFT_I64);
    if (!index)
        return weft_last_status();
    weft_status status =
        check_values(call, (const int64_t *)(const void *)weft_i_tensor_data(index), index->numel,
                     x->ndim ? x->dim[dim] : 1);
    if (status >= 0)
        take_along(call, index, dim);
    weft_i_object_drop(index);
    return status;
}

/* Sums of small floats are in f32, so that they round once; integers wrap. */
static weft_dtype compute_of(weft_dtype dtype)
{
    return dtype == WEFT_F64 ? WEFT_F64 : weft_i_dtype_is_float(dtype) ? WEFT_F32 : WEFT_I64;
}

static void add_part(void *state, int64_t part)
{
    const struct shared *s = state;
    struct walk walk = s->walk;
    int64_t from, to;
    bounds(s, part, &from, &to);
    if (from < to)
        seek(&walk, from);
    for (int64_t i = from; i < to; i++) {
        place(&walk, i);
        if (s->dtype == WEFT_F32)
            ((float *)s->to)[walk.indexed] += ((const float *)s->from)[walk.plain];
        else if (s->dtype == WEFT_F64)
            ((double *)s->to)[walk.indexed] += ((const double *)s->from)[walk.plain];
        else
            ((uint64_t *)s->to)[walk.indexed] += ((const uint64_t *)s->from)[walk.plain];
    }
}

/* Parts hold whole entries of the first dimension: unless that is the indexed one, what they add to lies
 * apart. */
static void add_all(weft_tensor *sum, const weft_tensor *index, const weft_tensor *source, int dim)
{
    struct shared s = {.walk = walk_over(index, sum->stride, source->stride, dim),
                       .count = index->numel,
                       .grain = 1,
                       .parts = 1,
                       .dtype = sum->dtype,
                       .to = weft_i_tensor_data(sum),
                       .from = weft_i_tensor_data(source)};
    if (dim && index->numel) {
        s.grain = index->numel / index->dim[0];
        s.parts = weft_i_team_parts(index->numel * WORK);
    }
    weft_i_team_run(s.parts, add_part, &s);
}

weft_status weft_i_scatter_add_run(weft_i_op_call *call)
{
    weft_tensor *x = call->args[X].tensor;
    weft_dtype compute = compute_of(x->dtype);
    weft_tensor *index = packed(call->args[INDEX].tensor, WEFT_I64);
    weft_tensor *source = index ? packed(call->args[SOURCE].tensor, compute) : NULL;
    weft_tensor *sum =
        source ? weft_keep(weft_i_tensor_new(compute, WEFT_CPU, weft_i_tensor_shape(x), NULL))
               : NULL;
    int dim = dim_of(call);
    weft_status status =
        sum ? check_values(call, (const int64_t *)(const void *)weft_i_tensor_data(index),
                           index->numel, x->ndim ? x->dim[dim] : 1)
            : weft_last_status();
    if (status >= 0) {
        weft_i_copy_tensor(sum, x);
        add_all(sum, index, source, dim);
        weft_i_copy_tensor(call->out, sum);
    }
    weft_i_object_drop(index);
    weft_i_object_drop(source);
    weft_i_object_drop(sum);
    return status;
}

/* -- view_scatter: x, source, shape, strides, offset -- */

/* The region, as a view of the packed result. */
static weft_status region_of(const weft_i_op_call *call, weft_tensor *region)
{
    const weft_tensor *x = call->args[0].tensor;
    memset(region, 0, sizeof *region);
    weft_shape shape;
    WEFT_TRY(weft_i_shape_argument(call, 2, &shape));
    if (call->args[3].count != call->args[2].count)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "view_scatter: %zu strides for %zu dimensions",
                           call->args[3].count, call->args[2].count);
    WEFT_TRY(weft_i_shape_check("view_scatter", x->dtype, shape, call->args[3].integers));
    region->dtype = x->dtype;
    region->ndim = shape.ndim;
    for (int i = 0; i < shape.ndim; i++) {
        region->dim[i] = shape.dim[i];
        region->stride[i] = call->args[3].integers[i];
    }
    weft_i_tensor_measure(region);
    int64_t size = (int64_t)weft_i_dtype_size(x->dtype), offset = call->args[4].integer;
    int64_t reach = (int64_t)region->end / size;
    if (offset < 0 || (reach && (reach > x->numel || offset > x->numel - reach)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "view_scatter: offset %lld and %lld elements do not fit %lld elements",
                           (long long)offset, (long long)reach, (long long)x->numel);
    region->offset = reach ? offset : 0; /* nothing lies there, wherever it is */
    weft_i_tensor_measure(region);
    return WEFT_OK;
}

weft_status weft_i_view_scatter_shape(weft_i_op_call *call)
{
    const weft_tensor *x = call->args[0].tensor, *source = call->args[1].tensor;
    weft_tensor region;
    char a[WEFT_I_SHAPE_TEXT], b[WEFT_I_SHAPE_TEXT];
    WEFT_TRY(region_of(call, &region));
    if (source->dtype != x->dtype)
        return weft_i_fail(WEFT_ERR_TYPE, "view_scatter: %s is to replace elements of %s",
                           weft_dtype_name(source->dtype), weft_dtype_name(x->dtype));
    if (!weft_i_shape_equal(weft_i_tensor_shape(source), weft_i_tensor_shape(&region)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "view_scatter: a source of shape %s for a region of shape %s",
                           weft_i_shape_text(weft_i_tensor_shape(source), a),
                           weft_i_shape_text(weft_i_tensor_shape(&region), b));
    if (weft_i_tensor_overlaps_itself(&region))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "view_scatter: several elements of the region share memory");
    take_shape(call, x, x->dtype);
    return WEFT_OK;
}

weft_status weft_i_view_scatter_run(weft_i_op_call *call)
{
    weft_tensor region;
    WEFT_TRY(region_of(call, &region));
    weft_i_copy_tensor(call->out, call->args[0].tensor);
    region.storage = call->out->storage;
    region.offset += call->out->offset;
    weft_i_copy_tensor(&region, call->args[1].tensor);
    return WEFT_OK;
}

#define T(x_) WEFT_I_TENSOR_ARG(x_)

weft_tensor *weft_take_along(weft_tensor *x, int dim, weft_tensor *index)
{
    return WEFT_I_APPLY(take_along, T(x), WEFT_I_INTEGER_ARG(dim), T(index));
}

weft_tensor *weft_scatter_add(weft_tensor *x, int dim, weft_tensor *index, weft_tensor *source)
{
    return WEFT_I_APPLY(scatter_add, T(x), WEFT_I_INTEGER_ARG(dim), T(index), T(source));
}

weft_tensor *weft_view_scatter(weft_tensor *x, weft_tensor *source, weft_shape shape,
                               const int64_t *strides, int64_t offset)
{
    return WEFT_I_APPLY(view_scatter, T(x), T(source), WEFT_I_INTEGERS_ARG(shape.dim, shape.ndim),
                        WEFT_I_INTEGERS_ARG(strides, strides ? shape.ndim : 0),
                        WEFT_I_INTEGER_ARG(offset));
}
