/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVRTC, the compiler of the CUDA toolkit as a library: declared here, loaded when it is needed.  It
 * needs neither a GPU nor a driver.
 */
#ifndef WEFT_CUDA_NVRTC_H
#define WEFT_CUDA_NVRTC_H

#include "base/report/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct weft_i_nvrtc_job {
    const char *source, *title;
    const char *what; /* of the text, in messages */
    int major, minor; /* compute capability */
    int64_t deadline; /* kept by versions that can be stopped (12.8 and later) */
} weft_i_nvrtc_job;

/* Machine code; `*out` is the caller's, of WEFT_OS->alloc. */
weft_status weft_i_nvrtc_compile(const weft_i_nvrtc_job *job, void **out, size_t *bytes);

/* Its version; WEFT_ERR_UNSUPPORTED and the reason if it is missing or too old. */
weft_status weft_i_nvrtc_version(int *major, int *minor);

/* The headers that every source may include: texts, and their names; how many (image.c). */
int weft_i_cuda_headers(const char *const **texts, const char *const **names);

#endif
