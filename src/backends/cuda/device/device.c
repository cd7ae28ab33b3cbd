/* SPDX-License-Identifier: Apache-2.0 */
/* Opening devices: primary context, properties, kernels. */
#include "device.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/os/place.h"
#include "kernels/fold/fold.h"
#include "weft/dtype.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* A device is filled under the lock and then published by a release store; open's acquire load is
 * the partner. */
static _Atomic(weft_i_cuda_device *) devices[WEFT_I_CUDA_DEVICES];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
_Thread_local weft_i_cu_ctx weft_i_cuda_used; /* what this thread has set last */

enum { CLOSERS = 8 };
static void (*closers[CLOSERS])(weft_i_cuda_device *device); /* filled by constructors */

void weft_i_cuda_at_close(void (*close)(weft_i_cuda_device *device))
{
    int i = 0;
    while (closers[i])
        i++;
    WEFT_ASSERT(i < CLOSERS);
    closers[i] = close;
}

static const struct {
    const char *name;
    int threads, image;
} kernels[] = {
#define KERNEL(name_, threads_, type_, body_) \
    {"weft_kernel_" #name_, threads_, WEFT_I_CUDA_IMAGE_KERNELS},
#include "backends/cuda/kernels/kernels.def"
#undef KERNEL
#define KERNEL(name_, threads_, type_, body_) \
    {"weft_kernel_" #name_, threads_, WEFT_I_CUDA_IMAGE_TENSOR},
#include "backends/cuda/kernels/tensor.def"
#undef KERNEL
};

const char *weft_i_cuda_kernel_name(weft_i_cuda_kernel kernel)
{
    return kernels[kernel].name;
}

weft_status weft_i_cuda_count(int *out)
{
    const weft_i_cuda *cu;
    *out = 0;
    WEFT_TRY(weft_i_cuda_start(&cu));
    WEFT_CUDA_TRY(cu->cuDeviceGetCount(out), "counting CUDA devices");
    return WEFT_OK;
}

WEFT_I_HOT weft_status weft_i_cuda_use(const weft_i_cuda_device *device)
{
    WEFT_TRY(weft_i_cuda_check_process());
    if (weft_i_cuda_is_used(device))
        return WEFT_OK;
    WEFT_CUDA_TRY(weft_i_cuda_driver()->cuCtxSetCurrent(device->ctx), "using cuda:%d",
                  device->ordinal);
    weft_i_cuda_used = device->ctx;
    return WEFT_OK;
}

static weft_status read_properties(const weft_i_cuda *cu, weft_i_cuda_device *device)
{
    int pools = 0, mappings = 0, multicast = 0, mps = 0;
    const struct {
        int attribute, *out;
        bool optional;
    } wanted[] = {
        {WEFT_I_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &device->major, false},
        {WEFT_I_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &device->minor, false},
        {WEFT_I_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->multiprocessors, false},
        {WEFT_I_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &device->threads_most, false},
        {WEFT_I_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &pools, false},
        {WEFT_I_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &mappings, false},
        {WEFT_I_CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, &multicast, true},
        {WEFT_I_CU_DEVICE_ATTRIBUTE_MPS_ENABLED, &mps, true},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        weft_i_cu_result result =
            cu->cuDeviceGetAttribute(wanted[i].out, wanted[i].attribute, device->handle);
        if (result != WEFT_I_CUDA_SUCCESS && !wanted[i].optional)
            return weft_i_cuda_fail(result, "attribute %d of cuda:%d", wanted[i].attribute,
                                    device->ordinal);
    }
    device->pools = pools;
    device->mappings = mappings;
    device->multicast = multicast;
    device->mps = mps;
    WEFT_CUDA_TRY(cu->cuDeviceGetName(device->name, sizeof device->name, device->handle),
                  "name of cuda:%d", device->ordinal);
    WEFT_CUDA_TRY(cu->cuDeviceGetUuid(&device->uuid, device->handle), "identity of cuda:%d",
                  device->ordinal);
    WEFT_CUDA_TRY(cu->cuDeviceTotalMem(&device->bytes, device->handle), "memory of cuda:%d",
                  device->ordinal);
    return WEFT_OK;
}

static weft_status check_properties(const weft_i_cuda_device *device)
{
    if (device->major < 8)
        return weft_i_fail(
            WEFT_ERR_UNSUPPORTED,
            "cuda:%d (%s) has compute capability %d.%d; 8.0 is the oldest that will do",
            device->ordinal, device->name, device->major, device->minor);
    if (!device->pools || !device->mappings)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "cuda:%d (%s) offers no %s", device->ordinal,
                           device->name,
                           device->pools ? "virtual memory management" : "stream-ordered memory");
    return WEFT_OK;
}

static weft_status load_image(const weft_i_cuda *cu, weft_i_cuda_device *device, int which)
{
    const void *image = NULL;
    void *release = NULL;
    WEFT_TRY(weft_i_cuda_image(device, which, &image, &release));
    weft_i_cu_result result = cu->cuModuleLoadData(&device->modules[which], image);
    WEFT_OS->free(release);
    WEFT_CUDA_TRY(result, "loading weft's kernels on cuda:%d (%s, compute capability %d.%d)",
                  device->ordinal, device->name, device->major, device->minor);
    return WEFT_OK;
}

/* Every kernel is loaded now: a first use later might wait for a kernel that waits for us. */
static weft_status load_kernels(const weft_i_cuda *cu, weft_i_cuda_device *device)
{
    for (int i = 0; i < WEFT_I_CUDA_IMAGES; i++)
        WEFT_TRY(load_image(cu, device, i));
    for (int k = 0; k < WEFT_I_CUDA_KERNELS; k++) {
        int blocks = 0, threads = kernels[k].threads;
        threads = threads < device->threads_most ? threads : device->threads_most;
        WEFT_CUDA_TRY(cu->cuModuleGetFunction(&device->kernels[k],
                                              device->modules[kernels[k].image], kernels[k].name),
                      "kernel %s", kernels[k].name);
        if (cu->cuFuncLoad)
            WEFT_CUDA_TRY(cu->cuFuncLoad(device->kernels[k]), "loading kernel %s", kernels[k].name);
        WEFT_CUDA_TRY(cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, device->kernels[k],
                                                                      threads, 0),
                      "occupancy of kernel %s", kernels[k].name);
        device->kernel_threads[k] = threads;
        device->resident[k] = blocks * device->multiprocessors;
    }
    return WEFT_OK;
}

