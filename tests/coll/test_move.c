/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/host/move.c, coll/host/splits.c */
/*
 * Parts that move from rank to rank, on a lane by hand: from where each byte of the output comes,
 * what this rank writes into its bounce buffers, for whom it waits, and how often it meets the
 * others, on every way that there is.
 */
#include "lane_by_hand.h"

enum { ME = HAND_ME, RANKS = HAND_SIZE, EPOCH = LANE_EPOCH + 1, FIFO_CHUNK = 16 << 10 };

#if defined(__aarch64__)
enum { LONG_FIFO = 60000 };
#else
enum { LONG_FIFO = 300000 }; /* comes round to where it began */
#endif

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void run(weft_i_coll_kind kind, size_t part, int root)
{
    CHECK_OK(weft_i_coll_move(lane_call(kind, part, 1, root)));
    lane_others_untouched(true);
}

/* ---- through the bounce buffers, piece by piece ---- */

/* Part `rank` of our output has come from the chunks of that rank, `at` pieces into them. */
static void came_in_pieces(char *to, int rank, size_t part, size_t piece, size_t at)
{
    for (size_t first = 0, turn = 0; first < part; first += piece, turn++) {
        size_t bytes = least(piece, part - first);
        lane_expect(to + first, LANE_BOUNCE, rank, (turn & 1) * WEFT_I_CHUNK + at * bytes, bytes);
    }
}

/* What we put into our chunks: our input, or (`parts`) those of the others side by side. */
static void put_in_pieces(size_t part, size_t piece, bool parts)
{
    const char *in = scene.in[ME];
    char *model = lane_new_model();
    for (size_t first = 0, turn = 0; first < part; first += piece, turn++) {
        size_t bytes = least(piece, part - first);
        for (size_t to = 0; to < (parts ? RANKS : 1); to++)
            if (!parts || to != ME)
                memcpy(model + (turn & 1) * WEFT_I_CHUNK + to * bytes, in + to * part + first,
                       bytes);
    }
}

static unsigned syncs_of(size_t part, size_t piece)
{
    return 1 + (unsigned)((part + piece - 1) / piece);
}

TEST(test_move_pieces)
{
    enum { PART = 300000 };
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    for (int root = 0; root < RANKS; root++) {
        run(WEFT_I_GATHER, PART, root);
        for (int rank = 0; root == ME && rank < RANKS; rank++)
            if (rank != ME)
                came_in_pieces(scene.out[ME] + rank * PART, rank, PART, WEFT_I_CHUNK, 0);
        if (root == ME)
            lane_expect(scene.out[ME] + ME * PART, LANE_IN, ME, 0, PART);
        lane_untouched(root == ME ? RANKS * PART : 0);
        root == ME ? (void)lane_new_model() : put_in_pieces(PART, WEFT_I_CHUNK, false);
        lane_as_model();
        lane_done(syncs_of(PART, WEFT_I_CHUNK), "");
        run(WEFT_I_BROADCAST, PART, root);
        if (root != ME)
            came_in_pieces(scene.out[ME], root, PART, WEFT_I_CHUNK, 0);
        lane_untouched(root == ME ? 0 : PART);
        root != ME ? (void)lane_new_model() : put_in_pieces(PART, WEFT_I_CHUNK, false);
        lane_as_model();
        lane_done(syncs_of(PART, WEFT_I_CHUNK), "");
    }
    for (int form = 0; form < 2; form++) { /* our own part at the entry, or with each piece */
        run(form ? WEFT_I_LOW_CONTENTION_ALL_GATHER : WEFT_I_ALL_GATHER, PART, 0);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                came_in_pieces(scene.out[ME] + rank * PART, rank, PART, WEFT_I_CHUNK, 0);
        lane_expect(scene.out[ME] + ME * PART, LANE_IN, ME, 0, PART);
        lane_untouched(RANKS * PART);
        put_in_pieces(PART, WEFT_I_CHUNK, false);
        lane_as_model();
        lane_done(syncs_of(PART, WEFT_I_CHUNK), "");
    }
    lane_close();
}

/* A chunk has a piece for each rank. */
TEST(test_move_pieces_of_parts)
{
    enum { PART = 100000, PIECE = WEFT_I_CHUNK / RANKS };
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    run(WEFT_I_ALL_TO_ALL, PART, 0);
    for (int rank = 0; rank < RANKS; rank++)
        if (rank != ME)
            came_in_pieces(scene.out[ME] + rank * PART, rank, PART, PIECE, ME);
    lane_expect(scene.out[ME] + ME * PART, LANE_IN, ME, ME * PART, PART);
    lane_untouched(RANKS * PART);
    put_in_pieces(PART, PIECE, true);
    lane_as_model();
    lane_done(syncs_of(PART, PIECE), "");
    for (int root = 0; root < RANKS; root++) {
        run(WEFT_I_SCATTER, PART, root);
        if (root == ME)
            lane_expect(scene.out[ME], LANE_IN, ME, ME * PART, PART);
        else
            came_in_pieces(scene.out[ME], root, PART, PIECE, ME);
        lane_untouched(PART);
        root != ME ? (void)lane_new_model() : put_in_pieces(PART, PIECE, true);
        lane_as_model();
        lane_done(syncs_of(PART, PIECE), "");
    }
    lane_close();
}

