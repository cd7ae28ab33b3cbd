/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the JSON of an earlier run and compares.  Members of a row that are not known here are
 * passed over. */
#include "bench_options.h"
#include "bench_report.h"
#include "json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void set_number(bench_figure *f, const char *key, double value, uint64_t whole)
{
    const struct {
        const char *key;
        double *real;
        uint64_t *count;
        int *number;
    } members[] = {
        {"bytes", NULL, &f->bytes, NULL},       {"count", NULL, &f->count, NULL},
        {"wrong", NULL, &f->wrong, NULL},       {"ranks", NULL, NULL, &f->ranks},
        {"in_place", NULL, NULL, &f->in_place}, {"async", NULL, NULL, &f->async},
        {"p50_us", &f->p50, NULL, NULL},        {"p99_us", &f->p99, NULL, NULL},
        {"min_us", &f->least, NULL, NULL},      {"algbw", &f->algbw, NULL, NULL},
        {"busbw", &f->busbw, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strcmp(members[i].key, key) != 0)
            continue;
        if (members[i].real)
            *members[i].real = value;
        else if (members[i].count)
            *members[i].count = whole;
        else
            *members[i].number = (int)whole;
    }
}

static void set_text(bench_figure *f, const char *key, const char *text)
{
    const struct {
        const char *key;
        char *to;
        size_t room;
    } members[] = {
        {"op", f->op, sizeof f->op},
        {"type", f->type, sizeof f->type},
        {"redop", f->reduction, sizeof f->reduction},
        {"backend", f->backend, sizeof f->backend},
        {"who", f->who, sizeof f->who},
        {"way", f->way, sizeof f->way},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (!strcmp(members[i].key, key))
            snprintf(members[i].to, members[i].room, "%s", text);
}

static int read_row(json_cursor row, bench_figure *f)
{
    json_cursor key, value;
    memset(f, 0, sizeof *f);
    if (!json_enter(&row, '{'))
        return -1;
    while (json_next(&row, &key, &value)) {
        char name[32], text[64];
        json_copy(key, name, sizeof name);
        json_copy(value, text, sizeof text);
        double number = strtod(text, NULL);
        if (*value.at == '"')
            set_text(f, name, text);
        else
            set_number(f, name, number, number < 0 ? 0 : strtoull(text, NULL, 10));
    }
    return 0;
}

static int read_rows(bench_report *report, json_cursor text)
{
    json_cursor whole, rows, none, row;
    if (!json_value(text, &whole) || json_member(whole, "rows", &rows) != 1 ||
        !json_enter(&rows, '['))
        return -1;
    while (json_next(&rows, &none, &row)) {
        bench_figure f;
        if (read_row(row, &f) < 0 || bench_report_add(report, &f) < 0)
            return -1;
    }
    return 0;
}

/* The figures of a file keep the machine that they are of. */
static void read_machine(bench_report *report, json_cursor text)
{
    static const char *const names[] = {"weft", "model", "architecture", "cores", "kernel"};
    char value[5][64];
    json_cursor whole, member;
    if (!json_value(text, &whole))
        return;
    for (int i = 0; i < 5; i++) {
        snprintf(value[i], sizeof value[i], "?");
        if (json_member(whole, names[i], &member) == 1)
            json_copy(member, value[i], sizeof value[i]);
    }
    snprintf(report->machine, sizeof report->machine, "weft %s on %s (%s), %s cores, Linux %s",
             value[0], value[1], value[2], value[3], value[4]);
}

int bench_report_read(bench_report *report, const char *path)
{
    size_t bytes;
    char *text = json_read_file(path, &bytes);
    if (!text) {
        fprintf(stderr, "weft bench: %s cannot be read\n", path);
        return -1;
    }
    int status = read_rows(report, (json_cursor){text, text + bytes});
    if (status == 0)
        read_machine(report, (json_cursor){text, text + bytes});
    if (status < 0)
        fprintf(stderr, "weft bench: %s is not what `weft bench --json` writes\n", path);
    free(text);
    return status;
}

static int same(const bench_figure *a, const bench_figure *b)
{
    return !strcmp(a->op, b->op) && !strcmp(a->type, b->type) &&
           !strcmp(a->reduction, b->reduction) && !strcmp(a->who, b->who) &&
           !strcmp(a->backend, b->backend) && a->ranks == b->ranks && a->bytes == b->bytes &&
           a->in_place == b->in_place && a->async == b->async;
}

static const bench_figure *find_same(const bench_report *report, const bench_figure *wanted)
{
    for (int i = 0; i < report->count; i++)
        if (same(&report->figure[i], wanted))
            return &report->figure[i];
    return NULL;
}

int bench_compare(const bench_report *old, const bench_report *now, double threshold, FILE *out)
{
    int met = 0, slower = 0;
    fprintf(out, "%-16s %8s %5s  %-16s %10s %10s %7s\n", "op", "size", "ranks", "who", "old us",
            "new us", "ratio");
    for (int i = 0; i < now->count; i++) {
        const bench_figure *n = &now->figure[i], *o = find_same(old, n);
        if (!o || !(o->p50 > 0))
            continue;
        char size[24], who[64];
        double ratio = n->p50 / o->p50;
        met++;
        slower += ratio > threshold;
        snprintf(who, sizeof who, "%s%s", n->who, n->in_place ? ", in place" : "");
        fprintf(out, "%-16s %8s %5d  %-16s %10.2f %10.2f %7.2f%s\n", n->op,
                bench_size_text(n->bytes, size), n->ranks, who, o->p50, n->p50, ratio,
                ratio > threshold ? "  slower" : "");
    }
    fprintf(out, "# %d figures compared, %d slower than %.2f times the old one\n", met, slower,
            threshold);
    return met ? slower : -1;
}
