/* SPDX-License-Identifier: Apache-2.0 */
/* `weft bench --tune FILE`: finds up to which size collectives send their operands eagerly here. */
#ifndef WEFT_TOOLS_BENCH_TUNE_H
#define WEFT_TOOLS_BENCH_TUNE_H

#include "bench_options.h"

int bench_tune(const bench_options *options);

#endif
