// SPDX-License-Identifier: Apache-2.0
// The loops of large collectives in other shapes than the library's, for cuda_bench; see variants.def.
#include "device.h"
#include "layout.h"
#include "meet.h"
#include "move.h"
#include "reduce.h"
#include "sums.h"

// An all_gather in other ways than the library's.  FREE: nobody waits for anybody, which shows what
// meeting costs.  TURNED: every rank begins at another place of its part, so that ranks do not walk
// through memory in step.  SPLIT: a block writes to one place only, and every part is read once for each.
enum { FREE = 1, TURNED = 2, SPLIT = 4 };

static __device__ __forceinline__ void pour_lot(const weft_k_call *c, const weft_k_shape shape,
                                                const int how, const weft_k_vector *x,
                                                const uint64_t *at)
{
    const int places = how & SPLIT ? 1 : c->peers;
    WEFT_K_UNROLL
    for (int j = 0; j < shape.width; j++)
        for (int i = 0; i < places; i++) {
            int p = (how & SPLIT ? (int)weft_k_block() : i) + c->first;
            char *to = c->to + (uint64_t)(p % c->peers) * c->to_step + 16 * at[j];
            if (shape.streamed)
                weft_k_stream16(to, x[j]);
            else
                weft_k_store16(to, x[j]);
        }
}

// Sizes of the benchmark are multiples of what the grid takes at a time.
static __device__ __forceinline__ void push(const weft_k_call *c, const weft_k_shape shape,
                                            const int how)
{
    weft_k_begin();
    weft_k_meeting m = {c, 0, 0, 0, 0, 0, 0, 0};
    if (!(how & FREE)) {
        m = weft_k_next_meeting(c);
        if (!weft_k_enter(&m, 0))
            return;
    }
    uint32_t apart = how & SPLIT ? (uint32_t)c->peers : 1;
    weft_k_deal deal = weft_k_deal_out(shape, weft_k_block() / apart, weft_k_blocks() / apart);
    uint64_t whole = c->count / 16, ahead = (uint64_t)(shape.width - 1) * deal.next;
    uint64_t shift = how & TURNED ? whole / (uint64_t)c->peers * (uint64_t)c->first : 0;
    WEFT_K_NO_UNROLL
    for (; deal.at + ahead < whole; deal.at += deal.step) {
        weft_k_vector x[8];
        uint64_t at[8];
        WEFT_K_UNROLL
        for (int j = 0; j < shape.width; j++) {
            at[j] = deal.at + (uint64_t)j * deal.next + shift;
            at[j] = at[j] < whole ? at[j] : at[j] - whole;
            x[j] = weft_k_load16(c->from + 16 * at[j]);
        }
        pour_lot(c, shape, how, x, at);
    }
    if (!(how & FREE))
        weft_k_leave(&m);
}

#define VARIANT_FREE(ranks_)   push(&c, shape, FREE)
#define VARIANT_TURNED(ranks_) push(&c, shape, TURNED)
#define VARIANT_SPLIT(ranks_)  push(&c, shape, SPLIT)
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
