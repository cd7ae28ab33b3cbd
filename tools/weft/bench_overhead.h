/* SPDX-License-Identifier: Apache-2.0 */
/* `weft bench --overhead`: what calls cost apart from moving data. */
#ifndef WEFT_TOOLS_BENCH_OVERHEAD_H
#define WEFT_TOOLS_BENCH_OVERHEAD_H

#include "bench_options.h"

int bench_overhead(const bench_options *options);

#endif
