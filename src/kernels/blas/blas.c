/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a CBLAS: WEFT_BLAS, else OpenBLAS, else what the system calls its BLAS.  An OpenBLAS that
 * does not know the processor is told its core (core.h) while it is loaded, unless the user says
 * which; then it shows what it can do.  Its threads are set to one, because the ranks of a job
 * already use the cores, unless the user chose a number.
 */
#include "kernels/blas/blas.h"

#include "base/os/environ.h"
#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"
#include "kernels/blas/blas_speed.h"
#include "kernels/blas/core.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static weft_i_blas blas; /* written once, before `once` lets anybody pass */

/* ISO C has no conversion from an object to a function pointer; POSIX promises that the bytes are
 * the same. */
static void take(void *library, const char *name, void *function)
{
    void *symbol = WEFT_OS->dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

/* What OPENBLAS_CORETYPE has for the library: as the user set it, or as it is told, or not at all
 * (NULL), since the library's own choice is good. */
static char setting[64] =
    "OPENBLAS_CORETYPE="; /* lives on for who reads the environment meanwhile */
static const char *user_core, *told_core;

static void choose_core(void)
{
    size_t used = strlen(setting);
    const char *users = getenv("OPENBLAS_CORETYPE");
    weft_i_core core = weft_i_core_here();
    const char *name = users ? users : core.listed ? NULL : core.newest;
    if (!name)
        return;
    snprintf(setting + used, sizeof setting - used, "%s", name);
    *(users ? &user_core : &told_core) = setting + used;
}

/* Who chose: the name is asked back, since the library may have been in the process already, or not
 * know the name. */
static void describe_core(const char *core)
{
    const char *who = user_core && !strcasecmp(user_core, core) ? ", by OPENBLAS_CORETYPE"
                      : user_core                               ? ", in spite of OPENBLAS_CORETYPE"
                      : told_core && !strcasecmp(told_core, core) ? ", told by weft"
                                                                  : ", its own choice";
    snprintf(blas.core, sizeof blas.core, "%s%s", core, who);
}

/* OpenBLAS and those made from it name themselves and the kernels they chose. */
static void ask_config(void *library)
{
    char *(*config)(void) = NULL, *(*core)(void) = NULL;
    take(library, "openblas_get_config", &config);
    take(library, "openblas_get_corename", &core);
    if (config)
        snprintf(blas.config, sizeof blas.config, "%s", config());
    if (core)
        describe_core(core());
    /* Newer ones have the core in the text already. */
    size_t used = strlen(blas.config);
    if (config && core && !strstr(blas.config, core()))
        snprintf(blas.config + used, sizeof blas.config - used, " %s", core());
}

static bool load(const char *name)
{
    void (*set_threads)(int) = NULL;
    void *library = WEFT_OS->dlopen(name);
    if (!library)
        return false;
    take(library, "cblas_sgemm", &blas.sgemm);
    take(library, "cblas_dgemm", &blas.dgemm);
    if (!blas.sgemm || !blas.dgemm)
        return false;
    take(library, "openblas_set_num_threads", &set_threads);
    if (set_threads && !getenv("OPENBLAS_NUM_THREADS"))
        set_threads(1);
    blas.name = name;
    ask_config(library);
    return true;
}

/* The user's choice or the first that is there. */
static bool load_any(const char *chosen)
{
    static const char *const names[] = {"libopenblas.so.0", "libcblas.so.3", "libblas.so.3"};
    if (*chosen)
        return load(chosen);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (load(names[i]))
            return true;
    return false;
}

/* What the user can do about a slow library. */
static void advise(char *text, size_t bytes)
{
    const char *newest = weft_i_core_here().newest;
    if (!*blas.core)
        snprintf(text, bytes,
                 "it is not OpenBLAS but perhaps the reference BLAS (Debian: install "
                 "libopenblas0-pthread; WEFT_BLAS names another library)");
    else if (user_core)
        snprintf(text, bytes, "OPENBLAS_CORETYPE=%s is set: unset it", user_core);
    else if (newest && strncasecmp(newest, blas.core, strlen(newest)) != 0)
        snprintf(text, bytes,
                 "start the program with OPENBLAS_CORETYPE=%s, or install a newer OpenBLAS",
                 newest);
    else
        snprintf(text, bytes, "a newer OpenBLAS may know this processor (WEFT_BLAS names one)");
}

static void judge(void)
{
    char advice[256];
    if (!weft_i_blas_speed_get(&blas, &blas.speed)) {
        blas.slow = !*blas.config;
        return;
    }
    blas.slow = weft_i_blas_speed_is_low(&blas.speed);
    if (!blas.slow)
        return;
    advise(advice, sizeof advice);
    weft_i_log(WEFT_LOG_WARN,
               "matrix products by %s are slow: %.0f GFLOP/s, where the vector units of this "
               "processor do %.0f (kernels: %s); %s",
               blas.name, blas.speed.product * 1e-9, blas.speed.vector * 1e-9,
               *blas.core ? blas.core : "it does not say which", advice);
}

static void find(void)
{
    const char *chosen = weft_i_env_text(WEFT_I_ENV_BLAS);
    choose_core();
    static const char *const settings[] = {setting, NULL};
    bool lent = told_core && weft_i_environ_lend(settings), found = load_any(chosen);
    if (lent)
        weft_i_environ_restore();
    if (found) {
        judge();
        weft_i_log(WEFT_LOG_INFO, "matrix products by %s: %s (%s)", blas.name, blas.config,
                   blas.core);
    } else if (*chosen)
        weft_i_log(WEFT_LOG_WARN,
                   "WEFT_BLAS=%s: no library with cblas_sgemm; matrix products are slow loops",
                   chosen);
    else
        weft_i_log(WEFT_LOG_INFO,
                   "no CBLAS library found (Debian: libopenblas0); matrix products are slow loops");
}

const weft_i_blas *weft_i_blas_get(void)
{
    pthread_once(&once, find);
    return blas.name ? &blas : NULL;
}
