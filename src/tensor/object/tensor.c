/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: making them over a storage and asking about them.  Invariant of a live tensor: its shape
 * and strides passed weft_i_shape_check, so counts and byte ranges computed from them never
 * overflow.
 */
#include "tensor/object/tensor.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/text.h"
#include "tensor/object/shelf.h"

#include <limits.h>
#include <stdint.h>
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
    weft_i_text text = {out, WEFT_I_SHAPE_TEXT, 0};
    weft_i_text_put(&text, "[");
    for (int i = 0; i < shape.ndim && i < WEFT_MAX_DIMS; i++)
        weft_i_text_put(&text, "%s%lld", i ? ", " : "", (long long)shape.dim[i]);
    weft_i_text_put(&text, "]");
    return out;
}

/* Bytes from the first element to the end of the last; false on overflow. */
static bool extent_fits(const weft_shape *shape, const int64_t *strides, int64_t offset,
                        int64_t size, int64_t *out)
{
    int64_t last = offset, reach = 0;
    for (int i = 0; i < shape->ndim; i++)
        if (shape->dim[i] > 1 && (__builtin_mul_overflow(shape->dim[i] - 1, strides[i], &reach) ||
                                  __builtin_add_overflow(last, reach, &last)))
            return false;
    return !__builtin_add_overflow(last, 1, &last) && !__builtin_mul_overflow(last, size, out);
}

static weft_status refuse_extent(const char *what, weft_dtype dtype, const weft_shape *shape)
{
    char text[WEFT_I_SHAPE_TEXT];
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: a tensor of shape %s of %s has more bytes than can be counted", what,
                       weft_i_shape_text(*shape, text), weft_dtype_name(dtype));
}

static weft_status refuse_shape(const char *what, weft_dtype dtype, const weft_shape *shape,
                                const int64_t *strides)
{
    char text[WEFT_I_SHAPE_TEXT];
    if (!weft_i_dtype_valid(dtype))
        return weft_i_fail(WEFT_ERR_TYPE, "%s: %d is not a dtype", what, dtype);
    if (shape->ndim < 0 || shape->ndim > WEFT_MAX_DIMS)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: %d dimensions; a tensor has 0 to %d", what,
                           shape->ndim, WEFT_MAX_DIMS);
    for (int i = 0; i < shape->ndim; i++)
        if (strides && strides[i] < 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: stride %lld of dimension %d is negative",
                               what, (long long)strides[i], i);
    return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: shape %s has a negative size", what,
                       weft_i_shape_text(*shape, text));
}

/* Of a shape and row-major or other strides; see weft_i_shape_check. */
static weft_status check_layout(const char *what, weft_dtype dtype, const weft_shape *shape,
                                const int64_t *strides, int64_t offset)
{
    if (!weft_i_dtype_valid(dtype) || shape->ndim < 0 || shape->ndim > WEFT_MAX_DIMS)
        return refuse_shape(what, dtype, shape, strides);
    int64_t signs = 0, bytes = (int64_t)weft_i_dtype_size(dtype), count = bytes;
    bool fits = true;
    for (int i = 0; i < shape->ndim; i++) {
        int64_t size = shape->dim[i];
        signs |= size | (strides ? strides[i] : 0);
        /* An empty dimension counts as 1, so that row-major strides are checked too. */
        fits &= !__builtin_mul_overflow(count, size ? size : 1, &count);
    }
    if (signs < 0)
        return refuse_shape(what, dtype, shape, strides);
    if (!fits || (strides && !extent_fits(shape, strides, offset, bytes, &bytes)))
        return refuse_extent(what, dtype, shape);
    return WEFT_OK;
}

weft_status weft_i_shape_check(const char *what, weft_dtype dtype, weft_shape shape,
                               const int64_t *strides)
{
    return check_layout(what, dtype, &shape, strides, 0);
}

static void destroy_version(weft_i_object *object)
{
    weft_i_object_free(object);
}

weft_status weft_i_tensor_refuse_dead(const char *what, const weft_tensor *x)
{
    if (x->head.kind == WEFT_I_RELEASED)
        return weft_i_fail(WEFT_ERR_STATE, "%s: an argument is a tensor that was released", what);
    return weft_i_fail(WEFT_ERR_TYPE, "%s: an argument is not a tensor", what);
}

/* The storage's own counter lives as long as the storage. */
static bool holds_version(const weft_tensor *x)
{
    return x->version != &x->storage->version;
}

void weft_i_tensor_set_storage(weft_tensor *x, weft_storage *storage)
{
    WEFT_ASSERT(storage && x->storage);
    weft_storage *old = x->storage;
    if (!holds_version(x))
        weft_i_object_hold(x->version);
    x->storage = weft_i_object_hold(storage);
    if (!holds_version(x))
        weft_i_object_drop(x->version);
    weft_i_object_drop(old);
}

