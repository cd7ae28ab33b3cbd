/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/fold/fold.c, kernels/fold/fold_avx2.c, kernels/fold/fold_avx512.c,
 * kernels/fold/fold_baseline.c */
/*
 * The folds against their reference, bit by bit, for every instruction set this processor has.
 * Outputs lie between guard bytes that must stay as they were.
 */
#include "fold_reference.h"
#include "harness.h"
#include "values_seed.h"

#include "base/share/dtype.h"
#include "kernels/fold/fold.h"

#include <stdint.h>

enum { MOST_INPUTS = 70, MOST_OUTPUTS = 8, MOST_COUNT = 4097, GUARD = 64, ODD = 8 };
enum { ROOM = GUARD + ODD + MOST_COUNT * 8 + GUARD };

static _Alignas(64) unsigned char source[MOST_INPUTS][ROOM], result[MOST_OUTPUTS][ROOM],
    expected[ROOM], saved[MOST_OUTPUTS][ROOM];
static const double factors[MOST_INPUTS] = {0.5, -2, 0.1, 3, 1, 1e-3, -0.0, 7};

static uint64_t state = 1;
static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Numbers of all kinds: small whole ones that meet and cancel, any bits, the ends of the range,
 * zeros, subnormals, infinities, NaN. */
static uint64_t element(weft_dtype dtype)
{
    static const uint64_t f64[] = {0,
                                   1,
                                   0xfffffffffffff,
                                   0x10000000000000,
                                   0x7fefffffffffffff,
                                   0x7ff0000000000000,
                                   0x7ff8000000000000,
                                   0x7ff0000000000001};
    static const uint32_t f32[] = {0,          1,          0x7fffff,   0x800000,
                                   0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001};
    static const uint16_t f16[] = {0, 1, 0x3ff, 0x400, 0x7bff, 0x7c00, 0x7e00, 0x7c01};
    static const uint16_t bf16[] = {0, 1, 0x7f, 0x80, 0x7f7f, 0x7f80, 0x7fc0, 0x7f81};
    uint64_t bits = draw(), kind = bits >> 60, sign = bits >> 59 & 1, k = bits >> 50 & 7;
    float whole = (float)((int)(bits >> 40 & 31) - 16);
    uint32_t whole_bits;
    memcpy(&whole_bits, &whole, 4);
    double wide = (double)whole;
    switch (dtype) {
    case WEFT_F64:
        memcpy(&kind, &wide, 8);
        return bits >> 62 == 0 ? kind : bits >> 62 == 1 ? f64[k] | sign << 63 : bits << 3 ^ bits;
    case WEFT_F32:
        return kind < 6 ? whole_bits : kind < 8 ? f32[k] | sign << 31 : bits;
    case WEFT_F16:
        return kind < 2 ? f16[k] | sign << 15 : bits;
    case WEFT_BF16:
        return kind < 4 ? whole_bits >> 16 : kind < 6 ? bf16[k] | sign << 15 : bits;
    case WEFT_BOOL:
        return bits & 1;
    default:
        return kind == 0 ? 0 : kind == 1 ? UINT64_MAX << 63 >> (bits & 63) : bits;
    }
}

static void fill(weft_dtype dtype, unsigned char *at, size_t count)
{
    size_t size = weft_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = element(dtype);
        memcpy(at + i * size, &bits, size); /* the low bytes: tests run on little-endian machines */
    }
}

static void check_equal(const char *what, weft_dtype dtype, int op, int inputs, int outputs,
                        size_t count, const unsigned char *got, const unsigned char *want)
{
    size_t size = weft_dtype_size(dtype), i = 0;
    if (!memcmp(got, want, count * size))
        return;
    while (!memcmp(got + i * size, want + i * size, size))
        i++;
    uint64_t g = 0, w = 0;
    memcpy(&g, got + i * size, size);
    memcpy(&w, want + i * size, size);
    FAIL("%s: %s op %d, %d inputs, %d outputs: element %zu of %zu is %#llx, not %#llx", what,
         weft_dtype_name(dtype), op, inputs, outputs, i, count, (unsigned long long)g,
         (unsigned long long)w);
}

