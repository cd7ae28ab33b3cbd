/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private cache of compiled graphs: shared objects, and machine code of devices, in a folder of
 * the user's own, named by the SHA-256 of their source, of the compiler, and of the processor or
 * device.  Many ranks may use it at once.
 */
#ifndef WEFT_GRAPH_CODE_CACHE_H
#define WEFT_GRAPH_CODE_CACHE_H

#include "base/share/digest.h"
#include "graph/emit/compiler.h"
#include "weft/storage.h"

typedef enum weft_i_code_cache_end {
    WEFT_I_CODE_CACHE_FOUND, /* compiled before */
    WEFT_I_CODE_CACHE_BUILT,
    WEFT_I_CODE_CACHE_FAILED
} weft_i_code_cache_end;

/* Who makes files of the cache of source, and libraries of files. */
typedef struct weft_i_code_maker {
    char title[1100];    /* for people */
    char identity[1280]; /* what decides the result, beside the source */
    const char *suffix;
    const weft_i_compiler *compiler; /* NULL: a device's */
    weft_device device;
} weft_i_code_maker;

/* The C compiler, which must stay; the compiler of a device: false if there is none, `why` says it. */
void weft_i_code_maker_c(const weft_i_compiler *compiler, weft_i_code_maker *out);
bool weft_i_code_maker_of(weft_device device, weft_i_code_maker *out, char *why, size_t bytes);

/*
 * The library of this source, or the device's module: found, or compiled.  One rank compiles while
 * others wait for it, for as long as the compiler may take; then they compile themselves.  A file
 * that is not what was written (cut off, changed, not the user's) is compiled anew.
 */
weft_i_code_cache_end weft_i_code_cache_open(const weft_i_code_maker *maker, const char *source,
                                             void **library, char *why, size_t bytes);

#endif
