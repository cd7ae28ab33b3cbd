/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/number/math.c, kernels/vector/pointwise.c, kernels/vector/vector.c */
/*
 * The functions of kernels/number/math.h against those of the C library in a wider type, in units in the
 * last place; and the loops of every instruction set against the functions, bit by bit.
 * math_sweep.c tries every f32.
 */
#include "harness.h"

#include "math_functions.h"

#include <string.h>

static void check_f32(const struct function *f, float x)
{
    double expected = f->of_f32(x), off = distance_f32(f->f32(x), expected);
    if (off > f->ulp)
        FAIL("%s(%a) in f32 is %a, not %a: off by %g", f->name, x, f->f32(x), expected, off);
}

static void check_f64(const struct function *f, double x)
{
    wide expected = f->of_f64(x);
    double off = distance(f->f64(x), expected, 53, -1021, 1024);
    if (off > f->ulp)
        FAIL("%s(%a) in f64 is %a, not %La: off by %g", f->name, x, f->f64(x), expected, off);
}

TEST(test_math_f32)
{
    const uint64_t step = 40009; /* a prime */
    for (int k = 0; k < FUNCTIONS; k++)
        for (uint64_t u = 0; u < (uint64_t)1 << 32; u += step)
            check_f32(&functions[k], weft_i_f32_from_bits((uint32_t)u));
}

static uint64_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state ^ *state >> 29;
}

/* Any bits; numbers of usual size; and small ones. */
static double random_f64(uint64_t *state)
{
    uint64_t bits = random_bits(state);
    double unit = (double)(random_bits(state) >> 11) * 0x1p-52 - 1;
    return bits % 3 == 0   ? weft_i_f64_from_bits(random_bits(state))
           : bits % 3 == 1 ? unit * 40
                           : ldexp(unit, (int)(bits >> 40) % 40 - 20);
}

TEST(test_math_f64)
{
    uint64_t state = 1;
    for (int k = 0; k < FUNCTIONS; k++)
        for (int i = 0; i < 40000; i++)
            check_f64(&functions[k], random_f64(&state));
}

/* Of any bits, and of numbers whose product and sum are near each other. */
static float operand(uint64_t *state, int near)
{
    uint32_t bits = (uint32_t)(random_bits(state) >> 20);
    return weft_i_f32_from_bits(near ? (bits & 0x87ffffff) | 0x38000000 : bits);
}

static bool is_same_f32(float a, float b)
{
    return weft_i_f32_bits(a) == weft_i_f32_bits(b) || (a != a && b != b);
}

/* What processors without the instruction compute has the bits of the C library's fmaf. */
TEST(test_math_fma)
{
    uint64_t state = 5;
    for (int i = 0; i < 2000000; i++) {
        float a = operand(&state, i & 1), b = operand(&state, i & 1), c = operand(&state, i & 1);
        if (i % 3 == 0) /* few bits: the product is often half way */
            b = weft_i_f32_from_bits(weft_i_f32_bits(b) & 0xfff00000);
        if (i % 5 == 0) /* the rest alone is left */
            c = -(a * b);
        float expected = fmaf(a, b, c), by_f64 = weft_i_fma_wide_f32(a, b, c);
        if (!is_same_f32(by_f64, expected) || !is_same_f32(weft_i_fma_f32(a, b, c), expected))
            FAIL("%a * %a + %a is %a, not %a", a, b, c, by_f64, expected);
    }
}

