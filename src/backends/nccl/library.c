/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading NCCL.  The functions are written under the mutex before `state` says LOADED and do not
 * change afterwards; the library stays loaded for the life of the process.
 */
#include "library.h"

#include "base/os/os.h"
#include "base/os/place.h"
#include "base/report/env.h"
#include "base/report/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FRESH, LOADED, REFUSED };

static weft_i_nccl library __attribute__((aligned(64))); /* as library.def has its lines */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static atomic_int state;  /* release in decide(), acquire in weft_i_nccl_load */
static char why_not[256]; /* of REFUSED */

static const struct {
    const char *name;
    bool optional;
    size_t at;
} functions[] = {
#define FN(name_, parameters_)       {#name_, false, offsetof(weft_i_nccl, name_)},
#define OPTIONAL(name_, parameters_) {#name_, true, offsetof(weft_i_nccl, name_)},
#include "library.def"
#undef FN
#undef OPTIONAL
    {"ncclGetErrorString", false, offsetof(weft_i_nccl, ncclGetErrorString)},
    {"ncclGetLastError", false, offsetof(weft_i_nccl, ncclGetLastError)},
};

const char *weft_i_nccl_version_text(int version, char *out, size_t bytes)
{
    snprintf(out, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return out;
}

/* The version is asked for first: an old library is told as such, not by what it lacks. */
static weft_status check_version(const char *name, void *found)
{
    weft_i_nccl_result (*get)(int *) = NULL;
    void *function = WEFT_OS->dlsym(found, "ncclGetVersion");
    memcpy(&get, &function, sizeof function);
    if (!get || get(&library.version) != WEFT_I_ncclSuccess)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s does not tell its version", name);
    char text[32];
    weft_i_nccl_version_text(library.version, text, sizeof text);
    if (library.version < WEFT_I_NCCL_OLDEST)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s is NCCL %s; 2.28 is the oldest that will do",
                           name, text);
    if (library.version >= WEFT_I_NCCL_BEYOND)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s is NCCL %s, of which this weft knows nothing; 2.28 and later 2.x "
                           "will do",
                           name, text);
    return WEFT_OK;
}

static weft_status find_functions(const char *name, void *found)
{
    char text[32];
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = WEFT_OS->dlsym(found, functions[i].name);
        if (!function && !functions[i].optional)
            return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s, NCCL %s, has no %s", name,
                               weft_i_nccl_version_text(library.version, text, sizeof text),
                               functions[i].name);
        memcpy((char *)&library + functions[i].at, &function, sizeof function);
    }
    return WEFT_OK;
}

bool weft_i_nccl_is_always(void)
{
    return !strcasecmp(weft_i_env_text(WEFT_I_ENV_NCCL), "always");
}

static weft_status load(void)
{
    const char *name = weft_i_env_text(WEFT_I_ENV_NCCL_LIBRARY);
    if (!strcasecmp(weft_i_env_text(WEFT_I_ENV_NCCL), "off"))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "WEFT_NCCL is off");
    void *found = WEFT_OS->dlopen(name);
    if (!found)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s cannot be loaded: NCCL is not installed, or WEFT_NCCL_LIBRARY "
                           "should say where",
                           name);
    WEFT_TRY(check_version(name, found));
    return find_functions(name, found);
}

/* Under the lock.  A refusal is for good too: ranks must not change their minds one by one. */
static void decide(void)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = load();
    snprintf(why_not, sizeof why_not, "%s", status < 0 ? weft_last_error() : "");
    weft_i_errors_restore(&before);
    /* Pairs with the acquire in weft_i_nccl_load. */
    atomic_store_explicit(&state, status < 0 ? REFUSED : LOADED, memory_order_release);
}

weft_status weft_i_nccl_load(const weft_i_nccl **out)
{
    /* Pairs with the release in decide. */
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == FRESH) {
        pthread_mutex_lock(&loading);
        if (atomic_load_explicit(&state, memory_order_relaxed) == FRESH) /* under the lock */
            decide();
        now = atomic_load_explicit(&state, memory_order_relaxed);
        pthread_mutex_unlock(&loading);
    }
    *out = now == LOADED ? &library : NULL;
    return now == LOADED ? WEFT_OK : weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s", why_not);
}

WEFT_I_HOT const weft_i_nccl *weft_i_nccl_library(void)
{
    return &library;
}

void weft_i_nccl_forget(void)
{
    pthread_mutex_lock(&loading);
    atomic_store_explicit(&state, FRESH, memory_order_release); /* pairs with the load's acquire */
    pthread_mutex_unlock(&loading);
}

weft_status weft_i_nccl_status_of(weft_i_nccl_result result)
{
    switch (result) {
    case WEFT_I_ncclSuccess:
    case WEFT_I_ncclInProgress:
        return WEFT_OK;
    case WEFT_I_ncclInvalidArgument:
        return WEFT_ERR_INVALID_ARG;
    case WEFT_I_ncclInvalidUsage: /* not UNSUPPORTED, after which this rank alone would go another way */
        return WEFT_ERR_STATE;
    case WEFT_I_ncclSystemError:
    case WEFT_I_ncclRemoteError:
        return WEFT_ERR_UNREACHABLE;
    default:
        return WEFT_ERR_DEVICE;
    }
}

weft_status weft_i_nccl_fail(weft_i_nccl_result result, weft_i_nccl_raw comm, const char *format,
                             ...)
{
    if (weft_i_nccl_is_fine(result))
        return WEFT_OK;
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *sentence = library.ncclGetErrorString(result);
    const char *more = library.ncclGetLastError(comm);
    return weft_i_fail(weft_i_nccl_status_of(result), "%s: NCCL says \"%s\" (%d)%s%.200s", what,
                       sentence ? sentence : "?", result, more && *more ? ", " : "",
                       more ? more : "");
}
