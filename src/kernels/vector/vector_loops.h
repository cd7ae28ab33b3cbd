/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of one table.  Included once by each vector_<instruction set>.c, which is compiled for
 * that set and defines TABLE, NAME_OF_TABLE and VECTOR_BYTES, the size of its registers.
 */
#include "kernels/vector/vector.h"

#include "kernels/number/convert.h"

#include <string.h>

#include "kernels/vector/vector_step.h"

#include "kernels/vector/pointwise_loops.h"
#include "kernels/vector/reduce_loops.h"

#include "kernels/vector/normalize_loops.h"

#include "kernels/vector/attend_loops.h"

#include "kernels/vector/update_loops.h"

const weft_i_vector_table TABLE = {
    .name = NAME_OF_TABLE,
    .pointwise = pointwise,
    .reduce = reduce,
    .normalize = {[WEFT_F32] = &normalize_float, [WEFT_F64] = &normalize_double},
    .attend = {[WEFT_F32] = &attend_float, [WEFT_F64] = &attend_double},
    .update = &update};
