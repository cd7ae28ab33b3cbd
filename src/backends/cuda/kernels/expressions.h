/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operations: the expressions of kernels/vector/pointwise.def.  A thread takes a group of
 * elements along the last dimension at a time and decides what is to be done once for all of them:
 * so one kernel serves all operations and dtypes that compute in one type.  There are three, for
 * f32, f64, and integers, which are extended to 64 bits; copies and choices move bits by the last.
 */
#ifndef WEFT_CUDA_KERNELS_EXPRESSIONS_H
#define WEFT_CUDA_KERNELS_EXPRESSIONS_H

#include "kernels/number/math.h"
#include "number.h"
#include "tensor_layout.h"

enum {
#define UNARY(name_, float_, integer_)   WEFT_K_##name_,
#define UNARY_F(name_, float_)           WEFT_K_##name_,
#define UNARY_ANGLE(name_, float_, any_) WEFT_K_##name_,
#define BINARY(name_, float_, integer_)  WEFT_K_##name_,
#define BINARY_F(name_, float_)          WEFT_K_##name_,
#define COMPARE(name_, any_)             WEFT_K_##name_,
#define LOGICAL1(name_, bool_)           WEFT_K_##name_,
#define LOGICAL2(name_, bool_)           WEFT_K_##name_,
#include "kernels/vector/pointwise.def"
    WEFT_K_where
};

WEFT_K_OUT uint64_t weft_k_convert_out(int to, int from, uint64_t bits)
{
    return weft_k_convert(to, from, bits);
}

/* Units of the grid: threads of all blocks. */
WEFT_K uint64_t weft_k_grid_first(void)
{
    return (uint64_t)weft_k_block() * weft_k_threads() + weft_k_thread();
}

WEFT_K uint64_t weft_k_grid_step(void)
{
    return (uint64_t)weft_k_blocks() * weft_k_threads();
}

/* Where the elements of a task are, and how many. */
typedef struct weft_k_place {
    int64_t at[WEFT_K_INPUTS + 1];
    int n;
} weft_k_place;

WEFT_K weft_k_place weft_k_place_of(const weft_k_pointwise *c, uint64_t task, int group)
{
    weft_k_place p;
    int last = c->ndim - 1;
    uint64_t row = last ? task / c->groups : 0, first = (task - row * c->groups) * (uint64_t)group;
    uint64_t left = c->dim[last] - first;
    p.n = left < (uint64_t)group ? (int)left : group;
    WEFT_K_UNROLL
    for (int k = 0; k <= WEFT_K_INPUTS; k++)
        p.at[k] = (int64_t)first * c->stride[k][last];
    WEFT_K_NO_UNROLL
    for (int d = last - 1; d >= 0; d--) {
        uint64_t next = row / c->dim[d], i = row - next * c->dim[d];
        WEFT_K_UNROLL
        for (int k = 0; k <= WEFT_K_INPUTS; k++)
            p.at[k] += (int64_t)i * c->stride[k][d];
        row = next;
    }
    return p;
}

/* Whether `n` elements of `size` bytes at p are whole words of 16 bytes. */
WEFT_K int weft_k_is_whole(const void *p, int64_t stride, uint32_t size, int n, int group)
{
    return n == group && stride == (int64_t)size && ((uintptr_t)p & 15) == 0;
}

/* ---- f32 ---- */

#define WEFT_K_N WEFT_K_GROUP_F32

WEFT_K void weft_k_take_f32(const char *p, int64_t stride, int n, float *x)
{
    if (weft_k_is_whole(p, stride, 4, n, WEFT_K_N)) {
        weft_k_vector v = weft_k_read16(p), w = weft_k_read16(p + 16);
        WEFT_K_UNROLL
        for (int j = 0; j < 4; j++) {
            x[j] = weft_k_float(v.word[j]);
            x[4 + j] = weft_k_float(w.word[j]);
        }
        return;
    }
    WEFT_K_UNROLL
    for (int j = 0; j < WEFT_K_N; j++)
        x[j] = j < n ? *(const float *)(const void *)(p + j * stride) : 0;
}

WEFT_K float weft_k_half(int bf16, uint32_t bits)
{
    return bf16 ? weft_k_float(bits << 16) : weft_k_low_f16(bits);
}

WEFT_K void weft_k_take_half(int bf16, const char *p, int64_t stride, int n, float *x)
{
    if (weft_k_is_whole(p, stride, 2, n, WEFT_K_N)) {
        weft_k_vector v = weft_k_read16(p);
        WEFT_K_UNROLL
        for (int j = 0; j < 4; j++) {
            x[2 * j] = weft_k_half(bf16, v.word[j] & 0xffff);
            x[2 * j + 1] = weft_k_half(bf16, v.word[j] >> 16);
        }
        return;
    }
    WEFT_K_UNROLL
    for (int j = 0; j < WEFT_K_N; j++)
        x[j] = weft_k_half(bf16, j < n ? *(const uint16_t *)(const void *)(p + j * stride) : 0);
}

