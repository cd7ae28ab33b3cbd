/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of kernels/math.h against those of the C library in a wider type, in units in the
 * last place; and the loops of every instruction set against the functions, bit by bit.  With
 * WEFT_TEST_ALL=1 every f32 is tried, which takes some minutes.
 */
#include "harness.h"

#include "kernels/math.h"
#include "kernels/vector.h"

#include <string.h>

typedef long double wide;

/* gelu stays near the functions it is made of; where it ends in subnormals digits are lost. */
static wide gelu(wide x)
{
    return x * erfcl(-x / sqrtl(2)) / 2;
}

static double gelu_of_f32(double x)
{
    return x * erfc(-x / sqrt(2)) / 2;
}

static const struct function {
    const char *name;
    int kernel; /* -1: none */
    float (*f32)(float);
    double (*f64)(double);
    double (*of_f32)(double);
    wide (*of_f64)(wide);
    double ulp;
} functions[] = {
    {"exp", WEFT_I_POINTWISE_exp, weft_i_exp_f32, weft_i_exp_f64, exp, expl, 1},
    {"log", WEFT_I_POINTWISE_log, weft_i_log_f32, weft_i_log_f64, log, logl, 1},
    {"tanh", WEFT_I_POINTWISE_tanh, weft_i_tanh_f32, weft_i_tanh_f64, tanh, tanhl, 1.5},
    {"erf", WEFT_I_POINTWISE_erf, weft_i_erf_f32, weft_i_erf_f64, erf, erfl, 1.5},
    {"erfc", -1, weft_i_erfc_f32, weft_i_erfc_f64, erfc, erfcl, 8},
    {"sin", WEFT_I_POINTWISE_sin, weft_i_sin_any_f32, weft_i_sin_any_f64, sin, sinl, 1},
    {"cos", WEFT_I_POINTWISE_cos, weft_i_cos_any_f32, weft_i_cos_any_f64, cos, cosl, 1},
    {"gelu", WEFT_I_POINTWISE_gelu, weft_i_gelu_f32, weft_i_gelu_f64, gelu_of_f32, gelu, 20},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/*
 * How far `got` is from `expected`, in units in the last place of a type with `digits` binary
 * digits and the smallest exponent `lowest`; infinity counts as the power of two after the largest.
 */
static double distance(double got, wide expected, int digits, int lowest, int highest)
{
    int exponent;
    if (expected != expected || got != got)
        return expected != expected && got != got ? 0 : INFINITY;
    if (fabsl(expected) >= ldexpl(1, highest))
        expected = copysignl(ldexpl(1, highest), expected);
    wide value = isinf(got) ? copysignl(ldexpl(1, highest), got) : got;
    frexpl(expected, &exponent);
    if (expected == 0 || exponent < lowest)
        exponent = lowest;
    return (double)ldexpl(fabsl(value - expected), digits - exponent);
}

static void check_f32(const struct function *f, float x)
{
    double expected = f->of_f32(x), off = distance(f->f32(x), expected, 24, -125, 128);
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
    const char *all = getenv("WEFT_TEST_ALL");
    uint64_t step = all && *all == '1' ? 1 : 40009; /* a prime */
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
    if (sum != 0x59bf5a1043c89b9c)
        FAIL("the bits have changed: their sum is %#llx", (unsigned long long)sum);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
