/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading NVSHMEM.  The functions are written under the mutex before `loaded` is set and do not
 * change afterwards; the library stays for the life of the process.
 */
#include "library.h"

#include "base/os/os.h"
#include "base/report/env.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static weft_i_nvshmem library;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
/* Release in load, acquire in weft_i_nvshmem_load: whoever sees it sees the functions. */
static atomic_bool loaded;

static const struct {
    const char *name;
    size_t at;
} functions[] = {
#define FN(result_, name_, parameters_) {#name_, offsetof(weft_i_nvshmem, name_)},
#include "library.def"
#undef FN
};

/* The version is asked for first: another major one is told as such, not by what it lacks. */
static weft_status check_version(void *found, const char *path)
{
    void (*tell)(int *, int *, int *) = NULL;
    if (found)
        memcpy(&tell, &found, sizeof found);
    if (tell)
        tell(&library.major, &library.minor, &library.patch);
    if (!tell || library.major != WEFT_I_NVSHMEM_MAJOR)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s is NVSHMEM %d.%d.%d; weft knows the calls of version %d", path,
                           library.major, library.minor, library.patch, WEFT_I_NVSHMEM_MAJOR);
    return WEFT_OK;
}

static weft_status load(void)
{
    const char *path = weft_i_env_text(WEFT_I_ENV_NVSHMEM_LIBRARY);
    library = (weft_i_nvshmem){0};
    void *handle = WEFT_OS->dlopen(path);
    if (!handle)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "there is no %s: NVSHMEM is not installed where libraries are looked "
                           "for, and WEFT_NVSHMEM_LIBRARY does not name it",
                           path);
    WEFT_TRY(check_version(WEFT_OS->dlsym(handle, "nvshmemx_vendor_get_version_info"), path));
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = WEFT_OS->dlsym(handle, functions[i].name);
        if (!found)
            return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s, NVSHMEM %d.%d.%d, lacks %s", path,
                               library.major, library.minor, library.patch, functions[i].name);
        memcpy((char *)&library + functions[i].at, &found, sizeof found);
    }
    atomic_store_explicit(&loaded, true, memory_order_release);
    return WEFT_OK;
}

weft_status weft_i_nvshmem_load(const weft_i_nvshmem **out)
{
    weft_status status = WEFT_OK;
    if (!atomic_load_explicit(&loaded, memory_order_acquire)) {
        pthread_mutex_lock(&loading);
        status = atomic_load_explicit(&loaded, memory_order_acquire) ? WEFT_OK : load();
        pthread_mutex_unlock(&loading);
    }
    *out = status == WEFT_OK ? &library : NULL;
    return status;
}

const weft_i_nvshmem *weft_i_nvshmem_functions(void)
{
    return &library;
}

void weft_i_nvshmem_unload(void)
{
    atomic_store_explicit(&loaded, false, memory_order_release); /* pairs with the loads above */
}
