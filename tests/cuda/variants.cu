// SPDX-License-Identifier: Apache-2.0
// The loops of large collectives in other shapes than the library's, for cuda_bench; see variants.def.
#include "device.h"
#include "layout.h"
#include "meet.h"
#include "move.h"
#include "reduce.h"
#include "sums.h"

#define VARIANT_GATHER(ranks_) weft_k_run_move_shaped(&c, shape)
#define VARIANT_SUM(ranks_)    weft_k_run_two_shot_shaped(&c, WEFT_K_BF16, ranks_, shape)
#define VARIANT(name_, kind_, ranks_, width_, tiled_, streamed_, blocks_, what_) \
    WEFT_KERNEL(WEFT_K_THREADS, weft_variant_##name_, weft_k_call, c)            \
    {                                                                            \
        const weft_k_shape shape = {width_, tiled_, streamed_};                  \
        VARIANT_##kind_(ranks_);                                                 \
    }
#include "variants.def"
#undef VARIANT
