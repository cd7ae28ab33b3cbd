/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of pointwise.def for one compute type; included once per type by pointwise_loops.h,
 * which defines T, U, F, M, REACH and NAME (adds the type's suffix), and IS_FLOAT to choose between
 * the expressions.
 */
#define UNARY_LOOP(name_, out_type_, expression_)                        \
    static void NAME(name_)(size_t n, void *out_, const void *const *in) \
    {                                                                    \
        out_type_ *out = out_;                                           \
        const T *x = in[0];                                              \
        WEFT_I_VECTOR_LOOP                                               \
        for (size_t i = 0; i < n; i++) {                                 \
            T a = x[i];                                                  \
            out[i] = (out_type_)(expression_);                           \
        }                                                                \
    }
#define BINARY_LOOP(name_, out_type_, expression_)                       \
    static void NAME(name_)(size_t n, void *out_, const void *const *in) \
    {                                                                    \
        out_type_ *out = out_;                                           \
        const T *x = in[0], *y = in[1];                                  \
        WEFT_I_VECTOR_LOOP                                               \
        for (size_t i = 0; i < n; i++) {                                 \
            T a = x[i], b = y[i];                                        \
            out[i] = (out_type_)(expression_);                           \
        }                                                                \
    }

/* Arguments out of the reach of the fast expression are rare: then the slow one is for all. */
#define ANGLE_LOOP(name_, expression_, any_)                             \
    static void NAME(name_)(size_t n, void *out_, const void *const *in) \
    {                                                                    \
        T *out = out_;                                                   \
        const T *x = in[0];                                              \
        int far = 0;                                                     \
        for (size_t i = 0; i < n; i++)                                   \
            far |= F(__builtin_fabs)(x[i]) >= REACH;                     \
        if (far) {                                                       \
            for (size_t i = 0; i < n; i++) {                             \
                T a = x[i];                                              \
                out[i] = any_;                                           \
            }                                                            \
            return;                                                      \
        }                                                                \
        WEFT_I_VECTOR_LOOP                                               \
        for (size_t i = 0; i < n; i++) {                                 \
            T a = x[i];                                                  \
            out[i] = expression_;                                        \
        }                                                                \
    }

/*
 * The same for expressions that are long: functions of math.h.  A core that computes looks a few
 * vectors ahead, which is too late for memory: large operands are asked for a piece ahead.
 */
#define LONG_UNARY_LOOP(name_, expression_)                                        \
    static inline T NAME(one_##name_)(T a)                                         \
    {                                                                              \
        return (expression_);                                                      \
    }                                                                              \
    static ONE_COPY void NAME(piece_##name_)(size_t n, T * out, const T *x)        \
    {                                                                              \
        VECTOR_LOOP_OF(T, NAME(one_##name_)(x[i]))                                 \
    }                                                                              \
    static void NAME(name_)(size_t n, void *out_, const void *const *in)           \
    {                                                                              \
        enum { PIECE = ASKED / sizeof(T) };                                        \
        T *out = out_;                                                             \
        const T *x = in[0];                                                        \
        for (bool ask = n * sizeof *x >= ASK_FROM; ask && n > PIECE; n -= PIECE) { \
            ask_for_piece(x + PIECE);                                              \
            NAME(piece_##name_)(PIECE, out, x);                                    \
            x += PIECE, out += PIECE;                                              \
        }                                                                          \
        NAME(piece_##name_)(n, out, x);                                            \
    }
#define LONG_BINARY_LOOP(name_, expression_)                                            \
    static inline T NAME(one_##name_)(T a, T b)                                         \
    {                                                                                   \
        return (expression_);                                                           \
    }                                                                                   \
    static ONE_COPY void NAME(piece_##name_)(size_t n, T * out, const T *x, const T *y) \
    {                                                                                   \
        VECTOR_LOOP_OF(T, NAME(one_##name_)(x[i], y[i]))                                \
    }                                                                                   \
    static void NAME(name_)(size_t n, void *out_, const void *const *in)                \
    {                                                                                   \
        enum { PIECE = ASKED / sizeof(T) };                                             \
        T *out = out_;                                                                  \
        const T *x = in[0], *y = in[1];                                                 \
        for (bool ask = n * sizeof *x >= ASK_FROM; ask && n > PIECE; n -= PIECE) {      \
            ask_for_piece(x + PIECE);                                                   \
            ask_for_piece(y + PIECE);                                                   \
            NAME(piece_##name_)(PIECE, out, x, y);                                      \
            x += PIECE, y += PIECE, out += PIECE;                                       \
        }                                                                               \
        NAME(piece_##name_)(n, out, x, y);                                              \
    }

#if IS_FLOAT
#define UNARY(name_, float_, integer_)   UNARY_LOOP(name_, T, float_)
#define UNARY_F(name_, float_)           LONG_UNARY_LOOP(name_, float_)
#define UNARY_ANGLE(name_, float_, any_) ANGLE_LOOP(name_, float_, any_)
#define BINARY(name_, float_, integer_)  BINARY_LOOP(name_, T, float_)
#define BINARY_F(name_, float_)          LONG_BINARY_LOOP(name_, float_)
#else
#define UNARY(name_, float_, integer_) UNARY_LOOP(name_, T, integer_)
#define UNARY_F(name_, float_)
#define UNARY_ANGLE(name_, float_, any_)
#define BINARY(name_, float_, integer_) BINARY_LOOP(name_, T, integer_)
#define BINARY_F(name_, float_)
#endif
#define COMPARE(name_, any_) BINARY_LOOP(name_, uint8_t, any_)
#define LOGICAL1(name_, bool_)
#define LOGICAL2(name_, bool_)
#include "kernels/vector/pointwise.def"
#undef UNARY_LOOP
#undef ANGLE_LOOP
#undef BINARY_LOOP
#undef LONG_UNARY_LOOP
#undef LONG_BINARY_LOOP