/* Where every rank has a core, the pieces of what goes one way are a quarter of it, in lines, and
 * not less than 16 KiB; from all to all they are as large as they can be. */
TEST(test_move_short_pieces)
{
    static const struct {
        size_t part, piece;
    } cases[] = {{4096, 16384},   {40000, 16384},  {65536, 16384}, {65540, 16512},
                 {100000, 25088}, {131072, 32768}, {200000, 32768}};
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run(WEFT_I_SCATTER, cases[i].part, 2);
        came_in_pieces(scene.out[ME], 2, cases[i].part, cases[i].piece, ME);
        lane_untouched(cases[i].part);
        lane_done(syncs_of(cases[i].part, cases[i].piece), "");
        run(WEFT_I_SCATTER, cases[i].part, ME);
        put_in_pieces(cases[i].part, cases[i].piece, true);
        lane_as_model();
        run(WEFT_I_ALL_TO_ALL, cases[i].part, 0);
        put_in_pieces(cases[i].part, WEFT_I_CHUNK / RANKS, true);
        lane_as_model();
    }
    run(WEFT_I_BROADCAST, 4096, 0); /* too little for a fifo */
    lane_expect(scene.out[ME], LANE_BOUNCE, 0, 0, 4096);
    lane_done(2, "");
    lane_close();
}

/* ---- through fifos ---- */

static void came_in_fifo(char *to, int rank, size_t part, size_t at, size_t chunk, size_t room)
{
    for (size_t first = 0; first < part; first += chunk)
        lane_expect(to + first, LANE_BOUNCE, rank, at + first % room, least(chunk, part - first));
}

static void put_in_fifo(size_t part, size_t at, size_t chunk, size_t room)
{
    char *model = lane_new_model();
    for (size_t first = 0; first < part; first += chunk)
        memcpy(model + at + first % room, scene.in[ME] + first, least(chunk, part - first));
}

static void counted(uint64_t filled, uint64_t drained)
{
    CHECK_INT(scene.heads[ME].filled, filled ? (uint64_t)EPOCH << 32 | filled : 0);
    CHECK_INT(scene.heads[ME].drained, drained ? (uint64_t)EPOCH << 32 | drained : 0);
}

TEST(test_move_fifo)
{
    static const size_t parts[] = {4097, 16384, 16385, 60000, LONG_FIFO};
    enum { ROOM = 2 * WEFT_I_CHUNK };
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t part = parts[i], chunks = (part + FIFO_CHUNK - 1) / FIFO_CHUNK;
        size_t drains = part > ROOM ? chunks : 0;
        run(WEFT_I_GATHER, part, ME);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                came_in_fifo(scene.out[ME] + (size_t)rank * part, rank, part, 0, FIFO_CHUNK, ROOM);
        lane_expect(scene.out[ME] + ME * part, LANE_IN, ME, 0, part);
        lane_untouched(RANKS * part);
        counted(0, drains);
        lane_done(1, "");
        run(WEFT_I_GATHER, part, 3);
        lane_untouched(0);
        put_in_fifo(part, 0, FIFO_CHUNK, ROOM);
        lane_as_model();
        counted(chunks, 0);
        lane_done(1, "");
        run(WEFT_I_BROADCAST, part, 0);
        came_in_fifo(scene.out[ME], 0, part, 0, FIFO_CHUNK, ROOM);
        lane_untouched(part);
        counted(0, drains);
        lane_done(1, "");
        run(WEFT_I_BROADCAST, part, ME);
        lane_untouched(0);
        put_in_fifo(part, 0, FIFO_CHUNK, ROOM);
        lane_as_model();
        counted(chunks, 0);
        lane_done(1, "");
    }
    lane_close();
}

/* The first half of the ranks behind the root get their parts of a scatter through its bounce
 * buffers, chunk by chunk in turn; the others read them from its memory. */
TEST(test_move_shared_scatter)
{
    static const size_t parts[] = {5000, 100000, 150000};
    enum { ROOM = 2 * WEFT_I_CHUNK, SERVED = RANKS / 2 };
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_SPIN);
#if defined(__aarch64__)
    lane_close();
    SKIP("fifos of this length do not pay here");
