/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks put into their inputs and must find in their outputs.  Elements are small whole
 * numbers that repeat with a prime period and depend on rank and call, chosen so that every
 * reduction of them is exact in every dtype: results are compared bit by bit, and a part in the
 * wrong place, an element of the last call or of another rank shows.  The expected values are
 * worked out in int64 here, by none of the code that is measured.  C and C++.
 */
#ifndef WEFT_BENCH_PATTERN_H
#define WEFT_BENCH_PATTERN_H

#include "plan.h"

#include <stdlib.h>

enum {
    PATTERN_PERIOD = 251,   /* elements */
    PATTERN_TILE = 4 * 251, /* elements copied or compared at a time */
    PATTERN_ALL = 5 * 251,  /* so that a tile can begin at any phase */
    PATTERN_VARIANTS = 4    /* successive calls differ */
};

typedef struct pattern {
    plan_case what;
    size_t unit;
    unsigned char *own;  /* [rank][variant]: PATTERN_ALL elements of each rank's input */
    unsigned char *fold; /* [variant]: the reduction of all inputs */
} pattern;

static inline uint32_t pattern_hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static inline int pattern_is_float(int dtype)
{
    return dtype == WEFT_F64 || dtype == WEFT_F32 || dtype == WEFT_F16 || dtype == WEFT_BF16 ||
           dtype == WEFT_F8E4M3 || dtype == WEFT_F8E5M2;
}

/* Floats of 8 bits hold whole numbers up to 8 (e5m2) or 16 (e4m3). */
static inline int pattern_is_tiny(int dtype)
{
    return dtype == WEFT_F8E4M3 || dtype == WEFT_F8E5M2;
}

/* Can the reduction of this many ranks be exact in this dtype, and has it a meaning there? */
static inline int pattern_possible(int dtype, int reduction, int ranks)
{
    int bits = reduction == WEFT_BAND || reduction == WEFT_BOR || reduction == WEFT_BXOR;
    if (pattern_is_float(dtype) ? bits : reduction == WEFT_PREMUL_SUM)
        return 0;
    if (reduction == WEFT_AVG && plan_dtype_size(dtype) == 1 && !pattern_is_float(dtype))
        return dtype != WEFT_BOOL && ranks <= 31; /* the sum must fit */
    if (reduction == WEFT_PREMUL_SUM && dtype == WEFT_BF16)
        return ranks <= 42; /* whole numbers up to 256 */
    return !pattern_is_tiny(dtype) || ranks <= 8;
}

/* Element `index` of a rank's input. */
static inline int64_t pattern_value(int dtype, int reduction, int ranks, int rank, int variant,
                                    int index)
{
    uint32_t random = pattern_hash((uint32_t)(index % PATTERN_PERIOD) * 8191u +
                                   (uint32_t)rank * 131u + (uint32_t)variant * 17u + 1u);
    if (dtype == WEFT_BOOL)
        return random & 1;
    switch (reduction) {
    case WEFT_AVG: /* all hold the same, but for one rank that holds `ranks` more: exact quotient */
        random = pattern_hash((uint32_t)(index % PATTERN_PERIOD) * 8191u + (uint32_t)variant);
        if (pattern_is_tiny(dtype) && random & 1)
            return 0;
        return (int64_t)(pattern_is_tiny(dtype) ? 0 : random & 3) +
               ((int)(random >> 8 & 0xff) % ranks == rank ? ranks : 0);
    case WEFT_PRODUCT: /* three ranks at most hold twos */
        return rank < 3 ? 1 + (int64_t)(random & 1) : 1;
    case WEFT_PREMUL_SUM: /* the factor is 2: pattern_factor */
        return (int64_t)(pattern_is_tiny(dtype) ? rank < 4 && (random & 1) : random & 3);
    default:
        return (int64_t)(pattern_is_tiny(dtype) ? random & 1 : random & 3);
    }
}

static inline double pattern_factor(void)
{
    return 2;
}

