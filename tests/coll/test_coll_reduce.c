/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/host/reduce.c, coll/lane/pipeline.c */
/*
 * Reductions on a lane by hand: what is folded from where to where, in which order and between
 * which syncs, on every way that there is.
 */
#include "lane_by_hand.h"

enum { ME = HAND_ME, RANKS = HAND_SIZE, EPOCH = LANE_EPOCH + 1, ITEM = 4, LINE = 128 / ITEM };

static weft_i_coll *call(weft_i_coll_kind kind, size_t count, int root)
{
    lane_want_nothing();
    return lane_call(kind, count, ITEM, root);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The slice of `rank` of some elements: whole lines. */
static size_t slice(size_t count, int size, int rank, size_t *first)
{
    size_t each = (count + (size_t)size - 1) / (size_t)size;
    each = (each + LINE - 1) / LINE * LINE;
    *first = least(each * (size_t)rank, count);
    return least(each, count - *first);
}

/* ---- shown at the entry ---- */

/* A fold of `count` elements of what all have shown, from byte `at` on of the data that begins at
 * byte `bounce` of the others' buffers. */
static void want_shown(size_t count, size_t bounce, size_t at, size_t to)
{
    lane_want("0: %zu of", count);
    for (int rank = 0; rank < RANKS; rank++)
        rank == ME ? lane_want(" in%d+%zu", ME, at) : lane_want(" bounce%d+%zu", rank, bounce + at);
    lane_want(" to out%d+%zu\n", ME, to);
}

TEST(test_folding_shown)
{
    enum { COUNT = 4000, AT = EPOCH % WEFT_I_EAGERS * WEFT_I_EAGER };
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    call(WEFT_I_ALL_REDUCE, COUNT, 0)->algorithm = WEFT_I_ALGO_EAGER;
    CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
    want_shown(COUNT, AT, 0, 0);
    lane_done(0, lane_wanted);
    memcpy(lane_new_model() + AT, scene.in[ME], COUNT * ITEM);
    lane_as_model();
    call(WEFT_I_REDUCE_SCATTER, COUNT, 0)->algorithm = WEFT_I_ALGO_EAGER;
    CHECK_OK(weft_i_coll_reduce_scatter(&scene.coll));
    want_shown(COUNT, AT, ME * COUNT * ITEM, 0);
    lane_done(0, lane_wanted);
    call(WEFT_I_REDUCE, COUNT, ME)->algorithm = WEFT_I_ALGO_EAGER;
    CHECK_OK(weft_i_coll_reduce(&scene.coll));
    want_shown(COUNT, AT, 0, 0);
    lane_done(0, lane_wanted);
    lane_new_model();
    lane_as_model(); /* the root shows nothing */
    call(WEFT_I_REDUCE, COUNT, 2)->algorithm = WEFT_I_ALGO_EAGER;
    for (int rank = 0; rank < RANKS; rank++) /* and who gives waits for nobody */
        scene.heads[rank].entry[EPOCH % WEFT_I_TURNS].arrival = 0;
    CHECK_OK(weft_i_coll_reduce(&scene.coll));
    lane_done(0, "");
    memcpy(lane_new_model() + AT, scene.in[ME], COUNT * ITEM);
    lane_as_model();
    lane_close();
}

/* Also if they could be fetched, but all have been shown. */
TEST(test_folding_shown_beside_locations)
{
    enum { COUNT = 4000, AT = EPOCH % WEFT_I_EAGERS * WEFT_I_EAGER };
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    for (int i = 0; i < 4; i++) {
        call(i == 0   ? WEFT_I_ALL_REDUCE
             : i == 1 ? WEFT_I_REDUCE_SCATTER
                      : WEFT_I_REDUCE,
             COUNT, i == 2 ? ME : 0);
        lane_shown();
        CHECK_OK(i == 0   ? weft_i_coll_all_reduce(&scene.coll)
                 : i == 1 ? weft_i_coll_reduce_scatter(&scene.coll)
                          : weft_i_coll_reduce(&scene.coll));
        if (i < 3)
            want_shown(COUNT, AT, i == 1 ? ME * COUNT * ITEM : 0, 0);
        lane_done(0, lane_wanted);
    }
    lane_close();
}

/* What goes one way and is not short is folded chunk by chunk. */
TEST(test_folding_shown_in_chunks)
{
    static const struct {
        size_t count, chunk;
    } cases[] = {{1025, 4 << 10}, {4096, 4 << 10}, {4097, 8 << 10}, {16384, 8 << 10}};
    enum { AT = EPOCH % WEFT_I_EAGERS * WEFT_I_EAGER };
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes = cases[i].count * ITEM;
        call(WEFT_I_REDUCE, cases[i].count, ME)->algorithm = WEFT_I_ALGO_EAGER;
        CHECK_OK(weft_i_coll_reduce(&scene.coll));
        for (size_t at = 0; at < bytes; at += cases[i].chunk)
            want_shown(least(cases[i].chunk, bytes - at) / ITEM, AT, at, at);
        lane_done(0, lane_wanted);
        call(WEFT_I_REDUCE, cases[i].count, ME)->algorithm = WEFT_I_ALGO_EAGER;
        scene.heads[3].filled = 0; /* its chunks do not come */
        scene.coll.ask.limit_ms = 1;
        CHECK_INT(weft_i_coll_reduce(&scene.coll), WEFT_ERR_TIMEOUT);
        scene.group->board->revoked = 0;
        call(WEFT_I_ALL_REDUCE, cases[i].count, 0)->algorithm = WEFT_I_ALGO_EAGER;
        CHECK_OK(weft_i_coll_all_reduce(&scene.coll)); /* from all to all: at once */
        want_shown(cases[i].count, AT, 0, 0);
        lane_done(0, lane_wanted);
    }
    lane_close();
}

