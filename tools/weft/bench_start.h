/* SPDX-License-Identifier: Apache-2.0 */
/* How benchmarks start their ranks. */
#ifndef WEFT_TOOLS_BENCH_START_H
#define WEFT_TOOLS_BENCH_START_H

#include <weft/launch.h>

/* Launches quietly.  Signals go to the ranks too; one that is to end them ends the command with them,
 * as it would end any other: what comes next is not measured. */
int bench_start(weft_launch_opts *opts);

#endif