/* A whole number from 0 on as a float with so many bits of exponent and mantissa. */
static inline uint64_t pattern_float_bits(int64_t value, int exponent_bits, int mantissa_bits)
{
    if (!value)
        return 0;
    int top = 63 - __builtin_clzll((unsigned long long)value);
    uint64_t rest = (uint64_t)value ^ (uint64_t)1 << top;
    uint64_t mantissa =
        top <= mantissa_bits ? rest << (mantissa_bits - top) : rest >> (top - mantissa_bits);
    return (uint64_t)(top + (1 << (exponent_bits - 1)) - 1) << mantissa_bits | mantissa;
}

static inline uint64_t pattern_bits(int dtype, int64_t value)
{
    switch (dtype) {
    case WEFT_F64:
        return pattern_float_bits(value, 11, 52);
    case WEFT_F32:
        return pattern_float_bits(value, 8, 23);
    case WEFT_F16:
        return pattern_float_bits(value, 5, 10);
    case WEFT_BF16:
        return pattern_float_bits(value, 8, 7);
    case WEFT_F8E4M3:
        return pattern_float_bits(value, 4, 3);
    case WEFT_F8E5M2:
        return pattern_float_bits(value, 5, 2);
    case WEFT_BOOL:
        return value != 0;
    default:
        return (uint64_t)value;
    }
}

static inline void pattern_store(unsigned char *to, size_t unit, uint64_t bits)
{
    uint8_t b1 = (uint8_t)bits;
    uint16_t b2 = (uint16_t)bits;
    uint32_t b4 = (uint32_t)bits;
    memcpy(to,
           unit == 1   ? (void *)&b1
           : unit == 2 ? (void *)&b2
           : unit == 4 ? (void *)&b4
                       : &bits,
           unit);
}

