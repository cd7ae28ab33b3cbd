/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneDNN has one function for this that versions 2 and 3 share; it is exported but in no header, so
 * its prototype is here.  On processors it has no code for, the library is slow or refuses.
 */
#include "kernels/blas/dnnl.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/log.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef int dnnl_gemm(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                      float beta, float *c, int64_t ldc);

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Written once, before `once` lets anybody pass. */
static struct {
    const char *name;
    dnnl_gemm *gemm;
    int (*get_threads)(void); /* of OpenMP, if the library uses that */
    void (*set_threads)(int count);
} dnnl;

/* ISO C has no conversion from an object to a function pointer; POSIX promises that the bytes are
 * the same. */
static void take(void *library, const char *name, void *function)
{
    void *symbol = WEFT_OS->dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

static bool load(const char *name)
{
    void *library = WEFT_OS->dlopen(name);
    if (!library)
        return false;
    take(library, "dnnl_gemm_bf16bf16f32", &dnnl.gemm);
    if (!dnnl.gemm)
        return false;
    if (!getenv("OMP_NUM_THREADS")) {
        take(library, "omp_get_max_threads", &dnnl.get_threads);
        take(library, "omp_set_num_threads", &dnnl.set_threads);
    }
    dnnl.name = name;
    return true;
}

static void find(void)
{
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2"};
    const char *chosen = weft_i_env_text(WEFT_I_ENV_DNNL);
    if (*chosen) {
        if (strcmp(chosen, "none") && !load(chosen))
            weft_i_log(WEFT_LOG_WARN, "WEFT_DNNL=%s: no library with dnnl_gemm_bf16bf16f32",
                       chosen);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (load(names[i]))
            return;
}

const char *weft_i_dnnl_name(void)
{
    pthread_once(&once, find);
    return dnnl.name;
}

/* One thread, as with CBLAS (blas.c).  OpenMP has the number for each calling thread, and the
 * program may use it too. */
bool weft_i_dnnl_multiply(const weft_i_dnnl_product *p)
{
    if (!weft_i_dnnl_name())
        return false;
    bool alone = dnnl.get_threads && dnnl.set_threads;
    int threads = alone ? dnnl.get_threads() : 1;
    if (alone)
        dnnl.set_threads(1);
    int failed = dnnl.gemm(p->transpose_a, p->transpose_b, p->m, p->n, p->k, 1, p->a, p->lda, p->b,
                           p->ldb, 0, p->c, p->ldc);
    if (alone)
        dnnl.set_threads(threads);
    return !failed;
}
