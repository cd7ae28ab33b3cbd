/* SPDX-License-Identifier: Apache-2.0 */
/* Finding locations, and copying between them; see locations.h. */
#include "coll/locations.h"

#include "base/status.h"
#include "coll/peek.h"

/* Where a tensor lies in symmetric memory of the group: its pairing, there as long as the tensor,
 * and the offset of its data. */
static weft_i_pairing *find_place(const weft_group *group, weft_tensor *tensor, uint32_t *serial,
                                  uint64_t *offset)
{
    const weft_i_lease *lease = weft_i_block_lease_of(tensor);
    weft_i_pairing *pairing = lease ? weft_i_pairing_find(lease->block, group) : NULL;
    if (pairing) {
        *serial = pairing->serial;
        *offset = (uint64_t)(weft_i_tensor_data(tensor) - lease->block->segment->base);
    }
    return pairing;
}

weft_i_spot weft_i_places_find(const weft_i_coll *coll, weft_i_places *places, size_t transfer)
{
    weft_i_lane *lane = coll->lane;
    weft_i_spot mine = {.factor = coll->ask.factor,
                        .in_address = (uintptr_t)coll->ask.in,
                        .out_address = (uintptr_t)coll->ask.out};
    places->in = find_place(coll->group, coll->in_tensor, &mine.in_serial, &mine.in_offset);
    places->out = find_place(coll->group, coll->out_tensor, &mine.out_serial, &mine.out_offset);
    places->peek = lane->peek == WEFT_I_PEEK_KERNEL && transfer && transfer >= coll->single_from;
    mine.attempt = ++lane->attempts ? lane->attempts : ++lane->attempts;
    return mine;
}

void weft_i_places_compare(const weft_i_coll *coll, const weft_i_spot *mine, weft_i_places *places)
{
    bool threads = coll->lane->peek == WEFT_I_PEEK_THREADS;
    places->all_in = threads || mine->in_serial;
    places->all_out = threads || mine->out_serial;
    places->all_shown = mine->shown;
    for (int rank = 0; rank < coll->lane->size; rank++) {
        const weft_i_spot *spot = weft_i_coll_spot(coll, rank);
        places->all_in &= threads ? spot->in_address != 0 : spot->in_serial == mine->in_serial;
        places->all_out &= threads ? spot->out_address != 0 : spot->out_serial == mine->out_serial;
        places->all_shown &= spot->shown;
    }
}

/* A single copy that fails leaves the others in the middle of the operation. */
static weft_status check_copied(const weft_i_coll *coll, weft_status status)
{
    if (status < 0)
        weft_i_group_spoil(coll->group,
                           weft_status_scope(status) < WEFT_SCOPE_GROUP ? WEFT_OK : status);
    return status;
}

weft_status weft_i_coll_fetch(const weft_i_coll *coll, const weft_i_places *places, int rank,
                              size_t at, char *to, size_t bytes)
{
    if (rank == coll->lane->me)
        weft_i_coll_put_own(coll, to, coll->ask.in + at, bytes);
    else if (coll->prefetch && weft_i_prefetched(coll, rank))
        return WEFT_OK;
    else if (places->all_in)
        weft_i_coll_put(to, weft_i_touch_in(coll, places->in, rank) + at, bytes);
    else
        return check_copied(coll,
                            weft_i_peek(coll->lane, &coll->call, rank, to,
                                        weft_i_coll_spot(coll, rank)->in_address + at, bytes));
    return WEFT_OK;
}

weft_status weft_i_coll_fetch_result(const weft_i_coll *coll, int rank, size_t at, char *to,
                                     size_t bytes)
{
    return check_copied(coll, weft_i_peek(coll->lane, &coll->call, rank, to,
                                          weft_i_coll_spot(coll, rank)->out_address + at, bytes));
}

void weft_i_coll_deliver(const weft_i_coll *coll, const weft_i_places *places, int rank, size_t at,
                         const char *from, size_t bytes)
{
    if (rank == coll->lane->me)
        weft_i_coll_put_own(coll, coll->ask.out + at, from, bytes);
    else
        weft_i_coll_put(weft_i_touch_out(coll, places->out, rank) + at, from, bytes);
}