static inline int64_t pattern_combine(int reduction, int64_t a, int64_t b)
{
    switch (reduction) {
    case WEFT_PRODUCT:
        return a * b;
    case WEFT_MIN:
        return a < b ? a : b;
    case WEFT_MAX:
        return a > b ? a : b;
    case WEFT_BAND:
        return a & b;
    case WEFT_BOR:
        return a | b;
    case WEFT_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

/* What all ranks must get for element `index`. */
static inline int64_t pattern_folded(const plan_case *c, int variant, int index)
{
    int64_t all = 0;
    for (int rank = 0; rank < c->ranks; rank++) {
        int64_t one = pattern_value(c->dtype, c->reduction, c->ranks, rank, variant, index);
        all = rank ? pattern_combine(c->reduction, all, one) : one;
    }
    if (c->reduction == WEFT_AVG)
        return all / c->ranks;
    return c->reduction == WEFT_PREMUL_SUM ? all * (int64_t)pattern_factor() : all;
}

static inline unsigned char *pattern_own(const pattern *p, int rank, int variant)
{
    return p->own + ((size_t)rank * PATTERN_VARIANTS + (size_t)variant) * PATTERN_ALL * p->unit;
}

static inline unsigned char *pattern_fold(const pattern *p, int variant)
{
    return p->fold + (size_t)variant * PATTERN_ALL * p->unit;
}

static inline void pattern_close(pattern *p)
{
    free(p->own);
    free(p->fold);
    p->own = p->fold = NULL;
}

/* Works out all inputs and results of a case; 0 if there is no memory. */
static inline int pattern_open(pattern *p, const plan_case *c)
{
    p->what = *c;
    p->unit = plan_dtype_size(c->dtype);
    size_t block = (size_t)PATTERN_VARIANTS * PATTERN_ALL * p->unit;
    p->own = (unsigned char *)malloc(block * (size_t)c->ranks);
    p->fold = (unsigned char *)malloc(block);
    if (!p->own || !p->fold) {
        pattern_close(p);
        return 0;
    }
    int reduces = plan_op_reduces(c->op), reduction = reduces ? c->reduction : (int)WEFT_SUM;
    for (int v = 0; v < PATTERN_VARIANTS; v++)
        for (int i = 0; i < PATTERN_ALL; i++) {
            size_t at = (size_t)i * p->unit;
            for (int r = 0; r < c->ranks; r++)
                pattern_store(
                    pattern_own(p, r, v) + at, p->unit,
                    pattern_bits(c->dtype, pattern_value(c->dtype, reduction, c->ranks, r, v, i)));
            if (reduces)
                pattern_store(pattern_fold(p, v) + at, p->unit,
                              pattern_bits(c->dtype, pattern_folded(c, v, i)));
        }
    return 1;
}

/* Copies `bytes` of a pattern, from its element 0 on. */
static inline void pattern_put(const pattern *p, const unsigned char *from, void *to, size_t bytes)
{
    size_t tile = PATTERN_TILE * p->unit;
    unsigned char *at = (unsigned char *)to;
    for (; bytes > tile; at += tile, bytes -= tile)
        memcpy(at, from, tile);
    if (bytes) /* a barrier has no buffers */
        memcpy(at, from, bytes);
}

/* Reads `bytes` and counts the elements that are not those of the pattern from `first` on. */
static inline uint64_t pattern_differ(const pattern *p, const unsigned char *wanted, uint64_t first,
                                      const void *got, size_t bytes)
{
    size_t tile = PATTERN_TILE * p->unit;
    const unsigned char *at = (const unsigned char *)got;
    uint64_t wrong = 0;
    wanted += first % PATTERN_PERIOD * p->unit;
    while (bytes) {
        size_t now = bytes < tile ? bytes : tile;
        if (memcmp(at, wanted, now) != 0)
            for (size_t i = 0; i < now; i += p->unit)
                wrong += memcmp(at + i, wanted + i, p->unit) != 0;
        at += now;
        bytes -= now;
    }
    return wrong;
}

/* Writes the input of `rank` for call number `call`. */
static inline void pattern_fill(const pattern *p, int rank, uint64_t call, void *in)
{
    pattern_put(p, pattern_own(p, rank, (int)(call % PATTERN_VARIANTS)), in, p->what.in_bytes);
}

/* Reads the output of `rank` after call number `call` and counts what is wrong in it. */
static inline uint64_t pattern_check(const pattern *p, int rank, int root, uint64_t call,
                                     const void *out)
{
    const plan_case *c = &p->what;
    int v = (int)(call % PATTERN_VARIANTS), ranks = c->ranks;
    uint64_t each = c->part / p->unit, wrong = 0;
    const unsigned char *parts = (const unsigned char *)out;
    switch (c->op) {
    case PLAN_REDUCE:
        if (rank != root)
            return 0;
        /* fall through */
    case PLAN_ALL_REDUCE:
        return pattern_differ(p, pattern_fold(p, v), 0, out, c->bytes);
    case PLAN_REDUCE_SCATTER:
        return pattern_differ(p, pattern_fold(p, v), each * (uint64_t)rank, out, c->part);
    case PLAN_BROADCAST:
        return pattern_differ(p, pattern_own(p, root, v), 0, out, c->bytes);
    case PLAN_SCATTER:
        return pattern_differ(p, pattern_own(p, root, v), each * (uint64_t)rank, out, c->part);
    case PLAN_SEND_RECV:
        return pattern_differ(p, pattern_own(p, (rank + ranks - 1) % ranks, v), 0, out, c->bytes);
    case PLAN_GATHER:
        if (rank != root)
            return 0;
        /* fall through */
    case PLAN_ALL_GATHER:
        for (int r = 0; r < ranks; r++)
            wrong +=
                pattern_differ(p, pattern_own(p, r, v), 0, parts + (size_t)r * c->part, c->part);
        return wrong;
    case PLAN_ALL_TO_ALL:
        for (int r = 0; r < ranks; r++)
            wrong += pattern_differ(p, pattern_own(p, r, v), each * (uint64_t)rank,
                                    parts + (size_t)r * c->part, c->part);
        return wrong;
    default:
        return 0;
    }
}

#endif
