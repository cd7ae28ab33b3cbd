/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of views, and of writing them. */
#include "grad/rules.h"

#include <string.h>

static weft_status done(const weft_tensor *grad)
{
    return grad ? WEFT_OK : weft_last_status();
}

weft_status weft_i_view_back(weft_i_back *c)
{
    return done(c->grad[0] = weft_reshape(c->g[0], SHAPE(0)));
}

/* Bytes that are read as other floats: only integers may come of them.  This comes before the row's
 * own checks: what is no dtype is for those. */
weft_status weft_i_view_dtype_refuse(const weft_i_op_call *call)
{
    weft_dtype from = call->args[0].tensor->dtype, to = (weft_dtype)call->args[1].integer;
    if (from == to || !weft_i_dtype_valid(to) || weft_i_dtype_kind_of(to) != WEFT_I_KIND_FLOAT)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                       "view_dtype: bytes of %s read as %s have no gradient; detach the tensor "
                       "(weft_detach), or convert it (weft_to_dtype)",
                       weft_dtype_name(from), weft_dtype_name(to));
}

weft_status weft_i_view_dtype_back(weft_i_back *c)
{
    c->grad[0] = c->g[0];
    return WEFT_OK;
}

weft_status weft_i_permute_back(weft_i_back *c)
{
    int back[WEFT_MAX_DIMS], ndim = (int)ARG(1)->count;
    for (int i = 0; i < ndim; i++)
        back[ARG(1)->integers[i] < 0 ? ARG(1)->integers[i] + ndim : ARG(1)->integers[i]] = i;
    return GIVE(0, weft_permute(c->g[0], back));
}

/* ---- parts ---- */

/* g in the place of a part of zeros: of the packed x, or of what looks like it. */
static weft_tensor *in_zeros(const weft_i_back *c, const int64_t *strides, int64_t offset)
{
    weft_tensor *g = c->g[0], *zero = weft_zeros(g->dtype, weft_i_tensor_device(g), WEFT_SCALAR);
    return weft_view_scatter(weft_expand(zero, SHAPE(0)), g, weft_i_tensor_shape(g), strides,
                             offset);
}

static int wrap(int64_t dim, int ndim)
{
    return (int)(dim < 0 ? dim + ndim : dim);
}

weft_status weft_i_slice_back(weft_i_back *c)
{
    weft_shape shape = SHAPE(0);
    int64_t strides[WEFT_MAX_DIMS], start = ARG(2)->integer;
    int dim = wrap(ARG(1)->integer, shape.ndim);
    weft_i_shape_strides(shape, strides);
    start += start < 0 ? shape.dim[dim] : 0;
    int64_t offset = start > 0 && c->g[0]->dim[dim] ? start * strides[dim] : 0;
    if (c->g[0]->dim[dim] > 1) /* else the stride is never used */
        strides[dim] *= ARG(4)->integer;
    return GIVE(0, in_zeros(c, strides, offset));
}

weft_status weft_i_select_back(weft_i_back *c)
{
    weft_shape shape = SHAPE(0);
    int64_t strides[WEFT_MAX_DIMS], index = ARG(2)->integer;
    int dim = wrap(ARG(1)->integer, shape.ndim);
    weft_i_shape_strides(shape, strides);
    int64_t offset = (index < 0 ? index + shape.dim[dim] : index) * strides[dim];
    for (int i = dim; i + 1 < shape.ndim; i++)
        strides[i] = strides[i + 1];
    return GIVE(0, in_zeros(c, strides, offset));
}

/* ---- as_strided ---- */

/* The region of the storage that a view is. */
struct region {
    weft_shape shape;
    int64_t stride[WEFT_MAX_DIMS], offset; /* counted from the first element of x */
};

/* Sums over dimensions that repeat elements, and leaves them out. */
static weft_tensor *fold_repeats(weft_tensor *g, struct region *region)
{
    int dims[WEFT_MAX_DIMS], count = 0, kept = 0;
    for (int i = 0; i < region->shape.ndim; i++) {
        if (region->stride[i] == 0) {
            dims[count++] = i;
            continue;
        }
        region->stride[kept] = region->stride[i];
        region->shape.dim[kept++] = region->shape.dim[i];
    }
    region->shape.ndim = kept;
    return count ? weft_sum(g, dims, count, false) : g;
}

