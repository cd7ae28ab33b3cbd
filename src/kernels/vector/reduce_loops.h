/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of reductions, as the table `reduce`; included by vector_loops.h.  The lanes of
 * reduce.h are written as vectors of the instruction set, of which several make the 16 lanes.
 */
#include "kernels/number/convert.h"
#include "kernels/vector/reduce.h"

#include <math.h>
#include <string.h>

enum { LANES = WEFT_I_REDUCE_LANES, BLOCK = WEFT_I_REDUCE_BLOCK };

/* A vector of at most 16 lanes, and the integers of its comparisons. */
#define BYTES_OF(type_) \
    (VECTOR_BYTES < LANES * sizeof(type_) ? VECTOR_BYTES : LANES * sizeof(type_))
#define VECTOR_TYPES(type_, mask_)                                         \
    typedef type_ v_##type_ __attribute__((vector_size(BYTES_OF(type_)))); \
    typedef mask_ m_##type_ __attribute__((vector_size(BYTES_OF(type_))));
VECTOR_TYPES(float, int32_t)
VECTOR_TYPES(double, int64_t)
VECTOR_TYPES(int64_t, int64_t)
VECTOR_TYPES(uint64_t, int64_t)
VECTOR_TYPES(uint8_t, int8_t)

/* a where the mask is all ones, else b. */
#define PICK(type_, mask_) ((v_##type_)(((mask_) & (m_##type_)a) | (~(mask_) & (m_##type_)b)))

