/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private cache of compiled graphs: shared objects in a folder of the user's own, named by the
 * SHA-256 of their source, of the compiler, and of the processor.  Many ranks may use it at once.
 */
#ifndef WEFT_GRAPH_CODE_CACHE_H
#define WEFT_GRAPH_CODE_CACHE_H

#include "base/digest.h"
#include "graph/compiler.h"

typedef enum weft_i_code_cache_end {
    WEFT_I_CODE_CACHE_FOUND, /* compiled before */
    WEFT_I_CODE_CACHE_BUILT,
    WEFT_I_CODE_CACHE_FAILED
} weft_i_code_cache_end;

/*
 * The library of this source: found, or compiled.  One rank compiles while others wait for it, for
 * as long as the compiler may take; then they compile themselves.  A file that is not what was
 * written (cut off, changed, not the user's) is compiled anew.
 */
weft_i_code_cache_end weft_i_code_cache_open(const weft_i_compiler *compiler, const char *source,
                                             void **library, char *why, size_t bytes);

#endif
