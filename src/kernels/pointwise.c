/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of pointwise.def for every compute type, their table, and the driver that feeds them.
 */
#include "kernels/pointwise.h"

#include "kernels/convert.h"
#include "kernels/copy.h"

#include <math.h>

enum {
    BLOCK = 512
}; /* elements; three inputs and an output of 8 bytes stay in a first cache of 32 KiB */

/* base^exponent modulo 2^64; a negative exponent cuts the fraction to 0 unless the base is 1 or -1.
 */
static uint64_t power(uint64_t base, uint64_t exponent, bool negative)
{
    if (negative)
        return base == 1 ? 1 : base == UINT64_MAX ? (exponent & 1 ? UINT64_MAX : 1) : 0;
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        result *= exponent & 1 ? base : 1;
    return result;
}

/* The compute types: suffix, C type, wrapping type, whether float. */
#define NEGATIVE(a_) ((a_) < (T)1 && (a_) != (T)0)

#define IS_FLOAT 1
#define T        float
#define F(f_)    f_##f
#define NAME(x_) x_##_F32
#include "kernels/pointwise_type.h"
#undef T
#undef F
#undef NAME
#define T        double
#define F(f_)    f_
#define NAME(x_) x_##_F64
#include "kernels/pointwise_type.h"
#undef T
#undef NAME
#undef IS_FLOAT

#define IS_FLOAT 0
#define U        uint32_t
#define T        int8_t
#define NAME(x_) x_##_I8
#include "kernels/pointwise_type.h"
#undef T
#undef NAME
#define T        int16_t
#define NAME(x_) x_##_I16
#include "kernels/pointwise_type.h"
#undef T
#undef NAME
#define T        int32_t
#define NAME(x_) x_##_I32
#include "kernels/pointwise_type.h"
#undef T
#undef NAME
#define T        uint8_t
#define NAME(x_) x_##_U8
#include "kernels/pointwise_type.h"
#undef T
#undef NAME
#define T        uint16_t
#define NAME(x_) x_##_U16
#include "kernels/pointwise_type.h"
#undef T
#undef NAME
#define T        uint32_t
#define NAME(x_) x_##_U32
#include "kernels/pointwise_type.h"
#undef T
#undef NAME
#undef U
#define U        uint64_t
#define T        int64_t
#define NAME(x_) x_##_I64
#include "kernels/pointwise_type.h"
#undef T
#undef NAME
#define T        uint64_t
#define NAME(x_) x_##_U64
#include "kernels/pointwise_type.h"
#undef T
#undef NAME

/* Bytes of 0 and 1. */
#define LOGICAL_LOOP(name_, bool_)                                        \
    static void name_##_BOOL(size_t n, void *out_, const void *const *in) \
    {                                                                     \
        uint8_t *out = out_;                                              \
        const uint8_t *x = in[0], *y = in[1];                             \
        WEFT_I_VECTOR_LOOP                                                \
        for (size_t i = 0; i < n; i++) {                                  \
            uint8_t a = x[i], b = y[i];                                   \
            (void)b;                                                      \
            out[i] = (uint8_t)(bool_);                                    \
        }                                                                 \
    }
#define UNARY(name_, float_, integer_)
#define UNARY_F(name_, float_)
#define BINARY(name_, float_, integer_)
#define BINARY_F(name_, float_)
#define COMPARE(name_, any_)
#define LOGICAL1(name_, bool_) LOGICAL_LOOP(name_, bool_)
#define LOGICAL2(name_, bool_) LOGICAL_LOOP(name_, bool_)
#include "kernels/pointwise.def"
#undef UNARY
#undef UNARY_F
#undef BINARY
#undef BINARY_F
#undef COMPARE
#undef LOGICAL1
#undef LOGICAL2

/* A choice between bare bits. */
#define WHERE_LOOP(type_)                                                  \
    static void where_##type_(size_t n, void *out_, const void *const *in) \
    {                                                                      \
        type_ *out = out_;                                                 \
        const uint8_t *condition = in[0];                                  \
        const type_ *a = in[1], *b = in[2];                                \
        WEFT_I_VECTOR_LOOP                                                 \
        for (size_t i = 0; i < n; i++)                                     \
            out[i] = condition[i] ? a[i] : b[i];                           \
    }
