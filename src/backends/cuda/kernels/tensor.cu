// SPDX-License-Identifier: Apache-2.0
// The kernels of tensor operations, as one source: see kernels.cu.
#include "device.h"
#include "index.h"
#include "make.h"
#include "rows.h"
#include "held.h"
#include "column_sums.h"
#include "order.h"
#include "turn.h"
#include "packed.h"
#include "optim.h"

#define KERNEL(name_, threads_, type_, body_)        \
    WEFT_KERNEL(threads_, weft_kernel_##name_, type_, c) \
    {                                                \
        body_;                                       \
    }
#include "tensor.def"
#undef KERNEL
