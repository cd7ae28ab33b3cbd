/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for the C compiler, and how the software driver runs one of them. */
#include "model.h"

#include "kernels.cu"

#include "kernels/fold.h"

/* The kernels have dtypes and folds of their own, in the same order. */
#define DTYPE(name_, text_, type_, kind_) \
    _Static_assert((int)WEFT_K_##name_ == (int)WEFT_##name_, #name_ " is another dtype");
#include "weft/dtype.def"
#undef DTYPE
#define SAME_FOLD(name_) \
    _Static_assert((int)WEFT_K_##name_ == (int)WEFT_I_FOLD_##name_, #name_ " is another fold")
SAME_FOLD(SUM);
SAME_FOLD(AVG);
SAME_FOLD(PRODUCT);
SAME_FOLD(MIN);
SAME_FOLD(MAX);
SAME_FOLD(BAND);
SAME_FOLD(BOR);
SAME_FOLD(BXOR);
SAME_FOLD(PREMUL_SUM);
_Static_assert(WEFT_K_PREMUL_SUM + 1 == WEFT_I_FOLD_OPS, "a fold that kernels do not have");

#include <stdlib.h>

_Thread_local twin_place twin_here;

#define KERNEL(name_, threads_, type_, body_)           \
    static void run_##name_(const void *parameter)      \
    {                                                   \
        weft_kernel_##name_(*(const type_ *)parameter); \
    }
#include "kernels.def"
#undef KERNEL

const model_kernel model_kernels[] = {
#define KERNEL(name_, threads_, type_, body_) \
    {"weft_kernel_" #name_, sizeof(type_), threads_, run_##name_, NULL, NULL},
#include "kernels.def"
#undef KERNEL
    {NULL, 0, 0, NULL, NULL, NULL},
};

struct worker {
    const model_kernel *kernel;
    const void *parameter;
    twin_place place;
    pthread_t thread;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    twin_here = worker->place;
    if (worker->kernel->enter)
        worker->kernel->enter(worker->parameter, &worker->place);
    else
        worker->kernel->run(worker->parameter);
    return NULL;
}

/* All blocks at once, as the host promises that they fit. */
void model_run(const model_kernel *kernel, const void *parameter, unsigned blocks, unsigned threads)
{
    size_t all = (size_t)blocks * threads;
    twin_block *shared = calloc(blocks, sizeof *shared);
    struct worker *workers = calloc(all, sizeof *workers);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    for (unsigned b = 0; b < blocks; b++)
        pthread_barrier_init(&shared[b].barrier, NULL, threads);
    for (size_t i = 0; i < all; i++) {
        unsigned block = (unsigned)(i / threads), thread = (unsigned)(i % threads);
        workers[i] = (struct worker){.kernel = kernel, .parameter = parameter};
        workers[i].place = (twin_place){thread, threads, block, blocks, 0, &shared[block]};
        if (pthread_create(&workers[i].thread, &attr, work, &workers[i]) != 0)
            abort(); /* the machine is out of threads: no test can go on */
    }
    for (size_t i = 0; i < all; i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned b = 0; b < blocks; b++)
        pthread_barrier_destroy(&shared[b].barrier);
    pthread_attr_destroy(&attr);
    free(workers);
    free(shared);
}
