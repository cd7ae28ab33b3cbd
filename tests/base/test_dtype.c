/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/share/dtype.c, kernels/number/convert.c */
/*
 * The small floats are checked against a definition that shares nothing with the code: every code
 * is decoded by ldexp from its fields, and the nearest value is found by comparing distances in
 * long double.  Rounding is monotonic, so it is enough to look at both sides of, and exactly at,
 * every boundary between neighbouring values.
 */
#include "harness.h"

#include "base/share/dtype.h"
#include "kernels/number/convert.h"

#include <float.h>
#include <stdint.h>

typedef struct format {
    weft_dtype dtype;
    int bits, mantissa, bias;
    int infinity;    /* code of infinity; 0: none */
    int largest;     /* code of the largest finite value */
    double overflow; /* from here on values round beyond the largest */
} format;

static const format formats[] = {
    {WEFT_F16, 16, 10, 15, 0x7c00, 0x7bff, 65520},
    {WEFT_BF16, 16, 7, 127, 0x7f80, 0x7f7f, 0x1.ffp+127},
    {WEFT_F8E4M3, 8, 3, 7, 0, 0x7e, 464.0000001},
    {WEFT_F8E5M2, 8, 2, 15, 0x7c, 0x7b, 61440},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* The value of a code without sign, from the definition of binary floats. */
static double decode(const format *f, int code)
{
    int exponent = code >> f->mantissa, fraction = code & ((1 << f->mantissa) - 1);
    if (code > f->largest)
        return code == f->infinity ? INFINITY : NAN;
    return exponent ? ldexp((1 << f->mantissa) + fraction, exponent - f->bias - f->mantissa)
                    : ldexp(fraction, 1 - f->bias - f->mantissa);
}

static int encode_f32(const format *f, float x)
{
    uint16_t out = 0;
    weft_i_convert(f->dtype, &out, WEFT_F32, &x, 1);
    return f->bits == 8 ? out & 0xff : out;
}

static int encode_f64(const format *f, double x)
{
    uint16_t out = 0;
    weft_i_convert(f->dtype, &out, WEFT_F64, &x, 1);
    return f->bits == 8 ? out & 0xff : out;
}

TEST(test_dtype_small_floats_decode)
{
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        int sign = 1 << (f->bits - 1);
        for (int code = 0; code < 2 * sign; code++) {
            uint16_t in = (uint16_t)code;
            float out;
            weft_i_convert(WEFT_F32, &out, f->dtype, &in, 1);
            double expected = decode(f, code & (sign - 1));
            expected = code & sign ? -expected : expected;
            if (isnan(expected))
                CHECK(isnan(out));
            else if (out != expected || !signbit(out) != !(code & sign))
                FAIL("%s code %#x is %g, not %g", weft_dtype_name(f->dtype), code, out, expected);
        }
    }
}

/* Between the values of `code` and its successor: which of them a value nearer to one, or in the
 * middle, becomes. */
static int nearest(const format *f, int code, long double x)
{
    long double low = decode(f, code), high = decode(f, code + 1);
    long double to_low = x - low, to_high = high - x;
    return to_low < to_high ? code : to_low > to_high ? code + 1 : code & 1 ? code + 1 : code;
}

static void check_f32(const format *f, int code, float x)
{
    int sign = 1 << (f->bits - 1), expected = nearest(f, code, x);
    if (encode_f32(f, x) != expected || encode_f32(f, -x) != (expected | sign))
        FAIL("%a as %s is %#x, not %#x", x, weft_dtype_name(f->dtype), encode_f32(f, x), expected);
}

static void check_f64(const format *f, int code, double x)
{
    int sign = 1 << (f->bits - 1), expected = nearest(f, code, x);
    if (encode_f64(f, x) != expected || encode_f64(f, -x) != (expected | sign))
        FAIL("%a as %s is %#x, not %#x", x, weft_dtype_name(f->dtype), encode_f64(f, x), expected);
}

TEST(test_dtype_small_floats_round_to_nearest_even)
{
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        for (int code = 0; code < f->largest; code++) {
            double low = decode(f, code), high = decode(f, code + 1),
                   middle = low + (high - low) / 2;
            float m = (float)middle;
            CHECK((double)m == middle); /* a boundary is a float: all formats have far fewer bits */
            check_f32(f, code, (float)low);
            check_f32(f, code, nextafterf((float)low, INFINITY));
            check_f32(f, code, nextafterf(m, 0));
            check_f32(f, code, m);
            check_f32(f, code, nextafterf(m, INFINITY));
            check_f32(f, code, nextafterf((float)high, 0));
        }
    }
}

/* A double just beside a boundary must not first become the boundary and then round the wrong way.
 */
TEST(test_dtype_small_floats_from_f64_round_once)
{
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        for (int code = 0; code < f->largest; code++) {
            double low = decode(f, code), high = decode(f, code + 1),
                   middle = low + (high - low) / 2;
            check_f64(f, code, middle);
            check_f64(f, code, nextafter(middle, 0));
            check_f64(f, code, nextafter(middle, INFINITY));
            check_f64(f, code, low);
            check_f64(f, code, middle + (high - middle) * 0.3333);
        }
    }
}

