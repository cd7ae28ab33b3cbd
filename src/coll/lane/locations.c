/* SPDX-License-Identifier: Apache-2.0 */
/* Finding locations, and copying between them; see locations.h. */
#include "coll/lane/locations.h"

#include "base/report/status.h"
#include "coll/lane/cma.h"
#include "coll/lane/trial.h"
#include "symm/pool.h"

/* Where a symmetric tensor lies in the memory of the group: its registration, there as long as the
 * tensor, and the offset of its data. */
static weft_i_registration *find_place(const weft_group *group, weft_tensor *tensor,
                                       uint32_t *serial, uint64_t *offset)
{
    const weft_i_lease *lease = weft_i_block_lease_of(tensor);
    weft_i_registration *registration = weft_i_registration_find(lease->block, group);
    if (registration) {
        *serial = registration->serial;
        *offset = (uint64_t)(weft_i_tensor_data(tensor) - lease->block->segment->base);
    } else {
        weft_i_pool_pass_over(lease, group);
    }
    return registration;
}

weft_i_location weft_i_locations_find(weft_i_coll *coll, weft_i_locations *locations,
                                      size_t transfer)
{
    weft_i_lane *lane = coll->lane;
    weft_i_location mine = {.factor = coll->ask.factor,
                            .in_address = (uintptr_t)coll->ask.in,
                            .out_address = (uintptr_t)coll->ask.out};
    locations->in = locations->out = NULL;
    if (weft_i_block_lease_of(coll->in_tensor))
        locations->in = find_place(coll->group, coll->in_tensor, &mine.in_serial, &mine.in_offset);
    if (weft_i_block_lease_of(coll->out_tensor))
        locations->out =
            find_place(coll->group, coll->out_tensor, &mine.out_serial, &mine.out_offset);
    locations->cma = lane->cma == WEFT_I_CMA_KERNEL && transfer && transfer >= coll->cma_from;
    mine.attempt = ++lane->attempts ? lane->attempts : ++lane->attempts;
    coll->trial = NULL;
    if (!weft_i_trial_takes(coll, transfer))
        return mine;
    /* Where symmetric memory is used, the others most likely use it too, and nothing is tried.  If
     * they do not, they see that this rank knows nothing, and take the way of the table. */
    mine.times = (weft_i_times){{0, 0}};
    if (!locations->in && !locations->out) {
        weft_i_trial_begin(coll, transfer);
        locations->cma = weft_i_trial_expects_cma(coll, mine.attempt);
        mine.times = weft_i_trial_times(coll);
    }
    return mine;
}

void weft_i_locations_compare(weft_i_coll *coll, const weft_i_location *mine,
                              weft_i_locations *locations)
{
    bool threads = coll->lane->cma == WEFT_I_CMA_THREADS;
    locations->all_in = threads || mine->in_serial;
    locations->all_out = threads || mine->out_serial;
    locations->all_shown = mine->shown;
    for (int rank = 0; rank < coll->lane->size; rank++) {
        const weft_i_location *location = weft_i_coll_location(coll, rank);
        locations->all_in &=
            threads ? location->in_address != 0 : location->in_serial == mine->in_serial;
        locations->all_out &=
            threads ? location->out_address != 0 : location->out_serial == mine->out_serial;
        locations->all_shown &= location->shown;
    }
    if (locations->all_shown || locations->all_in || locations->all_out)
        coll->trial = NULL;
    if (coll->trial)
        locations->cma = coll->trial_way = weft_i_trial_is_cma(coll);
    locations->way = locations->all_shown                      ? WEFT_I_WAY_EAGER
                     : locations->all_in || locations->all_out ? WEFT_I_WAY_ZERO_COPY
                     : locations->cma                          ? WEFT_I_WAY_CMA
                                                               : WEFT_I_WAY_PIPELINED;
}

/* A copy by CMA that fails leaves the others in the middle of the operation. */
static weft_status copy(const weft_i_coll *coll, int rank, char *to, uint64_t from, size_t bytes)
{
    weft_status status = weft_i_cma(coll->lane, &coll->label, rank, to, from, bytes);
    if (status < 0)
        weft_i_group_spoil(coll->group, status);
    return status;
}

weft_status weft_i_coll_fetch(const weft_i_coll *coll, const weft_i_locations *locations, int rank,
                              size_t at, char *to, size_t bytes)
{
    if (rank == coll->lane->me)
        weft_i_coll_put_own(coll, to, coll->ask.in + at, bytes);
    else if (coll->prefetch && weft_i_prefetched(coll, rank))
        return WEFT_OK;
    else if (locations->all_in)
        weft_i_coll_put(to, weft_i_touch_in(coll, locations->in, rank) + at, bytes);
    else
        return copy(coll, rank, to, weft_i_coll_location(coll, rank)->in_address + at, bytes);
    return WEFT_OK;
}

weft_status weft_i_coll_fetch_result(const weft_i_coll *coll, int rank, size_t at, char *to,
                                     size_t bytes)
{
    return copy(coll, rank, to, weft_i_coll_location(coll, rank)->out_address + at, bytes);
}

void weft_i_coll_deliver(const weft_i_coll *coll, const weft_i_locations *locations, int rank,
                         size_t at, const char *from, size_t bytes)
{
    if (rank == coll->lane->me)
        weft_i_coll_put_own(coll, coll->ask.out + at, from, bytes);
    else
        weft_i_coll_put(weft_i_touch_out(coll, locations->out, rank) + at, from, bytes);
}
