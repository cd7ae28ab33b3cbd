/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time over size, drawn by gnuplot, which is fed through a pipe.  One panel per operation; a line
 * per contender, the same colour in every panel; floors are dashed.
 */
#include "bench_report.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SERIES_MAX = 16, PANELS_MAX = PLAN_OPS };

typedef struct names {
    char text[SERIES_MAX][64];
    int count;
} names;

static int add_name(names *list, const char *text)
{
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->text[i], text))
            return i;
    if (list->count == SERIES_MAX)
        return -1;
    snprintf(list->text[list->count], sizeof list->text[0], "%s", text);
    return list->count++;
}

static const char *series_of(const bench_figure *f, char out[64])
{
    snprintf(out, 64, "%s%s", f->who, f->in_place ? ", in place" : "");
    return out;
}

static int drawable(const bench_figure *f)
{
    return f->bytes > 0 && f->p50 > 0;
}

static void list_names(const bench_report *report, names *series, names *ops, double *least,
                       double *most)
{
    char name[64];
    for (int i = 0; i < report->count; i++)
        if (drawable(&report->figure[i])) {
            add_name(series, series_of(&report->figure[i], name));
            add_name(ops, report->figure[i].op);
            double bytes = (double)report->figure[i].bytes;
            *least = *least == 0 || bytes < *least ? bytes : *least;
            *most = bytes > *most ? bytes : *most;
        }
}

/* The points of one line as a named block; returns how many. */
static int put_points(FILE *to, const bench_report *report, const char *op, const char *series,
                      int panel, int line)
{
    char name[64];
    int points = 0;
    fprintf(to, "$p%d_%d << END\n", panel, line);
    for (int i = 0; i < report->count; i++) {
        const bench_figure *f = &report->figure[i];
        if (drawable(f) && !strcmp(f->op, op) && !strcmp(series_of(f, name), series)) {
            fprintf(to, "%" PRIu64 " %.5f\n", f->bytes, f->p50);
            points++;
        }
    }
    fprintf(to, "END\n");
    return points;
}

static void put_style(FILE *to, const char *path, int panels, double least, double most)
{
    size_t length = strlen(path);
    int columns = panels > 1 ? 2 : 1, rows = (panels + columns - 1) / columns;
    int png = length > 4 && !strcmp(path + length - 4, ".png");
    fprintf(to, "set terminal %s size %d,%d font 'Helvetica,12' %s\n", png ? "pngcairo" : "svg",
            860 * columns, 460 * rows, png ? "" : "background 'white'");
    fprintf(to, "set output '");
    for (const char *c = path; *c; c++)
        fprintf(to, *c == '\'' ? "''" : "%c", *c);
    fprintf(to,
            "'\n"
            "set logscale x 2\n"
            "set logscale y 10\n"
            "set xlabel 'size'\n"
            "set ylabel 'time'\n"
            "set xtics ('8 B' 8, '64 B' 64, '512 B' 512, '4 KiB' 4096, '32 KiB' 32768, "
            "'256 KiB' 262144, '2 MiB' 2097152, '16 MiB' 16777216, '128 MiB' 134217728, "
            "'1 GiB' 1073741824)\n"
            "set ytics ('10 ns' 0.01, '100 ns' 0.1, '1 us' 1, '10 us' 10, '100 us' 100, '1 ms' "
            "1e3, '10 ms' 1e4, '100 ms' 1e5, '1 s' 1e6, '10 s' 1e7)\n"
            "set grid xtics ytics lt 1 lw 1 lc rgb '#cccccc'\n"
            "set key outside right center reverse Left samplen 2\n"
            "set border 3\n"
            "set tics nomirror\n"
            "set xrange [%g:%g]\n"
            "set multiplot layout %d,%d\n",
            least / 1.4, most * 1.4, rows, columns);
}

static void put_panel(FILE *to, const bench_report *report, const names *series, const char *op,
                      int panel)
{
    static const char *const colours[] = {"#0072b2", "#009e73", "#d55e00", "#cc79a7",
                                          "#e69f00", "#56b4e9", "#8a6d00", "#aa3377"};
    int drawn[SERIES_MAX] = {0}, first = 1, next = 0;
    for (int i = 0; i < series->count; i++)
        drawn[i] = put_points(to, report, op, series->text[i], panel, i);
    fprintf(to, "set title '%s' noenhanced\nplot ", op);
    for (int i = 0; i < series->count; i++) {
        int bare = !strcmp(series->text[i], "floor");
        const char *colour = bare ? "#555555" : colours[next++ % 8];
        if (!drawn[i])
            continue;
        fprintf(to,
                "%s$p%d_%d using 1:2 with linespoints lw 2 pt 7 ps 0.4 lc rgb '%s'%s title '%s'",
                first ? "" : ", ", panel, i, colour, bare ? " dt 2" : "", series->text[i]);
        first = 0;
    }
    fprintf(to, "\n");
}

int bench_plot_refuses(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0)) {
        fprintf(stderr, "weft bench: --plot %s: a plot is a .svg or a .png file\n", path);
        return 1;
    }
    if (system("command -v gnuplot >/dev/null 2>&1") == 0)
        return 0;
    fprintf(stderr, "weft bench: --plot needs gnuplot (Debian: gnuplot-nox; `scripts/setup "
                    "peers` installs it)\n");
    return 1;
}

int bench_plot(const bench_report *report, const char *path)
{
    names series = {.count = 0}, ops = {.count = 0};
    double least = 0, most = 0;
    list_names(report, &series, &ops, &least, &most);
    if (!ops.count) {
        fprintf(stderr, "weft bench: there is nothing to plot\n");
        return 1;
    }
    if (bench_plot_refuses(path))
        return 1;
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); /* gnuplot may end early; pclose tells */
    FILE *to = popen("gnuplot", "w");
    if (!to)
        return 1;
    put_style(to, path, ops.count, least, most);
    for (int i = 0; i < ops.count; i++)
        put_panel(to, report, &series, ops.text[i], i);
    fprintf(to, "unset multiplot\n");
    int status = pclose(to);
    signal(SIGPIPE, before);
    if (status)
        fprintf(stderr, "weft bench: gnuplot could not draw %s\n", path);
    return status != 0;
}