TEST(test_dtype_small_floats_overflow)
{
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        int sign = 1 << (f->bits - 1), beyond = f->infinity ? f->infinity : sign - 1;
        CHECK_INT(encode_f64(f, f->overflow), beyond);
        CHECK_INT(encode_f64(f, -f->overflow), beyond | sign);
        CHECK_INT(encode_f64(f, nextafter(f->overflow, 0) - 1e-6), f->largest);
        CHECK_INT(encode_f64(f, 1e300), beyond);
        CHECK_INT(encode_f32(f, INFINITY), beyond);
        CHECK_INT(encode_f32(f, -INFINITY), beyond | sign);
        CHECK(isnan(decode(f, encode_f32(f, NAN) & (sign - 1))));
        CHECK(isnan(decode(f, encode_f64(f, -(double)NAN) & (sign - 1))));
        CHECK_INT(encode_f32(f, -0.0f), sign);
        CHECK_INT(encode_f64(f, 1e-320), 0);
    }
    /* e4m3: 464 is the tie between 448 and what would be 480; it goes to even, 448. */
    CHECK_INT(encode_f32(&formats[2], 464), 0x7e);
    CHECK_INT(encode_f32(&formats[2], nextafterf(464, 500)), 0x7f);
}

/* The reference for native types: by cases in long double, which holds them all. */
static long double expect(weft_dtype to, long double x)
{
    long double low, high;
    switch (to) {
    case WEFT_F64:
        return (double)x;
    case WEFT_F32:
        return (float)x;
    case WEFT_BOOL:
        return x != 0;
    case WEFT_I64:
    case WEFT_I32:
    case WEFT_I16:
    case WEFT_I8:
        low = -ldexpl(1, 8 * (int)weft_dtype_size(to) - 1);
        high = -low - 1;
        break;
    default:
        low = 0;
        high = ldexpl(1, 8 * (int)weft_dtype_size(to)) - 1;
    }
    return isnan(x) ? 0 : x <= low ? low : x >= high ? high : truncl(x);
}

static long double value_of(weft_dtype dtype, const void *at)
{
    switch (dtype) {
#define DTYPE(name_, text_, type_, kind_) \
    case WEFT_##name_:                    \
        return *(const type_ *)at;
#include "weft/dtype.def"
#undef DTYPE
    default:
        return 0;
    }
}

TEST(test_dtype_floats_to_native)
{
    static const double values[] = {
        0,      -0.0,    1,          -1,           0.999,         -0.999,       127,
        127.9,  128,     -128.9,     -129,         255.5,         256,          32767.5,
        -32769, 65535.5, 2147483647, 2147483648.0, -2147483649.0, 4294967295.0, 4294967296.0,
        9.3e18, -9.3e18, 1.9e19,     1e30,         -1e30,         INFINITY,     -INFINITY,
        NAN,    1e-40};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (int to = 0; to < WEFT_DTYPE_COUNT; to++) {
            uint64_t from_double = 0, from_float = 0;
            float narrow = (float)values[i];
            if (weft_i_dtype_is_float((weft_dtype)to))
                continue;
            weft_i_convert((weft_dtype)to, &from_double, WEFT_F64, &values[i], 1);
            weft_i_convert((weft_dtype)to, &from_float, WEFT_F32, &narrow, 1);
            if (value_of((weft_dtype)to, &from_double) != expect((weft_dtype)to, values[i]) ||
                value_of((weft_dtype)to, &from_float) != expect((weft_dtype)to, narrow))
                FAIL("%g as %s", values[i], weft_dtype_name((weft_dtype)to));
        }
}

TEST(test_dtype_integers_to_native)
{
    static const int64_t values[] = {
        0,     1,     -1,        127,       128,       -129,      255,      256,
        32768, 65536, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 16777217, ((int64_t)1 << 53) + 1};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        int64_t x = values[i];
        int8_t i8;
        uint16_t u16;
        float f;
        double d;
        uint8_t b;
        weft_i_convert(WEFT_I8, &i8, WEFT_I64, &x, 1);
        weft_i_convert(WEFT_U16, &u16, WEFT_I64, &x, 1);
        weft_i_convert(WEFT_F32, &f, WEFT_I64, &x, 1);
        weft_i_convert(WEFT_F64, &d, WEFT_I64, &x, 1);
        weft_i_convert(WEFT_BOOL, &b, WEFT_I64, &x, 1);
        CHECK_INT((uint8_t)i8, (uint64_t)x & 0xff); /* wraps */
        CHECK_INT(u16, (uint64_t)x & 0xffff);
        CHECK(f == (float)x && d == (double)x && b == (x != 0));
    }
    uint64_t big = UINT64_MAX;
    double d;
    weft_i_convert(WEFT_F64, &d, WEFT_U64, &big, 1);
    CHECK(d == 0x1p64);
}

/* Every pair on long arrays gives what it gives element by element, and small integers survive
 * every way. */
