/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: making them over a storage and asking about them.  Invariant of a live tensor: its shape
 * and strides passed weft_i_shape_check, so counts and byte ranges computed from them never
 * overflow.
 */
#include "tensor/tensor.h"

#include "base/os.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int64_t weft_i_shape_numel(weft_shape shape)
{
    int64_t numel = 1;
    for (int i = 0; i < shape.ndim; i++)
        numel *= shape.dim[i];
    return numel;
}

bool weft_i_shape_equal(weft_shape a, weft_shape b)
{
    return a.ndim == b.ndim && memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof *a.dim) == 0;
}

const char *weft_i_shape_text(weft_shape shape, char out[WEFT_I_SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(out, WEFT_I_SHAPE_TEXT, "[");
    for (int i = 0; i < shape.ndim && i < WEFT_MAX_DIMS; i++)
        used += (size_t)snprintf(out + used, WEFT_I_SHAPE_TEXT - used, "%s%lld", i ? ", " : "",
                                 (long long)shape.dim[i]);
    snprintf(out + used, WEFT_I_SHAPE_TEXT - used, "]");
    return out;
}

void weft_i_shape_strides(weft_shape shape, int64_t *strides)
{
    uint64_t step = 1; /* may wrap round if the shape is still to be checked */
    for (int i = shape.ndim - 1; i >= 0; i--) {
        strides[i] = (int64_t)step;
        step *= shape.dim[i] > 1 ? (uint64_t)shape.dim[i] : 1;
    }
}

/* The product of the sizes, an empty dimension counting as 1 (so that row-major strides are checked
 * too). */
static bool count_fits(weft_shape shape, int64_t size)
{
    int64_t count = size;
    for (int i = 0; i < shape.ndim; i++)
        if (__builtin_mul_overflow(count, shape.dim[i] ? shape.dim[i] : 1, &count))
            return false;
    return true;
}

/* Bytes from the first element to the end of the last; false on overflow. */
static bool extent_fits(weft_shape shape, const int64_t *strides, int64_t offset, int64_t size,
                        int64_t *out)
{
    int64_t last = offset, reach = 0;
    for (int i = 0; i < shape.ndim; i++)
        if (shape.dim[i] > 1 && (__builtin_mul_overflow(shape.dim[i] - 1, strides[i], &reach) ||
                                 __builtin_add_overflow(last, reach, &last)))
            return false;
    return !__builtin_add_overflow(last, 1, &last) && !__builtin_mul_overflow(last, size, out);
}

static weft_status check_extent(const char *what, weft_dtype dtype, weft_shape shape,
                                const int64_t *strides, int64_t offset)
{
    char text[WEFT_I_SHAPE_TEXT];
    int64_t bytes = 0, size = (int64_t)weft_dtype_size(dtype);
    if (!count_fits(shape, size) || (strides && !extent_fits(shape, strides, offset, size, &bytes)))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "%s: a tensor of shape %s of %s has more bytes than can be counted",
                           what, weft_i_shape_text(shape, text), weft_dtype_name(dtype));
    return WEFT_OK;
}

weft_status weft_i_shape_check(const char *what, weft_dtype dtype, weft_shape shape,
                               const int64_t *strides)
{
    char text[WEFT_I_SHAPE_TEXT];
    if (!weft_i_dtype_valid(dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "%s: %d is not a dtype", what, dtype);
    if (shape.ndim < 0 || shape.ndim > WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %d dimensions; a tensor has 0 to %d", what,
                           shape.ndim, WEFT_MAX_DIMS);
    for (int i = 0; i < shape.ndim; i++) {
        if (shape.dim[i] < 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: shape %s has a negative size", what,
                               weft_i_shape_text(shape, text));
        if (strides && strides[i] < 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: stride %lld of dimension %d is negative",
                               what, (long long)strides[i], i);
    }
    return check_extent(what, dtype, shape, strides, 0);
}

static void destroy_version(weft_i_object *object)
{
    weft_i_object_free(object);
}

static void destroy_tensor(weft_i_object *object)
{
    weft_tensor *tensor = (weft_tensor *)object;
    weft_i_object_drop(tensor->storage);
    weft_i_object_drop(tensor->version);
    weft_i_object_free(object);
}

/* The counter is part of the tensor; it has no kind of its own. */
static weft_i_version *new_version(void)
{
    return weft_i_object_new_unscoped(WEFT_I_TENSOR, sizeof(weft_i_version), destroy_version);
}

weft_tensor *weft_i_tensor_new_view(weft_storage *storage, weft_i_version *version,
                                    weft_dtype dtype, weft_shape shape, const int64_t *strides,
                                    int64_t offset)
{
    int64_t row_major[WEFT_MAX_DIMS];
    if (weft_i_shape_check("tensor", dtype, shape, strides) < 0)
        return NULL;
    if (!strides) {
        weft_i_shape_strides(shape, row_major);
        strides = row_major;
    }
    if (offset < 0)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "tensor: offset %lld is negative",
                           (long long)offset);
    if (check_extent("tensor", dtype, shape, strides, offset) < 0)
        return NULL;
    weft_tensor *tensor = weft_i_object_new(WEFT_I_TENSOR, sizeof *tensor, destroy_tensor);
    if (!tensor)
        return NULL;
    tensor->storage = weft_i_object_hold(storage);
    tensor->version = version ? weft_i_object_hold(version) : new_version();
    if (!tensor->version) {
        weft_release(tensor);
        return NULL;
    }
    tensor->dtype = dtype;
    tensor->ndim = shape.ndim;
    tensor->offset = offset;
    memcpy(tensor->dim, shape.dim, (size_t)shape.ndim * sizeof *shape.dim);
    memcpy(tensor->stride, strides, (size_t)shape.ndim * sizeof *strides);
    return tensor;
}

