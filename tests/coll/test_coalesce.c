/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/calls/coalesce.c */
/* Collected calls: each kind, in place and not, many; what is refused, and that then nothing is
 * launched. */
#include "fault.h"
#include "jobs.h"

#include <weft/weft.h>

#include <pthread.h>

enum { CALLS = 20 };

static weft_dtype dtype_of(int k)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_U8, WEFT_BF16, WEFT_I64, WEFT_F16};
    return dtypes[k % 5];
}

static weft_tensor *full(int k, int64_t count, double value)
{
    return weft_full(dtype_of(k), WEFT_CPU, WEFT_SHAPE(count), value);
}

static void check_all(weft_tensor *x, int64_t from, int64_t count, double value)
{
    weft_scope_open();
    const double *data = weft_tensor_data(weft_to_dtype(x, WEFT_F64));
    for (int64_t i = from; i < from + count; i++)
        if (data[i] != value)
            FAIL("element %lld is %g, not %g", (long long)i, data[i], value);
    weft_scope_close();
}

static int64_t count_of(int k, int64_t largest)
{
    return (k * 7919 + 3) % (largest + 1);
}

static void run_all_reduce(int rank, int size, weft_group *world, int64_t largest)
{
    weft_tensor *in[CALLS], *out[CALLS];
    CHECK_OK(weft_coalesce_open(world));
    for (int k = 0; k < CALLS; k++) {
        in[k] = full(k, count_of(k, largest), rank + k);
        out[k] = k % 2 ? in[k] : full(k, count_of(k, largest), 99);
        CHECK_OK(weft_all_reduce_into(out[k], in[k], WEFT_SUM, world));
        if (out[k] != in[k])
            check_all(out[k], 0, count_of(k, largest), 99); /* not yet */
    }
    CHECK_OK(weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT));
    for (int k = 0; k < CALLS; k++)
        check_all(out[k], 0, count_of(k, largest), size * (size - 1) / 2 + k * size);
}

static void run_gather_and_scatter(int rank, int size, weft_group *world, int64_t largest)
{
    weft_tensor *in[CALLS], *out[CALLS];
    CHECK_OK(weft_coalesce_open(world));
    for (int k = 0; k < CALLS; k++) {
        in[k] = full(k, count_of(k, largest), rank + k);
        out[k] = full(k, count_of(k, largest) * size, 99);
        CHECK_OK(weft_all_gather_into(out[k], in[k], world));
    }
    weft_work *work = weft_coalesce_close(world);
    CHECK(work);
    CHECK_OK(weft_coalesce_open(world)); /* the next may be opened while one is under way */
    CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
    for (int k = 0; k < CALLS; k++) {
        int64_t count = count_of(k, largest);
        for (int from = 0; from < size; from++)
            check_all(out[k], from * count, count, from + k);
        CHECK_OK(weft_reduce_scatter_into(in[k], out[k], WEFT_MAX, world));
    }
    CHECK_OK(weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT));
    for (int k = 0; k < CALLS; k++)
        check_all(in[k], 0, count_of(k, largest), rank + k);
}

static void run(int rank, int size)
{
    static const int64_t largest[] = {0, 9, 300, 20000};
    weft_group *world = join(20000);
    for (int n = 0; n < 4; n++) {
        weft_scope_open();
        run_all_reduce(rank, size, world, largest[n]);
        run_gather_and_scatter(rank, size, world, largest[n]);
        weft_scope_close();
    }
    CHECK_OK(weft_coalesce_open(world)); /* nothing in between is fine */
    CHECK_OK(weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT));
    finish(world);
}

RANKS_TEST(test_coalesce_1, 1)
{
    run(rank, size);
}

RANKS_TEST(test_coalesce_2, 2)
{
    run(rank, size);
}

RANKS_TEST(test_coalesce_5, 5)
{
    run(rank, size);
}

/* Only the group that collects is concerned, and only its calls. */
RANKS_TEST(test_coalesce_other_groups, 2)
{
    static const int both[] = {0, 1};
    weft_group *world = join(20000), *other = weft_group_new(world, both, 2, NULL);
    weft_tensor *x = full(0, 10, rank + 1), *y = full(0, 10, rank + 1);
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, other));
    check_all(y, 0, 10, 3);
    check_all(x, 0, 10, rank + 1);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    CHECK_OK(weft_coalesce_open(other));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, other));
    CHECK_OK(weft_work_wait(weft_coalesce_close(other), WEFT_DEFAULT));
    CHECK_OK(weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT));
    check_all(x, 0, 10, 3);
    check_all(y, 0, 10, 6);
    (void)size;
    finish(world);
}

