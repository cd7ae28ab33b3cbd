/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time over size, drawn by gnuplot, which is fed through a pipe.  Two panels per operation: time, and
 * below it the time of the others in that of weft, on a linear axis, where equal is 1.  What is
 * beyond the axis stands on its upper end as a triangle.  A line per contender, the same colour in
 * every panel and every plot, and one legend for all.  The bare prototypes (the "floor" of tables)
 * are dashed, calls in place dotted.
 */
#include "bench_report.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SERIES_MAX = 16, PANELS_MAX = PLAN_OPS, RATIO_MOST = 4 };

/* Columns of the points. */
enum { SIZE = 1, TIME, RATIO, BEYOND };

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

/* weft with ordinary operands, or with what it was measured with. */
static const char *base_of(const bench_report *report)
{
    const char *base = NULL;
    for (int i = 0; i < report->count; i++)
        if (!strcmp(report->figure[i].who, "weft"))
            return "weft";
        else if (!base && !strncmp(report->figure[i].who, "weft", 4))
            base = report->figure[i].who;
    return base;
}

/* gnuplot passes over what is NaN. */
static void put_point(FILE *to, const bench_figure *f, const bench_figure *ours)
{
    fprintf(to, "%" PRIu64 " %.5f ", f->bytes, f->p50);
    if (!ours || !(ours->p50 > 0))
        fprintf(to, "NaN NaN\n");
    else if (f->p50 / ours->p50 > RATIO_MOST)
        fprintf(to, "%d %d\n", RATIO_MOST, RATIO_MOST);
    else
        fprintf(to, "%.5f NaN\n", f->p50 / ours->p50);
}

/* The points of one line as a named block, in the order of the columns.  Returns how many. */
static int put_points(FILE *to, const bench_report *report, const char *op, const char *series,
                      int panel, int line)
{
    char name[64];
    int points = 0;
    const char *base = base_of(report);
    fprintf(to, "$p%d_%d << END\n", panel, line);
    for (int i = 0; i < report->count; i++) {
        const bench_figure *f = &report->figure[i];
        if (!drawable(f) || strcmp(f->op, op) != 0 || strcmp(series_of(f, name), series) != 0)
            continue;
        const bench_figure *ours = base ? bench_report_find(report, op, base, 0, f->bytes) : NULL;
        put_point(to, f, ours);
        points++;
    }
    fprintf(to, "END\n");
    return points;
}

static void put_quoted(FILE *to, const char *text)
{
    fputc('\'', to);
    for (; *text; text++)
        fprintf(to, *text == '\'' ? "''" : "%c", *text);
    fputc('\'', to);
}

/* What it is and with how many ranks; below that, where it was measured. */
static void put_title(FILE *to, const bench_report *report)
{
    char machine[400], what[64];
    int ranks = report->count ? report->figure[0].ranks : 0;
    bench_report_machine(machine, sizeof machine);
    snprintf(what, sizeof what, "Time of collectives over size, %d rank%s", ranks,
             ranks == 1 ? "" : "s");
    put_quoted(to, what);
    fprintf(to, ".\"\\n\".");
    put_quoted(to, *report->machine ? report->machine : machine);
}

/* The legend stands below the numbers of the last axis, one name under each column of panels. */
static int legend_height(int lines, int columns)
{
    return 60 + 22 * ((lines + columns - 1) / columns);
}

static void put_style(FILE *to, const bench_report *report, const char *path, int panels, int lines,
                      double least, double most)
{
    size_t length = strlen(path);
    int columns = panels > 1 ? 2 : 1, rows = (panels + columns - 1) / columns;
    int bottom = legend_height(lines, columns);
    int png = length > 4 && !strcmp(path + length - 4, ".png"), height = 720 * rows + 50 + bottom;
    fprintf(to, "set terminal %s size %d,%d font 'Helvetica,12' %s\nset output ",
            png ? "pngcairo" : "svg", columns > 1 ? 1400 : 840, height,
            png ? "" : "background 'white'");
    put_quoted(to, path);
    fprintf(to,
            "\n"
            "set logscale x 2\n"
            "set xtics ('8 B' 8, '64 B' 64, '512 B' 512, '4 KiB' 4096, '32 KiB' 32768, "
            "'256 KiB' 262144, '2 MiB' 2097152, '16 MiB' 16777216, '128 MiB' 134217728, "
            "'1 GiB' 1073741824)\n"
            "set grid xtics ytics lt 1 lw 1 lc rgb '#cccccc'\n"
            "set border 3\n"
            "set tics nomirror\n"
            "set xrange [%g:%g]\n"
            "set multiplot layout %d,%d margins %g,0.97,%g,%g spacing 0.11,%g title ",
            least / 1.4, most * 1.4, 2 * rows, columns, columns > 1 ? 0.085 : 0.15,
            (double)bottom / height, 1 - 90.0 / height, 85.0 / height);
    put_title(to, report);
    fprintf(to, " noenhanced\n");
}

