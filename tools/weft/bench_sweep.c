/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps; see bench_sweep.h. */
#include "bench_sweep.h"

#include "bench_start.h"
#include "bench_weft.h"

#include <weft/weft.h>

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

static int cores_usable(void)
{
    cpu_set_t may;
    return sched_getaffinity(0, sizeof may, &may) == 0 ? CPU_COUNT(&may) : 1;
}

int bench_ranks_of(const bench_options *options)
{
    int cores = cores_usable();
    if (options->ranks)
        return options->ranks;
    return cores < 2 ? 2 : cores > 8 ? 8 : cores;
}

int bench_crowded(const bench_options *options)
{
    return bench_ranks_of(options) > cores_usable();
}

const char *bench_binding(const bench_options *options)
{
    if (!options->bind)
        return "not bound";
    return bench_crowded(options) ? "bound to one core each, several to a core"
                                  : "bound to one core each";
}

void bench_progress(const char *format, ...)
{
    if (!isatty(STDERR_FILENO))
        return;
    fputs("\r\033[K", stderr);
    if (format) {
        va_list args;
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
    }
    fflush(stderr);
}

static void plan_rows(meter_board *board, const bench_options *options, int op)
{
    for (int i = 0; i < options->sizes; i++) {
        plan_case what =
            plan_case_of(op, options->dtype, options->reduction, board->ranks, options->size[i]);
        if (board->rows && board->row[board->rows - 1].what.bytes == what.bytes)
            continue; /* small sizes meet in whole parts; a barrier has no size */
        board->row[board->rows++].what = what;
    }
}