void weft_i_tensor_take_over(weft_tensor *x, const weft_tensor *source)
{
    weft_i_tensor_set_storage(x, source->storage);
    weft_i_object_drop(x->base); /* no view of that any more */
    x->base = NULL;
    x->ndim = source->ndim;
    x->offset = source->offset;
    memcpy(x->dim, source->dim, sizeof x->dim);
    memcpy(x->stride, source->stride, sizeof x->stride);
    weft_i_tensor_measure(x);
}

WEFT_I_COLD static void let_go_of_others(weft_tensor *tensor)
{
    weft_i_object_drop(tensor->grad);
    weft_i_object_drop(tensor->place);
    weft_i_object_drop(tensor->base);
}

static inline void let_go(weft_tensor *tensor)
{
    /* Most tensors have none of these: one test for all. */
    if ((uintptr_t)tensor->grad | (uintptr_t)tensor->place | (uintptr_t)tensor->base)
        let_go_of_others(tensor);
    if (holds_version(tensor))
        weft_i_object_drop(tensor->version);
    weft_i_object_drop(tensor->storage);
    /* For who uses it still: no check takes it for a tensor, and no quick one for a plain operand. */
    tensor->head.kind = WEFT_I_RELEASED;
    tensor->packed = false;
}

static void destroy_tensor(weft_i_object *object)
{
    let_go((weft_tensor *)object);
    weft_i_object_free(object);
}

/* Of the tensor in a storage's block. */
static void destroy_first(weft_i_object *object)
{
    weft_storage *home = (weft_storage *)(void *)object - 1;
    let_go((weft_tensor *)object);
    WEFT_I_SHELF_OVER(object, sizeof(weft_tensor));
    weft_i_object_drop(&home->version);
}

/* The counter is part of the tensor; it has no kind of its own. */
static weft_i_version *new_version(void)
{
    return weft_i_object_new_unscoped(WEFT_I_TENSOR, sizeof(weft_i_version), destroy_version);
}

void weft_i_tensor_measure(weft_tensor *x)
{
    int64_t step = 1;
    uint64_t last = (uint64_t)x->offset; /* unsigned: of no elements it means nothing */
    bool packed = true;
    for (int i = x->ndim - 1; i >= 0; i--) {
        packed &= x->dim[i] == 1 || x->stride[i] == step;
        last += (uint64_t)(x->dim[i] - 1) * (uint64_t)x->stride[i];
        step *= x->dim[i];
    }
    x->numel = step;
    x->packed = packed || step == 0;
    x->end = step ? (size_t)(last + 1) * weft_i_dtype_size(x->dtype) : 0;
}

static void set_layout(weft_tensor *tensor, weft_dtype dtype, const weft_shape *shape,
                       const int64_t *strides, int64_t offset)
{
    tensor->dtype = dtype;
    tensor->ndim = shape->ndim;
    tensor->offset = offset;
    for (int i = 0; i < shape->ndim; i++) {
        tensor->dim[i] = shape->dim[i];
        tensor->stride[i] = strides[i];
    }
    weft_i_tensor_measure(tensor);
}

/* Row-major; the number and the end of the elements are the caller's to say. */
static void set_packed(weft_tensor *tensor, int ndim, const int64_t *sizes)
{
    int64_t step = 1;
    tensor->ndim = ndim;
    for (int i = ndim - 1; i >= 0; i--) {
        tensor->dim[i] = sizes[i];
        tensor->stride[i] = step;
        step *= sizes[i];
    }
    tensor->packed = true;
}

/* Of what was checked.  A version is made if it is NULL. */
static weft_tensor *new_tensor(weft_storage *storage, weft_i_version *version, weft_dtype dtype,
                               const weft_shape *shape, const int64_t *strides, int64_t offset)
{
    weft_tensor *tensor = weft_i_object_new(WEFT_I_TENSOR, sizeof *tensor, destroy_tensor);
    if (!tensor)
        return NULL;
    tensor->storage = weft_i_object_hold(storage);
    tensor->version = version ? version : new_version();
    if (!tensor->version) {
        tensor->version = &storage->version;
        weft_release(tensor);
        return NULL;
    }
    if (version && holds_version(tensor))
        weft_i_object_hold(version);
    set_layout(tensor, dtype, shape, strides, offset);
    return tensor;
}

/* With a storage in one block; all but the layout. */
static weft_tensor *new_first(weft_device device, size_t bytes)
{
    weft_storage *storage = weft_i_storage_new_result(device, bytes, sizeof(weft_tensor));
    if (!storage)
        return NULL;
    weft_tensor *tensor = (weft_tensor *)(void *)(storage + 1);
    /* Relaxed: nobody else knows the block yet. */
    atomic_store_explicit(&storage->version.head.references, 2, memory_order_relaxed);
    weft_i_object_start(&tensor->head, WEFT_I_TENSOR, destroy_first);
    tensor->storage = storage;
    tensor->version = &storage->version;
    return weft_i_object_scope(tensor);
}

