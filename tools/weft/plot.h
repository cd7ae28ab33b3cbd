/* SPDX-License-Identifier: Apache-2.0 */
/* Curves of a table: how they are read, and how they are drawn. */
#ifndef WEFT_TOOLS_PLOT_H
#define WEFT_TOOLS_PLOT_H

#include <stdio.h>

enum { PLOT_CURVES = 6, PLOT_NAME = 64 };

typedef struct plot_point {
    double x, y;
} plot_point;

/* A file's: as many points as there are numbers, by x. */
typedef struct plot_curve {
    const char *path;
    plot_point *point;
    int count;
} plot_curve;

typedef struct plot {
    plot_curve curve[PLOT_CURVES];
    int curves;
    char x_name[PLOT_NAME], y_name[PLOT_NAME];
    double left, right, low, high; /* of all points */
} plot;

/* Reads the column of a table with commas, over its first column.  0, or 1 after a message. */
int plot_read(plot *p, char *const *paths, int count, const char *column);
void plot_clear(plot *p);

/* `columns` by `rows` characters, of Braille's dots or of ASCII. */
int plot_print(const plot *p, FILE *out, int columns, int rows, int ascii);
/* Each 0, or 1 after a message. */
int plot_svg(const plot *p, const char *path);
int plot_gnuplot(const plot *p, const char *path, const char *terminal);

/* A step of 1, 2 or 5 times a power of ten, of which about `count` fit into a range. */
double plot_tick(double range, int count);

#endif