static void check_guards(const unsigned char *room, const unsigned char *before, size_t from,
                         size_t bytes)
{
    CHECK(!memcmp(room, before, from));
    CHECK(!memcmp(room + from + bytes, before + from + bytes, ROOM - from - bytes));
}

/* Inputs and outputs lie `odd` bytes and more behind an aligned address. */
static void check_case(const char *variant, weft_dtype dtype, weft_i_fold_op op, int inputs,
                       int outputs, size_t count, int odd)
{
    weft_i_fold fold = weft_i_fold_find(dtype, op);
    const void *in[MOST_INPUTS];
    void *out[MOST_OUTPUTS], *reference[1] = {expected};
    size_t bytes = count * weft_dtype_size(dtype), at[MOST_OUTPUTS];
    for (int i = 0; i < inputs; i++)
        in[i] = source[i] + GUARD + (odd ? (odd + i) % ODD : 0);
    for (int i = 0; i < outputs; i++) {
        at[i] = GUARD + (size_t)(odd ? (odd * 3 + i) % ODD : 0);
        out[i] = result[i] + at[i];
        memset(result[i], 0xa0 + i, at[i] + bytes + GUARD);
        memcpy(saved[i], result[i], ROOM);
    }
    fold_reference(dtype, op, reference, 1, in, inputs, count, factors);
    fold(out, outputs, in, inputs, count, factors);
    for (int i = 0; i < outputs; i++) {
        check_equal(variant, dtype, op, inputs, outputs, count, out[i], expected);
        check_guards(result[i], saved[i], at[i], bytes);
    }
}

/* The outputs are the last inputs themselves. */
static void check_alias(const char *variant, weft_dtype dtype, weft_i_fold_op op, int inputs,
                        int outputs, size_t count)
{
    const void *in[MOST_INPUTS];
    void *out[MOST_OUTPUTS], *reference[1] = {expected};
    size_t bytes = count * weft_dtype_size(dtype);
    for (int i = 0; i < inputs; i++)
        in[i] = source[i] + GUARD;
    for (int i = 0; i < outputs; i++) {
        out[i] = source[inputs - 1 - i] + GUARD;
        memcpy(saved[i], out[i], bytes);
    }
    fold_reference(dtype, op, reference, 1, in, inputs, count, factors);
    weft_i_fold_find(dtype, op)(out, outputs, in, inputs, count, factors);
    for (int i = 0; i < outputs; i++)
        check_equal(variant, dtype, op, inputs, outputs, count, out[i], expected);
    for (int i = 0; i < outputs; i++)
        memcpy(out[i], saved[i], bytes);
}

static void fill_sources(weft_dtype dtype)
{
    for (int i = 0; i < MOST_INPUTS; i++)
        for (size_t k = 0; k < ROOM / 8 * 8; k += 8)
            fill(dtype, source[i] + k, 8 / weft_dtype_size(dtype));
}

typedef void check_fn(const char *variant, weft_dtype dtype, weft_i_fold_op op);

/* Calls `check` for every instruction set, dtype and operation. */
static void for_each_fold(check_fn *check)
{
    const char *variant;
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        fill_sources((weft_dtype)dtype);
        for (int v = 0; (variant = weft_i_fold_variant(v)); v++)
            for (int op = 0; op < WEFT_I_FOLD_OPS && weft_i_fold_use(variant); op++)
                if (weft_i_fold_find((weft_dtype)dtype, (weft_i_fold_op)op))
                    check(variant, (weft_dtype)dtype, (weft_i_fold_op)op);
    }
    weft_i_fold_use(NULL);
}

