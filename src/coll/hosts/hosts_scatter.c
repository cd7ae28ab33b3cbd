/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of parts between hosts, each to its rank.  Parts of the members i, i + rails, ... of every host are rail
 * i's.  The members of a host exchange inputs, so that each rail folds the partials of its parts; a rail sends
 * its counterpart on every other host the partials of the parts of that host, all at once, and joins those
 * that come as the tree of kernels/fold/fold_hosts.h.  So every byte of a partial goes to one host, in one hop.
 * Where a host has more members than rails, its rails then give them their sums.
 */
#include "coll/hosts/hosts.h"

enum {
    PIECE = 1 << 20,  /* bytes of an input that are under way at a time */
    LEAST = 16 << 10, /* but so many of a part at least, however many parts there are */
    SHOWN_WHOLE =
        16
        << 10 /* bytes of an input that members of a host show each other: a meeting takes longer */
};

/* One piece of all parts, as one rank sees it.  A slot is room for a piece of one part. */
typedef struct scatter {
    const weft_i_hosts_parts *parts;
    const weft_i_hosts *hosts;
    size_t from, count;     /* elements of each part */
    size_t item, wide;      /* bytes of an element, and of one of a partial */
    size_t near_slot, slot; /* bytes of a slot of inputs, and of partials */
    bool alone;             /* one rank a host */
    bool whole;             /* the members of this host show each other their inputs */
    char *packed, *near, *partial, *incoming, *finished;
} scatter;

static size_t line_up(size_t bytes)
{
    return (bytes + WEFT_I_LINE - 1) / WEFT_I_LINE * WEFT_I_LINE;
}

/* Elements of a part that are under way at a time. */
static size_t most_of_part(const weft_i_coll *coll, size_t item)
{
    size_t bytes = PIECE / (size_t)coll->lane->size;
    return (bytes > LEAST ? bytes : LEAST) / item;
}

/* How many parts of host `h` are rail `rail`'s. */
static int parts_on(const weft_i_hosts *hosts, int h, int rail)
{
    int members = hosts->host[h].count;
    return rail < hosts->rails ? (members - rail + hosts->rails - 1) / hosts->rails : 0;
}

static int parts_of_rail(const weft_i_hosts *hosts, int rail)
{
    int count = 0;
    for (int h = 0; h < hosts->count; h++)
        count += parts_on(hosts, h, rail);
    return count;
}

/* The k-th of them, as a rank. */
static int rank_of(const weft_i_hosts *hosts, int h, int rail, int k)
{
    return hosts->host[h].members[rail + k * hosts->rails];
}

/* Room for pieces of parts of any dtype: inputs, partials of four times their bytes at most, and sums. */
size_t weft_i_hosts_parts_room(const weft_i_coll *coll)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    size_t slot = line_up(most_of_part(coll, 1)), members = (size_t)hosts->near->size;
    size_t mine = (size_t)parts_of_rail(hosts, hosts->index);
    size_t here = (size_t)parts_on(hosts, hosts->mine, hosts->index);
    size_t inputs = (size_t)coll->lane->size + members * mine + here;
    size_t shown = members * line_up(SHOWN_WHOLE);
    return slot * (inputs + 4 * (mine + here * (size_t)hosts->count)) + shown;
}

static scatter piece_of(const weft_i_coll *coll, const weft_i_hosts_parts *parts, size_t from)
{
    const weft_i_hosts *hosts = coll->group->hosts;
    size_t item = weft_i_dtype_size(parts->dtype), size = (size_t)coll->lane->size;
    size_t mine = (size_t)parts_of_rail(hosts, hosts->index);
    scatter s = {.parts = parts,
                 .hosts = hosts,
                 .from = from,
                 .count = weft_i_coll_min(most_of_part(coll, item), parts->count - from),
                 .item = item,
                 .wide = weft_i_dtype_size(weft_i_fold_partial_dtype(parts->dtype))};
    s.alone = (size_t)hosts->count == size;
    s.near_slot = s.count * item;
    s.slot = line_up(s.count * s.wide);
    s.whole = hosts->near->size > 1 && s.count == parts->count && parts->stride == s.near_slot &&
              s.near_slot * size <= SHOWN_WHOLE;
    s.packed = coll->lane->ferry->room[0];
    s.near = s.packed + line_up(s.near_slot * size);
    s.partial = s.near + line_up(s.near_slot * (s.whole ? size : mine) * (size_t)hosts->near->size);
    s.incoming = s.partial + s.slot * mine;
    s.finished =
        s.incoming + s.slot * (size_t)(parts_on(hosts, hosts->mine, hosts->index) * hosts->count);
    return s;
}

