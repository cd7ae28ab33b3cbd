/* SPDX-License-Identifier: Apache-2.0 */
/* The software driver: how it is found, devices, contexts, kernels, memory.  Streams:
 * model_stream.c. */
#include "model_parts.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

model_wishes model;
static atomic_int live, mapped, started_in; /* started_in: the process that called cuInit */
static pthread_mutex_t faults = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local weft_i_cu_ctx current;

typedef struct entry {
    const char *name;
    int version, calls;
    void *address;
} entry;
enum { FUNCTIONS = 128 };
static entry functions[FUNCTIONS];

void model_born(void)
{
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed); /* counts only */
}

void model_gone(void)
{
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
}

int model_live(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed);
}

void model_mapped_born(void)
{
    model_born();
    atomic_fetch_add_explicit(&mapped, 1, memory_order_relaxed); /* counts only */
}

void model_mapped_gone(void)
{
    model_gone();
    atomic_fetch_sub_explicit(&mapped, 1, memory_order_relaxed);
}

int model_mapped(void)
{
    return atomic_load_explicit(&mapped, memory_order_relaxed);
}

static int index_of(const char *name)
{
    for (int i = 0; functions[i].name; i++)
        if (!strcmp(functions[i].name, name))
            return i;
    return -1;
}

int model_calls(const char *name)
{
    pthread_mutex_lock(&faults);
    int i = index_of(name), calls = i < 0 ? -1 : functions[i].calls;
    pthread_mutex_unlock(&faults);
    return calls;
}

weft_i_cu_result model_enter(const char *name, int level)
{
    weft_i_cu_result result = 0;
    pthread_mutex_lock(&faults);
    functions[index_of(name)].calls++;
    if (model.fail && !strcmp(model.fail, name) && model.fail_at > 0 && --model.fail_at == 0)
        result = model.fail_with;
    pthread_mutex_unlock(&faults);
    if (result == MODEL_DIES)
        kill(getpid(), SIGKILL);
    if (result)
        return result;
    int process = atomic_load_explicit(&started_in, memory_order_relaxed);
    if (level > MODEL_FREE && process != getpid())
        return WEFT_I_CUDA_ERROR_NOT_INITIALIZED; /* in a forked child too */
    if (level > MODEL_STARTED && model.broken)
        return model.broken;
    if (level > MODEL_STARTED && !current)
        return WEFT_I_CUDA_ERROR_INVALID_CONTEXT;
    return 0;
}

/* ---- the driver itself, devices, contexts ---- */

static int device_count(void)
{
    return model.devices < 0 ? 0 : model.devices ? model.devices : 2;
}

weft_i_cu_result model_cuInit(unsigned flags)
{
    MODEL_ENTER(cuInit, MODEL_FREE);
    (void)flags;
    if (device_count() == 0)
        return WEFT_I_CUDA_ERROR_NO_DEVICE;
    atomic_store_explicit(&started_in, getpid(), memory_order_relaxed);
    return 0;
}

weft_i_cu_result model_cuDriverGetVersion(int *version)
{
    MODEL_ENTER(cuDriverGetVersion, MODEL_FREE);
    *version = model.version ? model.version : 13000;
    return 0;
}

static const struct {
    int result;
    const char *name, *sentence;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

weft_i_cu_result model_cuGetErrorName(weft_i_cu_result result, const char **name)
{
    MODEL_ENTER(cuGetErrorName, MODEL_FREE);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].result == result)
            return *name = errors[i].name, 0;
    return WEFT_I_CUDA_ERROR_INVALID_VALUE;
}

weft_i_cu_result model_cuGetErrorString(weft_i_cu_result result, const char **sentence)
{
    MODEL_ENTER(cuGetErrorString, MODEL_FREE);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].result == result)
            return *sentence = errors[i].sentence, 0;
    return WEFT_I_CUDA_ERROR_INVALID_VALUE;
}

weft_i_cu_result model_cuDeviceGetCount(int *count)
{
    MODEL_ENTER(cuDeviceGetCount, MODEL_STARTED);
    *count = device_count();
    return 0;
}