#endif
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t part = parts[i], pieces = (part + FIFO_CHUNK - 1) / FIFO_CHUNK;
        bool drains = pieces * SERVED * FIFO_CHUNK > ROOM;
        run(WEFT_I_SCATTER, part, ME);
        char *model = lane_new_model();
        for (size_t k = 0; k < pieces * SERVED; k++) {
            size_t rank = 2 + k % SERVED, at = k / SERVED * FIFO_CHUNK;
            memcpy(model + k * FIFO_CHUNK % ROOM, scene.in[ME] + rank * part + at,
                   least(FIFO_CHUNK, part - at));
        }
        lane_as_model();
        lane_expect(scene.out[ME], LANE_IN, ME, ME * part, part);
        lane_untouched(part);
        counted(pieces * SERVED, 0);
        lane_done(1, "");
        for (int root = 0; root < RANKS; root += 3) { /* we are the first, and the second */
            size_t place = root ? 1 : 0;
            run(WEFT_I_SCATTER, part, root);
            for (size_t p = 0; p < pieces; p++)
                lane_expect(scene.out[ME] + p * FIFO_CHUNK, LANE_BOUNCE, root,
                            (p * SERVED + place) * FIFO_CHUNK % ROOM,
                            least(FIFO_CHUNK, part - p * FIFO_CHUNK));
            lane_untouched(part);
            counted(0, drains ? (pieces - 1) * SERVED + place + 1 : 0);
            lane_done(1, "");
        }
        char log[128];
        snprintf(log, sizeof log, "0: read %zu of process %d, in2+%zu to out1+0\n", part,
                 LANE_PROCESS + 2, ME * part);
        run(WEFT_I_SCATTER, part, 2);
        lane_expect(scene.out[ME], LANE_IN, 2, ME * part, part);
        lane_done(1, log);
    }
    lane_close();
}

/* ---- by the kernel ---- */

static void reads(char *log, size_t room, int rank, size_t from, size_t to, size_t part)
{
    size_t used = strlen(log);
    snprintf(log + used, room - used, "0: read %zu of process %d, in%d+%zu to out1+%zu\n", part,
             LANE_PROCESS + rank, rank, from, to);
}

/* From the next rank on; what was read before all had come, of the same try, is not read again. */
TEST(test_move_by_the_kernel)
{
    enum { PART = 70000 };
    static const weft_i_coll_kind kinds[] = {WEFT_I_ALL_GATHER, WEFT_I_ALL_TO_ALL, WEFT_I_GATHER};
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_YIELD);
    for (int i = 0; i < 6; i++) {
        weft_i_coll *coll = lane_call(kinds[i % 3], PART, 1, ME);
        char log[1024] = "";
        coll->cma_from = PART;
        for (int again = 0; again < (i < 3 ? 2 : 1); again++)
            for (int k = 1; k < RANKS; k++) {
                int rank = (ME + k) % RANKS;
                weft_i_location *where = (weft_i_location *)(void *)scene.heads[rank]
                                             .entry[EPOCH % WEFT_I_TURNS]
                                             .payload;
                where->attempt = i < 3 ? 0 : 5; /* 0: it does not count */
                reads(log, sizeof log, rank, kinds[i % 3] == WEFT_I_ALL_TO_ALL ? ME * PART : 0,
                      (size_t)rank * PART, PART);
            }
        CHECK_OK(weft_i_coll_move(coll));
        for (int rank = 0; rank < RANKS; rank++)
            lane_expect(scene.out[ME] + rank * PART, LANE_IN, rank,
                        kinds[i % 3] == WEFT_I_ALL_TO_ALL ? ME * PART : 0, PART);
        lane_untouched(RANKS * PART);
        lane_done(1, log);
        lane_new_model();
        lane_as_model();
    }
    weft_i_coll *coll = lane_call(WEFT_I_ALL_GATHER, PART, 1, 0);
    coll->cma_from = PART + 1; /* too short for it */
    CHECK_OK(weft_i_coll_move(coll));
    lane_done(2, "");
    /* Those who take the same bytes begin at different pages of it. */
    static const struct {
        int root;
        size_t begin;
    } turns[] = {{0, 0}, {3, 5 * 4096}, {2, 11 * 4096}};
    for (int i = 0; i < 3; i++) {
        int root = turns[i].root;
        size_t begin = turns[i].begin;
        char log[256] = "";
        coll = lane_call(WEFT_I_BROADCAST, PART, 1, root);
        coll->cma_from = PART;
        CHECK_OK(weft_i_coll_move(coll));
        reads(log, sizeof log, root, begin, begin, PART - begin);
        if (begin)
            reads(log, sizeof log, root, 0, 0, begin);
        lane_expect(scene.out[ME], LANE_IN, root, 0, PART);
        lane_done(1, log);
    }
    coll = lane_call(WEFT_I_GATHER, PART, 1, 2); /* gives, and only waits */
    coll->cma_from = PART;
    CHECK_OK(weft_i_coll_move(coll));
    lane_untouched(0);
    lane_done(1, "");
    lane_close();
}

