/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions between hosts.  What fits beside the arrival is folded by every rank from what all have
 * shown.  The rest goes in pieces: the members of a host exchange slices, one for each rail, and
 * each rail folds its slice to the host's partial; rails of different hosts join their partials by
 * recursive doubling; members exchange the slices of the result.
 */
#include "coll/hosts/hosts.h"

#include "coll/hosts/schedule.h"

enum {
    PIECE = 1 << 20, /* bytes of an input that are under way at a time */
    /* Bytes of a piece that members of a host show each other whole: a meeting takes longer. */
    SHOWN_WHOLE = 16 << 10
};

/* One piece of a reduction, as one rank sees it. */
typedef struct rail {
    const weft_i_hosts_sum *sum;
    weft_i_span piece, mine; /* elements: of the whole, and this rail's slice of the piece */
    size_t item, wide;       /* bytes of an element, and of one of a partial */
    bool whole;              /* the members of a host show each other all of the piece */
    char *near, *partial, *incoming; /* room for slices */
    const char *have;                /* the partial so far */
} rail;

static size_t most_of_slice(const weft_i_coll *coll, size_t item)
{
    size_t rails = (size_t)coll->group->hosts->rails;
    return (PIECE / item + rails - 1) / rails * item + WEFT_I_LINE;
}

/* Slices of the members here, a partial and one that comes; partials are at most four times as wide. */
size_t weft_i_hosts_sum_room(const weft_i_coll *coll)
{
    return most_of_slice(coll, 1) * ((size_t)coll->group->hosts->near->size + 8);
}

static void find_room(const weft_i_coll *coll, rail *r)
{
    size_t slice = most_of_slice(coll, 1) / WEFT_I_LINE * WEFT_I_LINE;
    r->near = coll->lane->ferry->room[0];
    r->partial = r->near + (size_t)coll->group->hosts->near->size * slice;
    r->incoming = r->partial + 4 * slice;
}

static weft_i_span slice_of(const weft_i_coll *coll, const rail *r, int index)
{
    int rails = coll->group->hosts->rails;
    weft_i_span none = {0, 0};
    return index < rails ? weft_i_coll_slice(r->piece.count, rails, index, r->item) : none;
}

static const char *input_of(const rail *r, weft_i_span slice)
{
    return r->sum->in + (r->piece.first + slice.first) * r->item;
}

/* Every rail gets its slice of the inputs of the members here. */
static weft_status collect(weft_i_coll *coll, const rail *r)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    size_t bytes = r->mine.count * r->item;
    if (r->whole)
        return weft_i_hosts_near_gather(coll, input_of(r, (weft_i_span){0, 0}), r->near,
                                        r->piece.count * r->item);
    weft_i_hosts_near_begin(coll);
    for (int i = 0; i < hosts->near->size; i++) {
        weft_i_span theirs = slice_of(coll, r, i);
        if (i == hosts->index)
            continue;
        weft_i_hosts_near_give(coll, i, input_of(r, theirs), theirs.count * r->item);
        weft_i_hosts_near_take(coll, i, r->near + (size_t)i * bytes, bytes);
    }
    return weft_i_hosts_near_exchange(coll);
}

/* The partial of this host.  A single input is its own, unless it has to be changed. */
static void fold_near(weft_i_coll *coll, rail *r)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    weft_i_lane *lane = coll->lane;
    int size = hosts->near->size;
    r->have = r->partial;
    if (size == 1 && r->item == r->wide && r->sum->op != WEFT_I_FOLD_PREMUL_SUM) {
        r->have = input_of(r, r->mine);
        return;
    }
    size_t apart = (r->whole ? r->piece.count : r->mine.count) * r->item;
    for (int i = 0; i < size; i++) {
        lane->sources[i] = i == hosts->index ? input_of(r, r->mine)
                                             : r->near + (size_t)i * apart +
                                                   (r->whole ? r->mine.first * r->item : 0);
        lane->ferry->factors[i] = lane->factors[hosts->host[hosts->mine].members[i]];
    }
    weft_i_fold_partial_find(r->sum->dtype, r->sum->op)((void *[]){r->partial}, 1, lane->sources,
                                                        size, r->mine.count, lane->ferry->factors);
}

