/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of device memory and the spans they are mapped in. */
#include "span.h"

#include "base/os/os.h"

static weft_i_cu_memory prop_of(const weft_i_cuda_device *device)
{
    return (weft_i_cu_memory){
        .type = WEFT_I_CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {WEFT_I_CU_MEM_LOCATION_TYPE_DEVICE, device->handle},
    };
}

weft_status weft_i_cuda_block_new(weft_i_cuda_device *device, size_t *bytes, weft_i_cu_handle *out)
{
    *out = 0;
    WEFT_TRY(weft_i_cuda_use(device));
    size_t unit = device->granularity;
    if (*bytes == 0 || *bytes > PTRDIFF_MAX - unit)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "a block of %zu bytes on cuda:%d", *bytes,
                           device->ordinal);
    size_t rounded = (*bytes + unit - 1) / unit * unit;
    weft_i_cu_memory prop = prop_of(device);
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemCreate(out, rounded, &prop, 0),
                  "no memory for a block of %zu bytes on cuda:%d", *bytes, device->ordinal);
    *bytes = rounded;
    return WEFT_OK;
}

void weft_i_cuda_block_release(weft_i_cu_handle handle)
{
    if (handle && weft_i_cuda_check_process() == WEFT_OK)
        weft_i_cuda_driver()->cuMemRelease(handle);
}

weft_status weft_i_cuda_block_export(weft_i_cu_handle handle, int *fd)
{
    *fd = -1;
    WEFT_TRY(weft_i_cuda_check_process());
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemExportToShareableHandle(
                      fd, handle, WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                  "exporting a block");
    return WEFT_OK;
}

weft_status weft_i_cuda_block_import(weft_i_cuda_device *device, int fd, weft_i_cu_handle *out)
{
    *out = 0;
    WEFT_TRY(weft_i_cuda_use(device));
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemImportFromShareableHandle(
                      out, (void *)(intptr_t)fd, WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                  "importing a block on cuda:%d", device->ordinal);
    return WEFT_OK;
}

weft_status weft_i_cuda_span_new(weft_i_cuda_device *device, int ranks, size_t bytes,
                                 weft_i_cuda_span *out)
{
    *out = (weft_i_cuda_span){.device = device, .ranks = ranks};
    if (ranks < 1 || ranks > WEFT_I_CUDA_SPAN_RANKS)
        return weft_i_fail(WEFT_ERR_LIMIT, "a span of %d ranks; %d are the most", ranks,
                           WEFT_I_CUDA_SPAN_RANKS);
    WEFT_TRY(weft_i_cuda_use(device));
    size_t unit = device->granularity;
    out->stride = (bytes + unit - 1) / unit * unit;
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuMemAddressReserve(&out->base, out->stride * (size_t)ranks,
                                                            unit, 0, 0),
                  "no addresses for %d blocks of %zu bytes on cuda:%d", ranks, bytes,
                  device->ordinal);
    return WEFT_OK;
}

/* Every open device that reaches the memory may use it; the span's own must. */
static weft_i_cu_result grant(const weft_i_cuda_span *span, weft_i_cu_ptr at)
{
    weft_i_cu_result result = WEFT_I_CUDA_SUCCESS;
    for (int i = 0; i < WEFT_I_CUDA_DEVICES; i++) {
        const weft_i_cuda_device *device = weft_i_cuda_opened(i);
        if (!device)
            continue;
        weft_i_cu_access access = {{WEFT_I_CU_MEM_LOCATION_TYPE_DEVICE, device->handle},
                                   WEFT_I_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        weft_i_cu_result granted =
            weft_i_cuda_driver()->cuMemSetAccess(at, span->stride, &access, 1);
        result = device == span->device ? granted : result;
    }
    return result;
}

weft_status weft_i_cuda_span_map(weft_i_cuda_span *span, int rank, weft_i_cu_handle handle)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cu_ptr at = span->base + (uint64_t)rank * span->stride;
    WEFT_TRY(weft_i_cuda_use(span->device));
    WEFT_CUDA_TRY(cu->cuMemMap(at, span->stride, 0, handle, 0), "mapping the block of rank %d",
                  rank);
    weft_i_cu_result result = grant(span, at);
    if (result != WEFT_I_CUDA_SUCCESS) {
        cu->cuMemUnmap(at, span->stride);
        return weft_i_cuda_fail(result, "access of cuda:%d to the block of rank %d",
                                span->device->ordinal, rank);
    }
    /* Relaxed: ranks that are threads map their own; read when all of them have let go. */
    __atomic_fetch_or(&span->mapped, (uint64_t)1 << rank, __ATOMIC_RELAXED);
    return WEFT_OK;
}

void weft_i_cuda_span_release(weft_i_cuda_span *span)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    if (!span->base || weft_i_cuda_use(span->device) != WEFT_OK)
        return;
    for (int r = 0; r < span->ranks; r++)
        if (span->mapped >> r & 1)
            cu->cuMemUnmap(span->base + (uint64_t)r * span->stride, span->stride);
    cu->cuMemAddressFree(span->base, span->stride * (size_t)span->ranks);
    *span = (weft_i_cuda_span){0};
}
