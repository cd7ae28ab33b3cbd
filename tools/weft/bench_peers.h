/* SPDX-License-Identifier: Apache-2.0 */
/* `weft bench --peers`: the same sweep for weft, its floor and the libraries people use today. */
#ifndef WEFT_TOOLS_BENCH_PEERS_H
#define WEFT_TOOLS_BENCH_PEERS_H

#include "bench_options.h"

/* Builds the peers' programs, measures and prints; the exit status. */
int bench_peers(const bench_options *options);

#endif
