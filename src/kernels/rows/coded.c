/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices of codes: from elements and back, and products with few rows; see coded.h. */
#include "kernels/rows/coded.h"

#include "base/team/team.h"
#include "kernels/number/isa.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>

enum { GRAIN = 16 }; /* rows of the matrix that one thread takes */

/* ---- the table ---- */

/* The best first. */
static const struct {
    const weft_i_coded_table *table;
    bool (*usable)(void);
} variants[] = {
#if defined(__x86_64__)
    {&weft_i_coded_avx512, weft_i_isa_avx512},
    {&weft_i_coded_avx2, weft_i_isa_avx2},
#endif
    {&weft_i_coded_baseline, weft_i_isa_always},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* NULL until somebody asks.  Relaxed, without a partner: it leads to constants only, and threads
 * that choose at the same time choose the same. */
static _Atomic(const weft_i_coded_table *) chosen;

const weft_i_coded_table *weft_i_coded_variant(int i)
{
    return i >= 0 && i < VARIANTS ? variants[i].table : NULL;
}

bool weft_i_coded_use(const weft_i_coded_table *variant)
{
    for (int i = 0; i < VARIANTS; i++)
        if ((!variant || variant == variants[i].table) && variants[i].usable()) {
            atomic_store_explicit(&chosen, variants[i].table, memory_order_relaxed);
            return true;
        }
    return false;
}

static const weft_i_coded_table *table_now(void)
{
    if (!atomic_load_explicit(&chosen, memory_order_relaxed))
        weft_i_coded_use(NULL);
    return atomic_load_explicit(&chosen, memory_order_relaxed);
}

/* ---- elements to codes ---- */

/* The largest magnitude of a block; negative if it has an infinity or NaN. */
static float largest_of(const float *x, int64_t n)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return -1;
        largest = fmaxf(largest, fabsf(x[i]));
    }
    return largest;
}

/* The nearest code, the even one of two that are as near.  Scales that are subnormal have few bits, so
 * a quotient may be beyond the largest code. */
static int code_of(float x, float scale, int most)
{
    if (scale == 0)
        return 0;
    float code = rintf(x / scale);
    return (int)fminf(fmaxf(code, (float)-most), (float)most);
}

bool weft_i_coded_encode(uint8_t *codes, float *scales, const float *x, int64_t columns,
                         int64_t block, int bits)
{
    const int most = bits == 8 ? 127 : 7;
    for (int64_t at = 0; at < columns; at += block) {
        float largest = largest_of(x + at, block), scale = largest / (float)most;
        if (largest < 0)
            return false;
        scales[at / block] = scale;
        for (int64_t k = at; k < at + block; k++) {
            int code = code_of(x[k], scale, most), place = (int)(k % WEFT_I_CODED_GROUP);
            uint8_t *byte = codes + (bits == 8 ? k : (k - place) / 2 + place % 16);
            if (bits == 8)
                *byte = (uint8_t)code;
            else
                *byte = (uint8_t)(place < 16 ? code + 8 : *byte | (code + 8) << 4);
        }
    }
    return true;
}

/* ---- codes to elements ---- */

struct decoding {
    float *out;
    const weft_i_coded *matrix;
    int64_t from, rows, parts;
};

static void decode_row(float *out, const weft_i_coded *m, int64_t row)
{
    const uint8_t *codes = m->codes + row * weft_i_coded_bytes(m->bits, m->columns);
    const float *scales = m->scales + row * (m->columns / m->block);
    for (int64_t at = 0; at < m->columns; at += WEFT_I_CODED_GROUP) {
        float scale = scales[at / m->block];
        if (m->bits == 8) {
            for (int64_t k = at; k < at + WEFT_I_CODED_GROUP; k++)
                out[k] = (float)(int8_t)codes[k] * scale;
            continue;
        }
        for (int64_t k = 0; k < WEFT_I_CODED_GROUP / 2; k++) {
            int both = codes[at / 2 + k];
            out[at + k] = (float)((both & 15) - 8) * scale;
            out[at + k + WEFT_I_CODED_GROUP / 2] = (float)((both >> 4) - 8) * scale;
        }
    }
}

static void decode_part(void *state, int64_t part)
{
    const struct decoding *d = state;
    int64_t end = weft_i_team_bound(d->rows, d->parts, part + 1);
    for (int64_t i = weft_i_team_bound(d->rows, d->parts, part); i < end; i++)
        decode_row(d->out + i * d->matrix->columns, d->matrix, d->from + i);
}

void weft_i_coded_decode(float *out, const weft_i_coded *matrix, int64_t from, int64_t to)
{
    struct decoding d = {out, matrix, from, to - from, 1};
    d.parts = weft_i_team_parts(d.rows * matrix->columns * (int64_t)sizeof *out);
    d.parts = d.parts < d.rows ? d.parts : d.rows > 1 ? d.rows : 1;
    weft_i_team_run(d.parts, decode_part, &d);
}

/* ---- products with few rows ---- */

struct product {
    float *out;
    const float *x;
    int64_t rows, parts;
    const weft_i_coded *matrix;
    weft_i_coded_dot *dot;
};

static void multiply_part(void *state, int64_t part)
{
    const struct product *p = state;
    const weft_i_coded *m = p->matrix;
    int64_t bytes = weft_i_coded_bytes(m->bits, m->columns), blocks = m->columns / m->block,
            end = weft_i_team_bound_at(m->rows, GRAIN, p->parts, part + 1);
    for (int64_t j = weft_i_team_bound_at(m->rows, GRAIN, p->parts, part); j < end; j++)
        for (int64_t i = 0; i < p->rows; i++)
            p->out[i * m->rows + j] = p->dot(m->codes + j * bytes, m->scales + j * blocks,
                                             p->x + i * m->columns, m->columns, m->block);
}

void weft_i_coded_multiply(float *out, const float *x, int64_t rows, const weft_i_coded *matrix)
{
    const weft_i_coded_table *table = table_now();
    struct product p = {out, x, rows, 1, matrix, matrix->bits == 8 ? table->dot8 : table->dot4};
    int64_t most = (matrix->rows + GRAIN - 1) / GRAIN;
    p.parts = weft_i_team_parts(matrix->rows * matrix->columns * rows);
    p.parts = p.parts < most ? p.parts : most > 1 ? most : 1;
    weft_i_team_run(p.parts, multiply_part, &p);
}