/* Takes 16 elements at a time into `lane`; the last may be fewer. */
#define BLOCK_LOOP(op_, type_, scalar_, vector_, start_)                               \
    static inline type_ one_##op_##_##type_(type_ a, type_ b)                          \
    {                                                                                  \
        return (type_)(scalar_);                                                       \
    }                                                                                  \
    static inline v_##type_ many_##op_##_##type_(v_##type_ a, v_##type_ b)             \
    {                                                                                  \
        return (vector_);                                                              \
    }                                                                                  \
    static inline type_ sum_block_##op_##_##type_(size_t n, const type_ *x)            \
    {                                                                                  \
        enum { PARTS = LANES * sizeof(type_) / BYTES_OF(type_), PER = LANES / PARTS }; \
        type_ lane[LANES];                                                             \
        v_##type_ part[PARTS], next;                                                   \
        size_t i = 0;                                                                  \
        for (int p = 0; p < PARTS; p++)                                                \
            part[p] = (v_##type_){0} + (type_)(start_);                                \
        for (; i + LANES <= n; i += LANES)                                             \
            for (int p = 0; p < PARTS; p++) {                                          \
                memcpy(&next, x + i + p * PER, sizeof next);                           \
                part[p] = many_##op_##_##type_(part[p], next);                         \
            }                                                                          \
        memcpy(lane, part, sizeof lane);                                               \
        for (size_t l = 0; i + l < n; l++)                                             \
            lane[l] = one_##op_##_##type_(lane[l], x[i + l]);                          \
        for (int half = LANES / 2; half; half /= 2)                                    \
            for (int l = 0; l < half; l++)                                             \
                lane[l] = one_##op_##_##type_(lane[l], lane[l + half]);                \
        return lane[0];                                                                \
    }

/* Blocks of adjacent elements, pairwise: two neighbours as soon as both are there. */
#define RUN_LOOP(op_, type_, start_)                                                             \
    static type_ run_##op_##_##type_(size_t n, const type_ *x)                                   \
    {                                                                                            \
        type_ level[WEFT_I_REDUCE_LEVELS];                                                       \
        int depth = 0;                                                                           \
        uint64_t blocks = 0;                                                                     \
        for (size_t at = 0; at < n; at += BLOCK) {                                               \
            level[depth++] = sum_block_##op_##_##type_(n - at < BLOCK ? n - at : BLOCK, x + at); \
            for (uint64_t bits = ++blocks; !(bits & 1); bits >>= 1, depth--)                     \
                level[depth - 2] = one_##op_##_##type_(level[depth - 2], level[depth - 1]);      \
        }                                                                                        \
        for (; depth > 1; depth--)                                                               \
            level[depth - 2] = one_##op_##_##type_(level[depth - 2], level[depth - 1]);          \
        return depth ? level[0] : (type_)(start_);                                               \
    }

/*
 * The same for sums.  A lane's next addition waits for its last one, so two whole blocks are summed
 * side by side: neither waits for the other.
 */
#define SUM_RUN_LOOP(op_, type_, start_)                                                         \
    static inline type_ sum_pair_##type_(const type_ *x)                                         \
    {                                                                                            \
        enum { PARTS = LANES * sizeof(type_) / BYTES_OF(type_), PER = LANES / PARTS };           \
        type_ first[LANES], second[LANES];                                                       \
        v_##type_ part[PARTS] = {{0}}, other[PARTS] = {{0}}, next;                               \
        for (size_t i = 0; i < BLOCK; i += LANES)                                                \
            for (int p = 0; p < PARTS; p++) {                                                    \
                memcpy(&next, x + i + p * PER, sizeof next);                                     \
                part[p] += next;                                                                 \
                memcpy(&next, x + BLOCK + i + p * PER, sizeof next);                             \
                other[p] += next;                                                                \
            }                                                                                    \
        memcpy(first, part, sizeof first);                                                       \
        memcpy(second, other, sizeof second);                                                    \
        for (int half = LANES / 2; half; half /= 2)                                              \
            for (int l = 0; l < half; l++) {                                                     \
                first[l] += first[l + half];                                                     \
                second[l] += second[l + half];                                                   \
            }                                                                                    \
        return first[0] + second[0];                                                             \
    }                                                                                            \
    static type_ run_##op_##_##type_(size_t n, const type_ *x)                                   \
    {                                                                                            \
        type_ level[WEFT_I_REDUCE_LEVELS];                                                       \
        int depth = 0;                                                                           \
        uint64_t pairs = 0;                                                                      \
        size_t at = 0;                                                                           \
        for (; n - at >= 2 * BLOCK; at += 2 * BLOCK) {                                           \
            level[depth++] = sum_pair_##type_(x + at);                                           \
            for (uint64_t bits = ++pairs; !(bits & 1); bits >>= 1, depth--)                      \
                level[depth - 2] += level[depth - 1];                                            \
        }                                                                                        \
        for (; at < n; at += BLOCK) /* one, or a whole one and a part */                         \
            level[depth++] = sum_block_##op_##_##type_(n - at < BLOCK ? n - at : BLOCK, x + at); \
        for (; depth > 1; depth--)                                                               \
            level[depth - 2] += level[depth - 1];                                                \
        return depth ? level[0] : (type_)(start_);                                               \
    }

#define COMBINER_OF(run_loop_, op_, type_, scalar_, vector_, start_)                        \
    BLOCK_LOOP(op_, type_, scalar_, vector_, start_)                                        \
    run_loop_(op_, type_, start_) static void all_##op_##_##type_(size_t n, const void *x,  \
                                                                  void *out)                \
    {                                                                                       \
        type_ result = run_##op_##_##type_(n, x);                                           \
        memcpy(out, &result, sizeof result);                                                \
    }                                                                                       \
    static void fold_##op_##_##type_(size_t n, void *into_, const void *from_)              \
    {                                                                                       \
        type_ *into = into_;                                                                \
        const type_ *from = from_;                                                          \
        WEFT_I_VECTOR_LOOP                                                                  \
        for (size_t i = 0; i < n; i++)                                                      \
            into[i] = one_##op_##_##type_(into[i], from[i]);                                \
    }                                                                                       \
    static void rows_##op_##_##type_(size_t n, const char *x, int64_t stride, size_t width, \
                                     void *lanes)                                           \
    {                                                                                       \
        for (size_t i = 0; i < n; i++, x += stride)                                         \
            fold_##op_##_##type_(width, (type_ *)lanes + i % LANES * width, x);             \
    }                                                                                       \
    static const type_ identity_##op_##_##type_ = start_;

