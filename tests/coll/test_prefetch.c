/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/prefetch.c */
/* Copies from ranks that have come while the others are awaited, on a lane by hand. */
#include "lane_by_hand.h"

#include "coll/lane/prefetch.h"

enum { ME = HAND_ME, RANKS = HAND_SIZE, EPOCH = LANE_EPOCH + 1 };

/* A rank that has come is copied from while the others are awaited, but only from within its block:
 * an offset that it has taken back may be any number. */
TEST(test_prefetch_within_the_block)
{
    enum { PART = 8, RANK = 2, BLOCK = LANE_ROOM - 64 };
    static const size_t offsets[] = {0,         BLOCK - PART, BLOCK - PART + 1,
                                     BLOCK - 4, BLOCK,        BLOCK + 1};
    lane_open(RANKS, WEFT_I_CMA_NONE, WEFT_I_WAIT_SPIN);
    scene.registration.serial = 5;
    scene.segments[RANK].bytes = BLOCK;
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        weft_i_coll *coll = lane_call(WEFT_I_ALL_GATHER, PART, 1, 0);
        weft_i_locations locations = {.in = &scene.registration};
        weft_i_location *where =
            (weft_i_location *)(void *)weft_i_lane_next_payload(&scene.lane, RANK);
        *where = (weft_i_location){.in_serial = 5, .in_offset = offsets[i], .attempt = 7};
        scene.heads[ME].entry[EPOCH % WEFT_I_TURNS].arrival =
            scene.heads[RANK].entry[EPOCH % WEFT_I_TURNS].arrival;
        bool within = i < 2;
        weft_i_prefetch_prepare(coll, &locations);
        weft_i_prefetch_take(coll);
        CHECK_INT(scene.prefetched[RANK].attempt, within ? 7 : 0);
        if (within)
            lane_expect(scene.out[ME] + RANK * PART, LANE_BOUNCE, RANK, offsets[i], PART);
        else
            lane_expect(scene.out[ME] + RANK * PART, LANE_OUT, ME, RANK * PART, PART);
    }
    lane_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
