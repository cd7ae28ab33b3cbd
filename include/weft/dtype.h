/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types of tensors.  dtype.def lists them:
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

/* Returns the name of a dtype, "bf16" for WEFT_BF16, or "unknown dtype" for any other number. */
WEFT_API const char *weft_dtype_name(weft_dtype dtype);

/* Returns the size of one element in bytes, or 0 for a number that is not a dtype. */
WEFT_API size_t weft_dtype_size(weft_dtype dtype);

/*
 * Finds the dtype that results from combining `a` and `b`.  The table is in docs/tensor.md.
 * Returns WEFT_ERR_TYPE if no dtype can hold both, as for u64 and a signed integer.
 */
WEFT_API weft_status weft_dtype_promote(weft_dtype a, weft_dtype b, weft_dtype *out);

#ifdef __cplusplus
}
#endif

#endif
