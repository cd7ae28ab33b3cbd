/* SPDX-License-Identifier: Apache-2.0 */
/* What docs/from-nccl.md needs of CUDA's runtime, where the only device is the CPU. */
#ifndef TESTS_FROM_CUDA_RUNTIME_H
#define TESTS_FROM_CUDA_RUNTIME_H

#include <stdlib.h>
#include <string.h>

typedef void *cudaStream_t;
enum { cudaMemcpyDefault };

static inline int cudaSetDevice(int device)
{
    return device < 0;
}

static inline int cudaStreamCreate(cudaStream_t *stream)
{
    *stream = NULL;
    return 0;
}

static inline int cudaStreamSynchronize(cudaStream_t stream)
{
    return stream != NULL;
}

static inline int cudaMalloc(void **data, size_t bytes)
{
    *data = malloc(bytes);
    return !*data;
}

static inline int cudaFree(void *data)
{
    free(data);
    return 0;
}

static inline int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    memcpy(to, from, bytes);
    return kind;
}

#endif
