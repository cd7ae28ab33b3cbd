/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/op/pointwise.c, tensor/op/promote.c, tensor/op/compare.c,
 * kernels/vector/pointwise.c, kernels/walk/loop.c, kernels/walk/copy.c */
/* Every element-wise operation and dtype against plain loops in double (or wrapping integers), in
 * several layouts. */
#include "harness.h"

#include "kernels/number/convert.h"
#include "tensor/object/tensor.h"
#include "tensor/op/ops.h"
#include "weft/op.h"
#include "weft/view.h"

#include <string.h>

/* Rounds to a dtype by way of one element, which test_dtype.c checks on its own. */
static double rounded(weft_dtype dtype, double x)
{
    uint64_t element;
    weft_i_convert(dtype, &element, WEFT_F64, &x, 1);
    weft_i_convert(WEFT_F64, &x, dtype, &element, 1);
    return x;
}

static int same(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= tolerance * fabs(b);
}

/* Unit in the last place, as a relative tolerance for functions of libm; 0 where the operation is
 * exact. */
static double ulp(weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_F64:
        return 0x1p-49;
    case WEFT_F32:
        return 0x1p-20;
    case WEFT_F16:
        return 0x1p-10;
    case WEFT_BF16:
        return 0x1p-7;
    case WEFT_F8E4M3:
        return 0x1p-3;
    default:
        return 0x1p-2;
    }
}

static double ref_neg(double a)
{
    return -a;
}
static double ref_relu(double a)
{
    return a < 0 ? 0 : a;
}
static double ref_gelu(double a)
{
    return (double)(a / 2 * (1 + erfl(a / sqrtl(2))));
}
static double ref_gelu_tanh(double a)
{
    return (double)(a / 2 * (1 + tanhl(sqrtl(2 / acosl(-1)) * (a + 0.044715L * powl(a, 3)))));
}

static double ref_rsqrt(double a)
{
    return 1 / sqrt(a);
}
static double ref_sigmoid(double a)
{
    return (double)(1 / (1 + expl(-a)));
}
static double ref_silu(double a)
{
    return (double)(a / (1 + expl(-a)));
}

static const struct unary {
    const char *name;
    weft_tensor *(*op)(weft_tensor *);
    weft_status (*into)(weft_tensor *, weft_tensor *);
    double (*reference)(double);
    int exact, positive;
} unaries[] = {
    {"neg", weft_neg, weft_neg_into, ref_neg, 1, 0},
    {"abs", weft_abs, weft_abs_into, fabs, 1, 0},
    {"relu", weft_relu, weft_relu_into, ref_relu, 1, 0},
    {"sin", weft_sin, weft_sin_into, sin, 0, 0},
    {"cos", weft_cos, weft_cos_into, cos, 0, 0},
    {"exp", weft_exp, weft_exp_into, exp, 0, 0},
    {"log", weft_log, weft_log_into, log, 0, 1},
    {"tanh", weft_tanh, weft_tanh_into, tanh, 0, 0},
    {"erf", weft_erf, weft_erf_into, erf, 0, 0},
    {"sqrt", weft_sqrt, weft_sqrt_into, sqrt, 0, 1},
    {"rsqrt", weft_rsqrt, weft_rsqrt_into, ref_rsqrt, 0, 1},
    {"sigmoid", weft_sigmoid, weft_sigmoid_into, ref_sigmoid, 0, 0},
    {"silu", weft_silu, weft_silu_into, ref_silu, 0, 0},
    {"gelu", weft_gelu, weft_gelu_into, ref_gelu, 0, 0},
    {"gelu_tanh", weft_gelu_tanh, weft_gelu_tanh_into, ref_gelu_tanh, 0, 0},
};

/* Values -3 ... 3 in quarters, as [7, 200] of `dtype`, transposed if asked. */
static weft_tensor *grid(weft_dtype dtype, int positive, int turned)
{
    weft_tensor *x = weft_arange(WEFT_F64, WEFT_CPU, 0, 1400, 1);
    weft_tensor *a = weft_empty(dtype, WEFT_CPU, WEFT_SHAPE(1400));
    for (int i = 0; i < 1400; i++) {
        double value = (i * 37 % 25 - 12) / 4.0;
        ((double *)weft_tensor_data(x))[i] = positive ? fabs(value) + 0.25 : value;
    }
    if (weft_copy(a, x) < 0)
        return NULL;
    return turned ? weft_transpose(weft_view(a, WEFT_SHAPE(200, 7)), 0, 1)
                  : weft_view(a, WEFT_SHAPE(7, 200));
}

