/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling, loading and launching kernels of the graph compiler; see tensor/object/code.h.  Modules stay
 * loaded until their device is closed, since a captured replay may hold their kernels.
 */
#include "code.h"

#include "base/os/os.h"
#include "launch.h"
#include "nvrtc.h"
#include "stream.h"

#include <stdio.h>

typedef struct module {
    weft_i_cu_module raw;
    int ordinal;
    struct module *next;
} module;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static module *modules;
/* Release when a device closes, pairs with the acquire of is_loaded: what was loaded is gone. */
static _Atomic(unsigned) generations[WEFT_I_CUDA_DEVICES];

static weft_status open_device(weft_device device, weft_i_cuda_device **out)
{
    return weft_i_cuda_open(weft_i_device_index(device), out);
}

static weft_status identity(weft_device device, char *out, size_t bytes)
{
    weft_i_cuda_device *opened;
    int major = 0, minor = 0;
    WEFT_TRY(weft_i_nvrtc_version(&major, &minor));
    WEFT_TRY(open_device(device, &opened));
    snprintf(out, bytes, "NVRTC %d.%d for sm_%d%d", major, minor, opened->major, opened->minor);
    return WEFT_OK;
}

static weft_status compile(weft_device device, const char *source, int64_t deadline, void **image,
                           size_t *bytes)
{
    weft_i_cuda_device *opened;
    WEFT_TRY(open_device(device, &opened));
    weft_i_nvrtc_job job = {.source = source,
                            .title = "fused.cu",
                            .what = "the functions of a graph",
                            .major = opened->major,
                            .minor = opened->minor,
                            .deadline = deadline};
    return weft_i_nvrtc_compile(&job, image, bytes);
}

static weft_status load(weft_device device, const void *image, void **out)
{
    weft_i_cuda_device *opened;
    WEFT_TRY(open_device(device, &opened));
    module *made = WEFT_OS->alloc(sizeof *made);
    if (!made)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a module of cuda:%d",
                           opened->ordinal);
    weft_status status = weft_i_cuda_fail(weft_i_cuda_driver()->cuModuleLoadData(&made->raw, image),
                                          "loading compiled functions on cuda:%d", opened->ordinal);
    if (status < 0) {
        WEFT_OS->free(made);
        return status;
    }
    made->ordinal = opened->ordinal;
    pthread_mutex_lock(&lock);
    made->next = modules;
    modules = made;
    pthread_mutex_unlock(&lock);
    *out = made->raw;
    return WEFT_OK;
}

/* Loaded now, as the library's own kernels are: a first use might wait for a kernel that waits. */
static weft_status find(weft_device device, void *raw, const char *name, weft_i_code_kernel *kernel)
{
    const weft_i_cuda *cu = weft_i_cuda_driver();
    weft_i_cuda_device *opened;
    weft_i_cu_function function = NULL;
    int blocks = 0;
    WEFT_TRY(open_device(device, &opened));
    WEFT_CUDA_TRY(cu->cuModuleGetFunction(&function, raw, name), "kernel %s", name);
    if (cu->cuFuncLoad)
        WEFT_CUDA_TRY(cu->cuFuncLoad(function), "loading kernel %s", name);
    if (kernel->threads > opened->threads_most)
        kernel->threads = opened->threads_most;
    WEFT_CUDA_TRY(
        cu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, kernel->threads, 0),
        "occupancy of kernel %s", name);
    kernel->function = function;
    kernel->blocks = (blocks ? blocks : 1) * opened->multiprocessors;
    kernel->generation = atomic_load_explicit(&generations[opened->ordinal], memory_order_acquire);
    return WEFT_OK;
}

static bool is_loaded(weft_device device, const weft_i_code_kernel *kernel)
{
    unsigned now =
        atomic_load_explicit(&generations[weft_i_device_index(device)], memory_order_acquire);
    return kernel->function && kernel->generation == now;
}

static weft_status launch(weft_device device, const weft_i_code_kernel *kernel, uint64_t tasks,
                          const void *parameter)
{
    weft_i_cuda_stream *stream;
    WEFT_TRY(weft_i_cuda_current(device, &stream));
    WEFT_TRY(weft_i_cuda_use(stream->device));
    uint64_t per = kernel->by_threads ? (uint64_t)kernel->threads : 1;
    uint64_t blocks = (tasks + per - 1) / per, most = (uint64_t)kernel->blocks;
    weft_i_cu_launch config = {.gridDimX = (unsigned)(blocks < most ? blocks : most),
                               .gridDimY = 1,
                               .gridDimZ = 1,
                               .blockDimX = (unsigned)kernel->threads,
                               .blockDimY = 1,
                               .blockDimZ = 1,
                               .hStream = stream->raw};
    /* The driver only reads what the parameters point to; its declaration has no const. */
    void *parameters[] = {(void *)(uintptr_t)parameter};
    WEFT_CUDA_TRY(
        weft_i_cuda_driver()->cuLaunchKernelEx(&config, kernel->function, parameters, NULL),
        "launching a compiled function, %u blocks of %d threads, on cuda:%d", config.gridDimX,
        kernel->threads, stream->device->ordinal);
    return WEFT_OK;
}

static void describe(char *out, size_t bytes)
{
    weft_i_errors before;
    int major = 0, minor = 0;
    weft_i_errors_save(&before);
    if (weft_i_nvrtc_version(&major, &minor) == WEFT_OK)
        snprintf(out, bytes, "NVRTC %d.%d", major, minor);
    else
        snprintf(out, bytes, "none: %s", weft_last_error());
    weft_i_errors_restore(&before);
}

const weft_i_code weft_i_cuda_code = {.identity = identity,
                                      .compile = compile,
                                      .load = load,
                                      .find = find,
                                      .is_loaded = is_loaded,
                                      .launch = launch,
                                      .describe = describe};

static void unload_all(weft_i_cuda_device *device)
{
    pthread_mutex_lock(&lock);
    for (module **at = &modules; *at;) {
        module *old = *at;
        if (old->ordinal != device->ordinal) {
            at = &old->next;
            continue;
        }
        *at = old->next;
        weft_i_cuda_driver()->cuModuleUnload(old->raw);
        WEFT_OS->free(old);
    }
    pthread_mutex_unlock(&lock);
    atomic_fetch_add_explicit(&generations[device->ordinal], 1, memory_order_release);
}

__attribute__((constructor)) static void add(void)
{
    weft_i_cuda_at_close(unload_all);
}
