/* SPDX-License-Identifier: Apache-2.0 */
/* Where an MPI is installed, and which version it is. */
#ifndef WEFT_TOOLS_BENCH_INSTALL_H
#define WEFT_TOOLS_BENCH_INSTALL_H

#include <stddef.h>

enum { BENCH_INSTALL_PATH = 3000 };

typedef struct bench_install {
    char folder[BENCH_INSTALL_PATH]; /* empty: found through PATH */
    char launcher[BENCH_INSTALL_PATH + 32];
    char compiler[BENCH_INSTALL_PATH + 32]; /* empty: it has none */
    char library[BENCH_INSTALL_PATH + 32];  /* what to link, if it has no compiler */
    char version[32];
} bench_install;

/*
 * Looks for "openmpi", "mpich" or "impi" in `folders`, up to a NULL, then in PATH.  A folder has bin/ as a virtual
 * environment of Python has, or folders of that kind named as the families are.  Returns 1 if one was found.
 */
int bench_install_find(const char *family, const char *const *folders, bench_install *out);

#endif
