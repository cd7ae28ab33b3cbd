/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm_coll/reduce.c, symm_coll/gather.c, symm_coll/tile.c */
/*
 * Operations on symmetric memory that one rank does not come to, or stops in.  Every other rank's
 * call ends with an error.  Nothing is written before all have come, and nothing of a later step
 * before the step before it is over on all ranks.
 */
#include "jobs.h"
#include "wire.h"

#include "base/os/os.h"

enum {
    RANKS = 3,
    VICTIM = 1,
    PART = 4096, /* floats: whole pages, of 16 KiB at most */
    COUNT = RANKS * PART,
    LIMIT_MS = 30
};

typedef enum op {
    ONE_SHOT,
    ONE_SHOT_COPY,
    MULTIMEM_ONE_SHOT,
    MULTIMEM_REDUCE,
    TWO_SHOT,
    MULTIMEM_ALL_REDUCE,
    TWO_SHOT_OUT,
    SCATTER,
    SCATTER_LAST_DIM,
    GATHER,
    TILE,
    VDEV,
    OPS
} op;

static const char *const names[OPS] = {"one_shot_all_reduce",
                                       "one_shot_all_reduce_copy",
                                       "multimem_one_shot_all_reduce",
                                       "multimem_one_shot_reduce",
                                       "two_shot_all_reduce",
                                       "multimem_all_reduce",
                                       "two_shot_all_reduce_out",
                                       "reduce_scatter_out",
                                       "reduce_scatter_out by the last dimension",
                                       "multimem_all_gather",
                                       "tile_reduce",
                                       "all_to_all_vdev"};

/* What a call may touch: symmetric memory `x`, `gathered` and `splits`, and ordinary memory. */
typedef struct operands {
    weft_tensor *x, *gathered, *splits;
    weft_tensor *local, *out, *table;
} operands;

static weft_tensor *symmetric(weft_dtype dtype, int64_t count, double value, weft_group *group)
{
    weft_tensor *x = weft_symm_empty(dtype, WEFT_CPU, WEFT_SHAPE(count));
    CHECK(x);
    weft_fill(x, value);
    if (!weft_symm_rendezvous(x, group))
        FAIL("weft_symm_rendezvous: %s", weft_last_error());
    return x;
}

static weft_tensor *ordinary(weft_dtype dtype, int64_t count)
{
    void *data =
        mmap(NULL, (size_t)count * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    weft_tensor *x = weft_tensor_wrap(dtype, WEFT_CPU, WEFT_SHAPE(count), data, NULL, NULL);
    weft_fill(x, -7);
    return x;
}

static operands operands_of(int rank, weft_group *group)
{
    operands o = {.x = symmetric(WEFT_F32, COUNT, rank + 1, group),
                  .gathered = symmetric(WEFT_F32, COUNT, -7, group),
                  .splits = symmetric(WEFT_I64, RANKS, PART, group),
                  .local = ordinary(WEFT_F32, COUNT),
                  .out = ordinary(WEFT_F32, COUNT),
                  .table = ordinary(WEFT_I64, 2 * RANKS)};
    return o;
}

static void give_back(const operands *o)
{
    weft_tensor *mine[] = {o->local, o->out, o->table};
    for (int i = 0; i < 3; i++)
        munmap(weft_tensor_data(mine[i]), (size_t)weft_tensor_numel(mine[i]) * 8);
}

static weft_status run(op what, const operands *o, weft_group *group)
{
    weft_tensor *part = weft_narrow(o->out, 0, 0, PART);
    switch (what) {
    case ONE_SHOT:
        return weft_symm_one_shot_all_reduce_out(o->out, o->x, WEFT_SUM, group);
    case ONE_SHOT_COPY:
        return weft_symm_one_shot_all_reduce_copy_out(o->out, o->x, o->local, WEFT_SUM, group);
    case MULTIMEM_ONE_SHOT:
        return weft_symm_multimem_one_shot_all_reduce_out(o->out, o->x, WEFT_SUM, group);
    case MULTIMEM_REDUCE:
        return weft_symm_multimem_one_shot_reduce_out(o->out, o->x, WEFT_SUM, VICTIM, group);
    case TWO_SHOT:
        return weft_symm_two_shot_all_reduce(o->x, WEFT_SUM, group);
    case MULTIMEM_ALL_REDUCE:
        return weft_symm_multimem_all_reduce(o->x, WEFT_SUM, group);
    case TWO_SHOT_OUT:
        return weft_symm_two_shot_all_reduce_out(o->out, o->x, WEFT_SUM, group);
    case SCATTER:
        return weft_symm_reduce_scatter_out(part, o->x, false, WEFT_SUM, group);
    case SCATTER_LAST_DIM:
        return weft_symm_reduce_scatter_out(weft_view(part, WEFT_SHAPE(16, PART / 16)),
                                            weft_view(o->x, WEFT_SHAPE(16, COUNT / 16)), true,
                                            WEFT_SUM, group);
    case GATHER:
        return weft_symm_multimem_all_gather_out(o->gathered, weft_narrow(o->x, 0, 0, PART), group);
    case TILE:
        return weft_symm_tile_reduce(weft_view(o->out, WEFT_SHAPE(16, COUNT / 16)),
                                     weft_view(o->x, WEFT_SHAPE(16, COUNT / 16)), WEFT_SUM, VICTIM,
                                     group);
    default:
        return weft_symm_all_to_all_vdev(o->out, weft_view(o->table, WEFT_SHAPE(2, RANKS)), o->x,
                                         o->splits, group);
    }
}

static bool holds(weft_tensor *x, double value)
{
    weft_tensor *expected = weft_empty_like(x);
    weft_fill(expected, value);
    return weft_equal(x, expected);
}

/* Whether nothing was written but, by the copying one, the rank's own buffer. */
static void check_untouched(op what, const operands *o, int rank, bool came)
{
    if (!holds(o->out, -7))
        FAIL("%s: the output was written", names[what]);
    if (!holds(o->table, -7) || !holds(o->gathered, -7) || !holds(o->splits, PART))
        FAIL("%s: the gathered memory or a table was written", names[what]);
    if (!holds(o->x, what == ONE_SHOT_COPY && came ? -7 : rank + 1))
        FAIL("%s: the symmetric memory was written", names[what]);
}

/* ---- a rank that does not come ---- */

RANKS_TEST(test_symm_middle_absent, RANKS)
{
    weft_group *world = join(20000);
    (void)size;
    for (int what = 0; what < OPS; what++) {
        weft_scope_open();
        weft_group *group = fresh_group(world);
        operands o = operands_of(rank, group);
        CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT)); /* all have their memory */
        CHECK_OK(weft_group_set_timeout(group, LIMIT_MS));
        if (rank != VICTIM) {
            weft_status status = run((op)what, &o, group);
            if (status != WEFT_ERR_TIMEOUT && status != WEFT_ERR_REVOKED)
                FAIL("%s: %d: %s", names[what], (int)status, weft_last_error());
            if (status == WEFT_ERR_TIMEOUT)
                CHECK_CONTAINS(weft_last_error(), "rank 1 (alive");
        }
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        check_untouched((op)what, &o, rank, rank != VICTIM);
        CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
        give_back(&o);
        weft_clear_error();
        weft_scope_close();
    }
    finish(world);
}

