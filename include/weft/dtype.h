/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types: what the elements of a tensor are.  dtype.def lists them:
 *
 *   floats    WEFT_F64, WEFT_F32, WEFT_F16, WEFT_BF16, WEFT_F8E4M3, WEFT_F8E5M2
 *   integers  WEFT_I8 to WEFT_I64, WEFT_U8 to WEFT_U64
 *   truth     WEFT_BOOL, one byte that is 0 or 1
 *
 * WEFT_F8E4M3 is the "fn" variant: it has no infinities, and its largest value is 448.
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

/* The name, "bf16" for WEFT_BF16.  A number that is no dtype is called "unknown dtype". */
WEFT_API const char *weft_dtype_name(weft_dtype dtype);

/* The bytes of one element.  A number that is no dtype has 0. */
WEFT_API size_t weft_dtype_size(weft_dtype dtype);

/*
 * Finds the dtype of an operation on values of `a` and `b`.  docs/tensor.md has the table.  Returns
 * WEFT_ERR_TYPE if no dtype can hold both, as for u64 and a signed integer.
 */
WEFT_API weft_status weft_dtype_promote(weft_dtype a, weft_dtype b, weft_dtype *out);

#ifdef __cplusplus
}
#endif

#endif
