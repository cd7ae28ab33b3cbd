/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers from a counter (Philox 4x32, 10 rounds: Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3", 2011).  A draw depends only on (seed, counter), so it is the same in any
 * order of evaluation and on any machine; the normal distribution uses its own logarithm and
 * cosine, made of correctly rounded operations in a fixed order.
 */
#ifndef WEFT_KERNELS_RANDOM_H
#define WEFT_KERNELS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct weft_i_generator {
    uint64_t seed, counter; /* one step of the counter gives 128 bits */
} weft_i_generator;

/* The bare function, of four words and a key. */
void weft_i_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* `n` draws each; the generator moves on by as many steps as they took. */
void weft_i_random_uniform(weft_i_generator *generator, double *out, size_t n,
                           int bits); /* k / 2^bits in [0, 1) */
void weft_i_random_normal(weft_i_generator *generator, double *out, size_t n);
void weft_i_random_integers(weft_i_generator *generator, int64_t *out, size_t n, int64_t low,
                            int64_t high);

#endif