/* What goes and comes at a step. */
static int list_moves(weft_i_coll *coll, const rail *r, const weft_i_step *step)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    int peer = hosts->host[step->peer].members[hosts->index], count = 0;
    size_t bytes = r->mine.count * r->wide;
    bool joins = step->act == WEFT_I_STEP_JOIN || step->act == WEFT_I_STEP_SWAP;
    if (step->act == WEFT_I_STEP_GIVE || step->act == WEFT_I_STEP_SWAP)
        weft_i_ferry_add(coll->lane->ferry, &count,
                         (weft_i_ferry_move){.member = peer,
                                             .sends = true,
                                             .data = (char *)(uintptr_t)r->have, /* only read */
                                             .bytes = bytes});
    if (step->act != WEFT_I_STEP_GIVE)
        weft_i_ferry_add(coll->lane->ferry, &count,
                         (weft_i_ferry_move){.member = peer,
                                             .data = joins ? r->incoming : r->partial,
                                             .bytes = bytes});
    return count;
}

static weft_status take_step(weft_i_coll *coll, rail *r, const weft_i_step *step)
{
    int count = coll->lane->ferry->prepared;
    coll->lane->ferry->prepared = 0;
    if (!count)
        count = list_moves(coll, r, step);
    WEFT_TRY(weft_i_ferry_run(coll, count));
    if (step->act == WEFT_I_STEP_JOIN || step->act == WEFT_I_STEP_SWAP) {
        const void *both[] = {step->first ? r->have : r->incoming,
                              step->first ? r->incoming : r->have};
        weft_i_fold_join_find(r->sum->dtype, r->sum->op)((void *[]){r->partial}, 1, both, 2,
                                                         r->mine.count, NULL);
    }
    if (step->act != WEFT_I_STEP_GIVE)
        r->have = r->partial;
    return WEFT_OK;
}

static int find_steps(const weft_i_coll *coll, int root, weft_i_step steps[WEFT_I_STEPS])
{
    const weft_i_hosts *hosts = coll->group->hosts;
    return root < 0
               ? weft_i_schedule_all_reduce(hosts->count, hosts->mine, steps)
               : weft_i_schedule_reduce(hosts->count, hosts->mine, hosts->host_of[root], steps);
}

static weft_status join_hosts(weft_i_coll *coll, rail *r)
{
    weft_i_step steps[WEFT_I_STEPS];
    int n = find_steps(coll, r->sum->root, steps);
    for (int i = 0; i < n && r->mine.count; i++)
        WEFT_TRY(take_step(coll, r, &steps[i]));
    return WEFT_OK;
}

/* Slices of the result in a single meeting, each with the bytes of the first, which no other exceeds. */
static weft_status spread_whole(weft_i_coll *coll, const rail *r, char *out)
{
    size_t bytes = slice_of(coll, r, 0).count * r->item;
    if (r->mine.count)
        weft_i_fold_finish(r->sum->dtype, r->sum->op, r->incoming, r->have, r->mine.count,
                           coll->lane->size);
    WEFT_TRY(weft_i_hosts_near_gather(coll, r->incoming, r->near, bytes));
    for (int i = 0; out && i < coll->group->hosts->rails; i++) {
        weft_i_span slice = slice_of(coll, r, i);
        weft_i_coll_put(out + slice.first * r->item, r->near + (size_t)i * bytes,
                        slice.count * r->item);
    }
    return WEFT_OK;
}

/* Every member that wants the result gets all slices of it. */
static weft_status spread(weft_i_coll *coll, rail *r)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    int root = r->sum->root, me = coll->lane->me;
    int taker = root < 0 ? -1 : hosts->index_of[root]; /* of the members here */
    bool wanted = root < 0 || root == me;
    char *out = wanted ? r->sum->out + r->piece.first * r->item : NULL;
    if (r->whole)
        return spread_whole(coll, r, out);
    char *mine = wanted ? out + r->mine.first * r->item : r->near;
    if (r->mine.count)
        weft_i_fold_finish(r->sum->dtype, r->sum->op, mine, r->have, r->mine.count,
                           coll->lane->size);
    weft_i_hosts_near_begin(coll);
    for (int i = 0; i < hosts->near->size; i++) {
        weft_i_span theirs = slice_of(coll, r, i);
        if (i == hosts->index)
            continue;
        if (taker < 0 || i == taker)
            weft_i_hosts_near_give(coll, i, mine, r->mine.count * r->item);
        if (wanted)
            weft_i_hosts_near_take(coll, i, out + theirs.first * r->item, theirs.count * r->item);
    }
    return weft_i_hosts_near_exchange(coll);
}

