/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/number/random.c, tensor/op/random.c */
#include "harness.h"

#include "kernels/number/random.h"
#include "tensor/object/tensor.h"
#include "weft/op.h"
#include "weft/view.h"

/* The known answers published with the generator. */
TEST(test_random_philox_known_answers)
{
    static const uint32_t vectors[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        weft_i_philox(vectors[i], vectors[i] + 4, out);
        CHECK(!memcmp(out, vectors[i] + 6, sizeof out));
    }
}

/* The draws of a counter, as 53-bit fractions, straight from the known-good function. */
static void fractions(uint64_t seed, uint64_t counter, double out[2])
{
    uint32_t words[4], count[4] = {(uint32_t)counter, 0, 0, 0},
                       key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    weft_i_philox(count, key, words);
    for (int i = 0; i < 2; i++)
        out[i] = (double)(((uint64_t)words[2 * i + 1] << 32 | words[2 * i]) >> 11) * 0x1p-53;
}

TEST(test_random_distributions_follow_the_draws)
{
    enum { N = 20000 };
    weft_seed(0x123456789abcdef0);
    weft_tensor *u = weft_rand(WEFT_F64, WEFT_CPU, WEFT_SHAPE(N));
    weft_seed(0x123456789abcdef0);
    weft_tensor *z = weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(N));
    weft_seed(0x123456789abcdef0);
    weft_tensor *k = weft_randint(WEFT_I64, WEFT_CPU, WEFT_SHAPE(N), -10, 90);
    for (int i = 0; i < N; i += 2) {
        double draw[2];
        fractions(0x123456789abcdef0, (uint64_t)i / 2, draw);
        /* Box and Muller by the C library: the own logarithm and cosine agree to the last digits */
        double radius = sqrt(-2 * log(draw[0] + 0x1p-53)), angle = 2 * acos(-1) * draw[1];
        CHECK(weft_item(u, i) == draw[0] && weft_item(u, i + 1) == draw[1]);
        CHECK_NEAR(weft_item(z, i), radius * cos(angle), 1e-14 * radius);
        CHECK_NEAR(weft_item(z, i + 1), radius * sin(angle), 1e-14 * radius);
        CHECK(fabs(weft_item(k, i) - floor(draw[0] * 100 - 10)) <= (fmod(draw[0] * 100, 1) < 1e-9));
    }
}

TEST(test_random_moments)
{
    enum { N = 200000 };
    weft_seed(42);
    double sum = 0, squares = 0, fourth = 0;
    weft_tensor *z = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(N));
    const float *values = weft_tensor_data(z);
    for (int i = 0; i < N; i++) {
        sum += values[i];
        squares += values[i] * values[i];
        fourth += pow(values[i], 4);
    }
    CHECK_NEAR(sum / N, 0, 0.01);
    CHECK_NEAR(squares / N, 1, 0.02);
    CHECK_NEAR(fourth / N, 3, 0.1);
    int histogram[10] = {0};
    weft_tensor *u = weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(N));
    for (int i = 0; i < N; i++) {
        float x = ((const float *)weft_tensor_data(u))[i];
        CHECK(x >= 0 && x < 1);
        histogram[(int)(x * 10)]++;
    }
    for (int i = 0; i < 10; i++)
        CHECK_NEAR(histogram[i], N / 10, N / 10 * 0.03);
}

static uint64_t fingerprint(weft_tensor *x)
{
    uint64_t hash = 0xcbf29ce484222325;
    const unsigned char *bytes = weft_tensor_data(x);
    for (size_t i = 0; i < weft_tensor_bytes(x); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

/* The same bits on every machine and compiler: these numbers never change. */
TEST(test_random_bits_are_pinned)
{
    weft_seed(1234);
    CHECK_INT(fingerprint(weft_randn(WEFT_F64, WEFT_CPU, WEFT_SHAPE(10001))), 0x4d356b89779cd661);
    CHECK_INT(fingerprint(weft_rand(WEFT_F32, WEFT_CPU, WEFT_SHAPE(999))), 0x421cf065c167c009);
    CHECK_INT(fingerprint(weft_randn(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(999))), 0x33b134efeb9eaf5d);
    CHECK_INT(fingerprint(weft_randint(WEFT_U8, WEFT_CPU, WEFT_SHAPE(999), 0, 256)),
              0x9c9d40aae8f9b01e);
}

TEST(test_random_does_not_depend_on_layout)
{
    weft_seed(5);
    weft_tensor *a = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(31, 47));
    weft_tensor *b = weft_transpose(weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(47, 31)), 0, 1);
    weft_seed(5);
    CHECK_OK(weft_normal(b, 0, 1));
    CHECK(weft_equal(a, b));
    weft_tensor *c = weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(31, 47));
    CHECK(!weft_equal(a, c)); /* the generator moves on */
    weft_seed(6);
    CHECK(!weft_equal(a, weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(31, 47))));
}

TEST(test_random_small_floats_never_reach_the_end)
{
    for (int dtype = WEFT_F64; dtype <= WEFT_F8E5M2; dtype++) {
        weft_tensor *x = weft_rand((weft_dtype)dtype, WEFT_CPU, WEFT_SHAPE(5000));
        CHECK(weft_item(weft_max(x, NULL, 0, false), 0) < 1 &&
              weft_item(weft_min(x, NULL, 0, false), 0) >= 0);
        CHECK_NEAR(weft_item(weft_mean(weft_to_dtype(x, WEFT_F64), NULL, 0, false), 0), 0.5, 0.08);
    }
}

TEST(test_random_ranges)
{
    weft_tensor *x = weft_empty(WEFT_I32, WEFT_CPU, WEFT_SHAPE(4000));
    CHECK_OK(weft_integers(x, -3, 4));
    CHECK(weft_item(weft_max(x, NULL, 0, 0), 0) == 3 &&
          weft_item(weft_min(x, NULL, 0, 0), 0) == -3);
    weft_tensor *f = weft_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4000));
    CHECK_OK(weft_uniform(f, -2, 6));
    CHECK_NEAR(weft_item(weft_mean(f, NULL, 0, 0), 0), 2, 0.2);
    CHECK_OK(weft_normal(f, 10, 0));
    CHECK(weft_item(f, 77) == 10);
    CHECK_INT(weft_tensor_version(f), 2);
    CHECK_STATUS(weft_integers(x, 4, 4), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_integers(x, 7, -2), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), "integers: from 7 up to -2 there are none");
    CHECK_STATUS(weft_uniform(x, 0, 1), WEFT_ERR_TYPE);
    weft_tensor *wide = weft_empty(WEFT_I64, WEFT_CPU, WEFT_SHAPE(100));
    CHECK_OK(weft_integers(wide, INT64_MIN, INT64_MAX));
    CHECK(weft_item(weft_max(wide, NULL, 0, 0), 0) > 0x1p61 &&
          weft_item(weft_min(wide, NULL, 0, 0), 0) < -0x1p61);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