static const char *input_of(const scatter *s, int rank)
{
    return s->parts->in + (size_t)rank * s->parts->stride + s->from * s->item;
}

/* The partial of this rank's own input alone is that, unless it has to be changed, or laid side by side. */
static bool is_input(const scatter *s)
{
    return s->alone && s->item == s->wide && s->parts->op != WEFT_I_FOLD_PREMUL_SUM;
}

/* ---- inside a host ---- */

/* The pieces of the parts that are another rail's, one after the other. */
static char *pack(const scatter *s, int rail, char *room)
{
    for (int h = 0; h < s->hosts->count; h++)
        for (int k = 0; k < parts_on(s->hosts, h, rail); k++, room += s->near_slot)
            memcpy(room, input_of(s, rank_of(s->hosts, h, rail, k)), s->near_slot);
    return room;
}

/* Every rail gets the inputs of the members here of its parts. */
static weft_status collect(weft_i_coll *coll, const scatter *s)
{
    const weft_i_hosts *hosts = s->hosts;
    size_t mine = (size_t)parts_of_rail(hosts, hosts->index) * s->near_slot;
    char *room = s->packed;
    if (hosts->near->size == 1)
        return WEFT_OK;
    if (s->whole)
        return weft_i_hosts_near_gather(coll, s->parts->in, s->near,
                                        s->near_slot * (size_t)coll->lane->size);
    weft_i_hosts_near_begin(coll);
    for (int i = 0; i < hosts->near->size; i++) {
        if (i == hosts->index)
            continue;
        char *theirs = room;
        room = pack(s, i, room);
        weft_i_hosts_near_give(coll, i, theirs, (size_t)(room - theirs));
        weft_i_hosts_near_take(coll, i, s->near + (size_t)i * mine, mine);
    }
    return weft_i_hosts_near_exchange(coll);
}

/* What member `i` of this host has given of the part that is the `slot`-th of this rail, of `rank`. */
static const char *given(const weft_i_coll *coll, const scatter *s, int i, int slot, int rank)
{
    size_t size = (size_t)coll->lane->size;
    if (i == s->hosts->index)
        return input_of(s, rank);
    if (s->whole)
        return s->near + ((size_t)i * size + (size_t)rank) * s->near_slot;
    size_t mine = (size_t)parts_of_rail(s->hosts, s->hosts->index);
    return s->near + ((size_t)i * mine + (size_t)slot) * s->near_slot;
}

static void fold_near(weft_i_coll *coll, const scatter *s)
{
    const weft_i_hosts *hosts = s->hosts;
    weft_i_lane *lane = coll->lane;
    weft_i_fold fold = weft_i_fold_partial_find(s->parts->dtype, s->parts->op);
    if (is_input(s))
        return;
    for (int i = 0; i < hosts->near->size; i++)
        lane->ferry->factors[i] = lane->factors[hosts->host[hosts->mine].members[i]];
    for (int h = 0, slot = 0; h < hosts->count; h++)
        for (int k = 0; k < parts_on(hosts, h, hosts->index); k++, slot++) {
            int rank = rank_of(hosts, h, hosts->index, k);
            for (int i = 0; i < hosts->near->size; i++)
                lane->sources[i] = given(coll, s, i, slot, rank);
            fold((void *[]){s->partial + (size_t)slot * s->slot}, 1, lane->sources,
                 hosts->near->size, s->count, lane->ferry->factors);
        }
}

/* ---- between hosts ---- */

/* Where the partial of host `h` of this rail's k-th part here comes to, or is. */
static char *partial_at(const scatter *s, int k, int h)
{
    int here = parts_on(s->hosts, s->hosts->mine, s->hosts->index);
    return s->incoming + (size_t)(h * here + k) * s->slot;
}

/* Bytes of so many slots that lie one after the other. */
static size_t bytes_of(const scatter *s, int slots)
{
    return slots ? (size_t)(slots - 1) * s->slot + s->count * s->wide : 0;
}

static void add(weft_i_coll *coll, const scatter *s, int *count, int h, bool sends,
                const char *data, int slots)
{
    weft_i_ferry_add(
        coll->lane->ferry, count,
        (weft_i_ferry_move){.member = s->hosts->host[h].members[s->hosts->index],
                            .sends = sends,
                            .data = (char *)(uintptr_t)data, /* only read, if it sends */
                            .bytes = bytes_of(s, slots)});
}