/* ---- pieces through the bounce buffers ---- */

/* All put what others fold of their input, fold their slice, and take the slices of the others. */
static void fold_pieces(weft_i_coll_kind kind, size_t count, int root)
{
    enum { PIECE = WEFT_I_CHUNK / ITEM };
    bool collects = kind == WEFT_I_ALL_REDUCE || root == ME;
    call(kind, count, root);
    CHECK_OK(kind == WEFT_I_REDUCE ? weft_i_coll_reduce(&scene.coll)
                                   : weft_i_coll_all_reduce(&scene.coll));
    size_t first = 0, turn = 0;
    for (; first < count; first += PIECE, turn++) {
        size_t in_piece = least(PIECE, count - first), begin;
        size_t mine = slice(in_piece, RANKS, ME, &begin), chunk = (turn & 1) * WEFT_I_CHUNK;
        if (mine) {
            lane_want("%zu: %zu of", turn + 1, mine);
            for (int rank = 0; rank < RANKS; rank++)
                rank == ME ? lane_want(" in%d+%zu", ME, (first + begin) * ITEM)
                           : lane_want(" bounce%d+%zu", rank, chunk + begin * ITEM);
            lane_want(" to");
            if (collects)
                lane_want(" out%d+%zu", ME, (first + begin) * ITEM);
            if (kind == WEFT_I_ALL_REDUCE || root != ME)
                lane_want(" bounce%d+%zu", ME, 2 * WEFT_I_CHUNK + chunk);
            lane_want("\n");
        }
        for (int rank = 0; collects && rank < RANKS; rank++) {
            size_t bytes = slice(in_piece, RANKS, rank, &begin) * ITEM;
            if (rank != ME)
                lane_expect(scene.out[ME] + (first + begin) * ITEM, LANE_BOUNCE, rank,
                            2 * WEFT_I_CHUNK + chunk, bytes);
        }
    }
    lane_untouched(collects ? count * ITEM : 0);
    lane_others_untouched(true);
    lane_done((unsigned)turn + 1, lane_wanted);
}