/* The short form of exp gives the same bits where it may be used. */
TEST(test_math_exp_below)
{
    uint64_t state = 4;
    for (uint64_t u = 0x80000000; u <= 0xff800000; u += 4099) {
        float x = weft_i_f32_from_bits((uint32_t)u);
        CHECK(weft_i_f32_bits(weft_i_exp_below_f32(x)) == weft_i_f32_bits(weft_i_exp_f32(x)));
    }
    for (int i = 0; i < 200000; i++) {
        double x = -fabs(i % 2 ? random_f64(&state) : random_f64(&state) * 20);
        if (x == x)
            CHECK(weft_i_f64_bits(weft_i_exp_below_f64(x)) == weft_i_f64_bits(weft_i_exp_f64(x)));
    }
    CHECK(weft_i_exp_below_f32(-INFINITY) == 0 && weft_i_exp_below_f64(-INFINITY) == 0);
    CHECK(weft_i_exp_below_f32(0) == 1 && weft_i_exp_below_f64(-0.0) == 1);
}

/* What comes closest to multiples of pi/2, and the ends of the fast form. */
TEST(test_math_angles)
{
    static const double angles[] = {0x1.6ac5b262ca1ffp+849,
                                    0x1.921fb54442d18p+0,
                                    0x1.921fb54442d18p+1,
                                    0x1.2d97c7f3321d2p+2,
                                    0x1.fffffffffffffp+1023,
                                    WEFT_I_SIN_REACH_F64,
                                    0x1.ffffffffffffep+18,
                                    -0x1.0000000000001p+19,
                                    0x1.6ac5b2p+35,
                                    11,
                                    0x1p-1074,
                                    5e5,
                                    411557987.0,
                                    8.0};
    for (size_t i = 0; i < sizeof angles / sizeof *angles; i++)
        for (int k = 5; k <= 6; k++) {
            check_f64(&functions[k], angles[i]);
            check_f64(&functions[k], -angles[i]);
            check_f32(&functions[k], (float)angles[i]);
        }
    for (int e = 10; e < 1023; e++) /* next to multiples of pi/2 */
        check_f64(&functions[5], round(ldexp(1, e % 52)) * 0x1.921fb54442d18p+0 * ldexp(1, e / 52));
    CHECK(isinf(1 / weft_i_sin_f64(-0.0)) && 1 / weft_i_sin_f64(-0.0) < 0);
    CHECK(isinf(1 / weft_i_sin_f32(-0.0f)) && 1 / weft_i_sin_f32(-0.0f) < 0);
}

/* Values with one answer only: argument and result, by function. */
static const struct {
    int function;
    double x, y;
} specials[] = {
    {0, 0, 1},
    {0, -0.0, 1},
    {0, INFINITY, INFINITY},
    {0, -INFINITY, 0},
    {0, 1e300, INFINITY},
    {0, -1e300, 0},
    {1, 1, 0},
    {1, 0, -INFINITY},
    {1, -0.0, -INFINITY},
    {1, INFINITY, INFINITY},
    {1, -1, NAN},
    {1, -INFINITY, NAN},
    {1, -0x1p-1074, NAN},
    {2, 0, 0},
    {2, -0.0, -0.0},
    {2, INFINITY, 1},
    {2, -INFINITY, -1},
    {2, 1e30, 1},
    {2, -1e30, -1},
    {3, 0, 0},
    {3, -0.0, -0.0},
    {3, INFINITY, 1},
    {3, -INFINITY, -1},
    {3, 1e30, 1},
    {4, INFINITY, 0},
    {4, -INFINITY, 2},
    {5, 0, 0},
    {5, -0.0, -0.0},
    {5, INFINITY, NAN},
    {5, -INFINITY, NAN},
    {6, 0, 1},
    {6, -0.0, 1},
    {6, INFINITY, NAN},
    {7, 0, 0},
    {7, -0.0, -0.0},
    {7, INFINITY, INFINITY},
    {7, -INFINITY, -0.0},
    {0, NAN, NAN},
    {1, NAN, NAN},
    {2, NAN, NAN},
    {3, NAN, NAN},
    {4, NAN, NAN},
    {5, NAN, NAN},
    {6, NAN, NAN},
    {7, NAN, NAN},
    {0, -NAN, NAN},
    {3, -NAN, NAN},
    {5, -NAN, NAN},
};

