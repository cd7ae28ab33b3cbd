/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operations on operands that all lie packed at multiples of 16 bytes, in one dtype of
 * 16 or 32 bits.  A thread has 16 elements under way: it asks for all of them, by vectors of 16
 * bytes a block of threads apart, before it uses the first.  The results are those of expressions.h,
 * whose kernels take every other layout.  `dtype` and `size` are constants wherever these are
 * called.
 */
#ifndef WEFT_CUDA_KERNELS_PACKED_H
#define WEFT_CUDA_KERNELS_PACKED_H

#include "expressions.h"
#include "sums.h"

enum { WEFT_K_AHEAD = 4 }; /* vectors of an operand that a thread has under way, at most */

/* The end of an operand, which may be less than a vector: element by element. */
WEFT_K_OUT weft_k_vector weft_k_part_in(const char *from, uint64_t at, uint64_t bytes)
{
    weft_k_vector v = {{0, 0, 0, 0}};
    for (uint32_t i = 0; i < 16 && at + i < bytes; i++)
        v.word[i / 4] |= (uint32_t)(uint8_t)from[at + i] << 8 * (i % 4);
    return v;
}

WEFT_K_OUT void weft_k_part_out(char *to, uint64_t at, uint64_t bytes, weft_k_vector v)
{
    for (uint32_t i = 0; i < 16 && at + i < bytes; i++)
        to[at + i] = (char)(v.word[i / 4] >> 8 * (i % 4));
}

/* The vector at byte `at` of `bytes`. */
WEFT_K weft_k_vector weft_k_vector_in(const char *from, uint64_t at, uint64_t bytes)
{
    weft_k_vector none = {{0, 0, 0, 0}};
    if (at + 16 <= bytes)
        return weft_k_read16(from + at);
    return at < bytes ? weft_k_part_in(from, at, bytes) : none;
}

WEFT_K void weft_k_vector_out(char *to, uint64_t at, uint64_t bytes, weft_k_vector v)
{
    if (at + 16 <= bytes)
        weft_k_store16(to + at, v);
    else if (at < bytes)
        weft_k_part_out(to, at, bytes, v);
}

/* ---- f32, bf16, f16 ---- */

WEFT_K void weft_k_unpack(const int dtype, const weft_k_vector *v, float *x)
{
    WEFT_K_UNROLL
    for (int j = 0; j < 4; j++) {
        if (dtype == WEFT_K_F32) {
            x[j] = weft_k_float(v->word[j]);
        } else {
            x[2 * j] = weft_k_low(dtype, v->word[j]);
            x[2 * j + 1] = weft_k_high(dtype, v->word[j]);
        }
    }
}

/* A NaN is rare: whether there is one is asked once for all. */
WEFT_K weft_k_vector weft_k_pack(const int dtype, const float *x)
{
    weft_k_vector v;
    int nan = 0;
    WEFT_K_UNROLL
    for (int j = 0; j < 4; j++) {
        v.word[j] = dtype == WEFT_K_F32    ? weft_k_bits(x[j])
                    : dtype == WEFT_K_BF16 ? weft_k_pack_bf16(x[2 * j], x[2 * j + 1])
                                           : weft_k_pack_f16(x[2 * j], x[2 * j + 1]);
        if (dtype != WEFT_K_F32)
            nan |= x[2 * j] != x[2 * j] || x[2 * j + 1] != x[2 * j + 1];
    }
    if (nan) {
        WEFT_K_UNROLL
        for (int j = 0; j < 4; j++)
            v.word[j] = weft_k_narrow_pair(dtype == WEFT_K_BF16, x[2 * j], x[2 * j + 1]);
    }
    return v;
}

/* The vectors of input k from byte `at` on; of a number, nothing. */
WEFT_K void weft_k_take_packed(const weft_k_packed *c, const int ahead, int k, uint64_t at,
                               weft_k_vector *v)
{
    WEFT_K_UNROLL
    for (int u = 0; u < ahead; u++) {
        weft_k_vector none = {{0, 0, 0, 0}};
        v[u] = none;
        if (k < c->inputs && !(c->constants >> k & 1))
            v[u] = weft_k_vector_in(c->from[k], at + (uint64_t)u * weft_k_threads() * 16, c->bytes);
    }
}

WEFT_K void weft_k_widen_packed(const weft_k_packed *c, const int dtype, int k,
                                const weft_k_vector *v, float *x)
{
    const int per = dtype == WEFT_K_F32 ? 4 : 8;
    WEFT_K_UNROLL
    for (int u = 0; u < WEFT_K_TOGETHER / per; u++)
        weft_k_unpack(dtype, &v[u], x + u * per);
    if (c->constants >> k & 1) {
        WEFT_K_UNROLL
        for (int j = 0; j < WEFT_K_TOGETHER; j++)
            x[j] = weft_k_float((uint32_t)c->number[k]);
    }
}

