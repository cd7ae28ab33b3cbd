/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: bench/meter.h */
/*
 * The meter under `weft bench`: the plan of sizes, the patterns and their check, the timing.  A
 * check that cannot fail is worth nothing, so most of this is about results that are wrong.
 */
#include "bench/meter.h"
#include "harness.h"

#include <weft/weft.h>

#include <pthread.h>

enum { RANKS = 3 };

/* Everybody's input of call `call`, and what `rank` must find in its output, worked out one element
 * at a time. */
static void expected(const pattern *p, int rank, int root, uint64_t call, unsigned char *out)
{
    const plan_case *c = &p->what;
    int v = (int)(call % PATTERN_VARIANTS);
    size_t unit = p->unit, each = c->part / unit;
    for (size_t i = 0; i < c->out_bytes / unit; i++) {
        int from = root;
        size_t at = i;
        if (c->op == PLAN_ALL_GATHER || c->op == PLAN_GATHER || c->op == PLAN_ALL_TO_ALL)
            from = (int)(i / each), at = i % each;
        if (c->op == PLAN_ALL_TO_ALL || c->op == PLAN_SCATTER || c->op == PLAN_REDUCE_SCATTER)
            at += (size_t)rank * each;
        if (c->op == PLAN_SEND_RECV)
            from = (rank + RANKS - 1) % RANKS;
        int index = (int)(at % PATTERN_PERIOD);
        int64_t value = plan_op_reduces(c->op)
                            ? pattern_folded(c, v, index)
                            : pattern_value(c->dtype, WEFT_SUM, RANKS, from, v, index);
        pattern_store(out + i * unit, unit, pattern_bits(c->dtype, value));
    }
}

/* The right result passes; one wrong element, anywhere, is counted; so is the result of the last
 * call. */
static void check_pattern(int op, int dtype, int reduction, uint64_t bytes)
{
    plan_case what = plan_case_of(op, dtype, reduction, RANKS, bytes);
    pattern p;
    CHECK(pattern_open(&p, &what));
    unsigned char *out = malloc(what.out_bytes + 1);
    CHECK(out != NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        expected(&p, rank, rank, 6, out);
        CHECK_INT(pattern_check(&p, rank, rank, 6, out), 0);
        size_t at = what.out_bytes / p.unit / 2 * p.unit;
        out[at] ^= 1;
        CHECK_INT(pattern_check(&p, rank, rank, 6, out), 1);
        out[at] ^= 1;
        out[what.out_bytes - p.unit] ^= 1;
        CHECK_INT(pattern_check(&p, rank, rank, 6, out), 1);
        out[what.out_bytes - p.unit] ^= 1;
        if (what.count > 100)
            CHECK(pattern_check(&p, rank, rank, 7, out) > 0);
    }
    free(out);
    pattern_close(&p);
}

TEST(test_bench_check_ops)
{
    static const uint64_t sizes[] = {4, 12, 1000, 4016, 4020, 50000};
    for (int op = 0; op < PLAN_BARRIER; op++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_pattern(op, WEFT_F32, WEFT_SUM, sizes[i]);
}

TEST(test_bench_check_dtypes)
{
    int checked = 0;
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int reduction = 0; reduction < WEFT_REDUCTIONS; reduction++)
            if (pattern_possible(dtype, reduction, RANKS)) {
                check_pattern(PLAN_ALL_REDUCE, dtype, reduction, 6000);
                checked++;
            }
    CHECK(checked > 70);
    CHECK(!pattern_possible(WEFT_F32, WEFT_BAND, RANKS));
    CHECK(!pattern_possible(WEFT_I32, WEFT_PREMUL_SUM, RANKS));
    CHECK(!pattern_possible(WEFT_F8E5M2, WEFT_SUM, 9));
}

/* Parts in each other's places are seen, also where they are equally long. */
TEST(test_bench_check_places)
{
    plan_case what = plan_case_of(PLAN_ALL_GATHER, WEFT_F32, WEFT_SUM, RANKS, 12000);
    pattern p;
    CHECK(pattern_open(&p, &what));
    unsigned char *out = malloc(what.out_bytes), *turned = malloc(what.out_bytes);
    CHECK(out && turned);
    expected(&p, 0, 0, 0, out);
    memcpy(turned, out + what.part, what.out_bytes - what.part);
    memcpy(turned + what.out_bytes - what.part, out, what.part);
    CHECK_INT(pattern_check(&p, 0, 0, 0, out), 0);
    CHECK(pattern_check(&p, 0, 0, 0, turned) > what.count / 2);
    free(out);
    free(turned);
    pattern_close(&p);
}

/* The values are those of weft's own dtypes. */
TEST(test_bench_pattern_bits)
{
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        for (int value = 0; value <= (dtype == WEFT_BOOL ? 1 : 7); value++) {
            unsigned char bytes[8] = {0};
            CHECK_INT(plan_dtype_size(dtype), weft_dtype_size((weft_dtype)dtype));
            pattern_store(bytes, plan_dtype_size(dtype), pattern_bits(dtype, value));
            weft_tensor *x = weft_tensor_from((weft_dtype)dtype, WEFT_SHAPE(1), bytes);
            CHECK_NEAR(weft_item(x, 0), value, 0);
            weft_release(x);
        }
}