weft_i_cu_result model_cuDeviceGet(weft_i_cu_device *out, int ordinal)
{
    MODEL_ENTER(cuDeviceGet, MODEL_STARTED);
    *out = ordinal + 100; /* not the ordinal: whoever mixes them up notices */
    return ordinal >= 0 && ordinal < device_count() ? 0 : WEFT_I_CUDA_ERROR_INVALID_DEVICE;
}

weft_i_cu_result model_cuDeviceGetName(char *name, int bytes, weft_i_cu_device device)
{
    MODEL_ENTER(cuDeviceGetName, MODEL_STARTED);
    snprintf(name, (size_t)bytes, "software device %d", device - 100);
    return 0;
}

weft_i_cu_result model_cuDeviceGetUuid(weft_i_cu_uuid *out, weft_i_cu_device device)
{
    MODEL_ENTER(cuDeviceGetUuid, MODEL_STARTED);
    memset(out, 0, sizeof *out);
    out->bytes[0] = (char)device;
    return 0;
}

weft_i_cu_result model_cuDeviceGetAttribute(int *out, int attribute, weft_i_cu_device device)
{
    MODEL_ENTER(cuDeviceGetAttribute, MODEL_STARTED);
    (void)device;
    int capability = model.capability ? model.capability : 90;
    switch (attribute) {
    case WEFT_I_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *out = capability / 10;
        return 0;
    case WEFT_I_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *out = capability % 10;
        return 0;
    case WEFT_I_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *out = model.multiprocessors ? model.multiprocessors : 8;
        return 0;
    case WEFT_I_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *out = model.threads_most ? model.threads_most : 8;
        return 0;
    case WEFT_I_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case WEFT_I_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *out = 1;
        return 0;
    case WEFT_I_CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
        *out = model.multicast;
        return 0;
    default:
        *out = 0;
        return 0;
    }
}

weft_i_cu_result model_cuDeviceTotalMem(size_t *bytes, weft_i_cu_device device)
{
    MODEL_ENTER(cuDeviceTotalMem, MODEL_STARTED);
    (void)device;
    *bytes = (size_t)1 << 30;
    return 0;
}

weft_i_cu_result model_cuDeviceCanAccessPeer(int *out, weft_i_cu_device a, weft_i_cu_device b)
{
    MODEL_ENTER(cuDeviceCanAccessPeer, MODEL_STARTED);
    *out = a != b;
    return 0;
}

weft_i_cu_result model_cuDeviceGetP2PAttribute(int *out, int attribute, weft_i_cu_device a,
                                               weft_i_cu_device b)
{
    MODEL_ENTER(cuDeviceGetP2PAttribute, MODEL_STARTED);
    (void)attribute;
    *out = a != b;
    return 0;
}

weft_i_cu_result model_cuDeviceGetDefaultMemPool(weft_i_cu_pool *out, weft_i_cu_device device)
{
    MODEL_ENTER(cuDeviceGetDefaultMemPool, MODEL_STARTED);
    *out = (weft_i_cu_pool)(uintptr_t)(0x1000 + device);
    return 0;
}

weft_i_cu_result model_cuDevicePrimaryCtxRetain(weft_i_cu_ctx *out, weft_i_cu_device device)
{
    MODEL_ENTER(cuDevicePrimaryCtxRetain, MODEL_STARTED);
    *out = (weft_i_cu_ctx)(uintptr_t)(0x2000 + device);
    model_born();
    return 0;
}

weft_i_cu_result model_cuDevicePrimaryCtxRelease(weft_i_cu_device device)
{
    MODEL_ENTER(cuDevicePrimaryCtxRelease, MODEL_STARTED);
    (void)device;
    model_gone();
    return 0;
}

weft_i_cu_result model_cuCtxSetCurrent(weft_i_cu_ctx ctx)
{
    MODEL_ENTER(cuCtxSetCurrent, MODEL_STARTED);
    current = ctx;
    return 0;
}

int model_ordinal(void)
{
    return (int)(uintptr_t)current - 0x2000 - 100;
}

