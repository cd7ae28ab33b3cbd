/* SPDX-License-Identifier: Apache-2.0 */
/* The public questions about a tensor: its shape, its memory, single elements, and its version
 * counter. */
#include "base/os/os.h"
#include "kernels/number/convert.h"
#include "tensor/object/eye.h"
#include "tensor/object/fake.h"
#include "tensor/op/ops.h"

#include <math.h>

static bool is_null(const char *what, const void *pointer)
{
    return !pointer && weft_i_missing("%s: the tensor is NULL", what) < 0;
}

static bool is_none(const char *what, const weft_tensor *x)
{
    return is_null(what, x) || weft_i_tensor_check_live(what, x) < 0;
}

/* Whether there is a tensor to ask; a capture shows its stand-in. */
static bool is_there(const char *what, const weft_tensor **x)
{
    return !is_none(what, *x) && (*x = weft_i_see(*x));
}

weft_dtype weft_tensor_dtype(const weft_tensor *x)
{
    return is_there(__func__, &x) ? x->dtype : (weft_dtype)-1;
}

weft_device weft_tensor_device(const weft_tensor *x)
{
    return is_there(__func__, &x) ? weft_i_tensor_device(x) : WEFT_CPU;
}

weft_shape weft_tensor_shape(const weft_tensor *x)
{
    return is_there(__func__, &x) ? weft_i_tensor_shape(x) : (weft_shape){0, {0}};
}

int weft_tensor_ndim(const weft_tensor *x)
{
    return is_there(__func__, &x) ? x->ndim : 0;
}

int64_t weft_tensor_size(const weft_tensor *x, int dim)
{
    int at = is_there(__func__, &x) ? weft_i_dim_wrap(__func__, dim, x->ndim) : -1;
    return at < 0 ? 0 : x->dim[at];
}

int64_t weft_tensor_stride(const weft_tensor *x, int dim)
{
    int at = is_there(__func__, &x) ? weft_i_dim_wrap(__func__, dim, x->ndim) : -1;
    return at < 0 ? 0 : x->stride[at];
}

int64_t weft_tensor_offset(const weft_tensor *x)
{
    return is_there(__func__, &x) ? x->offset : 0;
}

int64_t weft_tensor_numel(const weft_tensor *x)
{
    return is_there(__func__, &x) ? weft_i_tensor_numel(x) : 0;
}

size_t weft_tensor_bytes(const weft_tensor *x)
{
    return is_there(__func__, &x) ? (size_t)weft_i_tensor_numel(x) * weft_dtype_size(x->dtype) : 0;
}

bool weft_tensor_is_contiguous(const weft_tensor *x)
{
    return is_there(__func__, &x) && weft_i_tensor_is_contiguous(x);
}

weft_storage *weft_tensor_storage(const weft_tensor *x)
{
    return is_there(__func__, &x) ? x->storage : NULL;
}

static weft_status check_readable(const char *what, const weft_tensor *x)
{
    if (weft_i_tensor_device(x) == WEFT_META)
        return weft_i_fail(WEFT_ERR_TYPE, "%s: a meta tensor has no data", what);
    return weft_i_tensor_check_fits(what, x);
}

void *weft_tensor_data(const weft_tensor *x)
{
    if (!is_there(__func__, &x) || weft_i_tensor_numel(x) == 0)
        return NULL;
    if (x->storage->fake && weft_i_tensor_device(x) != WEFT_META) {
        weft_i_fake_no_data(x->storage->fake, __func__);
        return NULL;
    }
    if (check_readable(__func__, x) < 0 ||
        weft_i_storage_ready(x->storage, true) < 0) /* the caller may write */
        return NULL;
    return weft_i_tensor_data(x);
}

/* Element `index` in row-major order, as `dtype`, to `value`; an error if it cannot be read. */
static weft_status element(const char *what, const weft_tensor *x, int64_t index, weft_dtype dtype,
                           void *value)
{
    char text[WEFT_I_SHAPE_TEXT];
    uint64_t raw;
    if (index < 0 || index >= weft_i_tensor_numel(x))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: no element %lld in a tensor of shape %s",
                           what, (long long)index, weft_i_shape_text(weft_i_tensor_shape(x), text));
    WEFT_TRY(check_readable(what, x));
    int64_t at = 0;
    for (int i = x->ndim - 1; i >= 0; index /= x->dim[i--])
        at += index % x->dim[i] * x->stride[i];
    size_t size = weft_dtype_size(x->dtype);
    const char *place = weft_i_tensor_data(x) + (size_t)at * size;
    if (!weft_i_device_is_host(weft_i_tensor_device(x))) {
        WEFT_TRY(weft_i_device_copy(WEFT_CPU, &raw, weft_i_tensor_device(x), place, size));
        place = (const char *)&raw;
    }
    weft_i_convert(dtype, value, x->dtype, place, 1);
    return WEFT_OK;
}

double weft_item(const weft_tensor *x, int64_t index)
{
    double value = NAN;
    if (is_there(__func__, &x))
        element(__func__, x, index, WEFT_F64, &value);
    return value;
}

