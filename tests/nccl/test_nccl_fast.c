/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/device/fast.c, backends/nccl/carrier.c */
/*
 * The fast path of collectives by NCCL (coll/device/fast.h): which calls take it, that they end as those of
 * the long way do, and what is left to that.  A table in the place of the backend's counts them.
 */
#include "nccl/scene.h"

#include "coll/device/fast.h"
#include "tensor/object/eye.h"

extern const weft_i_backend weft_i_backend_nccl;

static _Thread_local int taken; /* by calls of this rank */

static weft_status start(void *carrier, const weft_i_plain *call)
{
    weft_status status = weft_i_nccl_fast_path.start(carrier, call);
    taken += status == WEFT_OK;
    return status;
}

/* ---- the two ways ---- */

/* The next call goes the long way, which opens the fast path again. */
static void close_path(weft_group *group)
{
    atomic_store(&group->fast, NULL);
}

static weft_i_carrier *carrier_of(weft_group *group)
{
    return weft_i_carrier_opened(group, WEFT_I_KIND_CUDA);
}

/* A group whose next call takes the fast path if it can. */
static void open_path(weft_group *group, int rank)
{
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, group));
    CHECK(comm_of(group) && group->fast == &carrier_of(group)->lines);
    weft_release(x);
    taken = 0;
}

#define CHECK_TAKEN(count_)         \
    do {                            \
        CHECK_INT(taken, (count_)); \
        taken = 0;                  \
    } while (0)

#define CHECK_SAME(text_, other_)                          \
    do {                                                   \
        if (strcmp((text_), (other_)))                     \
            FAIL("\"%s\", not \"%s\"", (text_), (other_)); \
    } while (0)

/* Nobody is inside any more: another thread may call. */
#define CHECK_FREE(group_) CHECK_INT((group_)->on_lane, 0)

/* ---- plain calls ---- */

static void check_all_reduce(weft_group *world, int rank, weft_dtype dtype)
{
    weft_tensor *here = operand(dtype, rank, WEFT_SHAPE(3, 11), WEFT_CPU);
    weft_tensor *there = weft_to(here, dtype, GPU), *out = weft_zeros_like(there);
    weft_tensor *want = weft_empty_like(here);
    CHECK_OK(weft_all_reduce_into(want, here, WEFT_SUM, world));
    open_path(world, rank);
    CHECK_OK(weft_all_reduce_into(out, there, WEFT_SUM, world));
    check_same("all_reduce", out, want);
    CHECK(weft_equal(there, here)); /* the input is as it was */
    CHECK_OK(weft_all_reduce_into(there, there, WEFT_SUM, world));
    check_same("all_reduce in place", there, want);
    CHECK_TAKEN(2);
}

static void check_parts(weft_group *world, int rank, weft_dtype dtype)
{
    int size = weft_size(world);
    weft_tensor *here = operand(dtype, rank, WEFT_SHAPE(5), WEFT_CPU),
                *there = weft_to(here, dtype, GPU);
    weft_tensor *want = weft_empty(dtype, WEFT_CPU, WEFT_SHAPE(5 * size));
    weft_tensor *whole = weft_zeros(dtype, GPU, WEFT_SHAPE(5 * size));
    weft_tensor *sum = weft_empty(dtype, WEFT_CPU, WEFT_SHAPE(5)),
                *part = weft_zeros(dtype, GPU, WEFT_SHAPE(5));
    CHECK_OK(weft_all_gather_into(want, here, world));
    CHECK_OK(weft_reduce_scatter_into(sum, want, WEFT_SUM, world));
    open_path(world, rank);
    CHECK_OK(weft_all_gather_into(whole, there, world));
    check_same("all_gather", whole, want);
    weft_tensor *own = weft_slice(whole, 0, 5 * rank, 5 * rank + 5, 1);
    CHECK_OK(weft_all_gather_into(whole, own, world));
    check_same("all_gather in place", whole, want);
    CHECK_OK(weft_reduce_scatter_into(part, whole, WEFT_SUM, world));
    check_same("reduce_scatter", part, sum);
    CHECK_OK(weft_reduce_scatter_into(own, whole, WEFT_SUM, world));
    check_same("reduce_scatter in place", own, sum);
    CHECK_TAKEN(4);
}

