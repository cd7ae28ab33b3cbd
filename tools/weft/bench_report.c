/* SPDX-License-Identifier: Apache-2.0 */
/* Figures and how they are written; see bench_report.h.  Reading and comparing: bench_compare.c. */
#include "bench_report.h"
#include "json.h"

#include <weft/weft.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int bench_report_add(bench_report *report, const bench_figure *figure)
{
    if (report->count == report->room) {
        int room = report->room ? 2 * report->room : 64;
        bench_figure *more = realloc(report->figure, (size_t)room * sizeof *more);
        if (!more)
            return -1;
        report->figure = more;
        report->room = room;
    }
    report->figure[report->count++] = *figure;
    return 0;
}

static bench_figure *find(const bench_report *report, const char *op, const char *who, int in_place,
                          uint64_t bytes)
{
    for (int i = 0; i < report->count; i++) {
        bench_figure *f = &report->figure[i];
        if (f->bytes == bytes && f->in_place == in_place && !strcmp(f->op, op) &&
            !strcmp(f->who, who))
            return f;
    }
    return NULL;
}

/* The round of this measurement that is neither the best nor the worst. */
static bench_figure middle_of(const bench_report *round, int rounds, const bench_figure *like)
{
    const bench_figure *all[BENCH_ROUNDS];
    uint64_t wrong = 0;
    int count = 0;
    for (int r = 0; r < rounds && r < BENCH_ROUNDS; r++) {
        const bench_figure *f = find(&round[r], like->op, like->who, like->in_place, like->bytes);
        if (!f)
            continue;
        int at = count++;
        for (; at > 0 && all[at - 1]->p50 > f->p50; at--)
            all[at] = all[at - 1];
        all[at] = f;
        wrong += f->wrong;
    }
    bench_figure middle = *all[(count - 1) / 2];
    middle.wrong = wrong;
    return middle;
}

int bench_report_merge(bench_report *report, const bench_report *round, int rounds)
{
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < round[r].count; i++) {
            const bench_figure *f = &round[r].figure[i];
            if (find(report, f->op, f->who, f->in_place, f->bytes))
                continue;
            bench_figure middle = middle_of(round, rounds, f);
            if (bench_report_add(report, &middle) < 0)
                return -1;
        }
    return 0;
}

void bench_report_free(bench_report *report)
{
    free(report->figure);
    memset(report, 0, sizeof *report);
}

/* Each repetition has its own median; theirs is what counts. */
static double median_of(const meter_result *results, int repeats, size_t member)
{
    double values[METER_REPEATS];
    int count = 0;
    for (int i = 0; i < repeats; i++)
        if (results[i].calls)
            values[count++] = *(const double *)((const char *)&results[i] + member);
    return meter_quantile(values, count, 0.5);
}

int bench_figure_of(const meter_board *board, int row, int column, bench_figure *out)
{
    const plan_case *what = &board->row[row].what;
    const meter_result *results = board->row[row].result[column];
    memset(out, 0, sizeof *out);
    snprintf(out->op, sizeof out->op, "%s", plan_op_name(what->op));
    snprintf(out->type, sizeof out->type, "%s", weft_dtype_name((weft_dtype)what->dtype));
    snprintf(out->reduction, sizeof out->reduction, "%s",
             plan_op_reduces(what->op) ? weft_reduction_name((weft_reduction)what->reduction)
                                       : "none");
    out->ranks = what->ranks;
    out->bytes = what->bytes;
    out->count = what->count;
    out->p50 = median_of(results, board->repeats, offsetof(meter_result, p50));
    out->p99 = median_of(results, board->repeats, offsetof(meter_result, p99));
    out->least = median_of(results, board->repeats, offsetof(meter_result, least));
    uint32_t calls = 0;
    for (int i = 0; i < board->repeats; i++) {
        calls += results[i].calls;
        out->wrong += results[i].wrong;
    }
    if (out->p50 > 0)
        out->algbw = (double)what->bytes / out->p50 * 1e-3;
    out->busbw = out->algbw * plan_bus_factor(what->op, what->ranks);
    return calls > 0;
}

const bench_figure *bench_report_find(const bench_report *report, const char *op, const char *who,
                                      int in_place, uint64_t bytes)
{
    return find(report, op, who, in_place, bytes);
}