/* ---- a rank that stops in the middle ---- */

static int trips; /* so far, on all ranks: each has made a mark for each */

/* The victim tells that it stands in the middle, and goes on when all others have come out. */
static void trip(void)
{
    harness_mark();
    for (int rank = 0; rank < RANKS; rank++)
        harness_await(rank, trips + 1);
}

/* Where the victim writes in the last step of the operation; `early`: in the first of two. */
static char *place_of(op what, const operands *o, bool early)
{
    if (early || what == TWO_SHOT || what == MULTIMEM_ALL_REDUCE)
        return (char *)((float *)weft_tensor_data(o->x) + VICTIM * PART);
    if (what == GATHER)
        return (char *)((float *)weft_tensor_data(o->gathered) + VICTIM * PART);
    return weft_tensor_data(o->out);
}

static void be_victim(op what, const operands *o, bool early, weft_group *group)
{
    wire_stretch(place_of(what, o, early), 0, trip);
    weft_status status = run(what, o, group);
    bool tripped = harness_marks_of(VICTIM) == trips + 1;
    wire_cut();
    if (!tripped)
        FAIL("%s: the victim did not come there", names[what]);
    if (status != WEFT_ERR_REVOKED)
        FAIL("%s: the victim's call gives %d: %s", names[what], (int)status, weft_last_error());
}

static void be_other(op what, const operands *o, weft_group *group)
{
    CHECK_OK(weft_group_set_timeout(group, LIMIT_MS));
    wire_freeze(VICTIM, trips + 1);
    weft_status status = run(what, o, group);
    weft_i_os_now = &weft_i_os_linux;
    if (status != WEFT_ERR_TIMEOUT && status != WEFT_ERR_REVOKED)
        FAIL("%s: %d: %s", names[what], (int)status, weft_last_error());
    CHECK_OK(weft_group_revoke(group));
    harness_mark();
}

static void stop_in(op what, bool early, int rank, weft_group *world)
{
    weft_scope_open();
    weft_group *group = fresh_group(world);
    operands o = operands_of(rank, group);
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    if (rank == VICTIM)
        be_victim(what, &o, early, group);
    else
        be_other(what, &o, group);
    if (early && !holds(o.out, -7))
        FAIL("%s: the second step began before the first was over", names[what]);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    give_back(&o);
    weft_clear_error();
    trips++;
    weft_scope_close();
}

RANKS_TEST(test_symm_middle_stopped, RANKS)
{
    if (harness_in_threads)
        SKIP("a page belongs to all threads");
    weft_group *world = join(20000);
    (void)size;
    for (int what = 0; what < OPS; what++)
        stop_in((op)what, false, rank, world);
    stop_in(TWO_SHOT_OUT, true, rank, world);
    finish(world);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
