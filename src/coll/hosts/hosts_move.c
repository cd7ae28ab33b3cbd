/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving parts between hosts: all_gather, broadcast, gather, scatter and all_to_all.  What every
 * rank of a host needs comes there once and is shared inside; what one rank needs goes to it from
 * the rank that has it.
 */
#include "coll/host/algorithms.h"
#include "coll/hosts/hosts.h"
#include "coll/hosts/schedule.h"
#include "coll/lane/list.h"

/* The partner on host `h` of the member `index` of another one. */
static int partner_on(const weft_i_hosts *hosts, int h, int index)
{
    return hosts->host[h].members[index % hosts->host[h].count];
}

static void add(weft_i_coll *coll, int *count, int member, bool sends, const char *data,
                size_t bytes)
{
    weft_i_ferry_add(
        coll->lane->ferry, count,
        (weft_i_ferry_move){.member = member,
                            .sends = sends,
                            .data = (char *)(uintptr_t)data, /* only read, if it sends */
                            .bytes = bytes});
}

static bool is_near(const weft_i_coll *coll, int rank)
{
    return coll->group->hosts->host_of[rank] == coll->group->hosts->mine;
}

/* ---- everybody's part to everybody ---- */

/* This rank's part, `mine`, to its partners, and those whose partner it is. */
static int list_gather(weft_i_coll *coll, const char *mine, char *out, size_t stride, size_t bytes)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    int count = 0;
    for (int h = 0; h < hosts->count; h++) {
        if (h == hosts->mine)
            continue;
        add(coll, &count, partner_on(hosts, h, hosts->index), true, mine, bytes);
        for (int i = hosts->index; i < hosts->host[h].count; i += hosts->near->size) {
            int rank = hosts->host[h].members[i];
            add(coll, &count, rank, false, out + (size_t)rank * stride, bytes);
        }
    }
    return count;
}

/* Parts of host `h` that the members here have got as partners, from member `first` of it on, one each,
 * to all of them. */
static weft_status share_near(weft_i_coll *coll, int h, int first, char *out, size_t stride,
                              size_t bytes)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    const weft_i_host *host = &hosts->host[h];
    int mine = first + hosts->index;
    weft_i_hosts_near_begin(coll);
    for (int i = 0; i < hosts->near->size; i++) {
        if (i == hosts->index)
            continue;
        if (mine < host->count)
            weft_i_hosts_near_give(coll, i, out + (size_t)host->members[mine] * stride, bytes);
        if (first + i < host->count)
            weft_i_hosts_near_take(coll, i, out + (size_t)host->members[first + i] * stride, bytes);
    }
    return weft_i_hosts_near_exchange(coll);
}

weft_status weft_i_hosts_all_gather(weft_i_coll *coll, char *out, size_t stride, size_t bytes)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    int count = coll->lane->ferry->prepared;
    coll->lane->ferry->prepared = 0;
    if (!bytes)
        return WEFT_OK;
    if (!count)
        count = list_gather(coll, out + (size_t)coll->lane->me * stride, out, stride, bytes);
    WEFT_TRY(weft_i_ferry_run(coll, count));
    for (int h = 0; h < hosts->count; h++)
        for (int first = 0; first < hosts->host[h].count; first += hosts->near->size)
            WEFT_TRY(share_near(coll, h, first, out, stride, bytes));
    return WEFT_OK;
}

weft_status weft_i_hosts_gather_all(weft_i_coll *coll)
{
    size_t part = coll->ask.count * coll->ask.item;
    if (part > WEFT_I_HOSTS_SHOWN) {
        WEFT_TRY(weft_i_hosts_enter_moving(
            coll, list_gather(coll, coll->ask.in, coll->ask.out, part, part)));
        weft_i_coll_put(coll->ask.out + (size_t)coll->lane->me * part, coll->ask.in, part);
        return weft_i_hosts_all_gather(coll, coll->ask.out, part, part);
    }
    WEFT_TRY(weft_i_hosts_enter(coll, coll->ask.in, part));
    for (int rank = 0; rank < coll->lane->size; rank++)
        weft_i_coll_put(coll->ask.out + (size_t)rank * part, weft_i_hosts_shown(coll, rank), part);
    return WEFT_OK;
}

weft_status weft_i_hosts_read_splits(weft_i_coll *coll)
{
    weft_i_lane *lane = coll->lane;
    size_t row = 2 * (size_t)lane->size * sizeof(uint64_t);
    return weft_i_hosts_all_gather(coll, (char *)lane->splits, row, row);
}

/* ---- one part to everybody ---- */

/* The member of host `h` that has the data there: the root itself, or its partner. */
static int stand_in(const weft_i_coll *coll, int h)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    int root = coll->ask.root;
    return h == hosts->host_of[root] ? root : partner_on(hosts, h, hosts->index_of[root]);
}

static weft_status broadcast_piece(weft_i_coll *coll, const weft_i_step *steps, int n, char *data,
                                   size_t bytes)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        bool gives = steps[i].act == WEFT_I_STEP_GIVE;
        if (gives && count && !coll->lane->ferry->moves[0].sends) { /* what it has to have first */
            WEFT_TRY(weft_i_ferry_run(coll, count));
            count = 0;
        }
        add(coll, &count, stand_in(coll, steps[i].peer), gives, data, bytes);
    }
    return weft_i_ferry_run(coll, count);
}

