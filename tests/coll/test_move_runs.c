/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/host/move.c, coll/lane/fifo.c */
/* In which order ranks fill and empty the fifos of gathers and all_gathers, on a lane by hand. */
#include "lane_by_hand.h"

enum { ME = HAND_ME, RANKS = HAND_SIZE, EPOCH = LANE_EPOCH + 1 };
enum { CHUNK = 16 << 10, RUN = WEFT_I_CHUNK / CHUNK, ROOM = 2 * RUN };

static uint64_t count(uint64_t chunks)
{
    return (uint64_t)EPOCH << 32 | chunks;
}

/* The first chunks of a rank's part have come through its bounce buffers, and no others. */
static void came(int rank, size_t part, size_t chunks)
{
    size_t first = (size_t)rank * part, bytes = chunks * CHUNK;
    CHECK(chunks <= ROOM);
    lane_expect(scene.out[ME] + first, LANE_BOUNCE, rank, 0, bytes);
    lane_expect(scene.out[ME] + first + bytes, LANE_OUT, ME, first + bytes, part - bytes);
}

/* It takes half a room of one rank before it turns to the next, so that it writes to one place at a
 * time, and gives that room back when it has taken it of all. */
TEST(test_move_gather_in_runs)
{
    enum { PART = 300000 };
    static const struct {
        uint64_t filled[RANKS];
        size_t came[RANKS];
        uint64_t drained;
    } cases[] = {{{ROOM, 0, RUN - 1, ROOM}, {0, 0, RUN - 1, 0}, 0},
                 {{ROOM, 0, ROOM, 3}, {0, 0, RUN, 3}, 0},
                 {{1, 0, RUN, RUN}, {1, 0, RUN, RUN}, 0},
                 {{ROOM, 0, RUN, ROOM}, {RUN, 0, RUN, RUN}, RUN},
                 {{ROOM, 0, ROOM, RUN + 1}, {RUN, 0, ROOM, RUN + 1}, RUN}};
#if defined(__aarch64__)
    SKIP("fifos of this length do not pay here");
#endif
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lane_call(WEFT_I_GATHER, PART, 1, ME);
        scene.coll.ask.limit_ms = 1;
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                scene.heads[rank].filled = count(cases[i].filled[rank]);
        lane_broken(weft_i_coll_move(&scene.coll), 0);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                came(rank, PART, cases[i].came[rank]);
        CHECK_INT(scene.heads[ME].drained, cases[i].drained ? count(cases[i].drained) : 0);
        CHECK_INT(scene.heads[ME].filled, 0);
    }
    lane_close();
}

enum { WIDE = 64 << 10, WIDE_ROOM = 2 * WEFT_I_CHUNK }; /* from all to all */

static size_t at_most(size_t bytes, size_t most)
{
    return bytes < most ? bytes : most;
}

/* Our output has all parts, those of others from their bounce buffers; ours have our input. */
static void exchanged(size_t part)
{
    char *model = lane_new_model();
    for (size_t first = 0; first < part; first += WIDE) {
        size_t bytes = at_most(WIDE, part - first);
        for (int rank = 0; rank < RANKS; rank++) {
            const char *to = scene.out[ME] + (size_t)rank * part + first;
            if (rank == ME)
                lane_expect(to, LANE_IN, ME, first, bytes);
            else
                lane_expect(to, LANE_BOUNCE, rank, first % WIDE_ROOM, bytes);
        }
        memcpy(model + first % WIDE_ROOM, scene.in[ME] + first, bytes);
    }
    lane_as_model();
    lane_untouched(RANKS * part);
}

static void gather_all(size_t part, unsigned syncs, uint64_t filled, uint64_t drained)
{
    CHECK_OK(weft_i_coll_move(lane_call(WEFT_I_ALL_GATHER, part, 1, 0)));
    lane_others_untouched(true);
    CHECK_INT(scene.heads[ME].filled, filled ? count(filled) : 0);
    CHECK_INT(scene.heads[ME].drained, drained ? count(drained) : 0);
    lane_done(syncs, "");
}

/* From all to all each rank fills its own fifo and takes from those of all others. */
TEST(test_move_all_gather_fifo)
{
    static const size_t parts[] = {WIDE + 1, 2 * WIDE, WIDE_ROOM, WIDE_ROOM + 1, 5 * WIDE};
#if defined(__aarch64__)
    SKIP("fifos of this length do not pay here");
#endif
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t chunks = (parts[i] + WIDE - 1) / WIDE;
        gather_all(parts[i], 1, chunks, parts[i] > WIDE_ROOM ? chunks : 0);
        exchanged(parts[i]);
    }
    gather_all(WIDE, 2, 0, 0); /* one chunk is one piece */
    CHECK_OK(weft_i_coll_move(lane_call(WEFT_I_ALL_TO_ALL, 5 * WIDE, 1, 0)));
    CHECK_INT(scene.heads[ME].filled, 0); /* every rank gets other bytes */
    lane_close();
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_YIELD); /* some rank has no core */
    gather_all(5 * WIDE, 4, 0, 0);
    lane_close();
}

/* From all to all a rank is one chunk ahead of what it takes, and four ahead of the slowest. */
TEST(test_move_all_gather_ahead)
{
    enum { PART = 5 * WIDE, ALL = 9 };
    static const struct {
        uint64_t theirs, of_2, drained_by_2; /* chunks that others have filled; rank 2 */
        uint64_t filled, drained;            /* by us */
    } cases[] = {{0, 0, ALL, 2, 0}, {ALL, 0, ALL, 2, 0}, {ALL, 2, ALL, 4, 2}, {ALL, ALL, 0, 4, 3},
                 {1, 1, ALL, 3, 1}, {ALL, 4, ALL, 5, 4}, {3, ALL, ALL, 5, 3}};
#if defined(__aarch64__)
    SKIP("fifos of this length do not pay here");
#endif
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lane_call(WEFT_I_ALL_GATHER, PART, 1, 0);
        scene.coll.ask.limit_ms = 1;
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                scene.heads[rank].filled = count(rank == 2 ? cases[i].of_2 : cases[i].theirs);
        scene.heads[2].drained = count(cases[i].drained_by_2);
        lane_broken(weft_i_coll_move(&scene.coll), 0);
        CHECK_INT(scene.heads[ME].filled, count(cases[i].filled));
        CHECK_INT(scene.heads[ME].drained, cases[i].drained ? count(cases[i].drained) : 0);
    }
    lane_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
