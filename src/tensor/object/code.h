/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that is made for a device while the program runs: text is compiled, loaded and launched.
 * The device's kind brings a table (device.h); a kind without one runs its own kernels only.
 *
 * The text is C of the dialect that the kind's own kernels are written in, and may include their
 * headers.  A kernel has one parameter, an array of addresses.
 */
#ifndef WEFT_TENSOR_CODE_H
#define WEFT_TENSOR_CODE_H

#include "weft/storage.h"

#include <stdbool.h>

/* A kernel that was loaded, and how it is launched. */
typedef struct weft_i_code_kernel {
    void *function;
    int threads;         /* of a block */
    int blocks;          /* that fit the device at once */
    bool by_threads;     /* a task is a thread's; else a block's */
    unsigned generation; /* of the device it was loaded on */
} weft_i_code_kernel;

typedef struct weft_i_code {
    /* The compiler and the device, for the key of a cache.  WEFT_ERR_UNSUPPORTED and the reason if
     * nothing can be compiled. */
    weft_status (*identity)(weft_device device, char *out, size_t bytes);
    /* `*image` is the caller's, of WEFT_OS->alloc. */
    weft_status (*compile)(weft_device device, const char *source, int64_t deadline, void **image,
                           size_t *bytes);
    /* A module stays loaded as long as the device is open. */
    weft_status (*load)(weft_device device, const void *image, void **module);
    /* Fills the rest of `kernel` for the function `name`; `threads` is what it would like. */
    weft_status (*find)(weft_device device, void *module, const char *name,
                        weft_i_code_kernel *kernel);
    /* Whether the device it was loaded on is still open. */
    bool (*is_loaded)(weft_device device, const weft_i_code_kernel *kernel);
    /* In the order of the thread's current stream. */
    weft_status (*launch)(weft_device device, const weft_i_code_kernel *kernel, uint64_t tasks,
                          const void *parameter);
    /* For people: the compiler, or why there is none.  Opens no device. */
    void (*describe)(char *out, size_t bytes);
} weft_i_code;

#endif