static void check_broadcast(weft_group *world, int rank, weft_dtype dtype)
{
    open_path(world, rank);
    for (int root = 0; root < weft_size(world); root++) {
        weft_tensor *x = operand(dtype, rank, WEFT_SHAPE(7), GPU);
        CHECK_OK(weft_broadcast_in_place(x, root, world));
        check_same("broadcast", x, operand(dtype, root, WEFT_SHAPE(7), WEFT_CPU));
    }
    CHECK_TAKEN(weft_size(world));
}

RANKS_TEST(test_nccl_fast_plain, 2)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F64, WEFT_I64, WEFT_U8};
    weft_group *world = begin(rank, 30000);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        check_all_reduce(world, rank, dtypes[i]);
        check_parts(world, rank, dtypes[i]);
        check_broadcast(world, rank, dtypes[i]);
    }
    open_path(world, rank);
    check_broadcast(world, rank, WEFT_I16); /* NCCL moves what it cannot add */
    weft_tensor *half = operand(WEFT_F32, rank, WEFT_SHAPE(20), GPU);
    weft_tensor *view = weft_slice(half, 0, 10, 20, 1); /* contiguous, not at the beginning */
    weft_tensor *want = weft_all_reduce(weft_to(view, WEFT_F32, WEFT_CPU), WEFT_AVG, world);
    CHECK(weft_wait_tensor(want));
    open_path(world, rank);
    CHECK_OK(weft_all_reduce_into(view, view, WEFT_AVG, world));
    check_same("a view", view, want);
    check_same("what is beside it", weft_slice(half, 0, 0, 10, 1),
               weft_slice(operand(WEFT_F32, rank, WEFT_SHAPE(20), WEFT_CPU), 0, 0, 10, 1));
    CHECK_TAKEN(1);
    weft_tensor *before = weft_slice(half, 0, 0, 10, 1);
    weft_tensor *both = weft_all_reduce(weft_to(before, WEFT_F32, WEFT_CPU), WEFT_SUM, world);
    CHECK(weft_wait_tensor(both));
    open_path(world, rank);
    CHECK_OK(weft_all_reduce_into(view, before, WEFT_SUM, world)); /* side by side */
    check_same("the other half", view, both);
    CHECK_OK(weft_all_reduce_into(before, view, WEFT_SUM, world));
    CHECK_TAKEN(2);
    weft_tensor *none = weft_empty(WEFT_F32, GPU, WEFT_SHAPE(0));
    CHECK_OK(weft_all_reduce_into(none, none, WEFT_SUM, world));
    CHECK_TAKEN(0);
    CHECK_FREE(world);
    end(world);
}

/* Logs each call, or not: all ranks at once, since they may be of one process. */
static void log_calls(weft_group *world, bool wanted)
{
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    atomic_store(&weft_i_log_level, 1 + (wanted ? WEFT_LOG_TRACE : WEFT_LOG_WARN));
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    close_path(world);
}

/* Lines are not written while others wait for the communicator. */
RANKS_TEST(test_nccl_fast_logged, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    open_path(world, rank);
    log_calls(world, true);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
        CHECK(!world->fast);
    }
    CHECK_TAKEN(0);
    log_calls(world, false);
    open_path(world, rank);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_TAKEN(1);
    end(world);
}

/* ---- what is left to the long way ---- */

/* A call that the host carries closes the path: the next call on the device opens it. */
static void check_host(weft_group *world, int rank)
{
    weft_tensor *host = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4));
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4));
    open_path(world, rank);
    CHECK_OK(weft_all_reduce_into(host, host, WEFT_SUM, world));
    CHECK(!world->fast);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(world->fast);
    CHECK_TAKEN(0);
    CHECK(weft_item(host, 3) == 2 && weft_item(x, 3) == 2);
}

static void check_reductions(weft_group *world, int rank)
{
    weft_tensor *x = weft_full(WEFT_F32, GPU, WEFT_SHAPE(4), rank + 1);
    weft_tensor *y = weft_full(WEFT_F32, GPU, WEFT_SHAPE(4), rank + 1);
    weft_tensor *z = weft_full(WEFT_I16, GPU, WEFT_SHAPE(4), rank + 1);
    open_path(world, rank);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_MAX, world));
    weft_set_premul(3);
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_PREMUL_SUM, world));
    weft_set_premul(1);
    CHECK_OK(weft_all_reduce_into(z, z, WEFT_SUM, world));
    CHECK_TAKEN(0);
    CHECK(weft_item(x, 0) == 2 && weft_item(y, 0) == 9 && weft_item(z, 0) == 3);
}