/* Up to WEFT_K_GROUP_F32 floats of a dtype that is computed in f32, or of f64. */
WEFT_K void weft_k_read_f32(int dtype, const char *p, int64_t stride, int n, float *x)
{
    uint32_t size = weft_k_size_of(dtype);
    switch (dtype) {
    case WEFT_K_F32:
        weft_k_take_f32(p, stride, n, x);
        break;
    case WEFT_K_BF16:
        weft_k_take_half(1, p, stride, n, x);
        break;
    case WEFT_K_F16:
        weft_k_take_half(0, p, stride, n, x);
        break;
    default:
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_N; j++)
            x[j] = j < n ? weft_k_float((uint32_t)weft_k_convert_out(
                               WEFT_K_F32, dtype, weft_k_get(p + j * stride, size)))
                         : 0;
    }
}

WEFT_K void weft_k_load_f32(const weft_k_pointwise *c, int k, const weft_k_place *place, float *x)
{
    if (c->constants >> k & 1) {
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_N; j++)
            x[j] = weft_k_float((uint32_t)c->number[k]);
        return;
    }
    weft_k_read_f32(c->in[k], c->data[k + 1] + place->at[k + 1], c->stride[k + 1][c->ndim - 1],
                    place->n, x);
}

WEFT_K void weft_k_write_f32(int dtype, char *p, int64_t stride, int n, const float *x)
{
    uint32_t size = weft_k_size_of(dtype);
    if (dtype == WEFT_K_F32 && weft_k_is_whole(p, stride, 4, n, WEFT_K_N)) {
        weft_k_vector v, w;
        WEFT_K_UNROLL
        for (int j = 0; j < 4; j++) {
            v.word[j] = weft_k_bits(x[j]);
            w.word[j] = weft_k_bits(x[4 + j]);
        }
        weft_k_store16(p, v);
        weft_k_store16(p + 16, w);
        return;
    }
    if (size == 2 && weft_k_is_whole(p, stride, 2, n, WEFT_K_N)) {
        weft_k_vector v;
        WEFT_K_UNROLL
        for (int j = 0; j < 4; j++)
            v.word[j] = weft_k_narrow_pair(dtype == WEFT_K_BF16, x[2 * j], x[2 * j + 1]);
        weft_k_store16(p, v);
        return;
    }
    WEFT_K_UNROLL
    for (int j = 0; j < WEFT_K_N; j++)
        if (j < n)
            weft_k_put(p + j * stride, size, weft_k_narrow(dtype, x[j]));
}

WEFT_K void weft_k_store_f32(const weft_k_pointwise *c, const weft_k_place *place, const float *x)
{
    weft_k_write_f32(c->out, c->data[0] + place->at[0], c->stride[0][c->ndim - 1], place->n, x);
}

/* Truth: bytes of 0 and 1. */
WEFT_K void weft_k_store_truth(const weft_k_pointwise *c, const weft_k_place *place, uint32_t truth,
                               int group)
{
    char *p = c->data[0] + place->at[0];
    int64_t stride = c->stride[0][c->ndim - 1];
    WEFT_K_UNROLL
    for (int j = 0; j < group; j++)
        if (j < place->n)
            *(uint8_t *)(p + j * stride) = (uint8_t)(truth >> j & 1);
}

#undef WEFT_K_N

/* ---- f64 and integers: bits of 64 ---- */

#define WEFT_K_N WEFT_K_GROUP

#define WEFT_K_TAKE(type_)             \
    WEFT_K_UNROLL                      \
    for (int j = 0; j < WEFT_K_N; j++) \
        x[j] = j < n ? *(const type_ *)(const void *)(p + j * stride) : 0;

WEFT_K void weft_k_take_bits(const char *p, int64_t stride, uint32_t size, int n, uint64_t *x)
{
    switch (size) {
    case 8:
        if (weft_k_is_whole(p, stride, 8, n, WEFT_K_N)) {
            weft_k_vector v = weft_k_read16(p), w = weft_k_read16(p + 16);
            x[0] = v.word[0] | (uint64_t)v.word[1] << 32;
            x[1] = v.word[2] | (uint64_t)v.word[3] << 32;
            x[2] = w.word[0] | (uint64_t)w.word[1] << 32;
            x[3] = w.word[2] | (uint64_t)w.word[3] << 32;
        } else {
            WEFT_K_TAKE(uint64_t)
        }
        break;
    case 4:
        WEFT_K_TAKE(uint32_t)
        break;
    case 2:
        WEFT_K_TAKE(uint16_t)
        break;
    default:
        WEFT_K_TAKE(uint8_t)
    }
}

