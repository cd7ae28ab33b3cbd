/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands for tests of collectives.  The value of every element follows from a seed, a rank and an
 * index, so that each rank can tell what any other one brought without asking it.
 */
#ifndef WEFT_TESTS_COLL_VALUES_H
#define WEFT_TESTS_COLL_VALUES_H

#include "fold_reference.h"
#include "harness.h"
#include "harness_ranks.h"
#include "kernels/fold/fold.h"
#include "values_seed.h"

#include <weft/weft.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef enum values_kind {
    VALUES_WHOLE,   /* floats: -2 to 2; integers: any bits */
    VALUES_ANY,     /* any bits */
    VALUES_SPECIAL, /* NaN, infinities, zeros of both signs, denormals, the largest, 1 */
    VALUES_KINDS
} values_kind;

/* Bits of the exponent and of the fraction; 0 exponent bits: an integer. */
VALUES_UNSEEN void values_format(weft_dtype dtype, int *exponent, int *fraction)
{
    static const int table[][2] = {
        [WEFT_F64] = {11, 52}, [WEFT_F32] = {8, 23},   [WEFT_F16] = {5, 10},
        [WEFT_BF16] = {8, 7},  [WEFT_F8E4M3] = {4, 3}, [WEFT_F8E5M2] = {5, 2}};
    bool is_float = (size_t)dtype < sizeof table / sizeof *table;
    *exponent = is_float ? table[dtype][0] : 0;
    *fraction = is_float ? table[dtype][1] : 0;
}

VALUES_UNSEEN uint64_t values_float(int exponent, int fraction, values_kind kind, uint64_t random)
{
    uint64_t sign = (random >> 60 & 1) << (exponent + fraction);
    uint64_t last = (UINT64_C(1) << exponent) - 1, ones = (UINT64_C(1) << fraction) - 1;
    uint64_t one = (last >> 1) << fraction;
    if (kind == VALUES_WHOLE) {
        /* 0, 1 or 2, without a branch that nobody could foresee */
        uint64_t magnitude = random % 3, two = one + (UINT64_C(1) << fraction);
        return sign | (magnitude * one + (magnitude >> 1) * (two - 2 * one));
    }
    const uint64_t special[] = {
        last << fraction | ones, last << fraction, 0, 1, ones, (last - 1) << fraction | ones, one,
        last << fraction | 1};
    return sign | special[random % 8];
}

VALUES_UNSEEN uint64_t values_integer(int bits, values_kind kind, uint64_t random)
{
    uint64_t top = UINT64_C(1) << (bits - 1);
    const uint64_t special[] = {0, 1, top, top - 1, UINT64_MAX, random};
    return kind == VALUES_SPECIAL ? special[(random >> 32) % 6] : random;
}

/* One element's bits, of which the lowest count. */
VALUES_UNSEEN uint64_t values_bits(weft_dtype dtype, int item, int exponent, int fraction,
                                   values_kind kind, uint64_t random)
{
    if (dtype == WEFT_BOOL)
        return random & 1;
    if (exponent)
        return kind == VALUES_ANY ? random : values_float(exponent, fraction, kind, random);
    return values_integer(8 * item, kind, random);
}

enum { VALUES_BLOCK = 2048, VALUES_RANKS = 16 };

typedef union values_block {
    uint8_t of_1[VALUES_BLOCK];
    uint16_t of_2[VALUES_BLOCK];
    uint32_t of_4[VALUES_BLOCK];
    uint64_t of_8[VALUES_BLOCK];
} values_block;

/* At most VALUES_BLOCK elements from `first` on.  A loop for each size: tests spend most of their
 * time here. */
__attribute__((unused, noinline, no_sanitize("thread"), no_sanitize("address"),
               no_sanitize("undefined"))) static void
values_make(weft_dtype dtype, values_kind kind, uint64_t base, size_t first, size_t count,
            values_block *out)
{
    size_t item = weft_dtype_size(dtype);
    int exponent, fraction;
    values_format(dtype, &exponent, &fraction);
#define VALUES_LOOP(type_, field_)                                                       \
    for (size_t i = 0; i < count; i++) {                                                 \
        uint64_t random = values_mix(base + (first + i) * UINT64_C(0x2545f4914f6cdd1d)); \
        out->field_[i] =                                                                 \
            (type_)values_bits(dtype, sizeof(type_), exponent, fraction, kind, random);  \
    }
    if (item == 1)
        VALUES_LOOP(uint8_t, of_1)
    else if (item == 2)
        VALUES_LOOP(uint16_t, of_2)
    else if (item == 4)
        VALUES_LOOP(uint32_t, of_4)
    else
        VALUES_LOOP(uint64_t, of_8)
#undef VALUES_LOOP
}

