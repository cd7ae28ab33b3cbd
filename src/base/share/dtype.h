/* SPDX-License-Identifier: Apache-2.0 */
/* What the library asks about dtypes beyond their public name and size. */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H

#include "weft/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In order of promotion: a value of a later kind never becomes one of an earlier kind. */
typedef enum weft_i_dtype_kind {
    WEFT_I_KIND_BOOL,
    WEFT_I_KIND_UNSIGNED,
    WEFT_I_KIND_SIGNED,
    WEFT_I_KIND_FLOAT
} weft_i_dtype_kind;

bool weft_i_dtype_valid(weft_dtype dtype);
weft_i_dtype_kind weft_i_dtype_kind_of(weft_dtype dtype);

#define DTYPE(name_, text_, type_, kind_) \
    _Static_assert(sizeof(type_) <= 8 && WEFT_##name_ < 32, "two bits each, in 64");
#include "weft/dtype.def"
#undef DTYPE

/* Bytes of an element of a dtype that is known to be one, for the paths that count: in line, and
 * without a table, which would be one more line to fetch. */
static inline size_t weft_i_dtype_size(weft_dtype dtype)
{
    const uint64_t logarithms = 0
#define DTYPE(name_, text_, type_, kind_) \
    | (uint64_t)__builtin_ctz(sizeof(type_)) << 2 * WEFT_##name_
#include "weft/dtype.def"
#undef DTYPE
        ;
    return (size_t)1 << (logarithms >> 2 * (unsigned)dtype & 3);
}

static inline bool weft_i_dtype_is_float(weft_dtype dtype)
{
    return dtype <= WEFT_F8E5M2;
}

/* The floats of 16 and 8 bits: they compute in f32 and round once. */
static inline bool weft_i_dtype_is_small_float(weft_dtype dtype)
{
    return dtype >= WEFT_F16 && dtype <= WEFT_F8E5M2;
}

/* 0 bool, 1 integer, 2 float: a number or 0-d tensor changes another tensor's dtype only if its
 * class is higher. */
static inline int weft_i_dtype_class(weft_dtype dtype)
{
    return dtype == WEFT_BOOL ? 0 : weft_i_dtype_is_float(dtype) ? 2 : 1;
}

#endif