TEST(test_bench_plan_sizes)
{
    plan_case c = plan_case_of(PLAN_ALL_GATHER, WEFT_F32, WEFT_SUM, 4, 8);
    CHECK_INT(c.bytes, 16); /* whole parts: one element a rank at least */
    CHECK_INT(c.in_bytes, 4);
    CHECK_INT(c.out_bytes, 16);
    c = plan_case_of(PLAN_REDUCE_SCATTER, WEFT_F64, WEFT_SUM, 3, 1000);
    CHECK_INT(c.bytes, 42 * 3 * 8);
    CHECK_INT(c.in_bytes, c.bytes);
    CHECK_INT(c.out_bytes, 42 * 8);
    c = plan_case_of(PLAN_ALL_REDUCE, WEFT_BF16, WEFT_SUM, 3, 1001);
    CHECK_INT(c.count, 500);
    CHECK_NEAR(plan_bus_factor(PLAN_ALL_REDUCE, 4), 1.5, 0);
    CHECK_NEAR(plan_bus_factor(PLAN_ALL_GATHER, 4), 0.75, 0);
    CHECK_NEAR(plan_bus_factor(PLAN_BROADCAST, 4), 1, 0);
}

TEST(test_bench_quantile)
{
    double values[] = {5, 1, 4, 2, 3};
    CHECK_NEAR(meter_quantile(values, 5, 0.5), 3, 0);
    CHECK_NEAR(meter_quantile(values, 5, 0.99), 5, 0);
    CHECK_NEAR(meter_quantile(values, 0, 0.5), 0, 0);
}

/* ---- the meter, with ranks as threads and a contender of our own ---- */

static float inputs[RANKS][1000], outputs[RANKS][1000];

typedef struct rank_of {
    meter meter;
    int fault; /* 0: a right all_gather; 1: spoils an element; 2: gives up; 3: sleeps 2 ms */
    int status;
    plan_case what;
} rank_of;

static int prepare(void *self, const plan_case *what, void **in, void **out)
{
    rank_of *me = self;
    me->what = *what;
    *in = inputs[me->meter.rank];
    *out = outputs[me->meter.rank];
    return 0;
}

static int call(void *self, void *in, void *out, int root)
{
    rank_of *me = self;
    size_t part = me->what.part;
    (void)in;
    (void)root;
    if (me->fault == 2 && me->meter.rank == 1 && me->meter.calls > 3)
        return 1;
    for (int r = 0; r < RANKS; r++)
        memcpy((char *)out + (size_t)r * part, inputs[r], part);
    if (me->fault == 1 && me->meter.rank == 2)
        ((float *)out)[7] += 1;
    struct timespec pause = {0, me->fault == 3 ? 2000000 : 0};
    if (me->fault == 3)
        nanosleep(&pause, NULL);
    return 0;
}

/* The meter keeps its own count in the struct it is given: the contender looks at that one. */
static void *be_rank(void *arg)
{
    rank_of *me = arg;
    meter_contender who = {me, prepare, call, NULL};
    me->status = meter_sweep(&me->meter, &who);
    return NULL;
}

static meter_board *measure(int fault, int *status)
{
    static rank_of ranks[RANKS];
    pthread_t threads[RANKS];
    meter_board *board = calloc(1, meter_board_bytes(RANKS));
    CHECK(board != NULL);
    board->ranks = RANKS;
    board->rows = 2;
    board->repeats = 2;
    board->warmup = 1;
    board->calls = 10;
    board->wait = METER_YIELD;
    board->budget_ns = 1000000000;
    board->row[0].what = plan_case_of(PLAN_ALL_GATHER, WEFT_F32, WEFT_SUM, RANKS, 96);
    board->row[1].what = plan_case_of(PLAN_ALL_GATHER, WEFT_F32, WEFT_SUM, RANKS, 3000);
    for (int r = 0; r < RANKS; r++) {
        rank_of rank = {.meter = {board, r, RANKS, 0, 0}, .fault = fault};
        ranks[r] = rank;
        CHECK(pthread_create(&threads[r], NULL, be_rank, &ranks[r]) == 0);
    }
    *status = 0;
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        *status |= ranks[r].status;
    }
    return board;
}

TEST(test_bench_meter_right)
{
    int status;
    meter_board *board = measure(0, &status);
    CHECK_INT(status, 0);
    CHECK_INT(board->done, 2);
    for (int row = 0; row < 2; row++)
        for (int repeat = 0; repeat < 2; repeat++) {
            const meter_result *r = &board->row[row].result[0][repeat];
            CHECK_INT(r->calls, 10);
            CHECK_INT(r->wrong, 0);
            CHECK(r->least <= r->p50 && r->p50 <= r->p99);
        }
    free(board);
}

TEST(test_bench_meter_wrong)
{
    int status;
    meter_board *board = measure(1, &status);
    CHECK_INT(status, 0);
    /* One rank, one element, ten calls and the one to warm up. */
    CHECK_INT(board->row[0].result[0][0].wrong, 11);
    CHECK_INT(board->row[1].result[0][1].wrong, 11);
    free(board);
}

TEST(test_bench_meter_gives_up)
{
    int status;
    meter_board *board = measure(2, &status);
    CHECK(status < 0);
    CHECK_CONTAINS(board->problem, "rank 1: the call failed");
    free(board);
}

TEST(test_bench_meter_times)
{
    int status;
    meter_board *board = measure(3, &status);
    CHECK_INT(status, 0);
    CHECK(board->row[0].result[0][0].p50 > 1000); /* us: a call sleeps 2 ms in every rank */
    free(board);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
