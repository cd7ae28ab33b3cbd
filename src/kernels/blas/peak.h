/* SPDX-License-Identifier: Apache-2.0 */
/* What the vector units can do at most: multiplications and additions of f32 in registers. */
#ifndef WEFT_KERNELS_PEAK_H
#define WEFT_KERNELS_PEAK_H

#include <stdint.h>

/* By the widest vectors of this processor.  How many operations that were; the numbers end in
 * `*sum`, so that no compiler leaves them out. */
int64_t weft_i_peak_run(int64_t turns, float *sum);

#endif