WHERE_LOOP(uint8_t)
WHERE_LOOP(uint16_t)
WHERE_LOOP(uint32_t)
WHERE_LOOP(uint64_t)

#define FLOATS(name_) [WEFT_F64] = name_##_F64, [WEFT_F32] = name_##_F32
#define INTEGERS(name_)                                                         \
    [WEFT_I8] = name_##_I8, [WEFT_I16] = name_##_I16, [WEFT_I32] = name_##_I32, \
    [WEFT_I64] = name_##_I64, [WEFT_U8] = name_##_U8, [WEFT_U16] = name_##_U16, \
    [WEFT_U32] = name_##_U32, [WEFT_U64] = name_##_U64
#define ROW(name_, ...)                 [WEFT_I_POINTWISE_##name_] = {__VA_ARGS__},
#define UNARY(name_, float_, integer_)  ROW(name_, FLOATS(name_), INTEGERS(name_))
#define UNARY_F(name_, float_)          ROW(name_, FLOATS(name_))
#define BINARY(name_, float_, integer_) ROW(name_, FLOATS(name_), INTEGERS(name_))
#define BINARY_F(name_, float_)         ROW(name_, FLOATS(name_))
#define COMPARE(name_, any_)            ROW(name_, FLOATS(name_), INTEGERS(name_))
#define LOGICAL1(name_, bool_)          ROW(name_, [WEFT_BOOL] = name_##_BOOL)
#define LOGICAL2(name_, bool_)          ROW(name_, [WEFT_BOOL] = name_##_BOOL)
static weft_i_pointwise_kernel *const kernels[WEFT_I_POINTWISE_COUNT][WEFT_DTYPE_COUNT] = {
#include "kernels/pointwise.def"
};

weft_dtype weft_i_pointwise_compute(weft_dtype dtype)
{
    return weft_i_dtype_is_small_float(dtype) ? WEFT_F32 : dtype == WEFT_BOOL ? WEFT_U8 : dtype;
}

weft_i_pointwise_kernel *weft_i_pointwise_find(int which, weft_dtype compute)
{
    if (which != WEFT_I_POINTWISE_where)
        return kernels[which][compute];
    size_t size = weft_dtype_size(compute);
    return size == 1   ? where_uint8_t
           : size == 2 ? where_uint16_t
           : size == 4 ? where_uint32_t
                       : where_uint64_t;
}

/* What one walk carries: the description, and how many inputs the loop has. */
struct walk {
    const weft_i_pointwise *what;
    int inputs;
};

static void run(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const struct walk *walk = state;
    const weft_i_pointwise *what = walk->what;
    uint64_t buffer[WEFT_I_POINTWISE_INPUTS][BLOCK], result[BLOCK];
    bool direct = what->made == what->out && stride[0] == (int64_t)weft_dtype_size(what->out);
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        const void *in[WEFT_I_POINTWISE_INPUTS] = {buffer[0], buffer[0], buffer[0]};
        for (int k = 0; k < walk->inputs; k++) {
            int64_t step = stride[k + 1];
            in[k] = buffer[k];
            if (i == 0 || step != 0) /* a repeated value fills its buffer once */
                in[k] = weft_i_load_run(what->taken[k], buffer[k], what->in[k],
                                        data[k + 1] + (int64_t)i * step, step, count);
        }
        char *to = data[0] + (int64_t)i * stride[0];
        what->kernel(count, direct ? (void *)to : result, in);
        if (!direct)
            weft_i_store_run(what->out, to, stride[0], what->made, result, count);
    }
}

void weft_i_pointwise_each(const weft_i_loop *loop, const weft_i_pointwise *what)
{
    struct walk walk = {what, loop->operands - 1};
    weft_i_loop_each(*loop, run, &walk);
}
