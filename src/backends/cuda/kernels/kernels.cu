// SPDX-License-Identifier: Apache-2.0
// All kernels, as one source: nvcc and NVRTC compile it for GPUs, the C compiler for the software driver of the tests.
#include "device.h"
#include "layout.h"
#include "meet.h"
#include "move.h"
#include "multimem.h"
#include "narrow.h"
#include "number.h"
#include "p2p.h"
#include "packet.h"
#include "reduce.h"
#include "signal.h"
#include "staged.h"
#include "sums.h"
#include "tile.h"
#include "vdev.h"

#define KERNEL(name_, threads_, type_, body_)        \
    WEFT_KERNEL(threads_, weft_kernel_##name_, type_, c) \
    {                                                \
        body_;                                       \
    }
#include "kernels.def"
#undef KERNEL