/*
 * Freed memory stays in the pool: giving it back to the system would wait for the device.  And the
 * pool orders no streams: memory that one stream frees behind a kernel that waits for a rank would
 * make a stream of that rank, which gets it next, wait for that kernel.
 */
static weft_status set_up_pool(const weft_i_cuda *cu, weft_i_cuda_device *device)
{
    weft_i_cu_pool pool;
    uint64_t keep = UINT64_MAX;
    int orders = 0;
    WEFT_CUDA_TRY(cu->cuDeviceGetDefaultMemPool(&pool, device->handle), "memory pool");
    WEFT_CUDA_TRY(cu->cuMemPoolSetAttribute(pool, WEFT_I_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
                  "memory pool");
    WEFT_CUDA_TRY(cu->cuMemPoolSetAttribute(
                      pool, WEFT_I_CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &orders),
                  "memory pool");
    return WEFT_OK;
}

/* Blocks that are to be bound to multicast objects consist of units of those too. */
static void add_multicast_unit(const weft_i_cuda *cu, weft_i_cuda_device *device)
{
    size_t unit = 0;
    weft_i_cu_multicast prop = {.numDevices = 2,
                                .size = device->granularity,
                                .handleTypes = WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    if (device->multicast && cu->cuMulticastGetGranularity)
        device->multicast =
            cu->cuMulticastGetGranularity(&unit, &prop, WEFT_I_CU_MULTICAST_GRANULARITY_MINIMUM) ==
            WEFT_I_CUDA_SUCCESS;
    if (device->multicast && unit > device->granularity)
        device->granularity = unit;
}

static weft_status prepare(const weft_i_cuda *cu, weft_i_cuda_device *device)
{
    WEFT_TRY(read_properties(cu, device));
    WEFT_TRY(check_properties(device));
    WEFT_CUDA_TRY(cu->cuDevicePrimaryCtxRetain(&device->ctx, device->handle),
                  "the primary context of cuda:%d", device->ordinal);
    WEFT_TRY(weft_i_cuda_use(device));
    int least = 0;
    WEFT_CUDA_TRY(cu->cuCtxGetStreamPriorityRange(&least, &device->high_priority), "priorities");
    weft_i_cu_memory prop = {
        .type = WEFT_I_CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {WEFT_I_CU_MEM_LOCATION_TYPE_DEVICE, device->handle},
    };
    WEFT_CUDA_TRY(cu->cuMemGetAllocationGranularity(&device->granularity, &prop,
                                                    WEFT_I_CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                  "granularity of memory on cuda:%d", device->ordinal);
    add_multicast_unit(cu, device);
    WEFT_TRY(set_up_pool(cu, device));
    void *fault = NULL;
    WEFT_TRY(weft_i_cuda_pinned(device, sizeof *device->fault, &fault));
    device->fault = fault;
    return load_kernels(cu, device);
}

weft_status weft_i_cuda_check_fault(weft_i_cuda_device *device)
{
    static const struct {
        const char *op, *part, *what;
    } told[] = {{"", "", ""},
                {"take_along (in cross_entropy: its labels)", "the dimension", "elements"},
                {"scatter_add", "the dimension", "elements"},
                {"embedding", "the weight", "rows"},
                {"embedding_grad", "the weight", "rows"}};
    weft_k_fault *fault = device->fault;
    /* Pairs with the release of weft_k_complain. */
    uint64_t op = __atomic_load_n(&fault->op, __ATOMIC_ACQUIRE);
    if (__builtin_expect(op == 0, 1))
        return WEFT_OK;
    weft_k_fault seen = *fault;
    __atomic_store_n(&fault->op, 0, __ATOMIC_RELAXED); /* a later launch may note another */
    op = op < sizeof told / sizeof *told ? op : 0;
    return weft_i_fail(WEFT_ERR_INVALID_ARG,
                       "%s: index %lld at %lld; %s has %lld %s (met by a kernel that was enqueued "
                       "earlier on cuda:%d; its result is not to be used)",
                       told[op].op, (long long)seen.index, (long long)seen.at, told[op].part,
                       (long long)seen.size, told[op].what, device->ordinal);
}

/* Also after half of an opening. */
static void shut(const weft_i_cuda *cu, weft_i_cuda_device *device)
{
    if (device->service)
        weft_i_cuda_stream_drop(device->service);
    if (device->spare)
        weft_i_cuda_stream_drop(device->spare);
    for (int i = 0; i < CLOSERS && closers[i]; i++)
        closers[i](device);
    weft_i_cuda_unpin(device->fault);
    for (int i = 0; i < WEFT_I_CUDA_IMAGES; i++)
        if (device->modules[i])
            cu->cuModuleUnload(device->modules[i]);
    if (device->ctx)
        cu->cuDevicePrimaryCtxRelease(device->handle);
    if (weft_i_cuda_is_used(device))
        weft_i_cuda_used = NULL;
    pthread_mutex_destroy(&device->lock);
    WEFT_OS->free(device);
}

static weft_status open_device(const weft_i_cuda *cu, int ordinal)
{
    int count = 0;
    WEFT_CUDA_TRY(cu->cuDeviceGetCount(&count), "counting CUDA devices");
    if (ordinal < 0 || ordinal >= count || ordinal >= WEFT_I_CUDA_DEVICES)
        return weft_i_fail(WEFT_ERR_NOT_FOUND,
                           "there is no cuda:%d: this process sees %d CUDA device%s", ordinal,
                           count, count == 1 ? "" : "s");
    weft_i_cuda_device *device = WEFT_OS->alloc(sizeof *device);
    if (!device)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory to open cuda:%d", ordinal);
    pthread_mutex_init(&device->lock, NULL);
    device->ordinal = ordinal;
    weft_status status =
        weft_i_cuda_fail(cu->cuDeviceGet(&device->handle, ordinal), "cuda:%d", ordinal);
    if (status == WEFT_OK)
        status = prepare(cu, device);
    if (status != WEFT_OK) {
        shut(cu, device);
        return status;
    }
    atomic_store_explicit(&devices[ordinal], device,
                          memory_order_release); /* pairs with the acquire in weft_i_cuda_opened */
    return WEFT_OK;
}

weft_i_cuda_device *weft_i_cuda_opened(int ordinal)
{
    return ordinal < 0 || ordinal >= WEFT_I_CUDA_DEVICES
               ? NULL
               : atomic_load_explicit(
                     &devices[ordinal],
                     memory_order_acquire); /* pairs with the release in open_device */
}

weft_status weft_i_cuda_open(int ordinal, weft_i_cuda_device **out)
{
    const weft_i_cuda *cu;
    *out = NULL;
    WEFT_TRY(weft_i_cuda_start(&cu));
    weft_status status = WEFT_OK;
    if (!weft_i_cuda_opened(ordinal)) {
        pthread_mutex_lock(&opening);
        status = weft_i_cuda_opened(ordinal) ? WEFT_OK : open_device(cu, ordinal);
        pthread_mutex_unlock(&opening);
    }
    WEFT_TRY(status);
    *out = weft_i_cuda_opened(ordinal);
    return weft_i_cuda_use(*out);
}

void weft_i_cuda_close_all(void)
{
    pthread_mutex_lock(&opening);
    for (int i = 0; i < WEFT_I_CUDA_DEVICES; i++) {
        weft_i_cuda_device *device = weft_i_cuda_opened(i);
        if (!device)
            continue;
        if (weft_i_cuda_use(device) == WEFT_OK)
            shut(weft_i_cuda_driver(), device);
        atomic_store_explicit(&devices[i], NULL,
                              memory_order_release); /* pairs with weft_i_cuda_opened */
    }
    pthread_mutex_unlock(&opening);
}
