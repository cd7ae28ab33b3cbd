/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix products of a CBLAS library, loaded at the first product so that programs without one
 * start fast. */
#ifndef WEFT_KERNELS_BLAS_H
#define WEFT_KERNELS_BLAS_H

#include <stdbool.h>

/* Constants of the CBLAS interface. */
enum { WEFT_I_BLAS_ROW_MAJOR = 101, WEFT_I_BLAS_PLAIN = 111, WEFT_I_BLAS_TRANSPOSED = 112 };

/* Operations a second of one thread's processor time: a product of f32, and the vector units alone
 * (blas_speed.h).  0: not measured. */
typedef struct weft_i_blas_speed {
    double product, vector;
} weft_i_blas_speed;

typedef struct weft_i_blas {
    void (*sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*dgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                  const double *a, int lda, const double *b, int ldb, double beta, double *c,
                  int ldc);
    const char *name; /* the library */
    /* What it says about itself: version, options and the processor it chose its kernels for; ""
     * if it says nothing.  Then it may be the reference BLAS, which is slow. */
    char config[192];
    char core[128]; /* "SkylakeX, told by weft"; "" if it does not say */
    weft_i_blas_speed speed;
    bool
        slow; /* below a third of the vector units, or not measured and perhaps the reference BLAS */
} weft_i_blas;

/* NULL if no library was found; then products are done by loops. */
const weft_i_blas *weft_i_blas_get(void);

#endif
