/* SPDX-License-Identifier: Apache-2.0 */
/* The counter-based generator and the distributions made from it. */
#include "kernels/number/random.h"

#include "kernels/number/draw.h"

void weft_i_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
    weft_i_draw_philox(x, key[0], key[1]);
    for (int i = 0; i < 4; i++)
        out[i] = x[i];
}

static void draw(weft_i_generator *generator, uint64_t out[2])
{
    weft_i_draw_words(generator->seed, generator->counter++, out);
}

void weft_i_random_uniform(weft_i_generator *generator, double *out, size_t n, int bits)
{
    uint64_t word[2];
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0)
            draw(generator, word);
        out[i] = weft_i_draw_uniform(word[i % 2], bits);
    }
}

void weft_i_random_normal(weft_i_generator *generator, double *out, size_t n)
{
    for (size_t i = 0; i < n; i += 2) {
        uint64_t word[2];
        double pair[2];
        draw(generator, word);
        weft_i_draw_normal(word, pair);
        out[i] = pair[0];
        if (i + 1 < n)
            out[i + 1] = pair[1];
    }
}

void weft_i_random_integers(weft_i_generator *generator, int64_t *out, size_t n, int64_t low,
                            int64_t high)
{
    uint64_t word[2];
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0)
            draw(generator, word);
        out[i] = weft_i_draw_integer(word[i % 2], low, high);
    }
}
