/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 by oneDNN, loaded when asked for. */
#ifndef WEFT_KERNELS_DNNL_H
#define WEFT_KERNELS_DNNL_H

#include <stdbool.h>
#include <stdint.h>

/* c = op(a) op(b) with row-major matrices; 'N' as it is, 'T' transposed. */
typedef struct weft_i_dnnl_product {
    char transpose_a, transpose_b;
    int64_t m, n, k;
    const void *a, *b; /* bf16 */
    int64_t lda, ldb;
    float *c;
    int64_t ldc;
} weft_i_dnnl_product;

/* The library, or NULL if there is none. */
const char *weft_i_dnnl_name(void);

/* False if the library is not there or cannot do it; then `c` is undefined. */
bool weft_i_dnnl_multiply(const weft_i_dnnl_product *product);

#endif
