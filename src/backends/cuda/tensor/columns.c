/* SPDX-License-Identifier: Apache-2.0 */
/* The column of the op table for CUDA devices. */
#include "columns.h"

#include "backends/cuda/device/launch.h"
#include "tensor/op/ops.h"

void weft_i_cuda_add_computing(void)
{
    static const weft_i_op_column rows[] = {
#define RUN(name_, run_) {&weft_i_op_##name_, weft_i_cuda_##run_##_run},
#define NONE(name_, why_)
#include "columns.def"
#undef RUN
#undef NONE
    };
    weft_i_op_add_column(WEFT_I_KIND_CUDA, rows, sizeof rows / sizeof *rows);
}
