/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH64 with seed 0: a checksum of 64 bits at the speed of memory, of which `xxhsum -H64` computes the
 * same.  It finds damage, not forgery.
 */
#ifndef WEFT_TRAIN_SUM_H
#define WEFT_TRAIN_SUM_H

#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_SUM_TEXT = 17 };

typedef struct weft_i_sum {
    uint64_t lane[4], length;
    uint8_t rest[32]; /* the last length % 32 bytes wait for more */
} weft_i_sum;

void weft_i_sum_begin(weft_i_sum *sum);
void weft_i_sum_add(weft_i_sum *sum, const void *bytes, size_t count);
uint64_t weft_i_sum_end(const weft_i_sum *sum);
uint64_t weft_i_sum_of(const void *bytes, size_t count);

/* As 16 hexadecimal digits. */
const char *weft_i_sum_text(uint64_t sum, char out[WEFT_I_SUM_TEXT]);

#endif
