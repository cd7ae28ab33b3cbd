/* SPDX-License-Identifier: Apache-2.0 */
/* The public questions about a tensor: its shape, its memory, single elements, and its version
 * counter. */
#include "base/os.h"
#include "kernels/convert.h"
#include "tensor/tensor.h"

#include <math.h>

/* An earlier call failed, or the caller made a mistake; only the latter is a new error. */
static bool is_null(const char *what, const void *pointer)
{
    if (!pointer && weft_last_status() >= 0)
        weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the tensor is NULL", what);
    return !pointer;
}

weft_dtype weft_tensor_dtype(const weft_tensor *x)
{
    return is_null(__func__, x) ? (weft_dtype)-1 : x->dtype;
}

weft_device weft_tensor_device(const weft_tensor *x)
{
    return is_null(__func__, x) ? WEFT_CPU : weft_i_tensor_device(x);
}

weft_shape weft_tensor_shape(const weft_tensor *x)
{
    return is_null(__func__, x) ? (weft_shape){0, {0}} : weft_i_tensor_shape(x);
}

int weft_tensor_ndim(const weft_tensor *x)
{
    return is_null(__func__, x) ? 0 : x->ndim;
}

int64_t weft_tensor_size(const weft_tensor *x, int dim)
{
    int at = is_null(__func__, x) ? -1 : weft_i_dim_wrap(__func__, dim, x->ndim);
    return at < 0 ? 0 : x->dim[at];
}

int64_t weft_tensor_stride(const weft_tensor *x, int dim)
{
    int at = is_null(__func__, x) ? -1 : weft_i_dim_wrap(__func__, dim, x->ndim);
    return at < 0 ? 0 : x->stride[at];
}

int64_t weft_tensor_offset(const weft_tensor *x)
{
    return is_null(__func__, x) ? 0 : x->offset;
}

int64_t weft_tensor_numel(const weft_tensor *x)
{
    return is_null(__func__, x) ? 0 : weft_i_tensor_numel(x);
}

size_t weft_tensor_bytes(const weft_tensor *x)
{
    return is_null(__func__, x) ? 0 : (size_t)weft_i_tensor_numel(x) * weft_dtype_size(x->dtype);
}

bool weft_tensor_is_contiguous(const weft_tensor *x)
{
    return !is_null(__func__, x) && weft_i_tensor_is_contiguous(x);
}

weft_storage *weft_tensor_storage(const weft_tensor *x)
{
    return is_null(__func__, x) ? NULL : x->storage;
}

static weft_status check_readable(const char *what, const weft_tensor *x)
{
    if (weft_i_tensor_device(x) == WEFT_META)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: a meta tensor has no data", what);
    return weft_i_tensor_check_fits(what, x);
}

void *weft_tensor_data(const weft_tensor *x)
{
    if (is_null(__func__, x) || weft_i_tensor_numel(x) == 0 || check_readable(__func__, x) < 0 ||
        weft_i_storage_ready(x->storage, true) < 0) /* the caller may write */
        return NULL;
    return weft_i_tensor_data(x);
}

/* The address of element `index` in row-major order; NULL and an error if it cannot be read. */
static const char *element(const char *what, const weft_tensor *x, int64_t index)
{
    if (is_null(what, x))
        return NULL;
    char text[WEFT_I_SHAPE_TEXT];
    if (index < 0 || index >= weft_i_tensor_numel(x))
        return weft_i_null(WEFT_ERR_INVALID_ARG, "%s: no element %lld in a tensor of shape %s",
                           what, (long long)index, weft_i_shape_text(weft_i_tensor_shape(x), text));
    if (check_readable(what, x) < 0)
        return NULL;
    if (weft_i_tensor_device(x) != WEFT_CPU)
        return weft_i_null(WEFT_ERR_UNSUPPORTED, "%s: reads elements of CPU tensors only", what);
    int64_t at = 0;
    for (int i = x->ndim - 1; i >= 0; index /= x->dim[i--])
        at += index % x->dim[i] * x->stride[i];
    return weft_i_tensor_data(x) + (size_t)at * weft_dtype_size(x->dtype);
}

double weft_item(const weft_tensor *x, int64_t index)
{
    double value = NAN;
    const char *at = element(__func__, x, index);
    if (at)
        weft_i_convert(WEFT_F64, &value, x->dtype, at, 1);
    return value;
}

int64_t weft_item_int(const weft_tensor *x, int64_t index)
{
    int64_t value = 0;
    const char *at = element(__func__, x, index);
    if (at)
        weft_i_convert(WEFT_I64, &value, x->dtype, at, 1);
    return value;
}

int64_t weft_tensor_version(const weft_tensor *x)
{
    return is_null(__func__, x) ? 0
                                : atomic_load_explicit(&x->version->count, memory_order_relaxed);
}

static weft_status check_all(const char *what, weft_tensor *const *tensors, size_t count)
{
    if (count && is_null(what, tensors))
        return weft_last_status();
    for (size_t i = 0; i < count; i++)
        if (is_null(what, tensors[i]))
            return weft_last_status();
    return WEFT_OK;
}

weft_status weft_tensor_set_version(weft_tensor *const *tensors, const int64_t *versions,
                                    size_t count)
{
    WEFT_TRY(check_all(__func__, tensors, count));
    if (count && !versions)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the versions are NULL", __func__);
    for (size_t i = 0; i < count; i++)
        if (versions[i] < 0)
            return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: version %lld of tensor %zu is negative",
                               __func__, (long long)versions[i], i);
    for (size_t i = 0; i < count; i++)
        atomic_store_explicit(&tensors[i]->version->count, versions[i], memory_order_relaxed);
    return WEFT_OK;
}

/* Holds the counters, not the tensors: `body` may release a tensor or give it another storage. */
weft_status weft_tensor_preserve_version(weft_tensor *const *tensors, size_t count,
                                         weft_status (*body)(void *argument), void *argument)
{
    struct saved {
        weft_i_version *version;
        int64_t count;
    } * saved;
    WEFT_TRY(check_all(__func__, tensors, count));
    if (!body)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the body is NULL", __func__);
    if (count > SIZE_MAX / sizeof *saved || !(saved = WEFT_OS->alloc(count * sizeof *saved)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu versions", __func__, count);
    for (size_t i = 0; i < count; i++) {
        saved[i].version = weft_i_object_hold(tensors[i]->version);
        saved[i].count = weft_tensor_version(tensors[i]);
    }
    weft_status status = body(argument);
    for (size_t i = 0; i < count; i++) {
        atomic_store_explicit(&saved[i].version->count, saved[i].count, memory_order_relaxed);
        weft_i_object_drop(saved[i].version);
    }
    WEFT_OS->free(saved);
    return status;
}
