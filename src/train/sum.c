/* SPDX-License-Identifier: Apache-2.0 */
/* XXH64, by its published specification. */
#include "train/sum.h"

#include <stdio.h>
#include <string.h>

#define PRIME_1 0x9E3779B185EBCA87u
#define PRIME_2 0xC2B2AE3D27D4EB4Fu
#define PRIME_3 0x165667B19E3779F9u
#define PRIME_4 0x85EBCA77C2B2AE63u
#define PRIME_5 0x27D4EB2F165667C5u

enum { STRIPE = 32 };

static uint64_t turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

/* Both processors that weft runs on are little-endian, as the specification is. */
static uint64_t word(const uint8_t *at)
{
    uint64_t out;
    memcpy(&out, at, sizeof out);
    return out;
}

static uint64_t half_word(const uint8_t *at)
{
    uint32_t out;
    memcpy(&out, at, sizeof out);
    return out;
}

static uint64_t stir(uint64_t lane, uint64_t input)
{
    return turn(lane + input * PRIME_2, 31) * PRIME_1;
}

static uint64_t merge(uint64_t hash, uint64_t lane)
{
    return (hash ^ stir(0, lane)) * PRIME_1 + PRIME_4;
}

void weft_i_sum_begin(weft_i_sum *sum)
{
    memset(sum, 0, sizeof *sum);
    sum->lane[0] = PRIME_1 + PRIME_2;
    sum->lane[1] = PRIME_2;
    sum->lane[3] = 0 - PRIME_1;
}

static const uint8_t *take_stripes(weft_i_sum *sum, const uint8_t *at, size_t stripes)
{
    uint64_t a = sum->lane[0], b = sum->lane[1], c = sum->lane[2], d = sum->lane[3];
    for (size_t i = 0; i < stripes; i++, at += STRIPE) {
        a = stir(a, word(at));
        b = stir(b, word(at + 8));
        c = stir(c, word(at + 16));
        d = stir(d, word(at + 24));
    }
    sum->lane[0] = a, sum->lane[1] = b, sum->lane[2] = c, sum->lane[3] = d;
    return at;
}

void weft_i_sum_add(weft_i_sum *sum, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    size_t waiting = sum->length % STRIPE;
    sum->length += count;
    if (waiting) {
        size_t more = STRIPE - waiting < count ? STRIPE - waiting : count;
        memcpy(sum->rest + waiting, at, more);
        at += more;
        count -= more;
        if (waiting + more < STRIPE)
            return;
        take_stripes(sum, sum->rest, 1);
    }
    at = take_stripes(sum, at, count / STRIPE);
    if (count % STRIPE)
        memcpy(sum->rest, at, count % STRIPE);
}

uint64_t weft_i_sum_end(const weft_i_sum *sum)
{
    uint64_t hash = PRIME_5;
    const uint8_t *at = sum->rest, *end = at + sum->length % STRIPE;
    if (sum->length >= STRIPE) {
        hash = turn(sum->lane[0], 1) + turn(sum->lane[1], 7) + turn(sum->lane[2], 12) +
               turn(sum->lane[3], 18);
        for (int i = 0; i < 4; i++)
            hash = merge(hash, sum->lane[i]);
    }
    hash += sum->length;
    for (; end - at >= 8; at += 8)
        hash = turn(hash ^ stir(0, word(at)), 27) * PRIME_1 + PRIME_4;
    for (; end - at >= 4; at += 4)
        hash = turn(hash ^ half_word(at) * PRIME_1, 23) * PRIME_2 + PRIME_3;
    for (; at < end; at++)
        hash = turn(hash ^ *at * PRIME_5, 11) * PRIME_1;
    hash = (hash ^ hash >> 33) * PRIME_2;
    hash = (hash ^ hash >> 29) * PRIME_3;
    return hash ^ hash >> 32;
}

uint64_t weft_i_sum_of(const void *bytes, size_t count)
{
    weft_i_sum sum;
    weft_i_sum_begin(&sum);
    weft_i_sum_add(&sum, bytes, count);
    return weft_i_sum_end(&sum);
}

const char *weft_i_sum_text(uint64_t sum, char out[WEFT_I_SUM_TEXT])
{
    snprintf(out, WEFT_I_SUM_TEXT, "%016llx", (unsigned long long)sum);
    return out;
}
