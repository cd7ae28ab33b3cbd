/* SPDX-License-Identifier: Apache-2.0 */
/* Where the programs of peers (bench/peers) and their headers lie: beside the installed command, in
 * share/weft, so that its tree can be moved; for a command that was not installed, in its source. */
#ifndef WEFT_TOOLS_BENCH_TREE_H
#define WEFT_TOOLS_BENCH_TREE_H

#include <stdio.h>

enum { BENCH_TREE_PATH = 4096 };

typedef struct bench_tree {
    char root[BENCH_TREE_PATH];    /* has bench/peers and bench/meter.h */
    char headers[BENCH_TREE_PATH]; /* has weft/weft.h */
} bench_tree;

/* 0, or -1 if this command has neither. */
int bench_tree_find(bench_tree *out);

/* What a script of bench/peers prints, run by python3 for at most so many seconds; NULL if it cannot
 * be run. */
FILE *bench_tree_python(const char *script, int limit_s);

#endif