TEST(test_pointwise_unary_floats)
{
    for (size_t k = 0; k < sizeof unaries / sizeof *unaries; k++)
        for (int dtype = WEFT_F64; dtype <= WEFT_F8E5M2; dtype++)
            for (int turned = 0; turned < 2; turned++) {
                CHECK_OK(weft_scope_open());
                weft_dtype d = (weft_dtype)dtype;
                weft_tensor *x = grid(d, unaries[k].positive, turned), *y = unaries[k].op(x);
                CHECK(y && weft_tensor_dtype(y) == d);
                weft_tensor *target =
                    weft_slice(weft_zeros(d, WEFT_CPU, WEFT_SHAPE(7, 400)), 1, 0, 400, 2);
                CHECK_OK(unaries[k].into(target, x));
                for (int64_t i = 0; i < 1400; i++) {
                    double expected = rounded(d, unaries[k].reference(weft_item(x, i)));
                    if (!same(weft_item(y, i), expected, unaries[k].exact ? 0 : ulp(d)) ||
                        weft_item(target, i) != weft_item(y, i))
                        FAIL("%s(%g) in %s is %g, not %g", unaries[k].name, weft_item(x, i),
                             weft_dtype_name(d), weft_item(y, i), expected);
                }
                CHECK_OK(weft_scope_close());
            }
}

static double ref_add(double a, double b)
{
    return a + b;
}
static double ref_sub(double a, double b)
{
    return a - b;
}
static double ref_mul(double a, double b)
{
    return a * b;
}
static double ref_div(double a, double b)
{
    return a / b;
}
static double ref_max(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}
static double ref_min(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}
static double ref_eq(double a, double b)
{
    return a == b;
}
static double ref_ne(double a, double b)
{
    return a != b;
}
static double ref_lt(double a, double b)
{
    return a < b;
}
static double ref_le(double a, double b)
{
    return a <= b;
}
static double ref_gt(double a, double b)
{
    return a > b;
}
static double ref_ge(double a, double b)
{
    return a >= b;
}
static double ref_and(double a, double b)
{
    return a != 0 && b != 0;
}
static double ref_or(double a, double b)
{
    return a != 0 || b != 0;
}
static double ref_xor(double a, double b)
{
    return (a != 0) != (b != 0);
}

enum { ARITHMETIC, FLOATING, TRUTH };

static const struct binary {
    const char *name;
    weft_tensor *(*op)(weft_tensor *, weft_tensor *);
    weft_status (*into)(weft_tensor *, weft_tensor *, weft_tensor *);
    weft_tensor *(*scalar)(weft_tensor *, double);
    weft_status (*scalar_into)(weft_tensor *, weft_tensor *, double);
    weft_tensor *(*from_scalar)(double, weft_tensor *);
    double (*reference)(double, double);
    int kind;
} binaries[] = {
#define BINARY(name_, reference_)                                       \
    {                                                                   \
#name_, weft_##name_, NULL, NULL, NULL, NULL, reference_, TRUTH \
    }
#define COMPARE(name_, reference_)                                                       \
    {                                                                                    \
#name_, weft_##name_, NULL, weft_##name_##_scalar, NULL, NULL, reference_, TRUTH \
    }
#define OPERATOR(name_, reference_, kind_, from_)                                         \
    {                                                                                     \
#name_, weft_##name_, NULL, weft_##name_##_scalar, NULL, from_, reference_, kind_ \
    }
#define IN_PLACE(name_, reference_)                                       \
    {                                                                     \
#name_, weft_##name_, weft_##name_##_into, weft_##name_##_scalar, \
            weft_##name_##_scalar_into, NULL, reference_, ARITHMETIC      \
    }
    IN_PLACE(add, ref_add),
    OPERATOR(sub, ref_sub, ARITHMETIC, weft_scalar_sub),
    IN_PLACE(mul, ref_mul),
    OPERATOR(div, ref_div, FLOATING, weft_scalar_div),
    OPERATOR(maximum, ref_max, ARITHMETIC, NULL),
    OPERATOR(minimum, ref_min, ARITHMETIC, NULL),
    COMPARE(eq, ref_eq),
    COMPARE(ne, ref_ne),
    COMPARE(lt, ref_lt),
    COMPARE(le, ref_le),
    COMPARE(gt, ref_gt),
    COMPARE(ge, ref_ge),
    BINARY(logical_and, ref_and),
    BINARY(logical_or, ref_or),
    BINARY(logical_xor, ref_xor),
};
enum { BINARIES = sizeof binaries / sizeof *binaries };

