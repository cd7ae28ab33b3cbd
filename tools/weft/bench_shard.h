/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPT of bench_gpt.h cut over the ranks of a group: heads and hidden units are shared out, each
 * layer ends with two all_reduces, and all else is the same on all ranks.  Each rank's loss is its
 * share of the whole, so that gradients are those of the sum over the ranks.
 */
#ifndef WEFT_TOOLS_BENCH_SHARD_H
#define WEFT_TOOLS_BENCH_SHARD_H

#include <weft/weft.h>

enum { BENCH_SHARD_LAYERS = 4 };

typedef struct bench_shard {
    weft_group *world;
    weft_module *net;
    weft_optim *adam;
    weft_tensor *in, *out;
    weft_compiled *fast; /* NULL: steps run plainly */
} bench_shard;

/* `s` has its group, and stays where it is; handles of the current scope.  The weights are those of
 * the whole, whatever the number of ranks.  0, or -1 as weft_last_error says. */
int bench_shard_make(bench_shard *s);
/* From here on steps run compiled, by backend "c", with their backward. */
int bench_shard_compile(bench_shard *s);
/* Forward, backward, gradients of what all ranks have, optimizer.  `*loss` is of the whole. */
int bench_shard_step(bench_shard *s, double *loss);

#endif