/* gelu is written out here: a call for each element costs as much as the function. */
WEFT_K void weft_k_apply_packed(int op, float *x, const float *y)
{
    if (op != WEFT_K_gelu) {
        weft_k_apply_together(op, x, y);
        return;
    }
    WEFT_K_UNROLL
    for (int j = 0; j < WEFT_K_TOGETHER; j++)
        x[j] = weft_i_gelu_f32(x[j]);
}

WEFT_K void weft_k_run_packed(const weft_k_packed *c, const int dtype)
{
    const int per = dtype == WEFT_K_F32 ? 4 : 8, ahead = WEFT_K_TOGETHER / per;
    const uint64_t step = (uint64_t)weft_k_threads() * 16;
    uint64_t chunk = step * (uint64_t)ahead;
    WEFT_K_NO_UNROLL
    for (uint64_t first = weft_k_block() * chunk; first < c->bytes;
         first += weft_k_blocks() * chunk) {
        uint64_t at = first + weft_k_thread() * 16;
        weft_k_vector v[WEFT_K_AHEAD], w[WEFT_K_AHEAD];
        float x[WEFT_K_TOGETHER], y[WEFT_K_TOGETHER];
        weft_k_take_packed(c, ahead, 0, at, v);
        weft_k_take_packed(c, ahead, 1, at, w);
        weft_k_widen_packed(c, dtype, 0, v, x);
        weft_k_widen_packed(c, dtype, 1, w, y);
        weft_k_apply_packed(c->op, x, y);
        WEFT_K_UNROLL
        for (int u = 0; u < ahead; u++)
            weft_k_vector_out(c->to, at + (uint64_t)u * step, c->bytes,
                              weft_k_pack(dtype, x + u * per));
    }
}

/* ---- where ---- */

/* A word of y or of z, or of both: two elements of 2 bytes, whose truth is in the lower bytes of
 * `truth`, or one of 4. */
WEFT_K uint32_t weft_k_choose_word(const int size, uint32_t truth, uint32_t y, uint32_t z)
{
    if (size == 4)
        return truth & 0xff ? y : z;
    uint32_t mask = weft_k_mask_pair(truth);
    return (y & mask) | (z & ~mask);
}

/* The bytes of truth that belong to the vector at byte `at`: 8, or 4. */
WEFT_K uint64_t weft_k_truth_in(const weft_k_packed *c, const int size, uint64_t at)
{
    uint64_t truth = 0, place = at / (uint64_t)size;
    if (at + 16 <= c->bytes)
        return size == 2 ? *(const uint64_t *)(const void *)(c->from[0] + place)
                         : *(const uint32_t *)(const void *)(c->from[0] + place);
    for (uint32_t i = 0; i < 16u / (uint32_t)size && at + i * (uint32_t)size < c->bytes; i++)
        truth |= (uint64_t)(uint8_t)c->from[0][place + i] << 8 * i;
    return truth;
}

/* A number that is chosen is in all elements of a word already. */
WEFT_K void weft_k_choose_vector(const weft_k_packed *c, const int size, uint64_t truth,
                                 const weft_k_vector *y, const weft_k_vector *z, uint64_t at)
{
    const int per = 4 / size;
    weft_k_vector v;
    WEFT_K_UNROLL
    for (int j = 0; j < 4; j++)
        v.word[j] = weft_k_choose_word(size, (uint32_t)(truth >> 8 * per * j),
                                       c->constants & 2 ? (uint32_t)c->number[1] : y->word[j],
                                       c->constants & 4 ? (uint32_t)c->number[2] : z->word[j]);
    weft_k_vector_out(c->to, at, c->bytes, v);
}

WEFT_K void weft_k_run_choose(const weft_k_packed *c, const int size)
{
    const int ahead = 2;
    const uint64_t step = (uint64_t)weft_k_threads() * 16;
    WEFT_K_NO_UNROLL
    for (uint64_t first = weft_k_block() * step * ahead; first < c->bytes;
         first += weft_k_blocks() * step * ahead) {
        uint64_t at = first + weft_k_thread() * 16, truth[2] = {0, 0};
        weft_k_vector y[WEFT_K_AHEAD], z[WEFT_K_AHEAD];
        WEFT_K_UNROLL
        for (int u = 0; u < ahead; u++)
            truth[u] = weft_k_truth_in(c, size, at + (uint64_t)u * step);
        weft_k_take_packed(c, ahead, 1, at, y);
        weft_k_take_packed(c, ahead, 2, at, z);
        WEFT_K_UNROLL
        for (int u = 0; u < ahead; u++)
            weft_k_choose_vector(c, size, truth[u], &y[u], &z[u], at + (uint64_t)u * step);
    }
}

