/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers that follow from the seed of a run, HARNESS_SEED, and samples of cases.  A test that
 * has more cases than a run needs takes some of them, others with each seed; WEFT_TEST_ALL=1 takes all.
 */
#ifndef WEFT_TESTS_VALUES_SEED_H
#define WEFT_TESTS_VALUES_SEED_H

#include "sanitized.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUES_SANITIZED (SANITIZED_ADDRESS || SANITIZED_THREAD)

/* Makes values in memory of its own: a sanitizer has nothing to see there and would take most of
 * the time of a test. */
#define VALUES_UNSEEN                                                            \
    __attribute__((always_inline, no_sanitize("thread"), no_sanitize("address"), \
                   no_sanitize("undefined"))) static inline

VALUES_UNSEEN uint64_t values_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The n-th random number that belongs to a seed. */
static inline uint64_t values_random(uint64_t seed, uint64_t n)
{
    return values_mix(values_mix(seed) ^ n * UINT64_C(0xd1342543de82ef95));
}

/* HARNESS_SEED, or a new one that every rank inherits. */
__attribute__((unused)) static uint64_t values_seed(void)
{
    const char *text = getenv("HARNESS_SEED");
    return text ? strtoull(text, NULL, 0) : 1;
}

/* For main(): chooses the seed of this run and says it, so that the run can be repeated. */
__attribute__((unused)) static void values_choose_seed(void)
{
    char text[32];
    if (!getenv("HARNESS_SEED")) {
        unsigned chosen = 0;
        FILE *source = fopen("/dev/urandom", "r");
        if (!source || fread(&chosen, sizeof chosen, 1, source) != 1)
            chosen = 1;
        if (source)
            fclose(source);
        snprintf(text, sizeof text, "%u", chosen);
        setenv("HARNESS_SEED", text, 1);
    }
    fprintf(stderr, "HARNESS_SEED=%s\n", getenv("HARNESS_SEED"));
}

/* Does this run take that case of a test?  One of `one_of` on average. */
__attribute__((unused)) static bool values_takes(uint64_t number, unsigned one_of)
{
    return getenv("WEFT_TEST_ALL") || values_random(values_seed() ^ 0x5a3917, number) % one_of == 0;
}

/* Where a walk through every `stride`-th of some steps begins. */
__attribute__((unused)) static int values_first(uint64_t number, int stride)
{
    return 1 + (int)(values_random(values_seed() ^ 0x71c5, number) % (unsigned)stride);
}

#endif