int bench_sweep_open(bench_sweep *sweep, const bench_options *options, int op)
{
    memset(sweep, 0, sizeof *sweep);
    sweep->options = options;
    sweep->op = op;
    int ranks = bench_ranks_of(options);
    size_t bytes = meter_board_bytes(ranks);
    sweep->board_fd = memfd_create("weft bench", MFD_CLOEXEC);
    void *at = MAP_FAILED;
    if (sweep->board_fd >= 0 && ftruncate(sweep->board_fd, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, sweep->board_fd, 0);
    if (at == MAP_FAILED) {
        fprintf(stderr, "weft bench: no shared memory for the results: %s\n", strerror(errno));
        return -1;
    }
    meter_board *board = sweep->board = at;
    board->magic = METER_MAGIC;
    board->bytes = sizeof *board;
    board->ranks = ranks;
    board->repeats = options->repeats;
    board->warmup = options->warmup;
    board->calls = options->iters;
    board->wait = bench_crowded(options) ? METER_YIELD : METER_SPIN;
    board->bind = options->bind;
    board->budget_ns = (int64_t)options->budget_ms * 1000000;
    plan_rows(board, options, op);
    if (op != PLAN_BARRIER && op != PLAN_SEND_RECV) {
        sweep->eager = weft_tune_get(WEFT_TUNE_EAGER, plan_op_name(op), ranks);
        sweep->direct = weft_tune_get(WEFT_TUNE_ZERO_COPY, plan_op_name(op), ranks);
    }
    return 0;
}

void bench_sweep_close(bench_sweep *sweep)
{
    if (sweep->board)
        munmap(sweep->board, meter_board_bytes(sweep->board->ranks));
    if (sweep->board_fd >= 0)
        close(sweep->board_fd);
    sweep->board = NULL;
    sweep->board_fd = -1;
}

void bench_sweep_add(bench_sweep *sweep, bench_kind kind, int in_place, int64_t eager)
{
    int variants = kind == BENCH_FLOOR ? bench_floor_count(sweep->op) : 1;
    for (int i = 0; i < variants && sweep->columns < METER_COLUMNS; i++) {
        bench_column column = {.kind = kind,
                               .in_place = in_place,
                               .prototype = i,
                               .eager = eager,
                               .cma = -1,
                               .which = -1};
        sweep->column[sweep->columns++] = column;
    }
}

void bench_sweep_add_cma(bench_sweep *sweep, int64_t eager, int64_t cma)
{
    bench_sweep_add(sweep, BENCH_PLAIN, 0, eager);
    sweep->column[sweep->columns - 1].cma = cma;
}

void bench_sweep_add_decided(bench_sweep *sweep, weft_threshold which, const char *of,
                             int64_t value)
{
    bench_sweep_add(sweep, BENCH_SYMM, 0, 0);
    bench_column *column = &sweep->column[sweep->columns - 1];
    column->which = (int)which;
    column->of = of;
    column->value = value;
}

/* What one rank keeps from row to row. */
typedef struct member {
    bench_sweep *sweep;
    meter meter;
    weft_group *world;
    bench_floor_rank floor;
} member;

static int measure_weft(member *me, int row, int column, int repeat)
{
    const bench_column *c = &me->sweep->column[column];
    bench_weft rank = {.world = me->world,
                       .rank = me->meter.rank,
                       .ranks = me->meter.ranks,
                       .symm = c->kind == BENCH_SYMM,
                       .malloced = !me->sweep->options->weft_memory,
                       .in_place = c->in_place,
                       .async = me->sweep->options->async};
    meter_contender who = bench_weft_contender(&rank);
    /* All ranks are between two repetitions, so that none is in a call with another threshold. */
    if (c->eager >= 0)
        weft_tune_set(WEFT_TUNE_EAGER, plan_op_name(me->sweep->op), rank.ranks, (size_t)c->eager);
    if (c->cma >= 0)
        weft_tune_set(WEFT_TUNE_CMA, plan_op_name(me->sweep->op), rank.ranks, (size_t)c->cma);
    if (c->which >= 0)
        weft_tune_set((weft_threshold)c->which, c->of, rank.ranks, (size_t)c->value);
    int status = meter_measure(&me->meter, row, column, repeat, &who);
    if (status < 0 && weft_last_status() < 0)
        fprintf(stderr, "weft bench %s: %s\n", plan_op_name(me->sweep->op), weft_last_error());
    return status;
}

static int measure_floor(member *me, int row, int column, int repeat)
{
    const bench_column *c = &me->sweep->column[column];
    if (!bench_floor_fits(&me->sweep->board->row[row].what, c->prototype))
        return 0;
    me->floor.prototype = c->prototype;
    meter_contender who = bench_floor_contender(&me->floor);
    return meter_measure(&me->meter, row, column, repeat, &who);
}

/* Contenders take turns, so that a disturbance of the machine does not fall on one of them only. */
static int measure_row(member *me, int row)
{
    bench_sweep *sweep = me->sweep;
    for (int repeat = 0; repeat < sweep->board->repeats; repeat++)
        for (int column = 0; column < sweep->columns; column++) {
            int status = sweep->column[column].kind == BENCH_FLOOR
                             ? measure_floor(me, row, column, repeat)
                             : measure_weft(me, row, column, repeat);
            if (status < 0)
                return -1;
        }
    return 0;
}

static int measure_rows(member *me)
{
    bench_sweep *sweep = me->sweep;
    char size[24];
    for (int row = 0; row < sweep->board->rows; row++) {
        if (me->meter.rank == 0)
            bench_progress("%s %s: size %d of %d", plan_op_name(sweep->op),
                           bench_size_text(sweep->board->row[row].what.bytes, size), row + 1,
                           sweep->board->rows);
        if (measure_row(me, row) < 0)
            return 1;
        if (me->meter.rank == 0) {
            bench_progress(NULL);
            if (sweep->show)
                sweep->show(sweep, row);
        }
    }
    return 0;
}

/* A rank.  It is bound after it has met the others, because weft looks at the cores then. */
static int be_member(bench_sweep *sweep)
{
    member me = {.sweep = sweep, .meter = {.board = sweep->board}};
    me.world = weft_init(NULL);
    if (!me.world) {
        me.meter.rank = -1;
        meter_fail(&me.meter, weft_last_error());
        return weft_finish(NULL);
    }
    me.meter.rank = me.floor.rank = weft_rank(me.world);
    me.meter.ranks = weft_size(me.world);
    me.floor.floor = &sweep->floor;
    if (sweep->board->bind)
        meter_bind(me.meter.rank);
    int status = measure_rows(&me);
    int finished = weft_finish(me.world);
    return status ? status : finished;
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

static int start_ranks(bench_sweep *sweep)
{
    int ranks = sweep->board->ranks;
    fflush(stdout);
    if (!strcmp(sweep->options->backend, "threads"))
        return weft_spawn(ranks, thread_body, sweep);
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = ranks;
    opts.flags = WEFT_LAUNCH_NO_CAPTURE;
    opts.body = process_body;
    opts.arg = sweep;
    return bench_start(&opts);
}

/* A prototype that computes something else is no floor; 1 after a message. */
static int wrong_floors(const bench_sweep *sweep)
{
    int wrong = 0;
    for (int column = 0; column < sweep->columns; column++)
        for (int row = 0; row < sweep->board->rows; row++) {
            bench_figure f;
            if (sweep->column[column].kind == BENCH_FLOOR &&
                bench_figure_of(sweep->board, row, column, &f) && f.wrong)
                wrong = fprintf(stderr, "weft bench %s: the prototype \"%s\" is wrong\n", f.op,
                                bench_floor_name(sweep->op, sweep->column[column].prototype)) > 0;
        }
    return wrong;
}

int bench_sweep_run(bench_sweep *sweep)
{
    const meter_board *board = sweep->board;
    uint64_t in_most = 0, out_most = 0;
    int floors = 0;
    for (int i = 0; i < sweep->columns; i++)
        floors |= sweep->column[i].kind == BENCH_FLOOR;
    for (int row = 0; row < board->rows; row++) {
        const plan_case *what = &board->row[row].what;
        in_most = what->in_bytes > in_most ? what->in_bytes : in_most;
        out_most = what->out_bytes > out_most ? what->out_bytes : out_most;
    }
    if (floors && bench_floor_open(&sweep->floor, board->ranks, in_most, out_most,
                                   bench_crowded(sweep->options)) < 0) {
        fprintf(stderr, "weft bench: no shared memory for the floor; try a smaller -e\n");
        return 1;
    }
    int status = start_ranks(sweep);
    if (floors)
        bench_floor_close(&sweep->floor);
    if (status)
        fprintf(stderr, "weft bench %s: the ranks failed (%d)%s%s\n", plan_op_name(sweep->op),
                status, *board->problem ? ": " : "", board->problem);
    return status ? 1 : wrong_floors(sweep);
}

/* The algorithm of a column at a row; empty for operations that have only one. */
static const char *way_of(const bench_sweep *sweep, const bench_column *c, int row)
{
    const plan_case *what = &sweep->board->row[row].what;
    if (c->kind == BENCH_FLOOR)
        return bench_floor_name(sweep->op, c->prototype);
    if (sweep->op == PLAN_BARRIER || sweep->op == PLAN_SEND_RECV)
        return "";
    size_t eager = c->eager >= 0            ? (size_t)c->eager
                   : c->kind == BENCH_PLAIN ? sweep->eager
                                            : sweep->direct;
    return what->in_bytes <= WEFT_TUNE_INLINE ? "inline"
           : what->in_bytes <= eager          ? "eager"
                                              : "rendezvous";
}

int bench_sweep_figure(const bench_sweep *sweep, int row, bench_kind kind, int in_place,
                       bench_figure *out)
{
    static const char *const names[] = {"weft", "weft symm", "floor"};
    int found = 0;
    for (int column = 0; column < sweep->columns; column++) {
        const bench_column *c = &sweep->column[column];
        bench_figure f;
        if (c->kind != kind || c->in_place != in_place ||
            !bench_figure_of(sweep->board, row, column, &f) || (found && f.p50 >= out->p50) ||
            (kind == BENCH_FLOOR && f.wrong))
            continue;
        snprintf(f.way, sizeof f.way, "%s", way_of(sweep, c, row));
        *out = f;
        found = 1;
    }
    if (!found)
        return 0;
    snprintf(out->who, sizeof out->who, "%s", names[kind]);
    snprintf(out->backend, sizeof out->backend, "%s", sweep->options->backend);
    out->in_place = in_place;
    out->async = kind != BENCH_FLOOR && sweep->options->async;
    return 1;
}

int bench_sweep_report(const bench_sweep *sweep, bench_report *report)
{
    for (int row = 0; row < sweep->board->rows; row++)
        for (int kind = BENCH_PLAIN; kind <= BENCH_FLOOR; kind++)
            for (int in_place = 0; in_place < 2; in_place++) {
                bench_figure f;
                if (bench_sweep_figure(sweep, row, (bench_kind)kind, in_place, &f) &&
                    bench_report_add(report, &f) < 0)
                    return -1;
            }
    return 0;
}
