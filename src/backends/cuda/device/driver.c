/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading and starting the CUDA driver.  The functions are written under the mutex before `state`
 * says LOADED and never change afterwards; the library stays loaded for the life of the process.
 */
#include "driver.h"

#include "base/os/os.h"
#include "base/os/place.h"
#include "symm/backend.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRESH, LOADED, STARTED };

static weft_i_cuda driver;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
/* Release in advance(), acquire in reached(): whoever sees LOADED sees the functions, whoever sees
 * STARTED sees that cuInit has returned, and in which generation. */
static atomic_int state;
static unsigned generation;

typedef weft_i_cu_result get_address(const char *name, void **out, int version, uint64_t flags,
                                     int *how);

static const struct {
    const char *name;
    int version;
    bool optional;
    size_t at;
} functions[] = {
#define FN(name_, version_, parameters_) {#name_, version_, false, offsetof(weft_i_cuda, name_)},
#define OPTIONAL(name_, version_, parameters_) \
    {#name_, version_, true, offsetof(weft_i_cuda, name_)},
#include "driver.def"
#undef FN
#undef OPTIONAL
};

static bool reached(int wanted)
{
    return atomic_load_explicit(&state, memory_order_acquire) >= wanted; /* pairs with advance() */
}

static void advance(int to)
{
    atomic_store_explicit(&state, to, memory_order_release); /* pairs with the acquire in reached */
}

/* POSIX promises that a function pointer survives in a void pointer; C alone does not, hence
 * memcpy. */
static void put(size_t at, void *function)
{
    memcpy((char *)&driver + at, &function, sizeof function);
}

static weft_status find_functions(get_address *get)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = NULL;
        int how = 0;
        weft_i_cu_result result = get(functions[i].name, &found, functions[i].version,
                                      WEFT_I_CU_GET_PROC_ADDRESS_DEFAULT, &how);
        if (result != WEFT_I_CUDA_SUCCESS || !found) {
            if (!functions[i].optional)
                return weft_i_fail(
                    WEFT_ERR_UNSUPPORTED,
                    "libcuda.so.1 lacks %s of CUDA %d.%d: the NVIDIA driver is too old",
                    functions[i].name, functions[i].version / 1000,
                    functions[i].version % 1000 / 10);
            found = NULL;
        }
        put(functions[i].at, found);
    }
    return WEFT_OK;
}

/* The version is asked for first: an old driver is told as such, not by what it lacks. */
static weft_status check_version(get_address *get)
{
    weft_i_cu_result (*version)(int *) = NULL;
    void *found = NULL;
    int how = 0;
    if (get("cuDriverGetVersion", &found, 2020, 0, &how) == WEFT_I_CUDA_SUCCESS && found)
        memcpy(&version, &found, sizeof found);
    if (!version || version(&driver.version) != WEFT_I_CUDA_SUCCESS)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "libcuda.so.1 does not tell its version");
    if (driver.version < WEFT_I_CUDA_OLDEST)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "the NVIDIA driver offers CUDA %d.%d; %d.%d is the oldest that will do",
                           driver.version / 1000, driver.version % 1000 / 10,
                           WEFT_I_CUDA_OLDEST / 1000, WEFT_I_CUDA_OLDEST % 1000 / 10);
    return WEFT_OK;
}

static weft_status load(void)
{
    void *library = WEFT_OS->dlopen("libcuda.so.1");
    if (!library)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "there is no libcuda.so.1: the NVIDIA driver is not installed");
    void *found = WEFT_OS->dlsym(library, "cuGetProcAddress_v2");
    if (!found)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "libcuda.so.1 has no cuGetProcAddress_v2: the "
                                                 "NVIDIA driver is older than CUDA 12.0");
    get_address *get;
    memcpy(&get, &found, sizeof found);
    WEFT_TRY(check_version(get));
    WEFT_TRY(find_functions(get));
    advance(LOADED);
    return WEFT_OK;
}

weft_status weft_i_cuda_load(const weft_i_cuda **out)
{
    weft_status status = WEFT_OK;
    if (!reached(LOADED)) {
        pthread_mutex_lock(&loading);
        status = reached(LOADED) ? WEFT_OK : load();
        pthread_mutex_unlock(&loading);
    }
    *out = status == WEFT_OK ? &driver : NULL;
    return status;
}

/*
 * Streams that share one of the device's queues wait for each other, and a kernel that waits for
 * another rank would hold up that rank's.  32 queues are the most; under MPS all ranks of the
 * device together get 96.
 */
static void want_queues(void)
{
    const char *local = getenv("LOCAL_WORLD_SIZE");
    int ranks = local ? atoi(local) : 1;
    char text[16];
    snprintf(text, sizeof text, "%d", ranks > 3 ? (96 / ranks > 1 ? 96 / ranks : 1) : 32);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 0);
}

/*
 * Ranks that are threads share a context, and there loading code may wait until no kernel runs.  A
 * rank that is the first to use one of a library's kernels, a matrix product's, would wait for
 * another rank's kernel, which waits for that rank.  So all code is loaded when it is opened.
 */