weft_status weft_i_hosts_broadcast(weft_i_coll *coll)
{
    enum { PIECE = 512 << 10 };
    const weft_i_hosts *hosts = coll->group->hosts;
    size_t bytes = coll->ask.count * coll->ask.item;
    int root = coll->ask.root, me = coll->lane->me;
    char *data = me == root ? coll->ask.in : coll->ask.out;
    bool shown = bytes <= WEFT_I_HOSTS_SHOWN;
    WEFT_TRY(weft_i_hosts_enter(coll, data, shown && me == root ? bytes : 0));
    if (shown) {
        if (me != root && bytes)
            memcpy(data, weft_i_hosts_shown(coll, root), bytes);
        return WEFT_OK;
    }
    weft_i_step steps[WEFT_I_STEPS];
    int n = weft_i_schedule_broadcast(hosts->count, hosts->mine, hosts->host_of[root], steps);
    int here = stand_in(coll, hosts->mine);
    for (size_t at = 0; here == me && at < bytes; at += PIECE)
        WEFT_TRY(broadcast_piece(coll, steps, n, data + at, weft_i_coll_min(PIECE, bytes - at)));
    return weft_i_hosts_near_broadcast(coll, hosts->index_of[here], data, bytes);
}

/* ---- parts that one rank needs ---- */

weft_status weft_i_hosts_exchange(weft_i_coll *coll, weft_i_hosts_part *part)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    int count = 0;
    weft_i_hosts_near_begin(coll);
    for (int i = 0; i < coll->lane->size; i++) {
        int rank = (coll->lane->me + i) % coll->lane->size; /* not all at the same one */
        weft_i_list_item room = {0}, *p = part(coll, rank, &room);
        if (rank == coll->lane->me) {
            weft_i_coll_put(p->out, p->in, p->out_bytes);
        } else if (is_near(coll, rank)) {
            weft_i_hosts_near_give(coll, hosts->index_of[rank], p->in, p->bytes);
            weft_i_hosts_near_take(coll, hosts->index_of[rank], p->out, p->out_bytes);
        } else {
            add(coll, &count, rank, true, p->in, p->bytes);
            add(coll, &count, rank, false, p->out, p->out_bytes);
        }
    }
    WEFT_TRY(weft_i_ferry_run(coll, count));
    return weft_i_hosts_near_exchange(coll);
}

static weft_i_list_item *equal_part(weft_i_coll *coll, int rank, weft_i_list_item *p)
{
    size_t bytes = coll->ask.count * coll->ask.item;
    p->in = coll->ask.in + (size_t)rank * bytes;
    p->out = coll->ask.out + (size_t)rank * bytes;
    p->bytes = p->out_bytes = bytes;
    return p;
}

static weft_i_list_item *listed_part(weft_i_coll *coll, int rank, weft_i_list_item *p)
{
    (void)p;
    return &coll->list->items[rank];
}

static weft_i_list_item *split_part(weft_i_coll *coll, int rank, weft_i_list_item *p)
{
    size_t row = coll->ask.row, in = 0, out = 0;
    for (int before = 0; before < rank; before++) {
        in += (size_t)coll->ask.in_splits[before] * row;
        out += (size_t)coll->ask.out_splits[before] * row;
    }
    p->bytes = (size_t)coll->ask.in_splits[rank] * row;
    p->out_bytes = (size_t)coll->ask.out_splits[rank] * row;
    p->in = p->bytes ? coll->ask.in + in : NULL;
    p->out = p->out_bytes ? coll->ask.out + out : NULL;
    return p;
}

/* Only the root takes, or gives. */
static weft_i_list_item *gathered_part(weft_i_coll *coll, int rank, weft_i_list_item *p)
{
    size_t bytes = coll->ask.count * coll->ask.item;
    bool mine = coll->lane->me == coll->ask.root;
    p->in = coll->ask.in;
    p->bytes = rank == coll->ask.root ? bytes : 0;
    p->out = mine ? coll->ask.out + (size_t)rank * bytes : NULL;
    p->out_bytes = mine ? bytes : 0;
    return p;
}

static weft_i_list_item *scattered_part(weft_i_coll *coll, int rank, weft_i_list_item *p)
{
    size_t bytes = coll->ask.count * coll->ask.item;
    bool mine = coll->lane->me == coll->ask.root;
    p->in = mine ? coll->ask.in + (size_t)rank * bytes : NULL;
    p->bytes = mine ? bytes : 0;
    p->out = coll->ask.out;
    p->out_bytes = rank == coll->ask.root ? bytes : 0;
    return p;
}

weft_status weft_i_hosts_gather(weft_i_coll *coll)
{
    WEFT_TRY(weft_i_hosts_enter(coll, NULL, 0));
    return weft_i_hosts_exchange(coll, gathered_part);
}

weft_status weft_i_hosts_scatter(weft_i_coll *coll)
{
    WEFT_TRY(weft_i_hosts_enter(coll, NULL, 0));
    return weft_i_hosts_exchange(coll, scattered_part);
}

weft_status weft_i_hosts_all_to_all(weft_i_coll *coll)
{
    bool uneven = coll->list || coll->ask.in_splits;
    if (uneven)
        weft_i_splits_write(coll);
    WEFT_TRY(weft_i_hosts_enter(coll, NULL, 0));
    if (!uneven)
        return weft_i_hosts_exchange(coll, equal_part);
    WEFT_TRY(weft_i_hosts_read_splits(coll));
    size_t largest;
    WEFT_TRY(weft_i_splits_check(coll, &largest));
    return weft_i_hosts_exchange(coll, coll->list ? listed_part : split_part);
}