int64_t weft_item_int(const weft_tensor *x, int64_t index)
{
    int64_t value = 0;
    if (is_there(__func__, &x))
        element(__func__, x, index, WEFT_I64, &value);
    return value;
}

int64_t weft_tensor_version(const weft_tensor *x)
{
    weft_i_eye *eye = weft_i_eye_open;
    int64_t count = 0;
    if (!is_there(__func__, &x))
        return 0;
    if (!eye)
        return atomic_load_explicit(&x->version->count, memory_order_relaxed);
    return eye->read_version(eye, x, &count) < 0 ? 0 : count;
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

weft_status weft_i_version_shape(weft_i_op_call *call)
{
    call->result.dtype = WEFT_I64;
    call->result.device = WEFT_CPU;
    call->result.shape = WEFT_SCALAR;
    return WEFT_OK;
}

weft_status weft_i_version_run(weft_i_op_call *call)
{
    int64_t *out = (int64_t *)(void *)weft_i_tensor_data(call->out);
    if (out) /* not of a fake */
        *out = atomic_load_explicit(&call->args[0].tensor->version->count, memory_order_relaxed);
    return WEFT_OK;
}

static weft_status check_version(int64_t version)
{
    return version >= 0 ? WEFT_OK
                        : weft_i_fail(WEFT_ERR_INVALID_ARG, "set_version: version %lld is negative",
                                      (long long)version);
}

weft_status weft_i_set_version_shape(weft_i_op_call *call)
{
    const weft_i_arg *version = &call->args[1];
    if (version->kind == WEFT_I_ARG_NUMBER)
        return check_version((int64_t)version->number);
    if (version->tensor->dtype != WEFT_I64 || weft_i_tensor_numel(version->tensor) != 1 ||
        weft_i_tensor_device(version->tensor) != WEFT_CPU)
        return weft_i_fail(WEFT_ERR_TYPE, "set_version: a version is one element of i64 on cpu");
    return WEFT_OK;
}

weft_status weft_i_set_version_run(weft_i_op_call *call)
{
    const weft_i_arg *version = &call->args[1];
    int64_t value = (int64_t)version->number;
    if (version->kind == WEFT_I_ARG_TENSOR && call->fake)
        return WEFT_OK; /* nobody knows it */
    if (version->kind == WEFT_I_ARG_TENSOR) {
        WEFT_TRY(weft_i_tensor_check_fits("set_version", version->tensor));
        value = *(const int64_t *)(const void *)weft_i_tensor_data(version->tensor);
    }
    WEFT_TRY(check_version(value));
    atomic_store_explicit(&call->args[0].tensor->version->count, value, memory_order_relaxed);
    return WEFT_OK;
}

weft_tensor *weft_tensor_read_version(weft_tensor *x)
{
    return WEFT_I_APPLY(version, WEFT_I_TENSOR_ARG(x));
}

weft_status weft_tensor_write_version(weft_tensor *x, weft_tensor *version)
{
    return WEFT_I_ACT(set_version, WEFT_I_TENSOR_ARG(x), WEFT_I_TENSOR_ARG(version));
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
        WEFT_TRY(WEFT_I_ACT(set_version, WEFT_I_TENSOR_ARG(tensors[i]),
                            WEFT_I_NUMBER_ARG((double)versions[i])));
    return WEFT_OK;
}

/* A tensor, which `body` may release, and its version before; both held. */
struct preserved {
    weft_tensor *x, *version;
};

static weft_status restore(const struct preserved *saved, size_t count)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < count; i++) {
        weft_status one = WEFT_I_ACT(set_version, WEFT_I_TENSOR_ARG(saved[i].x),
                                     WEFT_I_TENSOR_ARG(saved[i].version));
        status = status < 0 ? status : one;
    }
    return status;
}

/* Made of rows: in a captured program the version is a value like others. */
weft_status weft_tensor_preserve_version(weft_tensor *const *tensors, size_t count,
                                         weft_status (*body)(void *argument), void *argument)
{
    struct preserved *saved;
    WEFT_TRY(check_all(__func__, tensors, count));
    if (!body)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: the body is NULL", __func__);
    if (count > SIZE_MAX / sizeof *saved || !(saved = WEFT_OS->alloc(count * sizeof *saved)))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu versions", __func__, count);
    size_t held = 0;
    for (; held < count; held++) {
        saved[held].version = weft_keep(WEFT_I_APPLY(version, WEFT_I_TENSOR_ARG(tensors[held])));
        if (!saved[held].version)
            break;
        saved[held].x = weft_i_object_hold(tensors[held]);
    }
    weft_status status = held == count ? body(argument) : weft_last_status();
    weft_status restored = held == count ? restore(saved, count) : WEFT_OK;
    for (size_t i = 0; i < held; i++) {
        weft_release(saved[i].version);
        weft_i_object_drop(saved[i].x);
    }
    WEFT_OS->free(saved);
    return status < 0 ? status : restored;
}