TEST(test_math_specials)
{
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        const struct function *f = &functions[specials[i].function];
        float x = (float)specials[i].x, y = f->f32(x);
        double z = f->f64(specials[i].x);
        bool tiny = x == 0 && specials[i].x != 0; /* no such f32 */
        if (weft_i_f64_bits(z) != weft_i_f64_bits(specials[i].y) ||
            (!tiny && weft_i_f32_bits(y) != weft_i_f32_bits((float)specials[i].y)))
            FAIL("%s(%g) is %g in f32 and %g in f64, not %g", f->name, specials[i].x, y, z,
                 specials[i].y);
    }
}

enum { MOST = 200 };

/* `n` elements from `at` on, in place too, against the function. */
static void check_loop_f32(const struct function *f, const float *x, size_t n)
{
    float y[MOST + 1];
    const void *in[] = {x, x, x};
    weft_i_pointwise_kernel *kernel = weft_i_pointwise_find(f->kernel, WEFT_F32);
    y[n] = 7;
    for (int in_place = 0; in_place < 2; in_place++) {
        if (in_place) {
            memcpy(y, x, n * sizeof *x);
            in[0] = y;
        }
        kernel(n, y, in);
        for (size_t i = 0; i < n; i++)
            if (weft_i_f32_bits(y[i]) != weft_i_f32_bits(f->f32(x[i])))
                FAIL("%s(%a) in f32, element %zu of %zu, is %a by the loop, not %a", f->name, x[i],
                     i, n, y[i], f->f32(x[i]));
        CHECK(y[n] == 7);
    }
}

static void check_loop_f64(const struct function *f, const double *x, size_t n)
{
    double y[MOST + 1];
    const void *in[] = {x, x, x};
    y[n] = 7;
    weft_i_pointwise_find(f->kernel, WEFT_F64)(n, y, in);
    for (size_t i = 0; i < n; i++)
        if (weft_i_f64_bits(y[i]) != weft_i_f64_bits(f->f64(x[i])))
            FAIL("%s(%a) in f64, element %zu of %zu, is %a by the loop, not %a", f->name, x[i], i,
                 n, y[i], f->f64(x[i]));
    CHECK(y[n] == 7);
}

static void check_variant(uint64_t *state)
{
    float x[MOST];
    double y[MOST];
    for (int round = 0; round < 600; round++) {
        size_t n = random_bits(state) % MOST;
        bool usual = round % 2; /* else any bits, angles out of reach among them */
        for (size_t i = 0; i < n; i++) {
            y[i] = usual ? (double)(int64_t)random_bits(state) * 0x1p-58 : random_f64(state);
            x[i] = usual ? (float)y[i] : weft_i_f32_from_bits((uint32_t)random_bits(state));
        }
        for (int k = 0; k < FUNCTIONS; k++)
            if (functions[k].kernel >= 0) {
                check_loop_f32(&functions[k], x, n);
                check_loop_f64(&functions[k], y, n);
            }
    }
}

TEST(test_math_variants)
{
    uint64_t state = 2;
    const char *variant;
    for (int v = 0; (variant = weft_i_vector_variant(v)); v++)
        if (weft_i_vector_use(variant))
            check_variant(&state);
    CHECK(!weft_i_vector_use("none such") && weft_i_vector_use("baseline"));
    CHECK(weft_i_vector_use(NULL));
}

/* The bits are part of the promise: a sum over many results, the same on every machine. */
TEST(test_math_bits)
{
    uint64_t state = 3, sum = 0;
    for (int i = 0; i < 20000; i++) {
        double x = random_f64(&state);
        for (int k = 0; k < FUNCTIONS; k++)
            sum = (sum ^ weft_i_f64_bits(functions[k].f64(x)) ^
                   weft_i_f32_bits(functions[k].f32((float)x))) *
                  1099511628211u;
    }
    if (sum != 0x25f2922ae212fb4a)
        FAIL("the bits have changed: their sum is %#llx", (unsigned long long)sum);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
