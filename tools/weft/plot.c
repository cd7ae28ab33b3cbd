/* SPDX-License-Identifier: Apache-2.0 */
/* `weft plot`: curves of the steps that weft_progress has written, in the terminal or as a file. */
#include "plot.h"
#include "command.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 64, ROWS = 16, COLUMNS_LEAST = 10, COLUMNS_MOST = 1000, ROWS_LEAST = 2 };

typedef struct wish {
    const char *column, *output;
    int columns, rows, ascii;
} wish;

static int set_column(void *into, const char *text, long number)
{
    (void)number;
    ((wish *)into)->column = text;
    return *text != 0 && strlen(text) < PLOT_NAME;
}

static int set_output(void *into, const char *text, long number)
{
    (void)number;
    ((wish *)into)->output = text;
    return *text != 0;
}

static int set_columns(void *into, const char *text, long number)
{
    (void)text;
    ((wish *)into)->columns = (int)number;
    return 1;
}

static int set_rows(void *into, const char *text, long number)
{
    (void)text;
    ((wish *)into)->rows = (int)number;
    return 1;
}

static int set_ascii(void *into, const char *text, long number)
{
    (void)text, (void)number;
    ((wish *)into)->ascii = 1;
    return 1;
}

static const command_option options[] = {
    {'c', "column", "NAME", 0, 0, "the name of a column", "which column: loss unless told", 0,
     set_column},
    {'o', "output", "FILE", 0, 0, "the name of a file",
     "draw into FILE: .svg, or with gnuplot .png or .pdf", 0, set_output},
    {0, "width", "N", COLUMNS_LEAST, COLUMNS_MOST, NULL, "characters across; 64 unless told", 0,
     set_columns},
    {0, "height", "N", ROWS_LEAST, COLUMNS_MOST, NULL, "lines; 16 unless told", 0, set_rows},
    {0, "ascii", NULL, 0, 0, NULL, "no dots of Braille, which need UTF-8", 0, set_ascii},
    {0},
};

/* What the terminal says that it shows. */
static int has_dots(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *value = "";
    for (int i = 0; i < 3 && !*value; i++)
        value = getenv(names[i]) ? getenv(names[i]) : "";
    return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8") ||
           strstr(value, "utf-8");
}

static int ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a > b && !strcmp(text + a - b, end);
}

static int draw_file(const plot *p, const char *path)
{
    int png = ends_in(path, ".png");
    if (ends_in(path, ".svg"))
        return plot_svg(p, path);
    if (!png && !ends_in(path, ".pdf"))
        return command_wrong(&weft_command_plot, "-o: what %s is to be: .svg, .png or .pdf?", path);
    signal(SIGPIPE, SIG_IGN);
    if (plot_gnuplot(p, path, png ? "pngcairo size 800,480" : "pdfcairo")) {
        fprintf(stderr,
                "weft plot: gnuplot did not draw %s (is it installed?); .svg does without it\n",
                path);
        return 1;
    }
    return 0;
}

static int draw(char **files, const wish *w)
{
    plot p;
    int count = 0;
    while (files[count])
        count++;
    if (!count || count > PLOT_CURVES)
        return command_wrong(&weft_command_plot,
                             "which files?  One to %d, as weft_progress writes them", PLOT_CURVES);
    int failed = plot_read(&p, files, count, w->column);
    if (!failed)
        failed = w->output ? draw_file(&p, w->output)
                           : plot_print(&p, stdout, w->columns, w->rows, w->ascii || !has_dots());
    plot_clear(&p);
    return failed;
}

static int run(int argc, char **argv)
{
    wish w = {.column = "loss", .columns = COLUMNS, .rows = ROWS};
    char **files = calloc((size_t)argc + 1, sizeof *files);
    int status = files ? command_read(&weft_command_plot, argc, argv, &w, files, NULL) : 1;
    if (status == COMMAND_GOES_ON)
        status = draw(files, &w);
    free(files);
    return status;
}

const subcommand weft_command_plot = {
    .name = "plot",
    .text = "draws the loss of a training run in the terminal, or into a file",
    .usage = "[-c NAME] [-o FILE] [--width N] [--height N] [--ascii] steps.csv...",
    .about = "Draws a column of the tables that weft_progress writes (its option csv) over the "
             "first one, a curve for each file.  Of steps that a run did twice, because it went on "
             "from a checkpoint, the later ones count.",
    .options = options,
    .run = run,
};