static void check_binary(const struct binary *op, weft_dtype d, weft_tensor *x, weft_tensor *y,
                         weft_tensor *z)
{
    if (!z)
        FAIL("%s in %s: %s", op->name, weft_dtype_name(d), weft_last_error());
    weft_dtype out = op->kind == TRUTH                                   ? WEFT_BOOL
                     : op->kind == FLOATING && !weft_i_dtype_is_float(d) ? WEFT_F32
                                                                         : d;
    CHECK_INT(weft_tensor_dtype(z), out);
    weft_tensor *wide = weft_expand(y, weft_i_tensor_shape(z));
    for (int64_t i = 0; i < weft_tensor_numel(z); i++) {
        double a = weft_item(x, i), b = weft_item(wide, i), exact = op->reference(a, b);
        /* f32 once, then the dtype: what "compute in f32 and round once" says */
        double expected = d == WEFT_F64 || op->kind == TRUTH
                              ? exact
                              : rounded(out, weft_i_dtype_is_float(out) ? (float)exact : exact);
        if (!weft_i_dtype_is_float(out) && op->kind != TRUTH) {
            int64_t whole = (int64_t)exact;
            uint64_t element = 0;
            weft_i_convert(out, &element, WEFT_I64, &whole, 1); /* wraps */
            weft_i_convert(WEFT_F64, &expected, out, &element, 1);
        }
        if (!same(weft_item(z, i), expected, 0))
            FAIL("%s(%g, %g) in %s is %g, not %g", op->name, a, b, weft_dtype_name(d),
                 weft_item(z, i), expected);
    }
}

TEST(test_pointwise_binary_every_dtype)
{
    for (int k = 0; k < BINARIES; k++)
        for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
            const struct binary *op = &binaries[k];
            weft_dtype d = (weft_dtype)dtype;
            if (d == WEFT_BOOL && op->op == weft_sub)
                continue;
            CHECK_OK(weft_scope_open());
            weft_tensor *x = grid(d, 0, 0), *row = weft_select(grid(d, 0, 1), 0, 3),
                        *turned = grid(d, 0, 1);
            check_binary(op, d, x, row, op->op(x, row));       /* broadcast */
            check_binary(op, d, x, turned, op->op(x, turned)); /* two layouts */
            check_binary(op, d, turned, turned, op->op(turned, turned));
            if (op->kind == ARITHMETIC) {
                weft_tensor *copy = weft_clone(x);
                CHECK_OK(op->into ? op->into(copy, copy, turned) /* in place */
                                  : weft_copy(copy, op->op(copy, turned)));
                CHECK(weft_allclose(copy, op->op(x, turned), 0, 0, true));
            }
            CHECK_OK(weft_scope_close());
        }
}

TEST(test_pointwise_scalar_forms)
{
    for (int k = 0; k < BINARIES; k++) {
        const struct binary *op = &binaries[k];
        weft_tensor *x = grid(WEFT_F32, 0, 1),
                    *two = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1), 2);
        weft_tensor *all = weft_expand(two, WEFT_SHAPE(7, 200));
        if (op->scalar)
            CHECK(weft_allclose(op->scalar(x, 2), op->op(x, two), 0, 0, true));
        if (op->from_scalar)
            CHECK(weft_allclose(op->from_scalar(2, x), op->op(all, x), 0, 0, true));
        if (!op->scalar_into)
            continue;
        weft_tensor *out = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(7, 200));
        CHECK_OK(op->scalar_into(out, x, 2));
        CHECK(weft_allclose(out, op->op(x, two), 0, 0, true));
    }
}

/* Targets that are an argument, overlap one, have another dtype, or the strides of another layout:
 * the result is that of a fresh tensor, and one write is counted. */