weft_i_cu_result model_cuCtxGetCurrent(weft_i_cu_ctx *out)
{
    MODEL_ENTER(cuCtxGetCurrent, MODEL_STARTED);
    *out = current;
    return 0;
}

weft_i_cu_result model_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    MODEL_ENTER(cuCtxGetStreamPriorityRange, MODEL_CURRENT);
    *least = 0;
    *greatest = -5;
    return 0;
}

weft_i_cu_result model_cuCtxEnablePeerAccess(weft_i_cu_ctx peer, unsigned flags)
{
    MODEL_ENTER(cuCtxEnablePeerAccess, MODEL_CURRENT);
    (void)peer, (void)flags;
    return 0;
}

/* ---- kernels ---- */

static int module_object;

weft_i_cu_result model_cuModuleLoadData(weft_i_cu_module *out, const void *image)
{
    MODEL_ENTER(cuModuleLoadData, MODEL_CURRENT);
    if (!image)
        return WEFT_I_CUDA_ERROR_INVALID_IMAGE;
    if (!memcmp(image, "\177ELF", 4)) {
        *out = (weft_i_cu_module)(void *)model_module_load(image);
        if (!*out)
            return WEFT_I_CUDA_ERROR_INVALID_IMAGE;
    } else {
        *out = (weft_i_cu_module)(void *)&module_object;
    }
    model_born();
    return 0;
}

weft_i_cu_result model_cuModuleUnload(weft_i_cu_module module)
{
    MODEL_ENTER(cuModuleUnload, MODEL_CURRENT);
    if ((void *)module != &module_object)
        model_module_free((void *)module);
    model_gone();
    return 0;
}

weft_i_cu_result model_cuModuleGetFunction(weft_i_cu_function *out, weft_i_cu_module module,
                                           const char *name)
{
    MODEL_ENTER(cuModuleGetFunction, MODEL_CURRENT);
    if ((void *)module != &module_object) {
        const model_kernel *found = model_module_find((void *)module, name);
        *out = (weft_i_cu_function)(void *)(uintptr_t)found;
        return found ? 0 : WEFT_I_CUDA_ERROR_NOT_FOUND;
    }
    const model_kernel *const tables[] = {model_kernels, model_tensor_kernels};
    for (int i = 0; i < 2; i++)
        for (const model_kernel *k = tables[i]; k->name; k++)
            if (!strcmp(k->name, name))
                return *out = (weft_i_cu_function)(void *)(uintptr_t)k, 0;
    return WEFT_I_CUDA_ERROR_NOT_FOUND;
}

weft_i_cu_result model_cuFuncGetAttribute(int *out, int attribute, weft_i_cu_function function)
{
    MODEL_ENTER(cuFuncGetAttribute, MODEL_CURRENT);
    (void)attribute, (void)function;
    *out = 0;
    return 0;
}

weft_i_cu_result model_cuFuncLoad(weft_i_cu_function function)
{
    MODEL_ENTER(cuFuncLoad, MODEL_CURRENT);
    return function ? 0 : WEFT_I_CUDA_ERROR_INVALID_HANDLE;
}

/* As the driver has it: lazily unless the environment wants it otherwise. */
weft_i_cu_result model_cuModuleGetLoadingMode(int *out)
{
    MODEL_ENTER(cuModuleGetLoadingMode, MODEL_STARTED);
    const char *wanted = getenv("CUDA_MODULE_LOADING");
    *out = wanted && !strcmp(wanted, "EAGER") ? WEFT_I_CU_MODULE_EAGER_LOADING
                                              : WEFT_I_CU_MODULE_LAZY_LOADING;
    return 0;
}

weft_i_cu_result model_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                                   weft_i_cu_function function,
                                                                   int threads, size_t shared)
{
    MODEL_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor, MODEL_CURRENT);
    (void)shared;
    const model_kernel *kernel = (const void *)function;
    *blocks = threads <= kernel->threads ? 2 : 0;
    return 0;
}

/* ---- memory that is mapped ---- */

