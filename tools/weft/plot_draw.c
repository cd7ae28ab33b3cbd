/* SPDX-License-Identifier: Apache-2.0 */
/* Curves as characters, as SVG of our own, and by gnuplot, which is fed through a pipe. */
#include "plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double plot_tick(double range, int count)
{
    double raw = range / (count > 0 ? count : 1), power = pow(10, floor(log10(raw)));
    double part = raw / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

/* ---- characters ---- */

/* Dots: two by four in a character of Braille, one in one of ASCII.  A dot has the number of its
 * curve, from 1. */
typedef struct screen {
    unsigned char *dot;
    int width, height, columns, rows;
    int across, down; /* dots of a character */
} screen;

static int place(double value, double from, double to, int dots)
{
    double at = (value - from) / (to - from) * (dots - 1);
    int n = (int)floor(at + 0.5);
    return n < 0 ? 0 : n >= dots ? dots - 1 : n;
}

static void put_line(screen *s, int x0, int y0, int x1, int y1, int curve)
{
    int dx = abs(x1 - x0), dy = abs(y1 - y0), steps = dx > dy ? dx : dy;
    for (int i = 0; i <= steps; i++) {
        int x = steps ? x0 + (x1 - x0) * i / steps : x0,
            y = steps ? y0 + (y1 - y0) * i / steps : y0;
        s->dot[y * s->width + x] = (unsigned char)curve;
    }
}

static void draw(screen *s, const plot *p)
{
    for (int i = p->curves - 1; i >= 0; i--) {
        const plot_curve *c = &p->curve[i];
        int x = 0, y = 0;
        for (int k = 0; k < c->count; k++) {
            int next_x = place(c->point[k].x, p->left, p->right, s->width);
            int next_y = place(c->point[k].y, p->high, p->low, s->height);
            if (k)
                put_line(s, x, y, next_x, next_y, i + 1);
            else
                s->dot[next_y * s->width + next_x] = (unsigned char)(i + 1);
            x = next_x;
            y = next_y;
        }
    }
}

static void put_braille(const screen *s, int column, int row, FILE *out)
{
    static const unsigned char bits[4][2] = {{1, 8}, {2, 16}, {4, 32}, {64, 128}};
    unsigned mask = 0;
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 2; x++)
            if (s->dot[(row * 4 + y) * s->width + column * 2 + x])
                mask |= bits[y][x];
    if (mask)
        fprintf(out, "\xe2%c%c", (int)(0xa0 | mask >> 6), (int)(0x80 | (mask & 63)));
    else
        fputc(' ', out);
}

static void put_row(const screen *s, const plot *p, int row, FILE *out)
{
    static const char marks[] = " *+ox#@";
    double part = s->rows > 1 ? (double)row / (s->rows - 1) : 0;
    if (row % 4 == 0 || row == s->rows - 1)
        fprintf(out, "%10.4g |", p->high + part * (p->low - p->high));
    else
        fprintf(out, "%10s |", "");
    for (int column = 0; column < s->columns; column++)
        if (s->down > 1)
            put_braille(s, column, row, out);
        else
            fputc(marks[s->dot[row * s->width + column]], out);
    fputc('\n', out);
}

static void put_foot(const screen *s, const plot *p, FILE *out)
{
    char left[32], right[32];
    fprintf(out, "%10s +", "");
    for (int i = 0; i < s->columns; i++)
        fputc('-', out);
    int used = snprintf(left, sizeof left, "%.6g", p->left);
    int rest = s->columns - used;
    snprintf(right, sizeof right, "%.6g", p->right);
    fprintf(out, "\n%12s%s%*s\n", "", left, rest > 0 ? rest : 0, right);
}

int plot_print(const plot *p, FILE *out, int columns, int rows, int ascii)
{
    screen s = {.columns = columns, .rows = rows, .across = ascii ? 1 : 2, .down = ascii ? 1 : 4};
    s.width = columns * s.across;
    s.height = rows * s.down;
    s.dot = calloc((size_t)s.width * (size_t)s.height, 1);
    if (!s.dot) {
        fprintf(stderr, "weft plot: no memory for %d by %d characters\n", columns, rows);
        return 1;
    }
    draw(&s, p);
    fprintf(out, "%10s over %s", p->y_name, p->x_name);
    for (int i = 0; i < p->curves && p->curves > 1; i++)
        fprintf(out, "%s %s", i ? "," : ":", p->curve[i].path);
    fputc('\n', out);
    for (int row = 0; row < rows; row++)
        put_row(&s, p, row, out);
    put_foot(&s, p, out);
    free(s.dot);
    return ferror(out) != 0;
}

