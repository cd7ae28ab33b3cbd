/* SPDX-License-Identifier: Apache-2.0 */
/* In which order the root of a gather empties the fifos of the others, on a lane by hand. */
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

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