weft_tensor *weft_i_tensor_new_view(weft_storage *storage, weft_i_version *version,
                                    weft_dtype dtype, weft_shape shape, const int64_t *strides,
                                    int64_t offset)
{
    int64_t row_major[WEFT_MAX_DIMS];
    if (!strides && check_layout("tensor", dtype, &shape, NULL, 0) < 0)
        return NULL;
    if (!strides) {
        weft_i_shape_strides(shape, row_major);
        strides = row_major;
    }
    if (offset < 0)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "tensor: offset %lld is negative",
                           (long long)offset);
    if (check_layout("tensor", dtype, &shape, strides, offset) < 0)
        return NULL;
    return new_tensor(storage, version, dtype, &shape, strides, offset);
}

weft_tensor *weft_i_tensor_new_strided(weft_storage *storage, weft_dtype dtype, weft_shape shape,
                                       const int64_t *strides, int64_t offset)
{
    return weft_i_tensor_new_view(storage, NULL, dtype, shape, strides, offset);
}

weft_tensor *weft_i_tensor_new_within(weft_tensor *base, bool fresh_version,
                                      const weft_shape *shape, const int64_t *strides,
                                      int64_t offset)
{
    return new_tensor(base->storage, fresh_version ? NULL : base->version, base->dtype, shape,
                      strides, offset);
}

weft_tensor *weft_i_tensor_new_folded(weft_tensor *base, int ndim, const int64_t *sizes)
{
    weft_tensor *tensor = weft_i_object_new(WEFT_I_TENSOR, sizeof *tensor, destroy_tensor);
    if (!tensor)
        return NULL;
    tensor->storage = weft_i_object_hold(base->storage);
    tensor->version = base->version;
    if (holds_version(tensor))
        weft_i_object_hold(tensor->version);
    tensor->dtype = base->dtype;
    tensor->offset = base->offset;
    set_packed(tensor, ndim, sizes);
    tensor->numel = base->numel;
    tensor->end = base->end;
    weft_i_tensor_link(tensor, base);
    return tensor;
}

weft_tensor *weft_i_tensor_new(weft_dtype dtype, weft_device device, weft_shape shape,
                               const int64_t *strides)
{
    int64_t row_major[WEFT_MAX_DIMS], bytes = 0;
    if (check_layout("tensor", dtype, &shape, strides, 0) < 0)
        return NULL;
    if (!strides) {
        weft_i_shape_strides(shape, row_major);
        strides = row_major;
    }
    if (weft_i_shape_numel(shape))
        extent_fits(&shape, strides, 0, (int64_t)weft_i_dtype_size(dtype), &bytes);
    weft_tensor *tensor = new_first(device, (size_t)bytes);
    if (tensor)
        set_layout(tensor, dtype, &shape, strides, 0);
    return tensor;
}

weft_tensor *weft_i_tensor_new_like(const weft_tensor *x, weft_dtype dtype)
{
    size_t bytes = (size_t)x->numel * weft_i_dtype_size(dtype);
    weft_tensor *tensor = new_first(weft_i_tensor_device(x), bytes);
    if (!tensor)
        return NULL;
    tensor->dtype = dtype;
    set_packed(tensor, x->ndim, x->dim);
    tensor->numel = x->numel;
    tensor->end = bytes;
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
    int64_t size = (int64_t)weft_i_dtype_size(x->dtype);
    *begin = (size_t)(x->offset * size);
    *end = x->numel ? x->end : *begin;
}

bool weft_i_tensor_ranges_meet(const weft_tensor *a, const weft_tensor *b)
{
    size_t begin_a, end_a, begin_b, end_b;
    /* Two storages may wrap the same memory (a symmetric block, an import), so addresses decide,
     * not identity. */
    weft_i_tensor_range(a, &begin_a, &end_a);
    weft_i_tensor_range(b, &begin_b, &end_b);
    if (a->storage != b->storage && (!a->storage->data || !b->storage->data))
        return false; /* no memory: fakes, or on meta */
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
    return a->storage->data ? weft_i_tensor_data(a) == weft_i_tensor_data(b)
                            : a->storage == b->storage && a->offset == b->offset;
}

weft_status weft_i_tensor_refuse(const char *what, const weft_tensor *x)
{
    char text[WEFT_I_SHAPE_TEXT];
    return weft_i_fail(WEFT_ERR_STATE,
                       "%s: a %s tensor of shape %s needs %zu bytes but its storage has %zu; it "
                       "was freed or resized "
                       "(weft_storage_resize)",
                       what, weft_dtype_name(x->dtype),
                       weft_i_shape_text(weft_i_tensor_shape(x), text), x->end, x->storage->bytes);
}

int weft_i_dim_wrap(const char *what, int64_t dim, int ndim)
{
    if (dim >= -ndim && dim < ndim)
        return (int)(dim < 0 ? dim + ndim : dim);
    weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: no dimension %lld in a tensor of %d dimensions", what,
                (long long)dim, ndim);
    return -1;
}