TEST(test_pointwise_targets)
{
    for (int shift = 0; shift < 8; shift++)
        for (int odd = 0; odd < 3; odd++) {
            weft_tensor *memory = weft_arange(WEFT_F32, WEFT_CPU, 0, 24, 1);
            weft_tensor *a = weft_slice(memory, 0, 4, 12, 1), *b = weft_slice(memory, 0, 6, 14, 1);
            weft_tensor *expected = weft_add(a, weft_clone(b));
            weft_tensor *out = odd == 1   ? weft_zeros(WEFT_F64, WEFT_CPU, WEFT_SHAPE(8))
                               : odd == 2 ? weft_slice(memory, 0, shift, shift + 15, 2)
                                          : weft_slice(memory, 0, shift, shift + 8, 1);
            int64_t version = weft_tensor_version(out);
            CHECK_OK(weft_add_into(out, a, b));
            CHECK_INT(weft_tensor_version(out), version + 1);
            for (int i = 0; i < 8; i++)
                CHECK(weft_item(out, i) == weft_item(expected, i));
        }
    weft_tensor *bool_ = weft_zeros(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(3));
    CHECK(!weft_sub(bool_, bool_) && weft_last_status() == WEFT_ERR_TYPE);
    weft_clear_error();
    /* The strides of sizes of 1 are made anew. */
    weft_tensor *column = weft_as_strided(weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8)),
                                          WEFT_SHAPE(4, 1), (int64_t[]){1, 77}, 0);
    CHECK_INT(weft_tensor_stride(weft_neg(column), 1), 1);
    CHECK_INT(weft_tensor_stride(weft_view(column, WEFT_SHAPE(4, 1)), 1), 77);
}

/* The quick way takes a target that lies apart from the arguments, on either side, or is one of them;
 * never one that overlaps. */
TEST(test_pointwise_quick_targets)
{
    weft_tensor *memory = weft_arange(WEFT_F32, WEFT_CPU, 0, 32, 1);
    weft_tensor *a = weft_slice(memory, 0, 8, 16, 1), *b = weft_slice(memory, 0, 16, 24, 1);
    weft_i_arg args[] = {{.kind = WEFT_I_ARG_TENSOR, .tensor = a},
                         {.kind = WEFT_I_ARG_TENSOR, .tensor = b}};
    for (int at = 0; at <= 24; at++) {
        weft_tensor *into = weft_slice(memory, 0, at, at + 8, 1);
        weft_i_op_call call = {.op = weft_i_op_find("add"), .args = args, .into = into};
        CHECK_INT(weft_i_pointwise_quick(&call), at % 8 == 0);
        for (int i = 0; i < 8 && at % 8 == 0; i++)
            CHECK(weft_item(into, i) == 24 + 2 * i);
        for (int i = 0; i < 32; i++)
            CHECK_OK(weft_fill(weft_slice(memory, 0, i, i + 1, 1), i));
    }
    weft_tensor *none = weft_slice(memory, 0, 8, 8, 1); /* nor one without elements */
    weft_i_arg nothing[] = {WEFT_I_TENSOR_ARG(none), WEFT_I_TENSOR_ARG(none)};
    weft_i_op_call call = {.op = weft_i_op_find("add"), .args = nothing};
    CHECK(!weft_i_pointwise_quick(&call) && !call.out);
}

TEST(test_pointwise_integers_wrap)
{
    weft_tensor *a = weft_full(WEFT_I8, WEFT_CPU, WEFT_SHAPE(40), 100),
                *b = weft_full(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3), -0x1p63);
    CHECK_INT(weft_item_int(weft_add(a, a), 39), -56);
    CHECK_INT(weft_item_int(weft_mul(a, a), 39), 16);
    CHECK_INT(weft_item_int(weft_sub(b, weft_ones(WEFT_I64, WEFT_CPU, WEFT_SHAPE(3))), 2),
              INT64_MAX);
    CHECK_INT(weft_item_int(weft_neg(b), 0), INT64_MIN);
    CHECK_INT(weft_item_int(weft_abs(weft_full(WEFT_I8, WEFT_CPU, WEFT_SHAPE(2), -128)), 0), -128);
    CHECK_INT(weft_item_int(weft_sub(weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(2)),
                                     weft_ones(WEFT_U8, WEFT_CPU, WEFT_SHAPE(2))),
                            0),
              255);
    weft_tensor *u = weft_full(WEFT_U64, WEFT_CPU, WEFT_SHAPE(2), 0x1.8p63);
    CHECK(weft_item_int(weft_gt(u, weft_ones(WEFT_U64, WEFT_CPU, WEFT_SHAPE(2))), 0) ==
          1); /* compared unsigned */
    CHECK(weft_item(weft_maximum(u, weft_ones(WEFT_U64, WEFT_CPU, WEFT_SHAPE(2))), 0) == 0x1.8p63);
}

