/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/cma.c */
/* Copies by the kernel from another rank's memory, on a lane by hand: in pieces, and cut off. */
#include "lane_by_hand.h"

static size_t piece;  /* bytes of a read at most */
static int reads_for; /* reads that give something; then there is nothing more */

static ssize_t read_piece(int process, void *to, uint64_t from, size_t bytes)
{
    CHECK_INT(process, LANE_PROCESS + 2);
    if (reads_for-- <= 0)
        return 0;
    bytes = bytes < piece ? bytes : piece;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return (ssize_t)bytes;
}

/* As much as the kernel gives at a time, until all is there. */
TEST(test_cma_in_pieces)
{
    enum { BYTES = 1000 };
    for (piece = 1; piece <= 2 * BYTES; piece = 3 * piece + 1) {
        lane_open(HAND_SIZE, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_YIELD);
        lane_call(WEFT_I_ALL_GATHER, BYTES, 1, 0);
        scene.os.read_process = read_piece;
        reads_for = BYTES;
        CHECK_OK(weft_i_cma(&scene.lane, &hand.call, 2, scene.out[HAND_ME], (uintptr_t)scene.in[2],
                            BYTES));
        lane_expect(scene.out[HAND_ME], LANE_IN, 2, 0, BYTES);
        lane_expect(scene.out[HAND_ME] + BYTES, LANE_OUT, HAND_ME, BYTES, LANE_GUARD);
        lane_close();
    }
}

/* A kernel that gives no byte and no error, or an error: the call ends and says so. */
TEST(test_cma_that_ends_early)
{
    for (int given = 0; given < 3; given++) {
        lane_open(HAND_SIZE, WEFT_I_CMA_KERNEL, WEFT_I_WAIT_YIELD);
        lane_call(WEFT_I_ALL_GATHER, 1000, 1, 0);
        scene.os.read_process = read_piece;
        piece = 400;
        reads_for = given;
        CHECK_INT(weft_i_cma(&scene.lane, &hand.call, 2, scene.out[HAND_ME], (uintptr_t)scene.in[2],
                             1000),
                  WEFT_ERR_IO);
        CHECK_CONTAINS(weft_last_error(),
                       "op: 1000 bytes between this rank's memory and that of rank 2");
        weft_clear_error();
        hand_kill(hand_members[2]); /* what is known of it says more */
        reads_for = given;
        CHECK_INT(weft_i_cma(&scene.lane, &hand.call, 2, scene.out[HAND_ME], (uintptr_t)scene.in[2],
                             1000),
                  WEFT_ERR_PEER_DEAD);
        weft_clear_error();
        lane_close();
    }
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
