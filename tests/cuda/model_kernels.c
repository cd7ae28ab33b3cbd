/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for the C compiler, and how the software driver runs one of them. */
#include "model.h"

#include "kernels.cu"

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
    {"weft_kernel_" #name_, sizeof(type_), threads_, run_##name_},
#include "kernels.def"
#undef KERNEL
    {NULL, 0, 0, NULL},
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