TEST(test_pointwise_pow)
{
    weft_tensor *base = weft_arange(WEFT_I64, WEFT_CPU, -3, 4, 1);
    for (int e = 0; e < 6; e++)
        for (int i = 0; i < 7; i++)
            CHECK_INT(weft_item_int(weft_pow_scalar(base, e), i), (int64_t)pow(i - 3, e));
    weft_tensor *inverse = weft_pow_scalar(base, -1), *square = weft_pow_scalar(base, -2);
    int64_t minus_one[] = {0, 0, -1, 0, 1, 0, 0}, minus_two[] = {0, 0, 1, 0, 1, 0, 0};
    for (int i = 0; i < 7; i++)
        CHECK(weft_item_int(inverse, i) == minus_one[i] &&
              weft_item_int(square, i) == minus_two[i]);
    weft_tensor *f = weft_arange(WEFT_F32, WEFT_CPU, 1, 50, 0.5);
    for (int i = 0; i < 98; i++) {
        CHECK_NEAR(weft_item(weft_pow_scalar(f, 0.5), i), sqrt(1 + i * 0.5), 1e-6);
        CHECK_NEAR(weft_item(weft_scalar_pow(2, f), 3), pow(2, 2.5), 1e-6);
    }
}

TEST(test_pointwise_nan_and_infinity)
{
    double values[] = {NAN, 1, -1, INFINITY, -INFINITY, -0.0};
    weft_tensor *a = weft_to_dtype(
        weft_expand(weft_tensor_from(WEFT_F64, WEFT_SHAPE(6, 1), values), WEFT_SHAPE(6, 6)),
        WEFT_F32);
    weft_tensor *b = weft_transpose(a, 0, 1);
    weft_tensor *max = weft_maximum(a, b), *min = weft_minimum(a, b), *eq = weft_eq(a, b),
                *relu = weft_relu(a);
    for (int i = 0; i < 36; i++) {
        double x = weft_item(a, i), y = weft_item(b, i);
        CHECK(same(weft_item(max, i), ref_max(x, y), 0) &&
              same(weft_item(min, i), ref_min(x, y), 0));
        CHECK(weft_item(eq, i) == (x == y));
        CHECK(same(weft_item(relu, i), ref_relu(x), 0));
    }
}

/* By their public names: of every pair of these values, NaN, infinities and both zeros included. */
TEST(test_pointwise_comparisons)
{
    const double values[] = {NAN, 1, -1, INFINITY, -INFINITY, -0.0, 0, 2.5};
    enum { COUNT = 8, PAIRS = COUNT * COUNT };
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        bool floats = dtype == WEFT_F64 || dtype == WEFT_F32 || dtype == WEFT_F16;
        if (!floats && dtype != WEFT_I32)
            continue;
        weft_tensor *column =
            floats ? weft_to_dtype(weft_tensor_from(WEFT_F64, WEFT_SHAPE(COUNT, 1), values),
                                   (weft_dtype)dtype)
                   : weft_reshape(weft_arange(WEFT_I32, WEFT_CPU, -4, 4, 1), WEFT_SHAPE(COUNT, 1));
        weft_tensor *a = weft_expand(column, WEFT_SHAPE(COUNT, COUNT)),
                    *b = weft_transpose(a, 0, 1);
        weft_tensor *ge = weft_ge(a, b), *le = weft_le(a, b), *ne = weft_ne(a, b);
        weft_tensor *ge_one = weft_ge_scalar(a, 1), *le_one = weft_le_scalar(a, 1);
        CHECK_INT(weft_tensor_dtype(ge), WEFT_BOOL);
        for (int i = 0; i < PAIRS; i++) {
            double x = weft_item(a, i), y = weft_item(b, i);
            CHECK(weft_item(ge, i) == (x >= y) && weft_item(le, i) == (x <= y));
            CHECK(weft_item(ne, i) == (x != y));
            CHECK(weft_item(ge_one, i) == (x >= 1) && weft_item(le_one, i) == (x <= 1));
        }
    }
}

