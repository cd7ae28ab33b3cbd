/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft bench --device cuda --tune FILE`: from which size on NCCL is faster than weft's own kernels,
 * for every collective that both have.  At every size both are measured by turns, with ordinary
 * operands; the threshold taken makes the product of all times least, so that one disturbed size does
 * not move it far.  The choice is a table, not a trial in the program that uses it, because NCCL
 * rounds otherwise: results must not depend on what a trial has found.
 *
 * Where there are fewer GPUs than ranks they share the first, and NCCL takes them for hosts.
 */
#include "bench_device.h"

#include "bench.h"
#include "bench_report.h"
#include "bench_start.h"

#include <weft/weft.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SIZES = 6, REPEATS = 5, LOOP_US = 20000, CALLS_MOST = 100 };
typedef enum way { OWN, NCCL, WAYS } way;

/* What the ranks tell the parent, in memory that they share. */
typedef struct tune_board {
    const bench_options *options;
    int ranks;
    uint64_t size[SIZES];
    double us[PLAN_OPS][SIZES][METER_RANKS][WAYS];
    int shared; /* ranks share a GPU */
} tune_board;

typedef struct member {
    tune_board *board;
    weft_group *world;
    int rank;
    weft_device device;
    plan_case what;
    weft_tensor *in, *out;
} member;

static weft_status call_once(const member *me)
{
    weft_reduction op = (weft_reduction)me->what.reduction;
    switch (me->what.op) {
    case PLAN_ALL_REDUCE:
        return weft_all_reduce_into(me->out, me->in, op, me->world);
    case PLAN_ALL_GATHER:
        return weft_all_gather_into(me->out, me->in, me->world);
    case PLAN_REDUCE_SCATTER:
        return weft_reduce_scatter_into(me->out, me->in, op, me->world);
    case PLAN_ALL_TO_ALL:
        return weft_all_to_all_into(me->out, me->in, NULL, NULL, me->world);
    default:
        return weft_broadcast_in_place(me->in, 0, me->world);
    }
}

/* A loop of calls by one of the two, per call.  All ranks are between two loops when they choose. */
static weft_status time_loop(const member *me, way by, int calls, double *us)
{
    weft_status status = weft_group_barrier(me->world, WEFT_DEFAULT);
    if (status >= 0)
        status = weft_tune_set(WEFT_TUNE_NCCL, plan_op_name(me->what.op), me->board->ranks,
                               by == NCCL ? 0 : SIZE_MAX);
    if (status >= 0)
        status = weft_group_barrier(me->world, WEFT_DEFAULT);
    int64_t start = bench_ns();
    for (int i = 0; i < calls && status >= 0; i++)
        status = call_once(me);
    if (status >= 0)
        status = weft_stream_sync(weft_stream_current(me->device), 60000);
    *us = (double)(bench_ns() - start) / 1e3 / calls;
    return status;
}

/* The largest of all ranks, the same on all. */
static weft_status largest(const member *me, double *value)
{
    weft_tensor *x = weft_full(WEFT_F64, WEFT_CPU, WEFT_SHAPE(1), *value);
    weft_status status = x ? weft_all_reduce_into(x, x, WEFT_MAX, me->world) : weft_last_status();
    *value = x ? weft_item(x, 0) : 0;
    return status;
}

static weft_status time_both(const member *me, double us[WAYS])
{
    double took[WAYS][REPEATS];
    int calls[WAYS];
    for (int by = 0; by < WAYS; by++) { /* the first calls meet, and make what they need */
        double each = 0;
        weft_status status = time_loop(me, (way)by, 2, &each);
        if (status >= 0)
            status = time_loop(me, (way)by, 2, &each);
        if (status >= 0)
            status = largest(me, &each);
        if (status < 0)
            return status;
        calls[by] = (int)fmin(CALLS_MOST, fmax(2, LOOP_US / fmax(each, 1)));
    }
    for (int k = 0; k < REPEATS; k++)
        for (int by = 0; by < WAYS; by++) {
            weft_status status = time_loop(me, (way)by, calls[by], &took[by][k]);
            if (status < 0)
                return status;
        }
    for (int by = 0; by < WAYS; by++)
        us[by] = bench_quantile(took[by], REPEATS, 0.5);
    return WEFT_OK;
}

static weft_status measure_row(member *me, int op, int row)
{
    const tune_board *b = me->board;
    me->what = plan_case_of(op, b->options->dtype, b->options->reduction, b->ranks, b->size[row]);
    int64_t item = (int64_t)plan_dtype_size(me->what.dtype);
    weft_dtype dtype = (weft_dtype)me->what.dtype;
    weft_scope_open();
    me->in = weft_zeros(dtype, me->device, WEFT_SHAPE((int64_t)me->what.in_bytes / item));
    me->out = me->what.in_place
                  ? me->in
                  : weft_zeros(dtype, me->device, WEFT_SHAPE((int64_t)me->what.out_bytes / item));
    weft_status status =
        me->in && me->out ? time_both(me, me->board->us[op][row][me->rank]) : weft_last_status();
    weft_scope_close();
    return status;
}

/* A GPU for each rank, if there are as many; else the first for all, as hosts of NCCL's. */
static weft_status find_device(member *me)
{
    char id[24];
    weft_tensor *x = weft_zeros(WEFT_U8, WEFT_CUDA(me->rank), WEFT_SHAPE(1));
    double without = !x;
    weft_clear_error();
    weft_status status = largest(me, &without);
    me->device = without > 0 ? WEFT_CUDA(0) : WEFT_CUDA(me->rank);
    if (status < 0 || without <= 0)
        return status;
    me->board->shared = 1;
    snprintf(id, sizeof id, "rank-%d", me->rank);
    setenv("NCCL_HOSTID", id, 0);
    return WEFT_OK;
}

static int body(int rank, void *arg)
{
    tune_board *board = arg;
    const bench_options *o = board->options;
    setenv("WEFT_NCCL", "auto", 1);
    weft_symm_allow_overlap(true); /* where there are fewer GPUs than ranks */
    weft_group *world = weft_init(NULL);
    member me = {.board = board, .world = world, .rank = rank};
    weft_status status = world ? find_device(&me) : weft_last_status();
    for (int i = 0; i < o->ops && status >= 0; i++)
        for (int row = 0; row < SIZES && status >= 0; row++)
            status = measure_row(&me, o->op[i], row);
    if (status < 0)
        fprintf(stderr, "weft bench: rank %d: %s\n", rank, weft_last_error());
    int finished = weft_finish(world);
    return status < 0 ? 1 : finished;
}

/* ---- what comes of it ---- */

static double slowest(const tune_board *board, int op, int row, way by)
{
    double most = 0;
    for (int rank = 0; rank < board->ranks; rank++)
        most = fmax(most, board->us[op][row][rank][by]);
    return most;
}

/* How many sizes weft's own kernels should have, the others NCCL, so that all cost least. */
static int best_border(const tune_board *board, int op)
{
    double total = 0, least = 0;
    int border = 0;
    for (int row = 0; row < SIZES; row++) {
        total += log(fmax(slowest(board, op, row, OWN), 0.01)) -
                 log(fmax(slowest(board, op, row, NCCL), 0.01));
        if (total < least) {
            least = total;
            border = row + 1;
        }
    }
    return border;
}

static void tell(const tune_board *board, int op, FILE *out)
{
    const char *name = plan_op_name(op);
    char size[24];
    int border = best_border(board, op);
    size_t found = border < SIZES ? (size_t)board->size[border] : SIZE_MAX;
    fprintf(out, "%-16s %3d nccl       %zu\n", name, board->ranks, found);
    printf(" %-16s %5d %12zd %12zd ", name, board->ranks,
           (ssize_t)weft_tune_get(WEFT_TUNE_NCCL, name, board->ranks), (ssize_t)found);
    for (int row = 0; row < SIZES; row++)
        printf(" %s %.0f/%.0f", bench_size_text(board->size[row], size),
               slowest(board, op, row, OWN), slowest(board, op, row, NCCL));
    printf("\n");
}

static int tell_all(const tune_board *board)
{
    const bench_options *o = board->options;
    FILE *out = fopen(o->tune, "w");
    if (!out) {
        fprintf(stderr, "weft bench: %s cannot be written: %s\n", o->tune, strerror(errno));
        return 1;
    }
    bench_print_machine(out, 0, "");
    fprintf(out, "# op, ranks, decision, bytes; for WEFT_TUNE\n");
    printf(
        "# NCCL instead of weft's kernels from: bytes, so far and as measured (-1: never); us by "
        "size, weft/NCCL%s\n#%-16s %5s %12s %12s\n",
        board->shared ? "; the ranks share a GPU, NCCL goes through sockets" : "", "op", "ranks",
        "so far", "measured");
    for (int i = 0; i < o->ops; i++)
        tell(board, o->op[i], out);
    if (fclose(out) == 0)
        return 0;
    fprintf(stderr, "weft bench: %s cannot be written: %s\n", o->tune, strerror(errno));
    return 1;
}

/* Does this machine have NCCL? */
static int has_nccl(void)
{
    weft_backend_info info = {0};
    for (int i = 0; i < weft_backend_count(); i++)
        if (weft_backend_describe(i, &info) == WEFT_OK && !strcmp(info.name, "nccl")) {
            if (!info.usable)
                fprintf(stderr, "weft bench: there is nothing to compare with: %s\n", info.reason);
            return info.usable;
        }
    return 0;
}

int bench_device_tune(const bench_options *options)
{
    if (!has_nccl())
        return 1;
    tune_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        fprintf(stderr, "weft bench: no shared memory for the results\n");
        return 1;
    }
    board->options = options;
    board->ranks = options->ranks ? options->ranks : 2;
    for (int row = 0; row < SIZES; row++)
        board->size[row] = (uint64_t)(64 << 10) << 2 * row;
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = board->ranks;
    opts.flags = WEFT_LAUNCH_NO_CAPTURE;
    opts.body = body;
    opts.arg = board;
    fflush(stdout);
    int status = bench_start(&opts) ? 1 : tell_all(board);
    munmap(board, sizeof *board);
    return status;
}
