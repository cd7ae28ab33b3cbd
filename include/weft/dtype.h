/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types: WEFT_F64, WEFT_F32, WEFT_F16, WEFT_BF16, WEFT_F8E4M3 (the "fn" variant: no
 * infinities, largest value 448), WEFT_F8E5M2, WEFT_I8 ... WEFT_I64, WEFT_U8 ... WEFT_U64,
 * WEFT_BOOL (one byte, 0 or 1).
 */
#ifndef WEFT_DTYPE_H
#define WEFT_DTYPE_H

#include "weft/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_dtype {
#define DTYPE(name_, text_, type_, kind_) WEFT_##name_,
#include "weft/dtype.def"
#undef DTYPE
    WEFT_DTYPE_COUNT
} weft_dtype;

/* "bf16" for WEFT_BF16; "unknown dtype" for a number that is none. */
WEFT_API const char *weft_dtype_name(weft_dtype dtype);

/* Bytes of one element; 0 for a number that is no dtype. */
WEFT_API size_t weft_dtype_size(weft_dtype dtype);

/*
 * The dtype in which a value of `a` and one of `b` meet (docs/tensor.md has the table).
 * WEFT_ERR_TYPE for pairs that no dtype holds: u64 with a signed integer.
 */
WEFT_API weft_status weft_dtype_promote(weft_dtype a, weft_dtype b, weft_dtype *out);

#ifdef __cplusplus
}
#endif

#endif
