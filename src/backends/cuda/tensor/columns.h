/* SPDX-License-Identifier: Apache-2.0 */
/* The run functions of columns.def. */
#ifndef WEFT_CUDA_COLUMNS_H
#define WEFT_CUDA_COLUMNS_H

#include "tensor/op/op.h"

#define RUN(name_, run_) weft_status weft_i_cuda_##run_##_run(weft_i_op_call *call);
#define NONE(name_, why_)
#include "columns.def"
#undef RUN
#undef NONE

/* How many blocks of elements of one row or result a block of threads takes at a time. */
uint32_t weft_i_cuda_row_span(uint64_t elements, bool columns);

/* Adds the columns of the operations that compute. */
void weft_i_cuda_add_computing(void);

#endif
