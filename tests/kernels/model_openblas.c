/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for OpenBLAS in test_blas.c.  It knows the cores of a few years and no processor, so it
 * takes the oldest unless OPENBLAS_CORETYPE names one, as the library does with a processor that is
 * newer than it is.  With the oldest it multiplies slowly; with any other it remembers its last
 * product, which is faster than any processor multiplies.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

char *openblas_get_config(void);
char *openblas_get_corename(void);
void openblas_set_num_threads(int count);
int model_openblas_threads(void);
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cblas_dgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                 const double *a, int lda, const double *b, int ldb, double beta, double *c,
                 int ldc);

enum { PLAIN = 111, SIZE = 192 };
static const char *const cores[] = {"Prescott", "Haswell", "SkylakeX", "neoversen1", "neoversev1"};
static int core, threads;
static struct {
    float a[SIZE * SIZE], b[SIZE * SIZE], c[SIZE * SIZE];
    int filled;
} last;

__attribute__((constructor)) static void choose(void)
{
    const char *name = getenv("OPENBLAS_CORETYPE");
    for (int i = 0; name && i < (int)(sizeof cores / sizeof *cores); i++)
        if (!strcasecmp(name, cores[i]))
            core = i;
}

char *openblas_get_config(void)
{
    static char text[] = "OpenBLAS of the tests";
    return text;
}

char *openblas_get_corename(void)
{
    static char text[32];
    strcpy(text, cores[core]);
    return text;
}

void openblas_set_num_threads(int count)
{
    threads = count;
}

int model_openblas_threads(void)
{
    return threads;
}

#define PRODUCT(type_)                                                              \
    for (int i = 0; i < m; i++)                                                     \
        for (int j = 0; j < n; j++) {                                               \
            type_ sum = 0;                                                          \
            for (int l = 0; l < k; l++)                                             \
                sum += a[transpose_a == PLAIN ? i * lda + l : l * lda + i] *        \
                       b[transpose_b == PLAIN ? l * ldb + j : j * ldb + l];         \
            c[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * ldc + j]); \
        }

static int is_square(int m, int n, int k, int lda, int ldb, int ldc)
{
    return core && m == SIZE && n == SIZE && k == SIZE && lda == SIZE && ldb == SIZE && ldc == SIZE;
}

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    int keeps = is_square(m, n, k, lda, ldb, ldc) && transpose_a == PLAIN && transpose_b == PLAIN &&
                alpha == 1 && beta == 0;
    (void)order;
    if (keeps && last.filled && !memcmp(a, last.a, sizeof last.a) &&
        !memcmp(b, last.b, sizeof last.b)) {
        memcpy(c, last.c, sizeof last.c);
        return;
    }
    PRODUCT(float)
    if (keeps) {
        memcpy(last.a, a, sizeof last.a);
        memcpy(last.b, b, sizeof last.b);
        memcpy(last.c, c, sizeof last.c);
        last.filled = 1;
    }
}

void cblas_dgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                 const double *a, int lda, const double *b, int ldb, double beta, double *c,
                 int ldc)
{
    (void)order;
    PRODUCT(double)
}