/* Each failure in between: it is told, closing tells it again, and nothing was launched. */
static const char *const said[] = {
    "all_gather: group \"0\" collects calls to all_reduce, all must be of one kind",
    "all_reduce: group \"0\" collects calls with reduction sum, and this one has max",
    "broadcast: group \"0\" collects calls (weft_coalesce_open); only all_reduce, all_gather and",
    "all_reduce_list: group \"0\" collects calls (weft_coalesce_open)",
    "all_reduce: group \"0\" collects calls, and closing it gives the work for all of them",
    "group \"0\" collects calls",
    "group \"0\" collects calls",
    "all_reduce: the input has 10 elements, shape [10], but the output 20, shape [20]",
    "all_reduce: group \"0\" collects calls with premul factor 1, and this one has 3",
    "group \"0\" collects calls"};

/* The last error was the first: it is told again, and a later one is not. */
static void closes_in_vain(weft_group *world, weft_status expected, const char *text)
{
    char first[256];
    snprintf(first, sizeof first, "%s", weft_last_error());
    CHECK_CONTAINS(first, text);
    CHECK(weft_broadcast_in_place(full(0, 20, 1), 0, world) < 0);
    CHECK(!weft_coalesce_close(world));
    CHECK_STATUS(weft_last_status(), expected);
    CHECK_CONTAINS(weft_last_error(), "nothing was launched in group \"0\": ");
    CHECK_CONTAINS(weft_last_error(), first);
}

RANKS_TEST(test_coalesce_refused, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = full(0, 10, rank + 1), *y = full(0, 10, rank + 1), *wide = full(0, 20, 1);
    weft_tensor *z = full(0, 10, 1), *list[2] = {x, y};
    weft_bytes word = {"word", 4};
    for (int what = 0; what < 10; what++) {
        weft_clear_error();
        CHECK_OK(weft_coalesce_open(world));
        CHECK_OK(weft_all_reduce_into(x, x, what == 8 ? WEFT_PREMUL_SUM : WEFT_SUM, world));
        weft_status status = WEFT_OK;
        switch (what) {
        case 0: /* another kind */
            status = weft_all_gather_into(wide, y, world);
            break;
        case 1: /* another reduction */
            status = weft_all_reduce_into(y, y, WEFT_MAX, world);
            break;
        case 2: /* that cannot be collected */
            status = weft_broadcast_in_place(y, 0, world);
            break;
        case 3:
            status = weft_all_reduce_list_into(list, list, 2, WEFT_SUM, world);
            break;
        case 4: /* posted */
            status = weft_all_reduce_start(y, y, WEFT_SUM, world) ? WEFT_OK : weft_last_status();
            break;
        case 5:
            status = weft_all_gather_object(word, world) ? WEFT_OK : weft_last_status();
            break;
        case 6:
            status = weft_reduce_scatter_parts_into(z, list, WEFT_SUM, world);
            break;
        case 7: /* a wrong argument */
            status = weft_all_reduce_into(wide, y, WEFT_SUM, world);
            break;
        case 9: /* a posted message */
            status = weft_send_start(y, 1 - rank, world) ? WEFT_OK : weft_last_status();
            break;
        default:
            weft_set_premul(3);
            status = weft_all_reduce_into(y, y, WEFT_PREMUL_SUM, world);
            weft_set_premul(1);
        }
        weft_status expected = what == 7 ? WEFT_ERR_INVALID_ARG : WEFT_ERR_STATE;
        if (status != expected)
            FAIL("case %d gives %d: %s", what, (int)status, weft_last_error());
        CHECK_OK(weft_all_reduce_into(y, y, what == 8 ? WEFT_PREMUL_SUM : WEFT_SUM, world));
        closes_in_vain(world, expected, said[what]);
        check_all(x, 0, 10, rank + 1);
    }
    weft_clear_error();
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    check_all(x, 0, 10, 3);
    (void)size;
    finish(world);
}