/* A backend may know more about symmetric memory, whose counterparts it can reach. */
static void check_symmetric(weft_group *world, int rank)
{
    weft_tensor *x = weft_symm_empty(WEFT_F32, GPU, WEFT_SHAPE(4));
    weft_tensor *y = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4));
    CHECK_OK(weft_fill(x, rank + 1));
    open_path(world, rank);
    CHECK_OK(weft_all_reduce_into(y, x, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_TAKEN(0);
    CHECK(weft_item(x, 3) == 3 && weft_item(y, 3) == 3);
}

/* Calls on another stream are behind those of the first; memory that another stream has used, too. */
static void check_streams(weft_group *world, int rank)
{
    weft_stream *first = weft_stream_current(GPU), *second = weft_stream_new(GPU, false);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4));
    open_path(world, rank);
    CHECK_OK(weft_stream_use(second));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world)); /* another stream than the last call's */
    CHECK_TAKEN(0);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_TAKEN(1);
    CHECK_OK(weft_stream_use(first));
    weft_tensor *y = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, world));
    CHECK_TAKEN(0);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world)); /* `second` wrote it */
    CHECK_TAKEN(0);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_TAKEN(1);
    weft_i_cuda_used = NULL; /* as in a thread that has not used the device yet */
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_TAKEN(0);
    CHECK(weft_i_cuda_used);
    CHECK_OK(weft_stream_use(second));
    weft_tensor *copy = weft_clone(y); /* `second` reads it */
    CHECK_OK(weft_stream_use(first));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, world));
    CHECK_TAKEN(0);
    CHECK(weft_item(x, 0) == 32 && weft_item(y, 0) == 4 && weft_item(copy, 0) == 2);
    weft_release(second);
}

/* Posted ones come first, collected ones wait, captured ones do not run. */
static void check_order(weft_group *world, int rank)
{
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4));
    open_path(world, rank);
    atomic_fetch_add(&world->calls.posted, 1); /* as if one were under way, which nobody runs */
    weft_i_plain call = {.op = "all_reduce", .kind = WEFT_I_ALL_REDUCE};
    CHECK_STATUS(weft_i_fast_run(carrier_of(world), &call, x, x, world), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_last_status(), WEFT_OK);
    atomic_fetch_sub(&world->calls.posted, 1);
    CHECK_FREE(world);
    weft_i_eye eye = {0};
    weft_i_eye_open = &eye; /* as if the thread captured */
    CHECK_STATUS(weft_i_fast_run(carrier_of(world), &call, x, x, world), WEFT_ERR_UNSUPPORTED);
    weft_i_eye_open = NULL;
    CHECK_STATUS(weft_last_status(), WEFT_OK);
    CHECK_FREE(world);
    weft_work *work = weft_all_reduce_start(x, x, WEFT_SUM, world);
    CHECK(work);
    CHECK_OK(weft_work_wait(work, 30000));
    open_path(world, rank);
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_TAKEN(0);
    CHECK_OK(weft_work_wait(weft_coalesce_close(world), 30000));
    CHECK(weft_item(x, 0) == 4);
}

RANKS_TEST(test_nccl_fast_unusual, 2)
{
    weft_group *world = begin(rank, 30000);
    check_host(world, rank);
    check_reductions(world, rank);
    check_symmetric(world, rank);
    check_streams(world, rank);
    check_order(world, rank);
    CHECK_FREE(world);
    end(world);
}

/* By size, as on the long way. */
RANKS_TEST(test_nccl_fast_size, 2)
{
    ONLY_STANDIN();
    if (harness_in_threads)
        SKIP("the environment is that of all ranks");
    setenv("WEFT_NCCL", "auto", 1);
    CHECK_OK(weft_tune_set(WEFT_TUNE_NCCL, "all_reduce", 2, 8000000));
    weft_group *world = begin(rank, 30000);
    weft_tensor *small = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(100));
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(2000000)); /* just enough */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
        CHECK_TAKEN(i > 0);
        CHECK_OK(weft_all_reduce_into(small, small, WEFT_SUM, world));
        CHECK_TAKEN(0);
    }
    CHECK_GIVEN(world, 0, 3);
    CHECK(weft_item(small, 99) == 8 && weft_item(x, 1999999) == 8);
    end(world);
}

/* ---- what is wrong ---- */

enum { LAST_WRONG = 15 };

