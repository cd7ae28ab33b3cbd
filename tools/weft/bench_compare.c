/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the JSON of an earlier run and compares.  The reader understands what bench_report_json
 * writes: it finds the array "rows" and takes flat objects of strings and numbers from it; members
 * it does not know are passed over.
 */
#include "bench_options.h"
#include "bench_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Reads a string into `out`, cut to its room; NULL if there is none. */
static const char *read_text(const char *at, char *out, size_t room)
{
    size_t length = 0;
    if (*at++ != '"')
        return NULL;
    for (; *at != '"'; at++) {
        if (*at == '\\')
            at++;
        if (!*at)
            return NULL;
        if (length + 1 < room)
            out[length++] = *at;
    }
    out[length] = 0;
    return at + 1;
}

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

/* One flat object; NULL if it is none. */
static const char *read_row(const char *at, bench_figure *f)
{
    char key[32], text[64];
    memset(f, 0, sizeof *f);
    if (*at != '{')
        return NULL;
    at = skip_blanks(at + 1);
    while (*at && *at != '}') {
        at = read_text(at, key, sizeof key);
        at = at ? skip_blanks(at) : NULL;
        if (!at || *at != ':')
            return NULL;
        at = skip_blanks(at + 1);
        if (*at == '"') {
            at = read_text(at, text, sizeof text);
            if (!at)
                return NULL;
            set_text(f, key, text);
        } else {
            char *end;
            double value = strtod(at, &end);
            if (end == at)
                return NULL;
            set_number(f, key, value, value < 0 ? 0 : strtoull(at, NULL, 10));
            at = end;
        }
        at = skip_blanks(at);
        if (*at == ',')
            at = skip_blanks(at + 1);
    }
    return *at == '}' ? at + 1 : NULL;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    size_t length = 0, room = 1 << 16;
    char *text = file ? malloc(room) : NULL;
    while (text) {
        length += fread(text + length, 1, room - length - 1, file);
        if (length + 1 < room)
            break;
        char *more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (file)
        fclose(file);
    if (text)
        text[length] = 0;
    return text;
}

static int read_rows(bench_report *report, const char *text)
{
    const char *at = strstr(text, "\"rows\"");
    at = at ? strchr(at, '[') : NULL;
    at = at ? skip_blanks(at + 1) : NULL;
    while (at && *at != ']') {
        bench_figure f;
        at = read_row(at, &f);
        if (at && bench_report_add(report, &f) < 0)
            return -1;
        at = at ? skip_blanks(at) : NULL;
        if (at && *at == ',')
            at = skip_blanks(at + 1);
    }
    return at ? 0 : -1;
}

int bench_report_read(bench_report *report, const char *path)
{
    char *text = read_file(path);
    if (!text) {
        fprintf(stderr, "weft bench: %s cannot be read\n", path);
        return -1;
    }
    int status = read_rows(report, text);
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
