/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The software driver: libcuda.so.1 as a test wants it, on memory files and threads.  A stream is a
 * thread, device memory is host memory, blocks of memory are memory files whose descriptors really
 * travel, kernels are the C twins of the real ones.  It shows what is called in which order and
 * whether the results are right; it shows neither speed nor the memory order of a GPU.
 *
 *     model_install();                        from now on dlopen finds it
 *     model.fail = "cuMemCreate"; model.fail_at = 2; model.fail_with = 2;
 *
 * It checks its caller: a context must be current, handles must live, nothing may be left at the
 * end (model_live).
 */
#ifndef WEFT_TESTS_CUDA_MODEL_H
#define WEFT_TESTS_CUDA_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct twin_place;

typedef struct model_kernel {
    const char *name;
    size_t bytes; /* of its parameter */
    int threads;
    void (*run)(const void *parameter);
    /* Of a module: the same in a library that has its own place of a thread. */
    void (*enter)(const void *parameter, const struct twin_place *place);
    struct model_kernel *next;
} model_kernel;

extern const model_kernel model_kernels[], model_tensor_kernels[]; /* the last has no name */
/* The threads that run the kernels of a stream. */
typedef struct model_crew model_crew;
model_crew *model_crew_new(void);
void model_crew_free(model_crew *crew);
void model_run(model_crew *crew, const model_kernel *kernel, const void *parameter, unsigned blocks,
               unsigned threads);

/* What the next tests want of the driver; written while no other thread uses it. */
enum { MODEL_DIES = -1 };
typedef struct model_wishes {
    int no_library;      /* libcuda.so.1 is not found */
    int no_nvrtc;        /* libnvrtc.so neither */
    int nvrtc_version;   /* 10 * major + minor; 0: 130 */
    int nvrtc_fails;     /* what nvrtcCompileProgram returns for functions of graphs */
    int nvrtc_compiles;  /* how often it was called for them */
    int no_blas;         /* nor libcublasLt.so */
    int no_blas_handle;  /* cublasLtCreate fails */
    int no_nvml;         /* libnvidia-ml.so.1 is not found */
    int nvml_fails;      /* what nvmlInit_v2 returns */
    int nvlinks;         /* of each device to the next */
    int switch_links;    /* of device 0; each further one has one more.  0: none has */
    int version;         /* what it tells; 0: 13000 */
    int devices;         /* -1: none; 0: 2 */
    const char *lacks;   /* a function it does not have */
    int capability;      /* 10 * major + minor; 0: 90 */
    int multiprocessors; /* 0: 8 */
    int threads_most;    /* of a block; 0: 8 */
    int multicast;       /* devices have it */
    size_t capacity;     /* bytes of device memory for cuMemAllocAsync; 0: 1 GiB */
    const char *fail;    /* this function fails ... */
    int fail_at;         /* ... at its n-th call from now, counted down; 0: never */
    int fail_with;       /* ... with this result, or, MODEL_DIES, takes the process along */
    int copy_pause_us;   /* how long a stream waits before each copy */
    int call_pause_us;   /* the same before what a library or the host does: products */
    int broken;          /* not 0: every call on the device gives this result */
} model_wishes;
extern model_wishes model;

void model_install(void);
void model_uninstall(void);

/* Objects and allocations that live; 0 when everything was given back. */
int model_live(void);

/* Of those, what is mapped or can be: blocks, multicast objects, addresses, mappings, bindings. */
int model_mapped(void);

/* The source of a graph's functions that its NVRTC was given last; NULL: none. */
const char *model_nvrtc_source(void);

/* How often a function was called. */
int model_calls(const char *name);

/* Of the capture that this thread ended last: its kernels, in the order in which they were given, and
 * whether one of them waits for another. */
int model_graph_kernels(void);
int model_graph_is_behind(int kernel, int other);

/* Whether memory of the pool may make one stream wait for another. */
int model_pool_orders(void);

#endif