/* Calls that are refused, by number; each differs in one point from one that would do. */
static weft_status call_wrongly(int which, weft_group *world, int rank)
{
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(8)),
                *y = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(8));
    switch (which) {
    case 0:
        return weft_all_reduce_into(NULL, x, WEFT_SUM, world);
    case 1:
        return weft_all_reduce_into(x, NULL, WEFT_SUM, world);
    case 2:
        return weft_all_reduce_into(weft_ones(WEFT_F32, GPU, WEFT_SHAPE(7)), x, WEFT_SUM, world);
    case 3:
        return weft_all_reduce_into(weft_ones(WEFT_F64, GPU, WEFT_SHAPE(8)), x, WEFT_SUM, world);
    case 4:
        return weft_all_reduce_into(weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8)), x, WEFT_SUM,
                                    world);
    case 5:
        return weft_all_reduce_into(x, y, (weft_reduction)99, world);
    case 6: /* they overlap */
        return weft_all_reduce_into(weft_slice(x, 0, 0, 4, 1), weft_slice(x, 0, 2, 6, 1), WEFT_SUM,
                                    world);
    case 7: /* not contiguous */
        return weft_all_reduce_into(weft_slice(x, 0, 0, 8, 2), weft_slice(y, 0, 0, 4, 1), WEFT_SUM,
                                    world);
    case 8: /* not a part for each rank */
        return weft_all_gather_into(x, y, world);
    case 9: /* in place, but not in its own part */
        return weft_all_gather_into(x, weft_slice(x, 0, 4 - 4 * rank, 8 - 4 * rank, 1), world);
    case 10:
        return weft_reduce_scatter_into(x, y, WEFT_SUM, world);
    case 11:
        return weft_reduce_scatter_into(weft_slice(x, 0, 4 - 4 * rank, 8 - 4 * rank, 1), x,
                                        WEFT_SUM, world);
    case 12:
        return weft_broadcast_in_place(x, 2, world);
    case 13:
        return weft_broadcast_in_place(x, -1, world);
    case 14:
        return weft_broadcast_in_place(NULL, 0, world);
    case LAST_WRONG:
        x->storage->read_only = true;
        return weft_all_reduce_into(x, y, WEFT_SUM, world);
    default:
        return WEFT_OK;
    }
}

/* The long way's words, and nothing has happened. */
RANKS_TEST(test_nccl_fast_refused, 2)
{
    weft_group *world = begin(rank, 30000);
    for (int which = 0; which <= LAST_WRONG; which++) {
        char text[1024];
        weft_scope_open();
        open_path(world, rank);
        close_path(world);
        weft_status want = call_wrongly(which, world, rank);
        snprintf(text, sizeof text, "%s", weft_last_error());
        CHECK(want < 0);
        weft_clear_error();
        open_path(world, rank);
        uint64_t before = given(world), calls = carrier_of(world)->calls,
                 sequence = world->sequence;
        CHECK_STATUS(call_wrongly(which, world, rank), want);
        CHECK_SAME(weft_last_error(), text);
        weft_clear_error();
        CHECK_TAKEN(0);
        CHECK_GIVEN(world, before, 0);
        CHECK_INT(carrier_of(world)->calls, calls);
        CHECK_INT(world->sequence, sequence);
        CHECK_FREE(world);
        weft_scope_close();
    }
    end(world);
}

/* A group that is gone, has ended, or serves another thread's call. */
RANKS_TEST(test_nccl_fast_ended, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(4));
    weft_group *gone = weft_group_new(world, (int[]){0, 1}, 2, "gone");
    weft_group *over = weft_group_new(world, (int[]){0, 1}, 2, "over");
    open_path(gone, rank);
    open_path(over, rank);
    CHECK_OK(weft_stream_sync(weft_stream_current(GPU), 30000));
    CHECK_OK(weft_group_barrier(world, 30000));
    atomic_store(&over->on_lane, 1); /* no thread is called that */
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, over), WEFT_ERR_STATE);
    CHECK_INT(over->on_lane, 1);
    atomic_store(&over->on_lane, 0);
    weft_clear_error();
    CHECK_OK(weft_group_destroy(gone));
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, gone), WEFT_ERR_STATE);
    weft_clear_error();
    CHECK_OK(weft_group_barrier(world, 30000));
    if (rank == 0)
        CHECK_OK(weft_group_revoke(over));
    CHECK_OK(weft_group_barrier(world, 30000));
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, over), WEFT_ERR_REVOKED);
    weft_clear_error();
    CHECK_TAKEN(0);
    CHECK_FREE(over);
    CHECK(weft_item(x, 0) == 1);
    end(world);
}