#define COMBINER(...) COMBINER_OF(RUN_LOOP, __VA_ARGS__)

/* Integer sums wrap: the arithmetic is done on unsigned numbers. */
COMBINER_OF(SUM_RUN_LOOP, sum, float, a + b, a + b, 0)
COMBINER_OF(SUM_RUN_LOOP, sum, double, a + b, a + b, 0)
COMBINER(sum, int64_t, (uint64_t)a + (uint64_t)b, (v_int64_t)((v_uint64_t)a + (v_uint64_t)b), 0)
COMBINER(prod, float, a *b, a *b, 1)
COMBINER(prod, double, a *b, a *b, 1)
COMBINER(prod, int64_t, (uint64_t)a *(uint64_t)b, (v_int64_t)((v_uint64_t)a *(v_uint64_t)b), 1)
COMBINER(max, float, a != a || a > b ? a : b, PICK(float, (a != a) | (a > b)), -INFINITY)
COMBINER(max, double, a != a || a > b ? a : b, PICK(double, (a != a) | (a > b)), -INFINITY)
COMBINER(max, int64_t, a > b ? a : b, PICK(int64_t, a > b), INT64_MIN)
COMBINER(max, uint64_t, a > b ? a : b, PICK(uint64_t, a > b), 0)
COMBINER(max, uint8_t, a > b ? a : b, PICK(uint8_t, a > b), 0)
COMBINER(min, float, a != a || a < b ? a : b, PICK(float, (a != a) | (a < b)), INFINITY)
COMBINER(min, double, a != a || a < b ? a : b, PICK(double, (a != a) | (a < b)), INFINITY)
COMBINER(min, int64_t, a < b ? a : b, PICK(int64_t, a < b), INT64_MAX)
COMBINER(min, uint64_t, a < b ? a : b, PICK(uint64_t, a < b), UINT64_MAX)
COMBINER(min, uint8_t, a < b ? a : b, PICK(uint8_t, a < b), UINT8_MAX)

/*
 * `count_` sums over one row at once, each in the order of sums.  The step functions
 * many_<name>_<type> and one_<name>_<type> add the terms of the elements from `i` on, a vector of
 * them or one, to their sums.
 */
