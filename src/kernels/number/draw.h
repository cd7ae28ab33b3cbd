/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The draws of random.h, one step of the counter at a time.  The kernels of GPUs are compiled from
 * this text too: a draw has the same bits everywhere.
 */
#ifndef WEFT_KERNELS_DRAW_H
#define WEFT_KERNELS_DRAW_H

#include <stdint.h>

#ifdef __CUDACC__
#define WEFT_I_DRAW static __device__ __forceinline__
#else
#include <math.h>
#define WEFT_I_DRAW static inline
#endif

WEFT_I_DRAW uint64_t weft_i_draw_bits(double x)
{
    union {
        double f;
        uint64_t u;
    } pun;
    pun.f = x;
    return pun.u;
}

WEFT_I_DRAW double weft_i_draw_double(uint64_t u)
{
    union {
        uint64_t u;
        double f;
    } pun;
    pun.u = u;
    return pun.f;
}

/* Ten rounds on the counter x with a key. */
WEFT_I_DRAW void weft_i_draw_philox(uint32_t *x, uint32_t key0, uint32_t key1)
{
    uint32_t x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xd2511f53 * x0, product1 = (uint64_t)0xcd9e8d57 * x2;
        x0 = (uint32_t)(product1 >> 32) ^ x1 ^ key0;
        x2 = (uint32_t)(product0 >> 32) ^ x3 ^ key1;
        x1 = (uint32_t)product1;
        x3 = (uint32_t)product0;
        key0 += 0x9e3779b9; /* the golden ratio, and sqrt(3) - 1 */
        key1 += 0xbb67ae85;
    }
    x[0] = x0, x[1] = x1, x[2] = x2, x[3] = x3;
}

/* Two words of 64 bits for step `count` of the counter. */
WEFT_I_DRAW void weft_i_draw_words(uint64_t seed, uint64_t count, uint64_t out[2])
{
    uint32_t x[4] = {(uint32_t)count, (uint32_t)(count >> 32), 0, 0};
    weft_i_draw_philox(x, (uint32_t)seed, (uint32_t)(seed >> 32));
    out[0] = (uint64_t)x[1] << 32 | x[0];
    out[1] = (uint64_t)x[3] << 32 | x[2];
}

/* k / 2^bits in [0, 1). */
WEFT_I_DRAW double weft_i_draw_uniform(uint64_t word, int bits)
{
    return (double)(word >> (64 - bits)) * weft_i_draw_double((uint64_t)(1023 - bits) << 52);
}

/* Natural logarithm of a normal x > 0: x = m 2^e with m near 1, log m = 2 atanh((m - 1) / (m + 1))
 * as a series. */
WEFT_I_DRAW double weft_i_draw_log(double x)
{
    uint64_t bits = weft_i_draw_bits(x);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | (uint64_t)1023 << 52;
    double m = weft_i_draw_double(bits);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1) / (m + 1), square = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return 2 * s * sum + exponent * 0.69314718055994530942;
}

/* cos and sin of 2 pi t for t in [0, 1): Taylor series on an eighth of the circle around a multiple
 * of a quarter. */
WEFT_I_DRAW void weft_i_draw_cos_sin(double t, double *cosine, double *sine)
{
    int quarter = (int)(t * 4 + 0.5);
    double x = (t - quarter * 0.25) * 6.283185307179586477, square = x * x, c = 1, s = 1;
    for (int k = 20; k >= 2; k -= 2) {
        c = 1 - c * square / (k * (k - 1));
        s = 1 - s * square / (k * (k + 1));
    }
    s *= x;
    double swap = quarter & 1 ? s : c, other = quarter & 1 ? c : s;
    *cosine = (quarter & 3) == 1 || (quarter & 3) == 2 ? -swap : swap;
    *sine = (quarter & 3) >= 2 ? -other : other;
}

/* Box and Muller: the words of one step give two independent normals. */
WEFT_I_DRAW void weft_i_draw_normal(const uint64_t word[2], double out[2])
{
    double cosine, sine;
    double radius = sqrt(
        -2 * weft_i_draw_log(((double)(word[0] >> 11) + 1) * 0x1p-53)); /* (0, 1]: never log 0 */
    weft_i_draw_cos_sin((double)(word[1] >> 11) * 0x1p-53, &cosine, &sine);
    out[0] = radius * cosine;
    out[1] = radius * sine;
}

/* The high word of draw x range: a bias of at most range / 2^64, and no rejection, so the count of
 * draws is fixed. */
WEFT_I_DRAW int64_t weft_i_draw_integer(uint64_t word, int64_t low, int64_t high)
{
    uint64_t range = (uint64_t)high - (uint64_t)low;
#ifdef __CUDACC__
    uint64_t scaled = __umul64hi(word, range);
#else
    uint64_t scaled = (uint64_t)((__extension__(unsigned __int128) word * range) >> 64);
#endif
    return (int64_t)((uint64_t)low + scaled);
}

#endif