/* ---- between threads ---- */

static weft_i_location *location_of(int rank)
{
    return (weft_i_location *)(void *)scene.heads[rank].entry[EPOCH % WEFT_I_TURNS].payload;
}

TEST(test_move_pulls)
{
    enum { PART = 3000 };
    lane_open(RANKS, WEFT_I_CMA_THREADS, WEFT_I_WAIT_YIELD);
    run(WEFT_I_ALL_GATHER, PART, 0);
    for (int rank = 0; rank < RANKS; rank++)
        lane_expect(scene.out[ME] + rank * PART, LANE_IN, rank, 0, PART);
    lane_untouched(RANKS * PART);
    lane_done(1, "");
    run(WEFT_I_ALL_TO_ALL, PART, 0);
    for (int rank = 0; rank < RANKS; rank++)
        lane_expect(scene.out[ME] + rank * PART, LANE_IN, rank, ME * PART, PART);
    lane_untouched(RANKS * PART);
    lane_done(1, "");
    for (int root = 0; root < RANKS; root++) {
        run(WEFT_I_SCATTER, PART, root);
        lane_expect(scene.out[ME], LANE_IN, root, ME * PART, PART);
        lane_untouched(PART);
        lane_done(1, "");
    }
    lane_new_model();
    lane_as_model();
    lane_close();
}

/* Each rank gives its part of a gather into the output of the root; and of all if some input cannot
 * be touched. */
TEST(test_move_pushes)
{
    enum { PART = 3000 };
    lane_open(RANKS, WEFT_I_CMA_THREADS, WEFT_I_WAIT_YIELD);
    for (int root = 0; root < RANKS; root++) {
        CHECK_OK(weft_i_coll_move(lane_call(WEFT_I_GATHER, PART, 1, root)));
        for (int rank = 0; rank < RANKS; rank++) {
            lane_expect(scene.out[rank], LANE_OUT, rank, 0, ME * PART);
            if (rank == root)
                lane_expect(scene.out[rank] + ME * PART, LANE_IN, ME, 0, PART);
            else
                lane_expect(scene.out[rank] + ME * PART, LANE_OUT, rank, ME * PART, PART);
            lane_expect(scene.out[rank] + (ME + 1) * PART, LANE_OUT, rank, (ME + 1) * PART,
                        LANE_BYTES - (ME + 1) * PART);
        }
        lane_others_untouched(false);
        lane_done(1, "");
    }
    for (int parts = 0; parts < 2; parts++) {
        lane_call(parts ? WEFT_I_ALL_TO_ALL : WEFT_I_ALL_GATHER, PART, 1, 0);
        location_of(3)->in_address = 0;
        CHECK_OK(weft_i_coll_move(&scene.coll));
        for (int rank = 0; rank < RANKS; rank++) {
            lane_expect(scene.out[rank], LANE_OUT, rank, 0, ME * PART);
            lane_expect(scene.out[rank] + ME * PART, LANE_IN, ME, parts ? (size_t)rank * PART : 0,
                        PART);
            lane_expect(scene.out[rank] + (ME + 1) * PART, LANE_OUT, rank, (ME + 1) * PART,
                        LANE_BYTES - (ME + 1) * PART);
        }
        lane_done(1, "");
    }
    lane_close();
}

/* The others take all but the last slice of a broadcast, which the root gives them meanwhile. */
TEST(test_move_shared_broadcast)
{
    static const size_t parts[] = {100, 128, 512, 513, 3000, 100001};
    lane_open(RANKS, WEFT_I_CMA_THREADS, WEFT_I_WAIT_YIELD);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t part = parts[i], each = ((part + 3) / 4 + 127) / 128 * 128;
        size_t last = least(3 * each, part);
        run(WEFT_I_BROADCAST, part, 2);
        lane_expect(scene.out[ME], LANE_IN, 2, 0, last);
        lane_untouched(last);
        lane_done(1, "");
        CHECK_OK(weft_i_coll_move(lane_call(WEFT_I_BROADCAST, part, 1, ME)));
        for (int rank = 0; rank < RANKS; rank++) {
            size_t given = rank == ME ? 0 : part - last;
            lane_expect(scene.out[rank], LANE_OUT, rank, 0, last);
            lane_expect(scene.out[rank] + last, LANE_IN, ME, last, given);
            lane_expect(scene.out[rank] + last + given, LANE_OUT, rank, last + given, 1000);
        }
        lane_others_untouched(false);
        lane_done(1, "");
    }
    lane_close();
}