#define WEFT_K_LEAVE(type_)            \
    WEFT_K_UNROLL                      \
    for (int j = 0; j < WEFT_K_N; j++) \
        if (j < n)                     \
            *(type_ *)(void *)(p + j * stride) = (type_)x[j];

WEFT_K void weft_k_write_bits(char *p, int64_t stride, uint32_t size, int n, const uint64_t *x)
{
    switch (size) {
    case 8:
        if (weft_k_is_whole(p, stride, 8, n, WEFT_K_N)) {
            weft_k_vector v, w;
            WEFT_K_UNROLL
            for (int j = 0; j < 2; j++) {
                v.word[2 * j] = (uint32_t)x[j];
                v.word[2 * j + 1] = (uint32_t)(x[j] >> 32);
                w.word[2 * j] = (uint32_t)x[2 + j];
                w.word[2 * j + 1] = (uint32_t)(x[2 + j] >> 32);
            }
            weft_k_store16(p, v);
            weft_k_store16(p + 16, w);
        } else {
            WEFT_K_LEAVE(uint64_t)
        }
        break;
    case 4:
        WEFT_K_LEAVE(uint32_t)
        break;
    case 2:
        WEFT_K_LEAVE(uint16_t)
        break;
    default:
        WEFT_K_LEAVE(uint8_t)
    }
}

WEFT_K void weft_k_leave_bits(const weft_k_pointwise *c, const weft_k_place *place,
                              const uint64_t *x)
{
    weft_k_write_bits(c->data[0] + place->at[0], c->stride[0][c->ndim - 1], weft_k_size_of(c->out),
                      place->n, x);
}

/* The bits of input k in the dtype the expression takes; integers are extended. */
WEFT_K void weft_k_load_bits(const weft_k_pointwise *c, int k, const weft_k_place *place,
                             uint64_t *x)
{
    int in = c->in[k], taken = c->taken[k];
    if (c->constants >> k & 1) {
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_N; j++)
            x[j] = c->number[k];
    } else {
        weft_k_take_bits(c->data[k + 1] + place->at[k + 1], c->stride[k + 1][c->ndim - 1],
                         weft_k_size_of(in), place->n, x);
        if (in != taken) {
            WEFT_K_UNROLL
            for (int j = 0; j < WEFT_K_N; j++)
                x[j] = weft_k_convert_out(taken, in, x[j]);
        }
    }
    if (!weft_k_is_float(taken)) {
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_N; j++)
            x[j] = weft_k_extend(taken, x[j]);
    }
}

/* base^exponent modulo 2^64, as in kernels/vector/pointwise_loops.h. */
WEFT_K_OUT uint64_t weft_k_power(uint64_t base, uint64_t exponent, int negative)
{
    uint64_t result = 1, minus = ~(uint64_t)0;
    if (negative)
        return base == 1 ? 1 : base == minus ? (exponent & 1 ? minus : 1) : 0;
    for (; exponent; exponent >>= 1, base *= base)
        result *= exponent & 1 ? base : 1;
    return result;
}

#undef WEFT_K_N

/* The C library's functions.  pow is its own on every machine. */
#define weft_k_fabs_f32 fabsf
#define weft_k_fabs_f64 fabs
#define weft_k_sqrt_f32 sqrtf
#define weft_k_sqrt_f64 sqrt
WEFT_K_OUT float weft_k_pow_f32(float a, float b)
{
    return powf(a, b);
}

WEFT_K_OUT double weft_k_pow_f64(double a, double b)
{
    return pow(a, b);
}

#define NEGATIVE(a_) ((a_) < (T)1 && (a_) != (T)0)
#define power        weft_k_power

#define IS_FLOAT 1
#define T        float
#define F(f_)    weft_k_##f_##_f32
#define M(f_)    weft_i_##f_##_f32
#define NAME(x_) x_##_f32
#define GROUP    WEFT_K_GROUP_F32
#include "expressions_type.h"
#undef NAME
#undef GROUP
#define NAME(x_)  x_##_together /* the same for packed.h */
#define GROUP     WEFT_K_TOGETHER
#define LONG_NAME weft_k_long_f32
#include "expressions_type.h"
#undef T
#undef F
#undef M
#undef NAME
#undef GROUP
#define T        double
#define F(f_)    weft_k_##f_##_f64
#define M(f_)    weft_i_##f_##_f64
#define NAME(x_) x_##_f64
#define GROUP    WEFT_K_GROUP
#include "expressions_type.h"
#undef T
#undef F
#undef M
#undef NAME
#undef IS_FLOAT
#define IS_FLOAT 0
#define U        uint64_t
#define T        int64_t
#define NAME(x_) x_##_i64
#include "expressions_type.h"
#undef T
#undef NAME
#define T        uint64_t
#define NAME(x_) x_##_u64
#include "expressions_type.h"
#undef T
#undef NAME
#undef U
#undef GROUP
#undef IS_FLOAT
#undef NEGATIVE
#undef power

