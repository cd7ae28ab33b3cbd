/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of tensors on a device that has streams: `weft bench --device cuda`. */
#ifndef WEFT_TOOLS_BENCH_DEVICE_H
#define WEFT_TOOLS_BENCH_DEVICE_H

#include "bench_options.h"

/* 0, or 1 after a message. */
int bench_device(const bench_options *options);

/* Finds from which size on NCCL is faster than weft's kernels; `options` has the collectives. */
int bench_device_tune(const bench_options *options);

#endif