/* ---- in symmetric memory ---- */

enum { SYMM = 40000, SERIAL = 3, SYMM_IN = 1024, SYMM_OUT = 20480 };

static weft_i_segment symm_segments[RANKS], *symm_blocks[RANKS];
static weft_i_registration symmetric;

/* This rank's operands are a tensor of its block if they are to be; those of the others lie in
 * theirs, which have the bytes of their bounce buffers. */
static weft_i_coll *symm_call(weft_i_coll_kind kind, size_t part, int root, weft_i_block *block,
                              bool in, bool out)
{
    weft_i_coll *coll = lane_call(kind, part, 1, root);
    weft_i_lease inputs = {.block = block, .offset = SYMM_IN, .bytes = 4 * part},
                 outputs = {.block = block, .offset = SYMM_OUT, .bytes = 4 * part};
    symmetric = (weft_i_registration){.references = 1,
                                      .group = scene.group->key,
                                      .serial = SERIAL,
                                      .size = RANKS,
                                      .blocks = symm_blocks};
    for (int rank = 0; rank < RANKS; rank++) {
        symm_segments[rank] = *scene.blocks[rank];
        symm_blocks[rank] = rank == ME ? block->segment : &symm_segments[rank];
    }
    memcpy(block->segment->base, lane_bytes(LANE_BOUNCE, ME, 0), SYMM);
    block->registrations = &symmetric;
    if (in) {
        coll->in_tensor =
            weft_i_block_tensor(&inputs, WEFT_U8, WEFT_SHAPE((int64_t)(4 * part)), NULL);
        coll->ask.in = block->segment->base + SYMM_IN;
    }
    if (out) {
        coll->out_tensor =
            weft_i_block_tensor(&outputs, WEFT_U8, WEFT_SHAPE((int64_t)(4 * part)), NULL);
        coll->ask.out = block->segment->base + SYMM_OUT;
    }
    return coll;
}

static void symm_location(int rank, bool in, bool out)
{
    weft_i_location *where =
        (weft_i_location *)(void *)scene.heads[rank].entry[EPOCH % WEFT_I_TURNS].payload;
    where->in_serial = in ? SERIAL : 0;
    where->out_serial = out ? SERIAL : 0;
    where->in_offset = SYMM_IN + 128 * (size_t)rank; /* each where it wants */
    where->out_offset = SYMM_OUT + 128 * (size_t)rank;
}

/* Of a gather or scatter only the root's operand is touched, wherever in the memory of the others'
 * operands it lies. */
TEST(test_move_symmetric_root)
{
    enum { PART = 3000, ROOT = 2 };
    weft_i_block *block = NULL;
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    CHECK_OK(weft_i_block_new(WEFT_CPU, SYMM, NULL, &block));
    for (int by_out = 0; by_out < 2; by_out++) { /* beside our inputs, or our outputs */
        symm_call(WEFT_I_GATHER, PART, ROOT, block, !by_out, by_out);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                symm_location(rank, !by_out, by_out || rank == ROOT);
        CHECK_OK(weft_i_coll_move(&scene.coll));
        char *there = symm_segments[ROOT].base + SYMM_OUT + 128 * ROOT + ME * PART;
        if (by_out)
            lane_expect(there, LANE_IN, ME, 0, PART);
        else
            lane_expect(there, LANE_BOUNCE, ME, SYMM_IN, PART);
        lane_done(1, "");
        symm_call(WEFT_I_SCATTER, PART, ROOT, block, by_out, !by_out);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                symm_location(rank, by_out || rank == ROOT, !by_out);
        CHECK_OK(weft_i_coll_move(&scene.coll));
        lane_expect(by_out ? scene.out[ME] : block->segment->base + SYMM_OUT, LANE_BOUNCE, ROOT,
                    SYMM_IN + 128 * ROOT + ME * PART, PART);
        lane_done(1, "");
        /* The root's lies elsewhere: through the bounce buffers. */
        symm_call(WEFT_I_SCATTER, PART, ROOT, block, by_out, !by_out);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                symm_location(rank, by_out && rank != ROOT, !by_out);
        CHECK_OK(weft_i_coll_move(&scene.coll));
        lane_expect(by_out ? scene.out[ME] : block->segment->base + SYMM_OUT, LANE_BOUNCE, ROOT,
                    ME * PART, PART);
        lane_done(2, "");
    }
    block->registrations = NULL;
    lane_close();
    weft_i_block_drop(block);
}

/* ---- shown at the entry ---- */

static void absent(int rank)
{
    scene.heads[rank].entry[EPOCH % WEFT_I_TURNS].arrival = 0;
}