weft_i_cu_result model_cuMemGetAllocationGranularity(size_t *out, const weft_i_cu_memory *prop,
                                                     int option)
{
    MODEL_ENTER(cuMemGetAllocationGranularity, MODEL_STARTED);
    (void)option;
    *out = MODEL_GRANULARITY;
    return prop->type == WEFT_I_CU_MEM_ALLOCATION_TYPE_PINNED ? 0 : WEFT_I_CUDA_ERROR_INVALID_VALUE;
}

weft_i_cu_result model_cuMemCreate(weft_i_cu_handle *out, size_t bytes,
                                   const weft_i_cu_memory *prop, unsigned long long flags)
{
    MODEL_ENTER(cuMemCreate, MODEL_CURRENT);
    if (bytes == 0 || bytes % MODEL_GRANULARITY || flags || prop->location.id < 100)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    model_block *made = calloc(1, sizeof *made);
    made->fd = memfd_create("software-device", MFD_CLOEXEC);
    made->bytes = bytes;
    made->device = prop->location.id;
    if (made->fd < 0 || ftruncate(made->fd, (off_t)bytes) != 0)
        return WEFT_I_CUDA_ERROR_OUT_OF_MEMORY;
    *out = (weft_i_cu_handle)(uintptr_t)made;
    model_mapped_born();
    return 0;
}

weft_i_cu_result model_cuMemRelease(weft_i_cu_handle handle)
{
    MODEL_ENTER(cuMemRelease, MODEL_STARTED);
    model_block *old = (model_block *)(uintptr_t)handle;
    model_multicast_release(old);
    close(old->fd);
    free(old);
    model_mapped_gone();
    return 0;
}

weft_i_cu_result model_cuMemExportToShareableHandle(void *out, weft_i_cu_handle handle, int kind,
                                                    unsigned long long flags)
{
    MODEL_ENTER(cuMemExportToShareableHandle, MODEL_STARTED);
    if (kind != WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    *(int *)out = dup(((model_block *)(uintptr_t)handle)->fd);
    return *(int *)out < 0 ? WEFT_I_CUDA_ERROR_OPERATING_SYSTEM : 0;
}

weft_i_cu_result model_cuMemImportFromShareableHandle(weft_i_cu_handle *out, void *shared, int kind)
{
    MODEL_ENTER(cuMemImportFromShareableHandle, MODEL_CURRENT);
    struct stat of;
    int fd = (int)(intptr_t)shared;
    if (kind != WEFT_I_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &of) != 0)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    model_block *made = calloc(1, sizeof *made);
    made->fd = dup(fd);
    made->bytes = (size_t)of.st_size;
    *out = (weft_i_cu_handle)(uintptr_t)made;
    model_mapped_born();
    return model_multicast_import(made);
}

weft_i_cu_result model_cuMemAddressReserve(weft_i_cu_ptr *out, size_t bytes, size_t alignment,
                                           weft_i_cu_ptr hint, unsigned long long flags)
{
    MODEL_ENTER(cuMemAddressReserve, MODEL_CURRENT);
    (void)alignment, (void)hint, (void)flags;
    if (bytes == 0 || bytes % MODEL_GRANULARITY)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = (weft_i_cu_ptr)(uintptr_t)at;
    if (at == MAP_FAILED)
        return WEFT_I_CUDA_ERROR_OUT_OF_MEMORY;
    model_mapped_born();
    return 0;
}

weft_i_cu_result model_cuMemAddressFree(weft_i_cu_ptr range, size_t bytes)
{
    MODEL_ENTER(cuMemAddressFree, MODEL_CURRENT);
    model_mapped_gone();
    return munmap((void *)(uintptr_t)range, bytes) ? WEFT_I_CUDA_ERROR_INVALID_VALUE : 0;
}