static rail rail_of(const weft_i_coll *coll, const weft_i_hosts_sum *sum, size_t from)
{
    size_t item = weft_i_dtype_size(sum->dtype);
    rail r = {.sum = sum,
              .piece = {from, weft_i_coll_min(PIECE / item, sum->count - from)},
              .item = item,
              .wide = weft_i_dtype_size(weft_i_fold_partial_dtype(sum->dtype))};
    find_room(coll, &r);
    r.mine = slice_of(coll, &r, coll->group->hosts->index);
    size_t most = weft_i_coll_min(SHOWN_WHOLE, most_of_slice(coll, 1) - WEFT_I_LINE);
    r.whole = coll->group->hosts->near->size > 1 && r.piece.count * item <= most;
    return r;
}

weft_status weft_i_hosts_fold(weft_i_coll *coll, const weft_i_hosts_sum *sum)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    bool wanted = sum->root < 0 || hosts->host_of[sum->root] == hosts->mine;
    for (size_t done = 0; done < sum->count;) {
        rail r = rail_of(coll, sum, done);
        WEFT_TRY(collect(coll, &r));
        if (r.mine.count)
            fold_near(coll, &r);
        WEFT_TRY(join_hosts(coll, &r));
        if (wanted)
            WEFT_TRY(spread(coll, &r));
        done += r.piece.count;
    }
    return WEFT_OK;
}

/* Where this rank is alone on its host, and its input is the partial, that is sent with its arrival. */
static int prepare(weft_i_coll *coll, const weft_i_hosts_sum *sum)
{
    weft_i_step steps[WEFT_I_STEPS];
    rail r = rail_of(coll, sum, 0);
    if (coll->group->hosts->near->size > 1 || r.item != r.wide ||
        sum->op == WEFT_I_FOLD_PREMUL_SUM || !r.mine.count)
        return 0;
    find_steps(coll, sum->root, steps);
    r.have = input_of(&r, r.mine);
    return list_moves(coll, &r, &steps[0]);
}

/* ---- the collectives ---- */

static weft_i_hosts_sum sum_of(const weft_i_coll *coll, int root)
{
    return (weft_i_hosts_sum){.in = coll->ask.in,
                              .out = coll->ask.out,
                              .count = coll->ask.count,
                              .dtype = coll->ask.dtype,
                              .op = (weft_i_fold_op)coll->ask.reduction,
                              .root = root};
}

void weft_i_hosts_fold_shown(weft_i_coll *coll, size_t at)
{
    for (int rank = 0; rank < coll->lane->size; rank++)
        coll->lane->sources[rank] = (const char *)weft_i_hosts_shown(coll, rank) + at;
    coll->lane->targets[0] = coll->ask.out;
    weft_i_ferry_fold(coll, 1, coll->ask.count);
}

static weft_status reduce_to(weft_i_coll *coll, int root)
{
    weft_i_hosts_sum sum = sum_of(coll, root);
    if (coll->ask.in_bytes <= WEFT_I_HOSTS_SHOWN) {
        WEFT_TRY(weft_i_hosts_enter(coll, coll->ask.in, coll->ask.in_bytes));
        if (root < 0 || root == coll->lane->me)
            weft_i_hosts_fold_shown(coll, 0);
        return WEFT_OK;
    }
    WEFT_TRY(weft_i_ferry_make_room(coll, 0, weft_i_hosts_sum_room(coll)));
    WEFT_TRY(weft_i_hosts_enter_moving(coll, prepare(coll, &sum)));
    return weft_i_hosts_fold(coll, &sum);
}

weft_status weft_i_hosts_all_reduce(weft_i_coll *coll)
{
    return reduce_to(coll, -1);
}

weft_status weft_i_hosts_reduce(weft_i_coll *coll)
{
    return reduce_to(coll, coll->ask.root);
}