TEST(test_folding_pieces)
{
    static const size_t counts[] = {1, 32, 33, 100, 128, 129, 32767, 32768, 32769, 100001};
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        fold_pieces(WEFT_I_ALL_REDUCE, counts[i], 0);
        fold_pieces(WEFT_I_REDUCE, counts[i], ME);
        fold_pieces(WEFT_I_REDUCE, counts[i], 3);
    }
    /* What others fold of our input lies in our chunk, and our own slice does not. */
    size_t first, mine = slice(1000, RANKS, ME, &first);
    call(WEFT_I_REDUCE, 1000, ME);
    CHECK_OK(weft_i_coll_reduce(&scene.coll));
    memcpy(lane_new_model(), scene.in[ME], first * ITEM);
    memcpy(lane_model + (first + mine) * ITEM, scene.in[ME] + (first + mine) * ITEM,
           (1000 - first - mine) * ITEM);
    lane_as_model();
    lane_close();
}

/* Of two ranks each gives the result back in the lines that the input came in, 2 KiB at a time. */
TEST(test_folding_pieces_of_two)
{
    static const size_t counts[] = {1, 64, 65, 1024, 1025, 1100, 2048, 40000};
    enum { PIECE = WEFT_I_CHUNK / ITEM, STEP = 2048 / ITEM };
    lane_open(2, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
#if defined(__aarch64__)
    lane_close();
    SKIP("that does not pay here");
#endif
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t count = counts[i], turn = 0;
        call(WEFT_I_ALL_REDUCE, count, 0);
        CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
        for (size_t first = 0; first < count; first += PIECE, turn++) {
            size_t in_piece = least(PIECE, count - first), chunk = (turn & 1) * WEFT_I_CHUNK, begin;
            size_t mine = slice(in_piece, 2, ME, &begin);
            for (size_t at = begin; at < begin + mine; at += STEP)
                lane_want("%zu: %zu of bounce0+%zu in1+%zu to out1+%zu bounce0+%zu\n", turn + 1,
                          least(STEP, begin + mine - at), chunk + at * ITEM, (first + at) * ITEM,
                          (first + at) * ITEM, chunk + at * ITEM);
        }
        lane_done((unsigned)turn + 1, lane_wanted);
        /* What rank 0 made of its slice of the last piece came back in our lines, where our input
         * was before. */
        size_t last = (count - 1) / PIECE * PIECE, begin;
        size_t theirs = slice(count - last, 2, 0, &begin);
        CHECK(!memcmp(scene.out[ME] + last * ITEM, scene.in[ME] + last * ITEM, theirs * ITEM));
        lane_untouched(count * ITEM);
    }
    lane_close();
}

/* A chunk has a piece of every part. */
TEST(test_folding_pieces_of_parts)
{
    static const size_t counts[] = {1, 8191, 8192, 8193, 20000};
    enum { PIECE = WEFT_I_CHUNK / ITEM / RANKS };
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t count = counts[i], turn = 0;
        call(WEFT_I_REDUCE_SCATTER, count, 0);
        CHECK_OK(weft_i_coll_reduce_scatter(&scene.coll));
        char *model = lane_new_model();
        for (size_t first = 0; first < count; first += PIECE, turn++) {
            size_t in_piece = least(PIECE, count - first), chunk = (turn & 1) * WEFT_I_CHUNK;
            lane_want("%zu: %zu of", turn + 1, in_piece);
            for (int rank = 0; rank < RANKS; rank++)
                rank == ME ? lane_want(" in%d+%zu", ME, (ME * count + first) * ITEM)
                           : lane_want(" bounce%d+%zu", rank, chunk + ME * in_piece * ITEM);
            lane_want(" to out%d+%zu\n", ME, first * ITEM);
            for (size_t part = 0; part < RANKS; part++)
                if (part != ME)
                    memcpy(model + chunk + part * in_piece * ITEM,
                           scene.in[ME] + (part * count + first) * ITEM, in_piece * ITEM);
        }
        lane_as_model();
        lane_untouched(count * ITEM);
        lane_done((unsigned)turn + 1, lane_wanted);
    }
    lane_close();
}

/* ---- by the kernel ---- */

enum { FETCH = 64 << 10 }; /* bytes of every other rank that are fetched and folded at once */

