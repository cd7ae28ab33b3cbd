/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fold of inputs that come from several hosts, by the rank that has them all: the inputs of a host in
 * their order, then the hosts' partials as a tree, neighbours first.
 *
 *     hosts  0   1   2   3      0   1   2      0   1   2   3   4
 *             \ /     \ /        \ /   /        \ /   /     \ /
 *              \       /          +   /          +   /       /
 *               +-----+            +-+            +-+       /
 *                                                    +-----+
 *
 * With a number that is no power of two, so many of the first hosts are joined in pairs that a power
 * of two is left.  Ranks that exchange partials by recursive doubling (coll/hosts/schedule.h) come to
 * the same tree, and so to the same bits.
 */
#ifndef WEFT_KERNELS_FOLD_HOSTS_H
#define WEFT_KERNELS_FOLD_HOSTS_H

#include "kernels/fold/fold.h"

/* The largest power of two that is not more than `hosts`. */
static inline int weft_i_fold_whole(int hosts)
{
    return 1 << (31 - __builtin_clz((unsigned)hosts));
}

typedef struct weft_i_fold_hosts {
    weft_dtype dtype;
    weft_i_fold_op op;
    int hosts;
    const int *firsts; /* of each host its first input, and behind the last how many there are */
} weft_i_fold_hosts;

/* As weft_i_fold. */
void weft_i_fold_hosts_run(const weft_i_fold_hosts *how, void *const *out, int outputs,
                           const void *const *in, size_t count, const double *factors);

#endif