/* Mapped memory cannot be touched before it is given access. */
weft_i_cu_result model_cuMemMap(weft_i_cu_ptr at, size_t bytes, size_t offset,
                                weft_i_cu_handle handle, unsigned long long flags)
{
    MODEL_ENTER(cuMemMap, MODEL_CURRENT);
    model_block *of = (model_block *)(uintptr_t)handle;
    if (of->page && model_multicast_map(of, at, bytes))
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    if (of->page)
        return model_mapped_born(), 0;
    if (offset || flags || bytes > of->bytes)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    if (mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, of->fd, 0) ==
        MAP_FAILED)
        return WEFT_I_CUDA_ERROR_OUT_OF_MEMORY;
    model_multicast_note(of, (void *)(uintptr_t)at);
    model_mapped_born();
    return 0;
}

weft_i_cu_result model_cuMemUnmap(weft_i_cu_ptr at, size_t bytes)
{
    MODEL_ENTER(cuMemUnmap, MODEL_CURRENT);
    model_multicast_unmap(at);
    void *empty = mmap((void *)(uintptr_t)at, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    model_mapped_gone();
    return empty == MAP_FAILED ? WEFT_I_CUDA_ERROR_INVALID_VALUE : 0;
}

weft_i_cu_result model_cuMemSetAccess(weft_i_cu_ptr at, size_t bytes,
                                      const weft_i_cu_access *access, size_t count)
{
    MODEL_ENTER(cuMemSetAccess, MODEL_CURRENT);
    if (count != 1 || access->flags != WEFT_I_CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    if (model_multicast_is(at))
        return 0; /* only kernels reach it, by functions of their own */
    return mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE)
               ? WEFT_I_CUDA_ERROR_INVALID_VALUE
               : 0;
}

/* ---- how it is found ---- */

static entry functions[FUNCTIONS] = {
#define FN(name_, version_, parameters_) {#name_, version_, 0, (void *)(uintptr_t)model_##name_},
#define OPTIONAL(name_, version_, parameters_) \
    {#name_, version_, 0, (void *)(uintptr_t)model_##name_},
#include "backends/cuda/device/driver.def"
#undef FN
#undef OPTIONAL
    {NULL, 0, 0, NULL},
};

static weft_i_cu_result get_address(const char *name, void **out, int version, uint64_t flags,
                                    int *how)
{
    int i = index_of(name), offered = model.version ? model.version : 13000;
    (void)flags;
    *out = NULL;
    *how = 1;
    if (i < 0 || (model.lacks && !strcmp(model.lacks, name)) || functions[i].version > offered)
        return WEFT_I_CUDA_ERROR_NOT_FOUND;
    if (version != functions[i].version)
        return WEFT_I_CUDA_ERROR_INVALID_VALUE;
    *out = functions[i].address;
    *how = 0;
    return 0;
}

static weft_i_os table;
static const weft_i_os *before;
static char driver_library, rtc_library, blas_library, nvml_library;

static void *find_library(const char *name)
{
    if (!strcmp(name, "libcuda.so.1"))
        return model.no_library ? NULL : &driver_library;
    if (!strncmp(name, "libnvrtc.so", 11))
        return model.no_nvrtc ? NULL : &rtc_library;
    if (!strncmp(name, "libcublasLt.so", 14))
        return model.no_blas ? NULL : &blas_library;
    if (!strcmp(name, "libnvidia-ml.so.1"))
        return model.no_nvml ? NULL : &nvml_library;
    if (!strncmp(name, "libnccl.so", 10))
        return NULL; /* a real one knows nothing of this driver */
    return before->dlopen(name);
}

static void *find_symbol(void *library, const char *name)
{
    if (library == &driver_library)
        return strcmp(name, "cuGetProcAddress_v2") ? NULL : (void *)(uintptr_t)get_address;
    if (library == &rtc_library)
        return model_nvrtc_symbol(name);
    if (library == &blas_library)
        return model_blas_symbol(name);
    if (library == &nvml_library)
        return model_nvml_symbol(name);
    return before->dlsym(library, name);
}

void model_install(void)
{
    before = weft_i_os_now;
    table = *before;
    table.dlopen = find_library;
    table.dlsym = find_symbol;
    weft_i_os_now = &table;
}

void model_uninstall(void)
{
    weft_i_os_now = before;
}