static weft_status show(weft_i_coll_kind kind, size_t part, int root, weft_i_algorithm how,
                        bool is_short, int present)
{
    weft_i_coll *coll = lane_call(kind, part, 1, root);
    coll->algorithm = how;
    coll->is_short = is_short;
    coll->ask.limit_ms = present == RANKS ? 20000 : 1;
    for (int rank = 0; present < RANKS && rank < RANKS; rank++)
        if (rank != present)
            absent(rank);
    for (int rank = 0; rank < RANKS; rank++) /* what came inline */
        if (rank != ME && how == WEFT_I_ALGO_INLINE)
            memcpy(scene.heads[rank].entry[EPOCH % WEFT_I_TURNS].payload,
                   lane_bytes(LANE_BOUNCE, rank, 0), WEFT_I_INLINE);
    weft_status status = weft_i_coll_move(coll);
    lane_others_untouched(true);
    return status;
}

/* Where the data of an entry lies in a rank's bounce buffers. */
static size_t eager_at(bool is_short)
{
    return is_short ? WEFT_I_SHORTS_AT + EPOCH % WEFT_I_TURNS * WEFT_I_SHORT
                    : EPOCH % WEFT_I_EAGERS * WEFT_I_EAGER;
}

static void shown_by_all(size_t part)
{
    size_t at = eager_at(false);
    for (int form = 0; form < 2; form++) {
        CHECK_OK(show(form ? WEFT_I_LOW_CONTENTION_ALL_GATHER : WEFT_I_ALL_GATHER, part, 0,
                      WEFT_I_ALGO_EAGER, false, RANKS));
        for (size_t rank = 0; rank < RANKS; rank++)
            lane_expect(scene.out[ME] + rank * part, rank == ME ? LANE_IN : LANE_BOUNCE, (int)rank,
                        rank == ME ? 0 : at, part);
        lane_untouched(RANKS * part);
        memcpy(lane_new_model() + at, scene.in[ME], part);
        lane_as_model();
        lane_done(0, "");
    }
    CHECK_OK(show(WEFT_I_ALL_TO_ALL, part, 0, WEFT_I_ALGO_EAGER, false, RANKS));
    for (size_t rank = 0; rank < RANKS; rank++)
        lane_expect(scene.out[ME] + rank * part, rank == ME ? LANE_IN : LANE_BOUNCE, (int)rank,
                    (rank == ME ? 0 : at) + ME * part, part);
    lane_untouched(RANKS * part);
    memcpy(lane_new_model() + at, scene.in[ME], ME * part); /* not our own part */
    memcpy(lane_model + at + (ME + 1) * part, scene.in[ME] + (ME + 1) * part,
           (RANKS - ME - 1) * part);
    lane_as_model();
    lane_done(0, "");
}

static void shown_one_way(size_t part, bool is_short)
{
    size_t at = eager_at(is_short);
    weft_i_algorithm how = WEFT_I_ALGO_EAGER;
    CHECK_OK(show(WEFT_I_BROADCAST, part, 2, how, is_short, 2)); /* waits for the root alone */
    lane_expect(scene.out[ME], LANE_BOUNCE, 2, at, part);
    lane_untouched(part);
    lane_done(0, "");
    CHECK_INT(show(WEFT_I_BROADCAST, part, 2, how, is_short, 3), WEFT_ERR_TIMEOUT);
    CHECK_OK(show(WEFT_I_SCATTER, part, 2, how, is_short, 2));
    lane_expect(scene.out[ME], LANE_BOUNCE, 2, at + ME * part, part);
    lane_untouched(part);
    CHECK_OK(show(WEFT_I_BROADCAST, part, ME, how, is_short, ME)); /* for nobody */
    lane_untouched(0);
    memcpy(lane_new_model() + at, scene.in[ME], part);
    lane_as_model();
    CHECK_OK(show(WEFT_I_SCATTER, part, ME, how, is_short, ME));
    lane_expect(scene.out[ME], LANE_IN, ME, ME * part, part);
    lane_untouched(part);
    CHECK_OK(show(WEFT_I_GATHER, part, 3, how, is_short, ME));
    lane_untouched(0);
    memcpy(lane_new_model() + at, scene.in[ME], part);
    lane_as_model();
    CHECK_INT(show(WEFT_I_GATHER, part, ME, how, is_short, 2), WEFT_ERR_TIMEOUT); /* for all */
    CHECK_OK(show(WEFT_I_GATHER, part, ME, how, is_short, RANKS));
    for (size_t rank = 0; rank < RANKS; rank++)
        lane_expect(scene.out[ME] + rank * part, rank == ME ? LANE_IN : LANE_BOUNCE, (int)rank,
                    rank == ME ? 0 : at, part);
    lane_new_model();
    lane_as_model();
    lane_done(0, "");
}