/* Elements [first, first + count) of what `rank` brings.  Sanitizers see the copy. */
static inline void values_put(weft_dtype dtype, values_kind kind, uint64_t seed, int rank,
                              size_t first, size_t count, char *out)
{
    uint64_t base = values_random(seed, (uint64_t)rank + 1000);
    size_t item = weft_dtype_size(dtype);
    values_block block;
    for (size_t done = 0; done < count; done += VALUES_BLOCK) {
        size_t some = count - done < VALUES_BLOCK ? count - done : VALUES_BLOCK;
        values_make(dtype, kind, base, first + done, some, &block);
        memcpy(out + done * item, &block, some * item);
    }
}

static inline bool values_has_meaning(weft_dtype dtype, weft_reduction op)
{
    return weft_i_fold_find(dtype, (weft_i_fold_op)op) != NULL;
}

/* A program whose threads never run at once may say otherwise. */
#ifndef VALUES_LOCAL
#define VALUES_LOCAL _Thread_local
#endif

/* Results up to this long are checked by the reference fold alone; a sanitizer makes that slow, and
 * the plain build has checked the values. */
enum { VALUES_LONG = VALUES_SANITIZED ? 1 << 14 : 1 << 22 };

/*
 * Is out[i] the reduction of elements first + i of all ranks, bit by bit?  By the reference fold,
 * which shares no code with what made the result; of results beyond VALUES_LONG an eighth of the
 * blocks, others for each seed, and the rest by the fast fold.  Returns the first element that
 * differs, or -1.
 */
static inline int64_t values_check_fold(weft_dtype dtype, weft_reduction op, values_kind kind,
                                        uint64_t seed, int ranks, size_t first, size_t count,
                                        const double *factors, const char *out)
{
    static VALUES_LOCAL char in[VALUES_RANKS][VALUES_BLOCK * 8], expected[VALUES_BLOCK * 8];
    size_t item = weft_dtype_size(dtype);
    const void *sources[VALUES_RANKS];
    void *targets[1] = {expected};
    for (size_t at = 0; at < count; at += VALUES_BLOCK) {
        size_t n = count - at < VALUES_BLOCK ? count - at : VALUES_BLOCK;
        for (int rank = 0; rank < ranks; rank++) {
            values_put(dtype, kind, seed, rank, first + at, n, in[rank]);
            sources[rank] = in[rank];
        }
        bool by_reference =
            count <= VALUES_LONG || at + n == count || values_random(seed, at) % 8 == 0;
        if (harness_hosts && ranks == harness_current->ranks)
            fold_reference_hosts(dtype, (weft_i_fold_op)op, expected, sources, harness_host_sizes,
                                 harness_hosts, n, factors);
        else if (by_reference)
            fold_reference(dtype, (weft_i_fold_op)op, targets, 1, sources, ranks, n, factors);
        else
            weft_i_fold_find(dtype, (weft_i_fold_op)op)(targets, 1, sources, ranks, n, factors);
        if (memcmp(out + at * item, expected, n * item) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (memcmp(out + (at + i) * item, expected + i * item, item))
                return (int64_t)(at + i);
    }
    return -1;
}

/* Is out[i] element first + i of `rank`? */
static inline int64_t values_check(weft_dtype dtype, values_kind kind, uint64_t seed, int rank,
                                   size_t first, size_t count, const char *out)
{
    static VALUES_LOCAL char expected[VALUES_BLOCK * 8];
    size_t item = weft_dtype_size(dtype);
    for (size_t at = 0; at < count; at += VALUES_BLOCK) {
        size_t n = count - at < VALUES_BLOCK ? count - at : VALUES_BLOCK;
        values_put(dtype, kind, seed, rank, first + at, n, expected);
        if (memcmp(out + at * item, expected, n * item) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (memcmp(out + (at + i) * item, expected + i * item, item))
                return (int64_t)(at + i);
    }
    return -1;
}

/* Are all bytes `byte`?  Returns the first that is not, or -1. */
static inline int64_t values_check_byte(const void *memory, size_t bytes, unsigned char byte)
{
    const unsigned char *at = memory;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != byte)
            return (int64_t)i;
    return -1;
}

#endif
