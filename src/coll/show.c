/* SPDX-License-Identifier: Apache-2.0 */
/* Copying an input where others see it; see show.h. */
#include "coll/show.h"

bool weft_i_show_flows(const weft_i_coll *coll)
{
    bool one_way = weft_i_kind_is(coll->kind, WEFT_I_FROM_ROOT | WEFT_I_TO_ROOT) &&
                   !weft_i_kind_is(coll->kind, WEFT_I_HAS_PARTS);
    return one_way && weft_i_flow_pays(coll->lane, coll->count * coll->item);
}

/* Bytes of the input that only this rank reads: its own part, where the input has parts. */
static weft_i_span own_part(const weft_i_coll *coll)
{
    if (!weft_i_kind_is(coll->kind, WEFT_I_HAS_PARTS))
        return (weft_i_span){coll->in_bytes, 0};
    size_t part = coll->count * coll->item;
    return (weft_i_span){(size_t)coll->lane->me * part, part};
}

void weft_i_show_input(weft_i_coll *coll)
{
    const weft_i_lane *lane = coll->lane;
    char *slot = weft_i_lane_show(lane, lane->me, lane->epoch + 1);
    weft_i_span own = own_part(coll);
    size_t end = own.first + own.count;
    coll->flows = weft_i_show_flows(coll);
    if (coll->flows)
        return;
    weft_i_coll_put(slot, coll->in, own.first);
    weft_i_coll_put(slot + end, coll->in + end, coll->in_bytes - end);
}

void weft_i_show_flow(weft_i_coll *coll)
{
    weft_i_flow flow = weft_i_flow_shown(coll->lane->epoch + 1, coll->in_bytes);
    weft_i_flow_write(coll, &flow, coll->in, -1); /* there is room for all: it cannot fail */
}

weft_status weft_i_show_and_enter(weft_i_coll *coll, bool gives, int whom)
{
    weft_i_spot factor = {.factor = coll->factor};
    bool scales = coll->reduction == WEFT_PREMUL_SUM;
    if (coll->algorithm == WEFT_I_ALGO_TINY)
        return weft_i_coll_enter_for(coll, whom, coll->in, gives ? coll->in_bytes : 0);
    if (gives)
        weft_i_show_input(coll);
    return weft_i_coll_enter_for(coll, whom, &factor, scales ? sizeof factor : 0);
}

weft_status weft_i_show_take(weft_i_coll *coll, int rank, char *to)
{
    size_t bytes = coll->count * coll->item;
    if (rank == coll->lane->me) {
        weft_i_coll_put_own(coll, to, coll->in, bytes);
        return WEFT_OK;
    }
    if (!weft_i_show_flows(coll)) {
        weft_i_coll_put(to, weft_i_shown_by(coll, rank), bytes);
        return WEFT_OK;
    }
    weft_i_flow flow = weft_i_flow_shown(coll->lane->epoch, bytes);
    return weft_i_flow_read(coll, &flow, rank, to);
}
