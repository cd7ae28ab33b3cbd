/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading UCX.  The functions are written under the mutex before `state` says LOADED and do not change
 * afterwards; the library stays loaded for the life of the process.
 */
#include "library.h"

#include "base/os/environ.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FRESH, LOADED, REFUSED };

static weft_i_ucx library;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static atomic_int state;  /* release in decide(), acquire in weft_i_ucx_load */
static char why_not[256]; /* of REFUSED */

static const struct {
    const char *name;
    bool optional;
    size_t at;
} functions[] = {
#define FN(result_, name_, parameters_)       {#name_, false, offsetof(weft_i_ucx, name_)},
#define OPTIONAL(result_, name_, parameters_) {#name_, true, offsetof(weft_i_ucx, name_)},
#include "library.def"
#undef FN
#undef OPTIONAL
};

/* The version is asked for first: an old library is told as such, not by what it lacks. */
static weft_status check_version(const char *name, void *found)
{
    void (*get)(unsigned *, unsigned *, unsigned *) = NULL;
    void *function = WEFT_OS->dlsym(found, "ucp_get_version");
    memcpy(&get, &function, sizeof function);
    if (!get)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s does not tell its version", name);
    get(&library.major, &library.minor, &library.release);
    if (library.major > WEFT_I_UCX_MAJOR)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s is UCX %u.%u, of which this weft knows nothing; 1.13 and later 1.x "
                           "will do",
                           name, library.major, library.minor);
    if (library.major < WEFT_I_UCX_MAJOR || library.minor < WEFT_I_UCX_MINOR)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s is UCX %u.%u; 1.13 is the oldest that will do",
                           name, library.major, library.minor);
    return WEFT_OK;
}

static weft_status find_functions(const char *name, void *found)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = WEFT_OS->dlsym(found, functions[i].name);
        if (!function && !functions[i].optional)
            return weft_i_fail(WEFT_ERR_UNSUPPORTED, "%s, UCX %u.%u.%u, has no %s", name,
                               library.major, library.minor, library.release, functions[i].name);
        memcpy((char *)&library + functions[i].at, &function, sizeof function);
    }
    return WEFT_OK;
}

/* While it is loaded UCX takes signals, patches munmap and chooses where its log goes, as these say,
 * or as the user does. */
static void *load_gently(const char *name)
{
    static const char *const own[][2] = {
        {"UCX_ERROR_SIGNALS", "UCX_ERROR_SIGNALS="},
        {"UCX_DEBUG_SIGNO", "UCX_DEBUG_SIGNO=0"},
        {"UCX_MEM_EVENTS", "UCX_MEM_EVENTS=n"},
        {"UCX_LOG_FILE", "UCX_LOG_FILE=stderr"},
        {"UCX_WARN_UNUSED_ENV_VARS", "UCX_WARN_UNUSED_ENV_VARS=n"}};
    const char *settings[6] = {NULL};
    for (size_t i = 0, count = 0; i < sizeof own / sizeof *own; i++)
        if (!getenv(own[i][0]))
            settings[count++] = own[i][1];
    if (!weft_i_environ_lend(settings))
        return NULL;
    void *found = WEFT_OS->dlopen(name);
    weft_i_environ_restore();
    return found;
}

static weft_status load(void)
{
    const char *name = weft_i_env_text(WEFT_I_ENV_UCX_LIBRARY);
    if (!strcasecmp(weft_i_env_text(WEFT_I_ENV_UCX), "off"))
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "WEFT_UCX is off");
    void *found = load_gently(name);
    if (!found)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "%s cannot be loaded: UCX is not installed, or WEFT_UCX_LIBRARY should "
                           "say where",
                           name);
    WEFT_TRY(check_version(name, found));
    WEFT_TRY(find_functions(name, found));
    if (library.ucs_debug_disable_signals && !getenv("UCX_ERROR_SIGNALS"))
        library.ucs_debug_disable_signals();
    return WEFT_OK;
}

/* Under the lock.  A refusal is for good too: ranks must not change their minds one by one. */
static void decide(void)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    weft_status status = load();
    snprintf(why_not, sizeof why_not, "%s", status < 0 ? weft_last_error() : "");
    weft_i_errors_restore(&before);
    /* Pairs with the acquire in weft_i_ucx_load. */
    atomic_store_explicit(&state, status < 0 ? REFUSED : LOADED, memory_order_release);
}

weft_status weft_i_ucx_load(const weft_i_ucx **out)
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

const weft_i_ucx *weft_i_ucx_library(void)
{
    return &library;
}

void weft_i_ucx_forget(void)
{
    pthread_mutex_lock(&loading);
    atomic_store_explicit(&state, FRESH, memory_order_release); /* pairs with the load's acquire */
    pthread_mutex_unlock(&loading);
}

weft_status weft_i_ucx_status_of(weft_i_ucs_status status)
{
    switch (status) {
    case WEFT_I_UCS_OK:
        return WEFT_OK;
    case WEFT_I_UCS_INPROGRESS:
        return WEFT_IN_PROGRESS;
    case WEFT_I_UCS_ERR_NO_MEMORY:
        return WEFT_ERR_NO_MEMORY;
    case WEFT_I_UCS_ERR_CANCELED:
        return WEFT_ERR_CANCELLED;
    default:
        return WEFT_ERR_UNREACHABLE;
    }
}

weft_status weft_i_ucx_fail(weft_i_ucs_status status, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *sentence = library.ucs_status_string(status);
    return weft_i_fail(weft_i_ucx_status_of(status), "%s: UCX says \"%s\" (%d)", what,
                       sentence ? sentence : "?", status);
}