/* Folds elements of all inputs, those of the others fetched side by side into our bounce buffer. */
static void want_fetched(size_t first, size_t count, size_t to)
{
    for (int i = 1; i < RANKS; i++)
        lane_want("0: read %zu of process %d, in%d+%zu to bounce%d+%d\n", count * ITEM,
                  LANE_PROCESS + (ME + i) % RANKS, (ME + i) % RANKS, first * ITEM, ME,
                  (i - 1) * FETCH);
    lane_want("0: %zu of", count);
    for (int rank = 0; rank < RANKS; rank++)
        rank == ME ? lane_want(" in%d+%zu", ME, first * ITEM)
                   : lane_want(" bounce%d+%d", ME, ((rank - ME + RANKS) % RANKS - 1) * FETCH);
    lane_want(" to out%d+%zu\n", ME, to * ITEM);
}

TEST(test_folding_by_the_kernel)
{
    static const size_t counts[] = {100, 65536, 65540, 200000};
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_YIELD);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t count = counts[i], first, mine = slice(count, RANKS, ME, &first);
        call(WEFT_I_ALL_REDUCE, count, 0)->cma_from = 1;
        CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
        for (size_t at = first; at < first + mine; at += FETCH / ITEM)
            want_fetched(at, least(FETCH / ITEM, first + mine - at), at);
        for (int k = 1; k < RANKS; k++) {
            int rank = (ME + k) % RANKS;
            size_t begin, theirs = slice(count, RANKS, rank, &begin);
            if (theirs)
                lane_want("1: read %zu of process %d, out%d+%zu to out%d+%zu\n", theirs * ITEM,
                          LANE_PROCESS + rank, rank, begin * ITEM, ME, begin * ITEM);
        }
        lane_done(2, lane_wanted);
        lane_untouched(count * ITEM);
    }
    for (size_t i = 0; i < 3; i++) {
        size_t count = (size_t[]){1, 16384, 40000}[i];
        call(WEFT_I_REDUCE_SCATTER, count, 0)->cma_from = 1;
        CHECK_OK(weft_i_coll_reduce_scatter(&scene.coll));
        for (size_t at = 0; at < count; at += FETCH / ITEM)
            want_fetched(ME * count + at, least(FETCH / ITEM, count - at), at);
        lane_done(1, lane_wanted);
        lane_untouched(count * ITEM);
    }
    /* The slice of a rank is what a transfer is. */
    call(WEFT_I_ALL_REDUCE, 4000, 0)->cma_from = 4001;
    CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
    CHECK(!strstr(lane_log, "read"));
    call(WEFT_I_ALL_REDUCE, 4000, 0)->cma_from = 4000;
    CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
    CHECK_CONTAINS(lane_log, "read");
    lane_close();
}

/* ---- between threads ---- */

#if defined(__aarch64__)
enum { ONE_SHOT = 8 << 10 };
#else
enum { ONE_SHOT = 256 << 10 };
#endif

static void want_direct(size_t first, size_t count)
{
    lane_want("0: %zu of", count);
    for (int rank = 0; rank < RANKS; rank++)
        lane_want(" in%d+%zu", rank, first * ITEM);
}