TEST(test_pointwise_powers)
{
    const double bases[] = {0, 1, 2, -2, 0.25, 9}, exponents[] = {0, 1, 2, 3, 0.5, -1};
    weft_tensor *a = weft_expand(weft_tensor_from(WEFT_F64, WEFT_SHAPE(6, 1), bases),
                                 WEFT_SHAPE(6, 6)),
                *b = weft_expand(weft_tensor_from(WEFT_F64, WEFT_SHAPE(6), exponents),
                                 WEFT_SHAPE(6, 6));
    weft_tensor *powers = weft_pow(a, b);
    for (int i = 0; i < 36; i++)
        CHECK(same(weft_item(powers, i), pow(bases[i / 6], exponents[i % 6]), 1e-14));
}

TEST(test_pointwise_logic)
{
    const double values[] = {0, -0.0, 1, -3, NAN};
    weft_tensor *a = weft_expand(weft_tensor_from(WEFT_F64, WEFT_SHAPE(5, 1), values),
                                 WEFT_SHAPE(5, 5)),
                *b = weft_transpose(a, 0, 1);
    weft_tensor *either = weft_logical_or(a, b),
                *neither = weft_zeros(WEFT_BOOL, WEFT_CPU, WEFT_SHAPE(5, 5));
    CHECK_OK(weft_logical_not_into(neither, either));
    CHECK_INT(weft_tensor_dtype(either), WEFT_BOOL);
    for (int i = 0; i < 25; i++) {
        bool expected = values[i / 5] != 0 || values[i % 5] != 0;
        CHECK(weft_item(either, i) == expected && weft_item(neither, i) == !expected);
    }
}

TEST(test_pointwise_where)
{
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        weft_tensor *a = grid((weft_dtype)dtype, 0, 0),
                    *b = weft_select(grid((weft_dtype)dtype, 1, 0), 0, 0);
        weft_tensor *condition = weft_lt_scalar(grid(WEFT_F32, 0, 1), 0.5),
                    *c = weft_where(condition, a, b);
        weft_tensor *wide = weft_expand(b, WEFT_SHAPE(7, 200));
        CHECK_INT(weft_tensor_dtype(c), dtype);
        for (int64_t i = 0; i < 1400; i++)
            CHECK(weft_item(c, i) ==
                  (weft_item(condition, i) != 0 ? weft_item(a, i) : weft_item(wide, i)));
    }
}

/* One rounding per operation: 1 + 2^-9 is 1 in bf16, so adding in two steps differs from adding in
 * f32. */
TEST(test_pointwise_small_floats_round_once)
{
    weft_tensor *x = weft_ones(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(4)),
                *e = weft_full(WEFT_BF16, WEFT_CPU, WEFT_SHAPE(4), 0x1p-8);
    CHECK(weft_item(weft_add(x, e), 0) == 1); /* a tie: to even */
    CHECK(weft_item(weft_add(x, weft_add(e, e)), 0) == 1 + 0x1p-7);
    CHECK(weft_item(weft_mul(weft_full(WEFT_F16, WEFT_CPU, WEFT_SHAPE(1), 256),
                             weft_full(WEFT_F16, WEFT_CPU, WEFT_SHAPE(1), 256)),
                    0) == INFINITY);
    CHECK(isnan(
        weft_item(weft_mul_scalar(weft_full(WEFT_F8E4M3, WEFT_CPU, WEFT_SHAPE(1), 448), 2), 0)));
}