/* Beside a sanitizer a sample of the cases, by HARNESS_SEED. */
enum { ONE_OF = VALUES_SANITIZED ? 3 : 1 };

static void check_matrix(const char *variant, weft_dtype dtype, weft_i_fold_op op)
{
    static const int inputs[] = {1, 2, 3, 4, 5, 7, 8, 9, 16}, outputs[] = {1, 2, 3, 8};
    static const size_t counts[] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65};
    int size = (int)weft_dtype_size(dtype);
    const int odd[] = {0, size % ODD, 1, 3};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                if (values_takes(i << 20 | o << 16 | c << 12 | (size_t)op << 6 | (size_t)dtype,
                                 ONE_OF))
                    check_case(variant, dtype, op, inputs[i], outputs[o], counts[c],
                               odd[(i + o + c) % 4]);
}

TEST(test_fold_matrix)
{
    for_each_fold(check_matrix);
}

static void check_long(const char *variant, weft_dtype dtype, weft_i_fold_op op)
{
    static const int inputs[] = {1, 2, 3, 4, 5, 8, 9};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        if (!values_takes(i << 12 | (size_t)op << 6 | (size_t)dtype, ONE_OF))
            continue;
        check_case(variant, dtype, op, inputs[i], 1 + (int)i % 3, 1023, 1 + (int)i);
        check_case(variant, dtype, op, inputs[i], 3 - (int)i % 3, 4097, i % 2 ? 0 : 5);
    }
    check_case(variant, dtype, op, 70, 8, 65, 1);
}

/* Several blocks, and more inputs than any pass takes. */
TEST(test_fold_long)
{
    for_each_fold(check_long);
}

static void check_aliases(const char *variant, weft_dtype dtype, weft_i_fold_op op)
{
    for (int inputs = 1; inputs <= 9; inputs++)
        for (int outputs = 1; outputs <= inputs && outputs <= MOST_OUTPUTS; outputs += 2)
            check_alias(variant, dtype, op, inputs, outputs, inputs == 7 ? 1501 : 67);
    check_alias(variant, dtype, op, 2, 2, 700);
}

TEST(test_fold_in_place)
{
    for_each_fold(check_aliases);
}

static void check_huge(weft_dtype dtype, int outputs, size_t count)
{
    size_t bytes = count * weft_dtype_size(dtype), room = bytes + 2 * GUARD;
    unsigned char *memory = malloc(room * 6), *at[6];
    CHECK(memory);
    memset(memory, 0x55, room * 6);
    for (int i = 0; i < 6; i++)
        at[i] = memory + room * (size_t)i + GUARD - (i > 2 ? i : 0);
    fill(dtype, at[0], count);
    fill(dtype, at[1], count);
    void *out[] = {at[3], at[4], at[5]}, *reference[] = {at[2]};
    const void *in[] = {at[0], at[1]};
    fold_reference(dtype, WEFT_I_FOLD_SUM, reference, 1, in, 2, count, NULL);
    weft_i_fold_find(dtype, WEFT_I_FOLD_SUM)(out, outputs, in, 2, count, NULL);
    for (int i = 0; i < outputs; i++) {
        check_equal("huge", dtype, WEFT_I_FOLD_SUM, 2, outputs, count, out[i], at[2]);
        CHECK(at[3 + i][-1] == 0x55 && at[3 + i][bytes] == 0x55);
    }
    free(memory);
}

/* So much that results are stored past the caches. */
TEST(test_fold_huge)
{
    const char *variant;
    for (int v = 0; (variant = weft_i_fold_variant(v)); v++) {
        if (!weft_i_fold_use(variant))
            continue;
        check_huge(WEFT_F32, 2, (1 << 20) + 1);
        check_huge(WEFT_BF16, 3, (3 << 19) + 7);
    }
    weft_i_fold_use(NULL);
}

