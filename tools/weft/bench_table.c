/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of sweeps; see bench_table.h. */
#include "bench_table.h"

#include "bench_sweep.h"

#include <weft/weft.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

int bench_possible(const bench_options *options)
{
    int ranks = bench_ranks_of(options);
    if (pattern_possible(options->dtype, options->reduction, ranks))
        return 0;
    fprintf(stderr, "weft bench: %s of %s has no exact result to check with %d ranks\n",
            weft_reduction_name((weft_reduction)options->reduction),
            weft_dtype_name((weft_dtype)options->dtype), ranks);
    return 2;
}

static int in_place_too(const bench_sweep *sweep)
{
    return sweep->options->in_place && plan_op_in_place(sweep->op);
}

static bench_kind kind_of(const bench_options *options)
{
    return options->symm ? BENCH_SYMM : BENCH_PLAIN;
}

static void print_head(const bench_sweep *sweep)
{
    const bench_options *o = sweep->options;
    printf("# %s, %s operands, backend %s%s%s\n", plan_op_name(sweep->op),
           o->symm          ? "symmetric"
           : o->weft_memory ? "weft_empty"
                            : "malloc'ed",
           o->backend, o->async ? ", posted and awaited" : "",
           o->eager < 0 ? ""
           : o->eager   ? ", eager where that is possible"
                        : ", never eager");
    printf("#%11s %12s %6s %8s %10s %10s %10s %8s %8s %7s", "size", "count", "type", "redop",
           "algo", "time", "p99", "algbw", "busbw", "#wrong");
    if (in_place_too(sweep))
        printf(" %10s %10s %8s %8s %7s", "in place:", "p99", "algbw", "busbw", "#wrong");
    if (o->floor)
        printf(" %10s %7s  %s", "floor", "ratio", "floor by");
    printf("\n#%11s %12s %6s %8s %10s %10s %10s %8s %8s %7s", "(B)", "(elements)", "", "", "",
           "(us)", "(us)", "(GB/s)", "(GB/s)", "");
    if (in_place_too(sweep))
        printf(" %10s %10s %8s %8s %7s", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
    if (o->floor)
        printf(" %10s", "(us)");
    printf("\n");
    fflush(stdout);
}

static void print_times(const bench_figure *f)
{
    printf(" %10.2f %10.2f %8.2f %8.2f %7" PRIu64, f->p50, f->p99, f->algbw, f->busbw, f->wrong);
}

static void print_row(const bench_sweep *sweep, int row)
{
    bench_kind kind = kind_of(sweep->options);
    bench_figure f, floor;
    if (!bench_sweep_figure(sweep, row, kind, 0, &f))
        return;
    printf(" %11" PRIu64 " %12" PRIu64 " %6s %8s %10s", f.bytes, f.count, f.type, f.reduction,
           *f.way ? f.way : "-");
    print_times(&f);
    double ours = f.p50;
    if (in_place_too(sweep) && bench_sweep_figure(sweep, row, kind, 1, &f))
        print_times(&f);
    if (sweep->options->floor && bench_sweep_figure(sweep, row, BENCH_FLOOR, 0, &floor))
        printf(" %10.2f %7.2f  %s", floor.p50, floor.p50 > 0 ? ours / floor.p50 : 0, floor.way);
    else if (sweep->options->floor)
        printf(" %10s %7s  %s", "-", "-", "-");
    printf("\n");
    fflush(stdout);
}

/* nccl-tests' closing lines: scripts look for them. */
static void print_closing(const bench_report *report, int from)
{
    double sum = 0;
    uint64_t wrong = 0;
    int rows = 0;
    for (int i = from; i < report->count; i++) {
        const bench_figure *f = &report->figure[i];
        if (strncmp(f->who, "weft", 4) != 0)
            continue;
        sum += f->busbw;
        wrong += f->wrong;
        rows++;
    }
    printf("# Out of bounds values : %" PRIu64 " %s\n", wrong, wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n#\n", rows ? sum / rows : 0);
    fflush(stdout);
}

static int run_one(const bench_options *options, int op, bench_report *report)
{
    bench_sweep sweep;
    if (bench_sweep_open(&sweep, options, op) < 0)
        return 1;
    bench_sweep_add(&sweep, kind_of(options), 0, options->eager);
    if (in_place_too(&sweep))
        bench_sweep_add(&sweep, kind_of(options), 1, options->eager);
    if (options->floor)
        bench_sweep_add(&sweep, BENCH_FLOOR, 0, -1);
    if (!options->json && !options->csv) {
        sweep.show = print_row;
        print_head(&sweep);
    }
    int before = report->count, status = bench_sweep_run(&sweep);
    if (bench_sweep_report(&sweep, report) < 0)
        status = 1;
    if (sweep.show)
        print_closing(report, before);
    bench_sweep_close(&sweep);
    return status;
}

/* Elements that came out wrong, of everybody but the peers. */
static uint64_t count_wrong(const bench_report *report)
{
    uint64_t wrong = 0;
    for (int i = 0; i < report->count; i++)
        if (!strncmp(report->figure[i].who, "weft", 4))
            wrong += report->figure[i].wrong;
    return wrong;
}

static int compare_with_old(const bench_options *options, const bench_report *report)
{
    bench_report old = {0};
    int slower = -1;
    if (bench_report_read(&old, options->compare) == 0) {
        slower = bench_compare(&old, report, options->threshold,
                               options->json || options->csv ? stderr : stdout);
        if (slower < 0)
            fprintf(stderr, "weft bench: none of these figures is in %s\n", options->compare);
    }
    bench_report_free(&old);
    return slower != 0;
}

static int save(const bench_options *options, const bench_report *report)
{
    FILE *out = fopen(options->save, "w");
    int failed = !out || bench_report_json(report, out, bench_binding(options));
    if (out && fclose(out) == 0 && !failed)
        return 0;
    fprintf(stderr, "weft bench: %s cannot be written: %s\n", options->save, strerror(errno));
    return 1;
}

int bench_conclude(const bench_options *options, const bench_report *report)
{
    int status = 0;
    uint64_t wrong = count_wrong(report);
    if (options->json)
        status = bench_report_json(report, stdout, bench_binding(options));
    else if (options->csv)
        bench_report_csv(report, stdout);
    if (wrong) {
        fprintf(stderr, "weft bench: %" PRIu64 " elements came out wrong\n", wrong);
        status = 1;
    }
    if (options->save)
        status |= save(options, report);
    if (options->plot)
        status |= bench_plot(report, options->plot);
    if (options->compare)
        status |= compare_with_old(options, report);
    if (fflush(stdout) != 0 || ferror(stdout))
        status = 1;
    return status;
}

int bench_replay(const bench_options *options)
{
    bench_report report = {0};
    int status = bench_report_read(&report, options->from) < 0;
    if (!status)
        status = bench_conclude(options, &report);
    bench_report_free(&report);
    return status;
}

int bench_collectives(const bench_options *options)
{
    bench_report report = {0};
    int status = bench_possible(options);
    if (status)
        return status;
    if (!options->json && !options->csv)
        bench_print_machine(stdout, bench_ranks_of(options), bench_binding(options));
    for (int i = 0; i < (options->ops ? options->ops : PLAN_OPS); i++) {
        int op = options->ops ? options->op[i] : i;
        if (op == PLAN_SEND_RECV && bench_ranks_of(options) < 2)
            continue; /* a rank has nobody to send to */
        status |= run_one(options, op, &report);
    }
    status |= bench_conclude(options, &report);
    bench_report_free(&report);
    return status;
}
