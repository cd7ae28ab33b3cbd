/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a CBLAS: WEFT_BLAS, else OpenBLAS, else what the system calls its BLAS.  Its threads are
 * set to one, because the ranks of a job already use the cores, unless the user chose a number.
 */
#include "kernels/blas.h"

#include "base/env.h"
#include "base/log.h"
#include "base/os.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static weft_i_blas blas; /* written once, before `once` lets anybody pass */

/* ISO C has no conversion from an object to a function pointer; POSIX promises that the bytes are
 * the same. */
static void take(void *library, const char *name, void *function)
{
    void *symbol = WEFT_OS->dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

/* OpenBLAS and those made from it name themselves and the kernels they chose. */
static void ask_config(void *library)
{
    char *(*config)(void) = NULL, *(*core)(void) = NULL;
    take(library, "openblas_get_config", &config);
    take(library, "openblas_get_corename", &core);
    if (config)
        snprintf(blas.config, sizeof blas.config, "%s", config());
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
    if (*blas.config)
        weft_i_log(WEFT_LOG_INFO, "matrix products by %s: %s", name, blas.config);
    return true;
}

static void find(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libcblas.so.3", "libblas.so.3"};
    const char *chosen = weft_i_env_text(WEFT_I_ENV_BLAS);
    if (*chosen) {
        if (!load(chosen))
            weft_i_log(WEFT_LOG_WARN,
                       "WEFT_BLAS=%s: no library with cblas_sgemm; matrix products are slow loops",
                       chosen);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (load(names[i])) {
            if (!*blas.config)
                weft_i_log(
                    WEFT_LOG_WARN,
                    "matrix products by %s, which is not OpenBLAS but perhaps the reference "
                    "BLAS, many times slower (Debian: install libopenblas0-pthread; WEFT_BLAS "
                    "names another library and silences this)",
                    names[i]);
            return;
        }
    weft_i_log(WEFT_LOG_INFO,
               "no CBLAS library found (Debian: libopenblas0); matrix products are slow loops");
}

const weft_i_blas *weft_i_blas_get(void)
{
    pthread_once(&once, find);
    return blas.name ? &blas : NULL;
}