/* ---- what others see ---- */

static weft_i_record_entry last_of(weft_group *group)
{
    weft_i_record_entry last = {0};
    CHECK(weft_i_record_last(weft_i_group_record(group), &last));
    return last;
}

/* Both ways leave the same behind: in the flight record, in a trace, on the board. */
RANKS_TEST(test_nccl_fast_seen, 2)
{
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10)),
                *all = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(20));
    weft_i_record *record = weft_i_group_record(world);
    weft_i_given *shown = &world->board->row[rank].given;
    weft_i_record_want_details(record);
    for (int gathers = 0; gathers < 2; gathers++) {
        weft_i_record_entry entry[2];
        weft_i_record_detail detail[2];
        uint64_t what[2], count[2];
        open_path(world, rank);
        for (int fast = 0; fast < 2; fast++) {
            uint64_t calls = shown->calls, sequence = world->sequence;
            uint64_t carried = carrier_of(world)->calls;
            if (!fast)
                close_path(world);
            CHECK_OK(gathers ? weft_all_gather_into(all, x, world)
                             : weft_all_reduce_into(x, x, WEFT_SUM, world));
            CHECK_TAKEN(fast);
            CHECK_INT(shown->calls, calls + 1);
            CHECK_INT(world->sequence, sequence + 1);
            CHECK_INT(carrier_of(world)->calls, carried + 1);
            what[fast] = shown->what[calls % WEFT_I_GIVEN_CALLS];
            count[fast] = shown->count[calls % WEFT_I_GIVEN_CALLS];
            entry[fast] = last_of(world);
            CHECK(weft_i_record_noted(record, entry[fast].number, &detail[fast]));
        }
        CHECK(what[0] == what[1] && count[0] == count[1] && count[1] == 10);
        CHECK_SAME(entry[1].name, entry[0].name);
        CHECK_INT(entry[1].bytes, 40);
        CHECK_INT(entry[0].bytes, 40);
        CHECK_INT(entry[1].channel, WEFT_I_WAY_DEVICE);
        CHECK(entry[1].finished && entry[1].status == WEFT_OK && entry[1].on_device);
        CHECK_INT(entry[1].turn, entry[0].turn + 1);
        CHECK_INT(entry[1].group, entry[0].group);
        CHECK_SAME(detail[1].reduction, detail[0].reduction);
        CHECK(detail[1].count == detail[0].count && detail[1].dtype == detail[0].dtype &&
              detail[1].posted == 0);
    }
    end(world);
}

/* NCCL refuses: the call has failed, is recorded as such, and counts for nobody. */
RANKS_TEST(test_nccl_fast_fails, 2)
{
    ONLY_STANDIN();
    weft_group *world = begin(rank, 30000);
    weft_tensor *x = weft_ones(WEFT_F32, GPU, WEFT_SHAPE(10));
    open_path(world, rank);
    CHECK_OK(weft_group_barrier(world, 30000));
    uint64_t calls = carrier_of(world)->calls, shown = world->board->row[rank].given.calls;
    standin.fail = "ncclAllReduce";
    standin.fail_with = WEFT_I_ncclInvalidArgument;
    CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_INVALID_ARG);
    CHECK_TAKEN(1);
    CHECK_CONTAINS(weft_last_error(), "NCCL says \"invalid argument\"");
    weft_clear_error();
    CHECK(last_of(world).finished && last_of(world).status == WEFT_ERR_INVALID_ARG);
    CHECK_INT(carrier_of(world)->calls, calls);
    CHECK_INT(world->board->row[rank].given.calls, shown);
    CHECK_FREE(world);
    CHECK_OK(weft_group_barrier(world, 30000));
    standin.fail = NULL;
    CHECK_OK(weft_group_barrier(world, 30000));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_TAKEN(1);
    CHECK(weft_item(x, 9) == 2);
    end(world);
}

int main(int argc, char **argv)
{
    static weft_i_backend counting;
    static weft_i_fast_path path;
    path = weft_i_nccl_fast_path;
    path.start = start;
    counting = weft_i_backend_nccl;
    counting.fast = &path;
    weft_i_backend_replace("nccl", &counting);
    return scene_main(argc, argv);
}