TEST(test_fold_meaning)
{
    CHECK(!weft_i_fold_find(WEFT_F32, WEFT_I_FOLD_BAND));
    CHECK(!weft_i_fold_find(WEFT_BF16, WEFT_I_FOLD_BXOR));
    CHECK(!weft_i_fold_find(WEFT_I32, WEFT_I_FOLD_PREMUL_SUM));
    CHECK(!weft_i_fold_find(WEFT_BOOL, WEFT_I_FOLD_PREMUL_SUM));
    CHECK(!weft_i_fold_find(WEFT_DTYPE_COUNT, WEFT_I_FOLD_SUM));
    CHECK(!weft_i_fold_find(WEFT_F32, WEFT_I_FOLD_OPS));
    CHECK(!weft_i_fold_use("no such instruction set"));
    int folds = 0;
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int op = 0; op < WEFT_I_FOLD_OPS; op++)
            folds += weft_i_fold_find((weft_dtype)dtype, (weft_i_fold_op)op) != NULL;
    CHECK_INT(folds, 6 * 6 + 8 * 8 + 8); /* floats, integers, bool */
}

/* Results known beforehand, so that fold and reference cannot be wrong together. */
#define EXPECT(dtype_, op_, type_, expected_, ...)                              \
    do {                                                                        \
        const type_ x_[] = {__VA_ARGS__}, want_ = (expected_);                  \
        type_ got_ = 0, same_ = 0;                                              \
        const void *in_[8];                                                     \
        int n_ = (int)(sizeof x_ / sizeof *x_);                                 \
        for (int i_ = 0; i_ < n_; i_++)                                         \
            in_[i_] = &x_[i_];                                                  \
        const double half_[8] = {0.5, 0.25, 2, 1, 1, 1, 1, 1};                  \
        weft_i_fold_find(dtype_, op_)((void *[]){&got_}, 1, in_, n_, 1, half_); \
        fold_reference(dtype_, op_, (void *[]){&same_}, 1, in_, n_, 1, half_);  \
        CHECK(!memcmp(&got_, &want_, sizeof got_));                             \
        CHECK(!memcmp(&same_, &want_, sizeof got_));                            \
    } while (0)

TEST(test_fold_floats)
{
    EXPECT(WEFT_F32, WEFT_I_FOLD_SUM, float, 7.0f, 1, 2, 4);
    EXPECT(WEFT_F32, WEFT_I_FOLD_SUM, float, -0.0f, -0.0f, -0.0f);
    EXPECT(WEFT_F32, WEFT_I_FOLD_SUM, float, 0x1p24f, 0x1p24f, 1, 1); /* in order: 1 + 1 is lost */
    EXPECT(WEFT_F32, WEFT_I_FOLD_SUM, float, 0x1p24f + 2, 1, 1, 0x1p24f);
    EXPECT(WEFT_F64, WEFT_I_FOLD_AVG, double, 7.0 / 3, 1, 2, 4);
    EXPECT(WEFT_F64, WEFT_I_FOLD_PRODUCT, double, -8.0, 1, 2, -4);
    EXPECT(WEFT_F32, WEFT_I_FOLD_MIN, float, -4.0f, 1, 2, -4);
    EXPECT(WEFT_F32, WEFT_I_FOLD_MAX, float, INFINITY, 1, INFINITY, -4);
    EXPECT(WEFT_F32, WEFT_I_FOLD_MAX, uint32_t, 0x7fc00000, 0x3f800000, 0xffc00001, 0x40000000);
    EXPECT(WEFT_F32, WEFT_I_FOLD_MIN, uint32_t, 0x7fc00000, 0x7f800001, 0x3f800000);
    EXPECT(WEFT_F32, WEFT_I_FOLD_SUM, uint32_t, 0x7fc00000, 0x7f800000, 0xff800000); /* inf - inf */
    EXPECT(WEFT_F32, WEFT_I_FOLD_SUM, uint32_t, 0xffc12345, 0xffc12345); /* one input: a copy */
    EXPECT(WEFT_F32, WEFT_I_FOLD_PREMUL_SUM, float, 9.0f, 1, 2, 4);
    EXPECT(WEFT_F64, WEFT_I_FOLD_PREMUL_SUM, double, 4.0, 8);
}

