/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnvshmem_host.so.3, over the software driver of tests/cuda.  Ranks are processes;
 * the heaps of all lie in one memory file, which travels in the unique id as a path of /proc.  Calls
 * in which all ranks meet really meet, and wait for ever for one that does not come.  Memory is full
 * of rubbish when it is new.
 *
 *     model_install();
 *     nvshmem_install();                     from now on dlopen finds it
 *     nvshmem_model.hang = "nvshmem_malloc";
 */
#ifndef WEFT_TESTS_NVSHMEM_MODEL_H
#define WEFT_TESTS_NVSHMEM_MODEL_H

/* What the next tests want of the library. */
typedef struct nvshmem_wishes {
    int no_library;    /* it is not found */
    const char *lacks; /* a function it does not have */
    int major, minor;  /* what it tells; 0: 3 and 8 */
    int no_start;      /* its start fails with this */
    const char *hang;  /* a function that does not come back */
    int scattered;     /* peers' heaps are mapped at no stride */
    int no_pointers;   /* peers' heaps have no address */
    int full;          /* the heap has no room */
    int no_alloc;      /* weft's n-th allocation from now on fails; counted down to 0 */
} nvshmem_wishes;
extern nvshmem_wishes nvshmem_model;

void nvshmem_install(void);

/* How often a function was called in this process. */
int nvshmem_calls(const char *name);

#endif
