/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of one table.  Included once by each few_rows_<instruction set>.c, which is compiled for
 * that set and defines TABLE, NAME_OF_TABLE and VECTOR_BYTES, the size of its registers.
 */
#include "kernels/rows/few_rows_table.h"

#include "kernels/rows/few_rows_vector.h"

#define ALWAYS inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* At a time: columns whose sums are in registers, and vectors of columns. */
enum { COLUMNS = 4, VECTORS = ACCUMULATORS / 4 };
enum { AHEAD_BYTES = 2048 }; /* measured on a Xeon (Sapphire Rapids), from cache and from memory */
#define FIT_COLUMNS(rows_) (ACCUMULATORS * VECTOR_BYTES / WEFT_I_FEW_ROWS_LANES / (rows_))
#define COLUMNS_FOR(rows_) \
    (FIT_COLUMNS(rows_) > COLUMNS ? COLUMNS : FIT_COLUMNS(rows_) < 1 ? 1 : FIT_COLUMNS(rows_))

#define BY_ROWS(loop_) \
    switch (p->rows) { \
    case 1:            \
        loop_(p, 1);   \
        break;         \
    case 2:            \
        loop_(p, 2);   \
        break;         \
    case 3:            \
        loop_(p, 3);   \
        break;         \
    default:           \
        loop_(p, 4);   \
    }

#define ELEMENT     float
#define SUM         float
#define V           v_float
#define LOAD_X      load_f32
#define BEGIN_X     begin_f32
#define FMA         fma_float
#define SUM_LANES   sum_of_float
#define SUM_FOUR    sum_four_float
#define NAME(name_) name_##_f32
#include "kernels/rows/few_rows_type.h"

#define ELEMENT     double
#define SUM         double
#define V           v_double
#define LOAD_X      load_f64
#define BEGIN_X     begin_f64
#define FMA         fma_double
#define SUM_LANES   sum_of_double
#define SUM_FOUR    sum_four_double
#define NAME(name_) name_##_f64
#include "kernels/rows/few_rows_type.h"

#define ELEMENT     uint16_t
#define SUM         float
#define V           v_float
#define LOAD_X      load_f32
#define BEGIN_X     begin_f32
#define FMA         fma_float
#define SUM_LANES   sum_of_float
#define SUM_FOUR    sum_four_float
#define NAME(name_) name_##_bf16
#include "kernels/rows/few_rows_type.h"

#define ELEMENT     uint16_t
#define SUM         float
#define V           v_float
#define LOAD_X      load_f32
#define BEGIN_X     begin_f32
#define FMA         fma_float
#define SUM_LANES   sum_of_float
#define SUM_FOUR    sum_four_float
#define NAME(name_) name_##_f16
#include "kernels/rows/few_rows_type.h"

const weft_i_few_rows_table TABLE = {.name = NAME_OF_TABLE,
                                     .fused = FUSED,
                                     .of = {[WEFT_F64] = {dot_f64, axpy_f64},
                                            [WEFT_F32] = {dot_f32, axpy_f32},
                                            [WEFT_F16] = {dot_f16, axpy_f16},
                                            [WEFT_BF16] = {dot_bf16, axpy_bf16}}};