WEFT_K void weft_k_run_pointwise_f32(const weft_k_pointwise *c)
{
    for (uint64_t t = weft_k_grid_first(); t < c->tasks; t += weft_k_grid_step()) {
        weft_k_place place = weft_k_place_of(c, t, WEFT_K_GROUP_F32);
        float a[WEFT_K_GROUP_F32], b[WEFT_K_GROUP_F32];
        weft_k_load_f32(c, 0, &place, a);
        if (c->inputs > 1) {
            weft_k_load_f32(c, 1, &place, b);
        } else {
            WEFT_K_UNROLL
            for (int j = 0; j < WEFT_K_GROUP_F32; j++)
                b[j] = 0;
        }
        uint32_t truth = weft_k_apply_f32(c->op, a, b);
        if (c->made == WEFT_K_BOOL)
            weft_k_store_truth(c, &place, truth, WEFT_K_GROUP_F32);
        else
            weft_k_store_f32(c, &place, a);
    }
}

WEFT_K void weft_k_run_pointwise_f64(const weft_k_pointwise *c)
{
    for (uint64_t t = weft_k_grid_first(); t < c->tasks; t += weft_k_grid_step()) {
        weft_k_place place = weft_k_place_of(c, t, WEFT_K_GROUP);
        uint64_t x[WEFT_K_GROUP], y[WEFT_K_GROUP];
        double a[WEFT_K_GROUP], b[WEFT_K_GROUP];
        weft_k_load_bits(c, 0, &place, x);
        weft_k_load_bits(c, c->inputs > 1, &place, y);
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_GROUP; j++) {
            a[j] = weft_k_double(x[j]);
            b[j] = weft_k_double(y[j]);
        }
        uint32_t truth = weft_k_apply_f64(c->op, a, b);
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_GROUP; j++)
            x[j] = weft_k_double_bits(a[j]);
        if (c->made == WEFT_K_BOOL)
            weft_k_store_truth(c, &place, truth, WEFT_K_GROUP);
        else
            weft_k_leave_bits(c, &place, x);
    }
}

/* Truth of bytes that another operation made: 1 + 1 is true. */
WEFT_K void weft_k_leave_integers(const weft_k_pointwise *c, const weft_k_place *place, uint64_t *x)
{
    if (c->out == WEFT_K_BOOL) {
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_GROUP; j++)
            x[j] = (x[j] & 0xff) != 0;
    }
    weft_k_leave_bits(c, place, x);
}

/* Bits that nothing is computed with: a copy, or a choice between two. */
WEFT_K void weft_k_move_bits(const weft_k_pointwise *c, const weft_k_place *place)
{
    uint64_t x[WEFT_K_GROUP], y[WEFT_K_GROUP], z[WEFT_K_GROUP];
    weft_k_load_bits(c, 0, place, x);
    if (c->op == WEFT_K_where) {
        weft_k_load_bits(c, 1, place, y);
        weft_k_load_bits(c, 2, place, z);
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_GROUP; j++)
            x[j] = x[j] ? y[j] : z[j];
    }
    weft_k_leave_bits(c, place, x);
}

WEFT_K void weft_k_run_pointwise_bits(const weft_k_pointwise *c)
{
    for (uint64_t t = weft_k_grid_first(); t < c->tasks; t += weft_k_grid_step()) {
        weft_k_place place = weft_k_place_of(c, t, WEFT_K_GROUP);
        uint64_t x[WEFT_K_GROUP], y[WEFT_K_GROUP];
        if (c->op >= WEFT_K_where) {
            weft_k_move_bits(c, &place);
            continue;
        }
        weft_k_load_bits(c, 0, &place, x);
        weft_k_load_bits(c, c->inputs > 1, &place, y);
        uint32_t truth = c->taken[0] == WEFT_K_U64
                             ? weft_k_apply_u64(c->op, x, y)
                             : weft_k_apply_i64(c->op, (int64_t *)x, (int64_t *)y);
        if (c->made == WEFT_K_BOOL && c->taken[0] != WEFT_K_BOOL) /* a comparison */
            weft_k_store_truth(c, &place, truth, WEFT_K_GROUP);
        else
            weft_k_leave_integers(c, &place, x);
    }
}

#endif