/* Colours belong to contenders, so that plots of other runs and other ranks can be laid beside. */
static const char *colour_of(const char *series, int *others)
{
    static const struct {
        const char *words, *colour;
    } known[] = {
        {"floor", "#555555"},     {"weft symm", "#009e73"}, {"weft", "#0072b2"},
        {"coll/sm", "#cc79a7"},   {"Open MPI", "#d55e00"},  {"MPICH", "#e69f00"},
        {"Intel MPI", "#56b4e9"},
    };
    static const char *const more[] = {"#8a6d00", "#aa3377", "#999933"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(series, known[i].words))
            return known[i].colour;
    return more[(*others)++ % 3];
}

static const char *dashes_of(const char *series)
{
    return !strcmp(series, "floor") ? " dt 2" : strstr(series, ", in place") ? " dt 3" : "";
}

static void put_legend(FILE *to, const char *series)
{
    fprintf(to, " title ");
    put_quoted(to, strcmp(series, "floor") ? series : "prototype");
}

/* The legend stands below all panels; the first one draws it, with the lines that it lacks. */
static void put_lines(FILE *to, const names *series, const int *drawn, int panel, int column,
                      int legend)
{
    int others = 0;
    fprintf(to, "plot NaN notitle");
    for (int i = 0; i < series->count; i++) {
        const char *name = series->text[i], *colour = colour_of(name, &others);
        if (drawn[i])
            fprintf(to, ", $p%d_%d using %d:%d", panel, i, SIZE, column);
        else if (legend)
            fprintf(to, ", NaN");
        else
            continue;
        fprintf(to, " with linespoints lw 2 pt 7 ps 0.4 lc rgb '%s'%s", colour, dashes_of(name));
        if (legend)
            put_legend(to, name);
        else
            fprintf(to, " notitle");
        if (column == RATIO)
            fprintf(to, ", $p%d_%d using %d:%d with points pt 9 ps 1.2 lc rgb '%s' notitle", panel,
                    i, SIZE, BEYOND, colour);
    }
    fprintf(to, "\n");
}

/* Whole decades, at least one: gnuplot would complain about a single point. */
static void put_time_range(FILE *to, const bench_report *report, const char *op)
{
    double least = 0, most = 0;
    for (int i = 0; i < report->count; i++) {
        const bench_figure *f = &report->figure[i];
        if (!drawable(f) || strcmp(f->op, op) != 0)
            continue;
        least = least == 0 || f->p50 < least ? f->p50 : least;
        most = f->p50 > most ? f->p50 : most;
    }
    double low = floor(log10(least)), high = ceil(log10(most));
    fprintf(to, "set yrange [1e%d:1e%d]\n", (int)low, (int)(high > low ? high : low + 1));
}

static void put_time(FILE *to, const bench_report *report, const names *series, const int *drawn,
                     const char *op, int panel)
{
    if (panel == 0)
        fprintf(to, "set key at screen 0.5,screen 0.005 center bottom horizontal Left reverse "
                    "samplen 2 noenhanced\n");
    else
        fprintf(to, "unset key\n");
    fprintf(to,
            "set title '%s' noenhanced\n"
            "set xlabel ''\n"
            "set ylabel 'time'\n"
            "set logscale y 10\n"
            "set ytics ('10 ns' 0.01, '100 ns' 0.1, '1 us' 1, '10 us' 10, '100 us' 100, '1 ms' "
            "1e3, '10 ms' 1e4, '100 ms' 1e5, '1 s' 1e6, '10 s' 1e7)\n",
            op);
    put_time_range(to, report, op);
    put_lines(to, series, drawn, panel, TIME, panel == 0);
}

static void put_ratio(FILE *to, const names *series, const int *drawn, int panel)
{
    fprintf(to,
            "unset key\n"
            "set title ''\n"
            "set xlabel ''\n"
            "set ylabel 'peer / weft'\n"
            "unset logscale y\n"
            "set yrange [0:%d]\n"
            "set ytics ('0' 0, '1' 1, '2' 2, '3' 3, '%d+' %d)\n",
            RATIO_MOST, RATIO_MOST, RATIO_MOST);
    put_lines(to, series, drawn, panel, RATIO, 0);
}

/* Two operations side by side: their times, then their ratios. */
static void put_panels(FILE *to, const bench_report *report, const names *series, const names *ops)
{
    static int drawn[PANELS_MAX][SERIES_MAX];
    for (int op = 0; op < ops->count; op++)
        for (int i = 0; i < series->count; i++)
            drawn[op][i] = put_points(to, report, ops->text[op], series->text[i], op, i);
    for (int first = 0; first < ops->count; first += 2) {
        int both = first + 1 < ops->count;
        put_time(to, report, series, drawn[first], ops->text[first], first);
        if (both)
            put_time(to, report, series, drawn[first + 1], ops->text[first + 1], first + 1);
        else if (ops->count > 1)
            fprintf(to, "set multiplot next\n");
        put_ratio(to, series, drawn[first], first);
        if (both)
            put_ratio(to, series, drawn[first + 1], first + 1);
    }
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
    put_style(to, report, path, ops.count, series.count, least, most);
    put_panels(to, report, &series, &ops);
    fprintf(to, "unset multiplot\n");
    int status = pclose(to);
    signal(SIGPIPE, before);
    if (status)
        fprintf(stderr, "weft bench: gnuplot could not draw %s\n", path);
    return status != 0;
}