/* |a - b| <= absolute + relative |b|, at the very bound; opposite numbers are far apart. */
TEST(test_pointwise_allclose)
{
    weft_tensor *a = weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3), 4.5),
                *b = weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3), 4);
    CHECK(weft_allclose(a, b, 0, 0.5, false) && weft_allclose(a, b, 0.125, 0, false));
    CHECK(weft_allclose(a, b, 0.0625, 0.25, false));
    CHECK(!weft_allclose(a, b, 0, 0.4375, false) && !weft_allclose(a, b, 0.0625, 0.125, false));
    CHECK(!weft_allclose(a, weft_mul_scalar(a, -1), 0, 0.5, false));
    CHECK(weft_allclose(b, a, 0.125, 0, false)); /* 0.5 <= 4.5 / 8: relative to the second */
    CHECK(!weft_allclose(a, b, 0.1124, 0, false) && weft_allclose(b, a, 0.1124, 0, false));
    weft_tensor *nan = weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(3), (double)NAN);
    CHECK(weft_allclose(nan, nan, 0, 0, true) && !weft_allclose(nan, nan, 1, 1, false));
    CHECK(!weft_allclose(nan, a, 1, 1, true));
}

/* Slopes against differences of the functions in f64; small floats round once. */
static void check_slope(weft_tensor *(*function)(weft_tensor *),
                        weft_tensor *(*slope)(weft_tensor *, weft_tensor *), weft_dtype dtype,
                        double tolerance)
{
    weft_tensor *x = weft_arange(WEFT_F64, WEFT_CPU, -9, 9, 0.0625);
    weft_tensor *at = weft_to_dtype(x, dtype), *g = weft_to_dtype(weft_sin(x), dtype);
    weft_tensor *got = slope(g, at);
    CHECK(got && weft_tensor_dtype(got) == dtype);
    weft_tensor *up = function(weft_add_scalar(x, 1e-5)),
                *down = function(weft_sub_scalar(x, 1e-5));
    weft_tensor *must =
        weft_mul(weft_to_dtype(g, WEFT_F64), weft_div_scalar(weft_sub(up, down), 2e-5));
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        CHECK_NEAR(weft_item(got, i), weft_item(must, i), tolerance);
}

TEST(test_pointwise_gelu_slopes)
{
    static const struct {
        weft_dtype dtype;
        double tolerance;
    } dtypes[] = {{WEFT_F64, 1e-9}, {WEFT_F32, 3e-7}, {WEFT_BF16, 5e-3}, {WEFT_F16, 7e-4}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        check_slope(weft_gelu, weft_gelu_grad, dtypes[i].dtype, dtypes[i].tolerance);
        check_slope(weft_gelu_tanh, weft_gelu_tanh_grad, dtypes[i].dtype, dtypes[i].tolerance);
        check_slope(weft_silu, weft_silu_grad, dtypes[i].dtype, 4 * dtypes[i].tolerance);
    }
}

/* `part` has the bits of as many elements of `whole` from `first` on. */
static void check_part(const weft_tensor *whole, const weft_tensor *part, int64_t first)
{
    size_t size = weft_dtype_size(weft_tensor_dtype(part));
    CHECK(whole && part);
    CHECK(!memcmp((const char *)weft_tensor_data(whole) + (size_t)first * size,
                  weft_tensor_data(part), (size_t)weft_tensor_numel(part) * size));
}

/* Large operands are computed piece by piece; the last piece is a rest.  Nothing changes but the
 * time: the same elements by themselves, and in place, give the same bits. */
static void check_large(weft_dtype dtype, int64_t count)
{
    weft_tensor *x = weft_rand(dtype, WEFT_CPU, WEFT_SHAPE(count)), *y = weft_add_scalar(x, 0.5);
    weft_tensor *gelu = weft_gelu(x), *quotient = weft_div(x, y), *target = weft_clone(x);
    for (int64_t first = 0; first < count; first += 1000) {
        int64_t end = first + 1000 < count ? first + 1000 : count;
        weft_tensor *a = weft_clone(weft_slice(x, 0, first, end, 1));
        weft_tensor *b = weft_clone(weft_slice(y, 0, first, end, 1));
        check_part(gelu, weft_gelu(a), first);
        check_part(quotient, weft_div(a, b), first);
    }
    CHECK_OK(weft_gelu_into(target, target));
    check_part(target, gelu, 0);
}

TEST(test_pointwise_large_operands)
{
    static const int64_t counts[] = {65535, 65536, 65537, 100003};
    weft_seed(7);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_large(WEFT_F32, counts[i]);
        check_large(WEFT_F64, counts[i]);
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
