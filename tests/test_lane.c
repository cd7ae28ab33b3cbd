/* SPDX-License-Identifier: Apache-2.0 */
/* How far ranks get ahead of each other on a lane where data goes one way, and that nothing is lost
 * on the way: see lane.h. */
#include "harness.h"

#include "harness_ranks.h"
#include "jobs.h"

#include "coll/lane.h"

#include <weft/weft.h>

enum { AHEAD = 15, LIMIT_MS = 20000 };
_Static_assert(AHEAD == WEFT_I_TURNS - 1, "as far as there are entries");

static weft_tensor *floats(int64_t bytes)
{
    return weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(bytes / (int64_t)sizeof(float)));
}

static void expect_all(weft_tensor *x, double value)
{
    int64_t last = weft_tensor_numel(x) - 1;
    CHECK(weft_item(x, 0) == value && weft_item(x, last) == value &&
          weft_item(x, last / 2) == value);
}

/* One broadcast of `value` from rank 0. */
static weft_status give(weft_tensor *x, int rank, double value, weft_group *group)
{
    CHECK_OK(weft_fill(x, rank == 0 ? value : -1));
    weft_status status = weft_broadcast_into(x, 0, group);
    if (status == WEFT_OK)
        expect_all(x, value);
    return status;
}

/* Rank 2 stays away until ranks 0 and 1 have made as many calls as there are entries; no more. */
static void run_ahead(int rank, int64_t bytes, weft_group *group)
{
    weft_scope_open();
    weft_tensor *x = floats(bytes), *word = floats(4);
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    CHECK_OK(weft_all_reduce_into(word, word, WEFT_SUM, group)); /* all are known to be here */
    if (rank == 2)
        CHECK_OK(weft_recv(word, 1, group));
    for (int i = 0; i < AHEAD; i++)
        CHECK_OK(give(x, rank, 100 + i, group));
    if (rank == 0) {
        CHECK_OK(weft_limit_open(30));
        CHECK_STATUS(give(x, rank, 999, group), WEFT_ERR_TIMEOUT); /* and overwrites nothing */
        CHECK_CONTAINS(weft_last_error(), "rank 2");
        CHECK_OK(weft_limit_close());
        weft_clear_error();
        CHECK_OK(weft_send(word, 1, group));
    } else if (rank == 1) {
        CHECK_OK(weft_recv(word, 0, group));
        CHECK_OK(weft_send(word, 2, group));
    }
    for (int i = 0; i < 2 * AHEAD; i++) /* and so on */
        CHECK_OK(give(x, rank, 200 + i, group));
    weft_scope_close();
}

static void run_all_ahead(int rank, const char *wait, const int64_t *sizes, size_t count)
{
    if (!harness_in_threads)
        setenv("WEFT_WAIT", wait, 1);
    weft_group *world = join(LIMIT_MS);
    for (size_t i = 0; i < count; i++)
        run_ahead(rank, sizes[i], world);
    finish(world);
}

RANKS_TEST(test_lane_ahead_crowded, 3)
{
    static const int64_t sizes[] = {8, 632, 636, 4096, WEFT_I_SHORT};
    if (harness_in_threads)
        SKIP("threads of one process wait as it does");
    CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, "broadcast", 3, 64 << 10)); /* on every machine */
    run_all_ahead(rank, "yield", sizes, 5);
}

RANKS_TEST(test_lane_ahead_spinning, 3)
{
    static const int64_t sizes[] = {8, 632};
    run_all_ahead(rank, "spin", sizes, 2);
}

/* Sizes and roots by chance: all ways of small data, inline, in short buffers, in long ones, behind
 * each other, with ranks that come late. */
static void run_mixed(int rank, int size, const char *wait)
{
    static const int64_t sizes[] = {8,           632, 640, 4096, WEFT_I_SHORT, WEFT_I_SHORT + 4,
                                    WEFT_I_EAGER};
    enum { CALLS = 600, SIZES = sizeof sizes / sizeof *sizes };
    weft_tensor *x[SIZES], *sum;
    uint64_t chance = 88172645463325252u, own = chance + (uint64_t)rank * 977;
    if (!harness_in_threads)
        setenv("WEFT_WAIT", wait, 1);
    weft_group *world = join(LIMIT_MS);
    for (int i = 0; i < SIZES; i++)
        x[i] = floats(sizes[i]);
    sum = floats(8);
    for (int i = 0; i < CALLS; i++) {
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        own ^= own << 13, own ^= own >> 7, own ^= own << 17;
        weft_tensor *y = x[chance % SIZES];
        int root = (int)((chance >> 8) % (unsigned)size);
        if (own % 40 == 0)
            usleep((useconds_t)(own >> 8) % 2000);
        CHECK_OK(weft_fill(y, rank == root ? i : -1));
        if (chance >> 16 & 15) {
            CHECK_OK(weft_broadcast_into(y, root, world));
            expect_all(y, i);
        } else { /* now and then all wait for all */
            CHECK_OK(weft_fill(sum, i));
            CHECK_OK(weft_all_reduce_into(sum, sum, WEFT_SUM, world));
            expect_all(sum, (double)i * size);
        }
    }
    finish(world);
}

RANKS_TEST(test_lane_mixed_crowded, 4)
{
    run_mixed(rank, size, "yield");
}

RANKS_TEST(test_lane_mixed_spinning, 2)
{
    run_mixed(rank, size, "spin");
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}