static bool overlaps(const struct region *region)
{
    weft_tensor like = {.ndim = region->shape.ndim};
    memcpy(like.dim, region->shape.dim, sizeof like.dim);
    memcpy(like.stride, region->stride, sizeof like.stride);
    return weft_i_tensor_overlaps_itself(&like);
}

/* How many elements of memory a layout spans. */
static int64_t span(const weft_shape *shape, const int64_t *stride)
{
    int64_t last = 0;
    for (int i = 0; i < shape->ndim; i++)
        last += (shape->dim[i] - 1) * stride[i];
    return last + 1;
}

/* Elements that appear several times get the sum: by their numbers in the memory of x. */
static weft_tensor *scatter(weft_tensor *g, const struct region *region, const weft_i_layout *x)
{
    int64_t room = span(&x->shape, x->stride);
    weft_tensor *numbers = weft_arange(WEFT_I64, x->device, 0, (double)room, 1);
    weft_tensor *index = weft_as_strided(numbers, region->shape, region->stride, region->offset);
    weft_shape flat = WEFT_SHAPE(-1);
    weft_tensor *memory =
        weft_scatter_add(weft_zeros(g ? g->dtype : x->dtype, x->device, WEFT_SHAPE(room)), 0,
                         weft_reshape(index, flat), weft_reshape(g, flat));
    return weft_as_strided(memory, x->shape, x->stride, 0);
}

/* Zeros with the strides of x, in which the region is g. */
static weft_tensor *put(weft_tensor *g, const struct region *region, const weft_i_layout *x)
{
    weft_tensor *zeros = weft_empty_strided(x->dtype, x->device, x->shape, x->stride);
    if (!zeros || weft_fill(zeros, 0) < 0)
        return NULL;
    weft_tensor *part = weft_as_strided(zeros, region->shape, region->stride, region->offset);
    return part && weft_copy(part, g) >= 0 ? zeros : NULL;
}

static bool is_packed(const weft_i_layout *x)
{
    int64_t step = 1;
    for (int i = x->shape.ndim - 1; i >= 0; i--) {
        if (x->shape.dim[i] != 1 && x->stride[i] != step)
            return false;
        step *= x->shape.dim[i];
    }
    return true;
}

static weft_status refuse_overlap(void)
{
    return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                       "as_strided: the tensor has elements that share memory (an expanded view?), "
                       "so that its gradient is not defined; use a clone of it");
}

weft_status weft_i_as_strided_back(weft_i_back *c)
{
    weft_i_layout x;
    struct region region = {{(int)ARG(1)->count, {0}}, {0}, 0}, whole = {0};
    weft_i_back_layout(c, 0, &x);
    memcpy(region.shape.dim, ARG(1)->integers, ARG(1)->count * sizeof *region.shape.dim);
    memcpy(region.stride, ARG(2)->integers, ARG(2)->count * sizeof *region.stride);
    region.offset = ARG(3)->integer - x.offset;
    whole.shape = x.shape;
    memcpy(whole.stride, x.stride, sizeof whole.stride);
    if (overlaps(&whole))
        return refuse_overlap();
    weft_tensor *g = fold_repeats(c->g[0], &region);
    if (overlaps(&region))
        return done(c->grad[0] = scatter(g, &region, &x));
    if (!is_packed(&x))
        return done(c->grad[0] = put(g, &region, &x));
    return done(c->grad[0] = weft_view_scatter(weft_zeros(x.dtype, x.device, x.shape), g,
                                               region.shape, region.stride, region.offset));
}

/* ---- a region replaced ---- */

weft_status weft_i_view_scatter_back(weft_i_back *c)
{
    weft_i_layout source;
    weft_shape shape = {(int)ARG(2)->count, {0}};
    memcpy(shape.dim, ARG(2)->integers, ARG(2)->count * sizeof *shape.dim);
    weft_i_back_result_layout(c, 0, &source);
    if (NEEDS(0)) {
        weft_tensor *zeros = weft_zeros(source.dtype, source.device, shape);
        WEFT_TRY(done(c->grad[0] = weft_view_scatter(c->g[0], zeros, shape, ARG(3)->integers,
                                                     ARG(4)->integer)));
    }
    if (!NEEDS(1))
        return WEFT_OK;
    weft_tensor *g = weft_contiguous(c->g[0]);
    return done(c->grad[1] =
                    !g ? NULL
                       : weft_as_strided(g, shape, ARG(3)->integers, g->offset + ARG(4)->integer));
}
