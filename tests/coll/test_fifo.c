/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/fifo.c */
/*
 * Flows (src/coll/lane/fifo.h): what goes one way in chunks, while others follow.  They are for ranks
 * with a core each; here ranks are told to spin, however many cores there are.
 */
#include "coll_acts.h"
#include "jobs.h"

#include "coll/lane/fifo.h"

static const act_kind kinds[] = {ACT_BROADCAST, ACT_GATHER, ACT_REDUCE, ACT_SCATTER};

/* Bytes of an operand around every border: one chunk, the show slot, one round of the bounce
 * buffer, many rounds. */
static const int64_t sizes_of_u8[] = {4096,   4097,   8191,   8192,       16384,  16385,
                                      40000,  65535,  65536,  65537,      131072, 262143,
                                      262144, 262145, 300000, 1000 * 999, 3 << 20};

/* Only for ranks that spin, for more than one of them, and between two sizes. */
TEST(test_flow_pays)
{
    static const struct {
        weft_i_wait_mode mode;
        int size;
        size_t bytes;
        bool pays;
    } cases[] = {
        {WEFT_I_WAIT_SPIN, 2, 4096, false},  {WEFT_I_WAIT_SPIN, 2, 4097, true},
        {WEFT_I_WAIT_SPIN, 1, 4097, false},  {WEFT_I_WAIT_SPIN, 2, WEFT_I_EAGER, true},
        {WEFT_I_WAIT_YIELD, 2, 4097, false}, {WEFT_I_WAIT_SLEEP, 2, 4097, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_i_lane lane = {.mode = cases[i].mode, .size = cases[i].size};
        if (weft_i_fifo_pays(&lane, cases[i].bytes) != cases[i].pays)
            FAIL("case %zu: %zu bytes among %d", i, cases[i].bytes, cases[i].size);
    }
    weft_i_lane pair = {.mode = WEFT_I_WAIT_SPIN, .size = 2};
#if defined(__aarch64__)
    CHECK(!weft_i_fifo_pays(&pair, WEFT_I_EAGER + 1));
#else
    CHECK(weft_i_fifo_pays(&pair, SIZE_MAX));
#endif
}

static void run_sizes(int rank, int size, act_kind kind)
{
    weft_group *world = join(20000);
    size_t count = sizeof sizes_of_u8 / sizeof *sizes_of_u8;
    for (size_t i = 0; i < 2 * count; i++) { /* each size twice, with another root */
        int64_t bytes = sizes_of_u8[i % count];
        act a = {.kind = kind,
                 .dtype = i % 2 ? WEFT_U8 : WEFT_F32,
                 .root = (int)(i % (size_t)size),
                 .count = i % 2 ? bytes : bytes / 4,
                 .seed = i + 1};
        act_perform(&a, rank, size, world);
    }
    finish(world);
}

RANKS_TEST(test_flow_broadcast_2, 2)
{
    run_sizes(rank, size, ACT_BROADCAST);
}

RANKS_TEST(test_flow_broadcast_3, 3)
{
    run_sizes(rank, size, ACT_BROADCAST);
}

RANKS_TEST(test_flow_gather_2, 2)
{
    run_sizes(rank, size, ACT_GATHER);
}

RANKS_TEST(test_flow_gather_3, 3)
{
    run_sizes(rank, size, ACT_GATHER);
}

/* Outputs around 8 MiB, from which on they are written past the caches. */
RANKS_TEST(test_flow_gather_far, 2)
{
    static const int64_t counts[] = {(4 << 20) - 1, 4 << 20, (4 << 20) + 4099};
    weft_group *world = join(20000);
    for (int i = 0; i < 6; i++) {
        act a = {.kind = ACT_GATHER,
                 .dtype = WEFT_U8,
                 .root = i % 2,
                 .count = counts[i / 2],
                 .seed = (uint64_t)i + 1};
        act_perform(&a, rank, size, world);
    }
    finish(world);
}

RANKS_TEST(test_flow_reduce_2, 2)
{
    run_sizes(rank, size, ACT_REDUCE);
}

RANKS_TEST(test_flow_reduce_3, 3)
{
    run_sizes(rank, size, ACT_REDUCE);
}

RANKS_TEST(test_flow_scatter_3, 3)
{
    run_sizes(rank, size, ACT_SCATTER);
}

RANKS_TEST(test_flow_scatter_5, 5)
{
    run_sizes(rank, size, ACT_SCATTER);
}

/* Otherwise the kernel would copy between so few. */
static void keep_kernel_out(int size)
{
    CHECK_OK(weft_tune_set(WEFT_TUNE_CMA, "all_gather", size, SIZE_MAX));
}

RANKS_TEST(test_flow_all_gather_2, 2)
{
    keep_kernel_out(size);
    run_sizes(rank, size, ACT_ALL_GATHER);
}

RANKS_TEST(test_flow_all_gather_4, 4)
{
    keep_kernel_out(size);
    run_sizes(rank, size, ACT_ALL_GATHER);
}

/* Calls of all sizes follow each other without a pause, and each rank lags at other times: what is
 * shown for one call must not be lost to the next. */
RANKS_TEST(test_flow_mixed, 3)
{
    enum { CALLS = VALUES_SANITIZED ? 100 : 400 };
    weft_group *world = join(20000);
    for (int number = 0; number < CALLS; number++) {
        uint64_t seed = values_random(values_seed(), (uint64_t)number);
        act a = {.kind = number % 5 == 4 ? ACT_ALL_REDUCE : kinds[seed % 4],
                 .dtype = WEFT_I64,
                 .root = (int)(values_random(seed, 1) % (unsigned)size),
                 .count = (int64_t[]){3, 700, 2000, 8000, 40000}[values_random(seed, 2) % 5],
                 .seed = seed};
        if (values_random(seed, 3) % (unsigned)size == (unsigned)rank && number % 4 == 0)
            rest_us(200);
        act_perform(&a, rank, size, world);
    }
    finish(world);
}

/* A child of this rank kills it after some time. */
static pid_t arrange_death(void)
{
    pid_t victim = getpid(), child = fork();
    if (child == 0) {
        rest_us(5000 + (long)(values_seed() % 5000));
        kill(victim, SIGKILL);
        _exit(0);
    }
    return child;
}

static pid_t arrange_long_stop(void)
{
    return arrange_stop(5000 + (long)(values_seed() % 5000), 0, 1);
}

/* Repeats a long flow, from the second on with a limit; rank 1 has its end arranged once that works.
 * Returns what fails. */
static weft_status repeat(act_kind kind, int root, int rank, int size, weft_group *group,
                          int64_t limit_ms, pid_t (*arrange)(void))
{
    act a = {.kind = kind, .dtype = WEFT_F32, .root = root, .count = 1 << 20};
    act_operands o = act_prepare(&a, rank, size);
    CHECK_OK(act_run(&a, &o, group));
    pid_t child = rank == 1 ? arrange() : 0;
    weft_status status = WEFT_OK;
    weft_limit_open(limit_ms);
    while (status == WEFT_OK)
        status = act_run(&a, &o, group);
    weft_limit_close();
    if (rank != 1)
        harness_mark();
    else
        waitpid(child, NULL, 0);
    return status;
}

static void run_death(int rank, int size, act_kind kind, bool writer_dies)
{
    if (harness_in_threads)
        SKIP("a thread cannot die alone");
    weft_group *world = join(20000);
    int root = writer_dies == (kind != ACT_GATHER); /* who writes; all others of a gather */
    if (rank == 1)
        harness_rank_dies();
    CHECK_STATUS(repeat(kind, root, rank, size, world, 20000, arrange_death), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 1 (");
    CHECK_CONTAINS(weft_last_error(), kind == ACT_BROADCAST    ? "broadcast"
                                      : kind == ACT_ALL_GATHER ? "all_gather"
                                                               : "gather");
    finish(world);
}

RANKS_TEST(test_flow_writer_dies, 2)
{
    run_death(rank, size, ACT_BROADCAST, true);
}

RANKS_TEST(test_flow_reader_dies, 2)
{
    run_death(rank, size, ACT_BROADCAST, false);
}

RANKS_TEST(test_flow_gather_writer_dies, 2)
{
    run_death(rank, size, ACT_GATHER, true);
}

RANKS_TEST(test_flow_gather_reader_dies, 2)
{
    run_death(rank, size, ACT_GATHER, false);
}

RANKS_TEST(test_flow_all_gather_dies, 3)
{
    keep_kernel_out(size);
    run_death(rank, size, ACT_ALL_GATHER, true);
}

/* A rank that stops in the middle until the other's time has passed there: the group is lost for
 * both. */
RANKS_TEST(test_flow_stopped, 2)
{
    if (harness_in_threads)
        SKIP("a thread cannot stop alone");
    weft_group *world = join(20000);
    weft_status status =
        repeat(ACT_BROADCAST, 0, rank, size, world, rank == 0 ? 200 : 20000, arrange_long_stop);
    if (rank == 0) {
        CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 1 (");
        weft_group_revoke(world); /* its time may have passed at the entry */
    } else {
        CHECK_STATUS(status, WEFT_ERR_REVOKED);
    }
    finish(world);
}

int main(int argc, char **argv)
{
    values_choose_seed();
    setenv("WEFT_WAIT", "spin", 1);
    setenv("WEFT_KILL_GRACE", "30000", 1);
    return harness_main(argc, argv);
}