/* ---- SVG ---- */

enum { WIDTH = 800, HEIGHT = 480, EDGE = 64 };

static const char *const colours[PLOT_CURVES] = {"#1f6fb4", "#d95f02", "#1b9e77",
                                                 "#7570b3", "#a6761d", "#666666"};

static double x_of(const plot *p, double x)
{
    return EDGE + (x - p->left) / (p->right - p->left) * (WIDTH - 2 * EDGE);
}

static double y_of(const plot *p, double y)
{
    return HEIGHT - EDGE - (y - p->low) / (p->high - p->low) * (HEIGHT - 2 * EDGE);
}

static void put_text(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&')
            fprintf(out, "&#%d;", *text);
        else
            fputc(*text, out);
}

static void put_axes(const plot *p, FILE *out)
{
    double step = plot_tick(p->right - p->left, 8);
    for (double x = ceil(p->left / step) * step; x <= p->right + step / 1e6; x += step)
        fprintf(out,
                "<path d=\"M%.1f %d V%d\" class=\"grid\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%g</text>\n",
                x_of(p, x), EDGE, HEIGHT - EDGE, x_of(p, x), HEIGHT - EDGE + 20, x);
    step = plot_tick(p->high - p->low, 6);
    for (double y = ceil(p->low / step) * step; y <= p->high + step / 1e6; y += step)
        fprintf(out,
                "<path d=\"M%d %.1f H%d\" class=\"grid\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%g</text>\n",
                EDGE, y_of(p, y), WIDTH - EDGE, EDGE - 8, y_of(p, y) + 4,
                fabs(y) < step / 1e6 ? 0 : y);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", WIDTH / 2, HEIGHT - 16);
    put_text(out, p->x_name);
    fprintf(out, "</text>\n<text x=\"%d\" y=\"%d\">", EDGE, EDGE - 16);
    put_text(out, p->y_name);
    fprintf(out, "</text>\n");
}

static void put_curves(const plot *p, FILE *out)
{
    for (int i = 0; i < p->curves; i++) {
        const plot_curve *c = &p->curve[i];
        fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
                colours[i]);
        for (int k = 0; k < c->count; k++)
            fprintf(out, "%s%.1f,%.1f", k ? " " : "", x_of(p, c->point[k].x),
                    y_of(p, c->point[k].y));
        fprintf(out, "\"/>\n");
        if (p->curves == 1)
            continue;
        fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"%s\" text-anchor=\"end\">", WIDTH - EDGE,
                EDGE + 16 * i, colours[i]);
        put_text(out, c->path);
        fprintf(out, "</text>\n");
    }
}

int plot_svg(const plot *p, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "weft plot: %s: %s\n", path, strerror(errno));
        return 1;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"13\">\n"
            "<style>.grid{stroke:#ddd;fill:none}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_axes(p, out);
    put_curves(p, out);
    fprintf(out, "</svg>\n");
    int failed = ferror(out) != 0;
    if (fclose(out) || failed) {
        fprintf(stderr, "weft plot: %s cannot be written\n", path);
        return 1;
    }
    return 0;
}

/* ---- gnuplot ---- */

/* In its quotes: a quote is written twice. */
static void put_quoted(FILE *pipe, const char *text)
{
    fputc('\'', pipe);
    for (; *text; text++)
        if (*text == '\'')
            fputs("''", pipe);
        else if (*text != '\n')
            fputc(*text, pipe);
    fputc('\'', pipe);
}

int plot_gnuplot(const plot *p, const char *path, const char *terminal)
{
    FILE *pipe = popen("gnuplot 2>/dev/null", "w");
    if (!pipe)
        return 1;
    fprintf(pipe, "set terminal %s\nset output ", terminal);
    put_quoted(pipe, path);
    fprintf(pipe, "\nset grid\nset xlabel ");
    put_quoted(pipe, p->x_name);
    fprintf(pipe, "\nset ylabel ");
    put_quoted(pipe, p->y_name);
    fprintf(pipe, "\nplot ");
    for (int i = 0; i < p->curves; i++) {
        fprintf(pipe, "%s'-' with lines lw 1.5 %s", i ? ", " : "",
                p->curves > 1 ? "title " : "notitle");
        if (p->curves > 1)
            put_quoted(pipe, p->curve[i].path);
    }
    fprintf(pipe, "\n");
    for (int i = 0; i < p->curves; i++) {
        for (int k = 0; k < p->curve[i].count; k++)
            fprintf(pipe, "%.17g %.17g\n", p->curve[i].point[k].x, p->curve[i].point[k].y);
        fprintf(pipe, "e\n");
    }
    return pclose(pipe) != 0;
}