static const char *fact(const char *name, weft_machine_fact *out)
{
    for (int i = 0; i < weft_machine_count(); i++)
        if (weft_machine_describe(i, out) == WEFT_OK && !strcmp(out->name, name))
            return out->text;
    return "?";
}

void bench_print_machine(FILE *out, int ranks, const char *binding)
{
    weft_machine_fact model, kernel, cores, architecture;
    weft_version_info build;
    weft_version_describe(&build);
    fprintf(out, "# %s (%s), %s cores usable, Linux %s\n", fact("model", &model),
            fact("architecture", &architecture), fact("cores usable", &cores),
            fact("kernel", &kernel));
    fprintf(out, "# weft %s, %s %s%s%s\n", build.version, build.compiler, build.flags,
            *build.sanitizers ? ", sanitizers: " : "", build.sanitizers);
    if (ranks)
        fprintf(out, "# %d ranks, %s\n", ranks, binding);
}

void bench_report_machine(char *out, size_t bytes)
{
    weft_machine_fact model, kernel, cores, architecture;
    snprintf(out, bytes, "weft %s on %s (%s), %s cores, Linux %s", weft_version(),
             fact("model", &model), fact("architecture", &architecture),
             fact("cores usable", &cores), fact("kernel", &kernel));
}

static void write_row(weft_i_json *j, const bench_figure *f)
{
    enum { DIGITS = 8 };
    weft_i_json_open(j, NULL, '{');
    weft_i_json_text(j, "op", f->op);
    weft_i_json_unsigned(j, "bytes", f->bytes);
    weft_i_json_unsigned(j, "count", f->count);
    weft_i_json_text(j, "type", f->type);
    weft_i_json_text(j, "redop", f->reduction);
    weft_i_json_integer(j, "ranks", f->ranks);
    weft_i_json_text(j, "backend", f->backend);
    weft_i_json_text(j, "who", f->who);
    weft_i_json_text(j, "way", f->way);
    weft_i_json_integer(j, "in_place", f->in_place);
    weft_i_json_integer(j, "async", f->async);
    weft_i_json_real(j, "p50_us", f->p50, DIGITS);
    weft_i_json_real(j, "p99_us", f->p99, DIGITS);
    weft_i_json_real(j, "min_us", f->least, DIGITS);
    weft_i_json_real(j, "algbw", f->algbw, 4);
    weft_i_json_real(j, "busbw", f->busbw, 4);
    weft_i_json_unsigned(j, "wrong", f->wrong);
    weft_i_json_close(j);
}

int bench_report_json(const bench_report *report, FILE *out, const char *binding)
{
    weft_i_json j;
    weft_machine_fact it;
    weft_version_info build;
    weft_version_describe(&build);
    fflush(out);
    weft_i_json_begin(&j, fileno(out), 2); /* a row a line */
    weft_i_json_open(&j, NULL, '{');
    weft_i_json_text(&j, "weft", build.version);
    weft_i_json_text(&j, "compiler", build.compiler);
    weft_i_json_text(&j, "flags", build.flags);
    weft_i_json_text(&j, "host", fact("host", &it));
    weft_i_json_text(&j, "model", fact("model", &it));
    weft_i_json_text(&j, "architecture", fact("architecture", &it));
    weft_i_json_text(&j, "cores", fact("cores usable", &it));
    weft_i_json_text(&j, "kernel", fact("kernel", &it));
    weft_i_json_text(&j, "binding", binding);
    weft_i_json_open(&j, "rows", '[');
    for (int i = 0; i < report->count; i++)
        write_row(&j, &report->figure[i]);
    weft_i_json_close(&j);
    weft_i_json_close(&j);
    return json_finish(&j);
}

void bench_report_csv(const bench_report *report, FILE *out)
{
    fputs("op,bytes,count,type,redop,ranks,backend,who,way,in_place,async,p50_us,p99_us,min_us,"
          "algbw,busbw,wrong\n",
          out);
    for (int i = 0; i < report->count; i++) {
        const bench_figure *f = &report->figure[i];
        fprintf(out,
                "%s,%" PRIu64 ",%" PRIu64 ",%s,%s,%d,%s,%s,%s,%d,%d,%.4f,%.4f,%.4f,%.4g,%.4g,"
                "%" PRIu64 "\n",
                f->op, f->bytes, f->count, f->type, f->reduction, f->ranks, f->backend, f->who,
                f->way, f->in_place, f->async, f->p50, f->p99, f->least, f->algbw, f->busbw,
                f->wrong);
    }
}
