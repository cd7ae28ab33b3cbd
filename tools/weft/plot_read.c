/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of numbers with commas between them, as weft_progress writes them. */
#include "plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 4096 };

void plot_clear(plot *p)
{
    for (int i = 0; i < p->curves; i++)
        free(p->curve[i].point);
    memset(p, 0, sizeof *p);
}

/* Field `number` of a line; NULL if it has fewer.  Lines end at their length. */
static const char *field(const char *line, int number, int *length)
{
    for (; number > 0 && line; number--) {
        line = strchr(line, ',');
        line += line != NULL;
    }
    *length = line ? (int)strcspn(line, ",\r\n") : 0;
    return line;
}

/* Which column has the name; -1: none. */
static int find_column(const char *head, const char *name)
{
    int length;
    for (int i = 0; field(head, i, &length); i++) {
        const char *at = field(head, i, &length);
        if ((size_t)length == strlen(name) && !strncmp(at, name, (size_t)length))
            return i;
    }
    return -1;
}

static int add(plot_curve *c, int *room, double x, double y)
{
    /* A run that went on from a checkpoint repeats steps: what it did then is what counts. */
    while (c->count && c->point[c->count - 1].x >= x)
        c->count--;
    if (c->count == *room) {
        int more = *room ? 2 * *room : 1024;
        plot_point *list = realloc(c->point, (size_t)more * sizeof *list);
        if (!list)
            return 0;
        c->point = list;
        *room = more;
    }
    c->point[c->count++] = (plot_point){x, y};
    return 1;
}

/* A number that fills its field and is finite. */
static int number_of(const char *line, int column, double *out)
{
    int length;
    char *end;
    const char *at = field(line, column, &length);
    if (!at || !length)
        return 0;
    *out = strtod(at, &end);
    return end == at + length && isfinite(*out);
}

static int read_lines(plot_curve *c, FILE *file, int column)
{
    char line[LINE];
    int room = 0;
    while (fgets(line, sizeof line, file)) {
        double x, y;
        if (number_of(line, 0, &x) && number_of(line, column, &y) && !add(c, &room, x, y)) {
            fprintf(stderr, "weft plot: no memory for the points of %s\n", c->path);
            return 1;
        }
    }
    if (!c->count)
        fprintf(stderr, "weft plot: %s has no numbers in that column\n", c->path);
    return !c->count;
}

static int read_file(plot *p, plot_curve *c, FILE *file, const char *column)
{
    char head[LINE];
    int length;
    if (!fgets(head, sizeof head, file)) {
        fprintf(stderr, "weft plot: %s is empty\n", c->path);
        return 1;
    }
    int at = find_column(head, column);
    if (at < 1) {
        head[strcspn(head, "\r\n")] = 0;
        fprintf(stderr, "weft plot: %s has no column \"%s\" behind its first; it has: %.200s\n",
                c->path, column, head);
        return 1;
    }
    const char *first = field(head, 0, &length);
    snprintf(p->x_name, sizeof p->x_name, "%.*s", length, first);
    snprintf(p->y_name, sizeof p->y_name, "%s", column);
    return read_lines(c, file, at);
}

static void measure(plot *p)
{
    p->left = p->low = INFINITY;
    p->right = p->high = -INFINITY;
    for (int i = 0; i < p->curves; i++)
        for (int k = 0; k < p->curve[i].count; k++) {
            plot_point at = p->curve[i].point[k];
            p->left = fmin(p->left, at.x), p->right = fmax(p->right, at.x);
            p->low = fmin(p->low, at.y), p->high = fmax(p->high, at.y);
        }
    if (p->left == p->right)
        p->right = p->left + 1;
    if (p->low == p->high)
        p->low -= 0.5, p->high += 0.5;
}

int plot_read(plot *p, char *const *paths, int count, const char *column)
{
    int failed = 0;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < count && !failed; i++) {
        plot_curve *c = &p->curve[p->curves++];
        c->path = paths[i];
        FILE *file = fopen(paths[i], "r");
        if (!file) {
            fprintf(stderr, "weft plot: %s: %s\n", paths[i], strerror(errno));
            return 1;
        }
        failed = read_file(p, c, file, column);
        fclose(file);
    }
    measure(p);
    return failed;
}
