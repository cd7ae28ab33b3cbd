/* SPDX-License-Identifier: Apache-2.0 */
/* An order of numbers that is not kept anywhere. */
#ifndef WEFT_TRAIN_SHUFFLE_H
#define WEFT_TRAIN_SHUFFLE_H

#include <stdint.h>

/* Which of `count` numbers, up to 2^62, comes at place `at`: each at one place, in an order that
 * follows from the key. */
uint64_t weft_i_shuffle(uint64_t at, uint64_t count, uint64_t seed, uint64_t epoch);

#endif
