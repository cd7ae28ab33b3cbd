/* SPDX-License-Identifier: Apache-2.0 */
/* Sums for the floor: as fast as plain loops get, for the dtypes a floor is offered for. */
#ifndef WEFT_TOOLS_BENCH_FOLD_H
#define WEFT_TOOLS_BENCH_FOLD_H

#include <stddef.h>

enum { BENCH_FOLD_MAX = 64 };

/*
 * out[*][i] = in[0][i] + in[1][i] + ... for `count` elements, all sources in one pass, each result
 * stored to every output.  An output may be an input.
 */
typedef void (*bench_fold)(void *const *out, int outs, const void *const *in, int ins,
                           size_t count);

/* NULL if there is none for the dtype (a weft_dtype): f32, f64, i32 and i64 have one. */
bench_fold bench_fold_find(int dtype);

#endif
