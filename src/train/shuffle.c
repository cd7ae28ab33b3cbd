/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A permutation of the numbers below `count`: a Feistel network permutes those of as many bits, and
 * is walked until it comes to one that is small enough (Black and Rogaway, "Ciphers with arbitrary
 * finite domains", 2002).  The half that is mixed in comes from the generator of random numbers.
 */
#include "train/shuffle.h"

#include "kernels/number/random.h"

enum { ROUNDS = 6 };

/* `bits` bits of a number, of a round and the key. */
static uint64_t mix(uint64_t half, int bits, int round, uint64_t seed, uint64_t epoch)
{
    uint32_t counter[4] = {(uint32_t)half, (uint32_t)(half >> 32), (uint32_t)epoch,
                           (uint32_t)(epoch >> 32) ^ (uint32_t)round << 24},
             key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    weft_i_philox(counter, key, out);
    return out[0] & ((1u << bits) - 1);
}

static uint64_t permute(uint64_t x, int half, uint64_t seed, uint64_t epoch)
{
    uint64_t mask = ((uint64_t)1 << half) - 1, left = x >> half, right = x & mask;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ mix(right, half, round, seed, epoch);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t weft_i_shuffle(uint64_t at, uint64_t count, uint64_t seed, uint64_t epoch)
{
    int half = 1;
    while (half < 31 && (uint64_t)1 << 2 * half < count)
        half++;
    /* At most four times as many as there are: a few steps. */
    do
        at = permute(at, half, seed, epoch);
    while (at >= count);
    return at;
}