TEST(test_move_shown)
{
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    shown_by_all(1);
    shown_by_all(WEFT_I_EAGER / RANKS);
    shown_one_way(1, true);
    shown_one_way(WEFT_I_SHORT / RANKS, true);
    shown_one_way(WEFT_I_EAGER / RANKS, false);
    lane_call(WEFT_I_ALL_GATHER, 3000, 1, 0);
    lane_shown();
    CHECK_OK(weft_i_coll_move(&scene.coll));
    for (int rank = 0; rank < RANKS; rank++)
        lane_expect(scene.out[ME] + rank * 3000, rank == ME ? LANE_IN : LANE_BOUNCE, rank,
                    rank == ME ? 0 : eager_at(false), 3000);
    lane_done(0, "");
    for (int gather = 0; gather < 2; gather++) { /* beside the arrival words */
        enum { FEW = WEFT_I_INLINE / RANKS };
        CHECK_OK(show(gather ? WEFT_I_ALL_GATHER : WEFT_I_ALL_TO_ALL, FEW, 0, WEFT_I_ALGO_INLINE,
                      false, RANKS));
        for (int rank = 0; rank < RANKS; rank++)
            lane_expect(scene.out[ME] + rank * FEW, rank == ME ? LANE_IN : LANE_BOUNCE, rank,
                        gather ? 0 : ME * FEW, FEW);
        CHECK(!memcmp(scene.heads[ME].entry[EPOCH % WEFT_I_TURNS].payload, scene.in[ME],
                      gather ? FEW : RANKS * FEW));
        lane_untouched(RANKS * FEW);
        lane_new_model();
        lane_as_model();
        lane_done(0, "");
    }
    lane_close();
}

/* What goes one way, and is not short, comes chunk by chunk behind the arrival. */
TEST(test_move_shown_in_chunks)
{
    static const struct {
        size_t part, chunk;
    } cases[] = {{4097, 4 << 10}, {16384, 4 << 10}, {16385, 8 << 10}, {65536, 8 << 10}};
    size_t at = eager_at(false);
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t part = cases[i].part, chunks = (part + cases[i].chunk - 1) / cases[i].chunk;
        CHECK_OK(show(WEFT_I_BROADCAST, part, ME, WEFT_I_ALGO_EAGER, false, ME));
        put_in_fifo(part, at, cases[i].chunk, WEFT_I_EAGER);
        lane_as_model();
        counted(chunks, 0);
        CHECK_OK(show(WEFT_I_BROADCAST, part, 0, WEFT_I_ALGO_EAGER, false, 0));
        came_in_fifo(scene.out[ME], 0, part, at, cases[i].chunk, WEFT_I_EAGER);
        lane_untouched(part);
        counted(0, 0);
        lane_call(WEFT_I_BROADCAST, part, 1, 0); /* one chunk is missing */
        scene.coll.algorithm = WEFT_I_ALGO_EAGER;
        scene.coll.ask.limit_ms = 1;
        scene.heads[0].filled = (uint64_t)EPOCH << 32 | (chunks - 1);
        CHECK_INT(weft_i_coll_move(&scene.coll), WEFT_ERR_TIMEOUT);
        scene.group->board->revoked = 0;
    }
    lane_close();
}

/* ---- own parts that are too long to be copied at the entry ---- */

static void move_long(weft_i_coll_kind kind, char *in, char *out, size_t part)
{
    uint32_t facts = weft_i_kinds[kind].facts;
    weft_i_coll *coll = lane_call(kind, 1, 1, ME);
    size_t from = facts & WEFT_I_HAS_PARTS ? ME * part : 0,
           to = facts & WEFT_I_PLACES_PARTS ? ME * part : 0;
    for (size_t at = 0; at < part; at += 1000) /* here and there */
        in[from + at] = (char)(1 + at % 251);
    coll->ask.in = in;
    coll->ask.out = out;
    coll->ask.count = part;
    coll->ask.in_bytes = facts & WEFT_I_HAS_PARTS ? RANKS * part : part;
    coll->ask.out_bytes = facts & WEFT_I_PLACES_PARTS ? RANKS * part : part;
    CHECK_OK(weft_i_coll_move(coll));
    CHECK(!coll->own_done && !memcmp(out + to, in + from, part));
}

TEST(test_move_long_own_part)
{
    enum { PART = (4 << 20) + 1 };
    static const weft_i_coll_kind kinds[] = {WEFT_I_SCATTER, WEFT_I_GATHER, WEFT_I_ALL_TO_ALL};
    for (int mode = 0; mode < 2; mode++) {
        lane_open(RANKS, WEFT_I_CMA_KERNEL, mode ? WEFT_I_WAIT_SPIN : WEFT_I_WAIT_YIELD);
        for (int i = 0; i < 3; i++) {
            char *in = calloc(RANKS, PART), *out = calloc(RANKS, PART);
            CHECK(in && out);
            move_long(kinds[i], in, out, PART);
            free(in);
            free(out);
        }
        lane_close();
    }
}