weft_tensor *weft_i_tensor_new_strided(weft_storage *storage, weft_dtype dtype, weft_shape shape,
                                       const int64_t *strides, int64_t offset)
{
    return weft_i_tensor_new_view(storage, NULL, dtype, shape, strides, offset);
}

weft_tensor *weft_i_tensor_new(weft_dtype dtype, weft_device device, weft_shape shape,
                               const int64_t *strides)
{
    int64_t row_major[WEFT_MAX_DIMS], bytes = 0;
    if (weft_i_shape_check("tensor", dtype, shape, strides) < 0)
        return NULL;
    if (!strides) {
        weft_i_shape_strides(shape, row_major);
        strides = row_major;
    }
    if (weft_i_shape_numel(shape))
        extent_fits(shape, strides, 0, (int64_t)weft_dtype_size(dtype), &bytes);
    weft_storage *storage = weft_i_storage_new(device, (size_t)bytes);
    weft_tensor *tensor =
        storage ? weft_i_tensor_new_strided(storage, dtype, shape, strides, 0) : NULL;
    weft_i_object_drop(storage);
    return tensor;
}

/* The dimensions of more than one element, by falling stride; returns how many. */
static int order_by_stride(const weft_tensor *x, int order[WEFT_MAX_DIMS])
{
    int n = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (x->dim[i] == 1)
            continue;
        int at = n++;
        for (; at > 0 && x->stride[order[at - 1]] < x->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

bool weft_i_tensor_is_dense(const weft_tensor *x)
{
    int order[WEFT_MAX_DIMS];
    if (weft_i_tensor_numel(x) == 0)
        return true;
    int64_t step = 1;
    for (int k = order_by_stride(x, order) - 1; k >= 0; k--) {
        if (x->stride[order[k]] != step)
            return false;
        step *= x->dim[order[k]];
    }
    return true;
}

bool weft_i_tensor_overlaps_itself(const weft_tensor *x)
{
    int order[WEFT_MAX_DIMS];
    if (weft_i_tensor_numel(x) == 0)
        return false;
    int64_t reach = 0; /* the largest distance the inner dimensions can make */
    for (int k = order_by_stride(x, order) - 1; k >= 0; k--) {
        if (x->stride[order[k]] <= reach)
            return true;
        reach += (x->dim[order[k]] - 1) * x->stride[order[k]];
    }
    return false;
}

void weft_i_tensor_range(const weft_tensor *x, size_t *begin, size_t *end)
{
    int64_t bytes = 0, size = (int64_t)weft_dtype_size(x->dtype);
    *begin = *end = (size_t)(x->offset * size);
    if (weft_i_tensor_numel(x) &&
        extent_fits(weft_i_tensor_shape(x), x->stride, x->offset, size, &bytes))
        *end = (size_t)bytes;
}

bool weft_i_tensor_ranges_meet(const weft_tensor *a, const weft_tensor *b)
{
    size_t begin_a, end_a, begin_b, end_b;
    /* Two storages may wrap the same memory (a symmetric block, an import), so addresses decide,
     * not identity. */
    weft_i_tensor_range(a, &begin_a, &end_a);
    weft_i_tensor_range(b, &begin_b, &end_b);
    uintptr_t base_a = (uintptr_t)a->storage->data, base_b = (uintptr_t)b->storage->data;
    return begin_a != end_a && begin_b != end_b && base_a + begin_a < base_b + end_b &&
           base_b + begin_b < base_a + end_a;
}

bool weft_i_tensor_same_view(const weft_tensor *a, const weft_tensor *b)
{
    if (a->dtype != b->dtype || !weft_i_shape_equal(weft_i_tensor_shape(a), weft_i_tensor_shape(b)))
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != 1 && a->stride[i] != b->stride[i])
            return false;
    return weft_i_tensor_data(a) == weft_i_tensor_data(b);
}

weft_status weft_i_tensor_check_fits(const char *what, const weft_tensor *x)
{
    size_t begin, end;
    char text[WEFT_I_SHAPE_TEXT];
    WEFT_TRY(weft_i_storage_ready(x->storage, false));
    weft_i_tensor_range(x, &begin, &end);
    if (begin == end || end <= x->storage->bytes)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_STATE,
                       "%s: a %s tensor of shape %s needs %zu bytes but its storage has %zu; it "
                       "was freed or resized "
                       "(weft_storage_resize)",
                       what, weft_dtype_name(x->dtype),
                       weft_i_shape_text(weft_i_tensor_shape(x), text), end, x->storage->bytes);
}

int weft_i_dim_wrap(const char *what, int64_t dim, int ndim)
{
    if (dim >= -ndim && dim < ndim)
        return (int)(dim < 0 ? dim + ndim : dim);
    weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: no dimension %lld in a tensor of %d dimensions", what,
                (long long)dim, ndim);
    return -1;
}
