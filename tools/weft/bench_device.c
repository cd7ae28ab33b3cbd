/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft bench --device cuda`; see bench_device.h.
 *
 *     call      host time of a call
 *     eager     a loop of calls and one sync, per call
 *     replayed  a captured graph of such calls, per call
 *
 * Each is the slowest rank's median.  The last column is the share of the device's own copy rate,
 * for the bytes that must be read and written by all ranks together, when they share one device.
 */
#include "bench_device.h"

#include "bench.h"
#include "bench_report.h"
#include "bench_start.h"
#include "bench_weft.h"
#include "json.h"

#include <weft/weft.h>

#include <stdlib.h>
#include <sys/mman.h>

enum { REPEATS = 9, CALLS_MOST = 200, WARMUP = 2 };
static const uint64_t COPY_BYTES = 256 << 20;

typedef enum timing { CALL, EAGER, REPLAYED, TIMINGS } timing;

/* What the ranks tell the parent, in memory that they share. */
typedef struct device_board {
    const bench_options *options;
    int ranks;
    double copy_rate; /* bytes read and written a second */
    double us[PLAN_OPS][METER_ROWS][METER_RANKS][TIMINGS];
    int wrong[PLAN_OPS][METER_ROWS];
} device_board;

typedef struct member {
    device_board *board;
    weft_group *world;
    int rank;
    weft_device device;
    plan_case what;
    weft_tensor *in, *out;
} member;

static weft_tensor *make(const member *me, uint64_t bytes)
{
    weft_dtype dtype = (weft_dtype)me->what.dtype;
    weft_shape shape = WEFT_SHAPE(bytes / plan_dtype_size(me->what.dtype));
    if (!me->board->options->symm)
        return weft_empty(dtype, me->device, shape);
    weft_tensor *x = weft_symm_empty(dtype, me->device, shape);
    return x && weft_symm_rendezvous(x, me->world) ? x : NULL;
}

static weft_status call_once(const member *me)
{
    return bench_weft_call(&me->what, me->in, me->out, 0, me->world);
}

static weft_status sync_all(const member *me)
{
    weft_status status = weft_stream_sync(weft_stream_current(me->device), 60000);
    return status < 0 ? status : weft_group_barrier(me->world, WEFT_DEFAULT);
}

/* As many calls as take some milliseconds. */
static int calls_of(const plan_case *what)
{
    uint64_t calls = ((uint64_t)256 << 20) / (what->bytes + 1);
    return calls > CALLS_MOST ? CALLS_MOST : calls < 8 ? 8 : (int)calls;
}

static weft_status time_eager(member *me, double *call_us, double *eager_us)
{
    double call[REPEATS], eager[REPEATS];
    int calls = calls_of(&me->what);
    for (int k = -WARMUP; k < REPEATS; k++) {
        weft_status status = sync_all(me);
        int64_t start = bench_ns();
        for (int i = 0; i < calls && status >= 0; i++)
            status = call_once(me);
        int64_t called = bench_ns();
        if (status >= 0)
            status = weft_stream_sync(weft_stream_current(me->device), 60000);
        if (status < 0)
            return status;
        if (k < 0)
            continue;
        call[k] = (double)(called - start) / 1e3 / calls;
        eager[k] = (double)(bench_ns() - start) / 1e3 / calls;
    }
    *call_us = bench_quantile(call, REPEATS, 0.5);
    *eager_us = bench_quantile(eager, REPEATS, 0.5);
    return WEFT_OK;
}

static weft_replay *capture(member *me, int calls)
{
    weft_stream *stream = weft_stream_current(me->device);
    if (weft_capture_begin(stream) < 0)
        return NULL;
    weft_status status = WEFT_OK;
    for (int i = 0; i < calls && status >= 0; i++)
        status = call_once(me);
    weft_replay *replay = weft_capture_end(stream);
    return status < 0 ? NULL : replay;
}

static weft_status time_replayed(member *me, double *us)
{
    double took[REPEATS];
    int calls = calls_of(&me->what);
    weft_status status = sync_all(me);
    weft_replay *replay = status < 0 ? NULL : capture(me, calls);
    if (!replay)
        return weft_last_status();
    for (int k = -WARMUP; k < REPEATS; k++) {
        if ((status = sync_all(me)) < 0)
            return status;
        int64_t start = bench_ns();
        if ((status = weft_replay_run(replay)) >= 0)
            status = weft_stream_sync(weft_stream_current(me->device), 60000);
        if (status < 0)
            return status;
        if (k >= 0)
            took[k] = (double)(bench_ns() - start) / 1e3 / calls;
    }
    *us = bench_quantile(took, REPEATS, 0.5);
    return WEFT_OK;
}

/* What the element `at` of the output is, if rank r's input is r + 1 everywhere. */
static double expected(const member *me, uint64_t at)
{
    uint64_t part = me->what.part / plan_dtype_size(me->what.dtype);
    int ranks = me->board->ranks;
    switch (me->what.op) {
    case PLAN_ALL_REDUCE:
    case PLAN_REDUCE_SCATTER:
        return ranks * (ranks + 1) / 2.0;
    case PLAN_BROADCAST:
        return 1;
    case PLAN_SEND_RECV:
        return (me->rank + ranks - 1) % ranks + 1;
    default:
        return (double)(at / part + 1);
    }
}

/* The first and the last element of the result; sums only, other reductions are the tests'. */
static weft_status verify(member *me, int row)
{
    weft_status status = weft_fill(me->in, me->rank + 1);
    if (status >= 0 && (status = sync_all(me)) >= 0)
        status = call_once(me);
    if (status < 0)
        return status;
    uint64_t last = (uint64_t)weft_tensor_numel(me->out) - 1;
    int sums = !plan_op_reduces(me->what.op) || me->what.reduction == WEFT_SUM;
    if (sums && (weft_item(me->out, 0) != expected(me, 0) ||
                 weft_item(me->out, (int64_t)last) != expected(me, last)))
        me->board->wrong[me->what.op][row] = 1;
    return sync_all(me);
}

static weft_status measure_row(member *me, int op, int row)
{
    const bench_options *o = me->board->options;
    double *us = me->board->us[op][row][me->rank];
    me->what = plan_case_of(op, o->dtype, o->reduction, me->board->ranks, o->size[row]);
    weft_status status = weft_scope_open();
    me->in = make(me, me->what.in_bytes);
    me->out = me->what.in_place ? me->in : make(me, me->what.out_bytes);
    if (!me->in || !me->out)
        status = weft_last_status();
    if (status >= 0)
        status = verify(me, row);
    if (status >= 0)
        status = time_eager(me, &us[CALL], &us[EAGER]);
    if (status >= 0)
        status = time_replayed(me, &us[REPLAYED]);
    if (status >= 0)
        status = sync_all(me);
    weft_scope_close();
    return status;
}

/* Rank 0 alone; the others wait on the host. */
static weft_status measure_copy(member *me)
{
    double took[REPEATS];
    weft_shape shape = WEFT_SHAPE(COPY_BYTES);
    weft_status status = WEFT_OK;
    if (me->rank == 0) {
        weft_scope_open();
        weft_tensor *from = weft_zeros(WEFT_U8, me->device, shape);
        weft_tensor *to = weft_zeros(WEFT_U8, me->device, shape);
        for (int k = -WARMUP; k < REPEATS && status >= 0; k++) {
            int64_t start = bench_ns();
            for (int i = 0; i < 8 && status >= 0; i++)
                status = to ? weft_copy(to, from) : weft_last_status();
            if (status >= 0)
                status = weft_stream_sync(weft_stream_current(me->device), 60000);
            took[k < 0 ? 0 : k] = (double)(bench_ns() - start) / 8;
        }
        me->board->copy_rate = 2e9 * (double)COPY_BYTES / bench_quantile(took, REPEATS, 0.5);
        weft_scope_close();
    }
    weft_status met = weft_group_barrier(me->world, WEFT_DEFAULT);
    return status < 0 ? status : met;
}

static weft_status measure(member *me)
{
    const bench_options *o = me->board->options;
    weft_status status = measure_copy(me);
    for (int i = 0; i < o->ops && status >= 0; i++)
        for (int row = 0; row < o->sizes && status >= 0; row++)
            status = measure_row(me, o->op[i], row);
    return status;
}

static int be_member(device_board *board)
{
    weft_symm_allow_overlap(true); /* where there are fewer GPUs than ranks */
    weft_group *world = weft_init(NULL);
    if (!world) {
        fprintf(stderr, "weft bench: %s\n", weft_last_error());
        return 1;
    }
    member me = {.board = board, .world = world, .rank = weft_rank(world), .device = WEFT_CUDA(0)};
    weft_status status = measure(&me);
    if (status < 0)
        fprintf(stderr, "weft bench: rank %d: %s\n", me.rank, weft_last_error());
    int finished = weft_finish(world);
    return status < 0 ? 1 : finished;
}

static int process_body(int rank, void *arg)
{
    (void)rank;
    return be_member(arg);
}

static int thread_body(void *arg)
{
    return be_member(arg);
}

static int start_ranks(device_board *board)
{
    fflush(stdout);
    if (!strcmp(board->options->backend, "threads"))
        return weft_spawn(board->ranks, thread_body, board);
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = board->ranks;
    opts.flags = WEFT_LAUNCH_NO_CAPTURE;
    opts.body = process_body;
    opts.arg = board;
    return bench_start(&opts);
}

static double slowest(const device_board *board, int op, int row, timing which)
{
    double most = 0;
    for (int rank = 0; rank < board->ranks; rank++)
        if (board->us[op][row][rank][which] > most)
            most = board->us[op][row][rank][which];
    return most;
}

/* Every operand is read once and every result written once. */
static double least_bytes(const plan_case *what)
{
    double each = (double)what->bytes, ranks = what->ranks;
    switch (what->op) {
    case PLAN_ALL_GATHER:
    case PLAN_REDUCE_SCATTER:
        return each + ranks * each;
    case PLAN_BROADCAST:
        return each + (ranks - 1) * each;
    default:
        return 2 * ranks * each;
    }
}

static double share_of_copy(const device_board *board, int op, int row)
{
    const bench_options *o = board->options;
    plan_case what = plan_case_of(op, o->dtype, o->reduction, board->ranks, o->size[row]);
    double s = slowest(board, op, row, REPLAYED) / 1e6;
    return s > 0 ? least_bytes(&what) / s / board->copy_rate : 0;
}

static void print_table(const device_board *board)
{
    const bench_options *o = board->options;
    char size[24];
    printf("cuda:0, %d ranks as %s, %s, %s operands; copy %.2f TB/s\n", board->ranks,
           strcmp(o->backend, "threads") ? "processes" : "threads",
           weft_dtype_name((weft_dtype)o->dtype), o->symm ? "symmetric" : "ordinary",
           board->copy_rate / 1e12);
    for (int i = 0; i < o->ops; i++) {
        printf("%-16s %10s %10s %12s %14s\n", plan_op_name(o->op[i]), "call us", "eager us",
               "replayed us", "of copy rate");
        for (int row = 0; row < o->sizes; row++)
            printf("%16s %10.2f %10.2f %12.2f %12.0f %%%s\n", bench_size_text(o->size[row], size),
                   slowest(board, o->op[i], row, CALL), slowest(board, o->op[i], row, EAGER),
                   slowest(board, o->op[i], row, REPLAYED),
                   100 * share_of_copy(board, o->op[i], row),
                   board->wrong[o->op[i]][row] ? "  WRONG" : "");
    }
}

static int print_json(const device_board *board)
{
    const bench_options *o = board->options;
    bench_style style;
    char name[64], size[24];
    static const char *const names[] = {"call", "eager", "replayed"};
    bench_style_open(&style, 1);
    for (int i = 0; i < o->ops; i++)
        for (int row = 0; row < o->sizes; row++)
            for (int t = CALL; t < TIMINGS; t++) {
                snprintf(name, sizeof name, "%s %s %s", plan_op_name(o->op[i]),
                         bench_size_text(o->size[row], size), names[t]);
                bench_row(&style, name, board->ranks, "us",
                          slowest(board, o->op[i], row, (timing)t), 0);
            }
    return bench_style_close(&style);
}

static int any_wrong(const device_board *board)
{
    for (int op = 0; op < PLAN_OPS; op++)
        for (int row = 0; row < METER_ROWS; row++)
            if (board->wrong[op][row])
                return 1;
    return 0;
}

/* The operations that were named, or the five collectives that devices have. */
static int choose_ops(bench_options *options)
{
    if (!options->ops)
        for (int op = PLAN_ALL_REDUCE; op <= PLAN_BROADCAST; op++)
            options->op[options->ops++] = op;
    for (int i = 0; i < options->ops; i++)
        if (options->op[i] > PLAN_BROADCAST && options->op[i] != PLAN_SEND_RECV) {
            fprintf(stderr,
                    "weft bench: --device cuda has no %s; it has all_reduce, all_gather, "
                    "reduce_scatter, all_to_all, broadcast and send_recv\n",
                    plan_op_name(options->op[i]));
            return 2;
        }
    return 0;
}

int bench_device(const bench_options *given)
{
    bench_options options = *given;
    int status = choose_ops(&options);
    if (status)
        return status;
    if (options.tune)
        return bench_device_tune(&options);
    device_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        fprintf(stderr, "weft bench: no shared memory for the results\n");
        return 1;
    }
    board->options = &options;
    board->ranks = options.ranks ? options.ranks : 2;
    status = start_ranks(board) ? 1 : 0;
    if (!status && options.json)
        status = print_json(board);
    else if (!status)
        print_table(board);
    status |= any_wrong(board);
    munmap(board, sizeof *board);
    return status;
}