TEST(test_fold_small_floats)
{
    EXPECT(WEFT_BF16, WEFT_I_FOLD_SUM, uint16_t, 0x4380, 0x4380, 0x3f80);         /* 256 + 1 */
    EXPECT(WEFT_BF16, WEFT_I_FOLD_SUM, uint16_t, 0x4381, 0x4380, 0x3f80, 0x3f80); /* 258: once */
    EXPECT(WEFT_F16, WEFT_I_FOLD_SUM, uint16_t, 0x7c00, 0x7bff, 0x7bff);          /* infinity */
    EXPECT(WEFT_F16, WEFT_I_FOLD_AVG, uint16_t, 0x7bff, 0x7bff, 0x7bff);
    EXPECT(WEFT_F16, WEFT_I_FOLD_SUM, uint16_t, 0x0002, 0x0001, 0x0001);
    EXPECT(WEFT_F16, WEFT_I_FOLD_MIN, uint16_t, 0x7e00, 0x3c00, 0xfe01);
    EXPECT(WEFT_F8E4M3, WEFT_I_FOLD_SUM, uint8_t, 0x7f, 0x7e, 0x7e); /* 896: NaN */
    EXPECT(WEFT_F8E4M3, WEFT_I_FOLD_SUM, uint8_t, 0x40, 0x38, 0x38); /* 1 + 1 */
    EXPECT(WEFT_F8E5M2, WEFT_I_FOLD_PRODUCT, uint8_t, 0x44, 0x40, 0x40);
    EXPECT(WEFT_F8E5M2, WEFT_I_FOLD_SUM, uint8_t, 0xfc, 0xfb, 0xfb);
}

TEST(test_fold_integers)
{
    EXPECT(WEFT_I8, WEFT_I_FOLD_SUM, int8_t, -56, 100, 100);
    EXPECT(WEFT_I8, WEFT_I_FOLD_AVG, int8_t, -28, 100, 100); /* wraps before it is divided */
    EXPECT(WEFT_I32, WEFT_I_FOLD_AVG, int32_t, -2, -3, -2, -2, -3);
    EXPECT(WEFT_I32, WEFT_I_FOLD_AVG, int32_t, INT32_MIN / 3, INT32_MIN, 0, 0);
    EXPECT(WEFT_I64, WEFT_I_FOLD_AVG, int64_t, INT64_MAX / 3, INT64_MAX, 0, 0);
    EXPECT(WEFT_U64, WEFT_I_FOLD_AVG, uint64_t, UINT64_MAX / 3, UINT64_MAX, 0, 0);
    EXPECT(WEFT_U16, WEFT_I_FOLD_PRODUCT, uint16_t, 1, 0xffff, 0xffff);
    EXPECT(WEFT_I16, WEFT_I_FOLD_MIN, int16_t, -5, 3, -5);
    EXPECT(WEFT_U16, WEFT_I_FOLD_MIN, uint16_t, 3, 3, 0xfffb);
    EXPECT(WEFT_U32, WEFT_I_FOLD_BXOR, uint32_t, 6, 3, 5);
    EXPECT(WEFT_BOOL, WEFT_I_FOLD_SUM, uint8_t, 1, 0, 1, 1);
    EXPECT(WEFT_BOOL, WEFT_I_FOLD_AVG, uint8_t, 0, 0, 1, 1);
    EXPECT(WEFT_BOOL, WEFT_I_FOLD_AVG, uint8_t, 1, 1, 1, 1);
    EXPECT(WEFT_BOOL, WEFT_I_FOLD_BXOR, uint8_t, 0, 0, 1, 1);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    return harness_main(argc, argv);
}