/* This rank's partials to the hosts whose parts they are, and theirs here. */
static int list_moves(weft_i_coll *coll, const scatter *s)
{
    const weft_i_hosts *hosts = s->hosts;
    int count = 0, slot = 0, here = parts_on(hosts, hosts->mine, hosts->index);
    for (int h = 0; h < hosts->count; h++) {
        int parts = parts_on(hosts, h, hosts->index);
        const char *data = !is_input(s) ? s->partial + (size_t)slot * s->slot
                           : parts      ? input_of(s, rank_of(hosts, h, hosts->index, 0))
                                        : NULL;
        slot += parts;
        if (h != hosts->mine)
            add(coll, s, &count, h, true, data, parts);
        else if (parts)
            memcpy(partial_at(s, 0, h), data, bytes_of(s, parts));
    }
    for (int h = 0; h < hosts->count; h++)
        if (h != hosts->mine && here)
            add(coll, s, &count, h, false, partial_at(s, 0, h), here);
    return count;
}

static void join(const scatter *s, int k, int left, int right)
{
    char *first = partial_at(s, k, left);
    weft_i_fold_join_find(s->parts->dtype, s->parts->op)(
        (void *[]){first}, 1, (const void *[]){first, partial_at(s, k, right)}, 2, s->count, NULL);
}

/* The host that stands at `place` once the first `extra` pairs are one each. */
static int host_at(int place, int extra)
{
    return place < extra ? 2 * place : place + extra;
}

/* The partials of all hosts of one part as a tree, neighbours first, to that of host 0. */
static void join_hosts(const scatter *s, int k)
{
    int whole = weft_i_fold_whole(s->hosts->count), extra = s->hosts->count - whole;
    for (int pair = 0; pair < extra; pair++)
        join(s, k, 2 * pair, 2 * pair + 1);
    for (int apart = 1; apart < whole; apart *= 2)
        for (int place = 0; place < whole; place += 2 * apart)
            join(s, k, host_at(place, extra), host_at(place + apart, extra));
}

/* The sums to the ranks of this host whose parts they are. */
static weft_status spread(weft_i_coll *coll, const scatter *s)
{
    const weft_i_hosts *hosts = s->hosts;
    char *mine = s->parts->out + s->from * s->item;
    weft_i_hosts_near_begin(coll);
    for (int k = 0; k < parts_on(hosts, hosts->mine, hosts->index); k++) {
        char *to = k ? s->finished + (size_t)k * s->near_slot : mine;
        join_hosts(s, k);
        weft_i_fold_finish(s->parts->dtype, s->parts->op, to, partial_at(s, k, 0), s->count,
                           coll->lane->size);
        if (k)
            weft_i_hosts_near_give(coll, hosts->index + k * hosts->rails, to, s->near_slot);
    }
    if (hosts->near->size == hosts->rails)
        return WEFT_OK;
    if (hosts->index >= hosts->rails)
        weft_i_hosts_near_take(coll, hosts->index % hosts->rails, mine, s->near_slot);
    return weft_i_hosts_near_exchange(coll);
}

weft_status weft_i_hosts_fold_parts(weft_i_coll *coll, const weft_i_hosts_parts *parts)
{
    for (size_t done = 0; done < parts->count;) {
        scatter s = piece_of(coll, parts, done);
        int count = coll->lane->ferry->prepared;
        coll->lane->ferry->prepared = 0;
        if (!count) {
            WEFT_TRY(collect(coll, &s));
            fold_near(coll, &s);
            count = list_moves(coll, &s);
        }
        WEFT_TRY(weft_i_ferry_run(coll, count));
        WEFT_TRY(spread(coll, &s));
        done += s.count;
    }
    return WEFT_OK;
}

/* Where this rank is alone on its host, and its input is the partial, the first piece is sent with its arrival. */
static int prepare(weft_i_coll *coll, const weft_i_hosts_parts *parts)
{
    scatter s = piece_of(coll, parts, 0);
    return is_input(&s) && s.count ? list_moves(coll, &s) : 0;
}

weft_status weft_i_hosts_reduce_scatter(weft_i_coll *coll)
{
    size_t part = coll->ask.count * coll->ask.item, all = part * (size_t)coll->lane->size;
    weft_i_hosts_parts parts = {.in = coll->ask.in,
                                .stride = part,
                                .out = coll->ask.out,
                                .count = coll->ask.count,
                                .dtype = coll->ask.dtype,
                                .op = (weft_i_fold_op)coll->ask.reduction};
    if (all <= WEFT_I_HOSTS_SHOWN) {
        WEFT_TRY(weft_i_hosts_enter(coll, coll->ask.in, all));
        weft_i_hosts_fold_shown(coll, (size_t)coll->lane->me * part);
        return WEFT_OK;
    }
    WEFT_TRY(weft_i_ferry_make_room(coll, 0, weft_i_hosts_parts_room(coll)));
    WEFT_TRY(weft_i_hosts_enter_moving(coll, prepare(coll, &parts)));
    return weft_i_hosts_fold_parts(coll, &parts);
}
