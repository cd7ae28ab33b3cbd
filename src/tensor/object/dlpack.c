/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLPack in and out.  An export holds the storage, not the tensor, with its own copy of shape and
 * strides; an import is a storage of fixed size whose release calls the producer's deleter.
 */
#include "weft/dlpack.h"

#include "base/os/os.h"
#include "tensor/object/eye.h"
#include "tensor/object/tensor.h"

#include <stddef.h>
#include <string.h>

enum { MAJOR = 1, MINOR = 0 };

/* The codes of DLPack for element types. */
enum { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6, F8E4M3FN = 10, F8E5M2 = 12 };

static const struct {
    uint8_t code, bits;
} types[WEFT_DTYPE_COUNT] = {
    [WEFT_F64] = {FLOAT, 64},   [WEFT_F32] = {FLOAT, 32},      [WEFT_F16] = {FLOAT, 16},
    [WEFT_BF16] = {BFLOAT, 16}, [WEFT_F8E4M3] = {F8E4M3FN, 8}, [WEFT_F8E5M2] = {F8E5M2, 8},
    [WEFT_I8] = {INT, 8},       [WEFT_I16] = {INT, 16},        [WEFT_I32] = {INT, 32},
    [WEFT_I64] = {INT, 64},     [WEFT_U8] = {UINT, 8},         [WEFT_U16] = {UINT, 16},
    [WEFT_U32] = {UINT, 32},    [WEFT_U64] = {UINT, 64},       [WEFT_BOOL] = {BOOL, 8},
};

/* What a description handed out points into. */
struct exported {
    union {
        weft_dlpack plain;
        weft_dlpack_versioned versioned;
    };
    weft_storage *storage;
    int64_t shape[WEFT_MAX_DIMS], strides[WEFT_MAX_DIMS];
};

static void drop_exported(struct exported *exported)
{
    /* Release: the consumer is done with the memory before somebody moves it. */
    atomic_fetch_sub_explicit(&exported->storage->exports, 1, memory_order_release);
    weft_i_object_drop(exported->storage);
    WEFT_OS->free(exported);
}

static void delete_plain(weft_dlpack *self)
{
    drop_exported(self->context);
}

static void delete_versioned(weft_dlpack_versioned *self)
{
    drop_exported(self->context);
}

static weft_status check_export(const weft_tensor *x, bool may_be_read_only)
{
    x = weft_i_see(x);
    if (!x)
        return weft_i_missing("dlpack export: the tensor is NULL");
    if (weft_i_tensor_device(x) == WEFT_META)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "dlpack export: a meta tensor has no memory");
    if (x->storage->read_only && !may_be_read_only)
        return weft_i_fail(
            WEFT_ERR_STATE,
            "dlpack export: the tensor is read-only, which only the versioned form says");
    WEFT_TRY(weft_i_storage_ready(x->storage, true)); /* the consumer may write */
    return weft_i_tensor_check_fits("dlpack export", x);
}

/* DLPack's type of a device; the number of the device is the same. */
static int32_t type_of(weft_device device)
{
    return weft_i_device_kind(device) == WEFT_I_KIND_CUDA ? WEFT_DLPACK_CUDA : WEFT_DLPACK_CPU;
}

static struct exported *new_exported(weft_tensor *x, weft_dlpack_tensor *out)
{
    struct exported *exported = WEFT_OS->alloc(sizeof *exported);
    if (!exported)
        return weft_i_null(WEFT_ERR_NO_MEMORY, "dlpack export: no memory for a description");
    exported->storage = weft_i_object_hold(x->storage);
    /* Relaxed: the exporter's own later calls see it. */
    atomic_fetch_add_explicit(&x->storage->exports, 1, memory_order_relaxed);
    memcpy(exported->shape, x->dim, sizeof x->dim);
    memcpy(exported->strides, x->stride, sizeof x->stride);
    *out = (weft_dlpack_tensor){.data = weft_i_tensor_numel(x) ? weft_i_tensor_data(x) : NULL,
                                .device_type = type_of(weft_i_tensor_device(x)),
                                .device_id = weft_i_device_index(weft_i_tensor_device(x)),
                                .ndim = x->ndim,
                                .code = types[x->dtype].code,
                                .bits = types[x->dtype].bits,
                                .lanes = 1,
                                .shape = exported->shape,
                                .strides = exported->strides};
    return exported;
}

weft_dlpack *weft_dlpack_export(weft_tensor *x)
{
    weft_dlpack_tensor tensor;
    if (check_export(x, false) < 0)
        return NULL;
    struct exported *exported = new_exported(x, &tensor);
    if (!exported)
        return NULL;
    exported->plain = (weft_dlpack){.tensor = tensor, .context = exported, .deleter = delete_plain};
    return &exported->plain;
}

weft_dlpack_versioned *weft_dlpack_export_versioned(weft_tensor *x)
{
    weft_dlpack_tensor tensor;
    if (check_export(x, true) < 0)
        return NULL;
    struct exported *exported = new_exported(x, &tensor);
    if (!exported)
        return NULL;
    exported->versioned =
        (weft_dlpack_versioned){.major = MAJOR,
                                .minor = MINOR,
                                .context = exported,
                                .deleter = delete_versioned,
                                .flags = x->storage->read_only ? WEFT_DLPACK_READ_ONLY : 0,
                                .tensor = tensor};
    return &exported->versioned;
}

static weft_status find_dtype(const weft_dlpack_tensor *from, weft_dtype *out)
{
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++)
        if (types[i].code == from->code && types[i].bits == from->bits && from->lanes == 1) {
            *out = (weft_dtype)i;
            return WEFT_OK;
        }
    return weft_i_fail(WEFT_ERR_TYPE,
                       "dlpack import: no dtype for type code %d with %d bits and %d lanes",
                       from->code, from->bits, from->lanes);
}