TEST(test_folding_direct)
{
    size_t most = ONE_SHOT / RANKS / RANKS / ITEM;
    lane_open(RANKS, WEFT_I_CMA_THREADS, WEFT_I_WAIT_YIELD);
    call(WEFT_I_ALL_REDUCE, most, 0);
    CHECK_OK(weft_i_coll_all_reduce(&scene.coll)); /* all of it by every rank */
    want_direct(0, most);
    lane_want(" to out%d+0\n", ME);
    lane_done(1, lane_wanted);
    size_t first, mine = slice(most + 1, RANKS, ME, &first);
    call(WEFT_I_ALL_REDUCE, most + 1, 0); /* a slice by each, to all, our own output first */
    CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
    want_direct(first, mine);
    lane_want(" to");
    for (int i = 0; i < RANKS; i++)
        lane_want(" out%d+%zu", (ME + i) % RANKS, first * ITEM);
    lane_want("\n");
    lane_done(1, lane_wanted);
    for (int rank = 0; rank < RANKS; rank++) { /* an output in its input is not written early */
        weft_i_location *where =
            (weft_i_location *)(void *)scene.heads[rank].entry[EPOCH % WEFT_I_TURNS].payload;
        mine = slice(most, RANKS, ME, &first);
        call(WEFT_I_ALL_REDUCE, most, 0);
        where->out_address = where->in_address;
        scene.coll.ask.out = rank == ME ? scene.in[ME] : scene.out[ME];
        CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
        want_direct(first, mine);
        lane_want(" to");
        for (int i = 0; i < RANKS; i++)
            lane_want((ME + i) % RANKS == rank ? " in%d+%zu" : " out%d+%zu", (ME + i) % RANKS,
                      first * ITEM);
        lane_want("\n");
        lane_done(1, lane_wanted);
    }
    for (int root = 0; root < RANKS; root++) {
        mine = slice(500, RANKS, ME, &first);
        call(WEFT_I_REDUCE, 500, root);
        CHECK_OK(weft_i_coll_reduce(&scene.coll));
        want_direct(first, mine);
        lane_want(" to out%d+%zu\n", root, first * ITEM);
        lane_done(1, lane_wanted);
    }
    call(WEFT_I_REDUCE_SCATTER, 500, 0);
    CHECK_OK(weft_i_coll_reduce_scatter(&scene.coll));
    want_direct(ME * 500, 500);
    lane_want(" to out%d+0\n", ME);
    lane_done(1, lane_wanted);
    lane_close();
}

/* Outputs that cannot be touched: two ranks fold all of it, more of them by pieces, from where the
 * inputs lie. */
TEST(test_folding_inputs_alone)
{
    enum { COUNT = 70000, PIECE = WEFT_I_CHUNK / ITEM };
    lane_open(2, WEFT_I_CMA_THREADS, WEFT_I_WAIT_YIELD);
    weft_i_location *where =
        (weft_i_location *)(void *)scene.heads[0].entry[EPOCH % WEFT_I_TURNS].payload;
    call(WEFT_I_ALL_REDUCE, COUNT, 0);
    where->out_address = 0;
    CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
    lane_done(1, "0: 70000 of in0+0 in1+0 to out1+0\n");
    lane_close();
    lane_open(RANKS, WEFT_I_CMA_THREADS, WEFT_I_WAIT_YIELD);
    where = (weft_i_location *)(void *)scene.heads[3].entry[EPOCH % WEFT_I_TURNS].payload;
    call(WEFT_I_ALL_REDUCE, COUNT, 0);
    where->out_address = 0;
    CHECK_OK(weft_i_coll_all_reduce(&scene.coll));
    size_t turn = 0;
    for (size_t first = 0; first < COUNT; first += PIECE, turn++) {
        size_t begin, mine = slice(least(PIECE, COUNT - first), RANKS, ME, &begin);
        lane_want("%zu: %zu of", turn, mine);
        for (int rank = 0; rank < RANKS; rank++)
            lane_want(" in%d+%zu", rank, (first + begin) * ITEM);
        lane_want(" to out%d+%zu bounce%d+%zu\n", ME, (first + begin) * ITEM, ME,
                  2 * WEFT_I_CHUNK + (turn & 1) * WEFT_I_CHUNK);
    }
    lane_done((unsigned)turn, lane_wanted);
    lane_close();
}

/* ---- what breaks off in the middle is told ---- */

static void breaks(weft_i_coll_kind kind, size_t count, int root, size_t cma_from, unsigned syncs)
{
    for (unsigned n = 0; n <= syncs; n++) {
        call(kind, count, root)->cma_from = cma_from;
        lane_break(n);
        lane_broken(kind == WEFT_I_ALL_REDUCE ? weft_i_coll_all_reduce(&scene.coll)
                    : kind == WEFT_I_REDUCE   ? weft_i_coll_reduce(&scene.coll)
                                              : weft_i_coll_reduce_scatter(&scene.coll),
                    n);
    }
}

