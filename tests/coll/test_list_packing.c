/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/list.c */
/*
 * Lists of tensors on a lane by hand: where each tensor lies in the packed buffer, what of it is
 * folded or copied from where to where, piece by piece, and what a list refuses.
 */
#include "lane_by_hand.h"

#include "coll/lane/list.h"
#include "coll/lane/request.h"

enum { ME = HAND_ME, RANKS = HAND_SIZE, EPOCH = LANE_EPOCH + 1, ITEM = 4, ITEMS = 6 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- tensors of a list: one after the other in this rank's operands, a little apart ---- */

typedef struct packed {
    size_t bytes, start, in_at, out_at; /* of a part; in the packed buffer; in the operands */
} packed;

static packed list_of[ITEMS];

/* A call with a list of tensors of so many elements, of which the input has `ins` parts and the
 * output `outs`. */
static weft_i_coll *call(weft_i_coll_kind kind, const size_t counts[ITEMS], size_t ins, size_t outs)
{
    weft_i_coll *coll = lane_call(kind, 0, 1, 0);
    size_t in_at = 0, out_at = 0, start = 0;
    CHECK(coll->list = weft_i_list_new(ITEMS));
    for (int i = 0; i < ITEMS; i++) {
        size_t bytes = counts[i] * ITEM;
        weft_i_coll one = {.ask = {.in = scene.in[ME] + in_at,
                                   .out = scene.out[ME] + out_at,
                                   .count = counts[i],
                                   .item = ITEM,
                                   .out_bytes = bytes * outs,
                                   .reduction = WEFT_MAX,
                                   .factor = 0.5},
                           .digest = (uint32_t)i + 3,
                           .fold = lane_fold};
        list_of[i] = (packed){bytes, start, in_at, out_at};
        CHECK_OK(weft_i_list_add(coll, &one));
        start += (bytes + 15) / 16 * 16;
        in_at += bytes * ins + 24;
        out_at += bytes * outs + 40;
    }
    CHECK(in_at <= LANE_BYTES && out_at <= LANE_BYTES && coll->list->bytes == start);
    CHECK(coll->ask.reduction == WEFT_MAX && coll->ask.factor == 0.5);
    coll->ask.item = ITEM; /* what lane_fold counts in */
    lane_want_nothing();
    return coll;
}

/* A stretch of item `i` in [from, to) of the packed buffer: begins at byte `at` of the item. */
static size_t stretch(int i, size_t from, size_t to, size_t *at)
{
    size_t begin = most(from, list_of[i].start);
    size_t end = least(to, list_of[i].start + list_of[i].bytes);
    *at = begin - list_of[i].start;
    return end > begin ? end - begin : 0;
}

static const size_t small[ITEMS] = {3, 0, 100, 5, 1, 400};
static const size_t large[ITEMS] = {10, 30000, 0, 20000, 7, 21};

/* All outputs but what the test has checked are as they were: the gaps between them. */
static void check_gaps(size_t outs)
{
    for (int i = 0; i < ITEMS; i++)
        lane_expect(scene.out[ME] + list_of[i].out_at + outs * list_of[i].bytes, LANE_OUT, ME,
                    list_of[i].out_at + outs * list_of[i].bytes, 40);
    lane_others_untouched(true);
}

/* ---- small lists: shown whole at the entry ---- */

enum { EAGER_AT = EPOCH % WEFT_I_EAGERS * WEFT_I_EAGER };

static void put_whole(size_t parts)
{
    char *model = lane_new_model();
    size_t total = scene.coll.list->bytes;
    for (size_t part = 0; part < parts; part++)
        for (int i = 0; i < ITEMS; i++)
            memcpy(model + EAGER_AT + part * total + list_of[i].start,
                   scene.in[ME] + list_of[i].in_at + part * list_of[i].bytes, list_of[i].bytes);
}

static void want_fold(unsigned syncs, size_t bytes, size_t bounce, const char *to, size_t at)
{
    if (!bytes)
        return;
    lane_want("%u: %zu of", syncs, bytes / ITEM);
    for (int rank = 0; rank < RANKS; rank++)
        lane_want(" bounce%d+%zu", rank, bounce);
    lane_want(" to %s%d+%zu\n", to, ME, at);
}

TEST(test_packing_small)
{
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    call(WEFT_I_ALL_REDUCE_LIST, small, 1, 1)->algorithm = WEFT_I_ALGO_EAGER;
    CHECK_OK(weft_i_list_all_reduce(&scene.coll));
    for (int i = 0; i < ITEMS; i++)
        want_fold(0, list_of[i].bytes, EAGER_AT + list_of[i].start, "out", list_of[i].out_at);
    lane_done(0, lane_wanted);
    put_whole(1);
    lane_as_model();
    check_gaps(1);
    weft_i_object_drop(scene.coll.list);
    call(WEFT_I_ALL_GATHER_LIST, small, 1, RANKS)->algorithm = WEFT_I_ALGO_EAGER;
    CHECK_OK(weft_i_list_all_gather(&scene.coll));
    for (int i = 0; i < ITEMS; i++)
        for (int rank = 0; rank < RANKS; rank++) {
            char *to = scene.out[ME] + list_of[i].out_at + (size_t)rank * list_of[i].bytes;
            if (rank == ME)
                lane_expect(to, LANE_IN, ME, list_of[i].in_at, list_of[i].bytes);
            else
                lane_expect(to, LANE_BOUNCE, rank, EAGER_AT + list_of[i].start, list_of[i].bytes);
        }
    lane_done(0, "");
    put_whole(1);
    lane_as_model();
    check_gaps(RANKS);
    weft_i_object_drop(scene.coll.list);
    call(WEFT_I_REDUCE_SCATTER_LIST, small, RANKS, 1)->algorithm = WEFT_I_ALGO_EAGER;
    CHECK_OK(weft_i_list_reduce_scatter(&scene.coll));
    for (int i = 0; i < ITEMS; i++)
        want_fold(0, list_of[i].bytes, EAGER_AT + ME * scene.coll.list->bytes + list_of[i].start,
                  "out", list_of[i].out_at);
    lane_done(0, lane_wanted);
    put_whole(RANKS);
    lane_as_model();
    check_gaps(1);
    weft_i_object_drop(scene.coll.list);
    lane_close();
}

/* ---- large lists: piece by piece ---- */

static unsigned put_pieces(size_t parts, size_t piece)
{
    char *model = lane_new_model();
    size_t total = scene.coll.list->bytes, at;
    unsigned turn = 0;
    for (size_t from = 0; from < total; from += piece, turn++)
        for (size_t part = 0; part < parts; part++)
            for (int i = 0; i < ITEMS; i++) {
                size_t bytes = stretch(i, from, least(from + piece, total), &at);
                if (bytes)
                    memcpy(model + (turn & 1) * WEFT_I_CHUNK + part * piece +
                               (list_of[i].start + at - from),
                           scene.in[ME] + list_of[i].in_at + part * list_of[i].bytes + at, bytes);
            }
    return turn;
}

TEST(test_packing_large_sum)
{
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    call(WEFT_I_ALL_REDUCE_LIST, large, 1, 1);
    CHECK_OK(weft_i_list_all_reduce(&scene.coll));
    size_t total = scene.coll.list->bytes, turn = 0, at;
    for (size_t from = 0; from < total; from += WEFT_I_CHUNK, turn++) {
        size_t piece = least(WEFT_I_CHUNK, total - from), chunk = (turn & 1) * WEFT_I_CHUNK;
        size_t each = ((piece + RANKS - 1) / RANKS + 127) / 128 * 128;
        for (int rank = 0; rank < RANKS; rank++) {
            size_t begin = least(from + (size_t)rank * each, from + piece);
            size_t end = least(begin + each, from + piece);
            for (int i = 0; i < ITEMS; i++) {
                size_t bytes = stretch(i, begin, end, &at), place = list_of[i].start + at - begin;
                if (rank == ME)
                    want_fold((unsigned)turn + 1, bytes, chunk + (begin - from) + place, "bounce",
                              2 * WEFT_I_CHUNK + chunk + place);
                else if (bytes)
                    lane_expect(scene.out[ME] + list_of[i].out_at + at, LANE_BOUNCE, rank,
                                2 * WEFT_I_CHUNK + chunk + place, bytes);
            }
        }
    }
    lane_done((unsigned)turn + 1, lane_wanted);
    check_gaps(1);
    weft_i_object_drop(scene.coll.list);
    lane_close();
}

TEST(test_packing_large_gather)
{
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    call(WEFT_I_ALL_GATHER_LIST, large, 1, RANKS);
    CHECK_OK(weft_i_list_all_gather(&scene.coll));
    size_t total = scene.coll.list->bytes, turn = 0, at;
    for (size_t from = 0; from < total; from += WEFT_I_CHUNK, turn++)
        for (int i = 0; i < ITEMS; i++) {
            size_t bytes = stretch(i, from, from + WEFT_I_CHUNK, &at);
            for (int rank = 0; bytes && rank < RANKS; rank++) {
                char *to = scene.out[ME] + list_of[i].out_at + (size_t)rank * list_of[i].bytes + at;
                if (rank == ME)
                    lane_expect(to, LANE_IN, ME, list_of[i].in_at + at, bytes);
                else
                    lane_expect(to, LANE_BOUNCE, rank,
                                (turn & 1) * WEFT_I_CHUNK + (list_of[i].start + at - from), bytes);
            }
        }
    lane_done((unsigned)turn + 1, "");
    put_pieces(1, WEFT_I_CHUNK);
    lane_as_model();
    check_gaps(RANKS);
    weft_i_object_drop(scene.coll.list);
    lane_close();
}

TEST(test_packing_large_scatter)
{
    enum { PIECE = WEFT_I_CHUNK / RANKS };
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    call(WEFT_I_REDUCE_SCATTER_LIST, large, RANKS, 1);
    CHECK_OK(weft_i_list_reduce_scatter(&scene.coll));
    size_t total = scene.coll.list->bytes, turn = 0, at;
    for (size_t from = 0; from < total; from += PIECE, turn++)
        for (int i = 0; i < ITEMS; i++) {
            size_t bytes = stretch(i, from, from + PIECE, &at);
            want_fold((unsigned)turn + 1, bytes,
                      (turn & 1) * WEFT_I_CHUNK + ME * PIECE + (list_of[i].start + at - from),
                      "out", list_of[i].out_at + at);
        }
    lane_done((unsigned)turn + 1, lane_wanted);
    put_pieces(RANKS, PIECE);
    lane_as_model();
    check_gaps(1);
    weft_i_object_drop(scene.coll.list);
    lane_close();
}

/* What breaks off in the middle is told. */
TEST(test_packing_breaks_off)
{
    static weft_i_runner *const runners[] = {weft_i_list_all_reduce, weft_i_list_all_gather,
                                             weft_i_list_reduce_scatter};
    static const weft_i_coll_kind kinds[] = {WEFT_I_ALL_REDUCE_LIST, WEFT_I_ALL_GATHER_LIST,
                                             WEFT_I_REDUCE_SCATTER_LIST};
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    for (int i = 0; i < 3; i++)
        for (unsigned n = 0; n <= 3; n++) { /* at the entry, and at each sync */
            call(kinds[i], large, i == 2 ? RANKS : 1, i == 1 ? RANKS : 1);
            lane_break(n);
            lane_broken(runners[i](&scene.coll), n);
            weft_i_object_drop(scene.coll.list);
        }
    lane_close();
}

/* ---- what the ranks must agree on ---- */

TEST(test_packing_accepted)
{
    uint32_t seen[8];
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    for (int i = 0; i < 8; i++) {
        weft_i_coll *coll = call(WEFT_I_ALL_REDUCE_LIST, small, 1, 1);
        size_t bytes = coll->list->bytes;
        coll->ask.root = i == 1;
        coll->ask.reduction = i == 2 ? WEFT_SUM : WEFT_MAX;
        coll->ask.kind = i == 3 ? WEFT_I_ALL_GATHER_LIST : WEFT_I_ALL_REDUCE_LIST;
        coll->list->count -= i == 4;
        coll->list->bytes += i == 5 ? 16 : 0;
        coll->list->digest += i == 6;
        CHECK_OK(weft_i_list_accept(coll));
        coll->list->count += i == 4;
        CHECK_INT(coll->ask.dtype, WEFT_U8);
        CHECK(coll->ask.item == 1 && coll->ask.in_bytes == coll->list->bytes);
        CHECK(coll->ask.count == coll->ask.in_bytes && coll->list->bytes >= bytes);
        seen[i] = coll->digest;
        for (int k = 0; k < i; k++)
            CHECK((seen[k] == seen[i]) == (k == 0 && i == 7)); /* nothing has changed there */
        weft_i_object_drop(coll->list);
    }
    /* The digests of the tensors count in their order. */
    uint32_t digest = 0;
    call(WEFT_I_ALL_REDUCE_LIST, small, 1, 1);
    for (int i = 0; i < ITEMS; i++)
        digest = weft_i_digest(digest, (uint64_t)i + 3);
    CHECK_INT(scene.coll.list->digest, digest);
    for (int i = 0; i < ITEMS; i++) {
        const weft_i_list_item *item = &scene.coll.list->items[i];
        CHECK(item->bytes == list_of[i].bytes && item->out_bytes == list_of[i].bytes);
        CHECK(item->start == list_of[i].start && item->item == ITEM && item->fold == lane_fold);
    }
    weft_i_object_drop(scene.coll.list);
    lane_close();
}

/* ---- what a list refuses ---- */

static weft_status add(weft_i_coll *coll, weft_tensor *in, weft_tensor *out, weft_device device)
{
    weft_i_coll one = {.ask = {.device = device, .item = ITEM}, .in_tensor = in, .out_tensor = out};
    return weft_i_list_add(coll, &one);
}

/* All tensors are on one device; one without elements here has none. */
TEST(test_packing_devices)
{
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    weft_i_coll *coll = lane_call(WEFT_I_ALL_REDUCE_LIST, 0, 1, 0);
    weft_tensor *x = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    for (int side = 0; side < 2; side++) {
        weft_tensor *in = side ? x : NULL, *out = side ? NULL : x;
        CHECK(coll->list = weft_i_list_new(ITEMS));
        coll->ask.device = WEFT_CPU;
        CHECK_OK(add(coll, NULL, NULL, WEFT_META));
        CHECK_INT(coll->ask.device, WEFT_CPU);
        CHECK_OK(add(coll, in, out, WEFT_CUDA(1)));
        CHECK_INT(coll->ask.device, WEFT_CUDA(1));
        CHECK_OK(add(coll, NULL, NULL, WEFT_CPU));
        CHECK_OK(add(coll, out, in, WEFT_CUDA(1)));
        hand_said(add(coll, in, out, WEFT_CPU), WEFT_ERR_TYPE,
                  "all_reduce_list: tensor 4 is on cpu, those before it on cuda:1");
        CHECK_INT(coll->list->count, 4);
        weft_i_object_drop(coll->list);
    }
    lane_close();
}

typedef struct range {
    int in, in_end, out, out_end; /* bytes of a tensor; an empty range: none */
} range;

static weft_tensor *of_bytes(int bytes)
{
    return bytes ? weft_zeros(WEFT_U8, WEFT_CPU, WEFT_SHAPE(bytes)) : NULL;
}

static weft_status overlap(const range *ranges, size_t count)
{
    static char room[100];
    weft_scope_open();
    weft_i_list *list = weft_i_list_new(count);
    CHECK(list);
    for (size_t i = 0; i < count; i++) {
        const range *r = &ranges[i];
        list->items[i] =
            (weft_i_list_item){.in_tensor = weft_i_object_hold(of_bytes(r->in_end - r->in)),
                               .out_tensor = weft_i_object_hold(of_bytes(r->out_end - r->out)),
                               .in = r->in_end > r->in ? room + r->in : NULL,
                               .out = r->out_end > r->out ? room + r->out : NULL};
    }
    list->count = count;
    weft_status status = weft_i_list_check_overlap(list, "op");
    weft_i_object_drop(list);
    weft_scope_close();
    return status;
}

static void *no_memory(size_t bytes)
{
    (void)bytes;
    return NULL;
}

TEST(test_packing_overlap)
{
    static const struct {
        range a, b;
        bool clash;
    } cases[] = {
        {{0, 10, 20, 30}, {40, 50, 60, 70}, false}, /* all apart */
        {{0, 10, 20, 30}, {30, 40, 40, 50}, false}, /* one begins where another ends */
        {{0, 10, 20, 30}, {0, 10, 40, 50}, false},  /* two may read the same */
        {{0, 10, 20, 30}, {5, 15, 40, 50}, false},
        {{0, 10, 20, 30}, {40, 50, 29, 35}, true}, /* but not write it */
        {{0, 10, 20, 30}, {40, 50, 15, 21}, true},
        {{0, 10, 20, 30}, {40, 50, 9, 12}, true}, /* nor write what another reads */
        {{0, 10, 20, 30}, {40, 50, 10, 20}, false},
        {{0, 10, 20, 30}, {29, 35, 40, 50}, true},
        {{0, 10, 20, 30}, {15, 21, 40, 50}, true},
        {{0, 10, 0, 10}, {10, 20, 10, 20}, false}, /* in place */
        {{0, 10, 0, 10}, {9, 20, 30, 40}, true},
        {{0, 40, 10, 20}, {40, 50, 50, 60}, false}, /* the output lies in the input */
        {{0, 40, 10, 20}, {39, 50, 50, 60}, true},
        {{10, 20, 0, 40}, {41, 50, 50, 60}, false}, /* and the other way round */
        {{10, 20, 0, 40}, {45, 50, 39, 41}, true},
        {{10, 20, 0, 40}, {5, 6, 50, 60}, true},
        {{0, 50, 60, 70}, {10, 20, 55, 56}, false}, /* a long one before: its end counts */
        {{0, 50, 60, 70}, {80, 90, 40, 45}, true},
        {{0, 0, 20, 30}, {25, 26, 0, 0}, true}, /* one of the two is missing */
        {{0, 0, 20, 30}, {30, 31, 0, 0}, false},
        {{20, 30, 0, 0}, {25, 26, 0, 0}, false},
    };
    hand_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int turn = 0; turn < 2; turn++) {
            range both[2] = {turn ? cases[i].b : cases[i].a, turn ? cases[i].a : cases[i].b};
            weft_status status = overlap(both, 2);
            if (status != (cases[i].clash ? WEFT_ERR_INVALID_ARG : WEFT_OK))
                FAIL("case %zu gives %d", i, (int)status);
            if (cases[i].clash)
                hand_said(status, WEFT_ERR_INVALID_ARG,
                          "op: an output overlaps an operand of another tensor of the list");
        }
    /* The third is compared with the first, behind the end of the second. */
    range three[3] = {{0, 50, 90, 95}, {10, 20, 80, 85}, {96, 97, 30, 31}};
    CHECK_INT(overlap(three, 3), WEFT_ERR_INVALID_ARG);
    range written[3] = {{90, 95, 0, 50}, {80, 85, 60, 70}, {30, 31, 96, 97}};
    CHECK_INT(overlap(written, 3), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
    CHECK_OK(overlap((range[]){{0, 40, 10, 20}}, 1)); /* one was checked by itself */
    hand_close();
}

/* One tensor needs no memory to be compared with itself. */
TEST(test_packing_without_memory)
{
    static weft_i_os os;
    hand_open();
    weft_i_list *list = weft_i_list_new(2);
    os = weft_i_os_linux;
    os.alloc = no_memory;
    weft_i_os_now = &os;
    list->count = 1;
    weft_status one = weft_i_list_check_overlap(list, "op");
    list->count = 2;
    weft_status two = weft_i_list_check_overlap(list, "op");
    weft_i_os_now = &weft_i_os_linux;
    CHECK_OK(one);
    hand_said(two, WEFT_ERR_NO_MEMORY, "op: no memory for 2 tensors");
    weft_i_object_drop(list);
    hand_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
