/* SPDX-License-Identifier: Apache-2.0 */
/* One peer: how it is found, built and started.  The source of its program lies in bench/peers
 * (bench_tree.h); it is built when it is needed, in the user's cache (WEFT_CACHE_DIR). */
#ifndef WEFT_TOOLS_BENCH_PEER_H
#define WEFT_TOOLS_BENCH_PEER_H

#include "bench_install.h"
#include "bench_sweep.h"

typedef struct bench_peer {
    const char *key;     /* "ompi" */
    const char *family;  /* "openmpi", "mpich" or "impi" */
    const char *library; /* "Open MPI" */
    const char *way;     /* " coll/sm", or "" */
    int crowded;         /* is it measured when ranks share cores? */
    /* found out: */
    char name[40];           /* "Open MPI 4.1.4 coll/sm" */
    char missing[128];       /* why it cannot be measured; empty if it can */
    char ran[METER_LIBRARY]; /* what the library that ran calls itself; empty until then */
    bench_install install;
    char program[4096];
} bench_peer;

enum { BENCH_PEERS = 4 };

/* Finds all peers, first in the folder `from` unless that is NULL, and builds their programs; those
 * that are not there say why.  0, or -1 after a message if there is no place for the programs. */
int bench_peer_find_all(bench_peer peers[BENCH_PEERS], const char *from);

/* Can it do this at all? */
int bench_peer_can(const bench_peer *peer, const bench_options *options, int op);

/* Runs the plan of the sweep's board, whose first column then has its results; 0, or 1 after a
 * message. */
int bench_peer_run(bench_peer *peer, bench_sweep *sweep);

#endif