static void want_code(void)
{
    if (weft_i_backend_among_threads())
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

bool weft_i_cuda_loads_late(void)
{
    int mode = 0;
    return driver.cuModuleGetLoadingMode(&mode) == WEFT_I_CUDA_SUCCESS &&
           mode == WEFT_I_CU_MODULE_LAZY_LOADING;
}

static weft_status start(void)
{
    want_queues();
    want_code();
    weft_i_cu_result result = driver.cuInit(0);
    if (result == WEFT_I_CUDA_ERROR_NO_DEVICE)
        return weft_i_fail(
            WEFT_ERR_UNSUPPORTED, "cuInit finds no CUDA device (CUDA_VISIBLE_DEVICES is %s)",
            getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "not set");
    WEFT_CUDA_TRY(result, "cuInit");
    generation = weft_i_os_generation();
    advance(STARTED);
    return WEFT_OK;
}

weft_status weft_i_cuda_start(const weft_i_cuda **out)
{
    *out = NULL;
    const weft_i_cuda *functions_loaded;
    WEFT_TRY(weft_i_cuda_load(&functions_loaded));
    weft_status status = WEFT_OK;
    if (!reached(STARTED)) {
        pthread_mutex_lock(&loading);
        status = reached(STARTED) ? WEFT_OK : start();
        pthread_mutex_unlock(&loading);
    }
    WEFT_TRY(status);
    WEFT_TRY(weft_i_cuda_check_process());
    *out = functions_loaded;
    return WEFT_OK;
}

const weft_i_cuda *weft_i_cuda_driver(void)
{
    return &driver;
}

WEFT_I_HOT weft_status weft_i_cuda_check_process(void)
{
    if (__builtin_expect(reached(STARTED) && !weft_i_os_is_generation(generation), 0))
        return weft_i_fail(WEFT_ERR_STATE,
                           "CUDA was started before this process was forked, and does not work in "
                           "children: fork first, or start the ranks with weft run");
    return WEFT_OK;
}

bool weft_i_cuda_is_sticky(weft_i_cu_result result)
{
    switch (result) {
    case WEFT_I_CUDA_ERROR_ECC_UNCORRECTABLE:
    case WEFT_I_CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case WEFT_I_CUDA_ERROR_CONTAINED:
    case WEFT_I_CUDA_ERROR_ILLEGAL_ADDRESS:
    case WEFT_I_CUDA_ERROR_LAUNCH_TIMEOUT:
    case WEFT_I_CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case WEFT_I_CUDA_ERROR_ASSERT:
    case WEFT_I_CUDA_ERROR_HARDWARE_STACK_ERROR:
    case WEFT_I_CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case WEFT_I_CUDA_ERROR_MISALIGNED_ADDRESS:
    case WEFT_I_CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case WEFT_I_CUDA_ERROR_INVALID_PC:
    case WEFT_I_CUDA_ERROR_LAUNCH_FAILED:
    case WEFT_I_CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case WEFT_I_CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case WEFT_I_CUDA_ERROR_EXTERNAL_DEVICE:
        return true;
    default:
        return false;
    }
}

static weft_status status_of(weft_i_cu_result result)
{
    if (weft_i_cuda_is_sticky(result))
        return WEFT_ERR_DEVICE;
    switch (result) {
    case WEFT_I_CUDA_ERROR_OUT_OF_MEMORY:
        return WEFT_ERR_NO_MEMORY;
    case WEFT_I_CUDA_ERROR_INVALID_VALUE:
        return WEFT_ERR_INVALID_ARG;
    case WEFT_I_CUDA_ERROR_INVALID_DEVICE:
        return WEFT_ERR_NOT_FOUND;
    case WEFT_I_CUDA_ERROR_NOT_INITIALIZED:
    case WEFT_I_CUDA_ERROR_DEINITIALIZED:
    case WEFT_I_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case WEFT_I_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
        return WEFT_ERR_STATE;
    case WEFT_I_CUDA_ERROR_OPERATING_SYSTEM:
        return WEFT_ERR_IO;
    case WEFT_I_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
        return WEFT_ERR_LIMIT;
    default:
        return WEFT_ERR_UNSUPPORTED;
    }
}

weft_status weft_i_cuda_fail(weft_i_cu_result result, const char *format, ...)
{
    if (result == WEFT_I_CUDA_SUCCESS)
        return WEFT_OK;
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *name = NULL, *sentence = NULL;
    if (!driver.cuGetErrorName || driver.cuGetErrorName(result, &name) != WEFT_I_CUDA_SUCCESS)
        name = "an error this driver has no name for";
    if (!driver.cuGetErrorString ||
        driver.cuGetErrorString(result, &sentence) != WEFT_I_CUDA_SUCCESS)
        sentence = "";
    weft_status status = status_of(result);
    return weft_i_fail(status, "%s: %s (%d)%s%s%s", what, name ? name : "?", result,
                       sentence && *sentence ? ": " : "", sentence ? sentence : "",
                       status == WEFT_ERR_DEVICE
                           ? "; a kernel enqueued earlier failed, and this process can use the "
                             "device no more"
                           : "");
}