TEST(test_folding_breaks_off)
{
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    breaks(WEFT_I_ALL_REDUCE, 70000, 0, SIZE_MAX, 4);
    breaks(WEFT_I_REDUCE, 70000, 2, SIZE_MAX, 4);
    breaks(WEFT_I_REDUCE_SCATTER, 20000, 0, SIZE_MAX, 4);
    for (int i = 0; i < 3; i++) { /* shown, and one does not come to the entry */
        call((weft_i_coll_kind[]){WEFT_I_ALL_REDUCE, WEFT_I_REDUCE, WEFT_I_REDUCE_SCATTER}[i], 100,
             ME)
            ->algorithm = WEFT_I_ALGO_EAGER;
        lane_break(0);
        lane_broken(i == 0   ? weft_i_coll_all_reduce(&scene.coll)
                    : i == 1 ? weft_i_coll_reduce(&scene.coll)
                             : weft_i_coll_reduce_scatter(&scene.coll),
                    0);
        CHECK(!lane_log[0]);
    }
    lane_close();
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    call(WEFT_I_REDUCE, 4000, ME); /* shown beside a location, and one chunk does not come */
    lane_shown();
    scene.heads[3].filled = 0;
    scene.coll.ask.limit_ms = 1;
    lane_broken(weft_i_coll_reduce(&scene.coll), 0);
    lane_close();
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_YIELD);
    breaks(WEFT_I_ALL_REDUCE, 70000, 0, 1, 2);
    breaks(WEFT_I_REDUCE_SCATTER, 20000, 0, 1, 1);
    lane_close();
    lane_open(RANKS, WEFT_I_CMA_THREADS, WEFT_I_WAIT_YIELD);
    breaks(WEFT_I_ALL_REDUCE, 100, 0, SIZE_MAX, 1);
    breaks(WEFT_I_ALL_REDUCE, 70000, 0, SIZE_MAX, 1);
    breaks(WEFT_I_REDUCE, 100, 2, SIZE_MAX, 1);
    lane_close();
}

/* Everybody's factor comes with its arrival, on every way, and only where there are factors. */
TEST(test_folding_factors)
{
    static weft_i_runner *const runners[] = {weft_i_coll_all_reduce, weft_i_coll_reduce,
                                             weft_i_coll_reduce_scatter};
    static const weft_i_coll_kind kinds[] = {WEFT_I_ALL_REDUCE, WEFT_I_REDUCE,
                                             WEFT_I_REDUCE_SCATTER};
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    for (int i = 0; i < 12; i++) {
        bool scales = i < 6, eager = i % 2;
        call(kinds[i / 2 % 3], 1000, ME)->ask.reduction = scales ? WEFT_PREMUL_SUM : WEFT_SUM;
        scene.coll.algorithm = eager ? WEFT_I_ALGO_EAGER : WEFT_I_ALGO_RENDEZVOUS;
        scene.coll.ask.factor = 5.5;
        for (int rank = 0; rank < RANKS; rank++) {
            weft_i_location *where =
                (weft_i_location *)(void *)scene.heads[rank].entry[EPOCH % WEFT_I_TURNS].payload;
            where->factor = rank == ME ? -1 : 0.25 * rank;
            scene.factors[rank] = 99;
        }
        CHECK_OK(runners[i / 2 % 3](&scene.coll));
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(scene.factors[rank] == (!scales ? 99 : rank == ME ? 5.5 : 0.25 * rank));
    }
    lane_close();
}

/* Memory that cannot be read any more: of an input, and of a result. */
TEST(test_folding_of_the_dead)
{
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_YIELD);
    call(WEFT_I_ALL_REDUCE, 70000, 0)->cma_from = 1;
    lane_kill(3);
    CHECK_INT(weft_i_coll_all_reduce(&scene.coll), WEFT_ERR_PEER_DEAD);
    CHECK(weft_i_group_has_ended(scene.group) && !scene.lane.syncs && !strstr(lane_log, " of in"));
    lane_revive();
    call(WEFT_I_REDUCE_SCATTER, 20000, 0)->cma_from = 1;
    lane_kill(3);
    CHECK_INT(weft_i_coll_reduce_scatter(&scene.coll), WEFT_ERR_PEER_DEAD);
    CHECK(!scene.lane.syncs && !strstr(lane_log, " of in"));
    lane_revive();
    lane_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