#define SUMS_LOOP(name_, type_, source_, count_)                                                \
    enum { PARTS_##name_##_##type_ = LANES * sizeof(type_) / BYTES_OF(type_) };                 \
    static inline void spread_##name_##_##type_(type_(*lane)[count_], v_##type_(*part)[count_]) \
    {                                                                                           \
        enum { PER = LANES / PARTS_##name_##_##type_ };                                         \
        for (int l = 0; l < LANES; l++)                                                         \
            for (int k = 0; k < count_; k++)                                                    \
                lane[l][k] = part[l / PER][k][l % PER];                                         \
    }                                                                                           \
    static inline void lanes_##name_##_##type_(type_(*lane)[count_])                            \
    {                                                                                           \
        for (int half = LANES / 2; half; half /= 2)                                             \
            for (int l = 0; l < half; l++)                                                      \
                for (int k = 0; k < count_; k++)                                                \
                    lane[l][k] += lane[l + half][k];                                            \
    }                                                                                           \
    static inline void block_##name_##_##type_(const source_ *from, size_t i, size_t n,         \
                                               type_ *out)                                      \
    {                                                                                           \
        const source_ own = *from, *s = &own; /* what steps write is not in here */             \
        enum { PARTS = PARTS_##name_##_##type_, PER = LANES / PARTS };                          \
        type_ lane[LANES][count_];                                                              \
        v_##type_ part[PARTS][count_] = {{{0}}};                                                \
        for (; LANES <= n; i += LANES, n -= LANES)                                              \
            for (int p = 0; p < PARTS; p++)                                                     \
                many_##name_##_##type_(s, i + p * PER, part[p]);                                \
        spread_##name_##_##type_(lane, part);                                                   \
        for (size_t l = 0; l < n; l++)                                                          \
            one_##name_##_##type_(s, i + l, lane[l]);                                           \
        lanes_##name_##_##type_(lane);                                                          \
        memcpy(out, lane[0], sizeof lane[0]);                                                   \
    }                                                                                           \
    static inline void pair_##name_##_##type_(const source_ *from, size_t at, type_ *out)       \
    {                                                                                           \
        const source_ own = *from, *s = &own;                                                   \
        enum { PARTS = PARTS_##name_##_##type_, PER = LANES / PARTS };                          \
        type_ lane[2][LANES][count_];                                                           \
        v_##type_ part[2][PARTS][count_] = {{{{0}}}};                                           \
        for (size_t i = at; i < at + BLOCK; i += LANES)                                         \
            for (int p = 0; p < PARTS; p++) {                                                   \
                many_##name_##_##type_(s, i + p * PER, part[0][p]);                             \
                many_##name_##_##type_(s, i + BLOCK + p * PER, part[1][p]);                     \
            }                                                                                   \
        for (int b = 0; b < 2; b++) {                                                           \
            spread_##name_##_##type_(lane[b], part[b]);                                         \
            lanes_##name_##_##type_(lane[b]);                                                   \
        }                                                                                       \
        for (int k = 0; k < count_; k++)                                                        \
            out[k] = lane[0][0][k] + lane[1][0][k];                                             \
    }                                                                                           \
    static void run_##name_##_##type_(const source_ *s, size_t n, type_ *out)                   \
    {                                                                                           \
        type_ level[WEFT_I_REDUCE_LEVELS][count_] = {{0}};                                      \
        int depth = 0;                                                                          \
        uint64_t pairs = 0;                                                                     \
        size_t at = 0;                                                                          \
        for (; n - at >= 2 * BLOCK; at += 2 * BLOCK, depth++) {                                 \
            pair_##name_##_##type_(s, at, level[depth]);                                        \
            for (uint64_t bits = ++pairs; !(bits & 1); bits >>= 1, depth--)                     \
                for (int k = 0; k < count_; k++)                                                \
                    level[depth - 1][k] += level[depth][k];                                     \
        }                                                                                       \
        for (; at < n; at += BLOCK, depth++)                                                    \
            block_##name_##_##type_(s, at, n - at < BLOCK ? n - at : BLOCK, level[depth]);      \
        for (; depth > 1; depth--)                                                              \
            for (int k = 0; k < count_; k++)                                                    \
                level[depth - 2][k] += level[depth - 1][k];                                     \
        memcpy(out, level[0], sizeof level[0]);                                                 \
    }

#define USE(op_, type_)                                                                            \
    {                                                                                              \
        all_##op_##_##type_, fold_##op_##_##type_, rows_##op_##_##type_, &identity_##op_##_##type_ \
    }
static const weft_i_reduce_loops reduce[WEFT_I_REDUCE_COUNT][WEFT_DTYPE_COUNT] = {
    [WEFT_I_REDUCE_SUM] = {[WEFT_F32] = USE(sum, float),
                           [WEFT_F64] = USE(sum, double),
                           [WEFT_I64] = USE(sum, int64_t)},
    [WEFT_I_REDUCE_PROD] = {[WEFT_F32] = USE(prod, float),
                            [WEFT_F64] = USE(prod, double),
                            [WEFT_I64] = USE(prod, int64_t)},
    [WEFT_I_REDUCE_MAX] = {[WEFT_F32] = USE(max, float),
                           [WEFT_F64] = USE(max, double),
                           [WEFT_I64] = USE(max, int64_t),
                           [WEFT_U64] = USE(max, uint64_t),
                           [WEFT_U8] = USE(max, uint8_t)},
    [WEFT_I_REDUCE_MIN] = {[WEFT_F32] = USE(min, float),
                           [WEFT_F64] = USE(min, double),
                           [WEFT_I64] = USE(min, int64_t),
                           [WEFT_U64] = USE(min, uint64_t),
                           [WEFT_U8] = USE(min, uint8_t)},
};