RANKS_TEST(test_coalesce_nested, 2)
{
    weft_group *world = join(20000);
    CHECK(!weft_coalesce_close(world));
    CHECK_STATUS(weft_last_status(), WEFT_ERR_STATE);
    CHECK_OK(weft_coalesce_open(world));
    CHECK_STATUS(weft_coalesce_open(world), WEFT_ERR_STATE);
    weft_tensor *x = full(0, 10, rank + 1), *y = weft_narrow(x, 0, 0, 5);
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(
        weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT)); /* the open one still holds */
    check_all(x, 0, 10, 3);
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK_OK(weft_all_reduce_into(y, y, WEFT_SUM, world));
    CHECK(!weft_coalesce_close(world)); /* found when all are known */
    CHECK_CONTAINS(weft_last_error(), "overlaps");
    weft_clear_error();
    CHECK_STATUS(weft_coalesce_open(NULL), WEFT_ERR_INVALID_ARG);
    (void)size;
    finish(world);
}

typedef struct task {
    weft_group *group;
    weft_tensor *x;
    weft_status call, close;
} task;

static void *call_elsewhere(void *arg)
{
    task *e = arg;
    e->call = weft_all_reduce_into(e->x, e->x, WEFT_SUM, e->group);
    e->close = weft_coalesce_close(e->group) ? WEFT_OK : weft_last_status();
    return NULL;
}

/* The calls of another thread are not collected. */
RANKS_TEST(test_coalesce_other_thread, 2)
{
    weft_group *world = join(20000);
    weft_tensor *x = full(0, 10, rank + 1), *y = full(0, 10, rank + 1);
    task e = {.group = world, .x = y};
    pthread_t thread;
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    CHECK(!pthread_create(&thread, NULL, call_elsewhere, &e));
    pthread_join(thread, NULL);
    CHECK_OK(e.call);
    CHECK_STATUS(e.close, WEFT_ERR_STATE);
    check_all(y, 0, 10, 3);
    check_all(x, 0, 10, rank + 1);
    CHECK_OK(weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT));
    check_all(x, 0, 10, 3);
    (void)size;
    finish(world);
}

/* Left open: nothing leaks, nothing is launched. */
RANKS_TEST(test_coalesce_left_open, 2)
{
    (void)size;
    weft_group *world = join(20000);
    weft_tensor *x = full(0, 10, rank + 1);
    CHECK_OK(weft_coalesce_open(world));
    CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
    finish(world);
}

/* Whatever the system refuses: an error, nothing launched, nothing lost. */
RANKS_TEST(test_coalesce_shortage, 1)
{
    if (harness_in_threads)
        SKIP("threads of one process share their calls to the system");
    weft_group *world = join(20000);
    weft_tensor *x[CALLS];
    for (int k = 0; k < CALLS; k++)
        x[k] = full(k, 10, 1);
    CHECK_OK(weft_work_wait(weft_barrier_start(world), WEFT_DEFAULT)); /* makes what it shares */
    bool fired = true;
    for (int n = 1; fired; n++) {
        weft_work *work = NULL;
        weft_clear_error();
        weft_scope_open();
        fault_arm(n);
        weft_status status = weft_coalesce_open(world);
        for (int k = 0; k < CALLS && status == WEFT_OK; k++)
            status = weft_all_reduce_into(x[k], x[k], WEFT_SUM, world);
        bool open = weft_last_status() == WEFT_OK || strstr(weft_last_error(), "collect");
        if (open)
            work = weft_coalesce_close(world);
        fired = fault_disarm();
        if (work)
            CHECK_OK(weft_work_wait(work, WEFT_DEFAULT));
        else
            CHECK_STATUS(weft_last_status(), WEFT_ERR_NO_MEMORY);
        weft_scope_close();
        CHECK(n < 100);
    }
    (void)rank;
    (void)size;
    finish(world);
}

/* Collected and not collected are different calls. */
RANKS_TEST(test_coalesce_mismatch, 2)
{
    (void)size;
    weft_group *world = join(20000);
    weft_tensor *x = full(0, 10, rank + 1);
    if (rank) {
        CHECK_STATUS(weft_all_reduce_into(x, x, WEFT_SUM, world), WEFT_ERR_MISMATCH);
    } else {
        CHECK_OK(weft_coalesce_open(world));
        CHECK_OK(weft_all_reduce_into(x, x, WEFT_SUM, world));
        CHECK_STATUS(weft_work_wait(weft_coalesce_close(world), WEFT_DEFAULT), WEFT_ERR_MISMATCH);
    }
    CHECK_CONTAINS(weft_last_error(), "all_reduce_list of 1 tensors (10 f32), sum");
    CHECK_CONTAINS(weft_last_error(), "all_reduce of 10 f32, sum, shape [10]");
    finish(world);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
