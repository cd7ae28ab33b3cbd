/* SPDX-License-Identifier: Apache-2.0 */
/* The counter-based generator and the distributions made from it. */
#include "kernels/random.h"

#include <math.h>
#include <string.h>

void weft_i_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t key0 = key[0], key1 = key[1];
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xd2511f53 * x0, product1 = (uint64_t)0xcd9e8d57 * x2;
        x0 = (uint32_t)(product1 >> 32) ^ x1 ^ key0;
        x2 = (uint32_t)(product0 >> 32) ^ x3 ^ key1;
        x1 = (uint32_t)product1;
        x3 = (uint32_t)product0;
        key0 += 0x9e3779b9; /* the golden ratio, and sqrt(3) - 1 */
        key1 += 0xbb67ae85;
    }
    out[0] = x0, out[1] = x1, out[2] = x2, out[3] = x3;
}

/* Two words of 64 bits for the next step of the counter. */
static void draw(weft_i_generator *generator, uint64_t out[2])
{
    uint64_t count = generator->counter++;
    uint32_t counter[4] = {(uint32_t)count, (uint32_t)(count >> 32), 0, 0}, word[4];
    uint32_t key[2] = {(uint32_t)generator->seed, (uint32_t)(generator->seed >> 32)};
    weft_i_philox(counter, key, word);
    out[0] = (uint64_t)word[1] << 32 | word[0];
    out[1] = (uint64_t)word[3] << 32 | word[2];
}

void weft_i_random_uniform(weft_i_generator *generator, double *out, size_t n, int bits)
{
    double step = ldexp(1, -bits);
    uint64_t word[2];
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0)
            draw(generator, word);
        out[i] = (double)(word[i % 2] >> (64 - bits)) * step;
    }
}

/* Natural logarithm of a normal x > 0: x = m 2^e with m near 1, log m = 2 atanh((m - 1) / (m + 1))
 * as a series. */
static double own_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
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
static void own_cos_sin(double t, double *cosine, double *sine)
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

/* Box and Muller: two draws give two independent normals. */
void weft_i_random_normal(weft_i_generator *generator, double *out, size_t n)
{
    for (size_t i = 0; i < n; i += 2) {
        uint64_t word[2];
        double cosine, sine;
        draw(generator, word);
        double radius =
            sqrt(-2 * own_log(((double)(word[0] >> 11) + 1) * 0x1p-53)); /* (0, 1]: never log 0 */
        own_cos_sin((double)(word[1] >> 11) * 0x1p-53, &cosine, &sine);
        out[i] = radius * cosine;
        if (i + 1 < n)
            out[i + 1] = radius * sine;
    }
}

/* The high word of draw x range: a bias of at most range / 2^64, and no rejection, so the count of
 * draws is fixed. */
void weft_i_random_integers(weft_i_generator *generator, int64_t *out, size_t n, int64_t low,
                            int64_t high)
{
    uint64_t range = (uint64_t)high - (uint64_t)low, word[2];
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0)
            draw(generator, word);
        uint64_t scaled = (uint64_t)((__extension__(unsigned __int128) word[i % 2] * range) >> 64);
        out[i] = (int64_t)((uint64_t)low + scaled);
    }
}