/* ---- what breaks off in the middle is told ---- */

static void breaks(weft_i_coll_kind kind, size_t part, int root, size_t cma_from, unsigned syncs)
{
    for (unsigned n = 0; n <= syncs; n++) {
        lane_call(kind, part, 1, root)->cma_from = cma_from;
        lane_break(n);
        lane_broken(weft_i_coll_move(&scene.coll), n);
    }
}

TEST(test_move_breaks_off)
{
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD);
    breaks(WEFT_I_ALL_GATHER, 300000, 0, SIZE_MAX, 4);
    lane_close();
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_SPIN);
    breaks(WEFT_I_ALL_GATHER, 70000, 0, 1, 1);
    breaks(WEFT_I_BROADCAST, 20000, 2, SIZE_MAX, 1);
    breaks(WEFT_I_GATHER, 20000, 2, SIZE_MAX, 1);
    for (int root = 0; root < RANKS; root++)
        breaks(WEFT_I_SCATTER, 20000, root, SIZE_MAX, 1);
    lane_close();
    lane_open(RANKS, WEFT_I_CMA_THREADS, WEFT_I_WAIT_YIELD);
    breaks(WEFT_I_ALL_GATHER, 3000, 0, SIZE_MAX, 1);
    for (int root = 0; root < 2; root++) {
        breaks(WEFT_I_BROADCAST, 3000, root, SIZE_MAX, 1);
        breaks(WEFT_I_GATHER, 3000, root, SIZE_MAX, 1);
    }
    lane_close();
}

/* Memory that cannot be read any more. */
TEST(test_move_from_the_dead)
{
    static const weft_i_coll_kind kinds[] = {WEFT_I_ALL_GATHER, WEFT_I_BROADCAST, WEFT_I_SCATTER};
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_YIELD);
    for (int i = 0; i < 3; i++) {
        lane_call(kinds[i], 70000, 1, 2)->cma_from = 1;
        lane_kill(2);
        CHECK_INT(weft_i_coll_move(&scene.coll), WEFT_ERR_PEER_DEAD);
        CHECK(weft_i_group_has_ended(scene.group) && !scene.lane.syncs);
        lane_revive();
    }
    lane_close();
}

/* A root that serves waits for exactly what it needs the place of. */
TEST(test_move_serves_in_time)
{
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_SPIN);
#if defined(__aarch64__)
    lane_close();
    SKIP("fifos of this length do not pay here");
#endif
    lane_call(WEFT_I_SCATTER, 10 * FIFO_CHUNK, 1, ME); /* 20 chunks, with room for 16 */
    scene.heads[0].drained = 0;
    scene.heads[2].drained = (uint64_t)EPOCH << 32 | 3;
    scene.heads[3].drained = (uint64_t)EPOCH << 32 | 4;
    CHECK_OK(weft_i_coll_move(&scene.coll));
    counted(20, 0);
    lane_close();
}

/* A chunk that is not filled, or a place that is not free. */
TEST(test_move_fifo_breaks_off)
{
    lane_open(RANKS, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_SPIN);
#if defined(__aarch64__)
    lane_close();
    SKIP("fifos of this length do not pay here");
#endif
    for (size_t chunk = 0; chunk < 20; chunk += 6) {
        static const weft_i_coll_kind kinds[] = {WEFT_I_BROADCAST, WEFT_I_SCATTER, WEFT_I_GATHER};
        for (int i = 0; i < 3; i++) { /* they give */
            lane_call(kinds[i], i == 1 ? LONG_FIFO / 2 : LONG_FIFO, 1, i == 2 ? ME : 0);
            scene.coll.ask.limit_ms = 1;
            scene.heads[0].filled = (uint64_t)EPOCH << 32 | chunk;
            lane_broken(weft_i_coll_move(&scene.coll), 0);
        }
        for (int i = 0; i < 3; i++) { /* we do, and rank 2 takes */
            if (chunk > 2)
                continue; /* there is room for 16 of 19 or 20 */
            lane_call(kinds[i], i == 1 ? LONG_FIFO / 2 : LONG_FIFO, 1, i == 2 ? 2 : ME);
            scene.coll.ask.limit_ms = 1;
            scene.heads[2].drained = (uint64_t)EPOCH << 32 | chunk;
            lane_broken(weft_i_coll_move(&scene.coll), 0);
            CHECK_INT(scene.heads[ME].filled, (uint64_t)EPOCH << 32 | (16 + chunk));
        }
    }
    lane_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
