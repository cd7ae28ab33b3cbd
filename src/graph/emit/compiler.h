/* SPDX-License-Identifier: Apache-2.0 */
/* The system's C compiler, found when it is needed, run with a deadline. */
#ifndef WEFT_GRAPH_COMPILER_H
#define WEFT_GRAPH_COMPILER_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weft_i_compiler {
    char path[1024];
    char identity[1280]; /* the program as it is now, the flags, and this machine's processor */
} weft_i_compiler;

/* WEFT_CC, or the first of cc, gcc and clang in PATH.  False if there is none; `why` says it. */
bool weft_i_compiler_find(weft_i_compiler *out, char *why, size_t bytes);

/* Compiles the file `source` into the shared object `object`, whose names may go through the
 * descriptor `keep` in /proc/self/fd: it stays open in the compiler.  False, with what it said in
 * `why`, if it fails or has not ended by the deadline: then it is killed. */
bool weft_i_compiler_run(const weft_i_compiler *compiler, int keep, const char *source,
                         const char *object, int64_t deadline, char *why, size_t bytes);

#endif