TEST(test_dtype_all_pairs_on_arrays)
{
    enum { N = 1300 };
    static uint64_t in[N], out[N], one;
    static double plain[N];
    for (int i = 0; i < N; i++)
        plain[i] = i % 5;
    for (int from = 0; from < WEFT_DTYPE_COUNT; from++)
        for (int to = 0; to < WEFT_DTYPE_COUNT; to++) {
            size_t size_from = weft_dtype_size((weft_dtype)from),
                   size_to = weft_dtype_size((weft_dtype)to);
            weft_i_convert((weft_dtype)from, in, WEFT_F64, plain, N);
            weft_i_convert((weft_dtype)to, out, (weft_dtype)from, in, N);
            for (int i = 0; i < N; i++) {
                double back;
                weft_i_convert((weft_dtype)to, &one, (weft_dtype)from,
                               (char *)in + (size_t)i * size_from, 1);
                CHECK(!memcmp(&one, (char *)out + (size_t)i * size_to, size_to));
                weft_i_convert(WEFT_F64, &back, (weft_dtype)to, &one, 1);
                CHECK(back == (from == WEFT_BOOL || to == WEFT_BOOL ? i % 5 != 0 : i % 5));
            }
        }
}

TEST(test_dtype_names_and_sizes)
{
    CHECK(!strcmp(weft_dtype_name(WEFT_BF16), "bf16"));
    CHECK(!strcmp(weft_dtype_name((weft_dtype)77), "unknown dtype"));
    CHECK_INT(weft_dtype_size(WEFT_F8E4M3), 1);
    CHECK_INT(weft_dtype_size(WEFT_U64), 8);
    CHECK_INT(weft_dtype_size((weft_dtype)-1), 0);
}

/* As PyTorch has it; weft adds the wide unsigned integers (as NumPy) and the 8-bit floats.  "-":
 * refused.  Rows and columns are in the order of `promoted`. */
enum { PROMOTED = 15 };
static const weft_dtype promoted[PROMOTED] = {
    WEFT_BOOL, WEFT_U8,     WEFT_U16,    WEFT_U32, WEFT_U64,  WEFT_I8,  WEFT_I16, WEFT_I32,
    WEFT_I64,  WEFT_F8E4M3, WEFT_F8E5M2, WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
// clang-format off
static const char *const promotion[PROMOTED][PROMOTED] = {
    {"bool",   "u8",     "u16",    "u32",    "u64",    "i8",     "i16",    "i32",    "i64",    "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* bool */
    {"u8",     "u8",     "u16",    "u32",    "u64",    "i16",    "i16",    "i32",    "i64",    "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* u8 */
    {"u16",    "u16",    "u16",    "u32",    "u64",    "i32",    "i32",    "i32",    "i64",    "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* u16 */
    {"u32",    "u32",    "u32",    "u32",    "u64",    "i64",    "i64",    "i64",    "i64",    "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* u32 */
    {"u64",    "u64",    "u64",    "u64",    "u64",    "-",      "-",      "-",      "-",      "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* u64 */
    {"i8",     "i16",    "i32",    "i64",    "-",      "i8",     "i16",    "i32",    "i64",    "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* i8 */
    {"i16",    "i16",    "i32",    "i64",    "-",      "i16",    "i16",    "i32",    "i64",    "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* i16 */
    {"i32",    "i32",    "i32",    "i64",    "-",      "i32",    "i32",    "i32",    "i64",    "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* i32 */
    {"i64",    "i64",    "i64",    "i64",    "-",      "i64",    "i64",    "i64",    "i64",    "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"}, /* i64 */
    {"f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f16",    "f16", "bf16", "f32", "f64"}, /* f8e4m3 */
    {"f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f16",    "f8e5m2", "f16", "bf16", "f32", "f64"}, /* f8e5m2 */
    {"f16",    "f16",    "f16",    "f16",    "f16",    "f16",    "f16",    "f16",    "f16",    "f16",    "f16",    "f16", "f32",  "f32", "f64"}, /* f16 */
    {"bf16",   "bf16",   "bf16",   "bf16",   "bf16",   "bf16",   "bf16",   "bf16",   "bf16",   "bf16",   "bf16",   "f32", "bf16", "f32", "f64"}, /* bf16 */
    {"f32",    "f32",    "f32",    "f32",    "f32",    "f32",    "f32",    "f32",    "f32",    "f32",    "f32",    "f32", "f32",  "f32", "f64"}, /* f32 */
    {"f64",    "f64",    "f64",    "f64",    "f64",    "f64",    "f64",    "f64",    "f64",    "f64",    "f64",    "f64", "f64",  "f64", "f64"}, /* f64 */
};
// clang-format on

TEST(test_dtype_promotion_table)
{
    for (int i = 0; i < PROMOTED; i++)
        for (int j = 0; j < PROMOTED; j++) {
            weft_dtype out;
            weft_status status = weft_dtype_promote(promoted[i], promoted[j], &out);
            const char *got = status < 0 ? "-" : weft_dtype_name(out);
            if (strcmp(got, promotion[i][j]))
                FAIL("%s with %s is %s, not %s", weft_dtype_name(promoted[i]),
                     weft_dtype_name(promoted[j]), got, promotion[i][j]);
        }
    weft_clear_error();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