/* Everything weft needs to know of a description, checked. */
struct imported {
    weft_device device;
    weft_dtype dtype;
    weft_shape shape;
    int64_t strides[WEFT_MAX_DIMS];
    char *data;
    size_t bytes;
};

static weft_status check_layout(const weft_dlpack_tensor *from, struct imported *out)
{
    if (from->ndim < 0 || from->ndim > WEFT_MAX_DIMS || (from->ndim && !from->shape))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "dlpack import: %d dimensions; weft has up to %d",
                           from->ndim, WEFT_MAX_DIMS);
    out->shape = (weft_shape){from->ndim, {0}};
    for (int i = 0; i < from->ndim; i++)
        out->shape.dim[i] = from->shape[i];
    WEFT_TRY(weft_i_shape_check("dlpack import", out->dtype, out->shape, NULL));
    weft_i_shape_strides(out->shape, out->strides);
    bool empty = weft_i_shape_numel(out->shape) == 0;
    /* Strides of dimensions with one element or of empty tensors mean nothing and may be anything.
     */
    for (int i = 0; from->strides && !empty && i < from->ndim; i++)
        out->strides[i] = out->shape.dim[i] == 1 ? out->strides[i] : from->strides[i];
    return weft_i_shape_check("dlpack import", out->dtype, out->shape, out->strides);
}

static weft_status check_memory(const weft_dlpack_tensor *from, struct imported *out)
{
    weft_tensor view = {.dtype = out->dtype, .ndim = out->shape.ndim};
    size_t begin, size = weft_dtype_size(out->dtype);
    memcpy(view.dim, out->shape.dim, sizeof view.dim);
    memcpy(view.stride, out->strides, sizeof view.stride);
    weft_i_tensor_measure(&view);
    weft_i_tensor_range(&view, &begin, &out->bytes);
    if (out->bytes && !from->data)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "dlpack import: %zu bytes at NULL", out->bytes);
    uintptr_t place = (uintptr_t)from->data, end;
    if (__builtin_add_overflow(place, from->byte_offset, &place) ||
        __builtin_add_overflow(place, out->bytes, &end))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "dlpack import: %zu bytes from byte %llu on lie beyond all memory",
                           out->bytes, (unsigned long long)from->byte_offset);
    out->data = from->data ? (char *)place : NULL;
    if (out->bytes && (uintptr_t)out->data % size)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "dlpack import: the data is not aligned to its elements of %zu bytes",
                           size);
    return WEFT_OK;
}

static weft_status find_device(const weft_dlpack_tensor *from, weft_device *out)
{
    int32_t type = from->device_type, id = from->device_id;
    if (type != WEFT_DLPACK_CPU && type != WEFT_DLPACK_CUDA)
        return weft_i_fail(
            WEFT_ERR_UNSUPPORTED,
            "dlpack import: from device type %d; weft knows the CPU (1) and CUDA (2)", type);
    if (type == WEFT_DLPACK_CUDA && (id < 0 || id > 0xffff))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "dlpack import: CUDA device %d", id);
    *out = type == WEFT_DLPACK_CUDA ? WEFT_CUDA(id) : WEFT_CPU;
    return WEFT_OK;
}

static weft_status check_import(const weft_dlpack_tensor *from, struct imported *out)
{
    WEFT_TRY(find_device(from, &out->device));
    WEFT_TRY(find_dtype(from, &out->dtype));
    WEFT_TRY(check_layout(from, out));
    WEFT_TRY(check_memory(from, out));
    const weft_i_device *table = weft_i_device_of("dlpack import", out->device);
    if (!table)
        return weft_last_status();
    return table->check && out->bytes ? table->check(out->device, out->data, out->bytes) : WEFT_OK;
}

static void release_plain(void *argument)
{
    weft_dlpack *description = argument;
    if (description->deleter)
        description->deleter(description);
}

static void release_versioned(void *argument)
{
    weft_dlpack_versioned *description = argument;
    if (description->deleter)
        description->deleter(description);
}

static weft_tensor *import(const weft_dlpack_tensor *from, bool read_only, void (*release)(void *),
                           void *description)
{
    struct imported imported;
    if (check_import(from, &imported) < 0)
        return NULL;
    weft_storage *storage =
        weft_i_storage_wrap(imported.data, imported.bytes, imported.device, NULL, NULL);
    weft_tensor *x = storage ? weft_i_tensor_new_strided(storage, imported.dtype, imported.shape,
                                                         imported.strides, 0)
                             : NULL;
    if (x) {
        storage->read_only = read_only;
        storage->release = release; /* only now: on failure the description stays the caller's */
        storage->release_argument = description;
    }
    weft_i_object_drop(storage);
    return x;
}

weft_tensor *weft_dlpack_import(weft_dlpack *description)
{
    if (!description)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "dlpack import: the description is NULL");
    return import(&description->tensor, false, release_plain, description);
}

weft_tensor *weft_dlpack_import_versioned(weft_dlpack_versioned *description)
{
    if (!description)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "dlpack import: the description is NULL");
    /* Nothing but the version and the deleter may be read of another major version. */
    if (description->major != MAJOR)
        return weft_i_null(WEFT_ERR_UNSUPPORTED, "dlpack import: ABI version %u.%u; weft knows 1.x",
                           description->major, description->minor);
    return import(&description->tensor, description->flags & WEFT_DLPACK_READ_ONLY,
                  release_versioned, description);
}