/* ---- gelu of bf16 ---- */

/*
 * A float of 16 bits has few values.  Each block computes gelu of those whose result is neither
 * half of them, nor they themselves, nor nothing: from 2^-10 up to 16, of both signs.  Then it
 * looks elements up.  By arithmetic the same takes two to three times as long as the memory does.
 */
enum { WEFT_K_GELU_FROM = 0x3a80, WEFT_K_GELU_TO = 0x4180 };
enum { WEFT_K_GELU_SPAN = WEFT_K_GELU_TO - WEFT_K_GELU_FROM };
typedef struct weft_k_gelu_room {
    uint16_t value[2 * WEFT_K_GELU_SPAN]; /* positive ones, negative ones */
} weft_k_gelu_room;

WEFT_K_OUT uint32_t weft_k_gelu_bits(uint32_t bits)
{
    return (uint32_t)weft_k_narrow(WEFT_K_BF16, weft_i_gelu_f32(weft_k_float(bits << 16)));
}

/* Of a value that the table does not have.  Normal ones below are halved, large ones kept or -0. */
WEFT_K uint32_t weft_k_gelu_outside(uint32_t bits)
{
    uint32_t magnitude = bits & 0x7fff;
    if (magnitude == 0)
        return bits;
    if (magnitude >= 0x100 && magnitude < WEFT_K_GELU_FROM)
        return bits - 0x80;
    if (magnitude >= WEFT_K_GELU_TO && magnitude <= 0x7f80)
        return bits & 0x8000 ? 0x8000 : bits;
    return weft_k_gelu_bits(bits);
}

/* `*outside` becomes 1 if the value is not that of these bits. */
WEFT_K uint32_t weft_k_gelu_find(const weft_k_gelu_room *room, uint32_t bits, int *outside)
{
    uint32_t at = (bits & 0x7fff) - WEFT_K_GELU_FROM;
    *outside |= at >= WEFT_K_GELU_SPAN;
    at = at < WEFT_K_GELU_SPAN ? at : 0;
    return room->value[at + (bits >> 15) * WEFT_K_GELU_SPAN];
}

WEFT_K weft_k_vector weft_k_gelu_vector(const weft_k_gelu_room *room, const weft_k_vector *v)
{
    weft_k_vector found;
    int outside = 0;
    WEFT_K_UNROLL
    for (int j = 0; j < 4; j++) {
        uint32_t low = weft_k_gelu_find(room, v->word[j] & 0xffff, &outside);
        found.word[j] = low | weft_k_gelu_find(room, v->word[j] >> 16, &outside) << 16;
    }
    if (outside) {
        WEFT_K_UNROLL
        for (int j = 0; j < 4; j++) {
            uint32_t low = v->word[j] & 0xffff, high = v->word[j] >> 16;
            if ((low & 0x7fff) - WEFT_K_GELU_FROM >= WEFT_K_GELU_SPAN)
                found.word[j] = (found.word[j] & 0xffff0000u) | weft_k_gelu_outside(low);
            if ((high & 0x7fff) - WEFT_K_GELU_FROM >= WEFT_K_GELU_SPAN)
                found.word[j] = (found.word[j] & 0xffff) | weft_k_gelu_outside(high) << 16;
        }
    }
    return found;
}

WEFT_K void weft_k_run_gelu_bf16(const weft_k_packed *c)
{
    WEFT_K_SHARED(weft_k_gelu_room, room);
    const int ahead = 2;
    const uint64_t step = (uint64_t)weft_k_threads() * 16;
    WEFT_K_NO_UNROLL
    for (uint32_t t = weft_k_thread(); t < 2 * WEFT_K_GELU_SPAN; t += weft_k_threads())
        room->value[t] = (uint16_t)weft_k_gelu_bits(
            t < WEFT_K_GELU_SPAN ? t + WEFT_K_GELU_FROM
                                 : t - WEFT_K_GELU_SPAN + WEFT_K_GELU_FROM + 0x8000);
    weft_k_sync();
    WEFT_K_NO_UNROLL
    for (uint64_t first = weft_k_block() * step * ahead; first < c->bytes;
         first += weft_k_blocks() * step * ahead) {
        uint64_t at = first + weft_k_thread() * 16;
        weft_k_vector v[WEFT_K_AHEAD];
        weft_k_take_packed(c, ahead, 0, at, v);
        WEFT_K_UNROLL
        for (int u = 0; u < ahead; u++)
            weft_k_vector_out(c->to, at + (uint64_t)u * step, c->bytes,
                              weft_k_gelu_vector(room, &v[u]));
    }
}

#endif
